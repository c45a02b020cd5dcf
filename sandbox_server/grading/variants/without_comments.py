"""Removes from a test file what repeats an expectation in words: comments, docstrings, messages of assertions.

Beside a false expectation, these would still state the true one. They have no effect on whether a test passes.
"""

import ast
import io
import re
import tokenize
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate

from sandbox_server.grading.variants.base import Edit, Source, edited
from sandbox_server.grading.variants.expected import tail
from sandbox_server.grading.variants.lexing import SUFFIXES
from sandbox_server.grading.variants.without_comments_lexed import without_comments_lexed

_ENCODING = re.compile(r"coding[:=]")
"""A comment with this in one of the first two lines declares the file's encoding."""
_VALUES = {
    0: re.compile(r"fail"),
    1: re.compile(r"assert(?:True|False|IsNone|IsNotNone)_?"),
    2: re.compile(
        r"assert(?:(?:Not)?(?:Equals?|In|IsInstance|Regex)|Is|IsNot|Greater(?:Equal)?|Less(?:Equal)?"
        r"|(?:List|Tuple|Set|Dict|Sequence|Count|Items|MultiLine|JSON|HTML|XML|URL)Equal)"
    ),
    3: re.compile(r"assert(?:Not)?AlmostEquals?"),
}
"""Number of unittest's arguments before the message -> names of the methods."""
_NAMED = frozenset({"msg", "err_msg"})


def without_comments(path: str, text: bytes, names: Collection[str] = ()) -> bytes:
    """`text` without comments, docstrings and messages; unchanged if it cannot be edited by position.

    Lines keep their numbers. `names`: names of the row's tests. A docstring that begins one of them stays, because
    unittest's logs name tests by their docstrings.
    """
    if path.endswith(SUFFIXES):
        return without_comments_lexed(path, text)
    source = Source.of(path, text) if path.endswith(".py") else None
    if source is None:
        return text
    said = [one for node in ast.walk(source.tree) for one in (*_messages(node), *_docstring(node, names))]
    emptied = [source.replaced(one, _empty(source.segment(one))) for one in said]
    try:
        comments = list(_comments(text))
        outside = [edit for edit in comments if not any(one.start <= edit.start < one.end for one in emptied)]
        return edited(text, (), (*emptied, *outside))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return text  # the tokenizer accepts a little less than the parser; or a message within another one


def _empty(segment: str) -> str:
    lines = segment.count("\n")
    return f'"""{chr(10) * lines}"""' if lines else '""'


def _messages(node: ast.AST) -> Sequence[ast.expr]:
    match node:
        case ast.Assert(msg=ast.expr() as said):
            return [said]
        case ast.Call(func=func, args=args, keywords=keywords) if tail(func).startswith(("assert", "fail")):
            count = next((count for count, known in _VALUES.items() if known.fullmatch(tail(func))), None)
            placed = [] if count is None or isinstance(func, ast.Name) else args[count : count + 1]
            return [*placed, *(keyword.value for keyword in keywords if keyword.arg in _NAMED)]
    return []


def _docstring(node: ast.AST, names: Collection[str]) -> Sequence[ast.expr]:
    """The docstring of a test function, if it holds no doctest and is not part of a test's name."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test"):
            said = ast.get_docstring(node)
            first = node.body[0]
            if said and ">>>" not in said and isinstance(first, ast.Expr):
                head = said.strip().split("\n")[0].strip()
                return [] if any(head in one for one in names) else [first.value]
    return []


def _comments(text: bytes) -> Iterator[Edit]:
    lines = text.decode().split("\n")
    starts = list(accumulate((len(line.encode()) + 1 for line in lines), initial=0))
    for token in tokenize.tokenize(io.BytesIO(text).readline):
        row, column = token.start
        if token.type == tokenize.COMMENT and not (row <= 2 and _ENCODING.search(token.string)):
            start = starts[row - 1] + len(lines[row - 1][:column].encode())
            yield Edit(start, start + len(token.string.encode()), "")
