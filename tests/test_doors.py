"""Every door of the package, tried with bad arguments: it answers, or it says in its own words
which argument is wrong.

A door is what ``grpo_edu.__all__`` and the notebooks name. A raw error, a silent NaN and a hang are
failures.
Run as a script, this file prints the counts: ``python tests/test_doors.py``.
"""

import ast
import importlib
import inspect
import math
import os
import resource
import signal
import tempfile
import traceback
import warnings
from collections import Counter
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest
import torch

import grpo_edu
from grpo_edu import Recipe, Rollouts, compare, recipe, token_weights
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
from grpo_edu.objective.recipe import AXES

ROOT = Path(__file__).parents[1]
PACKAGE = str(Path(grpo_edu.__file__).parent)
LIMIT_S = 20
BAD = {
    "None": None,
    "text": "text",
    "-1": -1,
    "0": 0,
    "nan": math.nan,
    "inf": math.inf,
    "1e308": 1e308,
    "huge integer": 10**9,
    "[]": [],
    "{}": {},
    "object": object(),
    "3-dimensional tensor": torch.ones(3, 3, 3),
    "complex tensor": torch.ones(2, dtype=torch.complex64),
}
NO_DOORS = {
    "grpo_edu.RECIPES": "a table",
    "grpo_edu.Comparison": "what compare returns",
    "grpo_edu.MissingReferenceWarning": "a warning",
    "grpo_edu.RecipeWarning": "a warning",
    "grpo_edu.figures.FIGURES": "a table",
    "grpo_edu.lm.lab.SLIP": "a table",
    "grpo_edu.lm.loop.Trainer": "takes a loaded model; tests/test_lm_loop.py",
    "grpo_edu.Push": "made by Push.of",
    "grpo_edu.lm.experiments.RunKey": "a plain tuple",
    "grpo_edu.lm.train.Run": "tests/test_lm_train.py",
    "grpo_edu.lm.train.begin": "trains a model; tests/test_lm_train.py",
    "grpo_edu.lm.experiments.train_run": "trains a model; tests/test_lm_experiments.py",
    "grpo_edu.course.project.difference": "tests/test_plots_course.py",
    "grpo_edu.lm.analysis.ends": "reads the table of a run; tests/test_lm_experiments.py",
    "grpo_edu.lm.analysis.gap_intervals": "reads the table of a run",
    "grpo_edu.lm.analysis.learning_by_level": "reads the table of a run",
    "grpo_edu.plots.updates.ratios_by_update": "draws the table of theory.updates.reuse",
    "grpo_edu.widgets.texts.RunViewer": "reads the folder of a run; tests/test_texts.py",
}
MORE_DOORS = [  # of the README and the command line
    "grpo_edu.Push.of",
    "grpo_edu.Rollouts.from_lengths",
    "grpo_edu.compare.axis_table",
    "grpo_edu.theory.difficulty.objective",
    "grpo_edu.theory.difficulty.infinite_std_weight",
    "grpo_edu.theory.length.field",
    "grpo_edu.theory.length.curl",
    "grpo_edu.theory.length.power_drift",
]


NAN_AS_DOCUMENTED = {
    "grpo_edu.toys.stopping.train": "the last row of a run has no batch",
    "grpo_edu.toys.difficulty.train": "the last row of a run has no batch",
}


def rollouts(**changes):
    return Rollouts.from_lengths([2, 3], [1.0, 0.0], max_new_tokens=4, **changes)


