"""The difficulty explorer: the weight of a prompt by its pass rate, at the group size in use. Level
of evidence: exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..checks import Probability, checked
from ..objective.recipe import Recipe
from ..theory import difficulty
from .base import Framed, script, spec, tr
from .estimators import ESTIMATORS, turned

OFFERED = tuple(
    name for name in ESTIMATORS if name not in ("greedy", "opo")
)  # at equal lengths those are none and mean
FRAMES = ("probability", "score", "log-probability")


PRESETS = {
    "with and without the std": {
        "caption": "Start: a prompt with pass rate 0.1, eight answers. Without the std every pass "
        "rate has the same weight. With it, prompts near 0 and near 1 weigh more than the middle.",
        "schemes": ["mean/std", "mean"],
        "p": 0.1,
        "size": 8,
        "frame": "probability",
    },
    "MaxRL and log p": {
        "caption": "Start: 64 answers, measured against the gradient of log p. MaxRL gives nearly "
        "every pass rate the weight 1: it climbs log p. Make the group smaller: where does it end?",
        "schemes": ["maxrl", "mean"],
        "p": 0.1,
        "size": 64,
        "frame": "log-probability",
    },
    "silent groups": {
        "caption": "Start: a hard prompt, four answers. Most of its groups have no right answer, "
        "so they push nothing. Make the group larger: how many answers until half of them say "
        "something?",
        "schemes": ["mean/std", "mean"],
        "p": 0.05,
        "size": 4,
        "frame": "probability",
    },
}


class DifficultyExplorer(Framed):
    r"""Exact :math:`w_G(p)`, its objective :math:`h`, and the probability of a dead group; every
    control is a trait.

    Args:
        schemes: one to four of ``OFFERED``.
        p: pass rate that is marked, 0.01 to 0.99.
        size: G, 2 to 64.
        state: the other traits. ``frame``: which yardstick, see ``theory.difficulty.frames``;
            ``ddof`` and ``eps`` of every std, ``k`` of pass@k; ``preset``: a key of ``PRESETS``,
            which sets the traits it names; ``compact``: for a frame of 680 × 520.

    Raises:
        ValueError: a scheme, a yardstick or a preset that is not offered.
        traitlets.TraitError: a value outside its range.
    """

    PRESETS = PRESETS
    TITLE = "The weight of a prompt by its pass rate"
    SHOWN = ("schemes", "p", "size", "frame", "ddof", "eps", "k")
    _esm = script("difficulty")
    schemes = tr.List(tr.Unicode(), maxlen=4).tag(sync=True)
    p = tr.Float(0.1, min=0.01, max=0.99).tag(sync=True)
    size = tr.Int(8, min=2, max=64).tag(sync=True)
    frame = tr.Enum(FRAMES, "probability").tag(sync=True)
    ddof = tr.Int(1, min=0, max=1).tag(sync=True)
    eps = tr.Float(0.0, min=0.0).tag(sync=True)
    k = tr.Int(2, min=1, max=64).tag(sync=True)

    @checked
    def __init__(
        self,
        schemes: Sequence[str] = ("mean/std", "mean", "maxrl"),
        p: Probability = 0.1,
        size: int = 8,
        **state: Any,
    ) -> None:
        specs = {
            name: {**spec(ESTIMATORS[name]), "label": ESTIMATORS[name].title} for name in OFFERED
        }
        super().__init__(specs=specs, schemes=list(schemes), p=p, size=size, **state)

    @tr.validate("schemes")
    def _offered(self, proposal: Any) -> list[str]:
        return self.checked("schemes", proposal["value"])

    def recipe(self, name: str) -> Recipe:
        """A scheme with the settings of the controls, as a recipe."""
        return turned(name, ddof=self.ddof, eps=self.eps, k=self.k)

    def weight(self, name: str, p: float | None = None) -> float:
        """w in the chosen yardstick at a pass rate, from the library itself; None: the marked
        one."""
        at = self.p if p is None else p
        return difficulty.frames(difficulty.prompt_weight(self.recipe(name), at, self.size), at)[
            self.frame
        ]

    def objective(self, name: str) -> float:
        """h at the marked pass rate, from the library itself."""
        return difficulty.objective(self.recipe(name), self.p, self.size)

    def figure(self) -> Any:
        """The same picture by matplotlib."""
        from .twins import difficulty_curves

        gaps = {
            ESTIMATORS[name].title: difficulty.gaps(self.recipe(name), self.size)
            for name in self.schemes
        }
        return difficulty_curves(gaps, self.p, self.frame)
