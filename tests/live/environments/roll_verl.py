"""Rollouts of a scripted policy in veRL's real agent loops and reward loop: `roll_verl.py < job`, outcomes on stdout.

Runs in an environment of its own, with sandbox_client on PYTHONPATH, and with the folder of another release of veRL
before it where the job is for that one.
"""

import asyncio
import functools
import inspect
import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace

job = json.load(sys.stdin)
os.environ |= job["environment"]

import httpx  # noqa: E402  # as below: after the environment is set
import hydra  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
import verl  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from verl import DataProto  # noqa: E402
from verl.experimental.agent_loop import agent_loop  # noqa: E402
from verl.experimental.reward_loop import reward_loop  # noqa: E402
from verl_parts import TOKENIZER, Policy, pulls  # noqa: E402

CONFIG = OmegaConf.create(
    {
        "actor_rollout_ref": {
            "rollout": {
                "prompt_length": 4096,
                "response_length": 16384,
                "multi_turn": {
                    "max_user_turns": 8,
                    "max_assistant_turns": 8,
                    "max_parallel_calls": 1,
                    "max_tool_response_length": 256,
                    "tool_response_truncate_side": "middle",
                    "tool_config_path": job.get("tools"),
                    "interaction_config_path": None,
                    "format": "hermes",
                },
                "agent": {},
                "full_determinism": False,  # since 0.9.1
            },
            "model": {},
        },
        "data": {
            "tool_config_path": None,
            "apply_chat_template_kwargs": {},
            "continuous_token": {"enable": False},  # of 0.9.0
        },
        "reward": {
            "reward_manager": {
                "source": "importlib",
                "name": "SandboxRewardManager",
                "module": {"path": "pkg://sandbox_client.verl"},
            },
            "custom_reward_function": {"path": None},
            "reward_model": {"enable": False},
        },
    }
)
# from 0.8 on a worker reads them once, before that each trajectory
TOOLS = agent_loop.load_all_tools(job["tools"], None) if hasattr(agent_loop, "load_all_tools") else []


def loop_for(policy: Policy, loop: dict):
    """The agent loop, built as veRL's worker builds it."""
    given = {
        "trainer_config": agent_loop.DictConfigWrap(CONFIG),
        "server_manager": policy,
        "tokenizer": TOKENIZER,
        "processor": None,
        "dataset_cls": None,
        "data_config": agent_loop.DictConfigWrap(CONFIG.data),
        "dataset_config": CONFIG.data,
    }
    known = inspect.signature(agent_loop.AgentLoopBase.__init__).parameters
    given = {name: value for name, value in given.items() if name in known}
    if hasattr(agent_loop, "ToolListWrap"):
        given["tools"] = agent_loop.ToolListWrap(TOOLS)
    return hydra.utils.instantiate(loop, **given)


def lose_sandbox(instance_id: str) -> None:
    """Remove the container of the instance's only live session of this run, as a fault of its host would."""
    url = os.environ["SANDBOX_URL"]
    live = httpx.get(f"{url}/v1/sessions", params={"run": os.environ["SANDBOX_RUN"], "state": "live"}).json()
    (sid,) = (session["sid"] for session in live if session["instance_id"] == instance_id)
    container_id = httpx.get(f"{url}/v1/sessions/{sid}").json()["container_id"]
    subprocess.run(["docker", "rm", "-f", container_id], check=True, stdout=subprocess.DEVNULL)


async def roll(asked: dict) -> dict:
    """One trajectory."""
    texts = asked["policy"]
    policy = Policy(texts)
    policy.waits = asyncio.Event()
    policy.loses = functools.partial(lose_sandbox, asked["instance_id"])
    row = {"raw_prompt": [{"role": "user", "content": "Mend it."}], "extra_info": {"instance_id": asked["instance_id"]}}
    running = asyncio.create_task(
        loop_for(policy, asked["loop"]).run({"logprobs": True}, **row, priority=0, tools_kwargs={})
    )
    if "WAIT" in texts:
        await policy.waits.wait()
        running.cancel()
    try:
        output = await running
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # an outcome
        return {"error": type(error).__name__, "detail": str(error)}
    pairs = list(zip(output.response_ids, output.response_mask, strict=True))
    return {
        "seen": policy.seen,
        "policy": TOKENIZER.decode([token for token, mask in pairs if mask]),
        "shown": TOKENIZER.decode([token for token, mask in pairs if not mask]),
        "logprobs": len(output.response_logprobs or ()) == len(pairs),
        "reward": output.reward_score,
        "extra": output.extra_fields["reward_extra_info"],
        "sid": output.extra_fields["sandbox_sid"],
    }


