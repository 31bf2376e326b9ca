"""What each aggregation does to the stop decision: closed forms against every group, weights by autograd through the real loss.

Two policies. Plain: the first token carries the branch and its own stop decision, a length cap truncates. Toy of the printed numbers: a
token of its own says the branch, then up to five stop decisions, the last one forced; stop logit -0.6 in both branches, p = .4.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import product

import oracles
import pytest
import torch
from torch import Tensor

from grpo_edu import Recipe, Rollouts, recipe, token_weights
from grpo_edu.objective import advantages as adv
from grpo_edu.objective import aggregation as agg
from grpo_edu.objective import surrogates as sur
from grpo_edu.theory import difficulty, enumeration, length
from grpo_edu.weights import split

near = partial(pytest.approx, rel=1e-9, abs=1e-12)
MEAN = recipe("dr_grpo")
STD = recipe("dr_grpo").but(scale=partial(adv.group_std, ddof=1, eps=0.0))
NO_BASELINE = recipe("dr_grpo").but(baseline=adv.no_baseline)
P, HAZARDS, CAP = 0.35, (0.6, 0.25), 3


def enumerated(
    one: Recipe, aggregation, size: int, hazards=HAZARDS, cap: int = CAP, micro_batch=None
) -> tuple[float, float]:
    """Expected gradient by the right and the wrong stop logit, over every group."""
    groups = enumeration.all_groups(P, *hazards, size, cap)
    weights = enumeration.group_weights(one.but(aggregation=aggregation), groups, micro_batch)
    scores = enumeration.scores(groups, P, *hazards)
    mean = torch.einsum("m,mgt,mgtk->k", groups.chance, weights, scores)
    return mean[1].item(), mean[2].item()


def table(one: Recipe, size: int) -> tuple[Tensor, Tensor]:
    return difficulty.advantages_by_count(one, size)


# --- any advantage, two hazards -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("one", [MEAN, STD, NO_BASELINE], ids=["mean", "std", "none"])
def test_sequence_mean_and_prompt_scope_equal_enumeration_with_unequal_hazards(one, size):
    cap = CAP if size < 4 else 2
    for aggregation, rows in ((agg.sequence_mean, 1), (agg.prompt_token_mean, None)):
        found = oracles.token_mean_gradient(table(one, size), P, HAZARDS, cap, rows=rows)
        assert found == near(enumerated(one, aggregation, size, cap=cap))


@pytest.mark.parametrize("one", [MEAN, STD], ids=["mean", "std"])
@pytest.mark.parametrize(("size", "rows"), [(4, 2), (4, 1), (4, 4), (2, 1)])
def test_micro_batch_scope_is_a_function_of_its_own_size(one, size, rows):
    found = oracles.token_mean_gradient(table(one, size), P, HAZARDS, 2, rows=rows)
    assert found == near(
        enumerated(
            one, agg.micro_batch_token_mean, size, cap=2, micro_batch=split(size, size // rows)
        )
    )


@pytest.mark.parametrize("one", [MEAN, STD], ids=["mean", "std"])
def test_step_scope_of_two_prompts_equals_enumeration_of_both(one):
    # 2 prompts × 2 completions, all 6^4 steps: one row of G = 4 completions with the groups told apart
    steps = enumeration.all_groups(P, *HAZARDS, 4, 2)
    group = torch.tensor([0, 0, 1, 1])

    def loss(logp: Tensor, mask: Tensor, reward: Tensor) -> Tensor:
        rollouts = Rollouts.unchecked(
            logp=logp, mask=mask, reward=reward, group=group, max_new_tokens=2
        )
        return one.but(aggregation=agg.step_token_mean).loss(rollouts)

    logp = torch.full(steps.mask.shape, -1.0, dtype=torch.float64)
    weights = -torch.func.vmap(torch.func.grad(loss))(logp, steps.mask, steps.reward)
    mean = torch.einsum(
        "m,mgt,mgtk->k", steps.chance, weights, enumeration.scores(steps, P, *HAZARDS)
    )
    assert oracles.token_mean_gradient(table(one, 2), P, HAZARDS, 2, prompts=2) == near(
        (mean[1].item(), mean[2].item())
    )


def test_a_denominator_of_part_of_a_group_and_several_prompts_is_refused():
    for rows, prompts in ((0, 1), (5, 1), (2, 2)):
        with pytest.raises(ValueError, match="rows is"):
            oracles.token_mean_gradient(table(MEAN, 4), P, HAZARDS, 2, rows=rows, prompts=prompts)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("one", [MEAN, STD], ids=["mean", "std"])
def test_balanced_aggregation_equals_enumeration(one, size):
    cap = CAP if size < 4 else 2
    assert oracles.balanced_gradient(table(one, size), P, HAZARDS, cap) == near(
        enumerated(one, agg.balanced, size, cap=cap)
    )


def test_balanced_aggregation_is_the_sequence_mean_at_two_and_needs_two_signs():
    pair = table(MEAN, 2)
    assert oracles.balanced_gradient(pair, P, HAZARDS, 9) == near(
        oracles.token_mean_gradient(pair, P, HAZARDS, 9, rows=1)
    )
    with pytest.raises(ValueError, match="one sign"):
        oracles.balanced_gradient(table(recipe("pass@k"), 4), P, HAZARDS, CAP)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.75, 1.0, 2.0])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("one", [MEAN, STD], ids=["mean", "std"])
def test_length_power_equals_enumeration(one, size, alpha):
    found = oracles.length_power_gradient(
        table(one, size), P, HAZARDS, CAP, alpha=alpha, length=CAP
    )
    assert found == near(enumerated(one, partial(agg.length_power, alpha=alpha), size))


@pytest.mark.parametrize(
    "aggregation", [agg.constant, agg.sequence_sum, agg.token_sum], ids=lambda a: a.__name__
)
@pytest.mark.parametrize("one", [MEAN, STD, NO_BASELINE], ids=["mean", "std", "none"])
def test_a_weight_that_does_not_know_the_lengths_never_moves_the_stop_decision(one, aggregation):
    assert max(map(abs, enumerated(one, aggregation, 3))) < 1e-12


def test_length_power_with_alpha_zero_is_the_constant():
    assert (
        max(
            map(
                abs,
                oracles.length_power_gradient(table(MEAN, 8), P, HAZARDS, 40, alpha=0.0, length=40),
            )
        )
        < 1e-12
    )


def test_the_two_formulas_of_the_shared_hazard_agree():
    # equal hazards: E[(1/G)Σ A 1{right}] = p(1-p)(G-1)/G times the drift per unit
    for rows in (1, 2, 4):
        right, wrong = oracles.token_mean_gradient(table(MEAN, 4), P, (0.2, 0.2), 12, rows=rows)
        unit = P * (1 - P) * 3 / 4 * length.token_mean_drift(0.2, rows, 12)
        assert (right, wrong) == near((unit, -unit))


@pytest.mark.parametrize(("stop", "cap"), [(0.1, 10), (0.4, 3), (0.7, 1)])
def test_slope_of_the_mean_length_equals_autograd(stop, cap):
    logit = torch.tensor(math.log(stop / (1 - stop)), dtype=torch.float64, requires_grad=True)
    mean = sum((1 - logit.sigmoid()) ** k for k in range(cap))
    slope = torch.autograd.grad(mean, logit)[0].item() if isinstance(mean, Tensor) else 0.0
    assert oracles.length_slope(stop, cap) == near(slope)


# --- numbers of the two branches at s = .1 --------------------------------------------------------------------------------


def test_printed_drifts_at_a_tenth():
    # p = .5, G = 8, no std, no cap in effect: -.0341 wrong, +.0341 right under 1/|o|; sampling had found -.0342 / +.0340
    right, wrong = oracles.token_mean_gradient(table(MEAN, 8), 0.5, (0.1, 0.1), 250, rows=1)
    assert (right, wrong) == pytest.approx((0.0341, -0.0341), abs=5e-5)
    assert length.sequence_mean_drift(0.1, 10) == pytest.approx(0.1354, abs=5e-5)


def test_printed_shares_of_the_scopes():
    # each against the sequence mean of the *same* group size: 42 %, 8 %, 1 %. (-.0082 at G = 2 is 24 % of the -.0341 of G = 8.)
    prompt = {
        g: oracles.token_mean_gradient(table(MEAN, g), 0.5, (0.1, 0.1), 150)[1] for g in (2, 8)
    }
    assert prompt == {2: pytest.approx(-0.0082, abs=5e-5), 8: pytest.approx(-0.0027, abs=5e-5)}
    share = [
        length.token_mean_drift(0.1, g, 150) / length.sequence_mean_drift(0.1, 150)
        for g in (2, 8, 64, 128)
    ]
    assert share == pytest.approx([0.419, 0.080, 0.0091, 0.0045], abs=6e-4)
    assert prompt[2] / oracles.token_mean_gradient(table(MEAN, 8), 0.5, (0.1, 0.1), 150, rows=1)[
        1
    ] == pytest.approx(0.24, abs=0.001)
    micro = oracles.token_mean_gradient(table(MEAN, 8), 0.5, (0.1, 0.1), 150, rows=2)[1]
    assert micro == pytest.approx(-0.0144, abs=1.5e-4)
    # 16 prompts × 8: 128 rows share the denominator
    step = oracles.token_mean_gradient(table(MEAN, 2), 0.5, (0.3, 0.3), 20, prompts=3)[1]
    assert step == near(-0.125 * length.token_mean_drift(0.3, 6, 20))


def test_drift_falls_with_the_rows_that_share_a_denominator_like_one_over_their_number():
    drift = {n: length.token_mean_drift(0.2, n, 60) for n in (1, 2, 4, 16, 64)}
    values = list(drift.values())
    assert values == sorted(values, reverse=True)
    assert 64 * drift[64] / (16 * drift[16]) == pytest.approx(1, abs=0.03)


# --- the toy of the printed numbers ---------------------------------------------------------------------------------------

TOY = 1 / (1 + math.exp(0.6))  # stop logit -0.6


def toy_groups(size: int) -> tuple[enumeration.Groups, Tensor]:
    """All 10^G groups and the score of each completion by (mode, right, wrong), ``[M, G, 3]``; lengths count the mode token."""
    rows = []
    for reward, share in ((1.0, 0.4), (0.0, 0.6)):
        for n in range(1, 6):
            law = (1 - TOY) ** (n - 1) * (TOY if n < 5 else 1)
            stop = (1 - TOY if n < 5 else 0) - TOY * (n - 1)
            rows.append(
                [share * law, reward, n + 1, reward - 0.4, stop * reward, stop * (1 - reward)]
            )
    index = torch.tensor(list(product(range(10), repeat=size)))
    picked = torch.tensor(rows, dtype=torch.float64)[index]
    lengths = picked[..., 2].long()
    groups = enumeration.Groups(
        picked[..., 0].prod(1),
        picked[..., 1],
        lengths,
        picked[..., 1] * 0,
        torch.arange(6) < lengths[..., None],
    )
    return groups, picked[..., 3:]


def toy_gradients(aggregation, size: int, one: Recipe = MEAN) -> tuple[Tensor, Tensor]:
    """Chance ``[M]`` and gradient ``[M, 3]``; every token of a completion has the same weight."""
    groups, scores = toy_groups(size)
    weights = enumeration.group_weights(one.but(aggregation=aggregation), groups)[:, :, 0]
    return groups.chance, (weights[..., None] * scores).sum(dim=1)


def toy_drift(aggregation, size: int) -> float:
    """Change of E[length | wrong] per unit of gradient by the mode."""
    chance, gradient = toy_gradients(aggregation, size)
    mean = chance @ gradient
    return (mean[2] / mean[0]).item() * oracles.length_slope(TOY, 5)


VL = partial(agg.length_power, alpha=1.0)


@pytest.mark.parametrize(
    ("aggregation", "printed"),
    [
        (agg.sequence_mean, (0.2662, 0.2662, 0.2662)),
        (agg.prompt_token_mean, (0.1526, 0.1049, 0.0794)),
        (VL, (0.1419, 0.1874, 0.2089)),
        (agg.balanced, (0.2662, 0.1983, 0.1536)),
        (agg.constant, (0.0, 0.0, 0.0)),
    ],
    ids=["sequence", "token", "vl", "balanced", "constant"],
)
def test_toy_wrong_answers_lengthen_by_the_printed_amounts_at_two_three_four(aggregation, printed):
    assert [toy_drift(aggregation, size) for size in (2, 3, 4)] == pytest.approx(printed, abs=5e-5)


def test_toy_drift_under_the_sequence_mean_is_the_same_with_the_std():
    for size in (2, 3):
        chance, gradient = toy_gradients(agg.sequence_mean, size, STD)
        mean = chance @ gradient
        assert (mean[2] / mean[0]).item() * oracles.length_slope(TOY, 5) == near(
            toy_drift(agg.sequence_mean, size)
        )


def test_closed_forms_with_a_mode_token_in_front_equal_enumeration_of_the_toy():
    # a forced last stop and a truncated one have the same expected score at each length
    hazards = (TOY, TOY)
    for size in (2, 3):
        t = table(MEAN, size)
        for aggregation, found in (
            (agg.sequence_mean, oracles.token_mean_gradient(t, 0.4, hazards, 5, prefix=1, rows=1)),
            (agg.prompt_token_mean, oracles.token_mean_gradient(t, 0.4, hazards, 5, prefix=1)),
            (agg.balanced, oracles.balanced_gradient(t, 0.4, hazards, 5, prefix=1)),
            # C: group_weights hands over the width of the mask, 6
            (VL, oracles.length_power_gradient(t, 0.4, hazards, 5, alpha=1.0, length=6, prefix=1)),
        ):
            chance, gradient = toy_gradients(aggregation, size)
            assert found == near((chance @ gradient)[1:].tolist())


def test_vl_norm_tends_to_the_sequence_mean_as_the_group_grows_and_token_mean_to_the_constant():
    hazards, drift = (TOY, TOY), []
    for size in (2, 8, 32, 128):
        t = table(MEAN, size)
        vl = oracles.length_power_gradient(t, 0.4, hazards, 5, alpha=1.0, length=1.0, prefix=1)[1]
        # relative to 1/|o|, with the mean inverse length of the completions taken out
        one = oracles.branch(TOY, 5, 1)
        inverse = (one.chance[1:] / torch.arange(1, len(one.chance))).sum().item()
        drift.append(
            vl * inverse / oracles.token_mean_gradient(t, 0.4, hazards, 5, prefix=1, rows=1)[1]
        )
    assert drift == sorted(drift)
    assert drift[-1] == pytest.approx(1, abs=0.01)


def test_toy_noise_of_each_aggregation_at_four():
    # tr Var(g) / |E g|²
    printed = {"seq": 0.713, "vl": 0.712, "balanced": 0.882, "token": 0.937, "constant": 0.949}
    choices = (agg.sequence_mean, VL, agg.balanced, agg.prompt_token_mean, agg.constant)
    for (name, value), aggregation in zip(printed.items(), choices, strict=True):
        chance, gradient = toy_gradients(aggregation, 4)
        mean = chance @ gradient
        assert ((chance @ gradient**2).sum() / (mean**2).sum() - 1).item() == pytest.approx(
            value, abs=5e-4
        ), name


# --- a policy that cannot tell right from wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "aggregation", [agg.sequence_mean, agg.prompt_token_mean, agg.balanced, VL]
)
def test_one_hazard_shared_by_right_and_wrong_has_no_net_drift_except_under_balanced_aggregation_in_a_lopsided_prompt(
    aggregation,
):
    right, wrong = enumerated(MEAN, aggregation, 3, hazards=(0.3, 0.3))
    assert abs(right) > 1e-3
    # the shared logit feels the sum of both. Balanced: one side's denominator has K rows, the other's G-K, and at p = .35 the two differ
    if aggregation is not agg.balanced:
        assert right + wrong == pytest.approx(0, abs=1e-12)
    else:
        assert abs(right + wrong) > 1e-4


# --- the field that is no gradient ----------------------------------------------------------------------------------------


def field_by_enumeration(theta: Tensor, size: int, aggregation, cap: int = 3) -> Tensor:
    p, right, wrong = theta.sigmoid().tolist()
    return enumeration.expected_gradient(
        MEAN.but(aggregation=aggregation), p, right, wrong, size, cap
    )


def moments(theta: Tensor, cap: int) -> tuple[Tensor, Tensor, Tensor]:
    """p, u = E[R/L], m = E[1/L], differentiable: written from the law of the lengths."""
    p, hazards = theta[0].sigmoid(), theta[1:].sigmoid()
    inverse = [
        sum(s * (1 - s) ** (n - 1) / n for n in range(1, cap + 1)) + (1 - s) ** cap / cap
        for s in hazards
    ]
    return p, p * inverse[0], p * inverse[0] + (1 - p) * inverse[1]


THETA = torch.tensor([-0.4, 0.5, -0.9], dtype=torch.float64)


@pytest.mark.parametrize("size", [2, 3])
def test_expected_update_under_one_over_length_is_grad_u_minus_p_grad_m(size):
    leaf = THETA.clone().requires_grad_()
    p, u, m = moments(leaf, 3)
    du, dm = (torch.autograd.grad(x, leaf, retain_graph=True)[0] for x in (u, m))
    expected = (size - 1) / size * (du - p.detach() * dm)
    torch.testing.assert_close(
        field_by_enumeration(THETA, size, agg.sequence_mean), expected, rtol=1e-9, atol=1e-12
    )


def test_its_derivative_is_not_symmetric_entry_by_entry_and_that_of_the_sum_of_log_probs_is():
    def jacobian(aggregation) -> Tensor:
        steps = 1e-5 * torch.eye(3, dtype=torch.float64)
        return torch.stack(
            [
                (
                    field_by_enumeration(THETA + h, 2, aggregation)
                    - field_by_enumeration(THETA - h, 2, aggregation)
                )
                / 2e-5
                for h in steps
            ],
            dim=1,
        )

    leaf = THETA.clone().requires_grad_()
    p, _, m = moments(leaf, 3)
    dp, dm = (torch.autograd.grad(x, leaf, retain_graph=True)[0] for x in (p, m))
    # D(∇u - p∇m): D_jk = ∂_k F_j, so the asymmetry is -(∂_k p ∂_j m - ∂_j p ∂_k m)
    expected = 0.5 * (dp[:, None] * dm - dm[:, None] * dp)
    found = jacobian(agg.sequence_mean)
    torch.testing.assert_close(found - found.T, expected, rtol=1e-6, atol=1e-9)
    assert expected.abs().max() > 1e-3
    plain = jacobian(agg.sequence_sum)
    assert (plain - plain.T).abs().max() < 1e-9


def test_with_a_fixed_baseline_it_is_the_gradient_of_the_length_discounted_reward():
    fixed = Recipe(
        name="fixed", baseline=adv.greedy, surrogate=sur.reinforce, aggregation=agg.sequence_mean
    )
    groups = enumeration.all_groups(*THETA.sigmoid().tolist(), 1, 3)
    total = torch.zeros(3, dtype=torch.float64)
    scores = enumeration.scores(groups, *THETA.sigmoid().tolist())
    for k in range(len(groups.chance)):
        rollouts = Rollouts(
            logp=torch.full((1, 3), -1.0, dtype=torch.float64),
            mask=groups.mask[k],
            reward=groups.reward[k],
            group=torch.tensor([0]),
            greedy_reward=torch.tensor([0.3], dtype=torch.float64),
        )
        total += groups.chance[k] * (token_weights(fixed, rollouts)[..., None] * scores[k]).sum(
            dim=(0, 1)
        )
    leaf = THETA.clone().requires_grad_()
    _, u, m = moments(leaf, 3)
    torch.testing.assert_close(
        total, torch.autograd.grad(u - 0.3 * m, leaf)[0], rtol=1e-9, atol=1e-12
    )


def test_the_uncapped_field_and_its_curl_equal_the_moments():
    # E[1/L] = -s ln s / (1-s): F and ∂F_wrong/∂mode - ∂F_mode/∂wrong by autograd
    leaf = THETA.clone().requires_grad_()
    inverse = lambda s: -s * s.log() / (1 - s)

    def field(theta: Tensor) -> Tensor:
        p, e = theta[0].sigmoid(), inverse(theta[1:].sigmoid())
        du, dm = (
            torch.autograd.grad(x, theta, create_graph=True)[0]
            for x in (p * e[0], p * e[0] + (1 - p) * e[1])
        )
        return 3 / 4 * (du - p * dm)

    found = field(leaf)
    torch.testing.assert_close(
        length.field(*THETA.tolist(), 4), found.detach(), rtol=1e-9, atol=1e-12
    )
    by_wrong = torch.autograd.grad(found[0], leaf, retain_graph=True)[0][2]
    by_mode = torch.autograd.grad(found[2], leaf)[0][0]
    assert length.curl(THETA[0].item(), THETA[2].item(), 4) == near((by_mode - by_wrong).item())


def test_the_work_around_a_loop_is_the_area_integral_of_the_curl_and_none_for_a_constant():
    box, cells = ((-1.0, 1.0), (-2.0, 0.0)), 80
    work = length.loop_integral(4, *box, right=-1.0, points=400)
    cell = [(lo + (k + 0.5) / cells * (hi - lo)) for lo, hi in box for k in range(cells)]
    area = sum(length.curl(a, w, 4) for a in cell[:cells] for w in cell[cells:]) * 4.0 / cells**2
    assert work == pytest.approx(area, rel=1e-3)
    # the constant: F = (p(1-p), 0, 0)(G-1)/(G C), by enumeration along the four sides
    side = torch.linspace(-1, 1, 9, dtype=torch.float64)
    around = 0.0
    for wrong, direction in ((-2.0, 1), (0.0, -1)):
        points = [
            field_by_enumeration(
                torch.tensor([a, -1.0, wrong], dtype=torch.float64), 2, agg.constant
            )
            for a in side.tolist()
        ]
        around += direction * sum(f[0].item() for f in points)
        assert max(abs(f[2].item()) for f in points) < 1e-12
    assert abs(around) < 1e-8
    assert abs(work) > 1e-2


# --- shares ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.75, 1.0])
@pytest.mark.parametrize(("short", "long"), [(4, 12), (5, 50)])
def test_share_and_push_of_the_longer_one_through_a_recipe_with_that_power(alpha, short, long):
    # length_power weighs a token |o|^(-alpha'), so alpha' = 1 - alpha
    one = recipe("dr_grpo").but(aggregation=partial(agg.length_power, alpha=1 - alpha))
    weights = token_weights(
        one, Rollouts.from_lengths([short, long], [1, 0], max_new_tokens=long)
    ).abs()
    share = (weights[1].sum() / weights.sum()).item()
    assert share == near(length.longer_share(long / short, alpha))
    assert (weights[1, 0] / weights[0, 0]).item() == near(oracles.power_push(long / short, alpha))


def test_printed_shares_and_no_power_is_even_in_both():
    assert [length.longer_share(r) for r in (10, 100, 1000)] == pytest.approx(
        [0.909, 0.990, 0.999], abs=5e-4
    )
    assert length.longer_share(8206 / 4965) == pytest.approx(0.623, abs=5e-4)
    for alpha in (0.0, 0.25, 0.5, 0.75, 1.0):
        even_share = abs(length.longer_share(3.0, alpha) - 0.5) < 1e-9
        even_push = abs(oracles.power_push(3.0, alpha) - 1) < 1e-9
        assert not (even_share and even_push)
    shares = [length.longer_share(3.0, a / 10) for a in range(11)]
    assert shares == sorted(shares)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_power_drift_equals_autograd_of_the_law(alpha):
    # E[L^(α-1) score]: score by enumeration of one completion of the wrong branch
    groups = enumeration.all_groups(0.0, 0.5, 0.3, 1, 4)
    scores = enumeration.scores(groups, 0.0, 0.5, 0.3)[:, 0, :, 2].sum(dim=1)
    lengths = groups.length[:, 0].double()
    top = (groups.chance * lengths ** (alpha - 1) * scores).sum()
    assert length.power_drift(0.3, alpha, 4) == near(
        (top / (groups.chance * lengths**alpha).sum()).item()
    )
