"""The engine's JSON. An answer that lacks a part promised by the API raises EngineUnavailable, whoever reads it.

`null`, `{}` and `[]` with status 200 were seen from proxies in front of an engine, and from engines that were stopping.
"""

import json
from typing import Any, NoReturn
from urllib.parse import urlsplit

import docker
import requests

from sandbox_server.errors import EngineUnavailable

_LISTS = ("/containers/json", "/images/json", "/networks")
"""Ends of the paths whose answers are lists. The answer to an image's removal is a list too; all others are objects."""


class Answer(dict[str, Any]):
    """An object in the engine's JSON. `[]` reads what must be there, and `get` what may be null or absent."""

    def __getitem__(self, name: str) -> Any:
        """Raises EngineUnavailable: it is null or absent."""
        value = self.get(name)
        if value is None:
            _broken(f"an object without {name}")
        return value


def read(text: str | bytes, kind: type[Answer] | type[list[Any]] = Answer) -> Any:
    """Parse JSON, with objects as `Answer`s. Raises ValueError: not JSON. EngineUnavailable: not of this `kind`."""
    found = json.loads(text, object_hook=Answer)
    if not isinstance(found, kind) or (kind is list and not all(isinstance(one, Answer) for one in found)):
        _broken(json.dumps(found)[:60])
    return found


def _broken(said: str) -> NoReturn:
    raise EngineUnavailable(
        f"the Docker daemon answered with {said}; see `docker info` on the host, and whatever stands before its socket"
    )


class Client(docker.APIClient):
    """The SDK's client, which reads answers with `read`."""

    def _result(self, response: requests.Response, json: bool = False, binary: bool = False) -> Any:
        if not json:
            return super()._result(response, json, binary)  # type: ignore[misc]  # the SDK's stubs miss it
        self._raise_for_status(response)  # type: ignore[attr-defined]  # the SDK's stubs miss it
        listed = response.request.method == "DELETE" or urlsplit(response.url).path.endswith(_LISTS)
        return read(response.content, list if listed else Answer)
