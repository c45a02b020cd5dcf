"""A step of veRL's V1 rollout with Ray: `roll_verl_v1.py < job`, what the trainer would read on stdout.

The manager, its workers, the reward loop's workers, the TransferQueue and the configuration (composed from the
overrides that examples/verl/train.sh hands over) are veRL's own; the engine is a scripted policy in each worker.
"""

import json
import os
import sys
import time
from pathlib import Path

job = json.load(sys.stdin)
assert "SANDBOX_URL" not in os.environ  # it reaches the workers by Ray's runtime_env alone

import ray  # noqa: E402  # as below: what takes long comes after the check
import torch  # noqa: E402
import transfer_queue as tq  # noqa: E402
import verl  # noqa: E402
from hydra import compose, initialize_config_dir  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from transformers import Qwen2Config  # noqa: E402
from verl.trainer.ppo.v1 import AgentLoopManagerTQ  # noqa: E402
from verl.utils.tensordict_utils import get_tensordict  # noqa: E402
from verl_parts import TOKENIZER, Policy, pulls  # noqa: E402


def model(folder: Path) -> None:
    """The part of a model folder that veRL reads when it computes nothing with it."""
    TOKENIZER.save_pretrained(folder)
    Qwen2Config(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=1, architectures=["Qwen2ForCausalLM"]
    ).save_pretrained(folder)


def configuration():
    """The example's configuration, adapted to CPUs."""
    with initialize_config_dir(str(Path(verl.__file__).parent / "trainer" / "config"), version_base=None):
        return compose(
            "ppo_trainer",
            [
                *job["overrides"],
                "actor_rollout_ref.rollout.name=vllm",
                "actor_rollout_ref.rollout.n=2",
                "actor_rollout_ref.rollout.agent.num_workers=1",
                "actor_rollout_ref.rollout.calculate_log_probs=True",
                f"actor_rollout_ref.rollout.multi_turn.tool_config_path={job['tools']}",
                "actor_rollout_ref.rollout.prompt_length=4096",
                "actor_rollout_ref.rollout.response_length=16384",
                "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
            ],
        )


def step(config, prompts: list[dict]) -> list[dict]:
    """Each prompt's trajectories, as a trainer finds them in the TransferQueue."""
    manager = AgentLoopManagerTQ.create(
        config=config, llm_client=Policy(job["policy"], with_logprobs=True), reward_loop_worker_handles=None
    )
    uids = [f"prompt{n}" for n in range(len(prompts))]
    columns = {name: [prompt[name] for prompt in prompts] for name in prompts[0]}
    batch = get_tensordict({**columns, "uid": uids, "index": list(range(len(uids)))}, {"global_steps": 1})
    tq.kv_batch_put(keys=uids, partition_id="train", tags=[{"is_prompt": True, "status": "pending"} for _ in uids])
    manager.generate_sequences(batch)
    end = time.monotonic() + job["within_s"]
    while True:
        tags = tq.kv_list("train")["train"]
        if all(tags[uid]["status"] in ("finished", "failure") for uid in uids):
            break
        assert time.monotonic() < end, tags
        time.sleep(0.2)
    done = []
    for uid in uids:
        keys = sorted(key for key in tags if key.startswith(f"{uid}_"))
        told = {"status": tags[uid]["status"], "trajectories": len(keys)}
        if keys:
            fields = ["rm_scores", "response_mask", "loss_mask", "rollout_log_probs", "extra_fields"]
            data = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=fields)
            masks = torch.nested.to_padded_tensor(data["response_mask"], 0)
            assert torch.equal(masks, torch.nested.to_padded_tensor(data["loss_mask"], 0))
            told |= {
                "scores": torch.nested.to_padded_tensor(data["rm_scores"], 0.0).sum(-1).tolist(),
                "pulls": pulls(masks),
                "extra": [extra["reward_extra_info"] for extra in data["extra_fields"]],
            }
        done.append(told)
    return done


def start_ray(environment: dict) -> None:
    """Ray gives its own processes 30 s to come up, which is little on a busy machine."""
    for left in (2, 1, 0):
        try:
            ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": environment})
        except Exception:  # it raises no type of its own
            ray.shutdown()
            if not left:
                raise
        else:
            return


def main() -> dict:
    """One step."""
    config = configuration()
    model(Path(config.actor_rollout_ref.model.path))
    environment = OmegaConf.to_container(config.ray_kwargs.ray_init.runtime_env.env_vars)
    environment |= {"PYTHONPATH": os.environ["PYTHONPATH"] + os.pathsep + str(Path(__file__).parent)}
    start_ray(environment)
    try:
        config.transfer_queue.enable = True
        tq.init(config.transfer_queue)
        return {"prompts": step(config, job["prompts"]), "environment": environment}
    finally:
        ray.shutdown()


if __name__ == "__main__":
    told = main()
    os.write(1, ("\n" + json.dumps(told)).encode())
