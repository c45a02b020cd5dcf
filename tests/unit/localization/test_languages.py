"""Definitions in languages other than Python: one file each, every kind of definition edited once."""

import difflib
import importlib

import pytest

from sandbox_server.catalogue.localization.extract import truth_of
from sandbox_server.catalogue.localization.languages import _grammar

JAVASCRIPT = """\
import x from 'x';

// comment
const LIMIT = 1;

export class Foo extends Base {
  field = 2;

  constructor() { this.a = 3; }

  static async run(a) {
    return [1].map((n) => n + 4);
  }

  handler = () => {
    return 5;
  };
}

export default function main() {
  return 6;
}

const arrow = async (a) => {
  return 7;
};

const api = {
  get() { return 8; },
  post: function () { return 9; },
};

Foo.prototype.late = function () { return 10; };
exports.other = () => 11;
function* gen() { yield 12; }
"""
TYPESCRIPT = """\
@Component({ selector: 'a1' })
export class Foo<T> implements Base {
  private x: number = 2;

  @Input()
  get prop(): T { return this.y3; }

  over(a: string): void;
  over(a: number): void;
  over(a: any) { return 4; }
}

export interface Shape {
  area5(): number;
  side6: number;
}

enum Colour { Red = 7 }

namespace N {
  export function inside(): number { return 8; }
}

abstract class Base { abstract run9(): void; }
type Alias = string | 10;
"""
TSX = """\
export const Button = (props: { a: string }) => {
  return <b id="one1">{props.a}</b>;
};
"""
GO = """\
package main

import "fmt"

const limit = 1

type Stack[T any] struct {
	items2 []T
}

// Push pushes.
func (s *Stack[T]) Push(item T) {
	fmt.Println(3)
}

func (Stack[T]) Name() string { return "4" }

type Shape interface {
	Area5() float64
}

func main() {
	f := func() int { return 6 }
	f()
}
"""
RUST = """\
use std::fmt;

const LIMIT: u32 = 1;

#[derive(Debug2)]
pub struct Foo<T> {
    a3: T,
}

impl<T> Foo<T> {
    #[inline4]
    pub fn new(a: T) -> Self { Foo { a3x: a } }
}

impl fmt::Display for Foo<u8> {
    fn fmt(&self) -> u8 { 5 }
}

trait Shape {
    fn area(&self) -> u6;
}

mod tests {
    fn check() { let x = 7; }
}

macro_rules! shout { () => { 8 } }
enum Colour { Red9 }
"""
JAVA = """\
package p;

import java.util.List;

/** Doc1. */
@Service2
public class Foo extends Base {
    private int a = 3;

    static { System.out.println(4); }

    public Foo(int a) { this.a = a + 5; }

    @Override
    public String toString() {
        return new Object() { public String toString() { return "6"; } }.toString();
    }

    static class Inner {
        void run() { int b = 7; }
    }

    interface Shape { double area8(); }
}

enum Colour { RED9; int f() { return 10; } }
record Point(int x11) { Point { check(12); } }
"""


def levels(path: str, source: str, old: str) -> tuple[str, str]:
    assert source.count(old) == 1, old
    lines = (source.splitlines(keepends=True), source.replace(old, old + "0").splitlines(keepends=True))
    patch = "".join(difflib.unified_diff(*lines, f"a/{path}", f"b/{path}"))
    truth = truth_of(patch, {path: source.encode()}.get)
    assert truth.missing == {}
    modules, entities = (
        " ".join(n.removeprefix(f"{path}:") for n in names or ()) for names in (truth.modules, truth.entities)
    )
    return modules, entities


