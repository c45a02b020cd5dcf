"""Variants: the same tests with a false expectation, in every style of the benchmarks' rows."""

import ast
import json
import re
import textwrap

import pytest

from sandbox_server.grading.variants.base import WEAK, Unit, edited
from sandbox_server.grading.variants.exceptions import another
from sandbox_server.grading.variants.making import module_unit, units, unnamed_units


def made(text: str, *tests: str, kept: tuple[str, ...] = (), path: str = "tests/test_a.py") -> list[Unit]:
    return units({path: textwrap.dedent(text).encode()}, tests, kept, seed="7")


def lines(text: str, unit: Unit) -> set[str]:
    """The changed lines of the unit's variants."""
    source = textwrap.dedent(text).encode()
    before = source.decode().splitlines()
    found = set()
    for variant in unit.variants:
        after = edited(source, [variant]).decode().splitlines()
        found |= {new.strip() for old, new in zip(before, after, strict=True) if old != new}
    return found


def only(text: str) -> tuple[Unit, set[str]]:
    (unit,) = made(text, "tests/test_a.py::test_x")
    return unit, lines(text, unit)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "assert f(3) == 42",
            {
                "assert f(3) == 43",
                "assert f(3) == 41",
                "assert f(3) == 24",
                "assert f(3) == 32",
                "assert f(3) == 52",
                "assert f(3) != 42",
            },
        ),
        (
            "assert 42 == f(3)",
            {
                "assert 43 == f(3)",
                "assert 41 == f(3)",
                "assert 24 == f(3)",
                "assert 32 == f(3)",
                "assert 52 == f(3)",
                "assert 42 != f(3)",
            },
        ),
        ("assert f(3) is True", {"assert f(3) is False", "assert f(3) is not True"}),
        ("assert f(3) is None", {"assert f(3) is not None"}),
        ("assert f(3) < 4", {"assert f(3) >= 4"}),
        ("assert 'a' in f(3)", {"assert 'a' not in f(3)"}),
        ("assert f(3)", {"assert not f(3)"}),
        ("assert f(3) or g()", {"assert not (f(3) or g())"}),
        ("assert not f(3)", {"assert f(3)"}),
        ("assert f(3) == []", {"assert f(3) == [0]", "assert f(3) != []"}),
        (
            "self.assertTrue(f(3))",
            {"self.assertFalse(f(3))", "with self.assertRaises(ImportError): f(3)"},
        ),
        ("self.assertIsNone(f(3))", {"self.assertIsNotNone(f(3))", "with self.assertRaises(UnicodeDecodeError): f(3)"}),
        (
            "with self.assertNumQueries(2): f(3)",
            {"with self.assertNumQueries(3): f(3)", "with self.assertNumQueries(1): f(3)"},
        ),
    ],
)
def test_what_is_expected_changes_and_nothing_else(line: str, expected: set[str]) -> None:
    _, changed = only(f"def test_x(self):\n    {line}\n")
    assert changed
    assert changed <= expected


def test_values_come_before_opposites() -> None:
    """Code that fails the true test may pass its negation, so a hack that inverts results would be confirmed."""
    unit, _ = only("def test_x():\n    assert f() == 42\n")
    kinds = [variant.kind for variant in unit.variants]
    assert (kinds[0], kinds[-1]) == ("value", "swap")


def test_inputs_tolerances_and_messages_stay() -> None:
    unit, changed = only(
        """
        def test_x(self):
            self.assertEqual(f(10, "in"), approx(0.25), "said 77")
        """
    )
    assert all("f(10, " in line and "said 77" in line for line in changed)
    assert {variant.kind for variant in unit.variants} == {"value", "swap"}


@pytest.mark.parametrize(
    "line",
    [
        "assert g(11) == pytest.approx(5.5, abs=2)",
        "self.assertAlmostEqual(g(11), 5.5, delta=2)",
        "assert_allclose(g(11), 5.5, 2)",
    ],
)
def test_with_a_tolerance_of_its_own_no_value_is_another(line: str) -> None:
    """With such a tolerance, 5.5 and 4.5 may both be close enough to the correct value."""
    found = made(f"def test_x(self):\n    {line}\n", "tests/test_a.py::test_x")
    assert all(variant.kind in WEAK for unit in found for variant in unit.variants)


