#!/bin/sh
# GRPO on the catalogue's tasks with veRL 0.9: SANDBOX_URL=http://host:5000 SANDBOX_RUN=name examples/verl/train.sh MODEL
# The lines that concern the sandbox; batch sizes, GPUs and the rest of your own configuration go after them.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
model=$1
shift
[ -f train.parquet ] || sandbox-server dataset verl train.parquet # else made on the sandbox host, and copied here
[ -f test.parquet ] || sandbox-server dataset verl test.parquet --split test
# what a former trainer of this name left behind
python -c "from sandbox_client.blocking import BlockingClient; BlockingClient('$SANDBOX_URL').end_run('$SANDBOX_RUN')"

exec python -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    actor_rollout_ref.model.path="$model" \
    data.train_files=train.parquet data.val_files=test.parquet data.return_raw_chat=True \
    data.max_prompt_length=8192 data.max_response_length=32768 \
    actor_rollout_ref.rollout.mode=async actor_rollout_ref.rollout.n=8 \
    actor_rollout_ref.rollout.agent.agent_loop_config_path="$here/agent_loops.yaml" \
    actor_rollout_ref.rollout.agent.default_agent_loop=sandbox \
    actor_rollout_ref.actor.loss_agg_mode=token-mean \
    "+ray_kwargs.ray_init.runtime_env.env_vars.SANDBOX_URL='$SANDBOX_URL'" \
    "+ray_kwargs.ray_init.runtime_env.env_vars.SANDBOX_RUN='$SANDBOX_RUN'" \
    "+ray_kwargs.ray_init.runtime_env.env_vars.SANDBOX_RUN_LEASE_S='120'" \
    "$@"
