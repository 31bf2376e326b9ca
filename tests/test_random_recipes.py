"""The invariants hold for every recipe that can be built, not only for the catalog: each axis is drawn at random.

Exceptions are stated where they are made: the micro-batch scope depends on who shares a micro-batch,
and the padded width on the padding.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial

import torch
from batches import batch, product_of
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_edu import Recipe, Rollouts, token_weights
from grpo_edu.objective import advantages as adv
from grpo_edu.objective import aggregation as agg
from grpo_edu.objective import corrections as cor
from grpo_edu.objective import kl, rewards
from grpo_edu.objective import surrogates as sur
from grpo_edu.objective.filters import (
    drop_dead_groups,
    drop_raw_dead_groups,
    truncation_mask,
)
from grpo_edu.rollouts import PER_TOKEN
from grpo_edu.weights import factors, split

eps = st.sampled_from([0.0, 3e-4, 0.2, 0.28, 0.9])
ddof = st.sampled_from([0, 1])
small = st.sampled_from([0.0, 1e-6, 1e-4])
flag = st.booleans()


def choices(function, **values):
    """A choice with each of its settings drawn."""
    return st.builds(partial, st.just(function), **values)


BASELINES = st.one_of(
    *map(
        st.just,
        [
            adv.no_baseline,
            adv.given,
            adv.group_mean,
            adv.leave_one_out,
            adv.batch_mean,
            adv.greedy,
            adv.length_weighted_mean,
            adv.live_group_mean,
            adv.nonzero_group_mean,
            adv.best_minus_second,
        ],
    ),
    choices(adv.gae, gamma=st.sampled_from([0.9, 1.0]), lam=st.sampled_from([0.0, 0.95, 1.0])),
    choices(adv.return_to_go, gamma=st.sampled_from([0.9, 1.0])),
    choices(adv.process_supervision, ddof=ddof, eps=small),
    choices(adv.pass_at_k, k=st.sampled_from([1, 2])),
    choices(adv.decoupled_rewards, ddof=ddof, eps=small),
    choices(
        adv.when_alone,
        baseline=st.sampled_from([adv.group_mean, adv.leave_one_out]),
        keep=st.sampled_from([0.0, 1.0]),
    ),
)
SCALES = st.one_of(
    st.just(adv.unscaled),
    st.just(adv.group_mean_scale),
    choices(adv.group_std, ddof=ddof, eps=small),
    choices(adv.batch_std, ddof=ddof, eps=small),
    choices(adv.leave_one_out_std, ddof=ddof, eps=small),
    choices(adv.batch_whiten, ddof=ddof, eps=small),
    choices(adv.token_whiten, ddof=ddof, eps=small),
    choices(
        adv.token_whiten_variance,
        ddof=ddof,
        eps=st.just(1e-8),
        floor=st.just(1e-8),
        count_eps=st.just(1e-8),
    ),
)
SURROGATES = st.one_of(
    st.just(sur.reinforce),
    choices(sur.ppo_clip, eps_low=eps, eps_high=eps),
    choices(sur.dual_clip, eps_low=eps, eps_high=eps, cap=st.sampled_from([1.0, 1.5, 3.0])),
    choices(sur.gspo, eps_low=eps, eps_high=eps),
    choices(
        sur.gspo_token, eps_low=eps, eps_high=eps, log_cap=st.sampled_from([None, 0.0, 0.1, 10.0])
    ),
    choices(sur.sequence_product, eps_low=eps, eps_high=eps),
    choices(sur.gmpo, eps_low=eps, eps_high=eps),
    choices(sur.cispo, low=st.sampled_from([0.0, 0.9]), high=st.sampled_from([1.0, 1.1, 5.0])),
    choices(sur.sapo, tau_pos=st.just(1.0), tau_neg=st.just(1.05)),
)
CORRECTIONS = st.one_of(
    st.none(),
    choices(cor.truncated_is, cap=st.sampled_from([1.0, 2.0]), low=st.sampled_from([None, 0.5])),
    choices(cor.masked_is, low=st.just(0.5), high=st.just(2.0)),
    choices(cor.sequence_truncated_is, cap=st.just(2.0)),
    choices(cor.sequence_masked_is, cap=st.just(3.0)),
)
beta = st.sampled_from([0.001, 0.04, 1.0])
KLS = st.one_of(
    st.none(),
    choices(kl.k1, beta=beta),
    choices(kl.k2, beta=beta),
    choices(kl.k3, beta=beta, cap=st.sampled_from([None, 0.05, 10.0])),
    choices(kl.k3_ratio, beta=beta),
    choices(kl.k3_sequence_ratio, beta=beta),
    choices(kl.k_abs, beta=beta),
    choices(kl.k2_gradient, beta=beta, value=st.sampled_from([kl.k1, kl.k3, kl.k_abs])),
)
PLAIN_AGGREGATIONS = st.one_of(
    st.just(agg.step_token_mean),
    st.just(agg.token_sum),
    choices(agg.sequence_mean, count_masked_rows=flag),
    choices(agg.sequence_sum, count_masked_rows=flag),
    choices(agg.prompt_token_mean, count_masked_rows=flag),
    choices(agg.generation_token_mean, tokens=st.just(90.0), steps=st.just(2)),
    choices(agg.constant, length=st.sampled_from([None, 64.0]), count_masked_rows=flag),
    choices(agg.constant_sum, length=st.sampled_from([None, 64.0])),
    choices(agg.balanced, count_masked_rows=flag),
    choices(agg.length_power, alpha=st.sampled_from([0.0, 0.75, 1.0]), count_masked_rows=flag),
)
BY_MICRO_BATCH = st.one_of(
    st.just(agg.micro_batch_token_mean),
    choices(
        agg.per_micro_batch,
        inner=st.sampled_from([agg.sequence_mean, agg.step_token_mean, agg.constant]),
        average=flag,
    ),
    choices(agg.padded_width, count_masked_rows=flag),
)
SHAPINGS = st.lists(
    st.one_of(
        choices(rewards.overlong_penalty, cache=st.just(2)),
        choices(rewards.kl_in_reward, beta=beta),
        choices(rewards.kl_in_token_reward, beta=beta),
    ),
    max_size=2,
).map(tuple)
FILTERS = st.lists(
    st.one_of(
        st.sampled_from([drop_dead_groups, drop_raw_dead_groups]),
        choices(truncation_mask, in_baseline=flag),
    ),
    max_size=2,
).map(tuple)


@st.composite
def recipes(draw: st.DrawFn, aggregations=PLAIN_AGGREGATIONS) -> Recipe:
    """One choice per axis, drawn at random; combinations that a recipe warns about run too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Recipe(
            name="random",
            rewards=draw(SHAPINGS),
            filters=draw(FILTERS),
            baseline=draw(BASELINES),
            scale=draw(SCALES),
            surrogate=draw(SURROGATES),
            correction=draw(CORRECTIONS),
            kl=draw(KLS),
            aggregation=draw(aggregations),
            kl_aggregation=draw(st.one_of(st.none(), aggregations)),
        )


