"""The parts that score answers of code search, and batches without a session, as the settings say."""

from collections.abc import Callable

from sandbox_server.actions import registry as actions
from sandbox_server.catalogue.certificates import Certificates
from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.instances import Instances
from sandbox_server.catalogue.rollouts import Rollouts
from sandbox_server.grading.drift import Drift
from sandbox_server.grading.grading import Grading
from sandbox_server.grading.localization import composition
from sandbox_server.grading.queue import GradingQueue
from sandbox_server.grading.registry import load_rewards
from sandbox_server.scoring.batch_grading import BatchGrading
from sandbox_server.scoring.journals import Journals
from sandbox_server.scoring.localizing import Localizing
from sandbox_server.settings import Settings
from sandbox_server.state.store import Store


def localizing_of(settings: Settings, database: Database, store: Store, history: History) -> Localizing:
    """Scores sessions. Raises ValueError when SANDBOX_LOCALIZATION_REWARDS cannot be used."""
    return Localizing(
        Journals(store, history),
        Rollouts(database),
        actions.dialects(),
        dialect=settings.dialect,
        default=composition.load(settings.localization_rewards),
    )


def drift_of(database: Database, grading: Grading, *, idle: Callable[[], bool]) -> Drift:
    """Looks for gold that fails now, while the node is `idle`."""
    return Drift(Instances(database), Certificates(database), grading, idle=idle)


def batch_grading_of(
    settings: Settings, instances: Instances, queue: GradingQueue, localizing: Localizing
) -> BatchGrading:
    """Grades batches."""
    return BatchGrading(
        instances,
        queue,
        localizing,
        load_rewards()[settings.reward],  # `Rewards` has told of one that there is not
        wait_s=settings.reward_wait_s,
        most=settings.grade_batch,
    )
