r"""The difficulty toy: prompts from almost never to almost always solved.

A completion is one token, right or wrong.

The pass rate of prompt q is :math:`p_q = \sigma(z_q)`. Tabular: every :math:`z_q` is a parameter of
its own, so that :math:`\mathbb E[\Delta z_q] \propto w_G(p_q)\, p_q (1-p_q)`: what an advantage
does to difficulty, and nothing else. With ``features`` the prompts share one parameter vector,
:math:`z_q = z_q^0 + x_q \cdot \phi`, and progress on one moves its neighbours.

Sampling of groups:
    ``plain``: take the groups as drawn, dead ones too. ``refill``: drop dead groups and draw *new*
    prompts in their place (DAPO's dynamic sampling). ``reroll``: draw the *same* prompt again until
    its rewards differ.
Both count every completion they drew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ..checks import (
    Cap,
    Index,
    Positive,
    checked,
    number,
    one_of,
    whole_number,
)
from ..draws import seed_numbers, shuffled
from ..objective.catalog import AnyRecipe
from .training import Draw, Training, UpdateStats, learn, trainable

if TYPE_CHECKING:
    import pandas as pd

TRAINING = Training(steps=300, prompts=50, samples=16, learning_rate=10.0)
SAMPLING = ("plain", "refill", "reroll")
WIDTH = 0.15  # of a feature's bump, in units of the whole range of difficulty


@dataclass(frozen=True)
class Difficulty:
    """The prompts at step 0 and how groups are drawn.

    Args:
        prompts: size of the prompt set, Q.
        hardest, easiest: initial pass rates of its two ends.
        spacing: ``log`` (equal steps of log p: many hard prompts) or ``logit`` (equal steps of the
            logit: as many easy as hard).
        features: 0 for a logit per prompt, else the number F of parameters that all prompts share.
        sampling: ``plain``, ``refill`` or ``reroll``.
        rounds: draws after which refill and reroll give up and take dead groups.
        buckets: prompts are reported in this many equal parts, by initial pass rate.
    """

    prompts: int = 50
    hardest: float = 1e-3
    easiest: float = 0.999
    spacing: str = "log"
    features: int = 0
    sampling: str = "plain"
    rounds: int = 20
    buckets: int = 5

    def __post_init__(self) -> None:
        for name, least in (("prompts", 1), ("features", 0), ("rounds", 1), ("buckets", 1)):
            whole_number(name, getattr(self, name), least, 10**6)
        one_of("sampling", self.sampling, SAMPLING)
        one_of("spacing", self.spacing, ("log", "logit"))
        number("hardest", self.hardest, 0.0, 1.0)
        number("easiest", self.easiest, 0.0, 1.0)
        if not 0 < self.hardest <= self.easiest < 1:
            raise ValueError(
                f"hardest is {self.hardest} and easiest {self.easiest}: expected pass rates with 0 "
                f"< hardest <= easiest < 1."
            )
        if self.buckets > self.prompts:
            raise ValueError(
                f"buckets is {self.buckets}: expected at most prompts = {self.prompts}."
            )

    @property
    def pass_rates(self) -> Tensor:
        """``[Q]`` initial pass rates, hardest first."""
        ends = torch.tensor([self.hardest, self.easiest], dtype=torch.float64)
        share = torch.linspace(0, 1, self.prompts, dtype=torch.float64)
        low, high = ends.log() if self.spacing == "log" else ends.logit()
        between = low + share * (high - low)
        return between.exp() if self.spacing == "log" else between.sigmoid()

    @property
    def bucket(self) -> Tensor:
        """``[Q]`` bucket of each prompt, 0 the hardest."""
        return torch.arange(self.prompts) * self.buckets // self.prompts

    @property
    def design(self) -> Tensor:
        """``[Q, F]`` unit rows: bumps along difficulty, so that neighbours share parameters.

        Tabular: the identity.
        """
        if not self.features:
            return torch.eye(self.prompts, dtype=torch.float64)
        place = torch.linspace(0, 1, self.prompts, dtype=torch.float64)[:, None]
        bumps = torch.exp(
            -0.5 * ((place - torch.linspace(0, 1, self.features, dtype=torch.float64)) / WIDTH) ** 2
        )
        return bumps / bumps.norm(dim=1, keepdim=True)

    def logits(self, theta: Tensor) -> Tensor:
        """``[..., Q]`` logits at the parameters ``[..., Q or F]``, which are 0 at step 0."""
        return self.pass_rates.logit() + theta @ self.design.T


class Groups(NamedTuple):
    """Groups of one seed: ``prompts`` ``[P]``; ``right`` ``[P, G]`` bool; ``live`` ``[P]``, True
    where rewards differ.
    """

    prompts: Tensor
    right: Tensor
    live: Tensor


def _groups(
    rates: Tensor, setting: Difficulty, training: Training, source: torch.Generator
) -> tuple[Groups, int]:
    """The groups of one step of one seed with pass rates ``[Q]``, and how many completions were
    drawn for them.
    """
    rounds: list[Groups] = []
    live_count = 0
    drawn = 0
    prompts = torch.empty(0, dtype=torch.long)
    for _ in range(1 if setting.sampling == "plain" else setting.rounds):
        if setting.sampling != "reroll" or not len(prompts):
            prompts = torch.randperm(setting.prompts, generator=source)[: training.prompts]
        chance = rates[prompts][:, None].expand(-1, training.samples)
        right = torch.rand(chance.shape, generator=source, dtype=torch.float64) < chance
        live = right.any(1) & ~right.all(1)
        drawn += right.numel()
        rounds.append(Groups(prompts, right, live))
        live_count += int(live.sum())
        if setting.sampling == "reroll":
            prompts = prompts[~live]
        if live_count >= training.prompts or not len(prompts):
            break
    return _filled(rounds, setting, training), drawn


def _filled(rounds: list[Groups], setting: Difficulty, training: Training) -> Groups:
    """The first P live groups, and, where there are too few, dead ones of the last round (of the
    first, where prompts are new).
    """
    every = Groups(*(torch.cat(column) for column in zip(*rounds, strict=True)))
    if setting.sampling == "plain":
        return every
    spare = torch.zeros_like(every.live)
    if setting.sampling == "reroll":
        spare[-len(rounds[-1].live) :] = ~rounds[-1].live
    else:
        spare[: len(rounds[0].live)] = ~rounds[0].live
    order = torch.cat([every.live.nonzero()[:, 0], spare.nonzero()[:, 0]])[: training.prompts]
    return Groups(*(column[order] for column in every))


def draw(
    theta: Tensor,
    setting: Difficulty,
    training: Training,
    sources: Sequence[torch.Generator],
    spent: Tensor,
) -> Draw:
    """One rollout of every run; books the completions it cost in ``spent``, ``[2, B]`` (before,
    this step). ``actions``: the prompt of each completion, right.
    """
    rates = torch.sigmoid(setting.logits(theta))
    runs = [
        _groups(rate, setting, training, source)
        for rate, source in zip(rates, sources, strict=True)
    ]
    spent[0] += spent[1]
    spent[1] = torch.tensor([drawn for _, drawn in runs], dtype=spent.dtype)
    correct = torch.stack([groups.right for groups, _ in runs]).flatten(1)
    reward = correct.double()
    if training.placebo:
        reward = shuffled(reward, sources, training.prompts)
    prompts = torch.stack([groups.prompts for groups, _ in runs])
    rows = prompts.repeat_interleave(training.samples, dim=1)
    return Draw(
        (rows, correct), torch.ones_like(correct)[..., None], reward, torch.zeros_like(correct)
    )


def logp_of(setting: Difficulty, theta: Tensor, actions: tuple[Tensor, ...]) -> Tensor:
    """``[N, 1]`` log-probability of one seed's completions."""
    rows, right = actions
    logit = setting.logits(theta)[rows]
    return torch.where(right, logsigmoid(logit), logsigmoid(-logit))[:, None]


