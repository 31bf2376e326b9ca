"""How every toy learns: draw, build ``Rollouts``, differentiate ``Recipe.loss``, step. All seeds in one tensor program.

A toy gives three things: its parameters ``[S seeds, ...]``, ``draw`` (one rollout of every seed) and ``logp_of`` (log-probs of
what was drawn, for one seed). ``learn`` does the rest, and the only thing that teaches the policy is ``Recipe.loss``.

Simplified against a real trainer: several updates per rollout are passes over the whole rollout, not slices of it, and the frozen
reference policy is the policy at step 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm

from ..objective import axes
from ..objective.recipe import Plan, Recipe
from ..rollouts import Rollouts
from ..weights import factors, split

if TYPE_CHECKING:
    import pandas as pd

OPTIMIZERS = ("sgd", "adamw")
ABSENT = ("greedy_reward", "value", "token_reward", "sampler_logp")  # what no toy has; ``advantage`` comes from the baseline
LogProbs = Callable[[Tensor, tuple[Tensor, ...]], Tensor]


@dataclass(frozen=True)
class Training:
    """Everything a class would turn.

    Args:
        steps: rollouts drawn.
        prompts: prompts per step, P.
        samples: completions per prompt, G; at least 2.
        learning_rate: of the optimiser.
        optimizer: ``sgd`` or ``adamw`` (no weight decay).
        betas: AdamW's.
        updates: optimiser steps on one rollout; from the second on the policy is stale and a clip can act.
        micro_batches: slices of the step; only the micro-batch scope looks at them.
        max_norm: the gradient of each seed is scaled down to this norm; None: never.
        placebo: rewards are shuffled inside each prompt group, so that nothing can be learnt from them.
        every: a row of the table each so many steps, and one at the end.
    """

    steps: int = 200
    prompts: int = 8
    samples: int = 8
    learning_rate: float = 1.0
    optimizer: str = "sgd"
    betas: tuple[float, float] = (0.9, 0.95)
    updates: int = 1
    micro_batches: int = 1
    max_norm: float | None = None
    placebo: bool = False
    every: int = 1

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("prompts", 1), ("samples", 2), ("updates", 1), ("micro_batches", 1), ("every", 1)):
            whole(name, getattr(self, name), least)
        one_of("optimizer", self.optimizer, OPTIMIZERS)
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate is {self.learning_rate}: expected a positive number.")
        if self.max_norm is not None and not self.max_norm > 0:
            raise ValueError(f"max_norm is {self.max_norm}: expected a positive number, or None for no gradient clipping.")
        if self.micro_batches > self.prompts * self.samples:
            raise ValueError(
                f"micro_batches is {self.micro_batches}: expected at most prompts x samples = {self.prompts * self.samples}."
            )

    @property
    def group(self) -> Tensor:
        """``[N]`` the prompt of each completion, G in a row."""
        return _group(self.prompts, self.samples)


@cache
def _group(prompts: int, samples: int) -> Tensor:
    return torch.arange(prompts).repeat_interleave(samples)


class Draw(NamedTuple):
    """One rollout of every seed.

    ``actions``: what ``logp_of`` reads, each ``[S, ...]``; ``mask``: ``[S, N, T]`` bool; ``reward``: ``[S, N]`` float64;
    ``truncated``: ``[S, N]`` bool.
    """

    actions: tuple[Tensor, ...]
    mask: Tensor
    reward: Tensor
    truncated: Tensor


class Seen(NamedTuple):
    """What the updates on one rollout left to look at; ``clipped`` is ``[S, N, T]``, the share of the updates in which the gate of
    a token was 0, with the sign of its advantage; the others are ``[S]``."""

    loss: Tensor
    gradient_norm: Tensor
    norm_clipped: Tensor
    clipped: Tensor


def whole(name: str, value: Any, least: int) -> None:
    """A whole number from ``least`` on, or a ValueError that says so."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is {value}: expected a whole number of at least {least}.")


def one_of(name: str, value: str, known: Sequence[str]) -> None:
    """One of the known names, or a ValueError that lists them."""
    if value not in known:
        raise ValueError(f"{name} is '{value}': expected one of {', '.join(known)}.")


def generators(seeds: int | Sequence[int]) -> tuple[list[int], list[torch.Generator]]:
    """Seed numbers (an int n is 0 … n-1) and one generator each: a seed draws the same alone or among others."""
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not numbers or len(set(numbers)) < len(numbers) or any(n < 0 for n in numbers):
        raise ValueError(f"seeds is {seeds}: expected a positive number, or a list of different whole numbers.")
    return numbers, [torch.Generator().manual_seed(number) for number in numbers]


