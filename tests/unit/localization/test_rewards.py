"""Rewards on events and answers. Numbers refer to the published cases (groups C and F)."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_server.catalogue.localization.truth import RewardItem, Truth
from sandbox_server.errors import GraderBroken
from sandbox_server.grading.localization.answers import parse_answer, structured_answer
from sandbox_server.grading.localization.base import (
    Events,
    LocalizationReward,
    RewardArgs,
    RewardContext,
    Turn,
)
from sandbox_server.grading.localization.composition import (
    Composition,
    compose,
    discounted,
    load,
    parse,
    rewards,
    shipped,
)
from sandbox_server.grading.localization.measures import f_beta
from sandbox_server.verdicts import Answer, Score

TRUTH = Truth(
    files=("src/a.py", "src/b.py"),
    modules=("src/a.py:Foo", "src/b.py:baz"),
    entities=("src/a.py:Foo.bar", "src/b.py:baz"),
)
RIGHT = structured_answer(
    [{"file": "src/a.py", "class_name": "Foo", "function_name": "bar"}, {"file": "src/b.py", "function_name": "baz"}]
)
WRONG = structured_answer(["src/c.py"])


def events(turns: int, calls: int) -> Events:
    """`calls` spread over `turns` as evenly as possible."""
    return Events(tuple(Turn(("bash",) * (calls * (n + 1) // turns - calls * n // turns)) for n in range(turns)))


def score(
    fn: str, on: Events | None = None, *, answer: Answer | None = RIGHT, truth: Truth = TRUTH, **args: Any
) -> Score:
    composition = compose([RewardItem(fn=fn, args=args)], name="test")
    return composition.score(RewardContext(answer, truth, on))


def value(fn: str, on: Events | None = None, **more: Any) -> float:
    return score(fn, on, **more).total


# ---- C: levels


def test_case_32_to_34_are_sums_of_levels() -> None:
    assert value("multilevel_localization_f1_reward") == pytest.approx(3.0)
    files_only = structured_answer(["src/a.py", "src/b.py"])
    assert value("multilevel_localization_f1_reward", answer=files_only) == pytest.approx(1.0)
    one = structured_answer([{"file": "src/a.py", "class_name": "Foo", "function_name": "bar"}])
    given_score = score("multilevel_localization_f1_reward", answer=one)
    assert given_score.total == pytest.approx(2.0)
    assert given_score.items[0].parts == pytest.approx({"file_f1": 2 / 3, "module_f1": 2 / 3, "entity_f1": 2 / 3})


def test_case_42_levels_without_truth_are_left_out() -> None:
    for levels in ((), None):
        truth = Truth(files=("src/a.py",), modules=levels, entities=levels)
        right = parse_answer("```\nsrc/a.py\nfunction: f\n```")
        garbage = parse_answer("```\nsrc/x.py\nclass: X\nfunction: y\n```")
        for normalise in (False, True):
            name = "multilevel_localization_f1_reward"
            assert value(name, answer=right, truth=truth, normalise=normalise) == 1.0
            assert value(name, answer=garbage, truth=truth, normalise=normalise) == 0.0
        assert score("multilevel_localization_f1_reward", truth=truth).flags == ("no_modules", "no_entities")


def test_case_44_f_beta() -> None:
    found, truth = ("1", "2", "3", "4"), ("1", "2")
    assert [round(f_beta(found, truth, beta=beta), 4) for beta in (0.5, 1, 2)] == [0.5556, 0.6667, 0.8333]
    four = structured_answer(["src/a.py", "src/b.py", "src/c.py", "src/d.py"])
    assert round(value("file_localization_f1_reward", answer=four, beta=2.0), 4) == 0.8333


def test_weights_and_levels_of_their_own() -> None:
    weights = {"file_level_weight": 4.0, "module_level_weight": 2.0, "entity_level_weight": 1.0}
    assert value("multilevel_localization_f1_reward", **weights) == pytest.approx(7.0)
    assert value("multilevel_localization_f1_reward", **weights, normalise=True) == pytest.approx(1.0)
    assert value("file_localization_f1_reward", file_level_weight=0.5) == 0.5
    assert value("module_localization_f1_reward") == value("entity_localization_f1_reward") == 1.0
    assert value("module_localization_f1_reward", truth=Truth(files=("src/a.py",)), answer=WRONG) == 0.0


@pytest.mark.parametrize("fn", ["file", "module", "entity", "multilevel"])
def test_without_an_answer_there_is_no_f1(fn: str) -> None:
    assert value(f"{fn}_localization_f1_reward", answer=None) == 0.0
    assert value(f"{fn}_localization_f1_reward", answer=None, truth=Truth()) == 0.0


# ---- F: events


@pytest.mark.parametrize(
    ("turns", "calls", "args", "expected"),
    [
        (3, 10, {}, 3.3333),
        (0, 0, {}, 0.0),
        (1, 40, {}, 40.0),
        (1, 400, {}, 50.0),
        (1, 40, {"cap": 5.0}, 5.0),
        (5, 20, {"max_tool_use": 5}, 1.0),
        (5, 10, {"max_tool_use": 5}, 0.5),
        (5, 10, {"variant": "v3"}, 0.5),
        (5, 4, {"variant": "v3", "max_tool_use": 2}, 0.5),
        (5, 0, {"max_tool_use": 5, "penalize": True}, -5.0),
        (5, 3, {"max_tool_use": 5, "reduction": "sum"}, 0.6),
        (5, 1, {"clamp": True}, 1.0),
    ],
)
def test_case_65_tool_use(turns: int, calls: int, args: dict[str, Any], expected: float) -> None:
    assert value("tool_use_reward", events(turns, calls), **args) == pytest.approx(expected, abs=5e-5)


def test_case_66_turn_efficiency() -> None:
    ways = [(1, 5), (3, 1), (3, 2), (6, 9), (7, 9), (15, 9)]
    assert [round(value("turn_efficiency", events(*way)), 6) for way in ways] == [0, 0, 1, 0.9, 0.8, 0]


@pytest.mark.parametrize(
    ("turns", "calls", "answer", "expected"),
    [(4, 12, RIGHT, 5.0), (11, 10, RIGHT, -5.3969), (2, 12, RIGHT, -5.4775), (4, 12, WRONG, -5.0)],
)
def test_case_67_cosine(turns: int, calls: int, answer: Answer, expected: float) -> None:
    assert value("cosine_reward", events(turns, calls), answer=answer) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(
    ("turns", "calls", "answer", "expected"),
    [
        (5, 20, RIGHT, {"turns": 2.5, "tools": 5.0}),  # n = 4 of 8; 5 calls a turn are ideal
        (5, 40, RIGHT, {"turns": 2.5, "tools": 1.0}),
        (5, 0, RIGHT, {"turns": 2.5, "tools": 1.0}),
        (5, 44, RIGHT, {"turns": 2.5, "tools": 0.0}),
        (9, 40, RIGHT, {"turns": 0.0, "tools": 5.0}),
        (10, 45, RIGHT, {"turns": 0.0, "tools": 5.0}),
        (5, 20, WRONG, {"turns": -2.5, "tools": -2.5}),
        (5, 40, WRONG, {"turns": -2.5, "tools": 0.0}),
    ],
)
def test_the_later_cosine(turns: int, calls: int, answer: Answer, expected: dict[str, float]) -> None:
    given_score = score("cosine_reward", events(turns, calls), answer=answer, variant="v3")
    parts = {name: part for name, part in given_score.items[0].parts.items() if name != "localization"}
    assert parts == pytest.approx(expected, abs=1e-9)
    assert given_score.total == pytest.approx(sum(expected.values()))


def test_the_later_cosine_of_length_needs_tokens() -> None:
    known = Events(tuple(Turn(("bash",), 100, 4096) for _ in range(2)))
    parts = score("cosine_reward", known, variant="v3", use_length_reward=True).items[0].parts
    assert parts["length"] == pytest.approx(2.5)  # half of 16384
    with pytest.raises(GraderBroken, match="say how many response tokens"):
        score("cosine_reward", events(2, 2), variant="v3", use_length_reward=True)


def test_case_69_multiturn() -> None:
    exactly = {"minimal_turns": 4, "maximal_turns": 4}
    assert [value("multiturn_reward", events(n, n), **exactly) for n in (0, 3, 4, 5)] == [0, 0, 1, 0]
    first = {"minimal_turns": 2, "maximal_turns": None}
    assert [value("multiturn_reward", events(n, n), **first) for n in (1, 2, 99)] == [0, 1, 1]


def test_case_70_calls_of_turns_that_have_calls() -> None:
    on = Events(tuple(Turn(("bash",) * calls) for calls in (3, 5, 2, 0)))
    assert value("tool_call_count_per_turn", on) == pytest.approx(2 / 3)
    assert value("tool_call_count_per_turn", Events((Turn(("bash",) * 8),))) == 1.0
    assert value("tool_call_count_per_turn", events(3, 0)) == 0.0


def test_case_71_discount() -> None:
    assert discounted(5.0, 3, 0.9) == pytest.approx((4.05, 4.5, 5.0))
    with_discount = parse("{reward: [{fn: tool_call_count}], discount: 0.9}", name="test")
    assert with_discount.score(RewardContext(RIGHT, TRUTH, events(3, 9))).steps == pytest.approx((4.05, 4.5, 5.0))


def test_case_73_credit_for_form_alone_there_is_none() -> None:
    for answer in (None, structured_answer([]), structured_answer({"junk": 1})):
        assert value("format_reward", answer=answer) == 0.0
        assert value("format_reward", answer=answer, penalize=True) == -5.0
    assert value("format_reward") == 1.0


def test_scaled_f1() -> None:
    assert value("scaled_f1_reward", events(5, 10)) == pytest.approx(3.0 * 2.5 / 5)
    assert value("scaled_f1_reward", events(5, 100)) == pytest.approx(3.0)
    assert value("scaled_f1_reward", events(5, 0)) == -5.0
    assert value("scaled_f1_reward", events(1, 5)) == pytest.approx(3.0)


def test_counts() -> None:
    assert [value("tool_call_count", events(3, calls)) for calls in (0, 3, 9)] == [0, 3, 5]
    assert [value("turns_with_tool_calls", events(3, calls)) for calls in (0, 1)] == [0, 1]


def test_recall_at_k() -> None:
    ranked = structured_answer(["src/c.py", "src/a.py", "src/d.py", "src/b.py"])
    assert [value("recall_at_k", answer=ranked, k=k) for k in (1, 3, 5)] == [0.0, 0.5, 1.0]
    assert [value("recall_at_k", answer=ranked, k=k, all=True) for k in (3, 5)] == [0.0, 1.0]
    assert value("recall_at_k", answer=None) == 0.0


# ---- composition


def test_every_shipped_composition_scores() -> None:
    assert {"tool_use", "cosine", "weighted_f1", "file_loc", "scaled_f1", "cosine_file_only"} <= set(shipped())
    for name in shipped():
        composition = load(name)
        low, high = composition.bounds
        for answer in (RIGHT, WRONG, None):
            assert low <= composition.score(RewardContext(answer, TRUTH, events(4, 12))).total <= high, name


def test_the_documented_yaml() -> None:
    text = """
