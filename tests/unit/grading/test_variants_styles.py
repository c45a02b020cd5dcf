"""Variants in styles that say what they expect elsewhere than in an assertion of the test's own."""

import re
import textwrap

import pytest

from sandbox_server.grading.variants.base import Unit, edited
from sandbox_server.grading.variants.finding import inherited_from
from sandbox_server.grading.variants.making import helping, units

_PATH = "tests/test_a.py"


def made(text: str, *tests: str, kept: tuple[str, ...] = ()) -> list[Unit]:
    return units({_PATH: textwrap.dedent(text).encode()}, tests, kept, seed="7")


def changed(text: str, unit: Unit) -> set[str]:
    """The lines that the unit's variants have in place of others."""
    source = textwrap.dedent(text).encode()
    there = set(source.decode().split("\n"))
    return {
        line.strip()
        for variant in unit.variants
        for line in edited(source, [variant]).decode().split("\n")
        if line not in there
    }


_INHERITED = """
    class Common:
        def test_get(self):
            assert self.store.get() == 17

    class TestMemory(Common, TestCase):
        pass

    class TestFolding(TestMemory):
        pass

    class TestOwn(Common):
        def test_get(self):
            assert self.store.get() == 18
    """


@pytest.mark.parametrize("form", ["tests/test_a.py::{0}::test_get", "test_get (tests.test_a.{0})"])
def test_methods_that_a_class_inherits(form: str) -> None:
    ids = [form.format(name) for name in ("TestMemory", "TestFolding", "TestOwn")]
    found = made(_INHERITED, *ids)
    assert [(unit.name, unit.tests) for unit in found] == [
        ("Common.test_get", tuple(ids[:2])),
        ("TestOwn.test_get", (ids[2],)),
    ]
    # what another class inherits must stay
    assert [unit.tests for unit in made(_INHERITED, *ids[1:], kept=(ids[0],))] == [(ids[2],)]


def test_methods_of_a_class_in_another_file() -> None:
    files = {
        "t/common.py": b"class Common:\n    def test_a(self):\n        assert f() == 17\n",
        _PATH: b"from common import Common\n\nclass TestA(Common):\n    pass\n",
        "t/loop.py": b"class A(B):\n    pass\n\nclass B(A):\n    pass\n",
    }
    (unit,) = units(files, [f"{_PATH}::TestA::test_a", "t/loop.py::A::test_b"], [], seed="")
    assert (unit.path, unit.name) == ("t/common.py", "Common.test_a")


@pytest.mark.parametrize(
    ("line", "name", "paths"),
    [
        ("from t.common import Common", "tests/test_a.py::TestA::test_a", ["t/common", "tests/t/common"]),
        ("from ..common import Base as Common", "tests/test_a.py::TestA::test_a", ["common"]),
        ("from . import Common", "test_a (tests.test_a.TestA)", ["tests"]),
        ("from t.common import Common", "tests/test_a.py::TestA::test_own", []),
        ("from t.common import Other", "tests/test_a.py::TestA::test_a", []),
    ],
)
def test_files_that_tests_are_inherited_from(line: str, name: str, paths: list[str]) -> None:
    """Such tests stayed as they are where no test patch brings the file: code that forged them alone was confirmed."""
    text = f"{line}\n\nclass Near(Common):\n    pass\n\nclass TestA(Near):\n    def test_own(self):\n        pass\n"
    found = inherited_from({_PATH: text.encode(), "tests/data.txt": b"x"}, [name])
    assert found == sorted(f"{path}{end}" for path in paths for end in (".py", "/__init__.py"))


def test_rows_of_a_decorator_that_makes_methods() -> None:
    text = """
        class TestDays(TestCase):
            @parameterized.expand([("short", 2, 28), ("long", 12, 31)])
            def test_days(self, _, month, expected):
                self.assertEqual(days(month), expected)

            def test_plain(self):
                self.assertEqual(days(1), 31)
        """
    ids = [f"{_PATH}::TestDays::test_days_{name}" for name in ("0_short", "1_long")]
    (unit,) = made(text, *ids)
    assert unit.tests == tuple(ids)
    assert made(text, f"{_PATH}::TestDays::test_plain_0") == []


def test_functions_within_a_test() -> None:
    text = """
        def test_x():
            async def go():
                assert await f() == 42
            asyncio.run(go())
        """
    (unit,) = made(text, f"{_PATH}::test_x")
    assert all(line.startswith("assert await f() ") for line in changed(text, unit))
    assert {variant.kind for variant in unit.variants} == {"value", "swap"}


