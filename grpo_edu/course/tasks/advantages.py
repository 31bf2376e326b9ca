"""Exercises on advantages: group statistics, leave-one-out, completions without a score, dead
groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...objective import advantages as adv
from ...objective import groups
from ..engine import Case, Exercise, Function, Property

TWO = torch.tensor([0, 1, 0, 1, 0, 1, 0, 1])
UNEVEN = torch.tensor([3, 3, 3, 8, 8, 8, 8, 8])


def rewards(*values: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(values, dtype=dtype)


def everyone(group: Tensor) -> Tensor:
    return torch.ones_like(group, dtype=torch.bool)


def one_group(group: Tensor) -> Tensor:
    return torch.zeros_like(group)


def near(a: Tensor, b: Tensor | float) -> bool:
    return torch.allclose(
        a.double(), torch.as_tensor(b, dtype=torch.float64).expand(a.shape), rtol=2e-5, atol=1e-6
    )


# --- group_advantage ------------------------------------------------------------------------------


def group_advantage(reward: Tensor, group: Tensor, ddof: int, eps: float) -> Tensor:
    """``(r - mean) / (std + eps)`` within each prompt, 0 in a group of equal rewards."""
    keep = everyone(group)
    return adv.group_std(
        adv.group_mean(reward, group, keep), reward, group, keep, ddof=ddof, eps=eps
    )


def advantage_cases() -> list[Case]:
    graded = rewards(0.1, 0.9, 0.4, 2.0, -1.0, 0.3, 0.3, 1.2)
    return [
        Case(
            "one group with rewards 1 0 0 0, eps = 0",
            (rewards(1, 0, 0, 0), torch.zeros(4, dtype=torch.long), 1, 0.0),
        ),
        Case(
            "one group, graded rewards, ddof = 0",
            (rewards(0.5, 0.1, 0.9, 2.0), torch.zeros(4, dtype=torch.long), 0, 0.0),
        ),
        Case(
            "two interleaved groups, one of them with equal rewards, eps = 0",
            (rewards(1, 1, 0, 1, 0, 1, 0, 1), TWO, 1, 0.0),
        ),
        Case("two interleaved groups, graded rewards, eps = 0.5", (graded, TWO, 1, 0.5)),
        Case(
            "groups of 3 and 5, numbered 3 and 8, ddof = 0, eps = 0.25", (graded, UNEVEN, 0, 0.25)
        ),
    ]


def _raw(reward: Tensor, group: Tensor) -> tuple[Tensor, Tensor]:
    """Group mean and group size, ``[N]`` each."""
    return groups.mean(reward, group, everyone(group)), groups.size(group, everyone(group))


def _std(reward: Tensor, group: Tensor, ddof: int) -> Tensor:
    mean, size = _raw(reward, group)
    return (groups.total((reward - mean) ** 2, group) / (size - ddof)).sqrt()


def _z(centred: Tensor, spread: Tensor, eps: float) -> Tensor:
    return torch.where(spread > 0, centred / (spread + eps), torch.zeros_like(centred))


def _eps_under_root(reward: Tensor, group: Tensor, ddof: int, eps: float) -> Tensor:
    spread = (_std(reward, group, ddof) ** 2 + eps).sqrt()
    return _z(reward - _raw(reward, group)[0], spread, 0.0)


def _consecutive(reward: Tensor, group: Tensor, ddof: int, eps: float) -> Tensor:
    size = int((group == group[0]).sum())
    table = reward.reshape(-1, size)
    spread = table.std(1, correction=ddof, keepdim=True)
    return _z(table - table.mean(1, keepdim=True), spread, eps).reshape(-1)


GROUP_ADVANTAGE = Exercise(
    name="group_advantage",
    title="The group advantage",
    goal="Turn the rewards of each prompt's group into z-scores.",
    minutes=12,
    difficulty=2,
    kind="implement",
    returns="[N] advantages",
    reference=group_advantage,
    cases=advantage_cases,
    properties=(
        Property(
            "a group whose rewards are all equal gets 0, at eps = 0 too",
            lambda f: near(f(rewards(1, 1, 1, 1), torch.zeros(4, dtype=torch.long), 1, 0.0), 0.0),
        ),
        Property(
            "the advantages of one prompt add to 0",
            lambda f: near(
                groups.total(f(rewards(0.2, 1, 0.4, 3, 0, 1, 0, 2), TWO, 1, 0.1), TWO), 0.0
            ),
        ),
        Property(
            "the rewards of another prompt do not matter",
            lambda f: near(
                f(rewards(1, 0, 0, 0, 0, 1, 0, 2), TWO, 1, 0.1)[::2],
                f(rewards(1, 9, 0, 5, 0, 7, 0, 2), TWO, 1, 0.1)[::2],
            ),
        ),
        Property(
            "at eps = 0, ten times the reward gives the same advantages",
            lambda f: near(
                f(rewards(1, 0, 3, 0), one_group(TWO[:4]), 0, 0.0),
                f(rewards(10, 0, 30, 0), one_group(TWO[:4]), 0, 0.0),
            ),
        ),
    ),
    mistakes={
        "ddof is ignored, it always divides by G - 1 (torch's default)": lambda r, g, d, e: (
            group_advantage(r, g, 1, e)
        ),
        "ddof is ignored, it always divides by G (numpy's default)": lambda r, g, d, e: (
            group_advantage(r, g, 0, e)
        ),
        "eps stands under the root, added to the variance and not to the std": _eps_under_root,
        "eps is left out": lambda r, g, d, e: group_advantage(r, g, d, 0.0),
        "0/0 in a group of equal rewards": lambda r, g, d, e: (
            (r - _raw(r, g)[0]) / (_std(r, g, d) + e)
        ),
        "mean and std of the whole batch in place of each prompt's group": lambda r, g, d, e: (
            group_advantage(r, one_group(g), d, e)
        ),
        "the mean is the group's but the std is the whole batch's": lambda r, g, d, e: _z(
            r - _raw(r, g)[0], _std(r, one_group(g), d), e
        ),
        "only centred, not divided by the std": lambda r, g, d, e: r - _raw(r, g)[0],
        "divided by the std but not centred": lambda r, g, d, e: _z(r, _std(r, g, d), e),
        "divided by the variance, not by the std": lambda r, g, d, e: _z(
            r - _raw(r, g)[0], _std(r, g, d) ** 2, e
        ),
        "groups are taken as consecutive rows, the group numbers are ignored": _consecutive,
    },
    why="TRL adds 1e-4, verl 1e-6, OpenRLHF 1e-9; open-instruct divided by G, the others by G - 1. "
    "The same name, other numbers.",
)


# --- leave_one_out --------------------------------------------------------------------------------


def leave_one_out(reward: Tensor, group: Tensor) -> Tensor:
    """The reward minus the mean reward of the *other* completions of the prompt."""
    return adv.leave_one_out(reward, group, everyone(group))


def reward_cases() -> list[Case]:
    graded = rewards(0.1, 0.9, 0.4, 2.0, -1.0, 0.3, 0.3, 1.2)
    return [
        Case(
            "one group with rewards 1 0 0 0",
            (rewards(1, 0, 0, 0), torch.zeros(4, dtype=torch.long)),
        ),
        Case("two interleaved groups", (graded, TWO)),
        Case("groups of 3 and 5, numbered 3 and 8", (graded, UNEVEN)),
    ]


def _others(reward: Tensor, group: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sum of the group, size of the group, reward."""
    return groups.total(reward, group), groups.size(group, everyone(group)), reward


