"""Drop-in for `verl.utils.swedev_utils`: `from sandbox_client.swedev_utils import *`.

Has every name of the original, including modules that it only re-exports; veRL's call sites stay unchanged. `__all__`
lists what is available: re-exported packages only if installed, the prompt's constants only if their text is found.
"""

from __future__ import annotations

from sandbox_client import environment
from sandbox_client.swedev_calls import call_observation_api, call_postprocess_api, get_api, initialize_runtime
from sandbox_client.swedev_leaks import leaks
from sandbox_client.swedev_prompts import _get_swebench_workspace_dir_name as _get_swebench_workspace_dir_name
from sandbox_client.swedev_prompts import constants, get_instruction, get_system_prompt
from sandbox_client.swedev_rewards import calc_reward
from sandbox_client.swedev_tensors import (
    clear_swe_non_batch,
    expand_tensor_dict,
    remove_trailing_pad_tokens,
    split_array,
    string_to_hash_tensor,
)
from sandbox_client.swedev_text import OBS_ERROR_MSG, clear_suffix, get_generation_tokens, is_stop

environment.check()

_found_here = {**leaks(), **constants()}
globals().update(_found_here)

__all__ = [
    "OBS_ERROR_MSG",
    "calc_reward",
    "call_observation_api",
    "call_postprocess_api",
    "clear_suffix",
    "clear_swe_non_batch",
    "expand_tensor_dict",
    "get_api",
    "get_generation_tokens",
    "get_instruction",
    "get_system_prompt",
    "initialize_runtime",
    "is_stop",
    "remove_trailing_pad_tokens",
    "split_array",
    "string_to_hash_tensor",
]
__all__ += list(_found_here)
