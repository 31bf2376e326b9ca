"""OpenRLHF's own code: rewards to advantages, loss, KL term and the scaling of the training step.

Taken out of ``experience_maker.py``, ``models/loss.py``, ``models/utils.py``, ``ppo_actor.py`` and
(from 0.10.3 on) ``utils/loss_utils.py``; the model, the optimiser and DeepSpeed are stand-ins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace as Box
from typing import Any
from unittest import mock
from unittest.mock import MagicMock

import torch
from torch import Tensor

from grpo_edu import Rollouts
from grpo_edu.frameworks.expressions import in_range
from grpo_edu.frameworks.tables import fill_in, framework

from .taken import Scope, taken

FLAT = {
    "estimator": "advantage_estimator",
    "no_std_norm": "no_advantage_std_norm",
    "kl_coef": "init_kl_coef",
    "lam": "lambd",
    "dynamic_batch": "use_dynamic_batch",
    "overlong_len": "overlong_buffer_len",
    "overlong_factor": "overlong_penalty_factor",
}


class Args(Box):
    """The program's arguments; one that is not given is None."""

    def __getattr__(self, name: str) -> Any:
        return None


def args_of(values: dict[str, Any], size: int, version: str) -> Args:
    """Arguments as the release reads them: flat up to 0.10.1, in sections from 0.10.2 on."""
    if in_range(version, "<0.10.2"):
        flat = {FLAT.get(name, name): value for name, value in values.items()}
        more = {
            "reward_clip_range": (-10, 10),
            "aux_loss_coef": 0,
            "use_kl_estimator_k3": values["use_k3"],
        }
        entropy = 0.0 if in_range(version, "<0.8.3") else None
        limit = values["generate_max_len"]
        return Args(
            **{
                **flat,
                **more,
                "n_samples_per_prompt": size,
                "entropy_loss_coef": entropy,
                "generate_max_len": limit,
                "max_new_tokens": limit,
            }
        )
    kl = Args(
        use_loss=values["use_kl_loss"],
        init_coef=values["kl_coef"],
        estimator=values["kl_estimator"],
        unbiased_gradient=values["unbiased_gradient"],
    )
    advantage = Args(
        estimator=values["estimator"],
        no_std_norm=values["no_std_norm"],
        gamma=values["gamma"],
        lambd=values["lam"],
    )
    reward = Args(
        clip_range=(-10, 10),
        overlong_buffer_len=values["overlong_len"],
        overlong_penalty_factor=values["overlong_factor"],
    )
    rollout = Args(n_samples_per_prompt=size, max_new_tokens=values["generate_max_len"])
    return Args(
        algo=Args(kl=kl, advantage=advantage),
        reward=reward,
        rollout=rollout,
        actor=Args(),
        train=Args(dynamic_batch_enable=False),
    )


def step(
    version: str, options: dict[str, Any], rollouts: Rollouts, leaf: Tensor, micro_batch: Tensor
) -> Tensor:
    """The loss of one optimiser step, as gradient accumulation adds it up; DeepSpeed divides by their number."""
    values = {
        **fill_in(framework("openrlhf"), options, version),
        "generate_max_len": rollouts.max_new_tokens,
    }
    size = int((rollouts.group == rollouts.group[0]).sum())
    args = args_of(values, size, version)
    release = f"openrlhf-{version}"
    with float64_on_the_cpu():
        return _step(release, version, args, values, rollouts, leaf, micro_batch)


def _step(
    release: str,
    version: str,
    args: Args,
    values: dict[str, Any],
    rollouts: Rollouts,
    leaf: Tensor,
    micro_batch: Tensor,
) -> Tensor:
    tools = taken(
        release,
        "openrlhf/models/utils.py",
        "compute_approx_kl",
        "compute_reward",
        "masked_mean",
        *(["KL_IS_WEIGHT_CLIP"] if in_range(version, ">=0.11.2") else []),
    )
    advantage = advantages(release, version, args, values, rollouts, tools)
    parts = int(micro_batch.max()) + 1
    losses: list[Tensor] = []
    trainer = trainer_of(release, version, args, values, tools, losses)
    for number in range(parts):
        rows = micro_batch == number
        trainer.actor = lambda *a, rows=rows, **k: (leaf[rows], MagicMock())
        trainer.actor.train = lambda: None
        trainer.run(
            trainer, experience(rollouts, advantage, rows), *trainer.more(rollouts.mask, parts)
        )
    return torch.stack(losses).sum() / parts


def experience(rollouts: Rollouts, advantage: Tensor, rows: Tensor) -> Args:
    return Args(
        sequences=rollouts.mask[rows],
        action_mask=rollouts.mask[rows].double(),
        attention_mask=rollouts.mask[rows],
        action_log_probs=rollouts.old_logp[rows],
        base_action_log_probs=rollouts.ref_logp[rows],
        rollout_log_probs=rollouts.sampler_logp[rows],
        advantages=advantage[rows],
        info={
            "response_length": rollouts.mask[rows].sum(1).double(),
            "kl": torch.zeros(int(rows.sum())),
        },
    )


