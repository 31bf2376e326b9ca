"""Clip, KL, noise, optimiser, micro-batches and special cases: exact results against autograd through the real loss."""

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

from grpo_edu import Recipe, Rollouts, recipe, token_weights
from grpo_edu.objective import advantages as adv
from grpo_edu.objective import aggregation as agg
from grpo_edu.objective import kl as kls
from grpo_edu.objective import rewards as shaping
from grpo_edu.objective import surrogates as sur
from grpo_edu.theory import clip, enumeration, kl
from grpo_edu.weights import split

near = partial(pytest.approx, rel=1e-9, abs=1e-12)
PPO = partial(sur.ppo_clip, eps_low=0.2, eps_high=0.2)
PPO_HIGHER = partial(sur.ppo_clip, eps_low=0.2, eps_high=0.28)


# --- clip -----------------------------------------------------------------------------------------------------------------


def test_two_of_six_cells_have_no_gradient():
    assert clip.cells(PPO).tolist() == [near([0.5, 1.0, 0.0]), near([0.0, -1.0, -1.5])]


def test_a_dual_clip_takes_a_third_cell_far_above_its_cap():
    dual = partial(sur.dual_clip, eps_low=0.2, eps_high=0.2, cap=3.0)
    places = (0.5, 1.0, 1.5, 6.0)
    assert clip.cells(dual, places).tolist() == [
        near([0.5, 1.0, 0.0, 0.0]),
        near([0.0, -1.0, -1.5, 0.0]),
    ]
    assert clip.cells(PPO, places)[1, 3].item() == near(-6.0)


def test_cispo_and_sapo_leave_no_cell_empty_and_reinforce_does_not_see_the_ratio():
    cispo, sapo = (
        partial(sur.cispo, low=0.0, high=1.28),
        partial(sur.sapo, tau_pos=1.0, tau_neg=1.05),
    )
    assert clip.cells(cispo).tolist() == [near([0.5, 1.0, 1.28]), near([-0.5, -1.0, -1.28])]
    assert (clip.cells(sapo).abs() > 0.1).all()
    assert clip.cells(sur.reinforce).tolist() == [near([1.0, 1.0, 1.0]), near([-1.0, -1.0, -1.0])]


@pytest.mark.parametrize(
    "surrogate",
    [
        PPO,
        PPO_HIGHER,
        partial(sur.cispo, low=0.0, high=5.0),
        partial(sur.sapo, tau_pos=1.0, tau_neg=1.05),
        sur.reinforce,
    ],
    ids=["ppo", "higher", "cispo", "sapo", "reinforce"],
)
def test_on_policy_all_surrogates_push_alike(surrogate):
    for advantage in (1.7, -0.4):
        assert clip.pushes(surrogate, torch.ones(1), advantage).item() == near(advantage)


@pytest.mark.parametrize("ratio", [0.5, 0.79, 0.81, 1.0, 1.19, 1.21, 1.27, 1.29, 4.0])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_pushes_are_the_weights_of_a_recipe_and_kink_at_the_edges_of_the_band(ratio, advantage):
    for surrogate, high in ((PPO, 1.2), (PPO_HIGHER, 1.28)):
        one = Recipe(name="one", baseline=adv.given, surrogate=surrogate, aggregation=agg.token_sum)
        rollouts = Rollouts.from_lengths(
            [1], [0], ratio=ratio, logp=-3.0, given_advantage=[advantage]
        )
        push = clip.pushes(surrogate, torch.tensor([ratio], dtype=torch.float64), advantage).item()
        assert push == near(token_weights(one, rollouts).item())
        dead = ratio > high if advantage > 0 else ratio < 0.8
        assert push == near(0.0 if dead else ratio * advantage)


def test_the_printed_reach_of_the_clip():
    assert [clip.reach(p, 0.2) for p in (0.01, 0.9)] == near([0.012, 1.08])
    assert clip.reach(0.01, 0.28) == near(0.0128)
    # a token at .9 cannot come to 1.08: its clip never acts
    assert clip.pushes(PPO, torch.tensor([1 / 0.9]), 1.0).item() > 0


