"""Exercises on what happens around the loss: overlong penalty, dynamic sampling, GAE, the end of a
completion.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...objective import advantages as adv
from ...objective import groups
from ..engine import Case, Exercise, Function, Property
from .advantages import TWO, UNEVEN, dead_cases, everyone, near, one_group, rewards, std_is_zero
from .aggregation import of_lengths
from .surrogates import wide

# --- overlong_penalty -----------------------------------------------------------------------------


def overlong_penalty(length: Tensor, max_new_tokens: int, cache: int) -> Tensor:
    """0 up to L_max - L_cache, then linearly down to -1 at L_max."""
    over = length.double() - (max_new_tokens - cache)
    return -(over / cache).clamp(0, 1)


def overlong_cases() -> list[Case]:
    return [
        Case(
            "lengths below, on and beyond the slope, limit 20, cache 4",
            (torch.tensor([10, 16, 18, 20, 25]), 20, 4),
        ),
        Case("limit 100, cache 50", (torch.tensor([1, 50, 60, 99, 100, 140]), 100, 50)),
        Case("the cache is the whole limit", (torch.tensor([0, 3, 8]), 8, 8)),
    ]


def _slope(start: float, per: float, length: Tensor) -> Tensor:
    return -((length.double() - start) / per)


OVERLONG_PENALTY = Exercise(
    name="overlong_penalty",
    title="Soft overlong punishment",
    goal="Write DAPO's penalty: nothing for long, then a slope, then -1.",
    minutes=8,
    difficulty=1,
    kind="implement",
    returns="[N] penalties, to be added to the reward",
    reference=overlong_penalty,
    cases=overlong_cases,
    properties=(
        Property(
            "nothing is taken up to max_new_tokens - cache",
            lambda f: near(f(torch.tensor([1, 10, 16]), 20, 4), 0.0),
        ),
        Property(
            "never below -1, however long",
            lambda f: bool((f(torch.tensor([20, 25, 99]), 20, 4) >= -1 - 1e-6).all()),
        ),
        Property(
            "on the slope every further token costs the same",
            lambda f: near(f(torch.arange(16, 21), 20, 4).diff().diff(), 0.0),
        ),
        Property("never a bonus", lambda f: bool((f(torch.arange(0, 30), 20, 4) <= 1e-6).all())),
    ),
    mistakes={
        "there is no floor: the penalty goes on beyond -1": lambda n, top, c: (
            -((n.double() - (top - c)) / c).clamp(min=0)
        ),
        "short completions are paid: the 0 below the slope is missing": lambda n, top, c: _slope(
            top - c, c, n
        ).clamp(min=-1),
        "the sign is flipped: being long is rewarded": lambda n, top, c: (
            -overlong_penalty(n, top, c)
        ),
        "a hard cut at the limit, there is no slope": lambda n, top, c: -(n >= top).double(),
        "the slope starts at the limit, where it should end": lambda n, top, c: overlong_penalty(
            n, top + c, c
        ),
        "it divides by the limit, not by the cache": lambda n, top, c: (
            -((n.double() - (top - c)) / top).clamp(0, 1)
        ),
        "the slope starts at length 0: the cache is left out": lambda n, top, c: (
            -(n.double() / top).clamp(0, 1)
        ),
    },
    why="With the penalty off and the truncation mask on, nobody pays for running into the limit; "
    "with 1/|o| the long wrong ones are spared as well.",
)


# --- dynamic_sampling -----------------------------------------------------------------------------


def dynamic_sampling(reward: Tensor, group: Tensor) -> Tensor:
    """True on rows whose group has rewards that differ."""
    return ~groups.is_dead(reward, group, everyone(group))


def dynamic_cases() -> list[Case]:
    return [
        Case("one live group", (rewards(1, 0, 0, 0), one_group(TWO[:4]))),
        Case("one group, all right", (rewards(1, 1, 1, 1), one_group(TWO[:4]))),
        Case("one group all right, one all wrong", (rewards(1, 0, 1, 0, 1, 0, 1, 0), TWO)),
        Case("one group all right, one live", (rewards(1, 1, 1, 0, 1, 0, 1, 0), TWO)),
        Case(
            "groups of 3 and 5, the small one all wrong", (rewards(0, 0, 0, 1, 0, 0, 1, 1), UNEVEN)
        ),
        Case("rewards -1 and +1", (rewards(-1, 1, -1, -1, -1, -1, -1, 1), TWO)),
        Case(
            "graded rewards, one of them equal to the mean",
            (rewards(0, 0.5, 1), one_group(TWO[:3])),
        ),
        *[case for case in dead_cases() if "float32" in case.what],
    ]


def _any_right(reward: Tensor, group: Tensor) -> Tensor:
    return groups.total((reward > 0).double(), group) > 0


def _any_wrong(reward: Tensor, group: Tensor) -> Tensor:
    return groups.total((reward <= 0).double(), group) > 0


DYNAMIC_SAMPLING = Exercise(
    name="dynamic_sampling",
    title="Dynamic sampling: which groups stay",
    goal="Keep the prompts whose completions differ in reward.",
    minutes=6,
    difficulty=1,
    kind="implement",
    returns="[N] bool, True where the row stays",
    reference=dynamic_sampling,
    cases=dynamic_cases,
    properties=(
        Property(
            "a group stays or goes as a whole",
            lambda f: all(
                len(set(f(rewards(1, 0, 0, 0, 1, 0, 0, 1), TWO)[k::2].tolist())) == 1
                for k in (0, 1)
            ),
        ),
        Property(
            "another prompt's rewards change no verdict",
            lambda f: torch.equal(
                f(rewards(1, 0, 1, 1, 1, 0, 1, 1), TWO)[::2],
                f(rewards(1, 1, 1, 1, 1, 1, 1, 1), TWO)[::2],
            ),
        ),
    ),
    mistakes={
        "groups that are all right stay, only the all-wrong ones go": _any_right,
        "groups that are all wrong stay, only the all-right ones go": _any_wrong,
        "single completions are dropped, not groups: only right answers stay": lambda r, g: r > 0,
        "the whole batch is judged, not each prompt's group": lambda r, g: dynamic_sampling(
            r, one_group(g)
        ),
        "rewards are taken as 0 and 1: with -1 and +1 the sum says nothing": lambda r, g: (
            (groups.total(r, g) > 0) & (groups.total(r, g) < groups.size(g, everyone(g)))
        ),
        "std > 0: rounding makes the std of equal rewards positive": lambda r, g: (
            ~std_is_zero(r, g)
        ),
        "the tolerance is so wide that real differences are called equal": lambda r, g: (
            groups.std(r, g, everyone(g), 1) > 1e-4
        ),
        "single completions are compared with the group's mean": lambda r, g: (
            r != groups.mean(r, g, everyone(g))
        ),
    },
    why="Without it dead groups dilute a token mean: 60 dead of 100 tokens make the live ones "
    "weigh 0.4 of what they would (TRL issue 6367).",
)


# --- gae ------------------------------------------------------------------------------------------


def gae(reward: Tensor, value: Tensor, mask: Tensor, gamma: float, lam: float) -> Tensor:
    """GAE with the completion's reward at its last live token."""
    return adv.gae(reward, mask, value, gamma=gamma, lam=lam)