@cache
def good():
    """Good arguments of every door."""
    batch, plain = rollouts(), recipe("dr_grpo")
    r = {"recipe": plain, "rollouts": batch}
    fields = {n: getattr(batch, n) for n in ("logp", "mask", "reward", "group")}
    more = {n: batch.logp.clone() for n in ("old_logp", "ref_logp", "sampler_logp", "value")}
    more["token_reward"] = batch.logp.clone()
    more["reward_parts"] = batch.reward[:, None]
    more["greedy_reward"] = more["given_advantage"] = batch.reward.clone()
    more["truncated"] = more["scored"] = torch.ones(2, dtype=torch.bool)
    texts = {"max_new_tokens": 4, "tokens": [["a"] * 3] * 2, "prompts": ["p", "q"]}
    logits = torch.tensor([0.0, 1.0, -1.0], dtype=torch.float64)
    reference = torch.zeros(3, dtype=torch.float64).log_softmax(0)
    policy = {
        "logits": [torch.zeros(2**d, 2, dtype=torch.float64) for d in range(2)],
        "reward": torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=torch.float64),
    }
    k2 = partial(kl.k2, beta=0.1)
    clip = partial(surrogates.ppo_clip, eps_low=0.2, eps_high=0.2)
    estimator = {"estimator": k2, "logits": logits, "reference": reference}
    branches = {"p": 0.4, "stop_right": 0.3, "stop_wrong": 0.2, "size": 2, "cap": 2}
    g, t, s = {"p": 0.3, "size": 4}, {"stop": 0.1}, {"title": "title"}
    training = grpo_edu_object("grpo_edu.toys.training.Training")(steps=2, prompts=2, samples=2)
    stopping = grpo_edu_object("grpo_edu.toys.stopping.Stopping")(cap=4)
    toy = {"recipes": plain, "training": training, "seeds": 1, "progress": False}
    config = str(ROOT / "tests/configs/c06_verl_cispo.sh")
    choices = {
        "baseline": advantages.group_mean,
        "scale": partial(advantages.group_std, ddof=1, eps=0.0),
        "surrogate": clip,
        "aggregation": plain.aggregation,
        "correction": None,
        "kl": k2,
        "kl_aggregation": None,
        "rewards": (),
        "filters": (),
    }
    return {
        "grpo_edu.Rollouts": {**fields, **more, **texts},
        "grpo_edu.Rollouts.from_lengths": {
            "lengths": [2, 3],
            "rewards": [1, 0],
            "group": [0, 0],
            "ratio": 1.1,
            "logp": -1.0,
            "dtype": torch.float64,
            "given_advantage": [1.0, -1.0],
        },
        "grpo_edu.Recipe": {**choices, "name": "mine", "title": "", "paper": "", "defaults": ""},
        "grpo_edu.compare": {"left": plain, "right": recipe("grpo"), "only": "scale"},
        "grpo_edu.compare.axis_table": {"recipes": [plain]},
        "grpo_edu.compare.advantage_table": {"recipes": [plain], "rollouts": batch},
        "grpo_edu.ledger": {**r, "micro_batch": batch.group},
        "grpo_edu.token_weights": {**r, "micro_batch": batch.group},
        "grpo_edu.Push.of": {**r, "micro_batch": batch.group},
        "grpo_edu.weights.summary": {**r, "micro_batch": batch.group},
        "grpo_edu.weights.split": {"rows": 4, "parts": 2},
        "grpo_edu.read_completions": {"path": None, "dtype": torch.float64},
        "grpo_edu.recipe": {"name": "grpo"},
        "grpo_edu.step_through": {
            **r,
            "completion": 0,
            "position": 1,
            "micro_batch": batch.group,
        },
        "grpo_edu.biases.difficulty_bias": {"recipe": plain, "size": 4},
        "grpo_edu.biases.length_bias": {"recipe": plain},
        "grpo_edu.figures.lm.recorded": {"name": "length"},
        "grpo_edu.figures.registry.recorded_table": {"name": "advantage_by_correct_count"},
        "grpo_edu.frameworks.effective_table": {"name": "grpo"},
        "grpo_edu.frameworks.explain": {"source": config, "framework": "verl", "version": "0.9.1"},
        "grpo_edu.frameworks.export": {"recipe": plain, "to": "trl", "version": "1.16"},
        "grpo_edu.frameworks.identify": {
            "loss_fn": lambda logp, advantage, mask: -(logp * advantage[:, None] * mask).sum()
        },
        "grpo_edu.lm.experiments.experiment": {"name": "length", "quick": True},
        "grpo_edu.lm.lab.reward": {"completion": "1", "answer": "1"},
        "grpo_edu.lm.lab.task": {"variant": "after"},
        "grpo_edu.lm.lab.warm_start": {"variant": "after", "number": 0},
        "grpo_edu.lm.loop.Settings": {
            "steps": 2,
            "prompts": 2,
            "samples": 2,
            "temperature": 1.0,
            "learning_rate": 1e-4,
            "optimizer": "adamw",
            "updates": 1,
            "micro_batches": 1,
            "max_norm": 1.0,
            "refill": 0,
            "seed": 0,
        },
        "grpo_edu.plots.heatmap.weight_map": {
            "recipes": [plain],
            "rollouts": batch,
            "micro_batch": batch.group,
            **s,
        },
        "grpo_edu.plots.kl.kl_estimators": {"policy": 0.5, "reference": 0.3, **s},
        "grpo_edu.plots.text.weights_on_text": {
            "recipes": [plain],
            "rollouts": rollouts(tokens=[["a", "b", "c"]] * 2, prompts=["p", "q"]),
            "micro_batch": batch.group,
            "rows": [0],
        },
        "grpo_edu.plots.tree.token_tree": {**policy, "vocabulary": "ab", **s},
        "grpo_edu.theory.clip.cells": {"surrogate": clip, "places": (0.5, 1.5)},
        "grpo_edu.theory.clip.pushes": {
            "surrogate": clip,
            "ratios": torch.tensor([0.5, 1.5]),
            "advantage": 1.0,
        },
        "grpo_edu.theory.clip.reach": {"old": 0.1, "eps_high": 0.2},
        "grpo_edu.theory.difficulty.frames": {"w": 1.0, "p": 0.3},
        "grpo_edu.theory.difficulty.refilled_weights": {
            "recipe": plain,
            "pass_rates": [0.1, 0.5],
            "size": 4,
        },
        "grpo_edu.theory.difficulty.rerolled_weight": {"recipe": plain, **g},
        "grpo_edu.theory.difficulty.silent_probability": g,
        "grpo_edu.theory.difficulty.std_weight": {**g, "ddof": 1, "eps": 0.1},
        "grpo_edu.theory.difficulty.prompt_weight": {"recipe": plain, **g},
        "grpo_edu.theory.difficulty.objective": {"recipe": plain, **g},
        "grpo_edu.theory.difficulty.infinite_std_weight": {"p": 0.3},
        "grpo_edu.theory.enumeration.expected_gradient": {"recipe": plain, **branches},
        "grpo_edu.theory.enumeration.relative_variance": {"recipe": plain, **branches},
        "grpo_edu.theory.kl.in_loss": {**estimator, "behaviour": reference},
        "grpo_edu.theory.kl.in_reward": estimator,
        "grpo_edu.theory.kl.pull_in_loss": estimator,
        "grpo_edu.theory.kl.spread": estimator,
        "grpo_edu.theory.kl.forward": {"logits": logits, "reference": reference},
        "grpo_edu.theory.kl.reverse": {"logits": logits, "reference": reference},
        "grpo_edu.theory.kl.settle": {
            "pull": partial(grpo_edu_object("grpo_edu.theory.kl.pull_in_loss"), k2),
            "reward": logits,
            "reference": reference,
            "beta": 0.1,
            "rate": 1.0,
            "steps": 3,
        },
        "grpo_edu.theory.length.constant_drift": {**t, "cap": 4},
        "grpo_edu.theory.length.longer_share": {"ratio": 4.0, "alpha": 0.5},
        "grpo_edu.theory.length.loop_integral": {
            "size": 4,
            "mode": (0.0, 1.0),
            "wrong": (0.0, 1.0),
            "right": 0.0,
            "points": 3,
        },
        "grpo_edu.theory.length.field": {"mode": 0.0, "right": 0.0, "wrong": 0.0, "size": 4},
        "grpo_edu.theory.length.curl": {"mode": 0.0, "wrong": 0.0, "size": 4},
        "grpo_edu.theory.length.power_drift": {**t, "alpha": 0.5, "cap": 4},
        "grpo_edu.theory.length.sequence_mean_drift": {**t, "cap": 4},
        "grpo_edu.theory.length.token_mean_drift": {**t, "rows": 2, "cap": 4},
        "grpo_edu.theory.mdp.comparison": {
            **policy,
            "psis": {"r": torch.ones(4, 2, dtype=torch.float64)},
        },
        "grpo_edu.theory.mdp.exact_gradient": policy,
        "grpo_edu.theory.mdp.group_comparison": {"recipes": [plain], **policy, "size": 2},
        "grpo_edu.theory.mdp.log_probs": {"logits": policy["logits"]},
        "grpo_edu.theory.mdp.state_table": {**policy, "vocabulary": "ab"},
        "grpo_edu.theory.mdp.uniform": {"vocabulary": 2, "horizon": 2},
        "grpo_edu.theory.mdp.values_along": policy,
        "grpo_edu.theory.mdp.weightings": {**policy, "constant": 0.5},
        "grpo_edu.theory.mdp.words": {"vocabulary": "ab", "horizon": 2},
        "grpo_edu.theory.updates.reuse": {
            "recipe": plain,
            "logits": logits,
            "actions": [0, 1],
            "reward": [1.0, 0.0],
            "learning_rate": 0.1,
            "updates": 2,
            "momentum": 0.5,
        },
        "grpo_edu.toys.compare.last_step": {
            "table": grpo_edu_object("grpo_edu.toys.stopping.train")(
                plain, stopping, training, seeds=2
            ),
            "columns": ["pass_rate"],
        },
        "grpo_edu.toys.compare.matched_learning_rate": {
            "sizes": {"a": 1.0, "b": 2.0},
            "learning_rate": 0.1,
            "reference": "a",
        },
        "grpo_edu.toys.compare.push_sizes": {"recipes": [plain], "batches": [batch]},
        "grpo_edu.toys.difficulty.train": {"setting": None, **toy, "learning_rates": None},
        "grpo_edu.toys.stopping.Stopping": {
            "mode": "learnable",
            "right": 0.5,
            "hazard_right": 0.1,
            "hazard_wrong": 0.1,
            "cap": 4,
            "slip": 0.2,
            "truncated_fails": False,
        },
        "grpo_edu.toys.stopping.rollouts": {
            "policy": stopping,
            "training": training,
            "seed": 0,
            "theta": None,
        },
        "grpo_edu.toys.stopping.train": {"policy": stopping, **toy, "learning_rates": None},
        "grpo_edu.toys.training.Training": {
            "steps": 2,
            "prompts": 2,
            "samples": 2,
            "learning_rate": 0.1,
            "optimizer": "sgd",
            "betas": (0.9, 0.95),
            "updates": 1,
            "micro_batches": 1,
            "max_norm": 1.0,
            "placebo": False,
            "every": 1,
        },
        "grpo_edu.widgets.advantage.AdvantageExplorer": {
            "rewards": [1, 0],
            "lengths": 8,
            "group": [0, 0],
        },
        "grpo_edu.cards.card": {"name": "gspo"},
        "grpo_edu.widgets.stepper.Stepper": {
            "recipes": ["grpo"],
            "preset": "one right answer of four",
            "rewards": [1, 0],
            "lengths": [2, 3],
        },
        "grpo_edu.widgets.aggregation.AggregationExplorer": {
            "recipes": ["grpo"],
            "lengths": [2, 3],
            "rewards": [1, 0],
            "group": [0, 0],
            "ratio": 1.0,
        },
        "grpo_edu.widgets.clip.ClipExplorer": {
            "surrogates": ["PPO clip"],
            "advantage": 1,
            "ratio": 1.5,
        },
        "grpo_edu.widgets.difficulty.DifficultyExplorer": {
            "schemes": ["mean"],
            "p": 0.1,
            "size": 8,
        },
        "grpo_edu.widgets.dapo.DapoExplorer": {},
        "grpo_edu.widgets.predict.Predict": {
            "question": "How many?",
            "answer": "a",
            "because": "",
            "choices": ["a", "b"],
            "span": None,
            "step": 0.5,
            "tolerance": 0.1,
            "unit": "",
        },
        "grpo_edu.widgets.step.StepExplorer": {
            "recipes": ["grpo"],
            "policy": [0.5, 0.5],
            "token": 0,
            "ratio": 1.0,
            "rewards": [1, 0],
        },
        "grpo_edu.widgets.kl.KLExplorer": {"p": 0.7, "q": 0.3, "beta": 1.0},
        "grpo_edu.widgets.labs.accumulation_lab": {},
        "grpo_edu.widgets.toy.ToyPlayer": {
            "recipes": ["grpo"],
            "mode": "environment",
            "right": 0.3,
        },
        "grpo_edu.widgets.updates.reuse_lab": {},
        "grpo_edu.widgets.texts.TokenView": {
            "rollouts": rollouts(tokens=[["a", "b", "c"]] * 2, prompts=["p", "q"]),
            "recipes": ["reinforce", "rloo"],
        },
    }


