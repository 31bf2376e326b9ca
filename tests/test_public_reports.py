"""Cases from public issue trackers: each once gave wrong numbers somewhere, and must give the right ones here.

| cases | here | waits for |
|---|---|---|
| B01-B03, B06-B12 | aggregation, masks, dead groups (an empty batch, B08, is an invariant of every recipe) | |
| B05 | the token-mean weights | explaining a verl config: dual clip, shadowed keys |
| B13-B19, B21, B23 | advantages | the printed diagnosis of B17, B19 and B23 |
| B20, B22 | one and two normalisations, scale of a reward, several rewards | |
| B25, B26, B29 | masked values | the entropy metric of B29 |
| B32, B33, B34 | clip, dual clip | counting updates from a config (B33) |
| B35, B36, B38 | sequence ratio, bounds | the config half of B38 d |
| B37 | product of ratios for the sampler, GSPO's mean | |
| B39, B40 a-d | KL | output caps (B39), reading the KL switches of a version (B40 d), dropout (B40 e) |
| B41, B44 | loss 0 at the start, 1/len | reading logs |
| B04, B24 | | explaining configs |
| B27, B28, B31, B42, B43 | | loading rollouts |
| B30 | | entropy quantiles |

Numbers follow from the comments; TRL's ddof 1 and eps 1e-4 unless a test says otherwise.
"""

from functools import partial
from math import comb, exp, inf, log, nan, sqrt

import pytest
import torch

from grpo_edu import Recipe, RecipeWarning, Rollouts, token_weights
from grpo_edu.objective import groups
from grpo_edu.objective.advantages import (
    batch_whiten,
    decoupled_rewards,
    given,
    group_mean,
    group_std,
    leave_one_out,
    no_baseline,
)
from grpo_edu.objective.aggregation import (
    constant,
    constant_sum,
    generation_token_mean,
    micro_batch_token_mean,
    prompt_token_mean,
    sequence_mean,
    step_token_mean,
    token_sum,
)
from grpo_edu.objective.corrections import sequence_masked_is, sequence_truncated_is
from grpo_edu.objective.filters import drop_dead_groups, truncation_mask
from grpo_edu.objective.kl import k1, k2, k3, k3_ratio
from grpo_edu.objective.rewards import kl_in_reward
from grpo_edu.objective.surrogates import cispo, dual_clip, gspo, ppo_clip, reinforce
from grpo_edu.weights import split

STD = partial(group_std, ddof=1, eps=1e-4)
CLIP = partial(ppo_clip, eps_low=0.2, eps_high=0.2)
GIVEN = Recipe(baseline=given, surrogate=CLIP)  # the advantage is part of the case


def near(value, rel=1e-9, absolute=1e-12):
    return pytest.approx(value, rel=rel, abs=absolute)


def advantages(rewards, *, scale=STD, group=None, **others):
    """One advantage per completion, for rewards given as a list or a tensor."""
    if isinstance(rewards, torch.Tensor):
        one = torch.ones(len(rewards), 1)
        same = torch.zeros(len(rewards), dtype=torch.long)
        rollouts = Rollouts(logp=-one, mask=one.bool(), reward=rewards, group=same, **others)
    else:
        rollouts = Rollouts.from_lengths([1] * len(rewards), rewards, group, **others)
    return Recipe(baseline=group_mean, scale=scale).plan(rollouts).advantage[:, 0].tolist()


def plain(weights):
    """The different values in a tensor, ascending."""
    return [round(x, 12) for x in weights.unique().tolist()]


def rows(lengths):
    """``[N, T]`` mask and ``[N]`` present rows."""
    mask = torch.arange(max(lengths))[None, :] < torch.tensor(lengths)[:, None]
    return mask, torch.ones(len(lengths), dtype=torch.bool)


# --- aggregation and normalisation ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("generation", "step"), [(4, 2), (2, 2), (2, 4)]
)  # micro-batches of 10 tokens in each
def test_token_mean_weights_of_one_optimiser_step_add_to_one_for_any_accumulation(generation, step):
    # B01: one step sums 10·step tokens; divided by the 10·generation tokens of the generation batch alone: step/generation
    mask, _ = rows([10] * step)
    assert step_token_mean(mask).sum().item() == near(1.0)
    steps = generation / step
    assert generation_token_mean(mask, tokens=10 * generation, steps=steps).sum().item() == near(
        1.0, rel=1e-6
    )
    faulty = generation_token_mean(mask, tokens=10 * generation).sum().item()
    assert faulty == near({(4, 2): 0.5, (2, 2): 1.0, (2, 4): 2.0}[generation, step], rel=1e-6)


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_gradient_does_not_depend_on_accumulation_steps(parts):
    # B02: 4 x 25 tokens, A = 1, ratio 1: the push adds to 100 · 1/100 = 1. Divided once more by 4 steps it would be 0.25.
    rollouts = Rollouts.from_lengths([25] * 4, rewards=[0] * 4, given_advantage=[1.0] * 4)
    loss = GIVEN.but(aggregation=step_token_mean)
    leaf = rollouts.logp.clone().requires_grad_()
    plan = loss.plan(rollouts)
    for part in range(parts):
        here = split(4, parts) == part
        loss.loss(rollouts[here].with_logp(leaf[here]), plan[here]).backward()
    assert leaf.grad is not None
    assert -leaf.grad.sum().item() == near(1.0)
    assert plain(-leaf.grad) == near([0.01])


def test_mean_of_micro_batch_means_is_not_the_token_mean():
    # B03: losses 1 1 | 2 x 8. Mean of means (1 + 2)/2 = 1.5, token mean (2 + 16)/10 = 1.8, plain sum of means 3.
    mask, present = rows([2, 8])
    losses = torch.tensor([[1.0], [2.0]]) * mask
    own = torch.tensor([0, 1])
    micro, step = micro_batch_token_mean(mask, own), step_token_mean(mask)
    assert (micro * losses).sum().item() == near(1.5)
    assert (step * losses).sum().item() == near(1.8)
    assert plain(micro) == near([0, 1 / 16, 1 / 4])
    assert plain(step) == near([0, 1 / 10])
    # one completion per micro-batch is the sequence mean, one micro-batch in all is the step's token mean
    assert torch.equal(micro, sequence_mean(mask, present))
    assert torch.equal(micro_batch_token_mean(mask, torch.zeros(2, dtype=torch.long)), step)


