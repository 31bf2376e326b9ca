"""Completions x tokens: the signed weight of every token, one or several recipes on one colour scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import shorten
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import TwoSlopeNorm
from matplotlib.patches import Patch, Rectangle
from torch import Tensor

from ..checks import checked
from ..objective.catalog import AnyRecipe
from ..objective.recipe import Recipe
from ..rollouts import Rollouts
from ..weights import Push
from .style import MASKED, SIGNED, Picture, evidence, new_figure, picture, symmetric

NUMBERED_ROWS = 32  # more completions than this, and bars take the place of numbers


@picture
@checked
def weight_map(
    recipes: Sequence[AnyRecipe],
    rollouts: Rollouts,
    micro_batch: Tensor | None = None,
    *,
    title: str | None = None,
    relative: bool = False,
) -> Picture:
    """Heat map of the signed weight; lengths and rewards at the left, push per token and share per completion at the right.

    Args:
        recipes: one panel each.
        rollouts: the completions.
        micro_batch: ``[N]``, only the micro-batch scope looks at it.
        title: the sentence to take home; None: a neutral one.
        relative: each panel divided by its own total push, in percent: a factor common to all tokens is only a learning rate.

    A clipped token is hatched, a token that is not trained is grey. Orange pushes the log-probability up, purple down.
    """
    panels = [panel_data(recipe, rollouts, micro_batch, relative) for recipe in recipes]
    many, norm = len(rollouts) > NUMBERED_ROWS, common_scale(panels)
    columns = min(len(panels), 3)
    lines = math.ceil(len(panels) / columns)
    height = 1.5 + lines * (0.7 + max(1.2, min(7.0, 0.22 * len(rollouts))))
    figure = new_figure(2.0 + 3.0 * columns, height)
    axes = figure.subplots(lines, columns, squeeze=False, sharey=True).ravel()
    for axis, recipe, data in zip(axes, recipes, panels, strict=False):
        draw_weights(
            axis,
            data,
            norm,
            recipe.name,
            shorten(f"W = {recipe.formula()['aggregation']}", 44, placeholder=" …"),
        )
    for axis in axes[::columns]:
        label_rows(axis, rollouts)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    bar = figure.colorbar(
        ScalarMappable(norm, SIGNED),
        ax=list(axes),
        shrink=0.8,
        aspect=30,
        pad=0.01,
        extend="both" if many else "neither",
    )
    bar.set_label("share of the step's push, %" if relative else "gradient weight per token")
    figure.suptitle(
        title or "Gradient weight of every token: orange is pushed up, purple down",
        ha="left",
        x=0.01,
    )
    evidence(figure, "exact")
    return figure


def common_scale(panels: Sequence[dict[str, np.ndarray]]) -> TwoSlopeNorm:
    """One scale for all panels; of many completions the 3 % loudest tokens share the last colour, so that the rest is seen."""
    values = (x for data in panels for x in data["push"][data["mask"]].tolist())
    return symmetric(values, quantile=0.97 if len(panels[0]["mask"]) > NUMBERED_ROWS else 1.0)


def panel_data(
    recipe: Recipe, rollouts: Rollouts, micro_batch: Tensor | None, relative: bool
) -> dict[str, np.ndarray]:
    """What one panel draws: ``mask``, ``push``, ``clipped`` ``[N, T]``; ``mean`` and ``share`` ``[N]``."""
    push = Push.of(recipe, rollouts, micro_batch)
    return {
        "mask": rollouts.mask.numpy(force=True),
        "push": (100 * push.share if relative else push.token.double()).numpy(force=True),
        "clipped": push.clipped.numpy(force=True),
        "mean": push.completion_mean.numpy(force=True),
        "share": push.completion_share.numpy(force=True),
    }


def draw_weights(
    axis: Axes, data: dict[str, np.ndarray], norm: TwoSlopeNorm, title: str, formula: str
) -> None:
    """One panel on the given axes."""
    shown = np.where(data["mask"], data["push"], np.nan)
    axis.set_facecolor(MASKED)
    rows, width = shown.shape
    axis.imshow(
        shown, cmap=SIGNED, norm=norm, aspect="auto", interpolation="nearest", origin="upper"
    )
    for i, t in zip(*np.nonzero(data["clipped"]), strict=True):
        axis.add_patch(
            Rectangle(
                (t - 0.5, i - 0.5), 1, 1, fill=False, hatch="////", edgecolor="#777777", linewidth=0
            )
        )
    if data["clipped"].any():
        axis.legend(
            handles=[Patch(facecolor="none", hatch="////", edgecolor="#777777", label="clipped")],
            loc="lower right",
        )
    axis.set_title(f"{title}\n{formula}", fontsize=9)
    axis.set(xlabel="token position", xlim=(-0.5 - 3 * (rows > NUMBERED_ROWS), width - 0.5))
    axis.tick_params(length=0)
    if rows <= NUMBERED_ROWS:
        for i in range(rows):
            text = (
                f"{data['mean'][i]:+.3g}  {100 * data['share'][i]:+.0f} %"
                if data["mean"][i]
                else "0      0 %"
            )
            axis.text(
                width - 0.3,
                i,
                text,
                va="center",
                ha="left",
                fontsize=7,
                clip_on=False,
                family="monospace",
            )
        axis.text(
            width - 0.3,
            -0.52,
            "push   share",
            va="bottom",
            ha="left",
            fontsize=7,
            color="#555555",
            family="monospace",
        )
    else:
        _share_bars(axis, data["share"])


def _share_bars(axis: Axes, share: np.ndarray) -> None:
    """Too many rows for numbers: signed bars of the share, right of the panel."""
    bars: Any = axis.inset_axes((1.02, 0.0, 0.16, 1.0), sharey=axis)
    bars.barh(
        np.arange(len(share)),
        100 * share,
        color=np.where(share >= 0, "#b35806", "#542788"),
        height=0.9,
    )
    bars.axvline(0, color="#666666", linewidth=0.6)
    bars.set_xlabel("share %", fontsize=7)
    bars.tick_params(axis="y", left=False, labelleft=False)
    bars.tick_params(axis="x", labelsize=6)


def label_rows(axis: Axes, rollouts: Rollouts) -> None:
    """Reward and length of each completion, prompts kept apart by a rule."""
    scored = rollouts.scored.tolist()  # type: ignore[union-attr]
    rows = zip(rollouts.reward.tolist(), rollouts.lengths.tolist(), scored, strict=True)
    labels = [
        f"r={reward:.3g} |o|={length}" if known else f"not scored |o|={length}"
        for reward, length, known in rows
    ]
    group = rollouts.group.tolist()
    starts = [i for i in range(len(group)) if i == 0 or group[i] != group[i - 1]]
    if len(labels) <= NUMBERED_ROWS:
        axis.set_yticks(range(len(labels)), labels)
        axis.set_ylabel("completion: reward, length")
    else:
        middles = [(a + b - 1) / 2 for a, b in zip(starts, [*starts[1:], len(group)], strict=True)]
        axis.set_yticks(middles, [f"prompt {group[i]}" for i in starts])
        right = [i for i, value in enumerate(rollouts.reward.tolist()) if value > 0]
        axis.plot([-2] * len(right), right, ">", color="#333333", markersize=3, clip_on=False)
        axis.set_ylabel("completions of each prompt (▸ reward above 0)")
    for i in starts[1:]:
        for peer in axis.figure.axes:
            peer.axhline(i - 0.5, color="#333333", linewidth=0.8)
