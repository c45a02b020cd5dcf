"""slime's example on this service: `--custom-generate-function-path sandbox_client.slime_generate.generate`.

slime's own generate runs unchanged; only its sandbox class is replaced. slime is imported with the first sample.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from sandbox_client.errors import SettingsError
from sandbox_client.slime import DockerServiceSandbox, EvaluationSandbox, exec_and_wait

_EXAMPLE = "examples.coding_agent_rl"
_WAITERS = ("slime.agent.sandbox", "slime.agent.harness.common")
"""Modules outside the example that import exec_and_wait by name."""


async def generate(args: Any, sample: Any, sampling_params: dict[str, Any], evaluation: bool = False) -> Any:
    """As slime's own. Raises SettingsError: slime or its example cannot be imported."""
    return await example().generate(args, sample, sampling_params, evaluation=evaluation)


@functools.lru_cache(maxsize=1)
def example() -> ModuleType:
    """The module `generate` of slime's example, patched to use this service's sandbox.

    SANDBOX_SLIME_EXAMPLE may name another package than slime's own.

    Raises:
        SettingsError: the package cannot be imported.
    """
    package = os.environ.get("SANDBOX_SLIME_EXAMPLE", "").strip() or _EXAMPLE
    try:
        generating, grading = (importlib.import_module(f"{package}.{name}") for name in ("generate", "swe"))
        waiting = [grading, *(importlib.import_module(name) for name in _WAITERS)]
    except ImportError as error:
        raise SettingsError(
            f"slime's example {package} cannot be imported ({error}): run in slime's folder, with that on PYTHONPATH; "
            "a fork's own package is named by SANDBOX_SLIME_EXAMPLE"
        ) from error
    vars(generating)["E2BSandbox"] = DockerServiceSandbox
    vars(grading)["E2BSandbox"] = EvaluationSandbox
    for module in waiting:
        if (own := getattr(module, "exec_and_wait", None)) is not None:
            vars(module)["exec_and_wait"] = _for_ours(own)
    return generating


def _for_ours(own: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap slime's exec_and_wait: sandboxes of this service use our implementation, others slime's `own`."""

    @functools.wraps(own)
    async def waited(sb: Any, **options: Any) -> Any:
        return await (exec_and_wait if isinstance(sb, DockerServiceSandbox) else own)(sb, **options)

    return waited
