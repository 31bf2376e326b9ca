"""A recipe as the settings of a framework: the tables read backwards, with every difference that stays."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..checks import checked
from ..objective import axes
from ..objective.axes import Choice
from ..objective.catalog import AnyRecipe
from ..objective.recipe import AXES, Recipe
from . import labels
from .expressions import evaluate, holds, in_range
from .tables import Framework, at_version, fill_in, framework, recipe_of

WRITTEN = ("trl", "verl", "openrlhf")
SEARCHED = (
    "surrogate",
    "aggregation",
    "baseline",
    "scale",
    "kl",
    "correction",
    "rewards",
    "filters",
)


@dataclass(frozen=True)
class Exported:
    """Settings that run a recipe in a framework.

    Args:
        framework, version: where.
        settings: config key -> value.
        text: what to run: a training script (TRL), overrides (verl), flags (OpenRLHF).
        missing: axes that the framework cannot express, "axis: asked …, gets …".
        differences: what stays different although the axis is expressed (ε, dual clip, micro-batches), and known limits.
        recipe: what the settings run, read back through the same tables.
    """

    framework: str
    version: str
    settings: dict[str, Any]
    text: str
    missing: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    recipe: Recipe | None = None

    def __str__(self) -> str:
        notes = [f"# cannot be expressed: {row}" for row in self.missing] + [
            f"# differs: {row}" for row in self.differences
        ]
        return "\n".join([*notes, self.text])


@checked
def export(recipe: AnyRecipe, to: str, version: str | None = None) -> Exported:
    """The settings of ``trl``, ``verl`` or ``openrlhf`` that come nearest to a recipe.

    Args:
        recipe: the loss.
        to: the framework.
        version: of it; None: the newest that was read.

    Raises:
        ValueError: not one of these three frameworks.
        KeyError: a commit that it does not know.
    """
    if to not in WRITTEN:
        raise ValueError(f"to is '{to}': expected {', '.join(WRITTEN)}.")
    table, number = at_version(framework(to), version)
    options = _nearest(table, recipe, number)
    got = recipe_of(table, options, number, left_out=[])
    missing, differences = [], []
    ours, theirs = recipe.describe(), got.describe()
    for axis in AXES:
        if ours[axis] != theirs[axis]:
            row = f"{axis}: asked {ours[axis]}, gets {theirs[axis]}"
            (differences if _same_formula(recipe, got, axis) else missing).append(row)
    keys = {name: table.option[name].get("key", name) for name in options}
    settings = {keys[name]: value for name, value in options.items() if not _inner(table, name)}
    settings |= _outer(table, options)
    return Exported(
        table.name,
        number,
        settings,
        _text(to, settings, recipe),
        missing,
        differences + table.remaining,
        got,
    )


def _same_formula(recipe: Recipe, got: Recipe, axis: str) -> bool:
    """Same formula, other settings; on the axes of several choices or none: equal names."""

    def names(one: Recipe) -> list[str]:
        value = getattr(one, axis)
        return [
            labels.unwrapped(c)
            for c in (value if isinstance(value, tuple) else (value,))
            if c is not None
        ]

    return names(recipe) == names(got) or (axis == "kl_aggregation" and recipe.kl is None)


# --- the search -----------------------------------------------------------------------------------------------------------


def _nearest(table: Framework, recipe: Recipe, version: str) -> dict[str, Any]:
    """Options whose recipe differs least: the best combinations of one rule per axis, then one option at a time while it helps."""
    there = table.defaults(version)
    words = table.words()

    def score(options: dict[str, Any]) -> tuple[int, int, int]:
        left_out: list[str] = []
        try:
            got = recipe_of(table, options, version, left_out=left_out)
        except (TypeError, ValueError):  # an option without the other one that it needs
            return (1000, 0, 0)
        wrong = sum(not _same_formula(recipe, got, axis) for axis in AXES) + 10 * len(left_out)
        return (
            wrong,
            sum(_unlike(getattr(recipe, axis), getattr(got, axis)) for axis in AXES),
            len(options),
        )

    starts = list(_combinations(table, recipe, version, list(SEARCHED), {}))
    starts = sorted(starts, key=score)[:4]
    starts += [
        {k: v for k, v in one.items() if k != "trainer"} for one in starts if "trainer" in one
    ]
    found = []
    for options in starts:
        best = score(options)
        while True:
            moves = [
                {**options, name: value}
                for name in words
                if name in there
                for value in words[name]
                if table.knows(name, value, version)
            ]
            moves += [{k: v for k, v in options.items() if k != name} for name in options]
            better = min(moves, key=score)
            if score(better) >= best:
                break
            options, best = better, score(better)
        found.append((best, options))
    return min(found, key=lambda pair: pair[0])[1]


def _unlike(one: Any, two: Any) -> int:
    """How many settings of two choices differ."""
    if not callable(one) or not callable(two):
        return (
            int(one != two)
            if not isinstance(one, tuple)
            else sum(_unlike(a, b) for a, b in zip(one, two, strict=False))
        )
    if labels.unwrapped(one) != labels.unwrapped(two):
        return 1
    left, right = axes.settings(one), axes.settings(two)
    return sum(left.get(name) != right.get(name) for name in left | right)


def _combinations(
    table: Framework, recipe: Recipe, version: str, left: list[str], options: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    if not left:
        yield options
        return
    axis, *rest = left
    wanted = getattr(recipe, axis)
    choices: tuple[Choice | None, ...] = wanted if isinstance(wanted, tuple) else (wanted,)
    found = [options]
    for choice in choices:
        found = [
            {**one, **more}
            for one in found
            for more in _settings_for(table, axis, choice, version, one)
        ] or found
    for one in found:
        yield from _combinations(table, recipe, version, rest, one)


def _settings_for(
    table: Framework, axis: str, choice: Choice | None, version: str, so_far: dict[str, Any]
) -> list[dict[str, Any]]:
    """What must be set for a rule of this axis to make this choice, for every rule that can; {} where the default does."""
    found: list[dict[str, Any]] = []
    for rule in table.rule:
        if (
            rule["axis"] != axis
            or "choice" not in rule
            or not in_range(version, rule.get("versions"))
        ):
            continue
        if not _makes(rule, choice):
            continue
        needed = {
            **_wanted(rule.get("when", {}), fill_in(table, so_far, version)),
            **_solved(rule, choice, table, version),
        }
        values = fill_in(table, {**so_far, **needed}, version)
        if not all(table.knows(name, value, version) for name, value in needed.items()):
            continue
        agrees = all(so_far.get(name, value) == value for name, value in needed.items())
        if (
            agrees
            and holds(rule.get("when", {}), values, {**so_far, **needed})
            and needed not in found
        ):
            found.append(needed)
    return found


def _makes(rule: dict[str, Any], choice: Choice | None) -> bool:
    """Does the rule make this formula, whatever its settings?"""
    if choice is None or rule["choice"] == "none":
        return choice is None and rule["choice"] == "none"
    inner = rule.get("settings", {})
    plain = next(
        (inner[n]["choice"] for n in ("inner", "baseline") if isinstance(inner.get(n), dict)),
        rule["choice"],
    )
    return labels.FAMILY.get(plain, plain) == labels.unwrapped(choice)


def _wanted(when: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """The values that make a rule's conditions hold, where they do not hold yet."""
    needed = {}
    for name, condition in when.items():
        allowed = condition if isinstance(condition, list) else [condition]
        if not isinstance(allowed[0], dict) and values.get(name) not in allowed:
            needed[name] = allowed[0]
    return needed


