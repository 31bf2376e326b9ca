"""Exercises on the KL term: estimators, in the loss and in the reward, and the sign that cannot be
seen at the start.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...objective import kl
from ...objective.rewards import kl_in_reward as shaped
from ..engine import Case, Exercise, Function, Property
from .advantages import near
from .aggregation import HOLES, of_lengths
from .surrogates import pair, wide

# --- kl_estimate ----------------------------------------------------------------------------------


def kl_estimate(logp: Tensor, ref_logp: Tensor, kind: str) -> Tensor:
    """k1, k2 or k3 of every token."""
    if kind == "k1":
        return kl.k1(logp, ref_logp, beta=1.0)
    return (kl.k2 if kind == "k2" else kl.k3)(logp, ref_logp, beta=1.0)


def estimate_cases() -> list[Case]:
    return [
        Case(f"{kind}, {rows} completions of {width} tokens", (*pair(rows, width, seed), kind))
        for kind, rows, width, seed in (
            ("k1", 1, 2, 1),
            ("k2", 2, 3, 2),
            ("k3", 2, 3, 3),
            ("k3", 1, 4, 4),
        )
    ]


def _kinds(k1: Function, k2: Function, k3: Function) -> Function:
    """A wrong version from three functions of d = log π - log π_ref."""
    return lambda n, r, kind: {"k1": k1, "k2": k2, "k3": k3}[kind](n - r)


def _k1(d: Tensor) -> Tensor:
    return d


def _k2(d: Tensor) -> Tensor:
    return d**2 / 2


def _k3(d: Tensor) -> Tensor:
    return torch.expm1(-d) + d


KL_ESTIMATE = Exercise(
    name="kl_estimate",
    title="k1, k2, k3",
    goal="Write the three estimators of the KL to the reference policy, per token and "
    "differentiable.",
    minutes=10,
    difficulty=2,
    kind="implement",
    returns="[N, T] estimates, differentiable",
    reference=kl_estimate,
    cases=estimate_cases,
    properties=(
        Property(
            "equal policies give 0, all three",
            lambda f: all(
                near(f(wide(-1, -2)[None], wide(-1, -2)[None], k), 0.0) for k in ("k1", "k2", "k3")
            ),
        ),
        Property(
            "k2 and k3 are never negative",
            lambda f: all((f(*pair(4, 8, 5), k) >= 0).all() for k in ("k2", "k3")),
        ),
        Property(
            "k1 is positive where the policy likes the token more than the reference does",
            lambda f: float(f(wide(-1)[None], wide(-2)[None], "k1")) > 0,
        ),
    ),
    mistakes={
        "k3 has the ratio upside down: it needs π_ref/π": _kinds(
            _k1, _k2, lambda d: torch.expm1(d) - d
        ),
        "k1 has the wrong sign": _kinds(lambda d: -d, _k2, _k3),
        "k2 lacks the factor one half": _kinds(_k1, lambda d: d**2, _k3),
        "k3 lacks the -1, so that equal policies give 1": _kinds(
            _k1, _k2, lambda d: (-d).exp() + d
        ),
        "k3 lacks the log term, so that it can be negative": _kinds(
            _k1, _k2, lambda d: torch.expm1(-d)
        ),
        "k2 is the absolute value, not half the square": _kinds(_k1, lambda d: d.abs(), _k3),
        "k3's exponential is detached: the value is right, the gradient is not": _kinds(
            _k1, _k2, lambda d: torch.expm1(-d).detach() + d
        ),
        "k1 is detached: no gradient": _kinds(lambda d: d.detach(), _k2, _k3),
        "k2 and k3 are swapped": _kinds(_k1, _k3, _k2),
    },
    learns=0,
    why="In the loss k1 does not pull at all on average, k2 gives the gradient of the reverse KL "
    "and k3 that of the forward one (open-instruct issue 534).",
)


# --- kl_in_reward ---------------------------------------------------------------------------------


def kl_in_reward(
    reward: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: float
) -> Tensor:
    """``r - β · Σ_t k1``, detached."""
    return shaped(reward, mask, logp.detach(), ref_logp, beta=beta)["reward"]


def in_reward_cases() -> list[Case]:
    return [
        Case("one completion of 2 tokens", (wide(1), *pair(1, 2, 6), of_lengths(2), 0.1)),
        Case(
            "two completions of unequal length",
            (wide(1, 0), *pair(2, 5, 7), of_lengths(2, 5), 0.05),
        ),
        Case("masks with holes", (wide(1, 0, 0.5), *pair(3, 6, 8), HOLES, 0.2)),
        Case(
            "a completion without a live token", (wide(1, 2), *pair(2, 3, 9), of_lengths(0, 3), 0.1)
        ),
    ]


def _per_completion(n: Tensor, r: Tensor, m: Tensor) -> Tensor:
    return ((n - r) * m).sum(1).detach()


KL_IN_REWARD = Exercise(
    name="kl_in_reward",
    title="KL in the reward",
    goal="Take the KL of the whole completion from its reward, before any baseline.",
    minutes=8,
    difficulty=2,
    kind="implement",
    returns="[N] rewards, without a graph",
    reference=kl_in_reward,
    cases=in_reward_cases,
    properties=(
        Property(
            "where the policy is the reference, the reward is untouched",
            lambda f: near(
                f(wide(1, 0), pair(2, 3, 1)[0], pair(2, 3, 1)[0], of_lengths(2, 3), 0.5), wide(1, 0)
            ),
        ),
        Property(
            "a completion of twice the tokens, each as far from the reference, pays twice",
            lambda f: near(
                2
                * (
                    f(
                        wide(0),
                        torch.full((1, 2), -1.0, dtype=torch.float64),
                        torch.full((1, 2), -1.5, dtype=torch.float64),
                        of_lengths(2),
                        0.1,
                    )
                ),
                f(
                    wide(0),
                    torch.full((1, 4), -1.0, dtype=torch.float64),
                    torch.full((1, 4), -1.5, dtype=torch.float64),
                    of_lengths(4),
                    0.1,
                ),
            ),
        ),
        Property(
            "leaving the reference towards likelier tokens costs reward",
            lambda f: (
                float(
                    f(
                        wide(0),
                        torch.full((1, 2), -1.0, dtype=torch.float64),
                        torch.full((1, 2), -1.5, dtype=torch.float64),
                        of_lengths(2),
                        0.1,
                    )
                )
                < 0
            ),
        ),
    ),
    mistakes={
        "the KL is averaged over the tokens, not summed": lambda w, n, r, m, b: (
            w - b * _per_completion(n, r, m) / m.sum(1).clamp(min=1)
        ),
        "the KL is added to the reward: leaving the reference is paid for": lambda w, n, r, m, b: (
            w + b * _per_completion(n, r, m)
        ),
        "beta is missing": lambda w, n, r, m, b: w - _per_completion(n, r, m),
        "masked places are counted": lambda w, n, r, m, b: w - b * (n - r).sum(1).detach(),
        "the reward carries a graph: a detach is missing": lambda w, n, r, m, b: (
            w - b * ((n - r) * m).sum(1)
        ),
        "k3 in place of k1": lambda w, n, r, m, b: (
            w - b * ((torch.expm1(r - n) + n - r) * m).sum(1).detach()
        ),
        "the absolute value: coming closer to the reference costs too": lambda w, n, r, m, b: (
            w - b * ((n - r).abs() * m).sum(1).detach()
        ),
        "one number for the whole batch in place of one per completion": lambda w, n, r, m, b: (
            w - b * _per_completion(n, r, m).sum()
        ),
    },
    learns=1,
    detached=True,
    why="It then passes the group std: four right answers that differ in KL only get advantages up "
    "to 1.16, whatever the coefficient.",
)


# --- loss_with_kl ---------------------------------------------------------------------------------


def loss_with_kl(
    token_loss: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: float
) -> Tensor:
    """Token mean of ``token_loss + β·k3``."""
    total = token_loss + kl.k3(logp, ref_logp, beta=beta)
    return torch.where(mask, total, 0.0).sum() / mask.sum()


def loss_cases() -> list[Case]:
    source = torch.Generator().manual_seed(12)
    made = []
    for what, seed, mask, beta in (
        ("one completion", 10, of_lengths(2), 0.1),
        ("two of unequal length", 11, of_lengths(2, 5), 0.5),
        ("holes", 12, HOLES, 0.04),
        ("strong beta", 13, of_lengths(3, 1), 4.0),
    ):
        loss = torch.randn(mask.shape, generator=source, dtype=torch.float64)
        made.append(
            Case(
                f"{what}, beta {beta}",
                (loss, *pair(mask.shape[0], mask.shape[1], seed), mask, beta),
            )
        )
    return made


def _parts(policy: Function, penalty: Function) -> Function:
    """A wrong version from the mean of the policy term and of the KL term."""

    def wrong(x: Tensor, n: Tensor, r: Tensor, m: Tensor, b: float) -> Tensor:
        k3 = torch.expm1(r - n) + n - r
        return policy(x, m) + penalty(k3, m, b)

    return wrong


def _live(x: Tensor, m: Tensor) -> Tensor:
    return torch.where(m, x, 0.0).sum() / m.sum()


def _step_lowers_kl(f: Function) -> bool:
    logp, ref = pair(2, 4, 14, spread=1.0)
    mask = of_lengths(2, 4)
    zero = torch.zeros(2, 4, dtype=torch.float64)
    far = f(zero, logp, ref, mask, 1.0)
    near_ = f(zero, ref + 0.5 * (logp - ref), ref, mask, 1.0)
    return bool(far > near_)


LOSS_WITH_KL = Exercise(
    name="loss_with_kl",
    title="The KL that was maximised",
    goal="Repair a loss that drives the policy away from the reference.",
    minutes=8,
    difficulty=1,
    kind="debug",
    returns="a scalar that can be differentiated",
    reference=loss_with_kl,
    cases=loss_cases,
    properties=(
        Property(
            "with a policy loss of 0, coming closer to the reference lowers the loss",
            _step_lowers_kl,
        ),
        Property(
            "where the policy is the reference, beta does not matter",
            lambda f: near(
                f(
                    torch.ones(1, 2, dtype=torch.float64),
                    pair(1, 2, 1)[1],
                    pair(1, 2, 1)[1],
                    of_lengths(2),
                    0.0,
                ),
                float(
                    f(
                        torch.ones(1, 2, dtype=torch.float64),
                        pair(1, 2, 1)[1],
                        pair(1, 2, 1)[1],
                        of_lengths(2),
                        9.0,
                    )
                ),
            ),
        ),
    ),
    mistakes={
        "the KL is subtracted from a loss, so it is maximised": _parts(
            _live, lambda k, m, b: -b * _live(k, m)
        ),
        "beta is missing": _parts(_live, lambda k, m, b: _live(k, m)),
        "the KL term is left out": lambda x, n, r, m, b: _live(x, m) + 0 * n.sum(),
        "the KL is averaged over padding too": _parts(_live, lambda k, m, b: b * k.mean()),
        "the KL is summed, not averaged": _parts(
            _live, lambda k, m, b: b * torch.where(m, k, 0.0).sum()
        ),
        "the KL is detached: it shows in the value and pulls at nothing": _parts(
            _live, lambda k, m, b: b * _live(k, m).detach()
        ),
        "the policy loss is averaged over padding too": _parts(
            lambda x, m: x.mean(), lambda k, m, b: b * _live(k, m)
        ),
        "k1 in place of k3": lambda x, n, r, m, b: _live(x + b * (n - r), m),
        "beta scales the policy loss as well": lambda x, n, r, m, b: (
            b * loss_with_kl(x, n, r, m, 1.0)
        ),
    },
    learns=1,
    why="verl PR 179: the sign cannot be seen at the start, where π = π_ref and the KL is 0. Test "
    "away from there.",
)

EXERCISES: Sequence[Exercise] = (KL_ESTIMATE, KL_IN_REWARD, LOSS_WITH_KL)
