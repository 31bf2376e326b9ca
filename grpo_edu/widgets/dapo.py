"""The DAPO explorer: DAPO's four changes, one at a time. Level of evidence: exact."""

from __future__ import annotations

from typing import Any

from ..objective import aggregation as agg
from ..objective import axes
from ..objective.recipe import Recipe
from ..rollouts import Rollouts
from . import lab_pictures as draw
from .base import Framed, script, tr

PARTS = ("clip-higher", "dynamic sampling", "token mean", "overlong penalty")
AGGREGATIONS = {
    "1/|o|: grpo": agg.sequence_mean,
    "token mean of the prompt: dapo": agg.prompt_token_mean,
    "token mean of the step: dapo(step)": agg.step_token_mean,
}


class DapoExplorer(Framed):
    """What each change of DAPO does: how far the clip lets a token rise, what dynamic sampling
    costs, how large a part of the step one long completion is, where the length penalty starts.

    Args:
        state: ``part``: one of ``PARTS``, each looks at its own traits. Clip-higher: ``eps_high``,
            ``old``, the probability of a token before the update. Dynamic sampling: ``p``, the pass
            rate, ``size``, the answers of a group. Token mean: ``longest``, tokens of the long
            completion. Overlong penalty: ``cache``, tokens before the limit that are penalised.
            ``compact``: for a frame of 680 × 520.

    Raises:
        traitlets.TraitError: a value outside its range.
    """

    TITLE = "DAPO's four changes, one at a time"
    SHOWN = ("part", "eps_high", "old", "p", "size", "longest", "cache")
    _esm = script("dapo")
    part = tr.Enum(PARTS, PARTS[0]).tag(sync=True)
    eps_high = tr.Float(0.28, min=0.1, max=0.5).tag(sync=True)
    old = tr.Float(0.01, min=0.01, max=0.99).tag(sync=True)
    p = tr.Float(0.1, min=0.01, max=0.99).tag(sync=True)
    size = tr.Int(16, min=2, max=64).tag(sync=True)
    longest = tr.Int(128, min=8, max=512).tag(sync=True)
    cache = tr.Int(4096, min=512, max=8192).tag(sync=True)

    def shares(self) -> dict[str, float]:
        """Share of the step's push that one long completion of eight has, the others of 8 tokens,
        under each aggregation."""
        lengths = [self.longest, *[8] * 7]
        rollouts = Rollouts.from_lengths(lengths, [1, 0] * 4, [0] * 4 + [1] * 4)
        return {name: _share(choice, rollouts) for name, choice in AGGREGATIONS.items()}

    def figure(self) -> Any:
        """The same picture by matplotlib."""
        if self.part == "clip-higher":
            return draw.reach_of_clip(self.eps_high, self.old)
        if self.part == "dynamic sampling":
            return draw.dynamic_sampling(self.p, self.size)
        if self.part == "token mean":
            return draw.share_by_length(self.longest, self.shares())
        return draw.overlong(self.cache)


def _share(aggregation: axes.Choice, rollouts: Rollouts) -> float:
    W = Recipe(aggregation=aggregation).plan(rollouts).W.sum(dim=1)
    return (W[0] / W.sum()).item()
