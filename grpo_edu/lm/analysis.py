"""What recorded experiments say: lengths given right and wrong, the level-adjusted gap, intervals
over seeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..statistics import intervals

if TYPE_CHECKING:
    import pandas as pd

    from .experiments import Experiment

RUN = ["arm", "warm", "seed"]
LAST = 15  # steps over which the end of a run is read


def curves(table: pd.DataFrame) -> pd.DataFrame:
    """One row per run and recorded step: ``pass_rate``, ``length_right``, ``length_wrong``,
    ``length``, ``gap``.

    ``gap`` is level-adjusted: the mean over levels of length given wrong minus length given right.
    Hard levels have more wrong answers and, having more digits, longer ones; within a level that
    cannot be mistaken for an effect.
    """
    return _lengths(table, [*RUN, "step"])


def ends(table: pd.DataFrame, last: int = LAST) -> pd.DataFrame:
    """One row per run: the same over its last steps."""
    return _lengths(table.loc[table["step"] > table["step"].max() - last], RUN)


def gap_intervals(table: pd.DataFrame, last: int = LAST) -> pd.DataFrame:
    """Mean and 95 % interval of the gap over seeds: ``arm, warm, mean, low, high, seeds``."""
    return intervals(ends(table, last), "gap", by=["arm", "warm"])


def _lengths(table: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    counts = ["right", "wrong", "tokens_right", "tokens_wrong"]
    per_level: Any = table.groupby([*by, "level"], sort=False)[counts].sum()
    gap = (
        per_level["tokens_wrong"] / per_level["wrong"]
        - per_level["tokens_right"] / per_level["right"]
    )
    total: Any = per_level.groupby(by, sort=False).sum()
    shared: Any = table.groupby(by, sort=False)[
        ["entropy", "tokens", "truncated", "gradient_norm", "norm_clipped"]
    ].agg("mean")
    total["pass_rate"] = total["right"] / (total["right"] + total["wrong"])
    for side in ("right", "wrong"):
        total[f"length_{side}"] = total[f"tokens_{side}"] / total[side]
    total["length"] = (total["tokens_right"] + total["tokens_wrong"]) / (
        total["right"] + total["wrong"]
    )
    total["gap"] = gap.groupby(by, sort=False).mean()
    return total.join(shared).reset_index()


def gradient_ratios(table: pd.DataFrame) -> pd.DataFrame:
    """Mean gradient norm by group size and number of right answers:
    ``arm, right, groups, share, norm_none, norm_std, ratio``.
    """
    means: Any = table.groupby(["arm", "right"])[["norm_none", "norm_std"]].mean()
    means.insert(0, "groups", table.groupby(["arm", "right"]).size())
    means = means.reset_index()
    means["share"] = means["right"] / means["arm"].astype(int)
    means["ratio"] = means["norm_std"] / means["norm_none"]
    return means.sort_values(
        "arm", key=lambda column: column.astype(int), kind="stable"
    ).reset_index(drop=True)


def gradient_norms(table: pd.DataFrame) -> pd.DataFrame:
    """Gradient norm of a group by its share of right answers (nearest eighth) over that of a group
    half right, with and without the std, 95 % interval over runs:
    ``arm, share, scale, mean, low, high, seeds``.
    """
    share = (8 * table["right"] / table["arm"].astype(int)).round().clip(1, 7) / 8
    long = table.assign(share=share).melt(
        [*RUN, "share"], ["norm_none", "norm_std"], "scale", "norm"
    )
    of_runs: Any = long.groupby([*RUN, "share", "scale"])["norm"].mean()
    means = of_runs.reset_index()
    middle = means[means["share"] == 0.5].groupby(["arm", "scale"])["norm"].mean()
    means["norm"] /= [middle[key] for key in zip(means["arm"], means["scale"], strict=True)]
    return intervals(means, "norm", by=["arm", "share", "scale"])


def report(experiment: Experiment, table: pd.DataFrame) -> str:
    """The result as text, with its level of evidence."""
    import pandas as pd

    if "norm_std" in table:
        shown = gradient_ratios(table)
        text = f"mean gradient norm of one group at the warm start, observed, {len(table)} groups"
    else:
        rows = ends(table)
        columns = ["pass_rate", "length_right", "length_wrong", "entropy"]
        grouped: Any = rows.groupby(["arm", "warm"], sort=False)[columns].mean()
        shown = grouped.reset_index()
        gap = gap_intervals(table)
        shown["gap"] = [
            f"{mean:.2f} [{low:.2f}, {high:.2f}]"
            for mean, low, high in gap[["mean", "low", "high"]].to_numpy()
        ]
        text = (
            f"last {LAST} of {experiment.settings.steps} steps, observed, "
            f"{len(experiment.seeds)} seeds; gap: wrong - right, level-adjusted, tokens"
        )
    with pd.option_context(
        "display.width", 200, "display.max_columns", 30, "display.max_rows", 200
    ):
        return f"{experiment.title}\n{text}\n" + shown.round(3).to_string(index=False)


def learning_by_level(table: pd.DataFrame, first: int = 20) -> pd.DataFrame:
    """Pass rate per level over the first steps, mean and 95 % interval over runs:
    ``arm, level, mean, low, high, seeds``.
    """
    early: Any = (
        table.loc[table["step"] <= first]
        .groupby([*RUN, "level"], sort=False)[["right", "wrong"]]
        .sum()
    )
    early["pass_rate"] = early["right"] / (early["right"] + early["wrong"])
    return intervals(early.reset_index(), "pass_rate", by=["arm", "level"])
