"""One self-contained page: formulas, heat maps, a table and coloured text.

There is no script and no outside address.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

import pandas as pd

from ..objective.recipe import Recipe
from ..weights import Push
from .heatmap import drawn_rows, left_out, push_map
from .style import Picture
from .text import CSS, push_text

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>body{{font:15px/1.6 system-ui,sans-serif;max-width:80rem;margin:2rem auto;padding:0 1rem;
color:#1a1a1a;background:#fff}}
img{{max-width:100%;height:auto}} code{{background:#f3f3f3;padding:.1rem .3rem}}{css}</style></head>
<body><h1>{title}</h1>{body}</body></html>
"""


def report(pushes: Sequence[Push], table: pd.DataFrame) -> str:
    """The page for ``grpo-edu weights --out``.

    Args:
        pushes: one per recipe, on the same rollouts.
        table: one row per completion, with its number in the column ``completion``.
    """
    rows = drawn_rows(pushes)
    parts = [_formula(push.recipe) for push in pushes]
    for relative, caption in (
        (False, "as the optimiser sees it"),
        (True, "each recipe divided by its own total push"),
    ):
        image = push_map(pushes, relative=relative)
        alt = (
            f"Heat map of the signed gradient weight of every token, completions by position, "
            f"{caption}; numbers in the table."
        )
        parts.append(f"<h2>Every token, {caption}</h2>{_image(image, alt)}")
    parts.append("<h2>Per completion</h2>")
    if missing := left_out(pushes, rows):
        whole = "The table of all: grpo-edu weights FILE --csv."
        parts.append(f"<p>{escape(missing)} {whole}</p>")
    table = table.loc[table["completion"].isin(rows)]
    parts.append(table.to_html(index=False, float_format="{:.4g}".format, border=0, escape=True))
    if pushes[0].rollouts.tokens is not None:
        parts.append("<h2>On the text</h2>" + push_text(pushes))
    body = f'<div class="grpo-edu">{"".join(parts)}</div>'
    return PAGE.format(title="Gradient weight per token", css=CSS, body=body)


def verdict_page(title: str, text: str, picture: Picture) -> str:
    """The page for ``grpo-edu explain --out``: the verdict's text and the weights it is about."""
    alt = (
        "Heat map of the signed gradient weight of every token of four completions; "
        "the numbers are in the text."
    )
    body = f'<pre style="white-space:pre-wrap">{escape(text)}</pre>{_image(picture, alt)}'
    return PAGE.format(title=escape(title), css=CSS, body=body)


def _formula(recipe: Recipe) -> str:
    lines = "".join(
        f"<li>{escape(axis)}: <code>{escape(text)}</code></li>"
        for axis, text in recipe.formula().items()
        if text != "none"
    )
    source = f"<p>{escape(recipe.title)}. {escape(recipe.paper)}</p>"
    return f"<h2>{escape(recipe.name)}</h2>{source}<ul>{lines}</ul>"


def _image(picture: Picture, alt: str) -> str:
    data = base64.b64encode(picture.png()).decode()
    return f'<img alt="{alt}" src="data:image/png;base64,{data}">'