def test_sequence_ratios_on_policy_are_the_sequence_mean_and_luspo_the_sum():
    rollouts = Rollouts.from_lengths([2, 7, 3, 5], [1, 0, 0, 1], max_new_tokens=7)
    grpo = token_weights(recipe("grpo").but(kl=None), rollouts)
    for name in ("gspo", "gspo_token", "gmpo"):
        torch.testing.assert_close(
            token_weights(recipe(name), rollouts), grpo, rtol=1e-9, atol=1e-12
        )
    lengths = rollouts.lengths[:, None]
    torch.testing.assert_close(
        token_weights(recipe("luspo"), rollouts), grpo * lengths, rtol=1e-9, atol=1e-12
    )


def test_gspo_has_one_gate_for_a_completion_and_gmpo_one_per_token_the_survivors_all_alike():
    # token ratios e^1, e^0.1, 1 with A > 0: the geometric mean e^.367 is clipped at 1.0004; of gmpo only the first token is
    old = torch.full((1, 3), -2.0, dtype=torch.float64)
    rollouts = Rollouts(
        logp=old + torch.tensor([1.0, 0.1, 0.0]),
        old_logp=old,
        mask=torch.ones(1, 3, dtype=torch.bool),
        reward=torch.zeros(1, dtype=torch.float64),
        group=torch.tensor([0]),
        given_advantage=torch.ones(1, dtype=torch.float64),
    )
    gspo, gmpo = (
        token_weights(recipe(name).but(baseline=adv.given, scale=adv.unscaled), rollouts)[0]
        for name in ("gspo", "gmpo")
    )
    assert gspo.tolist() == [0, 0, 0]
    mean = math.exp((0.4 + 0.1 + 0.0) / 3)
    assert gmpo.tolist() == near([0.0, mean / 3, mean / 3])


# --- KL -------------------------------------------------------------------------------------------------------------------

ESTIMATORS = {"k1": kls.k1, "k2": kls.k2, "k3": kls.k3, "k3_ratio": kls.k3_ratio}
LOGITS = torch.tensor([0.7, -0.2, 0.1, -1.0], dtype=torch.float64)
REFERENCE = torch.tensor([0.0, 0.5, -0.5, 0.2], dtype=torch.float64).log_softmax(0)


def one_action_per_row(logp: Tensor) -> Rollouts:
    return Rollouts(
        logp=logp[:, None],
        ref_logp=REFERENCE[:, None],
        mask=torch.ones(4, 1, dtype=torch.bool),
        reward=torch.zeros(4, dtype=torch.float64),
        group=torch.arange(4),
        given_advantage=torch.zeros(4, dtype=torch.float64),
    )


@pytest.mark.parametrize("name", ESTIMATORS)
def test_kl_in_the_loss_equals_the_mean_over_all_actions_of_the_real_loss(name):
    one = Recipe(
        name="kl",
        baseline=adv.given,
        surrogate=sur.reinforce,
        kl=partial(ESTIMATORS[name], beta=1.0),
        aggregation=agg.token_sum,
    )
    leaf = LOGITS.clone().requires_grad_()
    logp = leaf.log_softmax(0)
    push = -token_weights(one, one_action_per_row(logp.detach()))[:, 0]
    expected = torch.autograd.grad((logp.exp().detach() * push * logp).sum(), leaf)[0]
    torch.testing.assert_close(
        kl.in_loss(partial(ESTIMATORS[name], beta=1.0), LOGITS, REFERENCE)[1],
        expected,
        rtol=1e-9,
        atol=1e-12,
    )


def test_k1_in_the_reward_equals_the_real_loss_with_the_penalty_in_the_reward():
    one = Recipe(
        name="r",
        rewards=(partial(shaping.kl_in_reward, beta=1.0),),
        surrogate=sur.reinforce,
        aggregation=agg.token_sum,
    )
    leaf = LOGITS.clone().requires_grad_()
    logp = leaf.log_softmax(0)
    push = -token_weights(one, one_action_per_row(logp.detach()))[:, 0]
    expected = torch.autograd.grad((logp.exp().detach() * push * logp).sum(), leaf)[0]
    torch.testing.assert_close(
        kl.in_reward(partial(kls.k1, beta=1.0), LOGITS, REFERENCE), expected, rtol=1e-9, atol=1e-12
    )


