"""What the protocols may ask of the sessions; `service.py` answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sandbox_server.actions.batch import Command, CommandResult
from sandbox_server.catalogue.insight.records import Seen, SessionFilter
from sandbox_server.catalogue.localization.truth import RewardItem
from sandbox_server.errors import ServiceError
from sandbox_server.pool.bucket import BucketView
from sandbox_server.pool.lookahead import Failure
from sandbox_server.records import ActionRecord, GradedSession, PatchRecord, SessionRecord, TurnTokens
from sandbox_server.scoring.rewards import RewardAnswer
from sandbox_server.state.nodes import NodeRecord


@dataclass(frozen=True, slots=True)
class ActionAnswer:
    """The observation of one action; always something to show a policy."""

    content: str
    error_code: str = ""
    """Code of the ServiceError behind an observation that is our own text: sandbox_lost, unknown_session, ..."""
    seq: int = 0
    """Its number in the journal; 0 when it was not journaled."""
    tool: str = ""
    """The tool it used, "" when none ran."""


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """The results of one batch, in the order of its commands."""

    results: Sequence[CommandResult]
    seq: int
    """Its number in the journal."""
    notice: str = ""
    """What the service has to tell of the session; "" nearly always."""


@dataclass(frozen=True, slots=True)
class SessionView:
    """Everything known of a session."""

    record: SessionRecord
    graded: GradedSession | None
    patch: PatchRecord | None
    timings_s: dict[str, float] = field(default_factory=dict)
    """Of the session and of its grading."""
    metrics: Mapping[str, object] = field(default_factory=dict)
    """See `scoring.rollout.metrics_of`."""


@dataclass(frozen=True, slots=True)
class Announced:
    """What became of an announcement of starts."""

    queued: int
    """Instances that are being prepared, in the order given."""
    unknown: tuple[int | str, ...]
    """Those that the catalogue does not have."""
    dropped: int
    """Known ones for which the queue had no room."""


@dataclass(frozen=True, slots=True)
class PoolView:
    """What is ready, or being made ready, for starts to come."""

    size: int
    """Containers parked at most."""
    buckets: Sequence[BucketView]
    preparing: Sequence[str]
    """Announced instances whose image is not ready yet."""
    failures: Sequence[Failure]


class Sessions(Protocol):
    """One rollout after the other. `sid` is the canonical decimal string; anything else is unknown."""

    async def start(self, instance: int | str, *, run: str = "", owner: str = "", idempotency_key: str = "") -> str:
        """Begin a session of the instance with this hash (int) or id (str), for `run`; returns its sid.

        `owner`: as of SessionRecord.

        The same `idempotency_key`, within some minutes, gives the same session for as long as it is live.

        Raises:
            UnknownInstance, Ungradable, CapacityError, OverQuota, InfrastructureError.
        """
        ...

    async def start_group(
        self, instance: int | str, n: int, *, run: str = "", owner: str = ""
    ) -> tuple[list[str], list[ServiceError]]:
        """Begin `n` sessions of one instance at once: their sids, and why others did not start.

        Raises:
            UnknownInstance, Ungradable; the first error when none starts.
        """
        ...

    async def look_ahead(self, instances: Sequence[int | str]) -> Announced:
        """Prepare images and park containers for starts that will come."""
        ...

    def pool(self) -> PoolView:
        """The containers parked, being made and wanted."""
        ...

    async def nodes(self) -> list[NodeRecord]:
        """Every node that has a heartbeat."""
        ...

    async def drain(self, node: str, *, begin: bool) -> None:
        """Have a node take nothing new and end once it is empty; `begin=False` takes that back. Raises UnknownNode."""
        ...

    async def act(self, sid: str, content: str, *, idempotency_key: str = "") -> ActionAnswer:
        """Run one action. Never raises for what a policy or a fault can cause: the answer says it.

        The same `idempotency_key` within a session runs once; its observation is given again.
        """
        ...

    async def exec(self, sid: str, commands: Sequence[Command], *, idempotency_key: str = "") -> BatchAnswer:
        """Run commands in parallel, apart from the shell, as one action.

        The same `idempotency_key` within a session runs once; its results are given again.

        Raises:
            MalformedRequest, UnknownSession, SessionOver, SessionBusy, SessionRestoring: nothing ran.
            SandboxLost: the session is over. ActionInterrupted, other InfrastructureErrors: commands may have run.
        """
        ...

    async def postprocess(self, sid: str) -> SessionRecord | None:
        """Capture the patch, remove the container, queue the grading; None for an unknown sid. Idempotent."""
        ...

    async def reward(self, sid: str) -> RewardAnswer:
        """The stored verdict, or the one under way, waited for at most SANDBOX_REWARD_WAIT_S."""
        ...

    async def report(
        self, sid: str, *, rewards: Sequence[RewardItem] | None = None, tokens: Sequence[TurnTokens] | None = None
    ) -> None:
        """Keep how a live session is to be scored, and what its turns cost; None leaves what was there.

        Raises:
            UnknownSession, SessionOver.
        """
        ...

    async def close(self, sid: str) -> SessionRecord | None:
        """As `postprocess`, by an operator."""
        ...

    async def owner(self, sid: str) -> str | None:
        """SessionRecord.owner, which never changes; None: there is no such session."""
        ...

    async def view(self, sid: str) -> SessionView:
        """Raises UnknownSession."""
        ...

    async def state(self, sid: str) -> str:
        """Where it stands. Raises UnknownSession."""
        ...

    async def patch(self, sid: str) -> PatchRecord:
        """Raises UnknownSession, SessionStillLive."""
        ...

    async def actions(self, sid: str, *, after: int = 0, limit: int | None = None) -> list[ActionRecord]:
        """The journal past number `after`, oldest first. Raises UnknownSession."""
        ...

    async def list(self, wanted: SessionFilter, *, limit: int = 100) -> list[Seen]:
        """Newest first."""
        ...
