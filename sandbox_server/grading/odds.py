"""Computes how many confirming runs are needed, and which tests are altered in each. Pure.

Code that cannot tell an altered test from a true one must guess: one bit per test and run. It passes if all guesses
of a sequence are right. After a sequence with one or two wrong guesses another sequence decides; this happens at most
twice. With many bits, a few more failing true tests are tolerated: guessing is hopeless there, and flakes add up.
"""

from random import Random

MOST_CHANCE = 0.01
"""Highest acceptable probability that guessing passes."""
SEQUENCES = 3
"""Maximum number of sequences of runs. Another one follows only a sequence with one or two deviations."""
LEAST_RUNS = 2
"""The second run of a pair alters all that the first did not, so a test that always passes is certainly found."""
ONE_UNIT_RUNS, ONE_UNIT_ALTERED = 10, 7
"""Runs of a sequence with one bit each, and how many of them are altered: C(10, 7) = 120 patterns, one of them right.

More runs are altered than not, because code that recognises some altered tests must recognise all that it meets. Code
that recognises half of them passes 1 sequence in 128; with 3 or 4 altered runs of 7 it passed 1 in 8 or 16.
"""


def chance(units: int, runs: int) -> float:
    """Probability that guessing passes, with `units` tests, `runs` runs per sequence and all sequences."""
    bits = units * runs
    all_right: float = 2.0**-bits
    few_wrong = (bits + bits * (bits - 1) // 2) * all_right
    return all_right * sum(few_wrong**number for number in range(SEQUENCES))


def forgiven(bits: int) -> int:
    """How many true tests may fail in a sequence that clears the code.

    A first sequence with that many failures is still followed by another one, with the same bound.
    """
    return bits // 16


def runs_for(units: int, *, least: int = LEAST_RUNS) -> int:
    """The fewest runs, at least `least`, for which guessing passes with a probability of at most `MOST_CHANCE`."""
    if units == 1:
        return max(least, ONE_UNIT_RUNS)
    runs = least
    while chance(units, runs) > MOST_CHANCE:
        runs += 1
    return runs


def patterns(units: int, runs: int, rng: Random) -> list[frozenset[int]]:
    """For each run, the set of altered units: drawn evenly, and every second run alters the complement.

    A single unit is altered in `ONE_UNIT_ALTERED` of `ONE_UNIT_RUNS` runs, if there are at least `ONE_UNIT_RUNS` runs.
    """
    if units == 1 and runs >= ONE_UNIT_RUNS:
        altered = set(rng.sample(range(runs), runs * ONE_UNIT_ALTERED // ONE_UNIT_RUNS))
        return [frozenset({0}) if number in altered else frozenset() for number in range(runs)]
    drawn: list[frozenset[int]] = []
    everything = frozenset(range(units))
    for number in range(runs):
        if number % 2:
            drawn.append(everything - drawn[-1])
        else:
            drawn.append(frozenset(unit for unit in everything if rng.getrandbits(1)))
    rng.shuffle(drawn)
    return drawn
