"""Log-probabilities of given tokens, in chunks, so that only a part of the logits is ever held."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .generate import cache_name, positions_of, read_prompts

CHUNK = 2**25  # logits held at a time: 128 MiB in float32
SCALED = (
    "final_logit_softcapping",
    "logits_scaling",
    "logit_scale",
)  # configs whose logits are more than a projection


def token_logp(
    model: Any,
    ids: Tensor,
    attention: Tensor,
    mask: Tensor,
    *,
    temperature: float = 1.0,
    chunk: int = CHUNK,
) -> tuple[Tensor, Tensor]:
    r"""Log-probability of each completion token and the entropy of the distribution it stands in.

    .. math:: \log\mathrm{softmax}(z_t / \tau)_{o_t}, \qquad H_t = -\sum_v p_{tv} \log p_{tv}

    Each distinct prompt is read once, and its keys and values are shared by its completions. Only
    tokens under the mask are projected on the vocabulary, a chunk at a time; in the backward
    pass each chunk is computed again, so that its logits are never kept.

    Args:
        model: causal language model.
        ids: ``[N, P + T]`` prompts, padded on the left, and completions.
        attention: ``[N, P + T]`` 1 on what may be looked at.
        mask: ``[N, T]`` bool, the tokens asked for.
        temperature: τ.
        chunk: logits held at a time.

    Returns:
        log-probs ``[N, T]`` float32, 0 where the mask is False, with a graph if gradients are on;
        entropies ``[N, T]``, detached.
    """
    width = mask.shape[1]
    targets = ids[:, -width:][mask]
    scaled = any(getattr(model.config, name, None) not in (None, 1, 1.0) for name in SCALED)
    if scaled:
        head = torch.nn.Identity()
        states = _states(model, "logits", ids, attention, width)[mask]
    else:
        head = model.get_output_embeddings()
        states = _states(model.base_model, "last_hidden_state", ids, attention, width)[mask]
    rows = max(1, chunk // max(1, model.config.vocab_size))
    pieces = [
        _project(head, s, t, temperature, len(states) > rows)
        for s, t in zip(states.split(rows), targets.split(rows), strict=True)
    ]
    logp, entropy = (
        (torch.cat(column) for column in zip(*pieces, strict=True))
        if pieces
        else (states.sum(-1), states.sum(-1))
    )
    empty = torch.zeros(mask.shape, device=ids.device)
    return empty.masked_scatter(mask, logp), empty.masked_scatter(mask, entropy.detach())


def _states(model: Any, field: str, ids: Tensor, attention: Tensor, width: int) -> Tensor:
    """``[N, T, ...]`` outputs that predict the T completion tokens; each prompt is read once."""
    prompt = ids.shape[1] - width
    read, cache, row_prompt = read_prompts(model, ids[:, :prompt], attention[:, :prompt])
    first = getattr(read, field)[row_prompt, -1:]
    if width == 1:
        return first
    step = model(
        input_ids=ids[:, prompt:-1],
        attention_mask=attention[:, :-1],
        position_ids=positions_of(attention)[:, prompt:-1],
        use_cache=True,
        **{cache_name(model): cache},
    )
    return torch.cat([first, getattr(step, field)], dim=1)


def _project(
    head: Any, states: Tensor, targets: Tensor, temperature: float, again: bool
) -> tuple[Tensor, Tensor]:
    """One chunk; ``again``: forget the logits and compute them again in the backward pass."""
    if again and torch.is_grad_enabled():
        given = (head, states, targets, temperature)
        return checkpoint(_scores, *given, use_reentrant=False)  # type: ignore[return-value]
    return _scores(head, states, targets, temperature)


def _scores(
    head: Any, states: Tensor, targets: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Log-prob of each target and the entropy, both ``[M]``."""
    logp = torch.log_softmax(head(states).float() / temperature, dim=-1)
    with torch.no_grad():
        entropy = -(logp.exp() * logp).sum(dim=-1)
    return logp.gather(1, targets[:, None])[:, 0], entropy
