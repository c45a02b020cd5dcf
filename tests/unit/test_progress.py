"""A bar where somebody looks, lines that a program can read elsewhere."""

import os
import pty
import subprocess
import sys

SCRIPT = """
from sandbox_server.cli.progress import progress
with progress("images", 2) as bar:
    for name in "ab":
        bar.tell(f"step {name}")
        bar.print(f"{name}: done")
        bar.ran()
"""


def test_no_bar_in_a_log() -> None:
    """A log of an import would be full of control characters."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("a: done\nb: done\n", "step a\nstep b\n")


def test_a_bar_on_a_terminal() -> None:
    """Hours of `instances verify` would look like a hang; results still go to stdout whole."""
    outer, inner = pty.openpty()
    done = subprocess.run([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=inner, check=True, timeout=60)
    os.close(inner)
    shown = os.read(outer, 65536).decode()
    os.close(outer)
    assert done.stdout == b"a: done\nb: done\n"
    assert "images" in shown and "2/2" in shown and "step" not in shown
