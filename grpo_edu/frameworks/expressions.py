"""The small language of the data files: versions, arithmetic on option values, and conditions. Nothing is ever executed."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping
from typing import Any

OPERATORS: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
COMPARISONS: dict[type, Any] = {
    ast.Lt: operator.lt,
    ast.Gt: operator.gt,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def version_key(text: str) -> tuple[int, ...]:
    """``"1.16.0"`` -> ``(1, 16)``: numbers before any letter, without zeros at the end.

    Raises:
        ValueError: no number in it.
    """
    if not re.match(r"v?\d+(\.\d+)*", text):
        raise ValueError(f"version is '{text}': expected numbers with dots, 1.16 say.")
    numbers = [int(x) for x in re.match(r"v?([\d.]*\d)", text).group(1).split(".")]  # type: ignore[union-attr]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def in_range(version: str, spec: str | None) -> bool:
    """Does a version lie in ``">=0.17,<0.22"``? None: every version does."""
    tests = {
        ">=": operator.ge,
        "<=": operator.le,
        "==": operator.eq,
        ">": operator.gt,
        "<": operator.lt,
    }
    for part in filter(None, (spec or "").replace(" ", "").split(",")):
        sign = next(s for s in tests if part.startswith(s))
        if not tests[sign](version_key(version), version_key(part[len(sign) :])):
            return False
    return True


def evaluate(expression: str, values: Mapping[str, Any]) -> Any:
    """Arithmetic, ``or`` and comparisons on named values: ``evaluate("1 + high or low", {...})``. Dots in names are allowed.

    Raises:
        ValueError: anything else in the expression, or a name that is unknown.
    """
    return _value(ast.parse(expression.strip(), mode="eval").body, values, expression)


def _value(node: ast.expr, values: Mapping[str, Any], whole: str) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.Name, ast.Attribute)):
        name = ast.unparse(node)
        if name not in values:
            raise ValueError(f"'{name}' is not known in '{whole}'.")
        return values[name]
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](
            _value(node.left, values, whole), _value(node.right, values, whole)
        )
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, values, whole)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
        left, right = (_value(one, values, whole) for one in (node.left, node.comparators[0]))
        return COMPARISONS[type(node.ops[0])](left, right)
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        found = [_value(one, values, whole) for one in node.values]
        return next((x for x in found if x is not None), None)
    raise ValueError(f"'{ast.unparse(node)}' in '{whole}' is not arithmetic on known values.")


def holds(when: Mapping[str, Any], values: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Do all conditions hold? ``{loss_type = ["dapo", "cispo"], beta = {not = 0}, epsilon_high = {given = false}}``.

    A list: one of these. A table: ``not``, ``above``, ``below``, ``set`` (not None), ``given`` (written by the user). Else: equal.
    """
    return all(_one(condition, values.get(name), name in given) for name, condition in when.items())


def _one(condition: Any, value: Any, given: bool) -> bool:
    if isinstance(condition, list):
        return value in condition
    if not isinstance(condition, dict):
        return value == condition
    number = isinstance(value, (int, float))
    tests = {
        "not": lambda x: value not in x if isinstance(x, list) else value != x,
        "above": lambda x: number and value > x,
        "below": lambda x: number and value < x,
        "set": lambda x: (value is not None) == x,
        "given": lambda x: given == x,
    }
    return all(tests[name](x) for name, x in condition.items())
