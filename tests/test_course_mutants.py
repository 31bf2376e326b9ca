"""Mutants of the solutions: one small change each. Every one is refused, except those listed as equivalent, with the reason."""

from __future__ import annotations

import ast
import copy
import functools
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from grpo_edu.course import engine, sheets
from grpo_edu.course.catalog import EXERCISES
from grpo_edu.course.engine import NotYet, examine

pytestmark = pytest.mark.bank
SOURCES = sorted(
    (Path(__file__).resolve().parent.parent / "notebooks" / "src" / "exercises").glob("*.py")
)
SWAPS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.Gt: ast.Lt, ast.Lt: ast.Gt, ast.Eq: ast.NotEq, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
NAMES = {
    "minimum": "maximum",
    "max": "min",
    "min": "max",
    "sum": "mean",
    "mean": "sum",
    "std": "var",
    "any": "all",
}
DROPPED = ("detach", "exp", "clamp")

# a mutant that computes the same on every valid input, or differs only in a place that the exercise leaves open
EQUIVALENT: dict[str, dict[str, str]] = {
    "cispo": {
        "detach inside exp in (logp - old_logp).exp()": "the whole coefficient is detached afterwards"
    },
}


@functools.cache
def solutions() -> dict[str, str]:
    """The solution cell of every function, from the notebooks' sources."""
    cells = [
        cell
        for path in SOURCES
        for cell in sheets.solution_notebook(path).cells
        if "nbgrader" in cell.metadata
    ]
    return {
        c.metadata.nbgrader.grade_id: c.source
        for c in cells
        if c.metadata.nbgrader.grade_id in EXERCISES and c.metadata.nbgrader.solution
    }


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Every way to change one node: a name of the change, and the changed copy."""
    if isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
        yield (
            f"{type(node.op).__name__}→{SWAPS[type(node.op)].__name__}",
            ast.BinOp(node.left, SWAPS[type(node.op)](), node.right),
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Mult, ast.Sub, ast.Add)):
        yield f"drop the right of {type(node.op).__name__}", node.left
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        yield (
            f"{type(node.ops[0]).__name__}→{SWAPS[type(node.ops[0])].__name__}",
            ast.Compare(node.left, [SWAPS[type(node.ops[0])]()], node.comparators),
        )
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Invert)):
        yield f"drop {type(node.op).__name__}", node.operand
    if (
        isinstance(node, ast.Constant)
        and isinstance(node.value, (int, float))
        and not isinstance(node.value, bool)
    ):
        yield f"{node.value}→{node.value + 1}", ast.Constant(node.value + 1)
    if isinstance(node, ast.keyword) and node.arg == "dim":
        yield "dim→0", ast.keyword("dim", ast.Constant(0))
    if isinstance(node, ast.keyword) and node.arg == "keepdim":
        yield "keepdim→False", ast.keyword("keepdim", ast.Constant(False))
    if isinstance(node, ast.Attribute) and node.attr in NAMES:
        yield (
            f"{node.attr}→{NAMES[node.attr]}",
            ast.Attribute(node.value, NAMES[node.attr], node.ctx),
        )
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in DROPPED
    ):
        yield f"drop {node.func.attr}", node.func.value
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "exp"
    ):
        yield (
            "detach inside exp",
            ast.Call(
                ast.Attribute(
                    ast.Call(ast.Attribute(node.func.value, "detach", ast.Load()), [], []),
                    "exp",
                    ast.Load(),
                ),
                [],
                [],
            ),
        )
    if isinstance(node, ast.Return) and node.value is not None:
        yield "minus the result", ast.Return(ast.UnaryOp(ast.USub(), node.value))
        yield "twice the result", ast.Return(ast.BinOp(node.value, ast.Mult(), ast.Constant(2)))


class Replace(ast.NodeTransformer):
    def __init__(self, place: int, new: ast.AST) -> None:
        self.place, self.new, self.count = place, new, -1

    def visit(self, node: ast.AST) -> ast.AST:
        self.count += 1
        return copy.deepcopy(self.new) if self.count == self.place else self.generic_visit(node)


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Depth first, in the order of ``Replace``."""
    yield node
    for child in ast.iter_child_nodes(node):
        yield from walk(child)


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """A label and the code of every mutant of a solution."""
    tree = ast.parse(source)
    for place, node in enumerate(walk(tree)):
        for label, changed in changes(node):
            mutated = ast.fix_missing_locations(Replace(place, changed).visit(copy.deepcopy(tree)))
            text = ast.unparse(mutated)
            original = (
                ast.unparse(node) if not isinstance(node, ast.keyword) else ast.unparse(node.value)
            )
            yield f"{label} in {original}", text


def accepted(name: str) -> dict[str, str]:
    """Mutants of a solution that its checker lets pass."""
    passed = {}
    for label, code in mutants(solutions()[name]):
        space = {"torch": torch, "math": math}
        exec(compile(code, "<mutant>", "exec"), space)
        try:
            examine(EXERCISES[name], space[name])
            passed[label] = code
        except NotYet:
            pass
    return passed


def test_every_function_has_a_solution_and_mutants():
    assert set(solutions()) == set(EXERCISES)
    assert sum(len(list(mutants(source))) for source in solutions().values()) > 300


@pytest.mark.parametrize("name", EXERCISES)
def test_every_mutant_is_refused_but_the_equivalent_ones(name, monkeypatch):
    monkeypatch.setattr(engine, "PATIENCE", 2.0)
    assert set(accepted(name)) == set(EQUIVALENT.get(name, {}))
