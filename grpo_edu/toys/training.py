"""How every toy learns: draw, build ``Rollouts``, differentiate ``Recipe.loss``, step.

All seeds and recipes in one tensor program.

A toy gives three things: its parameters at step 0, ``draw`` (one rollout of every run) and
``logp_of`` (log-probs of what was drawn, for one run). ``learn`` does the rest, and the only thing
that teaches the policy is ``Recipe.loss``.

Simplified against a real trainer: several updates per rollout are passes over the whole rollout,
not slices of it, and the frozen reference policy is the policy at step 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm

from ..checks import Probability, check_of, instance
from ..draws import generators, seed_numbers
from ..objective.recipe import Plan, Recipe
from ..rollouts import Rollouts
from ..settings import check_training, setting
from ..weights import factors, split

if TYPE_CHECKING:
    import pandas as pd

# fields of Rollouts that no toy has
ABSENT = ("greedy_reward", "value", "token_reward", "sampler_logp", "entropy", "given_advantage")
LogProbs = Callable[[Tensor, tuple[Tensor, ...]], Tensor]


@dataclass(frozen=True)
class Training:
    """Everything a class would turn. Each toy has its own defaults, ``TRAINING`` in its module.

    ``betas`` are AdamW's, which has no weight decay; the table gets a row every ``every`` steps and
    one at the end.

    Raises:
        ValueError: a setting is out of range; names it.
    """

    steps: int = setting(200, "Rollouts.")
    prompts: int = setting(8, "Prompts per step, P.")
    samples: int = setting(8, "Completions per prompt, G; at least 2.")
    learning_rate: float = setting(1.0, "Learning rate (of the first recipe, see --match).")
    optimizer: str = setting("sgd", "sgd or adamw.")
    betas: tuple[float, float] = (0.9, 0.95)
    updates: int = setting(1, "Optimiser steps on one rollout; the clip acts from the second on.")
    micro_batches: int = setting(1, "Slices of the step; only the micro-batch scope looks at them.")
    max_norm: float | None = setting(None, "Scale each seed's gradient down to this norm.")
    placebo: bool = setting(False, "Shuffle rewards inside each group: nothing can be learnt.")
    every: int = 1

    def __post_init__(self) -> None:
        check_training(self, every=1)
        check_of(tuple[Probability, Probability])("betas", self.betas)
        instance("placebo", self.placebo, bool)
        if self.micro_batches > self.prompts * self.samples:
            raise ValueError(
                f"micro_batches is {self.micro_batches}: expected at most prompts x samples = "
                f"{self.prompts * self.samples}."
            )

    @property
    def group(self) -> Tensor:
        """``[N]`` the prompt of each completion, G in a row."""
        return _group(self.prompts, self.samples)


@cache
def _group(prompts: int, samples: int) -> Tensor:
    return torch.arange(prompts).repeat_interleave(samples)


class Draw(NamedTuple):
    """One rollout of every run, B of them.

    ``actions``: what ``logp_of`` reads, each ``[B, ...]``; ``mask``: ``[B, N, T]`` bool;
    ``reward``: ``[B, N]`` float64; ``truncated``: ``[B, N]`` bool.
    """

    actions: tuple[Tensor, ...]
    mask: Tensor
    reward: Tensor
    truncated: Tensor


class UpdateStats(NamedTuple):
    """What the updates on one rollout left to look at.

    ``loss`` and ``gradient_norm`` ``[B]``: of the first update; ``norm_clipped`` ``[B]``: share of
    the updates whose gradient was scaled down; ``clipped`` ``[B, N, T]``: share of the updates in
    which the gate of a token was 0, with the sign of its advantage.
    """

    loss: Tensor
    gradient_norm: Tensor
    norm_clipped: Tensor
    clipped: Tensor


class Gradient(NamedTuple):
    """One gradient of S seeds and R recipes, and what it leaves.

    ``gradient`` ``[S, R, ...]``; ``loss`` ``[S, R]``; ``clipped`` (-1, 0, 1) ``[S, R, N, T]``, None
    in the first update on a rollout, where every ratio is 1; ``plans``: one per recipe.
    """

    gradient: Tensor
    loss: Tensor
    clipped: Tensor | None
    plans: Sequence[Plan]


class Limited(NamedTuple):
    """Gradients after the limit on their norm: ``gradient`` ``[B, ...]``, ``norm`` before,
    ``bound`` 1 where it acted, both ``[B]``.
    """

    gradient: Tensor
    norm: Tensor
    bound: Tensor


def trainable(recipes: Recipe | Sequence[Recipe]) -> list[Recipe]:
    """The recipes as a list.

    Raises:
        ValueError: no recipe, two of one name, or one that needs a field that no toy has.
    """
    recipes = [recipes] if isinstance(recipes, Recipe) else list(recipes)
    names = [recipe.name for recipe in recipes]
    if not recipes or len(set(names)) < len(names):
        raise ValueError(
            f"recipes are named {', '.join(names) or 'not at all'}: expected at least one, each "
            f"with its own name."
        )
    for recipe in recipes:
        if missing := recipe.lacking(ABSENT):
            raise ValueError(
                f"{recipe.name} needs rollouts.{', rollouts.'.join(missing)}, which a toy does not "
                f"have: take another."
            )
    return recipes


def differentiate(
    recipes: Sequence[Recipe],
    logp_of: LogProbs,
    theta: Tensor,
    draw: Draw,
    others: Mapping[str, Tensor],
    training: Training,
    max_new_tokens: int,
    plans: Sequence[Plan] = (),
) -> Gradient:
    """Gradient of ``Recipe.loss`` by the parameters, for S seeds and R recipes.

    Runs share no parameter: the gradient of the sum of losses holds the gradient of each.

    Args:
        recipes: R of them.
        logp_of, theta: see ``learn``; theta is ``[S, R, ...]``.
        draw: one rollout, every tensor ``[S, R, ...]``.
        others: ``old_logp`` and ``ref_logp``, ``[S, R, N, T]``, where there are any.
        training, max_new_tokens: settings.
        plans: one per recipe, made by an earlier update on the same rollout; empty: made here.
    """
    group = training.group
    micro_batch = _slices(len(group), training.micro_batches)

    def one_seed(
        theta: Tensor, draw: Draw, others: Mapping[str, Tensor], plans: Sequence[Sequence[Tensor]]
    ) -> tuple[Tensor, list[Tensor], list[tuple[Tensor, ...]]]:
        logp = torch.vmap(logp_of)(theta, draw.actions).unbind()
        losses = []
        clipped = []
        made = []
        for r, recipe in enumerate(recipes):
            rollouts = Rollouts.unchecked(
                logp=logp[r],
                mask=draw.mask[r],
                reward=draw.reward[r],
                reward_parts=draw.reward[r][:, None],
                truncated=draw.truncated[r],
                group=group,
                max_new_tokens=max_new_tokens,
                **{name: value[r] for name, value in others.items()},
            )
            now = Plan(*plans[r]) if plans else recipe.plan(rollouts, micro_batch)
            losses.append(recipe.loss(rollouts, now))
            if plans:
                closed = factors(recipe, rollouts, now)["gate"] == 0
                clipped.append(closed * now.mask * now.advantage.sign())
            else:  # on policy still: nothing is clipped
                made.append((now.mask, now.advantage, now.W, now.W_kl))
        return torch.stack(losses), clipped, made

    leaf = theta.detach().requires_grad_()
    given = [(plan.mask, plan.advantage, plan.W, plan.W_kl) for plan in plans]
    loss, clipped, made = torch.vmap(one_seed)(leaf, draw, dict(others), given)
    loss.sum().backward()
    assert leaf.grad is not None
    if not plans:
        return Gradient(leaf.grad, loss.detach(), None, [Plan(*fields) for fields in made])
    return Gradient(leaf.grad, loss.detach(), torch.stack(clipped, 1).detach(), plans)


@cache
def _slices(rows: int, parts: int) -> Tensor:
    return split(rows, parts)


def clip_norm(gradient: Tensor, max_norm: float | None) -> Limited:
    """Each run's gradient ``[B, ...]`` scaled down to ``max_norm``; None: as it is."""
    norm = gradient.flatten(1).norm(dim=1)
    bound = torch.zeros_like(norm) if max_norm is None else (norm > max_norm).to(norm.dtype)
    scale = torch.where(
        bound > 0, (max_norm or 1.0) / norm.clamp(min=torch.finfo(norm.dtype).tiny), 1.0
    )
    return Limited(gradient * scale.reshape(-1, *[1] * (gradient.ndim - 1)), norm, bound)


