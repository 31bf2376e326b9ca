"""A recipe as the settings of a framework: the tables read backwards, with every difference."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..checks import checked
from ..objective import axes
from ..objective.axes import Choice
from ..objective.catalog import AnyRecipe
from ..objective.recipe import AXES, Recipe
from ..objective.rewards import overlong_penalty
from . import labels
from .data_files import MANY, Framework, Rule
from .expressions import evaluate, holds, in_range
from .tables import at_version, fill_in, framework, read_recipe

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
Options = dict[str, Any]


class Differing(NamedTuple):
    """The recipe has ``asked`` on an axis, the framework runs ``gets``."""

    axis: str
    asked: str
    gets: str

    def __str__(self) -> str:
        return f"{self.axis}: asked {self.asked}, gets {self.gets}"


@dataclass(frozen=True)
class Exported:
    """Settings that run a recipe in a framework.

    Args:
        framework, version: where.
        settings: config key -> value.
        text: what to run: a training script (TRL), overrides (verl), flags (OpenRLHF).
        recipe: what the settings run, read back through the same tables.
        missing: axes that the framework cannot express.
        differences: axes with the same formula and other settings (ε, dual clip, micro-batches).
        remaining: known differences between the framework and every recipe.
    """

    framework: str
    version: str
    settings: dict[str, Any]
    text: str
    recipe: Recipe
    missing: list[Differing] = field(default_factory=list)
    differences: list[Differing] = field(default_factory=list)
    remaining: tuple[str, ...] = ()

    def __str__(self) -> str:
        missing = [f"# cannot be expressed: {row}" for row in self.missing]
        differs = [f"# differs: {row}" for row in (*self.differences, *self.remaining)]
        return "\n".join([*missing, *differs, self.text])


@checked
def export(recipe: AnyRecipe, to: str, version: str | None = None) -> Exported:
    """The settings of ``trl``, ``verl`` or ``openrlhf`` that come nearest to a recipe.

    Args:
        recipe: the loss.
        to: the framework.
        version: of it; None: the newest that was read.

    Raises:
        TypeError: not a recipe, or the version is no text.
        ValueError: not one of these three frameworks, or a version outside those that were read.
        KeyError: a commit that it does not know.
    """
    if not isinstance(recipe, Recipe):
        raise TypeError(
            f"recipe is {recipe!r}: expected a Recipe. By name: grpo_edu.recipe('grpo')."
        )
    if to not in WRITERS:
        raise ValueError(f"to is '{to}': expected {', '.join(WRITERS)}.")
    table, number = at_version(framework(to), version)
    options = _nearest(table, recipe, number)
    got = read_recipe(table, options, number)[0]
    ours = recipe.describe()
    theirs = got.describe()
    rows = [Differing(a, ours[a], theirs[a]) for a in AXES if ours[a] != theirs[a]]
    settings = _settings(table, _explicit(table, options, number), number)
    return Exported(
        framework=table.name,
        version=number,
        settings=settings,
        text=WRITERS[to](settings, recipe),
        recipe=got,
        missing=[row for row in rows if not _same_formula(recipe, got, row.axis)],
        differences=[row for row in rows if _same_formula(recipe, got, row.axis)],
        remaining=table.remaining,
    )


def _choices(recipe: Recipe, axis: str) -> tuple[Choice, ...]:
    """The choices of an axis: none, one or several."""
    value = getattr(recipe, axis)
    if isinstance(value, tuple):
        return value
    return () if value is None else (value,)


def _formulas(recipe: Recipe, axis: str) -> list[str]:
    return [labels.unwrapped(choice) for choice in _choices(recipe, axis)]


def _same_formula(recipe: Recipe, got: Recipe, axis: str) -> bool:
    """The same formulas on an axis, whatever their settings; a KL average counts with a KL only."""
    unused = axis == "kl_aggregation" and recipe.kl is None
    return unused or _formulas(recipe, axis) == _formulas(got, axis)


def _differing_settings(recipe: Recipe, got: Recipe, axis: str) -> int:
    """How many settings of an axis differ; another formula counts as one."""
    ours = _choices(recipe, axis)
    theirs = _choices(got, axis)
    if not isinstance(getattr(recipe, axis), tuple) and len(ours) != len(theirs):
        return 1
    return sum(_unlike(a, b) for a, b in zip(ours, theirs, strict=False))


def _unlike(ours: Choice, theirs: Choice) -> int:
    if labels.unwrapped(ours) != labels.unwrapped(theirs):
        return 1
    left = axes.settings(ours)
    right = axes.settings(theirs)
    return sum(left.get(name) != right.get(name) for name in left | right)


# --- the search -----------------------------------------------------------------------------------


def _nearest(table: Framework, recipe: Recipe, version: str) -> Options:
    """Options whose recipe differs least.

    First the best combinations of one rule per axis, then one option at a time while it helps.
    """

    def score(options: Options) -> tuple[int, int, int]:
        try:
            got, left_out = read_recipe(table, options, version)
        except (TypeError, ValueError):  # an option without the other one that it needs
            return 1000, 0, 0
        wrong = sum(not _same_formula(recipe, got, axis) for axis in AXES) + 10 * len(left_out)
        settings = sum(_differing_settings(recipe, got, axis) for axis in AXES)
        return wrong, settings, len(options)

    starts = sorted(_combinations(table, recipe, version, SEARCHED, {}), key=score)[:4]
    starts += [_without(options, "trainer") for options in starts if "trainer" in options]
    reached = []
    for options in starts:
        best = score(options)
        while True:
            nearer = min(_moves(table, options, version), key=score)
            if score(nearer) >= best:
                break
            options = nearer
            best = score(options)
        reached.append((best, options))
    return min(reached, key=lambda pair: pair[0])[1]


def _without(options: Options, name: str) -> Options:
    return {option: value for option, value in options.items() if option != name}


def _moves(table: Framework, options: Options, version: str) -> list[Options]:
    """All that one option can change: another value that the rules name, or its default."""
    moves = [
        {**options, name: value}
        for name, values in table.values_in_rules().items()
        for value in values
        if table.has(name, value, version)
    ]
    return moves + [_without(options, name) for name in options]


def _combinations(
    table: Framework, recipe: Recipe, version: str, left: tuple[str, ...], options: Options
) -> Iterator[Options]:
    """Options that make the recipe's choices on the axes that are left, one rule per choice."""
    if not left:
        yield options
        return
    several = [options]
    for choice in _choices(recipe, left[0]) or ([] if left[0] in MANY else [None]):
        several = [
            {**so_far, **needed}
            for so_far in several
            for needed in _needed_options(table, left[0], choice, version, so_far)
        ] or several
    for so_far in several:
        yield from _combinations(table, recipe, version, left[1:], so_far)


