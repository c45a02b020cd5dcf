"""Checkpoints of sessions, and containers restored from them: for copies, rollbacks, sleep and restores."""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from sandbox_server import clock, telemetry
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.checkpoints.capture import capture, restore
from sandbox_server.checkpoints.checkpoint import Checkpoint, Part
from sandbox_server.checkpoints.shared import SharedCheckpoints
from sandbox_server.checkpoints.store import Checkpoints
from sandbox_server.errors import NotForkable
from sandbox_server.images.workspaces import Workspaces
from sandbox_server.records import ActionRecord, SessionRecord
from sandbox_server.sandbox.base import Sandbox
from sandbox_server.sandbox.inspector import ContainerInspector
from sandbox_server.scoring.journals import effective_actions, undone_at, undone_ranges
from sandbox_server.sessions.config import CheckpointConfig
from sandbox_server.sessions.data import SessionData
from sandbox_server.sessions.replay import Replay, how_they_ended
from sandbox_server.starts.steps import Steps

_ANCESTORS = 64  # ancestors that are searched for a checkpoint


@dataclass(frozen=True, slots=True)
class Origin:
    """The state of a session after one of its actions, as a checkpoint and the actions to run again."""

    parent: SessionRecord
    instance: TaskInstance
    actions: Sequence[ActionRecord]
    """The session's actions up to this state."""
    checkpoint: Checkpoint | None = None
    """None: start from the image and run all actions again."""
    undone: str = ""
    """`SessionRecord.undone` at that time."""

    @property
    def at(self) -> int:
        """Number of the last action."""
        return len(self.actions)

    @property
    def again(self) -> Sequence[ActionRecord]:
        """The actions that must be run again."""
        return effective_actions(self.actions[self.checkpoint.seq if self.checkpoint else 0 :], self.undone)


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """The result of a restore: what the container has."""

    cwd: str
    """Working directory of its shell; "" if unknown."""
    talk_turns: int
    """As in `SessionRecord`."""
    again: int
    """Number of actions that were run again."""
    differences: Sequence[str]
    """One text for each action that ended differently when it was run again."""
    checkpoint: Checkpoint | None
    lacks: Sequence[str] = ()
    """What could not be restored, in addition to what the checkpoint left out."""

    @property
    def untold(self) -> int:
        """Number of repeated actions that ended differently and that no observation has reported yet, including those
        that the checkpoint counts.
        """
        return len(self.differences) + (self.checkpoint.untold if self.checkpoint else 0)

    def notice(self, subject: str) -> str:
        """A notice for the first observation if something differs from the original; else "". `subject`: `This sandbox
        is a copy`.
        """
        told = []
        if checkpoint := self.checkpoint:
            if checkpoint.notice:
                told.append(checkpoint.notice)
            if lacks := ", ".join((*checkpoint.left_out, *self.lacks)):
                told.append(f"[{subject}, with the state after action {checkpoint.seq}. It does not have: {lacks}.]")
        if self.differences:
            told.append(f"[{subject}. Actions were run again for it, {how_they_ended(self.differences)}.]")
        return "\n".join(told)


