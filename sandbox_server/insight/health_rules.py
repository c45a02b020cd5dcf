"""Summarize the service's state in one word, by rules. Pure. docs/seeing.md lists the rules and their thresholds.

The first rule that applies gives the word. A fault of a lower layer causes symptoms in the layers above it, so the
rules for infrastructure come before those for the grader, and so on.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import quote

from sandbox_server.catalogue.insight.records import Group, GroupKind, PassRate, UnsoundInstance, VerdictCount
from sandbox_server.insight.wall_time import Wall
from sandbox_server.slices import sliced
from sandbox_server.state.nodes import NodeRecord, Status
from sandbox_server.verdicts import VerdictName

MIN_COUNT = 4
"""Minimum verdicts or sessions for a share to be meaningful."""
MIN_RATE_COUNT = 20
"""Minimum unmasked verdicts on each side of a comparison of pass rates."""
MIN_JUMP_COUNT = 8
"""Like MIN_RATE_COUNT, for one instance."""
JUMP = 0.5
MAX_FAULT_SHARE = 0.05
"""Share of masked verdicts, lost sessions or tampered patches that is too high, if there are at least two."""
QUEUED_SHARE = 0.2
"""Share of the wall time spent in a queue."""
NO_RESULT_SHARE = 0.3
"""Share of unmasked verdicts without any test result."""
EQUAL_REWARD_SHARE = 0.8
"""Share of groups whose rewards are all equal."""
NOTHING_TO_GRADE_SHARE = 0.5
"""Share of unmasked verdicts with nothing to grade: no patch, one that does not apply, no answer."""
GAP_S = 60.0
TIMED_OUT_SHARE = 0.2
"""Share of sessions that ended as idle or too old."""

_GRADERS = frozenset({"grader_broken", "defect"})
_NOTHING = (VerdictName.EMPTY_PATCH, VerdictName.PATCH_FAILED, VerdictName.NO_ANSWER)
_MUTE = (VerdictName.NO_RESULTS, VerdictName.TIMEOUT)
_SAME = (GroupKind.ALL_0, GroupKind.ALL_1, GroupKind.FLAT)


class Word(StrEnum):
    """The service's health in one word: the first thing to look at."""

    FINE = "fine"
    POLICY = "policy"
    DATA = "data"
    GRADER = "grader"
    INFRASTRUCTURE = "infrastructure"


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that applies."""

    word: Word
    rule: str
    why: str
    """One sentence with the numbers."""
    see: str = ""
    """Path below /v1 and /ui that shows it; for one run a list of that run's sessions or groups."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Input of the rules: counts of a time window, and of the same window one day earlier."""

    now: Sequence[VerdictCount] = ()
    before: Sequence[VerdictCount] = ()
    causes: Mapping[str, int] = field(default_factory=dict)
    """Kind of cause -> masked verdicts of the window (`catalogue.history.kind_of`)."""
    ends: Mapping[str, int] = field(default_factory=dict)
    groups: Sequence[Group] = ()
    wall: Wall = field(default_factory=lambda: Wall(0, {}, 0.0))
    nodes: Sequence[NodeRecord] = ()
    unsound: Sequence[UnsoundInstance] = ()
    fell: Sequence[PassRate] = ()
    rated: int = 0
    """Instances whose pass rates could be compared."""
    run: str | None = None
    """The run that this is about; None: all."""


def findings(seen: Evidence) -> list[Finding]:
    """The rules that apply, in order."""
    found = [one for rule in _RULES if (one := rule(seen)) is not None]
    return found if seen.run is None else [replace(one, see=_of_run(one.see, seen.run)) for one in found]


def _of_run(see: str, run: str) -> str:
    page, _, asked = see.partition("?")
    if page not in ("sessions", "groups"):
        return see
    return f"{page}?{asked}{'&' if asked else ''}run={quote(run, safe='')}"


