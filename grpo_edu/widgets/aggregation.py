"""The aggregation explorer: move lengths, rewards, ratios and clips, and see each token's gradient
weight answer.

Level of evidence: exact. The formula runs in the browser; every choice and setting of a recipe
comes from the library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from ..checks import checked
from ..objective import axes, catalog
from ..objective.recipe import Recipe
from ..rollouts import Rollouts
from ..weights import split, token_weights
from .base import Explorer, script, spec, tr

NOT_OFFERED = (
    # its greedy completion, the value model, step rewards and reward parts have no control here
    "remax",
    "ppo",
    "ppo(gae)",
    "grpo(process)",
    "gdpo",
    "reinforce++",  # shapes the reward with a reference policy
)
OFFERED = tuple(name for name in catalog.RECIPES if name not in NOT_OFFERED)


class AggregationExplorer(Explorer):
    """Up to four recipes side by side on at most eight completions; every control is a trait.

    .. math:: w_{it} = A_i\\, W_{it}\\, \\rho_i\\, g_{it}

    There is no reference policy here, so a KL term is left out (the label says so), and one ratio
    per completion.

    Args:
        recipes: one to four, names of ``OFFERED`` or ``Recipe`` objects.
        lengths: N token counts, 1 to 64.
        rewards: N rewards.
        group: N prompt numbers; None: one prompt.
        ratio: importance ratio, one number or N, 0.5 to 2.
        state: the other traits. ``eps_low``, ``eps_high``: offsets from 1 that replace every
            recipe's own clip, None keeps it; ``length_limit``: C of the constant;
            ``micro_batches``: cut in order, as ``weights.split``; ``relative``: show each recipe's
            push per token in percent of its step (a common factor is only a learning rate).

    Raises:
        ValueError: a recipe the explorer does not offer. traitlets.TraitError: a value outside its
        range.
    """

    TITLE = "Gradient weight of every token"
    SHOWN = (
        "recipes",
        "lengths",
        "rewards",
        "group",
        "ratio",
        "eps_low",
        "eps_high",
        "length_limit",
        "micro_batches",
        "relative",
    )
    _esm = script("aggregation")
    recipes = tr.List(tr.Unicode(), maxlen=4).tag(sync=True)
    lengths = tr.List(tr.Int(min=1, max=64), minlen=1, maxlen=8).tag(sync=True)
    rewards = tr.List(tr.Float()).tag(sync=True)
    group = tr.List(tr.Int(min=0)).tag(sync=True)
    ratio = tr.List(tr.Float(min=0.5, max=2.0)).tag(sync=True)
    eps_low = tr.Float(None, allow_none=True, min=0.0).tag(sync=True)
    eps_high = tr.Float(None, allow_none=True, min=0.0).tag(sync=True)
    length_limit = tr.Int(64, min=1).tag(sync=True)
    micro_batches = tr.Int(2, min=1, max=8).tag(sync=True)
    relative = tr.Bool(False).tag(sync=True)

    @checked
    def __init__(
        self,
        recipes: Sequence[str | Recipe] = ("grpo", "dr_grpo"),
        lengths: Sequence[int] = (8, 8, 32, 32),
        rewards: Sequence[float] = (1, 0, 1, 0),
        group: Sequence[int] | None = None,
        ratio: float | Sequence[float] = 1.0,
        **state: Any,
    ) -> None:
        self._by_name = {name: catalog.RECIPES[name] for name in OFFERED}
        self._by_name |= {r.name: r for r in recipes if isinstance(r, Recipe)}
        names = [r.name if isinstance(r, Recipe) else r for r in recipes]
        n = len(lengths)
        super().__init__(
            specs={name: spec(recipe) for name, recipe in self._by_name.items()},
            recipes=names,
            lengths=list(lengths),
            rewards=list(rewards),
            group=[0] * n if group is None else list(group),
            ratio=list(ratio) if isinstance(ratio, Sequence) else [ratio] * n,
            **{"micro_batches": min(2, n), **state},
        )

    @tr.validate("recipes")
    def _offered(self, proposal: Any) -> list[str]:
        return self.checked("recipes", proposal["value"])

    def rollouts(self) -> Rollouts:
        """The completions as they stand, float64."""
        return Rollouts.from_lengths(
            self.lengths,
            self.rewards,
            self.group,
            ratio=self.ratio,
            max_new_tokens=self.length_limit,
        )

    def micro_batch(self) -> Tensor:
        """``[N]`` the micro-batch of each completion."""
        return split(len(self.lengths), self.micro_batches)

    def recipe(self, name: str) -> Recipe:
        """The recipe that a panel draws: without KL, with the clip of the controls. CISPO: 1 - low
        and 1 + high."""
        plain = replace(self._by_name[name], kl=None)
        low = self.eps_low
        high = self.eps_high
        own = axes.settings(plain.surrogate)
        if "eps_low" in own:
            clip = {"eps_low": low, "eps_high": high}
        else:
            clip = {
                "low": None if low is None else max(0.0, 1 - low),
                "high": None if high is None else 1 + high,
            }
        clip = {key: value for key, value in clip.items() if key in own and value is not None}
        return replace(plain, surrogate=partial(plain.surrogate, **clip)) if clip else plain

    def weights(self, name: str) -> Tensor:
        """``[N, T]`` weights of a recipe from the library itself, by autograd."""
        return token_weights(self.recipe(name), self.rollouts(), self.micro_batch())

    def figure(self) -> Any:
        """The same picture by matplotlib."""
        from ..plots.heatmap import weight_map

        recipes = [self.recipe(name) for name in self.recipes]
        return weight_map(recipes, self.rollouts(), self.micro_batch(), relative=self.relative)
