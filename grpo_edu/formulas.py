r"""Formulas of a recipe in parts, each with its factor, as LaTeX and as MathML.

Everything comes from what the choices of the recipe carry. In LaTeX a factor is marked
``\textcolor{W}{…}``; ``latex`` puts the colour in, ``mathml`` a class for a style sheet.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from latex2mathml.converter import convert

from .objective import axes
from .objective.recipe import Recipe
from .objective.surrogates import Written

# The colour of each factor, on white and on black: contrast at least 4.5 to 1.
COLOURS = {
    "advantage": ("#1f5fbf", "#8ab4f8"),
    "W": ("#00796b", "#4fd1bd"),
    "ratio": ("#8a6d00", "#e0c050"),
    "gate": ("#8a6d00", "#e0c050"),
    "correction": ("#5d4037", "#d0b0a0"),
    "kl": ("#b0003a", "#ff8fa8"),
}
PUSH_WORDS = "how hard the step pushes the token: above 0 it becomes more likely, below 0 less"
PUSH = r"-\frac{\partial\mathcal{L}}{\partial\log\pi_\theta(o_{it})}"


class Part(NamedTuple):
    """A piece of a formula: the factor that it belongs to, None for none, and its LaTeX."""

    factor: str | None
    latex: str


@dataclass(frozen=True)
class Definition:
    """What a symbol means: its LaTeX, its formula (may be empty), words, and its factor."""

    symbol: str
    latex: str
    words: str
    factor: str | None = None


def loss_parts(recipe: Recipe) -> tuple[Part, ...]:
    r"""The loss, :math:`\mathcal{L} = -\sum W_{it}[\text{surrogate} - \text{KL}]`, in parts."""
    surrogate = axes.latex(recipe.surrogate).split(r",\quad")[0]
    parts = [Part(None, r"\mathcal{L}=-\sum_{i,t}"), Part("W", "W_{it}"), Part(None, r"\Big[")]
    if recipe.correction is not None:
        parts.append(Part("correction", "c_{it}"))
    parts += _symbols(surrogate)
    own_W = recipe.kl_aggregation is not None
    if recipe.kl is not None and not own_W:
        parts += [Part(None, "-"), Part("kl", axes.latex(recipe.kl))]
    parts.append(Part(None, r"\Big]"))
    if recipe.kl is not None and own_W:
        kl = rf"W^{{KL}}_{{it}}\,{axes.latex(recipe.kl)}"
        parts += [Part(None, r"+\sum_{i,t}"), Part("kl", kl)]
    return tuple(parts)


def push_parts(recipe: Recipe) -> tuple[Part, ...]:
    r"""The push on one token, :math:`A_{it} W_{it} \rho_{it} g_{it} + \mathrm{KL}_{it}`, in
    parts."""
    parts = [Part("advantage", "A_{it}"), Part("W", "W_{it}")]
    written = _written(recipe)
    if written is not None:
        parts += [Part("ratio", written.symbol), Part("gate", "g_{it}")]
    if recipe.correction is not None:
        parts.append(Part("correction", "c_{it}"))
    product = [Part(None, r"\mathrm{push}_{it}=")]
    for part in parts:
        product += [part, Part(None, r"\cdot ")]
    product.pop()
    if recipe.kl is not None:
        product += [Part(None, "-"), Part("kl", _kl_pull(recipe))]
    return tuple(product)


def definitions(recipe: Recipe) -> tuple[Definition, ...]:
    """The push, every factor of it with its formula, then every symbol that they use."""
    lines = [
        Definition(r"\mathrm{push}_{it}", PUSH, PUSH_WORDS),
        Definition("A_{it}", advantage_latex(recipe), "advantage of the token", "advantage"),
    ]
    for shaping in recipe.rewards:
        lines.append(Definition("r_i", axes.latex(shaping), "the reward, after shaping"))
    for narrow in recipe.filters:
        lines.append(Definition("i", rf"\in\ {axes.latex(narrow)}", "completions that take part"))
    lines.append(
        Definition(
            "W_{it}",
            axes.latex(recipe.aggregation),
            "aggregation weight: how much the token counts in the loss",
            "W",
        )
    )
    written = _written(recipe)
    if written is not None:
        lines += [
            Definition(
                written.symbol,
                _filled(recipe, written.ratio),
                "ratio of new to old probability",
                "ratio",
            ),
            Definition(
                "g_{it}",
                _filled(recipe, written.gate),
                "gate: 0 where the clip takes the gradient",
                "gate",
            ),
        ]
    if recipe.correction is not None:
        correction = axes.latex(recipe.correction)
        lines.append(
            Definition("c_{it}", correction, "correction for the sampling engine", "correction")
        )
    if recipe.kl_aggregation is not None:
        own = axes.latex(recipe.kl_aggregation)
        lines.append(Definition("W^{KL}_{it}", own, "aggregation weight of the KL term", "kl"))
    everything = " ".join(line.latex for line in lines)
    everything += "".join(part.latex for part in (*loss_parts(recipe), *push_parts(recipe)))
    defined = {line.symbol for line in lines}
    return (*lines, *(line for line in symbols_in(everything) if line.symbol not in defined))


def symbols_in(formula: str) -> tuple[Definition, ...]:
    """What the symbols of a LaTeX formula mean, those of ``SYMBOLS`` only."""
    return tuple(
        Definition(symbol, "", words) for symbol, pattern, words in SYMBOLS if pattern in formula
    )


def advantage_latex(recipe: Recipe) -> str:
    """LaTeX of the advantage: the baseline's formula, divided by the scale where there is one."""
    centred = axes.latex(recipe.baseline)
    scale = axes.latex(recipe.scale)
    return centred if scale == "1" else rf"\frac{{{centred}}}{{{scale}}}"


