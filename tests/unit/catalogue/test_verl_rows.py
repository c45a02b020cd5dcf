"""The catalogue as veRL's data set."""

from pathlib import Path

import pyarrow.parquet
import pytest

from sandbox_server.catalogue import verl_rows
from sandbox_server.catalogue.instance import SandboxSpec, ScriptGrader, TaskInstance

TASK = TaskInstance(
    instance_id="a__b-1",
    dataset="samples",
    repo="a/b",
    version="1.2",
    problem_statement="It adds {wrong}.",
    sandbox=SandboxSpec(images=("i",)),
    grader=ScriptGrader(command="true"),
    gold_patch="THE-SOLUTION",
    test_patch="THE-TESTS",
)


def test_rows_hold_what_the_agent_loop_needs_and_no_solution(tmp_path: Path) -> None:
    """A trajectory could not find its instance, or its policy would find its answer."""
    path = tmp_path / "train.parquet"
    verl_rows.write(path, [TASK, TASK], split="train", agent_name="sandbox")
    rows = pyarrow.parquet.read_table(path).to_pylist()
    assert [row["extra_info"]["index"] for row in rows] == [0, 1]
    row = rows[0]
    assert row["instance_id"] == row["extra_info"]["instance_id"] == "a__b-1" and row["agent_name"] == "sandbox"
    assert [message["role"] for message in row["prompt"]] == ["system", "user"]
    task = row["extra_info"]["tools_kwargs"]["task"]
    assert task == {"name": "sandbox", "prompt": row["prompt"], "metadata": {"instance_id": "a__b-1"}}
    asked = row["prompt"][1]["content"]
    assert "/workspace/a__b__1.2" in asked and asked.endswith("It adds {wrong}.")
    assert b"THE-" not in path.read_bytes()


def test_prompts_of_ones_own(tmp_path: Path) -> None:
    """A policy would get a prompt that it was not made for."""
    path = tmp_path / "train.parquet"
    verl_rows.write(path, [TASK], split="test", agent_name="x", system="", instruction="{instance_id}: {version}")
    (row,) = pyarrow.parquet.read_table(path).to_pylist()
    assert row["prompt"] == [{"role": "user", "content": "a__b-1: 1.2"}]
    with pytest.raises(KeyError):
        verl_rows.write(path, [TASK], split="test", agent_name="x", instruction="{patch}")
