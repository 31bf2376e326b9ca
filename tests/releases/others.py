"""The loss and the advantages of other frameworks, by their own functions on one batch.

Each function gives the loss of one optimiser step. What is *run* is taken out of the release or
commit (``taken``). Where a loop divides or weighs in the middle of a long method, its line is
repeated here beside its place.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace as Box
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch
from torch import Tensor

from grpo_edu import Rollouts

from .taken import taken

Values = dict[str, Any]


def size_of(rollouts: Rollouts) -> int:
    return int((rollouts.group == rollouts.group[0]).sum())


def at_the_end(rollouts: Rollouts) -> Tensor:
    """``[N, T]``: the reward on the last token of each completion."""
    rewards = torch.zeros_like(rollouts.logp)
    last = rollouts.mask.sum(dim=1).clamp(min=1) - 1
    rewards[torch.arange(len(last)), last] = rollouts.reward
    return rewards


def slices(micro_batch: Tensor) -> list[Tensor]:
    return [micro_batch == number for number in range(int(micro_batch.max()) + 1)]


def skyrl(
    release: str, values: Values, rollouts: Rollouts, leaf: Tensor, micro_batch: Tensor
) -> Tensor:
    root = "skyrl/backends/skyrl_train/utils"
    tools = taken(release, f"{root}/torch_utils.py", "masked_mean", "safe_exp_delta")
    given = {name: tools[name] for name in ("masked_mean", "safe_exp_delta")}
    correct = taken(
        release,
        f"{root}/off_policy_correction_utils.py",
        "apply_off_policy_correction",
        "compute_off_policy_correction",
        "compute_tis_ratio",
        **given,
    )
    estimators = {
        "grpo": "compute_grpo_outcome_advantage",
        "rloo": "compute_rloo_outcome_advantage",
        "maxrl": "compute_maxrl_advantage",
        "reinforce++": "compute_reinforce_plus_plus_outcome_advantage",
        "gae": "compute_gae_advantage_return",
    }
    losses = {
        "regular": "ppo_policy_loss",
        "dual_clip": "ppo_policy_loss",
        "gspo": "gspo_policy_loss",
        "cispo": "compute_policy_loss_cispo",
        "sapo": "sapo_policy_loss",
    }
    estimator, loss_name = (
        estimators[values["advantage_estimator"]],
        losses[values["policy_loss_type"]],
    )
    old = release == "skyrl-0.1.0"
    names = [
        "masked_var",
        "masked_whiten",
        "compute_approx_kl",
        "reduce_loss",
        estimator,
        loss_name,
    ]
    names += [] if old else ["apply_loss_reduction_to_advantages_minibatch"]
    code = taken(
        release,
        f"{root}/ppo_utils.py",
        *names,
        apply_off_policy_correction=correct["apply_off_policy_correction"],
        **given,
    )
    mask = rollouts.mask.double()
    more = (
        {"values": rollouts.value, "lambd": values["lambd"]}
        if values["advantage_estimator"] == "gae"
        else {"index": rollouts.group.numpy()}
    )
    advantage, _ = code[estimator](
        token_level_rewards=at_the_end(rollouts),
        response_mask=mask,
        gamma=values["gamma"],
        grpo_norm_by_std=values["grpo_norm_by_std"],
        **more,
    )
    parts = slices(micro_batch)
    if not old:
        ends = range(0, len(mask), size_of(rollouts))
        boundaries = [(start, start + size_of(rollouts)) for start in ends]
        bounds = {} if release == "skyrl-0.2.0" else {"prompt_boundaries": boundaries}
        advantage = code["apply_loss_reduction_to_advantages_minibatch"](
            advantage,
            mask,
            values["loss_reduction"],
            int(parts[0].sum()),
            values["max_seq_len"],
            **bounds,
        )
    config = skyrl_config(values)
    total = torch.zeros(())
    for rows in parts:
        loss, _ = code[loss_name](
            leaf[rows],
            rollouts.old_logp[rows],
            advantage[rows],
            config,
            mask[rows],
            rollouts.sampler_logp[rows],
        )
        if values["use_kl_loss"]:
            kl = code["compute_approx_kl"](
                leaf[rows], rollouts.ref_logp[rows], mask[rows], values["kl_estimator_type"]
            )
            kl = tools["masked_mean"](kl, mask[rows], dim=-1).mean() * values["kl_loss_coef"]
            # workers/worker.py: microbatch_weight = len(microbatch) / len(data); 0.1.0 averages
            loss = loss + kl * (1 if old else rows.sum() / len(rows))
        total = total + (loss / len(parts) if old else loss)
    return total


def skyrl_config(values: Values) -> Box:
    correction = Box(
        tis_ratio_type=values["tis_type"],
        token_tis_ratio_clip_high=values["tis_token_cap"],
        sequence_tis_ratio_clip_high=values["tis_sequence_cap"],
        sequence_mask_metric=None,
        outlier_token_is_threshold_low=None,
        outlier_token_is_threshold_high=None,
        token_mask_is_threshold_low=None,
        token_mask_is_threshold_high=None,
    )
    names = (
        "policy_loss_type",
        "loss_reduction",
        "max_seq_len",
        "eps_clip_low",
        "eps_clip_high",
        "clip_ratio_c",
    )
    return Box(
        **{name: values[name] for name in names},
        off_policy_correction=correction,
        sapo=Box(tau_pos=values["sapo_pos"], tau_neg=values["sapo_neg"]),
        cispo=Box(cispo_eps_clip_low=values["cispo_low"], cispo_eps_clip_high=values["cispo_high"]),
    )


def oat(
    release: str, values: Values, rollouts: Rollouts, leaf: Tensor, micro_batch: Tensor
) -> Tensor:
    """``PPOLearner.learning_step`` itself; a row's number stands in its token ids."""
    ops = taken(release, "oat/utils/ops.py", "masked_mean", "masked_sum")
    names = ("learning_step", "compute_monte_carlo_advantages")
    first = MagicMock(wraps=np)
    first.random.permutation = np.arange
    code = taken(
        release,
        "oat/algorithms/ppo.py",
        *(f"PPOLearner.{name}" for name in names),
        masked_mean=ops["masked_mean"],
        masked_sum=ops["masked_sum"],
        np=first,
        torch=on_the_cpu(),
    )
    learner = MagicMock(
        args=Box(
            **{
                **values,
                "train_batch_size_per_device": int((micro_batch == 0).sum()),
                "temperature": 1.0,
                "num_samples": size_of(rollouts),
            }
        )
    )
    losses: list[Tensor] = []
    learner.strategy.backward = lambda loss, *a: losses.append(loss)
    learner.strategy.grad_acc_step = 1
    learner.strategy.get_gradient_norm = lambda model: 0.0
    learner.ref_model = "reference" if values["beta"] or values["kl_penalty_coef"] else None
    learner.compute_monte_carlo_advantages = lambda *a: code["compute_monte_carlo_advantages"](
        learner, *a
    )
    if values["critic_type"] == "drgrpo":
        learner.masked_aggregator = lambda x, m, axis: ops["masked_sum"](
            x, m, axis=axis, constant_normalizer=values["generate_max_length"]
        )
    else:
        learner.masked_aggregator = ops["masked_mean"]
    learner.get_completion_mask = lambda *a: torch.cat(
        [torch.zeros_like(rollouts.mask[:, :1]), rollouts.mask], dim=1
    )

    def logps(model: Any, input_ids: Tensor, *a: Any, **k: Any) -> tuple[Tensor, Tensor]:
        source = (
            rollouts.ref_logp
            if model == "reference"
            else leaf
            if torch.is_grad_enabled()
            else rollouts.old_logp
        )
        return source[input_ids[:, 0]][:, : input_ids.shape[1] - 1], torch.zeros(
            input_ids.shape[0], input_ids.shape[1] - 1
        )

    learner.get_batch_logps = logps
    width = rollouts.mask.shape[1] + 1
    rows = torch.arange(len(rollouts.mask))
    # With reinforce_update 0.2.4 stops with this error after the step, when it logs.
    with contextlib.suppress(ZeroDivisionError):
        code["learning_step"](
            learner,
            {
                "input_ids": rows[:, None].expand(-1, width).contiguous(),
                "attention_mask": torch.ones(len(rows), width, dtype=torch.long),
                "rewards": [[float(r)] for r in rollouts.reward],
                "prompt_ids_lens": [1] * len(rows),
                "action_logprobs": [
                    lp[m].tolist()
                    for lp, m in zip(rollouts.sampler_logp, rollouts.mask, strict=True)
                ],
                "loss_masks": [
                    1.0 - float(values["ignore_no_eos"] and t) for t in rollouts.truncated
                ],
            },
        )
    return torch.stack(losses).mean()


