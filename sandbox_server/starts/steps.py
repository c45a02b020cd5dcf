"""Starts the sessions of tasks with several steps; each step after the first begins with the files of the step before.

These files are the patch of the step before. It is in SQL before the end of that step is acknowledged, so that it
survives a crash or the loss of a host, and any node can start the next step. The next step gets what the gradings get:
the changes at the carried paths. It gets no running programs, and nothing that was installed elsewhere.
"""

from dataclasses import dataclass, replace

from sandbox_server.catalogue.harbor.archives import Folder, unpacked
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.instances import Instances
from sandbox_server.catalogue.steps import Step
from sandbox_server.errors import (
    ImageUnavailable,
    InfrastructureError,
    MalformedRequest,
    SandboxLost,
    SessionBusy,
    SessionStillLive,
    StepClosed,
    UnknownSession,
)
from sandbox_server.grading.carrying import place
from sandbox_server.images.workspaces import Workspaces
from sandbox_server.lifecycle import SessionState
from sandbox_server.records import SessionRecord
from sandbox_server.sandbox.base import ExecResult, Sandbox
from sandbox_server.sandbox.health import until_healthy
from sandbox_server.sandbox.services import HealthCheck
from sandbox_server.scoring.rewards import Rewards
from sandbox_server.scoring.steps import refusal, step_before
from sandbox_server.starts.plan import TaskPlan
from sandbox_server.state.store import Store
from sandbox_server.verdicts import VerdictName

_SETUP = "setup.sh"
_NOTICE = (
    "[This step has a new container, with the files that the step before left in the work directory. No program of that"
    " step runs any more, and what was installed elsewhere is gone.]"
)
"""Text before the first observation of a later step."""
_SAID = 300  # characters of a script's output in an error


@dataclass(frozen=True, slots=True)
class StepBounds:
    """Limits in seconds."""

    session_max_s: float
    """On the life of a session (SANDBOX_SESSION_MAX_S)."""
    reward_wait_s: float
    """On waiting for the verdict on the step before (SANDBOX_REWARD_WAIT_S)."""
    each_s: float
    """On each part of the beginning: files placed, setup.sh, health check (SANDBOX_SERVICE_START_S)."""


class Steps:
    """Begins the steps of tasks."""

    def __init__(
        self,
        store: Store,
        history: History,
        instances: Instances,
        workspaces: Workspaces,
        rewards: Rewards,
        bounds: StepBounds,
    ) -> None:
        self._store = store
        self._history = history
        self._instances = instances
        self._workspaces = workspaces
        self._rewards = rewards
        self._bounds = bounds

    async def plan(self, instance: TaskInstance, after: str) -> TaskPlan:
        """The plan of a session of a step; `after`: the ended session of the step before, "" for the first step.

        Waits for the verdict on the step before.

        Raises:
            MalformedRequest, UnknownSession, SessionStillLive: `after` is not an ended session of the step before.
            SessionBusy: that session has no verdict yet, or only `infra`; ask again. StepClosed: the task is over.
            StateUnavailable, CatalogueUnavailable.
        """
        step, before = instance.step, None
        if step is not None and step.before:
            before = await self._before(step, after)
        elif after:
            raise MalformedRequest(f"after: {instance.instance_id} is no later step of a task; leave `after` out")
        return _Plan(self, instance, self._workspaces, self._store, self._bounds.session_max_s, before)

    async def _before(self, step: Step, after: str) -> SessionRecord:
        if not after:
            raise MalformedRequest(
                f"{step.name} is step {step.number} of {step.of} of its task: name in `after` the ended session of"
                f" {step.before}, with whose files it begins"
            )
        before = await self._store.session(after) or await self._history.session(after)
        if before is None:
            raise UnknownSession.of(after)
        if before.instance_id != step.before:
            raise MalformedRequest(f"after: session {after} is of {before.instance_id}, not of {step.before}")
        await self._check_open(before)
        return before

    async def _check_open(self, before: SessionRecord) -> None:
        sid, over = before.sid, f"the task is over, /compute_reward of session {before.sid} has its reward"
        if before.state == SessionState.LOST:
            raise StepClosed(f"session {sid} was lost ({before.cause}); {over}")
        if before.state != SessionState.ENDED:
            raise SessionStillLive(f"session {sid} is {before.state}; POST /postprocess first")
        answer = await self._rewards.answer(before, wait_s=self._bounds.reward_wait_s)
        if answer.verdict.name in (VerdictName.PENDING, VerdictName.INFRA):
            raise SessionBusy(f"session {sid} has no verdict yet: {answer.verdict.cause}; send the request again")
        done = (await self._instances.by_id(before.instance_id)).step
        why = refusal(done, answer.verdict) if done else f"{before.instance_id} is not a step any more"
        if why:
            raise StepClosed(f"{why}; {over}")

    async def begin_again(self, sandbox: Sandbox, instance: TaskInstance, session: SessionRecord) -> None:
        """Bring a container to the beginning of a session that is restored without a checkpoint.

        Raises:
            As `begin`. SandboxLost: the session of the step before is gone.
        """
        if instance.step is None:
            return
        before = await step_before(self._history, session) if instance.step.before else None
        if before is None and instance.step.before:
            raise SandboxLost(f"the session of {instance.step.before} is gone, with whose files this one began")
        await self.begin(sandbox, instance, before)

    async def begin(self, sandbox: Sandbox, instance: TaskInstance, before: SessionRecord | None) -> str:
        """As `place_step_files`, with the files of the session `before`. Raises CatalogueUnavailable too."""
        files, roots = b"", tuple[str, ...]()
        if before is not None:
            patch = await self._history.patch(before.sid)
            files = b"" if patch is None or patch.diff is None else patch.diff
            roots = (await self._instances.by_id(before.instance_id)).carried
        return await place_step_files(sandbox, instance, files, roots, each_s=self._bounds.each_s)


