"""One data file per framework: options with history, rules from options to axes, presets, traps.

A rule says: *when* these options hold, this axis makes this choice. The same rules read a config,
make a preset and, read backwards, export a recipe. To correct a fact, edit the file in ``data/``;
the format is described in ``data/README.md``. ``data_files`` reads and checks it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from ..checks import instance
from ..objective.axes import Choice, key
from ..objective.recipe import Recipe, RecipeWarning
from .data_files import MANY, Fork, Framework, Preset, Rule, Since, choice_named, parse
from .expressions import evaluate, in_range, version_of

if TYPE_CHECKING:
    import pandas as pd

DATA = resources.files("grpo_edu.frameworks") / "data"
FRAMEWORKS = sorted(
    file.name.removesuffix(".toml") for file in DATA.iterdir() if file.name.endswith(".toml")
)


class NotCovered(ValueError):
    """These options run something that no axis of a recipe expresses; the message says what."""


class LeftOut(NamedTuple):
    """A part of a loss that no axis expresses.

    ``axis`` lacks it, because of option or config ``key`` at ``line`` (0: its default counts).
    """

    axis: str
    key: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.axis}: {self.reason}" + (f" (line {self.line})" if self.line else "")


def framework(name: str) -> Framework:
    """The tables of a framework by name: ``framework("trl")``.

    Raises:
        KeyError: there is no data file of that name; the message lists those there are.
    """
    key = str(name).lower()
    if key not in FRAMEWORKS:
        raise KeyError(f"no framework named '{name}'. Known: {', '.join(FRAMEWORKS)}.")
    return _parsed(f"{key}.toml")


@cache
def _parsed(file: str) -> Framework:
    return parse((DATA / file).read_text(encoding="utf-8"), file)


def fill_in(table: Framework, given: Mapping[str, Any], version: str) -> dict[str, Any]:
    """All option values of a run: the version's defaults, the trainer's, then the user's.

    An option that the version does not have is None.
    """
    values = {**dict.fromkeys(table.option), **table.defaults(version)}
    for variant in table.variant:
        if given.get("trainer", values.get("trainer")) == variant.trainer:
            values.update(variant.defaults)
    return {**values, **given}


def build(choice: str, settings: Mapping[str, Any], values: Mapping[str, Any]) -> Choice | None:
    """A choice by name with its settings; ``=`` starts a setting that is computed from options."""
    if choice == "none":
        return None
    bound = {name: _setting(value, values) for name, value in settings.items()}
    return partial(choice_named(choice), **bound) if bound else choice_named(choice)


def _setting(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        return build(value["choice"], value.get("settings", {}), values)
    if isinstance(value, str) and value.startswith("="):
        computed = evaluate(value[1:], values)
        return tuple(computed) if isinstance(computed, list) else computed
    return value


def matching(
    table: Framework, values: Mapping[str, Any], given: Mapping[str, Any], version: str
) -> Iterator[Rule]:
    """The rules that hold, in order.

    For an axis, every refusal up to its first choice; for ``rewards`` and ``filters``, all rules.
    """
    decided: set[str] = set()
    for rule in table.rule:
        if rule.axis in decided or not rule.applies(version, values, given):
            continue
        yield rule
        if rule.axis not in MANY and rule.choice:
            decided.add(rule.axis)


def read_recipe(
    table: Framework, given: Mapping[str, Any], version: str, name: str | None = None
) -> tuple[Recipe, list[LeftOut]]:
    """The recipe that a framework runs with these options, and what no axis expresses.

    Args:
        table: the framework.
        given: what the user wrote, by option name.
        version: of the framework.
        name: of the recipe.
    """
    values = fill_in(table, given, version)
    axes: dict[str, Any] = {}
    left_out = []
    for rule in matching(table, values, given, version):
        if rule.not_covered:
            key = next((option for option in rule.when if option in given), "")
            left_out.append(LeftOut(rule.axis, key, 0, rule.not_covered.format_map(values)))
            continue
        choice = build(rule.choice, rule.settings, values)
        axes[rule.axis] = (*axes.get(rule.axis, ()), choice) if rule.axis in MANY else choice
    if table.kl_ignores and axes.get("kl"):
        axes["kl_aggregation"] = _aggregation_of_kl(table, values, given, version, axes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecipeWarning)
        return Recipe(name=name or f"{table.name}=={version}", **axes), left_out


def _aggregation_of_kl(
    table: Framework,
    values: Mapping[str, Any],
    given: Mapping[str, Any],
    version: str,
    axes: Mapping[str, Any],
) -> Choice | None:
    """How the KL term is averaged where one option concerns the surrogate only; None: the same."""
    rules = tuple(rule for rule in table.rule if table.kl_ignores not in rule.when)
    for rule in matching(replace(table, rule=rules), values, given, version):
        if rule.axis == "aggregation":
            own = build(rule.choice, rule.settings, values)
            return None if key(own) == key(axes.get("aggregation")) else own
    return None


def recipe_of(
    table: Framework, given: Mapping[str, Any], version: str, name: str | None = None
) -> Recipe:
    """``read_recipe`` for options that must be covered.

    Raises:
        NotCovered: an option asks for something that no axis expresses.
    """
    recipe, left_out = read_recipe(table, given, version, name)
    if left_out:
        raise NotCovered(str(left_out[0]))
    return recipe


def split_version(at: str) -> tuple[str, str | None]:
    """The framework, and the version or commit.

    ``"trl==1.16"`` -> ``("trl", "1.16")``; ``"trl@fc4dae256"`` -> ``("trl", "trl@fc4dae256")``;
    ``"trl"`` -> ``("trl", None)``.
    """
    _check_text(at, "trl==1.16")
    who, equals, version = at.partition("==")
    if equals:
        return who, version
    return (at.split("@")[0], at) if "@" in at else (at, None)


def _check_text(version: object, example: str) -> None:
    if not isinstance(version, str):
        raise TypeError(f"version is {version!r}: expected a text such as '{example}'.")


def at_version(table: Framework, version: str | None) -> tuple[Framework, str]:
    """The tables as they stand at a version, a commit or a fork.

    A fork's own rules come before those of the framework, and its options override them. A later
    patch of the newest release is read as that release.

    Raises:
        KeyError: a commit or fork that the data file does not have.
        ValueError: a version outside those that were read.
    """
    if version is None:
        return table, table.version
    fork = fork_of(table, version)
    if fork is not None:
        return _forked(table, fork), fork.version
    if "@" in version:
        raise KeyError(
            f"{version} is not a commit or fork that {table.name} knows ({fork_names(table)})."
        )
    if is_later_patch(table, version):
        return table, table.version
    if not in_range(version, f">={table.oldest},<={table.version}"):
        raise ValueError(
            f"version is '{version}': {table.name} was read from {table.oldest} to "
            f"{table.version}. Give one of these."
        )
    return table, version


def is_later_patch(table: Framework, version: str) -> bool:
    """Is it a patch of the newest release that was read, as 1.16.2 is of 1.16?

    Not where a framework has no releases and its version is the date of a commit.
    """
    asked, newest = version_of(version), version_of(table.version)
    return asked > newest and asked.release[:2] == newest.release[:2] and newest.major < 2000


def _forked(table: Framework, fork: Fork) -> Framework:
    options = {**table.option, **fork.option}
    for name, value in fork.defaults.items():
        options[name] = replace(options[name], history=(Since("0", value),))
    kept = tuple(trap for trap in table.trap if trap.key not in fork.without)
    return replace(
        table,
        rule=fork.rule + table.rule,
        trap=fork.trap + kept,
        option=options,
        updates=fork.updates or table.updates,
        group_size=fork.group_size or table.group_size,
    )


def fork_of(table: Framework, version: str) -> Fork | None:
    """The fork or commit that is meant: ``tinyzero@de61e6aa``, with a longer or shorter commit.

    ``tinyzero`` alone is enough, unless it is the framework's own name.
    """
    _check_text(version, "1.16")
    asked, _, commit = version.lower().partition("@")
    for fork in table.fork:
        repository, _, own_commit = fork.name.partition("@")
        same = own_commit.startswith(commit) or commit.startswith(own_commit)
        if asked == repository and same and (commit or repository != table.name):
            return fork
    return None


def fork_names(table: Framework) -> str:
    """The forks and commits of a data file, as a list in words."""
    return ", ".join(fork.name for fork in table.fork) or "none"


def preset(name: str, at: str) -> Recipe:
    """A named recipe as a framework runs it: ``preset("grpo", "trl==1.16")``.

    Args:
        name: of the preset.
        at: framework and version or commit: ``trl==1.16``, ``trl@fc4dae256``, ``trl`` (newest).

    Raises:
        KeyError: unknown framework, or no such preset in that version.
        ValueError: a version outside those that were read.
    """
    who, version = split_version(at)
    table, number = at_version(framework(who), version)
    there = presets_at(table, number)
    if name not in there:
        raise KeyError(f"{at} has no preset '{name}'. There: {', '.join(there)}.")
    place = at if version else f"{who}=={number}"
    if version and version != number == table.version:
        place += f", read as {number}"
    return recipe_of(table, there[name].options, number, f"{name} ({place})")


def presets_at(table: Framework, version: str) -> dict[str, Preset]:
    """The presets of a release by name; of two with one name, the first counts."""
    there: dict[str, Preset] = {}
    for entry in table.preset:
        if in_range(version, entry.versions):
            there.setdefault(entry.name, entry)
    return there


def presets(who: str, version: str | None = None) -> dict[str, Recipe]:
    """Every preset of a framework at a version, by name.

    Raises:
        KeyError: unknown framework or commit.
        ValueError: a version outside those that were read.
    """
    table, number = at_version(framework(who), version)
    at = version if version and "@" in version else f"{who}=={number}"
    return {name: preset(name, at) for name in presets_at(table, number)}


def versions_of(name: str) -> list[str]:
    """Every place that has a preset of this name.

    One for each version at which it became another recipe, and one for each commit that is known.
    """
    instance("name", name, str)
    places = []
    for who in FRAMEWORKS:
        table = framework(who)
        commits = [fork.name for fork in table.fork if fork.name.startswith(f"{who}@")]
        places += [f"{who}=={version}" for version in _distinct(table, name)]
        places += [commit for commit in commits if name in presets(who, commit)]
    return places


def preset_table(name: str = "grpo") -> pd.DataFrame:
    """The same name in every framework, at every version where it changed.

    One row each; one column per axis, and ``evidence``.
    """
    import pandas as pd

    rows = {
        at: {**preset(name, at).describe(), "evidence": framework(split_version(at)[0]).evidence}
        for at in versions_of(name)
    }
    return pd.DataFrame(rows).T


def _distinct(table: Framework, name: str) -> list[str]:
    """Versions at which a preset became another recipe."""
    places: list[str] = []
    last = None
    for version in table.changes():
        if name not in presets_at(table, version):
            continue
        recipe = preset(name, f"{table.name}=={version}")
        if recipe != last:
            places.append(version)
            last = recipe
    return places