def on_the_cpu() -> Any:
    stand_in = MagicMock(wraps=torch)
    for name in ("Tensor", "float32", "long", "bool", "float"):
        setattr(stand_in, name, getattr(torch, name))
    stand_in.cuda = MagicMock()
    stand_in.cuda.current_device = lambda: "cpu"
    stand_in.no_grad = torch.no_grad
    stand_in.full_like = torch.full_like
    return stand_in


def nemo_rl(
    release: str, values: Values, rollouts: Rollouts, leaf: Tensor, micro_batch: Tensor
) -> Tensor:
    utils = taken(
        release,
        "nemo_rl/algorithms/utils.py",
        "masked_mean",
        "calculate_kl",
        "calculate_baseline_and_std_per_prompt",
    )
    baseline = {
        "calculate_baseline_and_std_per_prompt": utils["calculate_baseline_and_std_per_prompt"]
    }
    estimator = taken(
        release, "nemo_rl/algorithms/advantage_estimator.py", "GRPOAdvantageEstimator", **baseline
    )["GRPOAdvantageEstimator"]
    mask = rollouts.mask.double()
    settings = Box(
        use_leave_one_out_baseline=values["use_leave_one_out_baseline"],
        normalize_rewards=values["normalize_rewards"],
    )
    advantage = estimator(settings, None).compute_advantage(
        rollouts.group[:, None], rollouts.reward, mask
    )
    given = {
        "LossFunction": object,
        "LossInputType": MagicMock(),
        "masked_mean": utils["masked_mean"],
        "calculate_kl": utils["calculate_kl"],
    }
    loss_class = taken(
        release, "nemo_rl/algorithms/loss/loss_functions.py", "ClippedPGLossFn", **given
    )["ClippedPGLossFn"]
    loss = loss_class(nemo_config(values))
    sample_mask = (
        (1 - rollouts.truncated.double()) if values["overlong_filtering"] else torch.ones(len(mask))
    )
    live = mask * sample_mask[:, None]
    sequences = (live.sum(dim=1) > 0).double() if not values["token_level_loss"] else sample_mask
    total = torch.zeros(())
    for rows in slices(micro_batch):
        data = {
            "token_mask": shifted(mask[rows]),
            "sample_mask": sequences[rows] * sample_mask[rows],
            "advantages": shifted(advantage[rows]),
            "prev_logprobs": shifted(rollouts.old_logp[rows]),
            "generation_logprobs": shifted(rollouts.sampler_logp[rows]),
            "reference_policy_logprobs": shifted(rollouts.ref_logp[rows]),
        }
        total = total + loss(leaf[rows], data, sequences.sum(), live.sum())[0]
    return total


