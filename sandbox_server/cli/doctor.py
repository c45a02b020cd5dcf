"""`sandbox-server doctor`: check everything that a server needs, and say how to fix what is wrong."""

import asyncio
import difflib
import os
import secrets
import shutil
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import typer

from sandbox_server.app.catalogue import open_catalogue
from sandbox_server.app.data_disk import free_bytes, probe_write
from sandbox_server.app.data_folder import too_permissive_paths, why_shared
from sandbox_server.app.engine import disk_path, open_runtime
from sandbox_server.catalogue.certificates import Certificates
from sandbox_server.catalogue.instances import Instances
from sandbox_server.checkpoints.objects import Objects, ObjectsUnavailable
from sandbox_server.cli import api, configuration
from sandbox_server.errors import ServiceError
from sandbox_server.grading.drift import PART, drifted
from sandbox_server.images.engine_disk import used_pct
from sandbox_server.settings import REMOVED, Settings
from sandbox_server.state.connection import Connection
from sandbox_server.state.embedded import find_binary
from sandbox_server.state.keys import Keys

app = typer.Typer()

_CHECK_S = 20.0  # for each check; a healthy part answers within one second
_LOW_DISK_GB = 10.0
_CLOCK_S = 5.0  # deadlines are compared between hosts
_LOOKED_AT = 1000  # instances whose image is checked
_KEY_CHARACTERS = 16
_ALIKE = 0.88  # SANDBOX_COMMAND_TIMEOUT is 0.96 like SANDBOX_COMMAND_TIMEOUT_S


class _Unwell(Exception):
    """A check failed; the text says why, and what to do."""


@app.command(epilog="Example: sandbox-server doctor")
def doctor() -> None:
    """Check engine, Redis, SQL, disks, images, clocks and the grading libraries; exit code 1 if a check fails."""
    settings = configuration.load()
    checks: dict[str, Callable[[Settings], Awaitable[str]]] = {
        "settings": _settings,
        "engine": _engine,
        "clock": _clock,
        "redis": _redis,
        "sql": _sql,
        "data": _data,
        "disk": _disk,
        "checkpoints": _checkpoints,
        "images": _images,
        "gold": _gold,
        "confirming": _confirming,
        "swebench 4.1.0": _swebench4,
        "server": _server,
    }
    if unwell := asyncio.run(_examine(settings, checks)):
        raise SystemExit(f"{unwell} of {len(checks)} not well")


async def _examine(settings: Settings, checks: dict[str, Callable[[Settings], Awaitable[str]]]) -> int:
    unwell = 0
    for name, check in checks.items():
        try:
            async with asyncio.timeout(_CHECK_S):
                sign, said = "ok  ", await check(settings)
        except TimeoutError:
            sign, said = "FAIL", f"no answer within {_CHECK_S:g} s"
        except (_Unwell, ServiceError) as e:
            sign, said = "FAIL", str(e)
        unwell += sign == "FAIL"
        typer.echo(f"{sign}  {name:<15} {said}")
    return unwell


async def _settings(settings: Settings) -> str:
    known = {f"SANDBOX_{name.upper()}" for name in Settings.model_fields}
    given = {name for name in os.environ if name.startswith("SANDBOX_")}
    said = f"{len(given & known)} given as variables"
    # most are other programs'; a misspelled setting would be ignored silently
    for name in sorted(given - known - REMOVED.keys()):
        if meant := difflib.get_close_matches(name, known, 1, _ALIKE):
            said += f"; {name} is none of the server's settings: is {meant[0]} meant?"
    said += "".join(f"; {sentence}" for sentence in configuration.without_effect())
    entries = (entry.get_secret_value().rstrip("=") for entry in (*settings.api_keys, *settings.view_keys))
    if short := sum(len(entry.rpartition("=")[2]) < _KEY_CHARACTERS for entry in entries):
        said += f"; {short} API keys have under {_KEY_CHARACTERS} characters and can be guessed: openssl rand -hex 32"
    return said


