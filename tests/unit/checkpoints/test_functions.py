"""save_settings.bash: functions are in a copy what they were."""

import os
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest

BASH = os.environ.get("SANDBOX_TEST_BASH") or shutil.which("bash")

FUNCTIONS = r"""
a() { coproc cat; coproc N { cat; }; coproc (cat); }
b() { echo 'coproc COPROC x'; }
c.d() { coproc time cat; coproc if :; then cat; fi; }
function é { cat <<< "$1"; }
function x[y { :; }
function [z { :; }
function [[ { :; }
function if { :; }
declare -fx a
declare -ft b
"""
PROGRAM = r"""
shopt -s extglob
. "$1"; __sb_file=$2
. "$2.functions"
declare -f a b c.d é; declare -F
__sb_save_functions > "$2"
"""


@pytest.mark.skipif(BASH is None, reason="no bash here")
def test_functions_do_the_same(tmp_path: Path) -> None:
    """A function with `coproc cat` runs COPROC in a copy, because bash prints a name that it does not read so."""
    state = tmp_path / "state"
    state.with_name("state.functions").write_text(FUNCTIONS)
    with resources.as_file(resources.files("sandbox_server.checkpoints") / "save_settings.bash") as script:
        argv = [str(BASH), "-c", PROGRAM, "bash", str(script), str(state)]
        before = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    argv = [str(BASH), "-c", '. "$1"; declare -f a b c.d é; declare -F', "bash", str(state)]
    after = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    ours = [line for line in before.stdout.splitlines() if "__sb_" not in line]
    assert (after.stdout.splitlines(), after.stderr) == (ours, "")
