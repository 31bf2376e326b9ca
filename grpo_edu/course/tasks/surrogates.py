"""Exercises on ratio and surrogate: PPO's clip, CISPO's detach, GSPO's ratio, which tokens lost
their gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...objective import surrogates as sur
from ..engine import Case, Exercise, Function, Property
from .advantages import near
from .aggregation import HOLES, of_lengths


def pair(rows: int, width: int, seed: int, spread: float = 0.5) -> tuple[Tensor, Tensor]:
    """Log-probs of the trained and of the old policy, ``[N, T]``."""
    source = torch.Generator().manual_seed(seed)
    old = -0.2 - 2 * torch.rand(rows, width, generator=source, dtype=torch.float64)
    return (old + spread * torch.randn(rows, width, generator=source, dtype=torch.float64)).clamp(
        max=-0.01
    ), old


def of_ratio(*ratios: float) -> tuple[Tensor, Tensor]:
    """One token per completion with the given ratios."""
    old = torch.full((len(ratios), 1), -2.5, dtype=torch.float64)
    return old + torch.tensor(ratios, dtype=torch.float64).log()[:, None], old


def wide(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


# --- ppo_clip -------------------------------------------------------------------------------------


def ppo_clip(
    logp: Tensor, old_logp: Tensor, advantage: Tensor, eps_low: float, eps_high: float
) -> Tensor:
    """``min(ρ·A, clip(ρ)·A)`` of every token."""
    return sur.ppo_clip(logp, old_logp, advantage[:, None], eps_low=eps_low, eps_high=eps_high)


def clip_cases() -> list[Case]:
    four = wide(1, 1, -1, -1)
    return [
        Case(
            "ratios 1.5 and 0.5 with A = +1 and -1, eps 0.2 and 0.2",
            (*of_ratio(1.5, 0.5, 1.5, 0.5), four, 0.2, 0.2),
        ),
        Case("ratios inside the band", (*of_ratio(1.1, 0.9, 1.1, 0.9), four, 0.2, 0.28)),
        Case(
            "ratios between the two bounds, eps 0.1 and 0.4",
            (*of_ratio(1.3, 0.8, 1.3, 0.8), four, 0.1, 0.4),
        ),
        Case("three completions of three tokens", (*pair(3, 3, 1), wide(2, -0.5, 1), 0.2, 0.28)),
        Case(
            "two completions of five tokens, eps 0.05 and 0.6",
            (*pair(2, 5, 2), wide(-1, 3), 0.05, 0.6),
        ),
    ]


def _surrogate(ratio: Tensor, a: Tensor, low: float, high: float) -> Tensor:
    return torch.minimum(ratio * a, ratio.clamp(low, high) * a)


def _grows_without_bound(f: Function) -> bool:
    values = f(*of_ratio(3.0, 6.0), wide(-1, -1), 0.2, 0.2).reshape(-1)
    return near(values[1:], float(2 * values[0]))


PPO_CLIP = Exercise(
    name="ppo_clip",
    title="The clip with two sides",
    goal="Write PPO's clipped objective of every token with a lower and an upper epsilon.",
    minutes=12,
    difficulty=2,
    kind="implement",
    returns="[N, T] objective per token, to be maximised",
    reference=ppo_clip,
    cases=clip_cases,
    properties=(
        Property(
            "on policy the objective of a token is its completion's advantage",
            lambda f: near(f(*of_ratio(1, 1), wide(2, -3), 0.2, 0.28), wide(2, -3)[:, None]),
        ),
        Property(
            "above 1 + eps_high a good token's objective is flat",
            lambda f: near(f(*of_ratio(1.5, 2.5), wide(1, 1), 0.2, 0.28).reshape(-1).diff(), 0.0),
        ),
        Property(
            "below 1 - eps_low a bad token's objective is flat",
            lambda f: near(f(*of_ratio(0.5, 0.2), wide(-1, -1), 0.2, 0.28).reshape(-1).diff(), 0.0),
        ),
        Property(
            "for a bad token whose ratio rises there is no bound: twice the ratio, twice the loss",
            _grows_without_bound,
        ),
    ),
    mistakes={
        "the larger of the two terms is taken, not the smaller": lambda n, o, a, lo, hi: (
            torch.maximum(
                (n - o).exp() * a[:, None], (n - o).exp().clamp(1 - lo, 1 + hi) * a[:, None]
            )
        ),
        "only the clipped term, "
        "the minimum with the unclipped one is missing": lambda n, o, a, lo, hi: (
            (n - o).exp().clamp(1 - lo, 1 + hi) * a[:, None]
        ),
        "eps_low is used on both sides": lambda n, o, a, lo, hi: ppo_clip(n, o, a, lo, lo),
        "eps_high is used on both sides": lambda n, o, a, lo, hi: ppo_clip(n, o, a, hi, hi),
        "the two epsilons are swapped": lambda n, o, a, lo, hi: ppo_clip(n, o, a, hi, lo),
        "eps is read as a bound: the band is [eps_low, 1 + eps_high]": lambda n, o, a, lo, hi: (
            _surrogate((n - o).exp(), a[:, None], lo, 1 + hi)
        ),
        "the ratio is upside down, old over new": lambda n, o, a, lo, hi: _surrogate(
            (o - n).exp(), a[:, None], 1 - lo, 1 + hi
        ),
        "the ratio is the difference of the logs, the exp is missing": lambda n, o, a, lo, hi: (
            _surrogate(n - o, a[:, None], 1 - lo, 1 + hi)
        ),
        "it is not clipped at all": lambda n, o, a, lo, hi: (n - o).exp() * a[:, None],
        "the ratio is detached: no gradient": lambda n, o, a, lo, hi: ppo_clip(
            n.detach(), o, a, lo, hi
        ),
        "the sign is flipped: a loss, not the objective": lambda n, o, a, lo, hi: (
            -ppo_clip(n, o, a, lo, hi)
        ),
    },
    learns=0,
    why="DAPO's clip-higher is only eps_high. One published config had the bounds 3.0 and 0.28: "
    "its lower side can never act.",
)


# --- cispo ----------------------------------------------------------------------------------------


def cispo(logp: Tensor, old_logp: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    """``sg[clip(ρ, low, high)] · A · log π`` of every token."""
    return sur.cispo(logp, old_logp, advantage[:, None], low=low, high=high)


def cispo_cases() -> list[Case]:
    return [
        Case(
            "ratios 1.5 and 0.5 with A = +1 and -1, cap 5",
            (*of_ratio(1.5, 0.5, 1.5, 0.5), wide(1, 1, -1, -1), 0.0, 5.0),
        ),
        Case(
            "ratios above the cap and below the floor",
            (*of_ratio(3.0, 0.2, 3.0, 0.2), wide(1, 1, -1, -1), 0.5, 2.0),
        ),
        Case("three completions of three tokens", (*pair(3, 3, 3), wide(2, -0.5, 1), 0.8, 1.28)),
        Case("two completions of five tokens", (*pair(2, 5, 4), wide(-1, 3), 0.0, 1.1)),
    ]


CISPO = Exercise(
    name="cispo",
    title="CISPO: cap, detach, multiply",
    goal="Cap the ratio, take it out of the graph, and let it scale the gradient of log π.",
    minutes=10,
    difficulty=2,
    kind="implement",
    returns="[N, T] objective per token, to be maximised",
    reference=cispo,
    cases=cispo_cases,
    properties=(
        Property(
            "above the cap the coefficient is the cap: a larger ratio changes nothing but log π",
            lambda f: near(
                f(*of_ratio(3.0), wide(1), 0.0, 2.0) / of_ratio(3.0)[0],
                f(*of_ratio(4.0), wide(1), 0.0, 2.0) / of_ratio(4.0)[0],
            ),
        ),
        Property(
            "twice the advantage, twice the objective",
            lambda f: near(
                2 * f(*of_ratio(1.3), wide(1), 0.0, 2.0), f(*of_ratio(1.3), wide(2), 0.0, 2.0)
            ),
        ),
    ),
    mistakes={
        "the detach is missing: the ratio is differentiated too": lambda n, o, a, lo, hi: (
            (n - o).exp().clamp(lo, hi) * a[:, None] * n
        ),
        "log π is missing: the capped ratio is differentiated as in PPO": lambda n, o, a, lo, hi: (
            (n - o).exp().clamp(lo, hi) * a[:, None]
        ),
        "everything is detached, log π too: no gradient": lambda n, o, a, lo, hi: cispo(
            n.detach(), o, a, lo, hi
        ),
        "log π of the old policy in place of the trained one": lambda n, o, a, lo, hi: (
            (n - o).exp().clamp(lo, hi).detach() * a[:, None] * o
        ),
        "the bounds are read as offsets from 1, they are absolute": lambda n, o, a, lo, hi: cispo(
            n, o, a, 1 - lo, 1 + hi
        ),
        "the ratio is not capped": lambda n, o, a, lo, hi: (n - o).exp().detach() * a[:, None] * n,
        "the floor is missing, only the cap is there": lambda n, o, a, lo, hi: cispo(
            n, o, a, 0.0, hi
        ),
        "the ratio is upside down, old over new": lambda n, o, a, lo, hi: (
            (o - n).exp().clamp(lo, hi).detach() * a[:, None] * n
        ),
        "the sign is flipped: a loss, not the objective": lambda n, o, a, lo, hi: (
            -cispo(n, o, a, lo, hi)
        ),
    },
    learns=0,
    why="TRL's epsilon_high is an absolute cap for CISPO, verl's and NeMo's are offsets from 1. "
    "With 0.2 read as a cap every token is cut to 0.2.",
)


# --- sequence_ratio -------------------------------------------------------------------------------


def sequence_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """Geometric mean of the token ratios of each completion."""
    return sur.bounded_exp(sur.sequence_log_ratio(logp, old_logp, mask)).squeeze(1)


def ratio_cases() -> list[Case]:
    small = torch.full((1, 100), -1.0, dtype=torch.float64)
    return [
        Case("one token", (*of_ratio(1.5), of_lengths(1))),
        Case("a log-ratio of 0.012 on each of 100 tokens", (small, small - 0.012, of_lengths(100))),
        Case("three completions of unequal length", (*pair(3, 6, 5), of_lengths(2, 6, 4))),
        Case("masks with holes", (*pair(3, 6, 6), HOLES)),
        Case("a completion without a live token", (*pair(2, 4, 7), of_lengths(0, 3, width=4))),
    ]


def _mean(x: Tensor, m: Tensor) -> Tensor:
    return (x * m).sum(1) / m.sum(1).clamp(min=1)


SEQUENCE_RATIO = Exercise(
    name="sequence_ratio",
    title="GSPO's ratio",
    goal="One importance ratio per completion: the geometric mean of its token ratios.",
    minutes=10,
    difficulty=2,
    kind="implement",
    returns="[N] ratios, differentiable",
    reference=sequence_ratio,
    cases=ratio_cases,
    properties=(
        Property(
            "the same log-ratio on every token gives the same ratio, however long the completion",
            lambda f: near(
                f(
                    torch.full((1, 3), -1.0, dtype=torch.float64),
                    torch.full((1, 3), -1.1, dtype=torch.float64),
                    of_lengths(3),
                ),
                f(
                    torch.full((1, 30), -1.0, dtype=torch.float64),
                    torch.full((1, 30), -1.1, dtype=torch.float64),
                    of_lengths(30),
                ),
            ),
        ),
        Property(
            "what stands under the mask has no say",
            lambda f: near(
                f(wide(-1, -2)[None], wide(-1.5, -9)[None], of_lengths(1, width=2)),
                f(wide(-1, -7)[None], wide(-1.5, -3)[None], of_lengths(1, width=2)),
            ),
        ),
        Property(
            "equal policies give ratio 1",
            lambda f: near(f(pair(2, 4, 8)[1], pair(2, 4, 8)[1], of_lengths(2, 4)), 1.0),
        ),
    ),
    mistakes={
        "the 1/|o| is left out: this is the product of the token ratios": lambda n, o, m: (
            ((n - o) * m).sum(1).exp()
        ),
        "it divides by the padded width, not by the mask": lambda n, o, m: (
            ((n - o) * m).sum(1) / m.shape[1]
        ).exp(),
        "the arithmetic mean of the token ratios, not the geometric one": lambda n, o, m: _mean(
            (n - o).exp(), m
        ),
        "masked places enter the mean": lambda n, o, m: (n - o).mean(1).exp(),
        "the numerator is not masked, the denominator is": lambda n, o, m: (
            (n - o).sum(1) / m.sum(1).clamp(min=1)
        ).exp(),
        "the ratio is upside down, old over new": lambda n, o, m: _mean(o - n, m).exp(),
        "the exp is missing: the mean log-ratio": lambda n, o, m: _mean(n - o, m),
        "0/0 in a completion without a live token": lambda n, o, m: (
            ((n - o) * m).sum(1) / m.sum(1)
        ).exp(),
        "the ratio is detached: no gradient": lambda n, o, m: _mean((n - o).detach(), m).exp(),
    },
    learns=0,
    why="Without the root the ratio explodes with length: a log-ratio of 0.012 on 100 tokens is "
    "3.3 as a product. GSPO's epsilon is 3e-4 for that reason.",
)


# --- clipped_tokens -------------------------------------------------------------------------------


def clipped_tokens(ratio: Tensor, advantage: Tensor, eps_low: float, eps_high: float) -> Tensor:
    """True where the clip took a token's gradient."""
    a = advantage[:, None]
    return ((a > 0) & (ratio > 1 + eps_high)) | ((a < 0) & (ratio < 1 - eps_low))


