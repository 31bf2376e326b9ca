"""What recorded runs of the small language model show. Tables of ``lm.analysis`` in, pictures
out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes

from ..lm.analysis import LAST
from ..statistics import intervals
from .intervals import draw_band, draw_intervals
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
NAMES = {name: of.label for name, of in ARMS.items()}
BAND = 0.15  # opacity


def _arm(name: str) -> Look:
    return ARMS.get(name) or look(name)


@picture
def lab_lengths(runs: pd.DataFrame, ends: pd.DataFrame, *, title: str | None = None) -> Picture:
    """Lengths given right and wrong over training, and where each run of each arm ended.

    Args:
        runs: ``analysis.curves``; any number of arms, at least one.
        ends: ``analysis.ends``, with further arms such as the control where there are any.
        title: the sentence to take home.
    """
    figure = new_figure(WIDTH, 6.6)
    grid = figure.add_gridspec(2, 2, height_ratios=[1, 1.3])
    first = figure.add_subplot(grid[0, 0])
    above = (first, figure.add_subplot(grid[0, 1], sharey=first))
    shown = [arm for arm in ("grpo", "dr_grpo") if arm in set(runs["arm"])] or [runs["arm"].iloc[0]]
    for axis, arm in zip(above, shown, strict=False):
        _lengths(axis, runs.loc[runs["arm"] == arm], _arm(arm).label)
    first.set(ylim=(0, 45), ylabel="mean tokens of an answer")
    _gap_ends(figure.add_subplot(grid[1, :]), ends)
    seeds = runs["seed"].nunique()
    warm = runs["warm"].nunique()
    fewer = ends.groupby("arm", sort=False)["seed"].nunique().loc[lambda count: count < seeds]
    apart = "".join(f"; {_arm(str(arm)).label}: {count} seeds" for arm, count in fewer.items())
    headline(figure, title or "Wrong minus right, in tokens, over seeds and warm starts")
    evidence(
        figure,
        f"observed: a model of 161,600 parameters in a lab task, {seeds} seeds x {warm} warm "
        f"starts, 95 % interval; second warm start: dashed and hollow; lengths compared within "
        f"the levels of the task; control: length is drawn before right or wrong{apart}",
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
    axis.set(title=heading, xlabel="training step")


def _gap_ends(axis: Axes, ends: pd.DataFrame) -> None:
    """Every run as a dot, mean and interval over seeds of each warm start, the mean of both in
    figures."""
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
        part = ends.loc[ends["arm"] == arm, "gap"]
        text = f"{part.mean():.1f}".replace("-", "−")
        axis.text(
            float(ends["gap"].to_numpy().max()) + 2,
            place,
            text,
            va="center",
            color=_arm(arm).colour,
        )
    rule(axis, vertical=True)
    heading = "by how many tokens wrong answers are longer at the end: every run, mean at the right"
    axis.set(title=heading, xlabel=f"tokens, mean of the last {LAST} steps")
    axis.tick_params(axis="y", length=0)
    axis.set_yticks(range(len(names)), [_arm(name).label for name in names])
    for label, name in zip(axis.get_yticklabels(), names, strict=True):
        label.set_color(_arm(name).colour)
    axis.invert_yaxis()


@picture
def token_efficiency(runs: pd.DataFrame, *, title: str | None = None) -> Picture:
    """Pass rate at the end, tokens sampled, and the lengths of right, wrong and all answers, one
    row per arm.

    Args:
        runs: ``analysis.curves`` of runs whose reward can rise.
        title: the sentence to take home.
    """
    figure = new_figure(WIDTH, 4.2)
    panels = figure.subplots(1, 3, sharey=True, width_ratios=[1, 1, 2])
    last = runs.loc[runs["step"] == runs["step"].max()].assign(tokens=runs["tokens"] / 1000)
    whole = Look("", ink(), "D")
    sides = {"length_right": RIGHT, "length": whole._replace(label="all"), "length_wrong": WRONG}
    for axis, heading, columns, form in (
        (panels[0], "pass rate", {"pass_rate": whole}, ".2f"),
        (panels[1], "thousand tokens", {"tokens": whole}, ".0f"),
        (panels[2], "mean tokens of an answer", sides, ".1f"),
    ):
        parts = last.melt("arm", list(columns), "kind", "value")
        rows = intervals(parts, "value", by=["arm", "kind"]).replace({"arm": NAMES})
        draw_intervals(axis, rows, "arm", "kind", columns, form)
        axis.set_title(heading)
    panels[0].set_xlim(0, 1)
    panels[1].set_xlim(0, 200)
    panels[2].set_xlim(0, 57)
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
        "norm_std": RECIPES["grpo"]._replace(label="divided by\nthe std"),
        "norm_none": RECIPES["dr_grpo"]._replace(label="not\ndivided"),
    }
    for axis, size in zip(panels, sizes, strict=True):
        for scale, of in scales.items():
            line = norms.loc[(norms["arm"].astype(int) == size) & (norms["scale"] == scale)]
            draw_band(axis, line["share"], line, color=of.colour, marker=of.marker)
            if size == sizes[-1]:
                name_line(axis, line["share"], line["mean"], of.label, of.colour)
        rule(axis, 1)
        heading = f"groups of {size} answers"
        axis.set(title=heading, xlabel="share of right answers", xticks=[0.125, 0.5, 0.875])
        axis.set_xticklabels(["⅛", "½", "⅞"])
    panels[0].set(ylabel="gradient (half right = 1)", ylim=(0, None))
    headline(figure, title or "Division by the std raises the groups at both ends")
    evidence(figure, "observed at the warm starts, 95 % interval over runs")
    return figure