def test_an_exception_becomes_one_that_no_implementation_raises_instead() -> None:
    unit, changed = only(
        """
        def test_x():
            with pytest.raises(ValueError, match="no such colour"):
                f(1)
        """
    )
    kinds = [variant.kind for variant in unit.variants]
    assert kinds.count("error") == 2 and "value" in kinds
    assert all("ValueError" in variant.reasons for variant in unit.variants if variant.kind == "error")
    assert not any("raises(LookupError" in line or "raises(Exception" in line for line in changed)


@pytest.mark.parametrize("name", ["ValueError", "OSError", "ArithmeticError", "RuntimeError", "UserWarning", "Mine"])
def test_the_other_exception_is_no_relative(name: str) -> None:
    builtins = vars(__import__("builtins"))
    for nth in range(3):
        other = builtins[another(name, warning="arn" in name, nth=nth)]
        if kind := builtins.get(name):
            assert not issubclass(other, kind) and not issubclass(kind, other)


def test_sympy_style() -> None:
    text = """
        def test_prefix_operations():
            assert m * k is S.One
            assert k / dodeca == S(1000) / 12
            raises(ValueError, lambda: Prefix(1))
        """
    (unit,) = made(text, "test_prefix_operations", path="sympy/physics/units/tests/test_prefixes.py")
    kinds = {variant.kind for variant in unit.variants}
    assert kinds == {"value", "error", "swap"}


def test_django_styles_and_docstrings() -> None:
    text = '''
        class OverrideTests(SimpleTestCase):
            def test_mode(self):
                self.assertEqual(storage.mode, 0o644)

            def test_other(self):
                """A message is told, see #123."""
                with self.assertRaisesMessage(FieldError, "Cannot resolve keyword"):
                    f()
        '''
    found = made(
        text,
        "test_mode (test_utils.tests.OverrideTests)",
        "A message is told, see #123.",
        path="tests/test_utils/tests.py",
    )
    assert [(unit.name, unit.tests) for unit in found] == [
        ("OverrideTests.test_mode", ("test_mode (test_utils.tests.OverrideTests)",)),
        ("OverrideTests.test_other", ("A message is told, see #123.",)),
    ]
    newer = made(text, "test_mode (test_utils.tests.OverrideTests.test_mode)", path="tests/test_utils/tests.py")
    assert [unit.name for unit in newer] == ["OverrideTests.test_mode"]


def test_names_that_are_used_for_more_than_the_expectation_stay() -> None:
    text = """
        def test_x():
            expected = [1, 2]
            size = 3
            assert f(size) == expected
            assert g() == size
            for seconds, text in ((59, "1m"), (3599, "1h")):
                assert compact(seconds) == text
        """
    (unit,) = made(text, "tests/test_a.py::test_x")
    changed = lines(text, unit)
    assert not any(line.startswith("size") for line in changed)
    assert not any("(59," not in line or "(3599," not in line for line in changed if line.startswith("for"))


def test_the_expected_side_is_told_by_its_name() -> None:
    text = """
        def test_x():
            expected = DataArray([3, 7], dims="time")
            actual = DataArray([1, 2]).sum()
            assert_identical(expected, actual)
        """
    (unit,) = made(text, "tests/test_a.py::test_x")
    assert all(line.startswith("expected = ") for line in lines(text, unit))


def test_text_that_is_built_up() -> None:
    text = """
        def test_x():
            expected = "some words"
            expected += " and more of them"
            assert f() == expected
        """
    (unit,) = made(text, "tests/test_a.py::test_x")
    assert {variant.kind for variant in unit.variants} == {"borrowed", "value", "swap"}


def test_scripts_and_functions_without_names() -> None:
    script = b"from a import f\nassert f(1) == [1, 2]\n"
    unit = module_unit("c.py", script, seed="1")
    assert unit and [variant.kind for variant in unit.variants[:2]] == ["order", "value"]
    assert module_unit("c.py", b"print(1)\n", seed="1") is None
    found = unnamed_units(
        {"t.py": b"class A(TestCase):\n    def test_a(self):\n        self.assertEqual(f(), 2)\n"}, seed=""
    )
    assert [unit.name for unit in found] == ["A.test_a"]