def test_table_of_values_and_gradients():
    (back, back_slope), (_, ahead_slope) = (
        kl.reverse(LOGITS, REFERENCE),
        kl.forward(LOGITS, REFERENCE),
    )
    pi = LOGITS.softmax(0)
    # softmax: ∇KL(ref‖π) = π - ref; ∇KL(π‖ref) = π (d - KL)
    torch.testing.assert_close(ahead_slope, pi - REFERENCE.exp(), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(
        back_slope, pi * (pi.log() - REFERENCE - back), rtol=1e-9, atol=1e-12
    )
    slopes = {
        "k1": torch.zeros(4).double(),
        "k2": back_slope,
        "k3": ahead_slope,
        "k3_ratio": back_slope,
    }
    for name, slope in slopes.items():
        value, found = kl.in_loss(partial(ESTIMATORS[name], beta=1.0), LOGITS, REFERENCE)
        torch.testing.assert_close(found, slope, rtol=1e-9, atol=1e-12)
        assert (value == near(back)) is (name != "k2")


def test_beta_is_a_factor_of_value_gradient_and_spread():
    for estimator in ESTIMATORS.values():
        one, three = (partial(estimator, beta=b) for b in (1.0, 3.0))
        assert kl.in_loss(three, LOGITS, REFERENCE)[0] == near(
            3 * kl.in_loss(one, LOGITS, REFERENCE)[0]
        )
        assert kl.spread(three, LOGITS, REFERENCE) == near(3 * kl.spread(one, LOGITS, REFERENCE))


def test_spread_of_the_estimators_equals_the_second_moment_and_k1_is_the_noisiest_near_the_reference():
    logits = REFERENCE + 0.3 * torch.tensor([1.0, -1.0, 0.5, 0.0], dtype=torch.float64)
    pi = logits.softmax(0)
    d = pi.log() - REFERENCE
    values = {"k1": d, "k2": d**2 / 2, "k3": (-d).exp() + d - 1}
    found = {
        name: kl.spread(partial(ESTIMATORS[name], beta=1.0), logits, REFERENCE) for name in values
    }
    for name, value in values.items():
        assert found[name] == near(
            math.sqrt(((pi * value**2).sum() - (pi * value).sum() ** 2).item())
        )
    assert found["k1"] > 3 * max(found["k2"], found["k3"])


# --- noise ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hazards", [(0.3, 0.6), (0.9, 0.1)])
def test_score_energy_equals_the_squared_score_and_the_sum_of_squared_token_scores(hazards):
    groups = enumeration.all_groups(0.35, *hazards, 1, 5)
    s = enumeration.scores(groups, 0.35, *hazards)[:, 0]
    whole = (groups.chance * (s.sum(dim=1) ** 2).sum(dim=-1)).sum().item()
    assert oracles.score_energy(0.35, hazards, 5) == near(whole)
    assert (groups.chance * (s**2).sum(dim=(1, 2))).sum().item() == near(whole)


def test_score_energy_grows_with_the_mean_length():
    # stop part: s(1-s) E[L] per branch; a cap of 40 against one of 4 at s = .1
    short, long = (oracles.score_energy(0.5, (0.1, 0.1), cap) - 0.25 for cap in (4, 40))
    mean = lambda cap: sum(0.9**k for k in range(cap))
    assert long / short == near(mean(40) / mean(4))


# --- optimiser ------------------------------------------------------------------------------------------------------------

GRADIENTS = torch.tensor([[0.3, -2.0], [0.1, 1.0], [-0.5, 0.2], [0.4, -0.7]], dtype=torch.float64)
ADAM = {"lr": 0.01, "betas": (0.9, 0.95)}


@pytest.mark.parametrize("eps", [1e-8, 0.1])
def test_adamw_updates_are_those_of_torch(eps):
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    opt = torch.optim.AdamW([x], weight_decay=0.0, eps=eps, **ADAM)
    path = [x.detach().clone()]
    for g in GRADIENTS:
        x.grad = g.clone()
        opt.step()
        path.append(x.detach().clone())
    torch.testing.assert_close(
        oracles.adamw_updates(GRADIENTS, eps=eps, **ADAM),
        torch.stack(path).diff(dim=0),
        rtol=1e-9,
        atol=1e-14,
    )


@settings(deadline=None)
@given(factor=st.floats(1e-3, 1e3), eps=st.floats(1e-8, 1.0))
def test_a_common_factor_of_the_loss_is_another_epsilon(factor, eps):
    scaled = oracles.adamw_updates(factor * GRADIENTS, eps=eps, **ADAM)
    torch.testing.assert_close(
        scaled, oracles.adamw_updates(GRADIENTS, eps=eps / factor, **ADAM), rtol=1e-9, atol=1e-14
    )


def test_without_epsilon_only_the_sign_of_the_first_gradient_counts_and_a_factor_never():
    plain = oracles.adamw_updates(GRADIENTS, eps=0.0, **ADAM)
    assert plain[0].tolist() == near([-0.01, 0.01])
    torch.testing.assert_close(
        oracles.adamw_updates(8 / 7 * GRADIENTS, eps=0.0, **ADAM), plain, rtol=1e-12, atol=0
    )


def test_rloo_and_dr_grpo_are_one_recipe_to_adamw_and_differ_by_eight_sevenths_to_sgd():
    rollouts = Rollouts.from_lengths(
        [2, 3, 4, 5, 2, 3, 4, 5], [1, 0, 0, 1, 0, 0, 0, 0], max_new_tokens=5
    )
    centred = recipe("dr_grpo").but(aggregation=agg.sequence_sum)
    rloo, mean = (token_weights(one, rollouts) for one in (recipe("rloo"), centred))
    torch.testing.assert_close(rloo, 8 / 7 * mean, rtol=1e-9, atol=1e-12)


# --- micro-batches --------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(lengths=st.lists(st.integers(1, 9), min_size=4, max_size=9), parts=st.integers(1, 4))
def test_mean_of_micro_batch_token_means_has_this_factor_on_each_row(lengths, parts):
    mask, micro = (
        Rollouts.from_lengths(lengths, [0] * len(lengths)).mask,
        split(len(lengths), parts),
    )
    factor = oracles.mean_of_means_factor(mask.sum(dim=1), micro)
    torch.testing.assert_close(
        agg.micro_batch_token_mean(mask, micro),
        factor[:, None] * agg.step_token_mean(mask),
        rtol=1e-9,
        atol=1e-12,
    )


def test_mean_over_completions_of_micro_batches_of_unequal_rows():
    # 5 rows as 3 + 2: the mean of the two means gives 1/6 and 1/4 instead of 1/5
    micro = split(5, 2)
    factor = oracles.mean_of_means_factor(torch.ones(5), micro)
    assert factor.tolist() == near([5 / 6] * 3 + [5 / 4] * 2)
    one, rollouts = (
        recipe("grpo").but(kl=None),
        Rollouts.from_lengths([2, 3, 4, 5, 6], [1, 0, 0, 1, 0]),
    )
    plan = one.plan(rollouts)
    for rows in (slice(0, 3), slice(3, 5)):
        n = rows.stop - rows.start
        own = agg.sequence_mean(rollouts.mask[rows], torch.ones(n, dtype=torch.bool)) / 2
        torch.testing.assert_close(own, factor[rows, None] * plan.W[rows], rtol=1e-9, atol=1e-12)
    assert oracles.mean_of_means_factor(torch.ones(6), split(6, 3)).tolist() == near([1] * 6)


def test_micro_batches_of_one_completion_turn_the_token_mean_into_the_sequence_mean():
    rollouts = Rollouts.from_lengths([2, 7, 3], [1, 0, 1])
    local = token_weights(recipe("bnpo"), rollouts, split(3, 3))
    torch.testing.assert_close(
        local, token_weights(recipe("grpo").but(kl=None), rollouts), rtol=1e-9, atol=1e-12
    )


def test_one_plan_sliced_gives_the_gradient_of_the_whole_step():
    rollouts = Rollouts.from_lengths([2, 7, 3, 4], [1, 0, 0, 1], max_new_tokens=8)
    for name in ("grpo", "dr_grpo", "dapo(step)", "dapo", "rloo"):
        one = recipe(name).but(kl=None)
        plan, pieces = one.plan(rollouts), []
        for rows in (slice(0, 1), slice(1, 4)):
            leaf = rollouts.logp[rows].clone().requires_grad_()
            pieces.append(
                -torch.autograd.grad(one.loss(rollouts[rows].with_logp(leaf), plan[rows]), leaf)[0]
            )
        torch.testing.assert_close(
            torch.cat(pieces), token_weights(one, rollouts), rtol=1e-9, atol=1e-12
        )


# --- token mean -----------------------------------------------------------------------------------------------------------

LENGTHS = st.lists(st.integers(1, 12), min_size=4, max_size=4)


@settings(deadline=None)
@given(lengths=LENGTHS, values=st.lists(st.floats(-2, 2), min_size=4, max_size=4))
def test_token_mean_is_the_length_weighted_mean_of_sequence_means(lengths, values):
    mask, x = (
        Rollouts.from_lengths(lengths, [0] * 4).mask,
        torch.tensor(values, dtype=torch.float64)[:, None],
    )
    whole = (agg.step_token_mean(mask) * x).sum().item()
    share = [n / sum(lengths) for n in lengths]
    assert whole == near(sum(a * v for a, v in zip(share, values, strict=True)))


@settings(deadline=None)
@given(lengths=LENGTHS)
def test_prompt_scope_weighs_a_prompt_by_the_inverse_of_its_mean_length_relative_to_step_scope(
    lengths,
):
    rollouts = Rollouts.from_lengths(lengths, [1, 0, 1, 0], [0, 0, 1, 1])
    ratio = (
        agg.prompt_token_mean(rollouts.mask, rollouts.group, torch.ones(4).bool())[:, 0]
        / agg.step_token_mean(rollouts.mask)[:, 0]
    )
    first, second = sum(lengths[:2]), sum(lengths[2:])
    assert (ratio[0] / ratio[2]).item() == near(second / first)


@settings(deadline=None)
@given(lengths=LENGTHS, rewards=st.lists(st.floats(-2, 2), min_size=4, max_size=4))
def test_the_value_of_a_token_mean_loss_is_minus_the_covariance_of_advantage_and_length(
    lengths, rewards
):
    # on policy every ratio is 1: the value is -Σ A L / Σ L, and A has mean 0. Above 0: wrong answers are longer
    one = recipe("dr_grpo").but(aggregation=agg.step_token_mean)
    rollouts = Rollouts.from_lengths(lengths, rewards)
    a, n = one.plan(rollouts).advantage[:, 0], rollouts.lengths.double()
    covariance = ((a - a.mean()) * (n - n.mean())).mean()
    assert one.loss(rollouts).item() == near(-(covariance / n.mean()).item())
    wrong_longer = Rollouts.from_lengths([3, 9], [1, 0])
    assert one.loss(wrong_longer).item() > 0


def test_ratio_bias_of_the_token_mean_falls_like_one_over_the_rows():
    # reward 1{L = 1}, L in {1, 4} with equal chances: E[Σ r L / Σ L] against E[r L] / E[L] = .5/2.5
    def bias(n: int) -> float:
        total = sum(math.comb(n, k) / 2**n * k / (k + 4 * (n - k)) for k in range(n + 1))
        return total - 0.2

    for n in (2, 3):
        total = 0.0
        for row in product([1, 4], repeat=n):
            mask = Rollouts.from_lengths(list(row), [0] * n).mask
            reward = torch.tensor([float(x == 1) for x in row]).double()[:, None]
            total += (agg.step_token_mean(mask) * reward).sum().item() / 2**n
        assert total - 0.2 == near(bias(n))
    assert 400 * bias(400) == pytest.approx(200 * bias(200), rel=0.01)
    assert bias(10) > bias(100) > 0


# --- special cases of advantages ------------------------------------------------------------------------------------------


def with_values(lengths: list[int], rewards: list[float], value: float) -> Rollouts:
    plain = Rollouts.from_lengths(lengths, rewards)
    return Rollouts.from_lengths(
        lengths, rewards, value=torch.full(plain.mask.shape, value, dtype=torch.float64)
    )


def test_gae_with_lambda_one_and_a_constant_value_is_reward_minus_that_value_on_every_token():
    rollouts = with_values([2, 5], [1.0, 0.0], 0.3)
    one = recipe("ppo(gae)").but(baseline=partial(adv.gae, gamma=1.0, lam=1.0))
    expected = (rollouts.reward[:, None] - 0.3) * rollouts.mask
    torch.testing.assert_close(one.plan(rollouts).advantage, expected, rtol=1e-9, atol=1e-12)


def test_gae_with_lambda_zero_is_the_one_step_error():
    value = torch.tensor([[0.1, 0.4, 0.2, 9.0], [0.5, 0.6, 9.0, 9.0]], dtype=torch.float64)
    rollouts = Rollouts.from_lengths([3, 2], [1.0, 0.0], value=value[:, :3])
    found = (
        recipe("ppo(gae)")
        .but(baseline=partial(adv.gae, gamma=0.9, lam=0.0))
        .plan(rollouts)
        .advantage
    )
    # r + γ V' - V, reward at the last token, value 0 behind it
    assert found[0].tolist() == near([0.9 * 0.4 - 0.1, 0.9 * 0.2 - 0.4, 1 - 0.2])
    assert found[1].tolist() == near([0.9 * 0.6 - 0.5, 0 - 0.6, 0])


@settings(deadline=None)
@given(lengths=LENGTHS, rewards=st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=4, max_size=4))
def test_process_supervision_with_one_terminal_step_is_outcome_supervision(lengths, rewards):
    plain = Rollouts.from_lengths(lengths, rewards)
    last = plain.mask & (torch.arange(plain.mask.shape[1]) == plain.lengths[:, None] - 1)
    step = torch.where(last, plain.reward[:, None], torch.nan)
    rollouts = Rollouts.from_lengths(lengths, rewards, token_reward=step)
    process, outcome = (
        token_weights(recipe(name).but(kl=None), rollouts) for name in ("grpo(process)", "grpo")
    )
    torch.testing.assert_close(process, outcome, rtol=1e-9, atol=1e-12)


