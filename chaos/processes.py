"""A process that the suite started: its output in a file, its end certain."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_STOP_S = 30.0
"""From SIGTERM to SIGKILL."""
_COMMAND_S = 120.0


class ChaosFailed(RuntimeError):
    """A part of the harness itself did not do what it must; says which, and the end of its log."""


class Process:
    """One command line that can be started, killed and started again."""

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
        """In a session of its own, so that Ctrl-C reaches the suite alone, which then ends everything in order."""
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
        """Of the running process. Raises ChaosFailed when there is none."""
        if self._process is None or not self.runs:
            raise ChaosFailed(f"{self.name} does not run\n{self.tail()}")
        return self._process.pid

    def send(self, sign: signal.Signals) -> None:
        """To the process alone, not to its children."""
        os.kill(self.pid, sign)

    def end(self, sign: signal.Signals = signal.SIGKILL, *, within_s: float = _STOP_S) -> int | None:
        """Send `sign` and wait for the end; past `within_s` SIGKILL. Its exit status, None when it did not run."""
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
    """What a command prints. Raises ChaosFailed when it fails and `check`, or does not end in time."""
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
    """Wait for `condition`. Raises ChaosFailed past `seconds`, or at once when `part` has ended."""
    end = time.monotonic() + seconds
    while not condition():
        if part is not None and not part.runs:
            raise ChaosFailed(f"{part.name} ended before {what}\n{part.tail()}")
        if time.monotonic() > end:
            raise ChaosFailed(f"not within {seconds:g} s: {what}\n{part.tail() if part else ''}")
        time.sleep(0.05)


def processes_of(mark: str) -> list[int]:
    """Process ids with `mark` in their command line or in the path of one of their cgroups; never our own."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            text = Path(f"/proc/{entry}/cmdline").read_bytes() + Path(f"/proc/{entry}/cgroup").read_bytes()
            state = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:  # it ended meanwhile
            continue
        if mark.encode() in text and state != "Z":
            found.append(int(entry))
    return found


def kill_all(find: Callable[[], Iterable[int]]) -> None:
    """SIGKILL to all that `find` gives, until it gives none. Raises ChaosFailed when some will not die."""
    end = time.monotonic() + _STOP_S
    while pids := list(find()):
        if time.monotonic() > end:
            raise ChaosFailed(f"processes {pids} do not die")
        for pid in pids:
            with suppress(ProcessLookupError):  # it is gone already
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
