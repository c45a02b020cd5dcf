"""A command's output and result."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Output:
    """Bounded output of a stream: its first and last bytes, and the number of bytes dropped in between."""

    head: bytes
    tail: bytes = b""
    dropped: int = 0

    def text(self) -> str:
        """Decode it as UTF-8: undecodable bytes are replaced, the gap is marked."""
        if not self.dropped:
            return (self.head + self.tail).decode("utf-8", "replace")
        gap = f"\n[... {self.dropped} bytes dropped ...]\n"
        return self.head.decode("utf-8", "replace") + gap + self.tail.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class ExecResult:
    """The result of one command run by `Sandbox.exec`."""

    exit_code: int | None
    """None if it was killed at its timeout."""
    stdout: Output
    stderr: Output
    timed_out: bool
    duration_s: float
