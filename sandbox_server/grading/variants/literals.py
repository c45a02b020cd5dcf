"""Replaces a literal by a plausible, unequal one."""

import ast
import re
import string
from itertools import combinations
from random import Random

_TRIES = 24  # positions tried in a string; each result is parsed again
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")


def others(segment: str, node: ast.expr, rng: Random, *, words: bool = False) -> list[str]:
    """Texts that can replace the literal `node`, whose source text is `segment`; best first.

    `words`: in a string change only letters inside words, because it is a regular expression.
    """
    if isinstance(node, ast.List | ast.Tuple | ast.Dict | ast.Set):
        return _empty(node)
    if not isinstance(node, ast.Constant):
        return []
    value = node.value
    if value is True or value is False:
        return [str(not value)]
    if isinstance(value, int | float):
        return _numbers(segment, value, rng)
    if isinstance(value, str | bytes):
        return _strings(segment, value, rng, words=words)
    return []


def beyond(segment: str, node: ast.Constant, rng: Random, tolerance: tuple[float, float]) -> list[str]:
    """The `others` of a number so far away that no value is near both, by a (relative, absolute) tolerance."""
    relative, absolute = tolerance
    old = float(node.value)  # type: ignore[arg-type]  # the caller has a number

    def apart(text: str) -> bool:
        new = float(ast.literal_eval(text))
        return abs(new - old) > 2 * (absolute + relative * max(abs(new), abs(old)))

    return [text for text in others(segment, node, rng) if apart(text)]


def _empty(node: ast.List | ast.Tuple | ast.Dict | ast.Set) -> list[str]:
    if isinstance(node, ast.Dict):
        return ["{0: 0}"] if not node.keys else []
    if node.elts:
        return []
    return ["[0]"] if isinstance(node, ast.List) else ["(0,)"]


def _numbers(segment: str, value: float, rng: Random) -> list[str]:
    found: list[str] = []
    if isinstance(value, int):
        if re.fullmatch(r"[1-9]\d?|0", segment):
            found = [str(value + 1)] + ([str(value - 1)] if value > 1 else [])
        if re.fullmatch(r"[1-9]\d+", segment):
            found.append(_swapped_digits(segment, rng))
    digits = [at for at, char in enumerate(segment) if char.isdigit()]
    # Of a float change the first significant digit, since a tolerance may hide the others.
    if isinstance(value, float):
        digits = [at for at in digits if segment[at] != "0"][:1] or digits[:1]
        if "e" in segment.lower():
            digits = [at for at in digits if at < segment.lower().index("e")]
    for at in digits:
        digit = int(segment[at])
        for new in (digit + 1, digit - 1):
            if 0 <= new <= 9:
                found.append(f"{segment[:at]}{new}{segment[at + 1 :]}")
    rng.shuffle(found)
    return [text for text in dict.fromkeys(found) if _differs(text, value)]


def _swapped_digits(segment: str, rng: Random) -> str:
    at = rng.randrange(len(segment) - 1)
    return segment[:at] + segment[at + 1] + segment[at] + segment[at + 2 :]


def _differs(text: str, value: object) -> bool:
    if re.match(r"0\d", text):
        return False
    try:
        new = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return False
    return type(new) is type(value) and bool(new != value)


def _strings(segment: str, value: str | bytes, rng: Random, *, words: bool) -> list[str]:
    if not value:
        return [] if words or len(segment.lstrip("bBrRuU")) != 2 else [segment[:-1] + "0" + segment[-1]]
    if words:
        places = [at for word in _WORD.finditer(segment) for at in range(*word.span())]
    else:
        places = [at for at, char in enumerate(segment) if char.isalnum()]
    # Prefer the middle: code that reads only a prefix or the ends does not notice it.
    places.sort(key=lambda at: abs(at - len(segment) * rng.uniform(0.3, 0.7)))
    # Prefer digits: another number, or words in another order, look plausible; a misspelt word does not.
    places.sort(key=lambda at: words or not segment[at].isdigit())
    found: list[str] = [] if not places or segment[places[0]].isdigit() else _exchanged_words(segment, value, rng)
    for at in places[:_TRIES]:
        for char in _alternatives(segment[at], value, rng):
            text = segment[:at] + char + segment[at + 1 :]
            if _one_off(text, value):
                found.append(text)
                break
        if len(found) == 4:
            break
    return found


def _exchanged_words(segment: str, value: str | bytes, rng: Random) -> list[str]:
    """Exchange two different words; [] if there are no two."""
    spans = [word.span() for word in _WORD.finditer(segment)]
    pairs = [(one, other) for one, other in combinations(spans, 2) if segment[slice(*one)] != segment[slice(*other)]]
    if not pairs:
        return []
    (a, b), (c, d) = rng.choice(pairs)
    text = segment[:a] + segment[c:d] + segment[b:c] + segment[a:b] + segment[d:]
    try:
        new = ast.literal_eval(f"({text})")
    except (SyntaxError, ValueError):
        return []
    return [text] if type(new) is type(value) and len(new) == len(value) and new != value else []


def _alternatives(char: str, value: str | bytes, rng: Random) -> list[str]:
    """Characters of the same kind, first those that occur in the string."""
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    for kind in (string.digits, string.ascii_lowercase, string.ascii_uppercase):
        if char in kind:
            there = [other for other in kind if other in text and other != char]
            near = [other for other in (kind[:6] if char in kind[:6] else kind) if other != char]
            rng.shuffle(there)
            rng.shuffle(near)
            return [*(there if char not in string.digits else []), *near][:6]
    return [other for other in dict.fromkeys(text) if other.isalpha() and not other.isascii() and other != char][:4]


def _one_off(text: str, value: str | bytes) -> bool:
    """Whether `text` evaluates to `value` with exactly one letter or digit changed."""
    try:
        new = ast.literal_eval(f"({text})")
    except (SyntaxError, ValueError):
        return False
    if type(new) is not type(value) or len(new) != len(value):
        return False
    off = [at for at in range(len(value)) if new[at : at + 1] != value[at : at + 1]]
    return len(off) == 1 and value[off[0] : off[0] + 1].isalnum()
