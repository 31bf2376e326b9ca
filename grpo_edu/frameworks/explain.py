"""Which loss does this config really run? A config file in, a ``Verdict`` out."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..checks import instance
from ..objective import axes
from ..objective.recipe import Recipe
from . import labels, verdict
from .data_files import MANY, Framework, Option
from .expressions import evaluate, holds, in_range, version_of
from .programs import CannotTell, foreign, framework_of_keys, own_program
from .readers import CONFIG_FILES, Entry, Reading, read
from .tables import (
    FRAMEWORKS,
    LeftOut,
    at_version,
    fill_in,
    fork_names,
    fork_of,
    framework,
    is_later_patch,
    matching,
    read_recipe,
    split_version,
)
from .verdict import LOSS_AXES, Trap, Verdict

NAMED_RUNS = (
    "run_name",
    "experiment_name",
    "trainer.experiment_name",
    "hub_model_id",
    "wandb_run_name",
    "logger.wandb.run_name",
)
# how a comment begins that says what the loss is, and what shows that a name means something else
CLAIM = (
    r"^\W*((this|is|run|runs|train|training|use|using|with|a|an|the|our|recipe|algorithm|loss)\W+)*"
)
NO_CLAIM = (
    r"math|data|dapo|17k|style|paper|repo|vs|default|param|hyper|config|setting|related|reward"
    r"|adv|estimator|without|wo[-_ ]|no[-_ ]|/|:"
)
GROUPED = ("group_mean", "leave_one_out", "live_group_mean", "length_weighted_mean", "when_alone")
Entries = dict[str, Entry]
SWITCHES = {
    **dict.fromkeys(("true", "yes", "on", "t", "y", "1"), True),
    **dict.fromkeys(("false", "no", "off", "f", "n", "0"), False),
}


def explain(
    source: str | Path, framework: str | None = None, version: str | None = None
) -> Verdict:
    """Read a config and say which loss it really runs. Nothing in it is executed.

    Args:
        source: a file (Python or a notebook with a ``GRPOConfig(...)`` call, a launch script, YAML
            or TOML), its text, or the folder of a run.
        framework: ``trl``, ``verl``, ``openrlhf`` …; None: guessed from the file.
        version: ``1.16``, ``trl==1.16``, a known commit or fork (``tinyzero@de61e6aa``), or a date,
            which makes the verdict conditional; None: the newest that was read, which the verdict
            then says.

    Raises:
        TypeError: an argument that is no text.
        CannotTell: the program is not known, or no table describes it.
        ValueError: the release has no GRPO yet, a value is no number
            where one belongs, or nothing in the file is a setting.
        KeyError: no such framework.
        OSError: no such file.
    """
    reading = read(source)
    table, number, assumed, conditional = _read_as(
        _named(framework, version, reading), version, reading
    )
    entries, traps = _known_settings(table, reading, number)
    unknown = _unknown(table, reading, traps)
    _refuse_strangers(table, entries, [*unknown, *(t.key for t in traps if t.kind == "misspelt")])
    left_out = _unknown_values(table, entries, number)
    given = {name: entry.value for name, entry in entries.items()}
    values = fill_in(table, given, number)
    recipe, uncovered = read_recipe(table, given, number)
    left_out += [_with_line(part, entries) for part in uncovered]
    lost = {part.axis for part in left_out}
    core = verdict.core_of(recipe, name=f"this config, {table.name} {number}")
    pushes = verdict.push(core)
    updates = _number(table.updates, values)
    claim = next((c.name for c in table.claim if c.applies(number, values, entries)), None)
    covered = not lost & LOSS_AXES
    of_table = _traps_of_settings(table, values, entries, number, reading.dump)
    return Verdict(
        framework=table.name,
        version=number,
        assumed=assumed,
        recipe=recipe,
        core=core,
        push=pushes,
        advantage=verdict.advantage_line(recipe, lost),
        aggregation=verdict.aggregation_line(recipe, pushes, lost),
        clip=verdict.clip_line(recipe, updates, lost),
        kl=verdict.kl_line(recipe, lost),
        label=labels.label(recipe, claim) if covered else labels.NO_LABEL,
        biases=verdict.biases(core, _number(table.group_size, values)) if covered else [],
        traps=[
            *traps,
            *(_of_built_on(trap, table, reading) for trap in of_table),
            *_traps_of_recipe(table, recipe, entries, number, lost, of_table),
            *_trap_of_sampler(recipe, reading),
            *_false_names(recipe, reading, lost),
        ],
        left_out=left_out,
        conditional=[
            *reading.outside,
            *conditional,
            *(_elsewhere(table, given, number, recipe) if assumed else []),
        ],
        unread=_unread(table, reading, number),
        remaining=table.remaining,
        unknown=unknown,
        doubts=_doubts(framework, table, reading, entries),
        updates=updates,
        claim=claim,
    )


# --- framework and version ------------------------------------------------------------------------


def _named(name: str | None, version: str | None, reading: Reading) -> Framework:
    """The framework by name, or the one that the file has marks of.

    Raises:
        CannotTell: the file has marks of none, or of a program that no table describes.
    """
    keys = [entry.key for entry in reading.entries]
    told = None
    if name is not None:
        instance("framework", name, str)
    else:
        told = foreign([*reading.marks, *keys]) or reading.framework or framework_of_keys(keys)
    if name is None and told is None and isinstance(version, str) and "==" in version:
        told = split_version(version)[0]
    if name is None and told is None:
        raise CannotTell(
            "the framework cannot be told from the file: it has no key or program that only one "
            f"framework has. Give --framework (framework=) {', '.join(FRAMEWORKS)}."
        )
    return framework(name or told or "")


class ReadAs(NamedTuple):
    """The tables at a version; how the version was assumed; what that makes conditional."""

    table: Framework
    version: str
    assumed: str = ""
    conditional: list[str] = []  # noqa: RUF012


def _read_as(table: Framework, version: str | None, reading: Reading) -> ReadAs:
    """As which version a file is read."""
    newest = table.version
    if version is None:
        flat = {a for option in table.option.values() for a in option.alias if "." not in a}
        if table.aliases_until and any(entry.key in flat for entry in reading.entries):
            last = table.aliases_until
            return ReadAs(table, last, f"assumed: flat flags end at {last}")
        pins = reading.pins.get(table.name, [])
        if len(pins) > 1:
            why = f"assumed: the newest read; the file names {' and '.join(pins)}"
            return ReadAs(table, newest, f"{why}: --version settles it")
        if not pins:
            return ReadAs(table, newest, "assumed: the newest read; --version settles it")
        version = pins[0]
    who, asked = split_version(version)
    if asked and asked != version and who != table.name:
        raise ValueError(f"version is '{version}', but the config is read as {table.name}.")
    asked = re.sub(r"^v(?=\d)", "", asked or version)
    fork = fork_of(table, asked) or (fork_of(table, asked.split("@")[0]) if "@" in asked else None)
    if fork:
        note = f"{fork.name} is the commit that was read; another may differ"
        exact = "@" in asked and fork_of(table, asked)
        forked, number = at_version(table, fork.name)
        return ReadAs(forked, number, f"{fork.name}: {fork.note}", [] if exact else [note])
    if "@" in asked:
        why = f"{asked} is not a commit or fork that {table.name} knows ({fork_names(table)})"
        note = f"{asked} may differ in any line: read as {newest}"
        return ReadAs(table, newest, f"assumed: {why}", [note])
    if re.fullmatch(r"\d{4}-\d{2}(-\d{2})?", asked):
        why = f"which release {asked} had is not known here"
        return ReadAs(table, newest, f"assumed: {why}", [f"the date {asked}: read as {newest}"])
    if table.first_with_grpo and in_range(asked, f"<{table.first_with_grpo}"):
        raise ValueError(
            f"version is '{asked}': {table.name} {asked} has no GRPO, which begins with "
            f"{table.first_with_grpo}. Give the version that you run, or none for {newest}."
        )
    if version_of(asked).is_devrelease:
        released = version_of(asked).base_version
        forked = _read_as(table, released, reading)
        note = f"{asked} is on the way to {released} and may lack its last changes"
        return forked._replace(assumed=f"assumed: {note}", conditional=[*forked.conditional, note])
    if is_later_patch(table, asked):
        return ReadAs(table, newest, f"{asked} is a patch release of it")
    for outside, nearest, age in (("<", table.oldest, "older"), (">", newest, "newer")):
        if in_range(asked, f"{outside}{nearest}"):
            why = f"{asked} is {age} than all that were read"
            return ReadAs(table, nearest, f"assumed: {why}", [f"{asked}: read as {nearest}"])
    return ReadAs(table, asked)


def _doubts(asked: str | None, table: Framework, reading: Reading, entries: Entries) -> list[str]:
    """Why the file may run another loss than the verdict's, and what would settle it."""
    doubts = []
    if asked is None and not reading.framework and not foreign(reading.marks):
        doubts.append("the program is not named: told by its keys; --framework settles it")
    for mark in reading.marks:
        if reading.program and not own_program(table.name, mark):
            doubts.append(f"the program is {mark}, which may change {table.name}'s own loss")
        elif "open_r1" in mark:
            doubts.append("open-r1 asks for trl 0.18.0: --version 0.18.0 reads it so")
    if reading.framework == "trl" != table.name and "trl" in reading.pins:
        pins = " and ".join(reading.pins["trl"])
        doubts.append(f"the file names trl {pins}, whose defaults {table.name} may start from")
    doubts += [f"line {line}: the settings in {file} are not read" for file, line in reading.named]
    doubts += reading.doubts
    if not set(entries) & (table.deciding() - {"trainer"}):
        doubts.append("no setting of the loss in it: every line is a default")
    return list(dict.fromkeys(doubts))