def optimiser(
    leaves: Sequence[Tensor], training: Training, learning_rates: Sequence[float]
) -> torch.optim.Optimizer:
    """The optimiser over the parameters of all seeds, one tensor per recipe.

    Both kinds work number by number, so seeds do not mix.
    """
    groups = [
        {"params": [leaf], "lr": rate} for leaf, rate in zip(leaves, learning_rates, strict=True)
    ]
    if training.optimizer == "sgd":
        return torch.optim.SGD(groups)
    return torch.optim.AdamW(groups, betas=training.betas, weight_decay=0.0)


def learn(
    recipes: Sequence[Recipe],
    start: Tensor,
    draw: Callable[[Tensor, Sequence[torch.Generator]], Draw],
    logp_of: LogProbs,
    training: Training,
    *,
    seeds: int | Sequence[int],
    max_new_tokens: int,
    observe: Callable[[Tensor, Draw | None, UpdateStats | None], Mapping[str, Tensor]],
    learning_rates: Mapping[str, float] | None = None,
    progress: bool = False,
) -> pd.DataFrame:
    """Train every recipe from every seed in one program: a *run* is one of the B = S x R pairs,
    seed by seed.

    Args:
        recipes: the losses.
        start: ``[...]`` float64, the parameters at step 0.
        draw: (theta ``[B, ...]``, a generator per run) -> one rollout of every run.
        logp_of: ``(theta of one run, actions)`` -> ``[N, T]``.
        training: settings.
        seeds: how many (0 … n-1), or which. All recipes draw the same numbers.
        max_new_tokens: the constant normaliser's length.
        observe: ``(theta before the updates, draw, statistics of the updates)`` -> columns of the
            table, each ``[B]``; the last two are None in the last row, where nothing is drawn any
            more.
        learning_rates: per recipe name, in place of the settings' one.
        progress: a bar on a terminal.

    Returns:
        One row per recipe, seed and recorded step.
    """
    numbers = seed_numbers(seeds)
    shape = (len(numbers), len(recipes))
    sources = generators([number for number in numbers for _ in recipes])
    leaves = [start.expand(len(numbers), *start.shape).clone() for _ in recipes]
    rates = [(learning_rates or {}).get(recipe.name, training.learning_rate) for recipe in recipes]
    stepper = optimiser(leaves, training, rates)
    rows = []
    frozen = any(recipe.needs_reference for recipe in recipes)
    for step in tqdm(
        range(training.steps), desc="training", disable=None if progress else True, leave=False
    ):
        before = torch.stack(leaves, 1).flatten(0, 1)
        batch = draw(before, sources)
        others = {}
        if training.updates > 1:
            others["old_logp"] = torch.vmap(logp_of)(before, batch.actions).unflatten(0, shape)
        if frozen:
            others["ref_logp"] = torch.vmap(logp_of, (None, 0))(start, batch.actions).unflatten(
                0, shape
            )
        stats = _updates(recipes, logp_of, leaves, stepper, batch, others, training, max_new_tokens)
        if step % training.every == 0:
            rows.append((step, observe(before, batch, stats)))
    rows.append((training.steps, observe(torch.stack(leaves, 1).flatten(0, 1), None, None)))
    return run_table([recipe.name for recipe in recipes], numbers, rows)


