"""The catalogue's tasks as veRL's data set: one row a task, its prompt, its agent loop; nothing that solves it."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow
import pyarrow.parquet

from sandbox_server.catalogue.instance import TaskInstance

SYSTEM = """You are a software engineer who works in a sandbox. Each of your turns ends with one call:

<function=execute_bash>
<parameter=command>
git status
</parameter>
</function>

execute_bash runs `command` in a shell that keeps its state. str_replace_editor takes `command` (view, create, \
str_replace, insert, undo_edit), `path`, and as the command needs them `view_range`, `file_text`, `old_str`, \
`new_str`, `insert_line`. finish, without parameters, ends your work."""
"""For the dialect openhands_xml, the service's default."""
INSTRUCTION = """The repository {repo} is in {workspace}. Change it so that this is solved, without changing its tests:

{problem_statement}"""
"""With the fields `repo`, `version`, `workspace`, `problem_statement` and `instance_id`."""

_TEXT = pyarrow.string()
_MESSAGES = pyarrow.list_(pyarrow.struct([("role", _TEXT), ("content", _TEXT)]))
_TASK = pyarrow.struct([("name", _TEXT), ("prompt", _MESSAGES), ("metadata", pyarrow.struct([("instance_id", _TEXT)]))])
"""Uni-Agent's, for `sandbox_client.uni_agent`."""
_SCHEMA = pyarrow.schema(
    [
        ("data_source", _TEXT),
        ("agent_name", _TEXT),
        ("prompt", _MESSAGES),
        ("ability", _TEXT),
        ("reward_model", pyarrow.struct([("style", _TEXT), ("ground_truth", _TEXT)])),
        ("instance_id", _TEXT),
        (
            "extra_info",
            pyarrow.struct(
                [
                    ("index", pyarrow.int64()),
                    ("split", _TEXT),
                    ("instance_id", _TEXT),
                    ("tools_kwargs", pyarrow.struct([("task", _TASK)])),
                ]
            ),
        ),
    ]
)


def write(
    path: Path,
    instances: Sequence[TaskInstance],
    *,
    split: str,
    agent_name: str,
    system: str = SYSTEM,
    instruction: str = INSTRUCTION,
) -> None:
    """Write the rows to `path`; an empty `system` leaves that message out.

    Raises:
        KeyError: the instruction names a field that there is not. OSError.
    """
    rows = [_row(instance, number, split, agent_name, system, instruction) for number, instance in enumerate(instances)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=_SCHEMA), path)


def _row(
    instance: TaskInstance, number: int, split: str, agent_name: str, system: str, instruction: str
) -> dict[str, object]:
    asked = instruction.format_map(
        {
            "repo": instance.repo,
            "version": instance.version,
            "workspace": instance.workspace,
            "problem_statement": instance.problem_statement,
            "instance_id": instance.instance_id,
        }
    )
    messages = [{"role": "system", "content": system}] if system else []
    prompt = [*messages, {"role": "user", "content": asked}]
    task = {"name": "sandbox", "prompt": prompt, "metadata": {"instance_id": instance.instance_id}}
    return {
        "data_source": instance.dataset or "sandbox",
        "agent_name": agent_name,
        "prompt": prompt,
        "ability": "code",
        "reward_model": {"style": "sandbox", "ground_truth": ""},  # veRL wants the column; the service has the truth
        "instance_id": instance.instance_id,
        "extra_info": {
            "index": number,
            "split": split,
            "instance_id": instance.instance_id,
            "tools_kwargs": {"task": task},
        },
    }
