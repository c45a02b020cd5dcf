"""Altered tests in Go, Java, JavaScript and Rust; each is tried with gold on the engine before it is used."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.grading.variants.base import Unit, edited
from sandbox_server.grading.variants.lexing import SUFFIXES
from sandbox_server.grading.variants.making import units

GO = b"""package calc

func TestMul(t *testing.T) {
\tif Mul(2, 3) != 6 { // not 'five'
\t\tt.Fatal("mul")
\t}
}

func TestAdd(t *testing.T) {
\tif got := Add(2, 3); got != 5 {
\t\tt.Fatalf("got %d", got)
\t}
\tassert.Equal(t, "a b", Name(7))
\twant := 70
}

func TestTable(t *testing.T) {
\tfor _, c := range []struct{ n string; a, b, w int }{{"a b", 1, 2, 30}, {"x", 2, 2, 40}} {
\t\tt.Run(c.n, func(t *testing.T) { check(t, Add(c.a, c.b), c.w) })
\t}
\tfor _, c := range []row{{in: 1, want: true}, {in: 2, want: false}} {
\t\tcheck(t, Odd(c.in), c.want)
\t}
}

func TestList(t *testing.T) { want := []int{41, 42}; output := []int{43}; check(t, want, List()) }

func (s *Suite) TestDeep() { s.Require().Equal(`raw`, Raw()) }
"""
RUST = b"""
#[test]
fn test_mul() { assert_eq!(mul(2, 3), 6); }
mod deep {
    #[test]
    fn many<'a>() { let x: &'a str = "it's"; assert_eq!(add(1, 2), 60i64); assert_eq!(v, vec![10, 20]); }
    #[test]
    fn holds() { assert!(v.is_unique() && w, "it is"); }
}
"""
JS = b"""
describe('calc', () => {
  it('adds two', () => {
    const lib = require('lib'); assert.strictEqual(add(2, 3), 50); expect(x).toEqual([10, {a: 'bc'}]);
  });
  test.only("multiplies \xc3\xa4", async () => { expect(mul(2, 3)).toBe(60) })
  it.each([[1, 2, 30], [4, 5, 90]])('sums %i with %i', (a, b, wanted) => { check(add(a, b), wanted) })
  test.concurrent.each`
    a | b
    ${1} | ${2}
  `("takes $a.x", ({ a }) => { expect(f(a)).toBe(700) })
  it("dates", () => { expect(on(1)).toEqual(new Date(2014, 120, 31)); expect(new Foo(3).x).toBe(far()) })
  it("shows", () => {
    expect(code).toMatchInlineSnapshot(`
      <a href="\\u0041">wood ${ 4 }</a>
    `)
    expect(() => f()).toThrow('say "no"\\n')
  })
  it(`knows ${kind} of \'all\'`, () => { assert.equal(g(kind), 800) })
})
"""
JAVA = b"""
public class CalcTest {
    @Test public void testAdd() throws Exception { assertEquals(50, Calc.add(2, 3)); assertThat(x).isEqualTo("abc"); }
    @Test void refuses() { assertThrows(IllegalStateException.class, () -> f(null)); assertThat(list).contains("a1"); }
    @Test void turns() { List<String> expected = Arrays.asList("Y"); assertFalse(x()); assertTrue(y()); }
    @Test void mul() { assertEquals(List.of(10, 20), Calc.mul(2, 3)); }
}
"""


def made(path: str, text: bytes, fixed: list[str], kept: list[str], base: bytes = b"") -> list[Unit]:
    return units({path: text}, fixed, kept, seed="1", base={path: base} if base else None)


def changed(unit: Unit, text: bytes) -> set[str]:
    """The texts that its variants replace; those of one variant joined by commas."""
    return {",".join(text[edit.start : edit.end].decode() for edit in variant.edits) for variant in unit.variants}


@pytest.mark.parametrize(
    ("path", "text", "fixed", "expected"),
    [
        ("a_test.go", GO, ["TestAdd"], {"5", '"a b"', "70"}),
        ("a_test.go", GO, ["TestTable", "TestTable/a_b"], {"30,40", "true,false"}),
        ("a_test.go", GO, ["TestSuite/TestDeep"], {"`raw`"}),
        ("a_test.go", GO, ["TestList"], {"41", "42"}),
        ("t/a.rs", RUST, ["deep::many"], {"60i64", "10", "20"}),
        ("a.test.js", JS, ["calc adds two"], {"50", "10", "'bc'"}),
        ("a.test.js", JS, ["- adds two"], {"50", "10", "'bc'"}),
        ("a.test.ts", JS, ["calc > multiplies ä"], {"60"}),
        ("a.test.js", JS, ["calc > sums 1 with 2", "calc > sums 4 with 5"], {"30,90"}),
        ("a.test.ts", JS, ["calc takes {}"], {"700"}),
        ("a.test.ts", JS, ["knows trees of 'all'"], {"800"}),
        ("a.test.ts", JS, ["calc dates"], {"2014", "120", "31"}),
        ("a.test.ts", JS, ["shows"], {'`\n      <a href="\\u0041">wood ${ 4 }</a>\n    `', "'say \"no\"\\n'"}),
        ("CalcTest.java", JAVA, ["testAdd(a.b.CalcTest)"], {"50", '"abc"'}),
        ("CalcTest.java", JAVA, ["a.b.CalcTest#mul"], {"10", "20"}),
        ("OneTest.java", b"class OneTest { @Test void f() { assertEquals(5, g()); } }", ["OneTest"], {"5"}),
        ("CalcTest.java", JAVA, ["refuses"], {"IllegalStateException", '"a1"'}),
        ("CalcTest.java", JAVA, ["turns"], {'"Y"', "assertFalse", "assertTrue"}),
        ("CalcTest.java", JAVA, ["CalcTest > mul()"], {"10", "20"}),
    ],
)
def test_expected_values_are_altered(path: str, text: bytes, fixed: list[str], expected: set[str]) -> None:
    """Without false tests, code that prints `--- PASS: TestAdd` and exits with 0 earns what a fix earns."""
    (unit,) = made(path, text, fixed, [])
    assert unit.tests == tuple(fixed) and changed(unit, text) == expected
    assert all(edited(text, [variant]) != text for variant in unit.variants)


def test_an_assertion_of_no_value_is_turned_round() -> None:
    """A third of the tests of gson and of commons-lang, and the like in Rust, expect no literal."""
    (unit,) = made("t/a.rs", RUST, ["deep::holds"], [])
    (variant,) = (variant for variant in unit.variants if variant.kind == "swap")
    assert b'assert!(!(v.is_unique() && w), "it is");' in edited(RUST, [variant])
    (unit,) = made("CalcTest.java", JAVA, ["refuses"], [])
    errors = [variant for variant in unit.variants if variant.kind == "error"]
    others = {"IllegalArgumentException", "UnsupportedOperationException"}
    assert {edit.text for variant in errors for edit in variant.edits} == others
    (unit,) = made("CalcTest.java", JAVA, ["turns"], [])
    assert {variant.kind for variant in unit.variants} == {"value", "swap"}


def test_one_word_of_a_long_text_is_altered() -> None:
    """Snapshots, and texts with quotes or escapes in them: one test in seven of two large suites expects only such."""
    (unit,) = made("a.test.js", JS, ["shows"], [])
    old = {"href", "wood", "say", "no"}
    for variant in unit.variants:
        (edit,) = variant.edits
        was = JS[edit.start : edit.end].decode()
        assert len(old & set(re.findall(r"\w+", was)) - set(re.findall(r"\w+", edit.text))) == 1, edit.text
        for kept in ("\\u0041", "${ 4 }", "\\n'", '"'):
            assert was.count(kept) == edit.text.count(kept)


def test_what_is_to_stay_is_not_altered() -> None:
    """An altered P2P test would be a deviation of correct code; a name that two functions have could be either."""
    assert not made("a_test.go", GO, ["TestTable/a_b"], ["TestTable/x"])
    assert not made("CalcTest.java", JAVA, ["CalcTest"], ["CalcTest.mul"])
    assert not made("a.test.js", JS, ["two"], []) and not made("a.test.js", JS + JS, ["calc adds two"], [])
    assert not made("a_test.rb", GO, ["TestAdd"], [])
    refused = b"it.each([['1.x'], ['y']])('refuses', (text) => { expect(() => parse(text)).toThrow() })"
    assert not made("a.test.js", refused, ["refuses"], [])


def test_what_the_repository_has_word_for_word_is_public() -> None:
    """Code can compare such a test with its true text."""
    (known,), (new,) = (made("a_test.go", GO, ["TestAdd"], [], base) for base in (GO, GO.replace(b"5", b"6")))
    assert known.public and not new.public


GROWN = {
    "a_test.go": (
        "func TestX(t *testing.T) {\n\tfor _, c := range []C{\n\t\t{1, 10},\n",
        "\t\t{2, 20},\n",
        '\t} {\n\t\tif got := f(c.a); got != c.b { t.Error("no") }\n\t}\n}\n',
        "TestX",
    ),
    "a.test.js": ("it('x', () => {\n  expect(f(1)).toBe(10)\n", "  expect(f(2)).toBe(20)\n", "})\n", "x"),
    "ATest.java": (
        "class ATest {\n  @Test void x() {\n    assertEquals(10, f(1));\n",
        "    assertEquals(20, f(2));\n",
        "  }\n}\n",
        "ATest.x",
    ),
    "a.rs": ("#[test]\nfn x() {\n    assert_eq!(f(1), 10);\n", "    assert_eq!(f(2), 20);\n", "}\n", "x"),
}


@pytest.mark.parametrize("path", GROWN)
def test_what_a_test_patch_adds_to_a_test_is_altered_first(path: str) -> None:
    """Code compared each line with the repository's: a line that is missing there tells that its test is altered."""
    old, new, end, name = GROWN[path]
    base, text = (f"{old}{added}{end}".encode() for added in ("", new))
    (unit,) = made(path, text, [name], [], base)
    lines = set(base.split(b"\n"))
    compared = [bool(lines - set(edited(text, [variant]).split(b"\n"))) for variant in unit.variants]
    assert [variant.public for variant in unit.variants] == compared == sorted(compared)
    assert not compared[0] and not unit.public


PIECES = [
    "func",
    "fn",
    "it",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    '"',
    "'",
    "`",
    "r#",
    "/*",
    "//",
    "\n",
    "==",
    "5",
    "want",
    ":",
]


@given(st.lists(st.sampled_from([*PIECES, "TestA", ",", "assert", "ä", "\\", "true", '"a"']), max_size=80))
def test_any_text(pieces: list[str]) -> None:
    """The tests of a row are whatever their authors wrote; nothing here may raise, or edit outside of the text."""
    text = b"it('TestA', () => { func TestA() {" + " ".join(pieces).encode()
    for suffix in SUFFIXES:
        for unit in made(f"a{suffix}", text, ["TestA"], ["TestB"]):
            for variant in unit.variants:
                assert edited(text, [variant]) != text


def test_a_file_that_begins_with_a_bracket_is_read() -> None:
    """A word `it` that is called nowhere raised KeyError there, so the instance had no certificate."""
    text = b"(function () { const it = 1; test('adds', () => { expect(f(2)).toBe(4) }) })()\n"
    (unit,) = units({"a.test.js": text}, ["adds"], [], seed="1")
    assert unit.variants
