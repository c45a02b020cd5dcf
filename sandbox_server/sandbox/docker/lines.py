"""A command as lines for a terminal, which cuts at 4 KiB and acts on control characters. Pure."""

_PIECE = 3000  # bytes of a terminal line; canonical mode cuts at 4095


def quote(text: str) -> str:
    """A bash word for `text`, in `$'...'`: one terminal line, no character that the terminal acts on."""
    out = []
    for char in text:
        if char in "\\'":
            out.append("\\" + char)
        elif char < " " or char == "\x7f":
            out.append(f"\\{ord(char):03o}")
        else:
            out.append(char)
    return "$'" + "".join(out) + "'"


def lines_of(command: str, nonce: str, *, set_mark: bool) -> list[bytes]:
    """The terminal lines that run `command`, each shorter than the terminal's limit.

    The begin mark is the first line of the text that `eval` reads, so that `set -x` traces of our own stay before it.
    """
    # `&&`: a status that is only handed on must not set off `set -e` or an ERR trap
    begin = f"{{ \\__sb_b {nonce} {'m' if set_mark else '-'} && \\builtin :; }} 2>/dev/null\n"
    after = '; { \\__sb_d "$?" && \\builtin :; } 2>/dev/null\n'
    whole = f"\\builtin eval {quote(begin + command)}{after}".encode("utf-8", "replace")
    if len(whole) <= _PIECE:
        return [whole]
    lines = []
    for start in range(0, len(command), _PIECE // 8):
        piece = quote(command[start : start + _PIECE // 8])
        lines.append(f"__sb_c{'+' if start else ''}={piece}\n".encode("utf-8", "replace"))
    lines.append(f'\\builtin eval {quote(begin)}"$__sb_c"{after}'.encode())
    return lines
