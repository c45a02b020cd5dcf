"""veRL's helpers for batches: hash ids, split, strip padding, drop columns.

torch comes from the trainer and is no dependency of this client: only functions that need it fail without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from sandbox_client.hashing import instance_hash

# The columns of an SWE-bench row, and the index columns of pandas and veRL.
_ROW_COLUMNS = (
    *("repo", "base_commit", "patch", "test_patch", "problem_statement", "hints_text", "created_at", "version"),
    *("FAIL_TO_PASS", "PASS_TO_PASS", "environment_setup_commit", "description"),
    *("__index_level_0__", "index"),
)


def string_to_hash_tensor(s: str) -> Any:
    """The instance hash as an int64 scalar tensor. Raises ModuleNotFoundError without torch."""
    torch = import_module("torch")
    return torch.tensor(instance_hash(s), dtype=torch.int64)


def expand_tensor_dict(td: Any, repeats: int) -> list[Any]:
    """The values of `td` in the order of its sorted keys, each `repeats - 1` times."""
    if repeats < 1:
        raise AssertionError(f"repeats is {repeats}, less than 1")
    return [td[key] for key in sorted(td.keys()) for _ in range(repeats - 1)]


def remove_trailing_pad_tokens(tensor: Any, pad_token_id: int) -> Any:
    """A copy of the 1-D `tensor` without trailing padding; a tensor of padding only is copied whole."""
    content = (tensor != pad_token_id).nonzero(as_tuple=True)[0]
    return (tensor[: int(content[-1]) + 1] if len(content) else tensor).clone()


def split_array(array: Sequence[Any], split_size: int | Sequence[int], dim: int = 0) -> list[Any]:
    """Split into chunks of `split_size` items, or of the given sizes, whose sum must be at least the length.

    Raises:
        ValueError: `dim` is not 0.
        TypeError: a size is not an int.
        RuntimeError: no sizes, or their sum is too small.
    """
    if dim != 0:
        raise ValueError("only the batch dimension, 0, can be split")
    if isinstance(split_size, int):
        return [array[start : start + split_size] for start in range(0, len(array), split_size)]
    if not isinstance(split_size, (list, tuple)) or not all(isinstance(size, int) for size in split_size):
        raise TypeError("split_size must be an int or a list of ints")
    if not split_size:
        raise RuntimeError("split_size is empty")
    chunks, start = [], 0
    for size in split_size:
        end = min(start + size, len(array))
        chunks.append(array[start:end])
        start = end
    if start < len(array):
        raise RuntimeError(f"split_size {list(split_size)} ends before the {len(array)} items do")
    return chunks


def clear_swe_non_batch(data: Any, is_dict: bool = False) -> None:
    """Drop the columns of a data set row from a dict, or from a DataProto's non_tensor_batch, in place."""
    columns = data if is_dict else data.non_tensor_batch
    for name in _ROW_COLUMNS:
        if name in columns:
            del columns[name]