def _needed_options(
    table: Framework, axis: str, choice: Choice | None, version: str, so_far: Options
) -> list[Options]:
    """What must be set so that a rule of this axis makes this choice, for every rule that can."""
    several: list[Options] = []
    for rule in table.rule:
        if rule.axis != axis or not _makes(rule, choice) or not in_range(version, rule.versions):
            continue
        needed = {
            **_for_conditions(rule.when, fill_in(table, so_far, version)),
            **_for_settings(rule, choice, table, version),
        }
        if not all(table.has(name, value, version) for name, value in needed.items()):
            continue
        together = {**so_far, **needed}
        agrees = all(so_far.get(name, value) == value for name, value in needed.items())
        works = holds(rule.when, fill_in(table, together, version), together)
        if agrees and works and needed not in several:
            several.append(needed)
    return several


def _makes(rule: Rule, choice: Choice | None) -> bool:
    """Does the rule make this formula, whatever its settings?"""
    if choice is None or rule.choice in ("", "none"):
        return choice is None and rule.choice == "none"
    formula = rule.wrapped()[0]
    return labels.FAMILY.get(formula, formula) == labels.unwrapped(choice)


def _for_conditions(when: dict[str, Any], values: dict[str, Any]) -> Options:
    """The values that make a rule's conditions hold, where they do not hold yet."""
    needed = {}
    for name, condition in when.items():
        allowed = condition if isinstance(condition, list) else [condition]
        if not isinstance(allowed[0], dict) and values.get(name) not in allowed:
            needed[name] = allowed[0]
    return needed


def _for_settings(rule: Rule, choice: Choice | None, table: Framework, version: str) -> Options:
    """Options that give the settings of the choice.

    Each ``=expression`` is solved for its first name, which it holds linearly.
    """
    if choice is None:
        return {}
    needed: Options = {}
    wanted = axes.settings(choice)
    defaults = fill_in(table, {}, version)
    for name, expression in rule.wrapped()[1].items():
        value = wanted.get(name)
        if value is None or not isinstance(expression, str) or not expression.startswith("="):
            continue
        option = re.findall(r"[A-Za-z_]\w*", expression)[0]
        if isinstance(value, tuple):
            needed[option] = list(value)
            continue
        solved = _solved(expression[1:], option, value, defaults)
        if solved is not None:
            needed[option] = solved
    return needed


def _solved(expression: str, option: str, value: Any, defaults: dict[str, Any]) -> Any:
    """The option's value that makes an expression equal ``value``; None: its default does."""

    def computed(x: Any) -> Any:
        return evaluate(expression, {**defaults, option: x})

    if defaults[option] is not None and computed(defaults[option]) == value:
        return None
    base = computed(0.0)
    slope = computed(1.0) - base
    return round((value - base) / slope, 12) if slope else value