def grpo_edu_object(path):
    """The object of a dotted path: the longest prefix that is a module, then attributes."""
    parts = path.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            if not hasattr(found, name):
                break
            found = getattr(found, name)
        else:
            return found
    raise LookupError(path)


def imported_doors():
    """Dotted paths of what the notebooks import, and of what they take from an imported module."""
    doors = set()
    for file in sorted((ROOT / "notebooks/src").rglob("*.py")):
        tree = ast.parse(file.read_text())
        modules = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("grpo_edu"):
                for alias in node.names:
                    path = f"{node.module}.{alias.name}"
                    if inspect.ismodule(module_or_object(path)):
                        modules[alias.asname or alias.name] = path
                    else:
                        doors.add(path)
        doors |= {
            f"{modules[node.value.id]}.{node.attr}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in modules
        }
    return doors


def module_or_object(path):
    module, name = path.rsplit(".", 1)
    owner = importlib.import_module(module)
    return getattr(owner, name, None) or importlib.import_module(path)


def doors():
    """Every door; choices of ``grpo_edu.objective`` are checked when a recipe is built."""
    named = {f"grpo_edu.{name}" for name in grpo_edu.__all__} | imported_doors() | set(MORE_DOORS)
    return sorted(
        path
        for path in named
        if path not in NO_DOORS
        and not path.startswith(("grpo_edu.objective.", "grpo_edu.course.check"))
    )