def _updates(
    recipes: Sequence[Recipe],
    logp_of: LogProbs,
    leaves: Sequence[Tensor],
    stepper: torch.optim.Optimizer,
    batch: Draw,
    others: Mapping[str, Tensor],
    training: Training,
    max_new_tokens: int,
) -> UpdateStats:
    """All optimiser steps on one rollout; the leaves move in place."""
    shape = (len(leaves[0]), len(leaves))
    apart = Draw(
        tuple(a.unflatten(0, shape) for a in batch.actions),
        *(field.unflatten(0, shape) for field in batch[1:]),
    )
    plans: Sequence[Plan] = ()
    losses = []
    norms = []
    bounds = []
    clips = []
    for _ in range(training.updates):
        theta = torch.stack(list(leaves), 1)
        step = differentiate(
            recipes, logp_of, theta, apart, others, training, max_new_tokens, plans
        )
        plans = step.plans
        limited = clip_norm(step.gradient.flatten(0, 1), training.max_norm)
        for leaf, part in zip(leaves, limited.gradient.unflatten(0, shape).unbind(1), strict=True):
            leaf.grad = part
        stepper.step()
        losses.append(step.loss.flatten())
        norms.append(limited.norm)
        bounds.append(limited.bound)
        if step.clipped is not None:
            clips.append(step.clipped.flatten(0, 1))
    clipped = (
        torch.stack(clips).sum(0) / training.updates
        if clips
        else torch.zeros_like(batch.mask, dtype=norms[0].dtype)
    )
    return UpdateStats(losses[0], norms[0], torch.stack(bounds).mean(0), clipped)


def run_table(
    names: Sequence[str], seeds: Sequence[int], rows: Sequence[tuple[int, Mapping[str, Tensor]]]
) -> pd.DataFrame:
    """One row per recipe, seed and recorded step; every column is ``[B]``, seed by seed."""
    import pandas as pd

    def column(key: str) -> Tensor:  # [steps, S, R] -> recipe, seed, step
        return (
            torch.stack([row[key] for _, row in rows])
            .reshape(len(rows), len(seeds), len(names))
            .permute(2, 1, 0)
            .flatten()
        )

    steps = [step for step, _ in rows]
    runs = [(name, seed) for name in names for seed in seeds]
    table = {
        "recipe": [n for n, _ in runs for _ in steps],
        "seed": [s for _, s in runs for _ in steps],
    }
    return pd.DataFrame(
        {**table, "step": steps * len(runs), **{key: column(key).numpy() for key in rows[0][1]}}
    )
