"""A command of a box, as a client asked for it."""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_SHELLS = frozenset({"bash", "sh", "dash"})


@dataclass(frozen=True, slots=True)
class Command:
    """What runs, in the client's words."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    tag: str | None = None
    """The client's own name for it."""
    pty: bool = False


def with_path(cmd: str, args: Sequence[str], path: str) -> list[str]:
    """`args` of a login shell that runs a text, so that the text finds the image's PATH before the profile's.

    Debian's /etc/profile sets PATH anew: what the image's ENV PATH leads to (a venv, conda) would be gone.
    """
    if path and posixpath.basename(cmd) in _SHELLS and len(args) >= 3 and args[:2] in (["-l", "-c"], ["-c", "-l"]):
        quoted = "'" + path.replace("'", "'\\''") + "'"
        # on the text's own first line, so that the shell's messages name its lines as they are
        return [*args[:2], f"PATH={quoted}${{PATH:+:$PATH}}; {args[2]}", *args[3:]]
    return list(args)
