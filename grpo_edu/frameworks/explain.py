"""Which loss does this config really run? Four lines, a label, the biases with their direction, the traps with key and line."""

from __future__ import annotations

import difflib
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..biases import difficulty_bias, length_bias
from ..checks import checked
from ..objective import axes
from ..objective.advantages import given as given_advantage
from ..objective.advantages import unscaled
from ..objective.recipe import Recipe, RecipeWarning
from ..rollouts import Rollouts
from ..theory.difficulty import neutral_rollouts
from ..weights import token_weights
from . import labels
from .expressions import evaluate, holds, in_range
from .readers import Entry, Reading, guess_framework, read
from .tables import Framework, at_version, fill_in, fork_of, framework, recipe_of, split_version

NAMED_RUNS = (
    "run_name",
    "experiment_name",
    "trainer.experiment_name",
    "hub_model_id",
    "wandb_run_name",
    "logger.wandb.run_name",
)


class Trap(NamedTuple):
    """``text`` about ``key`` at ``line`` (0: the key is not in the file, its default counts)."""

    key: str
    line: int
    text: str

    def __str__(self) -> str:
        place = (
            f" (line {self.line})" if self.line else "" if self.key == "file name" else " (default)"
        )
        return f"{self.key}{place}: {self.text}"


@dataclass(frozen=True)
class Verdict:
    """What a config really runs. Prints as text; ``to_dict`` for ``--json``.

    Args:
        framework, version: as which it was read.
        assumed: how the version was told, where nobody told it; else "".
        recipe: the loss on this package's axes.
        advantage, aggregation, clip, kl: the four lines.
        label: "this is …, not …, because …".
        biases: with their direction.
        traps: settings that do not do what they seem to.
        left_out: what no axis expresses, with the reason; it is missing from ``recipe``.
        conditional: where another version or fork would change the verdict.
        unread: (message, line) of syntax that was not read.
        remaining: differences between the framework and ``recipe`` that are known.
        updates: optimiser steps per rollout; None where the config does not say.
        claim: the recipe that the config goes by; None where it claims none.
    """

    framework: str
    version: str
    assumed: str
    recipe: Recipe
    advantage: str
    aggregation: str
    clip: str
    kl: str
    label: str
    biases: list[str] = field(default_factory=list)
    traps: list[Trap] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    conditional: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    remaining: list[str] = field(default_factory=list)
    updates: float | None = None
    claim: str | None = None

    def lines(self) -> list[str]:
        """The first four lines."""
        return [
            f"advantage    {self.advantage}",
            f"aggregation  {self.aggregation}",
            f"clip         {self.clip}",
            f"KL           {self.kl}",
        ]

    def __str__(self) -> str:
        version = f"{self.framework} {self.version}" + (
            f" ({self.assumed})" if self.assumed else ""
        )
        blocks = {
            "Not read, so that defaults stand in": self.unread,
            "Left out, since no axis expresses it": self.left_out,
            "Push per token": self.bars() if self.biases else [],
            "Biases (exact, read off the weights)": self.biases,
            "Traps": [str(trap) for trap in self.traps],
            "Would change the verdict": self.conditional,
        }
        shown = [
            f"{title}:\n" + "\n".join(f"  {row}" for row in rows)
            for title, rows in blocks.items()
            if rows
        ]
        return "\n".join([*self.lines(), "", self.label, f"read as {version}", "", *shown])

    def bars(self) -> list[str]:
        """Push per token on lengths 10 and 100, A = +1 and -1, as bars on one scale."""
        weights = push(self.recipe)
        largest = max(abs(w) for w in weights) or 1.0
        return [
            f"{length:>3} tokens, A = {sign:+d}  {'█' * round(30 * abs(w) / largest) or '▏':<30} {w:+.6f}"
            for (length, sign), w in zip(((10, 1), (100, -1)), weights, strict=True)
        ]

    def example(self) -> tuple[list[Recipe], Rollouts]:
        """What a picture shows: the paper's recipe of the name that the config goes by, then the config; R = 1 0 0 0, lengths 10 100 10 100.

        Raises:
            ValueError: a part of the loss is on no axis, so there are no weights to show.
        """
        if not self.biases:
            raise ValueError(
                f"no weights to draw, since a part of this loss is on no axis: {'; '.join(self.left_out)}."
            )
        mine = stripped(self.recipe, name=f"this config, {self.framework} {self.version}")
        named = (
            [stripped(labels.TARGETS[self.claim], name=f"{self.claim}, as published")]
            if self.claim
            else []
        )
        return [*named, mine], neutral_rollouts(
            [10, 100, 10, 100], [1.0, 0.0, 0.0, 0.0], [0, 0, 0, 0], self.recipe
        )

    def headline(self) -> str:
        """The sentence over that picture."""
        short, long = (abs(w) for w in push(self.recipe))
        times = (
            "as hard" if abs(short - long) < 1e-9 * short else f"{short / long:.3g} times as hard"
        )
        return f"{self.framework} {self.version}: at equal advantage a token of a 10-token completion is pushed {times} as one of 100"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        plain = {
            name: getattr(self, name)
            for name in self.__dataclass_fields__
            if name not in ("recipe", "traps")
        }
        return {
            **plain,
            "recipe": self.recipe.describe(),
            "traps": [trap._asdict() for trap in self.traps],
        }


