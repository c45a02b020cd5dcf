"""The engine's figures of a container."""

from typing import Any, cast

import pytest
import requests
from docker import APIClient

from sandbox_server.errors import SandboxLost
from sandbox_server.sandbox.docker.stats import stats


class Engine:
    """Answers with nothing, as the engine does if the container ends during the request: that cannot be timed."""

    def stats(self, container: str, **_: Any) -> object:
        answer = requests.Response()
        answer._content = b""
        return answer.json()


def test_a_container_that_ends_while_it_is_measured() -> None:
    """It counted as a silence of the engine: a few, and nothing more started on the node."""
    with pytest.raises(SandboxLost, match="ended while it was measured"):
        stats(cast(APIClient, Engine()), "c" * 64)
