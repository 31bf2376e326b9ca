"""A token tree: every prefix with its value, every next token with its advantage."""

from __future__ import annotations

import torch

from ..checks import checked
from ..theory.mdp import Logits, Rewards, advantages, spelt, values, words
from .style import GREY, Picture, evidence, headline, new_figure, picture, signed, symmetric

PLAIN = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"}


@picture
@checked
def token_tree(
    logits: Logits, reward: Rewards, vocabulary: str, *, title: str | None = None
) -> Picture:
    """Prefixes from left to right. In a box: the prefix and its V; on an edge: A = Q - V of that
    token, orange above 0, purple below.

    Args:
        logits: one tensor per depth, ``[V^d, V]`` (``theory.mdp``).
        reward: ``[V^T]`` of every completion.
        vocabulary: one character per token.
        title: the sentence to take home; None: a neutral one.
    """
    spelt(vocabulary, logits)
    horizon = len(logits)
    width = len(vocabulary)
    v = values(logits, reward)
    a = advantages(logits, reward)
    norm = symmetric(torch.cat([table.reshape(-1) for table in a]).tolist())
    colours = signed()
    figure = new_figure(8.4, 0.8 + 0.45 * len(reward))
    panel = figure.subplots()
    for depth, table in enumerate(a):
        for child, gap in enumerate(table.reshape(-1).tolist()):
            start = _height(child // width, depth, width, horizon)
            end = _height(child, depth + 1, width, horizon)
            panel.plot(
                (depth, depth + 1),
                (start, end),
                color=colours(norm(gap)) if gap else GREY,
                linewidth=3 if gap else 1.2,
                linestyle="-" if gap else ":",
                zorder=1,
            )
            place = (depth + 0.55, 0.45 * start + 0.55 * end)
            panel.annotate(
                f"{gap:+.3f}" if gap else "0",
                place,
                ha="center",
                va="center",
                fontsize=8.5,
                zorder=3,
                bbox=PLAIN,
            )
    for depth, column in enumerate(v):
        for i, (prefix, value) in enumerate(
            zip(words(vocabulary, depth), column.tolist(), strict=True)
        ):
            label = f"{prefix or 'start'}: V = {value:.3f}"
            if depth == horizon:
                label = f"{prefix}: r = {value:g}"
            box = {"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": GREY}
            panel.text(
                depth,
                _height(i, depth, width, horizon),
                label,
                ha="center",
                va="center",
                fontsize=8.5,
                bbox=box,
                zorder=2,
            )
    panel.set(
        xlim=(-0.35, horizon + 0.35), xticks=range(horizon + 1), yticks=[], xlabel="tokens written"
    )
    panel.invert_yaxis()
    panel.spines[:].set_visible(False)
    headline(figure, title or "Every prefix with its value, every token with its advantage Q - V")
    evidence(figure, "exact")
    return figure


def _height(number: int, depth: int, width: int, horizon: int) -> float:
    """Middle of the leaves below a prefix."""
    below = width ** (horizon - depth)
    return number * below + (below - 1) / 2
