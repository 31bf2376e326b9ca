"""Baselines and scales against numpy, the statistics module and explicit loops."""

from functools import partial
from statistics import fmean

import numpy as np
import pytest
import torch
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st

from grpo_edu import Recipe, Rollouts, recipe
from grpo_edu.objective import groups
from grpo_edu.objective.advantages import (
    batch_mean,
    given,
    group_mean,
    group_std,
    leave_one_out,
    leave_one_out_std,
    no_baseline,
    unscaled,
)
from grpo_edu.objective.filters import drop_dead_groups

REWARDS = [1.0, 0.0, 0.25, -2.0, 3.0, 0.5, 0.5, 7.0, -1.0]
GROUP = [5, 2, 5, 2, 2, 5, 9, 9, 2]  # sizes 3, 4, 2, in no order


def near(value, rel=1e-12):
    return pytest.approx(value, rel=rel, abs=1e-14)


def advantages(rewards, group=None, *, baseline=group_mean, scale=unscaled, **others):
    """One advantage per completion of one token."""
    rollouts = Rollouts.from_lengths([1] * len(rewards), rewards, group, **others)
    return Recipe(baseline=baseline, scale=scale).plan(rollouts).advantage[:, 0].tolist()


def members(i, rewards, group):
    """Scored rewards of the group of row i."""
    return [r for r, g in zip(rewards, group, strict=True) if g == group[i] and r is not None]


# --- baselines ------------------------------------------------------------------------------------------------------------


def test_batch_mean_blames_a_hard_prompt_whatever_it_did():
    # public report flow_grpo 46: rewards 1 1 1 0 | 0 0 0 0, mean 3/8; then over the std of all 8 (ddof 1, eps 0)
    rewards, group = [1, 1, 1, 0, 0, 0, 0, 0], [0] * 4 + [1] * 4
    assert advantages(rewards, group, baseline=batch_mean) == near([5 / 8] * 3 + [-3 / 8] * 5)
    assert advantages([1, None, 0], baseline=batch_mean)[::2] == near([0.5, -0.5])


def test_no_baseline_is_the_reward_and_given_is_what_was_given():
    assert advantages(REWARDS, GROUP, baseline=no_baseline) == REWARDS
    assert advantages([0, 0], baseline=given, given_advantage=[1.5, -0.25]) == [1.5, -0.25]


def test_given_may_differ_from_token_to_token_and_is_zero_under_the_mask():
    rollouts = Rollouts.from_lengths([1, 2], [0, 0], given_advantage=[[1.0, 9.0], [2.0, 3.0]])
    assert Recipe(baseline=given).plan(rollouts).advantage.tolist() == [[1, 0], [2, 3]]


def test_given_without_an_advantage_says_what_is_missing():
    with pytest.raises(ValueError, match=r"given needs rollouts.given_advantage, which is missing"):
        advantages([1, 0], baseline=given)


def test_group_mean_of_one_in_four():
    # mean .25
    assert advantages([1, 0, 0, 0]) == [0.75, -0.25, -0.25, -0.25]


def test_group_mean_subtracts_the_mean_of_its_own_prompt():
    expected = [r - fmean(members(i, REWARDS, GROUP)) for i, r in enumerate(REWARDS)]
    assert advantages(REWARDS, GROUP) == near(expected)


def test_leave_one_out_of_one_in_four():
    # the others: 0 for the right one, 1/3 for each wrong one
    assert advantages([1, 0, 0, 0], baseline=leave_one_out) == near([1, -1 / 3, -1 / 3, -1 / 3])


def test_leave_one_out_subtracts_the_mean_of_the_others():
    expected = []
    for i, reward in enumerate(REWARDS):
        others = [
            r
            for j, (r, g) in enumerate(zip(REWARDS, GROUP, strict=True))
            if g == GROUP[i] and j != i
        ]
        expected.append(reward - sum(others) / len(others))
    assert advantages(REWARDS, GROUP, baseline=leave_one_out) == near(expected)


@pytest.mark.parametrize("baseline", [group_mean, leave_one_out])
def test_group_baselines_refuse_a_prompt_with_one_completion(baseline):
    with pytest.raises(
        ValueError,
        match=rf"group size 1: no relative signal. {baseline.__name__} compares .* group 4 has a",
    ):
        advantages([1, 0, 1], [3, 3, 4], baseline=baseline)


@pytest.mark.parametrize("baseline", [no_baseline, partial(given)])
def test_other_baselines_accept_a_prompt_with_one_completion(baseline):
    assert advantages([0.7], baseline=baseline, given_advantage=[0.7]) == [0.7]


# --- scales ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("eps", [0.0, 1e-8, 1e-4, 0.5])
def test_group_std_divides_by_numpys_std_plus_eps(ddof, eps):
    expected = []
    for i, reward in enumerate(REWARDS):
        own = np.array(members(i, REWARDS, GROUP))
        expected.append((reward - own.mean()) / (own.std(ddof=ddof) + eps))
    assert advantages(REWARDS, GROUP, scale=partial(group_std, ddof=ddof, eps=eps)) == near(
        expected
    )


