"""What a command printed, and how it ended."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Output:
    """Bytes of a stream, bounded while read: the first and the last part, and how many lie between."""

    head: bytes
    tail: bytes = b""
    dropped: int = 0

    def text(self) -> str:
        """All of it as text; undecodable bytes replaced, a gap marked."""
        if not self.dropped:
            return (self.head + self.tail).decode("utf-8", "replace")
        gap = f"\n[... {self.dropped} bytes dropped ...]\n"
        return self.head.decode("utf-8", "replace") + gap + self.tail.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class ExecResult:
    """The result of one command run by `Sandbox.exec`."""

    exit_code: int | None
    """None when it was killed at its timeout."""
    stdout: Output
    stderr: Output
    timed_out: bool
    duration_s: float
