"""Markers in the policy's text, and token ids of turns in the Qwen chat format."""

from __future__ import annotations

OBS_ERROR_MSG = "obs too long"

_TURN_BORDERS = ("<|im_end|>\n<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n")
_ROLE_TOKENS = {"user": 872, "assistant": 77091}
_IM_START, _IM_END, _NEWLINE = 151644, 151645, 198


def is_stop(response: str) -> bool:
    """Whether the policy called `finish`, which is never sent to the service."""
    return "<function=finish>" in response


def clear_suffix(text: str) -> str:
    """Remove all turn borders, and white space at the end."""
    for border in _TURN_BORDERS:
        text = text.replace(border, "")
    return text.rstrip()


def get_generation_tokens(role: str, model: str = "qwen") -> list[int]:
    """Token ids that end a turn and begin one of `role`, "user" or "assistant"."""
    if role not in _ROLE_TOKENS:
        raise AssertionError(f"no such role: {role!r}")
    if model != "qwen":
        raise NotImplementedError(f"no chat format is known for {model!r}")
    return [_IM_END, _NEWLINE, _IM_START, _ROLE_TOKENS[role], _NEWLINE]