@settings(deadline=None)
@given(
    a=st.floats(0.1, 10), c=st.floats(-5, 5), right=st.lists(st.booleans(), min_size=4, max_size=4)
)
def test_affine_rewards_do_not_move_the_std_scaled_weights_and_multiply_the_centred_ones(
    a, c, right
):
    lengths = [2, 3, 4, 5]
    plain, moved = (
        Rollouts.from_lengths(lengths, r, max_new_tokens=5)
        for r in ([float(x) for x in right], [a * x + c for x in right])
    )
    for name, factor in (("grpo", 1.0), ("dr_grpo", a), ("rloo", a)):
        one = recipe(name).but(kl=None)
        torch.testing.assert_close(
            token_weights(one, moved), factor * token_weights(one, plain), rtol=1e-7, atol=1e-9
        )


def test_a_length_penalty_breaks_that_invariance():
    # 0/1 or ±1 rewards with the same overlong penalty: the penalty weighs half as much beside ±1
    one = recipe("dapo").but(rewards=(partial(shaping.overlong_penalty, cache=4),), filters=())
    zero_one, signed = (
        one.plan(Rollouts.from_lengths([3, 9, 5, 4], r, max_new_tokens=10)).advantage[:, 0]
        for r in ([1, 1, 0, 0], [1, 1, -1, -1])
    )
    assert not torch.allclose(zero_one, signed, rtol=0.05)


