"""Variants of single cases of a parametrized test, and the names by which pytest runs them."""

import textwrap

from sandbox_server.grading.variants.base import edited
from sandbox_server.grading.variants.making import unnamed_units

from .test_variants import lines, made

_CASES = """
    @pytest.mark.parametrize("text, rgb", [("f80", (255, 136, 0)), ("#", (1, 2, 3)), ("a", (4, 5, 6))])
    def test_parse(text, rgb):
        assert parse(text) == rgb
    """


def test_a_case_is_altered_without_the_others() -> None:
    ids = [f"tests/test_a.py::test_parse[{case}]" for case in ("f80-rgb0", "#-rgb1", "a-rgb2")]
    found = made(_CASES, ids[0], ids[2], kept=(ids[1],))
    assert [unit.tests for unit in found] == [(ids[0],), (ids[2],)]
    for unit, own in zip(found, ("255, 136, 0", "4, 5, 6"), strict=True):
        assert all(own not in line and "(1, 2, 3)" in line for line in lines(_CASES, unit))


def test_a_case_that_is_named_after_its_value_gets_another_name_altered_or_not() -> None:
    """From an old name beside a new value any code could detect the variant."""
    text = """
        @pytest.mark.parametrize("text, price", [("a", "4.90"), ("b", "2.90")])
        def test_price(text, price):
            assert f(text) == Decimal(price)
        """
    ids = ("tests/test_a.py::test_price[a-4.90]", "tests/test_a.py::test_price[b-2.90]")
    (unit,) = made(text, *ids)
    assert set(unit.tests) == set(ids)
    assert lines(text, unit) == {"assert f(text) != Decimal(price)"}
    assert made(text, ids[0], kept=ids[1:]) == []  # the other one must stay as it is

    text = "import pytest\n" + textwrap.dedent(text)
    (unit,) = made(text, ids[0], kept=ids[1:])
    assert unit.tests == ids[:1]
    (alias,) = unit.aliases
    word = alias.removeprefix("tests/test_a.py::test_price[").removesuffix("]")
    assert unit.back == {alias: ids[0]} and word not in ids[0]
    true = edited(text.encode(), [], unit.label).decode()
    assert f'''[pytest.param("a", "4.90", id="{word}"), ("b", "2.90")]''' in true
    for variant in unit.variants:
        false = edited(text.encode(), [variant], unit.label).decode()
        assert f''', id="{word}"), ("b", "2.90")]''' in false and false != true and "4.90" not in false


def test_ids_of_their_own_let_the_value_change() -> None:
    text = """
        @pytest.mark.parametrize("text, price", [pytest.param("a", 4, id="one"), pytest.param("b", 2, id="two")])
        def test_price(text, price):
            assert f(text) == price
        """
    (unit,) = made(text, "tests/test_a.py::test_price[two]", kept=("tests/test_a.py::test_price[one]",))
    assert all('"a", 4' in line and '"b", 2,' not in line for line in lines(text, unit))


def test_without_names_the_cases_are_altered_too() -> None:
    """Otherwise the only variant is the negated test, which code that copies expected values from it fails."""
    text = (
        b"import pytest\n@pytest.mark.parametrize(('n', 'parts'), [(5, [2, 2, 1]), (7, [3, 2, 2])])\n"
        b"def test_split(n, parts):\n    assert split(n) == parts\n"
    )
    (unit,) = unnamed_units({"tests/test_a.py": text}, seed="1")
    assert unit.name == "test_split"
    kinds = [variant.kind for variant in unit.variants]
    assert kinds[:2] == ["order", "order"] and "value" in kinds
