"""Measure whether attackers delay others: the gold patch's grading alone, beside honest neighbours, beside attackers.

Gradings share a server's CPUs, so any neighbour costs time; this measures whether an attacker costs more than an
honest grading of the same tests. The time is the whole grading's, from its receipt, without the wait for a slot, which
SANDBOX_GRADE_CONCURRENCY bounds for any neighbours.
"""

import threading
from collections.abc import Callable, Mapping

import httpx

from hacks.base import Hack, Play, Target
from hacks.player import Player, distinct, gold
from hacks.results import Delay

INNOCENTS = 5
"""Consecutive gradings per kind of neighbour."""
_INNOCENT = "ledger"


def measure(player: Player, name: str, hack: Hack, known: Mapping[str, Target], attackers: int) -> Delay:
    """Measure the innocents' times while `attackers` threads keep playing `hack` on a target it fits."""
    delay = Delay(name, attackers, [], [], [])
    target = known[_INNOCENT]
    attacked = target if hack.fits(target) else next(one for one in known.values() if hack.fits(one))
    try:
        delay.alone_s = _innocents(player, target)
        delay.crowd_s = _beside(player, target, attackers, lambda: player.run(target, _honest(target)))
        delay.beside_s = _beside(player, target, attackers, lambda: player.run(attacked, distinct(hack.play(attacked))))
    except (httpx.HTTPError, RuntimeError) as error:
        delay.error = f"{type(error).__name__}: {error}"[:300]
    return delay


def _beside(player: Player, target: Target, count: int, deed: Callable[[], object]) -> list[float]:
    over = threading.Event()

    def again() -> None:
        while not over.is_set():
            try:
                deed()
            except (httpx.HTTPError, KeyError):  # the attackers' own results do not matter
                over.wait(0.5)

    threads = [threading.Thread(target=again) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        over.wait(3.0)  # until some of them are being graded
        return _innocents(player, target)
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _innocents(player: Player, target: Target) -> list[float]:
    times = []
    for _ in range(INNOCENTS):
        ended = player.run(target, gold(target))
        if ended.answer["verdict"] != "resolved":
            raise RuntimeError(f"gold of {target.name} is {ended.answer['verdict']}: {ended.answer['cause']}")
        stages = ended.receipt.get("timings_s") or ended.answer
        times.append(float(stages.get("total", ended.end_s)))
    return times


def _honest(target: Target) -> Play:
    return distinct(Play({f"{target.package}/__init__.py": f"{target.init}\nHONEST = True\n"}))