def uniform(sources: Sequence[torch.Generator], *shape: int) -> Tensor:
    """``[S, *shape]`` uniform numbers in [0, 1), each seed from its own generator."""
    return torch.stack([torch.rand(shape, generator=source, dtype=torch.float64) for source in sources])


def shuffled(reward: Tensor, sources: Sequence[torch.Generator], prompts: int) -> Tensor:
    """``[S, N]`` rewards in a random order inside each prompt group: the placebo."""
    grouped = reward.reshape(len(reward), prompts, -1)
    order = uniform(sources, *grouped.shape[1:]).argsort(dim=-1)
    return grouped.gather(-1, order).reshape(reward.shape)


def checked(recipes: Recipe | Sequence[Recipe]) -> list[Recipe]:
    """The recipes as a list, with distinct names, none asking for a field that no toy has."""
    chosen = [recipes] if isinstance(recipes, Recipe) else list(recipes)
    names = [one.name for one in chosen]
    if not chosen or len(set(names)) < len(names):
        raise ValueError(
            f"recipes are named {', '.join(names) or 'not at all'}: expected at least one, each with its own name."
        )
    for one in chosen:
        asked = set().union(*(axes.inputs_of(c, required=True) for c in choices(one)))
        missing = sorted(asked & {*ABSENT} | ({"advantage"} & axes.inputs_of(one.baseline, required=True)))
        if missing:
            raise ValueError(
                f"{one.name} needs rollouts.{', rollouts.'.join(missing)}, which a toy does not have: take another."
            )
    return chosen


def choices(recipe: Recipe) -> list[axes.Choice]:
    """Every choice of a recipe that is not None."""
    single = (recipe.baseline, recipe.scale, recipe.surrogate, recipe.aggregation, recipe.correction, recipe.kl)
    return [c for c in (*single, recipe.kl_aggregation, *recipe.rewards, *recipe.filters) if c is not None]


def needs_reference(recipe: Recipe) -> bool:
    """True where a choice looks at ``ref_logp``."""
    return any("ref_logp" in axes.inputs_of(choice) for choice in choices(recipe))


def differentiate(
    recipe: Recipe,
    logp_of: LogProbs,
    theta: Tensor,
    draw: Draw,
    others: Mapping[str, Tensor],
    training: Training,
    max_new_tokens: int,
    plan: tuple[Tensor, ...] = (),
) -> tuple[Tensor, Tensor, Tensor | None, tuple[Tensor, ...]]:
    """Gradient of ``Recipe.loss`` by the parameters ``[S, ...]``, the loss ``[S]``, ``clipped`` (-1, 0, 1) and the plan, ``[S, N, T]``.

    ``clipped`` is None in the first update on a rollout, where every ratio is 1.

    Seeds share no parameter, so the gradient of the sum of their losses holds the gradient of each.

    Args:
        recipe, logp_of, theta, draw: see ``learn``.
        others: ``old_logp`` and ``ref_logp``, ``[S, N, T]``, where there are any.
        training, max_new_tokens: settings.
        plan: the fields of the ``Plan`` that an earlier update on the same rollout made; empty: made here.
    """
    group, micro_batch = training.group, _slices(training.prompts * training.samples, training.micro_batches)
    names, actions = tuple(others), len(draw.actions)

    def one_seed(theta: Tensor, *flat: Tensor) -> tuple[Tensor, ...]:
        mask, reward, truncated = flat[actions : actions + 3]
        given, made = flat[actions + 3 : actions + 3 + len(names)], flat[actions + 3 + len(names) :]
        rollouts = Rollouts.unchecked(
            logp=logp_of(theta, flat[:actions]),
            mask=mask,
            reward=reward,
            reward_parts=reward[:, None],
            truncated=truncated,
            group=group,
            max_new_tokens=max_new_tokens,
            **dict(zip(names, given, strict=True)),
        )
        now = Plan(*made) if made else recipe.plan(rollouts, micro_batch)
        loss = recipe.loss(rollouts, now)
        if not made:  # on policy still: nothing is clipped
            return loss, now.mask, now.advantage, now.weight, now.kl_weight
        gate = factors(recipe, rollouts, now)["gate"]
        return loss, (gate == 0) * now.mask * now.advantage.sign()

    leaf = theta.detach().requires_grad_()
    loss, *rest = torch.vmap(one_seed)(leaf, *draw.actions, *draw[1:], *others.values(), *plan)
    loss.sum().backward()
    assert leaf.grad is not None
    return leaf.grad, loss.detach(), rest[0].detach() if plan else None, plan or tuple(rest)


