"""Real text in cells: one cell per token, coloured by its push, lines broken between tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.patches import Rectangle

from .style import paper, pushed, signed

LETTERS = 24  # in a line
HEIGHT = 1.6  # of a line, in widths of a letter


def draw_answers(
    axis: Axes, answers: Iterable[tuple[Sequence[str], Sequence[float]]], norm: TwoSlopeNorm
) -> list[float]:
    """Answers one below the other, push per token and share of each below it. Returns where each
    begins.

    Args:
        axis: drawn on; its ticks and frame go.
        answers: tokens, and the push of each in percent of the step.
        norm: the scale of the colours.
    """
    top = 0.0
    tops = []
    for tokens, percent in answers:
        tops.append(top)
        bottom = _tokens(axis, list(tokens), list(percent), norm, top)
        mean = sum(percent) / len(percent)
        text = f"{mean:+.1f} % per token, {sum(percent):+.0f} % in all"
        text = text.replace("-", "−")
        how: dict[str, Any] = {"color": pushed(mean), "fontweight": "bold", "fontsize": 8.5}
        axis.text(0, bottom + 0.3, text, va="top", **how)
        top = bottom + 2.6
    axis.set(xlim=(0, LETTERS), ylim=(top - 1, -0.2), xticks=[])
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    return tops


def _tokens(
    axis: Axes, tokens: list[str], percent: list[float], norm: TwoSlopeNorm, top: float
) -> float:
    """The cells of one answer. Returns where its last line ends."""
    x = 0
    for token, value in zip(tokens, percent, strict=True):
        if x + len(token) > LETTERS:
            x = 0
            top += HEIGHT
        red, green, blue, _ = signed()(norm(value))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
        style: dict[str, Any] = {
            "facecolor": (red, green, blue),
            "edgecolor": paper(),
            "linewidth": 1.5,
        }
        axis.add_patch(Rectangle((x, top), len(token), HEIGHT - 0.15, **style))
        middle = (x + len(token) / 2, top + HEIGHT / 2 - 0.08)
        how: dict[str, Any] = {
            "ha": "center",
            "va": "center",
            "family": "monospace",
            "fontsize": 8.5,
        }
        axis.text(*middle, token.strip(), color="white" if dark else "#1f2328", **how)
        x += len(token)
    return top + HEIGHT