def shifted(x: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(x[:, :1]), x], dim=1)


def nemo_config(values: Values) -> Box:
    same = (
        "disable_ppo_ratio",
        "token_level_loss",
        "ratio_clip_min",
        "ratio_clip_max",
        "ratio_clip_c",
        "use_cispo",
        "force_on_policy_ratio",
    )
    return Box(
        **{name: values[name] for name in same},
        sequence_level_importance_ratios=values["sequence_level"],
        reference_policy_kl_penalty=values["kl_coef"],
        reference_policy_kl_type=values["kl_type"],
        kl_input_clamp_value=20.0,
        kl_output_clamp_value=10.0,
        use_kl_in_reward=False,
        use_importance_sampling_correction=values["is_correction"],
        truncated_importance_sampling_type=values["is_type"],
        truncated_importance_sampling_ratio=values["is_cap"],
        truncated_importance_sampling_ratio_min=values["is_low"],
        use_on_policy_kl_approximation=False,
        positive_example_nll_weight=0.0,
    )


PLACES = {
    "slime": (
        "slime/utils/ppo_utils.py",
        "slime/backends/megatron_utils/loss.py",
        "slime/ray/rollout.py",
    ),
    "miles": (
        "miles/backends/training_utils/loss_hub/math_utils.py",
        "miles/backends/training_utils/loss_hub/corrections.py",
        "miles/ray/rollout/train_data_conversion.py",
    ),
}


