"""Our recipes against verl 0.9.1's own ``core_algos.py``: value and gradient, float64, to 1e-9, over several micro-batches."""

from __future__ import annotations

from dataclasses import replace

import parity_verl
import pytest
import torch
from batches import batch, product_of

from grpo_edu import Rollouts
from grpo_edu.frameworks.tables import NotCovered, framework, presets, recipe_of
from grpo_edu.weights import factors, split

if (why := parity_verl.missing()) is not None:
    pytest.skip(why, allow_module_level=True)
pytestmark = pytest.mark.parity

ESTIMATORS = [
    "grpo",
    "grpo_vectorized",
    "rloo",
    "rloo_vectorized",
    "opo",
    "gpg",
    "grpo_passk",
    "remax",
    "gae",
    "gdpo",
]
WHITENED = ["reinforce_plus_plus", "reinforce_plus_plus_baseline"]
AGGREGATIONS = [
    "token-mean",
    "token-sum",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum-norm",
]
KL_TYPES = [
    "kl",
    "k1",
    "abs",
    "mse",
    "k2",
    "low_var_kl",
    "k3",
    "low_var_kl+",
    "k3+",
    "k1+",
    "k2+",
    "kl+",
]
FLOAT32 = {
    "grpo_vectorized": 1e3
}  # verl computes its group statistics in float32, whatever comes in: equal to 1e-6
GRPO = {"adv_estimator": "grpo"}
CASES: dict[str, dict] = {
    **{f"advantage {x}": {"adv_estimator": x} for x in (*ESTIMATORS, *WHITENED)},
    "advantage gae, lam .9": {"adv_estimator": "gae", "gamma": 0.99, "lam": 0.9},
    "advantage r++, gamma .9": {"adv_estimator": "reinforce_plus_plus", "gamma": 0.9},
    "no std": {**GRPO, "norm_adv_by_std_in_grpo": False},
    "no std, pass@k": {"adv_estimator": "grpo_passk", "norm_adv_by_std_in_grpo": False},
    "no std, vectorized": {"adv_estimator": "grpo_vectorized", "norm_adv_by_std_in_grpo": False},
    **{f"KL in reward, {x}": {"adv_estimator": x, "use_kl_in_reward": True, "kl_coef": 0.05} for x in ("grpo", "rloo", "gae", *WHITENED)},
    **{f"{x}": {**GRPO, "loss_agg_mode": x} for x in AGGREGATIONS},
    "dr_grpo": {**GRPO, "norm_adv_by_std_in_grpo": False, "loss_agg_mode": "seq-mean-token-sum-norm", "loss_scale_factor": 3000},
    **{f"{m}, {x}": {**GRPO, "loss_mode": m, "loss_agg_mode": x} for m in ("gspo", "sapo", "cispo", "gpg", "geo_mean") for x in AGGREGATIONS},
    "clip-higher": {**GRPO, "clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": 10.0},
    "dual clip 1.5": {**GRPO, "clip_ratio_c": 1.5},
    "gspo": {**GRPO, "loss_mode": "gspo", "clip_ratio_low": 3e-4, "clip_ratio_high": 4e-4, "loss_agg_mode": "seq-mean-token-mean"},
    "cispo C06": {**GRPO, "loss_mode": "cispo", "clip_ratio_low": 10, "clip_ratio_high": 0.2},
    "gmpo": {**GRPO, "loss_mode": "geo_mean", "clip_ratio_low": 0.4, "clip_ratio_high": 0.4, "use_kl_loss": True, "kl_loss_coef": 0.1},
    **{f"KL {k}": {**GRPO, "use_kl_loss": True, "kl_loss_coef": 0.1, "kl_loss_type": k} for k in KL_TYPES},
    **{f"KL, {m}, {x}": {**GRPO, "use_kl_loss": True, "loss_mode": m, "loss_agg_mode": x} for m in ("vanilla", "sapo", "geo_mean") for x in AGGREGATIONS},
    "TIS": {**GRPO, "rollout_is": "token", "rollout_is_threshold": 1.2, "use_kl_loss": True},
}  # fmt: skip
SPLITS = {
    "one": split(12, 1),
    "three": split(12, 3),
    "unequal": torch.tensor([0] * 2 + [1] * 7 + [2] * 3),
}


def rollouts_for(options: dict, seed: int, kind: str) -> Rollouts:
    """Unequal lengths, holes in the mask, empty rows, a dead group and, where verl takes it, a group of one."""
    one = batch(seed, groups=3, size=4, width=7, kind=kind)
    mask = one.mask & (
        torch.rand(one.mask.shape, generator=torch.Generator().manual_seed(seed)) < 0.8
    )
    mask[int(one.lengths.argmax()), -1] = mask[0, 0] = mask[4, 0] = mask[11, 0] = True
    reward = one.reward.clone()
    reward[:4] = 0.75  # a dead group
    alone = options.get("adv_estimator") not in ("grpo_passk", "gdpo")
    group = torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3]) if alone else one.group
    reward = torch.where(
        mask.any(dim=1), reward, 0.0
    )  # a reward stands on the last token: an empty row has none
    return replace(
        one, mask=mask, reward=reward, group=group, reward_parts=reward[:, None], token_reward=None
    )


