"""The table of OpenRLHF against OpenRLHF's own code, release by release: gradient, float64."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from batches import batch

from grpo_edu import Rollouts
from grpo_edu.frameworks.expressions import in_range
from grpo_edu.frameworks.tables import framework, recipe_of
from grpo_edu.weights import split

from .openrlhf import step

# The first and the last release of every range of a rule. (0.7.2 and 0.7.3 stop with an error
# after the first step with a KL loss; 0.7.4 is the first that does not.)
RELEASES = [
    "0.6.0",
    "0.6.1",
    "0.6.3",
    "0.6.4",
    "0.7.0",
    "0.7.1",
    "0.7.4",
    "0.8.0",
    "0.8.2",
    "0.8.4",
    "0.8.5",
    "0.8.6",
    "0.8.8",
    "0.8.9",
    "0.9.0",
    "0.9.1",
    "0.9.2",
    "0.9.3",
    "0.9.4",
    "0.9.10",
    "0.10.0",
    "0.10.2",
    "0.10.3",
    "0.10.4",
    "0.11.0",
    "0.11.2",
]
NO_KL = {"kl_coef": 0.0}
KL = {"use_kl_loss": True, "kl_coef": 0.1}
IS = {"is_correction": True, **NO_KL}
NEW_IS = {"is_level": "token", "is_low": 0.8, "is_high": 1.3, **NO_KL}
# options, and the releases that have them
CASES: dict[str, tuple[dict, str]] = {
    "group_norm": ({"estimator": "group_norm", **NO_KL}, ""),
    "dr_grpo": ({"estimator": "dr_grpo", **NO_KL}, ">=0.6.4"),
    "rloo": ({"estimator": "rloo", **NO_KL}, ""),
    "reinforce": ({"estimator": "reinforce", "gamma": 0.9, **NO_KL}, ""),
    "reinforce, KL in the reward": ({"estimator": "reinforce"}, ""),
    "reinforce_baseline": ({"estimator": "reinforce_baseline", **NO_KL}, ""),
    "gae": ({"estimator": "gae", "lam": 0.9}, ""),
    "flash_reinforce": ({"estimator": "flash_reinforce", **NO_KL}, ">=0.11.2"),
    "k3 in 0.6.0": ({"estimator": "group_norm", "use_k3": True, **KL}, "<0.6.1"),
    "k1": ({"estimator": "group_norm", **KL}, ""),
    "k2": ({"estimator": "group_norm", "kl_estimator": "k2", **KL}, ">=0.6.1"),
    "k3": ({"estimator": "group_norm", "kl_estimator": "k3", **KL}, ">=0.6.1"),
    "clip-higher": ({"estimator": "group_norm", "eps_low": 0.1, "eps_high": 0.3, **NO_KL}, ">=0.8.2"),
    "dual clip": ({"estimator": "group_norm", "dual_clip": 1.2, **NO_KL}, ">=0.8.6"),
    "overlong": ({"estimator": "group_norm", "overlong_len": 5, **NO_KL}, ">=0.8.7"),
    "gspo": ({"estimator": "group_norm", "policy_loss_type": "gspo", "eps_low": 3e-2, "eps_high": 4e-2, **NO_KL}, ">=0.8.8"),
    "gspo, KL": ({"estimator": "group_norm", "policy_loss_type": "gspo", "kl_estimator": "k3", **KL}, ">=0.8.8"),
    "tis": ({"estimator": "group_norm", **IS}, ">=0.8.9,<0.11.2"),
    "tis, both bounds": ({"estimator": "group_norm", "is_low": 0.8, "is_high": 1.3, **IS}, ">=0.9.1,<0.11.2"),
    "icepop": ({"estimator": "group_norm", "is_correction_type": "icepop", "is_low": 0.8, "is_high": 1.3, **IS}, ">=0.9.3,<0.11.2"),
    "token, mask": ({"estimator": "group_norm", **NEW_IS}, ">=0.11.2"),
    "token, clip": ({"estimator": "group_norm", "is_mode": "clip", **NEW_IS}, ">=0.11.2"),
}  # fmt: skip
PAIRS = [(v, name) for v in RELEASES for name, (_, has) in CASES.items() if in_range(v, has)]


def rollouts_for(version: str, seed: int, kind: str) -> Rollouts:
    """Unequal lengths, a dead group, a row without tokens where that does not give NaN."""
    one = batch(seed, kind=kind)
    reward = one.reward.clone()
    reward[:4] = 0.7
    mask = one.mask
    if in_range(version, "<0.10.3"):
        mask = torch.arange(7)[None] < one.lengths.clamp(min=1)[:, None]
    return replace(one, mask=mask, reward=reward, token_reward=None)


@pytest.mark.parametrize("parts", ["one", "three equal", "unequal"])
@pytest.mark.parametrize("seed", [3, 11])
@pytest.mark.parametrize(("version", "name"), PAIRS)
def test_the_gradient_is_what_the_table_says(
    version: str, name: str, seed: int, parts: str
) -> None:
    options = CASES[name][0]
    rollouts = rollouts_for(version, seed + len(name), "real" if seed == 3 else "binary")
    micro_batch = {
        "one": split(12, 1),
        "three equal": split(12, 3),
        "unequal": torch.tensor([0] * 2 + [1] * 7 + [2] * 3),
    }[parts]
    leaf = rollouts.logp.clone().requires_grad_()
    theirs = torch.autograd.grad(step(version, options, rollouts, leaf, micro_batch), leaf)[0]
    recipe = recipe_of(framework("openrlhf"), options, version)
    ours = torch.autograd.grad(
        recipe.loss(rollouts.with_logp(leaf), micro_batch=micro_batch), leaf
    )[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)
    assert theirs.abs().sum() > 0