def _solved(
    rule: dict[str, Any], choice: Choice | None, table: Framework, version: str
) -> dict[str, Any]:
    """Options that give the settings of the choice: each ``=expression`` solved for its first name, which it holds linearly."""
    if choice is None:
        return {}
    settings, needed = dict(rule.get("settings", {})), {}
    for name in ("inner", "baseline"):
        if isinstance(settings.get(name), dict):
            settings = settings[name].get("settings", {})
    have, defaults = axes.settings(choice), fill_in(table, {}, version)
    for name, expression in settings.items():
        value = have.get(name)
        if not (isinstance(expression, str) and expression.startswith("=")) or value is None:
            continue
        option = next(iter(re.findall(r"[A-Za-z_]\w*", expression)))
        if isinstance(value, tuple):
            needed[option] = list(value)
            continue
        f = partial(lambda e, o, x: evaluate(e, {**defaults, o: x}), expression[1:], option)
        if f(defaults[option]) != value if defaults.get(option) is not None else True:
            base, slope = f(0.0), f(1.0) - f(0.0)
            needed[option] = round((value - base) / slope, 12) if slope else value
    return needed


# --- what to run ----------------------------------------------------------------------------------------------------------


def _inner(table: Framework, name: str) -> bool:
    """An option that only stands for half of a pair."""
    return any(name in other.get("into", []) for other in table.option.values())


