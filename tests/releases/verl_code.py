"""One optimiser step of a verl release, by the release's own code, on made-up tensors.

Its own code: ``core_algos.py``, ``rollout_corr_helper.py`` and ``groupwise.py`` (whole, executed
unchanged); ``apply_kl_penalty``, ``compute_advantage`` of ``ray_trainer.py``; the actor's loop
``DataParallelPPOActor.update_policy`` up to 0.7.1; from 0.8 on, and in 0.7 where the legacy workers
are off, ``FSDPEngine.forward_backward_batch`` with ``ppo_loss``. Functions are taken out of the
source, without decorators and annotations.
Stand-ins: the modules that these files import from verl; the model (its log-probs are a given
tensor, its entropy is 0); the cut into micro-batches (given); tensordict, the optimiser, the
process group.
"""

from __future__ import annotations

import ast
import os
import sys
import types
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from grpo_edu import Rollouts

PURE = ("masked_sum", "masked_mean", "masked_var", "masked_whiten", "clip_by_value")
CORE = "trainer/ppo/core_algos.py"
TRAINER = "trainer/ppo/ray_trainer.py"
ACTOR = "workers/actor/dp_actor.py"


class Config(dict):
    """A config whose keys are attributes; a key that is not there is None."""

    __getattr__ = dict.get  # type: ignore[assignment]


class AlgoConfig(Config):
    """verl's losses refuse an ``AlgoConfig``: they want the actor's."""


class Table(dict):
    """Columns of equally many rows: what a tensordict, a DataProto's batch and a micro-batch are."""

    @property
    def batch_size(self) -> tuple[int, ...]:
        return (len(self),)

    def __len__(self) -> int:
        return next(iter(self.values())).shape[0]

    def take(self, rows: Tensor) -> Table:
        return Table({name: column[rows] for name, column in self.items()})

    def select(self, *names: str, **_: Any) -> Table:
        return Table({name: self[name] for name in names})

    def split(self, size: int) -> list[Table]:
        return [self.take(part) for part in torch.arange(len(self)).split(size)]

    def to(self, *_: Any) -> Table:
        return self

    cuda = to_padded_tensor = to


class Proto:
    """A DataProto: ``batch``, ``non_tensor_batch``, ``meta_info``."""

    def __init__(self, batch: Table, others: dict[str, Any] | None = None, **meta: Any) -> None:
        self.batch = batch
        self.non_tensor_batch = others or {}
        self.meta_info = {"temperature": 1.0, **meta}

    def select(self, batch_keys: list[str], *_: Any, **__: Any) -> Proto:
        return Proto(self.batch.select(*batch_keys), **self.meta_info)

    def split(self, size: int) -> list[Proto]:
        rows = torch.arange(len(self.batch)).split(size)
        return [Proto(self.batch.take(part)) for part in rows]

    def to(self, *_: Any) -> Proto:
        return self


def functions(path: Path, names: tuple[str, ...], known: dict[str, Any]) -> dict[str, Any]:
    """Functions or methods of a source file by name; they see ``known`` and each other."""
    exec(_code(path, names), known)
    return known


@cache
def _code(path: Path, names: tuple[str, ...]) -> types.CodeType:
    nodes = [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name in names
    ]
    for node in nodes:
        node.decorator_list, node.returns = [], None
        for argument in [*node.args.args, *node.args.kwonlyargs]:
            argument.annotation = None
    return compile(ast.Module(nodes, []), str(path), "exec")


@cache
def modules(root: Path) -> types.SimpleNamespace:
    """``core_algos`` and ``rollout_corr_helper`` of a release; ``sys.modules`` is left as it was."""
    before = {name: module for name, module in sys.modules.items() if _stood_in(name)}
    for name in before:
        del sys.modules[name]
    _stand_in("omegaconf", DictConfig=Config)
    pure = functions(root / "utils/torch_functional.py", PURE, {"torch": torch})
    functional = _stand_in("verl.utils.torch_functional", **{n: pure[n] for n in PURE})
    _stand_in("verl.utils.import_utils", deprecated=lambda *a, **k: lambda f: f)
    _stand_in("verl.protocol", DataProto=_protocol())
    _stand_in("verl.trainer.config", AlgoConfig=AlgoConfig)
    _stand_in("verl.trainer.config.algorithm", RolloutCorrectionConfig=Config)
    _stand_in("verl.workers.config", ActorConfig=Config)
    _stand_in("verl.workers.config.actor", PolicyLossConfig=Config)
    for name in ("verl", "verl.trainer", "verl.trainer.ppo", "verl.workers"):
        _stand_in(name)
    _stand_in("verl.utils.device", get_device_name=lambda: "cpu", get_torch_device=lambda: torch)
    utils = _stand_in("verl.utils", torch_functional=functional)
    if (groupwise := root / "utils/groupwise.py").exists():
        groups = _execute("verl.utils.groupwise", groupwise)
        utils.as_torch_index, utils.group_mean_std = groups.as_torch_index, groups.group_mean_std
    core = _execute("verl.trainer.ppo.core_algos", root / CORE)
    helper = root / "trainer/ppo/rollout_corr_helper.py"
    correction = _execute("helper", helper) if helper.exists() else None
    for name in list(filter(_stood_in, sys.modules)):
        del sys.modules[name]
    sys.modules.update(before)
    return types.SimpleNamespace(core=core, functional=functional, correction=correction)


