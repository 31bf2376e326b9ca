"""Figures of recorded language-model runs. ``grpo-edu experiment`` makes the runs, ``figures/data/lm`` keeps them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from ..lm import analysis
from ..lm.experiments import read
from ..plots import lm as plots

RECORDED = Path(__file__).resolve().parent.parent.parent / "figures" / "data" / "lm"


def recorded(name: str) -> pd.DataFrame:
    """The runs of an experiment, as committed.

    Raises:
        FileNotFoundError: they are not there; says which command makes them.
    """
    path = RECORDED / f"{name}.parquet"
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: grpo-edu experiment {name} --out {path.parent}, in a clone of the repository."
        )
    return read(path)[0]


def length_data() -> pd.DataFrame:
    """Every run of ``length`` and ``length-control`` over training."""
    control = recorded("length-control")
    control["arm"] = "control: " + control["arm"]
    return analysis.curves(pd.concat([recorded("length"), control]))


def length_draw(table: pd.DataFrame) -> Figure:
    """Lengths given right and wrong, gap curves, gap at the end."""
    main = table.loc[~table["arm"].str.startswith("control")]
    ends = table.loc[table["step"] > table["step"].max() - analysis.LAST]
    ends = ends.groupby(analysis.RUN, sort=False)["gap"].mean().reset_index()
    return plots.lab_lengths(main, ends, title="With 1/|o| wrong answers grow and right ones shrink, at one pass rate")


def rising_data() -> pd.DataFrame:
    """Every run of ``length-rising`` over training, with tokens sampled so far."""
    return analysis.curves(recorded("length-rising"))


def efficiency_draw(table: pd.DataFrame) -> Figure:
    """Pass rate against tokens; path through length and pass rate."""
    return plots.token_efficiency(table, title="The pass rate rises alike; 1/|o| spends more tokens on it")


def entropy_draw(table: pd.DataFrame) -> Figure:
    """Pass rate against entropy with a fit per run."""
    return plots.entropy_reward(table, analysis.entropy_fits(table))


def gradient_data() -> pd.DataFrame:
    """Mean gradient norms by group size and number of right answers."""
    return analysis.gradient_ratios(recorded("difficulty-gradients").astype({"arm": str}))


def gradient_draw(table: pd.DataFrame) -> Figure:
    """Relative gradient norm against the share of right answers."""
    return plots.difficulty_gradients(table)