def _loo(formula: Function) -> Function:
    return lambda reward, group: formula(*_others(reward, group))


LEAVE_ONE_OUT = Exercise(
    name="leave_one_out",
    title="Leave one out",
    goal="Compare each completion with the others of its prompt only (RLOO).",
    minutes=8,
    difficulty=1,
    kind="implement",
    returns="[N] advantages",
    reference=leave_one_out,
    cases=reward_cases,
    properties=(
        Property(
            "the advantages of one prompt add to 0",
            lambda f: near(groups.total(f(rewards(0.2, 1, 0.4, 3, 0, 1, 0, 2), TWO), TWO), 0.0),
        ),
        Property(
            "one point more for a completion raises its own advantage by one point",
            lambda f: near(
                f(rewards(3, 0, 1), one_group(TWO[:3])) - f(rewards(2, 0, 1), one_group(TWO[:3])),
                rewards(1, -0.5, -0.5),
            ),
        ),
        Property(
            "the rewards of another prompt do not matter",
            lambda f: near(
                f(rewards(1, 0, 0, 0, 0, 1, 0, 2), TWO)[::2],
                f(rewards(1, 9, 0, 5, 0, 7, 0, 2), TWO)[::2],
            ),
        ),
    ),
    mistakes={
        "its own reward is in the mean: this is GRPO's centring, not leave-one-out": _loo(
            lambda s, n, r: r - s / n
        ),
        "the others are summed without it but divided by G, not by G - 1": _loo(
            lambda s, n, r: r - (s - r) / n
        ),
        "divided by G - 1 although its own reward is in the sum": _loo(
            lambda s, n, r: r - s / (n - 1)
        ),
        "the others of the whole batch in place of the prompt's": lambda r, g: leave_one_out(
            r, one_group(g)
        ),
        "the sum of the others, not their mean": _loo(lambda s, n, r: r - (s - r)),
        "only the baseline is returned, the reward is not in it": _loo(
            lambda s, n, r: (s - r) / (n - 1)
        ),
        "divided by the std as well: RLOO has no std": lambda r, g: _z(
            leave_one_out(r, g), _std(r, g, 1), 0.0
        ),
    },
    why="RLOO is G/(G-1) times the centred reward, so a switch between the two changes the "
    "learning rate: a third at G = 4, 2 % at G = 64.",
)


