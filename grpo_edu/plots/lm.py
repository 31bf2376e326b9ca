"""What recorded runs of the small language model show. Tables of ``lm.analysis`` in, pictures
out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from ..toys.compare import intervals
from .intervals import draw_band
from .style import COLOURS, MARKERS, Picture, evidence, headline, new_figure, picture

if TYPE_CHECKING:
    import pandas as pd

ARMS = {
    "grpo": "GRPO: 1/|o|, std",
    "grpo_no_std": "1/|o|, no std",
    "constant_std": "constant, std",
    "dr_grpo": "Dr. GRPO: constant",
    "dapo(step)": "token mean of the step, std",
    "placebo": "placebo: GRPO, shuffled rewards",
    "control: grpo": "control: filler first, GRPO",
    "control: dr_grpo": "control: filler first, Dr. GRPO",
}
GRID = "#666666"
BAND = 0.12  # opacity


@picture
def lab_lengths(runs: pd.DataFrame, ends: pd.DataFrame, *, title: str | None = None) -> Picture:
    """Lengths given right and wrong, the gap over training, and where each run of each arm ended.

    Args:
        runs: ``analysis.curves``; any number of arms, at least one.
        ends: ``analysis.ends``, with further arms such as the control where there are any.
        title: the sentence to take home.
    """
    figure = new_figure(10.0, 7.2)
    rows: Any = figure.subfigures(2, 1, height_ratios=[1, 1.15])
    upper, lower = rows
    above = upper.subplots(1, 2)
    (curves, ends_panel) = lower.subplots(1, 2)
    shown = [arm for arm in ("grpo", "dr_grpo") if arm in set(runs["arm"])] or [runs["arm"].iloc[0]]
    for axis, arm in zip(above, shown, strict=False):
        _lengths(axis, runs.loc[runs["arm"] == arm], ARMS.get(arm, arm))
    for axis in above:
        axis.set_ylim(0, 50)
    _gap_curves(curves, runs)
    _gap_ends(ends_panel, ends)
    seeds = runs["seed"].nunique()
    warm = runs["warm"].nunique()
    fewer = ends.groupby("arm", sort=False)["seed"].nunique().loc[lambda count: count < seeds]
    apart = "".join(f"; {ARMS.get(str(arm), arm)}: {count} seeds" for arm, count in fewer.items())
    headline(figure, title or "Wrong minus right, in tokens, over seeds and warm starts")
    evidence(
        figure,
        f"observed: a model of 161,600 parameters in a lab task, {seeds} seeds x {warm} warm "
        f"starts, 95 %{apart}",
    )
    return figure


def _lengths(axis: Axes, rows: pd.DataFrame, heading: str) -> None:
    """Length given wrong and given right, one line per warm start."""
    for column, colour, name in (
        ("length_wrong", COLOURS[2], "wrong"),
        ("length_right", COLOURS[0], "right"),
    ):
        for i, (warm, part) in enumerate(rows.groupby("warm")):
            line = intervals(part, column, by=["step"])
            draw_band(
                axis,
                line["step"],
                line,
                alpha=BAND,
                linestyle="-" if i == 0 else "--",
                color=colour,
                marker=MARKERS[i],
                markevery=3,
                label=f"{name}, warm start {warm}",
            )
    axis.set(title=heading, xlabel="training step", ylabel="mean length, tokens")
    axis.legend()


def _gap_curves(axis: Axes, runs: pd.DataFrame) -> None:
    for i, arm in enumerate(dict.fromkeys(runs["arm"])):
        line = intervals(runs.loc[runs["arm"] == arm], "gap", by=["step"])
        style = {"color": COLOURS[i % 6], "marker": MARKERS[i % 6], "markevery": 3}
        draw_band(axis, line["step"], line, alpha=BAND, label=ARMS.get(arm, arm), **style)
    axis.axhline(0, color=GRID, linewidth=0.8)
    axis.set(title="Gap: wrong minus right, within levels", xlabel="training step", ylabel="tokens")
    axis.legend(fontsize=7)


def _gap_ends(axis: Axes, ends: pd.DataFrame) -> None:
    """Every run as a dot, mean and interval over seeds of each warm start beside it."""
    names = [str(arm) for arm in dict.fromkeys(ends["arm"])]
    for place, arm in enumerate(names):
        for i, (_, part) in enumerate(ends.loc[ends["arm"] == arm].groupby("warm")):
            y = place + 0.18 * (2 * i - 1)
            colour = COLOURS[(0, 2)[i % 2]]
            axis.plot(
                part["gap"],
                np.full(len(part), y),
                MARKERS[i],
                color=colour,
                alpha=0.35,
                markersize=4,
            )
            if len(part) > 1:
                row = intervals(part, "gap", by=["arm"]).iloc[0]
                axis.plot([row["low"], row["high"]], [y, y], color=colour, linewidth=2)
                axis.plot(row["mean"], y, MARKERS[i], color=colour, markersize=6)
    axis.axvline(0, color=GRID, linewidth=0.8)
    axis.set(title="Gap at the end of every run", xlabel="tokens (circle: warm start 0, square: 1)")
    axis.set_yticks(range(len(names)), [ARMS.get(name, name) for name in names])
    axis.invert_yaxis()


@picture
def token_efficiency(runs: pd.DataFrame, *, title: str | None = None) -> Picture:
    """Pass rate against tokens sampled, and the path of every arm through mean length and pass
    rate.

    Args:
        runs: ``analysis.curves`` of runs whose reward can rise.
        title: the sentence to take home.
    """
    figure = new_figure(9.5, 4.0)
    left, right = figure.subplots(1, 2)
    for i, arm in enumerate(dict.fromkeys(runs["arm"])):
        part = runs.loc[runs["arm"] == arm]
        mean = part.groupby("step")[["tokens", "pass_rate", "length"]].mean()
        style = {
            "color": COLOURS[i % 6],
            "marker": MARKERS[i % 6],
            "markevery": 4,
            "label": ARMS.get(arm, arm),
        }
        line = intervals(part, "pass_rate", by=["step"])
        draw_band(left, mean["tokens"] / 1000, line, alpha=BAND, **style)
        right.plot(mean["length"], mean["pass_rate"], **style)
        right.plot(
            mean["length"].iloc[-1],
            mean["pass_rate"].iloc[-1],
            MARKERS[i % 6],
            color=COLOURS[i % 6],
            markersize=9,
        )
    left.set(
        xlabel="tokens sampled so far, thousands",
        ylabel="pass rate",
        title="What the tokens bought",
    )
    right.set(
        xlabel="mean length, tokens",
        ylabel="pass rate",
        title="Path through length and pass rate (large: end)",
    )
    left.legend(fontsize=7)
    headline(figure, title or "Pass rate and the tokens it took")
    evidence(
        figure, f"observed: lab task with learnable errors, {runs['seed'].nunique()} seeds, 95 %"
    )
    return figure


@picture
def entropy_reward(runs: pd.DataFrame, fits: pd.DataFrame, *, title: str | None = None) -> Picture:
    r"""Pass rate against entropy over training, and the fit :math:`R = -a\,e^{H} + b` of every arm.

    Args:
        runs: ``analysis.curves``.
        fits: ``analysis.entropy_fits``.
        title: the sentence to take home.
    """
    arms = list(dict.fromkeys(runs["arm"]))
    figure = new_figure(2.6 * len(arms) + 0.6, 3.4)
    for i, (axis, arm) in enumerate(
        zip(figure.subplots(1, len(arms), sharey=True, squeeze=False)[0], arms, strict=True)
    ):
        part = runs.loc[runs["arm"] == arm]
        of_arm = fits.loc[fits["arm"] == arm]
        axis.scatter(part["entropy"], part["pass_rate"], s=9, c=part["step"], cmap="viridis")
        grid = np.linspace(part["entropy"].min(), part["entropy"].max(), 50)
        for row in of_arm.itertuples():
            axis.plot(grid, row.b - row.a * np.exp(grid), color=COLOURS[2], linewidth=0.8)
        axis.set(
            title=f"{ARMS.get(arm, arm)}\nR² {of_arm['r2'].min():.2f} to {of_arm['r2'].max():.2f}",
            xlabel="entropy, nats per token",
        )
        if i == 0:
            axis.set_ylabel("pass rate (dark: early)")
    headline(figure, title or "Does the pass rate follow b - a·exp(entropy)?")
    evidence(figure, f"observed: {runs['seed'].nunique()} seeds, one fit per run")
    return figure


@picture
def difficulty_gradients(ratios: pd.DataFrame, *, title: str | None = None) -> Picture:
    """Mean gradient norm of a group against its share of right answers, relative to a group that is
    half right.

    Args:
        ratios: ``analysis.gradient_ratios``.
        title: the sentence to take home.
    """
    sizes = list(dict.fromkeys(ratios["arm"]))
    figure = new_figure(3.2 * len(sizes) + 0.4, 3.6)
    for axis, size in zip(
        figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0], sizes, strict=True
    ):
        part = ratios.loc[ratios["arm"] == size]
        middle = part.loc[(part["share"] - 0.5).abs() < 0.13]
        weights = middle["groups"] / middle["groups"].sum()
        for i, (column, name) in enumerate(
            (("norm_none", "no std"), ("norm_std", "divided by std"))
        ):
            relative = part[column] / (middle[column] * weights).sum()
            axis.plot(
                part["share"],
                relative,
                color=COLOURS[i],
                marker=MARKERS[i],
                linestyle="none",
                markersize=4,
                label=name,
            )
        axis.axhline(1, color=GRID, linewidth=0.8)
        axis.set(title=f"G = {size}", xlabel="share of right answers in the group")
    figure.axes[0].set_ylabel("gradient norm, 1: half right")
    figure.axes[0].legend()
    headline(figure, title or "Division by std raises the groups at both ends")
    evidence(
        figure,
        f"observed at the warm starts, {ratios['groups'].sum()} groups; the ratio of the two, "
        "1/σ, is exact",
    )
    return figure
