"""Encodes a command as terminal lines, since a terminal cuts lines at 4 KiB and interprets control characters. Pure."""

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PIECE = 3000  # bytes of a terminal line; canonical mode cuts at 4095


def quote(text: str) -> str:
    """Quote `text` as a bash word `$'...'`: one terminal line without control characters."""
    # replace() for the frequent characters: one by one, an action of 400 KB would block the event loop for 0.1 s
    plain = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\012")
    return f"$'{_CONTROL.sub(_octal, plain)}'"


def _octal(control: re.Match[str]) -> str:
    return f"\\{ord(control[0]):03o}"


def lines_of(command: str, nonce: str, *, set_mark: bool) -> list[bytes]:
    """Return the terminal lines that run `command`, each shorter than the terminal's limit.

    The begin mark is in the first line that `eval` reads, so that `set -x` traces of our own code come before it.
    """
    # `&&`: passing on a nonzero status must not trigger `set -e` or an ERR trap
    begin = f"{{ \\__sb_b {nonce} {'m' if set_mark else '-'} && \\builtin :; }} 2>/dev/null\n"
    after = '; { \\__sb_d "$?" && \\builtin :; } 2>/dev/null\n'
    if len(command) <= _PIECE:
        whole = f"\\builtin eval {quote(begin + command)}{after}".encode("utf-8", "replace")
        if len(whole) <= _PIECE:
            return [whole]
    lines = []
    for start in range(0, len(command), _PIECE // 8):
        piece = quote(command[start : start + _PIECE // 8])
        lines.append(f"__sb_c{'+' if start else ''}={piece}\n".encode("utf-8", "replace"))
    lines.append(f'\\builtin eval {quote(begin)}"$__sb_c"{after}'.encode())
    return lines