def test_token_mean_gives_a_ten_times_longer_completion_ten_elevenths_of_the_push():
    # B05: lengths 10 and 100, A = +1 and -1: 1/110 on each token; shares 10/110 and -100/110. Sequence mean: .05 and .005.
    rollouts = Rollouts.from_lengths([10, 100], rewards=[1, 0], given_advantage=[1.0, -1.0])
    weights = token_weights(GIVEN.but(aggregation=step_token_mean), rollouts)
    assert weights[0, 0].item() == near(0.00909090909090909)
    assert weights.sum(dim=1).tolist() == near([10 / 110, -100 / 110])
    weights = token_weights(GIVEN.but(aggregation=sequence_mean), rollouts)
    assert weights[:, 0].tolist() == near([0.05, -0.005])


def test_prompt_scope_and_step_scope_of_the_token_mean_differ():
    # B06: 10 tokens with summed loss 10, 90 tokens with -9. Mean of prompt means (1 - .1)/2 = .45, pooled (10 - 9)/100 = .01.
    mask, present = rows([10, 90])
    losses = torch.tensor([[1.0], [-0.1]], dtype=torch.float64) * mask
    prompt = prompt_token_mean(mask, torch.tensor([0, 1]), present)
    assert (prompt * losses).sum().item() == near(0.45)
    assert (step_token_mean(mask) * losses).sum().item() == near(0.01)


def test_constant_is_divided_by_the_batch_and_constant_sum_is_not():
    # B07: N = 4, C = 100, 100 tokens: 1/(4·100) = .0025, sum .25. Without 1/N: .01, sum 1, four times as much.
    mask, present = rows([10, 20, 30, 40])
    right, older = constant(mask, present, 100), constant_sum(mask, 100)
    assert plain(right) == near([0, 0.0025])
    assert right.sum().item() == near(0.25)
    assert plain(older) == near([0, 0.01])
    assert older.sum().item() == near(1.0)
    # the padded width 40 is not the constant
    assert right[0, 0].item() != near(1 / (4 * 40))


@pytest.mark.parametrize(("count", "weight"), [(True, 1 / 6), (False, 1 / 3)])
def test_whether_a_masked_completion_counts_in_n_is_said(count, weight):
    # B08: lengths 0 and 3. N = 2: 1/(2·3). N = 1: 1/(1·3).
    mask, present = rows([0, 3])
    weights = sequence_mean(mask, present, count_masked_rows=count)
    assert weights[0].tolist() == [0, 0, 0]
    assert weights[1].tolist() == near([weight] * 3)


def test_masking_a_truncated_completion_takes_it_out_of_the_denominator_too():
    # B09: 10 + 15 live tokens, 5 masked: 1/25 = .04, not 1/30
    mask, _ = rows([10, 15, 5])
    mask[2] = False
    assert plain(step_token_mean(mask)) == near([0, 0.04])


@pytest.mark.parametrize("in_baseline", [True, False])
def test_the_truncation_mask_takes_the_tokens_of_the_row_out_of_the_denominator(in_baseline):
    # B09: the same lengths, the third truncated: 1/25
    rollouts = Rollouts.from_lengths(
        [10, 15, 5], [1, 0, 0], truncated=torch.tensor([False, False, True])
    )
    masked = partial(truncation_mask, in_baseline=in_baseline)
    loss = Recipe(
        baseline=group_mean, surrogate=CLIP, aggregation=step_token_mean, filters=(masked,)
    )
    weight = loss.plan(rollouts).W
    assert plain(weight) == near([0, 0.04])
    assert weight[2].abs().max().item() == 0


def test_tool_tokens_are_not_part_of_the_length():
    # B10: 10 tokens, 6 of them tool output: 1/4 per live token, not 1/10. With a live row of 10 tokens: 1/14, not 1/20.
    mask, present = rows([10, 10])
    mask[0, 2:8] = False
    assert plain(sequence_mean(mask[:1], present[:1])) == near([0, 0.25])
    assert plain(step_token_mean(mask)) == near([0, 1 / 14])


def test_dead_groups_dilute_the_token_mean_unless_they_are_dropped():
    # B11: 60 tokens in the dead group, 40 in the live one: W = 1/100 with them, 1/40 without, factor .4
    rollouts = Rollouts.from_lengths(
        [15] * 4 + [10] * 4, [1, 1, 1, 1, 1, 0, 0, 1], [0] * 4 + [1] * 4
    )
    kept = Recipe(baseline=group_mean, scale=STD, surrogate=CLIP, aggregation=step_token_mean)
    dropped = kept.but(filters=(drop_dead_groups,))
    assert kept.plan(rollouts).W[4, 0].item() == near(1 / 100)
    assert dropped.plan(rollouts).W[4, 0].item() == near(1 / 40)
    assert dropped.plan(rollouts).W[:4].abs().max().item() == 0
    ratio = token_weights(kept, rollouts)[4:, :10] / token_weights(dropped, rollouts)[4:, :10]
    assert ratio.flatten().tolist() == near([0.4] * 40)


def test_a_dead_group_still_has_a_kl_gradient():
    # B11: A = 0, but k2 with beta 1 pulls every token by -d/100 = -(-1 - -2)/100
    rollouts = Rollouts.from_lengths(
        [15] * 4 + [10] * 4, [1, 1, 1, 1, 1, 0, 0, 1], [0] * 4 + [1] * 4
    )
    rollouts = Rollouts(
        rollouts.logp, rollouts.mask, rollouts.reward, rollouts.group, ref_logp=rollouts.logp - 1
    )
    loss = Recipe(
        baseline=group_mean,
        scale=STD,
        surrogate=CLIP,
        aggregation=step_token_mean,
        kl=partial(k2, beta=1.0),
    )
    assert token_weights(loss, rollouts)[:4].flatten().tolist() == near([-0.01] * 60)
    dropped = token_weights(loss.but(filters=(drop_dead_groups,)), rollouts)
    assert dropped[:4].abs().max().item() == 0


