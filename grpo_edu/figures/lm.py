"""Figures of recorded language-model runs. ``grpo-edu experiment`` makes the runs,
``figures/data/lm`` keeps them."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from ..checks import checked
from ..lm import analysis
from ..lm.experiments import read
from ..plots import lm as plots
from .registry import COMMITTED, figure

RECORDED = COMMITTED / "data" / "lm"
CONTROL = "control: "  # before the name of an arm that ran in ``length-control``


@checked
def recorded(name: str) -> pd.DataFrame:
    """The runs of an experiment, as committed.

    Raises:
        FileNotFoundError: they are not there; says which command makes them.
    """
    path = RECORDED / f"{name}.parquet"
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: grpo-edu experiment {name} --out {path.parent}, in a clone of the "
            "repository."
        )
    return read(path)[0]


def length_data() -> pd.DataFrame:
    """Every run of ``length`` and ``length-control`` over training."""
    control = recorded("length-control")
    control["arm"] = CONTROL + control["arm"]
    return analysis.curves(pd.concat([recorded("length"), control]))


@figure(
    title="With 1/|o| wrong answers grow and right ones shrink, at one pass rate",
    level="observed, 5 seeds x 2 warm starts (control: 3 seeds), 95 % interval",
    alt="Four panels. Under GRPO wrong answers grow from 16 to about 40 tokens in 60 steps and "
    "right ones shrink from 14 to 9; under Dr. GRPO both stay; the gap rises under both losses "
    "with 1/|o| and under no other; ends of all runs with intervals, placebo and control beside "
    "them.",
    answers="Dr. GRPO (arXiv 2503.20783), length of right and wrong answers over training; "
    "one-seed runs in peers",
    data=length_data,
    recorded=True,
)
def lm_length(table: pd.DataFrame) -> Figure:
    """Lengths given right and wrong, gap curves, gap at the end."""
    main = table.loc[~table["arm"].str.startswith(CONTROL)]
    ends = table.loc[table["step"] > table["step"].max() - analysis.LAST]
    ends = ends.groupby(analysis.RUN, sort=False)["gap"].mean().reset_index()
    return plots.lab_lengths(main, ends)


def rising_data() -> pd.DataFrame:
    """Every run of ``length-rising`` over training, with tokens sampled so far."""
    return analysis.curves(recorded("length-rising"))


@figure(
    title="No token efficiency to see here: 1/|o| takes from right answers what it gives to wrong "
    "ones",
    level="observed, 3 seeds, 95 % interval",
    alt="Left: pass rate against tokens sampled, five losses: the curves coincide, from .49 to "
    ".72. Right: paths through mean length and pass rate; mean length at the end 15 to 17.5 "
    "tokens.",
    answers="Dr. GRPO (arXiv 2503.20783), Figure 1, right: token efficiency",
    data=rising_data,
    recorded=True,
)
def lm_token_efficiency(table: pd.DataFrame) -> Figure:
    """Pass rate against tokens; path through length and pass rate."""
    return plots.token_efficiency(table)


@figure(
    title="The entropy law fits loosely here: R² above .9 in 3 of 15 runs",
    level="observed, 3 seeds",
    alt="Five panels, one per loss: pass rate against entropy over training with an exponential "
    "fit per run and its R squared.",
    answers="the entropy-reward law of arXiv 2505.22617",
    data=rising_data,
    recorded=True,
)
def lm_entropy_reward(table: pd.DataFrame) -> Figure:
    """Pass rate against entropy with a fit per run."""
    return plots.entropy_reward(table, analysis.entropy_fits(table))


def gradient_data() -> pd.DataFrame:
    """Mean gradient norms by group size and number of right answers."""
    return analysis.gradient_ratios(recorded("difficulty-gradients").astype({"arm": str}))


@figure(
    title="Division by std raises the groups at both ends, the more the larger G is",
    level="observed, 5 seeds x 2 warm starts; the ratio is exact",
    alt="Three panels, G = 8, 32, 64: gradient norm of a group against its share of right "
    "answers, with and without division by the std.",
    answers="Dr. GRPO (arXiv 2503.20783), question-level difficulty bias, at the group sizes in "
    "use",
    data=gradient_data,
    recorded=True,
)
def lm_difficulty_gradients(table: pd.DataFrame) -> Figure:
    """Relative gradient norm against the share of right answers."""
    return plots.difficulty_gradients(table)
