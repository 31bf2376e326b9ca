"""identify: the catalog, the frameworks' own functions, and twenty wrong losses, seen only through their gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import parity_verl
import pytest
import torch
from torch import Tensor

from grpo_edu import RECIPES, Recipe, Rollouts
from grpo_edu.frameworks import labels
from grpo_edu.frameworks.identify import identify
from grpo_edu.objective.advantages import given, unscaled


def as_function(recipe: Recipe) -> Callable[..., Tensor]:
    """A recipe as a user's loss on rewards and groups."""

    def loss(
        logp: Tensor,
        old_logp: Tensor,
        ref_logp: Tensor,
        rewards: Tensor,
        group: Tensor,
        mask: Tensor,
    ) -> Tensor:
        values = {
            "logp": logp,
            "old_logp": old_logp,
            "ref_logp": ref_logp,
            "mask": mask,
            "reward": rewards,
            "group": group,
        }
        return recipe.loss(Rollouts.unchecked(**values, max_new_tokens=77))

    return loss


def as_advantage_function(recipe: Recipe) -> Callable[..., Tensor]:
    """The same with advantages from outside."""
    plain = recipe.but(baseline=given, scale=unscaled, filters=(), rewards=())

    def loss(
        logp: Tensor,
        old_logp: Tensor,
        ref_logp: Tensor,
        advantages: Tensor,
        group: Tensor,
        mask: Tensor,
    ) -> Tensor:
        values = {
            "logp": logp,
            "old_logp": old_logp,
            "ref_logp": ref_logp,
            "mask": mask,
            "group": group,
        }
        return plain.loss(
            Rollouts.unchecked(
                **values,
                given_advantage=advantages[:, 0],
                reward=advantages[:, 0],
                max_new_tokens=77,
            )
        )

    return loss


BY_REWARD = [
    "reinforce",
    "rloo",
    "grpo",
    "dr_grpo",
    "dapo",
    "dapo(step)",
    "bnpo",
    "gspo",
    "luspo",
    "gmpo",
    "cispo",
    "sapo",
    "opo",
    "lite_ppo",
    "maxrl",
    "balanced",
]


@pytest.mark.parametrize("name", BY_REWARD)
def test_the_catalog_is_identified_from_rewards(name: str) -> None:
    recipe = RECIPES[name]
    found = identify(as_function(recipe))
    assert found.faults == []
    assert found.recipe is not None
    ours, theirs = labels.essence(found.recipe), labels.essence(recipe)
    if name == "bnpo":
        theirs["aggregation"] = "step_token_mean"
    assert {k: ours[k] for k in ours if k != "filters"} == {
        k: theirs[k] for k in theirs if k != "filters"
    }
    if name == "grpo":
        assert found.kl == "k3(beta=0.04)"
        assert found.advantage == "group_mean / group_std(ddof=1, eps=0)"
        assert found.surrogate == "ppo_clip(eps_low=0.2, eps_high=0.2)"
    if name == "dr_grpo":
        assert found.aggregation == "constant(length=77, count_masked_rows=True)"


@pytest.mark.parametrize(
    "name",
    [
        "grpo",
        "dr_grpo",
        "dapo",
        "gspo",
        "gspo_token",
        "luspo",
        "gmpo",
        "cispo",
        "sapo",
        "balanced",
        "ppo",
    ],
)
def test_the_catalog_is_identified_from_advantages(name: str) -> None:
    found = identify(as_advantage_function(RECIPES[name]))
    assert found.faults == []
    assert found.recipe is not None
    theirs = labels.essence(RECIPES[name])
    ours = labels.essence(found.recipe)
    assert (ours["surrogate"], ours["aggregation"]) == (theirs["surrogate"], theirs["aggregation"])
    assert "advantages come from outside" in " ".join(found.unseen)


