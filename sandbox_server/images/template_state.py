"""The state that a template's steps leave besides files: environment, user and working folder. Pure."""

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass

from sandbox_server.catalogue.templates import Step
from sandbox_server.errors import MalformedRequest

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MOST_ENV = 1 << 20  # characters; Linux passes 2 MB to a program, arguments included
_LONGEST_WORD = (128 << 10) - 1  # bytes of one argument or environment variable, by Linux
_VARIABLE = re.compile(r"\\(.)|\$(?:(\w+)|\{(\w+)\})", re.DOTALL)


@dataclass(slots=True)
class StepState:
    """Environment, user and working folder after some steps."""

    inherited: Mapping[str, str]
    """Environment of the base image."""
    env: dict[str, str]
    user: str
    workdir: str

    def expanded(self, text: str) -> str:
        """`text` with its variables replaced; unknown ones are empty. Raises MalformedRequest: it gets too long."""
        parts, end, size = list[str](), 0, 0
        for found in _VARIABLE.finditer(text):
            parts += text[end : found.start()], found[1] or self._value(found[2] or found[3])
            end = found.end()
            size += len(parts[-2]) + len(parts[-1])
            if size > _LONGEST_WORD:
                break
        if size + len(text) - end > _LONGEST_WORD:
            raise MalformedRequest(f"{text[:100]!r} with its variables is longer than a program's argument can be")
        return "".join(parts) + text[end:]

    def _value(self, name: str) -> str:
        default = _PATH if name == "PATH" else ""
        return self.env.get(name, self.inherited.get(name, default))

    def at(self, path: str) -> str:
        """`path` as an absolute path; a relative one starts at the working folder."""
        return posixpath.normpath(posixpath.join(self.workdir, path))

    def apply(self, step: Step) -> None:
        """Apply ENV, USER or WORKDIR. Raises MalformedRequest."""
        if step.kind == "ENV":
            size = sum(len(name) + len(value) for name, value in self.env.items())
            for name, value in zip(step.args[::2], step.args[1::2], strict=False):
                if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or "\0" in value:
                    raise MalformedRequest(f"{name[:100]!r} cannot be an environment variable")
                self.env[name] = value = self.expanded(value)
                size += len(name) + len(value)
                if size > _MOST_ENV:
                    raise MalformedRequest(f"the environment of a template has at most {_MOST_ENV >> 20} MB")
        elif step.kind == "USER":
            self.user = self.expanded(step.args[0])
        elif step.kind == "WORKDIR":
            self.workdir = self.at(self.expanded(step.args[0]))