def test_eps_stands_outside_the_square_root():
    # rewards 1 0 0 0: std .5: .75/(.5 + .5) = .75; inside the root it would be .75/√(.25 + .5) = .866
    assert advantages([1, 0, 0, 0], scale=partial(group_std, ddof=1, eps=0.5))[0] == near(0.75)


def test_ddof_one_and_zero_of_one_in_four():
    # squares .75: std √(.75/3) = .5 and √(.75/4) = .433
    assert advantages([1, 0, 0, 0], scale=partial(group_std, ddof=1, eps=0.0)) == near(
        [1.5, -0.5, -0.5, -0.5]
    )
    assert advantages([1, 0, 0, 0], scale=partial(group_std, ddof=0, eps=0.0)) == near(
        [3**0.5] + [-(3**-0.5)] * 3
    )


@pytest.mark.parametrize("gap", [1.0, 10.0, 1e-3])
def test_two_completions_always_get_plus_minus_one_over_root_two(gap):
    # G = 2: ±(gap/2)/(gap/√2)
    assert advantages([gap, 0], scale=partial(group_std, ddof=1, eps=0.0)) == near(
        [2**-0.5, -(2**-0.5)]
    )


@pytest.mark.parametrize("name", ["ddof", "eps"])
def test_group_std_has_no_hidden_ddof_or_eps(name):
    bound = {"ddof": 1, "eps": 0.0}
    del bound[name]
    with pytest.raises(TypeError, match=f"no value for its setting {name}: bind one"):
        advantages([1, 0], scale=partial(group_std, **bound))


def test_group_std_divides_an_advantage_per_token_by_the_std_of_its_own_row():
    # rewards 1 0 | 3 0: std 1/√2 and 3/√2; advantages 1 2 3 on the tokens of every row: the second prompt's are a third
    rollouts = Rollouts.from_lengths(
        [3] * 4, [1, 0, 3, 0], [0, 0, 1, 1], given_advantage=[[1.0, 2, 3]] * 4
    )
    found = (
        Recipe(baseline=given, scale=partial(group_std, ddof=1, eps=0.0)).plan(rollouts).advantage
    )
    root = 2**0.5
    assert found.flatten().tolist() == near(
        [root, 2 * root, 3 * root] * 2 + [root / 3, 2 * root / 3, root] * 2
    )


@pytest.mark.parametrize("size", range(3, 17))
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 1.0), (0.1, 0.7)])
def test_leave_one_out_std_leaves_the_lone_one_alone_at_every_group_size(size, low, high):
    # the others are equal, so their std is 0 and nothing is divided: A = own - theirs. Cancelled squares must not pass for a std.
    choice = Recipe(baseline=leave_one_out, scale=partial(leave_one_out_std, ddof=1, eps=1e-6))
    for own, theirs in ((high, low), (low, high)):
        rollouts = Rollouts.from_lengths([1] * size, [own] + [theirs] * (size - 1))
        assert choice.plan(rollouts).advantage[0, 0].item() == pytest.approx(
            own - theirs, rel=1e-12
        )


def test_leave_one_out_std_of_float32_rewards_far_from_zero():
    # 100 + 0, .1, .2, .3: leave-one-out advantages -.2, -.0667, .0667, .2; the others' std .1, .1528, .1528, .1
    reward = torch.tensor([100.0, 100.1, 100.2, 100.3])
    one = torch.ones(4, 1)
    rollouts = Rollouts(
        logp=-one, mask=one.bool(), reward=reward, group=torch.zeros(4, dtype=torch.long)
    )
    found = (
        Recipe(baseline=leave_one_out, scale=partial(leave_one_out_std, ddof=1, eps=0.0))
        .plan(rollouts)
        .advantage
    )
    assert found[:, 0].tolist() == pytest.approx([-2, -0.43644, 0.43644, 2], rel=1e-2)


# --- unscored and dead ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scale", [unscaled, partial(group_std, ddof=1, eps=1e-4), partial(group_std, ddof=0, eps=1e-8)]
)
@pytest.mark.parametrize("baseline", [group_mean, leave_one_out])
def test_an_unscored_completion_is_as_if_it_were_not_in_its_group(baseline, scale):
    rewards = [1.0, None, 0.0, 0.5, 2.0, None]
    group = [0, 0, 0, 0, 1, 1]
    scored = [0, 2, 3]
    found = advantages(rewards, group, baseline=baseline, scale=scale)
    alone = advantages([rewards[i] for i in scored], baseline=baseline, scale=scale)
    assert [found[i] for i in scored] == near(alone)
    assert [found[i] for i in (1, 4, 5)] == [
        0,
        0,
        0,
    ]  # unscored; the only score of its group; unscored


