"""The edits to veRL: on files with the lines that they look for."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from sandbox_client import SettingsError
from sandbox_client.swedev_masking import leave_out_masked

PATCHES = Path(__file__).parent.parent / "patches"
TREE = {
    "verl/workers/agentic/tasks.py": "async def swedev_start(instance_id, input_ids):\n    return instance_id\n",
    "verl/workers/agentic/loops.py": "def __init__(a):\n    pass\n",
    "verl/workers/reward_manager/swedev.py": (
        "class Manager:\n    def __init__(self, tokenizer):\n        pass\n\n    def __call__(self, data):\n"
        "        reward_tensor = asyncio.run(self.scores(data))\n        return reward_tensor\n"
    ),
    "verl/utils/dataset/rl_dataset.py": (
        "class Rows:\n    def __getitem__(self, item):\n"
        "        row_dict = self.dataframe[item]\n        return row_dict\n"
    ),
    "verl/utils/torch_functional.py": (
        "def masked_mean(total, mask, axis=None):\n    return total / mask.sum(axis=axis)\n\n"
        "def masked_var(total, mask, axis=None):\n    return total / mask.sum(axis=axis)\n"
    ),
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def run(script: str, checkout: Path) -> dict[str, list[str]]:
    """Run it twice; the lines that were not there before."""
    for _ in range(2):
        subprocess.run(["sh", str(PATCHES / script), str(checkout)], check=True, capture_output=True, text=True)
    changed = {}
    for name, text in TREE.items():
        lines = (checkout / name).read_text().splitlines()
        compile("\n".join(lines), name, "exec")
        if new := [line.strip() for line in lines if line not in text.splitlines()]:
            changed[name.removeprefix("verl/")] = new
    return changed


def test_the_three_lines(checkout: Path) -> None:
    """The last revisions of veRL would fail before their first request."""
    row = "row_dict['instance_id']"
    assert run("verl-g5-g6.sh", checkout) == {
        "workers/agentic/tasks.py": ["async def swedev_start(instance_id, input_ids, **_):"],
        "workers/reward_manager/swedev.py": ["def __init__(self, tokenizer, **_):"],
        "utils/dataset/rl_dataset.py": [
            f"if isinstance(row_dict.get('instance_id'), str): {row} = string_to_hash_tensor({row})"
        ],
    }


def test_the_masking_edit(checkout: Path) -> None:
    """Masked samples would be trained on, or one alone in its micro-batch give NaN."""
    assert run("verl-mask.sh", checkout) == {
        "workers/reward_manager/swedev.py": [
            "from sandbox_client.swedev_masking import leave_out_masked; leave_out_masked(data, reward_tensor)"
        ],
        "utils/torch_functional.py": ["return total / mask.sum(axis=axis).clamp(min=1)"],
    }


@pytest.mark.parametrize("number", [None, "0.0", "-1"])
def test_masked_rows_that_cannot_be_told_are_an_error(monkeypatch: pytest.MonkeyPatch, number: str | None) -> None:
    """They would be trained on, as rows with that reward. Needs no torch: nothing is read of the tensors."""
    monkeypatch.delenv("SANDBOX_MASKED_REWARD", raising=False)
    if number is not None:
        monkeypatch.setenv("SANDBOX_MASKED_REWARD", number)
    with pytest.raises(SettingsError, match="nan"):
        leave_out_masked(None, None)


def test_masked_rows_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A NaN would reach the loss, or a good row lose its own."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rewards = torch.tensor([[0.0, 1.0], [0.0, float("nan")]])
    data = SimpleNamespace(batch={"loss_mask": torch.ones(2, 5, dtype=torch.int)})
    monkeypatch.setenv("SANDBOX_MASKED_REWARD", "nan")
    leave_out_masked(data, rewards)
    assert rewards.tolist() == [[0.0, 1.0], [0.0, 0.0]]
    assert data.batch["loss_mask"].tolist() == [[1] * 5, [0] * 5]
