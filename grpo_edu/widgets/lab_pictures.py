"""Pictures of the labs: small, since they are drawn anew for every move of a control. Numbers in,
pictures out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..plots.style import (
    DASHES,
    GREY,
    MARKERS,
    RECIPES,
    RIGHT,
    SERIES,
    WRONG,
    Picture,
    ink,
    picture,
    quiet,
    rule,
)
from ..theory.clip import reach
from ..theory.difficulty import silent_probability

if TYPE_CHECKING:
    import pandas as pd


BOX = (-5.0, 0.5)  # stop logits that the phase portrait shows


def _figure(width: float = 8.0, height: float = 3.0) -> Picture:
    """Plain margins: a constrained layout takes as long as the drawing itself."""
    figure = Picture(figsize=(width, height))
    figure.subplots_adjust(left=0.08, right=0.98, bottom=0.17, top=0.87, wspace=0.25)
    return figure


def _title(figure: Picture, text: str, level: str = "exact") -> None:
    figure.suptitle(text, x=0.01, y=0.985, ha="left", va="top", fontsize=11)
    figure.text(0.01, 0.01, level, ha="left", va="bottom", fontsize=8.5, color=quiet())


@picture
def kl_bars(
    gradients: Mapping[str, float],
    true: Mapping[str, float],
    values: Mapping[str, Sequence[float]],
    reverse: float,
) -> Picture:
    """Left: each estimator on action 1, action 2, and on average. Right: expected gradient by the
    logit of action 1.

    Args:
        gradients: expected gradient by estimator and place.
        true: gradients of the two KLs, drawn as lines.
        values: action 1, action 2, mean, by estimator.
        reverse: the reverse KL, which the mean should be.
    """
    figure = _figure(9.0, 3.4)
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.07, wspace=0.5)
    for k, (name, line) in enumerate(values.items()):
        left.bar(np.arange(3) + 0.26 * (k - 1), line, width=0.24, color=SERIES[k], label=name)
    left.plot([1.6, 2.4], [reverse, reverse], color=ink(), linestyle="--", label="reverse KL")
    rule(left)
    left.set_xticks(range(3), ["action 1", "action 2", "mean under π"])
    left.set_ylabel("value of the estimator")
    left.legend(fontsize=8.5)
    places = range(len(gradients))
    right.barh(places, list(gradients.values()), color=SERIES[2], height=0.6)
    for i, (name, value) in enumerate(true.items()):
        right.axvline(
            value, color=SERIES[i], linestyle=DASHES[2 * i + 1], label=f"{name} {value:+.3f}"
        )
    rule(right, vertical=True)
    right.set_yticks(
        places,
        [f"{name} {round(value, 9) + 0.0:+.3f}" for name, value in gradients.items()],
        fontsize=8.5,
    )
    right.invert_yaxis()
    right.set_xlabel("expected gradient by the logit of action 1")
    right.legend(fontsize=8.5, loc="lower center", bbox_to_anchor=(0.4, 0.99), ncols=2)
    _title(figure, "In the loss k1 pulls nowhere, k2 as the reverse KL, k3 as the forward one")
    return figure


@picture
def factors_of_split(
    factors: Sequence[float], lengths: Sequence[int], parts: Sequence[int], name: str, local: bool
) -> Picture:
    """Weight of each completion under the split over its weight in the whole step; 1 where the
    split does not matter."""
    figure = _figure(8.0, 3.0)
    panel = figure.subplots()
    panel.bar(range(len(factors)), factors, color=[SERIES[p % 6] for p in parts], width=0.7)
    for i, factor in enumerate(factors):
        panel.text(i, factor, f"{factor:.2f}", ha="center", va="bottom", fontsize=8)
    panel.axhline(1, color=ink(), linestyle="--", linewidth=0.9)
    panel.set_xticks(
        range(len(factors)),
        [f"|o|={n}\nslice {p + 1}" for n, p in zip(lengths, parts, strict=True)],
        fontsize=8.5,
    )
    panel.set_ylabel("weight / weight in the whole step")
    panel.set_ylim(0, 1.15 * max(1.0, *factors))
    figure.subplots_adjust(bottom=0.2)
    worst = max(abs(f - 1) for f in factors)
    effect = (
        "the split does not matter"
        if worst < 1e-9
        else f"the split moves weights by up to ×{max(*factors, 1 / min(factors)):.2f}"
    )
    _title(
        figure,
        f"{name}, {'each micro-batch by itself' if local else 'planned once for the whole step'}: "
        f"{effect}",
    )
    return figure


@picture
def reach_of_clip(eps_high: float, now: float) -> Picture:
    """Room until the clip stops a rising token, against its old probability; ``now`` is marked."""
    figure = _figure()
    panel = figure.subplots()
    old = np.linspace(0.001, 0.999, 200)
    for k, eps in enumerate((0.2, eps_high)):
        room = [min(1.0, reach(p, eps)) - p for p in old]
        panel.plot(
            old,
            room,
            color=RECIPES[("grpo", "dapo")[k]].colour,
            linestyle=DASHES[1 - k],
            label=f"eps high {eps:.2f}",
        )
    panel.set(xlabel="old probability of the token", ylabel="room to rise in one rollout")
    panel.axvline(now, color="#666666", linestyle=":", linewidth=0.9)
    panel.legend()
    _title(
        figure,
        "The room grows with the old probability: a token at .01 may rise to "
        f"{reach(0.01, eps_high):.4f}, one at .5 to {reach(0.5, eps_high):.2f}",
    )
    return figure


@picture
def dynamic_sampling(p: float, size: int) -> Picture:
    """Share of live groups by pass rate, and how many groups have to be sampled for one that is
    live."""
    figure = _figure()
    left, right = figure.subplots(1, 2)
    grid = np.linspace(0.01, 0.99, 99)
    live = np.array([1 - silent_probability(q, size) for q in grid])
    here = 1 - silent_probability(p, size)
    left.plot(grid, live, color=SERIES[2])
    left.plot(p, here, "o", color=SERIES[1])
    left.set(xlabel="pass rate p", ylabel="share of live groups", ylim=(0, 1.02))
    right.semilogy(grid, 1 / live, color=SERIES[2])
    right.plot(p, 1 / here, "o", color=SERIES[1])
    right.set(xlabel="pass rate p", ylabel="groups sampled per live one")
    _title(
        figure,
        f"At p = {p:.2f}, G = {size}: {100 * here:.0f} % of the groups are live, {1 / here:.1f} "
        "are sampled for each that trains",
    )
    return figure


@picture
def share_by_length(longest: int, shares: Mapping[str, float]) -> Picture:
    """Share of the step's push of one long completion among eight, under each aggregation."""
    figure = _figure(8.0, 2.2)
    panel = figure.subplots()
    panel.barh(range(len(shares)), [100 * s for s in shares.values()], color=SERIES[: len(shares)])
    panel.set_yticks(range(len(shares)), list(shares))
    panel.invert_yaxis()
    panel.axvline(100 / 8, color=ink(), linestyle="--", linewidth=0.9)
    panel.set(xlabel="share of the step, % (dashed: one completion of eight)", xlim=(0, 100))
    figure.subplots_adjust(left=0.3, bottom=0.22, top=0.82)
    _title(
        figure, f"One completion of {longest} tokens among seven of 8: how much of the step is it?"
    )
    return figure