@checked
def train(
    recipes: AnyRecipe | Sequence[AnyRecipe],
    setting: Difficulty | None = None,
    training: Training | None = None,
    *,
    seeds: Cap | Sequence[Index] = 8,
    learning_rates: Mapping[str, Positive] | None = None,
    progress: bool = False,
) -> pd.DataFrame:
    """Train on the prompt set. Level of evidence: simulated.

    Args:
        recipes: one or several.
        setting, training: settings; None: the defaults. ``training.prompts`` of the set are drawn
            each step, without replacement.
        seeds: how many (0 … n-1), or which.
        learning_rates: per recipe name, in place of ``training.learning_rate``.
        progress: a bar on a terminal.

    Returns:
        One row per recipe, seed and recorded step. ``pass_rate`` is the mean over the set (exact,
        of the policy), ``pass_at_8`` the mean of 1 - (1 - p)^8, ``bucket_0`` … the mean pass rate
        of each bucket, hardest first; ``rollouts`` completions drawn before this step; of the
        batch: ``reward``, ``silent`` (share of groups without a signal), ``all_right``,
            ``all_wrong``; of the update: ``loss``, ``gradient_norm``, ``clip_fraction``,
            ``norm_clipped``.

    Raises:
        ValueError: a setting is out of range, or a recipe needs a field that the toy does not have.
    """
    setting = setting or Difficulty()
    training = training or replace(TRAINING, prompts=setting.prompts)
    if training.prompts > setting.prompts:
        raise ValueError(
            f"a step has {training.prompts} prompts but the set only {setting.prompts}: expected "
            f"at most that."
        )
    recipes = trainable(recipes)
    spent = torch.zeros(2, len(seed_numbers(seeds)) * len(recipes), dtype=torch.float64)
    return learn(
        recipes,
        torch.zeros(setting.features or setting.prompts, dtype=torch.float64),
        lambda theta, sources: draw(theta, setting, training, sources, spent),
        partial(logp_of, setting),
        training,
        seeds=seeds,
        max_new_tokens=1,
        observe=lambda theta, batch, stats: _columns(theta, setting, training, batch, stats, spent),
        learning_rates=learning_rates,
        progress=progress,
    )


