"""Containers of one kind that are no session yet."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from sandbox_server.sandbox.base import ContainerSpec, Sandbox


class Taken(NamedTuple):
    """A container that is a session's from now on."""

    sid: str
    sandbox: Sandbox
    warm: bool
    """It was parked; else the start waited for its making, or for the rest of it."""


@dataclass(frozen=True, slots=True)
class BucketView:
    """What the pool has and expects of one kind of container."""

    image: str
    parked: int
    making: int
    waiting: int
    wanted: int
    instances: tuple[str, ...]
    """For which it is wanted."""
    sids: tuple[str, ...]
    """On the labels of the containers that are parked or being made; no sessions yet."""


@dataclass(slots=True)
class Parked:
    """A container that is ready, and nobody's."""

    sid: str
    sandbox: Sandbox
    made_at: float


@dataclass(slots=True)
class PoolBucket:
    """All containers of one kind that are no session yet, and the starts that wait for one."""

    spec: ContainerSpec
    parked: deque[Parked] = field(default_factory=deque)
    waiters: deque[asyncio.Future[Taken]] = field(default_factory=deque)
    making: set[str] = field(default_factory=set)

    def sids(self) -> list[str]:
        """Of the containers that are parked or being made."""
        return [*(parked.sid for parked in self.parked), *self.making]
