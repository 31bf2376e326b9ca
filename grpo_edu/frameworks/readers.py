"""Reading a user's file: TRL YAML, a Python ``GRPOConfig(...)`` call, a shell script.

Nothing is executed. Every value keeps its line; what cannot be read is named with its line.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from .programs import PROGRAMS, foreign, framework_of_keys, program
from .python_files import Module, TooLong, chosen, settings
from .shell import Command, Script, Unread
from .shell_words import MARK, Word

MAX_CHARACTERS = 200_000  # of a file
MAX_TRIES = 30  # lines of a notebook that are no Python
MAX_NOTEBOOK = 20_000_000  # characters: its outputs count
MAX_PARENTS = 8  # folders in which a file that is named is looked for
MAX_ENTRIES = 5_000  # an anchor that is used again and again can make a small file very long
INSTEAD = "expected a TRL YAML, a Python GRPOConfig(...) call, or a shell script with overrides"
WRITTEN = (  # by a program into the folder of its run
    ".hydra/config.yaml",
    "**/.hydra/config.yaml",
    "config.yaml",
    "files/config.yaml",
    "wandb/latest-run/files/config.yaml",
    "wandb/*/files/config.yaml",
    ".hydra/overrides.yaml",
    "overrides.yaml",
)
SUFFIXES = (".sh", ".bash", ".yaml", ".yml", ".toml", ".py", ".ipynb")


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
        marks: the words that name the program; none where only keys tell it.
        named: files that the program takes settings from and that are not read, with their line.
        pins: package -> versions, where the file names some: ``trl==0.22.2``.
        outside: what the command line, the environment or another call would change.
        doubts: why the program may run other settings than these.
        program: the marks are those of a command, not of imports.
        dump: written by a program, which writes its defaults too.
        own: keys that a class of the file itself adds.
    """

    entries: list[Entry] = field(default_factory=list)
    comments: list[tuple[str, int]] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    framework: str | None = None
    marks: list[str] = field(default_factory=list)
    named: list[tuple[str, int]] = field(default_factory=list)
    pins: dict[str, list[str]] = field(default_factory=dict)
    outside: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    dump: bool = False
    program: bool = False
    own: set[str] = field(default_factory=set)


def read(source: str | Path) -> Reading:
    """What a file says, or the config in a folder.

    Args:
        source: a path, or the text itself, which a line end, ``(``, ``: `` or `` --`` tells.

    Raises:
        TypeError: neither a path nor a text.
        ValueError: too large, not text, or nothing in it looks like a setting.
        OSError: no such file.
    """
    if not isinstance(source, (str, Path)):
        raise TypeError(f"source is {source!r}: expected the path of a config, or its text.")
    if _is_text(source):
        return _read_text(str(source), None)
    path = Path(source)
    is_folder = len(str(path)) < 1000 and path.is_dir()
    return _read_folder(path) if is_folder else _read_text(_file_text(path), path)


def _is_text(source: str | Path) -> bool:
    if isinstance(source, Path):
        return False
    if not re.search(r"\n|\(|: | --", source):
        return False
    with suppress(OSError):  # too long for a name
        return "\n" in source or not Path(source).is_file()
    return True


def _read_text(text: str, path: Path | None) -> Reading:
    """What a text says; ``path``: the file that it stands in."""
    try:
        reading = _reader(path.name if path else "", text)(text, path and path.parent)
    except (RecursionError, MemoryError):
        raise ValueError(f"source is nested too deeply to be read: {INSTEAD}.") from None
    for package, version in re.findall(r"\b(\w+)\s*==\s*v?(\d[\w.]*)", text):
        if version not in reading.pins.setdefault(package.lower(), []):
            reading.pins[package.lower()].append(version.rstrip("."))
    _interpolate(reading)
    if path:
        reading.comments.insert(0, (path.stem, 0))
        reading.dump |= path.parent.name in (".hydra", "files")
    if not reading.entries:
        foreign(reading.marks)
        rows = [f" Line {row.line}: {row.message}." for row in reading.unread]
        rows += [f" Line {line}: {name} is not beside it." for name, line in reading.named]
        raise ValueError(f"no setting found: {INSTEAD}.{''.join(rows)}")
    return reading


