"""What AdamW makes of the scale of a loss."""

from __future__ import annotations

import torch
from torch import Tensor


def adamw_updates(
    gradients: Tensor, *, lr: float, betas: tuple[float, float], eps: float
) -> Tensor:
    r"""``[K, D]`` changes of the parameters for ``[K, D]`` gradients in a row, without weight decay.

    .. math:: \Delta_k = -\eta\,\frac{\hat m_k}{\sqrt{\hat v_k} + \epsilon}

    A common factor c is the same as another ε: ``updates(c·g, eps) == updates(g, eps / c)``. As ε → 0 it has no effect, so G/(G-1), the
    constant of a normaliser and a batch std do nothing; the first update is -lr · sign(g). With SGD every update has the factor c.
    """
    first, second = torch.zeros_like(gradients[0]), torch.zeros_like(gradients[0])
    updates = []
    for k, g in enumerate(gradients, start=1):
        first = betas[0] * first + (1 - betas[0]) * g
        second = betas[1] * second + (1 - betas[1]) * g**2
        updates.append(
            -lr * first / (1 - betas[0] ** k) / ((second / (1 - betas[1] ** k)).sqrt() + eps)
        )
    return torch.stack(updates)
