"""TRL's own code on made-up tensors, CPU, no model: advantages, importance weights and loss of one optimiser step.

``GRPOTrainer.__new__`` without ``__init__``, the few attributes that the two methods read, and stubs where a model or a tokenizer
would stand. Private methods of TRL, so the release is pinned: ``pip install 'trl==1.16.*'``.
"""

from __future__ import annotations

import contextlib
import types
from collections import defaultdict, deque
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from grpo_edu import Rollouts
from grpo_edu.frameworks.tables import fill_in, framework

EOS, OTHER = 1, 5


class Accelerator:
    """One process: gather and reduce give back what they are given."""

    num_processes, process_index, is_main_process, sync_gradients = 1, 0, True, True
    device = torch.device("cpu")

    def gather(self, x: Tensor) -> Tensor:
        return x

    gather_for_metrics = gather

    def reduce(self, x: Tensor, reduction: str = "sum") -> Tensor:
        return x


def step(options: dict[str, Any], rollouts: Rollouts, leaf: Tensor, micro_batch: Tensor) -> Tensor:
    """TRL's loss of one optimiser step: generation half once, then the micro-batches' losses as accumulation adds them up."""
    values = fill_in(framework("trl"), options, "1.16")
    groups = rollouts.group.tolist()
    assert groups == sorted(groups), "TRL takes consecutive rows as a prompt's group"
    parts = int(micro_batch.max()) + 1
    trainer = make_trainer(values, rollouts, groups.count(0), parts)
    with float64(), quiet_trl():
        batch = trainer._generate_and_score_completions([{"prompt": "p"} for _ in groups])
        batch.setdefault("prompt_ids", torch.zeros(len(groups), 1, dtype=torch.long))
        total = torch.zeros(())
        for number in range(parts):
            rows = micro_batch == number
            trainer._get_per_token_logps_and_entropies = lambda *a, rows=rows, **k: (
                leaf[rows],
                torch.ones_like(leaf[rows]),
                None,
            )
            trainer.current_gradient_accumulation_steps = parts
            cut = {k: v[rows] if isinstance(v, Tensor) and v.ndim else v for k, v in batch.items()}
            loss = trainer._compute_loss(None, cut)
            total = total + (
                loss / parts if values["trainer"] == "RLOO" else loss
            )  # there the base Trainer divides
    return total


def trainer_class(name: str) -> type:
    if name == "GMPO":
        from trl.experimental.gmpo.gmpo_trainer import GMPOTrainer

        return GMPOTrainer
    import trl

    return {"GRPO": trl.GRPOTrainer, "RLOO": trl.RLOOTrainer}[name]


def make_trainer(values: dict[str, Any], rollouts: Rollouts, size: int, parts: int) -> Any:
    """A trainer with the attributes that scoring and loss read."""
    cls = trainer_class(values["trainer"])
    t = cls.__new__(cls)
    t.model, t.ref_model, t.accelerator = (
        types.SimpleNamespace(training=True),
        "reference",
        Accelerator(),
    )
    t.args = types.SimpleNamespace(
        per_device_train_batch_size=len(rollouts), per_device_eval_batch_size=len(rollouts), steps_per_generation=parts,
        gradient_accumulation_steps=parts, gradient_checkpointing_kwargs=None, delta=values["delta"],
        use_bias_correction_kl=values["use_bias_correction_kl"], sapo_temperature_pos=values["sapo_temperature_pos"],
        sapo_temperature_neg=values["sapo_temperature_neg"], entropy_target=0.2,
    )  # fmt: skip
    for name in (
        "beta", "loss_type", "importance_sampling_level", "max_completion_length", "top_entropy_quantile", "use_vllm",
        "off_policy_mask_threshold", "scale_rewards", "multi_objective_aggregation", "mask_truncated_completions",
        "normalize_advantages", "reward_clip_range", "vllm_importance_sampling_correction", "vllm_importance_sampling_mode",
        "vllm_importance_sampling_clip_min", "vllm_importance_sampling_clip_max",
    ):  # fmt: skip
        setattr(t, name, values[name])
    t.epsilon_low, t.epsilon_high = values["epsilon"], values["epsilon_high"] or values["epsilon"]
    t.num_iterations = 2  # off policy: the behaviour policy's log-probs are kept
    t.num_generations = t.num_generations_eval = size
    t._tokenizer, t.eos_token_ids, t.pad_to_multiple_of = (
        types.SimpleNamespace(pad_token_id=0),
        [EOS],
        None,
    )
    t.environment_factories = t.environments = None
    t.tools, t.log_multimodal, t._is_vlm, t.chat_template_kwargs = [], False, False, {}
    t.aux_loss_enabled = t._entropy_bonus_enabled = t.use_adaptive_entropy = False
    t.entropy_coef = t.router_aux_loss_coef = 0.0
    t._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}
    t._pending_extra_logs, t._pending_metrics = defaultdict(list), defaultdict(list)
    t._logs = {k: deque() for k in ("prompt", "completion", "advantages", "images")}
    t._logs |= {"rewards": defaultdict(deque), "extra": defaultdict(deque)}
    _stub_model(t, values, rollouts)
    return t