def _outer(table: Framework, options: dict[str, Any]) -> dict[str, Any]:
    """Pairs put together again: ``eps_clip_low_high 0.2 0.28``."""
    found = {}
    for other in table.option.values():
        into = other.get("into", [])
        if into and any(name in options for name in into):
            fallback = fill_in(table, options, table.version).get(other.get("fallback", ""))
            low, high = (options.get(name, fallback) for name in into)
            found[other["key"]] = [low, high] if other.get("values") == 2 else f"{low:g}_{high:g}"
    return found


def _text(to: str, settings: dict[str, Any], recipe: Recipe) -> str:
    if to == "trl":
        return trl_script(settings, recipe)
    if to == "openrlhf":
        rows = [f"--{key}" + ("" if value is True else f" {' '.join(map(_shown, value)) if isinstance(value, list) else _shown(value)}")
                for key, value in settings.items() if value is not False]  # fmt: skip
    else:
        rows = [f"{key}={_shown(value)}" for key, value in settings.items()]
    return " \\\n".join(rows)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else "null" if value is None else str(value)


def trl_script(settings: dict[str, Any], recipe: Recipe) -> str:
    """A complete training script for ``accelerate launch``: model, JSONL of prompts and answers, one reward function."""
    trainer = settings.get("trainer", "GRPO")
    where = "trl.experimental.gmpo" if trainer == "GMPO" else "trl"
    keywords = "".join(
        f"        {key}={value!r},\n" for key, value in settings.items() if key != "trainer"
    )
    shaped = [
        axes.settings(r)
        for r in recipe.rewards
        if axes.function_of(r).__name__ == "overlong_penalty"
    ]
    extra = (
        f", get_soft_overlong_punishment(args.max_completion_length, {shaped[0]['cache']})"
        if shaped
        else ""
    )
    more = "from trl.rewards import get_soft_overlong_punishment\n" if shaped else ""
    return TRL_SCRIPT.format(
        trainer=trainer, where=where, keywords=keywords, name=recipe.name, extra=extra, more=more
    )


TRL_SCRIPT = '''"""{name}, run by TRL. accelerate launch --num_processes 8 train.py --model MODEL --data prompts.jsonl --out runs/first

prompts.jsonl holds one object a line with "prompt" and "answer". More machines: accelerate config, then the same command on each.
"""

import argparse

from datasets import load_dataset
{more}from {where} import {trainer}Config, {trainer}Trainer

parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True)
parser.add_argument("--data", required=True)
parser.add_argument("--out", default="runs/first")
parser.add_argument("--max_steps", type=int, default=-1)
parser.add_argument("--num_generations", type=int, default=8)
parser.add_argument("--per_device_train_batch_size", type=int, default=8)
parser.add_argument("--max_completion_length", type=int, default=512)
parser.add_argument("--cpu", action="store_true")
args = parser.parse_args()


def right(completions, answer, **others):
    """1 where the answer stands in the completion, else 0. Put your own check here."""
    return [float(str(a) in text) for text, a in zip(completions, answer, strict=True)]


if __name__ == "__main__":
    config = {trainer}Config(
        output_dir=args.out,
        max_steps=args.max_steps,
        num_generations=args.num_generations,
        per_device_train_batch_size=args.per_device_train_batch_size,
        max_completion_length=args.max_completion_length,
        use_cpu=args.cpu,
        bf16=not args.cpu,
        report_to="none",
        logging_steps=1,
{keywords}    )
    data = load_dataset("json", data_files=args.data, split="train")
    trainer = {trainer}Trainer(model=args.model, args=config, train_dataset=data, reward_funcs=[right{extra}])
    trainer.train()
    trainer.save_model(args.out)
'''
