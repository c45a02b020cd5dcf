"""Faults of Redis and of the way to it: each an error of ours, in bounded time."""

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from sandbox_server.cli import doctor
from sandbox_server.errors import StateUnavailable
from sandbox_server.settings import Settings
from sandbox_server.state.connection import Connection, Script
from sandbox_server.state.embedded import find_binary
from sandbox_server.state.keys import Keys
from sandbox_server.state.store import Store

from .rollout import session


async def test_a_redis_that_hangs_is_an_error_within_the_bound(url: str, keys: Keys) -> None:
    """A request would hang with it."""
    connection = Connection(url, timeout_s=1)
    store = Store(connection, keys, node="n1", lock_lease_s=30, result_ttl_s=60)
    await store.check()
    async with Redis.from_url(url) as admin:
        process = (await admin.info("server"))["process_id"]
    os.kill(process, signal.SIGSTOP)
    try:
        async with asyncio.timeout(60):
            with pytest.raises(StateUnavailable, match=r"\b1 s|Timeout"):
                await store.session("7")
    finally:
        os.kill(process, signal.SIGCONT)
    assert await store.session("7") is None
    await connection.close()


async def test_a_full_redis_says_what_to_do(url: str, connection: Connection, keys: Keys) -> None:
    """The operator reads a line number of a script of ours."""
    admin = Redis.from_url(url)
    await admin.config_set("maxmemory", "1")
    try:
        for writing in (
            connection.send("SET", keys.nodes, "1"),
            connection.script(Script("return redis.call('SET', KEYS[1], '1')"), [keys.nodes], []),
            connection.run(connection.redis.set(keys.nodes, "1")),
        ):
            with pytest.raises(StateUnavailable, match=r"maxmemory.*; its memory is full: raise it"):
                await writing
    finally:
        await admin.config_set("maxmemory", "0")
        await admin.aclose()
    assert await connection.send("SET", keys.nodes, "1") == b"OK"


async def test_a_redis_that_evicts_is_not_fit(url: str, connection: Connection) -> None:
    """Live sessions vanish once its memory is full, and neither `doctor` nor the server's start said so."""
    admin = Redis.from_url(url)
    assert await connection.unfit() == ""
    await admin.config_set("maxmemory-policy", "allkeys-lru")
    try:
        assert await connection.unfit() == "", "without a bound nothing is dropped"
        await admin.config_set("maxmemory", str(1 << 40))
        assert "(maxmemory-policy allkeys-lru): set it to noeviction" in await connection.unfit()
    finally:
        await admin.config_set("maxmemory", "0")
        await admin.config_set("maxmemory-policy", "noeviction")
    await admin.acl_setuser("narrow", enabled=True, nopass=True, keys=["*"], categories=["+@all"], commands=["-info"])
    await admin.aclose()
    user = Connection(f"{url}{'&' if '?' in url else '?'}username=narrow&password=x", timeout_s=5)
    assert await user.unfit() == "", "it need not be allowed to ask"
    await user.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The URL of a node of a Redis Cluster."""
    port = 10_000 + secrets.randbelow(12_000)  # it also takes this port + 10,000: below those that the kernel gives out
    words = ["--port", str(port), "--bind", "127.0.0.1", "--cluster-enabled", "yes", "--dir", str(tmp_path)]
    with subprocess.Popen([find_binary(), *words, "--save", ""], stdout=subprocess.DEVNULL) as process:
        yield f"redis://127.0.0.1:{port}"
        process.kill()


async def test_a_cluster_is_not_fit(cluster: str, tmp_path: Path) -> None:
    """`doctor` told what a node of a cluster says to the first write, CLUSTERDOWN or MOVED, and no way out."""
    connection = Connection(cluster, timeout_s=5, outage_s=60)
    await connection.send("PING")  # this waits until it listens, `unfit` does not
    assert "it is a Redis Cluster: use one Redis" in await connection.unfit()
    await connection.close()
    with pytest.raises(doctor._Unwell, match="Redis Cluster"):
        await doctor._redis(Settings(redis_url=cluster, data_dir=tmp_path))


@pytest.mark.parametrize(
    ("spoil", "mend", "said"),
    [
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0"), "raise it"),
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE"), "SANDBOX_REDIS_URL has to name the primary"),
    ],
)
async def test_a_redis_that_takes_no_writes_is_not_ready(
    url: str, keys: Keys, spoil: tuple[str, ...], mend: tuple[str, ...], said: str
) -> None:
    """It answered a ping, so /readyz and `doctor` said ok, and a balancer sent it the starts that it refused."""
    connection = Connection(url, timeout_s=5, outage_s=60)
    store = Store(connection, keys, node="n1", lock_lease_s=30, result_ttl_s=60)
    admin = Redis.from_url(url)
    try:
        await store.check()
        assert 0 < await admin.ttl(keys.written("n1")) <= 60
        await admin.execute_command(*spoil)
        with pytest.raises(StateUnavailable, match=said):
            async with asyncio.timeout(20):  # a readiness that waits for the end of an outage tells nothing
                await store.check()
    finally:
        await admin.execute_command(*mend)
        await admin.aclose()
    await store.check()
    await connection.close()


async def test_a_cancellation_is_never_swallowed(url: str) -> None:
    """A shutdown, or a request past its deadline, would wait for ever: redis-py loses one that comes as it connects."""

    async def ping_for_ever(connection: Connection) -> None:
        while True:
            await connection.run(connection.redis.ping())

    for pause_s in [i * 0.0002 for i in range(40)]:
        connection = Connection(url, timeout_s=5)
        task = asyncio.create_task(ping_for_ever(connection))
        await asyncio.sleep(pause_s)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=20)
        assert done and task.cancelled(), pause_s
        await connection.close()


async def test_no_redis_is_an_error(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A fault of the client library would reach the caller."""
    connection = Connection(f"unix://{tmp_path_factory.mktemp('x')}/none.sock", timeout_s=0.5)
    store = Store(connection, Keys(), node="n1", lock_lease_s=30, result_ttl_s=60)
    with pytest.raises(StateUnavailable):
        await store.check()
    with pytest.raises(StateUnavailable):
        async with store.lock("7", 1):
            raise AssertionError
    await connection.close()


