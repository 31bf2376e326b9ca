"""What a recipe's typeset formula says: every gate is evaluated from its LaTeX and compared with the factors."""

from __future__ import annotations

import math
import re

import pytest
import torch

from grpo_edu import RECIPES, formulas, recipe
from grpo_edu.objective import axes
from grpo_edu.objective.kl import k1, k2, k2_gradient, k3, k3_ratio, k3_sequence_ratio, k_abs
from grpo_edu.objective.surrogates import EXAMPLES, derivative_of


def in_python(latex: str) -> str:
    """LaTeX of a gate as an expression in rho, sequence, A; only what the gates use."""
    for pattern, text in (
        (r"\^\{k-1\}", "**(k-1)*"),
        (r"\\textstyle|\\,|\\ |~", " "),
        (r"\\bar\{\\rho\}_i|\\rho_i(?!t)|s_i", "sequence"),
        (r"\\rho_\{it\}", "rho"),
        (r"A_\{it\}|A_i", "A"),
        (r"\\pi_\\theta", "new"),
        (r"\\pi_\{old\}", "old"),
        (r"d_\{it\}", "distance"),
        (r"w_i", "sequence"),
        (r"\\min", "min"),
        (r"\\lambda", "lam"),
        (r"e\^\{([^}]*)\}", r"exp(\1)"),
        (r"\\le", "<="),
        (r"\\mathrm\{clip\}", "clip"),
        (r"\\frac\{(.*)\}\{(.*)\}", r"(\1)/(\2)"),
        (r"\\sigma", "sigmoid"),
    ):
        latex = re.sub(pattern, text, latex)
    return latex


def value(expression: str, names: dict[str, float]) -> float:
    functions = {
        "exp": math.exp,
        "min": min,
        "clip": lambda x, low, high: min(max(x, low), high),
        "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    }
    return eval(expression, {"__builtins__": {}}, {**functions, **names})


def gate_from_latex(latex: str, rho: float, sequence: float, A: float, old: float) -> float:
    new = rho * old
    others = (1 - old) * math.log((1 - old) / (1 - new)) if new < 1 else math.nan
    names = {"rho": rho, "sequence": sequence, "A": A, "old": old, "new": new}
    names["distance"] = old * math.log(old / new) + others  # KL of two outcomes
    if r"\begin{cases}" in latex:
        body = latex.removeprefix(r"\begin{cases}").removesuffix(r"\end{cases}")
        for row in body.split(r"\\"):
            result, condition = row.split("&")
            if "else" in condition:
                return value(in_python(result), names)
            if all(value(in_python(part).strip(), names) for part in condition.split(r",\ ")):
                return float(result)
    if r"(k,\lambda)" in latex:  # w^(k-1) e^(λ(1-w)), (k,λ)=(a,b) (A≥0), (c,d) (A<0)
        pairs = re.findall(r"\(([\d.]+),([\d.]+)\)", latex)
        k, lam = map(float, pairs[0 if A >= 0 else 1])
        head = in_python(latex.split(r",\ ")[0]).replace("lam(", "lam*(")
        return value(head, {**names, "k": k, "lam": lam})
    if "tau" in latex:  # 4σ(y)(1-σ(y)), y = τ(ρ-1), τ = a (A>0), b (A≤0)
        tau = re.search(r"\\tau=([\d.]+)\\ \(A_\{it\}>0\),\\ ([\d.]+)", latex)
        assert tau is not None
        y = float(tau[1 if A > 0 else 2]) * (rho - 1)
        head = in_python(latex.split(r",\ ")[0]).replace("4 ", "4*").replace(") (", ")*(")
        return value(head, {"y": y})
    return value(in_python(latex), names)


@pytest.mark.parametrize("label", EXAMPLES)
def test_the_typeset_gate_is_the_gate_that_is_computed(label):
    choice = EXAMPLES[label]
    written = axes.function_of(choice).written
    if written is None:
        assert label == "REINFORCE"
        return
    g = torch.Generator().manual_seed(3)
    for spread in (0.001, 0.3, 1.5):
        log_ratio = spread * torch.randn(6, 4, generator=g, dtype=torch.float64)
        old = -3 * torch.rand(6, 4, generator=g, dtype=torch.float64)
        inputs = {
            "logp": old + log_ratio,
            "old_logp": old,
            "mask": torch.ones(6, 4, dtype=torch.bool),
            "advantage": torch.randn(6, 1, generator=g, dtype=torch.float64).expand(6, 4),
        }
        ratio, gate = axes.run(derivative_of(choice), inputs)
        template = axes.fill(choice, written.gate, axes.latex)
        for i in range(6):
            for t in range(4):
                A = inputs["advantage"][i, t].item()
                rho = log_ratio[i, t].exp().item()
                probability = old[i, t].exp().item()
                expected = gate_from_latex(template, rho, ratio[i, t].item(), A, probability)
                assert gate[i, t].item() == pytest.approx(expected, abs=1e-12), (label, rho, A)


@pytest.mark.parametrize("name", RECIPES)
def test_every_formula_of_every_recipe_becomes_mathml(name):
    r = RECIPES[name]
    lines = formulas.definitions(r)
    pieces = [formulas.loss_parts(r), formulas.push_parts(r)]
    pieces += [text for line in lines for text in (line.symbol, line.latex) if text]
    for piece in pieces:
        element = formulas.mathml(piece)
        assert element.startswith("<math")
        assert "merror" not in element
        assert "\\" not in element, piece  # a command that the converter did not know
    symbols = [line.symbol for line in lines]
    assert len(set(symbols)) == len(symbols)
    assert [line.factor for line in lines if line.factor][:2] == ["advantage", "W"]


def test_the_push_names_each_factor_that_the_recipe_has():
    def names(r):
        return [part.factor for part in formulas.push_parts(r) if part.factor]

    assert names(recipe("rloo")) == ["advantage", "W"]
    assert names(recipe("dr_grpo")) == ["advantage", "W", "ratio", "gate"]
    assert names(recipe("grpo")) == ["advantage", "W", "ratio", "gate", "kl"]


@pytest.mark.parametrize("choice", [k1, k2, k3, k3_ratio, k3_sequence_ratio, k_abs, k2_gradient])
def test_every_kl_estimator_writes_its_slope(choice):
    assert "<beta>" in choice.slope_latex


def test_a_factor_has_its_colour_in_latex_and_its_class_in_mathml():
    parts = [formulas.Part("W", "W_{it}"), formulas.Part(None, "x")]
    assert formulas.latex(parts) == r"\textcolor{#00796b}{W_{it}}x"
    assert '<mstyle class="factor W">' in formulas.mathml(parts)
