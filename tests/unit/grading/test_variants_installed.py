"""Altered tests in PHP, Ruby and C++; each is tried with gold on the engine before it is used."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.grading.variants.base import Unit, edited
from sandbox_server.grading.variants.making import units
from sandbox_server.grading.variants.without_comments import without_comments

PHP = b"""<?php
namespace Calc\\Tests;

final class SumTest extends TestCase
{
    # not 'five'
    #[DataProvider('cases')]
    public function testItAdds2And3(): void
    {
        $this->assertSame(5, add(2, 3), 'two and three');
        self::assertEquals(['a' => 'it\\'s'], pairs());
        $this->assertTrue(isOdd(3));
    }

    /** @test */
    public function refuses_text()
    {
        $this->expectException(\\InvalidArgumentException::class);
        add('x', 1);
    }
}
"""
RUBY = b"""# frozen_string_literal: true

RSpec.describe Calc::Sum, :config do
  context 'when "odd"' do
    it 'adds' do
      expect(add(2, 3)).to eq(5) # not six
      expect(name(7)).to eq 'a b'
      expect(sum.odd?).to be true
    end

    it "knows #{kind} of them" do
      expect(list).to include(:seven)
      expect { f }.to raise_error(ArgumentError)
      expect(x).not_to be_nil
    end
  end

  describe '#neg' do
    it('adds') { expect(neg(1)).to eq(-1) }

    it 'adds' do
      expect_offense(<<~RUBY, 3)
        wood do
          /a#b"/
        end
      RUBY
      if x
        expect(y).to eq(4)
      end
    end
  end
end

class TestSum < Minitest::Test
  def test_add
    assert_equal 50, add(20, 30), "twenty and thirty"
    refute_includes [70], 80
    assert_raises(KeyError) { f }
    assert x > 1 && !y
  end

  test "of a label" do
    assert_equal [1, 2],
                 pair(90)
  end
end
"""
CPP = b"""
#include <gtest/gtest.h>
TEST(SumTest, Adds) {
  EXPECT_EQ(5, add(2, 3)) << "five";  // five
  EXPECT_EQ(text(), R"(a "b" 7)");
  EXPECT_TRUE(odd(3));
}
TEST(SumTest, Refuses) { EXPECT_THROW(add("x"), std::invalid_argument); }
TEST_F(OtherTest, Adds) { EXPECT_EQ(60, x()); }
TEST_CASE("multiplies")
{
    CHECK(mul(2, 3) == 6);
    SECTION("with zero") { REQUIRE(mul(2, 0) == 100); }
}
"""


def made(path: str, text: bytes, fixed: list[str], base: bytes = b"") -> list[Unit]:
    return units({path: text}, fixed, [], seed="1", base={path: base} if base else None)


def changed(unit: Unit, text: bytes) -> set[str]:
    return {",".join(text[edit.start : edit.end].decode() for edit in variant.edits) for variant in unit.variants}


@pytest.mark.parametrize(
    ("path", "text", "name", "expected"),
    [
        ("t/SumTest.php", PHP, "Sum > It adds 2 and 3", {"5", "'a'"}),
        ("t/SumTest.php", PHP, "Sum > It adds 2 and 3 with data set #1", {"5", "'a'"}),
        ("t/SumTest.php", PHP, "Sum > Refuses text", {"InvalidArgumentException"}),
        ("sum_spec.rb", RUBY, 'Calc::Sum when "odd" adds', {"5", "'a b'", "true", "to"}),
        ("sum_spec.rb", RUBY, 'Calc::Sum when "odd" knows all of them', {":seven", "ArgumentError", "to", "not_to"}),
        ("sum_test.rb", RUBY, "TestSum#test_add", {"50", "70", "80", "KeyError", "1"}),
        ("sum_test.rb", RUBY, "test_add", {"50", "70", "80", "KeyError", "1"}),
        ("sum_test.rb", RUBY, "of a label", {"1", "2"}),
        ("sum.cc", CPP, "SumTest.Adds", {"5", 'R"(a "b" 7)"'}),
        ("sum.cc", CPP, "SumTest.Refuses", {"invalid_argument"}),
        ("sum.cpp", CPP, "multiplies", {"6", "100"}),
        ("sum.cpp", CPP, "multiplies > with zero", {"100"}),
    ],
)
def test_expected_values_are_altered(path: str, text: bytes, name: str, expected: set[str]) -> None:
    """Rows in these languages had no false tests: code that printed a passing run's log was paid."""
    text = without_comments(path, text, [name])
    (unit,) = made(path, text, [name])
    assert unit.tests == (name,)
    assert changed(unit, text) - {"''", '""', ","} == expected  # emptied messages, and an assertion put in brackets
    assert all(edited(text, [variant]) != text for variant in unit.variants)


def test_a_document_is_a_string_of_its_announcement() -> None:
    """RuboCop's tests expect little else. Two tests of one title are told apart by what is around them."""
    (unit,) = made("a_spec.rb", RUBY.replace(b"it('adds')", b"it('turns')"), ["Calc::Sum#neg adds"])
    text = RUBY.replace(b"it('adds')", b"it('turns')")
    assert any("wood" in one and "/a#b" in one for one in changed(unit, text)) and "4" in changed(unit, text)
    assert not made("a_spec.rb", RUBY, ["Calc::Sum#neg adds"])  # two of the same name


def test_what_stays_in_another_class_or_file_is_not_altered() -> None:
    assert not made("t/OtherTest.php", PHP.replace(b"SumTest", b"OtherTest"), ["Sum > Refuses text"])
    assert not made("sum.cc", CPP, ["FarTest.Adds"])
    more = PHP.replace(b"refuses_text", b"testItAdds2And3WithCare")
    assert [changed(one, more) for one in made("SumTest.php", more, ["Sum > It adds 2 and 3 with care"])] == [
        {"InvalidArgumentException"}
    ]


def test_comments_and_messages_are_taken_out() -> None:
    """They tell the true value beside a false one."""
    php, ruby, cpp = (without_comments(path, text) for path, text in (("a.php", PHP), ("a.rb", RUBY), ("a.cc", CPP)))
    assert b"five" not in php and b"two and three" not in php and b"#[DataProvider('cases')]" in php
    assert b"/** @test */" in php
    assert b"six" not in ruby and b"twenty" not in ruby and b"frozen_string_literal" in ruby and b'/a#b"/' in ruby
    assert b"// five" not in cpp
    for old, new in ((PHP, php), (RUBY, ruby), (CPP, cpp)):
        assert old.count(b"\n") == new.count(b"\n")


def test_what_the_repository_has_word_for_word_is_public() -> None:
    for path, text, name in (("a.rb", RUBY, "test_add"), ("SumTest.php", PHP, "Sum > Refuses text")):
        (known,), (new,) = (made(path, text, [name], base) for base in (text, b"x"))
        assert known.public and not new.public


WORDS = ("\n", "do", "end", "def", "it", "assert_equal", "eq", "<<~A", "<<<A\n", "A", "5", "%w[", "=begin")


@given(st.lists(st.sampled_from([*"(){}[]'\"`|/#,.\\?:", *WORDS]), max_size=80))
def test_any_text(pieces: list[str]) -> None:
    """The tests of a row are whatever their authors wrote; nothing here may raise, or edit outside of the text."""
    text = b"it 'a' do\n assert_equal 7, 8\n" + " ".join(pieces).encode()
    for path in ("a.rb", "a.php", "a.cc"):
        without_comments(path, text)
        for unit in made(path, text, ["a"]):
            for variant in unit.variants:
                assert edited(text, [variant]) != text


@pytest.mark.parametrize(
    "piece", [*"'\"/#(", "#{a}", "<<~A\n", "<<<A\n", "it 'a' do\n", "eq ", "%w[", 'R"(', "=begin\n"]
)
def test_reading_takes_linear_time(piece: str) -> None:
    """A test file may be generated, and a file that a policy wrote may be read with it."""
    text = f'"{piece * 8000}'.encode()
    for path in ("a.rb", "a.php", "a.cc"):
        began = time.process_time()
        made(path, text, ["b"])
        assert time.process_time() - began < 5, path


PROVIDED = b"""<?php
final class SumTest extends TestCase
{
    /**
     * @dataProvider provideSums
     */
    public function testAdds(int $expected, int $a, int $b = 0): void
    {
        $this->assertSame($expected, add($a, $b));
    }

    public static function provideSums(): iterable
    {
        yield 'two' => [50, 20, 30];
        yield [70, 30, 40];
        yield [['x' => 90, 'y' => "word"], 'b' => 4];
        yield 'made' => [sum(1, 2), 3];
    }

    #[DataProvider('cases')]
    public function testNames(string $text, $shown) { self::assertEquals($shown, name($text)); }

    public static function cases(): array
    {
        return [
            ['a', 'wood'],
            'with "it"' => ['b', 'tree'],
            array('c', 'leaf'),
            ['expected' => 1, 'text' => 'd', 'shown' => 'root'],
        ];
    }

    #[DataProvider('many')]
    public function testMany($text, $shown) { self::assertEquals($shown, name($text)); }

    public static function many(): iterable
    {
        foreach ([1, 2] as $n) {
            yield ["a$n", 7];
        }
        yield 'last' => ['b', 8];
    }

    /** @dataProvider \\Other\\Cases::all */
    public function testElsewhere($text, $shown) { self::assertEquals($shown, name($text)); }
}
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ('Sum > Adds with data set "two"', {"50"}),
        ("Sum > Adds with data set #0", {"70"}),
        ("Sum > Adds with #0", {"70"}),
        ("Sum > Adds with data set #1", {"90", '"word"'}),
        ("Sum > Names with data set #0", {"'wood'"}),
        ("Sum > Names with data set #1", {"'leaf'"}),
        ("Sum > Names with data set #2", {"'root'"}),
        ('Sum > Names with data set "with "it""', {"'tree'"}),
        ('Sum > Many with data set "last"', {"8"}),
    ],
)
def test_rows_of_data_providers_are_altered(name: str, expected: set[str]) -> None:
    """PHPUnit's tests of many cases had no false tests: what they expect stands in another method."""
    text = without_comments("t/SumTest.php", PROVIDED, [name])
    (unit,) = made("t/SumTest.php", text, [name])
    assert unit.tests == (name,) and changed(unit, text) == expected
    # the other rows may be tests that must stay
    kept = ["Sum > Adds with data set #7", "Sum > Names with data set #7", "Sum > Many with data set #7"]
    assert [changed(one, text) for one in units({"t/SumTest.php": text}, [name], kept, seed="1")] == [expected]


@pytest.mark.parametrize(
    "name",
    [
        'Sum > Adds with data set "made"',
        'Sum > Adds with data set "none"',
        "Sum > Adds with data set #9",
        "Sum > Adds",
        "Sum > Many with data set #0",
        "Sum > Elsewhere with data set #0",
    ],
)
def test_rows_that_cannot_be_told_are_left(name: str) -> None:
    assert not made("t/SumTest.php", PROVIDED, [name])


def test_rows_that_the_repository_has_are_public() -> None:
    name = "Sum > Names with data set #0"
    (unit,) = made("t/SumTest.php", PROVIDED, [name], PROVIDED)
    assert unit.public
    (unit,) = made("t/SumTest.php", PROVIDED, [name], PROVIDED.replace(b"            ['a', 'wood'],\n", b""))
    assert not unit.public


def test_tests_that_share_a_row_are_altered_together() -> None:
    more = PROVIDED.replace(
        b"cases')]\n", b"cases')]\n    public function testAlso($a, $shown) { same($a, $shown); }\n", 1
    )
    more = more.replace(
        b"    public function testNames", b"    #[DataProvider('cases')]\n    public function testNames"
    )
    names = ["Sum > Names with data set #0", "Sum > Also with data set #0"]
    assert [unit.tests for unit in made("t/SumTest.php", more, names)] == [tuple(names)]
