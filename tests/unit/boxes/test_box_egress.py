"""A box request's network fields, in E2B's words, as egress rules."""

import pytest

from sandbox_server.boxes.network import egress_of
from sandbox_server.errors import MalformedRequest
from sandbox_server.sandbox.egress import Egress, Target

TRAINER, OTHER = Target("10.0.0.1/32"), Target("10.0.0.0/8")
ALL = Target("0.0.0.0/0")


@pytest.mark.parametrize(
    ("allow", "deny", "means"),
    [
        ([], [], None),
        (["10.0.0.1"], ["0.0.0.0/0"], Egress((TRAINER,), (ALL,))),
        (["10.0.0.1"], [], Egress((TRAINER,))),
        (["10.0.0.1"], ["10.0.0.0/8"], Egress((TRAINER,), (OTHER,), rest=True)),
        ([], ["10.0.0.0/8"], Egress((), (OTHER,), rest=True)),
        ([], ["0.0.0.0/0"], Egress((), (ALL,))),
        (["*.example.com:443"], [], Egress((Target("*.example.com", 443),))),
    ],
)
def test_words_of_a_request(allow: list[str], deny: list[str], means: Egress | None) -> None:
    """Denied destinations are denied, allowed ones allowed."""
    assert egress_of(allow, deny) == means


@pytest.mark.parametrize(
    ("allow", "deny"), [([], ["*.example.com"]), ([], ["example.com"]), (["a b"], []), (["10.0.0.1"] * 300, [])]
)
def test_what_no_rule_can_hold_to_is_refused(allow: list[str], deny: list[str]) -> None:
    """A rule that cannot be enforced is refused: accepting it would be worse than having none."""
    with pytest.raises(MalformedRequest):
        egress_of(allow, deny)