def gae_cases() -> list[Case]:
    source = torch.Generator().manual_seed(5)

    def values(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=source, dtype=torch.float64)

    return [
        Case(
            "one completion of 3 tokens, gamma = lambda = 1",
            (wide(1), values(1, 3), of_lengths(3), 1.0, 1.0),
        ),
        Case(
            "one completion, gamma 0.9, lambda 0.8",
            (wide(2), values(1, 4), of_lengths(4), 0.9, 0.8),
        ),
        Case(
            "unequal lengths, padded",
            (wide(1, -1), values(2, 6), of_lengths(2, 5, width=6), 0.99, 0.95),
        ),
        Case("lambda 0", (wide(1, 0.5), values(2, 3), of_lengths(3, 2), 0.9, 0.0)),
    ]


def _backward(
    at_end: Function, gamma_of: Function, carry_of: Function, after: Function
) -> Function:
    """A wrong GAE from its parts: the reward at t, the discount of V, the factor of the carry, the
    value after the end.
    """

    def wrong(reward: Tensor, value: Tensor, mask: Tensor, gamma: float, lam: float) -> Tensor:
        last = mask.sum(1) - 1
        out = torch.zeros_like(value)
        carry = torch.zeros_like(reward)
        for t in reversed(range(mask.shape[1])):
            ahead = value[:, t + 1] if t + 1 < mask.shape[1] else torch.zeros_like(reward)
            ahead = torch.where(last > t, ahead, after(ahead))
            delta = at_end(reward, t, last, mask) + gamma_of(gamma) * ahead - value[:, t]
            carry = torch.where(mask[:, t], delta + carry_of(gamma, lam) * carry, 0.0)
            out[:, t] = carry
        return out

    return wrong


def _last(reward: Tensor, t: int, last: Tensor, mask: Tensor) -> Tensor:
    return reward * (last == t)


def _nothing(ahead: Tensor) -> Tensor:
    return torch.zeros_like(ahead)


