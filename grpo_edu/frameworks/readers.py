"""Reading a user's file: TRL YAML, a Python ``GRPOConfig(...)`` call, a shell script with hydra overrides or flags.

Nothing is executed. Every value keeps its line; what cannot be read is named with its line, never guessed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from .shell import UNKNOWN, arguments

CONFIGS = {"GRPOConfig": "GRPO", "RLOOConfig": "RLOO", "GMPOConfig": "GMPO"}
SIGNS = {
    "verl": ("algorithm.adv_estimator", "actor_rollout_ref.", "verl.trainer", "main_ppo"),
    "openrlhf": ("openrlhf", "--advantage_estimator", "--algo.advantage"),
    "trl": (
        "GRPOConfig",
        "RLOOConfig",
        "GMPOConfig",
        "trl",
        "num_generations",
        "loss_type",
        "max_completion_length",
    ),
}


class Entry(NamedTuple):
    """One setting of a file: ``key``, ``value``, ``line`` (from 1)."""

    key: str
    value: Any
    line: int


@dataclass
class Reading:
    """What a file says, before any framework's table is asked.

    Args:
        entries: settings in order.
        comments: (text, line) of comments and of names that a run is given.
        unread: (message, line) of what could not be read.
    """

    entries: list[Entry] = field(default_factory=list)
    comments: list[tuple[str, int]] = field(default_factory=list)
    unread: list[tuple[str, int]] = field(default_factory=list)


def read(source: str | Path) -> tuple[str, Reading]:
    """The text of a file (or the text itself, where it holds a line end) and what it says.

    Raises:
        ValueError: it is not text, or nothing in it looks like a setting.
        OSError: no such file.
    """
    is_text = isinstance(source, str) and (
        "\n" in source or "(" in source or ": " in source or " --" in source
    )
    text, name = (str(source), "") if is_text else (_text(Path(source)), str(source))
    if name.endswith((".yaml", ".yml")):
        reading = read_yaml(text)
    elif name.endswith(".py") or any(f"{config}(" in text for config in CONFIGS):
        reading = read_python(text)
    elif name.endswith((".sh", ".bash")) or (
        re.search(r"(^|\s)--\w|\w=\S|\\\n", text) and not re.search(r"^\w+: ", text, re.M)
    ):
        reading = read_shell(text)
    else:
        reading = read_yaml(text)
    if name:
        reading.comments.insert(0, (Path(name).stem, 0))
    if not reading.entries:
        why = "".join(f" Line {line}: {message}." for message, line in reading.unread)
        raise ValueError(
            f"no setting found: expected a TRL YAML, a Python GRPOConfig(...) call, or a shell script with overrides.{why}"
        )
    return text, reading


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(
            f"{path} is not a text file (UTF-8): expected a YAML, Python or shell file."
        ) from None


def guess_framework(text: str) -> str | None:
    """The framework whose signs are in the text; None where there are none."""
    found = {name: sum(sign in text for sign in signs) for name, signs in SIGNS.items()}
    best = max(found, key=lambda name: found[name])
    return best if found[best] else None


def scalar(text: str) -> Any:
    """``"3e-4"`` -> 0.0003, ``"True"`` -> True, ``"null"`` -> None, ``"[1,2]"`` -> [1, 2]; else the text without its quotes."""
    text = text.strip()
    words = {"true": True, "false": False, "null": None, "~": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    if text.startswith("[") and text.endswith("]"):
        return [scalar(x) for x in text[1:-1].split(",") if x.strip()]
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


# --- YAML -----------------------------------------------------------------------------------------------------------------


def read_yaml(text: str) -> Reading:
    """Keys of a YAML file, nested ones with dots between."""
    import yaml

    reading = Reading(
        comments=[
            (c, n)
            for n, line in enumerate(text.splitlines(), 1)
            for c in re.findall(r"(?:^|\s)#(.*)", line)
        ]
    )
    try:
        node = yaml.compose(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reading.unread.append(
            (f"not YAML: {getattr(error, 'problem', error)}", mark.line + 1 if mark else 1)
        )
        return reading
    if isinstance(node, yaml.MappingNode):
        reading.entries = list(_flat(node, ""))
    return reading


def _merged(node: Any) -> Iterator[tuple[Any, Any]]:
    """Key and value nodes of a mapping; those of ``<<: *anchor`` first, without the keys that the mapping gives itself."""
    import yaml

    own = {key.value for key, _ in node.value}
    for key, value in node.value:
        if key.value == "<<":
            sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for one in sources:
                yield from (
                    (k, v)
                    for k, v in (_merged(one) if isinstance(one, yaml.MappingNode) else ())
                    if k.value not in own
                )
    yield from ((key, value) for key, value in node.value if key.value != "<<")


def _flat(node: Any, prefix: str) -> Iterator[Entry]:
    import yaml

    for key, value in _merged(node):
        name = f"{prefix}{key.value}"
        if isinstance(value, yaml.MappingNode):
            yield from _flat(value, f"{name}.")
        elif isinstance(value, yaml.SequenceNode):
            yield Entry(
                name,
                [
                    scalar(one.value) if isinstance(one, yaml.ScalarNode) else "..."
                    for one in value.value
                ],
                key.start_mark.line + 1,
            )
        else:
            yield Entry(
                name,
                value.value if value.style in ("'", '"') else scalar(value.value or "null"),
                key.start_mark.line + 1,
            )


# --- Python ---------------------------------------------------------------------------------------------------------------


def read_python(text: str) -> Reading:
    """The keywords of the first ``GRPOConfig(...)``, ``RLOOConfig(...)`` or ``GMPOConfig(...)`` call, parsed, never executed."""
    reading = Reading(
        comments=[
            (c, n)
            for n, line in enumerate(text.splitlines(), 1)
            for c in re.findall(r"#(.*)", line)
        ]
    )
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        reading.unread.append((f"not Python: {error.msg}", error.lineno or 1))
        return reading
    constants = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and _called(n) in CONFIGS]
    for other in calls[1:]:
        reading.unread.append(
            (f"a second {_called(other)}(...): only the first is read", other.lineno)
        )
    for call in calls[:1]:
        reading.entries.append(Entry("trainer", CONFIGS[_called(call)], call.lineno))
        for keyword in call.keywords:
            _keyword(keyword, constants, reading)
    return reading


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _keyword(keyword: ast.keyword, constants: dict[str, ast.expr], reading: Reading) -> None:
    line, value = keyword.value.lineno, keyword.value
    if isinstance(value, ast.Name) and value.id in constants:
        value = constants[value.id]
    if keyword.arg is None:
        pairs = list(_pairs(value))
        for one in pairs:
            _keyword(one, constants, reading)
        if not pairs:
            reading.unread.append(
                (f"**{ast.unparse(keyword.value)} is not a literal: its keys are not read", line)
            )
        return
    try:
        reading.entries.append(Entry(keyword.arg, ast.literal_eval(value), keyword.lineno))
    except ValueError:
        reading.unread.append(
            (f"{keyword.arg} = {ast.unparse(keyword.value)} is not a literal: not read", line)
        )


def _pairs(value: ast.expr) -> Iterator[ast.keyword]:
    """What ``**{"beta": 0.1}`` or ``**dict(beta=0.1)`` hands over."""
    if isinstance(value, ast.Call) and _called(value) == "dict" and not value.args:
        yield from value.keywords
    elif isinstance(value, ast.Dict):
        for key, one in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield ast.keyword(
                    arg=key.value, value=one, lineno=key.lineno, col_offset=key.col_offset
                )


# --- shell ----------------------------------------------------------------------------------------------------------------

RUNS = re.compile(
    r"\bmain_(ppo|dapo)\b|\btrain_ppo_ray\b"
)  # the program that a verl or OpenRLHF script starts


def read_shell(text: str) -> Reading:
    """Hydra overrides ``key=value`` and flags ``--key value``, with variables, defaults, arithmetic and arrays resolved."""
    words, comments, unread = arguments(text)
    starts = [number for number, (word, _) in enumerate(words) if RUNS.search(word)]
    if len(starts) > 1:
        unread.append(("a second run starts here: only the first is read", words[starts[1]][1]))
        words = words[: starts[1]]
    reading, at = Reading(comments=comments, unread=unread), 0
    while at < len(words):
        word, line = words[at]
        at += 1
        if word.startswith("--") and len(word) > 2:
            key, equals, first = word[2:].partition("=")
            values = [first] if equals else []
            while (
                not equals
                and at < len(words)
                and not words[at][0].startswith("--")
                and words[at][0] != "&&"
            ):
                values.append(words[at][0])
                at += 1
            if values[:1] == [UNKNOWN]:
                reading.unread.append((f"{key} = … has no known value", line))
                continue
            found = [scalar(v) for v in values if v != UNKNOWN]
            reading.entries.append(Entry(key, found[0] if len(found) == 1 else found or True, line))
        elif match := re.fullmatch(r"[+~]*([A-Za-z_][\w./@]*)=(.*)", word, re.S):
            reading.entries.append(Entry(match[1], scalar(match[2]), line))
    return reading