async def batch(asked: dict) -> dict:
    """Run a step's batch through the real worker, without engine and Ray; return what the trainer receives."""
    agent_loop._agent_loop_registry["sandbox"] = asked["loop"]
    worker = agent_loop.AgentLoopWorker.__new__(agent_loop.AgentLoopWorker)
    rollout = SimpleNamespace(
        **{name: CONFIG.actor_rollout_ref.rollout[name] for name in ("prompt_length", "response_length")},
        temperature=1.0,
        top_p=1.0,
        top_k=-1,
        calculate_log_probs=True,
        agent=SimpleNamespace(default_agent_loop="sandbox"),
        full_determinism=False,
    )
    policy = Policy(asked["policy"])
    worker.__dict__ |= {
        "config": CONFIG,
        "rollout_config": rollout,
        "llm_client": policy,
        "server_manager": policy,  # its name up to 0.8
        "tokenizer": TOKENIZER,
        "tools": TOOLS,
        "distillation_enabled": False,
        "stream_teacher_with_rollout": False,
        "mm_processor_kwargs": {},
    } | dict.fromkeys(
        ("processor", "hf_model_type", "dataset_cls", "reward_loop_worker_handles", "reward_router_address")
    )
    ids = asked["instance_ids"]
    prompts = np.empty(len(ids), dtype=object)
    prompts[:] = [[{"role": "user", "content": "Mend it."}] for _ in ids]
    step = DataProto.from_dict(
        tensors={"dummy": torch.zeros(len(ids), 1)},
        non_tensors={"raw_prompt": prompts, "instance_id": np.array(ids, dtype=object)},
        meta_info={"global_steps": 1},
    )
    done = await worker.generate_sequences(step)
    return {
        "scores": done.batch["rm_scores"].sum(-1).tolist(),
        "pulls": pulls(done.batch["response_mask"]),
        "has_logprobs": "rollout_log_probs" in done.batch,
        "masked": done.non_tensor_batch["masked"].tolist(),
        "acc": done.non_tensor_batch["acc"].tolist(),
    }


async def rewards(sids: list[str]) -> dict:
    """Rewards from the real reward loop's worker, without Ray, requested concurrently."""
    worker = reward_loop.RewardLoopWorker.__new__(reward_loop.RewardLoopWorker)
    worker.config = CONFIG
    worker.reward_manager = reward_loop.load_reward_manager(
        CONFIG, TOKENIZER, reward_router_address=None, reward_model_tokenizer=None
    )

    async def one(sid: str) -> tuple[dict, float]:
        fields = np.array([{"sandbox_sid": sid}], dtype=object)
        began = time.monotonic()
        told = await worker.compute_score(
            DataProto.from_dict(tensors={"responses": torch.zeros(1, 1)}, non_tensors={"tool_extra_fields": fields})
        )
        return told, time.monotonic() - began

    done = await asyncio.gather(*map(one, sids))
    return {
        "rewards": [told["reward_score"] for told, _ in done],
        "masked": [told["reward_extra_info"]["masked"] for told, _ in done],
        "longest_s": max((took for _, took in done), default=0.0),
    }


async def main() -> dict:
    """All rollouts at once, then the batches."""
    return {
        "verl": verl.__version__,
        "rollouts": list(await asyncio.gather(*map(roll, job.get("rollouts", [])))),
        "batches": [await batch(asked) for asked in job.get("batches", [])],
        "rewards": await rewards(job.get("sids", [])),
    }


sys.stdout.flush()
os.write(1, ("\n" + json.dumps(asyncio.run(main()))).encode())  # below whatever veRL prints
