"""The tables of the other frameworks against their own code: gradient, float64, several micro-batches."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from batches import batch

from grpo_edu import Rollouts
from grpo_edu.frameworks.tables import fill_in, framework, recipe_of
from grpo_edu.weights import split

from . import others
from .openrlhf import float64_on_the_cpu

NORM = {"mean_level": "group", "std_level": "group", "kl_ctl": 0.0}
SEQUENCE = {"sequence_level": True, "token_level_loss": False, "kl_coef": 0.0}
PG = {"adv_estimator": "grpo", "worker": "roll.pipeline.rlvr.actor_pg_worker.ActorPGWorker"}
RANGE = {"use_pg_clip_range": True, "pg_clip_low": 3e-2, "pg_clip_high": 4e-2}
KL = {"use_kl_loss": True, "kl_loss_coef": 0.1}
NEMO_IS = {"is_correction": True, "kl_coef": 0.0}
# release or commit: options, in a release range where one is given
CASES: dict[str, dict[str, dict]] = {
    "skyrl": {
        "grpo": {}, "no std": {"grpo_norm_by_std": False}, "rloo": {"advantage_estimator": "rloo"}, "gae": {"advantage_estimator": "gae"},
        "reinforce++": {"advantage_estimator": "reinforce++", "gamma": 0.9}, "maxrl": {"advantage_estimator": "maxrl"},
        **{r: {"loss_reduction": r} for r in ("sequence_mean", "prompt_mean", "token_mean_legacy")},
        "constant": {"loss_reduction": "seq_mean_token_sum_norm", "max_seq_len": 9},
        "dual clip": {"policy_loss_type": "dual_clip", "clip_ratio_c": 1.2}, "gspo": {"policy_loss_type": "gspo", "loss_reduction": "sequence_mean"},
        "cispo": {"policy_loss_type": "cispo"}, "sapo": {"policy_loss_type": "sapo"},
        **{f"kl {k}": {"kl_estimator_type": k, "kl_loss_coef": 0.1} for k in ("k1", "k2", "k3", "abs")},
        "tis token": {"tis_type": "token", "tis_token_cap": 1.1}, "tis sequence": {"tis_type": "sequence", "tis_sequence_cap": 1.1},
    },
    "oat": {
        "drgrpo": {}, "grpo": {"critic_type": "grpo"}, "beta": {"beta": 0.1}, "grpo, beta": {"critic_type": "grpo", "beta": 0.1}, "no tis": {"tis_c": None},
        "reinforce": {"reinforce_update": True}, "no eos": {"ignore_no_eos": True}, "KL in the reward": {"kl_penalty_coef": 0.1},
    },
    "nemo_rl": {
        "grpo": {"kl_coef": 0.0}, "group mean": {"use_leave_one_out_baseline": False, "kl_coef": 0.0}, "no std": {"normalize_rewards": False, "kl_coef": 0.0},
        "sequence mean": {"token_level_loss": False, "kl_coef": 0.0}, "gspo": SEQUENCE, "cispo": {"use_cispo": True, "kl_coef": 0.0}, "dual clip": {"ratio_clip_c": 1.2, "kl_coef": 0.0},
        "reinforce": {"disable_ppo_ratio": True, "kl_coef": 0.0}, "on policy ratio": {"force_on_policy_ratio": True, "kl_coef": 0.0},
        "overlong": {"overlong_filtering": True, "kl_coef": 0.0}, "k3, one update": {"kl_coef": 0.1},
        "tis": {**NEMO_IS, "is_type": "tis", "is_cap": 1.1}, "icepop": {**NEMO_IS, "is_type": "icepop", "is_low": 0.8, "is_cap": 1.2}, "gspo, tis": {**SEQUENCE, **NEMO_IS, "is_type": "tis", "is_cap": 1.1},
    },
    "slime": {
        "grpo": {}, "no std": {"disable_std": True}, "rewards as they are": {"no_group_norm": True}, "per token": {"per_token": True}, "clip-higher": {"eps_clip_high": 0.28}, "dual clip": {"eps_clip_c": 1.2},
        "gspo": {"advantage_estimator": "gspo", "eps_clip": 3e-2}, "cispo": {"advantage_estimator": "cispo"}, "reinforce++ baseline": {"advantage_estimator": "reinforce_plus_plus_baseline"},
        **{f"kl {k}": {**KL, "kl_loss_type": k} for k in ("k1", "k2", "k3", "low_var_kl")}, "unbiased kl": {**KL, "kl_loss_type": "k3", "use_unbiased_kl": True}, "tis": {"use_tis": True, "tis_clip": 1.1},
    },
    "open_instruct": {
        "default": {}, "standard": {"advantage_normalization_type": "standard"}, "cispo": {"loss_fn": "cispo"}, "constant": {"loss_denominator": 50.0}, "no rho": {"use_rho_correction": False},
        "rho cap": {"rho_clamp_high": 1.1}, **{f"kl {k}": {"kl_estimator": k} for k in (0, 1, 2)}, "no kl": {"beta": 0.0},
    },
    "rlhf_book": {**{k: {"loss": k} for k in ("grpo", "drgrpo", "gspo", "rloo", "reinforce", "cispo", "sapo", "dapo", "maxrl")}, "kl2": {"beta": 0.1, "kl_estimator": "kl2"}, "cispo, own bounds": {"loss": "cispo", "clip_eps_lo": 0.1, "clip_eps_hi": 0.3}},
    "easyr1": {
        "in the reward": {}, "no kl": {"disable_kl": True}, "rloo": {"adv_estimator": "rloo", "disable_kl": True}, "reinforce++": {"adv_estimator": "reinforce_plus_plus", "disable_kl": True, "gamma": 0.9},
        "reinforce++, kl": {"adv_estimator": "reinforce_plus_plus", "kl_coef": 0.1}, "gspo": {"loss_type": "gspo", "disable_kl": True}, "gspo_token": {"loss_type": "gspo_token", "disable_kl": True}, "cispo": {"loss_type": "cispo", "disable_kl": True},
        "sapo": {"loss_type": "sapo", "disable_kl": True}, "dual clip": {"clip_dual": 1.4, "disable_kl": True}, **{f"kl {k}": {"use_kl_loss": True, "kl_penalty": k, "kl_coef": 0.1} for k in ("kl", "abs", "mse", "low_var_kl")},
    },
    "roll": {
        "grpo": {"adv_estimator": "grpo"}, "no norm": {"adv_estimator": "reinforce"}, "group, batch": {"adv_estimator": "reinforce", "norm_mean_type": "group", "norm_std_type": "batch"},
        "batch": {"adv_estimator": "reinforce", "norm_mean_type": "batch", "norm_std_type": "batch"}, "whitened": {"adv_estimator": "reinforce", "whiten_advantages": True},
        **{m: {"adv_estimator": "grpo", "loss_agg_mode": m} for m in ("token-mean", "seq-mean-token-sum")}, "dual clip": {"adv_estimator": "grpo", "dual_clip_loss": True},
        "clip range": {"adv_estimator": "grpo", **RANGE}, "gspo": {"adv_estimator": "grpo", "importance_sampling": "seq", **RANGE}, "kl": {"adv_estimator": "grpo", **KL},
        "pg": PG, "pg, ppo": {**PG, "pg_variant": "ppo"}, "pg, cispo": {**PG, "pg_variant": "cispo"}, "pg, tis": {**PG, "pg_variant": "tis"},
    },
    "areal": {
        "grpo": NORM, "no std": {**NORM, "std_level": None}, "no norm": {"kl_ctl": 0.0}, "rloo": {**NORM, "std_level": None, "leave1out": True}, "batch": {"mean_level": "batch", "std_level": "batch", "kl_ctl": 0.0},
        "KL in the reward": {}, "clip-higher": {**NORM, "clip_higher": 0.28}, "dual clip": {**NORM, "c_clip": 1.2}, "gspo": {**NORM, "importance_sampling_level": "sequence", "clip_low": 3e-2}, "sapo": {**NORM, "use_sapo_loss": True},
        "population std": {**NORM, "std_unbiased": False},
    },
    "ms_swift": {
        **{k: {"loss_type": k} for k in ("grpo", "bnpo", "dapo", "dr_grpo", "cispo", "sapo")}, "rloo": {"advantage_estimator": "rloo"}, "no std": {"scale_rewards": "none"}, "batch std": {"scale_rewards": "batch"}, "no kl": {"beta": 0.0},
        "delta": {"delta": 1.25, "beta": 0.0}, "gspo": {"importance_sampling_level": "sequence", "epsilon": 3e-2, "beta": 0.0}, "gspo token": {"importance_sampling_level": "sequence_token", "epsilon": 3e-2, "beta": 0.0},
        "overlong": {"overlong_filter": True, "beta": 0.0}, "tis": {"is_mode": "token_truncate", "is_threshold": 1.1, "beta": 0.0}, "cispo cap": {"loss_type": "cispo", "epsilon_high": 5.0},
    },
    "unsloth": {
        **{k: {"loss_type": k} for k in ("grpo", "bnpo", "dapo", "dr_grpo", "cispo", "sapo", "luspo")}, "beta": {"beta": 0.1}, "bias correction": {"beta": 0.1, "bias_correction": True}, "batch std": {"scale_rewards": "batch"},
        "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-2, "beta": 0.0}, "delta": {"delta": 1.25}, "truncation mask": {"mask_truncated_completions": True}, "truncation mask, grpo": {"mask_truncated_completions": True, "loss_type": "grpo"},
    },
}  # fmt: skip
CASES["miles"] = {name: options for name, options in CASES["slime"].items() if name != "cispo"}
RELEASES = {
    "skyrl": ("skyrl-0.1.0", "skyrl-0.2.0", "skyrl-0.3.0"),
    "oat": ("oat_llm-0.2.4",),
    "nemo_rl": ("nemo_rl-7ea279a",),
    "slime": ("slime-624b824",),
    "miles": ("miles-31f1ca9",),
    "open_instruct": ("open_instruct-e6c3044",),
    "rlhf_book": ("rlhf_book-a66b0bf",),
    "easyr1": ("easyr1-b44b311",),
    "roll": ("roll-8eb27cc",),
    "areal": ("areal-1.0.4",),
    "ms_swift": ("ms_swift-4.6.0",),
    "unsloth": ("unsloth_zoo-2026.10.9",),
}
RUN = {"miles": others.slime}
NEEDS_EQUAL_PARTS = ("token_mean_legacy",)
NEEDS_TOKENS = ("oat", "ms_swift", "rlhf_book")  # a row without tokens gives NaN there


def version_of(who: str, release: str) -> str:
    number = release.rsplit("-", 1)[1]
    return number if number[0].isdigit() and "." in number else framework(who).version


def has(who: str, options: dict, version: str) -> bool:
    """Does the release have these options and values?"""
    return all(framework(who).has(name, value, version) for name, value in options.items())


PAIRS = [
    (who, release, name)
    for who, releases in RELEASES.items()
    for release in releases
    for name, options in CASES[who].items()
    if has(who, options, version_of(who, release))
]


def rollouts_for(who: str, name: str, seed: int) -> Rollouts:
    """Unequal lengths, a dead group; off policy, but for a KL term that needs one update per rollout."""
    one = batch(seed + len(name), kind="binary" if seed == 11 else "real")
    reward = one.reward.clone()
    reward[:4] = 0.7
    if name == "maxrl":
        reward = reward.abs()
    mask = one.mask
    if who in NEEDS_TOKENS:
        mask = torch.arange(7)[None] < one.lengths.clamp(min=1)[:, None]
    old = one.logp if "one update" in name else one.old_logp
    return replace(one, mask=mask, reward=reward, token_reward=None, old_logp=old)


@pytest.mark.parametrize("parts", ["one", "three equal", "unequal"])
@pytest.mark.parametrize("seed", [3, 11])
@pytest.mark.parametrize(("who", "release", "name"), PAIRS)
def test_the_gradient_is_what_the_table_says(
    who: str, release: str, name: str, seed: int, parts: str
) -> None:
    if parts == "unequal" and (name in NEEDS_EQUAL_PARTS or who == "oat"):
        pytest.skip(f"{who} makes equal micro-batches")
    options = CASES[who][name]
    table, version = framework(who), version_of(who, release)
    rollouts = rollouts_for(who, name, seed)
    micro_batch = {
        "one": split(12, 1),
        "three equal": split(12, 3),
        "unequal": torch.tensor([0] * 2 + [1] * 7 + [2] * 3),
    }[parts]
    leaf = rollouts.logp.clone().requires_grad_()
    run = RUN.get(who) or getattr(others, who)
    torch.set_default_dtype(torch.float64)
    try:
        with float64_on_the_cpu():
            loss = run(release, fill_in(table, options, version), rollouts, leaf, micro_batch)
    finally:
        torch.set_default_dtype(torch.float32)
    theirs = torch.autograd.grad(loss, leaf)[0]
    recipe = recipe_of(table, options, version)
    ours = torch.autograd.grad(
        recipe.loss(rollouts.with_logp(leaf), micro_batch=micro_batch), leaf
    )[0]
    tolerance = 1e-5 if name == "maxrl" and who == "skyrl" else 1e-6
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=1e-9)
    assert theirs.abs().sum() > 0
