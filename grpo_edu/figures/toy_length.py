"""Figures of the stopping toy. Tables of sampled runs are recorded; ``grpo-edu figures NAME`` runs
them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ..objective.aggregation import prompt_token_mean
from ..objective.catalog import recipe
from ..objective.filters import drop_dead_groups, truncation_mask
from ..objective.recipe import Recipe
from ..objective.rewards import overlong_penalty
from ..objective.surrogates import ppo_clip
from ..plots import dynamics
from ..plots.intervals import draw_intervals
from ..plots.style import RECIPES, RIGHT, SERIES, WIDTH, WRONG, ink, look, new_figure
from ..statistics import intervals
from ..toys import stopping
from ..toys.ablation import ablate
from ..toys.compare import matched_learning_rate, push_sizes
from ..toys.flow import flow
from ..toys.overlong import TREATMENTS, overlong
from ..toys.training import Training
from .registry import figure

SEEDS = 8  # fixed beforehand: seeds 0 to 7
RUNS = Training(steps=300, prompts=8, samples=8, learning_rate=2.0, every=5)


def grpo_without_kl() -> Recipe:
    """GRPO of the paper, its KL term left out: a toy has no reference to stay near."""
    return recipe("grpo").but("grpo", kl=None)


def matched(
    recipes: Sequence[Recipe], policy: stopping.Stopping, training: Training
) -> dict[str, float]:
    """Learning rates under which all recipes push equally hard at step 0."""
    batches = [stopping.rollouts(policy, training, seed) for seed in range(32)]
    return matched_learning_rate(push_sizes(recipes, batches), training.learning_rate)


# --- length over training


def length_data() -> pd.DataFrame:
    """300 steps of the slip toy under GRPO, DAPO (prompt scope) and Dr. GRPO, learning rates
    matched at the first step."""
    recipes = [grpo_without_kl(), recipe("dapo"), recipe("dr_grpo")]
    policy = stopping.Stopping(mode="slip")
    return stopping.train(
        recipes, policy, RUNS, seeds=SEEDS, learning_rates=matched(recipes, policy, RUNS)
    )


@figure(
    title="Wrong answers run on under GRPO and, more slowly, under DAPO; not under Dr. GRPO",
    level=f"simulated, {SEEDS} seeds, 95 % interval",
    caption=f"simulated, {SEEDS} seeds, 95 % interval; DAPO: token mean of the prompt; equal total "
    "pushes at the first step",
    alt="Three panels over 300 steps: pass rates end alike; under GRPO right answers shrink from "
    "13 to 2 tokens and wrong ones grow from 13 to 60; DAPO's prompt-scope token mean follows more "
    "slowly; under Dr. GRPO both stay near 13.",
    answers="Dr. GRPO (arXiv 2503.20783), the figure of reward and length over training; "
    "redai-studio/Relax PR 173: split by correctness",
    data=length_data,
    recorded=True,
)
def length_dynamics(table: pd.DataFrame) -> Figure:
    """Pass rate and both lengths over training."""
    return dynamics.length_dynamics(table)


def flow_data() -> pd.DataFrame:
    """The expected update followed for 300 steps, learnable mode: GRPO, the prompt-scope token
    mean, Dr. GRPO."""
    recipes = [grpo_without_kl(), recipe("dapo"), recipe("dr_grpo")]
    policy = stopping.Stopping()
    return flow(recipes, policy, RUNS, learning_rates=matched(recipes, policy, RUNS))


@figure(
    title="Without any sampling noise GRPO shortens right answers and lengthens wrong ones, DAPO "
    "less so; Dr. GRPO moves neither",
    level="exact",
    caption="exact: the expected update at every step; DAPO: token mean of the prompt; equal total "
    "pushes at the first step",
    alt="Three panels over 300 steps of the expected update. Pass rates rise together. Under GRPO "
    "the expected length of right answers falls from 13 and that of wrong ones rises; DAPO's "
    "prompt-scope token mean moves far less; Dr. GRPO's two lines are flat.",
    answers="Dr. GRPO (arXiv 2503.20783) §3.1: which part of the length growth is the loss, and "
    "not the task",
    data=flow_data,
)
def length_flow(table: pd.DataFrame) -> Figure:
    """The same panels for the expected update."""
    return dynamics.length_dynamics(table)


# --- reward against length


def efficiency_data() -> pd.DataFrame:
    """The slip toy from a low start (attempts right with p = .2): pass rate and expected length of
    all completions."""
    recipes = [grpo_without_kl(), recipe("dapo"), recipe("dr_grpo")]
    policy = stopping.Stopping(mode="slip", right=0.2, slip=0.4)
    table = stopping.train(
        recipes, policy, RUNS, seeds=SEEDS, learning_rates=matched(recipes, policy, RUNS)
    )
    right = table["pass_rate"] * table["length_right"]
    table["expected_length"] = right + (1 - table["pass_rate"]) * table["length_wrong"]
    return table.filter(items=["recipe", "seed", "step", "pass_rate", "expected_length"])


@figure(
    title="GRPO ends at nearly the same pass rate with nearly twice the tokens: length still rises "
    "where the pass rate no longer can",
    level=f"simulated, {SEEDS} seeds, 95 % interval",
    caption=f"simulated, {SEEDS} seeds, 95 % interval; 4 of 10 right attempts slip, so that no "
    "pass rate exceeds 0.6; equal total pushes at the first step",
    alt="Left: pass rate against steps: GRPO rises fastest, and all end between .57 and .60. "
    "Right: expected tokens of an answer: from 13 to 26 under GRPO, to 21 under DAPO; they stay "
    "near 14 under Dr. GRPO.",
    answers="Dr. GRPO (arXiv 2503.20783) Fig. 1 right, token efficiency, and its figure of reward "
    "and length that rise together",
    data=efficiency_data,
    recorded=True,
)
def token_efficiency(table: pd.DataFrame) -> Figure:
    """Pass rate and expected length against steps."""
    picture = new_figure(WIDTH, 3.9)
    headings = {"pass_rate": "pass rate", "expected_length": "expected tokens of an answer"}
    panels = picture.subplots(1, 2)
    names = list(dict.fromkeys(table["recipe"]))
    for panel, (column, heading) in zip(panels, headings.items(), strict=True):
        dynamics.draw_lines(panel, table, column, names)
        dynamics.name_ends(panel)
        panel.set(xlabel="training step", title=heading)
    panels[0].set_ylim(0, 0.65)
    panels[1].set_ylim(0, 28)
    return picture


# --- where the gap appears, and where it does not

SETTINGS = {  # mode of the toy, and whether rewards are permuted within each group
    "the policy's own branch": ("learnable", False),
    "branch drawn by the environment": ("environment", False),
    "own branch, with slips": ("slip", False),
    "slips, rewards permuted (placebo)": ("slip", True),
}


WORDS = dict(
    zip(
        SETTINGS,
        (
            "the policy decides\nright or wrong",
            "the environment decides",
            "the policy decides,\nwith slips",
            "placebo: rewards shuffled",
        ),
        strict=True,
    )
)


def modes_data() -> pd.DataFrame:
    """The stop gap after 300 steps in three modes and under permuted rewards, four aggregations,
    matched learning rates."""
    recipes = [grpo_without_kl(), recipe("dapo"), recipe("dapo(step)"), recipe("dr_grpo")]
    tables = []
    for name, (mode, placebo) in SETTINGS.items():
        policy = stopping.Stopping(mode=mode)
        table = stopping.train(
            recipes,
            policy,
            replace(RUNS, every=300, placebo=placebo),
            seeds=2 * SEEDS,
            learning_rates=matched(recipes, policy, RUNS),
        )
        end = table.query("step == step.max()")
        columns = ["recipe", "seed", "stop_gap", "length_right", "length_wrong", "pass_rate"]
        tables.append(end.filter(items=columns).assign(setting=name))
    return pd.concat(tables, ignore_index=True)


@figure(
    title="The fewer answers share a denominator, the longer wrong answers run; with shuffled "
    "rewards no difference is seen",
    level=f"simulated, {2 * SEEDS} seeds, 95 % interval",
    caption=f"simulated, {2 * SEEDS} seeds, 95 % interval; denominator: tokens of one answer "
    "(GRPO), of a prompt (DAPO), of the step, or a constant (Dr. GRPO); gap: log-odds of stopping, "
    "right answers minus wrong ones",
    alt="Stop-logit gap after 300 steps with intervals. In all three modes GRPO's is largest, "
    "DAPO's prompt scope follows, the step scope is small, Dr. GRPO's contains or nearly contains "
    "zero. With rewards permuted inside groups all four lie at zero.",
    answers="toys and small runs that showed no length bias or its reverse; a placebo that none "
    "of them has",
    data=modes_data,
    recorded=True,
)
def length_modes(table: pd.DataFrame) -> Figure:
    """Stop gap per mode and recipe."""
    picture = new_figure(WIDTH, 4.8)
    panel = picture.subplots()
    rows = intervals(table, "stop_gap", by=["setting", "recipe"]).replace({"setting": WORDS})
    draw_intervals(panel, rows, "setting", "recipe")
    panel.set(xlabel="gap after 300 steps (above 0: wrong answers run longer)", xlim=(-1, 13))
    return picture


# --- the optimiser's own drift

OPTIMISERS = {
    "SGD": {"learning_rate": 5.0},
    "SGD, norm clipped": {"learning_rate": 25.0, "max_norm": 0.0008},
    "AdamW": {"optimizer": "adamw", "learning_rate": 0.01},
}
DRIFT_SEEDS = 64
SIDES = {
    f"{measure}_{look.label}": look._replace(label=f"{look.label} answers")
    for measure in ("stop", "length")
    for look in (RIGHT, WRONG)
}


def drift_data() -> pd.DataFrame:
    """Dr. GRPO in the environment mode under three optimisers: its expected gradient on the stop
    logits is 0."""
    policy = stopping.Stopping(mode="environment")
    tables = []
    for name, setting in OPTIMISERS.items():
        training = replace(RUNS, steps=150, every=150, **setting)
        table = stopping.train(recipe("dr_grpo"), policy, training, seeds=DRIFT_SEEDS)
        start = table[table["step"] == 0].set_index("seed")
        end = table[table["step"] == training.steps].set_index("seed")
        moved = end[["stop_right", "stop_wrong"]] - start[["stop_right", "stop_wrong"]]
        tables.append(
            moved.reset_index()
            .melt("seed", var_name="logit", value_name="moved")
            .assign(optimiser=name)
        )
    return pd.concat(tables, ignore_index=True)


@figure(
    title="Dr. GRPO has no expected drift of length; where the gradient's norm is clipped, right "
    "answers shorten all the same",
    level=f"simulated, {DRIFT_SEEDS} seeds, 95 % interval",
    caption=f"simulated, {DRIFT_SEEDS} seeds, 95 % interval; stop logit: log-odds of stopping at a "
    "token; its expected gradient is exactly 0 here",
    alt="Movement of the two stop logits under Dr. GRPO with intervals, over 150 steps. Under "
    "plain SGD and AdamW both intervals contain zero; with the gradient norm clipped in most "
    "steps right answers shorten.",
    answers="runs that see lengths move under Dr. GRPO and blame its aggregation",
    data=drift_data,
    recorded=True,
)
def optimiser_drift(table: pd.DataFrame) -> Figure:
    """How far each stop logit moved, per optimiser."""
    picture = new_figure(WIDTH, 3.4)
    panel = picture.subplots()
    rows = intervals(table, "moved", by=["optimiser", "logit"])
    draw_intervals(panel, rows, "optimiser", "logit", SIDES, "+.3f")
    panel.set_xlabel("change of the stop logit in 150 steps (above 0: shorter answers)")
    panel.set_xlim(-0.07, 0.12)
    return picture


# --- two factors

EFFECTS = {  # outcome: heading, form of a number
    "length_gap": ("wrong answers longer by", ".1f"),
    "hard_over_medium": ("gain, hard / medium prompts", ".2f"),
}
ARMS = {  # aggregation, scale: label, colour
    ("sequence_mean", "group_std"): ("1/|o| and 1/std (GRPO)", RECIPES["grpo"].colour),
    ("sequence_mean", "unscaled"): ("1/|o| alone", SERIES[0]),
    ("constant", "group_std"): ("1/std alone", SERIES[1]),
    ("constant", "unscaled"): ("neither (Dr. GRPO)", RECIPES["dr_grpo"].colour),
}
STAGES = {"early": (10, 1.0), "late": (100, 4.0)}  # steps and learning rate


def ablation_data() -> pd.DataFrame:
    """The 2 x 2 ablation, aggregation x advantage scale, after 10 small steps and after 100 large
    ones."""
    tables = []
    for stage, (steps, rate) in STAGES.items():
        training = Training(steps=steps, prompts=8, samples=16, learning_rate=rate, every=steps)
        tables.append(ablate(training=training, seeds=4 * SEEDS).assign(stage=stage))
    table = pd.concat(tables, ignore_index=True)
    return table.loc[table.outcome.isin(list(EFFECTS))]


@figure(
    title="Two switches, two biases: 1/|o| makes wrong answers longer, 1/std favours hard prompts; "
    "in the end 1/|o| favours them too",
    level=f"simulated, {4 * SEEDS} seeds, 95 % interval",
    caption=f"simulated, {4 * SEEDS} seeds, 95 % interval; gain: rise of the pass rate; the 10 "
    "early steps are small, the 100 late ones large",
    alt="Bars of four arms. After 10 steps wrong answers are near 6 tokens longer in both arms "
    "with 1/|o| and no longer in both with a constant; hard prompts have gained a third of what "
    "medium ones gained with the std, a fifth without, whatever the aggregation. After 100 steps "
    "wrong answers are 56 tokens longer under 1/|o|, and hard prompts have gained twice what "
    "medium ones gained there, under a constant .45 with the std and .28 without.",
    answers="frameworks whose Dr. GRPO switch turns off one of the two",
    data=ablation_data,
    recorded=True,
)
def two_by_two(table: pd.DataFrame) -> Figure:
    """Rows: early and late; columns: the two effects; a bar for each of four arms."""
    picture = new_figure(WIDTH, 4.6)
    panels = picture.subplots(len(STAGES), len(EFFECTS), sharey=True, sharex="col")
    labels, colours = zip(*ARMS.values(), strict=True)
    for row, (stage, (steps, _)) in zip(panels, STAGES.items(), strict=True):
        for panel, (outcome, (effect, form)) in zip(row, EFFECTS.items(), strict=True):
            part = table[(table.stage == stage) & (table.outcome == outcome)]
            part = part.set_index(["aggregation", "scale"]).loc[list(ARMS)]
            error = [part["mean"] - part["low"], part["high"] - part["mean"]]
            how: dict[str, Any] = {"ecolor": ink(), "capsize": 2, "error_kw": {"linewidth": 1}}
            panel.barh(labels, part["mean"], xerr=error, color=colours, height=0.6, **how)
            for y, (mean, high) in enumerate(zip(part["mean"], part["high"], strict=True)):
                text = f"{mean:{form}}".replace("-", "−")
                where = (max(high, 0), y)
                panel.annotate(text, where, (6, 0), textcoords="offset points", va="center")
            panel.set_title(f"after {steps} steps: {effect}")
            panel.tick_params(axis="y", length=0)
    panels[0, 0].invert_yaxis()
    panels[0, 0].set_xlim(-4, 66)
    panels[0, 1].set_xlim(0, 2.3)
    panels[1, 0].set_xlabel("tokens")
    panels[1, 1].set_xlabel("ratio")
    return picture


# --- DAPO's parts, one after the other


def ladder() -> list[Recipe]:
    """GRPO, and DAPO's parts added one by one, in the order of its Table 1."""
    filtering = partial(truncation_mask, in_baseline=False)
    steps = [grpo_without_kl()]
    for name, change in {
        "+ overlong filtering": {"filters": (filtering,)},
        "+ clip-higher": {"surrogate": partial(ppo_clip, eps_low=0.2, eps_high=0.28)},
        "+ soft overlong penalty": {"rewards": (partial(overlong_penalty, cache=16),)},
        "+ token-level loss": {"aggregation": prompt_token_mean},
        "+ dead groups dropped": {"filters": (filtering, drop_dead_groups)},
    }.items():
        steps.append(steps[-1].but(name, **change))
    return steps


