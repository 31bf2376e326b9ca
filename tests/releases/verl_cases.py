"""What is run of every verl release: options by their names in ``data/verl.toml``, and batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from batches import batch
from torch import Tensor

from grpo_edu import Rollouts

RELEASES = {  # the release as the tables name it -> its last patch
    "0.2.0": "0.2.0.post2",
    "0.3.0": "0.3.0.post1",
    **{x: x for x in ("0.4.0", "0.4.1", "0.5.0", "0.6.0", "0.6.1", "0.7.0", "0.7.1", "0.8.0")},
    "0.9.0": "0.9.0",
    "0.9.1": "0.9.1",
}
BOUNDARIES = ("0.2.0", "0.4.0", "0.6.0", "0.7.0", "0.7.1", "0.8.0", "0.9.1")  # CI runs these
WIDTH = 7
ESTIMATORS = ("grpo", "grpo_vectorized", "rloo", "rloo_vectorized", "opo", "gpg", "grpo_passk")
ESTIMATORS += ("remax", "gae", "gdpo", "reinforce_plus_plus", "reinforce_plus_plus_baseline")
MODES = ("token-mean", "token-sum", "seq-mean-token-mean", "seq-mean-token-sum")
MODES += ("seq-mean-token-sum-norm",)
LOSSES = ("vanilla", "gspo", "sapo", "cispo", "gpg", "geo_mean")
KL_TYPES = ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3", "kl+", "k1+", "mse+", "k2+")
KL_TYPES += ("low_var_kl+", "k3+")
GRPO: dict[str, Any] = {"adv_estimator": "grpo"}
KL = {"use_kl_loss": True, "kl_loss_coef": 0.1}
FEW: dict[str, dict[str, Any]] = {
    **{f"adv_estimator={x}": {"adv_estimator": x} for x in ESTIMATORS},
    "gae, gamma, lam": {"adv_estimator": "gae", "gamma": 0.99, "lam": 0.9},
    "reinforce_plus_plus, gamma": {"adv_estimator": "reinforce_plus_plus", "gamma": 0.9},
    "grpo, no std": {**GRPO, "norm_adv_by_std_in_grpo": False},
    "grpo_passk, no std": {"adv_estimator": "grpo_passk", "norm_adv_by_std_in_grpo": False},
    "grpo_vectorized, no std": {
        "adv_estimator": "grpo_vectorized",
        "norm_adv_by_std_in_grpo": False,
    },
    **{
        f"{x}, KL in the reward": {"adv_estimator": x, "use_kl_in_reward": True, "kl_coef": 0.05}
        for x in ESTIMATORS
        if x not in ("gdpo", "grpo_vectorized")
    },
    "clip_ratio=0.1": {**GRPO, "clip_ratio": 0.1},
    "clip higher": {**GRPO, "clip_ratio_low": 0.1, "clip_ratio_high": 0.28},
    "clip_ratio_c=1.5": {**GRPO, "clip_ratio_c": 1.5},
    **{f"kl_loss_type={x}": {**GRPO, **KL, "kl_loss_type": x} for x in KL_TYPES},
    "loss_scale_factor": {
        **GRPO,
        "loss_agg_mode": "seq-mean-token-sum-norm",
        "loss_scale_factor": 30,
    },
    "gspo, its clip": {
        **GRPO,
        "loss_mode": "gspo",
        "clip_ratio_low": 3e-4,
        "clip_ratio_high": 4e-4,
    },
    "cispo, cap 5": {**GRPO, "loss_mode": "cispo", "clip_ratio_low": 1.0, "clip_ratio_high": 4.0},
    "sapo, tau": {**GRPO, "loss_mode": "sapo", "tau_pos": 0.8, "tau_neg": 2.0},
    "rollout_is=token": {**GRPO, **KL, "rollout_is": "token", "rollout_is_threshold": 1.2},
    "rollout_is=sequence": {**GRPO, "rollout_is": "sequence", "rollout_is_threshold": 1.2},
    "rollout_is=token, two bounds": {
        **GRPO,
        "rollout_is": "token",
        "rollout_is_low": 0.8,
        "rollout_is_high": 1.3,
    },
    "gspo, rollout_is=token": {
        **GRPO,
        "loss_mode": "gspo",
        "rollout_is": "token",
        "rollout_is_threshold": 1.2,
    },
}
GRID = {
    f"{loss}, {mode}{', KL' if kl else ''}": {
        **GRPO,
        **kl,
        "loss_mode": loss,
        "loss_agg_mode": mode,
    }
    for loss in LOSSES
    for mode in MODES
    for kl in ({}, KL)
}
PLAIN = {"nothing but grpo": GRPO, **FEW, **GRID}
DYNAMIC = {
    f"{name}, use_dynamic_bsz": {**options, "use_dynamic_bsz": True}
    for name, options in {"nothing but grpo": GRPO, **GRID}.items()
}
NEW_WORKERS = {
    f"{name}, new workers": {**options, "workers": "disable"}
    for name, options in {"loss_scale_factor": FEW["loss_scale_factor"], **GRID}.items()
}
CASES = {
    name: {"max_response_length": WIDTH, "rollout_n": 4, **options}
    for name, options in {**PLAIN, **DYNAMIC, **NEW_WORKERS}.items()
}
SPLITS = {
    "one": torch.zeros(12, dtype=torch.long),
    "three": torch.arange(12) // 4,
    "unequal": torch.tensor([0] * 2 + [1] * 7 + [2] * 3),
}
SEEDS = (1, 2)


def splits(options: dict[str, Any]) -> tuple[str, ...]:
    """Micro-batches of unequal numbers of rows come with dynamic batches only."""
    return ("three", "unequal") if options.get("use_dynamic_bsz") else ("one", "three")


def gives_nan(options: dict[str, Any], version: str) -> bool:
    """Up to 0.6.0 a mean over the tokens of a fully masked row is 0/0."""
    mean = options.get("loss_agg_mode") == "seq-mean-token-mean"
    fixed = options.get("loss_mode") == "geo_mean" and not options.get("use_kl_loss")
    return version < "0.6.1" and (options.get("loss_mode") == "gspo" or (mean and not fixed))


def by_engine(options: dict[str, Any], version: str) -> bool:
    """The engine workers: from 0.8 on, in 0.7 where the legacy ones are disabled."""
    return version >= "0.8" or options.get("workers") == "disable"


def rollouts_for(options: dict[str, Any], seed: int, empty: bool) -> Rollouts:
    """Off policy, unequal lengths, a dead group, where ``empty`` fully masked rows, and, where the
    estimator takes it, a group of one.
    """
    drawn = batch(seed, width=WIDTH, kind="real" if seed % 2 else "binary")
    mask = drawn.mask.clone()
    if not empty:
        mask[:, 0] = True
    mask[0, 0] = mask[4, 0] = mask[11, 0] = True
    mask[int(drawn.lengths.argmax())] = True
    reward = drawn.reward.clone()
    reward[:4] = 0.75
    alone = options["adv_estimator"] not in ("grpo_passk", "gdpo")
    group = torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3]) if alone else drawn.group
    reward = torch.where(mask.any(dim=1), reward, 0.0)  # a reward stands at the last token
    return replace(
        drawn,
        mask=mask,
        reward=reward,
        group=group,
        reward_parts=torch.stack([reward, drawn.reward_parts[:, 1]], dim=1),
        token_reward=None,
        max_new_tokens=WIDTH,
    )


def near(options: dict[str, Any]) -> float:
    """Relative error: float64, but verl keeps these two estimators' statistics in float32."""
    return 1e-6 if options["adv_estimator"] in ("grpo_vectorized", "gdpo") else 1e-9


def relative_error(theirs: Tensor, ours: Tensor) -> float:
    return float((theirs - ours).abs().max() / theirs.abs().max().clamp(min=1e-12))