def slime(
    release: str, values: Values, rollouts: Rollouts, leaf: Tensor, micro_batch: Tensor
) -> Tensor:
    """Per-token functions, reward normalisation and TIS are run; the reducer is repeated.

    ``cp_utils.py``: Σ over completions of (x·mask).sum()/max(|o|, 1), or of the tokens; Megatron
    divides by the completions or the tokens of the step (``loss.py``).
    """
    who = release.split("-")[0]
    losses, tis, _ = PLACES[who]
    helpers = (
        ["_safe_exp_neg_ppo_kl", "_safe_clamp_log_ratio", "_LOG_RATIO_EXP_CLAMP"]
        if who == "miles"
        else ["compute_cispo_loss"]
    )
    code = taken(
        release, losses, "compute_approx_kl", "compute_gspo_kl", "compute_policy_loss", *helpers
    )
    advantage = group_normalised(release, who, values, rollouts)
    high = values["eps_clip_high"] if values["eps_clip_high"] is not None else values["eps_clip"]
    masks = [m.double() for m in rollouts.mask]
    ppo_kl = [old - new for old, new in zip(rollouts.old_logp, leaf, strict=True)]
    flat = torch.cat(ppo_kl)
    if values["advantage_estimator"] == "gspo":
        flat = code["compute_gspo_kl"](list(leaf), list(rollouts.old_logp), list(leaf), masks)
    each = advantage[:, None].expand_as(leaf).reshape(-1)
    if values["advantage_estimator"] == "cispo":
        loss, _ = code["compute_cispo_loss"](flat, leaf.reshape(-1), each, values["eps_clip"], high)
    else:
        loss = code["compute_policy_loss"](
            flat, each, values["eps_clip"], high, values["eps_clip_c"]
        )[0]
    if values["use_tis"]:
        function = taken(release, tis, "vanilla_tis_function")["vanilla_tis_function"]
        args = Box(tis_clip_low=values["tis_clip_low"], tis_clip=values["tis_clip"])
        loss, _, _ = function(
            args,
            pg_loss=loss,
            train_log_probs=list(rollouts.old_logp),
            rollout_log_probs=list(rollouts.sampler_logp),
            loss_masks=masks,
        )
    if values["use_kl_loss"]:
        ratio = (leaf - rollouts.old_logp).exp().reshape(-1) if values["use_unbiased_kl"] else None
        kl = code["compute_approx_kl"](
            leaf.reshape(-1),
            rollouts.ref_logp.reshape(-1),
            values["kl_loss_type"],
            importance_ratio=ratio,
        )
        loss = loss + values["kl_loss_coef"] * kl
    per_token = loss.reshape(leaf.shape) * rollouts.mask
    if values["per_token"]:
        return per_token.sum() / rollouts.mask.sum()
    return (per_token.sum(dim=1) / rollouts.mask.sum(dim=1).clamp(min=1)).mean()


def group_normalised(release: str, who: str, values: Values, rollouts: Rollouts) -> Tensor:
    args = Box(
        advantage_estimator=values["advantage_estimator"],
        rewards_normalization=not values["no_group_norm"],
        grpo_std_normalization=not values["disable_std"],
        n_samples_per_prompt=size_of(rollouts),
        rollout_batch_size=len(rollouts.group) // size_of(rollouts),
        custom_reward_post_process_path=None,
    )
    samples = [
        Box(get_reward_value=lambda a, r=float(r): r, group_index=int(g), rollout_id=i, index=i)
        for i, (r, g) in enumerate(zip(rollouts.reward, rollouts.group, strict=True))
    ]
    if who == "slime":
        code = taken(release, PLACES[who][2], "RolloutManager._post_process_rewards")
        _, rewards = code["_post_process_rewards"](
            Box(args=args, custom_reward_post_process_func=None), samples
        )
    else:
        code = taken(
            release,
            PLACES[who][2],
            "_post_process_rewards",
            "_normalize_rewards_by_rollout",
            "_reward_group_segments",
        )
        _, rewards = code["_post_process_rewards"](args, samples, None)
    return torch.tensor(rewards, dtype=torch.float64)


def open_instruct(
    release: str, values: Values, rollouts: Rollouts, leaf: Tensor, micro_batch: Tensor
) -> Tensor:
    kinds = Box(dapo="dapo", cispo="cispo")
    utils = taken(release, "open_instruct/model_utils.py", "estimate_kl")
    names = (
        "_rho_drop_masks",
        "_sequence_level_mean",
        "RhoCorrection",
        "compute_rho_correction",
        "compute_grpo_loss",
    )
    code = taken(
        release,
        "open_instruct/grpo_utils.py",
        *names,
        GRPOLossType=kinds,
        model_utils=Box(estimate_kl=utils["estimate_kl"]),
    )
    # data_loader.py:1473-1482
    scores = rollouts.reward.reshape(-1, size_of(rollouts)).numpy()
    advantage = scores - scores.mean(axis=1, keepdims=True)
    if values["advantage_normalization_type"] == "standard":
        advantage = advantage / (scores.std(axis=1, keepdims=True) + 1e-8)
    each = torch.as_tensor(advantage).reshape(-1, 1).expand_as(leaf)
    mask = rollouts.mask
    if values["filter_zero_std_samples"]:  # data_loader.py:815
        live = (scores.std(axis=1) != 0).repeat(size_of(rollouts))
        mask = mask & torch.as_tensor(live)[:, None]
    config = Box(
        loss_fn=values["loss_fn"],
        clip_lower=values["clip_lower"],
        clip_higher=values["clip_higher"],
        kl_estimator=values["kl_estimator"],
        use_rho_correction=values["use_rho_correction"],
        rho_clamp_lower_bound=values["rho_clamp_low"],
        rho_clamp_upper_bound=values["rho_clamp_high"],
        rho_mask_lower_bound=0.0,
        rho_mask_upper_bound=0.0,
        rho_mask_sequence_level=False,
        rho_mask_tv_divergence=False,
    )
    rho = code["compute_rho_correction"](
        rollouts.old_logp, rollouts.sampler_logp, mask, each, config
    )
    reference = rollouts.ref_logp if values["beta"] else None
    loss, _, kl = code["compute_grpo_loss"](
        leaf, (leaf - rollouts.old_logp).exp(), each, reference, config, rho.weights
    )
    per_token = (loss + values["beta"] * kl) * mask
    # grpo_fast.py:651-724: divided by the tokens of the accumulation group, or by the number
    denominator = (
        mask.sum() if values["loss_denominator"] == "token" else values["loss_denominator"]
    )
    return per_token.sum() / denominator


