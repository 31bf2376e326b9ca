"""How every toy learns: draw, build ``Rollouts``, differentiate ``Recipe.loss``, step. All seeds and recipes in one tensor program.

A toy gives three things: its parameters at step 0, ``draw`` (one rollout of every run) and ``logp_of`` (log-probs of what was drawn, for
one run). ``learn`` does the rest, and the only thing that teaches the policy is ``Recipe.loss``.

Simplified against a real trainer: several updates per rollout are passes over the whole rollout, not slices of it, and the frozen
reference policy is the policy at step 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm

from ..checks import Probability, check_of, instance, number, one_of, whole_number
from ..objective import axes
from ..objective.recipe import Plan, Recipe
from ..rollouts import Rollouts
from ..weights import factors, split

if TYPE_CHECKING:
    import pandas as pd

OPTIMIZERS = ("sgd", "adamw")
ABSENT = (
    "greedy_reward",
    "value",
    "token_reward",
    "sampler_logp",
)  # what no toy has; ``advantage`` comes from the baseline
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
        for name, least in (
            ("steps", 1),
            ("prompts", 1),
            ("samples", 2),
            ("updates", 1),
            ("micro_batches", 1),
            ("every", 1),
        ):
            whole_number(name, getattr(self, name), least, 10**6)
        one_of("optimizer", self.optimizer, OPTIMIZERS)
        number("learning_rate", self.learning_rate, 1e-12, 1e12)
        check_of(tuple[Probability, Probability])("betas", self.betas)
        instance("placebo", self.placebo, bool)
        if self.max_norm is not None:
            number("max_norm", self.max_norm, 1e-12, 1e12)
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
    """One rollout of every run, B of them.

    ``actions``: what ``logp_of`` reads, each ``[B, ...]``; ``mask``: ``[B, N, T]`` bool; ``reward``: ``[B, N]`` float64;
    ``truncated``: ``[B, N]`` bool.
    """

    actions: tuple[Tensor, ...]
    mask: Tensor
    reward: Tensor
    truncated: Tensor


class Seen(NamedTuple):
    """What the updates on one rollout left to look at; ``clipped`` is ``[B, N, T]``, the share of the updates in which the gate of
    a token was 0, with the sign of its advantage; the others are ``[B]``."""

    loss: Tensor
    gradient_norm: Tensor
    norm_clipped: Tensor
    clipped: Tensor


def generators(seeds: int | Sequence[int]) -> tuple[list[int], list[torch.Generator]]:
    """Seed numbers (an int n is 0 … n-1) and one generator each: a seed draws the same alone or among others."""
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not numbers or len(set(numbers)) < len(numbers) or any(n < 0 for n in numbers):
        raise ValueError(
            f"seeds is {seeds}: expected a positive number, or a list of different whole numbers."
        )
    return numbers, [torch.Generator().manual_seed(number) for number in numbers]


def uniform(sources: Sequence[torch.Generator], *shape: int) -> Tensor:
    """``[B, *shape]`` uniform numbers in [0, 1), each run from its own generator."""
    return torch.stack(
        [torch.rand(shape, generator=source, dtype=torch.float64) for source in sources]
    )


def shuffled(reward: Tensor, sources: Sequence[torch.Generator], prompts: int) -> Tensor:
    """``[B, N]`` rewards in a random order inside each prompt group: the placebo."""
    grouped = reward.reshape(len(reward), prompts, -1)
    order = uniform(sources, *grouped.shape[1:]).argsort(dim=-1)
    return grouped.gather(-1, order).reshape(reward.shape)


def trainable(recipes: Recipe | Sequence[Recipe]) -> list[Recipe]:
    """The recipes as a list, with distinct names, none asking for a field that no toy has."""
    chosen = [recipes] if isinstance(recipes, Recipe) else list(recipes)
    names = [one.name for one in chosen]
    if not chosen or len(set(names)) < len(names):
        raise ValueError(
            f"recipes are named {', '.join(names) or 'not at all'}: expected at least one, each with its own name."
        )
    for one in chosen:
        if missing := lacking(one, ABSENT):
            raise ValueError(
                f"{one.name} needs rollouts.{', rollouts.'.join(missing)}, which a toy does not have: take another."
            )
    return chosen


def lacking(recipe: Recipe, absent: Sequence[str]) -> list[str]:
    """The fields of ``Rollouts`` that a recipe cannot do without, among those that are absent; an advantage from outside is one."""
    asked = set().union(*(axes.inputs_of(c, required=True) for c in choices(recipe)))
    return sorted(
        asked & {*absent} | ({"advantage"} & axes.inputs_of(recipe.baseline, required=True))
    )


def choices(recipe: Recipe) -> list[axes.Choice]:
    """Every choice of a recipe that is not None."""
    single = (
        recipe.baseline,
        recipe.scale,
        recipe.surrogate,
        recipe.aggregation,
        recipe.correction,
        recipe.kl,
    )
    return [
        c
        for c in (*single, recipe.kl_aggregation, *recipe.rewards, *recipe.filters)
        if c is not None
    ]


def needs_reference(recipe: Recipe) -> bool:
    """True where a choice looks at ``ref_logp``."""
    return any("ref_logp" in axes.inputs_of(choice) for choice in choices(recipe))


def differentiate(
    recipes: Sequence[Recipe],
    logp_of: LogProbs,
    theta: Tensor,
    draw: Draw,
    others: Mapping[str, Tensor],
    training: Training,
    max_new_tokens: int,
    plans: Sequence[Plan] = (),
) -> tuple[Tensor, Tensor, Tensor | None, Sequence[Plan]]:
    """Gradient of ``Recipe.loss`` by the parameters, ``[S, R, ...]`` for S seeds and R recipes, and what it leaves.

    Runs share no parameter, so the gradient of the sum of their losses holds the gradient of each.

    Args:
        recipes: R of them.
        logp_of, theta: see ``learn``; theta is ``[S, R, ...]``.
        draw: one rollout, every tensor ``[S, R, ...]``.
        others: ``old_logp`` and ``ref_logp``, ``[S, R, N, T]``, where there are any.
        training, max_new_tokens: settings.
        plans: one per recipe, made by an earlier update on the same rollout; empty: made here.

    Returns:
        Gradient ``[S, R, ...]``; loss ``[S, R]``; ``clipped`` (-1, 0, 1) ``[S, R, N, T]``, None in the first update on a rollout, where
        every ratio is 1; the plans.
    """
    group, micro_batch = (
        training.group,
        _slices(training.prompts * training.samples, training.micro_batches),
    )

    def one_seed(
        theta: Tensor, draw: Draw, others: Mapping[str, Tensor], plans: Sequence[Sequence[Tensor]]
    ) -> tuple[Tensor, list[Tensor], list[tuple[Tensor, ...]]]:
        logp = torch.vmap(logp_of)(theta, draw.actions).unbind()
        losses, clipped, made = [], [], []
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
                clipped.append(
                    (factors(recipe, rollouts, now)["gate"] == 0) * now.mask * now.advantage.sign()
                )
            else:  # on policy still: nothing is clipped
                made.append((now.mask, now.advantage, now.weight, now.kl_weight))
        return torch.stack(losses), clipped, made

    leaf = theta.detach().requires_grad_()
    given = [(plan.mask, plan.advantage, plan.weight, plan.kl_weight) for plan in plans]
    loss, clipped, made = torch.vmap(one_seed)(leaf, draw, dict(others), given)
    loss.sum().backward()
    assert leaf.grad is not None
    if not plans:
        return leaf.grad, loss.detach(), None, [Plan(*fields) for fields in made]
    return leaf.grad, loss.detach(), torch.stack(clipped, 1).detach(), plans


@cache
def _slices(rows: int, parts: int) -> Tensor:
    return split(rows, parts)


def clip_norm(gradient: Tensor, max_norm: float | None) -> tuple[Tensor, Tensor, Tensor]:
    """Each run's gradient ``[B, ...]`` scaled down to ``max_norm``; its norm before, and 1 where the limit bound, both ``[B]``."""
    norm = gradient.flatten(1).norm(dim=1)
    bound = torch.zeros_like(norm) if max_norm is None else (norm > max_norm).to(norm.dtype)
    scale = torch.where(
        bound > 0, (max_norm or 1.0) / norm.clamp(min=torch.finfo(norm.dtype).tiny), 1.0
    )
    return gradient * scale.reshape(-1, *[1] * (gradient.ndim - 1)), norm, bound


