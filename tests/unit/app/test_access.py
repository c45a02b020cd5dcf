"""Keys, before any route."""

import base64

import pytest
from starlette.types import Message, Receive, Scope, Send

from sandbox_server.app.access import RequireKey, is_loopback, operator_key, role_of
from sandbox_server.protocols._wire import KEY_NAME, KEY_OWNER, KEY_VIEWS
from sandbox_server.telemetry import KEYS_REFUSED

KEYS = ["operators-key", "alice=alices-secret"]
VIEWS = ["looks-on-key"]
OPERATOR, VIEWER = ("", "", False), ("", "", True)
ALICE = ("alice", "alice", False)
ALICE_OF_BEFORE = ("", "alice", False)
"""The whole entry, as releases without names took it: Alice holds it, so it opens what is Alice's and no more."""


async def _admitted(headers: dict[str, str]) -> tuple[object, ...] | int:
    """Name, owner and views of the key that let the request in; the status if none did."""
    scopes: list[Scope] = []
    sent: list[Message] = []

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)

    async def send(message: Message) -> None:
        sent.append(message)

    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "path": "/v1/sessions", "headers": pairs}
    await RequireKey(inner, KEYS, VIEWS)(scope, _never, send)
    if not scopes:
        return int(sent[0]["status"])
    return tuple(scopes[0][name] for name in (KEY_NAME, KEY_OWNER, KEY_VIEWS))


async def _never() -> Message:
    raise AssertionError("the body is not read before the key is known")


def _basic(text: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(text.encode()).decode()}


@pytest.mark.parametrize(
    ("headers", "who"),
    [
        ({"X-API-Key": "operators-key"}, OPERATOR),
        ({"X-API-Key": "alices-secret"}, ALICE),
        ({"X-API-Key": "alice=alices-secret"}, ALICE_OF_BEFORE),
        ({"X-API-Key": "looks-on-key"}, VIEWER),
        (_basic("alice:alices-secret"), ALICE),
        (_basic("alice:alice=alices-secret"), ALICE_OF_BEFORE),
        (_basic("operators-key:wrong"), 401),  # the name of a user is no key
        ({"X-API-Key": "wrong", "Authorization": "Bearer alices-secret"}, ALICE),
        *(({"X-API-Key": key}, 401) for key in ("", "alice", "alice=", "alices-secre", "alices-secretx")),
    ],
)
async def test_whose_key_it_is(headers: dict[str, str], who: tuple[object, ...] | int) -> None:
    """A tenant would act as the operator, or nobody's text would open the service."""
    assert await _admitted(headers) == who


@pytest.mark.parametrize("key", ["operators-key", "alices-secret", "alice=alices-secret"])
def test_a_key_for_reading_that_changes_things_is_refused(key: str) -> None:
    """Whoever gets the key for a dashboard could end every session."""
    with pytest.raises(ValueError, match="SANDBOX_VIEW_KEYS"):
        RequireKey(_unused, KEYS, [key])


def test_who_may_see_the_pages() -> None:
    """The pages show all runs: a tenant would see those of others."""
    role = role_of(KEYS, VIEWS)
    given = ["operators-key", "looks-on-key", "alices-secret", "alice=alices-secret", "", "wrong"]
    assert [role(key) for key in given] == ["operator", "viewer", None, None, None, None]


@pytest.mark.parametrize(
    ("addresses", "loopback"),
    [(["127.0.0.1", "::1"], True), (["127.0.0.1", "192.0.2.7"], False), (["fe80::1%eth0"], False), ([], False)],
)
def test_a_name_is_loopback_only_if_all_its_addresses_are(
    monkeypatch: pytest.MonkeyPatch, addresses: list[str], loopback: bool
) -> None:
    """A host's own name often is 127.0.1.1 too: a server without keys would listen to the network."""
    found = [(2, 1, 6, "", (address, 0)) for address in addresses]
    monkeypatch.setattr("socket.getaddrinfo", lambda host, port: found)
    assert is_loopback("some-host") is loopback


def test_the_servers_own_requests_use_an_operators_key() -> None:
    """The command line would ask with a tenant's key, and see that tenant's sessions alone."""
    assert operator_key(["alice=alices-secret", "operators-key"]) == "operators-key"
    assert operator_key([]) == ""


async def _unused(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("nothing may be asked")


async def test_a_request_without_a_key_is_not_counted_as_a_guess() -> None:
    """Each probe of a load balancer would look like somebody who guesses keys."""

    def refused() -> float:
        return KEYS_REFUSED.labels("request")._value.get()

    before = refused()
    assert await _admitted({}) == 401 and refused() == before
    assert await _admitted({"X-API-Key": "wrong"}) == 401 and refused() == before + 1
