"""The pool's containers of one kind, which are no session yet."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from sandbox_server.sandbox.base import ContainerSpec, Sandbox


class TakenContainer(NamedTuple):
    """A container that now belongs to a session."""

    sid: str
    sandbox: Sandbox
    warm: bool
    """Whether it was parked; else the start waited until it was made."""


@dataclass(frozen=True, slots=True)
class BucketView:
    """Containers of one kind in the pool: present and expected."""

    image: str
    parked: int
    making: int
    waiting: int
    wanted: int
    instances: tuple[str, ...]
    """Names of the instances (or kinds of boxes) that want it."""
    sids: tuple[str, ...]
    """Sids of the containers that are parked or being made; no sessions yet."""


@dataclass(slots=True)
class ParkedContainer:
    """A ready container that no start has taken."""

    sid: str
    sandbox: Sandbox
    made_at: float


@dataclass(slots=True)
class PoolBucket:
    """All containers of one kind that are no session yet, and the starts that wait for one."""

    spec: ContainerSpec
    parked: deque[ParkedContainer] = field(default_factory=deque)
    waiters: deque[asyncio.Future[TakenContainer]] = field(default_factory=deque)
    making: set[str] = field(default_factory=set)

    def sids(self) -> list[str]:
        """Sids of the containers that are parked or being made."""
        return [*(parked.sid for parked in self.parked), *self.making]
