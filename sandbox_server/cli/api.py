"""Calls the running server's own API for the verbs."""

from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from sandbox_server.app.access import operator_key
from sandbox_server.cli import configuration
from sandbox_server.errors import ServiceError

_READY_S = 10.0
TIMEOUT_S = 330.0  # a session's end waits for the running action and the capture of the patch


class NoServer(ServiceError):
    """No server answers at the address in the settings."""

    code = "no_server"


def readiness() -> Any:
    """The body of /readyz, whether or not the server is ready. Raises NoServer."""
    return _ask("GET", "/readyz", None, _READY_S).json()


def call(method: str, path: str, query: dict[str, str | int] | None = None) -> Any:
    """Call the API and return the response's JSON.

    Raises:
        NoServer; ServiceError: the server refused; has its message.

    """
    answer = _ask(method, path, query, TIMEOUT_S)
    if answer.is_error:
        raise refused(answer)
    return answer.json()


def client(timeout_s: float) -> httpx.AsyncClient:
    """A client of the server for many requests at once."""
    url, headers = _server()
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout_s)


async def acall(
    http: httpx.AsyncClient,
    method: str,
    path: str,
    body: object = None,
    *,
    headers: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> Any:
    """As `call`, by a `client`, with a JSON body; None for an answer without content. Raises as `call`."""
    bound = httpx.USE_CLIENT_DEFAULT if timeout_s is None else timeout_s
    try:
        answer = await http.request(method, path, json=body, headers=headers, timeout=bound)
    except httpx.TransportError as e:
        raise _no_server(f"{http.base_url}{path.removeprefix('/')}", e) from e
    if answer.is_error:
        raise refused(answer)
    return answer.json() if answer.content else None


def refused(answer: httpx.Response) -> ServiceError:
    """The error that the answer reports, with the server's message."""
    try:
        detail = answer.json()["detail"]
    except (ValueError, KeyError, TypeError):
        page = "html" in answer.headers.get("Content-Type", "")  # of /ui, or of a proxy
        detail = f"{answer.url.path}: {answer.reason_phrase}" if page else answer.text[:300]
    return ServiceError(f"{answer.status_code}: {detail}")


def stream(path: str, query: dict[str, str]) -> Iterator[bytes]:
    """Stream the response to a GET. Raises as `call`, and ServiceError if the response is cut off."""
    url, headers = _server()
    try:
        with httpx.stream("GET", url + path, params=query, headers=headers, timeout=TIMEOUT_S) as answer:
            if answer.is_error or answer.is_redirect:
                answer.read()
                raise refused(answer)
            yield from answer.iter_bytes()
    except httpx.ConnectError as e:
        raise _no_server(url, e) from e
    except httpx.TransportError as e:
        raise ServiceError(f"the answer of {url} was cut off: {e or type(e).__name__}; ask again") from e


def _ask(method: str, path: str, query: dict[str, str | int] | None, timeout_s: float) -> httpx.Response:
    url, headers = _server()
    try:
        return httpx.request(method, url + path, params=query, headers=headers, timeout=timeout_s)
    except httpx.TransportError as e:
        raise _no_server(url + path, e) from e


def _server() -> tuple[str, dict[str, str]]:
    settings = configuration.load()
    key = operator_key([entry.get_secret_value() for entry in settings.api_keys])
    headers = {"X-API-Key": key} if key else {}
    return f"http://{settings.host}:{settings.port}", headers


def _no_server(url: str, error: httpx.TransportError) -> NoServer:
    return NoServer(
        f"no server answers at {url}: {error}; is it running, and are SANDBOX_HOST and SANDBOX_PORT correct?"
    )