# --- settings -------------------------------------------------------------------------------------


def _known_settings(table: Framework, reading: Reading, version: str) -> tuple[Entries, list[Trap]]:
    """The settings that a version knows, by option name.

    Traps tell of keys that are unknown, misspelt, of another version, or given twice.
    """
    names = table.names()
    entries: Entries = {}
    traps: list[Trap] = []
    for entry in reading.entries:
        name = names.get(entry.key) or names.get(entry.key.replace("-", "_"))
        if name is None:
            if not reading.dump and entry.key not in reading.own:
                traps += _trap_of_unknown(table, entry)
            continue
        option = table.option[name]
        if not option.exists(version):
            if not reading.dump:
                traps.append(_trap_of_version(table, entry, option, version))
            continue
        earlier = entries.get(name)
        if earlier and earlier.value != entry.value:
            what = f"given twice; line {earlier.line} is overridden."
            traps.append(Trap(entry.key, entry.line, what, "repeated"))
        entries.update(_normalised(option, name, entry))
    return entries, traps


def _trap_of_version(table: Framework, entry: Entry, option: Option, version: str) -> Trap:
    gone = option.removed and in_range(version, f">={option.removed}")
    why = f"removed in {option.removed}" if gone else f"begins with {option.history[0].since}"
    what = f"{table.name} {version} does not know this key ({why})."
    return Trap(entry.key, entry.line, what, "version")