def optimiser(
    leaves: Sequence[Tensor], training: Training, learning_rates: Sequence[float]
) -> torch.optim.Optimizer:
    """The optimiser over the parameters of all seeds, one tensor per recipe; both kinds work number by number, so seeds do not mix."""
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
    observe: Callable[[Tensor, Draw | None, Seen | None], Mapping[str, Tensor]],
    learning_rates: Mapping[str, float] | None = None,
    progress: bool = False,
) -> pd.DataFrame:
    """Train every recipe from every seed in one program: a *run* is one of the B = S x R pairs, seed by seed.

    Args:
        recipes: the losses.
        start: ``[...]`` float64, the parameters at step 0.
        draw: (theta ``[B, ...]``, a generator per run) -> one rollout of every run.
        logp_of: ``(theta of one run, actions)`` -> ``[N, T]``.
        training: settings.
        seeds: how many (0 … n-1), or which. All recipes draw the same numbers.
        max_new_tokens: the constant normaliser's length.
        observe: ``(theta before the updates, draw, seen)`` -> columns of the table, each ``[B]``; draw and seen are None in the last row,
            where nothing is drawn any more.
        learning_rates: per recipe name, in place of the settings' one.
        progress: a bar on a terminal.

    Returns:
        One row per recipe, seed and recorded step.
    """
    numbers, _ = generators(seeds)
    shape = (len(numbers), len(recipes))
    sources = [torch.Generator().manual_seed(number) for number in numbers for _ in recipes]
    leaves = [start.expand(len(numbers), *start.shape).clone() for _ in recipes]
    rates = [(learning_rates or {}).get(one.name, training.learning_rate) for one in recipes]
    stepper, rows = optimiser(leaves, training, rates), []
    frozen = any(map(needs_reference, recipes))
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
        seen = _updates(recipes, logp_of, leaves, stepper, batch, others, training, max_new_tokens)
        if step % training.every == 0:
            rows.append((step, observe(before, batch, seen)))
    rows.append((training.steps, observe(torch.stack(leaves, 1).flatten(0, 1), None, None)))
    return tidy([one.name for one in recipes], numbers, rows)


