"""A clock for one container, which stops while the container is frozen."""

import asyncio

from sandbox_server.errors import SandboxPaused


class SandboxClock:
    """The clock by which the time limits of a container's commands run."""

    def __init__(self) -> None:
        self._stopped_at: float | None = None
        self._stood_s = 0.0

    @property
    def stopped(self) -> bool:
        """Whether the container is frozen."""
        return self._stopped_at is not None

    def now(self) -> float:
        """Seconds that the container was not frozen; only differences are meaningful."""
        now = asyncio.get_running_loop().time()
        return (now if self._stopped_at is None else self._stopped_at) - self._stood_s

    def stop(self) -> None:
        """Stop the clock; call it before the container is frozen."""
        if self._stopped_at is None:
            self._stopped_at = asyncio.get_running_loop().time()

    def go(self) -> None:
        """Start the clock again; call it when the container runs again."""
        if self._stopped_at is not None:
            self._stood_s += asyncio.get_running_loop().time() - self._stopped_at
            self._stopped_at = None

    def check(self) -> None:
        """Raise SandboxPaused if the container is frozen."""
        if self.stopped:
            raise SandboxPaused("the sandbox is paused; resume it first")
