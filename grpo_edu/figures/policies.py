"""Figures on who takes part: the models of PPO and of GRPO, and the three policies over time."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from torch.nn.functional import logsigmoid

from ..objective.catalog import recipe
from ..plots.style import COLOURS, new_figure
from ..rollouts import Rollouts
from ..weights import factors
from .registry import figure

# --- PPO and GRPO side by side

KINDS = {"trained": "#fde3bf", "frozen": "#d6e2fe", "rule": "#eeeeee", "tensor": "#ffffff"}
NODES = {  # method: name -> (column, row, words, kind)
    "PPO": {
        "q": (0, 1, "prompt", "tensor"),
        "policy": (1, 1, "policy", "trained"),
        "o": (2, 1, "completion", "tensor"),
        "ref": (3, 0, "reference", "frozen"),
        "reward": (3, 1, "reward model", "frozen"),
        "value": (3, 2, "value model", "trained"),
        "kl": (4, 0, "KL, into\nthe reward", "rule"),
        "r": (4, 1, "reward per token", "tensor"),
        "v": (4, 2, "value per token", "tensor"),
        "gae": (5, 1, "GAE", "rule"),
        "a": (6, 1, "advantage\nper token", "tensor"),
    },
    "GRPO": {
        "q": (0, 1, "prompt", "tensor"),
        "policy": (1, 1, "policy", "trained"),
        "o": (2, 1, "G completions", "tensor"),
        "ref": (3, 0, "reference", "frozen"),
        "reward": (3, 1, "reward model\nor checker", "frozen"),
        "kl": (4, 0, "KL, into\nthe loss", "rule"),
        "r": (4, 1, "G rewards", "tensor"),
        "group": (5, 1, "minus mean,\nover std", "rule"),
        "a": (6, 1, "advantage, the\nsame per token", "tensor"),
    },
}
EDGES = {
    "PPO": "q-policy policy-o o-ref o-reward o-value ref-kl kl-r reward-r value-v "
    "r-gae v-gae gae-a",
    "GRPO": "q-policy policy-o o-ref o-reward ref-kl reward-r r-group group-a",
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
    title="GRPO has no value model: the other answers to the same prompt are the baseline",
    level="exact",
    caption="exact (definitions); orange: trained, blue: frozen, grey: a rule",
    alt="Two rows of boxes. PPO: prompt, policy, completion, then reference, reward model and "
    "value model; reward with the KL in it and values go into GAE, which gives an advantage per "
    "token. GRPO: prompt, policy, G completions, reference and reward; the rewards of the group "
    "give one advantage per completion, and the KL goes into the loss.",
    answers="DeepSeekMath (arXiv 2402.03300) Fig. 4; coverage rows 2 and 7",
    data=flow_data,
)
def ppo_and_grpo(table: pd.DataFrame) -> Figure:
    """One row of boxes per method."""
    picture = new_figure(9.6, 5.2)
    for panel, (method, parts) in zip(
        picture.subplots(2, 1), table.groupby("method", sort=False), strict=True
    ):
        _flow(panel, str(method), parts)
    return picture


def _flow(panel: Axes, method: str, parts: pd.DataFrame) -> None:
    boxes = parts[parts.kind != "arrow"].set_index("part")
    place = {
        name: (1.6 * column, -row)
        for name, column, row in zip(boxes.index, boxes.column, boxes.row, strict=True)
    }
    for edge in parts[parts.kind == "arrow"].part:
        (x0, y0), (x1, y1) = (place[end] for end in edge.split("-"))
        straight_down = x0 == x1
        tail, head = (
            ((x0, y0 - 0.3), (x1, y1 + 0.3))
            if straight_down
            else ((x0 + 0.68, y0), (x1 - 0.68, y1))
        )
        panel.annotate(
            "", head, tail, arrowprops={"arrowstyle": "-|>", "color": "#555555", "linewidth": 0.9}
        )
    for (x, y), words, kind in zip(place.values(), boxes.words, boxes.kind, strict=True):
        shape = FancyBboxPatch(
            (x - 0.66, y - 0.28),
            1.32,
            0.56,
            boxstyle="round,pad=0.02",
            fc=KINDS[kind],
            ec="#666666",
            lw=0.8,
        )
        panel.add_patch(shape)
        panel.text(x, y, words, ha="center", va="center", fontsize=8)
    panel.set(xlim=(-0.8, 10.4), ylim=(-2.4, 0.45), title=method)
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
    title="Three policies: the ratio looks at the sampler of this batch, the KL at where training "
    "began",
    level="exact",
    caption="exact: one logit, three rollouts (dotted lines), four updates on each",
    alt="Three panels over twelve updates. The policy's probability of a right answer rises; the "
    "sampler's follows in steps, once per rollout; the reference's is flat. At the first update "
    "of each rollout every ratio is 1 and nothing is clipped. The KL to the reference keeps "
    "growing.",
    answers="coverage rows 4 and 5: which policy the ratio, the clip and the KL look at",
    data=policies_data,
)
def three_policies(table: pd.DataFrame) -> Figure:
    """Probabilities under the three policies; ratio with its band and what is clipped; KL."""
    picture = new_figure(8.6, 6.2)
    top, middle, bottom = picture.subplots(3, 1, sharex=True, height_ratios=[3, 3, 1.6])
    x = table["update"]
    top.plot(x, table.policy, marker="o", color=COLOURS[0], label="π_θ, moves with every update")
    top.step(
        x, table.sampler, where="post", color=COLOURS[1], label="π_old, the sampler of this batch"
    )
    top.plot(x, table.reference, color=COLOURS[3], linestyle="--", label="π_ref, frozen")
    top.set_ylabel("probability of a right answer")
    top.legend(loc="upper left")
    middle.axhspan(0.8, 1.2, color="#eeeeee", zorder=0)
    middle.plot(
        x,
        table["ratio, right"],
        marker="o",
        linestyle="none",
        color=COLOURS[0],
        label="right answers",
    )
    middle.plot(
        x,
        table["ratio, wrong"],
        marker="s",
        linestyle="none",
        color=COLOURS[2],
        label="wrong answers",
    )
    for update, share in zip(x, table["clip fraction"], strict=True):
        middle.annotate(f"{share:.0%}", (update, 0.53), ha="center", fontsize=8)
    middle.annotate("clipped:", (-0.45, 0.53), ha="right", fontsize=8, annotation_clip=False)
    middle.set(
        ylabel="ratio π_θ / π_old\n(grey: inside the clip)",
        ylim=(0.48, 1.8),
        yticks=[0.8, 1.0, 1.2, 1.4, 1.6],
    )
    middle.legend(loc="upper left", ncols=2)
    bottom.plot(x, table.kl, marker="D", color=COLOURS[3])
    bottom.set(xlabel="update", ylabel="KL(π_θ‖π_ref), nats", xticks=list(x))
    for panel in (top, middle, bottom):
        for first in x[table["first"]]:
            panel.axvline(first, color="#999999", linewidth=0.7, linestyle=":")
    return picture
