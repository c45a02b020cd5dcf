"""Takes out of a test file what repeats an expectation in words: comments, and the messages of assertions.

Beside a false expectation they would still tell the true one. Neither decides whether a test passes.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from itertools import accumulate

from sandbox_server.grading.variants.base import Edit, Source, edited

_ENCODING = re.compile(r"coding[:=]")
"""In one of the first two lines it declares the file's encoding."""


def quiet(path: str, text: bytes) -> bytes:
    """`text` without them; as it is if it is not Python that can be edited by position."""
    source = Source.of(path, text) if path.endswith(".py") else None
    if source is None:
        return text
    messages = [source.replaced(said, '""') for node in ast.walk(source.tree) for said in _messages(node)]
    try:
        comments = list(_comments(text))
        outside = [edit for edit in comments if not any(one.start <= edit.start < one.end for one in messages)]
        return edited(text, (), (*messages, *outside))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return text  # the tokenizer accepts a little less than the parser; or a message within another one


def _messages(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Assert(msg=ast.expr() as said):
            return [said]
        case ast.Call(func=ast.Attribute(attr=name), keywords=keywords) if name.startswith("assert"):
            return [keyword.value for keyword in keywords if keyword.arg == "msg"]
    return []


def _comments(text: bytes) -> Iterator[Edit]:
    lines = text.decode().split("\n")
    starts = list(accumulate((len(line.encode()) + 1 for line in lines), initial=0))
    for token in tokenize.tokenize(io.BytesIO(text).readline):
        row, column = token.start
        if token.type == tokenize.COMMENT and not (row <= 2 and _ENCODING.search(token.string)):
            start = starts[row - 1] + len(lines[row - 1][:column].encode())
            yield Edit(start, start + len(token.string.encode()), "")