@checked
def explain(
    source: str | Path, framework: str | None = None, version: str | None = None
) -> Verdict:
    """Read a config and say which loss it really runs. Nothing in it is executed.

    Args:
        source: a file (TRL YAML, Python with a ``GRPOConfig(...)`` call, shell script with hydra overrides or flags), or its text.
        framework: ``trl``, ``verl``, ``openrlhf`` …; None: told from the file.
        version: ``1.16``, ``trl==1.16``, a known commit or fork (``tinyzero@de61e6aa``), or a date, which makes the verdict
            conditional; None: the newest that was read, and the verdict says so.

    Raises:
        ValueError: the framework cannot be told, or nothing in the file is a setting.
        KeyError: no such framework.
        OSError: no such file.
    """
    text, reading = read(source)
    name = framework or guess_framework(text)
    if name is None:
        raise ValueError(
            "the framework cannot be told from the file: expected framework= (--framework) trl, verl or openrlhf."
        )
    table, number, assumed, conditional = _version(name, version, reading)
    known, traps = settle(table, reading, number)
    _refuse_strangers(table, reading, known, traps)
    left_out = _unknown_values(table, known, number)
    values = {key: entry.value for key, entry in known.items()}
    recipe = recipe_of(table, values, number, f"{table.name}=={number}", left_out)
    effective = fill_in(table, values, number)
    traps += _traps(table, effective, known, number) + _false_names(recipe, reading, name)
    updates, size = _number(table.updates, effective), _number(table.group_size, effective)
    if assumed:
        conditional += _elsewhere(table, values, number, recipe)
    lost = {reason.split(":")[0] for reason in left_out}
    claim = next(
        (c["name"] for c in table.claim if holds(c.get("when", {}), effective, known)), None
    )
    return Verdict(
        framework=table.name, version=number, assumed=assumed, recipe=recipe, updates=updates, left_out=left_out, traps=traps,
        conditional=conditional, remaining=table.remaining, unread=_unread(table, reading, number), claim=claim,
        advantage=_advantage(recipe) if "baseline" not in lost else "not covered, see below",
        aggregation=_aggregation(recipe) if not lost & {"aggregation", "surrogate"} else "not covered, see below",
        clip=_clip(recipe, updates, "surrogate" in lost), kl=penalty(recipe, lost),
        label=_label(recipe, claim, lost), biases=[] if lost & {"surrogate", "aggregation", "baseline"} else biases(recipe, size),
    )  # fmt: skip


# --- version and settings -------------------------------------------------------------------------------------------------


def _version(
    name: str, version: str | None, reading: Reading
) -> tuple[Framework, str, str, list[str]]:
    """The tables at a version; how it was assumed; what that makes conditional."""
    table = framework(name)
    if version is None:
        old = [a for t in table.option.values() for a in t.get("alias", [])]
        flat = name == "openrlhf" and any(e.key in old for e in reading.entries)
        return (
            table,
            "0.10.1" if flat else table.version,
            "assumed: " + ("flat flags end at 0.10.1" if flat else "the newest read"),
            [],
        )
    asked = (split_version(version)[1] or version).lstrip("v")
    newest, fork = table.version, fork_of(table, asked)
    same_fork = fork or (fork_of(table, asked.split("@")[0]) if "@" in asked else None)
    if same_fork:
        exact = fork and "@" in asked
        other = (
            []
            if exact
            else [f"{same_fork['name']} is the commit that was read; another may differ"]
        )
        return (
            *at_version(table, same_fork["name"]),
            f"{same_fork['name']}: {same_fork['note']}",
            other,
        )
    if "@" in asked:
        known = ", ".join(one["name"] for one in table.fork) or "none"
        note = [f"{asked} may differ in any line: read as {newest}"]
        return (
            table,
            newest,
            f"assumed: {asked} is not a commit or fork that {name} knows ({known})",
            note,
        )
    if re.fullmatch(r"\d{4}-\d{2}(-\d{2})?", asked):
        return (
            table,
            newest,
            f"assumed: which release {asked} had is not known here",
            [f"the date {asked}: read as {newest}"],
        )
    if not in_range(asked, f">={table.oldest}"):
        return (
            table,
            table.oldest,
            f"assumed: {asked} is older than all that were read",
            [f"{asked}: read as {table.oldest}"],
        )
    if in_range(asked, f">{newest}"):
        return (
            table,
            newest,
            f"assumed: {asked} is newer than all that were read",
            [f"{asked}: read as {newest}"],
        )
    return table, asked, "", []


