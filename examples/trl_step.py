"""One step of TRL's GRPOTrainer on a sample, on CPU: a random model of a thousand weights whose words are scripted.

    SANDBOX_URL=http://localhost:5000 python examples/trl_step.py

The server has the samples and SANDBOX_DIALECT=tool_calls. Of two rollouts one applies the sample's fix. Needs `trl`,
`torch` and `./client`; downloads nothing.
"""

import json
import os
from pathlib import Path

os.environ |= {"TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1"}

from datasets import Dataset
from sandbox_client.trl import PatchEnv, rewards
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen3_chat_template

ROWS = (Path(__file__).parent / "instances.jsonl").read_text().splitlines()
ROW = next(row for row in map(json.loads, ROWS) if row["instance_id"] == "samples__ledger-12")
FIX = f"git apply - <<'END_OF_PATCH'\n{ROW['patch']}END_OF_PATCH"


def call(name: str, **arguments: str) -> str:
    """A turn with one tool call, as Qwen's template has it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call><|im_end|>"


SCRIPTS = (
    [call("bash", command="echo first"), call("bash", command=FIX), call("submit"), "It is done.<|im_end|>"],
    [call("bash", command="echo second"), "I give up.<|im_end|>"],
)


class Scripted(GRPOTrainer):
    """The real trainer, but for what its model says."""

    def _generate_single_turn(self, prompt_ids: list, *_: object, **__: object) -> tuple:
        """Each rollout's next line: which it is can be seen by what its first command printed."""
        said = []
        for number, ids in enumerate(prompt_ids):
            text = self._tokenizer.decode(ids)
            script = SCRIPTS[number % 2 if "<tool_response>" not in text else "\nsecond\n" in text]
            turn = text.count("<|im_start|>assistant") - 1
            said.append(self._tokenizer.encode(script[min(turn, len(script) - 1)], add_special_tokens=False))
        return said, None

    def _calculate_rewards(self, *given: object, **named: object) -> object:
        found = super()._calculate_rewards(*given, **named)
        print(f"rewards: {[reward for (reward,) in found.tolist()]}")
        return found


def tokenizer() -> PreTrainedTokenizerFast:
    """One token for each byte."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True)])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|im_end|>", chat_template=qwen3_chat_template
    )


def step(instance: str, kind: type[Scripted], folder: str) -> None:
    """One step of this kind of trainer on an instance, with its files below `folder`."""
    words = tokenizer()
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    ends = {"eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id}
    trainer = kind(
        model=Qwen2ForCausalLM(Qwen2Config(vocab_size=len(words), num_key_value_heads=2, **small, **ends)),
        processing_class=words,
        args=GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=2,
            num_generations=2,
            max_completion_length=8000,
            max_tool_calling_iterations=6,
            max_steps=1,
            use_cpu=True,
            bf16=False,
            report_to=[],
            save_strategy="no",
        ),
        train_dataset=Dataset.from_list(
            [{"prompt": [{"role": "user", "content": "Fix it."}], "instance_id": instance}]
        ),
        environment_factory=PatchEnv,
        reward_funcs=[rewards],
    )
    trainer.train()


if __name__ == "__main__":
    step(ROW["instance_id"], Scripted, "build/trl_step")
