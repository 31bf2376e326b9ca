"""Figures on who takes part: the models of PPO and of GRPO, and the three policies over time."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from torch.nn.functional import logsigmoid

from ..objective.catalog import recipe
from ..plots.style import (
    FROZEN,
    GREY,
    RIGHT,
    SERIES,
    TRAINED,
    WIDTH,
    WRONG,
    name_line,
    new_figure,
    note,
    paper,
    quiet,
    rule,
    tint,
)
from ..rollouts import Rollouts
from ..weights import factors
from .registry import figure

# --- PPO and GRPO side by side

NODES = {  # method: name -> (column, row, words, kind)
    "PPO": {
        "q": (0, 1, "prompt", "tensor"),
        "policy": (1, 1, "policy", "trained"),
        "o": (2, 1, "completion", "tensor"),
        "ref": (3, 0, "reference", "frozen"),
        "reward": (3, 1, "reward\nmodel", "frozen"),
        "value": (3, 2, "value\nmodel", "trained"),
        "kl": (4, 0, "KL", "rule"),
        "r": (4, 1, "reward\nper token", "tensor"),
        "v": (4, 2, "value\nper token", "tensor"),
        "gae": (5, 1, "reward −\nvalue (GAE)", "rule"),
        "a": (6, 1, "advantage\nper token", "tensor"),
        "loss": (7, 1, "clipped\nloss", "rule"),
    },
    "GRPO": {
        "q": (0, 1, "prompt", "tensor"),
        "policy": (1, 1, "policy", "trained"),
        "o": (2, 1, "G com-\npletions", "tensor"),
        "ref": (3, 0, "reference", "frozen"),
        "reward": (3, 1, "reward model\nor checker", "frozen"),
        "r": (4, 1, "G rewards", "tensor"),
        "group": (5, 1, "minus mean,\nover std", "rule"),
        "a": (6, 1, "advantage,\none for all", "tensor"),
        "kl": (7, 0, "KL", "rule"),
        "loss": (7, 1, "clipped\nloss", "rule"),
    },
}
BASELINES = {"PPO": "a trained value model", "GRPO": "the mean reward of the group"}
EDGES = {
    "PPO": "q-policy policy-o o-ref o-reward o-value ref-kl kl-r reward-r value-v "
    "r-gae v-gae gae-a a-loss",
    "GRPO": "q-policy policy-o o-ref o-reward ref-kl kl-loss reward-r r-group group-a a-loss",
}


def flow_data() -> pd.DataFrame:
    """Boxes and arrows of both methods, one row each."""
    rows = []
    for method, nodes in NODES.items():
        for name, (column, row, words, kind) in nodes.items():
            rows.append(
                {
                    "method": method,
                    "part": name,
                    "words": words,
                    "kind": kind,
                    "column": column,
                    "row": row,
                }
            )
        rows += [
            {"method": method, "part": edge, "words": "→", "kind": "arrow"}
            for edge in EDGES[method].split()
        ]
    return pd.DataFrame(rows)


@figure(
    title="GRPO has no value model: the mean reward of several answers to the prompt is the "
    "baseline",
    level="exact",
    caption="exact (definitions)",
    alt="Two rows of boxes. PPO: prompt, policy, completion, then reference, reward model and "
    "value model; reward with the KL in it and values go into GAE, which gives an advantage per "
    "token. GRPO: prompt, policy, G completions, reference and reward; the rewards of the group "
    "give one advantage per completion, and the KL goes into the loss. Both end in a clipped loss.",
    answers="DeepSeekMath (arXiv 2402.03300) Fig. 4; coverage rows 2 and 7",
    data=flow_data,
)
def ppo_and_grpo(table: pd.DataFrame) -> Figure:
    """One row of boxes per method."""
    picture = new_figure(WIDTH, 4.6)
    panels = picture.subplots(2, 1, height_ratios=[3, 2])
    for panel, (method, parts) in zip(panels, table.groupby("method", sort=False), strict=True):
        _flow(panel, str(method), parts)
    kinds = {"trained model": TRAINED, "frozen model": FROZEN, "calculation": tint()}
    for k, (kind, colour) in enumerate(kinds.items()):
        box = Rectangle((-0.66, 0.1 - 0.3 * k), 0.4, 0.2, facecolor=colour, edgecolor=GREY)
        panels[0].add_patch(box)
        panels[0].text(-0.1, 0.2 - 0.3 * k, kind, va="center", fontsize=9)
    return picture


def _flow(panel: Axes, method: str, parts: pd.DataFrame) -> None:
    boxes = parts[parts.kind != "arrow"].set_index("part")
    place = {
        name: (1.6 * column, -row)
        for name, column, row in zip(boxes.index, boxes.column, boxes.row, strict=True)
    }
    for edge in parts[parts.kind == "arrow"].part:
        (x0, y0), (x1, y1) = (place[end] for end in edge.split("-"))
        tail, head = (x0 + 0.7, y0), (x1 - 0.7, y1)
        if x0 == x1:
            tail, head = (x0, y0 - 0.36), (x1, y1 + 0.36)
        arrow = {"arrowstyle": "-|>", "color": GREY, "linewidth": 1.1}
        panel.annotate("", head, tail, arrowprops=arrow)
    fills = {"trained": TRAINED, "frozen": FROZEN, "rule": tint(), "tensor": paper()}
    for (x, y), words, kind in zip(place.values(), boxes.words, boxes.kind, strict=True):
        dark_text = kind in ("trained", "frozen")
        shape = FancyBboxPatch(
            (x - 0.66, y - 0.32),
            1.32,
            0.64,
            boxstyle="round,pad=0.02",
            facecolor=fills[kind],
            edgecolor=GREY,
            linewidth=0.8,
        )
        panel.add_patch(shape)
        text = panel.text(x, y, words, ha="center", va="center", fontsize=8)
        if dark_text:
            text.set_color("#1f2328")
    rows = boxes.row.max()
    heading = f"{method}: the baseline is {BASELINES[method]}"
    panel.set(xlim=(-0.8, 12), ylim=(-rows - 0.45, 0.45), title=heading)
    panel.set_axis_off()


# --- three policies

ROLLOUTS = 3
UPDATES = 4
RATE = 1.2
START = 0.3


def policies_data() -> pd.DataFrame:
    """GRPO on a policy of one logit: three rollouts (two right answers, two wrong), four SGD
    updates on each."""
    grpo = recipe("grpo")
    start = torch.tensor(START, dtype=torch.float64).logit()
    sign = torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64)
    log_probs = lambda theta: logsigmoid(sign * theta)[:, None]  # noqa: E731
    batch = Rollouts.from_lengths([1] * 4, rewards=[1, 1, 0, 0])
    theta = start.clone().requires_grad_()
    rows = []
    for k in range(ROLLOUTS):
        old = theta.detach().clone()
        stale = replace(
            batch.with_logp(log_probs(old)), old_logp=log_probs(old), ref_logp=log_probs(start)
        )
        for update in range(UPDATES):
            now = stale.with_logp(log_probs(theta))
            parts = factors(grpo, now, grpo.plan(now))
            (gradient,) = torch.autograd.grad(grpo.loss(now), theta)
            p, p_old, p_ref = (torch.sigmoid(t).item() for t in (theta.detach(), old, start))
            rows.append(
                {
                    "rollout": k,
                    "update": k * UPDATES + update,
                    "first": update == 0,
                    "policy": p,
                    "sampler": p_old,
                    "reference": p_ref,
                    "ratio, right": p / p_old,
                    "ratio, wrong": (1 - p) / (1 - p_old),
                    "clip fraction": (parts["gate"] == 0).double().mean().item(),
                    "kl": p * math.log(p / p_ref) + (1 - p) * math.log((1 - p) / (1 - p_ref)),
                }
            )
            theta = (theta - RATE * gradient).detach().requires_grad_()
    return pd.DataFrame(rows)


@figure(
    title="The ratio compares the policy with the sampler of this batch, the KL with the reference "
    "from the start of training",
    level="exact",
    caption="exact: a policy of one logit; each rollout (upright line) samples anew and serves "
    "four updates; clipped: answers whose push the clip ends",
    alt="Three panels over twelve updates. The policy's probability of a right answer rises; the "
    "sampler's follows in steps, once per rollout; the reference's is flat. At the first update "
    "of each rollout every ratio is 1 and nothing is clipped. The KL to the reference keeps "
    "growing.",
    answers="coverage rows 4 and 5: which policy the ratio, the clip and the KL look at",
    data=policies_data,
)
def three_policies(table: pd.DataFrame) -> Figure:
    """Probabilities under the three policies; ratio with its band and what is clipped; KL."""
    picture = new_figure(WIDTH, 6.6)
    top, middle, bottom = picture.subplots(3, 1, sharex=True, height_ratios=[3, 3, 1.6])
    x = table["update"]
    policies = (
        ("policy", r"$\pi_\theta$: every update", SERIES[2], "o-"),
        ("sampler", r"$\pi_\mathrm{old}$: the sampler", SERIES[1], "-"),
        ("reference", r"$\pi_\mathrm{ref}$: frozen", SERIES[0], "--"),
    )
    for column, label, colour, style in policies:
        how = {"drawstyle": "steps-post"} if column == "sampler" else {}
        top.plot(x, table[column], style, color=colour, **how)
        name_line(top, x, table[column], label, colour)
    top.set(title="probability of a right answer", ylim=(0.24, 0.78))
    middle.axhspan(0.8, 1.2, color=tint(), zorder=0)
    for look in (RIGHT, WRONG):
        ratio = table[f"ratio, {look.label}"]
        middle.plot(x, ratio, look.marker, color=look.colour, markersize=7)
        name_line(middle, x, ratio, f"{look.label} answers", look.colour)
    middle.text(-1.5, 0.42, "clipped", color=quiet())
    for update, share in zip(x, table["clip fraction"], strict=True):
        middle.text(update, 0.42, f"{share:.0%}", ha="center")
    middle.set(ylim=(0.33, 1.9), yticks=[0.8, 1.0, 1.2, 1.4, 1.6], xlim=(-1.6, 11.4))
    middle.set_title("ratio, policy / sampler, of each answer's probability (grey: not clipped)")
    bottom.plot(x, table.kl, "D-", color=SERIES[0], markersize=5)
    bottom.set(xlabel="update", xticks=list(x), ylim=(-0.04, 0.45))
    bottom.set_title("KL of the policy from the reference, nats")
    for panel in (top, middle, bottom):
        for first in x[table["first"]]:
            rule(panel, first - 0.25, vertical=True)
    for k, first in enumerate(x[table["first"]]):
        note(middle, (first + 1.5) / 13, 0.89, f"rollout {k + 1}")
    return picture
