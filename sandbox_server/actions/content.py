"""Preparations shared by all dialects: find the end of the policy's text, and make the text encodable."""

import re

# Matched backwards: the tail `(\s|<\|[a-z_]+\|>|</s>)+$`. Possessive, so that no text is scanned twice.
_TAIL_REVERSED = re.compile(r"\s++|>\|[a-z_]++\|<|>s/<")
_SURROGATES = re.compile("[\ud800-\udfff]")


def scalar_text(text: str) -> str:
    """`text` with lone surrogates (possible in JSON, not in UTF-8) replaced by U+FFFD."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def strip_tail(content: str) -> str:
    """`content` without trailing white space and special tokens (`<|im_end|>`, `</s>`); linear time.

    A trainer that decodes without skipping special tokens, or appends the matched stop again, leaves them there.
    """
    backwards = content[::-1]
    length = 0
    while token := _TAIL_REVERSED.match(backwards, length):
        length = token.end()
    return content[: len(content) - length]


def fenced_blocks(content: str) -> list[tuple[str, str]]:
    """(language, content) of each Markdown block whose fences (three backticks) begin a line; linear time.

    Unclosed blocks are ignored.
    """
    blocks: list[tuple[str, str]] = []
    text = "\n" + content
    opening = text.find("\n```")
    while opening >= 0:
        inside = text.find("\n", opening + 4)
        closing = _closing_fence(text, inside) if inside >= 0 else -1
        if closing < 0:
            break
        blocks.append((text[opening + 4 : inside].strip(), text[inside + 1 : closing + 1]))
        opening = text.find("\n```", closing + 4)
    return blocks


def _closing_fence(text: str, position: int) -> int:
    """Position of the newline before the first bare fence at or after `position`; -1 if there is none."""
    fence = text.find("\n```", position)
    while fence >= 0:
        line_end = text.find("\n", fence + 4)
        if not text[fence + 4 : line_end if line_end >= 0 else len(text)].strip():
            return fence
        fence = text.find("\n```", fence + 4)
    return -1
