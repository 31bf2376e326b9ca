r"""The expected update of the stopping toy: no sampling, every length up to the cap enumerated in
float64. Level of evidence: exact.

On policy every surrogate of the catalog has ratio 1 and gate 1, so the expected gradient is

.. math:: -\nabla\mathcal L = \mathbb E\Big[\sum_i A_i\,W_i \sum_t \nabla\log\pi(o_{it})\Big]

A depends on K, how many of the group are right (binomial), and W on the completion's own length n
and, for token means, on the total length of the others. The distribution of a sum of independent
lengths is a product of Fourier transforms; all K are added before the one transform back, since W
is linear in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..objective import advantages as adv
from ..objective import aggregation as agg
from ..objective import axes
from ..objective.filters import drop_dead_groups
from ..objective.recipe import Recipe
from ..rollouts import Rollouts
from .stopping import TRAINING, Stopping, columns_at
from .training import Training, run_table, trainable

if TYPE_CHECKING:
    import pandas as pd

BASELINES = (adv.no_baseline, adv.group_mean, adv.leave_one_out, adv.pass_at_k)
SCALES = (adv.unscaled, adv.group_std, adv.leave_one_out_std, adv.group_mean_scale)


@dataclass(frozen=True)
class Enumerated:
    """What the expectation is made of, for one policy.

    ``length``: ``[T]`` 1 … cap. ``chance``: ``[2, T]`` probability of each length given the branch
    (right, wrong). ``score``: ``[2, T]`` expected score of the branch's stop logit, on the event of
    that length. ``attempt``: ``[2]`` expected score of the attempt logit given the branch.
    ``spectrum``: ``[2, F]`` Fourier transform of ``chance``, wide enough for the tokens of the
    whole step. ``right``: ``[G+1]`` binomial probability of K right in a group. ``live``:
    ``[G+1]``, 1 where rewards of the group differ.
    """

    length: Tensor
    chance: Tensor
    score: Tensor
    attempt: Tensor
    spectrum: Tensor
    right: Tensor
    live: Tensor
    width: int


def enumerate_lengths(theta: Tensor, policy: Stopping, training: Training) -> Enumerated:
    """Every length of either branch, with its probability and score, ``theta`` ``[3]``."""
    s = torch.sigmoid(theta[:2])[:, None]
    decisions = policy.cap - policy.offset
    n = torch.arange(policy.cap + 1)[1:].double() - policy.offset
    stops = torch.where(n > 0, s * (1 - s) ** (n - 1), 0.0)
    runs_out = torch.where(n == decisions, (1 - s) ** decisions, 0.0)
    chance = stops + runs_out
    score = stops * (1 - s * n) - runs_out * s * n
    z = torch.sigmoid(theta[2])
    p = policy.pass_rate(theta)[0]
    slipped = (z - p) * (1 - z)  # a right attempt that slipped has score 1 - z and is wrong
    wrong = (slipped - (1 - z) * z) / (1 - p)
    attempt = torch.stack([1 - z, wrong]) if policy.offset else torch.zeros(2, dtype=torch.float64)
    group = torch.arange(training.samples + 1).double()
    pairs = torch.lgamma(torch.tensor(training.samples + 1.0, dtype=torch.float64))
    log_right = pairs - torch.lgamma(group + 1) - torch.lgamma(training.samples - group + 1)
    binomial = (log_right + group * p.log() + (training.samples - group) * (1 - p).log()).exp()
    width = 2 ** (training.prompts * training.samples * policy.cap).bit_length()
    padded = torch.cat([torch.zeros(2, 1, dtype=torch.float64), chance], dim=1)
    live = ((group > 0) & (group < training.samples)).double()
    return Enumerated(
        n + policy.offset,
        chance,
        score,
        attempt,
        torch.fft.rfft(padded, width),
        binomial,
        live,
        width,
    )


def advantage_table(recipe: Recipe, samples: int) -> Tensor:
    """``[2, G+1]`` advantage of a right and of a wrong completion when K of G are right, from the
    recipe itself.
    """
    table = torch.zeros(2, samples + 1, dtype=torch.float64)
    for k in range(samples + 1):
        rollouts = Rollouts.from_lengths(
            [1] * samples, rewards=[1.0] * k + [0.0] * (samples - k), max_new_tokens=1
        )
        advantage = recipe.plan(rollouts).advantage[:, 0]
        table[0, k] = advantage[0] * (k > 0)
        table[1, k] = advantage[-1] * (k < samples)
    return table


def _alone(weight: Callable[[Tensor, float, float], Tensor]) -> Callable[..., Tensor]:
    """Weight that looks at its own length only: the number of completions N, and C, are all it may
    use besides.
    """

    def expected(
        parts: Enumerated, mass: Tensor, rows: float, training: Training, recipe: Recipe, cap: int
    ) -> Tensor:
        length = axes.settings(recipe.aggregation).get("length")
        return mass.sum(1, keepdim=True) * weight(
            parts.length, rows, float(cap if length is None else length)
        )

    return expected


def _total(parts: Enumerated, transform: Tensor) -> Tensor:
    """``[2, T]`` expectation of 1/(n + rest) for each own length n, where ``transform`` ``[2, F]``
    is that of the rest.
    """
    rest = torch.fft.irfft(transform, parts.width)
    reach = parts.width - len(parts.length)
    index = parts.length[:, None].long() + torch.arange(reach)[None]
    return (rest[:, None, :reach] / index).sum(-1)


def _others(parts: Enumerated, mass: Tensor, training: Training) -> Tensor:
    """``[2, F]`` transform of the total length of the other G-1 completions, weighted by ``mass``
    ``[2, G+1]`` over K.
    """
    right, wrong = parts.spectrum
    k = torch.arange(training.samples + 1)[:, None]
    own = torch.stack([right ** (k - 1).clamp(min=0), right**k])
    rest = torch.stack(
        [wrong ** (training.samples - k), wrong ** (training.samples - k - 1).clamp(min=0)]
    )
    return (mass[..., None] * own * rest).sum(1)


def _prompt(
    parts: Enumerated, mass: Tensor, rows: float, training: Training, recipe: Recipe, cap: int
) -> Tensor:
    return _total(parts, _others(parts, mass, training)) * training.samples / rows


def _step(
    parts: Enumerated, mass: Tensor, rows: float, training: Training, recipe: Recipe, cap: int
) -> Tensor:
    right, wrong = parts.spectrum
    k = torch.arange(training.samples + 1)[:, None]
    drops = drop_dead_groups in map(axes.function_of, recipe.filters)
    kept = (
        torch.where(parts.live[:, None] > 0, right**k * wrong ** (training.samples - k), 1.0)
        if drops
        else None
    )
    mixed = parts.right[:, None] * (
        right**k * wrong ** (training.samples - k) if kept is None else kept
    )
    return _total(parts, _others(parts, mass, training) * mixed.sum(0) ** (training.prompts - 1))


def _balanced(
    parts: Enumerated, mass: Tensor, rows: float, training: Training, recipe: Recipe, cap: int
) -> Tensor:
    k = torch.arange(training.samples + 1)[:, None].double()
    share = torch.stack([k[:, 0], training.samples - k[:, 0]])
    right, wrong = parts.spectrum
    side = torch.stack(
        [right ** (k - 1).clamp(min=0), wrong ** (training.samples - k - 1).clamp(min=0)]
    )
    return _total(parts, ((mass * share)[..., None] * side).sum(1)) / rows


EXPECTED: Mapping[axes.Choice, Callable[..., Tensor]] = {
    agg.sequence_mean: _alone(lambda n, rows, c: 1 / (rows * n)),
    agg.constant: _alone(lambda n, rows, c: torch.full_like(n, 1 / (rows * c))),
    agg.sequence_sum: _alone(lambda n, rows, c: torch.full_like(n, 1 / rows)),
    agg.constant_sum: _alone(lambda n, rows, c: torch.full_like(n, 1 / c)),
    agg.token_sum: _alone(lambda n, rows, c: torch.ones_like(n)),
    agg.prompt_token_mean: _prompt,
    agg.step_token_mean: _step,
    agg.balanced: _balanced,
}


def expected_gradient(
    recipe: Recipe, theta: Tensor, policy: Stopping, training: Training
) -> Tensor:
    """``[3]`` exact expectation of minus the gradient of ``Recipe.loss`` at ``theta`` ``[3]`` (stop
    right, stop wrong, attempt).

    Raises:
        ValueError: the expectation is not available for a choice; the message lists those it is
            available for.
    """
    _available(recipe, policy, training)
    parts = enumerate_lengths(theta, policy, training)
    count = torch.arange(training.samples + 1).double()
    mass = (
        advantage_table(recipe, training.samples)
        * parts.right
        * torch.stack([count, training.samples - count])
    )
    rows = training.samples / _inverse_prompts(recipe, parts, training)
    weight = EXPECTED[axes.function_of(recipe.aggregation)](
        parts, mass, rows, training, recipe, policy.cap
    )
    stop = (weight * parts.score).sum(1)
    attempt = ((weight * parts.chance).sum(1) * parts.attempt).sum()
    return training.prompts * torch.stack([stop[0], stop[1], attempt])


def _inverse_prompts(recipe: Recipe, parts: Enumerated, training: Training) -> Tensor:
    """E[1/P] seen by a live group: 1/P, or with dead groups dropped E[1/(1 + live others)]."""
    if drop_dead_groups not in map(axes.function_of, recipe.filters):
        return torch.tensor(1.0 / training.prompts, dtype=torch.float64)
    alive = (parts.right * parts.live).sum()
    if alive == 0:
        return torch.tensor(1.0, dtype=torch.float64)
    return (1 - (1 - alive) ** training.prompts) / (
        training.prompts * alive
    )  # E[1/(1+B)], B ~ Bin(P-1, alive)


def _available(recipe: Recipe, policy: Stopping, training: Training) -> None:
    """Raise where the enumeration does not cover a choice."""
    allowed = {"baseline": BASELINES, "scale": SCALES, "aggregation": tuple(EXPECTED)}
    for axis, covered in allowed.items():
        if axes.function_of(getattr(recipe, axis)) not in covered:
            names = ", ".join(choice.__name__ for choice in covered)
            raise ValueError(
                f"{recipe.name}: no exact expectation for the {axis} "
                f"{axes.describe(getattr(recipe, axis))}: expected one of "
                f"{names}. Sample it instead: stopping.train."
            )
    narrows = [f for f in recipe.filters if axes.function_of(f) is not drop_dead_groups]
    if recipe.rewards or narrows or recipe.kl is not None or recipe.correction is not None:
        raise ValueError(
            f"{recipe.name} shapes rewards, masks, corrects or has a KL term, which the "
            f"expectation does not cover: "
            "expected a recipe without, recipe.but(kl=None) say. Or sample it: stopping.train."
        )
    if len(policy.attempts) > 1 or policy.truncated_fails:
        raise ValueError(
            "the exact flow has one attempt logit and rewards that do not look at length: expected "
            "right=<number>."
        )
    if (
        training.updates > 1
        or training.optimizer != "sgd"
        or training.max_norm is not None
        or training.placebo
    ):
        raise ValueError(
            "the exact flow is plain SGD on policy: expected optimizer='sgd', updates=1, no "
            "max_norm, no placebo."
        )


def flow(
    recipes: Recipe | Sequence[Recipe],
    policy: Stopping | None = None,
    training: Training | None = None,
    *,
    learning_rates: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Follow the expected SGD update. Level of evidence: exact.

    Args:
        recipes: one or several.
        policy, training: settings; None: the defaults.
        learning_rates: per recipe name.

    Returns:
        As ``stopping.train`` with one "seed" 0; what belongs to a batch is NaN, ``gradient_norm``
        is that of the expectation.
    """
    policy = policy or Stopping()
    training = training or TRAINING
    recipes = trainable(recipes)
    rates = torch.tensor(
        [(learning_rates or {}).get(recipe.name, training.learning_rate) for recipe in recipes],
        dtype=torch.float64,
    )
    theta = policy.start(len(recipes))
    rows = []
    for step in range(training.steps + 1):
        gradient = torch.stack(
            [
                expected_gradient(recipe, at, policy, training)
                for recipe, at in zip(recipes, theta, strict=True)
            ]
        )
        if step % training.every == 0 or step == training.steps:
            rows.append(
                (
                    step,
                    columns_at(theta, policy, None, None) | {"gradient_norm": gradient.norm(dim=1)},
                )
            )
        theta = theta + rates[:, None] * gradient
    return run_table([recipe.name for recipe in recipes], [0], rows)
