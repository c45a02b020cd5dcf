"""The running server's own API, as the verbs call it."""

from typing import Any

import httpx

from sandbox_server.app.access import operator_key
from sandbox_server.cli import configuration
from sandbox_server.errors import ServiceError

_READY_S = 10.0
TIMEOUT_S = 330.0  # an end waits for the action under way and the capture of the patch


class NoServer(ServiceError):
    """Nothing answers where the settings say that the server is."""

    code = "no_server"


def readiness() -> Any:
    """The body of /readyz, of a server that is ready or not. Raises NoServer."""
    return _ask("GET", "/readyz", None, _READY_S).json()


def call(method: str, path: str, query: dict[str, str | int] | None = None) -> Any:
    """The answer's JSON.

    Raises:
        NoServer; ServiceError: what it refuses, with its words.

    """
    answer = _ask(method, path, query, TIMEOUT_S)
    if answer.is_error:
        try:
            detail = answer.json()["detail"]
        except (ValueError, KeyError, TypeError):
            detail = answer.text[:300]
        raise ServiceError(f"{answer.status_code}: {detail}")
    return answer.json()


def _ask(method: str, path: str, query: dict[str, str | int] | None, timeout_s: float) -> httpx.Response:
    settings = configuration.load()
    key = operator_key([entry.get_secret_value() for entry in settings.api_keys])
    headers = {"X-API-Key": key} if key else {}
    url = f"http://{settings.host}:{settings.port}{path}"
    try:
        return httpx.request(method, url, params=query, headers=headers, timeout=timeout_s)
    except httpx.TransportError as e:
        raise NoServer(
            f"no server answers at {url}: {e}; is it running, and are SANDBOX_HOST and _PORT its own?"
        ) from e
