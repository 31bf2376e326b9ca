"""The advantage explorer: click rewards, and see every estimator answer. Level of evidence:
exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..checks import checked
from ..objective.recipe import Recipe
from ..rollouts import Rollouts
from .base import Framed, script, spec, tr
from .estimators import ESTIMATORS, WORDS, turned

PRESETS = {
    "one right of four": {
        "caption": "Start: one answer of four is right. Without a baseline only that answer is "
        "pushed. With the mean of the prompt as baseline the wrong answers are pushed down too.",
        "rewards": [1, 0, 0, 0],
        "lengths": [8] * 4,
        "group": [0] * 4,
        "estimators": ["none", "mean", "mean/std", "others", "maxrl"],
    },
    "every answer right": {
        "caption": "Start: all four answers are right. An estimator that compares the answers of a "
        "prompt gives 0 to each. Make one answer wrong by a click on its reward.",
        "rewards": [1, 1, 1, 1],
        "lengths": [8] * 4,
        "group": [0] * 4,
        "estimators": ["none", "mean", "mean/std", "others", "maxrl"],
    },
    "an easy and a hard prompt": {
        "caption": "Start: three of four right, then one of four right. Which estimators push the "
        "two prompts alike, and which push the hard one more?",
        "rewards": [1, 1, 1, 0, 1, 0, 0, 0],
        "lengths": [8] * 8,
        "group": [0] * 4 + [1] * 4,
        "estimators": ["mean", "mean/std", "batch std", "others", "maxrl"],
    },
    "all estimators": {
        "caption": "Start: one answer of four is right, under every estimator.",
        "rewards": [1, 0, 0, 0],
        "lengths": [8] * 4,
        "group": [0] * 4,
        "estimators": list(ESTIMATORS),
    },
}


class AdvantageExplorer(Framed):
    """The advantage of at most 16 completions under every estimator of ``estimators.ESTIMATORS``;
    every control is a trait.

    Args:
        rewards: N rewards.
        lengths: token counts, one number or N, 1 to 64; OPO and REINFORCE++ look at them.
        group: N prompt numbers; None: one prompt.
        state: the other traits. ``ddof`` and ``eps`` of every std, ``k`` of pass@k, ``greedy``: is
            the greedy completion right; ``estimators``: which are shown; ``preset``: a key of
            ``PRESETS``, which sets the traits it names; ``compact``: for a frame of 680 × 520.

    Raises:
        ValueError: an estimator or a preset that is not offered.
        traitlets.TraitError: a value outside its range.
    """

    PRESETS = PRESETS
    TITLE = "Advantage of every completion, under every estimator"
    SHOWN = ("rewards", "lengths", "group", "greedy", "ddof", "eps", "k", "estimators")
    _esm = script("advantage")
    rewards = tr.List(tr.Float(), minlen=1, maxlen=16).tag(sync=True)
    lengths = tr.List(tr.Int(min=1, max=64)).tag(sync=True)
    group = tr.List(tr.Int(min=0)).tag(sync=True)
    greedy = tr.Bool(True).tag(sync=True)
    ddof = tr.Int(1, min=0, max=1).tag(sync=True)
    eps = tr.Float(0.0, min=0.0).tag(sync=True)
    k = tr.Int(2, min=1, max=16).tag(sync=True)
    estimators = tr.List(tr.Unicode(), list(ESTIMATORS)).tag(sync=True)

    @checked
    def __init__(
        self,
        rewards: Sequence[float] = (1, 0, 0, 0),
        lengths: int | Sequence[int] = 8,
        group: Sequence[int] | None = None,
        **state: Any,
    ) -> None:
        n = len(rewards)
        super().__init__(
            specs={
                name: {**spec(estimator), "label": estimator.title, "words": WORDS[name]}
                for name, estimator in ESTIMATORS.items()
            },
            rewards=list(rewards),
            lengths=[lengths] * n if isinstance(lengths, int) else list(lengths),
            group=[0] * n if group is None else list(group),
            **state,
        )

    @tr.validate("estimators")
    def _offered(self, proposal: Any) -> list[str]:
        return self.checked("estimators", proposal["value"])

    def rollouts(self) -> Rollouts:
        """The completions as they stand, float64."""
        greedy = torch.full((len(self.rewards),), float(self.greedy), dtype=torch.float64)
        return Rollouts.from_lengths(self.lengths, self.rewards, self.group, greedy_reward=greedy)

    def recipe(self, name: str) -> Recipe:
        """An estimator with the settings of the controls, as a recipe."""
        return turned(name, ddof=self.ddof, eps=self.eps, k=self.k)

    def advantages(self, name: str) -> Tensor:
        """``[N]`` advantages from the library itself."""
        return self.recipe(name).plan(self.rollouts()).advantage[:, 0]

    def figure(self) -> Any:
        """The same picture by matplotlib; an estimator without an answer is left out."""
        from .twins import advantage_bars

        answers = {}
        for name in self.estimators:
            try:
                answers[ESTIMATORS[name].title] = self.advantages(name).tolist()
            except ValueError:  # fewer than k completions, or a group of one
                continue
        return advantage_bars(answers, self.rewards, self.group)