# --- scored_advantage -----------------------------------------------------------------------------


def scored_advantage(reward: Tensor, group: Tensor) -> Tensor:
    """Centred within the prompt over the scored completions only.

    NaN is "not scored" and gets 0.
    """
    scored = ~reward.isnan()
    known = reward.nan_to_num(0.0)
    return torch.where(scored, known - groups.mean(known, group, scored), 0.0)


def scored_cases() -> list[Case]:
    nan = float("nan")
    return [
        Case(
            "one group, rewards 1, not scored, 0, 1",
            (rewards(1, nan, 0, 1), torch.zeros(4, dtype=torch.long)),
        ),
        Case(
            "penalties: two completions not scored, two at -1",
            (rewards(nan, -1, -1, nan), torch.zeros(4, dtype=torch.long)),
        ),
        Case(
            "two interleaved groups, one completion not scored in each",
            (rewards(nan, 2, 1, nan, 4, 1, 1, 0.5), TWO),
        ),
        Case(
            "a group without any score beside a full one",
            (rewards(nan, 2, nan, 0, nan, 1, nan, 0.5), TWO),
        ),
    ]


def _missing_is_zero(reward: Tensor, group: Tensor) -> Tensor:
    known = reward.nan_to_num(0.0)
    return known - groups.mean(known, group, everyone(group))


def _pushed(reward: Tensor, group: Tensor) -> Tensor:
    known = reward.nan_to_num(0.0)
    return known - groups.mean(known, group, ~reward.isnan())


def _over_g(reward: Tensor, group: Tensor) -> Tensor:
    known = reward.nan_to_num(0.0)
    return torch.where(reward.isnan(), 0.0, known - groups.mean(known, group, everyone(group)))


def _whole_group_out(reward: Tensor, group: Tensor) -> Tensor:
    return (reward - groups.total(reward, group) / groups.size(group, everyone(group))).nan_to_num(
        0.0
    )


SCORED_ADVANTAGE = Exercise(
    name="scored_advantage",
    title="A completion without a score",
    goal="Repair a baseline that punishes completions whose reward function did not apply.",
    minutes=10,
    difficulty=2,
    kind="debug",
    returns="[N] advantages",
    reference=scored_advantage,
    cases=scored_cases,
    properties=(
        Property(
            "a completion that was not scored is neither pushed up nor down",
            lambda f: near(f(rewards(1, float("nan"), 0, 1), one_group(TWO[:4]))[1], 0.0),
        ),
        Property(
            "leaving a completion unscored is the same as not having sampled it, for the others",
            lambda f: near(
                f(rewards(1, float("nan"), 0, 1), one_group(TWO[:4]))[[0, 2, 3]],
                f(rewards(1, 0, 1), one_group(TWO[:3])),
            ),
        ),
        Property(
            "a group without any score gets 0",
            lambda f: near(f(rewards(*[float("nan")] * 3), one_group(TWO[:3])), 0.0),
        ),
    ),
    mistakes={
        "a missing reward is counted as 0 (nan_to_num, nansum)": _missing_is_zero,
        "the missing one is left out of the mean but still gets an advantage of its own": _pushed,
        "the sum leaves the missing one out but it is divided by G all the same": _over_g,
        "the NaN spreads: it makes the mean of its group NaN": lambda r, g: (
            r - groups.total(r, g) / groups.size(g, everyone(g))
        ),
        "one missing reward silences its whole group": _whole_group_out,
        "the mean of the whole batch in place of each prompt's group": lambda r, g: (
            scored_advantage(r, one_group(g))
        ),
        "the baseline is added, not taken away": lambda r, g: torch.where(
            r.isnan(), 0.0, r.nan_to_num(0.0) + groups.mean(r.nan_to_num(0.0), g, ~r.isnan())
        ),
    },
    why='TRL issue 5775 and ms-swift issue 8123: a nansum over reward functions turned "does not '
    'apply" into the reward 0.',
)