GAE = Exercise(
    name="gae",
    title="Generalised advantage estimation",
    goal="One advantage per token from rewards and a value model, walking backwards.",
    minutes=15,
    difficulty=3,
    kind="implement",
    returns="[N, T] advantages, 0 under the mask",
    reference=gae,
    cases=gae_cases,
    properties=(
        Property(
            "gamma = lambda = 1: reward minus value, at every token",
            lambda f: near(
                f(wide(1), wide(0.2, 0.5, 0.9)[None], of_lengths(3), 1.0, 1.0),
                1 - wide(0.2, 0.5, 0.9)[None],
            ),
        ),
        Property(
            "values under the mask have no say",
            lambda f: near(
                f(wide(1), wide(0.2, 0.5, 0.9)[None], of_lengths(2, width=3), 0.9, 0.8),
                f(wide(1), wide(0.2, 0.5, -7)[None], of_lengths(2, width=3), 0.9, 0.8),
            ),
        ),
        Property(
            "lambda = 0: the reward is seen by the last token only",
            lambda f: near(
                (
                    f(wide(1), wide(0.2, 0.5)[None], of_lengths(2), 1.0, 0.0)
                    - f(wide(3), wide(0.2, 0.5)[None], of_lengths(2), 1.0, 0.0)
                )[0, 0],
                0.0,
            ),
        ),
    ),
    mistakes={
        "the reward is given at every token, not at the last one": _backward(
            lambda r, t, last, m: r * m[:, t], lambda g: g, lambda g, k: g * k, _nothing
        ),
        "the reward is given at the last column, not at the last live token": _backward(
            lambda r, t, last, m: r * (t == m.shape[1] - 1),
            lambda g: g,
            lambda g, k: g * k,
            _nothing,
        ),
        "lambda is missing": _backward(_last, lambda g: g, lambda g, k: g, _nothing),
        "gamma is missing before lambda": _backward(_last, lambda g: g, lambda g, k: k, _nothing),
        "gamma is missing before the next value": _backward(
            _last, lambda g: 1.0, lambda g, k: g * k, _nothing
        ),
        "a value after the end is used (padding)": _backward(
            _last, lambda g: g, lambda g, k: g * k, lambda ahead: ahead
        ),
        "this is the return: the value was added back": lambda r, v, m, g, k: torch.where(
            m, gae(r, v, m, g, k) + v, 0.0
        ),
        "only the one-step error: nothing is carried back": lambda r, v, m, g, k: gae(
            r, v, m, g, 0.0
        ),
        "the value is not taken away: a discounted reward": lambda r, v, m, g, k: gae(
            r, torch.zeros_like(v), m, g, k
        ),
    },
    why="With lambda below 1 early tokens of long answers see less of the reward: a length effect "
    "that no aggregation takes away.",
)


# --- completion_mask ------------------------------------------------------------------------------


def completion_mask(ids: Tensor, eos: int) -> Tensor:
    """True up to and including the first EOS; a completion without EOS is live throughout."""
    ended = (ids == eos).long().cumsum(1)
    return (ended == 0) | ((ended == 1) & (ids == eos))


def end_cases() -> list[Case]:
    return [
        Case("stopped, padded with the EOS id itself", (torch.tensor([[5, 6, 2, 2, 2]]), 2)),
        Case("truncated: no EOS at all", (torch.tensor([[5, 6, 7, 8, 9]]), 2)),
        Case(
            "three completions of unequal length",
            (torch.tensor([[4, 2, 2, 2], [4, 5, 6, 2], [4, 5, 6, 7]]), 2),
        ),
        Case("EOS first", (torch.tensor([[2, 2, 2], [5, 2, 2]]), 2)),
        Case(
            "another EOS id, and text after an early EOS",
            (torch.tensor([[3, 0, 9, 0], [0, 7, 7, 7], [3, 4, 5, 6]]), 0),
        ),
    ]


def _before_first(ids: Tensor, eos: int) -> Tensor:
    return (ids == eos).long().cumsum(1) == 0


COMPLETION_MASK = Exercise(
    name="completion_mask",
    title="The model that never learnt to stop",
    goal="Repair a mask that loses the real end token because padding uses the same id.",
    minutes=8,
    difficulty=1,
    kind="debug",
    returns="[N, T] bool, True on tokens that are trained",
    reference=completion_mask,
    cases=end_cases,
    properties=(
        Property(
            "the first EOS is trained: it is how the model says stop",
            lambda f: bool(f(torch.tensor([[5, 2, 2]]), 2)[0, 1]),
        ),
        Property(
            "nothing after the first EOS is trained",
            lambda f: not f(torch.tensor([[5, 2, 7, 2]]), 2)[0, 2:].any(),
        ),
        Property(
            "a truncated completion is live to its last token",
            lambda f: bool(f(torch.tensor([[5, 6, 7]]), 2).all()),
        ),
    ),
    mistakes={
        "every EOS is masked, the first one too: the model never learns to stop": lambda i, e: (
            i != e
        ),
        "the mask ends before the first EOS": _before_first,
        "everything is live, padding too": lambda i, e: torch.ones_like(i, dtype=torch.bool),
        "a completion without an EOS is masked whole": lambda i, e: (
            completion_mask(i, e) & (i == e).any(1, keepdim=True)
        ),
        "one place too many: the token after the EOS is live": lambda i, e: torch.cat(
            [torch.ones_like(i[:, :1], dtype=torch.bool), completion_mask(i, e)[:, :-1]], 1
        ),
        "only the EOS itself is trained": lambda i, e: completion_mask(i, e) & (i == e),
        "it ends at the last EOS, not at the first": lambda i, e: (
            (i == e).long().flip(1).cumsum(1).flip(1) > 0
        ),
    },
    why='TRL PRs 4970 and 4974: the mask was rebuilt from "token is not pad", and pad was eos.',
)

EXERCISES: Sequence[Exercise] = (OVERLONG_PENALTY, DYNAMIC_SAMPLING, GAE, COMPLETION_MASK)
