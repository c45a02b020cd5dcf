"""Facts about a Dockerfile before it is built: its work directory, and instructions that the engine's builder lacks."""

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_HEREDOC = re.compile(r"<<-?\s*[\"']?[A-Za-z_]")
_BUILDKIT = {
    "RUN": ("--mount", "--network", "--security", "--device"),
    "COPY": ("--link", "--chmod", "--parents", "--exclude"),
    "ADD": ("--link", "--chmod", "--keep-git-dir", "--checksum", "--exclude", "--unpack"),
}


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """Facts about the last stage."""

    workdir: str | None
    """None if it names none; "" if it cannot be told: a variable, or relative to that of its base image."""
    unbuildable: tuple[str, ...]
    """Unsupported instructions, a few words each."""
    entrypoint: bool
    """It has an ENTRYPOINT, which a task container would not run."""

    @property
    def unsupported(self) -> tuple[str, ...]:
        """All reasons to refuse it."""
        more = ("an ENTRYPOINT in its Dockerfile, which would not be run",) if self.entrypoint else ()
        return (*self.unbuildable, *more)


def read(text: str) -> Dockerfile:
    """Read a Dockerfile's text; never raises."""
    workdirs: dict[str, str | None] = {}
    stage, workdir, entrypoint = "", None, False
    unsupported: list[str] = []
    for instruction, rest in _instructions(text):
        words = rest.split()
        if instruction == "FROM":
            workdirs[stage] = workdir
            names = [word for word in words if not word.startswith("--")]
            workdir = workdirs.get(names[0].lower()) if names else None
            stage = names[2].lower() if len(names) > 2 and names[1].upper() == "AS" else ""
            entrypoint = False
        elif instruction == "WORKDIR":
            workdir = _joined(workdir, rest.strip())
        elif instruction == "ENTRYPOINT":
            entrypoint = words not in ([], ["[]"])
        flags = _BUILDKIT.get(instruction, ())
        found = [word for word in words if word.partition("=")[0] in flags]
        if _HEREDOC.search(rest) and instruction in _BUILDKIT and not found:
            found = ["a here-document"]
        unsupported += [f"{instruction} with {word} in its Dockerfile (BuildKit only)" for word in found[:1]]
    return Dockerfile(workdir, tuple(dict.fromkeys(unsupported)), entrypoint)


def _joined(before: str | None, path: str) -> str:
    path = path.strip("\"'")
    if "$" in path or not (path.startswith("/") or before):
        return ""
    return posixpath.normpath(posixpath.join(before or "/", path))


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    """(instruction, its arguments) pairs; comments are left out and continued lines joined."""
    escape = "`" if re.match(r"(?i)\s*#\s*escape\s*=\s*`", text) else "\\"
    lines: Sequence[str] = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    waiting = ""
    for line in lines:
        if line.rstrip().endswith(escape):
            waiting += line.rstrip()[:-1] + " "
            continue
        instruction, _, rest = (waiting + line).strip().partition(" ")
        waiting = ""
        if instruction:
            yield instruction.upper(), rest
