"""Opens the parts that all others use: the engine, Redis, SQL, and the preparation of images."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from sandbox_server.app.catalogue import open_catalogue
from sandbox_server.app.engine import open_runtime
from sandbox_server.app.server_lock import only_server
from sandbox_server.app.state import State, open_store
from sandbox_server.app.workspaces import open_workspaces
from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.instances import Instances
from sandbox_server.catalogue.rollouts import Rollouts
from sandbox_server.images.workspaces import Workspaces
from sandbox_server.sandbox.base import Runtime
from sandbox_server.sandbox.faults import Faults
from sandbox_server.sessions.data import SessionData
from sandbox_server.settings import Settings
from sandbox_server.tasks import Loops

_WATCH_AGAIN_S = 2.0  # pause after the engine closed its event stream or did not answer


@dataclass(frozen=True, slots=True)
class Foundation:
    """The parts that all others use, open until the server ends."""

    runtime: Runtime
    database: Database
    state: State
    data: SessionData
    workspaces: Workspaces
    faults: Faults
    """Reasons why nothing new may begin now."""
    loops: Loops


@asynccontextmanager
async def open_foundation(settings: Settings) -> AsyncIterator[Foundation]:
    """Open it, and watch the engine.

    Raises:
        AlreadyServed, NodeNameTaken: another server has the data directory, or the name.
        EngineUnavailable, StateUnavailable, CatalogueUnavailable.
    """
    async with AsyncExitStack() as stack:
        stack.enter_context(only_server(settings.data_dir))
        database = await stack.enter_async_context(open_catalogue(settings))
        history, faults, loops = History(database, searched=settings.action_search), Faults(), Loops()
        runtime = await stack.enter_async_context(open_runtime(settings, faults=faults))
        state = await stack.enter_async_context(open_store(settings, history, loops))
        workspaces = await stack.enter_async_context(open_workspaces(settings, runtime))
        data = SessionData(state.store, history, Instances(database), Rollouts(database))
        await stack.enter_async_context(loops.every(_WATCH_AGAIN_S, runtime.images.watch, name="images"))
        await stack.enter_async_context(loops.every(_WATCH_AGAIN_S, runtime.watch_egress, name="egress"))
        probe_s = settings.breaker_probe_s
        probe = partial(runtime.probe_engine, timeout_s=probe_s)
        await stack.enter_async_context(loops.every(probe_s, probe, name="engine", at_once=False))
        yield Foundation(runtime, database, state, data, workspaces, faults, loops)
