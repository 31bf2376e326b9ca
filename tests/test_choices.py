"""Every choice of every axis carries all that is said of it, and what it says is true of what it computes."""

from __future__ import annotations

import inspect
import json
import shutil
import subprocess
import warnings
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import torch
from batches import batch
from test_stepper import arithmetic

import grpo_edu
from grpo_edu import RECIPES, Recipe, recipe, step_through, token_weights
from grpo_edu.objective import (
    advantages,
    aggregation,
    axes,
    corrections,
    filters,
    kl,
    rewards,
    surrogates,
)
from grpo_edu.weights import split

SETTINGS = {
    "alone": None,
    "alpha": 0.75,
    "average": True,
    "baseline": advantages.group_mean,
    "beta": 0.3,
    "cache": 2,
    "cap": 1.1,
    "count_eps": 0.0,
    "count_masked_rows": True,
    "ddof": 1,
    "delta": 0.2,
    "delta_high": 0.1,
    "delta_low": 0.1,
    "eps": 0.01,
    "eps_high": 0.2,
    "eps_low": 0.2,
    "floor": 1e-8,
    "gamma": 0.9,
    "high": 1.3,
    "in_baseline": True,
    "inner": aggregation.sequence_mean,
    "k": 2,
    "k_neg": 3.0,
    "k_pos": 2.0,
    "keep": 1.0,
    "lam": 0.8,
    "lam_neg": 2.0,
    "lam_pos": 3.0,
    "length": 20.0,
    "log_cap": None,
    "low": 0.6,
    "part": 0.3,
    "positive": 0.1,
    "steps": 2,
    "tau_neg": 1.05,
    "tau_pos": 1.0,
    "tokens": 50,
    "value": kl.k1,
    "weights": None,
}


def choices_of(module: ModuleType) -> list:
    """The public choices of a room: functions with a formula, defined there."""
    return [
        function
        for function in vars(module).values()
        if inspect.isfunction(function)
        and function.__module__ == module.__name__
        and hasattr(function, "latex")
    ]


def with_settings(function):
    """The choice with a value for each of its settings."""
    names = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    return partial(function, **{name: SETTINGS[name] for name in names})


def is_scale(function) -> bool:
    return "centred" in inspect.signature(function).parameters


ROOMS = (advantages, aggregation, surrogates, kl, corrections, filters, rewards)
EVERY = [choice for module in ROOMS for choice in choices_of(module)]
ids = [choice.__name__ for choice in EVERY]


def test_every_function_of_a_room_that_could_be_a_choice_is_one():
    assert len(EVERY) >= 58
    for module in ROOMS:
        for name, function in vars(module).items():
            public = inspect.isfunction(function) and function.__module__ == module.__name__
            asks = set(inspect.signature(function).parameters) if public else set()
            if public and not name.startswith("_") and asks & {"mask", "reward", "ref_logp"}:
                helper = name.endswith(("_factors", "_slope")) or "x" in asks
                assert helper or hasattr(function, "latex") or name == "sequence_log_ratio", name


@pytest.mark.parametrize("choice", EVERY, ids=ids)
def test_a_choice_has_formula_text_and_label(choice):
    bound = with_settings(choice)
    assert choice.label
    assert "_" not in choice.label
    for written in (axes.latex(bound), axes.text(bound)):
        assert not any(f"<{name}>" in written for name in SETTINGS)


@pytest.mark.parametrize("choice", choices_of(surrogates), ids=lambda c: c.__name__)
def test_a_surrogate_has_a_derivative_a_band_and_numbers(choice):
    bound = with_settings(choice)
    assert callable(surrogates.derivative_of(bound))
    assert isinstance(choice.band(axes.settings(bound)), str)
    assert callable(choice.ratio)
    assert isinstance(choice.per_sequence, bool)


def recipes_of_every_choice() -> dict[str, Recipe]:
    """A recipe for each choice that has numbers, everything else as plain as can be."""
    plain = recipe("dr_grpo").but(
        aggregation=partial(aggregation.constant, length=20.0), surrogate=surrogates.reinforce
    )
    made = {}
    for choice in EVERY:
        bound = with_settings(choice)
        room = choice.__module__.rsplit(".", 1)[-1]
        axis = {"surrogates": "surrogate", "corrections": "correction"}.get(room, room)
        if room == "advantages":
            axis = "scale" if is_scale(choice) else "baseline"
        if axis in ("filters", "rewards"):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made[choice.__name__] = plain.but(**{axis: bound})
    return made


RECIPES_OF_CHOICES = recipes_of_every_choice()


@pytest.mark.parametrize("name", RECIPES_OF_CHOICES)
def test_the_numbers_of_a_choice_give_its_value(name):
    loss = RECIPES_OF_CHOICES[name]
    rollouts = batch(11, groups=2, size=3, width=4, spread=0.4)
    micro_batch = split(6, 2)
    push = token_weights(loss, rollouts, micro_batch)
    for i, t in rollouts.mask.nonzero().tolist():
        steps = step_through(loss, rollouts, i, t, micro_batch).steps
        assert steps[-1].value == pytest.approx(push[i, t].item(), rel=1e-9, abs=1e-13)
        for step in steps[1:]:
            got = arithmetic(step.numbers)
            assert got == pytest.approx(step.value, rel=2e-4, abs=2e-5), (step, i, t)


def test_a_choice_without_numbers_would_be_seen():
    for name, loss in RECIPES_OF_CHOICES.items():
        for choice in loss.choices:
            function = axes.function_of(choice)
            written = getattr(function, "ratio", None) or function.numbers
            assert callable(written), (name, function.__name__)


def test_a_push_is_finite_for_every_choice():
    rollouts = batch(3)
    for loss in RECIPES_OF_CHOICES.values():
        assert torch.isfinite(token_weights(loss, rollouts, split(len(rollouts), 2))).all()


# --- the JavaScript ---------------------------------------------------------------------------

TABLES = {
    "REWARDS": "rewards",
    "FILTERS": "filters",
    "BASELINES": "baseline",
    "SCALES": "scale",
    "SURROGATES": "surrogate",
    "CORRECTIONS": "correction",
    "KL": "kl",
    "AGGREGATIONS": "aggregation",
}


def javascript_tables() -> dict[str, list[str]]:
    """The names in each table of ``objective.js``."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    file = Path(grpo_edu.__file__).parent / "widgets" / "static" / "objective.js"
    names = ", ".join(f"{table}: Object.keys({table})" for table in TABLES)
    code = f"{file.read_text(encoding='utf-8')}\nconsole.log(JSON.stringify({{ {names} }}));"
    done = subprocess.run(
        [node, "--input-type=module"], input=code, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_choice_of_the_catalog_has_its_own_name_in_javascript():
    tables = javascript_tables()
    for table, axis in TABLES.items():
        names = {axes.function_of(choice).__name__ for choice in EVERY}
        assert set(tables[table]) <= names
        used = set()
        for entry in RECIPES.values():
            value = getattr(entry, axis)
            choices = value if isinstance(value, tuple) else (value,)
            used |= {axes.function_of(choice).__name__ for choice in choices if choice is not None}
        assert used <= set(tables[table]), axis
