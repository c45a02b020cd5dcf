"""Builds the parts that prepare images, fetch repositories and capture patches, from the settings."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandbox_server.app.limits import limits_of
from sandbox_server.catalogue.git_fetch import MirrorConfig
from sandbox_server.catalogue.repositories import Mirrors
from sandbox_server.images.built_images import BuiltImages
from sandbox_server.images.preparing import Preparing
from sandbox_server.images.repository_images import RepositoryImages
from sandbox_server.images.workspaces import Workspaces
from sandbox_server.sandbox.base import Runtime
from sandbox_server.scoring.captures import Captures
from sandbox_server.settings import Settings

_PREPARE_S = 1800.0  # to repack a large history on a busy disk; starts give up long before, but it continues


@asynccontextmanager
async def open_mirrors(settings: Settings) -> AsyncIterator[Mirrors]:
    """The mirrors of repositories on this host, created and fetched on demand."""
    mirrors = Mirrors(
        MirrorConfig(
            folder=settings.repositories,
            url=settings.repository_url,
            folders=settings.repository_folders,
            protocols=settings.repository_protocols,
            fetch_timeout_s=settings.repository_fetch_timeout_s,
            silence_s=settings.repository_silence_s,
            attempts=settings.repository_attempts,
            concurrency=settings.repository_fetches,
            max_bytes=settings.repositories_max_mb << 20,
        )
    )
    try:
        yield mirrors
    finally:
        await mirrors.close()


@asynccontextmanager
async def open_workspaces(settings: Settings, runtime: Runtime) -> AsyncIterator[Workspaces]:
    """The preparation of images, configured by the settings."""
    limits = limits_of(settings)
    preparing = Preparing(runtime, limits=limits, timeout_s=_PREPARE_S)
    async with open_mirrors(settings) as mirrors:
        repositories = RepositoryImages(mirrors, preparing)
        built = BuiltImages(
            runtime,
            preparing,
            memory_mb=limits.memory_mb,
            at_once=settings.task_builds,
            most_s=settings.task_build_s,
        )
        yield Workspaces(runtime, preparing, repositories, built, limits=limits, search_image=settings.search_image)


def captures_of(settings: Settings, runtime: Runtime) -> Captures:
    """Build the capture of the patches of sessions that end."""
    return Captures(
        runtime,
        timeout_s=settings.postprocess_timeout_s,
        max_bytes=int(settings.max_patch_mb * 2**20),
        cpu_shares=settings.grade_cpu_shares,
    )