@st.composite
def rollouts_of(draw: st.DrawFn) -> Rollouts:
    """A random batch: on or off policy, dead groups, fully masked rows, some rows without a score."""
    made = batch(
        draw(st.integers(0, 10**6)),
        groups=draw(st.integers(1, 3)),
        size=draw(st.integers(2, 5)),
        width=draw(st.integers(1, 7)),
        kind=draw(st.sampled_from(["binary", "real", "dead"])),
        spread=draw(st.sampled_from([0.0, 0.3, 1.0, 30.0])),
    )
    if draw(flag):
        keep = torch.arange(len(made)) % 5 != 2
        made = replace(made, scored=keep)
    return made


REFUSED = ("one per completion", "scored completions per prompt", "cache is")


def fits(recipe: Recipe, rollouts: Rollouts):
    """The plan, or None where the recipe says that it cannot be on this batch."""
    try:
        return recipe.plan(rollouts, split(len(rollouts), 2))
    except ValueError as refusal:
        if not any(reason in str(refusal) for reason in REFUSED):
            raise
        return None


@given(recipe=recipes(st.one_of(PLAIN_AGGREGATIONS, BY_MICRO_BATCH)), rollouts=rollouts_of())
@settings(max_examples=500, deadline=None)
def test_the_ledger_is_minus_autograd(recipe: Recipe, rollouts: Rollouts) -> None:
    plan = fits(recipe, rollouts)
    if plan is None:
        return
    parts = factors(recipe, rollouts, plan)
    push = token_weights(recipe, rollouts, split(len(rollouts), 2))
    assert torch.isfinite(push).all()
    torch.testing.assert_close(product_of(parts), push, rtol=1e-9, atol=1e-12)


@given(recipe=recipes(), rollouts=rollouts_of(), seed=st.integers(0, 99))
@settings(max_examples=150, deadline=None)
def test_order_names_padding_and_splits_change_nothing(
    recipe: Recipe, rollouts: Rollouts, seed: int
) -> None:
    plan = fits(recipe, rollouts)
    if plan is None:
        return
    push = token_weights(recipe, rollouts)
    order = torch.randperm(len(rollouts), generator=torch.Generator().manual_seed(seed))
    close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-12)
    close(token_weights(recipe, rollouts[order]), push[order])
    close(token_weights(recipe, replace(rollouts, group=50 - 3 * rollouts.group)), push)
    padded = {
        name: torch.nn.functional.pad(value, (0, 2))
        for name in (*PER_TOKEN, "mask", "given_advantage")
        if (value := getattr(rollouts, name)) is not None
    }
    close(token_weights(recipe, replace(rollouts, **padded))[:, :-2], push)
    whole = recipe.plan(rollouts)
    leaf = rollouts.logp.clone().requires_grad_()
    for rows in (slice(0, 1), slice(1, None)):
        part = rollouts.with_logp(leaf)[rows]
        recipe.loss(part, whole[rows]).backward()
    close(0.0 - leaf.grad, push)