def test_sequence_mean_and_token_mean_differ_on_unequal_lengths_only():
    # B12: lengths 10 and 100, A = +1 and -1, ratio 1: 0 against -(10 - 100)/110 = .81818. Equal lengths: both 0.
    def losses(lengths):
        rollouts = Rollouts.from_lengths(lengths, rewards=[1, 0], given_advantage=[1.0, -1.0])
        return [
            GIVEN.but(aggregation=choice).loss(rollouts).item()
            for choice in (sequence_mean, step_token_mean)
        ]

    assert losses([10, 100]) == near([0, 0.8181818181818182])
    assert losses([10, 10]) == near([0, 0])


# --- advantages -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eps", [1e-4, 1e-8, 0.0])
@pytest.mark.parametrize(
    "rewards", [[1, 1, 1, 1], torch.full((7,), 0.7)], ids=["ones", "seven times 0.7 in float32"]
)
def test_equal_rewards_have_advantage_zero_for_any_eps(rewards, eps):
    # B13: the float32 mean of seven 0.7 is one ulp off, so std is 6e-8 and eps 1e-4, 1e-8, 0 would give 6e-4, .80, .93 for all
    zeros = [0.0] * len(rewards)
    assert advantages(rewards, scale=partial(group_std, ddof=1, eps=eps)) == zeros
    plan = Recipe(baseline=leave_one_out).plan(
        Rollouts.from_lengths([1] * len(zeros), list(map(float, rewards)))
    )
    assert plan.advantage[:, 0].tolist() == zeros


def test_float32_statistics_alone_would_let_a_dead_group_through():
    # B13: the same group, kept in float32 all the way through this room
    reward, group, counted = (
        torch.full((7,), 0.7),
        torch.zeros(7, dtype=torch.long),
        torch.ones(7, dtype=torch.bool),
    )
    assert (reward - reward.mean()).abs().max() > 0  # the trap
    centred = group_mean(reward, group, counted)
    assert centred.tolist() == [0] * 7
    assert (
        group_std(reward - reward.mean(), reward, group, counted, ddof=1, eps=0.0).tolist()
        == [0] * 7
    )


def test_float32_rewards_that_differ_by_rounding_are_a_dead_group():
    # B13: .1 + .1 + .5 summed in two orders differs by one float32 ulp (6e-8), which eps 0 blows up to ±.7071
    a, b = torch.tensor(0.1), torch.tensor(0.5)
    rewards = torch.stack([(a + a) + b, a + (a + b)])
    assert rewards[0] != rewards[1]
    assert advantages(rewards, scale=partial(group_std, ddof=1, eps=0.0)) == [0, 0]


@pytest.mark.parametrize("baseline", [group_mean, leave_one_out])
def test_a_group_of_one_is_refused_by_group_baselines(baseline):
    # B14: G = 1. Its own mean gives 0, ddof 1 gives 0/0, the mean of the others does not exist.
    with pytest.raises(ValueError, match="group size 1: no relative signal"):
        Recipe(baseline=baseline).plan(Rollouts.from_lengths([3], [0.7]))


def test_the_std_of_a_group_of_one_does_not_leak_nan():
    # B14: without a baseline the reward is the advantage; a scale by the std of one completion is 0/0 and gives 0
    rollouts = Rollouts.from_lengths([3], [0.7])
    assert Recipe(baseline=no_baseline).plan(rollouts).advantage[0, 0].item() == 0.7
    assert Recipe(baseline=no_baseline, scale=STD).plan(rollouts).advantage[0, 0].item() == 0


def test_with_two_completions_the_size_of_the_gap_is_lost():
    # B15: gap g: std = g/√2, A = ±(g/2)/(g/√2 + eps). g = 1: .5/.70720678; g = .01: .005/.00717107. ddof 0, eps 0: ±1.
    assert advantages([1, 0]) == near([0.70700680, -0.70700680], rel=1e-7)
    assert advantages([10, 9.99]) == near([0.69724623, -0.69724623], rel=1e-7)
    plainly = partial(group_std, ddof=0, eps=0.0)
    assert advantages([1, 0], scale=plainly) == near([1, -1])
    assert advantages([10, 9.99], scale=plainly) == near([1, -1])


@pytest.mark.parametrize(("size", "expected"), [(2, 0.702), (4, 0.449), (8, 0.201), (16, 0.040)])
def test_chance_of_a_dead_group(size, expected):
    # B15: success .1819. Enumerate the counts k of right answers, weigh them by the binomial, ask which groups are dead.
    p = 0.1819
    reward = (torch.arange(size)[None, :] < torch.arange(size + 1)[:, None]).double().flatten()
    group = torch.arange(size + 1).repeat_interleave(size)
    dead = groups.is_dead(reward, group, torch.ones_like(group, dtype=torch.bool)).reshape(
        -1, size
    )[:, 0]
    chance = sum(comb(size, k) * p**k * (1 - p) ** (size - k) for k in range(size + 1) if dead[k])
    assert chance == near(p**size + (1 - p) ** size)
    assert chance == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize(
    ("rewards", "sample", "population"),
    [
        # [1,1,1,0]: squares .75: std √(.75/3) = .5 and √(.75/4) = .4330127
        ([1, 1, 1, 0], [0.49990002] * 3 + [-1.49970006], [0.577350256] * 3 + [-1.732050768]),
        ([1, 0, 0, 0], [1.49970006] + [-0.49990002] * 3, [1.732050768] + [-0.577350256] * 3),
        # [1,0,1,0]: squares 1: std √(1/3) = .5773503 and √(1/4) = .5
        ([1, 0, 1, 0], [0.86587543, -0.86587543] * 2, [0.99999998, -0.99999998] * 2),
    ],
)
def test_ddof_one_and_zero_give_the_numbers_of_their_frameworks(rewards, sample, population):
    # B16: torch's ddof 1 with eps 1e-4, numpy's ddof 0 with eps 1e-8; without eps they differ by √(G/(G-1)) = √(4/3)
    assert advantages(rewards) == near(sample, rel=1e-7)
    assert advantages(rewards, scale=partial(group_std, ddof=0, eps=1e-8)) == near(
        population, rel=1e-8
    )
    ones, zeros = (advantages(rewards, scale=partial(group_std, ddof=d, eps=0.0)) for d in (1, 0))
    assert [z / o for z, o in zip(zeros, ones, strict=True)] == near([sqrt(4 / 3)] * 4)