@pytest.mark.parametrize(
    ("path", "source", "old", "expected"),
    [
        ("a.js", JAVASCRIPT, "// comment", ("", "")),
        ("a.js", JAVASCRIPT, "LIMIT = 1", ("", "")),
        ("a.js", JAVASCRIPT, "extends Base", ("Foo", "")),
        ("a.js", JAVASCRIPT, "field = 2", ("Foo", "")),
        ("a.js", JAVASCRIPT, "this.a = 3", ("Foo", "Foo.constructor")),
        ("a.jsx", JAVASCRIPT, "n + 4", ("Foo", "Foo.run")),
        ("a.mjs", JAVASCRIPT, "return 5", ("Foo", "Foo.handler")),
        ("a.js", JAVASCRIPT, "return 6", ("main", "main")),
        ("a.js", JAVASCRIPT, "return 7", ("arrow", "arrow")),
        ("a.js", JAVASCRIPT, "return 8", ("api", "api.get")),
        ("a.js", JAVASCRIPT, "return 9", ("api", "api.post")),
        ("a.js", JAVASCRIPT, "return 10", ("Foo", "Foo.late")),
        ("a.js", JAVASCRIPT, "=> 11", ("other", "other")),
        ("a.cjs", JAVASCRIPT, "yield 12", ("gen", "gen")),
        ("a.ts", TYPESCRIPT, "Base {\n  private x: number = 2", ("Foo", "")),
        ("a.ts", TYPESCRIPT, "this.y3", ("Foo", "Foo.prop")),
        ("a.ts", TYPESCRIPT, "a: string): void;", ("Foo", "Foo.over")),
        ("a.ts", TYPESCRIPT, "return 4", ("Foo", "Foo.over")),
        ("a.ts", TYPESCRIPT, "side6", ("Shape", "")),
        ("a.ts", TYPESCRIPT, "area5", ("Shape", "Shape.area5")),
        ("a.ts", TYPESCRIPT, "Red = 7", ("Colour", "")),
        ("a.ts", TYPESCRIPT, "return 8", ("inside", "inside")),
        ("a.ts", TYPESCRIPT, "| 10", ("", "")),
        ("a.tsx", TSX, "one1", ("Button", "Button")),
        ("a.go", GO, "limit = 1", ("", "")),
        ("a.go", GO, "items2", ("Stack", "")),
        ("a.go", GO, "Println(3", ("Stack", "Stack.Push")),
        ("a.go", GO, '"4', ("Stack", "Stack.Name")),
        ("a.go", GO, "Area5", ("Shape", "Shape.Area5")),
        ("a.go", GO, "return 6", ("main", "main")),
        ("a.rs", RUST, "u32 = 1", ("", "")),
        ("a.rs", RUST, "Debug2", ("Foo", "")),
        ("a.rs", RUST, "a3: T", ("Foo", "")),
        ("a.rs", RUST, "inline4", ("Foo", "Foo.new")),
        ("a.rs", RUST, "a3x: a", ("Foo", "Foo.new")),
        ("a.rs", RUST, "{ 5", ("Foo", "Foo.fmt")),
        ("a.rs", RUST, "u6", ("Shape", "Shape.area")),
        ("a.rs", RUST, "x = 7", ("check", "check")),
        ("a.rs", RUST, "{ 8", ("shout", "shout")),
        ("a.rs", RUST, "Red9", ("Colour", "")),
        ("a.java", JAVA, "Doc1", ("", "")),
        ("a.java", JAVA, "Service2", ("Foo", "")),
        ("a.java", JAVA, "a = 3", ("Foo", "")),
        ("a.java", JAVA, "println(4", ("Foo", "")),
        ("a.java", JAVA, "a + 5", ("Foo", "Foo.Foo")),
        ("a.java", JAVA, '"6', ("Foo", "Foo.toString")),
        ("a.java", JAVA, "b = 7", ("Foo.Inner", "Foo.Inner.run")),
        ("a.java", JAVA, "return 10", ("Colour", "Colour.f")),
        ("a.java", JAVA, "check(12", ("Point", "Point.Point")),
    ],
)
def test_whose_an_edit_is(path: str, source: str, old: str, expected: tuple[str, str]) -> None:
    assert levels(path, source, old) == expected


def test_source_that_does_not_parse_is_told() -> None:
    truth = truth_of(
        "--- a/a.go\n+++ b/a.go\n@@ -2 +2 @@\n-func f( {\n+func f() {\n", {"a.go": b"package p\nfunc f( {\n}\n"}.get
    )
    assert truth.files == ("a.go",)
    assert truth.entities is None
    assert "does not parse by tree-sitter-go: an error near line 2" in truth.missing["a.go"]


def test_grammar_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty level would pay for any answer; the way out is named."""

    def absent(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    _grammar._parser.cache_clear()
    monkeypatch.setattr(importlib, "import_module", absent)
    truth = truth_of("--- a/a.go\n+++ b/a.go\n@@ -1 +1 @@\n-package p\n+package q\n", {"a.go": b"package p\n"}.get)
    assert (truth.files, truth.modules, truth.entities) == (("a.go",), None, None)
    assert "`pip install tree-sitter-go`" in truth.missing["a.go"]
    _grammar._parser.cache_clear()
