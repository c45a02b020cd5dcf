"""What the scripts that drive veRL share: a tokenizer, a scripted policy, and the loss that a batch leads to."""

import asyncio
from collections.abc import Callable

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from verl.trainer.ppo.core_algos import agg_loss
from verl.workers.rollout.replica import TokenOutput

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with one token per byte and Qwen's chat template; downloads nothing."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True)])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|im_end|>", chat_template=TEMPLATE
    )


TOKENIZER = tokenizer()


class Policy:
    """A scripted inference engine: answers each trajectory with its texts, one per turn.

    At WAIT it blocks forever; at LOSE it calls `loses` first.
    """

    def __init__(self, texts: list[str], *, with_logprobs: bool = False) -> None:
        self.texts, self.with_logprobs = texts, with_logprobs
        self.seen: list[str] = []
        self.waits: asyncio.Event | None = None
        self.loses: Callable[[], None] | None = None

    async def generate(self, request_id, *, prompt_ids, sampling_params, **_):
        """The text of the turn, as tokens."""
        prompt = TOKENIZER.decode(prompt_ids)
        self.seen.append(prompt)
        text = self.texts[prompt.count("<|im_start|>assistant") - 1]
        if text == "WAIT":
            if self.waits:
                self.waits.set()
            await asyncio.sleep(3600)
        if text == "LOSE" and self.loses:
            self.loses()
        ids = TOKENIZER.encode(text + "<|im_end|>")
        given = self.with_logprobs and sampling_params.get("logprobs")
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids) if given else None)


def pulls(response_mask: torch.Tensor) -> list[bool]:
    """Whether each sample of a batch moves the policy by veRL's own loss, were its advantage 1."""
    log_probs = torch.zeros(response_mask.shape, requires_grad=True)
    agg_loss(-torch.exp(log_probs), response_mask, loss_agg_mode="token-mean").backward()
    assert log_probs.grad is not None
    return (log_probs.grad.abs().sum(-1) > 0).tolist()
