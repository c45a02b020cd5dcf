"""The benchmark's own harness, for comparison: its `run_instance` on the raw task image, without our defences.

`python -m hacks.harness` serves JSON lines in a process of its own, because the library takes 170 MB and seconds to
import, prints freely and writes logs to the current folder.
"""

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.samples import samples

_TIMEOUT_S = 60
"""Timeout of the tests; those of the samples take at most 5 s."""


class Harness:
    """Sends requests to the process, one at a time."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._turn = threading.Lock()
        self._rows = {one.name: one for one in samples()}
        self._asked = 0

    def resolves(self, target: str, patch: str) -> bool | None:
        """Whether the harness scores `patch` as resolved; None if it cannot grade the target, or fails."""
        if target not in self._rows or not patch.strip():
            return None
        with self._turn:
            self._asked += 1
            request = {"row": self._rows[target].harness_row(self._asked), "patch": patch}
            stdin, stdout = self._process.stdin, self._process.stdout
            assert stdin is not None and stdout is not None  # pipes were asked for
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
            line = stdout.readline()
        answer: bool | None = json.loads(line)["resolved"] if line else None
        return answer


@contextmanager
def harness() -> Iterator[Harness]:
    """Run the process for the duration of the block."""
    with tempfile.TemporaryDirectory(prefix="hacks-harness-") as folder:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        process = subprocess.Popen(
            [sys.executable, "-m", "hacks.harness"],
            cwd=folder,  # it writes logs/ below
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            yield Harness(process)
        finally:
            with contextlib.suppress(BrokenPipeError):
                process.communicate(timeout=120)


def main() -> None:
    """Serve until stdin ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the library prints
    docker = importlib.import_module("docker")
    running = importlib.import_module("swebench.harness.run_evaluation")
    utils = importlib.import_module("swebench.harness.utils")
    # the library's own waits 15 s for `tail -f` to react to SIGTERM
    vars(running)["cleanup_container"] = lambda _, container, __: container.remove(force=True)
    client = docker.from_env(timeout=600)
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        row = request["row"]
        prediction = {
            "instance_id": row["instance_id"],
            "model_name_or_path": "hacks",
            "model_patch": request["patch"],
        }
        resolved = None
        try:
            done = running.run_instance(utils.make_test_spec(row), prediction, client, "hacks", timeout=_TIMEOUT_S)
            # no report if the patch cannot be applied
            resolved = bool(done and done[1][row["instance_id"]]["resolved"])
        except Exception as error:  # noqa: BLE001 - a hack may make it fail in any way; serve the next request
            print(f"{row['instance_id']}: {type(error).__name__}: {error}", file=sys.stderr)
        replies.write(json.dumps({"resolved": resolved}) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
