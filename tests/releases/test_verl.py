"""Every verl release against its table: the gradient of one step, by the release's own code."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from grpo_edu import Rollouts
from grpo_edu.frameworks.explain import explain
from grpo_edu.frameworks.tables import fill_in, framework, read_recipe
from grpo_edu.objective.recipe import Recipe

from . import verl_cases as cases
from .verl_code import gradient
from .verl_fetch import root

VERL = framework("verl")
RELEASES = [
    pytest.param(
        version,
        marks=pytest.mark.skipif(
            not root(version).exists(),
            reason=f"verl {version} is not here: python tests/releases/verl_fetch.py",
        ),
    )
    for version in cases.RELEASES
]


def in_release(options: dict[str, Any], version: str) -> bool:
    return all(VERL.has(name, value, version) for name, value in options.items())


def step_of(
    version: str, options: dict[str, Any], rollouts: Rollouts, micro_batch: Tensor
) -> Tensor:
    """The release's gradient. Up to 0.3 KL goes into the reward where it is not in the loss."""
    values = fill_in(VERL, options, version)
    if version < "0.4":
        values["use_kl_in_reward"] = not values["use_kl_loss"]
    engine = cases.by_engine(options, version)
    return gradient(root(version), values, rollouts, micro_batch, engine)


def gradient_of(recipe: Recipe, rollouts: Rollouts, micro_batch: Tensor) -> Tensor:
    leaf = rollouts.logp.clone().requires_grad_()
    loss = recipe.loss(rollouts.with_logp(leaf), micro_batch=micro_batch)
    (found,) = torch.autograd.grad(loss, leaf, allow_unused=True)
    return torch.zeros_like(leaf) if found is None else found


def differences(version: str, name: str, options: dict[str, Any]) -> list[str]:
    """Where the table's recipe has another gradient than the release, on every batch."""
    recipe, left_out = read_recipe(VERL, options, version)
    if left_out:
        return [] if options["adv_estimator"] == "remax" else [f"{name}: {left_out}"]
    rows = []
    for split in cases.splits(options):
        micro_batch = cases.SPLITS[split]
        for seed in cases.SEEDS:
            for empty in (False, True):
                rollouts = cases.rollouts_for(options, seed, empty)
                theirs = step_of(version, options, rollouts, micro_batch)
                if empty and cases.gives_nan(options, version):
                    error = 0.0 if theirs.isnan().any() else 1.0
                else:
                    ours = gradient_of(recipe, rollouts, micro_batch)
                    error = cases.relative_error(theirs, ours)
                if not error <= cases.near(options):
                    rows.append(f"{name}, {split}, seed {seed}, empty {empty}: {error:.2g}")
    return rows


@pytest.mark.parametrize("version", RELEASES)
def test_the_gradient_of_a_step_is_that_of_the_release(version: str) -> None:
    rows = []
    for name, options in cases.CASES.items():
        if in_release(options, version):
            rows += differences(version, name, options)
    assert rows == []


@pytest.mark.parametrize("version", RELEASES)
def test_a_value_that_begins_later_is_refused_by_the_release(version: str) -> None:
    for options in cases.CASES.values():
        known = {n: x for n, x in options.items() if VERL.option[n].exists(version)}
        later = [n for n, x in known.items() if not VERL.has(n, x, version)]
        unread = later == ["loss_agg_mode"] and options["loss_mode"] in ("gspo", "sapo", "geo_mean")
        if not later or unread or set(options) != set(known):
            continue
        rollouts = cases.rollouts_for(options, 1, False)
        with pytest.raises((NotImplementedError, ValueError, TypeError, AttributeError)):
            step_of(version, options, rollouts, cases.SPLITS["three"])


@pytest.mark.parametrize("version", RELEASES)
def test_the_defaults_are_those_of_the_releases_own_config(version: str) -> None:
    yaml = pytest.importorskip("yaml")
    folder = root(version) / "trainer" / "config"
    files = [folder / "_generated_ppo_trainer.yaml", folder / "ppo_trainer.yaml"]
    config = yaml.safe_load(next(file for file in files if file.exists()).read_text())
    elsewhere = ("filter_groups", "n_agent", "overlong", "gdpo", "workers")
    for name, option in VERL.option.items():
        if not option.key or name.startswith(elsewhere):
            continue
        value = config
        for part in option.key.split("."):
            value = value.get(part, KeyError) if isinstance(value, dict) else KeyError
        if value is KeyError or not option.exists(version):
            unread = (version, name) == ("0.2.0", "ppo_epochs")  # no loop over epochs in its actor
            assert value is KeyError or unread, name
            assert not option.exists(version), name
        else:
            default = option.default(version)
            number = isinstance(default, float)
            assert (float(value) if number else value) == default, name


# --- the four lines of explain, each measured on the release --------------------------------------


def script(options: dict[str, Any], version: str) -> str:
    keys = {VERL.option[n].key: x for n, x in options.items() if in_release({n: x}, version)}
    lines = [f" {key}={value}" for key, value in keys.items()]
    return " \\\n".join(["python3 -m verl.trainer.main_ppo", *lines]) + "\n"


