r"""The clip toy: a many-arm softmax per prompt, several updates on one rollout, so that the ratio
leaves 1 and the clip acts.

A completion is one arm. A few arms of each prompt are right; initial logits are spread out, so that
right arms can be rare. Watched: entropy, how often the clip acts and on which side, and how
probable the arms are that it stops from rising.

The rollout's clip statistics are averages over its updates; the first update of a rollout is on
policy and never clips.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..checks import whole_number
from ..draws import shuffled, uniform
from ..objective.catalog import recipe as by_name
from ..objective.recipe import Recipe
from ..objective.surrogates import ppo_clip
from .training import Draw, Training, UpdateStats, learn, trainable

if TYPE_CHECKING:
    import pandas as pd


TRAINING = Training(steps=100, prompts=8, samples=16, learning_rate=4.0, updates=16)


@dataclass(frozen=True)
class Arms:
    """The bandit at step 0.

    Args:
        arms: arms per prompt.
        right: how many of them are rewarded 1.
        spread: standard deviation of the initial logits; 0 is a uniform policy.
        logits_seed: seed of the initial logits and of which arms are right: one problem, the same
            for every training seed.
    """

    arms: int = 50
    right: int = 5
    spread: float = 1.5
    logits_seed: int = 0

    def __post_init__(self) -> None:
        whole_number("arms", self.arms, 2)
        whole_number("right", self.right, 1)
        if self.right >= self.arms:
            raise ValueError(f"right is {self.right}: expected fewer than arms = {self.arms}.")
        if not self.spread >= 0:
            raise ValueError(f"spread is {self.spread}: expected 0 or more.")

    def start(self, prompts: int) -> Tensor:
        """``[P, arms]`` logits at step 0.

        The first ``right`` arms of each prompt are the right ones.
        """
        source = torch.Generator().manual_seed(self.logits_seed)
        return self.spread * torch.randn(prompts, self.arms, generator=source, dtype=torch.float64)


def clip_recipes(eps_high: Sequence[float] = (0.2, 0.28, 0.4)) -> list[Recipe]:
    """GRPO advantages and a token mean under several upper clip bounds.

    Only ``eps_high`` differs.
    """
    base = by_name("dapo(step)")
    return [
        base.but(
            f"eps_high={high:g}", surrogate=partial(ppo_clip, eps_low=0.2, eps_high=float(high))
        )
        for high in eps_high
    ]


def draw(
    theta: Tensor, setting: Arms, training: Training, sources: Sequence[torch.Generator]
) -> Draw:
    """One rollout of every seed, ``theta`` ``[S, P, arms]``; ``actions``: the arm of each
    completion, and its probability.
    """
    chance = torch.softmax(theta, -1).repeat_interleave(training.samples, dim=1)
    u = uniform(sources, chance.shape[1])
    arm = (u[..., None] >= chance.cumsum(-1)).sum(-1).clamp(max=setting.arms - 1)
    reward = (arm < setting.right).double()
    if training.placebo:
        reward = shuffled(reward, sources, training.prompts)
    taken = torch.ones_like(arm, dtype=torch.bool)
    picked = chance.gather(-1, arm[..., None])[..., 0]
    return Draw((arm, picked), taken[..., None], reward, ~taken)


def logp_of(samples: int, theta: Tensor, actions: tuple[Tensor, ...]) -> Tensor:
    """``[N, 1]`` log-probability of one seed's arms."""
    return (
        torch.log_softmax(theta, -1)
        .repeat_interleave(samples, dim=0)
        .gather(1, actions[0][:, None])
    )


def train(
    recipes: Recipe | Sequence[Recipe] | None = None,
    setting: Arms | None = None,
    training: Training | None = None,
    *,
    seeds: int | Sequence[int] = 8,
    learning_rates: Mapping[str, float] | None = None,
    progress: bool = False,
) -> pd.DataFrame:
    """Train the bandit. Level of evidence: simulated.

    Args:
        recipes: one or several; None: ``clip_recipes()``.
        setting, training: settings; None: the defaults, ``TRAINING`` with 16 updates per rollout.
        seeds: how many (0 … n-1), or which.
        learning_rates: per recipe name.
        progress: a bar on a terminal.

    Returns:
        One row per recipe, seed and recorded step: ``pass_rate`` and ``entropy`` (nats, mean over
            prompts; exact, of the policy before the
        updates), ``reward``, ``clip_fraction``, ``clip_up`` (A > 0, ratio above the bound),
        ``clip_down``, ``prob_up_clipped`` and ``prob_sampled`` (mean probability, when drawn, of
        up-clipped and of all sampled arms; NaN where none was clipped), ``loss``,
        ``gradient_norm``, ``norm_clipped``.

    Raises:
        ValueError: a setting is out of range, or a recipe needs a field that the toy does not have.
    """
    setting = setting or Arms()
    training = training or TRAINING
    return learn(
        trainable(clip_recipes() if recipes is None else recipes),
        setting.start(training.prompts),
        lambda theta, sources: draw(theta, setting, training, sources),
        partial(logp_of, training.samples),
        training,
        seeds=seeds,
        max_new_tokens=1,
        observe=lambda theta, batch, stats: _columns(theta, setting, batch, stats),
        learning_rates=learning_rates,
        progress=progress,
    )


def _columns(
    theta: Tensor, setting: Arms, batch: Draw | None, stats: UpdateStats | None
) -> dict[str, Tensor]:
    chance = torch.softmax(theta, -1)
    entropy = -torch.xlogy(chance, chance).sum(-1).mean(1)
    nothing = torch.full_like(entropy, torch.nan)
    columns = {"pass_rate": chance[..., : setting.right].sum(-1).mean(1), "entropy": entropy}
    names = (
        "reward",
        "clip_fraction",
        "clip_up",
        "clip_down",
        "prob_up_clipped",
        "prob_sampled",
        "loss",
        "gradient_norm",
    )
    columns |= dict.fromkeys((*names, "norm_clipped"), nothing)
    if batch is None or stats is None:
        return columns
    clipped = stats.clipped[..., 0]
    picked = batch.actions[1]
    up = clipped.clamp(min=0)
    down = -clipped.clamp(max=0)
    columns |= {"reward": batch.reward.mean(1), "clip_fraction": clipped.abs().mean(1)}
    columns |= {"clip_up": up.mean(1), "clip_down": down.mean(1)}
    columns |= {"prob_up_clipped": (up * picked).sum(1) / up.sum(1), "prob_sampled": picked.mean(1)}
    return columns | {
        "loss": stats.loss,
        "gradient_norm": stats.gradient_norm,
        "norm_clipped": stats.norm_clipped,
    }