def test_overlong_penalty_has_its_corners():
    # L_max 10, L_cache 4: 0 up to 6, -1/2 at 8, -1 at 10; DAPO's own limits 20480 and 4096
    lengths = [5, 6, 7, 8, 9, 10]
    mask = Rollouts.from_lengths(lengths, [0] * 6).mask
    found = shaping.overlong_penalty(torch.zeros(6).double(), mask, 10, cache=4)["reward"]
    assert found.tolist() == near([0, 0, -0.25, -0.5, -0.75, -1])
    mask = torch.ones(1, 18432, dtype=torch.bool)
    assert shaping.overlong_penalty(torch.zeros(1).double(), mask, 20480, cache=4096)[
        "reward"
    ].item() == near(-0.5)


@pytest.mark.parametrize(("scale", "loss"), [(0.01, 0.0196), (0.001, 0.1667)])
def test_epsilon_eats_the_advantages_of_small_rewards(scale, loss):
    # std .5 of two right and two wrong (ddof 0): a factor .5·scale/(.5·scale + 1e-4)
    one = recipe("grpo").but(scale=partial(adv.group_std, ddof=0, eps=1e-4))
    a = one.plan(Rollouts.from_lengths([1] * 4, [scale, scale, 0, 0])).advantage[0, 0].item()
    assert 1 - a == pytest.approx(loss, abs=5e-5)