def _stood_in(name: str) -> bool:
    return name.split(".")[0] in ("verl", "omegaconf")


def _protocol() -> Any:
    return types.SimpleNamespace(from_dict=lambda tensors: Proto(Table(tensors)))


def _stand_in(name: str, **attributes: Any) -> Any:
    module = types.ModuleType(name)
    module.__path__ = []
    module.__dict__.update(attributes)
    sys.modules[name] = module
    return module


def _execute(name: str, path: Path) -> types.ModuleType:
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
    return module


class Estimator(str, Enum):  # noqa: UP042 (Python 3.10 has no StrEnum)
    """``AdvantageEstimator`` where ``core_algos`` has none (up to 0.4.0)."""

    GAE = "gae"
    GRPO = "grpo"
    GRPO_PASSK = "grpo_passk"
    OPO = "opo"
    REINFORCE_PLUS_PLUS = "reinforce_plus_plus"
    REINFORCE_PLUS_PLUS_BASELINE = "reinforce_plus_plus_baseline"
    REMAX = "remax"
    RLOO = "rloo"


def advantages(root: Path, values: dict[str, Any], data: Proto) -> None:
    """The trainer's part: KL in the reward, advantages, weights of the rollout correction."""
    loaded = modules(root)
    trainer = functions(
        root / TRAINER,
        ("apply_kl_penalty", "compute_response_mask", "compute_advantage"),
        {
            "core_algos": loaded.core,
            "torch": torch,
            "masked_mean": loaded.functional.masked_mean,
            "AdvantageEstimator": getattr(loaded.core, "AdvantageEstimator", Estimator),
        },
    )
    batch = data.batch
    batch["token_level_rewards"] = batch["token_level_scores"]
    if values["use_kl_in_reward"]:
        control = loaded.core.FixedKLController(values["kl_coef"])
        data, _ = trainer["apply_kl_penalty"](data, control, kl_penalty=values["kl_penalty"])
    config = AlgoConfig(
        gamma=values["gamma"],
        norm_adv_by_std_in_grpo=values["norm_adv_by_std_in_grpo"],
        gdpo_reward_weights=values["gdpo_reward_weights"],
        gdpo_reward_keys=[name for name in data.non_tensor_batch if name != "uid"],
    )
    given = {"adv_estimator": values["adv_estimator"], "gamma": values["gamma"]}
    accepted = trainer["compute_advantage"].__code__.co_varnames
    more = {"lam": values["lam"], "config": config}
    more["norm_adv_by_std_in_grpo"] = values["norm_adv_by_std_in_grpo"]
    more = {name: value for name, value in more.items() if name in accepted}
    trainer["compute_advantage"](data, **given, **more)
    if values["rollout_is"]:
        threshold = values["rollout_is_threshold"]
        low, high = values["rollout_is_low"], values["rollout_is_high"]
        weights, _, _ = loaded.correction.compute_rollout_correction_and_rejection_mask(
            old_log_prob=batch["old_log_probs"],
            rollout_log_prob=batch["rollout_log_probs"],
            response_mask=batch["response_mask"],
            rollout_is=values["rollout_is"],
            rollout_is_threshold=f"{low}_{high}" if low else threshold,
        )
        batch["rollout_is_weights"] = weights.batch["rollout_is_weights"]


