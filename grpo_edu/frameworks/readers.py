"""Reading a user's file: TRL YAML, a Python ``GRPOConfig(...)`` call, a shell script.

Nothing is executed. Every value keeps its line; what cannot be read is named with its line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from .programs import program, refuse_foreign
from .shell import Command, Script, Unread
from .shell_words import MARK, Word

TRAINERS = {"GRPOConfig": "GRPO", "RLOOConfig": "RLOO", "GMPOConfig": "GMPO"}
MAX_CHARACTERS = 200_000  # of a file
MAX_ENTRIES = 5_000  # an anchor that is used again and again can make a small file very long
INSTEAD = "expected a TRL YAML, a Python GRPOConfig(...) call, or a shell script with overrides"


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
        comments: (text, line) of comments, and the file's name at line 0.
        unread: what could not be read.
        framework: that of the program that the file starts, or of its keys; None: not told.
        program: the word of a script that names the program; empty where only keys tell it.
        named: files that the program takes settings from and that are not read, with their line.
        pins: package -> version, where the file names one: ``trl==0.22.2``.
    """

    entries: list[Entry] = field(default_factory=list)
    comments: list[tuple[str, int]] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    framework: str | None = None
    program: str = ""
    named: list[tuple[str, int]] = field(default_factory=list)
    pins: dict[str, str] = field(default_factory=dict)


def read(source: str | Path) -> Reading:
    """What a file says.

    Args:
        source: a path, or the text itself, which a line end, ``(``, ``: `` or `` --`` tells.

    Raises:
        TypeError: neither a path nor a text.
        CannotTell: a program that no table describes.
        ValueError: too large, not text, or nothing in it looks like a setting.
        OSError: no such file, or a folder.
    """
    if not isinstance(source, (str, Path)):
        raise TypeError(f"source is {source!r}: expected the path of a config, or its text.")
    is_text = isinstance(source, str) and re.search(r"\n|\(|: | --", source)
    text = str(source) if is_text else _file_text(Path(source))
    name = "" if is_text else Path(source).name
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"source has more than {MAX_CHARACTERS:,} characters: {INSTEAD}.")
    try:
        reading = _reader(name, text)(text)
    except (RecursionError, MemoryError):
        raise ValueError(f"source is nested too deeply to be read: {INSTEAD}.") from None
    reading.pins = dict(re.findall(r"\b(trl|verl|openrlhf)\s*==\s*(\d[\w.]*)", text))
    if name:
        reading.comments.insert(0, (Path(name).stem, 0))
    if not reading.entries:
        why = "".join(f" Line {row.line}: {row.message}." for row in reading.unread)
        raise ValueError(f"no setting found: {INSTEAD}.{why}")
    return reading


def _reader(name: str, text: str) -> Any:
    """The reader for a file of this name (empty: unknown) and text."""
    kind = Path(name).suffix
    if kind in (".yaml", ".yml"):
        return read_yaml
    if kind == ".py" or any(f"{config}(" in text for config in TRAINERS):
        return read_python
    overrides = re.search(r"(^|\s)--\w|\w=\S|\\\n", text)
    if kind in (".sh", ".bash") or (overrides and not re.search(r"^\w+: ", text, re.M)):
        return read_shell
    return read_yaml


def _file_text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: there is no such file.") from None
    except IsADirectoryError:
        raise IsADirectoryError(
            f"{path} is a folder: expected a YAML, Python or shell file."
        ) from None
    except OSError as error:
        raise OSError(f"{str(path)[:200]} cannot be read: {error.strerror}.") from None
    except ValueError:
        text = "\0"
    if "\0" in text:
        raise ValueError(
            f"{str(path)!r} is not a text file (UTF-8): expected a YAML, Python or shell file."
        )
    return text