def settle(table: Framework, reading: Reading, version: str) -> tuple[dict[str, Entry], list[Trap]]:
    """The settings that a version knows, by option name; traps for keys that are unknown, removed, misspelt or given twice."""
    names = {
        key: name
        for name, t in table.option.items()
        for key in (t.get("key", name), name, *t.get("alias", []))
    }
    there, known, traps = table.defaults(version), {}, []
    for entry in reading.entries:
        name = names.get(entry.key) or names.get(entry.key.replace("-", "_"))
        if name is None:
            traps += _unknown(table, entry, list(names))
        elif name not in there:
            begins = next((h["since"] for h in table.option[name].get("history", [])), "?")
            removed = table.option[name].get("removed")
            why = (
                f"removed in {removed}"
                if removed and in_range(version, f">={removed}")
                else f"begins with {begins}"
            )
            traps.append(
                Trap(
                    entry.key,
                    entry.line,
                    f"{table.name} {version} does not know this key ({why}): it has no effect.",
                )
            )
        else:
            if name in known and known[name].value != entry.value:
                traps.append(
                    Trap(
                        entry.key,
                        entry.line,
                        f"given twice; line {known[name].line} is overridden.",
                    )
                )
            known.update(_normalised(table, name, entry))
    return known, traps


def _normalised(table: Framework, name: str, entry: Entry) -> dict[str, Entry]:
    """A value in the form that the rules expect: spellings mapped, pairs such as ``0.2 0.28`` or ``0.5_5.0`` taken apart."""
    about, value = table.option[name], entry.value
    spelling = about.get("spelling", {})
    value = spelling.get(str(value).lower(), value)
    found = {name: entry._replace(value=value)}
    pair = (
        value
        if isinstance(value, list)
        else str(value).split("_")
        if isinstance(value, str) and "_" in value
        else []
    )
    if "into" in about and len(pair) == 2:
        found |= {
            part: entry._replace(value=float(one))
            for part, one in zip(about["into"], pair, strict=True)
        }
    return found


def _refuse_strangers(
    table: Framework, reading: Reading, known: dict[str, Entry], traps: list[Trap]
) -> None:
    """No verdict on the defaults alone where not one setting belongs to the framework."""
    strange = [trap.key for trap in traps if trap.text.startswith("unknown key")]
    if not known and len(strange) == len(reading.entries):
        shown = ", ".join(strange[:4]) + (" …" if len(strange) > 4 else "")
        raise ValueError(
            f"no setting of {table.name} in it: found {shown}. Expected {table.name}'s own keys; "
            "nested ones are another program's. For another framework give framework= (--framework)."
        )


def _unknown(table: Framework, entry: Entry, names: list[str]) -> list[Trap]:
    exact, rooms = ([q for q in table.quiet if q.endswith(".") is room] for room in (False, True))
    if entry.key == "trainer" or any(entry.key.startswith(quiet) for quiet in exact):
        return []
    tail = entry.key.rsplit(".", 1)[-1]
    near = (
        [tail] if tail in names else difflib.get_close_matches(entry.key, names, n=1, cutoff=0.88)
    )
    if near:
        return [
            Trap(
                entry.key,
                entry.line,
                f"unknown key; did you mean {near[0]}? It has no effect on the loss.",
            )
        ]
    if any(entry.key.startswith(quiet) for quiet in rooms):
        return []
    return [Trap(entry.key, entry.line, "unknown key: not read.")]


