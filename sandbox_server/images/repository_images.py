"""Makes the task images of instances that name a repository: a base image with the tree at the commit.

Each image is made once per repository, commit, patch and base image. The repository comes from this host's mirrors as
a pack of that commit's objects, so nothing that was committed later ever reaches the engine.
"""

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import resources
from pathlib import Path

from sandbox_server import telemetry
from sandbox_server.catalogue.instance import GitSource
from sandbox_server.catalogue.repositories import Mirrors, Pack
from sandbox_server.errors import RepositoryUnavailable
from sandbox_server.images.preparing import REPOSITORY, Preparing
from sandbox_server.sandbox.base import ImageInfo, Sandbox

log = telemetry.logger(__name__)

LEFT_OUT_LABEL = "sandbox.left_out"
"""The parts of the repository that are missing in an image; images made from it inherit the label."""
_SCRIPT = resources.files(__package__).joinpath("repository.bash").read_text()
_PACK = "/var/lib/sandbox/repository.pack"
_CHUNK = 16 << 20
_TOLD = 1000  # maximum characters of the label


class RepositoryImages:
    """Makes task images from the mirrors."""

    def __init__(self, mirrors: Mirrors, preparing: Preparing) -> None:
        self._mirrors = mirrors
        self._preparing = preparing

    @staticmethod
    def facts(source: GitSource) -> list[str]:
        """The inputs that this part adds to an image, for the hash in the image's name."""
        return [source.name, _SCRIPT]

    async def fetch(self, sources: Sequence[GitSource]) -> None:
        """Fetch the sources' commits, with one fetch per repository; ignores RepositoryUnavailable."""
        found = await asyncio.gather(*map(self._mirrors.ensure, sources), return_exceptions=True)
        for error in found:
            if isinstance(error, BaseException) and not isinstance(error, RepositoryUnavailable):
                raise error

    async def image(self, source: GitSource, base: ImageInfo, workdir: str) -> ImageInfo:
        """The image of `base` with the repository in `workdir`; makes it if necessary.

        Raises:
            RepositoryUnavailable, ImageUnavailable, EngineUnavailable.

        """
        facts = json.dumps([base.digest, workdir, *self.facts(source)])
        name = f"{REPOSITORY}:repository-{hashlib.sha256(facts.encode()).hexdigest()[:24]}"
        return await self._preparing.once(name, partial(self._make, name, source, base, workdir))

    async def _make(self, name: str, source: GitSource, base: ImageInfo, workdir: str) -> ImageInfo:
        async with self._mirrors.packed(source) as pack:
            return await self._preparing.freeze(name, base.name, partial(self._fill, source, pack, workdir))

    async def _fill(self, source: GitSource, pack: Pack, workdir: str, sandbox: Sandbox) -> Mapping[str, str]:
        what = f"{source}"
        await self._preparing.run(sandbox, ["mkdir", "-p", str(Path(_PACK).parent)], cwd="/", what=what)
        with await asyncio.to_thread(pack.path.open, "rb") as stream:
            while chunk := await asyncio.to_thread(stream.read, _CHUNK):
                append = ["bash", "-c", 'cat >> "$0"', _PACK]
                await self._preparing.run(sandbox, append, cwd="/", what=what, stdin=chunk)
        argv = ["bash", "-c", _SCRIPT, "repository", workdir, _PACK, pack.commit, " ".join(pack.shallow)]
        submodules = (await self._preparing.run(sandbox, argv, cwd="/", what=what)).splitlines()
        if not submodules:
            return {}
        left_out = f"submodules, which are empty folders: {', '.join(submodules)}"[:_TOLD]
        log.warning("repository without its submodules", source=what, left_out=left_out)
        return {LEFT_OUT_LABEL: left_out}
