"""One data file per framework: options with their history, rules from options to the axes of a recipe, presets, traps.

A rule says: *when* these options hold, this axis makes this choice. The same rules read a config, make a preset and, read
backwards, export a recipe. To correct a fact, edit the file in ``data/``; the format is described in ``data/README.md``.
"""

from __future__ import annotations

import re
import tomllib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import resources
from typing import TYPE_CHECKING, Any

from ..objective import advantages, aggregation, corrections, filters, kl, rewards, surrogates
from ..objective.axes import Choice
from ..objective.recipe import Recipe, RecipeWarning
from .expressions import evaluate, holds, in_range, version_key

if TYPE_CHECKING:
    import pandas as pd

ROOMS = (advantages, aggregation, corrections, filters, kl, rewards, surrogates)
MANY = ("rewards", "filters")


class NotCovered(ValueError):
    """These options run something that no axis of a recipe expresses; the message says what."""


@dataclass(frozen=True)
class Framework:
    """What one data file says.

    Args:
        name, title, evidence, source: who it is, and how its facts were obtained.
        version, oldest: the newest and the oldest that were read; the newest is assumed where none is told.
        option: name -> table with ``history`` (``since``, ``default``), ``key``, ``alias``, ``removed``, ``doc``.
        rule, trap, claim, preset, fork, variant: lists of tables.
        updates: expression for the optimiser steps per rollout.
        group_size: expression for the completions per prompt; empty where no option read here holds it.
        clip: options that hold the clip band.
        not_covered: what the framework has and no axis expresses, with the reason.
        quiet: prefixes or names of keys that do not touch the loss.
    """

    name: str
    title: str
    evidence: str
    source: str
    version: str
    oldest: str
    updates: str
    option: dict[str, dict[str, Any]]
    rule: list[dict[str, Any]]
    trap: list[dict[str, Any]] = field(default_factory=list)
    claim: list[dict[str, Any]] = field(default_factory=list)
    preset: list[dict[str, Any]] = field(default_factory=list)
    fork: list[dict[str, Any]] = field(default_factory=list)
    variant: list[dict[str, Any]] = field(default_factory=list)
    not_covered: dict[str, str] = field(default_factory=dict)
    remaining: list[str] = field(default_factory=list)
    quiet: list[str] = field(default_factory=list)
    group_size: str = ""

    def defaults(self, version: str) -> dict[str, Any]:
        """Every option that exists in a version, with its default there (None where there is none)."""
        found: dict[str, Any] = {}
        for name, table in self.option.items():
            if "removed" in table and in_range(version, f">={table['removed']}"):
                continue
            for entry in table.get("history", [{"since": "0"}]):
                if in_range(version, f">={entry['since']}"):
                    found[name] = entry.get("default")
        return found

    def knows(self, name: str, value: Any, version: str) -> bool:
        """Does a version have this option, and this value of it?"""
        begins = self.option[name].get("begins", {}).get(str(value), "0")
        return name in self.defaults(version) and in_range(version, f">={begins}")

    def changes(self) -> list[str]:
        """The oldest version that was read, and every one at which a default or a rule changed, in order."""
        marks = {e["since"] for t in self.option.values() for e in t.get("history", [])}
        specs = [x.get("versions", "") for x in (*self.rule, *self.trap, *self.preset)]
        marks |= {part.strip(" <>=") for spec in specs for part in spec.split(",") if part}
        read = [v for v in marks - {"0"} if in_range(v, f">{self.oldest},<={self.version}")]
        return sorted({self.oldest, self.version, *read}, key=version_key)

    def words(self) -> dict[str, list[Any]]:
        """The texts and switches of each option that the file knows by name."""
        found: dict[str, list[Any]] = {}
        for entry in (*self.rule, *self.claim, *self.trap):
            for name, condition in entry.get("when", {}).items():
                listed = condition.get("not", []) if isinstance(condition, dict) else condition
                for value in listed if isinstance(listed, list) else [listed]:
                    both = [value, not value] if isinstance(value, bool) else [value]
                    words = found.setdefault(name, [])
                    words += [v for v in both if isinstance(v, (str, bool)) and v not in words]
        return found


