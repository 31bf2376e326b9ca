"""The two biases of a recipe, read off its own weights. Nothing here is a list of what recipes are
said to do. Level: exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from .checks import GroupSize, checked
from .objective.catalog import AnyRecipe
from .objective.probes import neutral_rollouts
from .theory.difficulty import prompt_weight
from .weights import token_weights


@dataclass(frozen=True)
class LengthBias:
    """Push on the last token of a completion four times longer, relative to the short one's: right
    and wrong answers of one prompt.

    1: no length bias inside a prompt. Below 1: short right answers gain, long wrong ones are
    spared. NaN: no push at all.
    """

    right: float
    wrong: float

    def __str__(self) -> str:
        known = [x for x in (self.right, self.wrong) if not math.isnan(x)]
        if all(math.isclose(x, 1.0, rel_tol=1e-9) for x in known):
            return (
                "Length: no bias inside a prompt; the last token is pushed alike in short and long "
                "completions of equal reward."
            )
        if math.isclose(self.right, self.wrong, rel_tol=1e-9):
            size = f"{self.right:.2f} times as hard, right or wrong"
        else:
            size = f"{self.right:.2f} times as hard where it is right, {self.wrong:.2f} where wrong"
        return (
            f"Length: the last token of a completion four times longer is pushed {size}. Below 1, "
            "short right completions gain and long wrong ones are spared."
        )


@dataclass(frozen=True)
class DifficultyBias:
    """Expected weight of a prompt at pass rates 0.1 and 0.9, relative to 0.5, at a finite group
    size.
    """

    size: int
    hard: float
    easy: float

    def __str__(self) -> str:
        if math.isnan(self.hard):
            return "Difficulty: no weight per pass rate, since the recipe does not read rewards."
        if math.isclose(self.hard, 1.0, rel_tol=1e-6) and math.isclose(
            self.easy, 1.0, rel_tol=1e-6
        ):
            return (
                f"Difficulty: no bias at G = {self.size}; every pass rate has the same expected "
                "weight."
            )
        return (
            f"Difficulty: on average over groups of {self.size} completions, a prompt of pass rate "
            f"0.1 is pushed {self.hard:.2f} times as much as one of 0.5, and a prompt of pass rate "
            f"0.9 {self.easy:.2f} times."
        )


@checked
def length_bias(recipe: AnyRecipe) -> LengthBias:
    """Push on the last token of 20 over that on the last of 5, ratio 1, two right and two wrong
    completions in one prompt.

    The last token, since credit that decays with distance (GAE, lambda < 1) is not a length bias of
    the aggregation.
    """
    rollouts = neutral_rollouts([5, 20, 5, 20], [1.0, 1.0, 0.0, 0.0], [0, 0, 0, 0], recipe)
    weights = token_weights(recipe, rollouts)[torch.arange(4), rollouts.lengths - 1]
    short_right, long_right, short_wrong, long_wrong = weights.tolist()
    return LengthBias(_ratio(long_right, short_right), _ratio(long_wrong, short_wrong))


def _ratio(a: float, b: float) -> float:
    return a / b if abs(b) > 1e-12 else math.nan


@checked
def difficulty_bias(recipe: AnyRecipe, size: GroupSize = 8) -> DifficultyBias:
    """Expected weight at pass rates 0.1 and 0.9, relative to 0.5; NaN where it is 0 there."""
    hard, middle, easy = (prompt_weight(recipe, p, size) for p in (0.1, 0.5, 0.9))
    return DifficultyBias(size, _ratio(hard, middle), _ratio(easy, middle))
