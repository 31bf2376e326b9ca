"""verl's own ``core_algos.py`` on made-up tensors, loaded without its dependencies: torch, numpy and omegaconf suffice.

``pip install --no-deps verl==0.9.1`` (its dependencies clash with current transformers) and ``pip install omegaconf``. The modules
that ``core_algos.py`` imports from verl are stood in for; its own text is executed unchanged.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import sys
import types
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grpo_edu import Rollouts
from grpo_edu.frameworks.tables import fill_in, framework

PURE = (
    "masked_sum",
    "masked_mean",
    "masked_var",
    "masked_whiten",
    "clip_by_value",
    "entropy_from_logits",
)
STAND_INS = (
    "verl", "verl.utils", "verl.utils.import_utils", "verl.trainer", "verl.trainer.ppo", "verl.trainer.config", "verl.workers",
    "verl.workers.config", "verl.utils.torch_functional", "verl.utils.device", "verl.utils.groupwise", "verl.trainer.ppo.core_algos",
)  # fmt: skip


class AlgoConfig(dict):
    __getattr__ = dict.get  # type: ignore[assignment]


class ActorConfig(types.SimpleNamespace):
    def get(self, key: str, default: Any = None) -> Any:
        return getattr(self, key, default)


def missing() -> str | None:
    """Why verl cannot be loaded here, with the fix; None where it can."""
    fix = "pip install 'omegaconf>=2.3' && pip install --no-deps verl==0.9.1"
    try:
        version = importlib.metadata.version("verl")
    except importlib.metadata.PackageNotFoundError:
        return f"verl is not here: {fix}"
    if version != "0.9.1":
        return f"verl {version} is here, the forms are those of 0.9.1: {fix}"
    return None if importlib.util.find_spec("omegaconf") else f"omegaconf is not here: {fix}"


@cache
def core_algos() -> types.ModuleType:
    """The module, with its imports stood in for; ``sys.modules`` is left as it was."""
    root = Path(str(importlib.metadata.distribution("verl").locate_file("verl")))
    before = {name: sys.modules.get(name) for name in STAND_INS}
    pure = _pure_functions(root / "utils" / "torch_functional.py")
    _stand_in("verl.utils.import_utils", deprecated=lambda *a, **k: lambda f: f)
    _stand_in("verl.trainer.config", AlgoConfig=AlgoConfig)
    _stand_in("verl.workers.config", ActorConfig=ActorConfig)
    for name in ("verl", "verl.trainer", "verl.trainer.ppo", "verl.workers"):
        _stand_in(name)
    functional = _stand_in("verl.utils.torch_functional", **pure)
    _stand_in("verl.utils.device", get_device_name=lambda: "cpu", get_torch_device=lambda: torch)
    utils = _stand_in("verl.utils", torch_functional=functional)
    groups = _execute("verl.utils.groupwise", root / "utils" / "groupwise.py")
    utils.as_torch_index, utils.group_mean_std = groups.as_torch_index, groups.group_mean_std  # type: ignore[attr-defined]
    module = _execute("verl.trainer.ppo.core_algos", root / "trainer" / "ppo" / "core_algos.py")
    for name, old in before.items():
        sys.modules.pop(name, None)
        if old is not None:
            sys.modules[name] = old
    return module


def _stand_in(name: str, **attributes: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__path__ = []
    module.__dict__.update(attributes)
    sys.modules[name] = module
    return module


def _execute(name: str, path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _pure_functions(path: Path) -> dict[str, Any]:
    """The masked_* helpers alone; the rest of the file imports what is not here."""
    names: dict[str, Any] = {"torch": torch}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name in PURE:
            exec(compile(ast.Module([node], []), str(path), "exec"), names)
    return {name: names[name] for name in PURE}


def advantages(options: dict[str, Any], rollouts: Rollouts) -> Tensor:
    """``[N, T]`` advantages of verl's estimator, KL in the reward included."""
    core, values = core_algos(), fill_in(framework("verl"), options, "0.9.1")
    places = torch.arange(1, rollouts.mask.shape[1] + 1)
    last = rollouts.mask & (places == (rollouts.mask * places).amax(dim=1, keepdim=True))
    mask = rollouts.mask.double()
    rewards = last * rollouts.reward[:, None]
    if values["use_kl_in_reward"]:
        # apply_kl_penalty of the trainer: token_level_scores - beta * (kl_penalty * response_mask)
        kl = core.kl_penalty(rollouts.old_logp, rollouts.ref_logp, values["kl_penalty"])
        rewards = rewards - values["kl_coef"] * kl * mask
    extra: dict[str, Any] = {
        "index": np.array([str(g) for g in rollouts.group.tolist()], dtype=object)
    }
    config = AlgoConfig(
        gamma=values["gamma"], norm_adv_by_std_in_grpo=values["norm_adv_by_std_in_grpo"]
    )
    name = values["adv_estimator"]
    if name == "gae":
        extra = {
            "values": torch.where(rollouts.mask, rollouts.value, 0.0),
            "gamma": values["gamma"],
            "lam": values["lam"],
        }
    elif name == "remax":
        extra = {"reward_baselines": rollouts.greedy_reward, "config": config}
    elif name == "grpo":
        extra |= {"norm_adv_by_std_in_grpo": values["norm_adv_by_std_in_grpo"]}
    elif name == "gdpo":
        extra |= {"config": None}
    else:
        extra |= {"config": config}
    estimator, before = core.get_adv_estimator_fn(name), torch.get_default_dtype()
    torch.set_default_dtype(
        torch.float64
    )  # its constants are made in the default dtype: 1 + 1e-6 is 1.00000095 in float32
    try:
        return torch.where(
            rollouts.mask,
            estimator(token_level_rewards=rewards, response_mask=mask, **extra)[0],
            0.0,
        )
    finally:
        torch.set_default_dtype(before)


