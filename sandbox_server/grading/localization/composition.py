"""Rewards composed in YAML: parsed and checked once, then applied to any number of rollouts.

reward:
  - fn: multilevel_localization_f1_reward
    weight: 1.0
    args: {file_level_weight: 4.0}
discount: 0.9        # optional
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import cast

import yaml
from pydantic import ValidationError

from sandbox_server import plugins
from sandbox_server.catalogue.localization.truth import RewardItem, Truth
from sandbox_server.errors import GraderBroken
from sandbox_server.grading.localization import rewards as folder
from sandbox_server.grading.localization.base import LocalizationReward, RewardArgs, RewardContext
from sandbox_server.verdicts import RewardValue, Score

DEFAULT = "multilevel"
"""The default composition."""
MAX_ITEMS = 32
_SHIPPED = resources.files(__package__).joinpath("presets")
_EXPERIMENT = frozenset({"name", "description", "reward", "discount", "tools", "prompts"})
_EVENTS = "say how the rollout went (`events` or `messages`)"
_TOKENS = "say how many response tokens each turn had"


@dataclass(frozen=True, slots=True)
class _Part:
    fn: str
    reward: LocalizationReward
    weight: float
    args: RewardArgs


class Composition:
    """A checked list of rewards."""

    def __init__(
        self, name: str, parts: Sequence[_Part], *, discount: float | None = None, description: str = ""
    ) -> None:
        self.name = name
        self.description = description
        self._parts = tuple(parts)
        self.discount = discount

    @property
    def items(self) -> tuple[RewardItem, ...]:
        """The rewards as stored with an instance; without the discount."""
        return tuple(
            RewardItem(fn=part.fn, weight=part.weight, args=part.args.model_dump(mode="json", exclude_unset=True))
            for part in self._parts
        )

    @property
    def bounds(self) -> tuple[float, float]:
        """Lowest and highest total."""
        ends = [sorted(part.weight * end for end in part.reward.bounds(part.args)) for part in self._parts]
        return math.fsum(low for low, _ in ends), math.fsum(high for _, high in ends)

    def lacks(self, context: RewardContext) -> str:
        """One sentence on what `context` lacks to be scored; "" if it lacks nothing."""
        for part in self._parts:
            if part.reward.needs_events and context.events is None:
                return f"{part.fn} cannot be told from an answer alone: {_EVENTS}."
            tokens = None if context.events is None else context.events.response_tokens
            if part.reward.needs_tokens(part.args) and tokens is None:
                return f"{part.fn} cannot be told: {_TOKENS}."
        return ""

    def score(self, context: RewardContext) -> Score:
        """The total, each item's value, and the scored answer.

        Raises:
            GraderBroken: a reward failed, or this rollout lacks what it needs. That must not count as 0.0.

        """
        if lacking := self.lacks(context):
            raise GraderBroken(lacking)
        items = tuple(_value(part, context) for part in self._parts)
        total = math.fsum(item.weight * item.value for item in items)
        turns = 0 if context.events is None else context.events.turn_count
        steps = () if self.discount is None else discounted(total, turns, self.discount)
        return Score(total, items, context.answer, steps, flags(context.truth))


def compose(
    items: Sequence[RewardItem], *, name: str, discount: float | None = None, description: str = ""
) -> Composition:
    """Check the items and compose them.

    Raises:
        ValueError: a reward or argument is unknown, or a value out of its range; the message lists what is allowed.

    """
    if not 1 <= len(items) <= MAX_ITEMS:
        raise ValueError(f"{name}: {len(items)} rewards; a composition has 1 to {MAX_ITEMS}")
    if discount is not None and not 0 < discount <= 1:
        raise ValueError(f"{name}: discount {discount} is not above 0 and at most 1")
    return Composition(name, [_part(item, name) for item in items], discount=discount, description=description)


def parse(text: str, *, name: str) -> Composition:
    """Parse a composition from YAML, alone or within an experiment's configuration.

    Raises:
        ValueError: the text is no composition; the message says why.

    """
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{name}: not YAML: {error}") from None
    if not isinstance(document, Mapping) or not isinstance(document.get("reward"), list):
        raise ValueError(f"{name}: there must be a list `reward:` of {{fn, weight, args}}")
    if unknown := [str(key) for key in document if key not in _EXPERIMENT]:
        raise ValueError(f"{name}: unknown {', '.join(unknown)}; there may be {', '.join(sorted(_EXPERIMENT))}")
    discount = document.get("discount")
    if discount is not None and (isinstance(discount, bool) or not isinstance(discount, (int, float))):
        raise ValueError(f"{name}: discount is not a number")
    items = [_item(item, name) for item in document["reward"]]
    return compose(items, name=name, discount=discount, description=str(document.get("description", "")))


def load(named: str) -> Composition:
    """The shipped composition of this name, else the one in the file of this path.

    Raises:
        ValueError: there is neither, or it cannot be used.

    """
    if named in shipped():
        return parse(_SHIPPED.joinpath(f"{named}.yaml").read_text(), name=named)
    path = Path(named)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        shipped_names = ", ".join(shipped())
        raise ValueError(f"{named} is neither a readable file ({error}) nor one of {shipped_names}") from None
    return parse(text, name=path.stem)


@cache
def shipped() -> list[str]:
    """Names of the shipped compositions."""
    return sorted(Path(entry.name).stem for entry in _SHIPPED.iterdir() if entry.name.endswith(".yaml"))


def shipped_items(name: str) -> tuple[RewardItem, ...]:
    """The items of a shipped composition; none of them has a discount."""
    document = yaml.safe_load(_SHIPPED.joinpath(f"{name}.yaml").read_text())
    return tuple(_item(item, name) for item in document["reward"])


@cache
def rewards() -> Mapping[str, LocalizationReward]:
    """All rewards, by file name."""
    return cast(Mapping[str, LocalizationReward], plugins.discover(folder, "REWARD"))


def discounted(total: float, turns: int, gamma: float) -> tuple[float, ...]:
    """`total` for each turn: undiscounted for the last one, multiplied by `gamma` for each turn before it."""
    return tuple(total * gamma ** (turns - 1 - turn) for turn in range(turns))


def flags(truth: Truth) -> tuple[str, ...]:
    """Flags of a task."""
    found = {
        "unanswerable": truth.unanswerable or not truth.files,
        "no_modules": not truth.modules,
        "no_entities": not truth.entities,
    }
    return tuple(flag for flag, present in found.items() if present)


def _item(value: object, name: str) -> RewardItem:
    try:
        return RewardItem.model_validate(value)
    except ValidationError as error:
        raise ValueError(f"{name}: {_said(error)} in {value!r}; an item is {{fn, weight, args}}") from None


def _part(item: RewardItem, name: str) -> _Part:
    reward = rewards().get(item.fn)
    if reward is None:
        raise ValueError(f"{name}: there is no reward {item.fn!r}; there are {', '.join(rewards())}")
    if not math.isfinite(item.weight):
        raise ValueError(f"{name}: the weight of {item.fn} is {item.weight}")
    try:
        args = reward.args.model_validate(item.args)
    except ValidationError as error:
        known = ", ".join(reward.args.model_fields) or "none"
        raise ValueError(f"{name}: {item.fn}: {_said(error)}; its arguments: {known}") from None
    return _Part(item.fn, reward, item.weight, args)


def _said(error: ValidationError) -> str:
    faults = error.errors(include_input=False, include_url=False)
    return "; ".join(": ".join(filter(None, [".".join(map(str, fault["loc"])), fault["msg"]])) for fault in faults)


def _value(part: _Part, context: RewardContext) -> RewardValue:
    try:
        worth = part.reward.score(context, part.args)
    except Exception as error:  # a defect of ours, whatever the policy wrote
        raise GraderBroken(f"the reward {part.fn} failed: {type(error).__name__}: {error}") from error
    value, parts = worth if isinstance(worth, tuple) else (worth, {})
    low, high = part.reward.bounds(part.args)
    slack = 1e-9 * max(1.0, abs(low), abs(high))
    if not low - slack <= value <= high + slack:  # also: nan
        raise GraderBroken(f"the reward {part.fn} gave {value}, which is not within {low} to {high}")
    return RewardValue(part.fn, float(value), part.weight, parts)
