"""Every further formula of the catalog against hand numbers or enumeration, degenerate inputs, and the two bias sentences."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import product

import pytest
import torch
from batches import batch

from grpo_edu import RECIPES, Recipe, Rollouts, compare, recipe, token_weights
from grpo_edu.biases import difficulty_bias, length_bias
from grpo_edu.compare import advantage_table, axis_table
from grpo_edu.objective import advantages as adv
from grpo_edu.objective import aggregation as agg
from grpo_edu.objective import corrections, rewards
from grpo_edu.objective import surrogates as sur
from grpo_edu.objective.filters import drop_dead_groups, truncation_mask
from grpo_edu.objective.recipe import MissingReferenceWarning, RecipeWarning
from grpo_edu.theory.difficulty import prompt_weight

near = partial(pytest.approx, rel=1e-12, abs=1e-14)


def advantage(rollouts: Rollouts, **axes) -> list:
    """First-token advantages of a recipe with these axes."""
    return Recipe(**axes).plan(rollouts).advantage[:, 0].tolist()


# --- baselines and scales -------------------------------------------------------------------------------------------------


def test_remax_subtracts_the_greedy_reward():
    rollouts = Rollouts.from_lengths(
        [1, 2], [1, 0], greedy_reward=torch.tensor([0.25, 0.25], dtype=torch.float64)
    )
    assert advantage(rollouts, baseline=adv.greedy) == near([0.75, -0.25])


def test_opo_baseline_is_the_length_weighted_mean():
    # lengths 2 and 8, rewards 1 and 0: baseline 2·1/10 = .2
    assert advantage(
        Rollouts.from_lengths([2, 8], [1, 0]), baseline=adv.length_weighted_mean
    ) == near([0.8, -0.2])


def test_gpg_scales_up_by_rows_over_rows_of_live_groups():
    # 4 rows, 2 in a live group: 4/2 · (±.5)
    rollouts = Rollouts.from_lengths([1] * 4, [1, 0, 1, 1], [0, 0, 1, 1])
    assert advantage(rollouts, baseline=adv.live_group_mean) == near([1, -1, 0, 0])


def gae_by_hand(rewards: list[float], values: list[float], gamma: float, lam: float) -> list[float]:
    """The sum form Σ_l (γλ)^l δ_{t+l}, not the recursion of the package."""
    n = len(values)
    delta = [
        rewards[t] + gamma * (values[t + 1] if t + 1 < n else 0.0) - values[t] for t in range(n)
    ]
    return [sum((gamma * lam) ** k * delta[t + k] for k in range(n - t)) for t in range(n)]


def test_gae_equals_the_sum_of_discounted_errors_and_steps_over_masked_tokens():
    mask = torch.tensor([[True, True, False, True]])
    value = torch.tensor([[0.5, 0.2, 99.0, 0.7]], dtype=torch.float64)
    rollouts = Rollouts(
        logp=-torch.ones(1, 4, dtype=torch.float64),
        mask=mask,
        reward=torch.tensor([1.0], dtype=torch.float64),
        group=torch.tensor([0]),
        value=value,
    )
    found = Recipe(baseline=partial(adv.gae, gamma=0.9, lam=0.8)).plan(rollouts).advantage[0]
    expected = gae_by_hand([0, 0, 1], [0.5, 0.2, 0.7], 0.9, 0.8)
    assert found[[0, 1, 3]].tolist() == near(expected)
    assert found[2] == 0


def test_gae_special_cases_return_minus_value_and_one_step_error():
    rollouts = Rollouts.from_lengths(
        [3], [1], value=torch.tensor([[0.5, 0.2, 0.7]], dtype=torch.float64)
    )
    monte_carlo = Recipe(baseline=partial(adv.gae, gamma=1.0, lam=1.0)).plan(rollouts).advantage[0]
    assert monte_carlo.tolist() == near([0.5, 0.8, 0.3])
    one_step = Recipe(baseline=partial(adv.gae, gamma=1.0, lam=0.0)).plan(rollouts).advantage[0]
    assert one_step.tolist() == near([-0.3, 0.5, 0.3])


def test_process_supervision_normalises_over_all_steps_of_the_group_and_sums_what_is_to_come():
    # steps: row 0 at tokens 0 and 1 with rewards 1 and 0, row 1 at token 1 with 1. mean 2/3, std(ddof 1) = 1/sqrt(3)
    nan = math.nan
    steps = torch.tensor([[1.0, 0.0, nan], [nan, 1.0, nan]], dtype=torch.float64)
    rollouts = Rollouts.from_lengths([3, 2], [0, 0], token_reward=steps)
    found = (
        Recipe(baseline=partial(adv.process_supervision, ddof=1, eps=0.0)).plan(rollouts).advantage
    )
    up, down = (1 / 3) * 3**0.5, (-2 / 3) * 3**0.5
    assert found.tolist() == [near([up + down, down, 0]), near([up, up, 0])]


def test_process_supervision_with_one_last_step_is_outcome_supervision():
    rollouts = Rollouts.from_lengths([2, 3, 4], [1, 0, 0.5])
    last = torch.arange(4) == rollouts.lengths[:, None] - 1
    steps = torch.where(last, rollouts.reward[:, None], math.nan)
    process = Recipe(baseline=partial(adv.process_supervision, ddof=1, eps=0.0)).plan(
        replace(rollouts, token_reward=steps)
    )
    outcome = Recipe(baseline=adv.group_mean, scale=partial(adv.group_std, ddof=1, eps=0.0)).plan(
        rollouts
    )
    torch.testing.assert_close(process.advantage, outcome.advantage, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("size", "k", "p"), [(4, 2, 0.3), (5, 3, 0.6), (3, 1, 0.2), (4, 4, 0.5)])
def test_pass_at_k_weights_have_the_gradient_of_pass_at_k(size, k, p):
    # expected weight of a prompt = d/dp (1-(1-p)^k) = k(1-p)^(k-1), by enumeration of every group
    total = 0.0
    for outcome in product([0.0, 1.0], repeat=size):
        a = advantage(
            Rollouts.from_lengths([1] * size, list(outcome)), baseline=partial(adv.pass_at_k, k=k)
        )
        chance = math.prod(p if r else 1 - p for r in outcome)
        total += (
            chance
            * sum(x * (1 / p if r else -1 / (1 - p)) for x, r in zip(a, outcome, strict=True))
            / size
        )
    assert total == near(k * (1 - p) ** (k - 1))


def test_pass_at_k_refuses_a_group_smaller_than_k():
    with pytest.raises(ValueError, match="k = 4"):
        advantage(Rollouts.from_lengths([1, 1], [1, 0]), baseline=partial(adv.pass_at_k, k=4))


def test_gdpo_normalises_each_reward_then_adds_then_z_scores():
    # B22 b: r1 = [1,0,1,0], r2 = [0,1,1,0], weights 1 and .5, ddof 1, eps 1e-4
    parts = torch.tensor([[1, 0], [0, 1], [1, 1], [0, 0]], dtype=torch.float64)
    rollouts = Rollouts.from_lengths([1] * 4, [0] * 4, reward_parts=parts)
    each = partial(adv.decoupled_rewards, ddof=1, eps=1e-4, weights=(1.0, 0.5))
    assert advantage(rollouts, baseline=each) == pytest.approx(
        [0.4329, -0.4329, 1.2988, -1.2988], abs=1e-4
    )


def test_gdpo_of_one_prompt_of_two_loses_the_size_of_the_gap():
    # B22 c: rewards [0, 2] and [0, 1] in one-prompt batches both end at ±.7071
    for top in (2.0, 1.0):
        parts = torch.tensor([[0.0], [top]], dtype=torch.float64)
        rollouts = Rollouts.from_lengths([1, 1], [0, 0], reward_parts=parts)
        assert recipe("gdpo").plan(rollouts).advantage[:, 0].tolist() == near(
            [-(0.5**0.5), 0.5**0.5]
        )


def test_a_reward_part_that_does_not_apply_is_left_out_of_its_statistics():
    parts = torch.tensor(
        [[1.0, math.nan], [0.0, math.nan], [1.0, 3.0], [0.0, 1.0]], dtype=torch.float64
    )
    rollouts = Rollouts.from_lengths([1] * 4, [0] * 4, reward_parts=parts)
    found = advantage(rollouts, baseline=partial(adv.decoupled_rewards, ddof=0, eps=0.0))
    assert found == near([1, -1, 2, -2])


def test_lite_ppo_divides_by_one_std_for_the_whole_batch():
    # B21's batch: [1,1,1,0] and [0,0,0,0]; batch std (ddof 1) of 3 ones in 8 = sqrt((3·(5/8)² + 5·(3/8)²)/7)
    rollouts = Rollouts.from_lengths([1] * 8, [1, 1, 1, 0, 0, 0, 0, 0], [0] * 4 + [1] * 4)
    spread = math.sqrt((3 * (5 / 8) ** 2 + 5 * (3 / 8) ** 2) / 7)
    assert recipe("lite_ppo").plan(rollouts).advantage[:, 0].tolist() == near(
        [0.25 / spread] * 3 + [-0.75 / spread] + [0] * 4
    )


def test_maxrl_divides_by_the_pass_rate():
    rollouts = Rollouts.from_lengths([1] * 4, [1, 0, 0, 0])
    assert recipe("maxrl").plan(rollouts).advantage[:, 0].tolist() == near([3, -1, -1, -1])
    assert recipe("maxrl").plan(Rollouts.from_lengths([1] * 2, [0, 0])).advantage.abs().max() == 0


def test_nemo_grpo_keeps_the_lone_success_unscaled():
    # R = [1,0,0,0]: others of the success are all 0 (std 0: not divided); others of a failure are [1,0,0], std 1/sqrt(3)
    scale = partial(adv.leave_one_out_std, ddof=1, eps=0.0)
    found = advantage(
        Rollouts.from_lengths([1] * 4, [1, 0, 0, 0]), baseline=adv.leave_one_out, scale=scale
    )
    assert found == near([1, *[-(3**0.5) / 3] * 3])


def test_token_whitening_weights_the_statistics_by_tokens():
    # lengths 1 and 3, centred rewards ±.5: token mean (.5 - 1.5)/4 = -.25, variance (.75² + 3·.25²)/4 = .1875
    rollouts = Rollouts.from_lengths([1, 3], [1, 0])
    found = advantage(
        rollouts, baseline=adv.group_mean, scale=partial(adv.token_whiten, ddof=0, eps=0.0)
    )
    assert found == near([0.75 / 0.1875**0.5, -0.25 / 0.1875**0.5])


# --- reward shaping and filters -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "penalty"), [(12, 0.0), (14, -0.5), (16, -1.0), (10, 0.0)])
def test_overlong_penalty_falls_from_zero_to_minus_one_over_the_cache(length, penalty):
    # L_max 16, cache 4: 0 up to 12 tokens, -1/2 at 14, -1 at 16
    rollouts = Rollouts.from_lengths([length], [1.0], max_new_tokens=16)
    found = rewards.overlong_penalty(rollouts.reward, rollouts.mask, 16, cache=4)["reward"]
    assert found.item() == near(1 + penalty)


def test_kl_in_reward_drives_a_dead_group_through_the_std():
    # B40 d: rewards all 1, KL sums 10, 20, 30, 40, coefficient .001 -> .99 .98 .97 .96 -> 1.1618, .3873, ...
    rollouts = Rollouts.from_lengths([10] * 4, [1] * 4, logp=-1.0)
    ref = -1.0 - torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)[:, None].expand(4, 10)
    one = Recipe(
        rewards=(partial(rewards.kl_in_reward, beta=0.001),),
        baseline=adv.group_mean,
        scale=partial(adv.group_std, ddof=1, eps=1e-4),
    )
    found = one.plan(replace(rollouts, ref_logp=ref)).advantage[:, 0].tolist()
    assert found == pytest.approx([1.1618, 0.3873, -0.3873, -1.1618], rel=1e-2)
    assert found[0] == near(0.015 / (math.sqrt(0.0005 / 3) + 1e-4))


def test_reinforce_plus_plus_tokens_pay_for_the_kl_still_to_come():
    # log(pi/ref) = .5 on each of 3 tokens, beta .1: return to go 1 - .15, 1 - .1, 1 - .05
    rollouts = Rollouts.from_lengths(
        [3], [1], logp=-1.0, ref_logp=torch.full((1, 3), -1.5, dtype=torch.float64)
    )
    one = Recipe(
        rewards=(partial(rewards.kl_in_token_reward, beta=0.1),),
        baseline=partial(adv.return_to_go, gamma=1.0),
    )
    assert one.plan(rollouts).advantage[0].tolist() == near([0.85, 0.9, 0.95])


def test_a_missing_reference_leaves_the_kl_out_and_says_so():
    with pytest.warns(MissingReferenceWarning, match="left out"):
        weights = token_weights(recipe("grpo"), Rollouts.from_lengths([2, 3], [1, 0]))
    assert torch.equal(
        weights, token_weights(recipe("grpo").but(kl=None), Rollouts.from_lengths([2, 3], [1, 0]))
    )
    with pytest.warns(MissingReferenceWarning, match="kl_in_token_reward"):
        recipe("reinforce++").plan(Rollouts.from_lengths([2, 3], [1, 0]))


@pytest.mark.parametrize(
    ("in_baseline", "expected"), [(True, [2 / 3, -1 / 3]), (False, [0.5, -0.5])]
)
def test_truncation_mask_keeps_or_drops_the_truncated_reward_in_the_baseline(in_baseline, expected):
    rollouts = Rollouts.from_lengths(
        [2, 2, 4], [1, 0, 0], truncated=torch.tensor([False, False, True]), max_new_tokens=4
    )
    one = Recipe(
        baseline=adv.group_mean,
        filters=(partial(truncation_mask, in_baseline=in_baseline),),
        aggregation=agg.step_token_mean,
    )
    plan = one.plan(rollouts)
    assert plan.advantage[:2, 0].tolist() == near(expected)
    assert plan.advantage[2].abs().max() == 0
    assert plan.W[:, 0].tolist() == near(
        [1 / 4, 1 / 4, 0]
    )  # B09: the denominator loses the masked tokens too


def test_truncated_rows_stay_in_n_of_the_sequence_mean():
    rollouts = Rollouts.from_lengths(
        [2, 2, 4], [1, 0, 0], truncated=torch.tensor([False, False, True])
    )
    one = Recipe(
        baseline=adv.group_mean,
        filters=(partial(truncation_mask, in_baseline=True),),
        aggregation=agg.sequence_mean,
    )
    assert one.plan(rollouts).W[0, 0].item() == near(1 / 6)


def test_dropping_dead_groups_takes_them_out_of_every_denominator():
    # B11: a dead group of 60 tokens and a live one of 40: 1/100 with it, 1/40 without
    rollouts = Rollouts.from_lengths(
        [15] * 4 + [10] * 4, [1, 1, 1, 1, 1, 0, 0, 1], [0] * 4 + [1] * 4, max_new_tokens=20
    )
    base = Recipe(baseline=adv.group_mean)
    for aggregation, kept, dropped in (
        (agg.step_token_mean, 1 / 100, 1 / 40),
        (agg.sequence_mean, 1 / 80, 1 / 40),
        (agg.prompt_token_mean, 1 / 80, 1 / 40),
        (agg.constant, 1 / 160, 1 / 80),
        (agg.sequence_sum, 1 / 8, 1 / 4),
    ):
        assert base.but(aggregation=aggregation).plan(rollouts).W[4, 0].item() == near(kept)
        assert base.but(aggregation=aggregation, filters=(drop_dead_groups,)).plan(rollouts).W[
            4, 0
        ].item() == near(dropped)


# --- ratios, corrections, aggregations ------------------------------------------------------------------------------------


def test_dual_clip_stops_a_bad_token_above_the_cap():
    # B34: ratio 6, A = -1: objective -6 and slope -6 without, -3 and 0 with cap 3; ratio 1.5: -1.5 either way
    for ratio, with_cap, slope in ((6.0, -3.0, 0.0), (1.5, -1.5, -1.5)):
        old = torch.full((1, 1), -3.0, dtype=torch.float64)
        logp = (old + math.log(ratio)).requires_grad_()
        value = sur.dual_clip(logp, old, -torch.ones_like(old), eps_low=0.2, eps_high=0.2, cap=3.0)
        assert value.item() == near(with_cap)
        assert torch.autograd.grad(value.sum(), logp)[0].item() == near(slope)
        plain = sur.ppo_clip(logp, old, -torch.ones_like(old), eps_low=0.2, eps_high=0.2)
        assert plain.item() == near(-ratio)


def test_the_sequence_tis_weight_is_a_product_and_the_gspo_ratio_a_mean():
    # B37: log-ratio .012 on 100 tokens: product 3.3201, cut to 3 or dropped; the geometric mean is 1.01207
    old = torch.full((1, 100), -1.0, dtype=torch.float64)
    sampler = old - 0.012
    assert corrections.sequence_truncated_is(old, sampler, cap=5.0)[0, 0].item() == near(
        math.exp(1.2)
    )
    assert corrections.sequence_truncated_is(old, sampler, cap=3.0)[0, 0].item() == 3
    assert corrections.sequence_masked_is(old, sampler, cap=3.0)[0, 0].item() == 0
    assert sur.sequence_log_ratio(old, sampler, torch.ones_like(old).bool()).exp().item() == near(
        math.exp(0.012)
    )


def test_token_corrections_cap_or_drop_and_leave_the_denominator_alone():
    old, sampler = torch.tensor([[-1.0, -1.0, -1.0]]), torch.tensor([[-1.0, -2.0, -0.1]])
    assert corrections.truncated_is(old, sampler, cap=2.0)[0].tolist() == pytest.approx(
        [1, 2, math.exp(-0.9)]
    )
    assert corrections.masked_is(old, sampler, low=0.5, high=5.0)[0].tolist() == pytest.approx(
        [1, math.e, 0]
    )
    rollouts = replace(batch(4), old_logp=None)
    one = recipe("dr_grpo").but(correction=partial(corrections.truncated_is, cap=2.0))
    factor = corrections.truncated_is(rollouts.logp, rollouts.sampler_logp, cap=2.0)  # type: ignore[arg-type]
    torch.testing.assert_close(
        token_weights(one, rollouts),
        token_weights(recipe("dr_grpo"), rollouts) * factor * rollouts.mask,
    )


def test_sequence_product_with_sequence_sum_is_the_mean_of_clipped_sequence_terms():
    rollouts = batch(9, spread=0.05)
    one = Recipe(
        baseline=adv.leave_one_out,
        surrogate=partial(sur.sequence_product, eps_low=0.2, eps_high=0.2),
        aggregation=agg.sequence_sum,
    )
    log_ratio = torch.where(rollouts.mask, rollouts.logp - rollouts.old_logp, 0.0).sum(1)  # type: ignore[operator]
    a = adv.leave_one_out(
        rollouts.reward, rollouts.group, torch.ones(12, dtype=torch.bool)
    ) * rollouts.mask.any(1)
    expected = -torch.minimum(log_ratio.exp() * a, log_ratio.exp().clamp(0.8, 1.2) * a).mean()
    torch.testing.assert_close(one.loss(rollouts), expected, rtol=1e-12, atol=1e-14)


def test_gmpo_clips_each_token_in_log_space_before_the_geometric_mean():
    # log-ratios .6 and -.6, A = 1, eps .4: clipped to .4 and -.6, mean -.1; gates 0 and 1
    old = torch.full((1, 2), -1.0, dtype=torch.float64)
    logp = old + torch.tensor([[0.6, -0.6]], dtype=torch.float64)
    mask, a = torch.ones(1, 2, dtype=torch.bool), torch.ones(1, 2, dtype=torch.float64)
    assert sur.gmpo(logp, old, mask, a, eps_low=0.4, eps_high=0.4)[0].tolist() == near(
        [math.exp(-0.1)] * 2
    )
    assert sur.gmpo_factors(logp, old, mask, a, eps_low=0.4, eps_high=0.4).gate[0].tolist() == [
        0,
        1,
    ]
    assert sur.gmpo_factors(logp, old, mask, -a, eps_low=0.4, eps_high=0.4).gate[0].tolist() == [
        1,
        0,
    ]


def test_sapo_keeps_its_temperature_to_full_precision():
    # ratio 1.5, A = -1: -4/1.05 · sigmoid(1.05 · .5)
    old = torch.full((1, 1), -1.0, dtype=torch.float64)
    value = sur.sapo(old + math.log(1.5), old, -torch.ones_like(old), tau_pos=1.0, tau_neg=1.05)
    assert value.item() == near(-4 / 1.05 / (1 + math.exp(-1.05 * 0.5)))


def test_balanced_masses_do_not_depend_on_mean_lengths():
    # 1 right of 2 tokens, 3 wrong of 4: n/G per side: 1/4 · 1/2 and 3/4 · 1/12
    rollouts = Rollouts.from_lengths([2, 4, 4, 4], [1, 0, 0, 0])
    weight = recipe("balanced").plan(rollouts).W
    assert weight[:, 0].tolist() == near([1 / 8, 1 / 16, 1 / 16, 1 / 16])


def test_length_power_runs_from_the_constant_to_the_sequence_mean_of_a_group():
    rollouts = Rollouts.from_lengths([2, 8], [1, 0], max_new_tokens=10)
    one = Recipe(baseline=adv.group_mean)
    assert one.but(aggregation=partial(agg.length_power, alpha=0.0)).plan(rollouts).W[
        :, 0
    ].tolist() == near([1 / 20, 1 / 20])
    # alpha 1: |o|^-1 = 1/2 and 1/8, mean 5/16: 1.6/20 and .4/20
    assert one.but(aggregation=partial(agg.length_power, alpha=1.0)).plan(rollouts).W[
        :, 0
    ].tolist() == near([0.08, 0.02])


def test_a_sequence_ratio_with_one_advantage_per_token_is_refused_and_gspo_token_takes_it():
    rollouts = batch(3)
    per_token = recipe("gspo").but(baseline=adv.given, scale=adv.unscaled)
    with pytest.raises(ValueError, match="one per completion"):
        token_weights(per_token, rollouts)
    assert (
        token_weights(per_token.but(surrogate=recipe("gspo_token").surrogate), rollouts).abs().sum()
        > 0
    )


@pytest.mark.parametrize(
    ("axes", "reason"),
    [
        (
            {"surrogate": recipe("gspo").surrogate, "aggregation": agg.step_token_mean},
            "weights a completion by its tokens",
        ),
        ({"surrogate": partial(sur.gspo, eps_low=0.2, eps_high=0.2)}, "practically never clips"),
        ({"surrogate": partial(sur.ppo_clip, eps_low=3.0, eps_high=0.28)}, "never clips"),
        ({"surrogate": partial(sur.cispo, low=0.0, high=0.2)}, "absolute cap"),
    ],
)
def test_unintended_combinations_run_and_say_why(axes, reason):
    with pytest.warns(RecipeWarning, match=reason):
        one = Recipe(**axes)
    assert torch.isfinite(token_weights(one, batch(2))).all()


# --- degenerate inputs in every recipe ------------------------------------------------------------------------------------

NEEDS_PEERS = {
    name
    for name, one in RECIPES.items()
    if {
        "group_mean",
        "leave_one_out",
        "length_weighted_mean",
        "live_group_mean",
        "decoupled_rewards",
    }
    & {one.describe()["baseline"].split("(")[0]}
}
CENTRED_ON_DEAD = NEEDS_PEERS | {"grpo(process)"}


def all_fields(lengths: list[int], reward: list[float], group: list[int]) -> Rollouts:
    """Rollouts with every optional field, rewards the same everywhere they are told."""
    plain = Rollouts.from_lengths(lengths, reward, group, max_new_tokens=max(lengths) + 1)
    last = plain.mask & (torch.arange(plain.mask.shape[1]) == plain.lengths[:, None] - 1)
    return replace(
        plain,
        ref_logp=plain.logp,
        sampler_logp=plain.logp,
        entropy=-plain.logp,
        reward_parts=plain.reward[:, None],
        token_reward=torch.where(last, plain.reward[:, None], math.nan),
        value=torch.zeros_like(plain.logp),
        greedy_reward=torch.zeros_like(plain.reward),
        given_advantage=plain.reward,
    )


@pytest.mark.parametrize("name", RECIPES)
def test_equal_rewards_give_no_push_to_recipes_that_compare(name):
    weights = token_weights(RECIPES[name], all_fields([2, 3, 1], [0.7, 0.7, 0.7], [0, 0, 0]))
    assert torch.isfinite(weights).all()
    if name in CENTRED_ON_DEAD:
        assert weights.abs().max() < 1e-12


@pytest.mark.parametrize("name", RECIPES)
def test_a_group_of_one_is_refused_by_name_or_gives_finite_weights(name):
    rollouts = all_fields([3], [1.0], [0])
    if name in NEEDS_PEERS:
        with pytest.raises(ValueError, match="group size 1: no relative signal"):
            token_weights(RECIPES[name], rollouts)
    elif name in ("pass@k", "pass@k(training)"):
        with pytest.raises(ValueError, match="k = 2"):
            token_weights(RECIPES[name], rollouts)
    else:
        assert torch.isfinite(token_weights(RECIPES[name], rollouts)).all()


@pytest.mark.parametrize("name", RECIPES)
def test_two_completions_of_one_token_an_empty_one_and_rewards_of_any_scale_are_finite(name):
    for reward in ([1.0, -1.0], [1e6, -3e5], [1e-9, 0.0]):
        weights = token_weights(RECIPES[name], all_fields([1, 0], reward, [0, 0]))
        assert torch.isfinite(weights).all()
        assert weights[1].abs().max() == 0


@pytest.mark.parametrize("name", RECIPES)
def test_a_group_whose_rows_are_all_masked_is_finite_and_gets_nothing(name):
    weights = token_weights(RECIPES[name], all_fields([2, 3, 0, 0], [1, 0, 1, 0], [0, 0, 1, 1]))
    assert torch.isfinite(weights).all()
    assert weights[2:].abs().max() == 0


# --- the two bias sentences, derived from the weights ---------------------------------------------------------------------

QUARTER = {
    "grpo",
    "grpo(process)",
    "gspo",
    "gspo_token",
    "gmpo",
    "sapo",
    "gdpo",
    "grpo(off_policy_mask)",
}  # 1/|o|: four times longer, a quarter of the push


@pytest.mark.parametrize("name", RECIPES)
def test_length_bias_is_a_quarter_under_one_over_length_and_none_elsewhere(name):
    bias = length_bias(RECIPES[name])
    expected = 0.25 if name in QUARTER else 4**-0.75 if name == "vl_norm" else 1.0
    found = [x for x in (bias.right, bias.wrong) if not math.isnan(x)]
    assert found == near([expected] * len(found))
    assert ("no bias" in str(bias)) == (expected == 1.0)


def closed_form(name: str, p: float, g: int) -> float:
    """w_G(p) from the published formulas, independent of the recipe."""
    if name in {
        "grpo",
        "grpo(process)",
        "dapo",
        "dapo(step)",
        "bnpo",
        "gspo",
        "gspo_token",
        "luspo",
        "gmpo",
        "cispo",
        "sapo",
        "balanced",
        "dppo_tv",
        "dppo_kl",
        "dro",
        "vespo",
        "decoupled_ppo",
        "grpo(off_policy_mask)",
        "high_entropy",
        "clip_cov",
        "kl_cov",
    }:
        spread = sum(
            math.comb(g, k) * p**k * (1 - p) ** (g - k) * math.sqrt(k * (g - k)) / g
            for k in range(g + 1)
        )
        return spread / (p * (1 - p))
    if name == "maxrl":
        return sum((1 - p) ** (k - 1) for k in range(1, g))
    if name == "pass@k":
        return 2 * (1 - p)
    return 1.0


@pytest.mark.parametrize(
    "name",
    sorted(
        set(RECIPES)
        - {"gdpo", "reinforce++", "reinforce++(baseline)", "pass@k(training)", "distillation"}
    ),
)
@pytest.mark.parametrize("size", [2, 3, 8])
def test_difficulty_weight_is_the_published_curve(name, size):
    middle = closed_form(name, 0.5, size)
    for p in (0.1, 0.3, 0.9):
        relative = prompt_weight(RECIPES[name], p, size) / prompt_weight(RECIPES[name], 0.5, size)
        assert relative == pytest.approx(closed_form(name, p, size) / middle, rel=1e-9)


def test_std_has_no_difficulty_bias_at_two_and_three_completions_and_gains_at_both_ends_later():
    assert str(difficulty_bias(recipe("grpo"), 2)).startswith("Difficulty: no bias at G = 2")
    assert str(difficulty_bias(recipe("grpo"), 3)).startswith("Difficulty: no bias at G = 3")
    at_eight = difficulty_bias(recipe("grpo"), 8)
    assert at_eight.hard == pytest.approx(at_eight.easy)
    assert at_eight.hard > 1.2
    assert difficulty_bias(recipe("maxrl"), 8).hard > 1 > difficulty_bias(recipe("maxrl"), 8).easy


def test_whitening_over_the_batch_has_no_difficulty_bias_and_gdpo_keeps_the_one_of_its_group_std():
    assert difficulty_bias(recipe("reinforce++(baseline)")).hard == pytest.approx(1.0, abs=1e-9)
    assert difficulty_bias(recipe("gdpo")).hard == pytest.approx(
        difficulty_bias(recipe("grpo")).hard, rel=1e-9
    )


# --- compare ----------------------------------------------------------------------------------------------------------------


def test_advantages_side_by_side_and_a_recipe_with_one_per_token_is_refused():
    rollouts = Rollouts.from_lengths(
        [2, 3, 1, 1], [1, 0, 0, 0], max_new_tokens=3, value=torch.rand(4, 3).double()
    )
    table = advantage_table([recipe("rloo"), recipe("dr_grpo"), recipe("dapo")], rollouts)
    assert table["rloo"].tolist() == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3])
    assert table["dapo"].tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5])
    assert table["length"].tolist() == [2, 3, 1, 1]
    with pytest.raises(ValueError, match="one advantage per token"):
        advantage_table([recipe("ppo(gae)")], rollouts)


def test_dr_grpo_and_dapo_changes_are_one_axis_each():
    assert compare(recipe("grpo"), recipe("dr_grpo")).differing() == ["scale", "kl", "aggregation"]
    for other in ("dr_grpo", "dapo"):
        assert compare(recipe("grpo"), recipe(other), only="aggregation").differing() == [
            "aggregation"
        ]
    with pytest.raises(ValueError, match=r"only is .*: expected one of rewards"):
        compare(recipe("grpo"), recipe("dapo"), only="loss")


def test_the_table_has_every_recipe_and_its_html_escapes():
    assert list(axis_table(RECIPES.values()).index) == list(RECIPES)
    named = recipe("grpo").but("<script>", kl=None)
    assert "<script>" not in compare(named, recipe("rloo"))._repr_html_()


def test_every_entry_names_its_paper_and_writes_its_formula():
    for name, one in RECIPES.items():
        assert one.paper, name
        assert any(char.isdigit() for char in one.paper), name
        latex = one.latex()
        assert latex.count("{") == latex.count("}"), name
        assert "<" not in latex, name


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(KeyError, match="Did you mean 'dr_grpo'"):
        recipe("drgrpo_")
    with pytest.raises(TypeError, match=r"grpo_edu.recipe\('grpo'\)"):
        Recipe(aggregation="grpo")  # type: ignore[arg-type]