def ladder_data() -> pd.DataFrame:
    """Slip toy after 10 rollouts with 8 updates each, so that the clip acts; one learning rate."""
    policy = stopping.Stopping(mode="slip", right=0.2)
    training = replace(RUNS, steps=10, updates=8, every=10)
    table = stopping.train(ladder(), policy, training, seeds=2 * SEEDS)
    return table.query("step == step.max()").filter(
        items=["recipe", "seed", "pass_rate", "length_right", "length_wrong"]
    )


@figure(
    title="DAPO's changes to GRPO, added one by one in a toy: only the token-level loss changes "
    "lengths much",
    level=f"simulated, {2 * SEEDS} seeds, 95 % interval",
    caption=f"simulated, {2 * SEEDS} seeds, 95 % interval; all answers start at 13 tokens; 8 "
    "updates on each rollout, one learning rate; pass rates end at .71 to .75",
    alt="Expected length given right and given wrong, with intervals, for GRPO and "
    "five recipes that add one part of DAPO each. Pass rates lie between .71 and .75; wrong "
    "answers have some 48 tokens until the token-level loss, which brings them to 21.",
    answers="DAPO (arXiv 2503.14476) Table 1; the order of a toy's rungs need not be that of a "
    "language model's",
    data=ladder_data,
    recorded=True,
)
def dapo_ladder(table: pd.DataFrame) -> Figure:
    """The two lengths per rung."""
    picture = new_figure(WIDTH, 4.2)
    panel = picture.subplots()
    long = table.melt(["recipe", "seed"], ["length_right", "length_wrong"], "kind", "tokens")
    rows = intervals(long, "tokens", by=["recipe", "kind"])
    draw_intervals(panel, rows, "recipe", "kind", SIDES, ".0f")
    panel.set(xlabel="expected tokens of an answer after 10 rollouts", xlim=(-2, 62))
    return picture


