"""A process that the suite started: logs to a file, and is certain to end."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_STOP_S = 30.0
"""Seconds from SIGTERM to SIGKILL."""
_COMMAND_S = 120.0


class ChaosFailed(RuntimeError):
    """A part of the harness failed; the message names it and has the end of its log."""


class Process:
    """A command that can be started, killed and started again."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> None:
        self.name = name
        self.command = [str(word) for word in command]
        self.log = log
        self.environment = dict(environment) if environment is not None else None
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it in its own session, so that Ctrl-C reaches only the suite, which then ends everything in order."""
        with self.log.open("ab") as stream:
            self._process = subprocess.Popen(
                self.command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
                user=self._user,
                cwd="/",
            )

    @property
    def runs(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Process id. Raises ChaosFailed if it does not run."""
        if self._process is None or not self.runs:
            raise ChaosFailed(f"{self.name} does not run\n{self.tail()}")
        return self._process.pid

    def send(self, sign: signal.Signals) -> None:
        """Send a signal to the process, not to its children."""
        os.kill(self.pid, sign)

    def end(self, sign: signal.Signals = signal.SIGKILL, *, within_s: float = _STOP_S) -> int | None:
        """Send `sign` and wait for the end; after `within_s` SIGKILL. Returns the exit status; None: it did not run."""
        if self._process is None:
            return None
        if self.runs:
            self._process.send_signal(sign)
            try:
                self._process.wait(within_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
        status = self._process.wait()
        self._process = None
        return status

    def tail(self, size: int = 2000) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-size:] if self.log.exists() else ""


def run(*words: str | Path, check: bool = True, timeout_s: float = _COMMAND_S, user: str | None = None) -> str:
    """Run a command and return its output. Raises ChaosFailed if it fails and `check`, or does not end in time."""
    command = [str(word) for word in words]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False, user=user, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ChaosFailed(f"{' '.join(command)[:200]}: {error}") from error
    if check and done.returncode:
        raise ChaosFailed(f"{' '.join(command)[:200]}: exit {done.returncode}: {(done.stderr or done.stdout)[-800:]}")
    return done.stdout.strip()


def until(condition: Callable[[], object], seconds: float, what: str, *, part: Process | None = None) -> None:
    """Wait for `condition`. Raises ChaosFailed after `seconds`, or at once if `part` has ended."""
    end = time.monotonic() + seconds
    while not condition():
        if part is not None and not part.runs:
            raise ChaosFailed(f"{part.name} ended before {what}\n{part.tail()}")
        if time.monotonic() > end:
            raise ChaosFailed(f"not within {seconds:g} s: {what}\n{part.tail() if part else ''}")
        time.sleep(0.05)


def processes_of(mark: str) -> list[int]:
    """Ids of processes with `mark` in their command line or cgroup path, without our own."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            text = Path(f"/proc/{entry}/cmdline").read_bytes() + Path(f"/proc/{entry}/cgroup").read_bytes()
            state = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:  # it has ended meanwhile
            continue
        if mark.encode() in text and state != "Z":
            found.append(int(entry))
    return found


def kill_all(find: Callable[[], Iterable[int]]) -> None:
    """Send SIGKILL to everything that `find` returns, until it returns nothing. Raises ChaosFailed if some survive."""
    end = time.monotonic() + _STOP_S
    while pids := list(find()):
        if time.monotonic() > end:
            raise ChaosFailed(f"processes {pids} do not die")
        for pid in pids:
            with suppress(ProcessLookupError):  # it is gone already
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