# --- entropy --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("a", [[1.0, -0.5, 0.2, -0.1], [-0.3, 0.9, 0.0, 2.0]])
def test_slope_of_the_entropy_along_the_policy_gradient_is_minus_the_covariance(a):
    # logits move by η π (A - E A), the expected gradient of REINFORCE through the real loss; dH/dη = -Cov(log π, π·(A - E A))
    pi, reward = LOGITS.softmax(0), torch.tensor(a, dtype=torch.float64)
    leaf = LOGITS.clone().requires_grad_()
    rollouts = Rollouts(
        logp=LOGITS.log_softmax(0)[:, None],
        mask=torch.ones(4, 1, dtype=torch.bool),
        reward=reward,
        group=torch.arange(4),
    )
    push = token_weights(recipe("reinforce").but(aggregation=agg.token_sum), rollouts)[:, 0]
    step = torch.autograd.grad((pi * push * leaf.log_softmax(0)).sum(), leaf)[0]
    torch.testing.assert_close(step, pi * (reward - pi @ reward), rtol=1e-9, atol=1e-12)
    entropy = -(leaf.softmax(0) * leaf.log_softmax(0)).sum()
    slope = (torch.autograd.grad(entropy, leaf)[0] @ step).item()
    x = pi.log()
    assert slope == near(-((pi * x * step).sum() - (pi @ x) * (pi @ step)).item())