def batch_of(rollouts: Rollouts, values: dict[str, Any]) -> Proto:
    """The rollouts as verl's trainer holds them; the reward stands at the last token.

    ``input_ids`` holds row numbers, by which the stand-in of the model finds its log-probs.
    """
    places = torch.arange(1, rollouts.mask.shape[1] + 1)
    last = rollouts.mask & (places == (rollouts.mask * places).amax(dim=1, keepdim=True))
    mask = rollouts.mask.long()
    scores = last * rollouts.reward[:, None]
    columns = Table(
        responses=mask,
        response_mask=mask,
        attention_mask=mask,
        position_ids=mask,
        input_ids=torch.arange(len(mask)),
        old_log_probs=rollouts.old_logp,
        ref_log_prob=rollouts.ref_logp,
        rollout_log_probs=rollouts.sampler_logp,
        token_level_scores=scores,
        values=torch.where(rollouts.mask, rollouts.value, 0.0),
    )
    extra = {}
    if values["adv_estimator"] == "remax":
        columns["reward_baselines"] = rollouts.greedy_reward
    if values["adv_estimator"] == "gdpo":
        columns["prompts"] = mask[:, :0]
        names = [f"part {number}" for number in range(rollouts.reward_parts.shape[1])]
        extra = dict(zip(names, rollouts.reward_parts.numpy().T, strict=True))
    uid = np.array([str(group) for group in rollouts.group.tolist()], dtype=object)
    return Proto(columns, {"uid": uid, **extra})


def gradient(
    root: Path, values: dict[str, Any], rollouts: Rollouts, micro_batch: Tensor, engine: bool
) -> Tensor:
    """``[N, T]`` gradient on the log-probs of one step over all rows (one mini-batch).

    ``engine``: by the engine workers, not by the legacy ones.
    """
    data = batch_of(rollouts, values)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # constants such as 1 + 1e-6 are made in it
    try:
        with patch.dict(os.environ, VERL_FORCE_DEVICE="cpu"):  # groupwise.py before 0.7.1
            advantages(root, values, data)
    finally:
        torch.set_default_dtype(before)
    leaf = rollouts.logp.clone().requires_grad_()
    (_engine if engine else _legacy)(root, values, data, leaf, micro_batch)
    assert leaf.grad is not None
    return leaf.grad


def actor_config(values: dict[str, Any], rows: int, micro_batch: Tensor) -> Config:
    names = ("clip_ratio", "clip_ratio_low", "clip_ratio_high", "clip_ratio_c", "tau_pos")
    names += ("tau_neg", "loss_agg_mode", "loss_scale_factor", "use_kl_loss", "kl_loss_coef")
    names += ("kl_loss_type", "use_dynamic_bsz")
    return Config(
        {name: values[name] for name in names},
        entropy_coeff=0.0,
        policy_loss=Config(loss_mode=values["loss_mode"] or "vanilla"),
        ppo_epochs=2,  # with one, and one mini-batch, releases from 0.6 on take the ratio to be 1
        ppo_mini_batch_size=rows,
        ppo_micro_batch_size_per_gpu=int((micro_batch == 0).sum()),
        ppo_max_token_len_per_gpu=0,
        global_batch_info={},
    )


def _legacy(root: Path, values: dict, data: Proto, leaf: Tensor, micro_batch: Tensor) -> None:
    """``DataParallelPPOActor.update_policy``: the gradient of its first optimiser step."""
    loaded = modules(root)
    core = loaded.core
    config = actor_config(values, len(data.batch), micro_batch)
    gradients: list[Tensor] = []

    def forward(micro_batch: Any, **_: Any) -> Any:
        logp = leaf[micro_batch["input_ids"]]
        entropy = torch.zeros_like(logp)
        if "pad_token_id" in micro_batch:
            return {"log_probs": logp, "entropys": entropy}
        return entropy, logp

    def step() -> Tensor:
        gradients.append(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad.clone())
        return torch.tensor(0.0)

    def zero() -> None:
        leaf.grad = None

    def parts(batch: Any, **_: Any) -> tuple[list[Any], None]:
        table = batch.batch if isinstance(batch, Proto) else batch
        cut = [table.take(micro_batch == number) for number in micro_batch.unique()]
        return [Proto(part) if isinstance(batch, Proto) else part for part in cut], None

    known = {
        "torch": torch,
        "core_algos": core,
        "verl_F": loaded.functional,
        "masked_mean": loaded.functional.masked_mean,
        "DataProto": Proto,
        "append_to_dict": lambda *_: None,
        "rearrange_micro_batches": lambda batch, max_token_len: parts(batch),
        "prepare_dynamic_batch": parts,
        "get_device_id": lambda: "cpu",
        "get_torch_device": lambda: types.SimpleNamespace(current_device=lambda: "cpu"),
    }
    known |= {
        name: getattr(core, name)
        for name in ("agg_loss", "compute_policy_loss", "get_policy_loss_fn", "kl_penalty")
        if hasattr(core, name)
    }
    update = functions(root / ACTOR, ("update_policy",), known)["update_policy"]
    helper = {"verl.trainer.ppo.rollout_corr_helper": loaded.correction}
    actor = types.SimpleNamespace(
        config=config,
        actor_module=types.SimpleNamespace(train=lambda: None),
        actor_optimizer=types.SimpleNamespace(zero_grad=zero),
        _forward_micro_batch=forward,
        _optimizer_step=step,
        ulysses_sequence_parallel_size=1,
        scaler=None,
        use_prefix_grouper=False,
    )
    kept = data.batch.select(*(name for name in data.batch if name != "rollout_log_probs"))
    with patch.dict(sys.modules, helper), patch("torch.cuda.current_device", lambda: "cpu"):
        update(actor, Proto(kept))
    leaf.grad = gradients[0]


