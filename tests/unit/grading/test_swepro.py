"""What a parser of SWE-bench Pro may write, and what counts as passed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.grading.graders.swepro import passed_tests

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["tests", "name", "status", "x"]), inner),
)


@pytest.mark.parametrize("status", ["FAILED", "SKIPPED", "ERROR", "passed", "XPASS", None, 1])
def test_only_passed_counts(status: object) -> None:
    """A test that is skipped, or that is not there, has not been passed."""
    tests = [{"name": "a", "status": "PASSED"}, {"name": "b", "status": status}]
    assert passed_tests(json.dumps({"tests": tests})) == {"a"}


@pytest.mark.parametrize(
    "result",
    [
        "",
        "{",
        "null",
        "[]",
        "{}",
        '{"tests": []}',
        '{"tests": null}',
        '{"tests": ["a"]}',
        '{"tests": [{"name": "a"}]}',
        '{"tests": [{"name": "a", "status": "PASSED"}',
        "[" * 100_000,
    ],
)
def test_no_list_of_tests_is_no_result(result: str) -> None:
    """A parser that broke, or found nothing, has not judged anything: it is no list of failures."""
    assert passed_tests(result) is None


@given(ANYTHING)
def test_whatever_a_parser_writes_is_read(value: object) -> None:
    """The text comes out of a container in which the policy's code ran."""
    passed = passed_tests(json.dumps(value))
    assert passed is None or all(isinstance(name, str) for name in passed)