# --- KL off policy, and what a penalty comes to -------------------------------------------------------------------------------


def test_off_policy_only_the_ratio_corrected_k3_keeps_value_and_gradient():
    logits, old, reference = (
        torch.tensor(x, dtype=torch.float64).log() for x in ([0.9, 0.1], [0.7, 0.3], [0.5, 0.5])
    )
    value, gradient = kl.in_loss(partial(kls.k3_ratio, beta=1.0), logits, reference, old)
    assert value == near(0.9 * math.log(1.8) + 0.1 * math.log(0.2))
    assert gradient.tolist() == near(kl.reverse(logits, reference)[1].tolist())
    # k3 uncorrected, drawn from (.7, .3): .7 (5/9 - 1 + ln 1.8) + .3 (5 - 1 + ln .2)
    plain = kl.in_loss(partial(kls.k3, beta=1.0), logits, reference, old)[0]
    assert plain == near(0.7 * (5 / 9 - 1 + math.log(1.8)) + 0.3 * (4 + math.log(0.2)))


def test_where_each_penalty_settles_is_the_closed_form():
    # reward 1, 0, even reference, beta 1/2. reverse KL: sigmoid(1 / beta). forward: p (1 - p) = beta (p - 1/2), p = (1/2 + sqrt(5/4)) / 2
    reward, reference = (
        torch.tensor([1.0, 0.0], dtype=torch.float64),
        torch.tensor([0.5, 0.5], dtype=torch.float64).log(),
    )

    def end(pull):
        return kl.settle(pull, reward, reference, 0.5)[0].item()

    def loss(choice):
        return partial(kl.pull_in_loss, partial(choice, beta=1.0))

    reverse, forward = 1 / (1 + math.exp(-2)), (0.5 + math.sqrt(1.25)) / 2
    assert end(loss(kls.k2)) == near(reverse)
    assert end(loss(kls.k3_ratio)) == near(reverse)
    assert end(partial(kl.in_reward, partial(kls.k1, beta=1.0))) == near(reverse)
    assert end(loss(kls.k3)) == near(forward)
    assert end(loss(kls.k1)) > 0.999
