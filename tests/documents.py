"""Reads the code blocks of the documents, and plays transcripts: types their commands and compares the output."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tests.deployment import ROOT

PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "client/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
)
_VARIES = re.compile(
    r"(?P<sid>\b\d{16}\b)|(?P<hash>\b(?:[0-9a-f]{32}|[0-9a-f]{7})\b)"
    r"|(?P<time>\b\d+\.\d+(?= ?m?s\b)|\b\d+(?= ms\b)|(?:(?<=_ms\": )|(?<=_s\": )|(?<=Retry-After: ))[\d.]+)"
    r"|(?P<left_out>\.\.\.)|(?P<space>\s+)"
)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its language ("" if none is named), its text, and the heading above it, `#` included."""

    page: str
    heading: str
    line: int
    language: str
    text: str


def blocks(page: str, heading: str = "") -> list[Block]:
    """The blocks of a page whose nearest heading above begins with `heading`; "": all blocks."""
    found: list[Block] = []
    above, language, begin, text = "", None, 0, ""
    for number, line in enumerate((ROOT / page).read_text().splitlines(keepends=True), 1):
        if line.startswith("```"):
            if language is not None and above.startswith(heading):
                found.append(Block(page, above, begin, language, text))
            language, begin, text = None if language is not None else line[3:].strip(), number, ""
        elif language is not None:
            text += line
        elif line.startswith("#"):
            above = line.strip()
    return found


def typed(transcript: str) -> Iterator[tuple[str, str, str]]:
    """(command, remark, output) for each `$` prompt. The remark follows `  # ` in the command's line.

    A command with an open quote continues on the next line.
    """
    for entry in re.split(r"^\$ ", transcript, flags=re.MULTILINE)[1:]:
        lines = entry.splitlines(keepends=True)
        command = lines.pop(0)
        while lines and not _is_whole(command):
            command += lines.pop(0)
        command, _, remark = command.strip().partition("  # ")
        yield command.strip(), remark.strip(), "".join(lines)


def _is_whole(command: str) -> bool:
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return False
    return True


def learn(printed: str, said: str, known: Mapping[str, str]) -> dict[str, str]:
    """Compare the document's output `printed` with the real one, `said`; return the document's sids -> the real ones.

    Times, hashes and the places of line breaks may differ, and `...` matches any text. A sid of the document matches
    any real sid at its first occurrence, and the same one from then on. Raises AssertionError: the outputs differ.
    """
    sids = dict(known)
    pattern, end = "", 0
    for varying in _VARIES.finditer(printed.strip()):
        pattern += re.escape(printed.strip()[end : varying.start()])
        end = varying.end()
        match varying.lastgroup:
            case "sid" if varying[0] in known:
                pattern += known[varying[0]]
            case "sid" if f"(?P<n{varying[0]}>" in pattern:
                pattern += f"(?P=n{varying[0]})"
            case "sid":
                pattern += rf"(?P<n{varying[0]}>\d{{1,16}})"
            case "hash":
                pattern += "[0-9a-f]+"
            case "time":
                pattern += r"[\d.]+"
            case "left_out":
                pattern += ".*?"
            case _:
                pattern += r"\s+"
    pattern += re.escape(printed.strip()[end:])
    found = re.fullmatch(pattern, said.strip(), re.DOTALL)
    assert found, f"the document prints\n{printed}\nand this was said:\n{said}"
    return sids | {name.removeprefix("n"): sid for name, sid in found.groupdict().items()}


def play(
    block: Block,
    shell: Callable[[str], str],
    known: Mapping[str, str] | None = None,
    meanwhile: Mapping[str, Callable[[Mapping[str, str]], object]] | None = None,
) -> dict[str, str]:
    """Run a transcript's commands in `shell` and compare their output; return the document's sids -> the real ones.

    `known`: sids that are known before the first command. `meanwhile`: remark -> function. A remark "after ..." beside
    a command says what the reader did before it; its function does that, given the sids known so far.
    """
    sids = dict(known or {})
    commands = list(typed(block.text))
    assert commands, f"nothing is typed at {block.page}:{block.line}"
    for command, remark, printed in commands:
        if remark.startswith("after "):
            (meanwhile or {})[remark](sids)
        for shown, real in sids.items():
            command = command.replace(shown, real)
        sids = learn(printed, shell(command), sids)
    return sids
