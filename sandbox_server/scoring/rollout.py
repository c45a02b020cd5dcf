"""Derive a rollout from a journal: its turns and calls, its answer, its metrics. Pure.

A turn is one action: a message of the policy, with the calls that the dialect parses from it, or an `exec` batch.
A command through the boxes API is a turn with one call; files are not turns.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from sandbox_server.actions import batch_json
from sandbox_server.actions.base import Call, Dialect, Say
from sandbox_server.actions.tool_responses import Reply
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.grading.localization.base import Events, Turn
from sandbox_server.grading.localization.messages import FINISH, message_of
from sandbox_server.grading.localization.structured import FINISHING
from sandbox_server.records import ActionRecord, SessionRecord
from sandbox_server.scoring.answering import answer_in, runs_tool
from sandbox_server.scoring.journals import COMMAND, COMMAND_END, EXEC, FILE, NO_TEXTS
from sandbox_server.verdicts import Answer, TurnTokens

_SHELL = "bash"


def answer_of(actions: Sequence[ActionRecord], instance: TaskInstance, dialect: Dialect) -> Answer | None:
    """The newest answer. In a message that also runs a tool, only tags or a finishing call count."""
    for action in reversed(actions):
        if action.tool in NO_TEXTS:
            continue
        parsed = dialect.parse(action.content, talk_turns=0)
        if (answer := answer_in(action.content, instance, acts=runs_tool(parsed))) is not None:
            return answer
    return None


def events_of(
    actions: Sequence[ActionRecord], dialect: Dialect, tokens: Iterable[TurnTokens], *, wall_clock_s: float
) -> Events:
    """Turns with their calls; `tokens` are matched to turns in order."""
    turns = []
    actions = [action for action in actions if action.tool not in (FILE, COMMAND_END)]
    for action, count in zip_longest(actions, list(tokens)[: len(actions)]):
        if action.tool == COMMAND:
            calls: tuple[str, ...] = (_SHELL,)
        else:
            calls = _batch(action.content) if action.tool == EXEC else _calls(action.content, dialect)
        turns.append(Turn(calls) if count is None else Turn(calls, count.prompt, count.response))
    return Events(tuple(turns), wall_clock_s)


def _calls(content: str, dialect: Dialect) -> tuple[str, ...]:
    """Names of the tools that a message calls, finishing calls included; () if nothing could be parsed."""
    parsed = dialect.parse(content, talk_turns=0)
    if isinstance(parsed, Say):
        return tuple(name for name in message_of(content).tools if name in FINISHING or name == FINISH)
    several = parsed.arguments.get("calls")
    if not isinstance(several, tuple):
        return (parsed.tool,)
    understood = [one for one in several if not isinstance(one, Reply) or one.code == "answer"]
    return tuple(
        FINISH if isinstance(one, Reply) else one.tool if isinstance(one, Call) else _SHELL for one in understood
    )


def _batch(content: str) -> tuple[str, ...]:
    return (_SHELL,) * len(batch_json.commands_of(content))


def metrics_of(
    record: SessionRecord, actions: Sequence[ActionRecord], dialect: Dialect, tokens: Sequence[TurnTokens]
) -> dict[str, object]:
    """Metrics by name, times in seconds; token counts only if the trainer reported any.

    `wall_clock_duration` is from the session's start to the end of its last action.
    """
    end = max((action.started_at + action.duration_s for action in actions), default=record.created_at)
    events = events_of(actions, dialect, tokens, wall_clock_s=end - record.created_at)
    turns, calls = events.turn_count, events.call_count
    found: dict[str, object] = {
        "num_turns": turns,
        "steps": turns,
        "num_tool_calls": calls,
        "num_tool_calls_per_turn": calls / turns if turns else 0.0,
        "avg_tool_calls_per_step": calls / turns if turns else 0.0,
        "tool_calls_by_turn": [len(turn.calls) for turn in events.turns],
        "tool_calls_by_tool": dict(Counter(name for turn in events.turns for name in turn.calls)),
        "wall_clock_duration": events.wall_clock_s,
        "action_duration": sum(action.duration_s for action in actions),
        "start_timestamp": record.created_at,
        "end_timestamp": end,
    }
    if tokens:
        prompt, response = sum(turn.prompt for turn in tokens), sum(turn.response for turn in tokens)
        found |= {
            "tokens": prompt + response,
            "total_prompt_tokens": prompt,
            "total_response_tokens": response,
            "avg_prompt_tokens_per_step": prompt / len(tokens),
            "avg_response_tokens_per_step": response / len(tokens),
        }
    return found


def numbers(metrics: Mapping[str, object]) -> dict[str, float]:
    """The numeric metrics that can be averaged over rollouts."""
    return {
        name: float(value)
        for name, value in metrics.items()
        if isinstance(value, (int, float)) and not name.endswith("_timestamp")
    }