def _interpolate(reading: Reading) -> None:
    """``${a.b}`` is the setting of that key; what else ``${…}`` means is not read."""
    plain = {entry.key: entry.value for entry in reading.entries}
    kept = []
    for entry in reading.entries:
        value = entry.value
        for _ in range(MAX_PARENTS):
            if isinstance(value, str) and (key := re.fullmatch(r"\$\{([\w.]+)\}", value)):
                value = plain.get(key[1], value)
        if isinstance(value, str) and "${" in value:
            what = f"{entry.key} = {value[:60]} is not read: it stands elsewhere"
            reading.unread.append(Unread(what, entry.line, entry.key))
        else:
            kept.append(entry._replace(value=value))
    reading.entries = kept


def _read_folder(folder: Path) -> Reading:
    """The config of a run's folder: what its program wrote, or else the one file that starts it.

    Raises:
        ValueError: there is none, or several that a person must choose from.
    """
    for pattern in WRITTEN:
        for path in sorted(folder.glob(pattern)):
            with suppress(ValueError):
                return _found(path, folder)
    readable = []
    for path in sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES):
        with suppress(ValueError):
            reading = _found(path, folder)
            if reading.framework or framework_of_keys(entry.key for entry in reading.entries):
                readable.append((path.name, reading))
    if len(readable) == 1:
        return readable[0][1]
    names = ", ".join(name for name, _ in readable[:8]) or "none"
    raise ValueError(
        f"{folder} is a folder: expected one config in it (config.yaml of wandb or hydra, "
        f"overrides.yaml, or one file of {', '.join(SUFFIXES)}), found {names}. Give the file."
    )


def _found(path: Path, folder: Path) -> Reading:
    reading = _read_text(_file_text(path), path)
    reading.doubts.append(f"{path.relative_to(folder)} of this folder")
    return reading


def _reader(name: str, text: str) -> Any:
    """The reader for a file of this name (empty: unknown) and text."""
    by_suffix = {
        ".yaml": read_yaml,
        ".yml": read_yaml,
        ".json": read_yaml,
        ".toml": read_toml,
        ".py": read_python,
        ".ipynb": read_notebook,
        ".sh": read_shell,
        ".bash": read_shell,
    }
    if Path(name).suffix in by_suffix:
        return by_suffix[Path(name).suffix]
    if re.match(r'\s*\{\s*"(cells|metadata|nbformat)', text):
        return read_notebook
    if re.search(r"\b(GRPO|RLOO|GMPO)(Config|Trainer)[(),]", text):
        return read_python
    overrides = re.search(r"(^|\s)--\w|\w=\S|\\\n", text)
    return read_shell if overrides and not re.search(r"^(\w+: |- )", text, re.M) else read_yaml


def _file_text(path: Path) -> str:
    most = MAX_NOTEBOOK if path.suffix == ".ipynb" else MAX_CHARACTERS
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(most + 1)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: there is no such file.") from None
    except OSError as error:
        raise OSError(f"{str(path)[:200]} cannot be read: {error.strerror}.") from None
    except ValueError:
        text = "\0"
    if "\0" in text:
        raise ValueError(
            f"{str(path)!r} is not a text file (UTF-8): expected a YAML, Python or shell file."
        )
    return text


def _short(text: str) -> str:
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"source has more than {MAX_CHARACTERS:,} characters: {INSTEAD}.")
    return text


def beside(base: Path | None, name: str) -> Path | None:
    """A file that a config names, where it stands beside it or in a folder above.

    The search ends at the root of a repository. ``recipe`` finds ``recipe.yaml`` too.
    """
    tail = name.lstrip("/")
    if base is None or not tail or MARK.search(tail):
        return None
    for folder in [base, *base.resolve().parents][:MAX_PARENTS]:
        for path in (folder / tail, folder / f"{tail}.yaml"):
            if path.is_file():
                return path
        if (folder / ".git").exists():
            break
    return None


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


# --- YAML and TOML --------------------------------------------------------------------------------


