"""A store of its own keys for each test, on both kinds of Redis."""

import secrets
from collections.abc import AsyncIterator, Iterator

import pytest

from sandbox_server.state.connection import Connection
from sandbox_server.state.keys import Keys
from sandbox_server.state.store import Store

from ..state_backends import embedded, external
from .rollout import Open


@pytest.fixture(scope="package", params=[embedded, external], ids=["embedded", "external"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with request.param(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture
def keys() -> Keys:
    return Keys(f"test-{secrets.token_hex(4)}:")


@pytest.fixture
async def connection(url: str) -> AsyncIterator[Connection]:
    connection = Connection(url, timeout_s=5)
    yield connection
    await connection.close()


@pytest.fixture
async def open_store(connection: Connection, keys: Keys) -> AsyncIterator[Open]:
    stores: list[Store] = []

    async def open_one(node: str = "n1", lease_s: float = 30.0, result_ttl_s: float = 600.0) -> Store:
        store = Store(connection, keys, node=node, lock_lease_s=lease_s, result_ttl_s=result_ttl_s)
        await store.open()
        stores.append(store)
        return store

    yield open_one
    for store in stores:
        await store.close()


@pytest.fixture
async def store(open_store: Open) -> Store:
    return await open_store()
