"""Snapshots of boxes in SQL, and their files beside it."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandbox_server.boxes.snapshots import BoxSnapshots
from sandbox_server.boxes.snapshotting import SnapshotBounds, Snapshotting
from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.snapshots import Snapshot, Snapshots
from sandbox_server.errors import CatalogueUnavailable
from sandbox_server.records import BoxRecord

BOX = BoxRecord("1", "e2b", "i", "", {}, {}, "root", "t", "none", 1.0, 100, 77_000, 0.0)
VIEW: Any = SimpleNamespace(sid="1", box=BOX)


class States:
    """The files on this node: the names of their checkpoints."""

    def __init__(self) -> None:
        self.kept: set[str] = set()

    async def take(self, sandbox: object, name: str) -> SimpleNamespace:
        self.kept.add(name)
        return SimpleNamespace(sid=name, image="i")

    def size_bytes(self, checkpoint: object) -> int:
        return 1

    def drop(self, name: str) -> None:
        self.kept.discard(name)

    def names(self) -> list[str]:
        return sorted(self.kept)


class Boxes:
    async def get(self, sid: str) -> Any:
        return VIEW

    async def here(self, view: Any) -> None:
        """It is."""

    async def sandbox(self, view: Any) -> None:
        """Nobody looks at it."""


class Templates:
    store: Any

    async def named(self, owner: str, name: str) -> None:
        """There is none."""


class Breaking(Snapshots):
    """Its connection breaks before, or after, SQL has committed."""

    moment = ""

    async def add(self, snapshot: Snapshot) -> list[Snapshot]:
        if self.moment == "before":
            raise CatalogueUnavailable("the connection broke")
        former = await super().add(snapshot)
        if self.moment == "after":
            raise CatalogueUnavailable("the connection broke")
        return former


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_an_answer_of_sql_that_is_lost(database: Database, moment: str) -> None:
    """SQL had the new snapshot in place of the former one of its name, and the files of both were removed."""
    states, store, templates = States(), Breaking(database), Templates()
    templates.store = templates
    snapshots = BoxSnapshots(cast(Any, states), store, None, cast(Any, None), node="n")
    bounds = SnapshotBounds(count=9, total_bytes=99)
    taking = Snapshotting(
        cast(Any, Boxes()), cast(Any, states), snapshots, cast(Any, templates), cast(Any, None), bounds, node="n"
    )
    former = await taking.take("1", "mine")
    store.moment = moment
    with pytest.raises(CatalogueUnavailable):
        await taking.take("1", "mine")
    await snapshots.tidy()
    found = await snapshots.find("", "mine")
    assert found is not None and (found.snapshot_id == former.snapshot_id) == (moment == "before")
    assert states.names() == [f"snapshot-{found.snapshot_id}"]