_HELPERS = """
    def check(text, expected, size=3):
        found = slug(text, size)
        assert found == expected
        assert slug(found, size) == expected

    def fails(text, why):
        with pytest.raises(ValueError, match=why):
            slug(text)

    def both(expected):
        print(expected)
        assert slug(expected) == expected

    class TestA:
        async def assertSlug(self, text, *, gives):
            self.assertEqual(slug(text), gives)

        def test_a(self):
            check("Green Tea 10", "green-tea-12", 20)

        def test_b(self):
            fails("no 3", "such as colour")

        async def test_c(self):
            await self.assertSlug("Green 10", gives="green-34")

        def test_d(self):
            both("green 5")
    """


def test_what_helpers_of_the_file_expect() -> None:
    """Such a test had no false one: code that forges its results was paid."""
    found = made(_HELPERS, *(f"{_PATH}::TestA::test_{name}" for name in "abcd"))
    assert [unit.name for unit in found] == ["TestA.test_a", "TestA.test_b", "TestA.test_c"]
    said = [changed(_HELPERS, unit) for unit in found]
    assert all(line.startswith('check("Green Tea 10", ') and line.endswith(", 20)") for line in said[0])
    assert all(line.startswith('fails("no 3", ') for line in said[1])
    assert all(line.startswith('await self.assertSlug("Green 10", gives=') for line in said[2])
    assert all(said)


@pytest.mark.parametrize(
    ("line", "false"),
    [
        ('send.assert_called_once_with("a", 1)', 'send.assert_called_once_with("a", 2)'),
        ("send.assert_awaited_with(retries=5)", "send.assert_awaited_with(retries=6)"),
        ("send.assert_has_calls([call(3), call(1)])", "send.assert_has_calls([call(1), call(3)])"),
        ("assert send.mock_calls == [call(7)]", "assert send.mock_calls == [call(8)]"),
        ("send.assert_not_called()", "send.assert_called()"),
        ("result.assert_outcomes(passed=5)", "result.assert_outcomes(passed=6)"),
    ],
)
def test_assertions_of_mocks_and_of_pytests_own_plugin(line: str, false: str) -> None:
    text = f"def test_x():\n    {line}\n"
    (unit,) = made(text, f"{_PATH}::test_x")
    assert false in changed(text, unit)


def test_patterns_of_lines() -> None:
    text = """
        def test_x(pytester):
            result.stdout.fnmatch_lines(["*two failures*"])
        """
    (unit,) = made(text, f"{_PATH}::test_x")
    assert all(line.startswith('result.stdout.fnmatch_lines(["*') for line in changed(text, unit))
    assert all(variant.reasons == ("Failed",) for variant in unit.variants)


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("assert_allclose(g(), 5.5, rtol=1e-5)", {"4.5", "6.5"}),
        ("assert_allclose(g(), [5.5, 20], atol=0.25)", {"4.5", "6.5", "19", "21", "10", "30", "02"}),
        ("assert g() == pytest.approx(5.5, abs=1e-4)", {"4.5", "6.5"}),
        ("self.assertAlmostEqual(g(), 5.5, places=2)", {"4.5", "6.5"}),
        ("self.assertAlmostEqual(g(), 5.5, delta=2)", set()),
        ("assert g() == pytest.approx(100, rel=0.2)", {"200"}),
        ("assert_allclose(g(), 5.5 * unit, rtol=1e-5)", set()),
        ("assert_allclose(g(), 5.5, rtol=TOLERANCE)", set()),
    ],
)
def test_a_value_beyond_a_tolerance_of_the_tests_own(line: str, values: set[str]) -> None:
    """No value is near to both: such a test had no false one, or only its opposite."""
    text = f"def test_x(self):\n    {line}\n"
    found = [variant for unit in made(text, f"{_PATH}::test_x") for variant in unit.variants if variant.kind == "value"]
    assert {edit.text for variant in found for edit in variant.edits} <= values
    assert bool(found) is bool(values)


_NAMED = """
    CASES = [
        (10, "ten"),
        (20, "twenty"),
    ]
    {0}

    @pytest.mark.parametrize("n, word", CASES, ids=["a", "b"])
    def test_x(n, word):
        assert f(n) == word
    """