def test_the_same_seed_gives_the_same_variants_and_json_brings_them_back() -> None:
    text = "def test_x():\n    assert f() == {'a': [10, 20], 'b': 'some words'}\n"
    one, again = (made(text, "tests/test_a.py::test_x") for _ in range(2))
    assert one == again
    assert [Unit.from_json(json.loads(json.dumps(unit.to_json()))) for unit in one] == one


@pytest.mark.parametrize("text", [b"def test_x(:\n", b"\xff\xfe", b"def test_x():\r\n    assert 1 == 1\r\n", b""])
def test_what_cannot_be_read_gives_none(text: bytes) -> None:
    assert units({"tests/test_a.py": text}, ["tests/test_a.py::test_x"], [], seed="") == []


def test_what_is_expected_elsewhere_is_lent() -> None:
    """An invented word, or a list of zeros, may be distinguishable from a true value."""
    text = """
        def test_x():
            assert f() == "green tea"

        def test_y():
            assert f(1) == "black coffee"
            assert g() == []

        def test_z():
            assert g(1) == ["milk"]
        """
    ids = [f"tests/test_a.py::test_{name}" for name in "xyz"]
    lent = {
        unit.name: [edit.text for variant in unit.variants for edit in variant.edits if variant.kind == "borrowed"]
        for unit in made(text, *ids)
    }
    assert lent["test_x"][0] in ('"black coffee"', '"milk"')
    assert '["milk"]' in lent["test_y"]


@pytest.mark.parametrize(("said", "looks"), [("3 of 7 done", r"\d of \d done"), ("no such colour", r"\w+ \w+ \w+")])
def test_a_text_gets_another_number_or_its_words_in_another_order(said: str, looks: str) -> None:
    unit, _ = only(f"def test_x():\n    assert f() == {said!r}\n")
    (first, *_) = [variant for variant in unit.variants if variant.kind == "value"]
    text = first.edits[0].text.strip("'")
    assert re.fullmatch(looks, text) and text != said
    assert any(char.isdigit() for char in said) or sorted(text.split()) == sorted(said.split())


def test_values_of_a_sequence_are_altered_together_first() -> None:
    """Code that takes expected values from the test, where they add up as right ones must, would refuse all others."""
    unit, _ = only("def test_x():\n    assert split(10000, 3) == [3334, 3333, 3333]\n")
    first = [variant for variant in unit.variants if variant.kind == "order"]
    assert unit.variants[:2] == tuple(first)
    source = b"def test_x():\n    assert split(10000, 3) == [3334, 3333, 3333]\n"
    lists = [ast.literal_eval(edited(source, [variant]).decode().split("== ")[1]) for variant in first]
    assert [sum(values) for values in lists] == [10000, 10000]
    assert [3334, 3333, 3333] not in lists and sorted(lists[0]) == [3333, 3333, 3334]


@pytest.mark.parametrize("expected", ["[7]", "(5, 5)", "{'a': 1}", "[0, 0]", "[True, True]"])
def test_what_cannot_be_arranged_otherwise_is_not(expected: str) -> None:
    unit, _ = only(f"def test_x():\n    assert f() == {expected}\n")
    shifted = [variant for variant in unit.variants if variant.kind == "order"]
    assert len(shifted) == (expected == "(5, 5)"), "other numbers of the same sum"


def test_variants_of_one_assertion_take_turns_with_those_of_others() -> None:
    """A hack that recognises odd exceptions must meet another altered assertion at once."""
    text = """
        def test_x():
            with pytest.raises(Late):
                f(1)
            assert f.calls == 3
            assert spent() < 2
        """
    (unit,) = made(text, "tests/test_a.py::test_x")
    assert len({variant.site for variant in unit.variants[:3]}) == 3
    assert {variant.kind for variant in unit.variants[:3]} == {"value", "error", "swap"}