class TooSlow(BaseException):
    """The alarm of one try."""


def ring(*_):
    raise TooSlow


def attempt(door, arguments, name):
    """One of: ``fine``, ``raw: …``, ``NaN``, ``hang``."""
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        result = door(**arguments)
    except TooSlow:
        return "hang"
    except Exception as error:
        return judged(error, name)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return "NaN" if has_nan(result) else "fine"


def judged(error, name):
    """Raw, unless it is raised by this package's code and names the argument."""
    raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
    own = raised_in.startswith(PACKAGE)
    if isinstance(error, FileNotFoundError):  # it names the file
        return "fine"
    clear = isinstance(error, (TypeError, ValueError, LookupError)) if own else by_trait(error)
    if clear and name.rstrip("s") in str(error):
        return "fine"
    return f"raw: {type(error).__name__}: {str(error)[:100]}"


def by_trait(error):
    """A widget's trait refuses a value that it cannot show, with the trait's name and range."""
    return type(error).__name__ == "TraitError"


def has_nan(value):
    if isinstance(value, float):
        return math.isnan(value)
    if isinstance(value, torch.Tensor):
        return bool(value.isnan().any())
    if isinstance(value, dict):
        return any(map(has_nan, value.values()))
    if isinstance(value, list | tuple):
        return any(map(has_nan, value))
    if hasattr(value, "select_dtypes"):
        return bool(value.select_dtypes("number").isna().to_numpy().any())
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, Rollouts | Recipe):
        return any(has_nan(getattr(value, field)) for field in value.__dataclass_fields__)
    return False


