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
    title="With 1/|o| wrong answers grow and right ones shrink; without it both keep their length",
    level="observed, 5 seeds x 2 warm starts (control: 3 seeds), 95 % interval",
    alt="Three panels. Under GRPO wrong answers grow from 16 to about 40 tokens in 60 steps and "
    "right ones shrink from 14 to 9; under Dr. GRPO both stay; at the end wrong answers are some "
    "28 tokens longer under both losses with 1/|o| and under no other; ends of all runs with "
    "intervals, placebo and control beside them.",
    answers="Dr. GRPO (arXiv 2503.20783), length of right and wrong answers over training; "
    "one-seed runs in peers",
    data=length_data,
    recorded=True,
)
def lm_length(table: pd.DataFrame) -> Figure:
    """Lengths given right and wrong, gap at the end."""
    main = table.loc[~table["arm"].str.startswith(CONTROL)]
    ends = table.loc[table["step"] > table["step"].max() - analysis.LAST]
    ends = ends.groupby(analysis.RUN, sort=False)["gap"].mean().reset_index()
    return plots.lab_lengths(main, ends)


def rising_data() -> pd.DataFrame:
    """Every run of ``length-rising`` over training, with tokens sampled so far."""
    return analysis.curves(recorded("length-rising"))


@figure(
    title="Five losses, one pass rate for about as many tokens: 1/|o| lengthens wrong answers and "
    "shortens right ones",
    level="observed, 3 seeds, 95 % interval",
    caption="observed: lab task with learnable errors, at the end of training, 3 seeds, 95 % "
    "interval; tokens: sampled in all",
    alt="Three columns of five losses. Pass rates end at .72, after 113 to 119 thousand tokens. "
    "Under 1/|o| right answers have 9 tokens and wrong ones 38 to 40; under the others both have "
    "14 to 17; the mean of all is 15 to 17.5 tokens under all.",
    answers="Dr. GRPO (arXiv 2503.20783), Figure 1, right: token efficiency",
    data=rising_data,
    recorded=True,
)
def lm_token_efficiency(table: pd.DataFrame) -> Figure:
    """Pass rate, tokens, and lengths at the end."""
    return plots.token_efficiency(table)


def gradient_data() -> pd.DataFrame:
    """Gradient norms by group size and share of right answers, with intervals over runs."""
    return analysis.gradient_norms(recorded("difficulty-gradients"))


@figure(
    title="Where one answer in eight is right or wrong, a group's gradient is a quarter to a "
    "half smaller; division by the std lifts it again",
    level="observed, 5 seeds x 2 warm starts, 95 % interval",
    caption="observed at two warm starts of the lab's model, 5 seeds each, 95 % interval; "
    "gradient: its norm, relative to a group that is half right",
    alt="Three panels, G = 8, 32, 64: gradient norm of a group against its share of right "
    "answers. Divided by the std it stays between .82 and 1.26 of that of a half right group; "
    "without, it falls to between .54 and .75 where one in eight is right or wrong.",
    answers="Dr. GRPO (arXiv 2503.20783), question-level difficulty bias, at the group sizes in "
    "use",
    data=gradient_data,
    recorded=True,
)
def lm_difficulty_gradients(table: pd.DataFrame) -> Figure:
    """Relative gradient norm against the share of right answers, two lines per group size."""
    return plots.difficulty_gradients(table)