@cache
def _slices(rows: int, parts: int) -> Tensor:
    return split(rows, parts)


def clip_norm(gradient: Tensor, max_norm: float | None) -> tuple[Tensor, Tensor, Tensor]:
    """Each seed's gradient scaled down to ``max_norm``; its norm before, and 1 where the limit bound, both ``[S]``."""
    norm = gradient.flatten(1).norm(dim=1)
    bound = torch.zeros_like(norm) if max_norm is None else (norm > max_norm).to(norm.dtype)
    scale = torch.where(bound > 0, (max_norm or 1.0) / norm.clamp(min=torch.finfo(norm.dtype).tiny), 1.0)
    return gradient * scale.reshape(-1, *[1] * (gradient.ndim - 1)), norm, bound


def optimiser(theta: Tensor, training: Training, learning_rate: float) -> torch.optim.Optimizer:
    """The optimiser over the parameters of all seeds; both kinds work number by number, so seeds do not mix."""
    if training.optimizer == "sgd":
        return torch.optim.SGD([theta], lr=learning_rate)
    return torch.optim.AdamW([theta], lr=learning_rate, betas=training.betas, weight_decay=0.0)


def learn(
    recipe: Recipe,
    theta: Tensor,
    draw: Callable[[Tensor], Draw],
    logp_of: LogProbs,
    training: Training,
    *,
    max_new_tokens: int,
    observe: Callable[[Tensor, Draw | None, Seen | None], Mapping[str, Tensor]],
    learning_rate: float | None = None,
    progress: bool = False,
) -> list[tuple[int, dict[str, Tensor]]]:
    """Train every seed with one recipe.

    Args:
        recipe: the loss.
        theta: ``[S, ...]`` float64, the parameters at step 0; not changed.
        draw: theta -> one rollout of every seed.
        logp_of: ``(theta of one seed, actions)`` -> ``[N, T]``.
        training: settings.
        max_new_tokens: the constant normaliser's length.
        observe: ``(theta before the updates, draw, seen)`` -> columns of the table, each ``[S]`` or ``[S, K]``; draw and seen are
            None in the last row, where nothing is drawn any more.
        learning_rate: in place of the settings' one.
        progress: a bar on a terminal.

    Returns:
        (step, columns) for each recorded step.
    """
    theta = theta.clone()
    start, rows = theta.clone(), []
    stepper = optimiser(theta, training, training.learning_rate if learning_rate is None else learning_rate)
    for step in tqdm(range(training.steps), desc=recipe.name, disable=None if progress else True, leave=False):
        before, batch = theta.clone(), draw(theta)
        others = {}
        if training.updates > 1:
            others["old_logp"] = torch.vmap(logp_of)(theta, batch.actions)
        if needs_reference(recipe):
            others["ref_logp"] = torch.vmap(logp_of)(start, batch.actions)
        plan: tuple[Tensor, ...] = ()
        losses, norms, bounds, clips = [], [], [], []
        for _ in range(training.updates):
            gradient, loss, clipped, plan = differentiate(recipe, logp_of, theta, batch, others, training, max_new_tokens, plan)
            theta.grad, norm, bound = clip_norm(gradient, training.max_norm)
            stepper.step()
            losses.append(loss)
            norms.append(norm)
            bounds.append(bound)
            clips += [] if clipped is None else [clipped]
        if step % training.every == 0:
            share = torch.stack(clips).sum(0) / training.updates if clips else torch.zeros_like(batch.mask, dtype=theta.dtype)
            seen = Seen(losses[0], norms[0], torch.stack(bounds).mean(0), share)
            rows.append((step, dict(observe(before, batch, seen))))
    rows.append((training.steps, dict(observe(theta, None, None))))
    return rows


def tidy(runs: Mapping[str, list[tuple[int, dict[str, Tensor]]]], seeds: Sequence[int]) -> pd.DataFrame:
    """One row per recipe, seed and recorded step, from what ``learn`` returned per recipe; every column is ``[S]``."""
    import pandas as pd

    tables = []
    for name, rows in runs.items():
        steps = [step for step, _ in rows]
        table = {"recipe": name, "seed": [s for s in seeds for _ in steps], "step": steps * len(seeds)}
        columns = {key: torch.stack([row[key] for _, row in rows], dim=1).reshape(-1).numpy() for key in rows[0][1]}
        tables.append(pd.DataFrame({**table, **columns}))
    return pd.concat(tables, ignore_index=True)