def clipped_cases() -> list[Case]:
    four = wide(1, 1, -1, -1)
    return [
        Case(
            "ratios 1.5 and 0.5 with A = +1 and -1",
            (wide(1.5, 0.5, 1.5, 0.5)[:, None], four, 0.2, 0.2),
        ),
        Case("ratios inside the band", (wide(1.1, 0.9, 1.1, 0.9)[:, None], four, 0.2, 0.28)),
        Case("ratios between the two bounds", (wide(1.3, 0.8, 1.3, 0.8)[:, None], four, 0.1, 0.4)),
        Case("advantage 0", (wide(0.3, 1.0, 3.0)[None], wide(0), 0.2, 0.2)),
        Case(
            "three completions of four tokens",
            ((pair(3, 4, 9)[0] - pair(3, 4, 9)[1]).exp(), wide(1, -1, 0), 0.1, 0.3),
        ),
    ]


CLIPPED_TOKENS = Exercise(
    name="clipped_tokens",
    title="A clip fraction that counts the wrong tokens",
    goal="Repair the metric: which tokens really lost their gradient to the clip?",
    minutes=8,
    difficulty=2,
    kind="debug",
    returns="[N, T] bool, True where the gradient is gone",
    reference=clipped_tokens,
    cases=clipped_cases,
    properties=(
        Property(
            "a good token loses its gradient above the band only",
            lambda f: f(wide(0.5, 1.5)[None], wide(1), 0.2, 0.2).tolist() == [[False, True]],
        ),
        Property(
            "a bad token loses its gradient below the band only",
            lambda f: f(wide(0.5, 1.5)[None], wide(-1), 0.2, 0.2).tolist() == [[True, False]],
        ),
        Property(
            "with advantage 0 nothing is clipped",
            lambda f: not f(wide(0.1, 9.0)[None], wide(0), 0.2, 0.2).any(),
        ),
    ),
    mistakes={
        "everything outside the band, whatever the sign of the advantage": lambda r, a, lo, hi: (
            (r > 1 + hi) | (r < 1 - lo)
        ),
        "the sides are swapped: these tokens keep their gradient": lambda r, a, lo, hi: (
            clipped_tokens(r, -a, lo, hi)
        ),
        "only the upper side is looked at": lambda r, a, lo, hi: (a[:, None] > 0) & (r > 1 + hi),
        "only the lower side is looked at": lambda r, a, lo, hi: (a[:, None] < 0) & (r < 1 - lo),
        "the two epsilons are swapped": lambda r, a, lo, hi: clipped_tokens(r, a, hi, lo),
        "eps_low is used on both sides": lambda r, a, lo, hi: clipped_tokens(r, a, lo, lo),
        "advantage 0 is counted as negative": lambda r, a, lo, hi: (
            clipped_tokens(r, a, lo, hi) | ((a[:, None] == 0) & (r < 1 - lo))
        ),
        "the upper side is looked at whatever the sign of the advantage": lambda r, a, lo, hi: (
            (r > 1 + hi) | ((a[:, None] < 0) & (r < 1 - lo))
        ),
    },
    why="TRL issues 3032 and 3144: the logged clip ratio compared the two terms without regard to "
    "the sign, and did not match the lost gradients.",
)

EXERCISES: Sequence[Exercise] = (PPO_CLIP, CISPO, SEQUENCE_RATIO, CLIPPED_TOKENS)
