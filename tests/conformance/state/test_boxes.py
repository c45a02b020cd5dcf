"""What boxes are beyond their sessions, in Redis."""

import dataclasses
import hashlib
import time

import pytest

from sandbox_server.errors import MalformedRequest
from sandbox_server.records import BoxRecord, SessionKind
from sandbox_server.state.boxes import BoxFacts, CreateKey
from sandbox_server.state.connection import Connection
from sandbox_server.state.keys import Keys
from sandbox_server.state.store import Store

from .rollout import session

BOX = BoxRecord(
    sid="7",
    kind="e2b",
    image="image:1",
    template="base",
    metadata={"a b": "ü \udc80", "": "\0"},
    env={"X": "1"},
    user="root",
    token="secret",
    network="bridge",
    cpus=1.5,
    memory_mb=2048,
    disk_mb=10,
    last_s=time.time() + 1000,
    image_path="/bin",
    deny_out=("10.0.0.0/8",),
    owner="team",
)


@pytest.fixture
def facts(connection: Connection, keys: Keys) -> BoxFacts:
    return BoxFacts(connection, keys, result_ttl_s=600)


async def test_a_box_comes_back_as_it_was(facts: BoxFacts) -> None:
    """Any field lost or of another type would break a restart."""
    deadline = time.time() + 60
    await facts.put(BOX, deadline)
    assert await facts.with_session("7") == (None, BOX) and await facts.with_session("8") == (None, None)
    assert await facts.all(["7", "8"]) == {"7": BOX} and await facts.all([]) == {}
    assert await facts.of_token("secret") == "7" and await facts.of_token("Secret") is None
    changed = dataclasses.replace(BOX, deny_out=())
    await facts.put(changed, deadline)
    assert (await facts.with_session("7"))[1] == changed


async def test_a_box_of_a_newer_server_is_read(facts: BoxFacts, connection: Connection, keys: Keys) -> None:
    """A fleet could not be updated node by node."""
    text = BOX.to_json()
    await connection.send("SET", keys.box("7"), text[:-1] + ', "colour": "red"}')
    assert (await facts.with_session("7"))[1] == BOX


async def test_the_token_is_no_part_of_a_key(facts: BoxFacts, connection: Connection, keys: Keys) -> None:
    """Keys stand in logs of slow commands, where values do not."""
    await facts.put(BOX, time.time() + 60)
    key = CreateKey("idempotent", "what was asked")
    await facts.remember(key, "7")
    names = [name.decode() async for name in connection.redis.scan_iter(f"{keys.prefix}*")]
    assert len(names) == 3 and not any("secret" in name or "idempotent" in name for name in names)
    for name in names:
        assert await connection.run(connection.redis.pttl(name)) > 0, name
    assert await facts.created_by(key) == "7" and await facts.created_by(CreateKey("other", "")) is None


async def test_an_end_is_moved_both_ways_and_all_is_kept_as_long(
    facts: BoxFacts, store: Store, connection: Connection, keys: Keys
) -> None:
    """A box that was prolonged past its first end would be forgotten before the new one."""
    await store.put_session(session(instance_id="", deadline=time.time() + 60))
    await facts.put(BOX, time.time() + 60)
    for deadline in (time.time() + 5000, time.time() + 20):
        assert await facts.prolong(BOX, deadline)
        assert (await store.session("7")).deadline == deadline
        for key in (keys.session("7"), keys.box("7"), next(iter([k async for k in _token_keys(connection, keys)]))):
            left_s = await connection.run(connection.redis.pttl(key)) / 1000
            assert abs(left_s - (deadline - time.time() + 600)) < 5, key


async def _token_keys(connection: Connection, keys: Keys):
    async for name in connection.redis.scan_iter(f"{keys.prefix}boxtoken:*"):
        yield name


async def test_what_is_over_is_not_prolonged(facts: BoxFacts, store: Store) -> None:
    """A box that ended would be told to live, without a container."""
    await facts.put(BOX, time.time() + 60)
    assert not await facts.prolong(BOX, time.time() + 60)
    await store.put_session(session(instance_id="", deadline=time.time() - 1))
    assert not await facts.prolong(BOX, time.time() + 60)
    await store.put_session(session(instance_id="", deadline=time.time() + 60))
    await store.move(session(), "ending", frozenset({"live"}))
    assert not await facts.prolong(BOX, time.time() + 60)
    assert (await store.session("7")).kind is SessionKind.BOX


async def test_a_change_keeps_the_box_as_long_as_its_new_end(
    facts: BoxFacts, store: Store, connection: Connection, keys: Keys
) -> None:
    """A box that is paused for hours is forgotten when its first end has passed."""
    await store.put_session(session(deadline=time.time() + 60))
    await facts.put(BOX, time.time() + 60)
    assert await facts.change(BOX, time.time() + 6000)
    found = [name async for name in connection.redis.scan_iter(f"{keys.prefix}*") if b"box" in name]
    kept_s = [await connection.send("TTL", name) for name in (*found, keys.session("7"))]
    assert len(kept_s) == 3 and min(kept_s) > 6000


async def test_a_create_that_is_repeated_makes_one_box(facts: BoxFacts) -> None:
    """Both of two requests make one; or a retry is answered with a box that has ended."""
    key = CreateKey("k", "a box")
    assert [await facts.remember(key, made) for made in ("7", "8")] == ["7", "7"]
    assert await facts.remember(key, "8", instead="7") == "8" == await facts.created_by(key)


async def test_a_key_is_one_requests(facts: BoxFacts, connection: Connection, keys: Keys) -> None:
    """A client gets the box of another request; or a create that a server of before has noted is refused."""
    await facts.remember(CreateKey("k", "a box"), "7")
    other = CreateKey("k", "another box")
    with pytest.raises(MalformedRequest):
        await facts.created_by(other)
    with pytest.raises(MalformedRequest):
        await facts.remember(other, "8")
    assert await facts.created_by(CreateKey("k", "a box")) == "7"
    await connection.send("SET", keys.box_key(hashlib.sha256(b"old").hexdigest()), "9")
    assert await facts.created_by(CreateKey("old", "a box")) == "9"


async def test_changes_are_counted(facts: BoxFacts, store: Store) -> None:
    """A copy of before the last change is taken for the box as it is."""
    made = session(instance_id="", deadline=time.time() + 60)
    await store.put_session(made)
    await facts.put(BOX, time.time() + 60)
    assert [await facts.prolong(BOX, time.time() + 90), await facts.change(BOX, time.time() + 90)] == [1, 2]
    now = await store.session("7")
    assert now is not None and now.changes == 2 and not facts.is_behind(now) and facts.is_behind(made)
    facts.settle(made)
    assert not facts.is_behind(made)


async def test_a_change_is_of_live_boxes_only(facts: BoxFacts, store: Store) -> None:
    """A pause that revives a box that has ended, or that is written without its new end."""
    await store.put_session(dataclasses.replace(session("7", deadline=time.time() + 5), instance_id=""))
    await facts.put(BOX, time.time() + 5)
    paused, until = dataclasses.replace(BOX, paused_at=time.time(), pausable_s=90.0), time.time() + 90
    assert await facts.change(paused, until)
    found = await store.session("7")
    assert await facts.with_session("7") == (found, paused) and found is not None and found.deadline == until
    await store.move(session(), "ended", frozenset({"live"}))
    assert not await facts.change(BOX, until + 1)
    assert (await facts.with_session("7"))[1] == paused
