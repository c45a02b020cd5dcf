"""Makes text that a policy may have written harmless for whatever displays it. Pure.

Characters that a browser or terminal would interpret become visible: control characters as their symbols (U+2400 and
above), direction overrides as their code, lone surrogates as U+FFFD. Escape sequences are removed, or all but colours.
"""

import re

SHOWN: dict[int, str] = {
    **{code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"},
    0x7F: "\u2421",
    **{code: f"[{code:02X}]" for code in range(0x80, 0xA0)},
    **{code: f"[U+{code:04X}]" for code in (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))},
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
}
SEQUENCE = re.compile(
    r"\x1b\[(?P<sgr>[0-9;:]{0,64})m"
    r"|\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]"  # other CSI: moves, clears, modes
    r"|\x1b[\]PX^_][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)"  # titles, links, clipboards; unterminated ones are displayed
    r"|\x1b[ -/]{0,8}[0-Z\\^-~]"
)


def plain(text: object) -> str:
    """The text with every interpreted character replaced by a visible one."""
    return str(text).translate(SHOWN)


def for_terminal(text: str) -> str:
    """The text for a terminal: as by `plain`, and without escape sequences."""
    return plain(SEQUENCE.sub("", text.replace("\r\n", "\n")))


def coloured(text: str) -> str:
    """As `for_terminal`, but with colours (SGR). Of a line that overwrites itself, only the last state is kept."""
    text, pieces, at = last_written(text), [], 0
    for found in SEQUENCE.finditer(text):
        pieces.append(plain(text[at : found.start()]))
        at = found.end()
        if found["sgr"] is not None:
            pieces.append(found[0])
    return "".join((*pieces, plain(text[at:])))


def last_written(text: str) -> str:
    """The text with only the last state of each line that overwrites itself by carriage returns (a progress bar)."""
    text = text.replace("\r\n", "\n")
    return "\n".join(map(_last, text.split("\n"))) if "\r" in text else text


def _last(line: str) -> str:
    written = [part for part in line.split("\r") if part]
    return written[-1] if written else ""
