"""Intercept requests that veRL itself sends to `get_api`'s URLs, to add retries, idempotency keys and other hosts.

The revisions of 2025-03-06 (4a831288, e1eefe85) post actions with `httpx.AsyncClient().post(get_api(...))` in a
function that cannot be replaced. Requests to other URLs pass unchanged.
"""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

import httpx

from sandbox_client import environment, swedev_ends
from sandbox_client.errors import RequestRejected, SandboxError, ServiceFault
from sandbox_client.swedev_wire import PATHS, submit


class RoutedClient(httpx.AsyncClient):
    """httpx's client, except for posts of the swedev protocol."""

    async def post(self, url: Any, **arguments: Any) -> httpx.Response:
        """As httpx; posts to the service use the sandbox client's timeouts."""
        api, body = _api_of(str(url)), arguments.get("json")
        if api is None or not isinstance(body, dict):
            return await super().post(url, **arguments)
        if api == "action":
            swedev_ends.acted(body.get("sid"))
        request = httpx.Request("POST", url)
        try:
            answer = await asyncio.wrap_future(submit(api, body))
        except (RequestRejected, ServiceFault) as error:
            told = {"code": error.code, "detail": error.detail}
            return httpx.Response(error.status, json=told, request=request)
        except SandboxError as error:
            raise httpx.ConnectError(str(error), request=request) from error
        return httpx.Response(200, json=answer, request=request)


def _api_of(url: str) -> str | None:
    """The protocol's call that `url` belongs to, on any host of SANDBOX_URL; None: another URL."""
    urls = environment.base_urls()
    return next((api for api, path in PATHS.items() if any(url == base + path for base in urls)), None)


class _Routed(ModuleType):
    """The module httpx with `AsyncClient` replaced."""

    AsyncClient = RoutedClient

    def __getattr__(self, name: str) -> Any:
        return getattr(httpx, name)


def route(module: ModuleType) -> None:
    """Route posts that `module` sends with `httpx` to the service through the client."""
    if getattr(module, "httpx", None) is httpx:
        module.httpx = _Routed("httpx")  # type: ignore[attr-defined]  # it has one
