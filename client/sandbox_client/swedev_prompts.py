"""The prompts of the swedev task, read from the trainer's own checkout.

A policy must be trained on exactly the prompt it was made for. Every revision of veRL with a swedev task contains it:
in the `swedev_utils.py` that the drop-in replaces, and in later revisions also in a copy, `agent_tasks/swedev.py`.
So the text is read from there; this package contains none. Only the definitions named here are executed.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sandbox_client import environment
from sandbox_client.errors import SettingsError

CONSTANTS = ("IN_CONTEXT_LEARNING_EXAMPLE_PREFIX", "IN_CONTEXT_LEARNING_EXAMPLE_SUFFIX")
_FUNCTIONS = ("get_system_prompt", "get_instruction", "_get_swebench_workspace_dir_name")
_PLACES = ("utils/swedev_utils.py", "utils/agent_tasks/swedev.py")


def get_system_prompt() -> Any:
    """The trainer's system prompt. Raises SettingsError: its text was not found."""
    return definitions()["get_system_prompt"]()


def get_instruction(instance: dict[str, Any]) -> Any:
    """The trainer's first user message for a row with `repo`, `version` and `problem_statement`. Errors as above."""
    return definitions()["get_instruction"](instance)


def _get_swebench_workspace_dir_name(instance: dict[str, Any]) -> Any:
    return definitions()["_get_swebench_workspace_dir_name"](instance)


def definitions() -> dict[str, Any]:
    """The prompt's constants and functions by name.

    Raises:
        SettingsError: not all of them are in the file of SANDBOX_PROMPTS_FILE or, if unset, in the installed veRL.
    """
    given = environment.prompts_file()
    for path in [Path(given)] if given else _in_verl():
        found = _read(path)
        if found is not None:
            return found
    raise SettingsError(
        "the swedev prompts are not to be found: append the drop-in's line to veRL's own verl/utils/swedev_utils.py"
        " rather than replacing that file, or let SANDBOX_PROMPTS_FILE name a copy of the original"
    )


def constants() -> dict[str, Any]:
    """The constants alone; empty if the prompts were not found."""
    try:
        found = definitions()
    except SettingsError:
        return {}
    return {name: found[name] for name in CONSTANTS}


def _in_verl() -> list[Path]:
    spec = find_spec("verl")  # finds the folder, imports nothing
    folders = (spec and spec.submodule_search_locations) or []
    return [Path(folder, place) for folder in folders for place in _PLACES]


@lru_cache(maxsize=8)
def _read(path: Path) -> dict[str, Any] | None:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    wanted = [node for node in tree.body if _name(node) in (*CONSTANTS, *_FUNCTIONS)]
    if {_name(node) for node in wanted} != {*CONSTANTS, *_FUNCTIONS}:
        return None
    namespace: dict[str, Any] = {}
    exec(compile(ast.Module(wanted, []), str(path), "exec"), namespace)
    return namespace


def _name(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef):
        return node.name
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return ""