@pytest.mark.parametrize(
    ("scale", "high", "low"),
    [
        # deviations ±1.5e-5 and ±.5e-5, std √(5e-10/3) = 1.2909944e-5
        (partial(group_std, ddof=1, eps=1e-6), 1.0783652, 0.3594551),
        (partial(group_std, ddof=1, eps=1e-4), 0.13284924, 0.04428308),
    ],
)
def test_noise_in_the_rewards_is_blown_up_by_a_tiny_eps(scale, high, low):
    # B17: rewards 1, 1.00001, 1.00002, 1.00003
    rewards = [1 + i * 1e-5 for i in range(4)]
    assert advantages(rewards, scale=scale) == near([-high, -low, low, high], rel=1e-6)
    centred = advantages(rewards, scale=lambda centred: centred)
    assert centred == near([-1.5e-5, -5e-6, 5e-6, 1.5e-5], rel=1e-6)


def test_noise_in_a_group_of_two_becomes_a_full_advantage():
    # B17: gap 1e-5: ±.5e-5/(1e-5/√2 + 1e-6) = ±.61949
    expected = 0.5e-5 / (1e-5 / sqrt(2) + 1e-6)
    assert advantages([1, 1.00001], scale=partial(group_std, ddof=1, eps=1e-6)) == near(
        [-expected, expected], rel=1e-6
    )
    assert expected == pytest.approx(0.6195, abs=1e-4)


def test_an_unscored_completion_is_left_out_of_its_group_and_not_punished():
    # B18: mean and std of [1, 0, 1] are 2/3 and .57735: (1/3)/.57745 and (-2/3)/.57745. None read as 0 gives ±.86588.
    result = advantages([1, None, 0, 1])
    assert result == near([0.57725029, 0, -1.15450057, 0.57725029], rel=1e-7)
    assert result != pytest.approx(advantages([1, 0, 0, 1]))


def test_a_nan_reward_of_an_unscored_completion_does_not_reach_its_group():
    # B18, B25: the same group, with the unscored reward as NaN in a tensor
    reward, scored = torch.tensor([1.0, nan, 0.0, 1.0]), torch.tensor([True, False, True, True])
    assert advantages(reward, scored=scored) == near(
        [0.57725029, 0, -1.15450057, 0.57725029], rel=1e-7
    )


def test_unscored_completions_do_not_look_best_where_rewards_are_penalties():
    # B19: two scored rewards of -1: a dead group. With 0 in place of None they would win by ±.86588.
    assert advantages([None, -1, -1, None]) == [0, 0, 0, 0]
    assert advantages([0, -1, -1, 0]) == near(
        [0.86587543, -0.86587543, -0.86587543, 0.86587543], rel=1e-7
    )


def test_a_dead_group_does_not_change_the_advantages_of_a_live_one():
    # B20: [1,0,0,0] beside [1,1,1,1]: .75/.5001. A second division by the std of the batch would give 2.29.
    both = advantages([1, 0, 0, 0, 1, 1, 1, 1], group=[0] * 4 + [1] * 4)
    assert both == near([1.49970006] + [-0.49990002] * 3 + [0] * 4, rel=1e-7)
    assert both[:4] == near(advantages([1, 0, 0, 0]))


def test_a_second_normalisation_over_the_batch_depends_on_the_dead_groups():
    # B20: z-scores 1.5 -.5 -.5 -.5 and four 0 have the std √(3/7) over the batch: x1.5275, 2.2913 and -.7638
    group, counted = torch.tensor([0] * 4 + [1] * 4), torch.ones(8, dtype=torch.bool)
    reward = torch.tensor([1, 0, 0, 0, 1, 1, 1, 1], dtype=torch.float64)
    once = group_std(group_mean(reward, group, counted), reward, group, counted, ddof=1, eps=0.0)
    twice = batch_whiten(once, counted, ddof=1, eps=0.0)
    assert once.tolist() == near([1.5] + [-0.5] * 3 + [0] * 4)
    assert twice.tolist() == near([2.29128785] + [-0.76376262] * 3 + [0] * 4, rel=1e-8)


def test_statistics_belong_to_the_prompt_not_to_the_batch():
    # B21: over the batch (mean 3/8, std .5175) the easy prompt would get +1.2074 and every failure -.7244, dead group included
    result = advantages([1, 1, 1, 0, 0, 0, 0, 0], group=[0] * 4 + [1] * 4)
    assert result == near([0.49990002] * 3 + [-1.49970006] + [0] * 4, rel=1e-7)


def test_the_scale_of_a_reward_cancels_in_the_std_up_to_eps():
    # B22 a: x10: 7.5/5.0001 = 1.49997. x.001: .00075/.0006 = 1.25, eps matters. Without std x10 gives 7.5.
    assert advantages([10, 0, 0, 0])[0] == near(7.5 / 5.0001)
    assert advantages([0.001, 0, 0, 0])[0] == near(1.25)
    assert advantages([10, 0, 0, 0], scale=lambda centred: centred)[0] == near(7.5)


