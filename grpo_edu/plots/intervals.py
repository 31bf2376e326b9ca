"""Means with their intervals on given axes: a band along x, or one row each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes

from .style import COLOURS, MARKERS

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


def draw_intervals(axis: Axes, rows: pd.DataFrame, place: str, kind: str) -> None:
    """Means with intervals, one row per value of ``place``, one colour and marker per ``kind``.

    Args:
        axis: drawn on.
        rows: with ``mean``, ``low``, ``high`` and the two columns named.
        place: the column that decides the row.
        kind: the column that decides the look.
    """
    places = list(dict.fromkeys(rows[place]))
    kinds = list(dict.fromkeys(rows[kind]))
    for i, name in enumerate(kinds):
        part = rows[rows[kind] == name]
        y = [places.index(p) + (i - (len(kinds) - 1) / 2) * 0.16 for p in part[place]]
        axis.errorbar(
            part["mean"],
            y,
            xerr=[part["mean"] - part["low"], part["high"] - part["mean"]],
            color=COLOURS[i],
            fmt=MARKERS[i],
            markersize=5,
            capsize=2,
            label=name,
        )
    axis.axvline(0, color="#666666", linewidth=0.6)
    axis.set_yticks(range(len(places)), places)
    axis.set_ylim(len(places) - 0.5, -0.5)
