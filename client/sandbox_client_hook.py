"""Puts the drop-in into an unchanged veRL as it is imported.

`sandbox_client_hook.pth`, installed beside this module, calls `install()` at the start of every interpreter whose
environment says SANDBOX_CLIENT_HOOK=1, so Ray's workers get it too. Standard library only, until veRL is imported.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def install() -> None:
    """Watch the imports of this interpreter; a second call does nothing."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _replace(module: ModuleType) -> None:
    """Replace the original's names by the drop-in's; names that only the original has (a fork's additions) stay."""
    drop_in = import_module("sandbox_client.swedev_utils")
    for name in drop_in.__all__:
        setattr(module, name, getattr(drop_in, name))


def _await_actions(module: ModuleType) -> None:
    """Replace the functions that block. Runs before `async_rollout` copies their names by its star import."""
    awaiting = import_module("sandbox_client.swedev_tasks")
    for name in ("swe_dev_obs", "swe_dev_end"):
        if hasattr(module, name):
            setattr(module, name, getattr(awaiting, name))


def _keep_rewards(module: ModuleType) -> None:
    """Replace the reward manager's request, which asks only once and turns every fault into 0.0."""
    import_module("sandbox_client.swedev_manager").rebind(module)


def _begin_run(_module: ModuleType) -> None:
    """End the run's old sessions, because a trainer is about to begin.

    In today's veRL the driver imports `constants_ppo`, and its runner `ray_trainer`.
    """
    import_module("sandbox_client.runs").end_at_start()
    if find_spec("verl.utils.swedev_utils") is None and not _TOLD:
        _TOLD.append(True)
        logging.getLogger("sandbox_client").error(
            "SANDBOX_CLIENT_HOOK=1, but this veRL has no swedev task for the hook to take over: nothing of it reaches"
            " the sandbox service. Use sandbox_client.verl.SandboxAgentLoop (docs/verl.md), and unset the hook"
        )


def _complete_batches(module: ModuleType) -> None:
    """Route the rollout's own posts through the client, and end a batch only once all its sessions have ended."""
    import_module("sandbox_client.swedev_posts").route(module)
    rollout = getattr(module, "AsyncRollout", None)
    original = getattr(rollout, "generate_sequences", None)
    if rollout is None or original is None:
        return
    wait_for_ends = import_module("sandbox_client.swedev_ends").wait_for_ends

    @wraps(original)
    def generate_sequences(*arguments: Any, **named: Any) -> Any:
        batch = original(*arguments, **named)
        wait_for_ends()  # the original blocked until its sessions had ended, so rewards were requested after that
        return batch

    rollout.generate_sequences = generate_sequences


_TOLD: list[bool] = []


def _changes() -> dict[str, Callable[[ModuleType], None]]:
    changes: dict[str, Callable[[ModuleType], None]] = {
        "verl.utils.swedev_utils": _replace,
        "verl.workers.reward_manager.swedev": _keep_rewards,
        "verl.workers.agentic.async_rollout": _complete_batches,
        "verl.trainer.ppo.ray_trainer": _begin_run,
        "verl.trainer.constants_ppo": _begin_run,
    }
    if os.environ.get("SANDBOX_CLIENT_HOOK_CONCURRENCY", "1") != "0":
        changes["verl.workers.agentic.tasks"] = _await_actions
    return changes


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("verl."):
            return None
        change = _changes().get(fullname)
        spec = PathFinder.find_spec(fullname, path, target) if change else None
        if change is None or spec is None or spec.loader is None:
            return None
        spec.loader = _ChangingLoader(spec.loader, change)
        return spec


class _ChangingLoader(Loader):
    """Runs the module's own loader, then the change."""

    def __init__(self, original: Loader, change: Callable[[ModuleType], None]) -> None:
        self._original = original
        self._change = change

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._original.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._original.exec_module(module)
        self._change(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)  # get_source and the like, for tracebacks and inspect