def word_of(found: Sequence[Finding]) -> Word:
    """The word of the first finding; `fine` if there is none."""
    return found[0].word if found else Word.FINE


def pass_rate(counts: Sequence[VerdictCount]) -> tuple[float, int]:
    """(resolved share of the unmasked verdicts, number of unmasked verdicts)."""
    unmasked = sum(one.count for one in counts if not one.mask)
    resolved = sum(one.count for one in counts if not one.mask and one.verdict == VerdictName.RESOLVED)
    return (resolved / unmasked if unmasked else 0.0), unmasked


class Jumps(NamedTuple):
    """Instances whose pass rate fell or rose, largest change first."""

    fell: Sequence[PassRate]
    rose: Sequence[PassRate]
    comparable: int
    """Instances with enough verdicts to tell."""


async def jumps(rates: Sequence[PassRate]) -> Jumps:
    """The pass rates that fell or rose. Works in slices, because there are thousands."""
    rated = await sliced((one, (one.now or 0.0) - (one.before or 0.0)) for one in rates if _comparable(one))
    fell = sorted(((change, one.instance_id, one) for one, change in rated if change <= -JUMP), key=lambda x: x[:2])
    rose = sorted(((-change, one.instance_id, one) for one, change in rated if change >= JUMP), key=lambda x: x[:2])
    return Jumps([one for _, _, one in fell], [one for _, _, one in rose], len(rated))


def _comparable(one: PassRate) -> bool:
    return one.graded >= MIN_JUMP_COUNT and one.graded_before >= MIN_JUMP_COUNT


def _many(count: int, of: int, share: float = MAX_FAULT_SHARE) -> bool:
    return count >= 2 and count >= share * of


def _count(counts: Sequence[VerdictCount], names: Sequence[VerdictName], *, mask: bool) -> int:
    return sum(one.count for one in counts if one.verdict in names and one.mask is mask)


def _commonest(counts: Sequence[VerdictCount], names: Sequence[VerdictName], *, mask: bool) -> VerdictName:
    """The most frequent of these verdicts, because a list of sessions can be filtered by one only."""
    return max(names, key=lambda name: _count(counts, (name,), mask=mask))


def _instance(instance_id: str) -> str:
    return f"instances/{quote(instance_id)}"


def _total(counts: Sequence[VerdictCount]) -> int:
    return sum(one.count for one in counts)


def _no_node(seen: Evidence) -> Finding | None:
    if any(node.status == Status.READY for node in seen.nodes):
        return None
    why = "No node has a heartbeat: no server runs, or Redis takes no writes (`sandbox-server doctor`)."
    if seen.nodes:
        why = "All nodes are draining: nothing new starts."
    return Finding(Word.INFRASTRUCTURE, "no_node", why, "nodes")


def _node_fault(seen: Evidence) -> Finding | None:
    faulty = [(node.node, reason, text) for node in seen.nodes for reason, text in node.faults.items()]
    if not faulty:
        return None
    node, reason, text = faulty[0]
    more = f" ({len(faulty) - 1} more)" if len(faulty) > 1 else ""
    return Finding(Word.INFRASTRUCTURE, "node_fault", f"Node {node} takes nothing new: {reason}: {text}{more}", "nodes")


def _masked_infra(seen: Evidence) -> Finding | None:
    kinds = Counter({kind: n for kind, n in seen.causes.items() if kind not in {*_GRADERS, *_MUTE}})
    count, total = kinds.total(), _total(seen.now)
    if not _many(count, total):
        return None
    named = ", ".join(f"{kind} {n}" for kind, n in kinds.most_common(3))
    why = f"{count} of {total} verdicts are masked for faults of the service ({named})."
    return Finding(Word.INFRASTRUCTURE, "masked_infra", why, "sessions?verdict=infra")