SYMBOLS = (
    (r"\mathcal{L}", r"\mathcal{L}", "the loss, which the optimiser step makes smaller"),
    ("o_{it}", "o_{it}", "token t of completion i (one answer of the model)"),
    ("A_i", "A_i", "the advantage of completion i, on each of its tokens"),
    ("r_i", "r_i", "reward of completion i"),
    ("q(i)", "q(i)", "the group: the completions of the same prompt as i"),
    ("N", "{N}", "number of completions in the optimiser step"),
    ("P", "{P}", "number of prompts in the optimiser step"),
    ("M", "{M}", "number of micro-batches in the optimiser step"),
    ("b(i)", "b(i)", "the micro-batch of completion i"),
    ("|o_i|", "|o_i|", "number of trained tokens of completion i"),
    ("|o_j|", "|o_j|", "number of trained tokens of completion j"),
    ("C", "{C}", "a constant length, the sampler's limit on new tokens"),
    (r"n_{\pm}", r"n_{\pm}", "completions of the group whose advantage has the sign of i's"),
    ("G", "G", "number of completions in the group"),
    (r"\text{ddof}", "ddof", "the std divides by the number of rewards minus ddof"),
    ("N_{live}", "N_{live}", "number of completions whose group has more than one reward"),
    (r"\rho_{it}", r"\rho_{it}", "ratio: new probability of the token over its old one"),
    (r"\pi_\theta", r"\pi_\theta", "the policy that is trained"),
    (r"\pi_{old}", r"\pi_{old}", "the policy that wrote the completions"),
    (r"\pi_{ref}", r"\pi_{ref}", "the reference policy"),
    ("w_{it}", "w_{it}", "probability of the token in training over that in the sampling engine"),
    (r"\mathrm{sg}", r"\mathrm{sg}", "stop gradient: a value that is not differentiated"),
    (r"\sigma", r"\sigma", "the sigmoid, σ(y) = 1 / (1 + exp(-y))"),
    ("k_1", "k_1", "log-ratio of policy and reference, an estimate of the KL divergence"),
    ("k_2", "k_2", "half the squared log-ratio, an estimate of the KL divergence"),
    ("k_3", "k_3", "GRPO's estimate of the KL divergence, never negative"),
    (r"\gamma", r"\gamma", "discount of later rewards"),
    (r"\lambda", r"\gamma\lambda", "GAE's λ: how far a later surprise reaches back"),
    (r"\lambda_k", r"\lambda_k", "factor of reward k, 1 unless it is given"),
    ("r^{(k)}_i", "r^{(k)}_i", "what reward function k gives completion i"),
    (r"\tau", r"\tau", "sharpness of the soft gate"),
    ("V", "-V", "value: the expected reward from this token on"),
)


def latex(parts: Sequence[Part]) -> str:
    """The parts as LaTeX, each factor in its colour on white."""
    return "".join(
        _coloured(part, COLOURS[part.factor][0]) if part.factor else part.latex for part in parts
    )


def plain(parts: Sequence[Part]) -> str:
    """The parts as LaTeX without colours."""
    return "".join(part.latex for part in parts)


def mathml(formula: str | Sequence[Part], *, display: bool = False) -> str:
    """A formula as a MathML element, each factor as ``<mstyle class="factor W">``.

    Args:
        formula: LaTeX, or parts.
        display: on a line of its own.
    """
    parts = [Part(None, formula)] if isinstance(formula, str) else formula
    text = "".join(_coloured(part, part.factor) if part.factor else part.latex for part in parts)
    text = re.sub(r"\\mathrm\{(\w+)\}", r"\\operatorname{\1}", text).replace(r"\!", "")
    text = text.replace(r"\Big(", r"\left(").replace(r"\Big)", r"\right)")
    text = re.sub(r"_\{(old|ref|live)\}", r"_{\\text{\1}}", text)
    element = convert(text, display="block" if display else "inline")
    return re.sub(r'mathcolor="(\w+)"', r'class="factor \1"', element)


def _coloured(part: Part, colour: str) -> str:
    return rf"\textcolor{{{colour}}}{{{part.latex}}}"


def _written(recipe: Recipe) -> Written | None:
    return getattr(axes.function_of(recipe.surrogate), "written", None)


def _filled(recipe: Recipe, template: str) -> str:
    return axes.fill(recipe.surrogate, template, axes.latex)


def _kl_pull(recipe: Recipe) -> str:
    assert recipe.kl is not None
    slope = getattr(
        axes.function_of(recipe.kl), "slope_latex", r"\frac{\partial\,kl}{\partial\log\pi_\theta}"
    )
    W = "W_{it}" if recipe.kl_aggregation is None else "W^{KL}_{it}"
    return rf"{W}\cdot {axes.fill(recipe.kl, slope, axes.latex)}"


# which factor a symbol of a surrogate's formula belongs to
MARKS = (
    ("advantage", r"A(?:_\{it\}|_i)?(?![A-Za-z_])"),
    ("ratio", r"\\rho_\{it\}|\\rho_i|\\rho(?![A-Za-z])|s_\{it\}|s_i"),
    ("gate", r"\\mathrm\{clip\}|\\min|\\max"),
)


def _symbols(formula: str) -> list[Part]:
    """A surrogate's formula cut where a symbol belongs to a factor."""
    pattern = "|".join(f"(?P<{factor}>{marks})" for factor, marks in MARKS)
    parts = []
    end = 0
    for match in re.finditer(pattern, formula):
        parts.append(Part(None, formula[end : match.start()]))
        parts.append(Part(match.lastgroup, match.group()))
        end = match.end()
    parts.append(Part(None, formula[end:]))
    return [part for part in parts if part.latex]