# --- truncated completions


def truncation_data() -> pd.DataFrame:
    """Four treatments of completions that meet the cap; right answers are long. Base: Dr. GRPO."""
    table = overlong(training=replace(RUNS, steps=200, every=10), seeds=2 * SEEDS)
    return table.filter(
        items=["recipe", "seed", "step", "length_right", "length_wrong", "truncated"]
    )


@figure(
    title="Answers cut off at the limit: counting them as failures, penalising or masking them "
    "each shortens right answers",
    level=f"simulated, {2 * SEEDS} seeds, 95 % interval",
    caption=f"simulated, {2 * SEEDS} seeds, 95 % interval; Dr. GRPO, limit 32 tokens; scored as "
    "they are: the reward knows nothing of the cut; masked out: left out of the loss",
    alt="Expected length of right answers and share of truncated completions against training "
    "step, for four treatments of truncated completions: ignored, rewarded as failure, masked "
    "out, soft penalty.",
    answers="DAPO (arXiv 2503.14476) §3.4 and Fig. 5, overlong filtering: masking is not neutral, "
    "since the long tail is no longer seen",
    data=truncation_data,
    recorded=True,
)
def truncation_treatments(table: pd.DataFrame) -> Figure:
    """Length of right answers and share truncated, over training."""
    picture = new_figure(WIDTH, 3.9)
    panels = picture.subplots(1, 2)
    names = ("scored as they are", "counted as failures", "masked out", "soft penalty")
    looks = {
        treatment: look(treatment, k)._replace(label=name)
        for k, (treatment, name) in enumerate(zip(TREATMENTS, names, strict=True))
    }
    share = table.assign(truncated=100 * table.truncated)
    for panel, column, heading in zip(
        panels,
        ("length_right", "truncated"),
        ("expected tokens of right answers", "answers cut off, %"),
        strict=True,
    ):
        dynamics.draw_lines(panel, share, column, list(TREATMENTS), looks=looks)
        dynamics.name_ends(panel)
        panel.set(xlabel="training step", title=heading)
    return picture