def rlhf_book(
    release: str, values: Values, rollouts: Rollouts, leaf: Tensor, micro_batch: Tensor
) -> Tensor:
    names = {
        "grpo": "GRPOLoss", "drgrpo": "GRPOLoss", "gspo": "GSPOLoss", "rloo": "ReinforceLoss", "reinforce": "ReinforceLoss",
        "cispo": "CISPOLoss", "sapo": "SAPOLoss", "dapo": "DAPOLoss", "maxrl": "MaxRLLoss",
    }  # fmt: skip
    made = {
        "rloo": "compute_loo_advantages",
        "drgrpo": "compute_nonstandardized_advantages",
        "maxrl": "compute_maxrl_advantages",
    }
    loss_name = names[values["loss"]]
    helpers = ("approx_kl1", "approx_kl2", "approx_kl3", "get_approx_kl", "masked_mean")
    code = taken(release, "code/policy_gradients/loss.py", *helpers, loss_name)
    rewards = rollouts.reward.reshape(-1, size_of(rollouts)).T
    if values["loss"] == "reinforce":
        advantage = rewards
    else:
        function = made.get(values["loss"], "compute_standardized_advantages")
        advantage = taken(release, "code/policy_gradients/utils.py", function)[function](rewards)
    each = advantage.T.reshape(-1, 1)
    settings = (
        "clip_eps_lo",
        "clip_eps_hi",
        "beta",
        "kl_estimator",
        "sapo_temp_pos",
        "sapo_temp_neg",
    )
    loss = code[loss_name](**{name: values[name] for name in settings})
    parts = slices(micro_batch)
    return torch.stack([
        loss(leaf[rows], Box(log_probs_old=rollouts.old_logp[rows], log_probs_ref=rollouts.ref_logp[rows], advantages=each[rows], action_mask=rollouts.mask[rows].double()))
        for rows in parts
    ]).mean()  # fmt: skip


def easyr1(
    release: str, values: Values, rollouts: Rollouts, leaf: Tensor, micro_batch: Tensor
) -> Tensor:
    tools = taken(
        release, "verl/utils/torch_functional.py", "masked_mean", "masked_var", "masked_whiten"
    )
    made = {"grpo": "grpo", "rloo": "rloo", "reinforce_plus_plus": "reinforce_plus_plus"}
    estimator = f"compute_{made[values['adv_estimator']]}_outcome_advantage"
    code = taken(
        release,
        "verl/trainer/core_algos.py",
        "average_loss",
        "compute_policy_loss",
        "compute_kl",
        estimator,
        VF=Box(**{n: tools[n] for n in ("masked_mean", "masked_var", "masked_whiten")}),
    )
    mask = rollouts.mask.double()
    rewards = at_the_end(rollouts)
    if not values["disable_kl"] and not values["use_kl_loss"]:
        # ray_trainer.py:127: token_level_rewards = token_level_scores - kl_coef · kld
        rewards = (
            rewards
            - values["kl_coef"]
            * code["compute_kl"](rollouts.old_logp, rollouts.ref_logp, values["kl_penalty"])
            * mask
        )
    advantage, _ = code[estimator](
        rewards, mask, index=rollouts.group.numpy(), gamma=values["gamma"]
    )
    total = torch.zeros(())
    for rows in slices(micro_batch):
        loss, _ = code["compute_policy_loss"](
            rollouts.old_logp[rows], leaf[rows], advantage[rows], mask[rows], values["clip_low"], values["clip_high"], values["clip_dual"],
            values["tau_positive"], values["tau_negative"], values["loss_type"], values["loss_avg_mode"],
        )  # fmt: skip
        if not values["disable_kl"] and values["use_kl_loss"]:
            kl = code["compute_kl"](leaf[rows], rollouts.ref_logp[rows], values["kl_penalty"])
            loss = (
                loss
                + code["average_loss"](kl, mask[rows], mode=values["loss_avg_mode"])
                * values["kl_coef"]
            )
        total = total + loss * mask[rows].sum() / mask.sum()  # dp_actor.py:287
    return total