def walk(path):
    """(argument, bad value, outcome) of every try on one door."""
    door, arguments = grpo_edu_object(path), good()[path]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        door(**arguments)
        for name in arguments:
            for label, value in BAD.items():
                outcome = attempt(door, {**arguments, name: value}, name)
                documented = outcome == "NaN" and path in NAN_AS_DOCUMENTED
                yield name, label, "fine" if documented else outcome


def test_every_door_has_good_arguments():
    assert sorted(set(doors()) - set(good())) == []
    assert sorted(set(good()) - set(doors())) == []


@pytest.mark.parametrize("path", doors())
def test_a_door_answers_or_says_which_argument_is_wrong(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = [(name, bad, outcome) for name, bad, outcome in walk(path) if outcome != "fine"]
    assert wrong == []


# --- recipes when they are built


def test_a_choice_that_asks_for_an_input_that_does_not_exist_is_refused_with_the_list():
    with pytest.raises(
        TypeError, match=r"asks for 'presnt', which is neither an input \(advantage,"
    ):
        Recipe(aggregation=lambda mask, presnt: mask)
    with pytest.raises(TypeError, match="asks for 'reward'"):  # no surrogate sees rewards
        Recipe(surrogate=lambda logp, reward: logp)
    with pytest.raises(TypeError, match="asks for 'centred'"):  # the baseline makes it
        Recipe(baseline=lambda centred: centred)


def test_the_table_of_inputs_is_what_a_step_hands_over():
    handed_over = {}

    def spy(choice, available):
        handed_over.setdefault(next(a for a in AXES if getattr(mine, a) is choice), set(available))
        return run(choice, available)

    mine = recipe("grpo").but(correction=partial(corrections.truncated_is, cap=2.0))
    run = axes.run
    batch = rollouts(ref_logp=rollouts().logp, sampler_logp=rollouts().logp)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(axes, "run", spy)
        mine.loss(batch)
    for axis in ("baseline", "scale", "aggregation", "surrogate", "correction", "kl"):
        assert handed_over[axis] == set(axes.inputs_at(axis)), axis


@pytest.mark.parametrize(
    ("choice", "found"),
    [
        ({"scale": advantages.group_std}, "no value for its setting ddof"),
        ({"scale": partial(advantages.group_std, ddof=2, eps=0.0)}, "ddof is 2"),
        ({"scale": partial(advantages.group_std, ddof=1, eps=math.nan)}, "eps is nan"),
        ({"kl": partial(kl.k3, beta=-1e7)}, "beta is -10000000.0"),
        ({"kl": partial(kl.k3, beta="0.1")}, "beta is '0.1'"),
        ({"kl": partial(kl.k3, 0.1)}, "bind by name"),
        ({"surrogate": partial(surrogates.cispo, low=5.0, high=2.0)}, "low is 5.0"),
        ({"baseline": partial(advantages.pass_at_k, k=1.5)}, "k is 1.5"),
        ({"baseline": None}, "baseline is None"),
        ({"rewards": [len]}, "rewards is a list"),
    ],
)
def test_a_setting_outside_its_range_is_refused_when_the_recipe_is_built(choice, found):
    with pytest.raises((TypeError, ValueError), match=found):
        recipe("grpo").but(**choice)


def test_every_setting_of_the_package_has_a_range():
    rooms = (advantages, aggregation, corrections, filters, kl, rewards, surrogates)
    choices = [
        f for room in rooms for f in vars(room).values() if f is not axes and hasattr(f, "latex")
    ]
    names = {
        name
        for choice in choices
        for name, parameter in inspect.signature(choice).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    assert len(choices) > 40
    assert names == set(axes.SETTINGS)


def test_recipes_are_equal_by_their_functions_and_the_values_of_their_settings():
    clip = surrogates.ppo_clip
    same = recipe("grpo").but(surrogate=partial(clip, eps_low=0.2, eps_high=0.2))
    assert same == recipe("grpo")
    assert hash(same) == hash(recipe("grpo"))
    near = same.but(surrogate=partial(clip, eps_low=0.2, eps_high=0.2000001))
    assert near != same
    assert compare(near, same).differing() == ["surrogate"]
    assert near.describe()["surrogate"] != same.describe()["surrogate"]
    left, right = (same.but(aggregation=lambda mask: mask.double()) for _ in range(2))
    assert left != right
    assert left == left.but("another name")
    bound_default = partial(kl.k3, beta=0.04, cap=None)
    assert recipe("grpo").but(kl=bound_default) == recipe("grpo")


# --- rollouts and sizes


@pytest.mark.parametrize(("dtype", "size"), [(torch.float64, 1e100), (torch.float32, 1e15)])
def test_rewards_whose_squares_would_overflow_are_refused(dtype, size):
    batch = rollouts(dtype=dtype)
    fits = replace(batch, reward=torch.tensor([size, 0.0], dtype=dtype))
    pushes = token_weights("grpo", replace(fits, ref_logp=batch.logp))
    assert pushes[0, 0] == pytest.approx(1 / 32**0.5, rel=1e-6)  # A = 1/√2, W = 1/4
    with pytest.raises(ValueError, match=r"reward holds .*: expected numbers of size at most"):
        replace(batch, reward=torch.tensor([10 * size, 0.0], dtype=dtype))


def test_a_name_stands_for_the_recipe_and_a_wrong_one_gets_the_nearest():
    batch = rollouts()
    assert torch.equal(token_weights("dr_grpo", batch), token_weights(recipe("dr_grpo"), batch))
    with pytest.raises(KeyError, match="no recipe named"):
        token_weights("grop", batch)


def test_work_that_would_take_hours_is_refused_with_its_limit():
    enumeration = grpo_edu_object("grpo_edu.theory.enumeration.expected_gradient")
    with pytest.raises(ValueError, match=r"10 \*\* 60, more than the limit of 3e\+05"):
        enumeration("dr_grpo", 0.5, 0.1, 0.1, 60, 4)
    with pytest.raises(ValueError, match="size is 1: expected a whole number from 2 to 512"):
        grpo_edu_object("grpo_edu.theory.difficulty.prompt_weight")("dr_grpo", 0.5, 1)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (12 * 2**30, 12 * 2**30))
    counts = Counter()
    os.chdir(tempfile.mkdtemp())
    for path in doors():
        try:
            outcomes = list(walk(path))
        except Exception as error:
            print(f"{path}: good arguments fail: {type(error).__name__}: {error}")
            continue
        for name, bad, outcome in outcomes:
            counts[outcome.split(":")[0]] += 1
            if outcome != "fine":
                print(f"{path}({name}={bad}): {outcome}")
    print(sum(counts.values()), "tries", dict(counts))
