"""What recorded runs of the small language model show. Tables of ``lm.analysis`` in, pictures
out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes

from ..lm.analysis import LAST
from ..statistics import intervals
from .intervals import draw_band
from .style import (
    RECIPES,
    RIGHT,
    SERIES,
    WIDTH,
    WRONG,
    Look,
    Picture,
    evidence,
    headline,
    ink,
    look,
    name_line,
    new_figure,
    picture,
    rule,
)

if TYPE_CHECKING:
    import pandas as pd

ARMS = {
    "grpo": RECIPES["grpo"]._replace(label="GRPO: 1/|o|, std"),
    "grpo_no_std": Look("1/|o|, no std", SERIES[0], "o"),
    "constant_std": Look("constant, std", SERIES[2], "s"),
    "dr_grpo": RECIPES["dr_grpo"]._replace(label="Dr. GRPO: constant"),
    "dapo(step)": RECIPES["dapo(step)"]._replace(label="token mean, std"),
    "placebo": Look("placebo: shuffled", SERIES[1], "D"),
    "control: grpo": Look("control, GRPO", SERIES[3], "P"),
    "control: dr_grpo": Look("control, Dr. GRPO", SERIES[4], "P"),
}
BAND = 0.15  # opacity


def _arm(name: str) -> Look:
    return ARMS.get(name) or look(name)


@picture
def lab_lengths(runs: pd.DataFrame, ends: pd.DataFrame, *, title: str | None = None) -> Picture:
    """Lengths given right and wrong, the gap over training, and where each run of each arm ended.

    Args:
        runs: ``analysis.curves``; any number of arms, at least one.
        ends: ``analysis.ends``, with further arms such as the control where there are any.
        title: the sentence to take home.
    """
    figure = new_figure(WIDTH, 7.4)
    above, (curves, ends_panel) = figure.subplots(2, 2, height_ratios=[1, 1.2])
    shown = [arm for arm in ("grpo", "dr_grpo") if arm in set(runs["arm"])] or [runs["arm"].iloc[0]]
    for axis, arm in zip(above, shown, strict=False):
        _lengths(axis, runs.loc[runs["arm"] == arm], _arm(arm).label)
    for axis in above:
        axis.set_ylim(0, 50)
    _gap_curves(curves, runs)
    _gap_ends(ends_panel, ends)
    seeds = runs["seed"].nunique()
    warm = runs["warm"].nunique()
    fewer = ends.groupby("arm", sort=False)["seed"].nunique().loc[lambda count: count < seeds]
    apart = "".join(f"; {_arm(str(arm)).label}: {count} seeds" for arm, count in fewer.items())
    headline(figure, title or "Wrong minus right, in tokens, over seeds and warm starts")
    evidence(
        figure,
        f"observed: a model of 161,600 parameters in a lab task, {seeds} seeds x {warm} warm "
        f"starts, 95 % interval; solid and filled: first warm start; "
        f"within levels: mean over the levels of the task; placebo: shuffled rewards; "
        f"control: filler before the answer{apart}",
    )
    return figure


def _lengths(axis: Axes, rows: pd.DataFrame, heading: str) -> None:
    """Length given wrong and given right, one line per warm start."""
    for side in (WRONG, RIGHT):
        for i, (_, part) in enumerate(rows.groupby("warm")):
            line = intervals(part, f"length_{side.label}", by=["step"])
            style: dict[str, Any] = {
                "color": side.colour,
                "marker": side.marker,
                "linestyle": ("-", "--")[i % 2],
            }
            draw_band(axis, line["step"], line, alpha=BAND, markevery=3, **style)
            if i == 0:
                name_line(axis, line["step"], line["mean"], side.label, side.colour)
    axis.set(title=heading, xlabel="training step", ylabel="mean length, tokens")


def _gap_curves(axis: Axes, runs: pd.DataFrame) -> None:
    for k, arm in enumerate(dict.fromkeys(runs["arm"])):
        line = intervals(runs.loc[runs["arm"] == arm], "gap", by=["step"])
        style: dict[str, Any] = {
            "color": _arm(arm).colour,
            "marker": _arm(arm).marker,
            "markevery": (k, 6),
            "linewidth": 1.2,
        }
        draw_band(axis, line["step"], line, alpha=BAND, label=_arm(arm).label, **style)
    rule(axis)
    axis.set_ylim(top=1.35 * axis.get_ylim()[1])  # room for the legend
    axis.legend(loc="upper left")
    axis.set(
        title="wrong minus right: mean of all runs of a loss",
        xlabel="training step",
        ylabel="tokens, within levels",
    )


def _gap_ends(axis: Axes, ends: pd.DataFrame) -> None:
    """Every run as a dot, mean and interval over seeds of each warm start beside it."""
    names = [str(arm) for arm in dict.fromkeys(ends["arm"])]
    for place, arm in enumerate(names):
        for i, (_, part) in enumerate(ends.loc[ends["arm"] == arm].groupby("warm")):
            y = place + 0.18 * (2 * i - 1)
            style: dict[str, Any] = {
                "color": _arm(arm).colour,
                "fillstyle": ("full", "none")[i % 2],
            }
            marker = _arm(arm).marker
            axis.plot(part["gap"], [y] * len(part), marker, alpha=0.35, markersize=4, **style)
            if len(part) > 1:
                row = intervals(part, "gap", by=["arm"]).iloc[0]
                axis.plot([row["low"], row["high"]], [y, y], color=style["color"])
                axis.plot(row["mean"], y, marker, markersize=7, **style)
    rule(axis, vertical=True)
    axis.set(title=f"each run: mean of its last {LAST} steps", xlabel="tokens, within levels")
    axis.set_yticks(range(len(names)), [_arm(name).label for name in names])
    for label, name in zip(axis.get_yticklabels(), names, strict=True):
        label.set_color(_arm(name).colour)
    axis.invert_yaxis()


@picture
def token_efficiency(runs: pd.DataFrame, *, title: str | None = None) -> Picture:
    """Pass rate against tokens sampled, and the lengths of right, wrong and all answers at the end.

    Args:
        runs: ``analysis.curves`` of runs whose reward can rise.
        title: the sentence to take home.
    """
    figure = new_figure(WIDTH, 4.2)
    left, right = figure.subplots(1, 2)
    arms = list(dict.fromkeys(runs["arm"]))
    for k, arm in enumerate(arms):
        part = runs.loc[runs["arm"] == arm]
        line = intervals(part, "pass_rate", by=["step"])
        tokens = part.groupby("step")["tokens"].mean().to_numpy() / 1000
        style: dict[str, Any] = {
            "color": _arm(arm).colour,
            "marker": _arm(arm).marker,
            "markevery": (k, 5),
            "linewidth": 1.2,
        }
        draw_band(left, tokens, line, alpha=BAND, **style)
    last = runs.loc[runs["step"] == runs["step"].max()]
    sides = (RIGHT, Look("all", ink(), "|"), WRONG)
    for k, side in enumerate(sides):
        column = "length" if side.label == "all" else f"length_{side.label}"
        rows = intervals(last, column, by=["arm"])
        error = [rows["mean"] - rows["low"], rows["high"] - rows["mean"]]
        style: dict[str, Any] = {"color": side.colour, "fmt": side.marker, "capsize": 2}
        y = [place + 0.22 * (k - 1) for place in range(len(arms))]
        right.errorbar(rows["mean"], y, xerr=error, label=side.label, **style)
    right.set_yticks(range(len(arms)), [_arm(arm).label for arm in arms])
    for label, arm in zip(right.get_yticklabels(), arms, strict=True):
        label.set_color(_arm(arm).colour)
    right.invert_yaxis()
    right.legend(loc="lower right")
    left.set(xlabel="tokens sampled so far, thousands", title="pass rate (colours as at the right)")
    right.set(xlabel="mean tokens of an answer", title="length at the end")
    headline(figure, title or "Pass rate and the tokens it took")
    seeds = runs["seed"].nunique()
    evidence(figure, f"observed: lab task with learnable errors, {seeds} seeds, 95 % interval")
    return figure


@picture
def difficulty_gradients(norms: pd.DataFrame, *, title: str | None = None) -> Picture:
    """Gradient norm of a group against its share of right answers, relative to a group that is
    half right.

    Args:
        norms: ``analysis.gradient_norms``.
        title: the sentence to take home.
    """
    sizes = sorted({int(size) for size in norms["arm"]})
    figure = new_figure(WIDTH, 3.9)
    panels = figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0]
    scales = {
        "norm_std": RECIPES["grpo"]._replace(label="with std"),
        "norm_none": RECIPES["dr_grpo"]._replace(label="without"),
    }
    for axis, size in zip(panels, sizes, strict=True):
        for scale, of in scales.items():
            line = norms.loc[(norms["arm"].astype(int) == size) & (norms["scale"] == scale)]
            draw_band(axis, line["share"], line, color=of.colour, marker=of.marker)
            if size == sizes[-1]:
                name_line(axis, line["share"], line["mean"], of.label, of.colour)
        rule(axis, 1)
        axis.set(title=f"G = {size}", xlabel="share of right answers", xticks=[0.125, 0.5, 0.875])
        axis.set_xticklabels(["⅛", "½", "⅞"])
    panels[0].set(ylabel="gradient norm, half right = 1", ylim=(0, None))
    headline(figure, title or "Division by the std raises the groups at both ends")
    evidence(figure, "observed at the warm starts, 95 % interval over runs")
    return figure