# --- dead_groups ----------------------------------------------------------------------------------


def dead_groups(reward: Tensor, group: Tensor) -> Tensor:
    """True on every row whose prompt's rewards are all equal."""
    return groups.is_dead(reward, group, everyone(group))


def dead_cases() -> list[Case]:
    sevens = torch.tensor([0.7] * 7 + [0.0, 0.7], dtype=torch.float32)
    split = torch.tensor([0] * 7 + [1] * 2)
    return [
        Case("one group, all right", (rewards(1, 1, 1), one_group(TWO[:3]))),
        Case("two interleaved groups, one live", (rewards(1, 0, 0, 0, 1, 0, 1, 0), TWO)),
        Case("seven times 0.7 in float32, and a live pair", (sevens, split)),
        Case(
            "float32 rewards that differ by 1e-5",
            (rewards(1, 1.00001, 1, 1, dtype=torch.float32), one_group(TWO[:4])),
        ),
        Case(
            "one odd completion in the middle, others equal",
            (rewards(0.5, 0.25, 0.5, 0.5), one_group(TWO[:4])),
        ),
        Case(
            "graded rewards, one of them equal to the mean",
            (rewards(0, 0.5, 1), one_group(TWO[:3])),
        ),
        Case("all rewards 0 beside all rewards 1", (rewards(0, 1, 0, 1, 0, 1, 0, 1), TWO)),
    ]


def std_is_zero(reward: Tensor, group: Tensor) -> Tensor:
    found = torch.zeros_like(group, dtype=torch.bool)
    for g in group.unique():
        found[group == g] = reward[group == g].std() == 0
    return found


def _ends_agree(reward: Tensor, group: Tensor) -> Tensor:
    found = torch.zeros_like(group, dtype=torch.bool)
    for g in group.unique():
        found[group == g] = reward[group == g][0] == reward[group == g][-1]
    return found


DEAD_GROUPS = Exercise(
    name="dead_groups",
    title="The dead group that was not zero",
    goal="Find the groups whose rewards are all equal, in float32 too.",
    minutes=10,
    difficulty=2,
    kind="debug",
    returns="[N] bool, True where the group of the row is dead",
    reference=dead_groups,
    cases=dead_cases,
    properties=(
        Property(
            "the verdict is one per prompt: rows of one prompt agree",
            lambda f: all(
                len(set(f(rewards(1, 0, 0.5, 0, 0, 0, 0.5, 0), TWO)[k::2].tolist())) == 1
                for k in (0, 1)
            ),
        ),
        Property(
            "adding a constant to every reward changes no verdict",
            lambda f: torch.equal(
                f(rewards(1, 0, 0, 0, 1, 0, 1, 0), TWO), f(rewards(4, 3, 3, 3, 4, 3, 4, 3), TWO)
            ),
        ),
    ),
    mistakes={
        "std == 0: rounding makes the std of equal rewards positive": std_is_zero,
        "the tolerance is so wide that real differences are called equal": lambda r, g: (
            _std(r, g, 1) < 1e-4
        ),
        "only groups of zero reward are called dead, "
        "groups that are all right are not": lambda r, g: groups.total(r.abs(), g) == 0,
        "the whole batch is compared, not each prompt's group": lambda r, g: dead_groups(
            r, one_group(g)
        ),
        "only the first and the last completion are compared": _ends_agree,
        "a row is compared with its own group's mean, "
        "so that rows are judged one by one": lambda r, g: (r - _raw(r, g)[0]).abs() < 1e-6,
    },
    why="In float32 the mean of seven 0.7 is one rounding off; with eps 1e-8 every member then got "
    "the advantage 0.8 (NeMo-RL PR 4158).",
)

EXERCISES: Sequence[Exercise] = (GROUP_ADVANTAGE, LEAVE_ONE_OUT, SCORED_ADVANTAGE, DEAD_GROUPS)