async def place_step_files(
    sandbox: Sandbox, instance: TaskInstance, files: bytes, roots: tuple[str, ...], *, each_s: float
) -> str:
    """Place `files` in a fresh container, then those of the step; run its setup.sh, and wait for its health check.

    `files`: what carry.bash printed for `roots` at the end of the step before. Returns what failed, or "". It is no
    error, because a policy may have caused it: an error would end the task with the reward of the steps so far, which
    may be higher than the reward of all steps.

    Raises:
        InfrastructureError: `files` cannot be placed. SandboxLost, EngineUnavailable.
    """
    step, own = instance.step, instance.sandbox
    assert step is not None  # only steps begin so
    if files:
        placed = await place(sandbox, files, roots, timeout_s=each_s)
        if placed.refused:  # not the policy's doing: a grading has already placed the same files
            raise InfrastructureError(f"the files of {step.before} cannot be placed: {placed.said[-_SAID:]}")
    failed = ""
    if step.uploads:
        unpack = ["tar", "-x", "-z", "-f", "-", "--no-same-owner"]
        done = await sandbox.exec(
            unpack, timeout_s=each_s, stdin=unpacked(step.uploads), cwd=own.workdir, user="root", merge_streams=True
        )
        failed = _failure(done, "its files could not all be placed")
    if not failed and Folder(step.uploads).text(_SETUP) is not None:
        failed = await _set_up(sandbox, instance, each_s)
    if step.health and not failed:
        try:
            await until_healthy(sandbox, HealthCheck(**dict(step.health)), within_s=each_s)
        except ImageUnavailable as error:
            failed = error.detail
    return failed


async def _set_up(sandbox: Sandbox, instance: TaskInstance, timeout_s: float) -> str:
    """Run the step's setup.sh as the agent's user; return what failed, "" for nothing. Raises as `place_step_files`.

    It may run files that the policy left, and these can end the container. So can a fault of the host, but hardly twice
    in a row: it is run a second time.
    """
    user = instance.sandbox.user
    for _ in range(2):
        try:
            done = await sandbox.exec(
                ["bash", _SETUP],
                timeout_s=timeout_s,
                cwd=instance.sandbox.workdir,
                env={} if user else {"HOME": "/root"},
                user=user or "root",
                merge_streams=True,
            )
        except SandboxLost:
            await sandbox.restart()  # keeps the files
        else:
            return _failure(done, f"its {_SETUP} failed")
    return f"its {_SETUP} ended the container twice"


def _failure(done: ExecResult, what: str) -> str:
    if done.exit_code == 0:
        return ""
    how = "took too long" if done.exit_code is None else f"ended with {done.exit_code}"
    return f"{what}: it {how} and said {done.stdout.text()[-_SAID:]!r}"


class _Plan(TaskPlan):
    def __init__(
        self,
        steps: Steps,
        instance: TaskInstance,
        workspaces: Workspaces,
        store: Store,
        lasts_s: float,
        before: SessionRecord | None,
    ) -> None:
        super().__init__(instance, workspaces, store, lasts_s)
        self._steps = steps
        self._before = before

    async def begin(self, record: SessionRecord, sandbox: Sandbox) -> SessionRecord:
        """See `starts.plan.Plan.begin`. Raises ImageUnavailable if a first step fails: no policy can have caused it."""
        failed = await self._steps.begin(sandbox, self._instance, self._before)
        if self._before is not None:
            notice = f"{_NOTICE}\n[Its preparation failed: {failed}]" if failed else _NOTICE
            record = replace(record, parent=self._before.sid, notice=notice)
        elif failed:
            raise ImageUnavailable(f"{self.name} cannot begin: {failed}; mend the task")
        return await super().begin(record, sandbox)
