"""What every dialect does first: find where the policy's text ends, and make it text that can be encoded."""

import re

# Read backwards: the tail `(\s|<\|[a-z_]+\|>|</s>)+$`. Possessive, so that no text is looked at twice.
_TAIL_REVERSED = re.compile(r"\s++|>\|[a-z_]++\|<|>s/<")
_SURROGATES = re.compile("[\ud800-\udfff]")


def scalar_text(text: str) -> str:
    """`text` with lone surrogates (JSON can spell them, UTF-8 cannot) replaced by U+FFFD."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def strip_tail(content: str) -> str:
    """`content` without the white space and special tokens (`<|im_end|>`, `</s>`) at its end; linear.

    A trainer that decodes without skipping special tokens, or re-appends the matched stop, leaves them there.
    """
    backwards = content[::-1]
    length = 0
    while token := _TAIL_REVERSED.match(backwards, length):
        length = token.end()
    return content[: len(content) - length]


def fenced_blocks(content: str) -> list[tuple[str, str]]:
    """(language, inside) of each Markdown block whose fences (three backticks) begin a line; linear.

    A block that is never closed is not one.
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
    """Position of the newline before the first line from `position` on that is a bare fence; -1 when there is none."""
    fence = text.find("\n```", position)
    while fence >= 0:
        line_end = text.find("\n", fence + 4)
        if not text[fence + 4 : line_end if line_end >= 0 else len(text)].strip():
            return fence
        fence = text.find("\n```", fence + 4)
    return -1
