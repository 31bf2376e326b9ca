"""Completions x tokens: the signed push on every token, recipes side by side on one scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PatchCollection
from matplotlib.colors import TwoSlopeNorm
from matplotlib.patches import Patch, Rectangle
from torch import Tensor

from ..checks import checked
from ..objective.axes import latex
from ..objective.catalog import AnyRecipe
from ..objective.recipe import Recipe
from ..rollouts import Rollouts
from ..weights import Push
from .style import (
    DOWN,
    GREY,
    UP,
    Picture,
    evidence,
    headline,
    ink,
    look,
    new_figure,
    paper,
    picture,
    quiet,
    rule,
    signed,
    symmetric,
    tint,
)

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
    headline(figure, title or "The push on every token: orange is pushed up, purple down")
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
    held = (
        f"{look(push.recipe.name).label} {100 * _part(push)[others].sum():.3g} %" for push in pushes
    )
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
    many = len(rollouts) > NUMBERED_ROWS
    norm = common_scale(panels)
    columns = min(len(panels), 3)
    lines = math.ceil(len(panels) / columns)
    height = 1.9 + lines * (0.9 + max(0.9, min(7.0, 0.24 * len(rollouts))))
    figure = new_figure(2.0 + 2.3 * columns, height)
    axes = figure.subplots(lines, columns, squeeze=False, sharey=True).ravel()
    for axis, recipe, data in zip(axes, recipes, panels, strict=False):
        formula = f"$W = {latex(recipe.aggregation)}$"
        draw_weights(axis, data, norm, look(recipe.name).label, formula)
    for axis in axes[::columns]:
        label_rows(axis, rollouts)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    bar = figure.colorbar(
        ScalarMappable(norm, signed()),
        ax=list(axes),
        location="bottom",
        shrink=0.6,
        aspect=40,
        extend="both" if many else "neither",
    )
    if any(data["clipped"].any() for data in panels):
        hatched = Patch(facecolor="none", hatch="////", edgecolor=GREY, label="clipped")
        figure.legend(handles=[hatched], loc="outside lower right")
    bar.set_label("push per token, % of the recipe's step" if relative else "push per token")
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
    """One panel on the given axes: one cell per token."""
    shown = np.where(data["mask"], data["push"], np.nan)
    rows, width = shown.shape
    axis.imshow(shown, cmap=signed(), norm=norm, aspect="auto", interpolation="nearest")
    _frame_cells(axis, data["mask"], gaps=rows <= NUMBERED_ROWS)
    for i, t in zip(*np.nonzero(data["clipped"]), strict=True):
        cell = (t - 0.5, i - 0.5)
        axis.add_patch(Rectangle(cell, 1, 1, fill=False, hatch="////", edgecolor=GREY, linewidth=0))
    axis.set_title(f"{title}\n{formula}", pad=22, color=ink())
    axis.set(xlabel="token position", xlim=(-0.5 - 3 * (rows > NUMBERED_ROWS), width - 0.5))
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    if rows <= NUMBERED_ROWS:
        _numbers(axis, data, width)
    else:
        _share_bars(axis, data["share"])


def _frame_cells(axis: Axes, mask: np.ndarray, *, gaps: bool) -> None:
    """Gaps between the cells and a thin frame around each, so that a pale token is seen; of many
    rows only their ends. A token inside a completion that is not trained is grey."""
    rows, width = mask.shape
    ends = [int(row.nonzero()[0].max(initial=-1)) + 1 for row in mask]
    inside = np.arange(width)[None] < np.array(ends)[:, None]
    untrained = [Rectangle((t - 0.5, i - 0.5), 1, 1) for i, t in np.argwhere(inside & ~mask)]
    axis.add_collection(PatchCollection(untrained, facecolor=tint(), edgecolor="none"))
    if not gaps:
        axis.plot(np.array(ends) - 0.5, np.arange(rows), "|", color=GREY, markersize=2)
        return
    axis.vlines(np.arange(width + 1) - 0.5, -0.5, rows - 0.5, color=paper(), linewidth=2)
    axis.hlines(np.arange(rows + 1) - 0.5, -0.5, width - 0.5, color=paper(), linewidth=3)
    frames = [Rectangle((t - 0.45, i - 0.42), 0.9, 0.84) for i, t in np.argwhere(inside)]
    axis.add_collection(
        PatchCollection(frames, facecolor="none", edgecolor=GREY, linewidth=0.5, zorder=3)
    )


def _numbers(axis: Axes, data: Panel, width: int) -> None:
    """Push per token and share of the step, right of each row, under their heading."""
    style: dict[str, Any] = {"va": "center", "ha": "left", "fontsize": 8.5, "clip_on": False}
    for i, (mean, share) in enumerate(zip(data["mean"], data["share"], strict=True)):
        text = f"{mean:+.3g}".ljust(8) + f"{100 * share:+.0f} %" if mean else "0       0 %"
        axis.text(width - 0.3, i, text, family="monospace", **style)
    style["va"] = "bottom"
    axis.text(width - 0.3, -0.55, "push    share", family="monospace", color=quiet(), **style)


def _share_bars(axis: Axes, share: np.ndarray) -> None:
    """Too many rows for numbers: signed bars of the share, right of the panel."""
    bars: Any = axis.inset_axes((1.02, 0.0, 0.16, 1.0), sharey=axis)
    colours = np.where(share >= 0, UP, DOWN)
    bars.barh(np.arange(len(share)), 100 * share, color=colours, height=0.9)
    rule(bars, vertical=True)
    bars.set_xlabel("share, %")
    bars.locator_params(axis="x", nbins=2)
    bars.tick_params(axis="y", left=False, labelleft=False)


def label_rows(axis: Axes, rollouts: Rollouts) -> None:
    """Reward and length of each completion, prompts kept apart by a rule."""
    scored = rollouts.scored.tolist()  # type: ignore[union-attr]
    rows = zip(rollouts.reward.tolist(), rollouts.lengths.tolist(), scored, strict=True)
    labels = [
        f"{f'reward {reward:.3g}' if known else 'not scored'}, {length} tokens"
        for reward, length, known in rows
    ]
    group = rollouts.group.tolist()
    starts = [i for i in range(len(group)) if i == 0 or group[i] != group[i - 1]]
    if len(labels) <= NUMBERED_ROWS:
        axis.set_yticks(range(len(labels)), labels)
    else:
        middles = [(a + b - 1) / 2 for a, b in zip(starts, [*starts[1:], len(group)], strict=True)]
        every = 1 + len(starts) // NUMBERED_ROWS
        axis.set_yticks(middles[::every], [f"prompt {group[i]}" for i in starts[::every]])
        right = [i for i, value in enumerate(rollouts.reward.tolist()) if value > 0]
        axis.plot([-2] * len(right), right, ">", color=ink(), markersize=3, clip_on=False)
        axis.set_ylabel("completions of each prompt (▸ reward above 0)")
    for i in starts[1:] if len(starts) <= NUMBERED_ROWS else []:
        for peer in axis.figure.axes:
            peer.axhline(i - 0.5, color=GREY, linewidth=0.8)