class Checkpointing:
    """Takes checkpoints of sessions, and restores them in fresh containers."""

    def __init__(
        self,
        inspector: ContainerInspector,
        data: SessionData,
        workspaces: Workspaces,
        replay: Replay,
        checkpoints: Checkpoints,
        shared: SharedCheckpoints | None,
        steps: Steps,
        config: CheckpointConfig,
    ) -> None:
        """`shared`: the object store with the checkpoints of other nodes; None: there is none."""
        self._inspector = inspector
        self._data = data
        self._workspaces = workspaces
        self._replay = replay
        self._checkpoints = checkpoints
        self._shared = shared
        self._steps = steps
        self._config = config

    async def take(
        self, record: SessionRecord, sandbox: Sandbox, instance: TaskInstance, *, of: str = ""
    ) -> Checkpoint:
        """Take a checkpoint of the sandbox; the caller holds the session's lock.

        `of`: the session to store it for; default: this one.

        Raises:
            NotForkable: the contents of the sandbox prevent it. SandboxLost, InfrastructureError.
        """
        _refuse(instance)
        began = time.monotonic()
        prepared = await self._workspaces.prepared(instance)
        async with self._checkpoints.writer() as writer:
            left_out = await capture(sandbox, self._inspector, writer, timeout_s=self._config.checkpoint_timeout_s)
            await writer.add(Part.UNDO, await self._data.store.history(record.sid, record.container_id).export())
            checkpoint = Checkpoint(
                sid=of or record.sid,
                seq=record.actions,
                image=prepared.image,
                made_at=clock.now(),
                talk_turns=record.talk_turns,
                left_out=left_out,
                notice=record.notice,
                untold=record.differences,
            )
            checkpoint = await self._checkpoints.keep(writer, checkpoint)
        if self._shared is not None:
            self._shared.save(checkpoint)
        telemetry.CHECKPOINT_SECONDS.labels("take").observe(time.monotonic() - began)
        return checkpoint

    def kept(self, checkpoint: Checkpoint) -> AbstractContextManager[object]:
        """A context in which the checkpoint can be read, even if it is replaced or removed meanwhile."""
        return self._checkpoints.held(checkpoint)

    @property
    def pinned(self) -> set[str]:
        """Sids of the sessions whose checkpoints are not removed to make room; the caller adds and removes them."""
        return self._checkpoints.pinned

    async def origin(
        self,
        parent: SessionRecord,
        instance: TaskInstance,
        actions: Sequence[ActionRecord],
        *,
        whole: bool = False,
    ) -> Origin:
        """How to restore the state of the session after `actions`.

        `whole`: use only checkpoints that left nothing out. Other checkpoints may lack running programs, which start
        again only if the actions that started them run again.

        Raises:
            NotForkable: it would take too long, or the task has services or an agent that is not root.
        """
        _refuse(instance)
        image = (await self._workspaces.prepared(instance)).image
        undone = undone_at(parent.undone, len(actions))
        checkpoint, of, most = None, parent, len(actions)
        for _ in range(_ANCESTORS):
            checkpoint = await self._nearest(of.sid, most, image, undone, whole=whole)
            above = await self._data.session(of.parent) if of.parent and checkpoint is None else None
            if above is None or above.instance_id != parent.instance_id:
                break
            of, most = above, min(most, of.forked_at)
        origin = Origin(parent, instance, actions, checkpoint, undone=undone)
        took_s = sum(action.duration_s for action in origin.again)
        if took_s > self._config.replay_timeout_s:
            raise NotForkable(
                f"{len(origin.again)} actions would have to run again, which took {took_s:.0f} s: more than"
                f" {self._config.replay_timeout_s:g} s (SANDBOX_RESTORE_TIMEOUT_S)"
            )
        return origin

    async def _nearest(self, sid: str, most: int, image: str, undone: str, *, whole: bool) -> Checkpoint | None:
        ranges = undone_ranges(undone)
        found = self._checkpoints.nearest(sid, most, image, undone=ranges, whole=whole)
        above = found.seq if found else -1
        if self._shared is None or above == most:
            return found
        return await self._shared.fetch(sid, most, image, above=above, undone=ranges, whole=whole) or found

    async def restore(self, record: SessionRecord, sandbox: Sandbox, origin: Origin) -> RestoreResult:
        """Bring a fresh container, and the undo history of `record.sid`, to the state of the origin.

        Raises:
            CheckpointDamaged: the checkpoint is incomplete. NotForkable, SandboxDiskFull, StateUnavailable,
            SandboxLost, EngineUnavailable.
        """
        began = time.monotonic()
        checkpoint, history = origin.checkpoint, self._data.store.history(record.sid, sandbox.container_id)
        lacks: Sequence[str] = ()
        if checkpoint is not None:
            timeout_s = self._config.checkpoint_timeout_s
            lacks = await restore(
                sandbox, checkpoint, self._checkpoints, timeout_s=timeout_s, inspector=self._inspector
            )
            undo = [block async for block in self._checkpoints.read(checkpoint, Part.UNDO)]
            await history.put(b"".join(undo))
        else:
            await self._steps.begin_again(sandbox, origin.instance, origin.parent)
            await history.put(b"")
        talked = replace(record, talk_turns=checkpoint.talk_turns if checkpoint else 0)
        replayed = await self._replay.run(sandbox, talked, origin.instance, origin.again)
        telemetry.CHECKPOINT_SECONDS.labels("restore").observe(time.monotonic() - began)
        return RestoreResult(
            cwd=sandbox.shell.cwd,
            talk_turns=replayed.talk_turns,
            again=replayed.count,
            differences=replayed.differences,
            checkpoint=checkpoint,
            lacks=lacks,
        )


def _refuse(instance: TaskInstance) -> None:
    if user := instance.sandbox.user:
        raise NotForkable(f"the agent of the task is {user}, and the state of a shell is in a checkpoint only for root")
    if services := instance.sandbox.services:
        names = ", ".join(service.name for service in services)
        raise NotForkable(f"the state of the task's services ({names}) is in no checkpoint")
