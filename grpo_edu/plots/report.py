"""One self-contained page: formula, heat map, ledger extract and coloured text of some completions. No script, no address."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

import pandas as pd
from torch import Tensor

from ..objective.recipe import Recipe
from ..rollouts import Rollouts
from .heatmap import weight_map
from .style import Picture
from .text import CSS, weights_on_text

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<style>body{{font:15px/1.6 system-ui,sans-serif;max-width:80rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;background:#fff}}
img{{max-width:100%;height:auto}} code{{background:#f3f3f3;padding:.1rem .3rem}}{css}</style></head>
<body><h1>{title}</h1>{body}</body></html>
"""


def report(
    recipes: Sequence[Recipe],
    rollouts: Rollouts,
    table: pd.DataFrame,
    micro_batch: Tensor | None = None,
) -> str:
    """The page for ``grpo-edu weights --out``.

    Args:
        recipes: the losses, side by side.
        rollouts: the completions.
        table: one row per completion, made by ``summary``.
        micro_batch: ``[N]``.
    """
    parts = []
    for recipe in recipes:
        lines = "".join(
            f"<li>{escape(axis)}: <code>{escape(text)}</code></li>"
            for axis, text in recipe.formula().items()
            if text != "none"
        )
        parts.append(
            f"<h2>{escape(recipe.name)}</h2><p>{escape(recipe.title)}. {escape(recipe.paper)}</p><ul>{lines}</ul>"
        )
    for relative, caption in (
        (False, "as the optimiser sees it"),
        (True, "each recipe divided by its own total push"),
    ):
        image = base64.b64encode(
            weight_map(recipes, rollouts, micro_batch, relative=relative).png()
        ).decode()
        alt = f"Heat map of the signed gradient weight of every token, completions by position, {caption}; numbers in the table."
        parts.append(
            f'<h2>Every token, {caption}</h2><img alt="{alt}" src="data:image/png;base64,{image}">'
        )
    parts.append(
        "<h2>Per completion</h2>"
        + table.to_html(index=False, float_format="{:.4g}".format, border=0, escape=True)
    )
    if rollouts.tokens is not None:
        parts.append("<h2>On the text</h2>" + weights_on_text(recipes, rollouts, micro_batch))
    return PAGE.format(
        title="Gradient weight per token",
        css=CSS,
        body=f'<div class="grpo-edu">{"".join(parts)}</div>',
    )


def verdict_page(title: str, text: str, picture: Picture) -> str:
    """The page for ``grpo-edu explain --out``: the verdict's text and the weights it is about."""
    image = base64.b64encode(picture.png()).decode()
    alt = "Heat map of the signed gradient weight of every token of four completions; the numbers are in the text."
    body = f'<pre style="white-space:pre-wrap">{escape(text)}</pre><img alt="{alt}" src="data:image/png;base64,{image}">'
    return PAGE.format(title=escape(title), css=CSS, body=body)