async def _engine(settings: Settings) -> str:
    async with open_runtime(settings) as runtime:
        facts = await runtime.facts()
        containers = await runtime.list()
    if not facts.seccomp and settings.seccomp != "engine":
        raise _Unwell(
            f"{facts.product} {facts.version} cannot apply seccomp profiles, so containers with"
            f" SANDBOX_SECCOMP={settings.seccomp} do not start; use a kernel with CONFIG_SECCOMP_FILTER, or accept all"
            " system calls: SANDBOX_SECCOMP=engine"
        )
    # a name with dots is of a containerd shim, which the engine finds on PATH
    if settings.runtime and facts.runtimes and settings.runtime not in facts.runtimes and "." not in settings.runtime:
        raise _Unwell(
            f"the engine has no runtime {settings.runtime} (SANDBOX_RUNTIME), so no container starts; it has"
            f" {', '.join(sorted(facts.runtimes))}: name one of these, or add it to /etc/docker/daemon.json"
        )
    way = f"the engine ({facts.without_fifos})" if facts.without_fifos else "FIFOs where the image has `script`"
    return (
        f"{facts.product} {facts.version} at {facts.url}, {facts.storage_driver}, {facts.cpus} CPUs,"
        f" {facts.memory_mb >> 10} GB, seccomp profile: {settings.seccomp if facts.seccomp else 'none'};"
        f" shells by {way}; {len(containers)} containers of node {settings.node_id}"
    )


async def _clock(settings: Settings) -> str:
    async with open_runtime(settings) as runtime:
        facts = await runtime.facts()
    off_s = abs((datetime.now(UTC) - facts.time).total_seconds())
    if off_s > _CLOCK_S:
        raise _Unwell(f"the engine's clock is {off_s:.1f} s from ours; run chrony or ntpd on both hosts")
    return f"the engine's is {off_s:.1f} s from ours"


async def _redis(settings: Settings) -> str:
    if not settings.redis_url:
        return f"embedded, {await asyncio.to_thread(find_binary)}, data in {settings.data_dir}"
    connection = Connection(settings.redis_url, timeout_s=settings.redis_timeout_s)
    try:
        if unfit := await connection.unfit():  # first: a node of a cluster refuses writes in words of its own
            raise _Unwell(unfit)
        await connection.check(Keys().written(f"doctor-{settings.node_id}"))
    finally:
        await connection.close()
    return "external, answers and takes writes"


async def _sql(settings: Settings) -> str:
    async with open_catalogue(settings) as database:
        await database.try_write()
        count = await Instances(database).count()
    kind = settings.database.split(":", 1)[0]
    return f"{kind}, takes writes, {count} instances" + (
        "" if count else "; `sandbox-server instances import FILE` adds some"
    )


async def _data(settings: Settings) -> str:
    folder = settings.data_dir
    if not folder.is_dir():
        return f"{folder} is created by the first server"
    free_mb = await asyncio.to_thread(free_bytes, folder) / 2**20
    said = f"{free_mb:.0f} MB free in {folder}"
    if free_mb < settings.data_min_free_mb:
        raise _Unwell(f"{said}, below SANDBOX_DATA_MIN_FREE_MB={settings.data_min_free_mb:g}: free some")
    if wrong := await asyncio.to_thread(probe_write, folder):
        raise _Unwell(wrong)
    if shared := why_shared(folder):
        raise _Unwell(shared)
    if open_to_others := await asyncio.to_thread(lambda: list(too_permissive_paths(folder))):
        raise _Unwell(
            f"{len(open_to_others)} paths are open to other users of this host, e.g. {open_to_others[0]}; a server"
            f" restricts them at its start, or: chmod -R go= {folder}"
        )
    return f"{said}, accessible only to its user"


async def _disk(settings: Settings) -> str:
    async with open_runtime(settings) as runtime:
        facts = await runtime.facts()
        watched = await disk_path(settings, runtime)
    free = {}
    for folder in (settings.data_dir, Path(facts.root_dir)):
        there = next(parent for parent in (folder, *folder.parents) if parent.exists())
        free[str(folder)] = shutil.disk_usage(there).free / 2**30
    said = ", ".join(f"{gb:.0f} GB free for {folder}" for folder, gb in free.items())
    used = used_pct(watched)
    said += (
        f"; {watched} is {used:.0f} % full: images are removed above {settings.disk_high_pct:g} % until below"
        f" {settings.disk_low_pct:g} %, starts are refused above {settings.disk_refuse_pct:g} %"
    )
    if min(free.values()) < _LOW_DISK_GB or used >= settings.disk_refuse_pct:
        raise _Unwell(f"{said}; free some: `docker system df`, `sandbox-server images prune`")
    return said


