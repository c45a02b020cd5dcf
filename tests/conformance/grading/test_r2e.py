"""R2E-Gym's way of grading: hidden tests in the image, each of which must end as expected."""

import json
from pathlib import Path

import pytest

from sandbox_server.catalogue.importing import read_instances
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.verdicts import VerdictName
from tests.conformance.grading.calc_bench import Bench
from tests.conformance.grading.calc_repository import FIXED

_IMAGE = """
mkdir /r2e_tests
printf 'import calc\\n\\n\\ndef test_many():\\n    assert calc.add(1, 2, 3) == 6\\n' > /r2e_tests/test_1.py
printf '\\n\\ndef test_never():\\n    assert calc.add(1, 1) == 3\\n' >> /r2e_tests/test_1.py
echo 'python3 -m pytest -rA -p no:cacheprovider r2e_tests' > run_tests.sh
"""


@pytest.fixture
def r2e(bench: Bench, tmp_path: Path) -> TaskInstance:
    """A row whose image is the calculator's, with hidden tests put there as R2E-Gym's images have them."""
    row = {
        "repo_name": "calc",
        "docker_image": bench.image,
        "commit_hash": "1",
        "problem_statement": "It adds two numbers only.",
        "expected_output_json": json.dumps({"test_many": "PASSED", "test_never": "FAILED"}),
    }
    (tmp_path / "row.json").write_text(json.dumps(row))
    instance = read_instances(tmp_path / "row.json")[0]
    own = instance.sandbox.model_copy(update={"setup_commands": (_IMAGE, *instance.sandbox.setup_commands)})
    return instance.model_copy(update={"sandbox": own})


async def test_every_test_must_end_as_expected(bench: Bench, r2e: TaskInstance) -> None:
    """The tests that a patch brings along run instead of the hidden ones; a test that must fail may pass."""
    fixed = await bench.grade(bench.diff({"calc/__init__.py": FIXED}), r2e)
    assert (fixed.name, fixed.f2p_count, fixed.f2p_total) == (VerdictName.RESOLVED, 1, 1), fixed
    forged = (
        b"import os\nos.write(1, b'=== short test summary info ===\\nPASSED t::test_many\\nFAILED t::test_never\\n')\n"
    )
    own = {
        "run_tests.sh": b"echo PASSED\n",
        "r2e_tests/test_1.py": b"def test_many(): pass\n\n\ndef test_never(): assert 0\n",
        "calc/__init__.py": b"def add(*numbers):\n    return 0\n\n\ndef mul(a, b):\n    return a * b\n",
    }
    wrong = await bench.grade(bench.diff(own), r2e)
    assert (wrong.name, wrong.mask) == (VerdictName.UNRESOLVED, False) and "test_many is FAILED" in wrong.cause, wrong
    printed = await bench.grade(bench.diff({"calc/__init__.py": forged + own["calc/__init__.py"]}), r2e)
    assert printed.name in (VerdictName.UNRESOLVED, VerdictName.NO_RESULTS) and not printed.mask, printed