def _unknown_values(table: Framework, known: dict[str, Entry], version: str) -> list[str]:
    """Texts that the tables do not know, as what is left out: the rules would take them for the default.

    Raises:
        ValueError: a text where a number belongs.
    """
    found, words, defaults = [], table.words(), table.defaults(version)
    for name, entry in known.items():
        number = isinstance(defaults.get(name), (int, float)) and not isinstance(
            defaults.get(name), bool
        )
        if number and isinstance(entry.value, str):
            raise ValueError(
                f"line {entry.line}: {entry.key} is '{entry.value}': expected a number."
            )
        texts = [w for w in words.get(name, []) if isinstance(w, str)]
        if (
            isinstance(entry.value, str)
            and texts
            and entry.value not in (*texts, defaults.get(name))
        ):
            found.append(
                f"surrogate: {entry.key} = {entry.value} (line {entry.line}) is not known to the {table.name} tables"
            )
        elif not table.knows(name, entry.value, version):
            begins = table.option[name]["begins"][str(entry.value)]
            found.append(
                f"surrogate: {entry.key} = {entry.value} (line {entry.line}) begins with {table.name} {begins}, after {version}"
            )
    return found


def _unread(table: Framework, reading: Reading, version: str) -> list[str]:
    """What was not read and may touch the loss, with the default that stands in.

    An assignment to a shell variable is left out: where an option uses the variable, that use is named.
    """
    names = {
        key: name
        for name, t in table.option.items()
        for key in (t.get("key", name), name, *t.get("alias", []))
    }
    defaults, found = table.defaults(version), []
    for message, line in reading.unread:
        setting = re.match(r"[+~\"']*([\w.]+)( ?)=", message)
        if message.startswith(("$@", '"$@"', "$*", "${@")) or (
            setting and not setting[2] and setting[1] not in names
        ):
            continue
        default = defaults.get(names.get(setting[1], "")) if setting else None
        found.append(
            f"line {line}: {message}"
            + (f"; the default {default} stands in" if default is not None else "")
        )
    return found


# --- traps ----------------------------------------------------------------------------------------------------------------


def _traps(
    table: Framework, values: dict[str, Any], known: dict[str, Entry], version: str
) -> list[Trap]:
    """The traps of the data file whose conditions hold."""
    found = []
    for trap in table.trap:
        if not in_range(version, trap.get("versions")) or not holds(
            trap.get("when", {}), values, known
        ):
            continue
        if "expression" in trap and not evaluate(trap["expression"], values):
            continue
        entry = known.get(trap["key"])
        key = entry.key if entry else table.option[trap["key"]].get("key", trap["key"])
        found.append(Trap(key, entry.line if entry else 0, trap["text"].format_map(values)))
    return found


def _false_names(recipe: Recipe, reading: Reading, framework_name: str) -> list[Trap]:
    """Comments, file names and run names that call the loss what it is not."""
    found, said = [], list(reading.comments)
    said += [(str(e.value), e.line) for e in reading.entries if e.key in NAMED_RUNS]
    for pattern, name in labels.NAMES.items():
        for text, line in said:
            if re.search(pattern, text, re.I) and not (name == "rloo" and "nccl" in text):
                why = labels.differences(recipe, name)
                if why:
                    where = f"'{text.strip()[:50]}' says {name}, but {'; '.join(why)}."
                    found.append(Trap("a name or comment" if line else "file name", line, where))
                break
    return found


# --- the four lines -------------------------------------------------------------------------------------------------------


def _advantage(recipe: Recipe) -> str:
    shaped = "".join(f"; reward: {axes.text(choice)}" for choice in recipe.rewards)
    groups = "".join(f"; only {axes.text(choice)}" for choice in recipe.filters)
    text = axes.text(recipe.scale)
    scale = "not divided" if axes.function_of(recipe.scale) is unscaled else f"divided by {text}"
    scale = f"then {text}" if text.startswith("z-score") else scale
    return f"{axes.text(recipe.baseline)}, {scale}{shaped}{groups}"


def push(recipe: Recipe) -> list[float]:
    """Weight of a token of a completion of 10 (A = +1) and of 100 tokens (A = -1), on policy, in one micro-batch."""
    plain = stripped(recipe, baseline=given_advantage, scale=unscaled)
    rollouts = Rollouts.from_lengths([10, 100], [1, 0], advantage=[1.0, -1.0], max_new_tokens=100)
    return token_weights(plain, rollouts)[:, 0].tolist()