def trainer_of(
    release: str,
    version: str,
    args: Args,
    values: dict[str, Any],
    tools: Scope,
    losses: list[Tensor],
) -> Any:
    """A stand-in for ``ActorPPOTrainer`` with the release's loss and training step."""
    given = {name: tools[name] for name in ("compute_approx_kl", "masked_mean")}
    aggregate = in_range(version, ">=0.10.3")
    names = ("aggregate_loss", "PolicyLoss") if aggregate else ("PolicyLoss",)
    scope = taken(release, "openrlhf/models/loss.py", *names, **given)
    if aggregate:
        info = taken(
            release,
            "openrlhf/utils/loss_utils.py",
            "_get_dp_group",
            "get_loss_batch_info",
            *(["_optimizer_step_loss_norm"] if in_range(version, ">=0.10.4") else []),
        )
        given |= {
            "aggregate_loss": scope["aggregate_loss"],
            "get_loss_batch_info": info["get_loss_batch_info"],
        }
    where = (
        ("ray/ppo_actor.py", "ActorPPOTrainer.training_step")
        if in_range(version, ">=0.6.3")
        else ("ppo_trainer.py", "PPOTrainer.training_step_actor")
    )
    scope_of_step = taken(
        release, f"openrlhf/trainer/{where[0]}", where[1], fields=lambda x: [], **given
    )
    method = scope_of_step[where[1].split(".")[1]]
    strategy = Box(
        ring_attn_group=None,
        backward=lambda loss, *a: losses.append(loss),
        optimizer_step=lambda *a, **k: None,
        get_grad_norm=lambda m: 0.0,
    )
    trainer = Box(
        args=args,
        strategy=strategy,
        run=method,
        aux_loss=False,
        initial_model=1,
        pretrain_dataloader=None,
        ema_model=None,
    )
    trainer.replay_buffer = trainer.actor_optim = trainer.actor_scheduler = MagicMock()
    trainer.kl_ctl = Box(value=values["kl_coef"])
    trainer.actor_loss_fn = scope["PolicyLoss"](**loss_settings(version, values))

    def more(mask: Tensor, parts: int) -> tuple:
        if in_range(version, "<0.7.1"):
            return ()
        if in_range(version, "<0.8.6"):
            return (values["kl_coef"],)
        if in_range(version, "<0.10.4"):
            return (values["kl_coef"], 0)
        return (
            values["kl_coef"],
            0,
            info["_optimizer_step_loss_norm"]([mask.double()], None, 1, parts),
        )

    trainer.more = more
    return trainer


def loss_settings(version: str, values: dict[str, Any]) -> dict[str, Any]:
    """What the release's ``ActorPPOTrainer`` gives to ``PolicyLoss``."""
    if in_range(version, "<0.8.2"):
        return {"clip_eps": values["eps_clip"]}
    settings = {
        "clip_eps_low": values["eps_low"] or values["eps_clip"],
        "clip_eps_high": values["eps_high"] or values["eps_clip"],
    }
    settings |= {"dual_clip": values["dual_clip"]} if in_range(version, ">=0.8.6") else {}
    settings |= (
        {"policy_loss_type": values["policy_loss_type"]} if in_range(version, ">=0.8.8") else {}
    )
    band = [values["is_low"], values["is_high"]]
    if in_range(version, ">=0.8.9,<0.11.2"):
        enabled = (
            {"enable_vllm_is_correction": values["is_correction"]}
            if in_range(version, ">0.8.9")
            else {}
        )
        settings |= {
            **enabled,
            "vllm_is_truncated_threshold": values["is_high"]
            if in_range(version, "<0.9.1")
            else band,
        }
        if in_range(version, "==0.8.9") and not values["is_correction"]:
            settings["vllm_is_truncated_threshold"] = None
        settings |= (
            {"vllm_is_correction_type": values["is_correction_type"]}
            if in_range(version, ">=0.9.3")
            else {}
        )
    if in_range(version, ">=0.11.2"):
        settings |= {
            f"is_correction_{name}": values[f"is_{name}"] for name in ("level", "mode", "gating")
        }
        settings |= {"is_correction_threshold": band}
    return settings


