"""How many confirming runs it takes, and which tests are altered in each; pure.

Code that cannot tell an altered test from a true one must guess, one bit for each test and run. It gets through when
all its guesses are right; or all but one or two, and then all of another sequence, as that is forgiven, twice at most.
Where there are many bits, some more true tests that fail are borne: there guessing is hopeless, and flakes add up.
"""

from random import Random

MOST_CHANCE = 0.01
"""That guessing gets through."""
SEQUENCES = 3
"""Of runs; each but the first follows one with a deviation, or two."""
LEAST_RUNS = 2
"""In the second of two everything is altered that was not in the first: a test that passes whatever it says is found
out for certain."""


def chance(units: int, runs: int) -> float:
    """That guessing at `units` tests gets through, with `runs` runs a sequence and what is forgiven."""
    bits = units * runs
    all_right: float = 2.0**-bits
    few_wrong = (bits + bits * (bits - 1) // 2) * all_right
    return all_right * sum(few_wrong**number for number in range(SEQUENCES))


def forgiven(bits: int) -> int:
    """How many true tests may fail in one sequence; another one follows all the same, which has the same bound."""
    return bits // 16


def runs_for(units: int, *, least: int = LEAST_RUNS) -> int:
    """The fewest runs, from `least` up, with which guessing gets through once in a hundred times at most."""
    runs = least
    while chance(units, runs) > MOST_CHANCE:
        runs += 1
    return runs


def patterns(units: int, runs: int, rng: Random) -> list[frozenset[int]]:
    """For each run which of the units are altered: drawn evenly, each second run the other way round than the first."""
    drawn: list[frozenset[int]] = []
    everything = frozenset(range(units))
    for number in range(runs):
        if number % 2:
            drawn.append(everything - drawn[-1])
        else:
            drawn.append(frozenset(unit for unit in everything if rng.getrandbits(1)))
    rng.shuffle(drawn)
    return drawn
