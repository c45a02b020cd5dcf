"""What a confirming run says that flakes, or tells by one exit code."""

from contextlib import nullcontext
from dataclasses import replace
from random import Random

from sandbox_server.catalogue.certificate_key import CertificateKey
from sandbox_server.catalogue.instance import ScriptGrader
from sandbox_server.grading.confirming import _bearable, _Case, _Deviation

from .simulated import PATH, RESOLVED, Runs, confirming, task


async def test_quarantined_tests_confirm_nothing() -> None:
    """A test that flakes by itself calls a right fix forged."""
    chance = Random(1)
    runs, flaky = Runs(3, lambda number, true: true if number != "0" else chance.random() < 0.5), f"{PATH}::test_0"
    for seed in range(20):
        verdict = replace(RESOLVED, quarantined=(flaky,))
        found = await confirming(runs, seed=seed).confirm(task(3), b"patch", verdict)
        assert found.confirm is not None and (found.confirm.state, found.confirm.units) == ("confirmed", 2)


async def test_with_one_exit_code_each_unit_has_its_turn() -> None:
    """Code that recognises the first unit alone would be confirmed."""
    confirmer = confirming(Runs(3))
    named = task(3)
    variants = await confirmer.certifying.variants(named, CertificateKey.of(named, "sha256:1"), nullcontext)
    by_code = named.model_copy(update={"grader": ScriptGrader(command="pytest")})
    altered = [set(by_unit) for by_unit in confirmer._draw(_Case(by_code, b"patch", variants, variants.units, 60.0))]
    assert max(map(len, altered)) == 1 and set().union(*altered) == {0, 1, 2}


def test_one_false_test_that_passes_is_forgiven_once() -> None:
    """Code that passes one false test in each sequence would be confirmed by the last one."""
    false, true = _Deviation("a"), _Deviation("b", passed_false=False)
    assert _bearable([false], [false], 8) and not _bearable([false, false], [false], 8)
    assert not _bearable([false, true], [false, true], 8)
    assert _bearable([true] * 2, [true] * 2, 8) and not _bearable([true] * 3, [true] * 3, 8)


def test_a_verdict_that_pays_unconfirmed_has_another_key() -> None:
    """It would be found again, and paid, by a server that refuses such verdicts."""
    assert confirming(Runs(1)).mode != confirming(Runs(1), pays=False).mode
