"""How many confirming runs it takes: guessing gets through once in a hundred times at most."""

from random import Random

import pytest

from sandbox_server.grading.odds import MOST_CHANCE, chance, forgiven, patterns, runs_for


@pytest.mark.parametrize(("units", "runs"), [(1, 10), (2, 4), (3, 3), (4, 2), (5, 2), (40, 2)])
def test_runs_by_units(units: int, runs: int) -> None:
    assert runs_for(units) == runs
    assert chance(units, runs) <= MOST_CHANCE


def test_more_runs_can_be_asked_for() -> None:
    assert runs_for(40, least=7) == 7


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("units", [8, 16, 40])
def test_what_is_borne_helps_no_guess(units: int, share: float) -> None:
    """Who guesses that most tests are false has few false ones that pass, and too many true ones that fail."""
    rng, runs, through = Random(units), runs_for(units), 0
    for _ in range(10_000):
        failed_true, most = 0, forgiven(units * runs)
        for altered in patterns(units, runs, rng):
            for unit in range(units):
                passes = rng.random() < share
                if unit in altered and passes:
                    break  # a false test passed
                failed_true += not passes and unit not in altered
                if failed_true > most:
                    break
            else:
                continue
            break
        else:
            through += 1
    assert through <= 10


@pytest.mark.parametrize("units", [1, 2, 3, 4, 6])
def test_guesses_get_through_as_seldom_as_computed(units: int) -> None:
    """The whole procedure against coins: one deviation is forgiven, then another sequence counts."""
    rng, runs, rounds = Random(units), runs_for(units), 40_000

    def deviations() -> int:
        """Up to 3: more say no more."""
        wrong = 0
        for altered in patterns(units, runs, rng):
            for unit in range(units):
                wrong += rng.getrandbits(1) != (unit in altered)
                if wrong == 3:
                    return wrong
        return wrong

    through = 0
    for _ in range(rounds):
        for _ in range(3):
            if (wrong := deviations()) not in (1, 2):
                break
        through += wrong == 0
    assert through / rounds <= chance(units, runs) * 1.2 + 0.0005
    assert through / rounds <= MOST_CHANCE * 1.2


@pytest.mark.parametrize("units", [1, 2, 5, 30])
def test_what_passes_whatever_it_says_is_found_out_for_certain(units: int) -> None:
    for seed in range(200):
        drawn = patterns(units, runs_for(units), Random(seed))
        assert all(any(unit in altered for altered in drawn) for unit in range(units))


def test_who_knows_how_many_runs_of_one_unit_are_altered_guesses_which() -> None:
    rng, rounds = Random(1), 20_000
    numbers = range(runs_for(1))
    right = 0
    for _ in range(rounds):
        drawn = patterns(1, len(numbers), rng)
        altered = {number for number in numbers if drawn[number]}
        assert len(altered) == 7
        right += altered == set(rng.sample(numbers, 7))
    assert right / rounds <= MOST_CHANCE


def test_a_guess_that_is_always_the_same_never_gets_through() -> None:
    rng = Random(1)
    for _ in range(200):
        drawn = patterns(6, 2, rng)
        fixed = frozenset(unit for unit in range(6) if rng.getrandbits(1))
        assert any(altered != fixed for altered in drawn)
