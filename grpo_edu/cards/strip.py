"""The token strip of a card: one row per answer, one cell per token, coloured by push, as SVG.

The text takes a grey that is readable on white and on black, so the picture suits both.
"""

from __future__ import annotations

from html import escape

from matplotlib import colormaps
from matplotlib.colors import to_hex

from ..plots.style import SIGNED
from ..weights import Push

CELL = 62
HEIGHT = 42
LEFT = 118
RIGHT = 70
GREY = "#767676"
HATCH = (
    '<pattern id="{key}" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><line y2="6" stroke="#555" stroke-width="1.5"/></pattern>'
)


def strip_svg(push: Push) -> str:
    """Every answer of the batch: prompt and reward, its tokens with push and (where it is not 1)
    ratio, and its share of the step."""
    rollouts = push.rollouts
    largest = push.token.abs().max().item() or 1.0
    width = LEFT + CELL * rollouts.mask.shape[1] + RIGHT
    key = "hatch-" + "".join(c if c.isalnum() else "-" for c in push.recipe.name)
    rows = []
    y = 22
    for i in range(len(rollouts)):
        if i and rollouts.group[i] != rollouts.group[i - 1]:
            y += 14
        rows.append(_row(push, i, y, largest, key))
        y += HEIGHT + 6
    head = (
        f'<text x="{LEFT}" y="13">tokens: push, and ratio where it is not 1</text>'
        f'<text x="{width - 4}" y="13" text-anchor="end">share</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" role="img" '
        f'aria-label="Push on every token under {escape(push.recipe.name)}" '
        f'style="max-width:{width}px;min-width:600px;width:100%" '
        f'font-family="system-ui, sans-serif" font-size="11" fill="{GREY}">'
        f"<defs>{HATCH.format(key=key)}</defs>{head}{''.join(rows)}</svg>"
    )


def _row(push: Push, i: int, y: float, largest: float, key: str) -> str:
    rollouts = push.rollouts
    assert rollouts.tokens is not None
    middle = y + HEIGHT / 2 + 4
    reward = f"reward {rollouts.reward[i].item():g}"
    name = f"question {int(rollouts.group[i]) + 1}, {reward}"
    share = _signed(100 * push.completion_share[i].item(), ".1f") + " %"
    cells = [
        _cell(push, i, t, y, largest, key)
        for t in range(rollouts.mask.shape[1])
        if rollouts.mask[i, t]
    ]
    end = LEFT + CELL * rollouts.mask.shape[1] + RIGHT - 4
    return (
        f'<text x="0" y="{middle}">{name}</text>{"".join(cells)}'
        f'<text x="{end}" y="{middle}" text-anchor="end">{share}</text>'
    )


def _cell(push: Push, i: int, t: int, y: float, largest: float, key: str) -> str:
    rollouts = push.rollouts
    assert rollouts.tokens is not None
    value = push.token[i, t].item()
    red, green, blue, _ = colormaps[SIGNED](0.5 + value / largest / 2)
    ink = "#fff" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.5 else "#1a1a1a"
    x = LEFT + CELL * t
    shape = f'x="{x}" y="{y}" width="{CELL - 4}" height="{HEIGHT}" rx="3"'
    box = f'<rect {shape} fill="{to_hex((red, green, blue))}" stroke="#bbb"/>'
    if push.clipped[i, t]:
        box += f'<rect {shape} fill="url(#{key})" opacity=".45"/>'
    old = rollouts.logp if rollouts.old_logp is None else rollouts.old_logp
    ratio = (rollouts.logp - old)[i, t].exp().item()
    centre = x + (CELL - 4) / 2
    lines = [(12, escape(rollouts.tokens[i][t].strip())), (25, _signed(value, ".2g"))]
    if abs(ratio - 1) > 1e-9:
        lines.append((38, f"ratio {ratio:.3g}"))
    text = "".join(f'<text x="{centre}" y="{y + down}">{line}</text>' for down, line in lines)
    return f'{box}<g fill="{ink}" text-anchor="middle">{text}</g>'


def _signed(value: float, form: str) -> str:
    return format(value, "+" + form) if abs(value) > 1e-12 else "0"
