"""What importing the application loads: every command of the command line waits for it."""

import subprocess
import sys


def test_libraries_that_only_a_part_needs_are_neither_loaded_nor_kept_away() -> None:
    """One import for a type hint made every command load repid with its brokers, an eighth of the time."""
    costly = {"repid", "rich", "opentelemetry.sdk", "swebench", "docker", "alembic", "pyarrow"}
    code = (
        f"import sys, sandbox_server.app; print(sorted({costly} & sys.modules.keys()))\n"
        "import opentelemetry.sdk.metrics, rich"  # later imports work: traces need the first, a debugger the second
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("[]\n", "", 0)