def _updates(
    recipes: Sequence[Recipe],
    logp_of: LogProbs,
    leaves: Sequence[Tensor],
    stepper: torch.optim.Optimizer,
    batch: Draw,
    others: Mapping[str, Tensor],
    training: Training,
    max_new_tokens: int,
) -> Seen:
    """All optimiser steps on one rollout; the leaves move in place."""
    shape = (len(leaves[0]), len(leaves))
    apart = Draw(
        tuple(a.unflatten(0, shape) for a in batch.actions),
        *(field.unflatten(0, shape) for field in batch[1:]),
    )
    plans: Sequence[Plan] = ()
    losses, norms, bounds, clips = [], [], [], []
    for _ in range(training.updates):
        theta = torch.stack(list(leaves), 1)
        gradient, loss, clipped, plans = differentiate(
            recipes, logp_of, theta, apart, others, training, max_new_tokens, plans
        )
        limited, norm, bound = clip_norm(gradient.flatten(0, 1), training.max_norm)
        for leaf, part in zip(leaves, limited.unflatten(0, shape).unbind(1), strict=True):
            leaf.grad = part
        stepper.step()
        losses.append(loss.flatten())
        norms.append(norm)
        bounds.append(bound)
        clips += [] if clipped is None else [clipped.flatten(0, 1)]
    share = (
        torch.stack(clips).sum(0) / training.updates
        if clips
        else torch.zeros_like(batch.mask, dtype=norms[0].dtype)
    )
    return Seen(losses[0], norms[0], torch.stack(bounds).mean(0), share)


def tidy(
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
