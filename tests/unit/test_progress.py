"""A bar where somebody looks, lines that a program can read elsewhere."""

import os
import pty
import subprocess
import sys
from pathlib import Path

SAMPLES = Path(__file__).parent.parent.parent / "examples" / "instances.jsonl"
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
    said, shown = on_terminal(["-c", SCRIPT])
    assert said == "a: done\nb: done\n"
    assert "images" in shown and "2/2" in shown and "step" not in shown


def test_an_import_tells_how_far_it_has_come(tmp_path: Path) -> None:
    """20,000 rows take 12 s of CPU, in which nothing was said."""
    verb = ["-m", "sandbox_server.cli", "instances", "import", str(SAMPLES)]
    said, shown = on_terminal(verb, SANDBOX_DATA_DIR=str(tmp_path))
    rows = len(SAMPLES.read_text().splitlines())
    assert f"{rows} new" in said and "rows" in shown and f"{rows}/{rows}" in shown


def on_terminal(words: list[str], **environment: str) -> tuple[str, str]:
    """Output of Python with these arguments: on stdout, and on a terminal as stderr."""
    outer, inner = pty.openpty()
    done = subprocess.run(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=inner,
        check=True,
        timeout=60,
        text=True,
        env={**os.environ, **environment},
    )
    os.close(inner)
    shown = os.read(outer, 65536).decode()
    os.close(outer)
    return done.stdout, shown
