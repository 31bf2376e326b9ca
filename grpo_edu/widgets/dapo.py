"""The DAPO explorer: what each of DAPO's four changes does, one at a time. Level of evidence:
exact."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..checks import checked
from ..objective import aggregation as agg
from ..objective import axes
from ..objective.recipe import Recipe
from ..rollouts import Rollouts
from . import lab_pictures as draw
from .base import Explorer, script, tr

CHANGES = ("clip-higher", "dynamic sampling", "token mean", "overlong penalty")


class DapoExplorer(Explorer):
    r"""One of the four changes, with its own controls and one sentence that says what it does.

    Every control is a trait.

    ``clip-higher``: a rising token of probability :math:`\pi_{old}` loses its gradient at
    :math:`\pi_{old}(1+\epsilon_{high})`. ``dynamic sampling``: :math:`1-p^G-(1-p)^G` of the groups
    are live. ``token mean``: the part of the step that one long completion of eight has.
    ``overlong penalty``: what a long completion loses of its reward.

    Args:
        change: one of ``CHANGES``.
        state: the other traits. ``eps_high`` and ``old`` (probability of the token) of clip-higher;
            ``p`` and ``size`` (G) of dynamic sampling; ``longest`` (tokens) of the token mean;
            ``cache`` (tokens of the slope) and ``length`` (tokens) of the overlong penalty.

    Raises:
        traitlets.TraitError: a value outside its range.

    Source: DAPO (arXiv 2503.14476).
    """

    TITLE = "DAPO's four changes, one at a time"
    SHOWN = ("change", "eps_high", "old", "p", "size", "longest", "cache", "length")
    _esm = script("dapo")
    change = tr.Enum(CHANGES, "clip-higher").tag(sync=True)
    eps_high = tr.Float(0.28, min=0.1, max=0.5).tag(sync=True)
    old = tr.Float(0.1, min=0.01, max=0.99).tag(sync=True)
    p = tr.Float(0.1, min=0.01, max=0.99).tag(sync=True)
    size = tr.Int(16, min=2, max=64).tag(sync=True)
    longest = tr.Int(128, min=8, max=512).tag(sync=True)
    cache = tr.Int(4096, min=512, max=8192).tag(sync=True)
    length = tr.Int(18000, min=0, max=22000).tag(sync=True)

    @checked
    def __init__(self, change: str = "clip-higher", **state: Any) -> None:
        super().__init__(specs={}, change=change, **state)

    def figure(self) -> Any:
        """The chosen change by matplotlib."""
        pictures = {
            "clip-higher": partial(draw.reach_of_clip, self.eps_high),
            "dynamic sampling": partial(draw.dynamic_sampling, self.p, self.size),
            "token mean": partial(draw.share_by_length, self.longest, long_shares(self.longest)),
            "overlong penalty": partial(draw.overlong, self.cache),
        }
        return pictures[self.change]()


def long_shares(longest: int) -> dict[str, float]:
    """Part of the step's push that one long completion of eight has, the others of 8 tokens, under
    each aggregation."""
    rollouts = Rollouts.from_lengths(
        [longest, *[8] * 7], [1, 0] * 4, [0] * 4 + [1] * 4, max_new_tokens=512
    )
    choices: dict[str, axes.Choice] = {
        "1/|o|: GRPO": agg.sequence_mean,
        "token mean of the prompt: DAPO, Eq. 8": agg.prompt_token_mean,
        "token mean of the step: as frameworks run it": agg.step_token_mean,
    }
    return {name: _part(choice, rollouts) for name, choice in choices.items()}


def _part(aggregation: axes.Choice, rollouts: Rollouts) -> float:
    push = Recipe(aggregation=aggregation).plan(rollouts).W.sum(dim=1)
    return (push[0] / push.sum()).item()
