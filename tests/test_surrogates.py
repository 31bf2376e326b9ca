"""Surrogates: values and gradients by hand, and hand-written factors against autograd."""

from functools import partial
from math import exp, log, prod

import pytest
import torch
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st

from grpo_edu import Recipe, RecipeWarning, Rollouts, token_weights
from grpo_edu.objective import axes
from grpo_edu.objective.advantages import given
from grpo_edu.objective.aggregation import sequence_mean, step_token_mean, token_sum
from grpo_edu.objective.surrogates import (
    cispo,
    derivative_of,
    dual_clip,
    gmpo,
    gspo,
    gspo_token,
    ppo_clip,
    reinforce,
    sapo,
    sequence_product,
)

CLIP = partial(ppo_clip, eps_low=0.2, eps_high=0.3)
GSPO = partial(gspo, eps_low=3e-4, eps_high=4e-4)
CISPO = partial(cispo, low=0.5, high=2.0)
SURROGATES = [reinforce, CLIP, GSPO, CISPO]
OTHERS = [
    partial(dual_clip, eps_low=0.2, eps_high=0.3, cap=3.0),
    partial(gspo_token, eps_low=3e-4, eps_high=4e-4),
    partial(sequence_product, eps_low=0.2, eps_high=0.3),
    partial(gmpo, eps_low=0.4, eps_high=0.4),
    partial(sapo, tau_pos=1.0, tau_neg=1.05),
]
SHARED = {
    "gspo",
    "sequence_product",
    "gmpo",
}  # one ratio speaks for a completion: the factors hold under a W uniform in it


def near(value, rel=1e-12):
    return pytest.approx(value, rel=rel, abs=1e-15)


def inputs(log_ratio, advantage, mask=None, logp=None):
    """What a surrogate may ask for, from ``[N, T]`` log-ratios."""
    log_ratio = torch.as_tensor(log_ratio, dtype=torch.float64)
    logp = (
        torch.full_like(log_ratio, -1.0)
        if logp is None
        else torch.as_tensor(logp, dtype=torch.float64)
    )
    advantage = torch.as_tensor(advantage, dtype=torch.float64).expand_as(logp)
    mask = torch.ones_like(logp, dtype=torch.bool) if mask is None else mask
    return {"logp": logp, "old_logp": logp - log_ratio, "advantage": advantage, "mask": mask}


def value_and_gradient(surrogate, given_inputs):
    """``[N, T]`` objective, and its derivative by the log-probs, by autograd."""
    leaf = given_inputs["logp"].clone().requires_grad_()
    value = axes.run(surrogate, {**given_inputs, "logp": leaf})
    return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]


def by_hand(surrogate, given_inputs):
    """advantage · ratio · gate of the hand-written factors."""
    ratio, gate = axes.run(derivative_of(surrogate), given_inputs)
    return given_inputs["advantage"] * ratio * gate


# --- PPO clip -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "gradient"),
    [
        # band [.8, 1.3], A = ±2; value min(ρA, clip(ρ)A); gradient ρA, or 0 where the clip is the smaller
        (0.5, 2, 1.0, 1.0),  # min(1, 1.6)
        (1.1, 2, 2.2, 2.2),
        (1.5, 2, 2.6, 0.0),  # min(3, 2.6): lost
        (0.5, -2, -1.6, 0.0),  # min(-1, -1.6): lost
        (1.1, -2, -2.2, -2.2),
        (1.5, -2, -3.0, -3.0),  # min(-3, -2.6): no upper bound
    ],
)
def test_six_cells_of_the_clip(ratio, advantage, value, gradient):
    case = inputs([[log(ratio)]], advantage)
    found, slope = value_and_gradient(CLIP, case)
    assert found.item() == near(value)
    assert slope.item() == near(gradient)
    assert by_hand(CLIP, case).item() == near(gradient)


def test_the_two_sides_of_the_clip_are_eps_low_and_eps_high():
    # ratio 1.25 is inside 1.3 and outside 1.2; ratio .75 is outside .8 and inside .7
    wide_above, wide_below = CLIP, partial(ppo_clip, eps_low=0.3, eps_high=0.2)
    up, down = inputs([[log(1.25)]], 1.0), inputs([[log(0.75)]], -1.0)
    assert [value_and_gradient(c, up)[1].item() for c in (wide_above, wide_below)] == near(
        [1.25, 0]
    )
    assert [value_and_gradient(c, down)[1].item() for c in (wide_above, wide_below)] == near(
        [0, -0.75]
    )


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_ratio_of_exactly_one_has_its_full_gradient_at_eps_zero(advantage):
    # both terms of the minimum are equal there, and neither is clipped
    case = inputs([[0.0]], advantage)
    zero = partial(ppo_clip, eps_low=0.0, eps_high=0.0)
    assert value_and_gradient(zero, case)[1].item() == advantage
    assert by_hand(zero, case).item() == advantage


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_advantage_zero_pushes_nothing_at_any_ratio(surrogate):
    case = inputs([[-3.0, 0.0, 3.0]], 0.0)
    value, gradient = value_and_gradient(surrogate, case)
    assert value.tolist() == gradient.tolist() == by_hand(surrogate, case).tolist() == [[0, 0, 0]]


