"""What the toys do over training: lengths, difficulty, clip and entropy. Tables in
(``grpo_edu.toys``), pictures out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from matplotlib.axes import Axes

from ..statistics import intervals
from .intervals import draw_band
from .style import (
    WIDTH,
    Look,
    Picture,
    evidence,
    headline,
    look,
    name_line,
    new_figure,
    picture,
)

if TYPE_CHECKING:
    import pandas as pd


class Measure(NamedTuple):
    """What a column is called on a picture; a share lies between 0 and 1."""

    heading: str
    unit: str
    is_share: bool = False


PASS_RATE = Measure("pass rate", "share of right answers", True)
LENGTHS = {
    "pass_rate": PASS_RATE,
    "length_right": Measure("length of right answers", "expected tokens"),
    "length_wrong": Measure("length of wrong answers", "expected tokens"),
}
CLIPS = {
    "entropy": Measure("entropy of the policy", "nats, mean over prompts"),
    "pass_rate": PASS_RATE,
    "clip_up": Measure("tokens stopped by the clip", "share of tokens", True),
}


@picture
def length_dynamics(table: pd.DataFrame, *, title: str | None = None) -> Picture:
    """Pass rate and the lengths of right and of wrong answers against training steps, one line per
    recipe.

    Args:
        table: of ``stopping.train``, ``overlong`` or ``flow`` (which is exact, and has no band).
        title: the sentence to take home; None: which recipes let wrong completions run on, read off
            the table.
    """
    figure = _panels(table, LENGTHS)
    headline(figure, title or _length_title(table))
    return figure


def _length_title(table: pd.DataFrame) -> str:
    """Which recipes end with a stop gap whose interval lies above 0."""
    rows = intervals(_end(table), "stop_gap", by=["recipe"])
    low = rows["mean"] - 1e-9 if _exact(table) else rows["low"]
    apart = [
        look(str(name)).label for name, bound in zip(rows["recipe"], low, strict=True) if bound > 0
    ]
    return (
        "Wrong completions run on under: " + ", ".join(apart)
        if apart
        else "No recipe tells wrong lengths from right ones"
    )


@picture
def difficulty_progress(table: pd.DataFrame, *, title: str | None = None) -> Picture:
    """Mean pass rate of each difficulty bucket against steps, hardest first, and the groups without
    a signal.

    Args:
        table: of ``difficulty.train``.
        title: the sentence to take home; None: which recipe ends highest on the hardest bucket.
    """
    buckets = [name for name in table.columns if name.startswith("bucket_")]
    headings = [f"bucket {i + 1} of {len(buckets)}" for i in range(len(buckets))]
    headings[0] = "hardest prompts"
    headings[-1] = "easiest prompts"
    measures = {
        name: Measure(heading, "mean pass rate", True)
        for name, heading in zip(buckets, headings, strict=True)
    }
    silent = Measure("groups without a signal", "share of the step's groups", True)
    figure = _panels(table, measures | {"silent": silent})
    ends = intervals(_end(table), buckets[0], by=["recipe"])
    best = ends.loc[ends["mean"].idxmax()]
    name = look(str(best["recipe"])).label
    hint = f"The hardest prompts end highest under {name}: mean pass rate {best['mean']:.2f}"
    headline(figure, title or hint)
    return figure


@picture
def clip_entropy(table: pd.DataFrame, *, title: str | None = None) -> Picture:
    """Entropy, pass rate and share of up-clipped tokens against rollouts, one line per recipe.

    Args:
        table: of ``arms.train``.
        title: the sentence to take home; None: where each recipe's entropy ends.
    """
    figure = _panels(table, CLIPS)
    ends = intervals(_end(table), "entropy", by=["recipe"])
    parts = ", ".join(
        f"{mean:.3f} ({look(str(name)).label})"
        for mean, name in zip(ends["mean"], ends["recipe"], strict=True)
    )
    headline(figure, title or f"Entropy at the end: {parts}")
    return figure


def _end(table: pd.DataFrame) -> pd.DataFrame:
    return table.loc[table["step"] == table["step"].max()]


def _exact(table: pd.DataFrame) -> bool:
    """``flow`` draws nothing, so it has no reward of a batch."""
    return bool(table["reward"].isna().all())


def _panels(table: pd.DataFrame, measures: Mapping[str, Measure]) -> Picture:
    """One panel per column, three in one row or two beside each other, lines named in each, and
    the level of evidence."""
    missing = [
        name for name in ("recipe", "seed", "step", "reward", *measures) if name not in table
    ]
    if missing:
        raise ValueError(
            f"the table has no column {', '.join(missing)}: expected the table that the toy of "
            "this picture returns."
        )
    columns = 3 if len(measures) == 3 else 2
    rows = -(-len(measures) // columns)
    figure = new_figure(WIDTH, 1.5 + 2.2 * rows)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True).ravel()
    names = list(dict.fromkeys(table["recipe"]))
    for axis, (column, measure) in zip(axes, measures.items(), strict=False):
        draw_lines(axis, table, column, names)
        axis.set(title=measure.heading, ylabel=measure.unit)
        if measure.is_share:
            low, high = axis.get_ylim()
            axis.set_ylim(max(low, -0.02), min(max(high, 0.05), 1.02))
    for axis in axes[len(measures) :]:
        axis.set_axis_off()
    for axis in axes[max(0, len(measures) - columns) : len(measures)]:
        axis.set_xlabel("training step")
        axis.tick_params(labelbottom=True)
    for axis in axes[: len(measures)]:
        name_ends(axis)
    seeds = table["seed"].nunique()
    evidence(
        figure,
        "exact, expected update" if _exact(table) else f"simulated, {seeds} seeds, 95 % interval",
    )
    return figure


def draw_lines(
    axis: Axes,
    table: pd.DataFrame,
    column: str,
    names: Sequence[str],
    *,
    looks: Mapping[str, Look] | None = None,
) -> None:
    """Mean over seeds and its 95 % band on the given axes; colour and marker are those of the
    recipes in ``names``, unless ``looks`` has others.

    A step in which a seed has no number is left out: a mean over fewer seeds is not the same mean.
    """
    summary = intervals(table, column)
    summary = summary.loc[summary["seeds"] == table["seed"].nunique()]
    for i, name in enumerate(names):
        line = summary.loc[summary["recipe"] == name]
        label, colour, marker = (looks or {}).get(name) or look(name, i)
        draw_band(
            axis,
            line["step"],
            line,
            color=colour,
            marker=marker,
            markersize=5,
            markevery=max(1, len(line) // 8),
            label=label,
        )


def name_ends(axis: Axes) -> None:
    """Write the name of every labelled line behind its end."""
    for line in axis.lines:
        name = str(line.get_label())
        if not name.startswith("_"):
            name_line(axis, line.get_xdata(), line.get_ydata(), name, str(line.get_color()))