def _engine(root: Path, values: dict, data: Proto, leaf: Tensor, micro_batch: Tensor) -> None:
    """``FSDPEngine.forward_backward_batch`` with ``ppo_loss`` on one mini-batch.

    From 0.9 on a micro-batch is as wide as its longest row (nested tensors); before, as the batch.
    """
    loaded = modules(root)
    rows = len(data.batch)
    config = actor_config(values, rows, micro_batch)
    nested = int(root.parent.name.split(".")[1]) >= 9
    meta = Config(global_batch_size=rows)

    def assign(_: Any, **given: Any) -> None:
        meta.update(given)

    tools = types.SimpleNamespace(
        assign_non_tensor=assign, get_non_tensor_data=lambda data, key, default: default
    )
    names = {
        "torch": torch,
        "agg_loss": loaded.core.agg_loss,
        "get_policy_loss_fn": loaded.core.get_policy_loss_fn,
        "kl_penalty": loaded.core.kl_penalty,
        "no_padding_2_padding": lambda tensor, _: tensor,
        "_slice_response_from_unpad_output": lambda tensor, _: tensor,
        "AggregationType": Config(),
        "Metric": type("Metric", (), {"__init__": lambda self, **_: None, "from_dict": lambda *_, **__: {}}),
    }  # fmt: skip
    ppo_loss = functions(root / "workers/utils/losses.py", ("ppo_loss",), names)["ppo_loss"]

    def cut(data: Table, **_: Any) -> tuple[list[Table], None]:
        places = torch.arange(1, leaf.shape[1] + 1)
        several = []
        for number in micro_batch.unique():
            part = data.take(micro_batch == number)
            width = int((part["response_mask"] * places).max()) if nested else leaf.shape[1]
            part = Table({n: c[:, : max(1, width)] if c.dim() > 1 else c for n, c in part.items()})
            several.append(part)
        return several, None

    def forward(micro_batch: Table, loss_function: Any, forward_only: bool) -> tuple[Tensor, dict]:
        logp = leaf[micro_batch["input_ids"], : micro_batch["response_mask"].shape[1]]
        columns = WithMeta(micro_batch)
        columns.meta = meta
        loss, _ = loss_function(config, {"log_probs": logp}, columns)
        return loss, {}

    engine = types.SimpleNamespace(
        ulysses_sequence_parallel_size=1,
        scaler=None,
        get_data_parallel_group=lambda: None,
        get_data_parallel_size=lambda: 1,
        forward_step=forward,
        _gradient_sync_context=lambda **_: patch.dict({}),
    )
    known = {
        "tu": tools,
        "torch": _without_processes(),
        "get_device_id": lambda: "cpu",
        "prepare_micro_batches": cut,
        "nullcontext": lambda: patch.dict({}),
        "postprocess_batch_func": lambda **_: None,
    }
    path = root / "workers/engine/fsdp/transformer_impl.py"
    run = functions(path, ("forward_backward_batch",), known)["forward_backward_batch"]
    kept = {n: c for n, c in data.batch.items() if values["use_kl_loss"] or n != "ref_log_prob"}
    run(engine, Table(kept, loss_mask=data.batch["response_mask"]), ppo_loss)


def _without_processes() -> Any:
    alone = types.SimpleNamespace(
        all_reduce=lambda *_, **__: None, ReduceOp=types.SimpleNamespace(SUM=None)
    )
    names = {name: getattr(torch, name) for name in ("no_grad", "profiler", "Tensor", "tensor")}
    return types.SimpleNamespace(**names, distributed=alone)


class WithMeta(Table):
    """A micro-batch with numbers of the whole mini-batch beside its columns."""

    meta: Config

    def __getitem__(self, name: str) -> Any:
        return dict.__getitem__(self, name) if dict.__contains__(self, name) else self.meta[name]

    def select(self, *names: str, **_: Any) -> Table:
        return Table({name: self[name] for name in names})
