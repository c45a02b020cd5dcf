"""What the steps of a template leave besides files: hostile ones must cost a failed build, not the server."""

import time

import pytest

from sandbox_server.catalogue.templates import Step
from sandbox_server.errors import MalformedRequest
from sandbox_server.images.template_state import StepState


def state(**env: str) -> StepState:
    return StepState({"HOME": "/root"}, env, "root", "/")


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$A-${A}-\\$A-$B", "1-1-$A-"),
        ("$HOME:$PATH", "/root:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("$", "$"),
        ("", ""),
    ],
)
def test_variables(text: str, expanded: str) -> None:
    assert state(A="1").expanded(text) == expanded


def test_a_variable_that_doubles() -> None:
    """Thirty steps of `ENV A=$A$A` took the memory of the host."""
    own = state(A="x" * 100)
    with pytest.raises(MalformedRequest, match="longer than a program's argument"):
        for _ in range(100):
            own.apply(Step(kind="ENV", args=("A", "$A$A")))
    assert len(own.env["A"]) < 128 << 10


def test_many_variables() -> None:
    """Many values of the longest kind are as bad, and each must not look at all the others."""
    own, began = state(A="x" * 60_000), time.process_time()
    with pytest.raises(MalformedRequest, match="environment of a template"):
        own.apply(Step(kind="ENV", args=tuple(text for number in range(5000) for text in (f"B{number}", "$A"))))
    small = state()
    for _ in range(20):
        small.apply(Step(kind="ENV", args=tuple(text for number in range(5000) for text in (f"B{number}", "$HOME"))))
    assert time.process_time() - began < 2