def test_the_advantage_of_a_weighted_sum_of_two_rewards():
    # B22 b: totals [1, .5, 1.5, 0]: mean .75, std √(1.25/3) = .6454972: .25/.6455972 and .75/.6455972
    first, second = torch.tensor([[1.0, 0, 1, 0], [0, 1, 1, 0]], dtype=torch.float64)
    assert advantages(first + 0.5 * second) == near(
        [0.38723834, -0.38723834, 1.16171503, -1.16171503], rel=1e-7
    )


def decoupled(parts, group=None, scale=lambda centred: centred, eps=1e-4, weights=None):
    """GDPO's advantages; only the reward parts are looked at."""
    rollouts = Rollouts.from_lengths(
        [1] * len(parts), [0] * len(parts), group, reward_parts=torch.tensor(parts).double()
    )
    loss = Recipe(
        baseline=partial(decoupled_rewards, ddof=1, eps=eps, weights=weights), scale=scale
    )
    return loss.plan(rollouts).advantage[:, 0].tolist()


def test_two_rewards_normalised_on_their_own_and_then_added():
    # B22 b: both have std √(1/3): z = ±.5/.57745 = ±.86588; z1 + .5·z2: .86588·(1 - .5), …, .86588·1.5
    found = decoupled([[1, 0], [0, 1], [1, 1], [0, 0]], weights=(1.0, 0.5))
    assert found == near([0.43293771, -0.43293771, 1.29881314, -1.29881314], rel=1e-7)


def test_a_batch_of_one_prompt_hides_how_many_rewards_differ():
    # B22 c: two rewards differ (total 0, 2) or one (0, 1): sums of z ±√2 and ±1/√2. Whitened alone both are ±1/√2;
    # together the std is √((2 + 2 + .5 + .5)/3) = 1.29099: ±1.09545 and ±.54772, 2 to 1
    whiten = partial(batch_whiten, ddof=1, eps=0.0)
    two, one = [[0, 0], [1, 1]], [[0, 0], [1, 0]]
    assert decoupled(two, scale=whiten, eps=0.0) == near([-sqrt(0.5), sqrt(0.5)])
    assert decoupled(one, scale=whiten, eps=0.0) == near([-sqrt(0.5), sqrt(0.5)])
    expected = [-sqrt(1.2), sqrt(1.2), -sqrt(0.3), sqrt(0.3)]
    assert decoupled(two + one, [0, 0, 1, 1], scale=whiten, eps=0.0) == near(expected)


def test_a_spread_over_the_batch_with_none_inside_any_group_teaches_nothing():
    # B23: [1,1] and [0,0]: std over the batch √(1/3) = .57735, inside each group 0
    rollouts = Rollouts.from_lengths([3, 5, 2, 8], [1, 1, 0, 0], [0, 0, 1, 1])
    assert rollouts.reward.std(correction=1).item() == near(0.5773502691896258)
    assert groups.std(rollouts.reward, rollouts.group, rollouts.scored, 1).tolist() == [0] * 4
    loss = Recipe(baseline=group_mean, scale=STD, surrogate=CLIP, aggregation=step_token_mean)
    assert loss.loss(rollouts).item() == 0
    assert token_weights(loss, rollouts).abs().max().item() == 0


# --- masks ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rubbish", [nan, inf, -inf, 1e300])
@pytest.mark.parametrize("surrogate", [reinforce, CLIP, partial(cispo, low=0.0, high=5.0)])
def test_masked_nan_and_inf_reach_neither_loss_nor_gradient(rubbish, surrogate):
    # B25: |log π| = 1, ?, 3 under mask 1 0 1: REINFORCE with A = 1 has the sum 4 and the mean 2; 0 · NaN would be NaN
    logp = torch.tensor([[-1.0, rubbish, -3.0]], dtype=torch.float64)
    rollouts = Rollouts(
        logp=logp,
        mask=torch.tensor([[True, False, True]]),
        reward=torch.ones(1),
        group=torch.zeros(1, dtype=torch.long),
        old_logp=logp.clone(),
        ref_logp=logp.clone(),
    )
    loss = Recipe(surrogate=surrogate, kl=partial(k3, beta=0.1), aggregation=token_sum)
    assert token_weights(loss, rollouts).tolist() == [[1, 0, 1]]
    if surrogate is reinforce:
        assert loss.loss(rollouts).item() == 4
        assert loss.but(aggregation=step_token_mean).loss(rollouts).item() == 2


def test_padding_is_in_neither_numerator_nor_denominator():
    # B26: -log π = 1, 100, 1, -50 under mask 1 0 1 0: (1 + 1)/2 = 1; with the padding in the numerator 52/2 = 26
    rollouts = Rollouts(
        logp=torch.tensor([[-1.0, -100.0, -1.0, 50.0]]),
        mask=torch.tensor([[True, False, True, False]]),
        reward=torch.ones(1),
        group=torch.zeros(1, dtype=torch.long),
    )
    assert Recipe(aggregation=step_token_mean).loss(rollouts).item() == 1


@pytest.mark.parametrize("aggregation", [sequence_mean, step_token_mean])
def test_kl_is_averaged_over_live_tokens(aggregation):
    # B29: k1 = .2, .2 and two padded tokens: .2, not .1
    mask, _ = rows([2, 4])
    logp = torch.full((1, 4), -1.0, dtype=torch.float64)
    rollouts = Rollouts(
        logp, mask[:1], torch.zeros(1), torch.zeros(1, dtype=torch.long), ref_logp=logp - 0.2
    )
    assert Recipe(aggregation=aggregation, kl=partial(k1, beta=1.0)).loss(rollouts).item() == near(
        0.2
    )


# --- ratio, clip ----------------------------------------------------------------------------------------------------------


def slope_of(surrogate, ratio, advantage):
    """d loss / d log π of one token."""
    rollouts = Rollouts.from_lengths([1], [0], ratio=ratio, given_advantage=[advantage])
    return -token_weights(GIVEN.but(surrogate=surrogate, aggregation=token_sum), rollouts).item()