def _stub_model(t: Any, values: dict[str, Any], rollouts: Rollouts) -> None:
    """What a tokenizer, a policy and reward functions would give: the rollouts."""
    width = rollouts.mask.shape[1]
    reach = (rollouts.mask * torch.arange(1, width + 1)).amax(dim=1).clamp(min=1).tolist()
    assert max(reach) == width
    truncated = rollouts.truncated.tolist()
    ids = [
        [OTHER] * (n - 1) + [OTHER if cut else EOS] for n, cut in zip(reach, truncated, strict=True)
    ]
    tool = [row[:n] for row, n in zip(rollouts.mask.int().tolist(), reach, strict=True)]
    sampler = [row[:n] for row, n in zip(rollouts.sampler_logp.tolist(), reach, strict=True)]
    words = ["x"] * len(ids)
    grpo = (
        [[3]] * len(ids),
        ids,
        tool,
        words,
        sampler if values["use_vllm"] else None,
        {},
        None,
        [],
    )
    t._generate = lambda prompts: (
        ([[3]] * len(ids), ids, words) if values["trainer"] == "RLOO" else grpo
    )
    t._get_per_token_logps_and_entropies = lambda model, *a, **k: (
        (rollouts.ref_logp if model == "reference" else rollouts.old_logp),
        None,
        None,
    )
    several = values["multi_objective_aggregation"] == "normalize_then_sum"
    parts = (
        rollouts.reward_parts
        if several
        else torch.where(rollouts.scored, rollouts.reward, torch.nan)[:, None]
    )
    t.reward_funcs, t.reward_func_names = (
        [None] * parts.shape[1],
        [f"r{i}" for i in range(parts.shape[1])],
    )
    t.reward_weights = torch.tensor(
        values["reward_weights"] or [1.0] * parts.shape[1], dtype=torch.float64
    )
    t._calculate_rewards = lambda *a, **k: parts.clone()


@contextlib.contextmanager
def float64():
    """Tensors made from lists of numbers keep their digits."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def quiet_trl():
    """No second process to gather from, no gradient checkpointing to switch off."""
    nothing = lambda *a, **k: contextlib.nullcontext()
    with contextlib.ExitStack() as stack:
        for module in ("grpo_trainer", "rloo_trainer"):
            stack.enter_context(mock.patch(f"trl.trainer.{module}.gather_object", lambda x: x))
            stack.enter_context(
                mock.patch(f"trl.trainer.{module}.disable_gradient_checkpointing", nothing)
            )
            if module == "rloo_trainer":
                stack.enter_context(mock.patch(f"trl.trainer.{module}.gather", lambda x: x))
        yield
