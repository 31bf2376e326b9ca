"""The data files as typed tables. An unknown key or a wrong type is an error with file and line."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from ..objective import advantages, aggregation, corrections, filters, kl, rewards, surrogates
from ..objective.axes import Choice
from ..objective.recipe import AXES
from .expressions import CONDITIONS, holds, in_range, version_of

ROOMS = (advantages, aggregation, corrections, filters, kl, rewards, surrogates)
MANY = ("rewards", "filters")
WRAPPERS = ("inner", "baseline")  # settings that hold the choice which a wrapper wraps


def choice_named(name: str) -> Choice:
    """A function of ``grpo_edu.objective`` by name.

    Raises:
        ValueError: there is none.
    """
    for room in ROOMS:
        function = vars(room).get(name)
        if getattr(function, "__module__", "") == room.__name__:
            return function  # type: ignore[return-value]
    raise ValueError(f"choice is '{name}': no function of grpo_edu.objective has this name.")


@dataclass(frozen=True)
class Since:
    """The default of an option from one release on."""

    since: str
    default: Any = None


@dataclass(frozen=True)
class Option:
    """An option that touches the loss.

    Args:
        history: its defaults; before the first ``since`` the option does not exist.
        key: its name in a config, where that differs from its name in the rules.
        alias: other spellings of the key.
        removed: the release that dropped it.
        begins: value -> the release with which the value came.
        spelling: how a value may be written -> how the rules write it.
        into: two options that a pair of values is taken apart into.
        pair: how export writes that pair: ``values`` (two values) or ``text`` (joined by ``_``).
        fallback: the option that stands for a missing half of the pair.
    """

    history: tuple[Since, ...] = (Since("0"),)
    key: str = ""
    alias: tuple[str, ...] = ()
    removed: str = ""
    begins: dict[str, str] = field(default_factory=dict)
    spelling: dict[str, str] = field(default_factory=dict)
    into: tuple[str, ...] = ()
    pair: str = "text"
    fallback: str = ""

    def exists(self, version: str) -> bool:
        """Does the release have this option?"""
        gone = self.removed and in_range(version, f">={self.removed}")
        return not gone and in_range(version, f">={self.history[0].since}")

    def default(self, version: str) -> Any:
        """Its default in a release that has it."""
        return [x.default for x in self.history if in_range(version, f">={x.since}")][-1]


@dataclass(frozen=True, kw_only=True)
class Conditional:
    """An entry that counts when ``when`` holds, in ``versions``."""

    when: dict[str, Any] = field(default_factory=dict)
    versions: str = ""

    def __post_init__(self) -> None:
        for name, condition in self.when.items():
            unknown = set(condition if isinstance(condition, dict) else ()) - set(CONDITIONS)
            if unknown:
                raise ValueError(
                    f"when.{name} has the condition {', '.join(sorted(unknown))}: "
                    f"expected {', '.join(CONDITIONS)}."
                )

    def applies(self, version: str, values: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
        """Does it count for these values? ``given``: what the user wrote."""
        return in_range(version, self.versions) and holds(self.when, values, given)


@dataclass(frozen=True, kw_only=True)
class Rule(Conditional):
    """``axis`` makes ``choice`` with ``settings``, or ``not_covered`` says what has no axis."""

    axis: str
    choice: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    not_covered: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.axis not in AXES:
            raise ValueError(f"axis is '{self.axis}': expected one of {', '.join(AXES)}.")
        if bool(self.choice) == bool(self.not_covered):
            raise ValueError("a rule has either a choice or not_covered.")
        if self.choice not in ("", "none"):
            choice_named(self.choice)

    def wrapped(self) -> tuple[str, dict[str, Any]]:
        """Name and settings of the formula inside: that of ``inner`` for ``per_micro_batch``."""
        for name in WRAPPERS:
            inner = self.settings.get(name)
            if isinstance(inner, dict):
                return inner["choice"], inner.get("settings", {})
        return self.choice, self.settings


@dataclass(frozen=True, kw_only=True)
class TrapRule(Conditional):
    """``text`` warns about option ``key``, where ``expression`` is not 0 either."""

    key: str
    text: str
    expression: str = "1"


@dataclass(frozen=True, kw_only=True)
class Claim(Conditional):
    """A config of this kind goes by the catalog's ``name``."""

    name: str


