"""`sandbox-server images ...`: build helper and sample images, prepare images ahead of sessions, remove unused ones."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import typer

from sandbox_server.app.catalogue import open_catalogue
from sandbox_server.app.engine import engine_url, open_runtime
from sandbox_server.app.limits import image_rules
from sandbox_server.app.state import open_connection
from sandbox_server.app.workspaces import open_workspaces
from sandbox_server.catalogue.instances import Instances
from sandbox_server.cli import configuration, signalled
from sandbox_server.cli.kit import kit_path
from sandbox_server.cli.progress import progress
from sandbox_server.errors import ServiceError
from sandbox_server.images.engine_disk import last_use
from sandbox_server.sandbox.base import StoredImage
from sandbox_server.sandbox.image_names import tagged
from sandbox_server.settings import Settings
from sandbox_server.state.image_uses import ImageUses
from sandbox_server.state.keys import Keys

app = typer.Typer(no_args_is_help=True)

_ALL = 1_000_000
_TOGETHER = 1000  # instances whose repositories are fetched together


class Built(StrEnum):
    """An argument of `images build`; SAMPLES stands for several images."""

    EGRESS = "egress"
    SEARCH = "search"
    SAMPLES = "samples"


@dataclass(frozen=True, slots=True)
class _Known:
    image: StoredImage
    last_use: float


@app.command("build", epilog="Example: sandbox-server images build search")
def build(what: list[Built] = typer.Argument(metavar="IMAGE", help="egress, search or samples.")) -> None:  # noqa: B008 -- typer reads it
    """Build the image for network rules, the one for code search, or those of the samples; does nothing if up to date.

    They are made of Debian's packages: as root on Debian by mmdebstrap, which is installed if missing, otherwise on
    debian:bookworm-slim, which Docker pulls. BASE_IMAGE names another Debian image.
    """
    settings = configuration.load()
    environment = {"PYTHON": sys.executable, **os.environ}  # builds the samples
    if url := engine_url(settings):
        environment["DOCKER_HOST"] = url
    commands: dict[Built, tuple[str, ...]] = {
        Built.EGRESS: ("scripts/egress-image.sh",),
        Built.SEARCH: ("scripts/search-image.sh", settings.search_image),
        Built.SAMPLES: ("scripts/images.sh",),
    }
    for one in what:
        script, *arguments = commands[one]
        done = subprocess.run(["sh", str(kit_path(script)), *arguments], env=environment, check=False)
        if done.returncode:
            raise SystemExit(f"error: the images of {one} could not be built; see above")
        typer.echo(f"{one}: up to date")


@app.command("prepare", epilog="Example: sandbox-server images prepare samples__ledger-12")
def prepare(
    ids: list[str] | None = typer.Argument(None, metavar="ID", help="Ids of instances; none: all."),  # noqa: B008 -- typer reads it
) -> None:
    """Prepare the images of these instances, or of all, so that a first start is as fast as later ones."""
    if failed := signalled.run(_prepare(ids or [])):
        raise SystemExit(f"error: {failed} images could not be prepared")


@app.command("list", epilog="Example: sandbox-server images list")
def list_images() -> None:
    """List prepared images and the catalogue's task images: last use, size, what keeps them, name."""
    settings = configuration.load()
    shown = asyncio.run(_known(settings))
    for known in sorted(shown, key=lambda known: known.last_use):
        kept = "in use" if known.image.used else "pinned" if image_rules(settings).is_pinned(known.image) else ""
        at = datetime.fromtimestamp(known.last_use, UTC)
        typer.echo(
            f"{at:%Y-%m-%d %H:%M}  {known.image.size_bytes >> 20:>6} MB  {kept:<6}  {' '.join(known.image.names)}"
        )
    mb = sum(known.image.size_bytes for known in shown) >> 20
    typer.echo(f"{len(shown)} images, {mb} MB without shared layers; times of the last use, UTC")


@app.command("prune", epilog="Example: sandbox-server images prune --older-than 7d")
def prune(
    older_than: str = typer.Option("0m", metavar="AGE", help="Only images not used for this time: 90m, 36h or 7d."),
) -> None:
    """Remove prepared images that no container uses and no pattern pins; they are prepared again when needed."""
    match = re.fullmatch(r"(\d{1,6})([mhd])", older_than)
    if match is None:
        raise SystemExit(f"error: --older-than {older_than}: use a number and m, h or d, such as 36h")
    age = timedelta(**{{"m": "minutes", "h": "hours", "d": "days"}[match[2]]: int(match[1])})
    removed, kept = asyncio.run(_prune(configuration.load(), time.time() - age.total_seconds()))
    typer.echo(f"{removed} prepared images removed, {kept} kept: in use, pinned or used since")


async def _prepare(ids: list[str]) -> int:
    settings = configuration.load()
    failed = 0
    async with (
        open_catalogue(settings) as database,
        open_runtime(settings, guest=f"prepare-{os.getpid()}") as runtime,
        open_workspaces(settings, runtime) as workspaces,
    ):
        instances = Instances(database)
        wanted = ids or [summary.instance_id for summary in await instances.list(limit=_ALL)]
        for chunk in (wanted[start : start + _TOGETHER] for start in range(0, len(wanted), _TOGETHER)):
            with suppress(ServiceError):  # reported below, by instance
                await workspaces.fetch([await instances.by_id(instance_id) for instance_id in chunk])
        with progress("images", len(wanted)) as bar:
            for instance_id in wanted:
                began = time.monotonic()
                try:
                    prepared = await workspaces.prepared(await instances.by_id(instance_id))
                except ServiceError as e:
                    failed += 1
                    bar.print(f"{instance_id}: {e.detail}", err=True)
                else:
                    bar.print(f"{instance_id}: {prepared.image} ({time.monotonic() - began:.1f} s)")
                    if prepared.left_out:
                        bar.print(f"{instance_id}: without {prepared.left_out}", err=True)
                bar.ran()
    return failed


async def _prune(settings: Settings, before: float) -> tuple[int, int]:
    rules = image_rules(settings)
    removed = 0
    while True:  # an image that another one is based on can be removed after that one
        prepared = [known for known in await _known(settings) if rules.is_prepared(known.image)]
        may_go = [known for known in prepared if known.last_use <= before and rules.may_go(known.image, ())]
        if not (now := await _remove(settings, may_go)):
            return removed, len(prepared)
        removed += now


async def _remove(settings: Settings, images: Sequence[_Known]) -> int:
    removed = 0
    async with open_runtime(settings) as runtime, _image_uses(settings) as uses:
        for known in images:
            gone = [name for name in known.image.names if await runtime.images.remove(name)]
            await uses.forget(gone)
            removed += len(gone) == len(known.image.names)
    return removed


async def _known(settings: Settings) -> list[_Known]:
    """The images that this service manages."""
    rules = image_rules(settings)
    async with (
        open_catalogue(settings) as database,
        open_runtime(settings) as runtime,
        _image_uses(settings) as uses,
    ):
        catalogue = set(map(tagged, await Instances(database).images()))
        used = await uses.all()
        return [
            _Known(image, last_use(image, used))
            for image in await runtime.images.stored()
            if rules.is_prepared(image) or not catalogue.isdisjoint(image.names)
        ]


@asynccontextmanager
async def _image_uses(settings: Settings) -> AsyncIterator[ImageUses]:
    async with open_connection(settings) as connection:
        yield ImageUses(connection, Keys(), node=settings.node_id)
