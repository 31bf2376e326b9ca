"""Drawing tokens one after the other, with the log-probability of each, for sample and training."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# (tokens so far [n, t], new tokens [n], their rows among the N [n], generator)
# -> (tokens [n], True where the policy's own [n])
Environment = Callable[[Tensor, Tensor, Tensor, torch.Generator], tuple[Tensor, Tensor]]
# (tokens so far [n, t], still running [n]) -> True where a completion ends here [n]
Stopped = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Completions:
    """N sampled completions of at most T tokens.

    Args:
        ids: ``[N, T]`` token numbers; 0 where the mask is False.
        logp: ``[N, T]`` float32, log-probability of each token where it was drawn.
        mask: ``[N, T]`` bool, True up to and including the first end token.
        truncated: ``[N]`` bool, True where the limit came before an end.
        own: ``[N, T]`` bool, True where the policy chose the token, False where an environment did.
    """

    ids: Tensor
    logp: Tensor
    mask: Tensor
    truncated: Tensor
    own: Tensor


@torch.no_grad()
def generate(
    model: Any,
    ids: Tensor,
    attention: Tensor,
    *,
    max_new_tokens: int,
    ends: Sequence[int],
    generator: torch.Generator,
    temperature: float = 1.0,
    stopped: Stopped | None = None,
    environment: Environment | None = None,
    compact: bool = False,
) -> Completions:
    r"""One completion per row, drawn from :math:`\mathrm{softmax}(z_t / \tau)` in float32.

    Args:
        model: causal language model with a key-value cache, in eval mode.
        ids: ``[N, P]`` prompts, padded on the left.
        attention: ``[N, P]`` 1 on the tokens of the prompt.
        max_new_tokens, ends: limit T, end token included; the tokens that end a completion.
        generator: the only source of randomness, on the model's device.
        temperature: τ, positive.
        stopped: ends a completion for another reason than an end token.
        environment: may replace a token that was drawn; ``own`` is False on what it writes.
        compact: drop finished rows, which is quicker where lengths differ; draws other tokens.
    """
    rows = torch.arange(len(ids), device=ids.device)
    alive = torch.ones_like(rows, dtype=torch.bool)
    running = alive.clone()
    out = ids.new_zeros(len(ids), max_new_tokens)
    mask = torch.zeros_like(out, dtype=torch.bool)
    logp = torch.zeros_like(out, dtype=torch.float32)
    own = ~mask
    end_tokens = torch.tensor(list(ends), device=ids.device)
    step, cache, row_prompt = read_prompts(model, ids, attention, logits_to_keep=1)
    logits = step.logits[row_prompt, -1]
    for place in range(max_new_tokens):
        scores = torch.log_softmax(logits.float() / temperature, dim=-1)
        drawn = torch.multinomial(scores.exp(), num_samples=1, generator=generator)[:, 0]
        if environment is not None:
            drawn, own[rows, place] = environment(out[rows, :place], drawn, rows, generator)
        out[rows, place] = drawn
        mask[rows, place] = alive
        logp[rows, place] = scores.gather(1, drawn[:, None])[:, 0]
        alive = alive & ~torch.isin(drawn, end_tokens)
        if stopped is not None:
            alive = alive & ~stopped(out[rows, : place + 1], alive)
        running[rows] = alive
        if place + 1 == max_new_tokens or not alive.any():
            break
        attention = torch.cat([attention, torch.ones_like(attention[:, :1])], dim=1)
        if compact and int(alive.sum()) < 0.8 * len(alive):
            cache.batch_select_indices(alive.nonzero()[:, 0])
            rows, drawn, attention, alive = (x[alive] for x in (rows, drawn, attention, alive))
        logits, cache = _next_logits(model, drawn, attention, cache)
    width = int(mask.any(dim=0).sum())
    out, logp, mask, own = (x[:, :width] for x in (out, logp, mask, own))
    return Completions(
        ids=out.where(mask, 0), logp=logp.where(mask, 0.0), mask=mask, truncated=running, own=own
    )


def _next_logits(model: Any, drawn: Tensor, attention: Tensor, cache: Any) -> tuple[Tensor, Any]:
    """``[n, V]`` logits after the tokens that were drawn, ``[n]``, and the longer cache."""
    name = cache_name(model)
    options = {name: cache, "use_cache": True, "logits_to_keep": 1}
    step = model(
        input_ids=drawn[:, None],
        attention_mask=attention,
        position_ids=positions_of(attention)[:, -1:],
        **options,
    )
    return step.logits[:, -1], getattr(step, name)


def read_prompts(
    model: Any, ids: Tensor, attention: Tensor, **options: Any
) -> tuple[Any, Any, Tensor]:
    """The forward pass over the prompts, once for each distinct one of the U prompts.

    Args:
        model: causal language model, with or without its projection on the vocabulary.
        ids: ``[N, P]`` prompts, padded on the left.
        attention: ``[N, P]`` 1 on the tokens of the prompt.
        options: further arguments of the model.

    Returns:
        the model's output for U prompts, the cache of keys and values for N rows, and ``[N]`` the
        prompt of each row.
    """
    both, row_prompt = torch.cat([ids, attention], dim=1).unique(dim=0, return_inverse=True)
    prompts, seen = both.chunk(2, dim=1)
    output = model(
        input_ids=prompts,
        attention_mask=seen,
        position_ids=positions_of(seen),
        use_cache=True,
        **options,
    )
    cache = getattr(output, cache_name(model))
    cache.batch_select_indices(row_prompt)
    return output, cache, row_prompt


def positions_of(attention: Tensor) -> Tensor:
    """``[N, L]`` place of each token in its own text; padding on the left is at 0."""
    return (attention.cumsum(dim=1) - 1).clamp(min=0)


def cache_name(model: Any) -> str:
    """transformers renames past_key_values to cache, as argument and as output."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
