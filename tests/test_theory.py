"""Exact results against enumeration of every group with autograd through the real Recipe, and against published numbers."""

from __future__ import annotations

import math
from functools import partial
from itertools import product

import oracles
import pytest
import torch

from grpo_edu import RECIPES, Recipe, Rollouts, recipe, token_weights
from grpo_edu.objective import advantages as adv
from grpo_edu.objective import aggregation as agg
from grpo_edu.objective import kl, surrogates
from grpo_edu.theory import difficulty, enumeration, length
from grpo_edu.theory import kl as exact_kl
from grpo_edu.weights import split

near = partial(pytest.approx, rel=1e-9, abs=1e-12)
POPULATION = partial(adv.group_std, ddof=0, eps=0.0)
GRPO0 = recipe("grpo").but(kl=None, scale=POPULATION)


# --- difficulty -----------------------------------------------------------------------------------------------------------


def enumerated_weight(one: Recipe, p: float, size: int) -> float:
    """w from E[gradient of the loss by a logit] = -w·dp/dlogit: every outcome of G Bernoulli answers, autograd through the loss."""
    logit = torch.tensor(math.log(p / (1 - p)), dtype=torch.float64, requires_grad=True)
    total = 0.0
    for outcome in product([0.0, 1.0], repeat=size):
        reward = torch.tensor(outcome, dtype=torch.float64)
        logp = torch.where(
            reward > 0,
            torch.nn.functional.logsigmoid(logit),
            torch.nn.functional.logsigmoid(-logit),
        )[:, None]
        rollouts = Rollouts(
            logp=logp,
            mask=torch.ones(size, 1, dtype=torch.bool),
            reward=reward,
            group=torch.zeros(size, dtype=torch.long),
            max_new_tokens=1,
        )
        gradient = -torch.autograd.grad(one.loss(rollouts), logit)[0].item()
        total += math.prod(p if r else 1 - p for r in outcome) * gradient
    return total / (p * (1 - p))


@pytest.mark.parametrize(
    "name",
    [
        "reinforce",
        "rloo",
        "grpo",
        "dr_grpo",
        "dapo(step)",
        "gspo",
        "maxrl",
        "pass@k",
        "opo",
        "balanced",
        "sapo",
        "cispo",
    ],
)
@pytest.mark.parametrize(("p", "size"), [(0.1, 3), (0.35, 4), (0.8, 5)])
def test_prompt_weight_equals_enumeration_with_autograd(name, p, size):
    one = RECIPES[name].but(kl=None)
    assert difficulty.prompt_weight(one, p, size) == near(enumerated_weight(one, p, size))