def test_an_unscored_completion_has_advantage_zero_without_a_baseline_too():
    assert advantages([2.0, None], baseline=no_baseline) == [2, 0]
    assert advantages([2.0, None], baseline=given, given_advantage=[1.0, 5.0]) == [1, 0]


@pytest.mark.parametrize("baseline", [group_mean, leave_one_out, no_baseline])
@pytest.mark.parametrize("eps", [0.0, 1e-8])
def test_a_scaled_dead_group_is_exactly_zero(baseline, eps):
    found = advantages(
        [0.7] * 7 + [1, 0],
        [0] * 7 + [1, 1],
        baseline=baseline,
        scale=partial(group_std, ddof=1, eps=eps),
    )
    assert found[:7] == [0] * 7
    assert found[7] > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_seven_times_point_seven_is_dead_in_every_precision(dtype):
    # the float32 mean of seven 0.7 is 0.70000005
    reward, group, counted = (
        torch.full((7,), 0.7, dtype=dtype),
        torch.zeros(7, dtype=torch.long),
        torch.ones(7).bool(),
    )
    assert groups.is_dead(reward, group, counted).all()
    assert groups.std(reward, group, counted, 1).tolist() == [0] * 7
    assert group_mean(reward, group, counted).tolist() == [0] * 7
    assert leave_one_out(reward, group, counted).tolist() == [0] * 7


def test_sums_that_differ_by_rounding_are_a_dead_group():
    # .1 + .2 is 5.6e-17 above .3
    assert 0.1 + 0.2 != 0.3
    assert advantages([0.1 + 0.2, 0.3], scale=partial(group_std, ddof=1, eps=0.0)) == [0, 0]


def test_a_gap_far_above_rounding_is_alive():
    assert advantages([1.0, 1.0 + 1e-12], scale=partial(group_std, ddof=1, eps=0.0)) == near(
        [-(2**-0.5), 2**-0.5], rel=1e-3
    )


def test_dropping_dead_groups_takes_their_tokens_and_rows():
    # prompt 0 all right, prompt 1 mixed, prompt 2 with one score
    rollouts = Rollouts.from_lengths([1, 2, 3, 4, 2, 2], [1, 1, 1, 0, 1, None], [0, 0, 1, 1, 2, 2])
    yes = torch.ones(6, dtype=torch.bool)
    part = drop_dead_groups(rollouts.mask, yes, rollouts.scored, rollouts.reward, rollouts.group)
    assert part.present.tolist() == [False, False, True, True, False, False]
    assert part.mask.sum(dim=1).tolist() == [0, 0, 3, 4, 0, 0]
    assert part.counted.tolist() == [True] * 5 + [False]


def test_renaming_and_shuffling_prompts_moves_the_advantages_along():
    scale = partial(group_std, ddof=1, eps=1e-4)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0)).tolist()
    found = advantages([REWARDS[i] for i in order], [-3 * GROUP[i] + 1 for i in order], scale=scale)
    plain = advantages(REWARDS, GROUP, scale=scale)
    assert found == near([plain[i] for i in order])


# --- properties -----------------------------------------------------------------------------------------------------------

REWARD_LISTS = st.lists(st.integers(-20, 20).map(lambda k: k / 4), min_size=2, max_size=8)


@settings(max_examples=40, deadline=None)
@examples(REWARD_LISTS)
def test_relative_advantages_of_a_group_add_to_zero(rewards):
    for baseline in (group_mean, leave_one_out):
        for scale in (unscaled, partial(group_std, ddof=1, eps=1e-4)):
            assert sum(advantages(rewards, baseline=baseline, scale=scale)) == pytest.approx(
                0, abs=1e-10
            )


@settings(max_examples=40, deadline=None)
@examples(REWARD_LISTS)
def test_leave_one_out_is_g_over_g_minus_one_times_centred(rewards):
    factor = len(rewards) / (len(rewards) - 1)
    centred = [factor * a for a in advantages(rewards)]
    assert advantages(rewards, baseline=leave_one_out) == near(centred)


@settings(max_examples=40, deadline=None)
@examples(REWARD_LISTS, st.sampled_from([0.5, 2.0, 100.0]), st.sampled_from([-3.0, 0.0, 7.0]))
def test_scale_and_shift_of_the_reward_cancel_in_the_std_without_eps(rewards, a, c):
    scale = partial(group_std, ddof=1, eps=0.0)
    assert advantages([a * r + c for r in rewards], scale=scale) == near(
        advantages(rewards, scale=scale), rel=1e-9
    )


@pytest.mark.parametrize("size", [1e-170, 1e-300, 1.0, 1e90])
def test_the_std_of_tiny_and_of_huge_rewards_is_theirs(size):
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64) * size
    rollouts = Rollouts.from_lengths([2, 2, 2, 2], rewards.tolist())
    advantage = recipe("grpo").but(kl=None).plan(rollouts).advantage[:, 0]
    assert advantage.tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5], rel=1e-12)
