"""The stepper: from the reward to the push of every token, one stage of the formula at a time.

Level of evidence: exact. The formula runs in the browser; every choice and setting of a recipe, and
every typeset formula, comes from the library.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from html import escape
from typing import Any

import torch
from torch import Tensor

from .. import formulas
from ..checks import checked
from ..formulas import Part
from ..objective import axes, catalog
from ..objective.recipe import Recipe
from ..rollouts import Rollouts
from ..weights import Push
from .base import Framed, script, spec, static, tr

OLD = 0.2  # the probability of every token when the answers were written
LONGEST = 12


def filled(rows: Sequence[Sequence[Any]], lengths: Sequence[int], value: Any) -> list[list[Any]]:
    """Rows of per-token numbers, cut or filled to these lengths."""
    given = [list(rows[i]) if i < len(rows) else [] for i in range(len(lengths))]
    return [[*row, *[value] * n][:n] for row, n in zip(given, lengths, strict=True)]


def batch_state(
    rewards: Sequence[float],
    lengths: Sequence[int],
    *,
    group: Sequence[int] | None = None,
    new: Sequence[Sequence[float]] = (),
) -> dict[str, Any]:
    """Every trait of a batch. What is not given gets a plain value: probability 0.2 for a token, an
    expected reward of 0.5, and a step that ends with the answer."""
    n = len(rewards)
    return {
        "rewards": [float(r) for r in rewards],
        "group": [0] * n if group is None else list(group),
        "greedy": [0.0] * n,
        "parts": [[float(r), float(i % 2)] for i, r in enumerate(rewards)],
        "old": filled([], lengths, OLD),
        "new": filled(new, lengths, OLD),
        "ref": filled([], lengths, OLD),
        "sampler": filled([], lengths, OLD),
        "entropy": [
            [0.2 + 0.3 * ((3 * i + 2 * t) % 5) for t in range(k)] for i, k in enumerate(lengths)
        ],
        "value": filled([], lengths, 0.5),
        "given": [[1.0 if r > 0 else -1.0] * k for r, k in zip(rewards, lengths, strict=True)],
        "step_rewards": [
            [float(r) if t == k - 1 else (0.5 if t == 1 else None) for t in range(k)]
            for r, k in zip(rewards, lengths, strict=True)
        ],
    }


MOVED = [[0.3, 0.2, 0.2, 0.14], [0.2, 0.14, 0.2, 0.24], [], [0.28, 0.2, 0.2, 0.2]]
PRESETS: dict[str, dict[str, Any]] = {
    "one right answer of four": {
        "caption": "Four answers to one question; only the first is right. The language model (the "
        "policy) has changed since it wrote them: some tokens are more or less likely now.",
        **batch_state([1, 0, 0, 0], [4, 4, 4, 8], new=MOVED),
    },
    "two answers of four tokens": {
        "caption": "Two answers to one question, one right and one wrong. Two tokens of the right "
        "answer have new probabilities.",
        **batch_state([1, 0], [4, 4], new=MOVED[:1]),
    },
    "the first update": {
        "caption": "The policy has not changed yet: every token is as likely as it was, so every "
        "ratio is 1 and nothing is clipped.",
        **batch_state([1, 0, 0, 0], [4, 4, 4, 8]),
    },
    "a long wrong answer": {
        "caption": "Two wrong answers, one three times as long as the other: does a token of the "
        "long one count less?",
        **batch_state([1, 0, 0], [4, 4, 12]),
    },
    "every answer right": {
        "caption": "All four answers are right. No answer is better than another, so a recipe that "
        "compares them learns nothing.",
        **batch_state([1, 1, 1, 1], [4, 4, 4, 4], new=MOVED),
    },
    "two questions": {
        "caption": "Two questions with two answers each. The answers of a question are compared "
        "with each other.",
        **batch_state([1, 0, 1, 1], [4, 6, 3, 5], group=[0, 0, 1, 1], new=MOVED),
    },
}

# Names of the stages that stand between the reward and the advantage.
BASELINES: dict[str, dict[str, str]] = {
    "no_baseline": {},
    "greedy": {"baseline": "greedy reward", "centred": "difference"},
    "leave_one_out": {"baseline": "mean of the others", "centred": "centred"},
    "length_weighted_mean": {"baseline": "weighted mean", "centred": "centred"},
    "gae": {"baseline": "value", "centred": "TD error"},
    "return_to_go": {"centred": "return to go"},
    "process_supervision": {"baseline": "mean of the steps", "scale": "std of the steps"},
    "decoupled_rewards": {"baseline": "mean of each", "centred": "sum of scores"},
    "pass_at_k": {"baseline": "right answers"},
    "pass_at_k_training": {"baseline": "right answers"},
    "length_adaptive_gae": {"baseline": "value", "centred": "TD error"},
    "right_and_wrong": {},
}
SCALES = {
    "group_std": "std",
    "batch_std": "std of the batch",
    "leave_one_out_std": "std of the others",
    "group_mean_scale": "mean as scale",
    "batch_whiten": "mean and std",
    "token_whiten": "mean and std",
}
# What such a stage lights in the LaTeX of the baseline.
LIT = {
    "reward": r"r\^\{\(k\)\}_i|r_\{is\}|r_i|r_j|(?<==)r",
    "baseline": r"\\mathrm\{mean\}(_\{[^}]*\})?(\\,)?(r\^\{\(k\)\}_j|r_j|\(R\))"
    r"|\\frac\{\\sum_\{j.*|r\(\\text\{greedy\}\)|V'-V|G-1-c",
    "centred": ".*",
    "scale": r"\\mathrm\{std\}.*(?=\}$)",
}
FACTORS = ("advantage", "ratio", "gate", "correction", "W")
# What a recipe may need beside rewards and probabilities, and the trait that holds it.
INPUTS = {
    "greedy_reward": "greedy",
    "reward_parts": "parts",
    "token_reward": "step_rewards",
    "value": "value",
    "given_advantage": "given",
    "ref_logp": "ref",
    "sampler_logp": "sampler",
    "entropy": "entropy",
}
PER_TOKEN = ("old", "new", "ref", "sampler", "entropy", "value", "given", "step_rewards")
BATCH = ("rewards", "group", "greedy", "parts", *PER_TOKEN)


def lit(latex: str, pattern: str) -> str:
    """LaTeX with the first match of a pattern marked as part of the advantage; all of it without a
    match."""
    found = re.search(pattern, latex)
    start, end = found.span() if found else (0, len(latex))
    marked = rf"\textcolor{{advantage}}{{{latex[start:end]}}}"
    return latex[:start] + marked + latex[end:]


def advantage_stages(recipe: Recipe) -> list[tuple[str, str, str]]:
    """``(key, name, LaTeX)`` of each stage from the reward to the advantage; what a stage adds is
    marked."""
    name = axes.function_of(recipe.baseline).__name__
    whole = formulas.advantage_latex(recipe)
    last = ("advantage", "advantage", lit(whole, ".*"))
    if name in ("given", "teacher_log_ratio"):
        return [last]
    baseline = axes.latex(recipe.baseline)
    scale = axes.latex(recipe.scale)
    names = {"reward": "reward", **BASELINES.get(name, {"baseline": "mean", "centred": "centred"})}
    before = [(key, text, lit(baseline, LIT[key])) for key, text in names.items()]
    after = []
    if scale != "1":
        before = [(key, text, rf"\frac{{{latex}}}{{{scale}}}") for key, text, latex in before]
        text = SCALES.get(axes.function_of(recipe.scale).__name__, "scale")
        after = [("scale", text, rf"\frac{{{baseline}}}{{{lit(scale, '.*')}}}")]
    shaping = [("shaping", "shaped reward", lit(axes.latex(r), ".*")) for r in recipe.rewards]
    return [before[0], *shaping, *before[1:], *after, last]


DDOF = r"\mathrm{ddof}=1"
LESS = "the sum of squares is divided by one less than the number of its terms"
SYMBOLS = (*formulas.SYMBOLS, (DDOF, DDOF, LESS))


def where(formula: str, own: Sequence[tuple[str, str]] = ()) -> str:
    """What the symbols of a formula mean, as HTML. A prompt is called a question here, and a
    completion an answer."""
    used = [(symbol, words) for symbol, pattern, words in SYMBOLS if pattern in formula]
    plain = {
        symbol: words.replace(" (one answer of the model)", "")
        .replace("completion", "answer")
        .replace("prompt", "question")
        for symbol, words in [*own, *used]
    }
    return "; ".join(f"{formulas.mathml(s)} {escape(words)}" for s, words in plain.items())


def stage(key: str, name: str, formula: str | Sequence[Part], means: str) -> dict[str, str]:
    """A stage as JavaScript reads it, its formula as MathML."""
    return {"key": key, "name": name, "formula": formulas.mathml(formula), "where": means}


def stages(recipe: Recipe) -> list[dict[str, str]]:
    """Every stage: its key and name, its formula, and what the symbols mean."""
    made = []
    for key, name, latex in advantage_stages(recipe):
        left = r"r\leftarrow " if key == "shaping" else "A_{it}="
        made.append(stage(key, name, left + latex, where(latex)))
    factors = [line for line in formulas.definitions(recipe) if line.factor in FACTORS]
    for line in sorted(factors[1:], key=lambda line: line.factor == "W"):
        parts = [Part(line.factor, line.symbol), Part(None, "=" + line.latex)]
        name = {"gate": "clip or gate"}.get(str(line.factor), str(line.factor))
        of_gate = factors if line.factor == "gate" else []
        used = [(x.symbol, x.words) for x in of_gate if x.symbol in line.latex]
        made.append(stage(str(line.factor), name, parts, where(line.latex, used)))
    push = formulas.push_parts(recipe)
    if recipe.kl is not None:
        parts = [Part("kl", r"\mathrm{KL}_{it}=-"), push[-1]]
        made.append(stage("kl", "KL", parts, where(push[-1].latex)))
    own = [(line.symbol, line.words) for line in factors]
    share = r"\mathrm{share}_{it}=\frac{\mathrm{push}_{it}}{\sum_{j,s}|\mathrm{push}_{js}|}"
    return [
        *made,
        stage("push", "push", push, where("", own)),
        stage("share", "share", share, "the part of all pushes of the step that this token has"),
    ]


def needs(recipe: Recipe) -> list[str]:
    """The traits that this recipe looks at beside rewards and probabilities."""
    asked = set().union(*(axes.inputs_of(c, required=True) for c in recipe.choices))
    return [trait for name, trait in INPUTS.items() if name in asked]


def step_spec(recipe: Recipe) -> dict[str, Any]:
    """A recipe as the stepper reads it."""
    return {
        **spec(recipe),
        "label": recipe.name,
        "title": recipe.title,
        "formula": formulas.mathml(formulas.push_parts(recipe)),
        "stages": stages(recipe),
        "needs": needs(recipe),
    }


@cache
def catalog_specs() -> dict[str, dict[str, Any]]:
    """Every recipe of the catalog as the stepper reads it."""
    return {name: step_spec(recipe) for name, recipe in catalog.RECIPES.items()}


def colours() -> str:
    """The colour of each factor as CSS variables."""
    lines = [f"--{n}: light-dark({day}, {night});" for n, (day, night) in formulas.COLOURS.items()]
    return f".grpo-explorer {{ {' '.join(lines)} }}\n"


class Stepper(Framed):
    """Reward, mean, centred, std, advantage, ratio, clip, W, push, share: one stage at a time, for
    one or two recipes on at most six completions; every control is a trait.

    .. math:: \\mathrm{push}_{it} = A_{it}\\, W_{it}\\, \\rho_{it}\\, g_{it} + \\mathrm{KL}_{it}

    Args:
        recipes: one or two, names of the catalog or ``Recipe`` objects.
        preset: a key of ``PRESETS``, the batch to start from.
        rewards, lengths: N rewards and N token counts, 1 to 12, in place of a preset.
        state: the other traits. ``old`` and ``new``: [N][T] probability of each token when it was
            written and now; ``group``: N prompt numbers; what some recipes need: ``ref`` and
            ``sampler`` (probabilities), ``entropy`` (nats), ``value`` (expected reward before each
            token), ``given`` (advantages), ``step_rewards`` (None where no step ends), each
            [N][T], ``greedy`` (rewards, N), ``parts`` ([N][K] rewards); ``max_new_tokens``: C of
            the constant;
            ``stage``: a key (``"advantage"``); ``token``: completion and position; ``compact``: for
            a frame of 680 x 520 pixels.

    Raises:
        ValueError: no such recipe or preset. traitlets.TraitError: a value outside its range.
    """

    TITLE = "From the reward to the push, step by step"
    PRESETS = PRESETS
    SHOWN = ("recipes", "stage", "token", "max_new_tokens", *BATCH)
    _esm = script("stepper")
    _css = static("explorer.css") + colours() + static("stepper.css")
    recipes = tr.List(tr.Unicode(), minlen=1, maxlen=2).tag(sync=True)
    stage = tr.Unicode("reward").tag(sync=True)
    token = tr.List(tr.Int(min=0), [0, 0], minlen=2, maxlen=2).tag(sync=True)
    max_new_tokens = tr.Int(LONGEST, min=1).tag(sync=True)
    rewards = tr.List(tr.Float(), minlen=1, maxlen=6).tag(sync=True)
    group = tr.List(tr.Int(min=0)).tag(sync=True)
    greedy = tr.List(tr.Float()).tag(sync=True)
    parts = tr.List(tr.List(tr.Float())).tag(sync=True)
    old = tr.List(tr.List(tr.Float(min=1e-6, max=1.0), minlen=1, maxlen=LONGEST)).tag(sync=True)
    new = tr.List(tr.List(tr.Float(min=1e-6, max=1.0))).tag(sync=True)
    ref = tr.List(tr.List(tr.Float(min=1e-6, max=1.0))).tag(sync=True)
    sampler = tr.List(tr.List(tr.Float(min=1e-6, max=1.0))).tag(sync=True)
    entropy = tr.List(tr.List(tr.Float(min=0.0))).tag(sync=True)
    value = tr.List(tr.List(tr.Float())).tag(sync=True)
    given = tr.List(tr.List(tr.Float())).tag(sync=True)
    step_rewards = tr.List(tr.List(tr.Float(allow_none=True))).tag(sync=True)

    @checked
    def __init__(
        self,
        recipes: Sequence[str | Recipe] = ("grpo",),
        preset: str = "one right answer of four",
        rewards: Sequence[float] | None = None,
        lengths: Sequence[int] | None = None,
        **state: Any,
    ) -> None:
        own = {r.name: r for r in recipes if isinstance(r, Recipe)}
        self._by_name = {**catalog.RECIPES, **own}
        start: dict[str, Any] = {"preset": preset}
        if rewards is not None or lengths is not None:
            given = [0.0] * len(lengths or ()) if rewards is None else rewards
            start = batch_state(given, [4] * len(given) if lengths is None else lengths)
        super().__init__(
            specs={**catalog_specs(), **{name: step_spec(recipe) for name, recipe in own.items()}},
            recipes=[r.name if isinstance(r, Recipe) else r for r in recipes],
            **start,
        )
        for name, value in state.items():
            self.set_trait(name, value)

    @tr.validate("recipes")
    def _offered(self, proposal: Any) -> list[str]:
        return self.checked("recipes", proposal["value"])

    def rollouts(self, name: str) -> Rollouts:
        """The completions as they stand, float64, with what this recipe looks at."""
        width = max(map(len, self.new))
        optional: dict[str, Any] = {
            field: self._tensor(trait, width)
            for field, trait in INPUTS.items()
            if trait in self.specs[name]["needs"]
        }
        mask = torch.arange(width)[None] < torch.tensor([len(row) for row in self.new])[:, None]
        return Rollouts(
            logp=self._tensor("new", width),
            old_logp=self._tensor("old", width),
            mask=mask,
            reward=self._tensor("rewards", width),
            group=torch.tensor(self.group),
            max_new_tokens=self.max_new_tokens,
            **optional,
        )

    def _tensor(self, trait: str, width: int) -> Tensor:
        """A trait as ``[N]`` or ``[N, T]`` float64; probabilities as their logarithms."""
        values = getattr(self, trait)
        absent = torch.nan if trait == "step_rewards" else 1.0
        if trait in PER_TOKEN:
            values = [[absent if x is None else x for x in row] for row in values]
            values = filled(values, [width] * len(values), absent)
        tensor = torch.tensor(values, dtype=torch.float64)
        return tensor.log() if trait in ("old", "new", "ref", "sampler") else tensor

    def push(self, name: str) -> Push:
        """The pushes of a recipe from the library itself, by autograd."""
        return Push.of(self._by_name[name], self.rollouts(name))

    def figure(self) -> Any:
        """The pushes by matplotlib: the last stage of every recipe."""
        from ..plots.heatmap import push_map

        return push_map([self.push(name) for name in self.recipes])