def pair(lengths: list[int], reward: list[float], shift: float = 0.0, ref: float = 0.0) -> Rollouts:
    """Completions of one prompt: log π − log π_old is ``shift``, log π_ref − log π is ``ref``."""
    plain = Rollouts.from_lengths(lengths, reward, max_new_tokens=max(lengths))
    logp = torch.full_like(plain.logp, -2.0, dtype=torch.float64)
    zeros = torch.zeros_like(logp)
    return Rollouts(
        logp=logp,
        mask=plain.mask,
        reward=torch.tensor(reward, dtype=torch.float64),
        group=plain.group,
        old_logp=logp - shift,
        ref_logp=logp + ref,
        sampler_logp=logp,
        value=zeros,
        greedy_reward=zeros[:, 0],
        reward_parts=torch.tensor(reward, dtype=torch.float64)[:, None],
        max_new_tokens=max(lengths),
    )


DAPO = {
    "adv_estimator": "grpo",
    "clip_ratio_low": 0.2,
    "clip_ratio_high": 0.28,
    "clip_ratio_c": 10.0,
    "use_dynamic_bsz": True,
    "use_kl_loss": True,
    "kl_loss_coef": 0.05,
    "kl_loss_type": "low_var_kl",
    "max_response_length": 100,
    "rollout_n": 2,
}
GSPO = {
    "adv_estimator": "grpo",
    "loss_mode": "gspo",
    "loss_agg_mode": "token-mean",
    "clip_ratio_low": 0.1,
    "clip_ratio_high": 0.2,
    "max_response_length": 100,
    "rollout_n": 2,
}
SCRIPTS = {"dapo": DAPO, "gspo": GSPO}


def told(version: str, options: dict[str, Any]) -> tuple[Any, Any]:
    """The verdict, and a function that runs the release with the same options."""
    known = {n: x for n, x in options.items() if in_release({n: x}, version)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        verdict = explain(script(options, version), version=version)

    def run(rollouts: Rollouts, **changes: Any) -> Tensor:
        one = torch.zeros(len(rollouts), dtype=torch.long)
        return step_of(version, {**known, **changes}, rollouts, one)

    return verdict, run


def scripts_in(version: str) -> list[dict[str, Any]]:
    return [o for o in SCRIPTS.values() if version >= "0.6" or "loss_mode" not in o]


def numbers(pattern: str, line: str) -> list[float]:
    found = re.search(pattern, line)
    assert found, line
    return [float(x) for x in found.groups()]


@pytest.mark.parametrize("version", RELEASES)
def test_the_lines_of_explain_hold_in_the_release(version: str) -> None:
    for options in scripts_in(version):
        verdict, run = told(version, options)
        assert not verdict.left_out
        _check_advantage_and_aggregation(verdict, run)
        _check_clip(verdict, run)
        if options.get("use_kl_loss"):
            (beta,) = numbers(r"in the loss: ([\d.]+)·k3", verdict.kl)
            dead = run(pair([10, 100], [1.0, 1.0], ref=0.5))
            push = run(pair([10, 100], [1.0, -1.0]))[0, 0] / -(2**-0.5)
            expected = beta * (1 - torch.tensor(0.5).double().exp())  # of k3 = e^x - x - 1
            assert (dead[0, 0] / push).item() == pytest.approx(expected.item(), rel=1e-5)
        else:
            assert verdict.kl == "none"


def _check_advantage_and_aggregation(verdict: Any, run: Any) -> None:
    (ddof, eps) = numbers(r"std\(r in group, ddof=(\d)\) \+ ([\de.-]+)", verdict.advantage)
    advantage = 1 / ((2 / (2 - ddof)) ** 0.5 + eps)
    short, long = numbers(r"push per token ([+-][\d.e-]+) and ([+-][\d.e-]+)", verdict.aggregation)
    gradient = run(pair([10, 100], [1.0, -1.0]))[:, 0]
    assert (-gradient / advantage).tolist() == pytest.approx([short, long], rel=1e-5)


def _check_clip(verdict: Any, run: Any) -> None:
    """A > 0 has no gradient above the band, A < 0 none below; just inside both have one."""
    low, high = numbers(r"\[([\d.]+), ([\d.]+)\]", verdict.clip)
    plain = {"use_kl_loss": True, "kl_loss_coef": 0.0}
    for edge, row in ((high, 0), (low, 1)):
        for factor, inside in ((1.001, edge == low), (0.999, edge == high)):
            shift = torch.tensor(edge * factor, dtype=torch.float64).log().item()
            gradient = run(pair([10, 100], [1.0, -1.0], shift=shift), **plain)
            assert (gradient[row, 0] != 0) == inside, (edge, factor)
    cap = re.search(r"dual clip ([\d.]+) for A < 0", verdict.clip)
    for factor in (0.999, 1.001):
        ratio = factor * float(cap[1] if cap else 10)
        shift = torch.tensor(ratio, dtype=torch.float64).log().item()
        gradient = run(pair([10, 100], [1.0, -1.0], shift=shift), **plain)
        assert (gradient[1, 0] != 0) == (not cap or factor < 1)
