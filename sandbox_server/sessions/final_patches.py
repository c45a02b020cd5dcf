"""The patch of a session that ends: taken once, stored in SQL, and given to its grading."""

import asyncio
import time
from contextlib import suppress
from dataclasses import replace

from sandbox_server import telemetry
from sandbox_server.errors import (
    CatalogueUnavailable,
    InfrastructureError,
    OwnedElsewhere,
    SandboxLost,
    ServiceError,
    StateUnavailable,
    UnknownInstance,
)
from sandbox_server.images.workspaces import Workspaces
from sandbox_server.lifecycle import SessionState
from sandbox_server.records import PatchRecord, SessionRecord
from sandbox_server.scoring.captures import Captures, empty_patch
from sandbox_server.scoring.rewards import Rewards
from sandbox_server.sessions.data import SessionData
from sandbox_server.sessions.sleeping import Sleeping


class FinalPatches:
    """Takes the patches of sessions that end. An end may be repeated; a patch in SQL is not taken again."""

    def __init__(
        self,
        data: SessionData,
        workspaces: Workspaces,
        captures: Captures,
        rewards: Rewards,
        sleeping: Sleeping,
        *,
        timeout_s: float,
        ending_max_s: float,
    ) -> None:
        """`timeout_s` is the least time for one attempt (SANDBOX_POSTPROCESS_TIMEOUT_S).

        `ending_max_s`: for all attempts of a session together (SANDBOX_ENDING_MAX_S).
        """
        self._data = data
        self._workspaces = workspaces
        self._captures = captures
        self._rewards = rewards
        self._sleeping = sleeping
        self._timeout_s = timeout_s
        self._ending_max_s = ending_max_s
        self._began: dict[str, float] = {}  # sid -> start of its end; a restart of the server resets it

    async def take(self, record: SessionRecord) -> tuple[SessionRecord, PatchRecord]:
        """Store the session's patch in SQL and begin its grading; returns the record with the time this took.

        The time of earlier attempts counts, except before an outage of SQL or Redis.

        Raises:
            SandboxLost: all attempts together took longer than SANDBOX_ENDING_MAX_S. Files that an agent left cannot
                cause this, because `Captures` gives up on them sooner.
            OwnedElsewhere: the session continues on another node. InfrastructureError: nothing is stored; retry.
        """
        most_s = self._ending_max_s
        began = self._began.setdefault(record.sid, time.monotonic())
        left_s = max(self._timeout_s, began + most_s - time.monotonic())
        try:
            async with asyncio.timeout(left_s) as bound:
                return await self._patch(record)
        except TimeoutError:
            if not bound.expired():
                raise
            raise SandboxLost(f"its end took longer than {most_s:g} s (SANDBOX_ENDING_MAX_S)") from None
        except (CatalogueUnavailable, StateUnavailable):
            self._began.pop(record.sid, None)
            raise
        except InfrastructureError as e:
            if time.monotonic() - began < most_s or isinstance(e, SandboxLost):
                raise
            raise SandboxLost(
                f"its end failed repeatedly for longer than {most_s:g} s (SANDBOX_ENDING_MAX_S), at last: {e.detail}"
            ) from e

    def forget(self, sid: str) -> None:
        """Drop what was prepared for the grading, because no patch was taken; the end may be repeated."""
        self._rewards.forget(sid)

    async def wait_until_graded(self, sid: str, *, within_s: float) -> None:
        """Return once the session's verdict is stored, if this node grades it, or after `within_s` seconds."""
        await self._rewards.wait_until_stored(sid, within_s=within_s)

    async def check_still_its(self, record: SessionRecord) -> None:
        """Check that the session still has this node and container.

        If this node was declared dead, the session may continue elsewhere. Its patch must then be taken there.

        Raises:
            OwnedElsewhere. StateUnavailable.
        """
        now = await self._data.store.session(record.sid)
        if now is not None and (now.node, now.container_id) != (record.node, record.container_id):
            raise OwnedElsewhere(now.node)

    def ended(self, sid: str) -> None:
        """Forget when the session's end began, because the session is over."""
        self._began.pop(sid, None)

    async def _patch(self, record: SessionRecord) -> tuple[SessionRecord, PatchRecord]:
        if stored := await self._data.history.patch(record.sid):
            if not _is_former(stored, record):
                return record, stored  # a server died between storing the patch and removing the container
            await self._data.history.remove_patch(stored)
        if record.differences:
            # the patch would be of a state that the policy never saw, so it must not earn a reward
            raise SandboxLost(
                f"its host died, and {record.differences} of its actions ended differently when they were run again,"
                " which no observation could tell any more"
            )
        began = time.monotonic()
        record = await self._woken(record)
        captured = await self._captured(record)
        await self.check_still_its(record)
        patch = await self._data.history.save_patch(captured)
        try:
            await self.check_still_its(record)  # this server may have been suspended since the previous check
        except OwnedElsewhere:
            await self._data.history.remove_patch(captured)
            raise
        if _is_former(patch, record):
            await self._data.history.remove_patch(patch)
            patch = await self._data.history.save_patch(captured)
        record = replace(record, timings_s={**record.timings_s, "end_patch": time.monotonic() - began})
        self._rewards.begin(record, patch)
        return record, patch

    async def _woken(self, record: SessionRecord) -> SessionRecord:
        """The session's record; a sleeping session is woken if its patch is taken from a container."""
        if not record.asleep:
            return record
        with suppress(UnknownInstance):  # `_captured` reports it
            instance = await self._data.instances.by_id(record.instance_id)
            if not instance.localizes:
                return await self._sleeping.wake(replace(record, state=SessionState.ENDING), instance)
        return record

    async def _captured(self, record: SessionRecord) -> PatchRecord:
        try:
            instance = await self._data.instances.by_id(record.instance_id)
        except UnknownInstance as e:
            raise SandboxLost(f"its instance was removed from the catalogue: {e.detail}") from e
        if instance.localizes:
            return empty_patch(record)
        self._rewards.expect(instance, record.sid)
        base = ""
        # the base commit is only a note in the receipt; a failure to get it must not cost the patch
        with suppress(ServiceError):
            base = (await self._workspaces.prepared(instance)).base_commit
        with telemetry.ACTION_SECONDS.labels("patch").time():
            return await self._captures.take(record, instance, base_commit=base or instance.base_commit)


def _is_former(patch: PatchRecord, session: SessionRecord) -> bool:
    """Whether the patch is of an earlier container: a node stored it after the session had moved to another one."""
    return patch.container_id not in ("", session.container_id)