def _trap_of_unknown(table: Framework, entry: Entry) -> list[Trap]:
    """A trap for a key that is nearly an option, or that stands where only options of the loss are.

    Other unknown keys are ``Verdict.unknown``: whether they touch the loss is not known here.
    """
    if entry.key in CONFIG_FILES or entry.key.startswith(_quiet(table, "key")):
        return []
    section, last = _split(entry.key)
    sections = {_split(table.key(name))[0] for name in table.option}
    is_quiet = entry.key.startswith(_quiet(table, "section"))
    for name in table.option:
        place, own = _split(table.key(name))
        alike = difflib.SequenceMatcher(None, own, last).ratio() if len(last) > 4 else 0.0
        if (place == section and alike >= 0.9) or (
            own == last and len(last) > 7 and section in sections and not is_quiet
        ):
            what = f"unknown key; did you mean {table.key(name)}?"
            return [Trap(entry.key, entry.line, what, "misspelt")]
    if section in _loss_sections(table) and not is_quiet:
        return [Trap(entry.key, entry.line, "unknown key among those of the loss.", "unknown")]
    return []


def _split(key: str) -> tuple[str, str]:
    """The section of a key, and its last part."""
    section, _, last = key.replace("-", "_").rpartition(".")
    return section, last


def _quiet(table: Framework, kind: str) -> tuple[str, ...]:
    """The sections, or the keys, that do not touch the loss."""
    return tuple(row for row in table.quiet if row.endswith(".") == (kind == "section"))


