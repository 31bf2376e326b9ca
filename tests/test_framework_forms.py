"""Forms that only frameworks have: numbers by hand, and the derivatives against autograd."""

from __future__ import annotations

from functools import partial
from math import exp, sqrt

import pytest
import torch
from batches import batch, product_of

from grpo_edu import Recipe, Rollouts, token_weights
from grpo_edu.objective import advantages as adv
from grpo_edu.objective import aggregation as agg
from grpo_edu.objective import kl
from grpo_edu.objective.surrogates import gspo_token
from grpo_edu.weights import factors, split

ALL = torch.ones


def f64(*x: float) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64)


def test_a_sequence_mean_inside_each_micro_batch_depends_on_how_many_rows_share_it() -> None:
    # micro-batches of 1 and 3 rows, each row of 2 tokens: 1/(2·1·2) and 1/(2·3·2); only added: twice that
    mask, present = ALL(4, 2, dtype=torch.bool), ALL(4, dtype=torch.bool)
    inputs = (mask, present, torch.zeros(4, dtype=torch.long), torch.tensor([0, 1, 1, 1]))
    mean = agg.per_micro_batch(*inputs, inner=agg.sequence_mean, average=True)
    assert mean[:, 0].tolist() == pytest.approx([1 / 4, 1 / 12, 1 / 12, 1 / 12])
    added = agg.per_micro_batch(*inputs, inner=agg.sequence_mean, average=False)
    assert added[:, 0].tolist() == pytest.approx([1 / 2, 1 / 6, 1 / 6, 1 / 6])


def test_padded_width_divides_by_the_longest_of_the_micro_batch() -> None:
    # lengths 1, 2 | 4, 3 of N = 4: 1/(4·2) and 1/(4·4); a wider padding changes nothing
    mask = torch.arange(6)[None] < torch.tensor([1, 2, 4, 3])[:, None]
    weight = agg.padded_width(mask, ALL(4, dtype=torch.bool), split(4, 2))
    assert weight[:, 0].tolist() == pytest.approx([1 / 8, 1 / 8, 1 / 16, 1 / 16])
    assert (weight[~mask] == 0).all()


def test_a_group_of_one_keeps_its_reward_or_nothing() -> None:
    inputs = (
        f64(1, 0, 0.7),
        torch.tensor([0, 0, 1]),
        ALL(3, dtype=torch.bool),
        ALL(3, 1, dtype=torch.bool),
    )
    raw = adv.when_alone(*inputs, baseline=adv.group_mean, keep=1.0)
    assert raw.tolist() == pytest.approx([0.5, -0.5, 0.7])
    assert adv.when_alone(*inputs, baseline=adv.leave_one_out, keep=0.0).tolist() == pytest.approx(
        [1.0, -1.0, 0.0]
    )
    scaled = adv.group_std(raw, *inputs[:3], ddof=1, eps=1e-6, alone=1.0)
    assert scaled.tolist() == pytest.approx(
        [0.5 / (sqrt(0.5) + 1e-6), -0.5 / (sqrt(0.5) + 1e-6), 0.7 / 1.000001]
    )


def test_verls_gpg_counts_rewards_that_are_not_zero() -> None:
    # 5 rows, 2 rewards not 0: 5/2 · (r - mean); the group of one keeps its reward times 5/2
    a = adv.nonzero_group_mean(
        f64(1, 0, 0, 0, 2),
        torch.tensor([0, 0, 0, 0, 1]),
        ALL(5, dtype=torch.bool),
        ALL(5, 1, dtype=torch.bool),
    )
    assert a.tolist() == pytest.approx([2.5 * 0.75, *[-2.5 * 0.25] * 3, 5.0])


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [([1, 0, 0.4, 0.2], [0.6, 0, 0, 0]), ([1, 1, 0, 0], [0, 0, 0, 0]), ([3, 3, 3, 3], [0] * 4)],
)
def test_only_the_best_of_the_group_has_an_advantage(
    rewards: list[float], expected: list[float]
) -> None:
    a = adv.best_minus_second(
        f64(*rewards), torch.zeros(4, dtype=torch.long), ALL(4, dtype=torch.bool)
    )
    assert a.tolist() == pytest.approx(expected)