def step(options: dict[str, Any], rollouts: Rollouts, leaf: Tensor, micro_batch: Tensor) -> Tensor:
    """verl's loss of one optimiser step as its actor makes it (``ppo_loss``): micro-batches padded on their own, gradients summed.

    The mask is bool and the default dtype float32, as there: lengths + 1e-8 are then the lengths.
    """
    core, values = core_algos(), fill_in(framework("verl"), options, "0.9.1")
    advantage, total = advantages(options, rollouts), torch.zeros((), dtype=torch.float64)
    actor = ActorConfig(policy_loss=types.SimpleNamespace(), **{
        name: values[name] for name in ("clip_ratio", "clip_ratio_low", "clip_ratio_high", "clip_ratio_c", "tau_pos", "tau_neg")
    })  # fmt: skip
    actor.global_batch_info = {
        "dp_size": 1, "batch_num_tokens": rollouts.mask.sum().item(), "global_batch_size": len(rollouts),
        "loss_scale_factor": values["loss_scale_factor"],
    }  # fmt: skip
    reach = (rollouts.mask * torch.arange(1, rollouts.mask.shape[1] + 1)).amax(dim=1)
    for number in micro_batch.unique():
        rows = micro_batch == number
        width = int(reach[rows].max().clamp(min=1))
        cut = {
            k: getattr(rollouts, k)[rows, :width]
            for k in ("mask", "old_logp", "ref_logp", "sampler_logp")
        }
        weights = None
        if values["rollout_is"] == "token":  # rollout_corr_helper: truncated, detached
            weights = (cut["old_logp"] - cut["sampler_logp"]).clamp(-20, 20).exp().clamp(
                max=values["rollout_is_threshold"]
            ) * cut["mask"]
        logp = leaf[rows, :width]
        loss, _ = core.get_policy_loss_fn(values["loss_mode"])(
            old_log_prob=cut["old_logp"], log_prob=logp, advantages=advantage[rows, :width], response_mask=cut["mask"],
            loss_agg_mode=values["loss_agg_mode"], config=actor, rollout_is_weights=weights,
        )  # fmt: skip
        total = total + loss
        if values["use_kl_loss"]:
            kl = core.kl_penalty(
                logprob=logp, ref_logprob=cut["ref_logp"], kl_penalty=values["kl_loss_type"]
            )
            mean = core.agg_loss(
                loss_mat=kl,
                loss_mask=cut["mask"],
                loss_agg_mode=values["loss_agg_mode"],
                **actor.global_batch_info,
            )
            total = total + values["kl_loss_coef"] * mean
    return total