def roll(
    release: str, values: Values, rollouts: Rollouts, leaf: Tensor, micro_batch: Tensor
) -> Tensor:
    names = (
        "agg_loss",
        "compute_approx_kl",
        "masked_mean",
        "masked_sum",
        "masked_var",
        "masked_whiten",
        "reward_norm",
        "reward_postprocess",
        "compute_reinforce_return",
        "compute_advantage",
    )
    tools = taken(release, "roll/utils/functionals.py", *names)
    config = Box(
        **{
            name: values[name]
            for name in (
                "adv_estimator",
                "norm_mean_type",
                "norm_std_type",
                "reward_clip",
                "loss_agg_mode",
                "use_kl_loss",
                "kl_loss_coef",
                "rl_loss_coef",
                "entropy_loss_coef",
                "importance_sampling",
                "pg_clip",
                "pg_clip_low",
                "pg_clip_high",
                "use_pg_clip_range",
                "dual_clip_loss",
                "difficulty_loss_weight",
                "length_loss_weight",
            )
        },
        actor_infer=Box(generating_args=Box(num_return_sequences=size_of(rollouts))),
        enable_old_logprobs_recompute=True,
        train_infer_correction=Box(is_weight=Box(enabled=False)),
    )
    mask = rollouts.mask.double()
    data = Box(
        batch={"response_level_rewards": rollouts.reward.clone()},
        meta_info={"metrics": {}},
        non_tensor_batch={},
    )
    tools["reward_postprocess"](data, config, {})
    at_end = at_the_end(rollouts) * 0
    at_end[torch.arange(len(mask)), rollouts.mask.sum(dim=1).clamp(min=1) - 1] = data.batch[
        "response_level_rewards"
    ]
    data.batch["token_level_rewards"] = at_end
    tools["compute_advantage"](
        data,
        values["gamma"],
        values["lambd"],
        values["adv_estimator"],
        whiten_advantages=values["whiten_advantages"],
        response_mask=mask,
    )
    pg = values["worker"].endswith("ActorPGWorker")
    file, owner = ("actor_pg_worker", "ActorPGWorker") if pg else ("actor_worker", "ActorWorker")
    given = {name: tools[name] for name in ("agg_loss", "compute_approx_kl", "masked_mean")}
    methods = [
        "loss_func",
        *([f"_compute_{k}_loss" for k in ("vanilla_pg", "ppo", "tis", "cispo")] if pg else []),
    ]
    code = taken(
        release, f"roll/pipeline/rlvr/{file}.py", *(f"{owner}.{m}" for m in methods), **given
    )
    worker = MagicMock(pipeline_config=config, _cached_metrics={})
    for method in methods[1:]:
        setattr(worker, method, lambda *a, method=method: code[method](worker, *a))
    own = {
        "pg_variant": values["pg_variant"],
        "cispo_epsilon_low": values["cispo_low"],
        "cispo_epsilon_high": values["cispo_high"],
        "tis_lower_bound": values["tis_low"],
        "tis_upper_bound": values["tis_high"],
    }
    worker._get_or_cache_config = lambda name, default: own.get(name, default)
    worker.compute_sample_weights = lambda d, m: torch.ones(len(m))
    worker.get_old_log_probs_with_cache = lambda d, lp: d.batch["old_log_probs"]
    total = torch.zeros(())
    counts = {"response_mask": mask.sum(), "final_response_mask": mask.sum()}
    live = (mask.sum(dim=1) > 0).sum()
    for rows in slices(micro_batch):
        worker.strategy.op_compute_log_probs = lambda rows=rows, **k: leaf[rows]
        worker.strategy.op_compute_entropy = lambda rows=rows, **k: torch.zeros_like(leaf[rows])
        batch = {
            "response_mask": shifted(mask[rows]), "final_response_mask": mask[rows], "ref_log_probs": rollouts.ref_logp[rows],
            "advantages": data.batch["advantages"][rows], "old_log_probs": rollouts.old_logp[rows], "input_ids": None, "train_infer_is_weight": torch.ones_like(leaf[rows]),
        }  # fmt: skip
        one = Box(
            batch=batch,
            meta_info={
                "batch_num_tokens": dict(counts),
                "global_valid_samples": dict.fromkeys(counts, live),
            },
            non_tensor_batch={},
        )
        total = total + code["loss_func"](worker, one, None)[0]
    return total