def test_a_token_loses_its_gradient_on_one_side_per_sign():
    # B32: ratios 1.5 .5 1.5 .5 under A + + - -: lost T F F T. "Outside the band" is T T T T, the unsigned metric F T T F.
    lost = [slope_of(CLIP, r, a) == 0 for r, a in [(1.5, 1), (0.5, 1), (1.5, -1), (0.5, -1)]]
    assert lost == [True, False, False, True]


@pytest.mark.parametrize(
    ("ratio", "up", "down"), [(0.5, -0.5, 0), (1, -1, 1), (1.5, 0, 1.5), (6, 0, 6)]
)
def test_slope_of_the_clipped_loss(ratio, up, down):
    # B32: -A·ratio where the clip leaves it alone
    assert slope_of(CLIP, ratio, 1.0) == near(up)
    assert slope_of(CLIP, ratio, -1.0) == near(down)


def test_ratio_one_has_a_gradient_and_is_never_clipped():
    # B33: one update per rollout: every ratio is exactly 1, whatever eps is; the push is A·W = ±1/2 · 1/2
    rollouts = Rollouts.from_lengths([2, 2], [1, 0])
    for eps in (0.0, 0.2, 1.0):
        loss = Recipe(baseline=group_mean, surrogate=partial(ppo_clip, eps_low=eps, eps_high=eps))
        assert token_weights(loss, rollouts).tolist() == [[0.125, 0.125], [-0.125, -0.125]]


def test_a_negative_advantage_has_no_upper_bound():
    # B34: ratio 6, A = -1: min(-6, -1.2) = -6: loss 6, slope +6
    rollouts = Rollouts.from_lengths([1], [0], ratio=6.0, given_advantage=[-1.0])
    assert GIVEN.but(aggregation=token_sum).loss(rollouts).item() == near(6.0)
    assert slope_of(CLIP, 6.0, -1.0) == near(6.0)
    assert slope_of(CLIP, 1.5, -1.0) == near(1.5)


@pytest.mark.parametrize(("ratio", "loss", "slope"), [(1.5, 1.5, 1.5), (6, 3, 0)])
def test_dual_clip_bounds_a_negative_advantage(ratio, loss, slope):
    # B34: A = -1, c = 3: the objective is at least -3, so ratio 6 has loss 3 and no gradient; ratio 1.5 is left alone
    dual = partial(dual_clip, eps_low=0.2, eps_high=0.2, cap=3.0)
    rollouts = Rollouts.from_lengths([1], [0], ratio=ratio, given_advantage=[-1.0])
    assert GIVEN.but(surrogate=dual, aggregation=token_sum).loss(rollouts).item() == near(loss)
    assert slope_of(dual, ratio, -1.0) == near(slope)
    assert slope_of(dual, 6.0, 1.0) == 0


def test_gspo_clips_at_its_own_eps_where_a_token_clip_never_would():
    # B35: log-ratio .001 on 100 tokens: s = e^.001 = 1.0010005 > 1 + 4e-4: nothing for A > 0, all for A < 0; 0.2 never clips
    for advantage, expected in [(1.0, 0.0), (-1.0, -1.0010005 / 100)]:
        rollouts = Rollouts.from_lengths([100], [0], ratio=exp(0.001), given_advantage=[advantage])
        paper = GIVEN.but(surrogate=partial(gspo, eps_low=3e-4, eps_high=4e-4))
        assert token_weights(paper, rollouts)[0].tolist() == near([expected] * 100, rel=1e-6)
    with pytest.warns(RecipeWarning, match="practically never clips"):
        wide = GIVEN.but(surrogate=partial(gspo, eps_low=0.2, eps_high=0.2))
    rollouts = Rollouts.from_lengths([100], [0], ratio=exp(0.001), given_advantage=[1.0])
    assert token_weights(wide, rollouts)[0, 0].item() == near(1.0010005 / 100, rel=1e-6)


def test_the_sequence_ratio_is_a_geometric_mean_and_not_a_product():
    # B35: log-ratios ln 1.5, 0, 0, 0: s = 1.5^(1/4) = 1.10668, the product is 1.5. A token clip at .2 zeroes token 1 only.
    rollouts = Rollouts.from_lengths([4], [0], given_advantage=[1.0])
    old = rollouts.logp.clone()
    old[0, 0] -= log(1.5)
    rollouts = Rollouts(
        rollouts.logp,
        rollouts.mask,
        rollouts.reward,
        rollouts.group,
        old_logp=old,
        given_advantage=torch.ones(1),
    )
    with pytest.warns(RecipeWarning, match="practically never clips"):
        sequence = GIVEN.but(surrogate=partial(gspo, eps_low=0.2, eps_high=0.2))
    assert -sequence.loss(rollouts).item() == near(1.1066819197003217)
    assert token_weights(sequence, rollouts)[0].tolist() == near([1.1066819197003217 / 4] * 4)
    assert token_weights(GIVEN, rollouts)[0].tolist() == near([0, 0.25, 0.25, 0.25])


@pytest.mark.parametrize("log_ratio", [0.001, 0.012])
@pytest.mark.parametrize("length", [1, 100])
def test_the_sequence_ratio_does_not_grow_with_length(log_ratio, length):
    # B36, B37: e^.001 = 1.0010005 and e^.012 = 1.01207 for any length; the products over 100 tokens are 1.10517 and 3.3201
    rollouts = Rollouts.from_lengths([length], [0], ratio=exp(log_ratio), given_advantage=[-1.0])
    assert GIVEN.but(surrogate=partial(gspo, eps_low=3e-4, eps_high=4e-4)).loss(
        rollouts
    ).item() == near(exp(log_ratio))