def _columns(
    theta: Tensor,
    setting: Difficulty,
    training: Training,
    batch: Draw | None,
    stats: UpdateStats | None,
    spent: Tensor,
) -> dict[str, Tensor]:
    rates = torch.sigmoid(setting.logits(theta))
    nothing = torch.full_like(rates[:, 0], torch.nan)
    columns = {"pass_rate": rates.mean(1), "pass_at_8": (1 - (1 - rates) ** 8).mean(1)}
    columns |= {
        f"bucket_{b}": rates[:, setting.bucket == b].mean(1) for b in range(setting.buckets)
    }
    columns |= {"rollouts": spent.sum(0) if batch is None else spent[0].clone()}
    columns |= dict.fromkeys(
        ("reward", "silent", "all_right", "all_wrong", "loss", "gradient_norm"), nothing
    )
    columns |= dict.fromkeys(("clip_fraction", "norm_clipped"), nothing)
    if batch is None or stats is None:
        return columns
    right = batch.actions[1].reshape(len(rates), training.prompts, -1)
    all_right = right.all(-1).double().mean(1)
    all_wrong = (~right).all(-1).double().mean(1)
    columns |= {
        "reward": batch.reward.mean(1),
        "silent": all_right + all_wrong,
        "all_right": all_right,
        "all_wrong": all_wrong,
    }
    columns |= {
        "loss": stats.loss,
        "gradient_norm": stats.gradient_norm,
        "norm_clipped": stats.norm_clipped,
    }
    return columns | {"clip_fraction": stats.clipped.abs().mean((1, 2))}


def first_reaching(
    table: pd.DataFrame, column: str = "bucket_0", target: float = 0.9
) -> pd.DataFrame:
    """Step, and completions drawn, at which a column first reaches the target:
    ``recipe, seed, step, rollouts``; NaN where it never does.
    """
    if column not in table:
        raise ValueError(
            f"column is '{column}': expected a column of the table: {', '.join(table.columns)}."
        )
    reached: Any = (
        table.loc[table[column] >= target]
        .groupby(["recipe", "seed"], sort=False)[["step", "rollouts"]]
        .min()
    )
    everyone = table.loc[:, ["recipe", "seed"]].drop_duplicates()
    return everyone.merge(reached.reset_index(), on=["recipe", "seed"], how="left")
