"""Templates on each database."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from sandbox_server.boxes.templates import TemplateBounds, TemplateBuilds
from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.templates import (
    BUILDING,
    ERROR,
    READY,
    WAITING,
    LogEntry,
    Recipe,
    Step,
    TemplateBuild,
    Templates,
)
from sandbox_server.errors import CapacityError
from sandbox_server.state.nodes import NodeRecord

HOSTILE = "\0 \udc80"


async def test_a_build_from_its_request_to_its_end(database: Database) -> None:
    """A build runs twice, is lost to other nodes or to a restarted one, or is revived after its template's end."""
    templates = Templates(database)
    own = await templates.ensure("a", "lab", "made")
    assert await templates.ensure("b", "lab", "made") == own
    assert (await templates.ensure("c", "other", "made")).template_id == "c"
    assert [one.template_id for one in await templates.listed("lab")] == ["a"]
    assert len(await templates.listed(None)) == 2

    build = TemplateBuild(build_id="1", template_id="a", owner="lab", name="made", tags=("v1",))
    await templates.add(build)
    recipe = Recipe(image="base", steps=(Step(kind="RUN", args=(HOSTILE,)),))
    build = build.model_copy(update={"recipe": recipe})
    assert await templates.trigger(build, "node") and not await templates.trigger(build, "another")
    assert [state.status for state in await templates.left_by("node")] == [WAITING]
    entries = [LogEntry(1.0, "info", HOSTILE)]
    await templates.save(build, BUILDING, node="node", log=entries)
    assert [state.build for state in await templates.left_by("node")] == [build]
    await templates.save(build, READY, node="node", log=entries)
    assert not await templates.left_by("node")
    state = await templates.build("1")
    assert state is not None and (state.build, state.status, state.log) == (build, READY, tuple(entries))
    assert [(one.build, one.log) for one in await templates.builds("a")] == [(build, ())]

    await templates.tag("a", ["v1", "v2"], "1")
    await templates.tag("a", ["v2"], "2")
    await templates.untag("a", ["v1"])
    assert [(one.tag, one.build_id) for one in await templates.tags("a")] == [("v2", "2")]

    await templates.delete("a")
    await templates.save(build, READY, node="node")
    assert await templates.build("1") is None and not await templates.tags("a")
    assert await templates.named("other", "made") is not None


async def test_archives(database: Database) -> None:
    """An archive is uploaded by the link of another one, or a deleted template's bytes count for ever."""
    templates = Templates(database)
    await templates.ensure("a", "lab", "made")
    assert not await templates.expect_file("a", "hash", "first")
    assert await templates.upload_of("first") == "a" and await templates.upload_of("unknown") is None
    await templates.put_file("first", b"body")
    assert await templates.expect_file("a", "hash", "second") and await templates.upload_of("first") is None
    assert await templates.file("a", "hash") == b"body" and await templates.file("b", "hash") is None
    assert (await templates.files_bytes("lab"), await templates.files_bytes("other")) == (4, 0)
    await templates.delete("a")
    assert await templates.files_bytes("lab") == 0


async def test_a_build_of_a_node_that_is_gone(database: Database) -> None:
    """A client waits for hours for a build that nobody does."""
    templates = Templates(database)
    await templates.ensure("a", "lab", "made")
    build = TemplateBuild(build_id="1", template_id="a", owner="lab", name="made", tags=("v1",), recipe=Recipe())
    await templates.add(build)
    await templates.trigger(build, "another")
    living = [NodeRecord("another", "http://another", "boot")]

    async def alive() -> Sequence[NodeRecord]:
        return living

    unused: Any = None
    bounds = TemplateBounds(1, 1, 1.0, 1.0, 1, 1)
    builds = TemplateBuilds(unused, templates, unused, unused, bounds, node="here", alive=alive)
    for status in (WAITING, BUILDING):
        assert (await builds.build_of("lab", "made", "1")).status == status
        living, there = [], living
        lost = await builds.build_of("lab", "made", "1")
        assert lost.status == ERROR and "build it again" in lost.build.reason
        living = there
        await templates.save(build, BUILDING, node="another")
    await templates.save(build, BUILDING, node="here")
    assert (await builds.build_of("lab", "made", "1")).status == ERROR, "this node does not build it"


async def test_a_build_that_ends_while_it_is_asked_for(database: Database) -> None:
    """A client whose poll meets the end is told that the node is gone, of a build that is ready."""
    templates = Templates(database)
    await templates.ensure("a", "lab", "made")
    build = TemplateBuild(build_id="1", template_id="a", owner="lab", name="made", tags=("v1",), recipe=Recipe())
    await templates.add(build)
    await templates.save(build, BUILDING, node="another")

    async def alive() -> Sequence[NodeRecord]:  # asked between the look at the record and the judgement
        await templates.save(build, READY, node="another")
        return []

    unused: Any = None
    bounds = TemplateBounds(1, 1, 1.0, 1.0, 1, 1)
    builds = TemplateBuilds(unused, templates, unused, unused, bounds, node="here", alive=alive)
    assert (await builds.build_of("lab", "made", "1")).status == READY


def test_uploads_are_few_at_a_time() -> None:
    """Archives that are being uploaded fill the server's memory."""
    unused: Any = None
    builds = TemplateBuilds(
        unused, unused, unused, unused, TemplateBounds(1, 1, 1.0, 1.0, 1, 1), node="here", alive=unused
    )
    with ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(builds.uploading())
        with pytest.raises(CapacityError), builds.uploading():
            pass
    with builds.uploading():
        pass
