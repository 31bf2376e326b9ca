"""The difficulty explorer: the weight of a prompt by its pass rate, at the group size in use. Level
of evidence: exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..checks import Probability, checked
from ..objective.recipe import Recipe
from ..theory import difficulty
from .base import Explorer, script, spec, tr
from .estimators import ESTIMATORS, turned

OFFERED = tuple(
    name for name in ESTIMATORS if name not in ("greedy", "opo")
)  # at equal lengths those are none and mean
FRAMES = ("probability", "score", "log-probability")


class DifficultyExplorer(Explorer):
    r"""Exact :math:`w_G(p)`, its objective :math:`h`, and the probability of a dead group; every
    control is a trait.

    Args:
        schemes: one to four of ``OFFERED``.
        p: pass rate that is marked, 0.01 to 0.99.
        size: G, 2 to 64.
        state: the other traits. ``frame``: which yardstick, see ``theory.difficulty.frames``;
            ``ddof`` and ``eps`` of every std, ``k`` of pass@k.

    Raises:
        ValueError: a scheme or a yardstick that is not offered.
        traitlets.TraitError: a value outside its range.
    """

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
