"""KL estimators: exact expectations over a small action set, slopes against autograd, and accuracy at both ends of d."""

from functools import partial
from math import exp, expm1, log

import pytest
import torch
from hypothesis import example, settings
from hypothesis import given as examples
from hypothesis import strategies as st

from grpo_edu import MissingReferenceWarning, Recipe, Rollouts, recipe, token_weights
from grpo_edu.objective import axes
from grpo_edu.objective.aggregation import sequence_mean, step_token_mean
from grpo_edu.objective.kl import k1, k2, k3

ESTIMATORS = [k1, k2, k3]
FEW = torch.tensor([0.9, 0.1], dtype=torch.float64), torch.tensor([0.5, 0.5], dtype=torch.float64)
MORE = (
    torch.tensor([0.5, 0.25, 0.15, 0.1], dtype=torch.float64),
    torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64),
)


def near(value, rel=1e-12):
    return pytest.approx(value, rel=rel, abs=1e-14)


def on_policy(estimator, pi, ref):
    """Exact expectation over the actions and the gradient that a loss gets from it: by the logits, through log π only."""
    logits = pi.log().requires_grad_()
    value = (pi * estimator(logits.log_softmax(0), ref.log(), beta=1.0)).sum()
    return value.item(), torch.autograd.grad(value, logits)[0]


def true_gradient(divergence, pi):
    """Gradient by the logits of a divergence of π, with π differentiated too."""
    logits = pi.log().requires_grad_()
    return torch.autograd.grad(divergence(logits.softmax(0)), logits)[0]


# --- exact expectations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "value", "pull"),
    [
        # π = .9 .1, ref = .5 .5: d = ln 1.8 = .587787 and ln .2 = -1.609438
        # k1: .9 · .587787 - .1 · 1.609438; the slope 1 times E[∇log π] = 0
        (k1, 0.36806420716849706, 0.0),
        # k2: ½(.9 · .345493 + .1 · 2.590290); .9(.587787 - .368064)
        (k2, 0.2849864432455519, 0.19775021196025977),
        # k3: KL + E[ref/π] - 1 = KL + 0; π - ref
        (k3, 0.36806420716849706, 0.4),
    ],
)
def test_two_actions_by_hand(estimator, value, pull):
    found, gradient = on_policy(estimator, *FEW)
    assert found == near(value)
    assert gradient.tolist() == near([pull, -pull])


@pytest.mark.parametrize(("pi", "ref"), [FEW, MORE, MORE[::-1]])
def test_k1_and_k3_have_the_value_of_the_kl_and_k2_has_not(pi, ref):
    kl = (pi * (pi / ref).log()).sum().item()
    values = [on_policy(estimator, pi, ref)[0] for estimator in ESTIMATORS]
    assert values[0] == near(kl)
    assert values[2] == near(kl)
    assert abs(values[1] - kl) > 0.01


@pytest.mark.parametrize(("pi", "ref"), [FEW, MORE, MORE[::-1]])
def test_gradients_are_none_the_reverse_kls_and_the_forward_kls(pi, ref):
    reverse = true_gradient(lambda p: (p * (p / ref).log()).sum(), pi)
    forward = true_gradient(lambda p: (ref * (ref / p).log()).sum(), pi)
    assert on_policy(k1, pi, ref)[1].tolist() == near([0] * len(pi))
    assert on_policy(k2, pi, ref)[1].tolist() == near(reverse.tolist())
    assert on_policy(k3, pi, ref)[1].tolist() == near(forward.tolist())
    assert not torch.allclose(reverse, forward, atol=0.01)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_policy_equal_to_reference_has_value_and_expected_pull_zero(estimator):
    value, gradient = on_policy(estimator, MORE[0], MORE[0])
    assert value == 0
    assert gradient.abs().max().item() == near(0)