def test_whitening_with_eps_under_the_root_and_with_a_floor() -> None:
    # tokens 1 1 -1: mean 1/3, squares 4/9 + 4/9 + 16/9 = 8/3; ddof 1: 4/3, ddof 0: 8/9
    mask = torch.tensor([[True, True], [True, False]])
    inputs = (f64(1, -1), mask, ALL(2, dtype=torch.bool))
    one = adv.token_whiten_variance(*inputs, ddof=1, eps=0.5, floor=0.0, count_eps=0.0)
    assert one[mask].tolist() == pytest.approx(
        [2 / 3 / sqrt(4 / 3 + 0.5)] * 2 + [-4 / 3 / sqrt(4 / 3 + 0.5)]
    )
    two = adv.token_whiten_variance(*inputs, ddof=0, eps=0.0, floor=4.0, count_eps=0.0)
    assert two[mask].tolist() == pytest.approx([1 / 3, 1 / 3, -2 / 3])
    equal = adv.token_whiten_variance(
        f64(1, 1), mask, ALL(2, dtype=torch.bool), ddof=1, eps=0.0, floor=0.0, count_eps=0.0
    )
    assert (equal == 0).all()


def test_k3_is_cut_at_its_cap_and_has_no_gradient_there() -> None:
    # log(ref/π) = 3: e^3 - 3 - 1 = 16.09 -> 10; 1: e - 2
    ref = f64(2.0, 0.0)
    logp = f64(-1.0, -1.0).requires_grad_()
    value = kl.k3(logp, ref, beta=0.5, cap=10.0)
    assert value.tolist() == pytest.approx([5.0, 0.5 * (exp(1) - 2)])
    gradient = torch.autograd.grad(value.sum(), logp)[0]
    assert gradient.tolist() == pytest.approx([0.0, 0.5 * (1 - exp(1))])
    assert kl.k3_slope(logp.detach(), ref, beta=0.5, cap=10.0).tolist() == pytest.approx(
        gradient.tolist()
    )


def test_straight_through_kl_has_the_value_of_one_and_the_gradient_of_k2() -> None:
    logp = f64(-1.0).requires_grad_()
    value = kl.k2_gradient(logp, f64(-3.0), beta=0.5, value=kl.k1)
    assert value.item() == pytest.approx(0.5 * 2.0)
    assert torch.autograd.grad(value.sum(), logp)[0].item() == pytest.approx(0.5 * 2.0)
    assert kl.k_abs(f64(-3.0), f64(-1.0), beta=0.5).item() == pytest.approx(1.0)


def test_gspos_ratio_stops_at_its_cap_and_loses_its_gradient() -> None:
    # log s = 12 > 10: ratio e^10, gradient 0
    one = Rollouts.from_lengths([2], [1], ratio=exp(12), given_advantage=[-1.0], logp=-0.5)
    recipe = Recipe(
        baseline=adv.given,
        surrogate=partial(gspo_token, eps_low=0.2, eps_high=0.2, log_cap=10.0),
        aggregation=agg.token_sum,
    )
    assert recipe.loss(one).item() == pytest.approx(2 * exp(10))
    assert (token_weights(recipe, one) == 0).all()


@pytest.mark.parametrize(
    "changes",
    [
        {"kl": partial(kl.k3_sequence_ratio, beta=0.3)},
        {"kl": partial(kl.k3, beta=0.3, cap=0.05)},
        {"kl": partial(kl.k_abs, beta=0.3)},
        {"aggregation": partial(agg.per_micro_batch, inner=agg.sequence_mean, average=True)},
        {"aggregation": agg.padded_width},
    ],
)
def test_ledger_factors_equal_minus_autograd(changes: dict) -> None:
    rollouts, micro_batch = batch(11, kind="real"), split(12, 3)
    recipe = Recipe(baseline=adv.group_mean, **changes)
    parts = factors(recipe, rollouts, recipe.plan(rollouts, micro_batch))
    torch.testing.assert_close(
        product_of(parts), token_weights(recipe, rollouts, micro_batch), rtol=1e-9, atol=1e-13
    )