async def test_a_wrong_type_in_redis_is_an_error_of_ours(store: Store, connection: Connection, keys: Keys) -> None:
    """A script error would surface as an unknown exception."""
    await connection.run(connection.redis.set(keys.session("7"), "x"))
    with pytest.raises(StateUnavailable, match="WRONGTYPE"):
        await store.session("7")


async def test_a_line_that_died_is_opened_again_unseen(store: Store, connection: Connection) -> None:
    """A load balancer or Redis' own timeout closes an idle connection; the next action would fail."""
    await store.put_session(session())
    for _ in range(3):
        # from another connection than the line it closes
        await connection.run(connection.redis.client_kill_filter(_type="normal", skipme=True))
        assert (await store.session("7")).sid == "7"


async def test_exchanges_cut_off_together_are_each_answered(connection: Connection, keys: Keys) -> None:
    """One of them would get another's answer, or none."""

    async def echo(word: str) -> None:
        assert await connection.send("ECHO", word) == word.encode()

    for _ in range(5):
        asking = [asyncio.create_task(echo(f"{keys.prefix}{number}")) for number in range(200)]
        await connection.run(connection.redis.client_kill_filter(_type="normal", skipme=True))
        await asyncio.gather(*asking)


async def test_commands_sent_together_are_answered_in_order(url: str, connection: Connection, keys: Keys) -> None:
    """A reply to one of them for another exchange would be somebody else's session."""
    await connection.send("SET", keys.boots, "1")
    words = [("ECHO", str(number)) for number in range(300)]
    beside = [connection.send("ECHO", "beside"), connection.send_all(words), connection.send("ECHO", "after")]
    before, found, after = await asyncio.gather(*beside)
    assert (before, after) == (b"beside", b"after") and found == [b"%d" % number for number in range(300)]
    assert await connection.send_all([]) == [] and await connection.send_all(words[:1]) == [b"0"]
    with pytest.raises(StateUnavailable, match="WRONGTYPE"):
        await connection.send_all([*words[:2], ("HGETALL", keys.boots), ("LLEN", keys.boots), *words[:2]])
    cancelled = asyncio.create_task(connection.send_all(words))
    await asyncio.sleep(0)
    cancelled.cancel()
    assert await connection.send("ECHO", "next") == b"next"
    assert await connection.send("CLIENT", "KILL", "SKIPME", "no", "TYPE", "normal")
    assert await connection.send_all(words[:3]) == [b"0", b"1", b"2"], "by a new connection"


async def test_the_answer_to_a_cancelled_exchange_is_nobodys(connection: Connection) -> None:
    """A client hangs up, and every later action gets the answer of the one before it."""
    for _ in range(50):
        gone = asyncio.create_task(connection.send("ECHO", "gone"))
        await asyncio.sleep(0)
        gone.cancel()
        assert await connection.send("ECHO", "here") == b"here"
        with pytest.raises(asyncio.CancelledError):
            await gone


async def test_a_redis_that_forgot_the_scripts_is_given_them_again(store: Store, connection: Connection) -> None:
    """After a restart of Redis every action would fail."""
    await store.put_session(session())
    await connection.run(connection.redis.script_flush())
    assert await store.touch("7")


async def test_the_line_enters_with_password_and_database(tmp_path: Path) -> None:
    """A Redis shared between replicas asks for one; the pool would get in and the line would not."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["--port", str(port), "--bind", "127.0.0.1", "--requirepass", "p w", "--save", "", "--dir", str(tmp_path)]
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(find_binary(), *words, stdout=quiet)
    connection = Connection(f"redis://:p%20w@127.0.0.1:{port}/3", timeout_s=5)
    wrong = Connection(f"redis://:no@127.0.0.1:{port}/3", timeout_s=5)
    try:
        for _ in range(200):
            with contextlib.suppress(StateUnavailable):
                await connection.send("SET", "there", "1")
                break
            await asyncio.sleep(0.05)
        assert await connection.run(connection.redis.get("there")) == b"1"
        with pytest.raises(StateUnavailable, match="WRONGPASS"):
            await wrong.send("PING")
    finally:
        await connection.close()
        await wrong.close()
        process.kill()
        await process.wait()