def _loss_sections(table: Framework) -> set[str]:
    """Sections whose known options all decide a choice or its settings."""
    deciding = table.deciding()
    sections: dict[str, bool] = {}
    for name in table.option:
        section = _split(table.key(name))[0]
        sections[section] = sections.get(section, True) and name in deciding
    return {section for section, all_decide in sections.items() if section and all_decide}


def _unknown(table: Framework, reading: Reading, traps: list[Trap]) -> list[str]:
    """Keys that are no option, no trap, and not known to be without effect."""
    names = table.names()
    quiet = ("trainer", *CONFIG_FILES, *table.quiet)
    trapped = {trap.key for trap in traps}
    return [
        entry.key
        for entry in reading.entries
        if not {entry.key, entry.key.replace("-", "_")} & set(names)
        and entry.key not in trapped | reading.own
        and not entry.key.startswith(quiet)
    ]


def _normalised(option: Option, name: str, entry: Entry) -> Entries:
    """A value as the rules spell it; a pair such as ``0.2 0.28`` as two options."""
    value = option.spelling.get(str(entry.value).lower(), entry.value)
    if isinstance(option.history[-1].default, bool):
        value = SWITCHES.get(str(value).lower(), value)
    pair = value.split("_") if isinstance(value, str) else value
    if not option.into or not isinstance(pair, list) or len(pair) != 2:
        return {name: entry._replace(value=value)}
    try:
        numbers = [float(item) for item in pair]
    except (TypeError, ValueError):
        raise _not_a_number(entry, "two numbers") from None
    parts = zip(option.into, numbers, strict=True)
    return {part: entry._replace(value=number) for part, number in parts}


def _refuse_strangers(table: Framework, entries: Entries, unknown: list[str]) -> None:
    """No verdict on the defaults alone where not one setting belongs to the framework."""
    if not entries and unknown:
        shown = ", ".join(unknown[:4]) + (" …" if len(unknown) > 4 else "")
        raise ValueError(
            f"no setting of {table.name} in it: found {shown}. Expected {table.name}'s own keys; "
            "nested ones are another program's. For another framework give framework= "
            "(--framework)."
        )


def _unknown_values(table: Framework, entries: Entries, version: str) -> list[LeftOut]:
    """Values that the tables do not know, once for each axis that their option decides.

    The rules would take such a value for the default. One that no line looks at is left away.

    Raises:
        ValueError: a value that is no number where a number belongs.
    """
    left_out = []
    named = table.values_in_rules()
    defaults = table.defaults(version)
    for name, entry in list(entries.items()):
        key, value, line = entry
        default = defaults.get(name)
        if type(default) in (int, float) and not _is_number(value, table.may_be_null(name)):
            del entries[name]
            if _counts(table, entries, name, version):
                raise _not_a_number(entry, "a number")
            continue
        texts = [text for text in named.get(name, []) if isinstance(text, str)]
        begins = table.option[name].begins.get(str(value))
        if isinstance(value, str) and texts and value not in (*texts, default):
            why = f"is not known to the {table.name} tables"
        elif begins and not table.has(name, value, version):
            why = f"begins with {table.name} {begins}, after {version}"
        else:
            continue
        reason = f"{key} = {value} {why}"
        left_out += [
            LeftOut(axis, key, line, reason)
            for axis in table.axes_of(name)
            if _is_asked(table, axis, name, entries, version)
        ]
    return left_out


def _is_asked(table: Framework, axis: str, name: str, entries: Entries, version: str) -> bool:
    """Does the choice on an axis come to a rule that looks at this option?"""
    given = {other: entry.value for other, entry in entries.items()}
    values = fill_in(table, given, version)
    for rule in table.rule:
        if rule.axis != axis or not in_range(version, rule.versions):
            continue
        others = {option: when for option, when in rule.when.items() if option != name}
        if name in rule.when and holds(others, values, given):
            return True
        if rule.choice and axis not in MANY and holds(rule.when, values, given):
            return False
    return False