# --- one token ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("d", "values"),
    [
        (0.5, [0.5, 0.125, exp(-0.5) + 0.5 - 1]),
        (-0.5, [-0.5, 0.125, exp(0.5) - 0.5 - 1]),
        (2.0, [2.0, 2.0, exp(-2) + 1]),
    ],
)
def test_values_on_one_token(d, values):
    # d = log π - log ref; k1 = d, k2 = d²/2, k3 = e^-d + d - 1; beta multiplies
    logp, ref = (
        torch.tensor([-3.0], dtype=torch.float64),
        torch.tensor([-3.0 - d], dtype=torch.float64),
    )
    assert [estimator(logp, ref, beta=1.0).item() for estimator in ESTIMATORS] == near(values)
    assert [estimator(logp, ref, beta=0.04).item() for estimator in ESTIMATORS] == near(
        [0.04 * v for v in values]
    )


@pytest.mark.parametrize(
    ("d", "slopes"), [(0.5, [1, 0.5, 1 - exp(-0.5)]), (-0.5, [1, -0.5, 1 - exp(0.5)])]
)
def test_slopes_on_one_token(d, slopes):
    logp = torch.tensor([-3.0], dtype=torch.float64, requires_grad=True)
    for estimator, expected in zip(ESTIMATORS, slopes, strict=True):
        value = estimator(logp, torch.tensor([-3.0 - d], dtype=torch.float64), beta=1.0)
        assert torch.autograd.grad(value.sum(), logp)[0].item() == near(expected)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("spread", [1e-6, 0.1, 3.0, 30.0])
def test_hand_written_slope_equals_autograd(estimator, spread):
    generator = torch.Generator().manual_seed(0)
    logp = -4 * torch.rand(5, 7, generator=generator, dtype=torch.float64)
    ref = logp + spread * torch.randn(5, 7, generator=generator, dtype=torch.float64)
    leaf = logp.clone().requires_grad_()
    expected = torch.autograd.grad(estimator(leaf, ref, beta=0.3).sum(), leaf)[0]
    found = axes.run(partial(estimator.slope, beta=0.3), {"logp": logp, "ref_logp": ref})
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("d", [1e-3, -1e-3, 1e-2, -0.1, 1.0, -1.0, 10.0, -10.0])
def test_k3_in_float32_is_accurate(d):
    # against e^x - 1 - x in double; float32's own 6e-8 is divided by d/2, since the difference cancels down to d²/2
    value = k3(torch.tensor([0.0]), torch.tensor([-d]), beta=1.0).item()
    x = torch.tensor(-d).double().item()  # what float32 holds
    assert value == pytest.approx(expm1(x) - x, rel=4e-7 / min(1, abs(d)))


def test_k3_in_float32_beats_the_plain_formula_near_zero():
    # d = 1e-4: 5e-9. exp - 1 - d in float32 is off by more than the value itself.
    x = torch.tensor([1e-4])
    exact = expm1(1e-4) - 1e-4
    assert abs((x.exp() - 1 - x).item() - exact) > exact
    assert k3(torch.zeros(1), x, beta=1.0).item() == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d", [21.0, 100.0, 1e4, -21.0, -100.0, -1e4])
def test_k3_of_a_huge_log_ratio_is_finite_and_pulls_nothing(d, dtype):
    logp = torch.tensor([-2e4], dtype=dtype, requires_grad=True)
    ref = logp.detach() - d
    value = k3(logp, ref, beta=1.0)
    limit = max(-20.0, min(20.0, -d))
    assert value.item() == pytest.approx(expm1(limit) - limit, rel=1e-6)
    assert torch.autograd.grad(value.sum(), logp)[0].item() == 0
    assert (
        axes.run(partial(k3.slope, beta=1.0), {"logp": logp.detach(), "ref_logp": ref}).item() == 0
    )


