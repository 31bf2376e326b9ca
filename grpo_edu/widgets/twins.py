"""The static twins of the explorers: what the live ones draw, by matplotlib, from the library's own
numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median_high

import numpy as np
import torch
from torch import Tensor

from ..objective import axes
from ..plots.style import DASHES, DOWN, SERIES, UP, Picture, evidence, headline, new_figure, picture
from ..theory.clip import pushes
from ..theory.difficulty import frames, objective_of, prompt_weight_of, silent_probability


@picture
def advantage_bars(
    advantages: Mapping[str, Sequence[float]], rewards: Sequence[float], group: Sequence[int]
) -> Picture:
    """One line of bars per estimator, one bar per completion, all on one scale. A bar longer than
    one and a half of the middle line's longest is cut; its number holds.

    Args:
        advantages: N numbers by estimator.
        rewards, group: N.

    Raises:
        ValueError: no estimator has an answer.
    """
    if not advantages:
        raise ValueError("advantages is empty: expected at least one estimator with an answer.")
    figure = new_figure(max(6.0, 2.5 + 0.7 * len(rewards)), 0.9 + 0.55 * len(advantages))
    longest = [largest for line in advantages.values() if (largest := max(map(abs, line)))]
    limit = 1.5 * median_high(longest or [1.0])
    panels = figure.subplots(len(advantages), 1, sharex=True, squeeze=False)[:, 0]
    for panel, (name, line) in zip(panels, advantages.items(), strict=True):
        panel.bar(
            range(len(line)),
            [max(-limit, min(a, limit)) for a in line],
            width=0.6,
            color=[UP if a > 0 else DOWN for a in line],
        )
        panel.axhline(0, color="#666666", linewidth=0.6)
        for i, a in enumerate(line):
            panel.text(
                i,
                max(-limit, min(a, limit)),
                f"{a:+.3g}" if a else "0",
                ha="center",
                va="top" if a < 0 else "bottom",
                fontsize=9,
            )
        panel.set(ylim=(-1.7 * limit, 1.7 * limit), yticks=[])
        panel.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9)
        for i in range(1, len(group)):
            if group[i] != group[i - 1]:
                panel.axvline(i - 0.5, color="#333333", linewidth=0.8)
    panels[-1].set_xticks(
        range(len(rewards)), [f"{i + 1}: r={r:g}" for i, r in enumerate(rewards)], fontsize=9
    )
    headline(figure, "One group of rewards, many advantages")
    evidence(figure, "exact")
    return figure


@picture
def difficulty_curves(gaps: Mapping[str, Tensor], p: float, frame: str) -> Picture:
    """Weight, objective and probability of a dead group against the pass rate, with the marked one.

    Args:
        gaps: ``[G]`` by scheme, of ``theory.difficulty.gaps``.
        p: the marked pass rate.
        frame: a key of ``theory.difficulty.frames``.
    """
    figure = new_figure(10.0, 3.4)
    grid = np.linspace(0.01, 0.99, 99)
    left, middle, right = figure.subplots(1, 3)
    size = len(next(iter(gaps.values()))) if gaps else 0
    for k, (name, gap) in enumerate(gaps.items()):
        style = {"color": SERIES[k], "linestyle": DASHES[k], "label": name}
        left.plot(grid, [frames(prompt_weight_of(gap, q), q)[frame] for q in grid], **style)
        middle.plot(grid, [objective_of(gap, q) for q in grid], **style)
    right.plot(grid, [silent_probability(q, size) for q in grid], color=SERIES[0])
    left.set(ylabel=f"weight (yardstick: {frame})", ylim=(None, min(8.0, left.get_ylim()[1])))
    middle.set(ylabel="objective h, h′ = w", ylim=(None, min(8.0, middle.get_ylim()[1])))
    right.set(ylabel="dead groups", ylim=(0, 1.02))
    for panel in (left, middle, right):
        panel.axvline(p, color="#666666", linestyle=":", linewidth=0.9)
        panel.set_xlabel("pass rate p")
    left.legend()
    headline(figure, f"The weight of a prompt by its pass rate, G = {size}")
    evidence(figure, "exact")
    return figure


@picture
def clip_curves(
    surrogates: Mapping[str, axes.Choice], advantage: int, ratio: float, band: tuple[float, float]
) -> Picture:
    """Gradient by log π of one token against its ratio, by autograd, with the marked ratio and the
    band of the clip.

    Args:
        surrogates: choices by name, their settings bound.
        advantage: of the token.
        ratio: the marked one.
        band: 1 - eps_low and 1 + eps_high.
    """
    figure = new_figure(6.5, 3.8)
    grid = torch.linspace(0.05, 4.0, 396, dtype=torch.float64)
    panel = figure.subplots()
    for k, (name, choice) in enumerate(surrogates.items()):
        panel.plot(
            grid,
            pushes(choice, grid, float(advantage)),
            color=SERIES[k],
            linestyle=DASHES[k],
            label=name,
        )
    for edge in band:
        panel.axvline(edge, color="#999999", linestyle="--", linewidth=0.8)
    panel.axvline(ratio, color="#666666", linestyle=":", linewidth=0.9)
    panel.axhline(0, color="#666666", linewidth=0.6)
    panel.set(xlabel="importance ratio ρ", ylabel="gradient by log π: A · ratio · gate")
    panel.legend()
    headline(figure, f"How hard one token is pushed, A = {advantage:+d}")
    evidence(figure, "exact")
    return figure


@picture
def step_bars(
    before: Sequence[float], after: Mapping[str, Sequence[float]], vocabulary: Sequence[str]
) -> Picture:
    """Probabilities of a vocabulary before and after one step, one panel per recipe.

    Args:
        before: V probabilities.
        after: V probabilities by recipe.
        vocabulary: V texts.
    """
    figure = new_figure(2.6 * max(2, len(after)), 2.8)
    panels = figure.subplots(1, len(after), sharey=True, squeeze=False)[0]
    places = np.arange(len(before))
    for panel, (name, line) in zip(panels, after.items(), strict=True):
        colours = [UP if q >= p else DOWN for p, q in zip(before, line, strict=True)]
        panel.bar(places - 0.2, before, width=0.38, color="#b4b4b4")
        panel.bar(places + 0.2, line, width=0.38, color=colours)
        panel.set_xticks(places, vocabulary)
        panel.set_title(name)
    panels[0].set_ylabel("probability")
    headline(figure, "Before (grey) and after one step: orange is more probable, purple less")
    evidence(figure, "exact")
    return figure
