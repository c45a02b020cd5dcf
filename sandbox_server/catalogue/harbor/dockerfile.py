"""Facts about a Dockerfile before it is built: directory, user, volumes, and what the engine's builder lacks."""

import json
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
    user: str | None
    """Name or number, without a group; None if it names none; "" if it cannot be told."""
    volumes: tuple[str, ...]
    """Paths as they are written, which are absolute unless they hold a variable."""
    unbuildable: tuple[str, ...]
    """Unsupported instructions, a few words each."""
    entrypoint: bool
    """It has an ENTRYPOINT, which a task container would not run."""

    @property
    def unsupported(self) -> tuple[str, ...]:
        """All reasons to refuse it."""
        more = ("an ENTRYPOINT in its Dockerfile, which would not be run",) if self.entrypoint else ()
        return (*self.unbuildable, *more)


_EMPTY = Dockerfile(None, None, (), (), entrypoint=False)


def read(text: str) -> Dockerfile:
    """Read a Dockerfile's text; never raises."""
    stages: dict[str, Dockerfile] = {}
    stage, found = "", _EMPTY
    unsupported: list[str] = []
    for instruction, rest in _instructions(text):
        words = rest.split()
        if instruction == "FROM":
            stages[stage] = found
            names = [word for word in words if not word.startswith("--")]
            found = replace(stages.get(names[0].lower(), _EMPTY) if names else _EMPTY, entrypoint=False)
            stage = names[2].lower() if len(names) > 2 and names[1].upper() == "AS" else ""
        elif instruction == "WORKDIR":
            found = replace(found, workdir=_joined(found.workdir, rest.strip()))
        elif instruction == "USER":
            found = replace(found, user="" if "$" in rest else rest.strip().partition(":")[0])
        elif instruction == "VOLUME":
            found = replace(found, volumes=(*found.volumes, *_listed(rest)))
        elif instruction == "ENTRYPOINT":
            found = replace(found, entrypoint=words not in ([], ["[]"]))
        flags = _BUILDKIT.get(instruction, ())
        lacking = [word for word in words if word.partition("=")[0] in flags]
        if _HEREDOC.search(rest) and instruction in _BUILDKIT and not lacking:
            lacking = ["a here-document"]
        unsupported += [f"{instruction} with {word} in its Dockerfile (BuildKit only)" for word in lacking[:1]]
    return replace(found, unbuildable=tuple(dict.fromkeys(unsupported)))


def _listed(rest: str) -> list[str]:
    try:
        paths = json.loads(rest)
    except ValueError:
        paths = rest.split()
    return [str(path) for path in paths] if isinstance(paths, list) else []


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
