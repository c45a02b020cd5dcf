"""The numbers made from verdicts."""

from dataclasses import replace

import pytest

from sandbox_server.catalogue.instance import SandboxSpec, ScriptGrader, TaskInstance
from sandbox_server.grading.registry import load_rewards
from sandbox_server.verdicts import Verdict, VerdictName

_INSTANCE = TaskInstance(
    instance_id="r__r-1", repo="r/r", sandbox=SandboxSpec(images=("unused",)), grader=ScriptGrader(command="true")
)
_R, _U = VerdictName.RESOLVED, VerdictName.UNRESOLVED


@pytest.mark.parametrize(
    ("name", "verdict", "f2p", "p2p", "want"),
    [
        ("f2p_fraction", _R, (2, 2), (5, 5), 1.0),
        ("f2p_fraction", _U, (1, 4), (0, 5), 0.25),
        ("f2p_fraction", _R, (0, 0), (5, 5), 1.0),
        ("f2p_fraction", _U, (0, 0), (4, 5), 0.0),
        ("f2p_fraction", VerdictName.PATCH_FAILED, (0, 3), (0, 5), 0.0),
        ("resolved", _R, (2, 2), (5, 5), 1.0),
        ("resolved", _U, (2, 2), (4, 5), 0.0),
        ("f2p_if_p2p_kept", _U, (1, 2), (5, 5), 0.5),
        ("f2p_if_p2p_kept", _U, (2, 2), (4, 5), 0.0),
        ("f2p_if_p2p_kept", _R, (2, 2), (0, 0), 1.0),
        ("f2p_if_p2p_kept", VerdictName.EMPTY_PATCH, (0, 2), (0, 0), 0.0),
    ],
)
def test_formulas(name: str, verdict: VerdictName, f2p: tuple[int, int], p2p: tuple[int, int], want: float) -> None:
    """A trainer's signal changes if one of these does."""
    given = Verdict(verdict, False, "", f2p_count=f2p[0], f2p_total=f2p[1], p2p_count=p2p[0], p2p_total=p2p[1])
    named = _INSTANCE.model_copy(update={"fail_to_pass": tuple(f"t.py::{number}" for number in range(f2p[1]))})
    given = replace(given, f2p_failed=named.fail_to_pass[f2p[0] :])
    assert load_rewards()[name](named, given) == want


_TWO = _INSTANCE.model_copy(update={"fail_to_pass": ("t.py::a", "t.py::b")})


@pytest.mark.parametrize(("name", "failed", "want"), [(_U, ("t.py::b",), 0.0), (_U, ("t.py::a",), 0.5), (_R, (), 1.0)])
def test_what_a_stub_passes_earns_nothing_alone(name: VerdictName, failed: tuple[str, ...], want: float) -> None:
    """A function that only raises ValueError passed the test that wants one: 0.545 without a fix."""
    given = Verdict(name, False, "", f2p_count=2 - len(failed), f2p_total=2, f2p_failed=failed, f2p_stubs=("t.py::a",))
    assert load_rewards()["f2p_if_p2p_kept"](_TWO, given) == want


def test_a_fix_is_paid_although_a_stub_passes_its_tests() -> None:
    """A row whose only test passes with a stub would pay nothing for the real fix either."""
    one = _INSTANCE.model_copy(update={"fail_to_pass": ("t.py::a",)})
    given = Verdict(_R, False, "", f2p_count=1, f2p_total=1, f2p_stubs=("t.py::a",))
    assert load_rewards()["f2p_if_p2p_kept"](one, given) == 1.0


def test_every_documented_reward_is_there() -> None:
    """SANDBOX_REWARD names one of these."""
    assert set(load_rewards()) == {"f2p_fraction", "resolved", "f2p_if_p2p_kept"}
