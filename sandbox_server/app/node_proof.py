"""Forwards requests to a node only after it has proved to be the node that sent the heartbeat.

The address in a heartbeat may be wrong, or belong to another program by now. That program would get the client's
headers and API key, and its answer would be taken for the node's. So each new connection begins with a challenge: a
random text, whose HMAC under the node's hop secret (`state.nodes`) only that node can make. The requests follow on the
same connection. Only TLS (https in SANDBOX_NODE_URL) keeps out an attacker between the nodes who relays the challenge.
"""

import asyncio
import hmac
import secrets
from collections.abc import Mapping
from typing import Any

import h11
import httpcore
import httpx
from starlette.types import Send

from sandbox_server.state.nodes import NodeRecord, proof

PATH = "/healthz"
"""Needs no API key."""
CHALLENGE = "sandbox-challenge"
_PROOF = "sandbox-proof"
_PROVE_S = 2.0
_PIECE = 1 << 12


def to_node(record: NodeRecord) -> Mapping[str, Any]:
    """Extensions of an httpx request to the node: a connection made for it is closed unless the node proves itself.

    The request then ends in ConnectError, and nothing of it was sent. Nodes of older releases are not asked.
    """
    if not record.proves:
        return {}
    ready = "connection.start_tls.complete" if record.url.startswith("https:") else "connection.connect_tcp.complete"

    async def trace(event: str, info: Mapping[str, Any]) -> None:
        if event == ready:
            await _challenge(info["return_value"], record)

    return {"trace": trace}


async def answer(send: Send, proof_text: str) -> None:
    """Answer a challenge."""
    await send({"type": "http.response.start", "status": 204, "headers": [(_PROOF.encode(), proof_text.encode())]})
    await send({"type": "http.response.body", "body": b""})


async def _challenge(stream: httpcore.AsyncNetworkStream, record: NodeRecord) -> None:
    proven = False
    try:
        async with asyncio.timeout(_PROVE_S):
            proven = await _is_proven(stream, record)
    except TimeoutError:
        raise httpcore.ConnectTimeout(f"no proof within {_PROVE_S:g} s that {record.url} is {record.node}") from None
    except (h11.RemoteProtocolError, httpcore.NetworkError) as error:
        raise httpcore.ConnectError(f"{record.url} broke off before it proved to be {record.node}: {error}") from error
    finally:
        if not proven:
            await stream.aclose()
    if not proven:
        raise httpcore.ConnectError(
            f"what answers at {record.url} is not {record.node}, or an earlier process of it; see its SANDBOX_NODE_URL"
        )


async def _is_proven(stream: httpcore.AsyncNetworkStream, record: NodeRecord) -> bool:
    nonce, url, wire = secrets.token_hex(16), httpx.URL(record.url), h11.Connection(h11.CLIENT)
    headers = [(b"host", url.netloc), (CHALLENGE.encode(), nonce.encode())]
    asked = h11.Request(method="GET", target=url.path.rstrip("/") + PATH, headers=headers)
    await stream.write((wire.send(asked) or b"") + (wire.send(h11.EndOfMessage()) or b""))
    while True:
        event = wire.next_event()
        if event is h11.NEED_DATA:
            wire.receive_data(await stream.read(_PIECE))
        elif isinstance(event, h11.Response):
            said = dict(event.headers).get(_PROOF.encode(), b"")
            if not hmac.compare_digest(said, proof(record.hop_secret, nonce).encode()):
                return False
        elif not isinstance(event, h11.InformationalResponse | h11.Data):
            return isinstance(event, h11.EndOfMessage) and wire.their_state is h11.DONE