reward:
  - fn: tool_use_reward
  - fn: turn_efficiency
    args: {max_turns: 5}
  - fn: multilevel_localization_f1_reward
    weight: 1.0
    args: {file_level_weight: 4.0, module_level_weight: 2.0, entity_level_weight: 1.0}
"""
    given_score = parse(text, name="test").score(RewardContext(RIGHT, TRUTH, events(3, 10)))
    assert [item.fn for item in given_score.items] == [
        "tool_use_reward",
        "turn_efficiency",
        "multilevel_localization_f1_reward",
    ]
    assert given_score.total == pytest.approx(10 / 3 + 1 + 7)


def test_an_experiment_and_weights() -> None:
    text = """
name: one
description: d
tools: [terminal]
prompts: {system_prompt: s.j2, user_prompt: u.j2}
reward: [{fn: file_localization_f1_reward, weight: 2}, {fn: format_reward, weight: -0.5}]
"""
    given_score = parse(text, name="one").score(RewardContext(RIGHT, TRUTH))
    assert given_score.total == 1.5
    assert [(item.value, item.weight) for item in given_score.items] == [(1.0, 2.0), (1.0, -0.5)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("reward: [{fn: nope}]", "there is no reward 'nope'; there are cosine_reward, "),
        (
            "reward: [{fn: turn_efficiency, args: {max_turn: 5}}]",
            "turn_efficiency: max_turn: Extra.*arguments: max_turns",
        ),
        ("reward: [{fn: turn_efficiency, args: {max_turns: '5'}}]", "max_turns: Input should be a valid integer"),
        ("reward: [{fn: turn_efficiency, args: {max_turns: 0}}]", "greater than or equal to 1"),
        ("reward: [{fn: turn_efficiency, wight: 5}]", "wight"),
        ("reward: [{fn: turn_efficiency, weight: .nan}]", "the weight of turn_efficiency is nan"),
        ("reward: [turn_efficiency]", r"an item is \{fn, weight, args\}"),
        ("reward: []", "0 rewards"),
        ("rewards: [{fn: turn_efficiency}]", "there must be a list `reward:`"),
        ("{reward: [{fn: turn_efficiency}], gamma: 0.9}", "unknown gamma"),
        ("{reward: [{fn: turn_efficiency}], discount: 1.5}", "discount 1.5"),
        ("reward: [{fn: cosine_reward, args: {max_turns: 3}}]", "only with variant: v3"),
        ("reward: [{fn: tool_use_reward, args: {reduction: sum}}]", "reduction: sum needs max_tool_use"),
        ("reward: [{fn: tool_use_reward, args: {cap: 5, max_tool_use: 5}}]", "one of them"),
        ("reward: [{fn: multiturn_reward, args: {minimal_turns: 6}}]", "so no rollout could earn it"),
        ("reward: [", "not YAML"),
        ("- 1", "there must be a list"),
    ],
)
def test_what_cannot_be_used_stops_the_start(text: str, complaint: str) -> None:
    """With a misspelt name a trainer would run for days on a default."""
    with pytest.raises(ValueError, match=complaint):
        parse(text, name="test")


def test_an_unknown_composition_is_told() -> None:
    with pytest.raises(ValueError, match=r"neither a readable file .* nor one of .*tool_use"):
        load("/nowhere.yaml")


def test_a_reward_that_needs_events_says_so() -> None:
    with pytest.raises(GraderBroken, match="turn_efficiency cannot be told from an answer alone"):
        value("turn_efficiency")


@pytest.mark.parametrize("bad", [math.nan, 2.0, -0.1, ZeroDivisionError("no")])
def test_a_reward_that_fails_is_a_fault_of_ours(bad: float | Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """As 0.0 it would train the policy on a defect of the service."""

    def broken(context: RewardContext, args: RewardArgs) -> float:
        if isinstance(bad, Exception):
            raise bad
        return bad

    reward = LocalizationReward(broken, RewardArgs, lambda _: (0.0, 1.0), "f", "e")
    monkeypatch.setattr("sandbox_server.grading.localization.composition.rewards", lambda: {"broken": reward})
    composition = compose([RewardItem(fn="broken")], name="test")
    with pytest.raises(GraderBroken, match="the reward broken"):
        composition.score(RewardContext(RIGHT, TRUTH))


PLACES = ("src/a.py", "src/b.py", "src/c.py")
NAMES = st.lists(
    st.sampled_from([f"{path}:{name}" for path in PLACES for name in ("Foo", "Foo.bar", "baz")]), unique=True
)
ANSWERS = st.builds(
    lambda files, names, lines: Answer("files", tuple(files), tuple(names), tuple(names), dict(lines)),
    st.lists(st.sampled_from(PLACES), unique=True),
    NAMES,
    st.dictionaries(st.sampled_from(PLACES), st.just(((1, 5), (3, 9)))),
)
TRUTHS = st.builds(
    lambda files, names, lines: Truth(files=tuple(files), modules=tuple(names), entities=None, lines=lines),
    st.lists(st.sampled_from(PLACES), unique=True),
    NAMES,
    st.dictionaries(st.sampled_from(PLACES), st.just(((2, 6),))),
)
TURNS = st.lists(
    st.builds(
        lambda calls, tokens: Turn((("bash", "grep") * 30)[:calls], 9, tokens),
        st.integers(0, 60),
        st.integers(0, 10**6),
    ),
    max_size=30,
)
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "cosine_reward": [{}, {"variant": "v3", "use_length_reward": True}],
    "tool_use_reward": [{}, {"penalize": True}, {"max_tool_use": 5}, {"max_tool_use": 5, "reduction": "sum"}],
    "multilevel_localization_f1_reward": [{}, {"normalise": True, "file_level_weight": 0.0}],
    "recall_at_k": [{"k": 1}, {"level": "module", "all": True}],
}
EVERY: list[Composition] = [
    compose([RewardItem(fn=fn, args=args)], name=f"{fn} {args}") for fn in rewards() for args in VARIANTS.get(fn, [{}])
]


@settings(max_examples=200)
@given(st.none() | ANSWERS, TRUTHS, TURNS)
def test_every_reward_stays_within_its_bounds(answer: Answer | None, truth: Truth, turns: list[Turn]) -> None:
    """`score` raises for a value outside of them. All rewards get each example, since making it costs most."""
    for composition in EVERY:
        total = composition.score(RewardContext(answer, truth, Events(tuple(turns)))).total
        assert math.isfinite(total), composition.name
