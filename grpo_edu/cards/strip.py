"""The token strip of a card: one row per answer, one cell per token, coloured by push, as SVG.

The text takes a grey that is readable on white and on black, so the picture suits both.
"""

from __future__ import annotations

from html import escape

from matplotlib import colormaps
from matplotlib.colors import to_hex
from torch import Tensor

from ..objective import axes
from ..plots.style import SIGNED
from ..weights import Push

CELL = 74
HEIGHT = 46
GAP = 6
LEFT = 150
RIGHT = 64
GREY = "#767676"
TOKEN_RATIO = r"\rho_{it}"
HATCH = (
    '<pattern id="{key}" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><line y2="6" stroke="#555" stroke-width="1.5"/></pattern>'
)


def strip_svg(push: Push, value: Tensor, what: str) -> str:
    """Every answer of the batch: reward, advantage and (where it decides) the ratio of the whole
    answer; its tokens with their value and ratio; its share of the step.

    Args:
        push: of the recipe on the batch.
        value: ``[N, T]``, what colours the tokens.
        what: its name.
    """
    rollouts = push.rollouts
    assert rollouts.prompts is not None
    largest = value.abs().max().item() or 1.0
    width = LEFT + CELL * rollouts.mask.shape[1] + RIGHT
    key = "hatch-" + "".join(c if c.isalnum() else "-" for c in f"{push.recipe.name}-{what}")
    rows = [
        f'<text x="{LEFT}" y="14">{what} of each token, and its ratio where that is not 1; the '
        f"darkest colour is {largest:.2g}</text>"
        f'<text x="{width - 4}" y="14" text-anchor="end">share</text>'
    ]
    y = 20
    for i in range(len(rollouts)):
        if i == 0 or rollouts.group[i] != rollouts.group[i - 1]:
            y += 20
            rows.append(f'<text x="0" y="{y - 5}">{escape(rollouts.prompts[i])}</text>')
        rows.append(_row(push, value, i, y, largest, key))
        y += HEIGHT + GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" role="img" '
        f'aria-label="{escape(what)} of every token under {escape(push.recipe.name)}" '
        f'style="max-width:{width}px;min-width:640px;width:100%" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{GREY}">'
        f"<defs>{HATCH.format(key=key)}</defs>{''.join(rows)}</svg>"
    )


def _row(push: Push, value: Tensor, i: int, y: float, largest: float, key: str) -> str:
    rollouts = push.rollouts
    lines = [f"reward {rollouts.reward[i].item():g}"]
    advantage = push.plan.advantage[i][rollouts.mask[i]]
    if advantage.min() == advantage.max():
        lines.append(f"A = {advantage[0].item():.3g}")
    ratio = push.factors["ratio"][i][rollouts.mask[i]]
    if _symbol(push) not in (TOKEN_RATIO, None):
        lines.append(f"answer's ratio {ratio[0].item():.4g}")
    head = "".join(
        f'<text x="0" y="{y + 13 + 14 * down}">{line}</text>' for down, line in enumerate(lines)
    )
    cells = "".join(
        _cell(push, value, i, t, y, largest, key)
        for t in range(rollouts.mask.shape[1])
        if rollouts.mask[i, t]
    )
    end = LEFT + CELL * rollouts.mask.shape[1] + RIGHT - 4
    share = _signed(100 * push.completion_share[i].item(), ".1f") + " %"
    return f'{head}{cells}<text x="{end}" y="{y + 27}" text-anchor="end">{share}</text>'


def _cell(push: Push, value: Tensor, i: int, t: int, y: float, largest: float, key: str) -> str:
    rollouts = push.rollouts
    assert rollouts.tokens is not None
    own = value[i, t].item()
    red, green, blue, _ = colormaps[SIGNED](0.5 + own / largest / 2)
    ink = "#fff" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.5 else "#1a1a1a"
    x = LEFT + CELL * t
    shape = f'x="{x}" y="{y}" width="{CELL - 4}" height="{HEIGHT}" rx="3"'
    box = f'<rect {shape} fill="{to_hex((red, green, blue))}" stroke="#bbb"/>'
    if push.clipped[i, t] and value is push.token:
        box += f'<rect {shape} fill="url(#{key})" opacity=".45"/>'
    old = rollouts.logp if rollouts.old_logp is None else rollouts.old_logp
    ratio = (rollouts.logp - old)[i, t].exp().item()
    centre = x + (CELL - 4) / 2
    token = escape(rollouts.tokens[i][t].strip())
    text = f'<text x="{centre}" y="{y + 14}" font-weight="700">{token}</text>'
    text += f'<text x="{centre}" y="{y + 28}">{_signed(own, ".2g")}</text>'
    if abs(ratio - 1) > 1e-9 and _symbol(push) is not None:
        text += f'<text x="{centre}" y="{y + 41}">ratio {ratio:.3g}</text>'
    return f'{box}<g fill="{ink}" text-anchor="middle">{text}</g>'


def _symbol(push: Push) -> str | None:
    """The symbol of the ratio that the surrogate looks at; None where it has none."""
    written = axes.function_of(push.recipe.surrogate).written
    return written.symbol if written else None


def _signed(value: float, form: str) -> str:
    return format(value, "+" + form) if abs(value) > 1e-12 else "0"
