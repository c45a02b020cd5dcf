"""Boxes through the real E2B SDK: a command (also against a stub that answers at once), slime's polling, an upload."""

import asyncio
import json
import time
from statistics import median

from bench import machine
from bench.direct import BY_ENGINE, ENGINE_WAY
from bench.peer import Peer, PeerFailed
from bench.results import Figure, Side
from bench.samples import image_of, sample
from bench.stub import stub
from bench.subject import Bench, Served, served

POLLED = 64
PERIOD_S = 5.0
"""Seconds between two polls of a box, as in slime's exec_and_wait."""
_POLL = "test -f /tmp/.run.done && cat /tmp/.run.done || true"
_FIRST_POLLS = 5
_UPLOAD_MB = 190
_FIRST = 20
"""Uncounted commands before each block."""
_LOOK_S = 0.2


async def measure(bench: Bench) -> None:
    """Ours and the stub alternating, then 64 boxes that do nothing but answer polls."""
    one = sample()
    settings = {
        "SANDBOX_BOX_TEMPLATES": json.dumps({"base": image_of(one.row)}),
        "SANDBOX_MAX_SESSIONS": str(POLLED + 16),
    }
    ours, stream, plain = Peer("e2b", "e2b"), Peer("e2b", "e2b"), Peer("e2b", "e2b")
    async with served(bench, [one.row], **settings) as server, stub() as nothing:
        try:
            await ours.ask("open", url=server.process.url, n=1)
            await plain.ask("open", url=nothing, n=1)
            async with served(bench, [one.row], **settings, **BY_ENGINE) as by_engine:
                await stream.ask("open", url=by_engine.process.url, n=1)
                await _commands(bench, ours, stream, plain)
                await stream.close()
            await _upload(bench, ours, server)
            created = await ours.ask("open", url=server.process.url, n=POLLED - 1, timeout_s=300)
            bench.add(Figure("e2b_create_ms", "ms", Side.median(created["ms"]), note="four at a time"))
            await _polled(bench, ours, server)
        except PeerFailed as error:
            bench.miss("boxes: the E2B SDK", error)
        finally:
            await asyncio.gather(ours.close(), stream.close(), plain.close())


async def _commands(bench: Bench, ours: Peer, stream: Peer, plain: Peer) -> None:
    took: dict[str, list[float]] = {"ours": [], "stream": [], "stub": []}
    for _ in range(bench.of(10, 3)):
        for name, peer in (("ours", ours), ("stream", stream), ("stub", plain)):
            took[name] += (await peer.ask("run", command="true", times=_FIRST + 50))["ms"][_FIRST:]
    own = median(took["stub"])
    fifos, engine = (Side.median([ms - own for ms in took[name]]) for name in ("ours", "stream"))
    bench.add(
        Figure("e2b_true_ms", "ms", fifos, engine, ENGINE_WAY, "without the SDK's own cost"),
        Figure("e2b_sdk_ms", "ms", Side.median(took["stub"]), note="the SDK against a stub that answers at once"),
        Figure("e2b_true_p99_ms", "ms", Side.p99(took["ours"]), note="the SDK's own cost included"),
    )


async def _upload(bench: Bench, ours: Peer, server: Served) -> None:
    pid = server.process.pid
    before = most = machine.rss_mb(pid)
    sending = asyncio.create_task(ours.ask("upload", megabytes=_UPLOAD_MB, timeout_s=120))
    while not sending.done():
        most = max(most, machine.rss_mb(pid))
        await asyncio.sleep(_LOOK_S)
    bench.add(
        Figure("e2b_upload_s", "s", Side((await sending)["s"], 1), note=f"{_UPLOAD_MB} MiB"),
        Figure("e2b_upload_rss_mb", "MB", Side(most - before, 1), note="by which the server's process grew meanwhile"),
    )


async def _polled(bench: Bench, ours: Peer, server: Served) -> None:
    seconds = bench.of(30, 10)
    redis = machine.redis_pid(server.data_dir)
    pids = [server.process.pid, *machine.engine_pids(), *([redis] if redis is not None else [])]

    def spent() -> tuple[float, float, float]:
        """CPU seconds of the host's processes, CPU seconds of all processes, wall seconds."""
        return sum(map(machine.cpu_s, pids)), machine.busy_s(), time.monotonic()

    # afterwards everything that first commands open is open, and their login profiles are learned
    await ours.ask("poll", command=_POLL, period_s=PERIOD_S, seconds=_FIRST_POLLS * PERIOD_S)
    began = spent()
    await asyncio.sleep(bench.of(15, 5))
    idle_host, idle_all, idle_s = (now - then for now, then in zip(spent(), began, strict=True))
    others = (idle_all - idle_host) / idle_s  # load of other processes on the machine; the boxes do nothing
    began = spent()
    polled = await ours.ask("poll", command=_POLL, period_s=PERIOD_S, seconds=seconds)
    host_s, all_s, took_s = (now - then for now, then in zip(spent(), began, strict=True))
    ours_s = all_s - polled["cpu_s"] - others * took_s
    what = f"{POLLED} boxes, a command in {PERIOD_S:g} s each, of one core"
    bench.add(
        Figure(
            "e2b_polled64_pct",
            "%",
            Side(100 * ours_s / took_s, 1),
            note=f"{what}; the whole machine but the SDK and the {100 * others:.1f} % that others used before",
        ),
        Figure("e2b_polled64_host_pct", "%", Side(100 * host_s / took_s, 1), note="server, Redis and engine of it"),
        Figure("e2b_idle64_host_pct", "%", Side(100 * idle_host / idle_s, 1), note="the same before, without commands"),
        Figure("e2b_poll_ms", "ms", Side.median(polled["ms"]), note="the SDK's own cost included"),
    )