def advantages(
    release: str, version: str, args: Args, values: dict[str, Any], rollouts: Rollouts, tools: Scope
) -> Tensor:
    """``[N, T]`` from ``compute_advantages_and_returns``, whitened as the release whitens."""
    file = "openrlhf/trainer/ppo_utils/experience_maker.py"
    first = (
        ("make_experience_list",)
        if in_range(version, "<0.6.3")
        else ("compute_advantages_and_returns",)
    )
    names = (
        *first,
        *(["process_experiences"] if in_range(version, "<0.6.3") else []),
        "get_advantages_and_returns",
        "get_cumulative_returns",
    )
    penalties = {}
    if in_range(version, ">=0.9.2"):
        penalty = taken(
            release,
            "openrlhf/trainer/ppo_utils/length_penalty.py",
            "apply_length_penalties",
            "apply_overlong_penalty",
            "apply_stop_properly_penalty",
        )
        penalties = {"apply_length_penalties": penalty["apply_length_penalties"]}
    scope = taken(
        release,
        file,
        *(f"{owner_of(version)}.{name}" for name in names),
        compute_reward=tools["compute_reward"],
        zero_pad_sequences=lambda x: torch.cat(x),
        tqdm=lambda x, **k: x,
        torch=without_cuda(),
        **penalties,
    )
    n = len(rollouts.mask)
    no_kl = values["use_kl_loss"]
    kl = (
        torch.zeros_like(rollouts.old_logp)
        if no_kl
        else tools["compute_approx_kl"](
            rollouts.old_logp,
            rollouts.ref_logp,
            **({} if in_range(version, "<0.6.1") else {"kl_estimator": values["kl_estimator"]}),
        )
    )
    made = Args(
        index=list(range(n)),
        rewards=rollouts.reward.clone(),
        info={
            "reward": rollouts.reward.clone(),
            "response_length": rollouts.mask.sum(1),
            "num_actions": rollouts.mask.sum(1),
        },
        response_length=rollouts.mask.sum(1),
        action_mask=rollouts.mask.double(),
        kl=kl,
        values=rollouts.value,
    )
    made.to_device = lambda device: made
    maker = MagicMock(
        strategy=Box(args=args),
        args=args,
        advantage_estimator=values["estimator"],
        kl_ctl=Box(value=values["kl_coef"]),
    )
    for name in names[1:]:
        setattr(maker, name, partial(scope[name], maker))
    more = {"gamma": values["gamma"], "lambd": values["lam"]} if in_range(version, "<0.9.9") else {}
    if in_range(version, "<0.6.3"):
        maker.process_experiences = partial(scope["process_experiences"], maker)
        maker.make_experience = maker.generate_samples = lambda x, *a, **k: made
        args.vllm_enable_sleep, maker.strategy.ring_attn_group = False, None
        maker.generate_samples = lambda *a, **k: [made]
        maker.strategy.is_rank_0 = lambda: True
    scope[names[0]](maker, *([None, None] if in_range(version, "<0.6.3") else [[made]]), **more)
    advantage = made.advantages
    if in_range(version, "<0.7.1"):
        advantage = whitened_in_the_replay_buffer(release, version, values, advantage, rollouts)
    return advantage


def owner_of(version: str) -> str:
    return "RemoteExperienceMaker" if in_range(version, ">=0.6.3") else "NaiveExperienceMaker"


def whitened_in_the_replay_buffer(
    release: str, version: str, values: dict[str, Any], advantage: Tensor, rollouts: Rollouts
) -> Tensor:
    """Up to 0.7.0 ``ppo_actor.py`` normalises in the replay buffer, but for group_norm (and dr_grpo)."""
    if values["estimator"] in ("group_norm", "dr_grpo"):
        return advantage
    scope = taken(
        release, "openrlhf/trainer/ppo_utils/replay_buffer.py", "NaiveReplayBuffer.normalize"
    )
    items = [
        Box(advantages=a, action_mask=m) for a, m in zip(advantage, rollouts.mask, strict=True)
    ]
    more = {"divide_by_std": not values["no_std_norm"]} if in_range(version, ">=0.6.4") else {}
    strategy = Box(all_reduce=lambda x, how: x)
    order = (strategy, "advantages") if in_range(version, ">=0.6.4") else ("advantages", strategy)
    scope["normalize"](items, *order, **more)
    return torch.stack([item.advantages for item in items])


def without_cuda() -> Any:
    """``torch`` for code that waits for a GPU or for other processes."""
    stand_in = MagicMock(wraps=torch)
    for name in ("Tensor", "float32", "long", "bool"):
        setattr(stand_in, name, getattr(torch, name))
    stand_in.distributed = stand_in.cuda = MagicMock()
    stand_in.cuda.current_device = lambda: "cpu"
    return stand_in


@contextlib.contextmanager
def float64_on_the_cpu() -> Iterator[None]:
    """Early releases move tensors to "cuda" and back, and compute KL and sums in float32."""
    real = torch.Tensor.to

    def to(self: Tensor, *a: Any, **k: Any) -> Tensor:
        named = {x for x in (*a, *k.values()) if isinstance(x, (str, torch.dtype))}
        if torch.float32 in named:
            return self.double()
        return self if named & {"cuda", "cpu"} else real(self, *a, **k)

    with (
        mock.patch.object(torch.Tensor, "to", to),
        mock.patch.object(torch.Tensor, "float", torch.Tensor.double),
    ):
        yield