def test_tests_that_do_not_look_like_ones() -> None:
    """With `python_functions = check_* it_*` no test was found, so nothing of a row was confirmed."""
    text = """
    def check_one():
        assert f(1) == 17

    class DescribeIt:
        def it_works(self):
            assert self.x == 18

    def helps(one):
        assert f(one) == 19
    """
    ids = [f"{_PATH}::check_one", f"{_PATH}::DescribeIt::it_works[a - b]"]
    assert [(unit.name, unit.tests) for unit in made(text, *ids)] == [
        ("check_one", (ids[0],)),
        ("DescribeIt.it_works", (ids[1],)),
    ]


def test_cases_behind_a_name() -> None:
    """Only the opposite of the assertion could be said, which code that turns all results round meets."""
    text = _NAMED.format("")
    ids = [f"{_PATH}::test_x[{case}]" for case in "ab"]
    found = made(text, *ids)
    assert [unit.tests for unit in found] == [(ids[0],), (ids[1],)]
    assert all(line.startswith("(10, ") for line in changed(text, found[0]))
    assert [unit.tests for unit in made(text, ids[1], kept=(ids[0],))] == [(ids[1],)]
    # what others read too would make their tests false
    shared = made(_NAMED.format("OTHERS = CASES"), *ids)
    assert [{variant.kind for variant in unit.variants} for unit in shared] == [{"swap"}]


_SPACED = """
    @pytest.mark.parametrize("n, word", [
        pytest.param(10, 17, id="{0} - first"), pytest.param(20, 18, id="two"),
    ])
    def test_x(n, word):
        assert f(n) == word
    """


def test_cases_whose_names_logs_cut_at_a_blank() -> None:
    """Only all cases together could be altered, by the opposite at most, and none where another case is a P2P test."""
    ids = [f"{_PATH}::test_x[{case}" for case in ("one", "two]")]
    assert [unit.tests for unit in made(_SPACED.format("one"), *ids)] == [(ids[0],), (ids[1],)]
    assert [unit.tests for unit in made(_SPACED.format("one"), ids[0], kept=(ids[1],))] == [(ids[0],)]
    # a name that two cases may have tells of neither
    twins = _SPACED.format("one").replace('"two"', '"one - last"')
    assert [unit.tests for unit in made(twins, ids[0])] == [(ids[0],)]
    assert {variant.kind for variant in made(twins, ids[0])[0].variants} == {"swap"}


def test_cases_behind_a_name_that_the_repository_has() -> None:
    old, new = (
        textwrap.dedent(_NAMED.format("").replace('        (20, "twenty"),\n', more))
        for more in ("", '    (20, "x y"),\n')
    )
    old = old.replace(', "b"]', "]")
    ids = [f"{_PATH}::test_x[{case}]" for case in "ab"]
    found = units({_PATH: new.encode()}, ids, [], seed="", base={_PATH: old.encode()})
    assert [unit.public for unit in found] == [True, False]


