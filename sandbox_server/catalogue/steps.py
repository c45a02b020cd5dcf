"""Tasks of several steps (Harbor's [[steps]]): each step is an instance, and its session begins with the files of the
session of the step before.
"""

from typing import Literal

from pydantic import BaseModel

from sandbox_server.catalogue.services import PART, Health


class Step(BaseModel):
    """The place of an instance among the steps of its task."""

    model_config = PART

    name: str
    number: int
    """1, 2, ..."""
    of: int
    """Number of steps."""
    before: str = ""
    """Instance id of the step before; "" for the first one."""
    next: str = ""
    """Instance id of the step after; "" for the last one."""
    strategy: Literal["mean", "final"] = "mean"
    """How the rewards of the steps so far become one: the mean of each key, or those of this step."""
    min_reward: dict[str, float] = {}
    """Key of this step's rewards -> least value with which the next step may begin."""
    kept: tuple[str, ...] = ()
    """Absolute paths whose changed files the next step begins with, although they are not graded."""
    uploads: str = ""
    """Placed in the work directory before the step: a gzipped tar archive, in base64; "" for none. `setup.sh` in it is
    run there."""
    health: Health | None = None
    """Health check that must succeed after that, before the session begins; in addition to the sandbox's own check."""
