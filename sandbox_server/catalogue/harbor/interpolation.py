"""`$NAME`, `${NAME}`, `${NAME:-default}` and their kin in the values of a Compose file."""

import re
from collections.abc import Mapping
from typing import Any

_FORM = re.compile(r"\$(?:(?P<dollar>\$)|(?P<bare>\w+)|\{(?P<name>\w+)(?:(?P<how>:?[-?+])(?P<text>[^}]*))?\})")
_MOST = 20_000  # values; aliases of YAML can make a small file large


class Interpolation:
    """Replaces variables in a parsed document."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._left = _MOST

    def of(self, value: Any) -> Any:
        """The value with all its strings replaced; keys stay.

        Raises:
            ValueError: a variable has no value and no default, or the document is too large.
        """
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"it has more than {_MOST} values")
        if isinstance(value, dict):
            return {key: self.of(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self.of(one) for one in value]
        return _FORM.sub(self._replaced, value) if isinstance(value, str) else value

    def _replaced(self, found: re.Match[str]) -> str:
        if found["dollar"]:
            return "$"
        name, how, text = found["bare"] or found["name"], found["how"] or "", found["text"] or ""
        value = self._variables.get(name)
        given = value is not None and (bool(value) or not how.startswith(":"))
        if how.endswith("+"):
            return text if given else ""
        if given:
            return str(value)
        if how.endswith("-"):
            return text
        raise ValueError(f"${name} is from the host, which no server has")