@pytest.mark.parametrize(
    ("correction", "factor"),
    [
        # π_old/π_sampler = e^.012 on 100 tokens: the product e^1.2 = 3.3201, capped at 3, whole below a cap of 5, dropped above 3
        (partial(sequence_truncated_is, cap=3.0), 3.0),
        (partial(sequence_truncated_is, cap=5.0), 3.3201169227365475),
        (partial(sequence_masked_is, cap=3.0), 0.0),
        (partial(sequence_masked_is, cap=5.0), 3.3201169227365475),
    ],
)
def test_the_weight_for_another_sampler_is_a_product_over_the_completion(correction, factor):
    # B37: A = 1, W = 1/100
    plainly = Rollouts.from_lengths([100], [0], given_advantage=[1.0])
    old, sampler = plainly.logp, plainly.logp - 0.012
    rollouts = Rollouts.from_lengths(
        [100], [0], given_advantage=[1.0], old_logp=old, sampler_logp=sampler
    )
    weights = token_weights(GIVEN.but(correction=correction), rollouts)
    assert weights[0].tolist() == near([factor / 100] * 100)


def test_swapped_clip_bounds_are_said_to_be_idle_below():
    # B38 a: eps 3.0/.28: the band is [-2, 1.28], the lower side never acts
    with pytest.warns(RecipeWarning, match="that side never clips"):
        swapped = GIVEN.but(
            surrogate=partial(ppo_clip, eps_low=3.0, eps_high=0.28), aggregation=token_sum
        )
    rollouts = Rollouts.from_lengths([2], [0], ratio=0.01, given_advantage=[-1.0])
    assert token_weights(swapped, rollouts)[0].tolist() == near([-0.01, -0.01])


def test_the_lower_bound_is_one_minus_eps():
    # B38 b: ratio .5, A = -1, band [.8, 1.2]: no gradient; with a band [.2, 1.2] the slope would be +.5
    assert slope_of(CLIP, 0.5, -1.0) == 0
    assert slope_of(partial(ppo_clip, eps_low=0.8, eps_high=0.2), 0.5, -1.0) == near(0.5)


def test_a_band_from_zero_to_two_is_valid_and_nearly_off():
    # B38 c: eps 1/1: no warning; clips above 2 for A > 0, and never for A < 0
    wide = partial(ppo_clip, eps_low=1.0, eps_high=1.0)
    assert [slope_of(wide, r, 1.0) for r in (0.01, 1.99, 2.01)] == near([-0.01, -1.99, 0])
    assert [slope_of(wide, r, -1.0) for r in (0.01, 1.99, 2.01)] == near([0.01, 1.99, 2.01])


def test_the_cap_of_cispo_is_absolute():
    # B38 d: cap .2 flattens every ratio to .2; cap 5 leaves .5, 1, 1.5 alone
    five = partial(cispo, low=0.0, high=5.0)
    assert [-slope_of(five, r, 1.0) for r in (0.5, 1, 1.5, 6)] == near([0.5, 1, 1.5, 5])
    with pytest.warns(RecipeWarning, match="absolute cap"):
        small = GIVEN.but(surrogate=partial(cispo, low=0.0, high=0.2), aggregation=token_sum)
    for ratio in (0.5, 1, 1.5):
        rollouts = Rollouts.from_lengths([1], [0], ratio=ratio, given_advantage=[1.0])
        assert token_weights(small, rollouts).item() == near(0.2)


def test_the_coefficient_of_cispo_is_detached():
    # B38 d: ratio 1.5, A = 1, log π = ln 1.5 (as the report has it, though a log-probability is at most 0):
    # slope -1.5; without detach -(1.5 + 1.5·ln 1.5) = -2.108
    logp = torch.tensor([[log(1.5)]], dtype=torch.float64, requires_grad=True)
    one = torch.ones(1, 1, dtype=torch.float64)
    (-cispo(logp, logp.detach() - log(1.5), one, low=0.0, high=5.0)).sum().backward()
    assert logp.grad is not None
    assert logp.grad.item() == near(-1.5)


# --- KL -------------------------------------------------------------------------------------------------------------------


def test_k3_of_a_huge_log_ratio_is_finite_with_gradient_zero():
    # B39: log ref - log π = 100 in float32: exp overflows; limited before exp the value is e^20 - 21 and the gradient 0
    logp = torch.full((1, 1), -100.0, requires_grad=True)
    value = k3(logp, torch.zeros(1, 1), beta=1.0)
    value.sum().backward()
    assert value.item() == pytest.approx(exp(20) - 21, rel=1e-6)
    assert logp.grad is not None
    assert logp.grad.item() == 0


@pytest.mark.parametrize(
    ("d", "exact", "rel"),
    [(1e-6, 5.0000017e-13, 0.1), (1e-4, 5.0001667e-9, 1e-3), (1e-3, 5.0016667e-7, 2e-4)],
)
def test_k3_near_zero_is_not_lost_to_cancellation_in_float32(d, exact, rel):
    # B39: d²/2 + d³/6; exp(d) - 1 - d in float32 gives about ±1e-7 for all three. The rest is the rounding of expm1 itself.
    value = k3(torch.tensor([-d]), torch.zeros(1), beta=1.0).item()
    assert value == pytest.approx(exact, rel=rel)
    assert value >= 0
    if d < 1e-3:
        naive = (torch.exp(torch.tensor(d)) - 1 - torch.tensor(d)).item()
        assert abs(naive - exact) > exact


TWO = torch.tensor([0.9, 0.1], dtype=torch.float64).log()  # π = .9, .1 against ref = .5, .5
HALF = torch.tensor([0.5, 0.5], dtype=torch.float64).log()


def expected_value_and_gradient(estimator, log_pi, log_ref):
    """Exact expectation over both actions, and its gradient by the logits through log π only, as in a loss."""
    logits = log_pi.clone().requires_grad_()
    logp = logits.log_softmax(0)
    value = (log_pi.exp() * estimator(logp, log_ref, beta=1.0)).sum()
    return value.item(), torch.autograd.grad(value, logits)[0].tolist()