def _counts(table: Framework, entries: Entries, name: str, version: str) -> bool:
    """Does a line of the verdict depend on the number that an option holds?"""
    given = {other: entry.value for other, entry in entries.items()}
    ways = []
    for number in (0.25, 0.5):
        recipe = read_recipe(table, {**given, name: number}, version)[0]
        values = fill_in(table, {**given, name: number}, version)
        ways.append((recipe, _number(table.updates, values), _number(table.group_size, values)))
    return ways[0] != ways[1]


def _is_number(value: Any, or_null: bool) -> bool:
    return (value is None and or_null) or (isinstance(value, (int, float)) and math.isfinite(value))


def _not_a_number(entry: Entry, expected: str) -> ValueError:
    value = "null" if entry.value is None else f"'{entry.value}'"
    return ValueError(f"line {entry.line}: {entry.key} is {value}: expected {expected}.")


def _with_line(part: LeftOut, entries: Entries) -> LeftOut:
    """The same with the config's key and line in place of the option's name."""
    entry = entries.get(part.key)
    return part._replace(key=entry.key, line=entry.line) if entry else part


def _unread(table: Framework, reading: Reading, version: str) -> list[str]:
    """What was not read and may touch the loss, with the default that stands in."""
    names = table.names()
    defaults = table.defaults(version)
    quiet = tuple(table.quiet)
    rows = []
    for message, line, key in reading.unread:
        name = names.get(key, names.get(key.replace("-", "_")))
        if key and name is None and key.startswith(quiet):
            continue
        default = defaults.get(name or "")
        stands_in = "" if default is None else f"; the default {default} stands in"
        rows.append(f"line {line}: {message}{stands_in}")
    return rows


# --- traps ----------------------------------------------------------------------------------------


def _traps_of_settings(
    table: Framework, values: dict[str, Any], entries: Entries, version: str, dump: bool
) -> list[Trap]:
    """The traps of the data file whose conditions hold; what a dump holds is no wish."""
    traps = []
    if dump:
        defaults = table.defaults(version)
        entries = {n: e for n, e in entries.items() if e.value != defaults.get(n)}
    for rule in table.trap:
        if rule.applies(version, values, entries) and evaluate(rule.expression, values):
            entry = entries.get(rule.key)
            key = entry.key if entry else table.key(rule.key)
            line = entry.line if entry else 0
            traps.append(Trap(key, line, rule.text.format_map(values), "setting"))
    return traps


def _of_built_on(trap: Trap, table: Framework, reading: Reading) -> Trap:
    """A trap that another program, built on the framework, need not have says so."""
    other = [m for m in reading.marks if reading.program and not own_program(table.name, m)]
    text = f"{trap.text} (so in {table.name} itself; {other[0]} may differ)" if other else trap.text
    return trap._replace(text=text)


def _traps_of_recipe(
    table: Framework,
    recipe: Recipe,
    entries: Entries,
    version: str,
    lost: set[str],
    told: list[Trap],
) -> list[Trap]:
    """Numbers on a wrong scale, which the recipe shows in every framework alike.

    ``told``: traps of the framework's own table, which say the same more closely.
    """
    given = {name: entry.value for name, entry in entries.items()}
    values = fill_in(table, given, version)
    rules = {rule.axis: rule for rule in matching(table, values, given, version) if rule.choice}
    rows: list[tuple[str, str]] = []
    if "surrogate" in rules and "surrogate" not in lost:
        rows += _numbers_of_surrogate(recipe, rules["surrogate"].settings, given)
    alone = _number(table.group_size, values) == 1
    if alone and labels.unwrapped(recipe.baseline) in GROUPED and "baseline" not in lost:
        what = "one completion per prompt: a group of one has no others to compare with."
        rows.append((_option_of(table.group_size, given), what))
    taken = {trap.key for trap in told}
    traps = []
    for option, text in rows:
        entry = entries.get(option)
        key = entry.key if entry else table.key(option)
        if key not in taken:
            traps.append(Trap(key, entry.line if entry else 0, text, "setting"))
    return traps