# --- the others -----------------------------------------------------------------------------------------------------------


def test_reinforce_has_no_ratio():
    # A log π = 2 · -1.5; slope 2 at a log-ratio of 3
    case = inputs([[3.0]], 2.0, logp=[[-1.5]])
    value, gradient = value_and_gradient(reinforce, case)
    assert (value.item(), gradient.item()) == (-3.0, 2.0)


def test_the_ratio_of_gspo_is_the_geometric_mean_over_live_tokens():
    # ratios 1.02, .99, 1.01 live and 5 masked: s = (1.02 · .99 · 1.01)^(1/3) = 1.00658; slope A·s/3 on each live token
    ratios = [1.02, 0.99, 1.01]
    mask = torch.tensor([[True, True, True, False]])
    s = prod(ratios) ** (1 / 3)
    case = inputs([[*map(log, ratios), log(5.0)]], -2.0, mask)
    case["advantage"] = case["advantage"] * mask
    value, gradient = value_and_gradient(GSPO, case)
    assert value[0, :3].tolist() == near([-2 * s] * 3)
    # every live token holds -2s, so their sum has the slope 3 · -2s/3 on each
    assert gradient[0].tolist() == near([-2 * s] * 3 + [0])


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "gate"),
    [
        (5e-4, 1, 0),
        (3.5e-4, 1, 1),
        (-5e-4, 1, 1),
        (5e-4, -1, 1),
        (-2.5e-4, -1, 1),
        (-3.5e-4, -1, 0),
    ],
)
def test_gspo_clips_the_whole_completion_on_one_side_per_sign(log_ratio, advantage, gate):
    # band 1 - 3e-4 … 1 + 4e-4; W = 1/2 on both tokens: A·s·gate/2
    rollouts = Rollouts.from_lengths(
        [2], [0], ratio=exp(log_ratio), given_advantage=[float(advantage)]
    )
    weights = token_weights(Recipe(baseline=given, surrogate=GSPO), rollouts)
    assert weights[0].tolist() == near([gate * advantage * exp(log_ratio) / 2] * 2)


def test_gspo_under_the_sequence_mean_has_the_length_bias_of_grpo():
    # N = 2, lengths 2 and 8, on policy: 1/(2·2) and 1/(2·8)
    rollouts = Rollouts.from_lengths([2, 8], [0, 0], given_advantage=[1.0, 1.0])
    weights = token_weights(Recipe(baseline=given, surrogate=GSPO), rollouts)
    assert weights[:, 0].tolist() == near([1 / 4, 1 / 16])


@pytest.mark.parametrize(
    ("ratio", "coefficient"),
    [(0.1, 0.5), (0.5, 0.5), (1.0, 1.0), (1.5, 1.5), (2.0, 2.0), (7.0, 2.0)],
)
@pytest.mark.parametrize("advantage", [1.0, -3.0])
def test_cispo_caps_the_ratio_and_never_takes_the_gradient(ratio, coefficient, advantage):
    # band [.5, 2]; value c·A·log π with log π = -1.5, slope c·A: the ratio itself is not differentiated
    case = inputs([[log(ratio)]], advantage, logp=[[-1.5]])
    value, gradient = value_and_gradient(CISPO, case)
    assert value.item() == near(-1.5 * coefficient * advantage)
    assert gradient.item() == near(coefficient * advantage)


@pytest.mark.parametrize("surrogate", [CLIP, GSPO, partial(cispo, low=0.0, high=5.0)])
def test_on_policy_every_surrogate_has_the_gradient_of_reinforce(surrogate):
    rollouts = Rollouts.from_lengths([3, 5, 1], [0, 0, 0], given_advantage=[1.0, -2.0, 0.5])
    plain = token_weights(Recipe(baseline=given), rollouts)
    assert token_weights(
        Recipe(baseline=given, surrogate=surrogate), rollouts
    ).flatten().tolist() == near(plain.flatten().tolist())


def test_gspo_with_a_token_mean_is_said_to_be_unintended():
    with pytest.warns(RecipeWarning, match="a long completion counts more than the paper's 1/N"):
        Recipe(baseline=given, surrogate=GSPO, aggregation=step_token_mean)


def test_gspo_refuses_an_advantage_per_token():
    rollouts = Rollouts.from_lengths([1, 2], [0, 0], given_advantage=[[1.0, 0.0], [2.0, 3.0]])
    with pytest.raises(
        ValueError, match="has one ratio per completion, but given gives one advantage per token"
    ):
        Recipe(baseline=given, surrogate=GSPO).loss(rollouts)


# --- hand-written factors against autograd --------------------------------------------------------------------------------


