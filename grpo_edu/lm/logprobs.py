"""Log-probabilities of given tokens, in chunks: memory does not grow with batch x length x vocabulary."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

CHUNK = 2**24  # logits held at a time: 64 MiB in float32
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

    Only tokens under the mask are projected on the vocabulary, a chunk of them at a time; in the backward pass each chunk
    is computed again, so that its logits are never kept.

    Args:
        model: causal language model.
        ids: ``[N, P + T]`` prompts, padded on the left, and completions.
        attention: ``[N, P + T]`` 1 on what may be looked at.
        mask: ``[N, T]`` bool, the tokens asked for.
        temperature: τ.
        chunk: logits held at a time.

    Returns:
        log-probs ``[N, T]`` float32, 0 under the mask, with a graph where gradients are on; entropies ``[N, T]``, detached.
    """
    width = mask.shape[1]
    positions = (attention.cumsum(dim=1) - 1).clamp(min=0)
    options = {
        "input_ids": ids,
        "attention_mask": attention,
        "position_ids": positions,
        "use_cache": False,
    }
    targets, head = ids[:, -width:][mask], model.get_output_embeddings()
    if any(getattr(model.config, name, None) not in (None, 1, 1.0) for name in SCALED):
        states, head = (
            model(**options, logits_to_keep=width + 1).logits[:, :-1][mask],
            torch.nn.Identity(),
        )
    else:
        states = model.base_model(**options).last_hidden_state[:, -width - 1 : -1][mask]
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


def _project(
    head: Any, states: Tensor, targets: Tensor, temperature: float, again: bool
) -> tuple[Tensor, Tensor]:
    """One chunk; ``again``: forget the logits and compute them again in the backward pass."""
    if again and torch.is_grad_enabled():
        return checkpoint(_scores, head, states, targets, temperature, use_reentrant=False)  # type: ignore[return-value]
    return _scores(head, states, targets, temperature)


def _scores(
    head: Any, states: Tensor, targets: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Log-prob of each target and the entropy, both ``[M]``."""
    logp = torch.log_softmax(head(states).float() / temperature, dim=-1)
    with torch.no_grad():
        entropy = -(logp.exp() * logp).sum(dim=-1)
    return logp.gather(1, targets[:, None])[:, 0], entropy
