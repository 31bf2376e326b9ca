"""Real text, tokens coloured by their push, as HTML.

Every text is escaped; there is no script and no outside address.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import TwoSlopeNorm, to_hex
from torch import Tensor

from ..checks import Index, checked
from ..objective.catalog import AnyRecipe
from ..rollouts import Rollouts
from ..weights import Push
from .heatmap import Panel, common_scale, drawn_rows, left_out, panel_data
from .style import SIGNED

CSS = """
.grpo-edu{font:14px/1.7 system-ui,sans-serif;color:#1a1a1a;background:#fff;max-width:72rem}
.grpo-edu .row{margin:.5rem 0 1rem;padding:.3rem .6rem;border-left:3px solid #bbb}
.grpo-edu .head{font-size:12px;color:#444}
.grpo-edu .text{font-family:ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere}
.grpo-edu .text span{border-bottom:2px solid transparent;padding:1px 0}
.grpo-edu .up{border-bottom-color:#b35806!important}
.grpo-edu .down{border-bottom:2px dashed #542788!important}
.grpo-edu .clipped{background-image:
repeating-linear-gradient(45deg,#888 0 1px,transparent 1px 5px)!important}
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
    """Completions as text, each token coloured by its signed push.

    Recipes stand side by side on one scale, with a legend.

    Args:
        recipes: one column each.
        rollouts: with ``tokens``; the weights are those of the whole step, also where only some
            rows are shown.
        micro_batch: ``[N]``.
        rows: completions to show; None: those that ``weight_map`` draws, which are all where
            there are not many.
        relative: weights in percent of each recipe's total push.

    Raises:
        ValueError: the rollouts carry no token texts, or a row does not exist.
    """
    if rollouts.tokens is None:
        raise ValueError(
            "rollouts.tokens is missing: expected the text of each token. "
            "Read a completions file, or give tokens=."
        )
    if rows is not None and any(not 0 <= i < len(rollouts) for i in rows):
        raise ValueError(
            f"rows is {list(rows)}: expected completion numbers from 0 to {len(rollouts) - 1}."
        )
    pushes = [Push.of(recipe, rollouts, micro_batch) for recipe in recipes]
    drawn = drawn_rows(pushes)
    missing = left_out(pushes, drawn) if rows is None else ""
    norm = common_scale([panel_data(push, drawn, relative) for push in pushes])
    numbers = drawn if rows is None else rows
    columns = [
        f"<div><h3>{escape(push.recipe.name)}</h3>"
        + "".join(_completions(push, numbers, norm, relative))
        + "</div>"
        for push in pushes
    ]
    unit = "% of the step's push" if relative else "push per token"
    note = f"<p>{escape(missing)}</p>" if missing else ""
    body = f'{legend(norm, unit)}{note}<div class="side">{"".join(columns)}</div>'
    return Html(f'<style>{CSS}</style><div class="grpo-edu">{body}</div>')


def legend(norm: TwoSlopeNorm, unit: str) -> str:
    """Five swatches, and what the underline and the hatching mean."""
    ends = np.linspace(norm.vmin or 0, norm.vmax or 0, 5)
    swatches = "".join(f'<td style="{_colour(value, norm)}">{value:+.3g}</td>' for value in ends)
    marks = ", ".join(
        f'<span class="{name}">{mark}</span>: {meaning}'
        for name, mark, meaning in (
            ("up", "solid underline", "pushed up"),
            ("down", "dashed", "pushed down"),
            ("clipped", "hatched", "clipped"),
            ("out", "grey", "not trained"),
        )
    )
    table = f'<table aria-label="legend"><tr><th>{unit}</th>{swatches}</tr></table>'
    return f'{table}<p class="head">{marks}</p>'


def _colour(value: float, norm: TwoSlopeNorm) -> str:
    red, green, blue, _ = colormaps[SIGNED](norm(value))
    ink = "#fff" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.5 else "#1a1a1a"
    return f"background:{to_hex((red, green, blue))};color:{ink}"


def _completions(
    push: Push, rows: Sequence[int], norm: TwoSlopeNorm, relative: bool
) -> Iterator[str]:
    panel = panel_data(push, rows, relative)
    for place, i in enumerate(rows):
        data = {name: values[place] for name, values in panel.items()}
        yield _completion(i, push.rollouts, data, norm)


def _completion(i: int, rollouts: Rollouts, data: Panel, norm: TwoSlopeNorm) -> str:
    """One completion: what it was asked, how it fared, and its tokens."""
    assert rollouts.tokens is not None
    assert rollouts.scored is not None
    reward = f"{rollouts.reward[i].item():g}" if rollouts.scored[i] else "not scored"
    prompt = f" · prompt: {escape(_tail(rollouts.prompts[i]))}" if rollouts.prompts else ""
    mean = f"push per token {_signed(float(data['mean']), '.3g')}"
    share = f"share of the step {_signed(100 * float(data['share']), '.1f')} %"
    head = (
        f"completion {i} · reward {reward} · {data['mask'].sum()} tokens · {mean} · {share}{prompt}"
    )
    spans = "".join(_token(text, i, t, data, norm) for t, text in enumerate(rollouts.tokens[i]))
    lines = f'<div class="head">{head}</div><div class="text">{spans}</div>'
    return f'<div class="row">{lines}</div>'


def _tail(prompt: str, longest: int = 70) -> str:
    """The end of a prompt, where its question stands."""
    line = " ".join(prompt.split())
    return line if len(line) <= longest else "… " + line[-longest:]


def _signed(value: float, form: str) -> str:
    return format(value, "+" + form) if value else "0"


def _token(text: str, i: int, t: int, data: Panel, norm: TwoSlopeNorm) -> str:
    shown = escape(text).replace("\n", "↵\n")
    if t >= len(data["mask"]) or not data["mask"][t]:
        return f'<span class="out" title="not trained">{shown}</span>'
    push = data["push"][t]
    sign = "up" if push > 0 else "down" if push < 0 else ""
    kind = f"{sign} clipped" if data["clipped"][t] else sign
    style = f'class="{kind}" style="{_colour(push, norm)}"'
    return f'<span data-token="{i},{t}" {style} title="token {t}: {push:+.6g}">{shown}</span>'
