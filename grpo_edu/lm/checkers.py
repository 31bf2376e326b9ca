"""Reward functions ``(completion, answer) -> 1.0 or 0.0``: short rules that a reader can apply by
eye.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from importlib.util import find_spec

Checker = Callable[[str, str], float]

# 12 · 1,234 · 3.50 · -4; the minus of "7-3" belongs to the subtraction, the dot of "is 7." to the
# sentence
NUMBER = re.compile(r"(?:(?<![\w)])[-−])?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?")

OPERATOR_BEFORE = re.compile(r"[0-9)] *[-+*×/÷−] *$")


def numbers(text: str) -> list[Decimal]:
    """Every integer or decimal in the text, in order.

    Thousands commas are read, a trailing dot is not.
    """
    return [Decimal(digits.replace(",", "").replace("−", "-")) for digits in NUMBER.findall(text)]


def last_number(completion: str, answer: str) -> float:
    """1.0 if the last number in the completion equals the answer, else 0.0 (also where there is no
    number).

    A last number that is still to be added, subtracted, multiplied or divided is no answer: "The
    answer is 8 + 8."

    ``last_number("3 + 4 = 7.", "7") == 1.0``; ``last_number("7, that is 3 + 4", "4") == 0.0``.
    """
    expected = _answer(answer)
    matches = list(NUMBER.finditer(completion))
    if not matches or OPERATOR_BEFORE.search(completion[: matches[-1].start()]):
        return 0.0
    return float(numbers(matches[-1].group())[0] == expected)


def first_number(completion: str, answer: str) -> float:
    """1.0 if the first number in the completion equals the answer, else 0.0 (also where there is no
    number).

    ``first_number("7, because 3 + 4", "7") == 1.0``; ``first_number("3 + 4 = 7", "7") == 0.0``.
    """
    expected = _answer(answer)
    return float(numbers(completion)[:1] == [expected])


def mathematics(completion: str, answer: str) -> float:
    """1.0 if math-verify finds the completion's final expression equal to the answer: fractions,
    sets, LaTeX.

    ``mathematics("so it is $\\frac{1}{2}$", "0.5") == 1.0``

    Raises:
        ImportError: math-verify is not installed; says how.
    """
    if find_spec("math_verify") is None:
        raise ImportError(
            "checker is 'mathematics', which needs math-verify. Run: pip install 'grpo-edu[tasks]'"
        )
    from math_verify import parse, verify  # pyright: ignore[reportMissingImports]

    gold = parse(f"${answer.strip().strip('$')}$")
    if not gold:
        raise ValueError(
            f"answer is {answer!r}: expected a mathematical expression that math-verify can read."
        )
    return float(bool(completion) and verify(gold, parse(completion)))


CHECKERS: dict[str, Checker] = {
    "last_number": last_number,
    "first_number": first_number,
    "mathematics": mathematics,
}


def _answer(answer: str) -> Decimal:
    """The one number that the answer consists of."""
    number = NUMBER.fullmatch(answer.strip())
    if not number:
        raise ValueError(
            f'answer is {answer!r}: expected one number such as "7", "-3.5" or "1,200", and '
            f"nothing else."
        )
    return numbers(number.group())[0]
