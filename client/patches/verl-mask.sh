#!/bin/sh
# Leaves samples out of the loss whose reward says nothing about the policy. Needs SANDBOX_MASKED_REWARD=nan.
# usage: verl-mask.sh VERL_CHECKOUT
set -eu
cd "$1/verl"

line="        from sandbox_client.swedev_masking import leave_out_masked; leave_out_masked(data, reward_tensor)"
grep -qF "$line" workers/reward_manager/swedev.py ||
    sed -i "/reward_tensor = asyncio\.run(/a\\
$line" workers/reward_manager/swedev.py
grep -qF "$line" workers/reward_manager/swedev.py
# A micro-batch of masked samples alone would give 0/0; later revisions see to it themselves.
sed -i -E '/^def masked_mean\(/,/^def masked_var\(/s|/ mask\.sum\(axis=axis\)$|/ mask.sum(axis=axis).clamp(min=1)|' utils/torch_functional.py
