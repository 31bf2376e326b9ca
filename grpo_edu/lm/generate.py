"""Drawing tokens one after the other, with the log-probability of each: the loop behind ``sample`` and behind training."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# (tokens so far [n, t], new tokens [n], their rows among the N [n], generator) -> (tokens [n], True where the policy's own [n])
Environment = Callable[[Tensor, Tensor, Tensor, torch.Generator], tuple[Tensor, Tensor]]
# (tokens so far [n, t], still running [n]) -> True where a completion ends here [n]
Stopped = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Completions:
    """N sampled completions of at most T tokens.

    Args:
        ids: ``[N, T]`` token numbers; 0 where the mask is False.
        logp: ``[N, T]`` float32, log-probability of each token under the distribution it was drawn from.
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
    r"""One completion per row, drawn token by token from :math:`\mathrm{softmax}(z_t / \tau)` in float32.

    Args:
        model: causal language model with a key-value cache, in eval mode.
        ids: ``[N, P]`` prompts, padded on the left.
        attention: ``[N, P]`` 1 on the tokens of the prompt.
        max_new_tokens: limit T, end token included.
        ends: tokens that end a completion.
        generator: the only source of randomness, on the model's device.
        temperature: τ, positive.
        stopped: ends a completion for another reason than an end token.
        environment: may replace a token that was drawn; what it writes is no choice of the policy's (``own`` is False).
        compact: drop finished rows from the batch and the cache. Quicker where lengths differ; the draws are others.
    """
    rows, alive, cache, new = (
        torch.arange(len(ids), device=ids.device),
        torch.ones_like(ids[:, 0], dtype=torch.bool),
        None,
        ids,
    )
    shape, end_tokens = (len(ids), max_new_tokens), torch.tensor(list(ends), device=ids.device)
    out, mask = (
        torch.zeros(shape, dtype=ids.dtype, device=ids.device),
        torch.zeros(shape, dtype=torch.bool, device=ids.device),
    )
    logp, own = torch.zeros(shape, device=ids.device), torch.ones_like(mask)
    running, name, width = torch.ones_like(alive), cache_name(model), 0
    while width < max_new_tokens and alive.any():
        scores, cache = _next_logp(model, new, attention, cache, temperature, name)
        drawn = torch.multinomial(scores.exp(), num_samples=1, generator=generator)[:, 0]
        if environment is not None:
            drawn, own[rows, width] = environment(out[rows, :width], drawn, rows, generator)
        out[rows, width], mask[rows, width] = drawn, alive
        logp[rows, width] = scores.gather(1, drawn[:, None])[:, 0]
        width += 1
        alive = alive & ~torch.isin(drawn, end_tokens)
        if stopped is not None:
            alive = alive & ~stopped(out[rows, :width], alive)
        running[rows] = alive
        new, attention = (
            drawn[:, None],
            torch.cat([attention, torch.ones_like(attention[:, :1])], dim=1),
        )
        if compact and 0 < int(alive.sum()) < 0.8 * len(alive):
            rows, new, attention = rows[alive], new[alive], attention[alive]
            cache.batch_select_indices(alive.nonzero()[:, 0])
            alive = alive[alive]
    mask = mask[:, :width]
    ids, logp, own = (
        out[:, :width].masked_fill(~mask, 0),
        logp[:, :width].masked_fill(~mask, 0.0),
        own[:, :width],
    )
    return Completions(ids, logp, mask, truncated=running, own=own)


def cache_name(model: Any) -> str:
    """transformers renames past_key_values to cache, as argument and as output."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def _next_logp(
    model: Any, new: Tensor, attention: Tensor, cache: Any, temperature: float, name: str
) -> tuple[Tensor, Any]:
    """``[N, V]`` log-probs of the next token after the new tokens, and the cache that now holds them too."""
    positions = (attention.cumsum(dim=1) - 1).clamp(min=0)[:, -new.shape[1] :]
    options = {name: cache, "use_cache": True, "logits_to_keep": 1}
    step = model(input_ids=new, attention_mask=attention, position_ids=positions, **options)
    return torch.log_softmax(step.logits[:, -1].float() / temperature, dim=-1), getattr(step, name)