async def _checkpoints(settings: Settings) -> str:
    url, key = settings.checkpoints_url, f"doctor/{secrets.token_hex(8)}"
    if not url:
        return "in the data folder of each node (SANDBOX_CHECKPOINTS_URL names no object store)"
    try:
        objects = Objects(url, timeout_s=_CHECK_S / 4)
        await objects.put(key, b"tried")
        found = await objects.get(key, 100)
        await objects.remove(key)
    except (ObjectsUnavailable, ValueError) as error:
        raise _Unwell(
            f"{url} cannot be used, so nodes restore sessions by running all actions again: {error}"
        ) from error
    if found != b"tried":
        raise _Unwell(f"{url} gave back something else than was written; look at its rules")
    return f"{url} is written and read"


async def _images(settings: Settings) -> str:
    missing, searching = [], 0
    async with open_catalogue(settings) as database, open_runtime(settings) as runtime:
        instances = Instances(database)
        summaries = await instances.list(gradable=True, limit=_LOOKED_AT)
        for summary in summaries:
            instance = await instances.by_id(summary.instance_id)
            if instance.sandbox.source and not instance.sandbox.images:
                searching += 1
            elif not any([await runtime.images.find(name) for name in instance.sandbox.images]):
                missing.append(summary.instance_id)
        if searching and await runtime.images.find(settings.search_image) is None:
            raise _Unwell(
                f"{searching} of {len(summaries)} instances start from {settings.search_image}, which is missing; build"
                " it: `sandbox-server images build search`"
            )
    if missing and settings.pull == "never":
        raise _Unwell(
            f"{len(missing)} of {len(summaries)} instances have no image here, e.g. {missing[0]}; load or build it"
        )
    if missing:
        return f"{len(missing)} of {len(summaries)} instances have no image here; each is pulled at its first start"
    return f"all {len(summaries)} instances have their image"


async def _server(settings: Settings) -> str:
    where = f"{settings.host}:{settings.port}"
    try:
        ready = await asyncio.to_thread(api.readiness)
    except api.NoServer:
        return f"none runs at {where}; `sandbox-server serve` starts one"
    if failing := ready["failing_loops"]:
        said = "; ".join(f"{loop} {error}" for loop, error in failing.items())
        raise _Unwell(f"background work of the server at {where} fails: {said}; its log has the stack")
    if not ready["ready"]:
        bad = "; ".join(f"{part}: {said}" for part, said in ready["parts"].items() if said != "ok")
        raise _Unwell(f"the server at {where} is not ready: {bad}")
    return f"ready at {where}"


async def _gold(settings: Settings) -> str:
    async with open_catalogue(settings) as database:
        failing = drifted(await Certificates(database).everywhere(PART))
        count = len(await Instances(database).sound())
    if failing:
        name, said = next(iter(failing.items()))
        raise _Unwell(
            f"the gold patch of {len(failing)} instances no longer resolves them, e.g. {name} ({said});"
            f" `sandbox-server instances certify --again {name}` has details"
        )
    return f"{count} instances are sound, none failed its last check (SANDBOX_DRIFT_CHECK_S)"


async def _confirming(settings: Settings) -> str:
    async with open_catalogue(settings) as database:
        count = await Instances(database).count(gradable=True)
        newest: dict[str, bool] = {}
        for key, none in await Certificates(database).without_variants():
            newest.setdefault(key.instance_id, none)
    lacking = [name for name, none in newest.items() if none]
    said = (
        f"{len(newest)} of {count} instances were tried for false tests (`instances certify`), {len(lacking)} have none"
    )
    if not lacking or settings.confirm == "off":
        return said
    worth = (
        "there a fake that passes the tests gets a reward"
        if settings.unconfirmed == "pay"
        else "there no patch gets a reward"
    )
    return f"{said}, e.g. {lacking[0]}: {worth} (SANDBOX_UNCONFIRMED={settings.unconfirmed})"


async def _swebench4(settings: Settings) -> str:
    folder = settings.swebench4_dir or Path(sys.prefix, "share", "swebench-4.1.0")
    if not (folder / "swebench").is_dir():
        raise _Unwell(
            f"{folder} does not have it, so old SWE-bench rows cannot be imported; to install it:"
            f" pip install --no-deps --target {folder} swebench==4.1.0"
        )
    return str(folder)
