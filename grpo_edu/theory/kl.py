"""Expected value and gradient of a KL estimator, exactly, over every action of a tabular softmax
policy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import torch
from torch import Tensor

from ..checks import Count, Logits, LogProbs, NonNegative, Positive, checked
from ..objective import axes

Estimator = Annotated[axes.Choice, axes.choice_of("kl")]


@checked
def in_loss(
    estimator: Estimator, logits: Logits, reference: LogProbs, behaviour: LogProbs | None = None
) -> tuple[float, Tensor]:
    """Expected value, and the gradient by the logits that a step on the estimator in the loss has.

    Args:
        estimator: a choice of ``objective.kl`` with its beta bound.
        logits: ``[A]`` of the policy.
        reference: ``[A]`` log-probabilities of the reference policy.
        behaviour: ``[A]`` log-probabilities of the policy that drew the actions; None: the
            policy itself, on policy.

    Returns:
        value, ``[A]`` gradient: actions are drawn first, so the drawing itself is not
        differentiated.
    """
    leaf = logits.detach().clone().requires_grad_()
    logp = leaf.log_softmax(0)
    old = logp.detach() if behaviour is None else behaviour
    chance = old.exp()
    inputs = {"logp": logp[:, None], "old_logp": old[:, None], "ref_logp": reference[:, None]}
    expected = (chance * axes.run(estimator, inputs)[:, 0]).sum()
    return expected.item(), torch.autograd.grad(expected, leaf)[0]


@checked
def pull_in_loss(estimator: Estimator, logits: Logits, reference: LogProbs) -> Tensor:
    """``[A]`` the gradient of ``in_loss`` alone, on policy."""
    return in_loss(estimator, logits, reference)[1]


@checked
def in_reward(estimator: Estimator, logits: Logits, reference: LogProbs) -> Tensor:
    """``[A]`` gradient of the penalty when the estimator is taken from the reward: E[estimator ·
    score], the estimator detached.
    """
    leaf = logits.detach().clone().requires_grad_()
    logp = leaf.log_softmax(0)
    fixed = logp.detach()
    inputs = {"logp": fixed[:, None], "old_logp": fixed[:, None], "ref_logp": reference[:, None]}
    penalty = axes.run(estimator, inputs)[:, 0]
    return torch.autograd.grad((fixed.exp() * penalty * logp).sum(), leaf)[0]


@checked
def reverse(logits: Logits, reference: LogProbs) -> tuple[float, Tensor]:
    """KL(π ‖ π_ref) and its gradient by the logits."""
    leaf = logits.detach().clone().requires_grad_()
    logp = leaf.log_softmax(0)
    value = (logp.exp() * (logp - reference)).sum()
    return value.item(), torch.autograd.grad(value, leaf)[0]


@checked
def forward(logits: Logits, reference: LogProbs) -> tuple[float, Tensor]:
    """KL(π_ref ‖ π) and its gradient by the logits."""
    leaf = logits.detach().clone().requires_grad_()
    value = (reference.exp() * (reference - leaf.log_softmax(0))).sum()
    return value.item(), torch.autograd.grad(value, leaf)[0]


@checked
def spread(estimator: Estimator, logits: Logits, reference: LogProbs) -> float:
    """Standard deviation of the estimator over the actions of the policy, ``[A]`` logits against
    ``[A]`` reference log-probabilities.
    """
    logp = logits.detach().log_softmax(0)
    inputs = {"logp": logp[:, None], "old_logp": logp[:, None], "ref_logp": reference[:, None]}
    value = axes.run(estimator, inputs)[:, 0]
    mean = (logp.exp() * value).sum()
    return (logp.exp() * (value - mean) ** 2).sum().sqrt().item()


@checked
def settle(
    pull: Callable[[Tensor, Tensor], Tensor],
    reward: Logits,
    reference: LogProbs,
    beta: NonNegative,
    *,
    rate: Positive = 1.0,
    steps: Count = 3000,
) -> Tensor:
    r"""``[A]`` policy that gradient ascent on the expected reward, against a KL pull, comes to;
    exact expectations, tabular.

    .. math:: z \leftarrow z + \eta\,\big(\nabla_z E_\pi[r] - \beta\,\mathrm{pull}(z)\big)

    Under the reverse KL it is :math:`\pi \propto \pi_{ref}\,e^{r/\beta}`. Without a pull it runs
    into a corner.

    Args:
        pull: gradient of the penalty at beta 1 by the logits, from (logits, reference):
            ``partial(pull_in_loss, estimator)``, say.
        reward: ``[A]``.
        reference: ``[A]`` log-probabilities, also the start.
        beta: weight of the penalty.
        rate, steps: of the ascent.
    """
    logits = reference.detach().clone()
    for _ in range(steps):
        chance = logits.softmax(0)
        logits = logits + rate * (
            chance * (reward - chance @ reward) - beta * pull(logits, reference)
        )
    return logits.softmax(0)