@pytest.mark.parametrize(
    ("estimator", "value", "gradient"),
    [
        # KL = .9 ln 1.8 + .1 ln .2 = .36806. k1: the slope is 1, and the mean of ∇log π is 0.
        (k1, 0.3680642071684971, [0, 0]),
        # ½(.9 ln²1.8 + .1 ln².2) = .28499; gradient π(ln π/ref - KL) = .9(.58779 - .36806), the reverse KL's
        (k2, 0.2849864432455519, [0.1977502119602598, -0.1977502119602598]),
        # gradient π - ref = .4, the forward KL's
        (k3, 0.3680642071684971, [0.4, -0.4]),
    ],
)
def test_value_and_gradient_of_the_kl_estimators_over_two_actions(estimator, value, gradient):
    # B40 a
    found, slope = expected_value_and_gradient(estimator, TWO, HALF)
    assert found == near(value)
    assert slope == near(gradient)


@pytest.mark.parametrize("estimator", [k2, k3])
def test_a_step_on_the_kl_term_alone_lowers_the_kl(estimator):
    # B40 b: A = 0. Both actions as rows, their probability as the weight of the row's KL term.
    def kl(log_pi):
        return (log_pi.exp() * (log_pi - HALF)).sum().item()

    logits = TWO.clone().requires_grad_()
    logp = logits.log_softmax(0)
    rollouts = Rollouts(
        logp=logp[:, None],
        mask=torch.ones(2, 1, dtype=torch.bool),
        reward=torch.zeros(2),
        group=torch.zeros(2, dtype=torch.long),
        ref_logp=HALF[:, None],
    )
    loss = Recipe(
        kl=partial(estimator, beta=0.1), kl_aggregation=lambda mask: TWO.exp()[:, None] * mask
    )
    (gradient,) = torch.autograd.grad(loss.loss(rollouts), logits)
    assert kl((TWO - gradient).log_softmax(0)) < kl(TWO)
    assert kl((TWO + gradient).log_softmax(0)) > kl(TWO)  # what subtracting the term would do


def test_off_policy_the_ratio_makes_the_kl_estimate_right():
    # B40 c: actions drawn from old = .6 .4. With the ratio: Σ old·(π/old)·k3 = .36806 and the reverse KL's gradient, .19775.
    # Without: k3 = 1/1.8 + ln 1.8 - 1 = .143342 and 5 + ln .2 - 1 = 2.390562: .6·.143342 + .4·2.390562 = 1.04223.
    old = torch.tensor([0.6, 0.4], dtype=torch.float64)
    logits = TWO.clone().requires_grad_()
    logp = logits.log_softmax(0)
    value = (old * k3_ratio(logp, old.log(), HALF, beta=1.0)).sum()
    assert value.item() == near(0.3680642071684971)
    assert torch.autograd.grad(value, logits)[0].tolist() == near(
        [0.1977502119602598, -0.1977502119602598]
    )
    assert (old * k3(TWO, HALF, beta=1.0)).sum().item() == near(1.0422301, rel=1e-6)


def test_a_kl_taken_from_the_reward_drives_a_dead_group():
    # B40 d: four rewards 1, one token each, k1 = 10 20 30 40, beta .001: the totals .99 .98 .97 .96 of the next test
    rollouts = Rollouts.from_lengths([1] * 4, [1] * 4)
    ref = rollouts.logp - torch.tensor([[10.0], [20.0], [30.0], [40.0]], dtype=torch.float64)
    rollouts = Rollouts(rollouts.logp, rollouts.mask, rollouts.reward, rollouts.group, ref_logp=ref)
    loss = Recipe(baseline=group_mean, scale=partial(group_std, ddof=1, eps=1e-6))
    assert loss.plan(rollouts).advantage[:, 0].tolist() == [0] * 4
    found = (
        loss.but(rewards=(partial(kl_in_reward, beta=0.001),))
        .plan(rollouts)
        .advantage[:, 0]
        .tolist()
    )
    assert found == near([1.16180501, 0.38726834, -0.38726834, -1.16180501], rel=1e-6)


def test_a_kl_in_the_reward_drives_a_group_of_equal_outcomes():
    # B40 d: 1 - .001·[10,20,30,40] = .99 .98 .97 .96: std .01290994; eps 1e-6 gives the report's ±1.1618 and ±.3873
    found = advantages([0.99, 0.98, 0.97, 0.96], scale=partial(group_std, ddof=1, eps=1e-6))
    assert found == near([1.16180501, 0.38726834, -0.38726834, -1.16180501], rel=1e-6)


# --- "is my run broken?" --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_first_loss_is_zero_or_not_by_the_aggregation_alone(sign):
    # B41: -ΣWA at ratio 1, lengths 10 and 100: 0, -(10 - 100)/110 = .81818, -(10 - 100)/(2·100) = .45; every push is alive
    rollouts = Rollouts.from_lengths(
        [10, 100], [1, 0], given_advantage=[sign, -sign], max_new_tokens=100
    )
    for aggregation, value in [(sequence_mean, 0.0), (step_token_mean, 90 / 110), (constant, 0.45)]:
        loss = GIVEN.but(aggregation=aggregation)
        assert loss.loss(rollouts).item() == near(sign * value)
        assert (token_weights(loss, rollouts)[rollouts.mask] != 0).all()


def test_sequence_mean_favours_short_right_answers_and_spares_long_wrong_ones():
    # B44: right 2, 8, wrong 4, 16, A = ±1, N = 4: ±1/(4·len). The share of each completion is ±.25: no bias to be seen there.
    rollouts = Rollouts.from_lengths(
        [2, 8, 4, 16], [1, 1, 0, 0], given_advantage=[1.0, 1.0, -1.0, -1.0], max_new_tokens=16
    )
    weights = token_weights(GIVEN, rollouts)
    assert weights[:, 0].tolist() == near([0.125, 0.03125, -0.0625, -0.015625])
    assert weights.sum(dim=1).tolist() == near([0.25, 0.25, -0.25, -0.25])
    level = token_weights(GIVEN.but(aggregation=constant), rollouts)
    assert level[:, 0].tolist() == near([1 / 64, 1 / 64, -1 / 64, -1 / 64])