def _numbers_of_surrogate(
    recipe: Recipe, rule: dict[str, Any], given: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """Option and text: bounds of the ratio that are on another scale than they seem."""
    numbers = axes.settings(recipe.surrogate)
    formula = labels.unwrapped(recipe.surrogate)
    low = numbers.get("eps_low")
    high = numbers.get("eps_high")
    if formula == "cispo" and (numbers.get("low") or 0) >= 1:
        what = f"the lower bound {numbers['low']:g} lifts every ratio below it, on-policy ones too."
        yield _option_of(rule.get("low"), given), what
    if low is None or high is None or formula == "gmpo":  # whose bounds are in log space
        return
    per_sequence = getattr(axes.function_of(recipe.surrogate), "per_sequence", False)
    if high >= 1:
        what = f"{high:g} is an offset from 1, so the upper bound is {1 + high:g}."
        yield _option_of(rule.get("eps_high"), given), what
    if low >= 1:
        what = f"{low:g} is an offset from 1: the lower bound is not above 0, so it never clips."
        yield _option_of(rule.get("eps_low"), given), what
    elif per_sequence and low > 0.05:
        what = f"a sequence ratio stays very near 1: {low:g} practically never clips."
        yield _option_of(rule.get("eps_low"), given), f"{what} GSPO uses 3e-4 and 4e-4."


def _option_of(expression: Any, given: dict[str, Any]) -> str:
    """The option that decides ``=a or b``: the first that is given, else the first."""
    names = re.findall(r"[A-Za-z_]\w*", str(expression).replace(" or ", " "))
    return next((name for name in names if name in given), names[0])


def _trap_of_sampler(recipe: Recipe, reading: Reading) -> list[Trap]:
    """top-p and top-k cut the distribution that completions come from."""
    if recipe.correction is None:
        return []
    for entry in reading.entries:
        last = _split(entry.key)[1].removeprefix("rollout_")
        number = entry.value if isinstance(entry.value, (int, float)) else 0
        cuts = (last == "top_p" and 0 < number < 1) or (last == "top_k" and number > 0)
        if cuts and "val" not in entry.key and "eval" not in entry.key:
            what = (
                f"{last} = {number:g} cuts the distribution that completions come from, while the "
                "trainer's log-probs are of the whole one: the correction does not undo that."
            )
            return [Trap(entry.key, entry.line, what, "setting")]
    return []


def _false_names(recipe: Recipe, reading: Reading, lost: set[str]) -> list[Trap]:
    """Comments, file names and run names that call the loss what it is not."""
    runs = [(str(e.value), e.line) for e in reading.entries if e.key in NAMED_RUNS]
    traps = []
    for pattern, name in labels.NAMES.items():
        in_comment = rf"{CLAIM}{pattern}\b(?![-_ ]*({NO_CLAIM}))"
        in_name = rf"(?<![a-z]){pattern}(?![a-z])(?![-_ ]*({NO_CLAIM}))"
        mentions = (
            (text, line)
            for text, line in reading.comments + runs
            if re.search(in_comment if line and (text, line) not in runs else in_name, text, re.I)
        )
        text, line = next(mentions, ("", 0))
        differences = labels.differences(recipe, name, lost) if text else []
        if differences:
            what = f"'{text.strip()[:50]}' says {name}, but {'; '.join(differences)}."
            traps.append(Trap("a name or comment" if line else "file name", line, what, "name"))
    return traps


# --- numbers and other versions -------------------------------------------------------------------


def _number(expression: str, values: dict[str, Any]) -> float | None:
    """An expression on option values; None where there is none, or a value is missing."""
    try:
        return float(evaluate(expression, values)) if expression else None
    except (TypeError, ValueError):
        return None


def _elsewhere(table: Framework, given: dict[str, Any], version: str, recipe: Recipe) -> list[str]:
    """The same settings at earlier versions, where a line would change."""
    rows = []
    later = recipe.describe()
    upper = version
    for earlier in reversed([v for v in table.changes() if in_range(v, f"<{version}")]):
        there = table.defaults(earlier)
        new = [
            f"{name} = {value}"
            for name, value in given.items()
            if name in there and not table.has(name, value, earlier)
        ]
        if new:
            rows.append(f"before {upper}: {', '.join(new)} is not known")
            break
        kept = {name: value for name, value in given.items() if name in there}
        parts = read_recipe(table, kept, earlier)[0].describe()
        changed = [f"{axis} {part}" for axis, part in parts.items() if part != later[axis]]
        if changed:
            rows.append(f"before {upper}: {', '.join(changed)}")
        later = parts
        upper = earlier
    return rows