def stripped(recipe: Recipe, **changes: Any) -> Recipe:
    """Advantage, surrogate and aggregation alone. What a combination is known for is a trap here, not a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecipeWarning)
        return recipe.but(
            filters=(), rewards=(), kl=None, correction=None, kl_aggregation=None, **changes
        )


def _aggregation(recipe: Recipe) -> str:
    short, long = push(recipe)
    total = 10 * abs(short) + 100 * abs(long) or 1.0
    return (
        f"{axes.text(recipe.aggregation)}; lengths 10 (A = +1) and 100 (A = -1): push per token {short:+.6g} and {long:+.6g}, "
        f"share {10 * short / total:+.4f} and {100 * long / total:+.4f}"
    )


def band(recipe: Recipe) -> str:
    """The clip band in ratio space, in words."""
    from math import exp

    name, s = axes.function_of(recipe.surrogate).__name__, axes.settings(recipe.surrogate)
    if "eps_low" in s:
        low, high = 1 - s["eps_low"], 1 + s["eps_high"]
        if name == "gmpo":
            low, high = exp(-s["eps_low"]), exp(s["eps_high"])
        what = {
            "gspo": "sequence ratio ",
            "gspo_token": "sequence ratio ",
            "sequence_product": "product of ratios ",
        }.get(name, "")
        cap = f", dual clip {s['cap']:g} for A < 0" if name == "dual_clip" else ""
        return f"{what}[{low:.6g}, {high:.6g}]{' in log space ±' + format(s['eps_high'], 'g') if name == 'gmpo' else ''}{cap}"
    if name == "cispo":
        return f"ratio capped to [{max(0.0, s['low']):.6g}, {s['high']:.6g}] and detached"
    return (
        f"soft gate, tau {s['tau_pos']:g} and {s['tau_neg']:g}"
        if name == "sapo"
        else "none (no ratio)"
    )


def _clip(recipe: Recipe, updates: float | None, lost: bool = False) -> str:
    if lost:
        return "not covered, see below" + (f"; updates per rollout: {updates:g}" if updates else "")
    sampler = f"; times {axes.text(recipe.correction)} for the sampler" if recipe.correction else ""
    if updates is None:
        return f"{band(recipe)}; updates per rollout: not told by the config{sampler}"
    can = "it can act" if updates > 1 else "idle, every ratio is 1"
    return f"{band(recipe)}; {updates:g} update{'s' if updates != 1 else ''} per rollout: {can}{sampler}"


def penalty(recipe: Recipe, lost: frozenset[str] | set[str] = frozenset()) -> str:
    """The KL term in words; ``lost`` are axes of which a part is not covered."""
    if "kl" in lost:
        return "not covered, see below"
    own = (
        f", averaged by {axes.text(recipe.kl_aggregation)}"
        if recipe.kl_aggregation and recipe.kl
        else ""
    )
    loss = f"in the loss: {axes.text(recipe.kl)}{own}" if recipe.kl else ""
    reward = [
        f"in the reward: {axes.text(r)}"
        for r in recipe.rewards
        if "kl" in axes.function_of(r).__name__
    ]
    more = ["a part in the reward is not covered, see below"] if "rewards" in lost else []
    return "; ".join(filter(None, [loss, *reward, *more])) or "none"


def _number(expression: str, values: dict[str, Any]) -> float | None:
    try:
        return float(evaluate(expression, values))
    except (TypeError, ValueError, ZeroDivisionError):
        return None


def biases(recipe: Recipe, size: float | None = None) -> list[str]:
    """Length and difficulty bias of the loss alone, read off its weights, at the config's group size."""
    plain, told = stripped(recipe), size is not None and 2 <= size <= 1024
    difficulty = (
        str(difficulty_bias(plain, int(size or 0)))
        if told
        else f"{difficulty_bias(plain)} (G is not told: 8 is taken.)"
    )
    return [str(length_bias(plain)), difficulty]


def _label(recipe: Recipe, claim: str | None, lost: set[str]) -> str:
    if lost & {"surrogate", "aggregation", "baseline"}:
        return "this is a loss that no axis here expresses: see what is left out"
    return labels.label(recipe, claim)


def _elsewhere(table: Framework, values: dict[str, Any], number: str, recipe: Recipe) -> list[str]:
    """The same settings at other versions, where a line would change."""
    found, last, upper = [], recipe.describe(), number
    for version in reversed([v for v in table.changes() if not in_range(v, f">={number}")]):
        there = table.defaults(version)
        new = [
            f"{name} = {value}"
            for name, value in values.items()
            if name in there and not table.knows(name, value, version)
        ]
        if new:
            found.append(f"before {upper}: {', '.join(new)} is not known")
            break
        other = recipe_of(
            table, {k: v for k, v in values.items() if k in there}, version, left_out=[]
        ).describe()
        changed = [f"{axis} {other[axis]}" for axis in other if other[axis] != last[axis]]
        if changed:
            found.append(f"before {upper}: {', '.join(changed)}")
        last, upper = other, version
    return found
