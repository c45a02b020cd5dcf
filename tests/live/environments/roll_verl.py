"""Rollouts of a scripted policy in the real agent loop of veRL: `roll_verl.py < job`, outcomes on stdout.

Runs in an environment of its own, with sandbox_client on PYTHONPATH. The tokenizer has a token a byte and a Qwen
chat's template; nothing is downloaded.
"""

import asyncio
import inspect
import json
import os
import sys
from types import SimpleNamespace

job = json.load(sys.stdin)
os.environ |= job["environment"]

import hydra  # noqa: E402  # as below: after the environment is set
import numpy as np  # noqa: E402
import torch  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402
from verl import DataProto  # noqa: E402
from verl.experimental.agent_loop import agent_loop  # noqa: E402
from verl.workers.rollout.replica import TokenOutput  # noqa: E402

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    """A token a byte."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True)])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|im_end|>", chat_template=TEMPLATE
    )


TOKENIZER = tokenizer()
ROLLOUT = {
    "prompt_length": 4096,
    "response_length": job.get("response_length", 16384),
    "multi_turn": {"max_parallel_calls": 1},
    "agent": {},
}
CONFIG = OmegaConf.create(
    {
        "actor_rollout_ref": {"rollout": ROLLOUT, "model": {}},
        "data": {
            "tool_config_path": None,
            "apply_chat_template_kwargs": {},
            "continuous_token": {"enable": False},  # of 0.9.0
        },
    }
)


class Policy:
    """What an engine is to the loop."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = iter(texts)
        self.seen: list[str] = []
        self.waits = asyncio.Event()

    async def generate(self, request_id, *, prompt_ids, sampling_params, **_):
        """The next text, as tokens; waits for ever where the script says so."""
        self.seen.append(TOKENIZER.decode(prompt_ids))
        text = next(self.texts)
        if text == "WAIT":
            self.waits.set()
            await asyncio.sleep(3600)
        ids = TOKENIZER.encode(text + "<|im_end|>")
        wanted = sampling_params.get("logprobs")
        return TokenOutput(
            token_ids=ids, log_probs=[-0.5] * len(ids) if wanted and job.get("engine_logprobs") else None
        )


def loop_for(policy: Policy, arguments: dict):
    """As veRL's worker makes it."""
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
        given["tools"] = agent_loop.ToolListWrap([])
    return hydra.utils.instantiate({"_target_": "sandbox_client.verl.SandboxAgentLoop", **arguments}, **given)


async def roll(texts: list[str]) -> dict:
    """One trajectory."""
    policy = Policy(texts)
    row = {"raw_prompt": [{"role": "user", "content": "Mend it."}], "extra_info": {"instance_id": job["instance_id"]}}
    running = asyncio.create_task(
        loop_for(policy, job.get("arguments", {})).run(
            {"logprobs": job.get("logprobs", True)}, **row, priority=0, tools_kwargs={}
        )
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
        "prompt": TOKENIZER.decode(output.prompt_ids),
        "seen": policy.seen,
        "response": TOKENIZER.decode(output.response_ids),
        "policy": TOKENIZER.decode([token for token, mask in pairs if mask]),
        "shown": TOKENIZER.decode([token for token, mask in pairs if not mask]),
        "tokens": len(pairs),
        "logprobs": output.response_logprobs,
        "mask": output.response_mask,
        "reward": output.reward_score,
        "turns": output.num_turns,
        "extra": output.extra_fields["reward_extra_info"],
        "sid": output.extra_fields["sandbox_sid"],
    }


class Repeats:
    """An engine whose policy says the job's texts in every trajectory."""

    async def generate(self, request_id, *, prompt_ids, sampling_params, **_):
        """As many turns were before as the assistant had."""
        turn = TOKENIZER.decode(prompt_ids).count("<|im_start|>assistant") - 1
        return await Policy(job["batch"]["policy"][turn:]).generate(
            request_id, prompt_ids=prompt_ids, sampling_params=sampling_params
        )


async def batch(instance_ids: list[str]) -> dict:
    """A step's batch through the real worker, made without an engine and without Ray; what the trainer gets of it."""
    agent_loop._agent_loop_registry["sandbox"] = {"_target_": "sandbox_client.verl.SandboxAgentLoop", "max_turns": 5}
    worker = agent_loop.AgentLoopWorker.__new__(agent_loop.AgentLoopWorker)
    rollout = SimpleNamespace(
        **{name: CONFIG.actor_rollout_ref.rollout[name] for name in ("prompt_length", "response_length")},
        temperature=1.0,
        top_p=1.0,
        top_k=-1,
        calculate_log_probs=True,
        agent=SimpleNamespace(default_agent_loop="sandbox"),
    )
    worker.__dict__ |= {
        "config": CONFIG,
        "rollout_config": rollout,
        "llm_client": Repeats(),
        "server_manager": Repeats(),  # its name up to 0.8
        "tokenizer": TOKENIZER,
        "tools": [],
        "distillation_enabled": False,
        "stream_teacher_with_rollout": False,
        "mm_processor_kwargs": {},
    } | dict.fromkeys(
        ("processor", "hf_model_type", "dataset_cls", "reward_loop_worker_handles", "reward_router_address")
    )
    prompts = np.empty(len(instance_ids), dtype=object)
    prompts[:] = [[{"role": "user", "content": "Mend it."}] for _ in instance_ids]
    asked = DataProto.from_dict(
        tensors={"dummy": torch.zeros(len(instance_ids), 1)},
        non_tensors={"raw_prompt": prompts, "instance_id": np.array(instance_ids, dtype=object)},
        meta_info={"global_steps": 1},
    )
    done = await worker.generate_sequences(asked)
    return {
        "scores": done.batch["rm_scores"].sum(-1).tolist(),
        "trained_tokens": done.batch["response_mask"].sum(-1).tolist(),
        "has_logprobs": "rollout_log_probs" in done.batch,
        "masked": done.non_tensor_batch["masked"].tolist(),
        "acc": done.non_tensor_batch["acc"].tolist(),
    }


async def main() -> list[dict]:
    """All of them at once."""
    rollouts = list(await asyncio.gather(*map(roll, job.get("policies", []))))
    return [*rollouts, await batch(job["batch"]["instance_ids"])] if "batch" in job else rollouts


json.dump({"rollouts": asyncio.run(main()), "verl": agent_loop.__file__}, sys.stdout)
