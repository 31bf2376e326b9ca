"""The small language of the data files: version ranges, arithmetic on option values, conditions.

Nothing is ever executed: an expression is parsed, and only the operations below are computed.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from functools import cache
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

OPERATORS: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Lt: operator.lt,
    ast.Gt: operator.gt,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
CONDITIONS = ("not", "above", "below", "set", "given")


@cache
def version_of(text: str) -> Version:
    """``"1.16"`` as a version that can be compared (PEP 440).

    Raises:
        ValueError: the text is not a version.
    """
    try:
        return Version(text)
    except InvalidVersion:
        raise ValueError(
            f"version is '{text}': expected numbers with dots, for example 1.16."
        ) from None


@cache
def in_range(version: str, versions: str) -> bool:
    """Does a version lie in ``">=0.17,<0.22"``? Every version lies in ``""``."""
    return SpecifierSet(versions).contains(version_of(version), prereleases=True)


def evaluate(expression: str, values: Mapping[str, Any]) -> Any:
    """Arithmetic, ``or`` and comparisons on named values: ``evaluate("1 + (high or low)", {...})``.

    ``or`` takes the first value that is not None. Dots in names are allowed.

    Raises:
        ValueError: anything else in the expression, an unknown name, a value that is no number.
    """
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body, values)
    except (ArithmeticError, SyntaxError, TypeError, ValueError) as error:
        raise ValueError(f"'{expression}' cannot be computed: {error}") from None


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name() | ast.Attribute():
            name = ast.unparse(node)
            if name not in values:
                raise ValueError(f"'{name}' is not known.")
            return values[name]
        case ast.BinOp(left, op, right) | ast.Compare(left, [op], [right]) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(left, values), _value(right, values))
        case ast.UnaryOp(ast.USub(), operand):
            return -_value(operand, values)
        case ast.BoolOp(ast.Or(), operands):
            results = (_value(operand, values) for operand in operands)
            return next((result for result in results if result is not None), None)
    raise ValueError(f"'{ast.unparse(node)}' is not arithmetic on known values.")


def holds(when: Mapping[str, Any], values: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Do all conditions hold?

    ``{loss_type = ["dapo", "cispo"], beta = {not = 0}, epsilon_high = {given = false}}``: a list
    means one of these; a table holds ``not``, ``above``, ``below``, ``set`` (is not None) and
    ``given`` (the user wrote it); anything else means equal.

    Args:
        when: option name -> condition.
        values: option name -> value, defaults included.
        given: what the user wrote; only its keys count.
    """
    return all(
        _condition_holds(condition, values.get(name), name in given)
        for name, condition in when.items()
    )


def _condition_holds(condition: Any, value: Any, given: bool) -> bool:
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