def check(options: dict, rollouts: Rollouts, micro_batch: torch.Tensor, scale: float = 1.0) -> None:
    scale = max(scale, FLOAT32.get(options["adv_estimator"], 1.0))
    recipe = recipe_of(framework("verl"), options, "0.9.1")
    theirs_leaf, ours_leaf = (rollouts.logp.clone().requires_grad_() for _ in range(2))
    theirs = parity_verl.step(options, rollouts, theirs_leaf, micro_batch)
    ours = recipe.loss(rollouts.with_logp(ours_leaf), micro_batch=micro_batch)
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-9 * scale)
    their_gradient = torch.autograd.grad(theirs, theirs_leaf)[0]
    torch.testing.assert_close(
        torch.autograd.grad(ours, ours_leaf)[0],
        their_gradient,
        rtol=1e-9 * max(1.0, FLOAT32.get(options["adv_estimator"], 1.0)),
        atol=1e-9 * scale,
    )
    ledger = product_of(factors(recipe, rollouts, recipe.plan(rollouts, micro_batch)))
    torch.testing.assert_close(
        ledger,
        -their_gradient,
        rtol=1e-9 * max(1.0, FLOAT32.get(options["adv_estimator"], 1.0)),
        atol=1e-9 * scale,
    )


@pytest.mark.parametrize("kind", ["binary", "real"])
@pytest.mark.parametrize("parts", SPLITS)
@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient_equal_verl(name: str, parts: str, kind: str) -> None:
    options = {"max_response_length": 10, "rollout_n": 4, **CASES[name]}
    check(options, rollouts_for(options, 29 + len(name), kind), SPLITS[parts])


@pytest.mark.parametrize("name", CASES)
def test_advantages_equal_verl(name: str) -> None:
    rollouts = rollouts_for(CASES[name], 7, "real")
    ours = recipe_of(framework("verl"), CASES[name], "0.9.1").plan(rollouts).advantage
    near = 1e-9 * FLOAT32.get(CASES[name]["adv_estimator"], 1.0)
    torch.testing.assert_close(
        ours, parity_verl.advantages(CASES[name], rollouts), rtol=near, atol=near
    )


@pytest.mark.parametrize("loss_mode", ["vanilla", "gspo", "cispo", "sapo"])
def test_the_limits_of_log_ratios_are_verls(loss_mode: str) -> None:
    # log-ratios of 12 and 25: gspo stops at 10, the others at 20; beyond the limit there is no gradient (cispo detaches its ratio)
    rollouts = replace(rollouts_for(GRPO, 3, "binary"), sampler_logp=None)
    far = torch.full_like(rollouts.logp, -0.5)
    far_old = torch.where(rollouts.group[:, None] == 1, -12.5, -25.5).expand_as(far).clone()
    options = {**GRPO, "loss_mode": loss_mode, "clip_ratio_high": 1e9, "clip_ratio_c": 1e12}
    rollouts = replace(rollouts, logp=far, old_logp=far_old, sampler_logp=far)
    check(options, rollouts, SPLITS["three"], scale=1e9)


def test_the_limits_of_k3_are_verls() -> None:
    # d = -3 (k3 = 15.1, cut to 10), -25 (beyond ±20), 1: value and gradient
    one = Rollouts.from_lengths([3, 3], [1, 0], logp=-30.0)
    distance = torch.tensor([[3.0, 25.0, -1.0]] * 2, dtype=torch.float64)
    rollouts = replace(one, old_logp=one.logp, ref_logp=one.logp + distance, sampler_logp=one.logp)
    check({**GRPO, "use_kl_loss": True, "kl_loss_coef": 1.0}, rollouts, split(2, 1))


def test_geo_mean_with_k_micro_batches_is_k_times_the_whole() -> None:
    options = {**GRPO, "loss_mode": "geo_mean"}
    rollouts = rollouts_for(options, 3, "binary")
    whole, thirds = (torch.zeros_like(rollouts.logp) for _ in range(2))
    for target, parts in ((whole, "one"), (thirds, "three")):
        leaf = rollouts.logp.clone().requires_grad_()
        target += torch.autograd.grad(
            parity_verl.step(options, rollouts, leaf, SPLITS[parts]), leaf
        )[0]
    torch.testing.assert_close(thirds, 3 * whole, rtol=1e-9, atol=1e-12)


def test_a_called_row_count_excludes_masked_rows_and_the_trainers_constant_does_not() -> None:
    # lengths 2, 0: without global_batch_size verl divides by 1 row, its trainer by the constant 2
    core = parity_verl.core_algos()
    loss, mask = torch.ones(2, 2, dtype=torch.float64), torch.tensor([[True, True], [False, False]])
    assert core.agg_loss(loss, mask, "seq-mean-token-mean").item() == pytest.approx(1.0)
    assert core.agg_loss(
        loss, mask, "seq-mean-token-mean", global_batch_size=2
    ).item() == pytest.approx(0.5)


@pytest.mark.parametrize("name", sorted(presets("verl", "0.9.1")))
def test_every_preset_of_0_9_1_is_one_of_the_tested_forms(name: str) -> None:
    entry = next(e for e in framework("verl").preset if e.name == name and "<" not in e.versions)
    options = {"max_response_length": 10, "rollout_n": 4, **entry.options}
    if options.pop("filter_groups", False):
        options["filter_groups"] = (
            False  # groups are dropped before the trainer sees them: not part of core_algos
        )
    check(options, rollouts_for(options, 5, "binary"), SPLITS["three"])


@pytest.mark.parametrize(
    "options",
    [
        {"loss_mode": "clip_cov"},
        {"loss_mode": "dro"},
        {"adv_estimator": "optimal_token_baseline"},
        {"rollout_rs": "token_k1"},
    ],
)
def test_what_no_axis_expresses_is_refused(options: dict) -> None:
    with pytest.raises(NotCovered):
        recipe_of(framework("verl"), options, "0.9.1")