def _lost(seen: Evidence) -> Finding | None:
    lost, ended = seen.ends.get("lost", 0) + seen.ends.get("died", 0), sum(seen.ends.values())
    if not _many(lost, ended):
        return None
    why = f"{lost} of {ended} sessions lost their sandbox."
    return Finding(Word.INFRASTRUCTURE, "lost", why, "sessions?state=lost")


def _starts_wait(seen: Evidence) -> Finding | None:
    ready = [node for node in seen.nodes if node.takes]
    waiting, slots = sum(node.waiting for node in ready), sum(node.slots for node in ready)
    if waiting and all(node.used >= node.slots for node in ready):
        why = f"{waiting} starts wait: all {slots} slots are taken."
        return Finding(Word.INFRASTRUCTURE, "starts_wait", why, "nodes")
    return _queued(seen, "start_queue", "starts_wait", "waiting to start; add nodes or raise SANDBOX_MAX_SESSIONS")


def _gradings_wait(seen: Evidence) -> Finding | None:
    what = "waiting to be graded; add nodes or raise SANDBOX_GRADE_CONCURRENCY"
    return _queued(seen, "grade_queue", "gradings_wait", what)


def _queued(seen: Evidence, stage: str, rule: str, what: str) -> Finding | None:
    if seen.wall.sessions < MIN_COUNT or seen.wall.share(stage) < QUEUED_SHARE:
        return None
    why = f"Rollouts spend {seen.wall.share(stage):.0%} of their time ({seen.wall.seconds[stage]:.1f} s) {what}."
    return Finding(Word.INFRASTRUCTURE, rule, why, "nodes")


def _grader_broken(seen: Evidence) -> Finding | None:
    count, total = sum(seen.causes.get(kind, 0) for kind in _GRADERS), _total(seen.now)
    if not _many(count, total):
        return None
    why = f"{count} of {total} verdicts are masked because the grader itself failed."
    return Finding(Word.GRADER, "grader_broken", why, "sessions?verdict=infra")


def _no_results(seen: Evidence) -> Finding | None:
    mute, (_, unmasked) = _count(seen.now, _MUTE, mask=False), pass_rate(seen.now)
    mute_before, (_, unmasked_before) = _count(seen.before, _MUTE, mask=False), pass_rate(seen.before)
    if (
        unmasked < MIN_COUNT
        or mute < NO_RESULT_SHARE * unmasked
        or mute / unmasked < 2 * mute_before / max(1, unmasked_before)
    ):
        return None
    day_ago = f"{mute_before} of {unmasked_before}"
    why = f"{mute} of {unmasked} gradings gave no test result or ran out of time; a day ago {day_ago}."
    see = f"sessions?verdict={_commonest(seen.now, _MUTE, mask=False)}"
    return Finding(Word.GRADER, "no_results", why, see)


def _unsound(seen: Evidence) -> Finding | None:
    if not seen.unsound:
        return None
    worst = seen.unsound[0]
    more = f" ({len(seen.unsound) - 1} more instances)" if len(seen.unsound) > 1 else ""
    why = (
        f"{worst.sessions} sessions run {worst.instance_id}, whose last check gave gold {worst.gold or 'no verdict'}"
        f" and empty {worst.empty or 'no verdict'}{more}."
    )
    return Finding(Word.DATA, "unsound", why, _instance(worst.instance_id))


def _unpatched(seen: Evidence) -> Finding | None:
    count, total = _count(seen.now, _MUTE, mask=True), _total(seen.now)
    if not _many(count, total):
        return None
    why = f"{count} of {total} gradings are masked: the tests give nothing, or run out of time, without a patch too."
    see = f"sessions?verdict={_commonest(seen.now, _MUTE, mask=True)}&masked=true"
    return Finding(Word.DATA, "unpatched", why, see)


