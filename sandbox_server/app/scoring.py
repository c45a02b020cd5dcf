"""Builds the parts that score code search, watch for drift, and grade batches without a session."""

from collections.abc import Awaitable, Callable

from sandbox_server.actions import registry as actions
from sandbox_server.catalogue.certificates import Certificates
from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.instances import Instances
from sandbox_server.grading.drift import Drift
from sandbox_server.grading.grading import Grading
from sandbox_server.grading.localization import composition
from sandbox_server.grading.queue import GradingQueue
from sandbox_server.grading.registry import load_rewards
from sandbox_server.scoring.batch_grading import BatchGrading
from sandbox_server.scoring.journals import Journals
from sandbox_server.scoring.localizing import Localizing
from sandbox_server.sessions.data import SessionData
from sandbox_server.settings import Settings


def localizing_of(settings: Settings, data: SessionData) -> Localizing:
    """Build the scoring of code search sessions. Raises ValueError if SANDBOX_LOCALIZATION_REWARDS is invalid."""
    return Localizing(
        Journals(data.store, data.history),
        data.rollouts,
        actions.dialects(),
        dialect=settings.dialect,
        default=composition.load(settings.localization_rewards),
    )


def drift_of(database: Database, grading: Grading, *, idle: Callable[[], bool]) -> Drift:
    """Build the search for gold patches that fail now; it runs while the node is `idle`."""
    return Drift(Instances(database), Certificates(database), grading, idle=idle)


def batch_grading_of(
    settings: Settings,
    instances: Instances,
    queue: GradingQueue,
    localizing: Localizing,
    permit: Callable[[str], Awaitable[None]],
) -> BatchGrading:
    """Build the grading of batches; `permit` raises OverQuota for an account that has used its seconds."""
    return BatchGrading(
        instances,
        queue,
        localizing,
        load_rewards()[settings.reward],  # `Rewards` has already reported an unknown one
        wait_s=settings.reward_wait_s,
        most=settings.grade_batch,
        permit=permit,
    )
