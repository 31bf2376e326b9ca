"""The aggregation explorer: move lengths, rewards, clips and the probability of every token, and
see the push on each token answer.

Level of evidence: exact. The formula runs in the browser; every choice and setting of a recipe
comes from the library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..checks import checked
from ..objective import axes, catalog
from ..objective.recipe import Recipe
from ..rollouts import Rollouts
from ..weights import split, token_weights
from .base import Framed, script, spec, static, tr

# what these look at has no control here: values, step rewards, reward parts, a sampler,
# entropies, a teacher
NOT_OFFERED = (
    "ppo",
    "ppo(gae)",
    "vapo",
    "grpo(process)",
    "gdpo",
    "decoupled_ppo",
    "high_entropy",
    "distillation",
)
OFFERED = tuple(name for name in catalog.RECIPES if name not in NOT_OFFERED)


RATIO = tr.Float(min=0.1, max=10.0)
FOUR = {"rewards": [1, 0, 1, 0], "group": [0] * 4, "token": [0, 3]}
PRESETS: dict[str, dict[str, Any]] = {
    "a ratio for every token": {
        "caption": "Start: in the first answer token 2 is less probable than before, token 4 more. "
        "GRPO cuts token 4, CISPO caps it, SAPO fades it; GSPO pushes the whole answer alike.",
        "recipes": ["grpo", "gspo", "cispo", "sapo"],
        "lengths": [8] * 4,
        "ratio": [[1, 0.15, 1, 6, 1, 1, 1, 1], 1.0, 1.0, 1.0],
        "old": 0.1,
        **FOUR,
    },
    "short and long answers": {
        "caption": "Start: on policy, two answers of 8 tokens, one of 16, one of 32. Which recipe "
        "pushes a token of the long wrong answer as hard as one of the short wrong answer?",
        "recipes": ["grpo", "dr_grpo", "dapo(step)"],
        "lengths": [8, 8, 16, 32],
        "ratio": [1.0] * 4,
        **FOUR,
    },
    "every answer right": {
        "caption": "Start: all four answers are right, so no answer is better than another. Make "
        "one wrong by a click on its mark.",
        "recipes": ["grpo", "dr_grpo", "reinforce"],
        "lengths": [8] * 4,
        "ratio": [1.0] * 4,
        **FOUR,
        "rewards": [1] * 4,
    },
}


def without_kl(recipe: Recipe) -> Recipe:
    """The recipe without what looks at a reference policy."""
    rewards = [shape for shape in recipe.rewards if "ref_logp" not in axes.inputs_of(shape)]
    kl = recipe.kl if recipe.kl and "ref_logp" not in axes.inputs_of(recipe.kl) else None
    return replace(recipe, kl=kl, rewards=tuple(rewards))


def drawn_spec(recipe: Recipe) -> dict[str, Any]:
    """``spec`` of what the explorer draws; its label says where a KL term is left out."""
    plain = without_kl(recipe)
    return {**spec(plain), "label": recipe.name + " (KL left out)" * (plain != recipe)}


def recipes_by_name(offered: Sequence[str], own: Sequence[str | Recipe]) -> dict[str, Recipe]:
    """The offered recipes of the catalog, and those that were given as recipes."""
    given = {r.name: r for r in own if isinstance(r, Recipe)}
    return {name: catalog.RECIPES[name] for name in offered} | given


class AggregationExplorer(Framed):
    """Up to four recipes side by side on at most eight completions; every control is a trait.

    .. math:: \\mathrm{push}_{it} = A_{it}\\, W_{it}\\, \\rho_{it}\\, g_{it}

    Cells, bars and the ends of the strips can be dragged, or moved by the arrow keys. There is no
    reference policy here, so a KL term is left out (the label says so).

    Args:
        recipes: one to four, names of ``OFFERED`` or ``Recipe`` objects.
        lengths: N token counts, 1 to 64.
        rewards: N rewards.
        group: N prompt numbers; None: one prompt.
        ratio: importance ratio π/π_old, 0.1 to 10: one number, or one per completion, which is a
            number for all of its tokens or a list with one for each.
        state: the other traits. ``old``: π_old of every token, so π = ``old`` · ratio; ``token``:
            the chosen completion and token, from 0; ``greedy``: is the greedy answer right
            (ReMax); ``eps_low``, ``eps_high``: offsets from 1 that replace every recipe's own
            clip, None keeps it; ``length_limit``: C of the constant; ``micro_batches``: cut in
            order, as ``weights.split``; ``relative``: show each recipe's push per token in percent
            of its step (a common factor is only a learning rate); ``preset``: a key of
            ``PRESETS``, which sets the traits it names; ``compact``: for a frame of 680 × 520.

    Raises:
        ValueError: a recipe or a preset that is not offered.
        traitlets.TraitError: a value outside its range.
    """

    PRESETS = PRESETS
    TITLE = "The push on every token"
    SHOWN = (
        "recipes",
        "lengths",
        "rewards",
        "group",
        "ratio",
        "old",
        "token",
        "greedy",
        "eps_low",
        "eps_high",
        "length_limit",
        "micro_batches",
        "relative",
    )
    _esm = script("grips", "aggregation")
    _css = static("explorer.css") + static("grips.css")
    recipes = tr.List(tr.Unicode(), maxlen=4).tag(sync=True)
    lengths = tr.List(tr.Int(min=1, max=64), minlen=1, maxlen=8).tag(sync=True)
    rewards = tr.List(tr.Float()).tag(sync=True)
    group = tr.List(tr.Int(min=0)).tag(sync=True)
    ratio = tr.List(tr.Union([RATIO, tr.List(RATIO, minlen=1)])).tag(sync=True)
    old = tr.Float(0.1, min=0.01, max=1.0).tag(sync=True)
    token = tr.List(tr.Int(min=0), [0, 0], minlen=2, maxlen=2).tag(sync=True)
    greedy = tr.Bool(False).tag(sync=True)
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
        ratio: float | Sequence[float | Sequence[float]] = 1.0,
        **state: Any,
    ) -> None:
        self._by_name = recipes_by_name(OFFERED, recipes)
        names = [r.name if isinstance(r, Recipe) else r for r in recipes]
        n = len(lengths)
        super().__init__(
            specs={name: drawn_spec(recipe) for name, recipe in self._by_name.items()},
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
        """The completions as they stand, float64.

        Raises:
            ValueError: a list of ratios that does not fit its length, or a probability above 1.
        """
        n = len(self.lengths)
        plain = Rollouts.from_lengths(
            self.lengths,
            self.rewards,
            self.group,
            max_new_tokens=self.length_limit,
            greedy_reward=torch.full((n,), float(self.greedy), dtype=torch.float64),
        )
        old = torch.full_like(plain.logp, self.old).log()
        return replace(plain, old_logp=old, logp=(old + self._log_ratio(plain.mask)).clamp(max=0))

    def _log_ratio(self, mask: Tensor) -> Tensor:
        """``[N, T]``, 0 under the mask."""
        if len(self.ratio) != len(mask):
            raise ValueError(
                f"ratio has {len(self.ratio)} entries but there are {len(mask)} completions: "
                "expected one each."
            )
        ratio = torch.ones(mask.shape, dtype=torch.float64)
        for i, (own, length) in enumerate(zip(self.ratio, self.lengths, strict=True)):
            if isinstance(own, list) and len(own) != length:
                raise ValueError(
                    f"ratio of completion {i + 1} has {len(own)} entries but it has {length} "
                    "tokens: expected one number, or one per token."
                )
            ratio[i, :length] = torch.tensor(own, dtype=torch.float64)
        if (highest := self.old * ratio.max().item()) > 1 + 1e-9:
            raise ValueError(
                f"a ratio of {ratio.max():g} makes a probability of {highest:g}: expected at most "
                f"1. Lower the ratio, or old (now {self.old:g})."
            )
        return ratio.log()

    def micro_batch(self) -> Tensor:
        """``[N]`` the micro-batch of each completion."""
        return split(len(self.lengths), self.micro_batches)

    def recipe(self, name: str) -> Recipe:
        """The recipe that a panel draws: without KL, with the clip of the controls. CISPO: 1 - low
        and 1 + high."""
        plain = without_kl(self._by_name[name])
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
