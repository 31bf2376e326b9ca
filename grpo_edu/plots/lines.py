"""Weight against position, and share per completion: the two numbers that must be read together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from ..objective.recipe import Recipe
from ..rollouts import Rollouts
from .heatmap import panel_data
from .style import COLOURS, MARKERS, Picture, evidence, new_figure, picture


@picture
def push_and_share(
    recipes: Sequence[Recipe],
    rollouts: Rollouts,
    micro_batch: Tensor | None = None,
    *,
    title: str | None = None,
) -> Picture:
    """Left: weight of each token against its position, one line per completion. Right: share of the step per completion.

    One row of panels per recipe. Lines are told apart by colour and marker; a completion has the same in both panels.
    """
    figure = new_figure(9.0, 0.8 + 2.0 * len(recipes))
    axes = figure.subplots(len(recipes), 2, squeeze=False, width_ratios=[2, 1], sharex="col")
    for (left, right), recipe in zip(axes, recipes, strict=True):
        data = panel_data(recipe, rollouts, micro_batch, relative=False)
        for i, (weight, mask) in enumerate(zip(data["weight"], data["mask"], strict=True)):
            style = {"color": COLOURS[i % 6], "marker": MARKERS[i % 6], "markersize": 3}
            label = f"{i}: r={rollouts.reward[i]:g}, |o|={int(mask.sum())}"
            left.plot(
                np.nonzero(mask)[0],
                weight[mask],
                label=label,
                markevery=max(1, len(weight) // 12),
                **style,
            )
            right.barh(i, 100 * data["share"][i], color=COLOURS[i % 6])
        left.axhline(0, color="#666666", linewidth=0.6)
        right.axvline(0, color="#666666", linewidth=0.6)
        left.set(title=recipe.name, ylabel="weight per token")
        right.set(title="share per completion", yticks=range(len(rollouts)))
        right.invert_yaxis()
    axes[-1, 0].set_xlabel("token position")
    axes[-1, 1].set_xlabel("share of the step's push, % (signed)")
    axes[0, 0].legend(ncols=2, loc="best", title="completion")
    figure.suptitle(
        title or "Push per token and share per completion are different questions",
        ha="left",
        x=0.01,
    )
    evidence(figure, "exact")
    return figure
