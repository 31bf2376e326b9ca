"""Between texts and token numbers: prompts encoded, completions as texts, what ends one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .generate import Stopped


def encode(
    tokenizer: Any, prompts: Sequence[str], *, chat: bool, device: Any = None
) -> tuple[Tensor, Tensor]:
    """Token numbers and attention mask of the prompts, both ``[N, P]``, padded on the left.

    Args:
        tokenizer: with a padding token; ``load`` sees to it.
        prompts: N texts.
        chat: wrap each as one user turn of the chat template, with the template's own system prompt
            if it has one.
        device: where the tensors go.

    Raises:
        ValueError: no prompts, an empty one, or ``chat`` without a chat template.
    """
    if chat and not getattr(tokenizer, "chat_template", None):
        raise ValueError(
            "chat is True but the tokenizer has no chat template: use chat=False, with the full "
            "text as prompt."
        )
    if chat:
        turns = [[{"role": "user", "content": prompt}] for prompt in prompts]
        prompts = [
            tokenizer.apply_chat_template(t, add_generation_prompt=True, tokenize=False)
            for t in turns
        ]
    if not prompts or not all(prompts):
        raise ValueError(f"prompts is {list(prompts)}: expected at least one text, and none empty.")
    options = {
        "add_special_tokens": not chat,
        "padding": True,
        "padding_side": "left",
        "return_tensors": "pt",
    }
    batch = tokenizer(list(prompts), **options)
    return batch["input_ids"].to(device), batch["attention_mask"].to(device)


def end_ids(model: Any, tokenizer: Any) -> list[int]:
    """The tokens that end a completion: the tokenizer's, and those of the generation config, which
    may list several.
    """
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    several = configured if isinstance(configured, list) else [configured]
    return sorted({int(i) for i in (*several, tokenizer.eos_token_id) if i is not None})


def token_texts(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """The text that each token adds; joined, they are the decoded text of the whole.

    A character split over several tokens stands at the token that completes it, and the tokens
    before it have "": the bytes themselves are kept in the token numbers. Bytes that never become a
    character stand as U+FFFD.
    """
    texts = []
    done = ""
    for end in range(1, len(ids) + 1):
        text = _decode(tokenizer, ids[:end])
        if end < len(ids):
            text = text.rstrip("\N{REPLACEMENT CHARACTER}")
        texts.append(text[len(done) :])
        done = max(done, text, key=len)
    return texts


def stop_texts(tokenizer: Any, stop: Sequence[str]) -> Stopped | None:
    """Ends a completion as soon as it holds one of the texts; None where there are none."""

    def stopped(ids: Tensor, alive: Tensor) -> Tensor:
        ended = torch.zeros_like(alive)
        for i in alive.nonzero()[:, 0].tolist():
            text = _decode(tokenizer, ids[i].tolist())
            ended[i] = any(s in text for s in stop)
        return ended

    return stopped if stop else None


def _decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """Every token as it is written, special tokens and spaces too."""
    return tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def check_room(model: Any, prompt_width: int, max_new_tokens: int) -> None:
    """Prompt and completion fit into the positions that the model knows."""
    room = getattr(model.config, "max_position_embeddings", None)
    if room is not None and prompt_width + max_new_tokens > room:
        raise ValueError(
            f"max_new_tokens is {max_new_tokens} and the longest prompt has {prompt_width} tokens, "
            f"but the model has "
            f"{room} positions: expected their sum to fit. Shorten one."
        )


class CompletionText(NamedTuple):
    """A completion as text without its end token, and the text of every token, the end token's
    included.
    """

    completion: str
    tokens: list[str]


def completion_text(tokenizer: Any, ids: Sequence[int], ends: Sequence[int]) -> CompletionText:
    """The texts of one completion's tokens; ``ends`` are ``end_ids``."""
    words = len(ids) - (ids[-1] in ends)
    texts = token_texts(tokenizer, ids[:words])
    return CompletionText("".join(texts), texts + [_decode(tokenizer, [i]) for i in ids[words:]])
