"""Completions x tokens: the signed push on every token, recipes side by side on one scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import shorten
from typing import Any

import numpy as np
import torch
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
from .style import MASKED, SIGNED, Picture, evidence, headline, new_figure, picture, symmetric

Panel = dict[str, np.ndarray]
NUMBERED_ROWS = 32  # more completions than this, and bars take the place of numbers
DRAWN_ROWS = 256  # more completions than this, and a row would be less than three pixels high


@checked
def weight_map(
    recipes: Sequence[AnyRecipe],
    rollouts: Rollouts,
    micro_batch: Tensor | None = None,
    *,
    title: str | None = None,
    relative: bool = False,
) -> Picture:
    """Heat map of the signed push on every token.

    Lengths and rewards stand at the left, push per token and share per completion at the right.
    A clipped token is hatched, a token that is not trained is grey. Orange pushes the
    log-probability up, purple down. Of more than ``DRAWN_ROWS`` completions only some are drawn
    (``drawn_rows``), and the picture says so.

    Args:
        recipes: one panel each.
        rollouts: the completions.
        micro_batch: ``[N]``, only the micro-batch scope looks at it.
        title: the sentence to take home; None: a neutral one.
        relative: each panel in percent of its own total push, since a factor common to all tokens
            is only a learning rate.
    """
    pushes = [Push.of(recipe, rollouts, micro_batch) for recipe in recipes]
    return push_map(pushes, title=title, relative=relative)


@picture
def push_map(
    pushes: Sequence[Push], *, title: str | None = None, relative: bool = False
) -> Picture:
    """``weight_map`` of pushes on the same rollouts."""
    rows = drawn_rows(pushes)
    panels = [panel_data(push, rows, relative) for push in pushes]
    rollouts = pushes[0].rollouts[torch.tensor(rows)]
    figure = draw_map([push.recipe for push in pushes], rollouts, panels, relative=relative)
    headline(figure, title or "Gradient weight of every token: orange is pushed up, purple down")
    missing = left_out(pushes, rows)
    evidence(figure, f"{missing}\nexact" if missing else "exact")
    return figure


def drawn_rows(pushes: Sequence[Push]) -> list[int]:
    """The completions to draw, ascending: all, or ``DRAWN_ROWS`` of many.

    These are the first, the last, and those with the largest part of the step's total |push|,
    each under the recipe where that part is largest.
    """
    size = torch.stack([_part(push) for push in pushes]).amax(dim=0)
    if len(size) <= DRAWN_ROWS:
        return list(range(len(size)))
    size[[0, -1]] = torch.inf
    return sorted(size.argsort(descending=True, stable=True)[:DRAWN_ROWS].tolist())


def left_out(pushes: Sequence[Push], rows: Sequence[int]) -> str:
    """How many completions are not among the rows, and what they hold; empty where none is."""
    total = len(pushes[0].rollouts)
    if len(rows) == total:
        return ""
    others = torch.ones(total, dtype=torch.bool)
    others[rows] = False
    held = (f"{push.recipe.name} {100 * _part(push)[others].sum():.3g} %" for push in pushes)
    return (
        f"{len(rows)} of {total:,} completions are drawn: the first, the last and those with the "
        f"largest part of the step's |push|.\nPart held by the others: {', '.join(held)}."
    )


def _part(push: Push) -> Tensor:
    """``[N]`` unsigned part of the step's total |push| that each completion holds."""
    return push.share.abs().sum(dim=1).cpu()


def draw_map(
    recipes: Sequence[Recipe],
    rollouts: Rollouts,
    panels: Sequence[Panel],
    *,
    relative: bool = False,
) -> Picture:
    """The map of numbers that are there already.

    Args:
        recipes: for the headings.
        rollouts: for the labels of the rows.
        panels: one per recipe, as ``panel_data`` makes them.
        relative: the weights are percent.
    """
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
    return figure


def common_scale(panels: Sequence[Panel]) -> TwoSlopeNorm:
    """One scale for all panels.

    Of many completions the 3 % of tokens with the largest push share the last colour, so that
    the others can be seen.
    """
    values = (x for data in panels for x in data["push"][data["mask"]].tolist())
    return symmetric(values, quantile=0.97 if len(panels[0]["mask"]) > NUMBERED_ROWS else 1.0)


def panel_data(push: Push, rows: Sequence[int], relative: bool) -> Panel:
    """What one panel draws of R completions.

    ``mask``, ``push``, ``clipped`` ``[R, T]``; ``mean`` and ``share`` ``[R]``.
    """
    values = {
        "mask": push.rollouts.mask,
        "push": 100 * push.share if relative else push.token.double(),
        "clipped": push.clipped,
        "mean": push.completion_mean,
        "share": push.completion_share,
    }
    return {name: value.numpy(force=True)[rows] for name, value in values.items()}


def draw_weights(axis: Axes, data: Panel, norm: TwoSlopeNorm, title: str, formula: str) -> None:
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
        every = 1 + len(starts) // NUMBERED_ROWS
        axis.set_yticks(middles[::every], [f"prompt {group[i]}" for i in starts[::every]])
        right = [i for i, value in enumerate(rollouts.reward.tolist()) if value > 0]
        axis.plot([-2] * len(right), right, ">", color="#333333", markersize=3, clip_on=False)
        axis.set_ylabel("completions of each prompt (▸ reward above 0)")
    for i in starts[1:] if len(starts) <= NUMBERED_ROWS else []:
        for peer in axis.figure.axes:
            peer.axhline(i - 0.5, color="#333333", linewidth=0.8)
