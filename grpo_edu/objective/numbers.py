"""The numbers of one token, put into the formulas of its choices.

A choice carries a function ``numbers(n) -> str`` (see ``axes.formula``). ``n`` holds what its
formula may look at: everything of ``axes.INPUTS`` by name in ``n.inputs``, the settings of the
choice in ``n.s``, and the token's own values, made by ``stepper``.
"""

from __future__ import annotations

import ast
import math
import operator
import statistics
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any


class Numbers(SimpleNamespace):
    """One token's values by name; ``s`` holds the settings of the choice that is written."""


def short(value: Any) -> str:
    """A number with six significant digits."""
    return f"{float(value):.6g}"


def listed(values: Iterable[float]) -> str:
    """Numbers with commas between them."""
    return ", ".join(map(short, values))


def probability_ratio(above: float, below: float) -> str:
    """exp(above - below) of two log-probabilities, as a fraction of probabilities where both can be
    read.
    """
    if min(above, below) < -20:
        return f"exp({short(above)} - {short(below)})"
    return f"{short(math.exp(above))}/{short(math.exp(below))}"


def with_eps(spread: str, eps: float) -> str:
    """A denominator with its ε, which is left out where it is 0."""
    return f"({spread} + {eps:g})" if eps else spread


def _std(*values: float, ddof: float) -> float:
    return statistics.stdev(values) if ddof else statistics.pstdev(values)


FUNCTIONS = {
    "mean": lambda *values: statistics.fmean(values),
    "std": _std,
    "exp": math.exp,
    "comb": lambda n, k: math.comb(int(n), int(k)),
    "min": min,
    "max": max,
    "sign": lambda x: (x > 0) - (x < 0),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
}


class _Calls(ast.NodeTransformer):
    """Every function of ``FUNCTIONS`` replaced by its value."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        assert isinstance(node.func, ast.Name)
        values = [float(_value(argument)) for argument in node.args]
        named = {str(keyword.arg): _value(keyword.value) for keyword in node.keywords}
        return ast.parse(short(FUNCTIONS[node.func.id](*values, **named)), mode="eval").body


def _value(node: ast.AST) -> float:
    """The value of an expression of numbers and + - · / **."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=operation, right=right):
            return _OPERATIONS[type(operation)](_value(left), _value(right))
    raise ValueError(f"{ast.unparse(node)} is not arithmetic.")


_OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def steps_of(written: str) -> list[str]:
    """A line of numbers, then the same line with its functions evaluated, where it has any.

    ``"1 - mean(1, 0, 0, 0)"`` gives ``["1 - mean(1, 0, 0, 0)", "1 - 0.25"]``.
    """
    tree = ast.parse(written.replace("·", "*"), mode="eval").body
    if not any(isinstance(node, ast.Call) for node in ast.walk(tree)):
        return [written]
    return [written, ast.unparse(_Calls().visit(tree)).replace(" * ", " · ")]
