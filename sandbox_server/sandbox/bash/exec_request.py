"""A command to run in a container, and its encoding for an exec channel."""

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sandbox_server.errors import MalformedRequest
from sandbox_server.sandbox.process import Size

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_MOST_BYTES = 2 << 20  # for all arguments and variables; one alone may have 128 KB
_SHELLS = frozenset(("bash", "/bin/bash", "/usr/bin/bash"))
_READ_ONLY = frozenset(("BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID", "_"))  # bash's own


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """One command; the fields are the arguments of `sandbox.base.Sandbox.start`."""

    argv: Sequence[str]
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    stdin: bool = False
    pty: Size | None = None
    timeout_s: float | None = None
    home_cwd: bool = False
    merge_streams: bool = False

    @property
    def is_login_shell(self) -> bool:
        """True for `bash -l -c TEXT` with an environment that bash can set."""
        argv = self.argv
        is_shell = len(argv) == 4 and argv[0] in _SHELLS and list(argv[1:3]) == ["-l", "-c"]
        return is_shell and all(map(_is_plain, self.env))

    def words(self, user: str, workdir: str) -> list[str]:
        """The arguments of `__sb_become` in exec_channel.bash, from the user on.

        Raises:
            MalformedRequest: the command is empty, or a part of it cannot be passed on (NUL, lone surrogate).
        """
        folder = self.cwd or "."
        if not self.home_cwd:
            folder = posixpath.join(workdir, self.cwd or "")
        plain = {name: value for name, value in self.env.items() if _is_plain(name)}
        odd = [f"{name}={value}" for name, value in self.env.items() if name not in plain]
        argv = ["env", "--", *odd, *self.argv] if odd else self.argv
        words = [
            user.partition(":")[0] if self.home_cwd else "",
            folder,
            "pipe" if self.stdin or self.pty is not None else "null",
            "out" if self.merge_streams else "err",
            str(len(plain)),
            *(f"{name}={value}" for name, value in plain.items()),
            *argv,
        ]
        try:
            whole = "".join(words).encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise MalformedRequest("the command, its folder or environment contains a lone surrogate") from None
        if len(whole) > _MOST_BYTES:  # the channel would try for minutes
            raise MalformedRequest(
                f"the command and its environment are longer than {_MOST_BYTES >> 20} MB, which no Linux can start;"
                " write long texts to a file or to stdin"
            )
        if b"\0" in whole or not self.argv:
            raise MalformedRequest("the command is empty, or it, its folder or environment contains a NUL byte")
        return words


def _is_plain(name: str) -> bool:
    """Whether bash can export a variable of this name."""
    return _NAME.fullmatch(name) is not None and name not in _READ_ONLY
