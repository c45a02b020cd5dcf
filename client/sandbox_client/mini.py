"""An environment of mini-swe-agent in a session, which the service grades, or in a box; extra `mini`.

`environment_class: sandbox_client.mini.SandboxEnvironment` in its configuration, with `instance` or `image`.
"""

from __future__ import annotations

import platform
import weakref
from typing import Any

from minisweagent.exceptions import Submitted
from minisweagent.utils.serialize import recursive_merge
from pydantic import BaseModel

from sandbox_client.answers import Reward
from sandbox_client.background import background
from sandbox_client.either import Wanted, ended, graded, started, waited
from sandbox_client.errors import CommandTimedOut, SettingsError
from sandbox_client.inside import Inside

_SUBMITS = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""mini-swe-agent's first line of an output that ends the work."""


class SandboxEnvironmentConfig(BaseModel):
    """One of `instance` and `image`, and mini-swe-agent's own keys."""

    instance: str | None = None
    """An instance that the service has imported."""
    image: str | None = None
    """The image of a box, without a task."""
    cwd: str = ""
    """Where commands run; "": the task's repository, or in a box the user's home."""
    env: dict[str, str] = {}  # pydantic copies it
    timeout: float = 60.0
    """Seconds until a command is killed."""
    url: str | None = None
    """Base URL, or several, comma-separated; None: SANDBOX_URL. Trajectories contain it: give a key by SANDBOX_URL."""
    run: str | None = None
    """This run's name at the service; None: SANDBOX_RUN."""


class SandboxEnvironment:
    """Each command runs in a fresh bash, as in mini-swe-agent's own environments.

    A fault of the service raises SandboxError, which ends the agent's run: it is no observation.
    """

    def __init__(
        self, *, config_class: type[SandboxEnvironmentConfig] = SandboxEnvironmentConfig, **kwargs: Any
    ) -> None:
        """Start the session or the box. Raises SettingsError, SandboxError."""
        self.config = config_class(**kwargs)
        wanted = Wanted(self.config.instance, self.config.image, self.config.url, self.config.run)
        self._inside: Inside | None = waited(started(wanted))
        self._forgotten = weakref.finalize(self, _end_later, self._inside)  # mini-swe-agent calls no cleanup

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: float | None = None) -> dict[str, Any]:
        """Run `action["command"]`. Raises Submitted if its output begins with the line that ends the work."""
        limit_s = timeout or self.config.timeout
        inside = self._there()
        argv = ["bash", "-lc", f"exec 2>&1\n{action.get('command', '')}"]
        try:
            done = waited(inside.run(argv, cwd=cwd or self.config.cwd or None, env=self.config.env, timeout_s=limit_s))
        except CommandTimedOut as error:
            said = f"The command was killed after {limit_s:g} s."
            return {"output": error.stdout, "returncode": -1, "exception_info": said}
        first, _, rest = done.stdout.lstrip().partition("\n")
        if first.strip() == _SUBMITS and done.exit_code == 0:
            ends = {"exit_status": "Submitted", "submission": rest}
            raise Submitted({"role": "exit", "content": rest, "extra": ends})
        return {"output": done.stdout + done.stderr, "returncode": done.exit_code, "exception_info": ""}

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """Variables for prompts: the configuration and the platform, as in mini-swe-agent's own environments."""
        merged: dict[str, Any] = recursive_merge(self.config.model_dump(), platform.uname()._asdict(), kwargs)
        return merged

    def serialize(self) -> dict[str, Any]:
        """The description of the environment in a trajectory."""
        kind = f"{type(self).__module__}.{type(self).__name__}"
        told = {"environment": self.config.model_dump(mode="json"), "environment_type": kind}
        return {"info": {"config": told, "sandbox_sid": "" if self._inside is None else self._inside.sid}}

    def reward(self) -> Reward:
        """The session's reward, which ends it. Raises RolloutMasked: it says nothing about the policy."""
        return waited(graded(self._there()))

    def cleanup(self) -> None:
        """End the session or the box; never raises, as the service does so too."""
        inside, self._inside = self._inside, None
        if inside is not None and self._forgotten.detach():
            waited(ended(inside))

    def _there(self) -> Inside:
        if self._inside is None:
            raise SettingsError("the environment is used after its cleanup")
        return self._inside


def _end_later(inside: Inside) -> None:
    """Without waiting: the collector may run on the background's own thread."""
    background().submit(ended(inside))