def areal(
    release: str, values: Values, rollouts: Rollouts, leaf: Tensor, micro_batch: Tensor
) -> Tensor:
    names = ("ppo_actor_loss_fn", "sapo_loss_fn", "_compute_sequence_level_ratio_and_advantages")
    code = taken(release, "areal/utils/functional/functional.py", *names)
    advantage = areal_advantages(release, values, rollouts)
    mask = rollouts.mask
    total = torch.zeros(())
    for rows in slices(micro_batch):
        if not mask[rows].any():
            continue
        if values["use_sapo_loss"]:
            loss, _ = code["sapo_loss_fn"](
                logprobs=leaf[rows],
                old_logprobs=rollouts.old_logp[rows],
                advantages=advantage[rows],
                tau_pos=values["sapo_tau_pos"],
                tau_neg=values["sapo_tau_neg"],
                loss_mask=mask[rows],
                importance_sampling_level="token",
            )
        else:
            loss, _ = code["ppo_actor_loss_fn"](
                leaf[rows],
                rollouts.old_logp[rows],
                rollouts.old_logp[rows],
                advantage[rows],
                values["clip_low"],
                mask[rows],
                eps_clip_higher=values["clip_higher"],
                c_clip=values["c_clip"],
                importance_sampling_level=values["importance_sampling_level"],
            )
        total = (
            total + loss * mask[rows].sum() / mask.sum()
        )  # actor.py: weighted by loss_mask.count_nonzero()
    return total


def areal_advantages(release: str, values: Values, rollouts: Rollouts) -> Tensor:
    """``PPOActor._compute_advantages``, which rolls its inputs by one token."""
    norm = None
    if values["mean_level"] or values["std_level"]:
        dist = MagicMock(is_initialized=lambda: False)
        cls = taken(release, "areal/utils/data.py", "Normalization", dist=dist)["Normalization"]
        norm = cls(
            Box(
                mean_level=values["mean_level"],
                std_level=values["std_level"],
                std_unbiased=values["std_unbiased"],
                eps=values["reward_norm_eps"],
                group_size=size_of(rollouts),
                mean_leave1out=values["leave1out"],
            )
        )
    estimate = lambda a, b: a - b
    actor = Box(
        config=Box(overlong_reward_penalty=False, use_decoupled_loss=True, recompute_logprob=True), reward_bias=0.0, reward_scaling=1.0, reward_clip=1e9,
        reward_norm=norm, kl_ctl=values["kl_ctl"], kl_estimator=estimate, mask_no_eos_with_zero=False, discount=1.0, gae_lambda=1.0, adv_norm=None,
    )  # fmt: skip
    data = {
        "input_ids": shifted(rollouts.mask), "rewards": rollouts.reward.clone(), "loss_mask": shifted(rollouts.mask),
        "logprobs": shifted(rollouts.old_logp), "ref_logp": torch.cat([rollouts.ref_logp, torch.zeros_like(rollouts.ref_logp[:, :1])], dim=1),
        "attention_mask": torch.cat([torch.ones_like(rollouts.mask[:, :1]), rollouts.mask], dim=1),
    }  # fmt: skip
    code = taken(release, "areal/trainer/ppo/actor.py", "PPOActor._compute_advantages")
    return code["_compute_advantages"](actor, data)["advantages"][:, : rollouts.mask.shape[1]]


