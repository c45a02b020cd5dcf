"""The short form of `make chaos`: real engines, real Redis, real SQL, a real balancer; nothing lost, nothing left."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

from chaos.__main__ import PROGRAMS, QUICK
from chaos.results import RESULTS
from tests.conftest import ROOT

_BOUND_S = 280
_TAKEN_DOWN_S = 120

pytestmark = pytest.mark.timeout(_BOUND_S + _TAKEN_DOWN_S + 30)


def test_the_short_form(sample_images: dict[str, str], missing: Callable[[str], None]) -> None:
    """The rollouts must survive each fault, and the suite must notice losses and leave nothing behind."""
    if os.geteuid() != 0:
        missing("root, for network namespaces and mounts")
    if absent := [program for program in PROGRAMS if shutil.which(program) is None]:
        missing(", ".join(absent))
    command = [sys.executable, "-m", "chaos", "--quick", "--parallel", "4"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        said, _ = process.communicate(timeout=_BOUND_S)
    except subprocess.TimeoutExpired:
        process.terminate()  # it takes everything down
        said, _ = process.communicate(timeout=_TAKEN_DOWN_S)
        pytest.fail(f"not within {_BOUND_S} s:\n{said[-5000:]}")
    assert process.returncode == 0, said[-8000:]
    outcomes = {outcome["fault"]: outcome for outcome in json.loads(RESULTS.read_text())}
    assert set(outcomes) == set(QUICK)
    for outcome in outcomes.values():
        assert outcome["ok"] and outcome["seen"]
        assert (outcome["lost"], outcome["wrong"], outcome["leaked"]) == ([], [], [])
        assert outcome["started"] == outcome["finished"] + outcome["honestly_failed"]
