"""The invariants of the catalog, recipe by recipe. A cell is a passing test or a listed exception with its size asserted.

| invariant | exceptions |
|---|---|
| 1 ledger = autograd | none |
| 2 masked values change nothing | none |
| 3 order, group names, padding change nothing | bnpo, when the micro-batches are not reordered with the rows |
| 4 splits change nothing | bnpo; the slices of high_entropy, clip_cov and kl_cov choose their own tokens |
| 6 advantage symmetries | listed per recipe in SYMMETRY |
| 8 no two recipes are the same | gspo and gspo_token, which differ only where advantages differ by token |
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from itertools import combinations

import pytest
import torch
from batches import batch, batches, product_of
from hypothesis import given, settings
from torch import Tensor

from grpo_edu import RECIPES, Recipe, Rollouts, recipe, token_weights
from grpo_edu.objective.aggregation import (
    constant,
    prompt_token_mean,
    sequence_mean,
    sequence_sum,
    step_token_mean,
)
from grpo_edu.objective.corrections import high_entropy
from grpo_edu.rollouts import PER_TOKEN
from grpo_edu.weights import factors, split

ALL = list(RECIPES)
MICRO_BATCH_SCOPE = {"bnpo"}
DETACHED = {"cispo", "dppo_tv", "dppo_kl", "vespo", "topr"}
CHOOSE_TOKENS = {"high_entropy", "clip_cov", "kl_cov"}  # among those of one backward pass
TOKEN_FIELDS = (*PER_TOKEN, "given_advantage")
few = settings(max_examples=15, deadline=None)


def proportional(a: Tensor, b: Tensor) -> bool:
    """True where a = c·b for one number c."""
    c = (a * b).sum() / (b * b).sum()
    return torch.allclose(a, c * b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ALL)
@given(rollouts=batches())
@few
def test_ledger_factors_multiply_to_minus_autograd(name: str, rollouts: Rollouts) -> None:
    micro_batch = split(len(rollouts), 2)
    parts = factors(RECIPES[name], rollouts, RECIPES[name].plan(rollouts, micro_batch))
    torch.testing.assert_close(
        product_of(parts),
        token_weights(RECIPES[name], rollouts, micro_batch),
        rtol=1e-9,
        atol=1e-13,
    )


@pytest.mark.parametrize("name", ALL)
@given(rollouts=batches())
@few
def test_whatever_stands_under_the_mask_changes_nothing(name: str, rollouts: Rollouts) -> None:
    clean = token_weights(RECIPES[name], rollouts)
    for rubbish in (torch.nan, torch.inf, -torch.inf, 5.0):
        dirty = {
            name: torch.where(rollouts.mask, getattr(rollouts, name), rubbish)
            for name in TOKEN_FIELDS
        }
        spoilt = replace(rollouts, **dirty)
        assert torch.equal(token_weights(RECIPES[name], spoilt), clean)
        assert RECIPES[name].loss(spoilt) == RECIPES[name].loss(rollouts)
    assert (clean[~rollouts.mask] == 0).all()


@pytest.mark.parametrize("name", ALL)
def test_a_fully_masked_batch_gives_finite_zeros(name: str) -> None:
    empty = replace(batch(3), mask=torch.zeros_like(batch(3).mask))
    assert RECIPES[name].loss(empty) == 0
    assert (token_weights(RECIPES[name], empty) == 0).all()


@pytest.mark.parametrize("name", ALL)
@given(rollouts=batches())
@few
def test_row_order_and_group_names_and_padding_change_nothing(
    name: str, rollouts: Rollouts
) -> None:
    one, micro_batch = RECIPES[name], split(len(rollouts), 2)
    weights = token_weights(one, rollouts, micro_batch)
    order = torch.randperm(len(rollouts), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(
        token_weights(one, rollouts[order], micro_batch[order]),
        weights[order],
        rtol=1e-12,
        atol=1e-12,
    )
    renamed = replace(rollouts, group=97 - 5 * rollouts.group)
    torch.testing.assert_close(
        token_weights(one, renamed, micro_batch), weights, rtol=1e-12, atol=1e-12
    )
    wider = padded(rollouts, 3)
    torch.testing.assert_close(
        token_weights(one, wider, micro_batch)[:, :-3], weights, rtol=1e-12, atol=1e-12
    )


def padded(rollouts: Rollouts, more: int) -> Rollouts:
    """The same rollouts with ``more`` columns of padding."""
    empty = torch.zeros(len(rollouts), more)
    wide = {
        name: torch.cat([getattr(rollouts, name), empty.to(getattr(rollouts, name).dtype)], 1)
        for name in ("mask", *TOKEN_FIELDS)
    }
    return replace(rollouts, **wide)


@pytest.mark.parametrize("name", sorted(set(ALL) - CHOOSE_TOKENS))
@given(rollouts=batches())
@few
def test_losses_of_the_slices_of_one_plan_add_up_to_the_step(name: str, rollouts: Rollouts) -> None:
    one, micro_batch = RECIPES[name], split(len(rollouts), 2)
    plan = one.plan(rollouts, micro_batch)
    leaf = rollouts.logp.clone().requires_grad_()
    live = Rollouts.unchecked(
        **{**{f.name: getattr(rollouts, f.name) for f in fields(rollouts)}, "logp": leaf}
    )
    parts = [one.loss(live[micro_batch == k], plan[micro_batch == k]) for k in (0, 1)]
    gradient = torch.autograd.grad(parts[0] + parts[1], leaf)[0]
    torch.testing.assert_close(
        -gradient, token_weights(one, rollouts, micro_batch), rtol=1e-12, atol=1e-14
    )
    torch.testing.assert_close(
        parts[0] + parts[1], one.loss(rollouts, micro_batch=micro_batch), rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("name", sorted(set(ALL) - MICRO_BATCH_SCOPE))
@given(rollouts=batches())
@few
def test_weights_do_not_depend_on_the_split_into_micro_batches(
    name: str, rollouts: Rollouts
) -> None:
    whole = token_weights(RECIPES[name], rollouts)
    for parts in (2, len(rollouts)):
        assert torch.equal(
            token_weights(RECIPES[name], rollouts, split(len(rollouts), parts)), whole
        )


def test_exception_bnpo_weights_depend_on_the_split_by_this_much() -> None:
    # micro-batches of 2 and 8 tokens: 1/(2·2) and 1/(2·8) instead of 1/10; A = +-1/sqrt(2) (ddof 1, G = 2)
    rollouts = Rollouts.from_lengths([2, 8], rewards=[1, 0])
    a = 0.5**0.5
    assert token_weights(recipe("bnpo"), rollouts)[:, 0].tolist() == pytest.approx(
        [a / 10, -a / 10]
    )
    cut = token_weights(recipe("bnpo"), rollouts, split(2, 2))
    assert cut[:, 0].tolist() == pytest.approx([a / 4, -a / 16])


def test_exception_tokens_are_chosen_among_those_of_one_backward_pass() -> None:
    # half of the tokens by entropy 1, 2 | 3, 4: of the whole step 3 and 4; of each slice its larger
    rollouts = replace(
        Rollouts.from_lengths([2, 2], rewards=[1, 0]),
        entropy=torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64),
    )
    half = recipe("high_entropy").but(correction=partial(high_entropy, part=0.5))
    plan = half.plan(rollouts)
    a = 0.5**0.5 / 4  # ddof 1, G = 2; one of four tokens
    assert token_weights(half, rollouts).tolist() == [
        [0, 0],
        [pytest.approx(-a), pytest.approx(-a)],
    ]
    leaf = rollouts.logp.clone().requires_grad_()
    for k in (0, 1):
        half.loss(rollouts[k : k + 1].with_logp(leaf[k : k + 1]), plan[slice(k, k + 1)]).backward()
    assert (-leaf.grad).tolist() == [[0, pytest.approx(a)], [0, pytest.approx(-a)]]


def test_exception_bnpo_depends_on_who_shares_a_micro_batch() -> None:
    # lengths 1, 3 | 5, 7: row 0 gets 1/(2·4); with the rows reordered to 1, 5 | 3, 7 it gets 1/(2·6). |A| = sqrt(3)/2.
    rollouts = Rollouts.from_lengths([1, 3, 5, 7], rewards=[1, 0, 1, 0])
    order = torch.tensor([0, 2, 1, 3])
    one = token_weights(recipe("bnpo"), rollouts, split(4, 2))[0, 0]
    two = token_weights(recipe("bnpo"), rollouts[order], split(4, 2))[0, 0]
    assert [one.item(), two.item()] == pytest.approx([3**0.5 / 2 / 8, 3**0.5 / 2 / 12])


@given(rollouts=batches(kinds=("real",)))
@few
def test_step_token_mean_is_the_constant_up_to_n_c_over_tokens(rollouts: Rollouts) -> None:
    base = recipe("dr_grpo")
    by_constant = token_weights(base, rollouts)
    by_tokens = token_weights(base.but(aggregation=step_token_mean), rollouts)
    factor = len(rollouts) * rollouts.max_new_tokens / rollouts.mask.sum().double()  # type: ignore[operator]
    torch.testing.assert_close(by_tokens, factor * by_constant, rtol=1e-12, atol=1e-14)


def test_sequence_mean_is_proportional_to_the_constant_only_for_equal_lengths() -> None:
    for lengths, same in (([4, 4, 4, 4], True), ([4, 4, 4, 5], False)):
        rollouts = Rollouts.from_lengths(lengths, rewards=[1, 0, 0, 1], max_new_tokens=9)
        masks = {"mask": rollouts.mask, "present": torch.ones(4, dtype=torch.bool)}
        assert proportional(sequence_mean(**masks), constant(**masks, max_new_tokens=9)) is same


def test_prompt_scope_is_proportional_to_step_scope_only_for_equal_group_totals() -> None:
    for lengths, same in (([1, 5, 3, 3], True), ([1, 5, 3, 4], False)):
        mask = Rollouts.from_lengths(lengths, rewards=[0] * 4).mask
        inputs = {"group": torch.tensor([0, 0, 1, 1]), "present": torch.ones(4, dtype=torch.bool)}
        assert proportional(prompt_token_mean(mask, **inputs), step_token_mean(mask)) is same


# how the weights answer r -> a·r + c, each group with its own a > 0 and c: "affine" unchanged, "shift" only r -> r + c
# leaves them, "none" neither does, "given" does not look at the reward
SYMMETRY = {
    "reinforce": "none",
    "rloo": "shift",
    "remax": "none",
    "ppo": "given",
    "ppo(gae)": "none",
    "grpo": "affine",
    "grpo(process)": "given",
    "dr_grpo": "shift",
    "dapo": "affine",
    "dapo(step)": "affine",
    "bnpo": "affine",
    "gspo": "affine",
    "gspo_token": "affine",
    "luspo": "affine",
    "gmpo": "affine",
    "cispo": "affine",
    "sapo": "affine",
    "gpg": "shift",
    "opo": "shift",
    "reinforce++": "none",
    "reinforce++(baseline)": "shift",
    "lite_ppo": "none",
    "maxrl": "scale",
    "pass@k": "scale",
    "gdpo": "given",
    "balanced": "affine",
    "vl_norm": "shift",
    "dppo_tv": "affine",
    "dppo_kl": "affine",
    "dro": "affine",
    "kimi": "shift",
    "vespo": "affine",
    "topr": "shift",
    "decoupled_ppo": "affine",
    "grpo(off_policy_mask)": "affine",
    "high_entropy": "affine",
    "clip_cov": "affine",
    "kl_cov": "affine",
    "nsr": "scale",
    "pass@k(training)": "scale",
    "distillation": "given",
    "vapo": "none",
}


def test_every_recipe_states_its_symmetry() -> None:
    assert set(SYMMETRY) == set(ALL)


@pytest.mark.parametrize("name", ALL)
def test_reward_shift_and_scale_per_group_do_what_is_listed(name: str) -> None:
    rollouts = batch(11, kind="real")
    a = torch.tensor([0.5, 3.0, 7.0], dtype=torch.float64)[rollouts.group]
    c = torch.tensor([1.0, -2.0, 0.3], dtype=torch.float64)[rollouts.group]
    weights = token_weights(RECIPES[name], rollouts)

    def same(reward: Tensor) -> bool:
        return torch.allclose(
            token_weights(RECIPES[name], replace(rollouts, reward=reward)),
            weights,
            rtol=1e-9,
            atol=1e-12,
        )

    found = (same(rollouts.reward + c), same(a * rollouts.reward))
    expected = {
        "affine": (True, True),
        "shift": (True, False),
        "scale": (False, True),
        "none": (False, False),
        "given": (True, True),
    }
    assert found == expected[SYMMETRY[name]]


@given(rollouts=batches(kinds=("binary", "real")))
@few
def test_rloo_is_mean_centring_times_g_over_g_minus_1(rollouts: Rollouts) -> None:
    size = (rollouts.group == 0).sum()
    centred = token_weights(recipe("rloo").but(baseline=recipe("grpo").baseline), rollouts)
    torch.testing.assert_close(
        token_weights(recipe("rloo"), rollouts), centred * size / (size - 1), rtol=1e-12, atol=1e-14
    )


@given(rollouts=batches(kinds=("binary", "real")))
@few
def test_on_policy_the_surrogates_share_one_gradient(rollouts: Rollouts) -> None:
    on_policy = replace(rollouts, old_logp=None)
    base = recipe("grpo").but(kl=None)
    expected = token_weights(base, on_policy)
    for other in ("cispo", "gspo", "reinforce"):
        changed = token_weights(base.but(surrogate=RECIPES[other].surrogate), on_policy)
        torch.testing.assert_close(changed, expected, rtol=1e-12, atol=1e-14)


@given(rollouts=batches(kinds=("binary", "real")))
@few
def test_on_policy_gspo_carries_the_length_bias_and_its_sequence_sum_does_not(
    rollouts: Rollouts,
) -> None:
    on_policy = replace(rollouts, old_logp=None)
    gspo = token_weights(recipe("gspo"), on_policy)
    torch.testing.assert_close(
        gspo, token_weights(recipe("grpo").but(kl=None), on_policy), rtol=1e-12, atol=1e-14
    )
    summed = token_weights(recipe("gspo").but(aggregation=sequence_sum), on_policy)
    plain = token_weights(recipe("grpo").but(kl=None, aggregation=sequence_sum), on_policy)
    torch.testing.assert_close(summed, plain, rtol=1e-12, atol=1e-14)


ALIASES = {frozenset({"gspo", "gspo_token"})}


def test_no_two_recipes_give_equal_weights_on_one_off_policy_batch() -> None:
    rollouts, micro_batch = batch(5, kind="binary", spread=0.8), split(12, 3)
    weights = {name: token_weights(one, rollouts, micro_batch) for name, one in RECIPES.items()}
    equal = {
        frozenset(pair)
        for pair in combinations(ALL, 2)
        if torch.allclose(weights[pair[0]], weights[pair[1]], atol=1e-9)
    }
    assert equal == ALIASES


@pytest.mark.parametrize("name", ALL)
def test_float32_agrees_with_float64(name: str) -> None:
    rollouts = batch(7)
    narrow = token_weights(RECIPES[name], rollouts.to(torch.float32))
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(
        narrow.double(), token_weights(RECIPES[name], rollouts), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("name", ALL)
def test_bf16_log_probs_give_finite_float32_weights(name: str) -> None:
    rollouts = batch(7)
    low = {
        k: getattr(rollouts, k).bfloat16() for k in ("logp", "old_logp", "ref_logp", "sampler_logp")
    }
    weights = token_weights(
        RECIPES[name], replace(rollouts, **low, reward=rollouts.reward.bfloat16())
    )
    assert weights.dtype == torch.float32
    assert torch.isfinite(weights).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("name", ALL)
def test_cuda_agrees_with_cpu(name: str) -> None:
    rollouts = batch(7)
    weights = token_weights(
        RECIPES[name], rollouts.to("cuda"), split(len(rollouts), 2).cuda()
    ).cpu()
    torch.testing.assert_close(
        weights,
        token_weights(RECIPES[name], rollouts, split(len(rollouts), 2)),
        rtol=1e-9,
        atol=1e-12,
    )


@pytest.mark.parametrize("name", ALL)
def test_gradcheck_of_the_loss(name: str) -> None:
    # finite differences: independent of torch's own backward formulas. A detached ratio has no primitive.
    if name in DETACHED:
        pytest.skip(
            "the detached ratio makes the gradient differ from the slope of the value, on purpose"
        )
    rollouts = batch(21, groups=2, size=2, width=3)
    plan = RECIPES[name].plan(rollouts)
    assert torch.autograd.gradcheck(
        lambda logp: RECIPES[name].loss(rollouts.with_logp(logp), plan),
        rollouts.logp.clone().requires_grad_(),
        eps=1e-7,
        atol=1e-6,
    )


def test_custom_recipe_equals_the_catalog_entry_it_rebuilds() -> None:
    grpo = recipe("grpo")
    assert (
        Recipe(
            baseline=grpo.baseline,
            scale=grpo.scale,
            surrogate=grpo.surrogate,
            kl=grpo.kl,
            aggregation=grpo.aggregation,
        )
        == grpo
    )