# --- what to run ----------------------------------------------------------------------------------


def _explicit(table: Framework, options: Options, version: str) -> Options:
    """The options, and those whose defaults decide an axis: defaults move between releases.

    A rule that makes the choice is held by all that it looks at, an earlier one by the first of its
    conditions that fails; another trainer of the framework may not have that one's options.
    """
    values = fill_in(table, options, version)
    needed: dict[str, None] = {}
    decided: set[str] = set()
    for rule in table.rule:
        if rule.axis in decided or not in_range(version, rule.versions):
            continue
        failing = [n for n, when in rule.when.items() if not holds({n: when}, values, options)]
        if failing:
            held = needed.keys() & {*failing} or (
                "trainer" in options and "trainer" not in rule.when
            )
            needed |= dict.fromkeys([] if held else failing[:1])
            continue
        needed |= dict.fromkeys([*rule.when, *_names(rule.settings, values)])
        if rule.axis not in MANY and rule.choice:
            decided.add(rule.axis)
    known = table.defaults(version)
    added = {name: values[name] for name in needed if known.get(name) is not None}
    return {**_without(added, "trainer"), **options}


def _names(settings: dict[str, Any], values: Options) -> Iterator[str]:
    """The options that decide a rule's settings, also inside a choice that it wraps."""
    for value in settings.values():
        if isinstance(value, dict):
            yield from _names(value, values)
        elif isinstance(value, str) and value.startswith("="):
            for part in re.findall(r"\w+(?: or \w+)*", value):
                given = (name for name in part.split(" or ") if values.get(name) is not None)
                yield from itertools.islice(given, 1)


def _settings(table: Framework, options: Options, version: str) -> dict[str, Any]:
    """Config keys and values; pairs are put together again: ``eps_clip_low_high 0.2 0.28``."""
    pairs = [option for option in table.option.values() if option.into]
    halves = {name for pair in pairs for name in pair.into}
    settings = {table.key(n): value for n, value in options.items() if n not in halves}
    for pair in pairs:
        if any(name in options for name in pair.into):
            fallback = fill_in(table, options, version).get(pair.fallback)
            low, high = (options.get(name, fallback) for name in pair.into)
            settings[pair.key] = [low, high] if pair.pair == "values" else f"{low:g}_{high:g}"
    return settings


def overrides(settings: dict[str, Any], recipe: Recipe) -> str:
    """Hydra overrides, ``key=value``."""
    return " \\\n".join(f"{key}={_shown(value)}" for key, value in settings.items())


def flags(settings: dict[str, Any], recipe: Recipe) -> str:
    """Flags, ``--key value``; a switch has no value."""
    rows = []
    for key, value in settings.items():
        values = value if isinstance(value, list) else [value]
        if value is not False:
            rows.append(" ".join([f"--{key}", *(_shown(x) for x in values if x is not True)]))
    return " \\\n".join(rows)


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    return f"{value:g}" if isinstance(value, float) else str(value)


def trl_script(settings: dict[str, Any], recipe: Recipe) -> str:
    """A complete training script for ``accelerate launch``: model, JSONL of prompts, one reward."""
    trainer = settings.get("trainer", "GRPO")
    keywords = _without(_without(settings, "trainer"), "max_completion_length").items()
    caches = [
        axes.settings(shaping)["cache"]
        for shaping in recipe.rewards
        if axes.function_of(shaping) is overlong_penalty
    ]
    punishment = "get_soft_overlong_punishment"
    return TRL_SCRIPT.format(
        trainer=trainer,
        where="trl.experimental.gmpo" if trainer == "GMPO" else "trl",
        keywords="".join(f"        {key}={value!r},\n" for key, value in keywords),
        name=recipe.name,
        length=settings.get("max_completion_length", 512),
        more=f"from trl.rewards import {punishment}\n" if caches else "",
        extra=f", {punishment}(args.max_completion_length, {caches[0]})" if caches else "",
    )


TRL_SCRIPT = '''"""{name}, run by TRL.

accelerate launch --num_processes 8 train.py --model MODEL --data prompts.jsonl --out runs/first

prompts.jsonl holds one object a line with "prompt" and "answer".
More machines: accelerate config, then the same command on each.
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
parser.add_argument("--max_completion_length", type=int, default={length})
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
    trainer = {trainer}Trainer(
        model=args.model, args=config, train_dataset=data, reward_funcs=[right{extra}]
    )
    trainer.train()
    trainer.save_model(args.out)
'''
WRITERS = {"trl": trl_script, "verl": overrides, "openrlhf": flags}