def _fell(seen: Evidence) -> Finding | None:
    if not seen.fell or len(seen.fell) * 2 > max(2, seen.rated):
        return None  # if most fell, the policy is the cause
    worst = seen.fell[0]
    more = f" ({len(seen.fell) - 1} more)" if len(seen.fell) > 1 else ""
    why = f"{worst.instance_id} passed {worst.before:.0%} before and {worst.now:.0%} now{more}."
    return Finding(Word.DATA, "fell", why, _instance(worst.instance_id))


def _nothing_done(seen: Evidence) -> Finding | None:
    idle, (_, unmasked) = _count(seen.now, _NOTHING, mask=False), pass_rate(seen.now)
    if unmasked < MIN_COUNT or idle < NOTHING_TO_GRADE_SHARE * unmasked:
        return None
    why = f"{idle} of {unmasked} rollouts end with nothing to grade: no patch, one that does not apply, or no answer."
    see = f"sessions?verdict={_commonest(seen.now, _NOTHING, mask=False)}"
    return Finding(Word.POLICY, "nothing_done", why, see)


def _tampered(seen: Evidence) -> Finding | None:
    count, (_, unmasked) = _count(seen.now, (VerdictName.TAMPERED,), mask=False), pass_rate(seen.now)
    if not _many(count, unmasked):
        return None
    why = f"{count} of {unmasked} patches tampered with their tests."
    return Finding(Word.POLICY, "tampered", why, "sessions?verdict=tampered")


def _collapse(seen: Evidence) -> Finding | None:
    (rate, count), (rate_before, count_before) = pass_rate(seen.now), pass_rate(seen.before)
    if min(count, count_before) < MIN_RATE_COUNT or rate_before < 0.1 or rate > rate_before / 2:
        return None
    why = f"{rate:.0%} of {count} rollouts resolve; a day ago {rate_before:.0%} of {count_before}."
    return Finding(Word.POLICY, "collapse", why, "sessions?verdict=unresolved")


def _flat_groups(seen: Evidence) -> Finding | None:
    kinds = Counter(group.kind for group in seen.groups)
    judged = sum(kinds[kind] for kind in (*_SAME, GroupKind.MIXED))
    flat = [group for group in seen.groups if group.kind in _SAME]
    members = sum(group.graded - group.masked for group in flat)
    if members < MIN_JUMP_COUNT or len(flat) < EQUAL_REWARD_SHARE * judged:
        return None
    why = (
        f"{len(flat)} of {judged} groups teach nothing: {kinds[GroupKind.ALL_0]} all 0, {kinds[GroupKind.ALL_1]} all 1,"
        f" {kinds[GroupKind.FLAT]} otherwise the same."
    )
    see = f"groups?kind={max(_SAME, key=lambda kind: kinds[kind])}"
    return Finding(Word.DATA, "flat_groups", why, see)


def _slow_model(seen: Evidence) -> Finding | None:
    slept, ended = seen.ends.get("idle", 0) + seen.ends.get("max_age", 0), sum(seen.ends.values())
    if ended >= MIN_COUNT and slept >= TIMED_OUT_SHARE * ended:
        why = f"{slept} of {ended} sessions ended because nobody asked for them any more."
        return Finding(Word.POLICY, "slow_model", why, "sessions?state=ended")
    if seen.wall.sessions < MIN_COUNT or seen.wall.gap_s < GAP_S:
        return None
    why = f"Sandboxes wait {seen.wall.gap_s:.0f} s for each action of the policy."
    return Finding(Word.POLICY, "slow_model", why, "sessions?state=ended")


_RULES: tuple[Callable[[Evidence], Finding | None], ...] = (
    _no_node,
    _node_fault,
    _masked_infra,
    _lost,
    _starts_wait,
    _gradings_wait,
    _grader_broken,
    _no_results,
    _unsound,
    _unpatched,
    _fell,
    _nothing_done,
    _tampered,
    _collapse,
    _flat_groups,
    _slow_model,
)
RULES = tuple(rule.__name__.removeprefix("_") for rule in _RULES)
"""Names of the rules, in order."""
