"""Means with their intervals on given axes: a band along x, or one row each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes

from .style import Look, look, rule

if TYPE_CHECKING:
    import pandas as pd


def draw_band(axis: Axes, x: Any, line: pd.DataFrame, *, alpha: float = 0.2, **style: Any) -> None:
    """A line of means and the band of its intervals.

    Args:
        axis: drawn on.
        x: one value per row.
        line: with ``mean``, ``low`` and ``high``, as ``intervals`` makes it.
        alpha: opacity of the band, 0 to 1.
        style: of the line; ``color`` is the band's too.
    """
    axis.plot(x, line["mean"], **style)
    axis.fill_between(x, line["low"], line["high"], color=style["color"], alpha=alpha, linewidth=0)


def draw_intervals(
    axis: Axes,
    rows: pd.DataFrame,
    place: str,
    kind: str,
    looks: Mapping[str, Look] | None = None,
    form: str = ".1f",
) -> None:
    """Means with intervals and the mean in figures, one row per value of ``place``, one colour and
    marker per ``kind``; the first row names the kinds.

    Args:
        axis: drawn on.
        rows: with ``mean``, ``low``, ``high`` and the two columns named.
        place: the column that decides the row.
        kind: the column that decides the look.
        looks: by kind; None: the look of the recipe of this name.
        form: how a mean is written.
    """
    places = list(dict.fromkeys(rows[place]))
    kinds = list(dict.fromkeys(rows[kind]))
    for i, name in enumerate(kinds):
        part = rows[rows[kind] == name]
        style = (looks or {}).get(name) or look(str(name), i)
        apart = min(0.3, 0.8 / len(kinds))
        y = [places.index(p) + (i - (len(kinds) - 1) / 2) * apart for p in part[place]]
        axis.errorbar(
            part["mean"],
            y,
            xerr=[part["mean"] - part["low"], part["high"] - part["mean"]],
            color=style.colour,
            fmt=style.marker,
            markersize=6,
            capsize=2,
        )
        for at, mean, high in zip(y, part["mean"], part["high"], strict=True):
            text = f"{mean:{form}}".replace("-", "−")
            if at < 0.5 and style.label:
                text = f"{text}  {style.label}"
            how: dict[str, Any] = {"textcoords": "offset points", "va": "center"}
            axis.annotate(text, (high, at), (7, 0), color=style.colour, fontsize=8.5, **how)
    rule(axis, vertical=True)
    axis.set_yticks(range(len(places)), [look(str(name)).label for name in places])
    axis.set_ylim(len(places) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)
