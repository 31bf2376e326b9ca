"""The clip as a table: how hard a token is pushed, by the sign of its advantage and by where its
ratio stands.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import torch
from torch import Tensor

from ..checks import NonNegative, Positive, Probability, checked, tensor
from ..objective import axes

Surrogate = Annotated[axes.Choice, axes.choice_of("surrogate")]
Ratios = Annotated[Tensor, partial(tensor, dims="R", low=1e-12, high=1e12)]


@checked
def pushes(surrogate: Surrogate, ratios: Ratios, advantage: float) -> Tensor:
    r"""``[R]`` derivative of the surrogate by the log-probability of a one-token completion, by
    autograd: ratio · gate · A.

    .. math:: \frac{\partial f(\rho, A)}{\partial \log\pi_\theta}

    Args:
        surrogate: a choice of ``objective.surrogates``, its settings bound.
        ratios: ``[R]`` importance ratios, above 0.
        advantage: of every token.
    """
    old = torch.full((len(ratios), 1), -1.0, dtype=torch.float64)
    leaf = (old + ratios.double().log()[:, None]).requires_grad_()
    inputs = {"logp": leaf, "old_logp": old, "mask": torch.ones_like(old, dtype=torch.bool)}
    value = axes.run(surrogate, {**inputs, "advantage": torch.full_like(old, advantage)})
    return torch.autograd.grad(value.sum(), leaf)[0][:, 0]


@checked
def cells(surrogate: Surrogate, places: tuple[Positive, ...] = (0.5, 1.0, 1.5)) -> Tensor:
    """``[2, len(places)]``: pushes for A = 1 (first row) and A = -1 at ratios below, inside and
    above the band.

    PPO's clip has no gradient in two of the six cells: too high with A > 0, too low with A < 0.

                 0.5   1.0   1.5
        A =  1   0.5   1.0    0
        A = -1    0   -1.0  -1.5

    A dual clip takes a further one, far above its cap with A < 0.
    """
    ratios = torch.tensor(places, dtype=torch.float64)
    return torch.stack([pushes(surrogate, ratios, 1.0), pushes(surrogate, ratios, -1.0)])


@checked
def reach(old: Probability, eps_high: NonNegative) -> float:
    r"""Probability at which the clip stops a rising token, :math:`\pi_{old}(1+\epsilon_{high})`;
    above 1 it never does.

    With ε 0.2 a token at .01 stops at .012, one at .9 would at 1.08. Source: DAPO (arXiv
    2503.14476) §3.1.
    """
    return old * (1 + eps_high)
