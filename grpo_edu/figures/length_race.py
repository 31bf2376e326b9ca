"""The stopping toy in motion: answers grow and shrink under 1/|o|, and not under a constant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..plots.style import GREY, RECIPES, RIGHT, WIDTH, WRONG, new_figure, quiet
from .registry import figure, recorded_table
from .toy_length import SEEDS

LOSSES = {"grpo": "1/|o|", "dr_grpo": "constant"}
CAP = 64  # tokens; no mean is longer


def race_data() -> pd.DataFrame:
    """Mean pass rate and expected lengths over the seeds of ``length_dynamics``, GRPO and
    Dr. GRPO."""
    table: Any = recorded_table("length_dynamics").query("recipe in @LOSSES")
    columns = ["pass_rate", "length_right", "length_wrong"]
    return table.groupby(["recipe", "step"], sort=False, as_index=False)[columns].mean()


def race_frames(table: pd.DataFrame) -> Iterator[Figure]:
    """One picture per recorded step."""
    for step in table["step"].unique():
        yield length_race(table.loc[table["step"] <= step])


@figure(
    title="1/|o| makes wrong answers run on; a constant does not",
    level=f"simulated, {SEEDS} seeds, mean",
    alt="Bars of token cells for a right and a wrong answer, under GRPO and under Dr. GRPO, after "
    "300 steps. All four start at 13 tokens. Under GRPO the right answer has shrunk to 2 and the "
    "wrong one has grown to 60; under Dr. GRPO they have 14 and 15. Pass rates are alike, .79.",
    answers="Dr. GRPO (arXiv 2503.20783), length of wrong answers over training, as a film",
    data=race_data,
    frames=race_frames,
)
def length_race(table: pd.DataFrame) -> Figure:
    """The answers at the last step of the table, one cell per token; lines: where they began."""
    picture = new_figure(WIDTH, 3.3)
    panels = picture.subplots(1, 2, sharex=True, sharey=True)
    for panel, (name, words) in zip(panels, LOSSES.items(), strict=True):
        run = table[table.recipe == name]
        first, now = run.iloc[0], run.iloc[-1]
        for y, side in enumerate((RIGHT, WRONG)):
            _answer(panel, y, now[f"length_{side.label}"], side.colour)
            begun = first[f"length_{side.label}"]
            panel.plot([begun, begun], [y - 0.42, y + 0.42], color=GREY, linewidth=1.2)
        heading = f"{RECIPES[name].label}, {words}: step {now.step:3.0f}, pass rate"
        panel.set_title(f"{heading} {now.pass_rate:.2f}", color=RECIPES[name].colour)
        panel.set_xlabel("expected tokens of an answer")
    panels[0].set(
        xlim=(0, CAP + 8),
        ylim=(1.6, -0.6),
        xticks=[0, 20, 40, 60],
        yticks=[0, 1],
        yticklabels=["right\nanswer", "wrong\nanswer"],
    )
    for panel in panels:
        panel.tick_params(axis="y", length=0)
        panel.text(first["length_right"], 1.55, " start", color=quiet(), ha="left", va="bottom")
    return picture


def _answer(panel: Axes, y: int, length: float, colour: str) -> None:
    """A row of cells, the last one as wide as the fraction of a token, and the length behind it."""
    whole = int(length)
    widths = [0.8] * whole + [0.8 * (length - whole)]
    lefts = [k + 0.1 for k in range(whole + 1)]
    panel.barh([y] * len(widths), widths, left=lefts, height=0.5, color=colour)
    panel.text(length + 1, y, f"{length:.0f}", va="center", fontweight="bold")