@cache
def framework(name: str) -> Framework:
    """The tables of a framework by name: ``framework("trl")``.

    Raises:
        KeyError: no data file of that name; the message lists those there are.
    """
    file = resources.files("grpo_edu.frameworks") / "data" / f"{name.lower()}.toml"
    if not file.is_file():
        raise KeyError(f"no framework named '{name}'. Known: {', '.join(FRAMEWORKS)}.")
    return Framework(**tomllib.loads(file.read_text(encoding="utf-8")))


def _names() -> list[str]:
    folder = resources.files("grpo_edu.frameworks") / "data"
    return sorted(
        file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml")
    )


FRAMEWORKS = _names()


def fill_in(table: Framework, given: Mapping[str, Any], version: str) -> dict[str, Any]:
    """All option values of a run: the version's defaults, those of the trainer's variant, and the user's values over them."""
    values = {
        **dict.fromkeys(table.option),
        **table.defaults(version),
    }  # an option that is not there yet has no value
    for variant in table.variant:
        if given.get("trainer", values.get("trainer")) == variant["trainer"]:
            values.update(variant["defaults"])
    return {**values, **given}


def build(choice: str, settings: Mapping[str, Any], values: Mapping[str, Any]) -> Choice | None:
    """A choice by name with its settings; a setting that starts with ``=`` is computed from the options."""
    if choice == "none":
        return None
    function = next((getattr(room, choice) for room in ROOMS if hasattr(room, choice)), None)
    if function is None:
        raise KeyError(f"no choice named '{choice}' in grpo_edu.objective.")
    bound = {name: _setting(value, values) for name, value in settings.items()}
    return partial(function, **bound) if bound else function


def _setting(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        return build(value["choice"], value.get("settings", {}), values)
    if isinstance(value, str) and value.startswith("="):
        found = evaluate(value[1:], values)
        return tuple(found) if isinstance(found, list) else found
    return value


def matching(
    table: Framework, values: Mapping[str, Any], given: Mapping[str, Any], version: str
) -> list[dict[str, Any]]:
    """The rules that speak, in order: the first choice that holds for an axis, all for ``rewards`` and ``filters``; every refusal."""
    found: list[dict[str, Any]] = []
    settled: set[str] = set()
    for rule in table.rule:
        axis = rule["axis"]
        if (
            axis in settled
            or not in_range(version, rule.get("versions"))
            or not holds(rule.get("when", {}), values, given)
        ):
            continue
        found.append(rule)
        if axis not in MANY and "choice" in rule:
            settled.add(axis)
    return found


def recipe_of(
    table: Framework,
    given: Mapping[str, Any],
    version: str,
    name: str | None = None,
    left_out: list[str] | None = None,
) -> Recipe:
    """The recipe that a framework runs with these options.

    Args:
        table: the framework.
        given: what the user wrote, by option name.
        version: of the framework.
        name: of the recipe.
        left_out: collects what no axis expresses, ``"axis: reason"``; None: such an option is refused.

    Raises:
        NotCovered: an option asks for something that no axis expresses, and ``left_out`` is None.
    """
    values, axes = fill_in(table, given, version), {}
    for rule in matching(table, values, given, version):
        axis = rule["axis"]
        if "not_covered" in rule:
            reason = f"{axis}: {rule['not_covered'].format_map(values)}"
            if left_out is None:
                raise NotCovered(reason)
            left_out.append(reason)
            continue
        choice = build(rule["choice"], rule.get("settings", {}), values)
        axes[axis] = (*axes.get(axis, ()), choice) if axis in MANY else choice
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecipeWarning)
        return Recipe(name=name or f"{table.name}=={version}", **axes)


def split_version(text: str) -> tuple[str, str | None]:
    """``"trl==1.16"`` -> ("trl", "1.16"); ``"trl@fc4dae256"`` -> ("trl", "trl@fc4dae256"); ``"trl"`` -> ("trl", None)."""
    if "==" in text:
        return tuple(text.split("==", 1))  # type: ignore[return-value]
    return (text.split("@")[0], text) if "@" in text else (text, None)