def read_yaml(text: str, base: Path | None = None) -> Reading:
    """Keys of a YAML file, nested ones with dots between; those of its parents come first.

    A list of ``key=value`` (hydra's ``overrides.yaml``) and a dump by wandb are read too.
    """
    import yaml

    reading = Reading(comments=_comments(_short(text), r"(?:^|\s)#(.*)"))
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = f"not YAML: {getattr(error, 'problem', error)}"
        reading.unread.append(Unread(what, mark.line + 1 if mark else 1))
        return reading
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            match = OVERRIDE.fullmatch(str(item.value))
            if match:
                line = item.start_mark.line + 1
                reading.entries.append(Entry(match[1], scalar(match[2]), line))
        return reading
    if isinstance(node, yaml.MappingNode):
        reading.entries = list(islice(_flat(node, ""), MAX_ENTRIES + 1))
    if len(reading.entries) > MAX_ENTRIES:
        raise ValueError(f"source has more than {MAX_ENTRIES:,} settings: {INSTEAD}.")
    if any(re.match(r"_?wandb(_version)?(\.|$)", entry.key) for entry in reading.entries):
        reading.dump = True
        reading.entries = [
            entry._replace(key=re.sub(r"^([^.]+)\.value(?=\.|$)", r"\1", entry.key))
            for entry in reading.entries
            if not re.match(r"_?wandb|[^.]+\.desc$", entry.key)
        ]
    _read_parents(reading, base)
    return reading


def _read_parents(reading: Reading, base: Path | None) -> None:
    """``defaults: parent.yaml``, or a list of them."""
    rows = [entry for entry in reading.entries if entry.key == "defaults"]
    reading.entries = [entry for entry in reading.entries if entry.key != "defaults"]
    for row in rows:
        for name in row.value if isinstance(row.value, list) else [row.value]:
            if not re.fullmatch(OWN_CONFIGS, str(name)):
                _read_named(str(name), row.line, reading, base)


def read_toml(text: str, base: Path | None = None) -> Reading:
    """Keys of a TOML file, nested ones with dots between."""
    reading = Reading(comments=_comments(_short(text), r"(?:^|\s)#(.*)"))
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reading.unread.append(Unread(f"not TOML: {error}", 1))
        return reading
    section = ""
    lines = {}
    for number, row in enumerate(text.splitlines(), 1):
        if header := re.match(r"\[+([^\]]+)\]", row):
            section = f"{header[1].strip()}."
        elif key := re.match(r"\s*([\w.-]+)\s*=", row):
            lines.setdefault(f"{section}{key[1]}", number)
    reading.entries = [
        Entry(key, value, lines.get(key, lines.get(key.rsplit(".", 1)[0], 1)))
        for key, value in islice(_flat_table(table, ""), MAX_ENTRIES)
    ]
    return reading


