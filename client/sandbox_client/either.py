"""The sandbox of an adapter for agents, on the background loop: a session with its task, or a box without one."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from sandbox_client.answers import Reward
from sandbox_client.background import background
from sandbox_client.boxes import Box
from sandbox_client.client import Session
from sandbox_client.errors import SandboxError, SettingsError
from sandbox_client.inside import Inside
from sandbox_client.rollouts import Rollout, service_url

_T = TypeVar("_T")


@dataclass(frozen=True)
class Wanted:
    """One of `instance` and `image`."""

    instance: str | None = None
    """An instance that the service has imported."""
    image: str | None = None
    """The image of a box, without a task."""
    url: str | None = None
    """Base URL, or several, comma-separated; None: SANDBOX_URL."""
    run: str | None = None
    """This run's name at the service; None: SANDBOX_RUN."""

    def __post_init__(self) -> None:
        """Raises SettingsError: both are given, or neither."""
        if (self.instance is None) == (self.image is None):
            raise SettingsError("give one of `instance` and `image`")


async def started(wanted: Wanted) -> Inside:
    """Start the session or the box; call this on the background loop. Raises SandboxError."""
    url = service_url(wanted.url)
    if wanted.instance is not None:
        client = background().client(url, None, wanted.run)
        return Session(client, await client.start(wanted.instance))
    box = Box(wanted.image, base_url=[one.strip() for one in url.split(",") if one.strip()], run=wanted.run)
    try:
        await box.create()
    except BaseException:
        await box.aclose()
        raise
    return box


async def ended(inside: Inside) -> None:
    """End the session or the box; never raises, because the service ends it too when it is idle."""
    with suppress(SandboxError):
        if isinstance(inside, Session):
            await inside.finish()
        elif isinstance(inside, Box):
            await inside.__aexit__(None, None, None)


async def graded(inside: Inside) -> Reward:
    """The session's reward; asking for it ends the session. Also works after the session's end.

    Raises:
        RolloutMasked: it says nothing about the policy. SettingsError: a box.
    """
    if not isinstance(inside, Session):
        raise SettingsError("a box has no task: give an `instance` to get a reward")
    return await Rollout(inside._client, inside.sid).grade()


def waited(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of `work` on the background loop; blocks this thread."""
    return background().submit(work).result()  # each of the client's calls ends within its own timeout
