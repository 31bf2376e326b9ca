"""The weight of a prompt: every recipe against all groups of a four-answer softmax policy, autograd through the real loss."""

from __future__ import annotations

import math
from functools import partial
from itertools import product

import oracles
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from grpo_edu import RECIPES, Recipe, Rollouts, recipe
from grpo_edu.objective import advantages as adv
from grpo_edu.objective import aggregation as agg
from grpo_edu.objective import surrogates as sur
from grpo_edu.objective.probes import neutral_rollouts
from grpo_edu.theory import difficulty

near = partial(pytest.approx, rel=1e-9, abs=1e-12)
LOGITS = torch.tensor([0.3, -0.8, 0.5, 0.1], dtype=torch.float64)
RIGHT = torch.tensor([1.0, 1.0, 0.0, 0.0], dtype=torch.float64)
P = (LOGITS.softmax(0) @ RIGHT).item()
# A statistic of the whole batch: its value for one group is not its value in a large batch.
BATCH_SCOPE = ("gpg", "gdpo", "lite_ppo", "reinforce++", "reinforce++(baseline)")
GRPO0 = recipe("grpo").but(scale=partial(adv.group_std, ddof=0, eps=0.0))


def all_gradients(one: Recipe, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Chance ``[M]``, gradient of the objective by the logits ``[M, 4]`` and number of right answers ``[M]`` of all 4^G groups."""
    answers = torch.tensor(list(product(range(4), repeat=size)))
    group, mask = torch.zeros(size, dtype=torch.long), torch.ones(size, 1, dtype=torch.bool)

    def loss(logits: Tensor, row: Tensor) -> Tensor:
        logp, reward = logits.log_softmax(0)[row][:, None], RIGHT[row]
        batch = Rollouts.unchecked(
            logp=logp,
            mask=mask,
            reward=reward,
            group=group,
            ref_logp=logp.detach(),
            sampler_logp=logp.detach(),
            reward_parts=reward[:, None],
            token_reward=reward[:, None] if one.name.startswith("grpo(process)") else None,
            value=torch.full_like(logp, 0.5),
            greedy_reward=torch.full_like(reward, 0.5),
            given_advantage=reward - 0.5,
            truncated=torch.zeros(size, dtype=torch.bool),
            max_new_tokens=1,
        )
        return one.loss(batch)

    gradient = -torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(LOGITS, answers)
    return LOGITS.softmax(0)[answers].prod(dim=1), gradient, RIGHT[answers].sum(dim=1)


def slope_of_pass_rate() -> Tensor:
    leaf = LOGITS.clone().requires_grad_()
    return torch.autograd.grad(leaf.softmax(0) @ RIGHT, leaf)[0]


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("name", [n for n in RECIPES if n not in (*BATCH_SCOPE, "high_entropy")])
def test_expected_gradient_of_every_recipe_is_its_weight_times_the_slope_of_the_pass_rate(
    name, size
):
    chance, gradient, _ = all_gradients(RECIPES[name], size)
    expected = difficulty.prompt_weight(RECIPES[name], P, size) * slope_of_pass_rate()
    torch.testing.assert_close(chance @ gradient, expected, rtol=1e-9, atol=1e-12)


def test_the_recipes_left_out_above_are_those_that_scale_by_the_whole_batch():
    # twice the same group beside a dead one: a recipe of group scope gives the first group the same advantages
    for name, one in RECIPES.items():
        alone, beside = (
            ([1.0, 0.0, 0.0], [0] * 3),
            ([1.0, 0.0, 0.0, 1.0, 1.0, 1.0], [0] * 3 + [1] * 3),
        )
        plans = [
            one.plan(neutral_rollouts([1] * len(r), r, g, one)).advantage[:3]
            for r, g in (alone, beside)
        ]
        assert torch.allclose(*plans) is (name not in BATCH_SCOPE), name


@pytest.mark.parametrize("name", BATCH_SCOPE)
def test_a_number_of_the_whole_batch_leaves_the_shape_of_the_curve_alone(name):
    # gdpo keeps the shape of the group std that it applies first; the others are flat
    shape = (lambda p: difficulty.std_weight(p, 8)) if name == "gdpo" else (lambda p: 1.0)
    ratios = [
        difficulty.prompt_weight(RECIPES[name], p, 8) / shape(p) for p in (0.05, 0.3, 0.5, 0.9)
    ]
    assert ratios == [near(ratios[0])] * 4


def softmax_advantage(reward: Tensor, *, tau: float) -> Tensor:
    return len(reward) * (reward / tau).softmax(0) - 1


def maxrl_kept(reward: Tensor) -> Tensor:
    """r/mean - 1, and -1 for everyone where nobody is right."""
    mean = reward.mean()
    return torch.where(mean > 0, reward / mean.clamp(min=1e-9), 0.0) - 1


@pytest.mark.parametrize("tau", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_softmax_weight_equals_enumeration(tau, size):
    one = Recipe(
        name="softmax",
        baseline=partial(softmax_advantage, tau=tau),
        surrogate=sur.reinforce,
        aggregation=agg.sequence_sum,
    )
    chance, gradient, _ = all_gradients(one, size)
    expected = oracles.softmax_weight(P, size, tau) * slope_of_pass_rate()
    torch.testing.assert_close(chance @ gradient, expected, rtol=1e-9, atol=1e-12)


@given(p=st.floats(0.01, 0.99), size=st.integers(2, 9))
def test_softmax_advantages_run_from_maxrl_to_the_centred_reward(p, size):
    assert oracles.softmax_weight(p, size, 0.002) == near(oracles.maxrl_weight(p, size - 1))
    assert 1e6 * oracles.softmax_weight(p, size, 1e6) == pytest.approx((size - 1) / size, rel=1e-5)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_maxrl_has_order_g_only_where_the_all_wrong_group_keeps_its_minus_one(size):
    one = Recipe(
        name="maxrl(10)", baseline=maxrl_kept, surrogate=sur.reinforce, aggregation=agg.sequence_sum
    )
    chance, gradient, _ = all_gradients(one, size)
    torch.testing.assert_close(
        chance @ gradient,
        oracles.maxrl_weight(P, size) * slope_of_pass_rate(),
        rtol=1e-9,
        atol=0,
    )
    assert difficulty.prompt_weight(recipe("maxrl"), P, size) == near(
        oracles.maxrl_weight(P, size - 1)
    )


@pytest.mark.parametrize(("k", "size"), [(1, 3), (2, 4), (3, 4), (4, 4)])
def test_pass_at_k_weights_are_the_slope_of_pass_at_k(k, size):
    one = recipe("pass@k").but(baseline=partial(adv.pass_at_k, k=k))
    chance, gradient, _ = all_gradients(one, size)
    leaf = LOGITS.clone().requires_grad_()
    slope = torch.autograd.grad(1 - (1 - leaf.softmax(0) @ RIGHT) ** k, leaf)[0]
    torch.testing.assert_close(chance @ gradient, slope, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(
        oracles.pass_at_k_weight(P, k) * slope_of_pass_rate(), slope, rtol=1e-9, atol=1e-12
    )


@settings(max_examples=40, deadline=None)
@given(rewards=st.lists(st.floats(-3, 3), min_size=4, max_size=4), size=st.integers(2, 3))
def test_mean_baseline_costs_the_factor_g_minus_one_over_g_and_leave_one_out_nothing_for_any_reward(
    rewards, size
):
    # not only right/wrong: E[(1/G) Σ A S] against the gradient of the mean reward
    values, chance = torch.tensor(rewards, dtype=torch.float64), LOGITS.softmax(0)
    scores = torch.eye(4, dtype=torch.float64) - chance
    answers = torch.tensor(list(product(range(4), repeat=size)))
    slope = chance * (values - chance @ values)
    weights = chance[answers].prod(dim=1)
    reward = values[answers]
    for centred, factor in (
        (reward - reward.mean(1, keepdim=True), (size - 1) / size),
        ((size * reward - reward.sum(1, keepdim=True)) / (size - 1), 1.0),
    ):
        found = torch.einsum("m,mg,mga->a", weights, centred, scores[answers]) / size
        torch.testing.assert_close(found, factor * slope, rtol=1e-9, atol=1e-12)


# --- the objective that is climbed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rloo", "grpo", "maxrl", "pass@k", "reinforce"])
@pytest.mark.parametrize("size", [3, 6])
def test_the_objective_is_the_integral_of_the_weight(name, size):
    # the weight is a polynomial of degree G-1 <= 5: three Gauss points integrate it exactly
    gauss = [(0.5 - math.sqrt(0.15), 5 / 18), (0.5, 4 / 9), (0.5 + math.sqrt(0.15), 5 / 18)]
    for p in (0.15, 0.6, 1.0):
        area = p * sum(
            share * difficulty.prompt_weight(RECIPES[name], p * x, size) for x, share in gauss
        )
        assert difficulty.objective(RECIPES[name], p, size) == near(area)


def test_special_values_of_the_objective():
    assert [difficulty.objective(GRPO0, 1.0, g) for g in (2, 4, 16)] == pytest.approx(
        [1, 1.6547, 2.4081], abs=5e-5
    )
    # maxrl of order G-1: -Σ (1-p)^k / k, up to its value at 0; pass@2: 1-(1-p)²; RLOO: p
    for p in (0.2, 0.7):
        climbed = sum((1 - (1 - p) ** k) / k for k in range(1, 6))
        assert difficulty.objective(recipe("maxrl"), p, 6) == near(climbed)
        assert difficulty.objective(recipe("pass@k"), p, 6) == near(1 - (1 - p) ** 2)
        assert difficulty.objective(recipe("rloo"), p, 6) == near(p)
    # towards π, slowly
    ends = [difficulty.objective(GRPO0, 1.0, g) for g in (16, 64, 256)]
    assert ends == sorted(ends)
    assert math.pi - ends[-1] < 0.25


# --- shapes of the curves -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [4, 5, 8, 16, 64])
def test_std_curve_is_a_u_lowest_at_one_half_and_maxrl_falls(size):
    grid = [k / 40 for k in range(1, 40)]
    curve = [difficulty.std_weight(p, size) for p in grid]
    assert min(curve) == curve[19]
    assert curve == near(curve[::-1])
    assert curve[:20] == sorted(curve[:20], reverse=True)
    falling = [oracles.maxrl_weight(p, size - 1) for p in grid]
    assert falling == sorted(falling, reverse=True)


@pytest.mark.parametrize("size", [2, 4, 9])
def test_hardest_prompts_get_the_root_of_g_minus_one_and_with_bessel_less(size):
    assert difficulty.prompt_weight(GRPO0, 1e-10, size) == pytest.approx(
        math.sqrt(size - 1), rel=1e-8
    )
    assert difficulty.prompt_weight(recipe("grpo"), 1e-10, size) == pytest.approx(
        (size - 1) / math.sqrt(size), rel=1e-8
    )


def test_the_next_term_of_the_large_group_is_right_to_order_one_over_g_squared():
    assert oracles.large_group_std_weight(0.3, 64) * math.sqrt(0.21) == pytest.approx(
        0.99070, abs=5e-6
    )
    assert difficulty.std_weight(0.3, 64) * math.sqrt(0.21) == pytest.approx(0.99053, abs=5e-6)
    gaps = [
        abs(difficulty.std_weight(0.3, g) - oracles.large_group_std_weight(0.3, g)) * g * g
        for g in (128, 256, 512)
    ]
    assert max(gaps) / min(gaps) < 1.1


def test_update_of_one_logit_with_the_std_at_eight_has_the_printed_values():
    # w·p(1-p) at G = 8, population std, at p = .02, .125, .5, .9; relative to .5 per p(1-p): 1.387, 1.220, 1, 1.254
    rates = (0.02, 0.125, 0.5, 0.9)
    frames = [difficulty.frames(difficulty.std_weight(p, 8), p)["score"] for p in rates]
    assert frames == pytest.approx([0.050, 0.248, 0.464, 0.210], abs=6e-4)
    relative = [difficulty.std_weight(p, 8) / difficulty.std_weight(0.5, 8) for p in rates]
    assert relative == pytest.approx([1.387, 1.220, 1.0, 1.254], abs=5e-4)
    assert difficulty.frames(difficulty.prompt_weight(recipe("dr_grpo"), 0.3, 8), 0.3)[
        "score"
    ] == near(0.21 * 7 / 8)


def test_score_frame_of_each_scheme_in_the_limit():
    for p in (0.1, 0.4):
        assert difficulty.frames(difficulty.infinite_std_weight(p), p)["score"] == near(
            math.sqrt(p * (1 - p))
        )
        assert difficulty.frames(1.0, p)["score"] == near(p * (1 - p))
        assert difficulty.frames(oracles.maxrl_weight(p, 2000), p)["score"] == near(1 - p)
        assert difficulty.frames(1 / p, p)["log-probability"] == near(1)


@given(size=st.integers(2, 40), k=st.integers(1, 39))
def test_advantages_of_one_group_have_unit_square_and_the_known_sizes(size, k):
    k = 1 + k % (size - 1)
    right, wrong = (side[k].item() for side in difficulty.advantages_by_count(GRPO0, size))
    assert right == near(math.sqrt((size - k) / k))
    assert wrong == near(-math.sqrt(k / (size - k)))
    assert (k * right**2 + (size - k) * wrong**2) / size == near(1)
    assert k * right - (size - k) * wrong == near(2 * math.sqrt(k * (size - k)))


@pytest.mark.parametrize("size", [3, 4])
def test_mean_squared_advantage_is_the_chance_of_a_live_group(size):
    right, wrong = difficulty.advantages_by_count(GRPO0, size)
    total = 0.0
    for k in range(size + 1):
        chance = math.comb(size, k) * P**k * (1 - P) ** (size - k)
        total += chance * (k * right[k].item() ** 2 + (size - k) * wrong[k].item() ** 2) / size
    assert total == near(1 - difficulty.silent_probability(P, size))


# --- dynamic sampling -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["grpo", "rloo", "reinforce", "pass@k", "remax"])
def test_rerolled_weight_equals_the_mean_gradient_of_live_groups_even_where_silent_ones_would_push(
    name,
):
    chance, gradient, count = all_gradients(RECIPES[name], 3)
    live = (count > 0) & (count < 3)
    mean = (chance * live) @ gradient / (chance * live).sum()
    expected = difficulty.rerolled_weight(RECIPES[name], P, 3) * slope_of_pass_rate()
    torch.testing.assert_close(mean, expected, rtol=1e-9, atol=1e-12)


def test_rerolling_pairs_climbs_half_the_logit():
    for p in (0.1, 0.6):
        slope = 0.5 / (p * (1 - p))  # of ½·log(p/(1-p))
        assert difficulty.rerolled_weight(GRPO0, p, 2) == near(slope)
    assert difficulty.rerolled_weight(GRPO0, 0.02, 8) == pytest.approx(17.2, abs=0.05)


def test_refilling_with_new_prompts_keeps_every_relative_weight():
    rates = [0.02, 0.3, 0.9]
    refilled = difficulty.refilled_weights(GRPO0, rates, 8)
    plain = [difficulty.prompt_weight(GRPO0, p, 8) for p in rates]
    assert [a / b for a, b in zip(refilled, plain, strict=True)] == [
        near(refilled[0] / plain[0])
    ] * 3
    # the factor, from the law of the first live group: prompt uniform, tried until one is live
    live = [sum(math.comb(8, k) * p**k * (1 - p) ** (8 - k) for k in range(1, 8)) for p in rates]
    share = [x / sum(live) for x in live]  # of the kept groups, per prompt
    kept = [
        s * w / x for s, w, x in zip(share, plain, live, strict=True)
    ]  # mean gradient of a kept group, per prompt
    assert [3 * x for x in kept] == near(refilled)


# --- the flow of one logit ------------------------------------------------------------------------------------------------


def test_climb_time_has_the_closed_forms_of_no_std_and_of_the_infinite_std():
    # ∫ dp / (p(1-p))² = 2 log(p/(1-p)) + (2p-1)/(p(1-p));  ∫ dp / (p(1-p))^1.5 = 2(2p-1)/√(p(1-p))
    flat = lambda p: 2 * math.log(p / (1 - p)) + (2 * p - 1) / (p * (1 - p))
    std = lambda p: 2 * (2 * p - 1) / math.sqrt(p * (1 - p))
    assert oracles.climb_time(lambda p: 1.0, 0.01, 0.9) == pytest.approx(
        flat(0.9) - flat(0.01), rel=1e-8
    )
    found = oracles.climb_time(difficulty.infinite_std_weight, 0.01, 0.9)
    assert found == pytest.approx(std(0.9) - std(0.01), rel=1e-8)


def test_hard_prompts_are_climbed_fastest_by_maxrl_then_std_then_no_std_and_easy_ones_faster_by_std_than_by_maxrl():
    schemes = [recipe("maxrl"), GRPO0, recipe("rloo")]

    def times(start: float, goal: float) -> list[float]:
        return [
            oracles.climb_time(
                lambda p, one=one: difficulty.prompt_weight(one, p, 64), start, goal, 100
            )
            for one in schemes
        ]

    hard = times(0.005, 0.9)
    assert hard == sorted(hard)
    easy = times(0.6, 0.99)
    assert easy[1] < easy[0] < easy[2]


# --- noise of the schemes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rloo", "dr_grpo", "grpo", "maxrl", "reinforce", "pass@k"])
def test_advantage_noise_equals_enumeration(name):
    # of the logit that moves p: project on it, S = (1{right} - p)
    for size in (2, 4):
        logit = torch.tensor(math.log(P / (1 - P)), dtype=torch.float64)
        first = second = 0.0
        for row in product([0.0, 1.0], repeat=size):
            reward = torch.tensor(row, dtype=torch.float64)
            leaf = logit.clone().requires_grad_()
            logp = torch.nn.functional.logsigmoid(torch.where(reward > 0, leaf, -leaf))[:, None]
            batch = Rollouts(
                logp=logp,
                mask=torch.ones(size, 1, dtype=torch.bool),
                reward=reward,
                group=torch.zeros(size).long(),
                max_new_tokens=1,
            )
            g = -torch.autograd.grad(RECIPES[name].but(kl=None).loss(batch), leaf)[0].item()
            chance = math.prod(P if r else 1 - P for r in row)
            first, second = first + chance * g, second + chance * g * g
        assert oracles.advantage_noise(RECIPES[name], P, size) == near(second / first**2 - 1)


def test_after_rescaling_the_std_is_a_little_less_noisy_and_maxrl_more():
    noise = {
        name: oracles.advantage_noise(RECIPES[name], 0.35, 4)
        for name in ("grpo", "rloo", "dr_grpo", "maxrl", "reinforce")
    }
    assert noise["rloo"] == near(noise["dr_grpo"])
    assert noise["grpo"] < noise["rloo"] < noise["maxrl"] < noise["reinforce"]


# --- the KL-regularised recursion -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [2.0, 5.0])
def test_iterated_regularised_std_scaled_objective_moves_the_logit_as_the_recursion_says(beta):
    # argmax of Σ π A - β KL(π‖ref) is ref·exp(A/β)/Z; A by the pass rate before: logit p' = logit ref + 1/(β √(p(1-p)))
    reference = LOGITS.softmax(0)
    p_ref = p = P
    policy = reference
    for _ in range(6):
        a = (RIGHT - p) / math.sqrt(p * (1 - p))
        policy = reference * (a / beta).exp()
        policy = policy / policy.sum()
        value = lambda pi, a=a: (pi * a).sum() - beta * (pi * (pi / reference).log()).sum()
        for seed in range(5):  # it is the argmax: any other policy is worse
            other = (
                policy.log()
                + 0.1
                * torch.randn(4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
            ).softmax(0)
            assert value(other) < value(policy)
        predicted = math.log(p_ref / (1 - p_ref)) + 1 / (beta * math.sqrt(p * (1 - p)))
        p = (policy @ RIGHT).item()
        assert math.log(p / (1 - p)) == near(predicted)
        assert p > p_ref