def ms_swift(
    release: str, values: Values, rollouts: Rollouts, leaf: Tensor, micro_batch: Tensor
) -> Tensor:
    advantages = taken(release, "swift/rl_core/advantage.py", "compute_advantages")[
        "compute_advantages"
    ]
    scale = (
        values["scale_rewards"] or {"grpo": "group", "rloo": "none"}[values["advantage_estimator"]]
    )
    in_reward = (
        values["advantage_estimator"] == "rloo"
        if values["kl_in_reward"] is None
        else values["kl_in_reward"]
    )
    kl = ((rollouts.old_logp - rollouts.ref_logp) * rollouts.mask).sum(dim=1)
    advantage, _ = advantages(
        rollouts.reward[:, None],
        torch.ones(1),
        size_of(rollouts),
        values["advantage_estimator"],
        scale,
        in_reward,
        values["beta"],
        kl,
    )
    file = "swift/rlhf_trainers/grpo_trainer.py"
    same = dict.fromkeys(("gather", "gather_object", "nanmax", "nanmin"), lambda x: x)
    names = (
        "WINDOW_NORMALIZED_LOSS_TYPES",
        "GRPOTrainer._compute_loss_and_metrics",
        "GRPOTrainer._undo_gradient_accumulation_scaling",
        "GRPOTrainer._get_rollout_is_correction",
        "GRPOTrainer._apply_rollout_importance_sampling",
        "GRPOTrainer._compute_sequence_level_ratios",
    )
    code = taken(release, file, *names, **same)
    parts = slices(micro_batch)
    high = values["epsilon_high"] if values["epsilon_high"] is not None else values["epsilon"]
    trainer = MagicMock(
        loss_type=values["loss_type"], beta=values["beta"], kl_in_reward=in_reward, epsilon_low=values["epsilon"], epsilon_high=high, tau_pos=values["tau_pos"], tau_neg=values["tau_neg"],
        importance_sampling_level=values["importance_sampling_level"], overlong_filter=values["overlong_filter"], max_completion_length=values["max_completion_length"], compute_entropy=False,
        rollout_importance_sampling_mode=values["is_mode"], rollout_importance_sampling_threshold=values["is_threshold"], disable_rollout_importance_sampling=values["is_mode"] is None, log_rollout_offpolicy_metrics=False,
        off_policy_sequence_mask_delta=None, sdar_loss_coef=0.0, chord_sft_iterator=None, _has_teacher=False, model_accepts_loss_kwargs=False, compute_loss_func=None, current_gradient_accumulation_steps=len(parts),
        args=Box(gradient_accumulation_steps=len(parts), delta=values["delta"], top_entropy_quantile=1.0, log_entropy=False), accelerator=MagicMock(num_processes=1),
    )  # fmt: skip
    trainer.model.training = True
    for name in names[2:]:
        method = name.split(".")[1]
        setattr(trainer, method, lambda *a, method=method: code[method](trainer, *a))
    trainer._compute_rollout_offpolicy_metrics = trainer._compute_is_correction_metrics = (
        lambda *a: {}
    )
    total = torch.zeros(())
    for rows in parts:
        trainer._get_per_token_logps_and_entropies = lambda *a, rows=rows, **k: (leaf[rows], None)
        batch = Box(
            completion_mask=rollouts.mask[rows], truncated_mask=rollouts.truncated[rows], ref_per_token_logps=rollouts.ref_logp[rows], advantages=advantage[rows][:, None].expand_as(leaf[rows]),
            old_per_token_logps=rollouts.old_logp[rows], rollout_per_token_logps=rollouts.sampler_logp[rows], num_items_in_batch=rollouts.mask.sum(), teacher_per_token_logps=None,
        )  # fmt: skip
        total = total + code["_compute_loss_and_metrics"](trainer, None, {}, batch)[0] / len(
            parts
        )  # transformers' Trainer
    return total


def unsloth(
    release: str, values: Values, rollouts: Rollouts, leaf: Tensor, micro_batch: Tensor
) -> Tensor:
    """``grpo_compute_loss`` of unsloth_zoo; the advantages are TRL's, written out here."""
    code = taken(release, "unsloth_zoo/rl_replacements.py", "grpo_compute_loss")
    rewards = rollouts.reward.reshape(-1, size_of(rollouts))
    advantage = rewards - rewards.mean(dim=1, keepdim=True)
    if values["loss_type"] != "dr_grpo" and values["scale_rewards"] == "group":
        advantage = advantage / (rewards.std(dim=1, keepdim=True) + 1e-4)
    if values["loss_type"] != "dr_grpo" and values["scale_rewards"] == "batch":
        advantage = advantage / (rewards.std() + 1e-4)
    mask = rollouts.mask & ~(
        rollouts.truncated[:, None] & bool(values["mask_truncated_completions"])
    )
    parts = slices(micro_batch)
    beta = (
        values["beta"]
        if values["beta"] is not None
        else (0.0 if values["loss_type"] in ("dapo", "dr_grpo") else 0.001)
    )
    high = values["epsilon_high"] if values["epsilon_high"] is not None else values["epsilon"]
    total = torch.zeros(())
    for rows in parts:
        total = total + code["grpo_compute_loss"](
            rollouts.ref_logp[rows], leaf[rows], rollouts.old_logp[rows], None, torch.zeros_like(mask[rows], dtype=torch.long), mask[rows], beta, advantage.reshape(-1)[rows],
            loss_type=values["loss_type"], epsilon_low=values["epsilon"], epsilon_high=high, max_completion_length=values["max_completion_length"], delta=values["delta"],
            importance_sampling_level=values["importance_sampling_level"], num_items_in_batch=mask.sum(), current_gradient_accumulation_steps=len(parts), steps_per_generation=len(parts),
            sapo_temperature_pos=values["sapo_pos"], sapo_temperature_neg=values["sapo_neg"], use_bias_correction_kl=values["bias_correction"],
        )[0]  # fmt: skip
    return total