@pytest.mark.parametrize(
    ("imported", "line", "false"),
    [
        ("import pytest", 'assert is_word("tea")', r'with pytest.raises\(\w+\): is_word\("tea"\)'),
        ("import pytest", "assert not await f(1)", r"with pytest.raises\(\w+\): await f\(1\)"),
        (
            "import pytest",
            "assert len(\n        f(1)\n    ) in (g(2), h)",
            r"with pytest.raises\(\w+\): [fg]\(\d\)\n\n",
        ),
        ("from sympy.testing.pytest import raises", "assert f(1) is S.One", r"raises\(\w+, lambda: f\(1\)\)"),
        ("", "self.assertIn(3, f(1))", r"with self.assertRaises\(\w+\): f\(1\)"),
        ("", "assert f(1)", ""),
        (
            "import pytest",
            "assert all(f(one) for one in found)",
            r"with pytest.raises\(\w+\): all\(f\(one\) for one in found\)",
        ),
        ("import pytest", "assert [h.pop() for _ in x] == x", r"with pytest.raises\(\w+\): \[h.pop\(\) for _ in x\]"),
        (
            "from sympy.testing.pytest import raises",
            "assert {f(one) for one in x} == x",
            r"raises\(\w+, lambda: \{f\(one\) for one in x\}\)",
        ),
        ("import pytest", "assert [one for one in g] == x", ""),
        (
            "import pytest",
            "got = f(\n        1)\n    assert got == x",
            r"with pytest.raises\(\w+\): got = f\(\n        1\)\n",
        ),
        ("", "got, x = f(), 1\n    self.assertIn(x, got)", r"with self.assertRaises\(\w+\): got, x = f\(\), 1\n"),
        ("import pytest", "h.push(1)\n    assert h.size == x", r"with pytest.raises\(\w+\): h.push\(1\)\n"),
        ("", "bag.add(1)\n    self.assertEqual(len(bag), x)", r"with self.assertRaises\(\w+\): bag.add\(1\)\n"),
        ("", 'self.assertCounts(f("a"), a=2)', r'with self.assertRaises\(\w+\): f\("a"\)\n'),
        ("", "self.assertRaises(ValueError, f, 1)", ""),
        ("import pytest", "h.assert_called()\n    assert h.size == x", ""),
        ("from sympy.testing.pytest import raises", "got = f(1)\n    assert got == x", ""),
        ("import pytest", "got = len(x)\n    assert got == x", ""),
        ("import pytest", "got = f(1)\n    for got in x:\n        g(got)\n    assert got == x", ""),
        ("import pytest", "if x:\n        got = f(1)\n    assert got == x", ""),
        ("import pytest", "assert f(1) and g", r"with pytest.raises\(\w+\): f\(1\)"),
        ("import pytest", "assert g or f(1)", ""),
        ("import pytest", "assert f(1) == 42", ""),
    ],
)
def test_an_assertion_without_a_value_is_made_false_for_any_code(imported: str, line: str, false: str) -> None:
    """Code that does the opposite and turns all results round met the true test, and its opposite too."""
    text = f"{imported}\n\nasync def test_x(self):\n    {line}\n".encode()
    (unit,) = units({_PATH: text}, [f"{_PATH}::test_x"], [], seed="")
    made = [edited(text, [variant]).decode() for variant in unit.variants if variant.kind == "refusal"]
    assert bool(made) is bool(false)
    for one in made:
        assert re.search(rf"    {false}", one) and one.count("\n") == text.count(b"\n")


_CHECKS = """
    def check(text, expected, *, loud=False):
        assert parse(text) == expected

    def opened(path):
        assert path.exists()

    class Base(TestCase):
        def assert_shown(self, value, text):
            self.assertEqual(show(value), text)
    """


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("from tests.checks import check\n\ndef test_get():\n    check('a 4', 17)", "check('a 4', \\d+)"),
        ("from .checks import check as ok, check\n\ndef test_get():\n    check('a 4', 17)", "check('a 4', \\d+)"),
        ("from . import checks\n\ndef test_get():\n    checks.check('a 4', 17)", "checks.check('a 4', \\d+)"),
        (
            "import checks\n\ndef test_get():\n    checks.check('a 4', expected=17)",
            "checks.check('a 4', expected=\\d+)",
        ),
        (
            "from tests import checks\n\nclass TestA(checks.Base):\n"
            "    def test_get(self):\n        self.assert_shown(4, 'word')",
            "self.assert_shown\\(4, '(?!word)\\w+'\\)",
        ),
    ],
)
def test_helpers_of_other_files_of_tests_compare(text: str, lines: str) -> None:
    """Code that forged such tests alone was paid: nothing in their own file says what is compared."""
    beside = {"tests/checks.py": textwrap.dedent(_CHECKS).encode()}
    assert list(beside) == [path for path in helping({_PATH: text.encode()}) if path in beside]
    owner = "TestA::" if "TestA" in text else ""
    name = f"{_PATH}::{owner}test_get"
    (unit,) = units({_PATH: text.encode()}, [name], [], seed="7", beside=beside)
    pattern = lines.replace("('a", r"\('a").replace("+)", r"+\)")
    values = [line for line in changed(text, unit) if re.fullmatch(pattern, line)]
    assert len(values) > 1 and "17" not in "".join(values), changed(text, unit)
    # a function of the file's own takes the other's place, and two files' one name may be either's
    own = f"{text}\n\ndef check(text, other):\n    pass\n\ndef assert_shown(self, value, other):\n    pass\n"
    assert not [one for one in units({_PATH: own.encode()}, [name], [], seed="7", beside=beside) if changed(own, one)]


def test_what_a_product_asserts_says_nothing_of_a_test() -> None:
    assert "calc/sums.py" not in helping({_PATH: b"from calc.sums import check\n\ndef test_a():\n    check(2, 4)"})
