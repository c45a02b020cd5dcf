"""What a policy answers in a session of code search."""

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.grading.localization.answers import AUTO
from sandbox_server.grading.localization.messages import message_of
from sandbox_server.records import Answer


def roots_of(instance: TaskInstance) -> tuple[str, ...]:
    """Where a policy may have seen the repository."""
    own = instance.localization.roots if instance.localization else ()
    return (instance.sandbox.workdir, instance.workspace, *instance.workspace_aliases, *own)


def answer_in(content: str, instance: TaskInstance, *, acts: bool = False) -> Answer | None:
    """What the policy answers with `content`; None: nothing, or the instance asks for no answer."""
    if instance.localization is None:
        return None
    written = instance.localization.answer or AUTO
    return message_of(content).answer(written=written, roots=roots_of(instance), acts=acts)