@picture
def overlong(cache: int, limit: int = 20480) -> Picture:
    """The soft penalty against the length of a completion."""
    figure = _figure()
    panel = figure.subplots()
    panel.plot(
        [0, limit - cache, limit, 1.1 * limit],
        [0, 0, -1, -1],
        color=RECIPES["dapo"].colour,
        linewidth=2,
    )
    panel.axvline(limit, color=GREY, linestyle=":", label=f"limit {limit}")
    panel.set(xlabel="tokens of the completion", ylabel="added to the reward", ylim=(-1.1, 0.1))
    panel.legend()
    _title(
        figure, f"The penalty starts at {limit - cache} tokens; with cache 0 it would be a cliff"
    )
    return figure


@picture
def phase_portrait(table: pd.DataFrame, arrows: np.ndarray, step: int, name: str) -> Picture:
    """Left: paths of the seeds over both stop logits, the expected first update as arrows. Right:
    lengths; the title has the pass rate.

    Args:
        table: of ``toys.stopping.train``, one recipe.
        arrows: ``[K, 4]`` stop logit right, wrong, and the expected update of each.
        step: what is drawn up to.
        name: of the recipe.
    """
    figure = _figure(9.0, 3.6)
    left, right = figure.subplots(1, 2)
    left.quiver(*arrows.T, color=GREY, width=0.005)
    past: Any = table[table["step"] <= step]
    for seed in past["seed"].unique():
        path = past[past["seed"] == seed]
        left.plot(path["stop_right"], path["stop_wrong"], color=SERIES[0], linewidth=0.6, alpha=0.5)
    mean = past.groupby("step")[
        ["stop_right", "stop_wrong", "length_right", "length_wrong", "pass_rate"]
    ].mean()
    left.plot(mean["stop_right"], mean["stop_wrong"], color=SERIES[1], linewidth=2)
    left.plot(mean["stop_right"].iloc[-1], mean["stop_wrong"].iloc[-1], "o", color=SERIES[1])
    left.plot(BOX, BOX, color=GREY, linestyle=":", linewidth=0.9)
    left.set(xlabel="stop logit, right", ylabel="stop logit, wrong", xlim=BOX, ylim=BOX)
    last = max(table["step"].tolist())
    for side in (RIGHT, WRONG):
        right.plot(
            mean.index,
            mean[f"length_{side.label}"],
            color=side.colour,
            marker=side.marker,
            markersize=3,
            label=side.label,
        )
    right.set(xlabel="step", ylabel="expected tokens", xlim=(0, last), ylim=(0, 34))
    right.legend()
    now = mean.iloc[-1]
    lengths = f"right {now['length_right']:.1f} tokens, wrong {now['length_wrong']:.1f}"
    text = f"{name}, step {step}: pass rate {now['pass_rate']:.2f}, {lengths}"
    _title(
        figure,
        text,
        f"paths simulated, {table['seed'].nunique()} seeds, mean bold; arrows exact, at the start",
    )
    return figure


@picture
def run_curve(steps: Sequence[float], values: Sequence[float], name: str, step: int) -> Picture:
    """One column of a run's log against its steps, the chosen step marked. Level of evidence:
    observed, one run."""
    figure = _figure(8.0, 2.6)
    panel = figure.subplots()
    panel.plot(steps, values, color=SERIES[2], marker=MARKERS[0], markersize=3)
    panel.axvline(step, color=SERIES[1], linestyle="--", linewidth=1)
    panel.set(xlabel="step", ylabel=name)
    figure.subplots_adjust(bottom=0.2)
    _title(figure, f"{name} of the run, step {step} marked", "observed, one run")
    return figure
