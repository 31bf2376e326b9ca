"""Boundary cases by hand: a bound belongs to its band, so what lies exactly on it keeps its gradient.

torch shares a gradient at a tie of ``clamp``, ``minimum`` and ``maximum`` in one way up to 2.13 and in
another from 2.14 on. No number here may depend on it; the suite runs under the oldest and the newest.
"""

from __future__ import annotations

import math
import warnings
from functools import partial

import pytest
import torch
from batches import product_of

from grpo_edu import Recipe, Rollouts, recipe, token_weights
from grpo_edu.objective import corrections, kl
from grpo_edu.objective.advantages import given
from grpo_edu.objective.aggregation import token_sum
from grpo_edu.objective.axes import run
from grpo_edu.objective.surrogates import (
    dual_clip,
    gmpo,
    gspo,
    gspo_token,
    ppo_clip,
    sequence_product,
)
from grpo_edu.weights import factors

LOG = 0.25
RATIO = torch.tensor(LOG, dtype=torch.float64).exp().item()  # a ratio in [1, 2): RATIO - 1 is exact
ABOVE = math.nextafter(RATIO - 1, 0)  # an epsilon one step too small for it


def pushes(surrogate, log_ratio: float, advantage: float) -> list[float]:
    """Push on a token of ratio exp(log_ratio) under W = 1, by autograd and by the factors; they agree."""
    logp = torch.full((1, 1), -1.0, dtype=torch.float64)
    rollouts = Rollouts(
        logp=logp,
        old_logp=logp - log_ratio,
        mask=torch.ones(1, 1, dtype=torch.bool),
        reward=torch.zeros(1, dtype=torch.float64),
        group=torch.zeros(1, dtype=torch.long),
        given_advantage=torch.tensor([advantage], dtype=torch.float64),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # wide bands are meant here
        loss = Recipe(baseline=given, surrogate=surrogate, aggregation=token_sum)
    parts = factors(loss, rollouts, loss.plan(rollouts))
    return [token_weights(loss, rollouts).item(), product_of(parts).item()]


BANDS = [ppo_clip, gspo, gspo_token, sequence_product, partial(dual_clip, cap=9.0)]


@pytest.mark.parametrize("surrogate", BANDS)
def test_on_policy_with_no_band_at_all_the_token_keeps_its_push(surrogate) -> None:
    none = partial(surrogate, eps_low=0.0, eps_high=0.0)
    for advantage in (1.0, -1.0):
        assert pushes(none, 0.0, advantage) == [advantage, advantage]


@pytest.mark.parametrize("surrogate", BANDS)
def test_a_ratio_on_the_bound_is_inside_and_one_step_beyond_is_not(surrogate) -> None:
    assert 1 + (RATIO - 1) == RATIO
    on = partial(surrogate, eps_low=0.2, eps_high=RATIO - 1)
    assert pushes(on, LOG, 1.0) == pytest.approx([RATIO, RATIO], rel=1e-15)
    beyond = partial(surrogate, eps_low=0.2, eps_high=ABOVE - 1e-15)
    assert pushes(beyond, LOG, 1.0) == [0.0, 0.0]
    low = math.exp(-LOG)
    on = partial(surrogate, eps_low=1 - low, eps_high=0.2)
    assert 1 - (1 - low) == low
    assert pushes(on, -LOG, -1.0) == pytest.approx([-low, -low], rel=1e-15)
    assert pushes(partial(surrogate, eps_low=1 - low - 1e-15, eps_high=0.2), -LOG, -1.0) == [0, 0]


def test_gmpo_has_its_bounds_in_the_logarithm() -> None:
    assert pushes(partial(gmpo, eps_low=0.4, eps_high=LOG), LOG, 1.0)[0] == pytest.approx(RATIO)
    assert pushes(partial(gmpo, eps_low=LOG, eps_high=0.4), -LOG, -1.0)[1] == pytest.approx(
        -1 / RATIO
    )
    assert pushes(partial(gmpo, eps_low=0.4, eps_high=LOG - 1e-12), LOG, 1.0) == [0.0, 0.0]
    assert pushes(partial(gmpo, eps_low=0.0, eps_high=0.0), 0.0, -1.0) == [-1.0, -1.0]


def test_dual_clip_at_its_cap_keeps_the_push() -> None:
    cap = partial(dual_clip, eps_low=0.2, eps_high=0.2, cap=RATIO)
    assert pushes(cap, LOG, -1.0) == pytest.approx([-RATIO, -RATIO], rel=1e-15)
    below = partial(dual_clip, eps_low=0.2, eps_high=0.2, cap=RATIO - 1e-12)
    assert pushes(below, LOG, -1.0) == [0.0, 0.0]


def test_gspo_token_at_its_log_cap_keeps_the_push() -> None:
    wide = partial(gspo_token, eps_low=0.9, eps_high=9.0)
    assert pushes(partial(wide, log_cap=LOG), LOG, -1.0) == pytest.approx([-RATIO] * 2, rel=1e-15)
    assert pushes(partial(wide, log_cap=LOG - 1e-12), LOG, -1.0) == [0.0, 0.0]
    assert pushes(partial(wide, log_cap=0.0), 0.0, 1.0) == [1.0, 1.0]


def test_a_log_ratio_of_exactly_twenty_keeps_its_push_and_beyond_it_has_none() -> None:
    wide = partial(ppo_clip, eps_low=0.2, eps_high=0.2)
    assert pushes(wide, 20.0, -1.0) == pytest.approx([-math.exp(20)] * 2, rel=1e-14)
    assert pushes(wide, 20.5, -1.0) == [0.0, 0.0]


@pytest.mark.parametrize("surrogate", [*BANDS, gmpo])
@pytest.mark.parametrize("advantage", [0.0, -0.0])
def test_advantage_zero_of_either_sign_pushes_plus_zero(surrogate, advantage) -> None:
    for log_ratio in (-1.0, 0.0, 1.0):
        for push in pushes(partial(surrogate, eps_low=0.2, eps_high=0.2), log_ratio, advantage):
            assert push == 0
            assert math.copysign(1, push) == 1


def slopes(choice, log_ratio: float) -> list[float]:
    """Derivative of a KL term by log π at log(π/π_ref), by autograd and by hand."""
    logp = torch.full((1, 1), -30.0, dtype=torch.float64)
    inputs = {"logp": logp.clone().requires_grad_(), "ref_logp": logp - log_ratio}
    value = run(choice, inputs).sum()
    by_autograd = torch.autograd.grad(value, inputs["logp"])[0].item()
    return [by_autograd, run(kl.slope_of(choice), {**inputs, "logp": logp}).item()]


def test_kl_terms_on_their_bounds() -> None:
    k3_at = math.expm1(LOG) - LOG
    k3_value = kl.k3(*(torch.tensor([[x]], dtype=torch.float64) for x in (-LOG, 0.0)), beta=1.0)
    assert k3_value.item() == pytest.approx(k3_at, rel=1e-15)
    at_cap = partial(kl.k3, beta=1.0, cap=k3_value.item())
    assert slopes(at_cap, -LOG) == pytest.approx([1 - math.exp(LOG)] * 2, rel=1e-14)
    assert slopes(partial(kl.k3, beta=1.0, cap=k3_value.item() * 0.999), -LOG) == [0.0, 0.0]
    assert slopes(partial(kl.k3, beta=1.0), -20.0) == pytest.approx([1 - math.exp(20)] * 2)
    assert slopes(partial(kl.k3, beta=1.0), -20.5) == [0.0, 0.0]
    assert slopes(partial(kl.k3, beta=1.0), 0.0) == [0.0, 0.0]
    assert slopes(partial(kl.k_abs, beta=1.0), 0.0) == [0.0, 0.0]
    assert slopes(partial(kl.k_abs, beta=1.0), -0.5) == [-1.0, -1.0]


def test_an_importance_weight_on_its_bound_is_kept() -> None:
    old, sampler = (torch.tensor([[x]], dtype=torch.float64) for x in (-1.0, -1.0 - LOG))
    keep = corrections.masked_is(old, sampler, low=0.5, high=RATIO)
    assert keep.item() == pytest.approx(RATIO, rel=1e-15)
    assert corrections.masked_is(old, sampler, low=0.5, high=RATIO - 1e-12).item() == 0
    assert corrections.sequence_masked_is(old, sampler, cap=RATIO).item() == pytest.approx(RATIO)
    assert corrections.truncated_is(old, sampler, cap=RATIO).item() == pytest.approx(RATIO)


def test_no_setting_of_one_choice_reaches_another() -> None:
    """cispo(low=.9) beside truncated_is(cap=2): the correction keeps its own lower bound, none."""
    old, sampler = torch.full((1, 2), -1.0), torch.full((1, 2), -0.3)
    loss = recipe("cispo").but(
        baseline=given,
        scale=recipe("dr_grpo").scale,
        surrogate=partial(recipe("cispo").surrogate.func, low=0.9, high=5.0),
        correction=partial(corrections.truncated_is, cap=2.0),
    )
    rollouts = Rollouts(
        logp=old.double(),
        sampler_logp=sampler.double(),
        old_logp=old.double(),
        mask=torch.ones(1, 2, dtype=torch.bool),
        reward=torch.ones(1),
        group=torch.zeros(1, dtype=torch.long),
        given_advantage=torch.ones(1),
    )
    parts = factors(loss, rollouts, loss.plan(rollouts))
    assert parts["correction"].tolist()[0] == pytest.approx([math.exp(-0.7)] * 2)
    torch.testing.assert_close(product_of(parts), token_weights(loss, rollouts))
