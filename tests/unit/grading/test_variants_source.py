"""A test file that is edited by position."""

import ast

import pytest

from sandbox_server.grading.variants.base import Edit, Source


def test_of_a_large_file_only_the_altered_function_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each parse of 500 KB holds the GIL for 0.2 s, and there are several for each test."""
    tests = "".join(f"    def test_{at}(self):\n        assert f({at}) == {at}\n" for at in range(300))
    source = Source.of("tests/test_a.py", f"import a\n\n\nclass TestF:\n{tests}".encode())
    assert source is not None
    parsed: list[str] = []
    parse = ast.parse
    monkeypatch.setattr(ast, "parse", lambda text: parsed.append(text) or parse(text))
    at = source.text.index(b"== 150") + 3
    assert source.compiles([Edit(at, at + 3, "151")])
    for broken in ("(", '"""', "151)"):
        assert not source.compiles([Edit(at, at + 3, broken)])
    assert max(map(len, parsed)) < 100
