"""A command of a box, as the client requested it."""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_SHELLS = frozenset({"bash", "sh", "dash"})


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Command line and environment, as requested."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    tag: str | None = None
    """Name given by the client."""
    pty: bool = False
    stdin: bool = True
    """False: it reads /dev/null."""


def with_path(cmd: str, args: Sequence[str], path: str) -> list[str]:
    """`args` with the image's PATH put before the profile's, if a login shell runs a script text.

    Debian's /etc/profile resets PATH, which hides what the image's ENV PATH adds (a venv, conda).
    """
    if path and posixpath.basename(cmd) in _SHELLS and len(args) >= 3 and args[:2] in (["-l", "-c"], ["-c", "-l"]):
        quoted = "'" + path.replace("'", "'\\''") + "'"
        # on the script's first line, so that line numbers in the shell's messages stay right
        return [*args[:2], f"PATH={quoted}${{PATH:+:$PATH}}; {args[2]}", *args[3:]]
    return list(args)
