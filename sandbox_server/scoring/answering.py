"""Read a policy's answer in a code search session, and build the reply to it."""

from dataclasses import replace

from sandbox_server.actions.base import Call, Say
from sandbox_server.actions.content import scalar_text, strip_tail
from sandbox_server.actions.tool_responses import OVER, RECORDED, Reply
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.grading.localization.answers import AUTO
from sandbox_server.grading.localization.messages import FINISH, message_of
from sandbox_server.verdicts import Answer

_SHOWN = 3  # problems reported to the policy

_HOW = (
    "give one path per line between <files> and </files>, or lines like `path.py`, `class: C` and `function: f` in a"
    " fenced block"
)
_UNREAD = "Error: no answer could be read there, and none is recorded"


def roots_of(instance: TaskInstance) -> tuple[str, ...]:
    """Paths at which the policy may have seen the repository."""
    own = instance.localization.roots if instance.localization else ()
    return (instance.sandbox.workdir, instance.workspace, *instance.workspace_aliases, *own)


def answer_in(content: str, instance: TaskInstance, *, acts: bool = False) -> Answer | None:
    """The answer in `content`; None: it has none, or the instance expects none."""
    if instance.localization is None:
        return None
    written = instance.localization.answer or AUTO
    return message_of(strip_tail(scalar_text(content))).answer(written=written, roots=roots_of(instance), acts=acts)


def in_format(instance: TaskInstance, written: str) -> TaskInstance:
    """`instance` with `written` as the format of its answer; "" leaves the instance's own format."""
    if instance.localization is None or not written:
        return instance
    return instance.model_copy(update={"localization": instance.localization.model_copy(update={"answer": written})})


def may_answer(parsed: Call | Say, instance: TaskInstance) -> bool:
    """Whether the reply to the message depends on an answer in it, or on whether the instance asks for one."""
    if isinstance(parsed, Say):
        return instance.localization is not None or parsed.code == "answer"
    calls = parsed.arguments.get("calls")
    return isinstance(calls, tuple) and any(isinstance(one, Reply) and one.code == "answer" for one in calls)


def runs_tool(parsed: Call | Say) -> bool:
    """Whether a message runs a tool. In such a message only tags or a finishing call count as an answer."""
    return isinstance(parsed, Call) and parsed.tool != FINISH


def answer_reply(parsed: Call | Say, content: str, instance: TaskInstance) -> Call | Say:
    """The reply to `parsed`. If it holds an answer that is scored: that it is recorded, and which parts are unreadable.

    In a task that asks for a patch, a finishing call ends the interaction and records nothing.
    """
    answer = answer_in(content, instance, acts=runs_tool(parsed))
    told, code = _told(answer, instance), "answer" if answer else "no_answer"
    if instance.localization is None:
        told, code = OVER, "finish"
    if isinstance(parsed, Say):
        if parsed.code == "answer":  # the dialect's own form, call by call
            return replace(parsed, text=parsed.text.replace(RECORDED, told), code=code)
        if instance.localization is None:
            return parsed
        if answer is None:
            return Say(told, "no_answer") if parsed.code == "over" else parsed
        return Say(told, "answer")
    several = parsed.arguments.get("calls")
    if not isinstance(several, tuple):
        return parsed
    calls = tuple(
        replace(one, text=told, code=code) if isinstance(one, Reply) and one.code == "answer" else one
        for one in several
    )
    return replace(parsed, arguments={**parsed.arguments, "calls": calls})


def _told(answer: Answer | None, instance: TaskInstance) -> str:
    if answer is None:
        named = (instance.localization and instance.localization.answer) or AUTO
        return f"{_UNREAD}: {_HOW if named == AUTO else f'this task takes the format `{named}` only'}."
    if not answer.problems:
        return RECORDED
    return f"{RECORDED} Left out, as it could not be read: {'; '.join(answer.problems[:_SHOWN])}."
