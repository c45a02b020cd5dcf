"""For trainers that leave masked samples out of the loss; see patches/README.md."""

from __future__ import annotations

import math
from typing import Any

from sandbox_client import environment
from sandbox_client.errors import SettingsError


def leave_out_masked(data: Any, reward_tensor: Any) -> None:
    """Zero the reward and the loss mask of each row whose reward is NaN, in place.

    `data` is a DataProto whose batch has `loss_mask`; `reward_tensor` is [batch, response length]. Needs
    SANDBOX_MASKED_REWARD=nan, which makes masked rewards NaN.

    Raises:
        SettingsError: SANDBOX_MASKED_REWARD is not NaN, so masked rows could not be recognized.
    """
    if not math.isnan(environment.masked_reward()):
        raise SettingsError("leaving masked samples out of the loss needs SANDBOX_MASKED_REWARD=nan")
    masked = reward_tensor.isnan().any(dim=-1)
    reward_tensor[masked] = 0.0
    data.batch["loss_mask"][masked.to(data.batch["loss_mask"].device)] = 0
