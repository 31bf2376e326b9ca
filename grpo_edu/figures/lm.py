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
    title="About the same reward for the same tokens: what 1/|o| adds to wrong answers it takes "
    "from right ones",
    level="observed, 3 seeds, 95 % interval",
    caption="observed: lab task with learnable errors, 3 seeds, 95 % interval (wide where one seed "
    "of Dr. GRPO falls to 0.54)",
    alt="Left: pass rate against tokens sampled, five losses: the curves coincide, from .49 to "
    ".72. Right: length of right and of wrong answers and mean length at the end: under 1/|o| "
    "right ones are shorter and wrong ones longer, and the mean is 15 to 17.5 tokens under all.",
    answers="Dr. GRPO (arXiv 2503.20783), Figure 1, right: token efficiency",
    data=rising_data,
    recorded=True,
)
def lm_token_efficiency(table: pd.DataFrame) -> Figure:
    """Pass rate against tokens; lengths at the end."""
    return plots.token_efficiency(table)


def gradient_data() -> pd.DataFrame:
    """Gradient norms by group size and share of right answers, with intervals over runs."""
    return analysis.gradient_norms(recorded("difficulty-gradients"))


@figure(
    title="With the std a group's gradient is nearly as large at every pass rate; without it it "
    "falls at both ends",
    level="observed, 5 seeds x 2 warm starts, 95 % interval",
    caption="observed at two warm starts of the lab's model, 5 seeds each, 95 % interval",
    alt="Three panels, G = 8, 32, 64: gradient norm of a group against its share of right "
    "answers. Divided by the std it stays between .83 and 1.24 of that of a half right group; "
    "without, it falls to between .55 and .73 where one in eight is right or wrong.",
    answers="Dr. GRPO (arXiv 2503.20783), question-level difficulty bias, at the group sizes in "
    "use",
    data=gradient_data,
    recorded=True,
)
def lm_difficulty_gradients(table: pd.DataFrame) -> Figure:
    """Relative gradient norm against the share of right answers, two lines per group size."""
    return plots.difficulty_gradients(table)