@dataclass(frozen=True)
class Preset:
    """A named recipe with its options, in ``versions``."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    versions: str = ""


@dataclass(frozen=True)
class Variant:
    """The defaults that another trainer of the framework has."""

    trainer: str
    defaults: dict[str, Any]


@dataclass(frozen=True)
class Fork:
    """A commit or fork, read as ``version`` with rules, traps and options of its own before it.

    Args:
        name: ``repository@commit``.
        version: of the framework that it started from.
        note: what differs, in words.
        updates, group_size: as in ``Framework``; empty: the same.
        defaults: option name -> its default here.
        without: options whose traps do not hold here.
    """

    name: str
    version: str
    note: str
    updates: str = ""
    group_size: str = ""
    defaults: dict[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    option: dict[str, Option] = field(default_factory=dict)
    rule: tuple[Rule, ...] = ()
    trap: tuple[TrapRule, ...] = ()


@dataclass(frozen=True)
class Framework:
    """What one data file says.

    Args:
        name, evidence, source: what it is, and how its facts were obtained.
        version, oldest: the newest and the oldest that were read.
        first_with_grpo: the release in which GRPO begins, where older ones have none.
        updates: expression for the optimiser steps per rollout.
        group_size: expression for the completions per prompt; empty where no option here holds it.
        aliases_until: the last release that takes the ``alias`` spellings; empty: all take them.
        kl_ignores: the option that decides how the surrogate alone is averaged; the KL term is
            averaged by the first rule that does not ask for it.
        remaining: differences between the framework and the recipe that stay.
        quiet: prefixes or names of keys that do not touch the loss.
    """

    name: str
    evidence: str
    source: str
    version: str
    oldest: str
    updates: str
    option: dict[str, Option]
    rule: tuple[Rule, ...]
    trap: tuple[TrapRule, ...] = ()
    claim: tuple[Claim, ...] = ()
    preset: tuple[Preset, ...] = ()
    fork: tuple[Fork, ...] = ()
    variant: tuple[Variant, ...] = ()
    remaining: tuple[str, ...] = ()
    quiet: tuple[str, ...] = ()
    group_size: str = ""
    aliases_until: str = ""
    first_with_grpo: str = ""
    kl_ignores: str = ""

    def defaults(self, version: str) -> dict[str, Any]:
        """Every option that exists in a version, with its default there (None: it has none)."""
        return {
            name: option.default(version)
            for name, option in self.option.items()
            if option.exists(version)
        }

    def has(self, name: str, value: Any, version: str) -> bool:
        """Does a version have this option, and this value of it?"""
        option = self.option[name]
        begins = option.begins.get(str(value), "0")
        return option.exists(version) and in_range(version, f">={begins}")

    def axes_of(self, name: str) -> list[str]:
        """The axes whose choice an option decides, in the order of the rules."""
        return list(dict.fromkeys(rule.axis for rule in self.rule if name in rule.when))

    def deciding(self) -> set[str]:
        """The options that decide a choice or one of its settings."""
        texts = " ".join(str(rule.settings) for rule in self.rule)
        named = set(re.findall(r"\w+", " ".join(re.findall(r"'=([^']*)'", texts))))
        pairs = {half for option in self.option.values() for half in option.into}
        used = {name for rule in self.rule for name in rule.when} | (named & {*self.option})
        whole = {n for n, option in self.option.items() if pairs & used & {*option.into}}
        return used | whole

    def may_be_null(self, name: str) -> bool:
        """Does some rule take another option where this one is None (``name or other``)?"""
        settings = [value for rule in self.rule for value in rule.settings.values()]
        return any(f"{name} or " in str(value) for value in settings)

    def key(self, name: str) -> str:
        """What an option is called in a config."""
        return self.option[name].key or name

    def names(self) -> dict[str, str]:
        """Every spelling of a key -> the option's name in the rules."""
        return {
            spelling: name
            for name, option in self.option.items()
            for spelling in (self.key(name), name, *option.alias)
        }

    def changes(self) -> list[str]:
        """The versions at which a default or a rule changed, with the oldest and the newest."""
        marks = {x.since for option in self.option.values() for x in option.history}
        ranges = [entry.versions for entry in (*self.rule, *self.trap, *self.preset)]
        marks |= {part.strip(" <>=") for text in ranges for part in text.split(",") if part}
        read = [v for v in marks - {"0"} if in_range(v, f">{self.oldest},<={self.version}")]
        return sorted({self.oldest, self.version, *read}, key=version_of)

    def values_in_rules(self) -> dict[str, list[Any]]:
        """The texts and switches of each option that conditions name."""
        named: dict[str, list[Any]] = {}
        for entry in (*self.rule, *self.claim, *self.trap):
            for name, condition in entry.when.items():
                listed = condition.get("not", []) if isinstance(condition, dict) else condition
                for value in listed if isinstance(listed, list) else [listed]:
                    both = [value, not value] if isinstance(value, bool) else [value]
                    values = named.setdefault(name, [])
                    values += [v for v in both if isinstance(v, (str, bool)) and v not in values]
        return named