def _flat_table(table: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat_table(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


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
                _yaml_scalar(item) if isinstance(item, yaml.ScalarNode) else _pair(item)
                for item in value.value
            ]
            yield Entry(name, items, line)
        else:
            yield Entry(name, _yaml_scalar(value), line)


def _pair(node: Any) -> str:
    """``group: name`` in a list, as hydra's ``defaults`` has it."""
    import yaml

    if isinstance(node, yaml.MappingNode) and len(node.value) == 1:
        key, value = node.value[0]
        return f"{key.value}/{value.value}"
    return "..."


def _yaml_scalar(node: Any) -> Any:
    """A scalar as YAML 1.1 has it (``no`` is False, ``1_000`` is 1000).

    A text that is a number (``1e-3``) is one: programs that read it ask for a float.
    """
    import yaml

    quoted = node.style in ("'", '"', "|", ">")
    kind = node.tag.rsplit(":", 1)[-1]
    if kind in ("bool", "int", "float", "null"):
        with suppress(ValueError, yaml.YAMLError):
            return yaml.SafeLoader("").construct_object(node)
    try:
        return node.value if quoted else float(node.value)
    except ValueError:
        return node.value


# --- Python and notebooks -------------------------------------------------------------------------


def read_python(text: str, _: Path | None = None) -> Reading:
    """The settings of the config that a trainer of TRL gets."""
    reading = Reading(comments=_python_comments(_short(text)))
    try:
        module = Module(ast.parse(repaired(text, str)))
    except SyntaxError as error:
        reading.unread.append(Unread(f"not Python: {error.msg}", error.lineno or 1))
        return reading
    except TooLong:
        raise ValueError(
            "source takes too many steps to be read: expected a shorter one."
        ) from None
    reading.marks = module.imported
    reading.outside = module.outside
    config, others = chosen(module)
    if config is None:
        return reading
    for other in others:
        what = f"a second {other.kind}(...): only the first is read"
        reading.unread.append(Unread(what, other.line))
    reading.framework = "trl"
    origin = module.origins.get(config.kind, "trl")
    if origin.split(".")[0] != "trl":
        reading.doubts.append(f"{config.kind} comes from {origin}, whose defaults are not read")
    reading.own = config.own
    reading.entries.append(Entry("trainer", config.trainer, config.line))
    for name, value in settings(config):
        line = value.line or config.line
        if value.why:
            reading.unread.append(Unread(f"{name} {value.why}: not read", line, name))
            continue
        reading.entries.append(Entry(name, value.data, line))
        if value.switch:
            what = f"line {line}: {name} = {value.data} is the default of {value.switch}"
            reading.outside.append(what)
    reading.unread += [Unread(what, line) for what, line in config.spilled]
    return reading


def read_notebook(text: str, _: Path | None = None) -> Reading:
    """The code cells of a notebook in order, as one Python file; commands of the shell are left."""
    try:
        python = python_of(text)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return Reading(unread=[Unread(f"not a notebook: {type(error).__name__} {error}", 1)])
    reading = read_python(python)
    reading.doubts.append("lines count through the code cells, joined")
    return reading


def python_of(notebook: str) -> str:
    """The Python of a notebook's cells; a line that is none becomes ``pass``."""
    cells = json.loads(notebook)["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return repaired("\n".join(_plain_cell(cell) for cell in code), _passed)


def repaired(text: str, otherwise: Callable[[str], str]) -> str:
    """The text with f-strings that only a later Python can read replaced by an unknown one.

    ``otherwise``: what becomes of another line that is no Python.
    """
    rows = text.split("\n")
    for _ in range(MAX_TRIES):
        try:
            ast.parse("\n".join(rows))
        except (SyntaxError, ValueError) as error:
            at = min(max(getattr(error, "lineno", 0) or 1, 1), len(rows)) - 1
            plain = re.sub(r"\b[fF]r?(\"|').*\1", 'f"{UNREAD}"', rows[at])
            rows[at] = plain if plain != rows[at] else otherwise(rows[at])
        else:
            break
    return "\n".join(rows)


def _plain_cell(cell: str) -> str:
    """The Python of a cell: without magics and commands of the shell, line for line."""
    if re.match(r"\s*%%(?!capture|time|prun)\w", cell):
        return "\n" * cell.count("\n")
    rows = cell.split("\n")
    goes_on = ""
    for at, row in enumerate(rows):
        command = goes_on or re.match(r"\s*[!%?]|[^#'\"]*=\s*[!%]\w", row)
        if command:
            rows[at] = goes_on or _passed(row)
        goes_on = rows[at] if command and row.endswith("\\") else ""
    return "\n".join(rows)


def _passed(row: str) -> str:
    """``pass`` in place of a line, as deep as it stood."""
    return re.match(r"\s*", row)[0] + "pass"  # type: ignore[index]


def _python_comments(text: str) -> list[tuple[str, int]]:
    """Comments with their lines, as far as the text is Python."""
    comments = []
    with suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                comments.append((token.string.lstrip("# "), token.start[0]))
    return comments


# --- shell ----------------------------------------------------------------------------------------

CONFIG_FILES = (
    "config",
    "config-name",
    "config_name",
    "config_files",
    "config-path",
    "config_path",
)
OWN_CONFIGS = (
    r"_self_|(ppo_trainer|ppo_megatron_trainer)(\.yaml)?"  # verl's own: the tables have them
)
OVERRIDE = re.compile(r"[+~]*([A-Za-z_][\w./@-]*)=(.*)", re.S)
HYDRA = ("verl", "skyrl", "nemo_rl", "AReaL", "EasyR1", "ROLL")  # their flags are hydra's own
HYDRA_FLAGS = re.compile(r"(--config[-_](path|name|dir)|-c[pnd]|--config)")


def read_shell(text: str, base: Path | None = None) -> Reading:
    """Hydra overrides ``key=value`` and flags ``--key value`` of the run that a script starts."""
    script = Script(_short(text), lambda words: program([word.text for word in words]) is not None)
    reading = Reading(
        comments=[(word.text, word.line) for word in script.comments], unread=list(script.notes)
    )
    runs = [c for c in script.commands if program([word.text for word in c.words])]
    if not runs:
        runs = sorted(script.commands, key=_settings, reverse=True)[:1]
    for second in runs[1:2]:
        what = "a second run starts here: only the first is read"
        reading.unread.append(Unread(what, second.line))
    for command in runs[:1]:
        if command.condition:
            what = f"this run starts only in one way through {command.condition}"
            reading.unread.append(Unread(what, command.line))
        _read_command(command.words, script, reading, base)
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
            reading.unread.append(Unread(what, command.line, stray[1]))


def _read_command(words: list[Word], script: Script, reading: Reading, base: Path | None) -> None:
    """The settings after the program's name, and those of the files that it names."""
    started = program([word.text for word in words])
    if started:
        reading.framework = started.name if started.name in PROGRAMS else None
        reading.marks = [started.mark]
        reading.program = True
        words = words[started.after :]
        if started.mark.endswith("@") and words:  # prime-rl: rl @ config.toml
            reading.entries.append(Entry("config", words[0].text, words[0].line))
            words = words[1:]
    hydra = started is not None and started.name in HYDRA
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
    _read_named_configs(script, reading, base)


def _read_setting(key: str, values: list[str], line: int, script: Script, reading: Reading) -> None:
    """A flag without a value is True, one with several values a list."""
    if MARK.search(key):
        what = f"{MARK.sub('…', key)[:60]} is not read: {script.why(key)}"
        reading.unread.append(Unread(what, line))
        return
    for value in values:
        if (why := script.why(value)) and key not in CONFIG_FILES:
            what = f"{key} = {MARK.sub('…', value)[:60]} is not read: {why}"
            reading.unread.append(Unread(what, line, key))
            return
    plain = [scalar(value) for value in values]
    reading.entries.append(Entry(key, plain[0] if len(plain) == 1 else plain or True, line))


def _read_named_configs(script: Script, reading: Reading, base: Path | None) -> None:
    """The files that ``--config``, ``--config-path`` and ``--config-name`` name."""
    given = {entry.key: entry for entry in reading.entries if entry.key in CONFIG_FILES}
    reading.entries = [entry for entry in reading.entries if entry.key not in CONFIG_FILES]
    folder = given.pop("config-path", given.pop("config_path", None))
    for entry in given.values():
        name = str(entry.value)
        if re.fullmatch(OWN_CONFIGS, name):
            continue
        if name in script.files and not MARK.search(script.files[name]):
            _add_parent(read_yaml(script.files[name], base), entry.line, reading)
            continue
        if folder and "name" in entry.key:
            name = f"{folder.value}/{name}"
        _read_named(MARK.sub("", name) if MARK.match(name) else name, entry.line, reading, base)


def _read_named(name: str, line: int, reading: Reading, base: Path | None) -> None:
    """The settings of a file beside this one; one that is not there is named as not read."""
    path = beside(base, name)
    if path is None or path.suffix not in SUFFIXES:
        reading.named.append((MARK.sub("…", name), line))
        return
    inner = _reader(path.name, "")(_file_text(path), path.parent)
    reading.doubts.append(f"with {name}, found beside it")
    _add_parent(inner, line, reading)


def _add_parent(inner: Reading, line: int, reading: Reading) -> None:
    """Settings that come before those of this file, which override them."""
    own = {entry.key for entry in reading.entries}
    added = [entry._replace(line=line) for entry in inner.entries if entry.key not in own]
    reading.entries[:0] = added
    reading.unread += [row._replace(line=line) for row in inner.unread if row.key not in own]
    reading.named += [(name, line) for name, _ in inner.named]
    reading.doubts += inner.doubts