def scalar(text: str) -> Any:
    """A plain value: ``"3e-4"`` -> 0.0003, ``"True"`` -> True, ``"[1,2]"`` -> [1, 2].

    ``null`` and ``~`` are None; anything else is the text without its quotes.
    """
    text = text.strip()
    constants = {"true": True, "false": False, "null": None, "~": None}
    if text.lower() in constants:
        return constants[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    if text.startswith("[") and text.endswith("]"):
        return [scalar(item) for item in text[1:-1].split(",") if item.strip()]
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text


def _comments(text: str, pattern: str) -> list[tuple[str, int]]:
    rows = enumerate(text.splitlines(), 1)
    return [(comment, number) for number, row in rows for comment in re.findall(pattern, row)]


# --- YAML -----------------------------------------------------------------------------------------


def read_yaml(text: str) -> Reading:
    """Keys of a YAML file, nested ones with dots between."""
    import yaml

    reading = Reading(comments=_comments(text, r"(?:^|\s)#(.*)"))
    try:
        node = yaml.compose(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = f"not YAML: {getattr(error, 'problem', error)}"
        reading.unread.append(Unread(what, mark.line + 1 if mark else 1))
        return reading
    if isinstance(node, yaml.MappingNode):
        reading.entries = list(islice(_flat(node, ""), MAX_ENTRIES + 1))
    if len(reading.entries) > MAX_ENTRIES:
        raise ValueError(f"source has more than {MAX_ENTRIES:,} settings: {INSTEAD}.")
    return reading


def _merged(node: Any) -> Iterator[tuple[Any, Any]]:
    """Key and value nodes of a mapping.

    Those of ``<<: *anchor`` come first, without the keys that the mapping gives itself.
    """
    import yaml

    pairs = [pair for pair in node.value if isinstance(pair[0], yaml.ScalarNode)]
    own = {key.value for key, _ in pairs}
    for key, value in pairs:
        if key.value == "<<":
            sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for mapping in sources:
                if isinstance(mapping, yaml.MappingNode):
                    yield from (pair for pair in _merged(mapping) if pair[0].value not in own)
    yield from (pair for pair in pairs if pair[0].value != "<<")


def _flat(node: Any, prefix: str) -> Iterator[Entry]:
    import yaml

    for key, value in _merged(node):
        name = f"{prefix}{key.value}"
        line = key.start_mark.line + 1
        if isinstance(value, yaml.MappingNode):
            yield from _flat(value, f"{name}.")
        elif isinstance(value, yaml.SequenceNode):
            items = [
                scalar(item.value) if isinstance(item, yaml.ScalarNode) else "..."
                for item in value.value
            ]
            yield Entry(name, items, line)
        else:
            quoted = value.style in ("'", '"')
            yield Entry(name, value.value if quoted else scalar(value.value or "null"), line)


# --- Python ---------------------------------------------------------------------------------------


def read_python(text: str) -> Reading:
    """The keywords of the first ``GRPOConfig``, ``RLOOConfig`` or ``GMPOConfig`` call."""
    reading = Reading(comments=_comments(text, "#(.*)"))
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        reading.unread.append(Unread(f"not Python: {error.msg}", error.lineno or 1))
        return reading
    refuse_foreign(name for node in ast.walk(tree) for name in _imported(node))
    constants = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and _called(n) in TRAINERS]
    for other in calls[1:]:
        what = f"a second {_called(other)}(...): only the first is read"
        reading.unread.append(Unread(what, other.lineno))
    for call in calls[:1]:
        reading.framework = "trl"
        reading.entries.append(Entry("trainer", TRAINERS[_called(call)], call.lineno))
        for keyword in call.keywords:
            _read_keyword(keyword, constants, reading)
    return reading


def _imported(node: ast.AST) -> list[str]:
    """The modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _read_keyword(keyword: ast.keyword, constants: dict[str, ast.expr], reading: Reading) -> None:
    value = keyword.value
    if isinstance(value, ast.Name) and value.id in constants:
        value = constants[value.id]
    shown = ast.unparse(keyword.value)
    if keyword.arg is None:
        pairs = list(_pairs(value))
        for pair in pairs:
            _read_keyword(pair, constants, reading)
        if not pairs:
            what = f"**{shown} is not a literal: its keys are not read"
            reading.unread.append(Unread(what, keyword.value.lineno))
        return
    try:
        reading.entries.append(Entry(keyword.arg, ast.literal_eval(value), keyword.lineno))
    except (ValueError, TypeError):
        what = f"{keyword.arg} = {shown} is not a literal: not read"
        reading.unread.append(Unread(what, keyword.value.lineno, keyword.arg))


def _pairs(value: ast.expr) -> Iterator[ast.keyword]:
    """What ``**{"beta": 0.1}`` or ``**dict(beta=0.1)`` hands over."""
    if isinstance(value, ast.Call) and _called(value) == "dict" and not value.args:
        yield from value.keywords
    elif isinstance(value, ast.Dict):
        for key, item in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                place = {"lineno": key.lineno, "col_offset": key.col_offset}
                yield ast.keyword(arg=key.value, value=item, **place)


# --- shell ----------------------------------------------------------------------------------------

CONFIG_FILES = ("config", "config-name", "config_name", "config_files")
OVERRIDE = re.compile(r"[+~]*([A-Za-z_][\w./@-]*)=(.*)", re.S)
HYDRA = ("verl", "skyrl", "nemo_rl")  # their flags are hydra's own
HYDRA_FLAGS = re.compile(r"(--config-(path|name|dir)|-c[pnd]|--config)")


def read_shell(text: str) -> Reading:
    """Hydra overrides ``key=value`` and flags ``--key value`` of the run that a script starts."""
    script = Script(text, lambda words: program(word.text for word in words) is not None)
    reading = Reading(
        comments=[(word.text, word.line) for word in script.comments], unread=list(script.notes)
    )
    runs = [c for c in script.commands if program(word.text for word in c.words)]
    if not runs:
        runs = sorted(script.commands, key=_settings, reverse=True)[:1]
    for second in runs[1:2]:
        what = "a second run starts here: only the first is read"
        reading.unread.append(Unread(what, second.line))
    for command in runs[:1]:
        if command.condition:
            what = f"this run starts only in one way through {command.condition}"
            reading.unread.append(Unread(what, command.line))
        _read_command(command.words, script, reading)
        _stray_settings(script, command.line, reading)
    return reading


def _settings(command: Command) -> int:
    """How many words of a command look like settings."""
    return sum(word.text.startswith("--") or "=" in word.text for word in command.words)


def _stray_settings(script: Script, line: int, reading: Reading) -> None:
    """Settings that stand after the end of the run's command: bash does not hand them over."""
    for command in script.commands:
        stray = OVERRIDE.fullmatch(command.words[0].text)
        if stray and "." in stray[1] and command.line > line:
            what = f"{stray[1]} stands after the end of the command: it is not handed over"
            reading.unread.append(Unread(what, command.line))


def _read_command(words: list[Word], script: Script, reading: Reading) -> None:
    """The settings after the program's name."""
    texts = [word.text for word in words]
    found = program(texts)
    if found:
        reading.framework, reading.program = found
        refuse_foreign(texts[: texts.index(found[1]) + 1])
        words = words[texts.index(found[1]) + 1 :]
    hydra = reading.framework in HYDRA
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        flag = re.match(r"--\w", word.text) or (hydra and HYDRA_FLAGS.fullmatch(word.text))
        if flag:
            key, equals, first = word.text.lstrip("-").partition("=")
            values = [first] if equals else []
            most = 0 if equals else len(words)
            if hydra:
                most = 1 if HYDRA_FLAGS.fullmatch(word.text) else 0
            while at < len(words) and most and not re.match(r"--\w", words[at].text):
                values.append(words[at].text)
                most -= 1
                at += 1
            _read_setting(key, values, word.line, script, reading)
        elif match := OVERRIDE.fullmatch(word.text):
            _read_setting(match[1], [match[2]], word.line, script, reading)
        elif why := script.why(word.text):
            shown = MARK.sub("…", word.text)[:60]
            reading.unread.append(Unread(f"'{shown}' is not read: {why}", word.line))
        elif hydra and word.text.startswith("~"):
            what = f"{word.text} takes a setting away: not followed"
            reading.unread.append(Unread(what, word.line, word.text[1:]))


def _read_setting(key: str, values: list[str], line: int, script: Script, reading: Reading) -> None:
    """A flag without a value is True, one with several values a list."""
    if MARK.search(key):
        what = f"{MARK.sub('…', key)[:60]} is not read: {script.why(key)}"
        reading.unread.append(Unread(what, line))
        return
    for value in values:
        if why := script.why(value):
            what = f"{key} = {MARK.sub('…', value)[:60]} is not read: {why}"
            reading.unread.append(Unread(what, line, key))
            return
    plain = [scalar(value) for value in values]
    if key in CONFIG_FILES and plain:
        _read_named(plain[0], line, script, reading)
        return
    reading.entries.append(Entry(key, plain[0] if len(plain) == 1 else plain or True, line))


def _read_named(name: Any, line: int, script: Script, reading: Reading) -> None:
    """The settings of a file that the script itself writes; another file is named as not read.

    They come before those of the command, which override them.
    """
    text = script.files.get(str(name))
    if text is None or MARK.search(text):
        reading.named.append((str(name), line))
        return
    inner = read_yaml(text)
    reading.entries[:0] = [entry._replace(line=line) for entry in inner.entries]
    reading.unread += inner.unread