def off_policy(seed, spread):
    """Six ragged completions whose log-ratios have the given spread."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 9, (6,), generator=generator)
    mask = torch.arange(9)[None, :] < lengths[:, None]
    mask[0, 0] = False  # a hole at the start of a completion
    logp = -5 * torch.rand(6, 9, generator=generator, dtype=torch.float64)
    old = logp - spread * torch.randn(6, 9, generator=generator, dtype=torch.float64)
    advantage = torch.randn(6, generator=generator, dtype=torch.float64)
    return Rollouts(
        logp=logp,
        mask=mask,
        reward=torch.zeros(6),
        group=torch.tensor([0, 0, 1, 1, 2, 2]),
        old_logp=old.clamp(max=0.0),
        given_advantage=advantage,
    )


@pytest.mark.parametrize(
    "surrogate", SURROGATES + OTHERS, ids=lambda s: axes.function_of(s).__name__
)
@pytest.mark.parametrize("spread", [0.0, 3e-4, 0.3, 3.0, 25.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_hand_written_factors_equal_autograd(surrogate, spread, seed):
    rollouts = off_policy(seed, spread)
    loss = Recipe(baseline=given, surrogate=surrogate, aggregation=sequence_mean)
    plan = loss.plan(rollouts)
    expected = plan.W * by_hand(surrogate, loss.token_inputs(rollouts, plan))
    torch.testing.assert_close(token_weights(loss, rollouts), expected, rtol=1e-12, atol=1e-15)
    if (
        axes.function_of(surrogate).__name__ not in SHARED
    ):  # any W will do, here one that differs from token to token
        ramp = loss.but(
            aggregation=lambda mask: mask * torch.linspace(0.1, 1.0, 9, dtype=torch.float64)
        )
        expected = ramp.plan(rollouts).W * by_hand(surrogate, ramp.token_inputs(rollouts, plan))
        torch.testing.assert_close(token_weights(ramp, rollouts), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("surrogate", [CLIP, GSPO])
@pytest.mark.parametrize(
    ("log_ratio", "advantage"), [(25, -1.0), (-25, 1.0), (700, -1.0), (-700, 1.0), (2000, -1.0)]
)
def test_beyond_a_log_ratio_of_twenty_the_value_is_finite_and_the_gradient_zero(
    surrogate, log_ratio, advantage
):
    # the two cells without a clip: the ratio stops at e^±20
    case = inputs([[log_ratio]], advantage, logp=[[-2500.0 if log_ratio < 0 else -1.0]])
    value, gradient = value_and_gradient(surrogate, case)
    assert value.item() == near(advantage * exp(20 if log_ratio > 0 else -20))
    assert gradient.item() == by_hand(surrogate, case).item() == 0


@pytest.mark.parametrize("surrogate", [CLIP, GSPO])
def test_at_a_log_ratio_just_below_twenty_the_gradient_is_whole(surrogate):
    case = inputs([[19.5]], -1.0)
    assert value_and_gradient(surrogate, case)[1].item() == near(-exp(19.5))
    assert by_hand(surrogate, case).item() == near(-exp(19.5))


@pytest.mark.parametrize("log_ratio", [25, 2000])
def test_cispo_keeps_its_capped_gradient_beyond_twenty(log_ratio):
    case = inputs([[log_ratio]], -1.0)
    assert value_and_gradient(CISPO, case)[1].item() == near(-2.0)
    assert by_hand(CISPO, case).item() == near(-2.0)


@settings(max_examples=60, deadline=None)
@examples(st.floats(-3, 3), st.floats(-5, 5), st.sampled_from(SURROGATES))
def test_hand_written_factors_equal_autograd_on_any_token(log_ratio, advantage, surrogate):
    case = inputs([[log_ratio]], advantage)
    assert by_hand(surrogate, case).item() == near(value_and_gradient(surrogate, case)[1].item())


@settings(max_examples=60, deadline=None)
@examples(st.floats(0.01, 10), st.floats(-5, 5))
def test_the_clip_never_raises_the_objective(ratio, advantage):
    value, _ = value_and_gradient(CLIP, inputs([[log(ratio)]], advantage))
    assert value.item() <= ratio * advantage + 1e-9


def test_bfloat16_log_probs_are_computed_in_float32():
    rollouts = Rollouts.from_lengths([2], [0], given_advantage=[1.0], dtype=torch.bfloat16)
    weights = token_weights(Recipe(baseline=given, surrogate=CLIP, aggregation=token_sum), rollouts)
    assert weights.dtype == torch.float32
    assert weights.tolist() == [[1, 1]]


def test_sapo_keeps_its_temperature_in_float64() -> None:
    # on policy the value is 4/τ·σ(0)·A = 2·A/τ; τ = 1.05 rounded to float32 is 1.0499999523, wrong in the eighth digit
    value, _ = value_and_gradient(
        partial(sapo, tau_pos=1.0, tau_neg=1.05), inputs([[0.0, 0.0]], [[1.0, -1.0]])
    )
    assert value.tolist() == [[near(2.0), near(-2 / 1.05)]]
