"""Artifacts of services whose archive the engine does not finish."""

import io
import tarfile
from collections.abc import Sequence

import pytest

from sandbox_server.catalogue.instance import Artifact, Collect, HarborGrader
from sandbox_server.errors import EngineUnavailable, SandboxLost, ServiceError
from sandbox_server.scoring.task_artifacts import Bounds, added, of_services


def _archive() -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        entry = tarfile.TarInfo("book/page")
        entry.size = 5000
        archive.addfile(entry, io.BytesIO(bytes(5000)))
    return whole.getvalue()


class _Served:
    """Gives the first bytes of an archive: no real service changes its file in the moment in which it is read."""

    def __init__(self, length: int, *, refuses: ServiceError | None = None) -> None:
        self._length = length
        self._refuses = refuses

    async def run(
        self, container_id: str, service: str, argv: Sequence[str], *, user: str, timeout_s: float
    ) -> int | None:
        if self._refuses is not None:
            raise self._refuses
        return 0

    async def archive(self, container_id: str, service: str, path: str, *, max_bytes: int) -> bytes | None:
        return _archive()[: self._length]


@pytest.mark.parametrize("length", [0, 100, 600, 3000])
async def test_an_archive_that_is_cut_off_is_left_out(length: int) -> None:
    """A service that writes meanwhile ends a session's capture with an error, or a half of its file is graded."""
    grader = HarborGrader(tests="", carried=(), artifacts=(Artifact(service="ledger", path="/srv/book"),))
    found = await of_services(_Served(length), "", grader, Bounds(1, 1 << 20))
    assert not found.archive and added(b"files", found.archive) == b"files"
    assert "/srv/book of the service ledger is left out: it changed" in found.left_out[0]


async def test_an_engine_that_does_not_answer_is_no_work_undone() -> None:
    """The artifacts of a command that was not run were graded: 0.0 for a fault of the host."""
    artifacts, collect = (Artifact(service="ledger", path="/srv/book"),), (Collect(command="sync", service="ledger"),)
    grader = HarborGrader(tests="", carried=(), artifacts=artifacts, collect=collect)
    with pytest.raises(EngineUnavailable):
        await of_services(_Served(10240, refuses=EngineUnavailable("no answer")), "", grader, Bounds(1, 1 << 20))
    found = await of_services(_Served(10240, refuses=SandboxLost("it ended")), "", grader, Bounds(1, 1 << 20))
    assert found.archive and not found.left_out
