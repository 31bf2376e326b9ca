"""Our recipes against TRL 1.16's own trainers: value and gradient, float64, to 1e-9, over several micro-batches."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from batches import batch, product_of

from grpo_edu import Rollouts
from grpo_edu.frameworks.tables import NotCovered, framework, presets, recipe_of
from grpo_edu.objective import aggregation as agg
from grpo_edu.weights import factors, split

pytest.importorskip("trl", reason="TRL is not here: pip install -e '.[parity]'")
pytestmark = [
    pytest.mark.parity,
    pytest.mark.filterwarnings("default"),  # what TRL and its imports warn of is theirs
]

import trl  # noqa: E402
from parity_trl import step  # noqa: E402

if not trl.__version__.startswith("1.16."):
    pytest.skip(
        f"TRL {trl.__version__} is here, the private methods are those of 1.16: pip install 'trl==1.16.*'",
        allow_module_level=True,
    )

GRPO_LOSSES = ["grpo", "bnpo", "dapo", "dr_grpo", "luspo", "cispo", "sapo"]
CASES: dict[str, dict] = {
    "defaults": {},
    **{f"loss_type={x}": {"loss_type": x} for x in GRPO_LOSSES},
    **{f"loss_type={x}, sequence": {"loss_type": x, "importance_sampling_level": "sequence"} for x in ("grpo", "luspo", "dapo", "dr_grpo", "bnpo")},
    "cispo cap 5": {"loss_type": "cispo", "epsilon_high": 5.0},
    "clip-higher": {"epsilon_high": 0.28},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
    "delta 4": {"delta": 1.5, "loss_type": "grpo"},
    "no std": {"scale_rewards": "none"},
    "batch std": {"scale_rewards": "batch"},
    "gdpo": {"multi_objective_aggregation": "normalize_then_sum", "reward_weights": [1.0, 0.5]},
    "truncation mask": {"mask_truncated_completions": True},
    **{f"truncation mask, {x}": {"mask_truncated_completions": True, "loss_type": x} for x in ("grpo", "dr_grpo", "bnpo", "luspo")},
    **{f"beta, {x}": {"beta": 0.1, "loss_type": x} for x in GRPO_LOSSES},
    **{f"beta, plain k3, {x}": {"beta": 0.1, "loss_type": x, "use_bias_correction_kl": False} for x in GRPO_LOSSES},
    **{f"beta, sequence, {x}": {"beta": 0.1, "loss_type": x, "importance_sampling_level": "sequence"} for x in ("grpo", "luspo", "dapo")},
    **{
        f"vllm {mode}": {"use_vllm": True, "vllm_importance_sampling_mode": mode, "vllm_importance_sampling_clip_max": 1.5, "beta": 0.1}
        for mode in ("sequence_mask", "sequence_truncate", "token_mask", "token_truncate")
    },
    "vllm both bounds": {"use_vllm": True, "vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_clip_min": 0.8, "vllm_importance_sampling_clip_max": 1.2},
    "icepop": {"use_vllm": True, "vllm_importance_sampling_mode": "token_mask", "vllm_importance_sampling_clip_min": 0.8, "vllm_importance_sampling_clip_max": 1.2},
    "rloo": {"trainer": "RLOO"},
    "rloo without KL": {"trainer": "RLOO", "beta": 0.0},
    "rloo, whitened": {"trainer": "RLOO", "normalize_advantages": True},
    "gmpo": {"trainer": "GMPO"},
    "gmpo, beta, eps": {"trainer": "GMPO", "beta": 0.1, "epsilon": 0.1, "epsilon_high": 0.2},
}  # fmt: skip


def rollouts_for(options: dict, seed: int, kind: str) -> Rollouts:
    """Unequal lengths, an unscored row, a dead group; masked rows and holes in the mask where the trainer has a tool mask."""
    one = batch(seed, groups=3, size=4, width=7, kind=kind)
    mask = one.mask
    if options.get("trainer") == "RLOO":
        mask = torch.arange(7)[None] < one.lengths.clamp(min=1)[:, None]
    else:
        mask = mask & (torch.rand(mask.shape, generator=torch.Generator().manual_seed(seed)) < 0.8)
        mask[int(one.lengths.argmax()), -1] = True
    reward = one.reward.clone()
    reward[:4] = 0.7  # a dead group
    scored = torch.ones(12, dtype=torch.bool)
    scored[9] = False
    parts = one.reward_parts.clone()
    parts[2, 0] = torch.nan
    parts[9] = torch.nan
    return replace(one, mask=mask, reward=reward, scored=scored, reward_parts=parts)


def check(
    options: dict, rollouts: Rollouts, micro_batch: torch.Tensor, offset: float = 0.0
) -> None:
    recipe = recipe_of(framework("trl"), options, "1.16")
    theirs_leaf, ours_leaf = (rollouts.logp.clone().requires_grad_() for _ in range(2))
    theirs = step(options, rollouts, theirs_leaf, micro_batch)
    ours = recipe.loss(rollouts.with_logp(ours_leaf), micro_batch=micro_batch)
    assert ours.item() + offset == pytest.approx(theirs.item(), abs=1e-9)
    their_gradient = torch.autograd.grad(theirs, theirs_leaf)[0]
    torch.testing.assert_close(
        torch.autograd.grad(ours, ours_leaf)[0], their_gradient, rtol=1e-9, atol=1e-9
    )
    ledger = product_of(factors(recipe, rollouts, recipe.plan(rollouts, micro_batch)))
    if not (
        "token" in options.get("vllm_importance_sampling_mode", "")
        and options.get("importance_sampling_level") == "sequence"
    ):
        torch.testing.assert_close(ledger, -their_gradient, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["binary", "real"])
@pytest.mark.parametrize("parts", ["one", "three equal", "unequal"])
@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient_equal_trl(name: str, parts: str, kind: str) -> None:
    options = {"max_completion_length": 10, "num_generations": 4, **CASES[name]}
    micro_batch = {
        "one": split(12, 1),
        "three equal": split(12, 3),
        "unequal": torch.tensor([0] * 2 + [1] * 7 + [2] * 3),
    }[parts]
    rollouts = rollouts_for(options, 17 + len(name), kind)
    check(options, rollouts, micro_batch, value_of_masked_rows(options, rollouts, micro_batch))


def value_of_masked_rows(options: dict, rollouts: Rollouts, micro_batch: torch.Tensor) -> float:
    """GMPO puts a fully masked row into the mean with ratio 1: -A in value, nothing in the gradient."""
    if options.get("trainer") != "GMPO":
        return 0.0
    full = replace(rollouts, mask=torch.ones_like(rollouts.mask))
    recipe = recipe_of(framework("trl"), options, "1.16")
    advantage = recipe.plan(full).advantage[:, 0]
    weight = agg.per_micro_batch(
        full.mask,
        torch.ones(12, dtype=torch.bool),
        full.group,
        micro_batch,
        inner=agg.sequence_sum,
        average=True,
    )
    return -(advantage * weight[:, 0] * (rollouts.lengths == 0)).sum().item()


@pytest.mark.parametrize("name", sorted(presets("trl", "1.16")))
def test_every_preset_of_1_16_is_one_of_the_tested_forms(name: str) -> None:
    entry = next(e for e in framework("trl").preset if e.name == name and "<" not in e.versions)
    options = {"max_completion_length": 10, "num_generations": 4, **entry.options}
    rollouts, micro_batch = rollouts_for(options, 5, "binary"), split(12, 3)
    check(options, rollouts, micro_batch, value_of_masked_rows(options, rollouts, micro_batch))


def test_the_token_mean_of_a_generation_batch_uses_the_average_count_of_its_steps() -> None:
    # 12 rows are generated, an optimiser step takes 6 of them: TRL divides by half of all 12 rows' tokens, not by its own tokens
    from parity_trl import float64, make_trainer, quiet_trl

    from grpo_edu.frameworks.tables import fill_in

    rollouts = rollouts_for({}, 3, "binary")
    values = fill_in(framework("trl"), {"num_generations": 4}, "1.16")
    trainer, leaf = make_trainer(values, rollouts, 4, 2), rollouts.logp.clone().requires_grad_()
    trainer.current_gradient_accumulation_steps = 1
    with float64(), quiet_trl():
        made = trainer._generate_and_score_completions([{"prompt": "p"} for _ in range(12)])
        trainer._get_per_token_logps_and_entropies = lambda *a, **k: (
            leaf[:6],
            torch.ones_like(leaf[:6]),
            None,
        )
        theirs = trainer._compute_loss(
            None,
            {k: v[:6] if isinstance(v, torch.Tensor) and v.ndim else v for k, v in made.items()},
        )
    recipe = recipe_of(framework("trl"), {}, "1.16")
    recipe = recipe.but(
        aggregation=partial(agg.generation_token_mean, tokens=rollouts.mask.sum().item(), steps=2)
    )
    ours_leaf = rollouts.logp.clone().requires_grad_()
    ours = recipe.loss(rollouts.with_logp(ours_leaf)[:6], recipe.plan(rollouts)[:6])
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-9)
    torch.testing.assert_close(
        torch.autograd.grad(ours, ours_leaf)[0],
        torch.autograd.grad(theirs, leaf)[0],
        rtol=1e-9,
        atol=1e-9,
    )


def test_a_delta_inside_the_clip_band_also_cuts_good_tokens_in_trl() -> None:
    # ratio 1.15, A = 1, delta 1.1, band to 1.2: TRL min(1.1, 1.15) = 1.1 without a gradient; the dual clip would push
    rollouts = replace(
        Rollouts.from_lengths(
            [1, 1], [1, 0], ratio=1.15, truncated=torch.zeros(2, dtype=torch.bool)
        ),
        sampler_logp=torch.zeros(2, 1),
    )
    leaf = rollouts.logp.clone().requires_grad_()
    loss = step(
        {"delta": 1.1, "num_generations": 2, "scale_rewards": "none"},
        rollouts,
        leaf,
        torch.zeros(2, dtype=torch.long),
    )
    assert torch.autograd.grad(loss, leaf)[0][0].item() == 0.0


@pytest.mark.parametrize(
    "options",
    [{"loss_type": "vespo"}, {"top_entropy_quantile": 0.2}, {"off_policy_mask_threshold": 0.1}],
)
def test_what_no_axis_expresses_is_refused_with_its_reason(options: dict) -> None:
    with pytest.raises(NotCovered, match="surrogate: "):
        recipe_of(framework("trl"), options, "1.16")
