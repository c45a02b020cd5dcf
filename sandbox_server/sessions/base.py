"""The interface of the sessions to the protocols; `service.py` implements it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sandbox_server.actions.batch import Command, CommandResult
from sandbox_server.catalogue.insight.records import SessionFilter, SessionWithVerdict
from sandbox_server.catalogue.localization.truth import AnswerFormat, RewardItem
from sandbox_server.errors import ServiceError
from sandbox_server.records import ActionRecord, PatchRecord, SessionRecord
from sandbox_server.scoring.rewards import RewardAnswer
from sandbox_server.verdicts import GradedSession, TurnTokens


@dataclass(frozen=True, slots=True)
class ActionAnswer:
    """The observation of one action; its content can always be shown to a policy."""

    content: str
    error_code: str = ""
    """Code of the ServiceError if the content is the service's own text: sandbox_lost, unknown_session, ..."""
    seq: int = 0
    """Its number in the journal; 0 if it was not journaled."""
    tool: str = ""
    """The tool that ran; "" for none."""
    outcome: str = ""
    """As in the journal; "" if it was not journaled."""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """The results of one batch, in the order of its commands."""

    results: Sequence[CommandResult]
    seq: int
    """Its number in the journal."""
    notice: str = ""
    """A message of the service about the session; usually ""."""


@dataclass(frozen=True, slots=True)
class SessionView:
    """Everything known about a session."""

    record: SessionRecord
    graded: GradedSession | None
    patch: PatchRecord | None
    timings_s: dict[str, float] = field(default_factory=dict)
    """Seconds by stage, of the session and of its grading."""
    metrics: Mapping[str, object] = field(default_factory=dict)
    """See `scoring.rollout.metrics_of`."""


class Sessions(Protocol):
    """Operations on sessions. `sid` is the canonical decimal string; any other text is an unknown sid."""

    async def start(
        self, instance: int | str, *, run: str = "", owner: str = "", idempotency_key: str = "", after: str = ""
    ) -> str:
        """Start a session of the instance with this hash (int) or id (str) for `run`; returns its sid.

        `owner`: see `SessionRecord.owner`. A start with the same `idempotency_key` within some minutes returns the
        same session while that is live. `after`: for a later step of a task, the session of the step before.

        Raises:
            UnknownInstance, Ungradable, CapacityError, OverQuota, InfrastructureError; for a step also as `Steps.plan`.
        """
        ...

    async def give_back(self, sid: str, *, idempotency_key: str = "") -> bool:
        """Close a session whose client disconnected before it got the sid. `idempotency_key`: that of the start.

        Returns False if the session stays, because a repeated request has been answered with it.

        Raises:
            InfrastructureError: it may be live; it ends when idle.
        """
        ...

    async def start_group(
        self, instance: int | str, n: int, *, run: str = "", owner: str = "", idempotency_key: str = ""
    ) -> tuple[list[str], list[ServiceError]]:
        """Start `n` sessions of one instance at once; returns their sids, and the errors of those that failed.

        A request with the same `idempotency_key` within some minutes returns the same sids.

        Raises:
            UnknownInstance, Ungradable; the first error when none starts.
        """
        ...

    async def act(self, sid: str, content: str, *, idempotency_key: str = "") -> ActionAnswer:
        """Run one action. Errors that a policy or a fault can cause are not raised but reported in the answer.

        Within a session, an `idempotency_key` runs once; a repeated request gets the same observation. Raises
        MalformedRequest: the key belongs to another action; nothing ran.
        """
        ...

    async def exec(self, sid: str, commands: Sequence[Command], *, idempotency_key: str = "") -> BatchAnswer:
        """Run commands in parallel, outside the session's shell, as one action.

        Within a session, an `idempotency_key` runs once; a repeated request gets the same results.

        Raises:
            MalformedRequest, UnknownSession, SessionOver, SessionBusy, SessionRestoring: nothing ran.
            SandboxLost: the session is over. ActionInterrupted, other InfrastructureErrors: commands may have run.
        """
        ...

    async def postprocess(self, sid: str) -> SessionRecord | None:
        """Capture the patch, remove the container, queue the grading; None for an unknown sid. Idempotent."""
        ...

    async def reward(self, sid: str) -> RewardAnswer:
        """The reward by the stored verdict, or by a pending one after a wait of at most SANDBOX_REWARD_WAIT_S."""
        ...

    async def report(
        self,
        sid: str,
        *,
        rewards: Sequence[RewardItem] | None = None,
        tokens: Sequence[TurnTokens] | None = None,
        written: AnswerFormat | None = None,
    ) -> None:
        """Store how a live session is scored, its turns' tokens, its answer's format; None leaves the stored value.

        Raises:
            UnknownSession, SessionOver.
        """
        ...

    async def close(self, sid: str) -> SessionRecord | None:
        """As `postprocess`, but with the end reason `closed`."""
        ...

    async def owner(self, sid: str) -> str | None:
        """SessionRecord.owner, which never changes; None for an unknown sid."""
        ...

    async def view(self, sid: str) -> SessionView:
        """Everything known about the session. Raises UnknownSession."""
        ...

    async def state(self, sid: str) -> str:
        """The session's state. Raises UnknownSession."""
        ...

    async def patch(self, sid: str) -> PatchRecord:
        """The session's patch. Raises UnknownSession, SessionStillLive, NoPatch, IsBox."""
        ...

    async def actions(self, sid: str, *, after: int = 0, limit: int | None = None) -> list[ActionRecord]:
        """The journal's actions with a number above `after`, oldest first. Raises UnknownSession."""
        ...

    async def list(self, wanted: SessionFilter, *, limit: int = 100) -> list[SessionWithVerdict]:
        """The sessions that match `wanted`, newest first."""
        ...