@settings(max_examples=300, deadline=None)
@examples(st.floats(-30, 30, width=32), st.sampled_from([torch.float32, torch.float64]))
@example(1e-8, torch.float32)
@example(-1e-8, torch.float32)
def test_k3_is_never_negative_and_k2_neither(d, dtype):
    logp, ref = torch.zeros(1, dtype=dtype), torch.tensor([d], dtype=dtype)
    assert k3(logp, ref, beta=1.0).item() >= 0
    assert k2(logp, ref, beta=1.0).item() >= 0


def test_k1_may_be_negative():
    assert k1(torch.tensor([-2.0]), torch.tensor([-1.0]), beta=1.0).item() == -1


# --- in a recipe ----------------------------------------------------------------------------------------------------------


def pair(d=0.5):
    """Completions of 2 and 8 tokens, every one at log-ratio d to the reference, without any advantage."""
    rollouts = Rollouts.from_lengths([2, 8], [0, 0])
    return Rollouts(
        rollouts.logp, rollouts.mask, rollouts.reward, rollouts.group, ref_logp=rollouts.logp - d
    )


def with_beta(estimator, beta):
    return partial(estimator, beta=beta)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_kl_in_the_loss_is_aggregated_like_the_surrogate(estimator):
    # A = 0: the loss is beta · estimator; the push is minus its slope, over 2·2 and 2·8
    value, slope = {k1: (0.5, 1.0), k2: (0.125, 0.5), k3: (exp(-0.5) - 0.5, 1 - exp(-0.5))}[
        estimator
    ]
    loss = Recipe(kl=with_beta(estimator, 0.04), aggregation=sequence_mean)
    assert loss.loss(pair()).item() == near(0.04 * value)
    assert token_weights(loss, pair())[:, 0].tolist() == near(
        [-0.04 * slope / 4, -0.04 * slope / 16]
    )


def test_kl_may_have_its_own_aggregation():
    # policy term by sequence, KL by token: 1/10 each
    loss = Recipe(kl=with_beta(k2, 1.0), aggregation=sequence_mean, kl_aggregation=step_token_mean)
    assert token_weights(loss, pair())[:, 0].tolist() == near([-0.5 / 10] * 2)


def test_kl_keeps_its_own_aggregation_in_every_slice():
    # W of the policy term 1/4 and 1/16, of the KL term 1/10: two slices of one plan add up to ½·d² = .125
    loss = Recipe(kl=with_beta(k2, 1.0), aggregation=sequence_mean, kl_aggregation=step_token_mean)
    plan = loss.plan(pair())
    parts = [loss.loss(pair()[rows], plan[rows]).item() for rows in (slice(0, 1), slice(1, 2))]
    assert parts == near([2 * 0.125 / 10, 8 * 0.125 / 10])


def test_kl_pulls_towards_the_reference_from_both_sides():
    # more likely than under the reference: down; less likely: up
    for estimator in (k2, k3):
        assert (token_weights(Recipe(kl=with_beta(estimator, 1.0)), pair(0.5))[1] < 0).all()
        assert (token_weights(Recipe(kl=with_beta(estimator, 1.0)), pair(-0.5))[1] > 0).all()


def test_grpo_of_the_paper_has_k3_with_beta_004():
    # the two rewards are equal, so only the KL term is left: mean of .04(e^-.5 + .5 - 1)
    assert recipe("grpo").loss(pair()).item() == near(0.04 * (exp(-0.5) - 0.5))


def test_a_missing_reference_is_said_and_the_term_left_out():
    rollouts = Rollouts.from_lengths([2, 8], [1, 0])
    with pytest.warns(
        MissingReferenceWarning, match="rollouts.ref_logp is missing: the term is left out"
    ):
        value = recipe("grpo").loss(rollouts)
    assert value.item() == recipe("grpo").but(kl=None).loss(rollouts).item()


def test_log_is_natural():
    # π twice the reference: k1 = ln 2
    logp = torch.tensor([0.5], dtype=torch.float64).log()
    assert k1(logp, torch.tensor([0.25], dtype=torch.float64).log(), beta=1.0).item() == near(
        log(2)
    )
