"""Figures of sampled toys. Their tables are recorded runs; ``grpo-edu figures NAME`` runs them again."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from ..objective.catalog import recipe
from ..plots.dynamics import length_dynamics
from ..toys import stopping
from ..toys.compare import matched_learning_rate, push_sizes
from ..toys.training import Training
from .registry import Figured, register

SEEDS = 8  # fixed beforehand: seeds 0 to 7


def length_data() -> pd.DataFrame:
    """300 steps of the slip toy under GRPO, DAPO (prompt scope) and Dr. GRPO, learning rates matched at the first step."""
    recipes = [recipe("grpo").but("grpo", kl=None), recipe("dapo"), recipe("dr_grpo")]
    policy, training = stopping.Stopping(mode="slip"), Training(steps=300, prompts=8, samples=8, learning_rate=2.0, every=5)
    rates = matched_learning_rate(push_sizes(recipes, [stopping.rollouts(policy, training, seed) for seed in range(32)]), 2.0)
    return stopping.train(recipes, policy, training, seeds=SEEDS, learning_rates=rates)


def length_draw(table: pd.DataFrame) -> Figure:
    """Pass rate, length given right, length given wrong, gap of the stop logits."""
    return length_dynamics(table, title="At equal pass rates wrong answers run on under 1/|o|, not under a constant")


register(
    Figured(
        name="length_dynamics",
        title="At equal pass rates wrong answers run on under 1/|o|, not under a constant",
        alt="Four panels over 300 steps: pass rates coincide; under GRPO right answers shrink from 13 to 2 tokens and wrong ones grow from 13 to 60; "
        "DAPO's prompt-scope token mean follows more slowly; under Dr. GRPO both stay near 13.",
        answers="Dr. GRPO (arXiv 2503.20783), the figure of reward and length over training; redai-studio/Relax PR 173: split by correctness",
        level="simulated, 8 seeds, 95 % interval",
        data=length_data,
        draw=length_draw,
        recorded=True,
    )
)
