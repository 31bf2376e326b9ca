"""Real text, tokens coloured by their weight, as HTML. Every text is escaped; no script, no outside address."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import TwoSlopeNorm, to_hex
from torch import Tensor

from ..checks import Index, checked
from ..objective.catalog import AnyRecipe
from ..rollouts import Rollouts
from .heatmap import common_scale, panel_data
from .style import SIGNED

CSS = """
.grpo-edu{font:14px/1.7 system-ui,sans-serif;color:#1a1a1a;background:#fff;max-width:72rem}
.grpo-edu .row{margin:.5rem 0 1rem;padding:.3rem .6rem;border-left:3px solid #bbb}
.grpo-edu .head{font-size:12px;color:#444}
.grpo-edu .text{font-family:ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere}
.grpo-edu .text span{border-bottom:2px solid transparent;padding:1px 0}
.grpo-edu .up{border-bottom-color:#b35806!important}
.grpo-edu .down{border-bottom:2px dashed #542788!important}
.grpo-edu .clipped{background-image:repeating-linear-gradient(45deg,#888 0 1px,transparent 1px 5px)!important}
.grpo-edu .out{color:#767676;background:#ececec}
.grpo-edu table{border-collapse:collapse;font-size:12px}
.grpo-edu td,.grpo-edu th{padding:.15rem .6rem;text-align:right;border-bottom:1px solid #ddd}
.grpo-edu .side{display:grid;grid-template-columns:repeat(auto-fit,minmax(22rem,1fr));gap:1rem}
"""


class Html(str):
    """Text that a notebook shows as HTML."""

    def _repr_html_(self) -> str:
        return str(self)


@checked
def weights_on_text(
    recipes: Sequence[AnyRecipe],
    rollouts: Rollouts,
    micro_batch: Tensor | None = None,
    *,
    rows: Sequence[Index] | None = None,
    relative: bool = False,
) -> Html:
    """Completions as text, each token coloured by its signed weight, recipes side by side on one scale, with a legend.

    Args:
        recipes: one column each.
        rollouts: with ``tokens``; the weights are those of the whole step, also where only some rows are shown.
        micro_batch: ``[N]``.
        rows: completions to show; None: all.
        relative: weights in percent of each recipe's total push.

    Raises:
        ValueError: the rollouts carry no token texts, or a row does not exist.
    """
    if rollouts.tokens is None:
        raise ValueError(
            "rollouts.tokens is missing: expected the text of each token. Read a completions file, or give tokens=."
        )
    rows = range(len(rollouts)) if rows is None else rows
    if any(not 0 <= i < len(rollouts) for i in rows):
        raise ValueError(
            f"rows is {list(rows)}: expected completion numbers from 0 to {len(rollouts) - 1}."
        )
    panels = [panel_data(recipe, rollouts, micro_batch, relative) for recipe in recipes]
    norm = common_scale(panels)
    columns = [
        f"<div><h3>{escape(recipe.name)}</h3>"
        + "".join(_completion(i, rollouts, data, norm) for i in rows)
        + "</div>"
        for recipe, data in zip(recipes, panels, strict=True)
    ]
    unit = "% of the step's push" if relative else "gradient weight per token"
    body = f'{legend(norm, unit)}<div class="side">{"".join(columns)}</div>'
    return Html(f'<style>{CSS}</style><div class="grpo-edu">{body}</div>')


def legend(norm: TwoSlopeNorm, unit: str) -> str:
    """Five swatches, and what the underline and the hatching mean."""
    ends = np.linspace(norm.vmin or 0, norm.vmax or 0, 5)
    swatches = "".join(f'<td style="{_colour(value, norm)}">{value:+.3g}</td>' for value in ends)
    signs = '<span class="up">solid underline</span>: pushed up, <span class="down">dashed</span>: pushed down, '
    rest = (
        '<span class="clipped">hatched</span>: clipped, <span class="out">grey</span>: not trained'
    )
    return f'<table aria-label="legend"><tr><th>{unit}</th>{swatches}</tr></table><p class="head">{signs}{rest}</p>'


def _colour(value: float, norm: TwoSlopeNorm) -> str:
    red, green, blue, _ = colormaps[SIGNED](norm(value))
    ink = "#fff" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.5 else "#1a1a1a"
    return f"background:{to_hex((red, green, blue))};color:{ink}"


def _completion(i: int, rollouts: Rollouts, data: dict[str, np.ndarray], norm: TwoSlopeNorm) -> str:
    """One completion: what it was asked, how it fared, and its tokens."""
    assert rollouts.tokens is not None
    assert rollouts.scored is not None
    reward = f"{rollouts.reward[i].item():g}" if rollouts.scored[i] else "not scored"
    prompt = f" · prompt: {escape(_tail(rollouts.prompts[i]))}" if rollouts.prompts else ""
    numbers = f"push per token {_signed(data['mean'][i], '.3g')} · share of the step {_signed(100 * data['share'][i], '.1f')} %"
    head = f"completion {i} · reward {reward} · {int(data['mask'][i].sum())} tokens · {numbers}{prompt}"
    spans = (_token(text, i, t, data, norm) for t, text in enumerate(rollouts.tokens[i]))
    return f'<div class="row"><div class="head">{head}</div><div class="text">{"".join(spans)}</div></div>'


def _tail(prompt: str, longest: int = 70) -> str:
    """The end of a prompt, where its question stands."""
    line = " ".join(prompt.split())
    return line if len(line) <= longest else "… " + line[-longest:]


def _signed(value: float, form: str) -> str:
    return format(value, "+" + form) if value else "0"


def _token(text: str, i: int, t: int, data: dict[str, np.ndarray], norm: TwoSlopeNorm) -> str:
    shown = escape(text).replace("\n", "↵\n")
    if t >= data["mask"].shape[1] or not data["mask"][i, t]:
        return f'<span class="out" title="not trained">{shown}</span>'
    push = data["push"][i, t]
    sign = "up" if push > 0 else "down" if push < 0 else ""
    kind = f"{sign} clipped" if data["clipped"][i, t] else sign
    return f'<span data-token="{i},{t}" class="{kind}" style="{_colour(push, norm)}" title="token {t}: {push:+.6g}">{shown}</span>'
