#!/bin/sh
# Mends what no client can in veRL's swedev task of 2025-03-24 and later. Run it once or again, then look at `git diff`.
# usage: verl-g5-g6.sh VERL_CHECKOUT
set -eu
cd "$1/verl"
start=$(grep -l 'async def swedev_start(' workers/agentic/*.py)

# Its caller passes every column of the row.
sed -i -E '/async def swedev_start\(/{/\*\*_/!s/\):/, **_):/}' $start
# Its caller passes reward_fn_key.
sed -i -E '/def __init__\(/{/\*\*_/!s/\):/, **_):/}' workers/reward_manager/swedev.py
# Since 2025-04-04 nothing hashes the ids any more, and only tensors pass the collate function.
hash="        if isinstance(row_dict.get('instance_id'), str): row_dict['instance_id'] = string_to_hash_tensor(row_dict['instance_id'])"
grep -qF "$hash" utils/dataset/rl_dataset.py ||
    sed -i "/row_dict.* = self\.dataframe\[item\]\$/a\\
$hash" utils/dataset/rl_dataset.py
