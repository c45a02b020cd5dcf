"""Artifacts of services whose archive the engine does not finish."""

import io
import tarfile
from collections.abc import Sequence

import pytest

from sandbox_server.catalogue.instance import Artifact, HarborGrader
from sandbox_server.scoring.evidence import Bounds, added, of_services


def _archive() -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        entry = tarfile.TarInfo("book/page")
        entry.size = 5000
        archive.addfile(entry, io.BytesIO(bytes(5000)))
    return whole.getvalue()


class _Served:
    """Gives the first bytes of an archive: no real service changes its file in the moment in which it is read."""

    def __init__(self, length: int) -> None:
        self._length = length

    async def run(
        self, container_id: str, service: str, argv: Sequence[str], *, user: str, timeout_s: float
    ) -> int | None:
        raise NotImplementedError

    async def archive(self, container_id: str, service: str, path: str, *, max_bytes: int) -> bytes | None:
        return _archive()[: self._length]


@pytest.mark.parametrize("length", [0, 100, 600, 3000])
async def test_an_archive_that_is_cut_off_is_left_out(length: int) -> None:
    """A service that writes meanwhile ends a session's capture with an error, or a half of its file is graded."""
    grader = HarborGrader(tests="", carried=(), artifacts=(Artifact(service="ledger", path="/srv/book"),))
    found = await of_services(_Served(length), "", grader, Bounds(1, 1 << 20))
    assert not found.archive and added(b"files", found.archive) == b"files"
    assert "/srv/book of the service ledger is left out: it changed" in found.left_out[0]