def at_version(table: Framework, version: str | None) -> tuple[Framework, str]:
    """The tables as they stand at a version or a commit: a commit's own rules come first, its options override.

    Raises:
        KeyError: a commit that the file does not know.
    """
    if version is None:
        return table, table.version
    fork = fork_of(table, version)
    if fork is None and "@" in version:
        known = ", ".join(fork["name"] for fork in table.fork) or "none"
        raise KeyError(f"{version} is not a commit or fork that {table.name} knows ({known}).")
    if fork is None:
        version_key(version)
        return table, version
    options = {**table.option, **fork.get("option", {})}
    for name, value in fork.get("defaults", {}).items():
        options[name] = {**options.get(name, {}), "history": [{"since": "0", "default": value}]}
    traps = [
        *fork.get("trap", []),
        *(trap for trap in table.trap if trap["key"] not in fork.get("without", [])),
    ]
    rules = [*fork.get("rule", []), *table.rule]
    changed = replace(
        table, rule=rules, trap=traps, option=options, updates=fork.get("updates", table.updates)
    )
    return changed, fork["version"]


def fork_of(table: Framework, version: str) -> dict[str, Any] | None:
    """The fork or commit that is meant: ``tinyzero@de61e6aa``, longer or shorter; ``tinyzero`` where no other goes by that name."""
    asked, _, commit = version.lower().partition("@")
    for fork in table.fork:
        repository, _, known = fork["name"].partition("@")
        same = known.startswith(commit) or commit.startswith(known)
        if asked == repository and same and (commit or repository != table.name):
            return fork
    return None


def preset(name: str, at: str) -> Recipe:
    """A named recipe as a framework runs it: ``preset("grpo", "trl==1.16")``, ``preset("grpo", "trl@fc4dae256")``.

    Raises:
        KeyError: unknown framework, or no such preset in that version.
    """
    who, version = split_version(at)
    table, number = at_version(framework(who), version)
    for entry in table.preset:
        if entry["name"] == name and in_range(number, entry.get("versions")):
            return recipe_of(
                table,
                entry.get("options", {}),
                number,
                f"{name} ({at if version else f'{who}=={number}'})",
            )
    there = [e["name"] for e in table.preset if in_range(number, e.get("versions"))]
    raise KeyError(f"{at} has no preset '{name}'. There: {', '.join(there)}.")


def presets(who: str, version: str | None = None) -> dict[str, Recipe]:
    """Every preset of a framework at a version, by name."""
    table, number = at_version(framework(who), version)
    at = f"{who}=={number}" if version is None or "@" not in version else version
    return {
        e["name"]: preset(e["name"], at)
        for e in table.preset
        if in_range(number, e.get("versions"))
    }


def versions_of(name: str) -> list[str]:
    """Every place where a preset of this name stands: framework and version where it changed, and the known commits."""
    found = []
    for who in FRAMEWORKS:
        table = framework(who)
        commits = [fork["name"] for fork in table.fork if fork["name"].startswith(f"{who}@")]
        found += [f"{who}=={version}" for version in _distinct(table, name)]
        found += [commit for commit in commits if name in presets(who, commit)]
    return found


def preset_table(name: str = "grpo") -> pd.DataFrame:
    """The same name in every framework, at every version where it changed: one row each, one column per axis."""
    import pandas as pd

    evidence = {who: framework(who).evidence for who in FRAMEWORKS}
    rows = {
        at: {**preset(name, at).describe(), "evidence": evidence[re.split("[@=]", at)[0]]}
        for at in versions_of(name)
    }
    return pd.DataFrame(rows).T


def _distinct(table: Framework, name: str) -> list[str]:
    """Versions at which a preset became another recipe."""
    found, last = [], None
    for version in table.changes():
        try:
            now = preset(name, f"{table.name}=={version}")
        except KeyError:
            continue
        if now != last:
            found.append(version)
        last = now
    return found