# --- reading --------------------------------------------------------------------------------------

Where = Callable[[str], str]
TABLES = {
    "rule": Rule,
    "trap": TrapRule,
    "claim": Claim,
    "preset": Preset,
    "variant": Variant,
    "option": Option,
}
HEADER = re.compile(r"\[+([\w.-]+)\]+\s*(?:#.*)?$")


@dataclass
class _Owner:
    """A framework or a fork while its tables are read."""

    kind: type
    raw: dict[str, Any]
    where: Where
    tables: dict[str, Any] = field(default_factory=dict)

    def made(self, **more: Any) -> Any:
        return _made(self.kind, self.raw, self.where, {**self.tables, **more})


def parse(text: str, file: str) -> Framework:
    """The text of a data file as typed tables.

    Args:
        text: TOML.
        file: its name, for messages.

    Raises:
        ValueError: an unknown table or key, a wrong type, a missing key; with file and line.
    """
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file}: {error}") from None
    (_, top, where), *sections = _sections(text, file)
    owners = [_Owner(Framework, top, where)]
    for header, raw, where in sections:
        if header == "fork":
            owners.append(_Owner(Fork, raw, where))
            continue
        in_fork = header.startswith("fork.")
        kind, _, name = header.removeprefix("fork.").partition(".")
        if kind not in TABLES or bool(name) != (kind == "option") or (in_fork and len(owners) < 2):
            raise ValueError(
                f"{where('')}: unknown table '{header}': expected "
                f"{', '.join(TABLES)} or fork, an option with its name."
            )
        entry = _made(TABLES[kind], raw, where)
        tables = owners[-1 if in_fork else 0].tables
        if name:
            tables.setdefault("option", {})[name] = entry
        else:
            tables[kind] = (*tables.get(kind, ()), entry)
    first, *forks = owners
    return first.made(fork=tuple(fork.made() for fork in forks))


def _sections(text: str, file: str) -> list[tuple[str, dict[str, Any], Where]]:
    """Each table of a TOML file by itself: header, keys, and where a key stands."""
    parts: list[tuple[str, int, list[str]]] = [("", 1, [])]
    for number, line in enumerate(text.splitlines(), 1):
        header = HEADER.match(line)
        if header:
            parts.append((header[1], number, [""]))
        else:
            parts[-1][2].append(line)

    def where_in(start: int, lines: list[str]) -> Where:
        def where(key: str) -> str:
            rows = (n for n, row in enumerate(lines) if re.match(rf"{re.escape(key)}\s*=", row))
            return f"{file}, line {start + next(rows, 0)}"

        return where

    return [
        (header, tomllib.loads("\n".join(lines)), where_in(start, lines))
        for header, start, lines in parts
    ]


def _made(
    kind: type, raw: dict[str, Any], where: Where, tables: Mapping[str, Any] | None = None
) -> Any:
    """One typed table from the keys of a TOML table."""
    hints = get_type_hints(kind)
    for key in raw:
        if key not in hints:
            near = difflib.get_close_matches(key, hints, n=1)
            meant = f"did you mean {near[0]}? " if near else ""
            raise ValueError(
                f"{where(key)}: unknown key '{key}' in {kind.__name__}: {meant}"
                f"Expected {', '.join(hints)}."
            )
    values = {key: _typed(value, hints[key], key, where) for key, value in raw.items()}
    values |= tables or {}
    required = (f.name for f in fields(kind) if f.default is f.default_factory is MISSING)
    missing = [name for name in required if name not in values]
    if missing:
        raise ValueError(f"{where('')}: {kind.__name__} needs {', '.join(missing)}.")
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{where('')}: {error}") from None


def _typed(value: Any, hint: Any, key: str, where: Where) -> Any:
    """A value of the type that a field asks for: lists as tuples, tables as dataclasses."""
    if hint is Any:
        return value
    container, parts = get_origin(hint), get_args(hint)
    if container is tuple and isinstance(value, list):
        return tuple(_typed(item, parts[0], key, where) for item in value)
    if container is dict and isinstance(value, dict):
        return {name: _typed(item, parts[1], key, where) for name, item in value.items()}
    if is_dataclass(hint) and isinstance(value, dict):
        return _made(hint, value, lambda _: where(key))  # type: ignore[arg-type]
    if type(value) is not hint:
        expected = getattr(hint, "__name__", str(hint))
        raise ValueError(f"{where(key)}: {key} is {value!r}: expected {expected}.")
    if key == "versions":
        try:
            SpecifierSet(value)
        except InvalidSpecifier:
            raise ValueError(
                f"{where(key)}: versions is '{value}': expected a range such as >=0.17,<0.22."
            ) from None
    return value