@pytest.mark.parametrize("p", [0.02, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_closed_forms_are_the_weights_of_the_recipes(p, size):
    assert difficulty.prompt_weight(recipe("rloo"), p, size) == near(1)
    assert difficulty.prompt_weight(recipe("dr_grpo"), p, size) == near((size - 1) / size)
    assert difficulty.prompt_weight(recipe("maxrl"), p, size) == near(
        oracles.maxrl_weight(p, size - 1)
    )
    assert difficulty.prompt_weight(recipe("pass@k"), p, size) == near(
        oracles.pass_at_k_weight(p, 2)
    )
    for ddof, eps in ((0, 0.0), (1, 0.0), (1, 1e-4), (0, 0.1)):
        one = recipe("grpo").but(scale=partial(adv.group_std, ddof=ddof, eps=eps))
        assert difficulty.prompt_weight(one, p, size) == near(
            difficulty.std_weight(p, size, ddof=ddof, eps=eps)
        )


def test_std_makes_no_difficulty_bias_at_two_and_three_completions():
    for p in (0.01, 0.2, 0.5, 0.97):
        assert difficulty.std_weight(p, 2) == near(1)
        assert difficulty.std_weight(p, 3) == near(math.sqrt(2))
        assert difficulty.std_weight(p, 4) == near(
            math.sqrt(3) - (2 * math.sqrt(3) - 3) * p * (1 - p)
        )


@pytest.mark.parametrize(("size", "ratio"), [(4, 1.06), (8, 1.33), (16, 1.69), (64, 2.19)])
def test_std_bias_grows_with_the_group_and_stays_below_the_infinite_picture(size, ratio):
    # w(.05)/w(.5)
    assert difficulty.std_weight(0.05, size) / difficulty.std_weight(0.5, size) == pytest.approx(
        ratio, abs=0.005
    )
    assert ratio < difficulty.infinite_std_weight(0.05) / difficulty.infinite_std_weight(0.5)


def test_std_weight_saturates_at_the_root_of_g_minus_one():
    for size in (4, 16):
        assert difficulty.std_weight(1e-9, size) == pytest.approx(math.sqrt(size - 1), rel=1e-6)
    assert difficulty.std_weight(0.3, 64) * math.sqrt(0.21) == pytest.approx(0.99053, abs=5e-6)


@pytest.mark.parametrize(("size", "value"), [(2, 1.0), (4, 1.6547), (16, 2.4081)])
def test_the_objective_climbed_has_the_weight_as_its_slope_and_the_known_end_values(size, value):
    assert difficulty.objective(GRPO0, 1.0, size) == pytest.approx(value, abs=5e-5)
    step = 1e-5
    for p in (0.2, 0.7):
        slope = (
            difficulty.objective(GRPO0, p + step, size)
            - difficulty.objective(GRPO0, p - step, size)
        ) / (2 * step)
        assert slope == pytest.approx(difficulty.prompt_weight(GRPO0, p, size), rel=1e-8)


def test_the_objective_of_the_std_tends_to_two_arcsin_of_the_root():
    # between two inner pass rates; near 0 the finite weight saturates and h falls behind
    climbed = difficulty.objective(GRPO0, 0.7, 200) - difficulty.objective(GRPO0, 0.3, 200)
    assert climbed == pytest.approx(
        2 * (math.asin(math.sqrt(0.7)) - math.asin(math.sqrt(0.3))), rel=5e-3
    )


def test_silent_groups_and_the_baseline_of_live_ones():
    assert [difficulty.silent_probability(0.1819, g) for g in (2, 4, 8, 16)] == pytest.approx(
        [0.702, 0.449, 0.201, 0.040], abs=1e-3
    )
    assert [oracles.conditional_baseline(p, 8) for p in (0.05, 0.2, 0.8)] == pytest.approx(
        [0.1486, 0.2403, 0.7597], abs=5e-5
    )
    # by enumeration of K
    p, g = 0.3, 5
    bins = [math.comb(g, k) * p**k * (1 - p) ** (g - k) for k in range(g + 1)]
    live = sum(bins[1:-1])
    assert difficulty.silent_probability(p, g) == near(1 - live)
    assert oracles.conditional_baseline(p, g) == near(
        sum(k / g * b for k, b in enumerate(bins) if 0 < k < g) / live
    )


def test_rerolling_the_same_prompt_raises_hard_prompts_and_drawing_new_ones_does_not():
    assert difficulty.rerolled_weight(GRPO0, 0.02, 8) == pytest.approx(17.2, abs=0.05)
    assert difficulty.prompt_weight(GRPO0, 0.02, 8) == pytest.approx(2.57, abs=0.005)
    for p in (0.1, 0.6):
        assert difficulty.rerolled_weight(GRPO0, p, 2) == near(1 / (2 * p * (1 - p)))


def test_three_frames_rank_hard_and_medium_prompts_differently():
    hard, medium = 0.05, 0.5
    one, other = (difficulty.frames(difficulty.std_weight(p, 64), p) for p in (hard, medium))
    assert one["probability"] > other["probability"]
    assert one["score"] < other["score"]
    assert one["log-probability"] < other["log-probability"]


def test_std_over_none_averaged_over_mixed_groups_has_the_known_ratios():
    # E[sigma]/E[sigma²] over mixed groups at p = .05 relative to .5, for G = 8, 32, 64: 1.33, 2.00, 2.19
    def ratio(p: float, g: int) -> float:
        rows = [
            (math.comb(g, k) * p**k * (1 - p) ** (g - k), math.sqrt(k * (g - k)) / g)
            for k in range(1, g)
        ]
        return sum(c * s for c, s in rows) / sum(c * s * s for c, s in rows)

    assert [ratio(0.05, g) / ratio(0.5, g) for g in (8, 32, 64)] == pytest.approx(
        [1.33, 2.00, 2.19], abs=0.006
    )


# --- length ---------------------------------------------------------------------------------------------------------------

NO_STD = recipe("dr_grpo")  # mean-centred: E[(1/G) Σ A 1{right}] = p(1-p)(G-1)/G
P, RIGHT, WRONG, CAP = 0.4, 0.3, 0.3, 5


def drifts(aggregation, size: int, cap: int = CAP, stop: float = 0.3) -> tuple[float, float]:
    """Expected gradient by the right and the wrong stop logit, per unit of p(1-p)(G-1)/G."""
    gradient = enumeration.expected_gradient(
        NO_STD.but(aggregation=aggregation), P, stop, stop, size, cap
    )
    unit = P * (1 - P) * (size - 1) / size
    return gradient[1].item() / unit, gradient[2].item() / unit


def test_chances_of_all_groups_add_to_one_and_mean_scores_are_zero():
    groups = enumeration.all_groups(P, RIGHT, 0.5, 2, 4)
    assert groups.chance.sum().item() == near(1)
    mean = (groups.chance[:, None] * enumeration.scores(groups, P, RIGHT, 0.5).sum(dim=(1, 2))).sum(
        dim=0
    )
    assert mean.abs().max() < 1e-12


@pytest.mark.parametrize("size", [2, 3])
def test_sequence_mean_drift_equals_enumeration_right_up_wrong_down(size):
    right, wrong = drifts(agg.sequence_mean, size)
    assert right == near(length.sequence_mean_drift(0.3, CAP))
    assert wrong == near(-length.sequence_mean_drift(0.3, CAP))
    assert right > 0


@pytest.mark.parametrize("size", [2, 3])
def test_a_constant_has_no_drift_to_twelve_digits(size):
    assert max(map(abs, drifts(agg.constant, size))) < 1e-12
    assert max(map(abs, drifts(agg.sequence_sum, size))) < 1e-12
    assert abs(length.constant_drift(0.1, 10)) < 1e-12


def test_drift_with_and_without_a_cap_has_the_known_values():
    assert length.sequence_mean_drift(0.1) == pytest.approx(0.15584, abs=1e-5)
    assert length.sequence_mean_drift(0.1, 10) == pytest.approx(0.1354, abs=5e-5)
    assert length.sequence_mean_drift(0.1, 2000) == pytest.approx(
        length.sequence_mean_drift(0.1), rel=1e-9
    )
    # G = 8, p = .5, no std: .25 · 7/8 · .15584 = .0341
    assert 0.25 * 7 / 8 * length.sequence_mean_drift(0.1) == pytest.approx(0.0341, abs=5e-5)


@pytest.mark.parametrize("size", [2, 3])
def test_prompt_scope_token_mean_drift_equals_enumeration(size):
    right, wrong = drifts(agg.prompt_token_mean, size)
    assert right == near(length.token_mean_drift(0.3, size, CAP))
    assert wrong == near(-right)


def test_token_mean_lies_between_sequence_mean_and_constant_and_shrinks_with_the_rows_that_share_it():
    drift = [length.token_mean_drift(0.1, rows, 60) for rows in (1, 2, 4, 8)]
    assert drift[0] == near(length.sequence_mean_drift(0.1, 60))
    assert drift == sorted(drift, reverse=True)
    assert all(d > 0 for d in drift)


@pytest.mark.parametrize(("rows", "percent"), [(2, 42), (8, 8), (64, 1)])
def test_prompt_scope_keeps_this_percent_of_the_sequence_mean_drift(rows, percent):
    assert 100 * length.token_mean_drift(0.1, rows, 300) / length.sequence_mean_drift(
        0.1
    ) == pytest.approx(percent, abs=1.0)


def test_micro_batch_scope_has_the_drift_of_its_own_size():
    groups = enumeration.all_groups(P, 0.3, 0.3, 2, 3)
    one = NO_STD.but(aggregation=agg.micro_batch_token_mean)
    for parts, rows in ((1, 2), (2, 1)):
        weights = enumeration.group_weights(one, groups, split(2, parts))
        gradient = groups.chance @ (
            weights[..., None] * enumeration.scores(groups, P, 0.3, 0.3)
        ).sum(dim=(1, 2))
        assert gradient[1].item() / (P * (1 - P) / 2) == near(length.token_mean_drift(0.3, rows, 3))


@pytest.mark.parametrize("size", [2, 3])
def test_the_field_under_one_over_length_is_the_expected_gradient(size):
    # a long cap stands for none: (1-s)^cap < 1e-6 with s = .9; enumeration is exact for the capped policy
    mode, stop = math.log(P / (1 - P)), math.log(0.9 / 0.1)
    expected = enumeration.expected_gradient(
        NO_STD.but(aggregation=agg.sequence_mean), P, 0.9, 0.9, size, 8 if size == 2 else 6
    )
    torch.testing.assert_close(length.field(mode, stop, stop, size), expected, rtol=1e-4, atol=1e-6)


def test_the_field_is_no_gradient_its_loop_integral_is_that_of_its_curl():
    box = ((-1.0, 1.0), (-2.0, 0.0))
    work = length.loop_integral(4, *box, right=-1.0, points=400)
    cells = 60
    grid = [(lo + (k + 0.5) / cells * (hi - lo)) for lo, hi in box for k in range(cells)]
    area = sum(length.curl(a, w, 4) for a in grid[:cells] for w in grid[cells:]) * 4.0 / cells**2
    assert work == pytest.approx(area, rel=1e-3)
    assert abs(work) > 1e-2


def test_constant_field_is_the_gradient_of_the_pass_rate():
    for p, right, wrong in ((0.3, 0.2, 0.6), (0.7, 0.5, 0.4)):
        g = enumeration.expected_gradient(
            recipe("dr_grpo").but(aggregation=agg.sequence_sum), p, right, wrong, 2, 4
        )
        assert g.tolist() == near([p * (1 - p) / 2, 0, 0])


def test_shares_and_pushes_of_the_power_family():
    assert length.longer_share(10, alpha=0.0) == near(0.5)
    assert length.longer_share(10) == near(10 / 11)
    assert length.longer_share(8206 / 4965) == pytest.approx(0.623, abs=5e-4)
    assert length.longer_share(1000) == pytest.approx(0.999, abs=5e-5)
    rollouts = Rollouts.from_lengths([10, 100], [1, 0], max_new_tokens=100)
    share = token_weights(recipe("dr_grpo"), rollouts).abs().sum(1)
    assert (share[1] / share.sum()).item() == near(length.longer_share(10))


def test_power_drift_falls_from_the_sequence_mean_to_zero():
    drift = [length.power_drift(0.1, alpha, 60) for alpha in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert drift[0] == near(length.sequence_mean_drift(0.1, 60))
    assert drift == sorted(drift, reverse=True)
    assert abs(drift[-1]) < 1e-12


def test_length_power_and_balanced_keep_a_drift_of_the_sign_of_the_sequence_mean():
    for aggregation in (partial(agg.length_power, alpha=1.0), agg.balanced):
        right, wrong = drifts(aggregation, 2)
        assert right > 1e-3
        assert wrong < -1e-3


def noise(aggregation, stop: float) -> float:
    return enumeration.relative_variance(NO_STD.but(aggregation=aggregation), 0.4, stop, stop, 3, 5)


def test_which_aggregation_is_least_noisy_depends_on_the_policy():
    # G = 3, p = .4, cap 5. Hazard .3: 1/|o| 1.34 against 1.60 of the constant. Hazard .2: 1.74 against 1.51, the other way round.
    assert [noise(agg.sequence_mean, 0.3), noise(agg.constant, 0.3)] == pytest.approx(
        [1.3446, 1.6021], abs=1e-4
    )
    assert [noise(agg.sequence_mean, 0.2), noise(agg.constant, 0.2)] == pytest.approx(
        [1.7423, 1.5094], abs=1e-4
    )


# --- clip, KL, splits, optimiser --------------------------------------------------------------------------------------------


def test_k1_in_the_loss_does_not_pull_k2_pulls_by_the_reverse_and_k3_by_the_forward_kl():
    logits = torch.tensor([0.9, 0.1], dtype=torch.float64).log()
    reference = torch.tensor([0.5, 0.5], dtype=torch.float64).log()
    value, back = exact_kl.reverse(logits, reference)
    _, ahead = exact_kl.forward(logits, reference)
    assert value == pytest.approx(0.36806, abs=5e-6)
    one = {
        name: exact_kl.in_loss(partial(f, beta=1.0), logits, reference)
        for name, f in (("k1", kl.k1), ("k2", kl.k2), ("k3", kl.k3), ("ρk3", kl.k3_ratio))
    }
    assert one["k1"][0] == near(value)
    assert one["k1"][1].tolist() == near([0, 0])
    assert one["k2"][0] == pytest.approx(0.28499, abs=5e-6)
    torch.testing.assert_close(one["k2"][1], back)
    assert one["k3"][0] == near(value)
    torch.testing.assert_close(one["k3"][1], ahead)
    assert one["k3"][1].tolist() == pytest.approx([0.4, -0.4])
    torch.testing.assert_close(one["ρk3"][1], back)


def test_k1_in_the_reward_has_the_gradient_of_the_reverse_kl_and_k3_in_the_reward_of_neither():
    logits = torch.tensor([0.7, -0.2, 0.1, -1.0], dtype=torch.float64)
    reference = torch.tensor([0.0, 0.5, -0.5, 0.2], dtype=torch.float64).log_softmax(0)
    torch.testing.assert_close(
        exact_kl.in_reward(partial(kl.k1, beta=1.0), logits, reference),
        exact_kl.reverse(logits, reference)[1],
    )
    other = exact_kl.in_reward(partial(kl.k3, beta=1.0), logits, reference)
    for wrong in (exact_kl.reverse(logits, reference)[1], exact_kl.forward(logits, reference)[1]):
        assert not torch.allclose(other, wrong, rtol=1e-2)


def test_six_clip_cells_two_without_gradient_and_dual_clip_takes_a_third():
    ratio = torch.tensor([0.5, 1.0, 1.5, 0.5, 1.0, 1.5, 6.0], dtype=torch.float64)
    a = torch.tensor([1.0, 1, 1, -1, -1, -1, -1], dtype=torch.float64)
    old = torch.full((1, 7), -2.0, dtype=torch.float64)
    ppo = surrogates.ppo_clip_factors(old + ratio.log(), old, a[None], eps_low=0.2, eps_high=0.2)
    assert ppo.gate[0].tolist() == [1, 1, 0, 0, 1, 1, 1]
    dual = surrogates.dual_clip_factors(
        old + ratio.log(), old, a[None], eps_low=0.2, eps_high=0.2, cap=3.0
    )
    assert dual.gate[0].tolist() == [1, 1, 0, 0, 1, 1, 0]


def test_adamw_ignores_a_factor_common_to_all_gradients_and_sgd_does_not():
    def trained(optimiser: str, factor: float) -> torch.Tensor:
        x = torch.tensor([0.3, -0.7], dtype=torch.float64, requires_grad=True)
        opt = (
            torch.optim.AdamW([x], lr=0.1, eps=1e-30, weight_decay=0.0)
            if optimiser == "adamw"
            else torch.optim.SGD([x], lr=0.1)
        )
        for k in range(5):
            opt.zero_grad()
            (factor * (x * torch.tensor([1.0 + k, -2.0])).sum() + factor * (x**3).sum()).backward()
            opt.step()
        return x.detach()

    torch.testing.assert_close(
        trained("adamw", 1.0), trained("adamw", 1000.0), rtol=1e-12, atol=1e-12
    )
    assert not torch.allclose(trained("sgd", 1.0), trained("sgd", 2.0))


def test_mean_of_micro_batch_means_is_the_global_mean_only_for_equal_token_counts():
    for lengths, same in (([3, 3, 2, 4], True), ([3, 3, 2, 5], False)):
        mask = Rollouts.from_lengths(lengths, [0] * 4).mask
        local = agg.micro_batch_token_mean(mask, split(4, 2))
        assert torch.allclose(local, agg.step_token_mean(mask)) is same


def test_token_scores_of_a_completion_are_a_martingale_so_squares_add():
    # E|S|² = Σ_t E|s_t|², exactly: cross terms of the stop decisions vanish
    groups = enumeration.all_groups(P, 0.3, 0.6, 1, 5)
    s = enumeration.scores(groups, P, 0.3, 0.6)[:, 0]
    whole = (groups.chance * (s.sum(dim=1) ** 2).sum(dim=-1)).sum()
    assert whole.item() == near((groups.chance * (s**2).sum(dim=(1, 2))).sum().item())


def test_one_softmax_step_changes_entropy_by_minus_the_covariance():
    logits = torch.tensor([0.5, -0.3, 1.0, 0.2], dtype=torch.float64)
    a = torch.tensor([1.0, -0.5, 0.2, -0.1], dtype=torch.float64)
    pi = logits.softmax(0)
    a = a - (pi * a).sum()
    rate = 1e-5
    moved = (logits + rate * pi * a).softmax(0)
    change = -(moved * moved.log()).sum() + (pi * pi.log()).sum()
    x, y = pi.log(), pi * a
    covariance = (pi * x * y).sum() - (pi * x).sum() * (pi * y).sum()
    assert change.item() == pytest.approx(-rate * covariance.item(), rel=1e-3)


def test_std_scaled_advantages_answer_plus_minus_one_like_zero_one_and_centred_ones_double():
    lengths, right = [2, 3, 4, 5], [1, 0, 0, 1]
    signed = [2.0 * r - 1 for r in right]
    for name, factor in (("grpo", 1.0), ("dr_grpo", 2.0)):
        one = recipe(name).but(kl=None)
        a, b = (
            token_weights(one, Rollouts.from_lengths(lengths, r, max_new_tokens=5))
            for r in (right, signed)
        )
        torch.testing.assert_close(b, factor * a)


def test_a_shared_prefix_has_no_net_push_under_equal_weights_and_leans_to_the_short_right_answer_under_one_over_length():
    rollouts = Rollouts.from_lengths([4, 20], [1, 0], max_new_tokens=20)
    first = {
        name: token_weights(recipe(name).but(kl=None), rollouts)[:, 0].sum().item()
        for name in ("grpo", "dr_grpo")
    }
    assert first["dr_grpo"] == near(0)
    assert first["grpo"] > 0.05