def test_dr_grpo_by_name_that_keeps_the_length_is_identified_as_what_it_is() -> None:
    def dr_grpo(logp: Tensor, rewards: Tensor, group: Tensor, mask: Tensor) -> Tensor:
        centred = rewards - torch.stack([rewards[group == g].mean() for g in group])
        return -((centred[:, None] * logp * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()

    found = identify(dr_grpo)
    assert found.aggregation == "sequence_mean(count_masked_rows=True)"
    assert found.advantage == "group_mean / unscaled"
    assert "Dr. GRPO's advantage with the mean over each completion's tokens (1/|o|)" in found.name


def test_ddof_and_eps_are_read_off_the_gradient() -> None:
    def loss(logp: Tensor, rewards: Tensor, group: Tensor, mask: Tensor) -> Tensor:
        groups = [rewards[group == g] for g in group]
        a = (rewards - torch.stack([x.mean() for x in groups])) / (
            torch.stack([x.std(correction=0) for x in groups]) + 1e-6
        )
        return -(a[:, None] * logp * mask).sum() / mask.sum()

    assert identify(loss).advantage == "group_mean / group_std(ddof=0, eps=1e-06)"


@pytest.mark.parity
@pytest.mark.skipif(parity_verl.missing() is not None, reason=str(parity_verl.missing()))
@pytest.mark.parametrize(
    ("mode", "aggregation", "expected"),
    [
        (
            "vanilla",
            "token-mean",
            ("step_token_mean", "dual_clip(eps_low=0.2, eps_high=0.28, cap=3)"),
        ),
        (
            "vanilla",
            "seq-mean-token-mean",
            (
                "sequence_mean(count_masked_rows=True)",
                "dual_clip(eps_low=0.2, eps_high=0.28, cap=3)",
            ),
        ),
        (
            "gspo",
            "seq-mean-token-mean",
            ("sequence_mean(count_masked_rows=True)", "gspo(eps_low=0.2, eps_high=0.28)"),
        ),
        ("cispo", "token-mean", ("step_token_mean", "cispo(low=0.8, high=1.28)")),
        (
            "sapo",
            "token-mean",
            ("sequence_mean(count_masked_rows=True)", "sapo(tau_pos=1, tau_neg=1.05)"),
        ),
        (
            "geo_mean",
            "token-mean",
            ("sequence_mean(count_masked_rows=True)", "gmpo(eps_low=0.2, eps_high=0.28)"),
        ),
        ("gpg", "seq-mean-token-sum", ("sequence_sum(count_masked_rows=True)", "reinforce")),
    ],
)
def test_verls_own_functions_are_identified(
    mode: str, aggregation: str, expected: tuple[str, str]
) -> None:
    config = parity_verl.ActorConfig(
        clip_ratio=0.2,
        clip_ratio_low=0.2,
        clip_ratio_high=0.28,
        clip_ratio_c=3.0,
        tau_pos=1.0,
        tau_neg=1.05,
        global_batch_info={},
    )
    function = parity_verl.core_algos().get_policy_loss_fn(mode)
    found = identify(function, loss_agg_mode=aggregation, config=config, rollout_is_weights=None)
    assert found.faults == []
    assert (found.aggregation, found.surrogate) == expected


@pytest.mark.parity
def test_trls_own_loss_is_identified() -> None:
    trl = pytest.importorskip("trl", reason="TRL is not here: pip install -e '.[parity]'")
    if not trl.__version__.startswith("1.16."):
        pytest.skip(f"TRL {trl.__version__} is here, the private methods are those of 1.16")
    from parity_trl import make_trainer

    from grpo_edu.frameworks.tables import fill_in, framework

    values = fill_in(
        framework("trl"), {"loss_type": "dr_grpo", "beta": 0.1, "epsilon_high": 0.28}, "1.16"
    )
    rollouts = Rollouts.from_lengths([2, 2], [1, 0], truncated=torch.zeros(2, dtype=torch.bool))
    trainer = make_trainer(
        values, Rollouts.unchecked(**{**rollouts.__dict__, "sampler_logp": rollouts.logp}), 2, 1
    )
    trainer.current_gradient_accumulation_steps = 1

    def loss(
        logp: Tensor, old_logp: Tensor, ref_logp: Tensor, advantages: Tensor, mask: Tensor
    ) -> Tensor:
        trainer._get_per_token_logps_and_entropies = lambda *a, **k: (
            logp,
            torch.ones_like(logp),
            None,
        )
        ids = torch.zeros_like(mask, dtype=torch.long)
        return trainer._compute_loss(None, {
            "prompt_ids": ids[:, :1], "prompt_mask": ids[:, :1] + 1, "completion_ids": ids, "completion_mask": mask.long(), "advantages": advantages,
            "num_items_in_batch": mask.sum(), "old_per_token_logps": old_logp, "ref_per_token_logps": ref_logp,
        })  # fmt: skip

    found = identify(loss)
    assert found.faults == []
    assert (found.aggregation, found.surrogate, found.kl) == (
        "constant(length=512, count_masked_rows=True)",
        "ppo_clip(eps_low=0.2, eps_high=0.28)",
        "k3_ratio(beta=0.1)",
    )


# --- twenty wrong losses --------------------------------------------------------------------------------------------------


def clip(logp: Tensor, old: Tensor, a: Tensor, low: float = 0.2, high: float = 0.2) -> Tensor:
    r = (logp - old).exp()
    return torch.minimum(r * a, r.clamp(1 - low, 1 + high) * a)


def seq(x: Tensor, mask: Tensor) -> Tensor:
    return ((x * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()


def tok(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask).sum() / mask.sum().clamp(min=1)


def k3(logp: Tensor, ref: Tensor) -> Tensor:
    return (ref - logp).exp() - (ref - logp) - 1


def shift(mask: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(mask[:, :1]), mask[:, :-1]], 1)


def summed_first(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, token_level: bool = True
) -> Tensor:
    # B12: the sums over tokens are formed before the switch is asked
    sums = (clip(logp, old_logp, advantages) * mask).sum(1)
    return -sums.sum() / len(sums) if token_level else -sums.mean()


WRONG: dict[str, tuple[Any, str]] = {
    "numerator not masked": (lambda logp, old_logp, advantages, mask: -clip(logp, old_logp, advantages).sum() / mask.sum(), "padding leak"),
    "mean over padding": (lambda logp, old_logp, advantages, mask: -(clip(logp, old_logp, advantages) * mask).mean(), "padded width"),
    "flag without effect": (summed_first, "flag without effect: token_level"),
    "divided by N twice": (lambda logp, old_logp, advantages, mask: -seq(clip(logp, old_logp, advantages), mask) / len(mask), "double division"),
    "divided by the tokens twice": (lambda logp, old_logp, advantages, mask: -tok(clip(logp, old_logp, advantages), mask) / mask.sum(), "double division"),
    "divided by accumulation again": (lambda logp, old_logp, advantages, mask: -tok(clip(logp, old_logp, advantages), mask) / 4, "scaled"),
    "mask shifted by one": (lambda logp, old_logp, advantages, mask: -seq(clip(logp, old_logp, advantages), shift(mask)), "shifted by one"),
    "sign": (lambda logp, old_logp, advantages, mask: seq(clip(logp, old_logp, advantages), mask), "maximised"),
    "ratio upside down": (lambda logp, old_logp, advantages, mask: -seq((old_logp - logp).exp() * advantages, mask), "maximised"),
    "KL subtracted": (lambda logp, old_logp, ref_logp, advantages, mask: -seq(clip(logp, old_logp, advantages), mask) - 0.1 * seq(k3(logp, ref_logp), mask), "KL is maximised"),
    "no clip": (lambda logp, old_logp, advantages, mask: -seq((logp - old_logp).exp() * advantages, mask), "no clip"),
    "clip without min": (lambda logp, old_logp, advantages, mask: -seq((logp - old_logp).exp().clamp(0.8, 1.2) * advantages, mask), "whatever the sign"),
    "min and max swapped": (lambda logp, old_logp, advantages, mask: -seq(torch.maximum((logp - old_logp).exp() * advantages, (logp - old_logp).exp().clamp(0.8, 1.2) * advantages), mask), "swapped"),
    "cispo without detach": (lambda logp, old_logp, advantages, mask: -tok((logp - old_logp).exp().clamp(max=5.0) * advantages * logp, mask), "missing detach"),
    "all detached": (lambda logp, old_logp, advantages, mask: -tok(clip(logp, old_logp, advantages).detach() + 0 * logp, mask), "no gradient"),
    "log-prob times probability": (lambda logp, old_logp, advantages, mask: -tok(logp.exp() * advantages, mask), "missing detach"),
    "KL over padding": (lambda logp, old_logp, ref_logp, advantages, mask: -tok(clip(logp, old_logp, advantages), mask) + 0.1 * k3(logp, ref_logp).sum() / mask.sum(), "padding leak"),
    "product ratio without clip": (lambda logp, old_logp, advantages, mask: -(((logp - old_logp) * mask).sum(1).exp() * advantages[:, 0]).mean(), "no clip"),
    "batch z-score squared length": (lambda logp, old_logp, advantages, mask: -((clip(logp, old_logp, advantages) * mask).sum(1) / mask.sum(1).clamp(min=1) ** 2).mean(), "unknown"),
    "clip in the log without exp": (lambda logp, old_logp, advantages, mask: -seq((logp - old_logp).clamp(-0.2, 0.2) * advantages, mask), "unknown"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_losses_are_named_or_unknown_and_never_called_something_else(name: str) -> None:
    loss, expected = WRONG[name]
    found = identify(loss)
    assert expected in found.name
    assert found.recipe is None or found.faults or found.idle


def test_at_least_sixteen_of_the_twenty_are_named() -> None:
    assert len(WRONG) == 20
    assert sum(expected != "unknown" for _, expected in WRONG.values()) >= 16


def test_padding_values_that_leak_through_a_normaliser_are_found() -> None:
    def loss(logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        return (
            -(logp * advantages * mask).sum()
            / (logp.detach() * 0 + mask + 1e-3 * logp.detach().abs()).sum()
        )

    assert "padding leak: values under the mask" in identify(loss).name


def test_a_band_that_was_mistyped_is_reported_as_it_is() -> None:
    # B38: [eps, 1 + eps] in place of [1 - eps, 1 + eps]
    def loss(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        return -seq(clip(logp, old_logp, advantages, low=0.8, high=0.2), mask)

    assert identify(loss).surrogate == "ppo_clip(eps_low=0.8, eps_high=0.2)"


def test_what_the_signature_does_not_show_is_said() -> None:
    found = identify(lambda logp, advantages, mask: -tok(logp * advantages, mask))
    assert found.surrogate == "reinforce"
    assert any("no old_logp" in what for what in found.unseen)
    assert any("no ref_logp" in what for what in found.unseen)
    with pytest.raises(TypeError, match="no argument for mask"):
        identify(lambda logp, advantages: logp.sum())


def test_advantages_per_completion_are_handed_over_where_the_function_wants_them() -> None:
    def loss(logp, old_logp, advantages, mask):
        ratio, a = (logp - old_logp).exp(), advantages.unsqueeze(1)
        surrogate = torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a)
        return -((surrogate * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()

    found = identify(loss)
    assert found.aggregation.startswith("sequence_mean")
    assert found.surrogate.startswith("ppo_clip(eps_low=0.2, eps_high=0.2)")


def test_splitting_is_measured() -> None:
    found = identify(lambda logp, advantages, mask: -(logp * advantages * mask).sum())
    assert found.aggregation == "token_sum"
    assert ("two equal micro-batches added", "1 times the whole") in found.evidence
    assert ("two equal micro-batches added", "2 times the whole") in identify(
        lambda logp, advantages, mask: -tok(logp * advantages, mask)
    ).evidence


def test_a_flag_that_acts_is_not_called_idle() -> None:
    def loss(logp: Tensor, advantages: Tensor, mask: Tensor, token_level: bool = True) -> Tensor:
        return -tok(logp * advantages, mask) if token_level else -seq(logp * advantages, mask)

    assert identify(loss).idle == []
    assert identify(loss, token_level=False).aggregation == "sequence_mean(count_masked_rows=True)"


def test_a_function_that_raises_or_returns_no_scalar_is_said_in_words() -> None:
    def broken(logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        return logp @ advantages

    with pytest.raises(ValueError, match="the loss raised RuntimeError on tensors of shape"):
        identify(broken)
    with pytest.raises(TypeError, match="the loss returned shape"):
        identify(lambda logp, advantages, mask: logp)
    with pytest.raises(TypeError, match="the loss returned float"):
        identify(lambda logp, advantages, mask: 1.0)

    def torn(logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        chance = logp.exp()
        loss = chance.sum()
        chance.add_(1)  # autograd needs the value before
        return loss

    with pytest.raises(ValueError, match="the loss raised RuntimeError"):
        identify(torn)


@pytest.mark.parametrize(
    "wrong", [None, 3, "grpo", print, torch.sum], ids=lambda x: getattr(x, "__name__", str(x))
)
def test_what_is_no_function_with_named_arguments_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"loss_fn is|the loss has no argument for logp"):
        identify(wrong)
