"""One rollout used several times: where each ratio goes, and how much of the rollout the clip has
silenced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .style import (
    MARKERS,
    SERIES,
    Picture,
    evidence,
    headline,
    new_figure,
    picture,
    tint,
)

if TYPE_CHECKING:
    import pandas as pd


@picture
def ratios_by_update(
    table: pd.DataFrame,
    labels: Sequence[str],
    *,
    band: tuple[float, float] = (0.8, 1.2),
    title: str | None = None,
) -> Picture:
    """Left: ratio of each completion against the update. Right: share of completions that the clip
    has silenced.

    Args:
        table: of ``theory.updates.reuse``.
        labels: one word per completion.
        band: drawn grey, 1 - eps_low to 1 + eps_high.
        title: the sentence to take home; None: a neutral one.
    """
    figure = new_figure(8.6, 3.4)
    left, right = figure.subplots(1, 2, width_ratios=[2, 1])
    left.axhspan(*band, color=tint(), zorder=0, label="clip band")
    for i, label in enumerate(labels):
        style = {"color": SERIES[i % 6], "marker": MARKERS[i % 6], "markersize": 5}
        left.plot(
            table["update"],
            table[f"ratio_{i}"],
            label=label,
            markevery=max(1, len(table) // 12),
            **style,
        )
    right.step(table["update"], 100 * table["clip_fraction"], where="mid", color=SERIES[0])
    left.set(xlabel="update on the same rollout", ylabel="importance ratio ρ")
    right.set(
        xlabel="update on the same rollout",
        ylabel="completions without a gradient, %",
        ylim=(-3, 103),
    )
    left.legend()
    headline(figure, title or "The same rollout, used again and again")
    evidence(figure, "exact")
    return figure
