"""Exercises on difficulty: the expected weight of a prompt at finite group size, and groups that
say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...theory.difficulty import infinite_std_weight, silent_probability, std_weight
from ..engine import Case, Exercise, Property

# --- group_weight ---------------------------------------------------------------------------------


def group_weight(p: float, size: int, ddof: int) -> float:
    """Expected weight of a prompt of pass rate p under the group std."""
    return std_weight(p, size, ddof=ddof)


def weight_cases() -> list[Case]:
    return [
        Case(f"p = {p}, G = {size}, ddof = {ddof}", (p, size, ddof))
        for p, size, ddof in ((0.5, 2, 0), (0.3, 3, 1), (0.2, 8, 0), (0.9, 5, 1), (0.01, 16, 1))
    ]


def _summed(
    term: Callable[[int, float, int, float], float], *, divide: bool = True
) -> Callable[[float, int, int], float]:
    """A wrong version: Σ_k term(k, p, G, std of k right in G)."""

    def wrong(p: float, size: int, ddof: int) -> float:
        total = sum(
            term(k, p, size, math.sqrt(k * (size - k) / size / (size - ddof)))
            for k in range(1, size)
        )
        return total / (p * (1 - p)) if divide else total

    return wrong


def _chance(k: int, p: float, size: int) -> float:
    return math.comb(size, k) * p**k * (1 - p) ** (size - k)


def _variance(k: int, size: int) -> float:
    return k * (size - k) / size**2


def _same(a: float, b: float) -> bool:
    return math.isclose(float(a), float(b), rel_tol=1e-6, abs_tol=1e-9)


GROUP_WEIGHT = Exercise(
    name="group_weight",
    title="What the std really weighs, at your G",
    goal="Compute the expected weight of a prompt of pass rate p in groups of G, exactly.",
    minutes=15,
    difficulty=3,
    kind="implement",
    returns="a number",
    reference=group_weight,
    cases=weight_cases,
    properties=(
        Property(
            "at G = 2 it is the same for every pass rate",
            lambda f: _same(f(0.1, 2, 0), f(0.5, 2, 0)),
        ),
        Property(
            "a prompt of pass rate p weighs as much as one of 1 - p",
            lambda f: _same(f(0.2, 8, 1), f(0.8, 8, 1)),
        ),
        Property("it stays finite where p is very small", lambda f: f(1e-6, 8, 0) < 10),
    ),
    mistakes={
        "the limit of infinite groups, 1/√(p(1-p)), whatever G is": lambda p, n, d: (
            infinite_std_weight(p)
        ),
        "ddof is ignored, as if it were 0": lambda p, n, d: std_weight(p, n, ddof=0),
        "ddof is ignored, as if it were 1": lambda p, n, d: std_weight(p, n, ddof=1),
        "not divided by p(1-p)": _summed(
            lambda k, p, n, s: _chance(k, p, n) * _variance(k, n) / s, divide=False
        ),
        "the binomial coefficient is missing": _summed(
            lambda k, p, n, s: p**k * (1 - p) ** (n - k) * _variance(k, n) / s
        ),
        "averaged over live groups only: silent groups must count as 0": lambda p, n, d: (
            std_weight(p, n, ddof=d) / (1 - silent_probability(p, n))
        ),
        "the std is not divided by: this is the weight without it": _summed(
            lambda k, p, n, s: _chance(k, p, n) * _variance(k, n)
        ),
        "it divides by the variance, not by the std": _summed(
            lambda k, p, n, s: _chance(k, p, n) * _variance(k, n) / s**2
        ),
    },
    why='scale_rewards="group" at G = 8 lifts a prompt of pass rate 0.05 by a third, not by the '
    "2.3 that the textbook curve says.",
)


# --- silent_share ---------------------------------------------------------------------------------


def silent_share(p: float, size: int) -> float:
    """Probability that a group is all right or all wrong."""
    return silent_probability(p, size)


def silent_cases() -> list[Case]:
    return [
        Case(f"p = {p}, G = {size}", (p, size))
        for p, size in ((0.5, 2), (0.05, 8), (0.9, 4), (0.1819, 16))
    ]


SILENT_SHARE = Exercise(
    name="silent_share",
    title="Groups that say nothing",
    goal="How probable is it that a group of G has no signal at all?",
    minutes=5,
    difficulty=1,
    kind="implement",
    returns="a probability",
    reference=silent_share,
    cases=silent_cases,
    properties=(
        Property(
            "it is a probability", lambda f: all(0 <= f(p, 4) <= 1 for p in (0.01, 0.5, 0.99))
        ),
        Property("larger groups are silent less often", lambda f: f(0.3, 16) < f(0.3, 2)),
        Property(
            "pass rate p and 1 - p are silent equally often", lambda f: _same(f(0.2, 6), f(0.8, 6))
        ),
    ),
    mistakes={
        "only the groups that are all wrong": lambda p, n: (1 - p) ** n,
        "only the groups that are all right": lambda p, n: p**n,
        "the probability of a live group, the opposite": lambda p, n: 1 - silent_probability(p, n),
        "the two are multiplied: a group cannot be both": lambda p, n: p**n * (1 - p) ** n,
        "one completion too few: G - 1 in the exponent": lambda p, n: (
            p ** (n - 1) + (1 - p) ** (n - 1)
        ),
        "the chance of one dead completion times G, not a power": lambda p, n: n * p + n * (1 - p),
        "the group size is ignored, it is that of a pair": lambda p, n: silent_probability(p, 2),
    },
    why="TRL logs it as frac_reward_zero_std. At pass rate 0.18 two completions are silent 70 % of "
    "the time, sixteen 4 %.",
)

EXERCISES: Sequence[Exercise] = (GROUP_WEIGHT, SILENT_SHARE)
