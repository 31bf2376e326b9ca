r"""The stopping toy: a policy that knows which branch it is on, and only decides when to stop.

A completion first goes right or wrong; then, in branch b, each token is the last one with
probability :math:`s_b = \sigma(\theta_b)`, up to a cap. The reward is 1 in the right branch
whatever the length, so a loss without a length bias has no reason to move a stop logit (in
expectation, under SGD).

Modes:
    ``learnable``: the branch is the policy's own first token, a logit that learns. The pass rate
        goes to 1.
    ``environment``: the branch is drawn for the policy, with a fixed pass rate, and is no token.
        Only lengths can move.
    ``slip``: learnable, but an attempt that was right turns out wrong with probability ``slip``;
        the policy sees the outcome before it decides to stop. Reward rises, then stays, and wrong
        completions never die out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ..checks import (
    Cap,
    Index,
    OpenProbability,
    Positive,
    check_of,
    checked,
    instance,
    number,
    one_of,
    shown,
    whole_number,
)
from ..draws import generators, shuffled, uniform
from ..objective.catalog import AnyRecipe
from ..rollouts import Rollouts
from .training import Draw, Training, UpdateStats, learn, trainable

if TYPE_CHECKING:
    import pandas as pd

TRAINING = Training(steps=300, learning_rate=2.0)
MODES = ("learnable", "environment", "slip")


@dataclass(frozen=True)
class Stopping:
    """The policy at step 0 and its surroundings.

    Args:
        mode: ``learnable``, ``environment`` or ``slip``.
        right: probability of the right branch (of a right attempt in ``slip``). One number: all
            prompts share one attempt logit. A tuple: one prompt each, with an attempt logit of its
            own; the stop logits are shared by all.
        hazard_right, hazard_wrong: probability that a token is the last one, per branch.
        cap: no completion has more tokens; one that reaches it without stopping is truncated.
        slip: probability that a right attempt turns out wrong; only in mode ``slip``.
        truncated_fails: a truncated completion is rewarded 0 in the right branch too.
    """

    mode: str = "learnable"
    right: float | tuple[float, ...] = 0.5
    hazard_right: float = 0.08
    hazard_wrong: float = 0.08
    cap: int = 64
    slip: float = 0.2
    truncated_fails: bool = False

    def __post_init__(self) -> None:
        one_of("mode", self.mode, MODES)
        whole_number("cap", self.cap, 2, 10**5)
        for name in ("hazard_right", "hazard_wrong", "slip"):
            number(name, getattr(self, name), 1e-9, 1 - 1e-9)
        check_of(tuple[OpenProbability, ...])("right", self.attempts)
        instance("truncated_fails", self.truncated_fails, bool)

    @property
    def attempts(self) -> tuple[float, ...]:
        """Initial probability of a right attempt, one per attempt logit."""
        return self.right if isinstance(self.right, tuple) else (self.right,)

    @property
    def offset(self) -> int:
        """Tokens before the first stop decision: 1 where the branch is a token."""
        return int(self.mode != "environment")

    def start(self, seeds: int = 1) -> Tensor:
        """``[S, 2 + K]``: stop logit right, stop logit wrong, attempt logits."""
        return (
            torch.tensor(
                [self.hazard_right, self.hazard_wrong, *self.attempts], dtype=torch.float64
            )
            .logit()
            .repeat(seeds, 1)
        )

    def pass_rate(self, theta: Tensor) -> Tensor:
        """``[..., K]`` probability of the right branch, truncation aside."""
        attempt = torch.sigmoid(theta[..., 2:])
        return attempt * (1 - self.slip) if self.mode == "slip" else attempt


def length_given_branch(stop_logit: Tensor, policy: Stopping) -> Tensor:
    r"""Expected tokens of a completion, truncation included:
    :math:`\mathrm{offset} + (1 - (1-s)^D) / s` with D decisions at most.
    """
    s = torch.sigmoid(stop_logit)
    decisions = policy.cap - policy.offset
    return policy.offset + (1 - (1 - s) ** decisions) / s


# --- sampling -------------------------------------------------------------------------------------


def draw(
    theta: Tensor, policy: Stopping, training: Training, sources: Sequence[torch.Generator]
) -> Draw:
    """One rollout of every seed, token by token: a token stops where its uniform number is below
    the hazard of its branch.

    ``actions`` are whether the attempt was right, whether the branch is ``[S, N]``, and which token
    stopped ``[S, N, T]``.
    """
    decisions = policy.cap - policy.offset
    u = uniform(sources, len(training.group), 2 + decisions)
    chance = torch.sigmoid(theta[:, 2:])
    if len(policy.attempts) > 1:
        chance = chance.repeat_interleave(training.samples, dim=1)
    attempt = u[..., 0] < chance
    right = attempt & (u[..., 1] >= policy.slip) if policy.mode == "slip" else attempt
    hazard = torch.sigmoid(torch.where(right, theta[:, :1], theta[:, 1:2]))
    stops = u[..., 2:] < hazard[..., None]
    truncated = ~stops.any(-1)
    length = policy.offset + torch.where(
        truncated, decisions, stops.byte().argmax(-1) + 1
    )  # argmax: the first that stops
    place = torch.arange(1, policy.cap + 1)
    running = place <= length[..., None]
    last = (place == length[..., None]) & ~truncated[..., None]
    reward = (right & ~(truncated & policy.truncated_fails)).double()
    if training.placebo:
        reward = shuffled(reward, sources, training.prompts)
    return Draw((attempt, right, last), running, reward, truncated)


def logp_of(policy: Stopping, samples: int, theta: Tensor, actions: tuple[Tensor, ...]) -> Tensor:
    """``[N, T]`` log-probability of each token of one seed's completions, ``samples`` of each
    prompt in a row.
    """
    attempt, right, last = actions
    stop = torch.where(right, theta[0], theta[1])
    tokens = torch.where(last, logsigmoid(stop)[:, None], logsigmoid(-stop)[:, None])
    if not policy.offset:
        return tokens
    z = theta[2:].repeat_interleave(samples) if len(policy.attempts) > 1 else theta[2]
    first = torch.where(attempt, logsigmoid(z), logsigmoid(-z))
    return torch.cat([first[:, None], tokens[:, 1:]], dim=1)


@checked
def train(
    recipes: AnyRecipe | Sequence[AnyRecipe],
    policy: Stopping | None = None,
    training: Training | None = None,
    *,
    seeds: Cap | Sequence[Index] = 8,
    learning_rates: Mapping[str, Positive] | None = None,
    progress: bool = False,
) -> pd.DataFrame:
    """Train by sampling. Level of evidence: simulated.

    Args:
        recipes: one or several; all on the same seeds.
        policy, training: settings; None: the defaults.
        seeds: how many (0 … n-1), or which. A seed's run does not depend on the others.
        learning_rates: per recipe name, in place of ``training.learning_rate``.
        progress: a bar on a terminal.

    Returns:
        One row per recipe, seed and recorded step; see ``columns_at``. The last row of a run has no
        batch: NaN there.

    Raises:
        ValueError: a setting is out of range, or a recipe needs a field that the toy does not have.
    """
    policy = policy or Stopping()
    training = training or TRAINING
    fit_prompts(policy, training)
    return learn(
        trainable(recipes),
        policy.start()[0],
        lambda theta, sources: draw(theta, policy, training, sources),
        partial(logp_of, policy, training.samples),
        training,
        seeds=seeds,
        max_new_tokens=policy.cap,
        observe=lambda theta, batch, stats: columns_at(theta, policy, batch, stats),
        learning_rates=learning_rates,
        progress=progress,
    )


def fit_prompts(policy: Stopping, training: Training) -> None:
    """A tuple of attempt probabilities is one prompt each."""
    if len(policy.attempts) not in (1, training.prompts):
        raise ValueError(
            f"right has {len(policy.attempts)} entries but prompts is {training.prompts}: expected "
            f"one per prompt."
        )


def columns_at(
    theta: Tensor, policy: Stopping, batch: Draw | None, stats: UpdateStats | None
) -> dict[str, Tensor]:
    """The table's columns, each ``[S]``.

    Of the policy, exact: ``pass_rate``, ``length_right``, ``length_wrong`` (expected tokens given
    the branch), ``gap`` (wrong minus right), ``stop_right``, ``stop_wrong`` (logits), ``stop_gap``
    (right minus wrong: positive where wrong ones run on), ``attempt`` (logit, mean over prompts;
    one column per prompt, ``pass_rate_0`` …, where there are several). Of the batch: ``reward``,
    ``length``, ``truncated``. Of the update: ``loss``, ``gradient_norm``, ``clip_fraction`` (share
    of tokens, over the updates), ``norm_clipped`` (share of the updates in which gradient clipping
    bound).
    """
    right, wrong = (length_given_branch(theta[:, branch], policy) for branch in (0, 1))
    rates = policy.pass_rate(theta)
    nothing = torch.full_like(right, torch.nan)
    columns = {
        "pass_rate": rates.mean(1),
        "reward": nothing,
        "length": nothing,
        "length_right": right,
        "length_wrong": wrong,
    }
    columns |= {"gap": wrong - right, "stop_right": theta[:, 0], "stop_wrong": theta[:, 1]}
    columns |= {
        "stop_gap": theta[:, 0] - theta[:, 1],
        "attempt": theta[:, 2:].mean(1),
        "truncated": nothing,
    }
    columns |= dict.fromkeys(("loss", "gradient_norm", "clip_fraction", "norm_clipped"), nothing)
    if rates.shape[1] > 1:
        columns |= {f"pass_rate_{k}": rates[:, k] for k in range(rates.shape[1])}
    if batch is None or stats is None:
        return columns
    tokens = batch.mask.sum((1, 2)).double()
    columns |= {"reward": batch.reward.mean(1), "length": tokens / batch.mask.shape[1]}
    columns |= {
        "truncated": batch.truncated.double().mean(1),
        "loss": stats.loss,
        "gradient_norm": stats.gradient_norm,
    }
    return columns | {
        "clip_fraction": stats.clipped.abs().sum((1, 2)) / tokens,
        "norm_clipped": stats.norm_clipped,
    }


@checked
def rollouts(
    policy: Stopping, training: Training, seed: Index = 0, theta: Tensor | None = None
) -> Rollouts:
    """One step's completions as checked ``Rollouts``, to look at with the package's other tools.

    ``theta`` ``[2 + K]``, None: step 0.
    """
    fit_prompts(policy, training)
    at = policy.start() if theta is None else theta[None]
    if at.shape != policy.start().shape or not at.is_floating_point():
        raise ValueError(f"theta is {shown(theta)}: expected [{policy.start().shape[1]}] numbers.")
    batch = draw(at, policy, training, generators([seed]))
    return Rollouts(
        logp=logp_of(policy, training.samples, at[0], tuple(a[0] for a in batch.actions)),
        mask=batch.mask[0],
        reward=batch.reward[0],
        group=training.group,
        truncated=batch.truncated[0],
        max_new_tokens=policy.cap,
    )
