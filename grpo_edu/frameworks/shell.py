"""A little of bash, read and never run.

What is read: variables, ``${VAR:-default}``, ``$((…))``, quotes, arrays, comments.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .expressions import evaluate

# every part has a bounded length, so that no text makes the search slow
TOKEN = re.compile(
    r"""(?P<space>(?:[ \t]|\\\n)+)
      | (?P<comment>\#[^\n]*)
      | (?P<end>\n|;;?|&&|\|\||&|\|)
      | (?P<open>\()
      | (?P<close>\))
      | (?P<redirect>\d?>>?(?:&\d)?|<)
      | (?P<word>(?:
            '[^']*'
          | "(?:\\.|[^"\\])*"
          | \$\(\(.{0,500}?\)\)
          | \$\([^()]{0,500}(?:\([^()]{0,500}\)[^()]{0,500}){0,20}\)
          | \$\{[^}]{0,500}\}
          | \\.
          | [^\s;&|()<>'"\\]
        )+)
    """,
    re.X | re.S,
)
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.S)
PIECE = re.compile(r"'([^']*)'|\"((?:\\.|[^\"\\])*)\"|\\(.)|([^'\"\\]+)", re.S)
VARIABLE = re.compile(
    r"\$\(\((.{0,500}?)\)\)|\$\{(\w+)(?::?-([^}]{0,500}))?\}|\$\{(\w+)\[@\]\}|\$(\w+)"
    r"|(\$[({@*#?!].*)",
    re.S,
)
SETTING = re.compile(r"[+~\"']*([\w.]+)=")
WHOLE_ARRAY = re.compile(r"\"?\$\{(\w+)\[@\]\}\"?")
OWN_ARGUMENTS = ("$@", '"$@"', "$*", "${@")
KEYWORDS = ("export", "local", "declare", "readonly")
BRANCHES = ("if", "case", "for", "while", "until")
MAX_CHARACTERS = 4000  # of one word or value
MAX_WORDS = 2000  # of one array

UNKNOWN = "\0"  # stands for a word whose variables are not known
Word = tuple[str, int]
Variables = dict[str, list[Word]]


class Unread(NamedTuple):
    """What was not read.

    ``message`` about ``line``; ``key``: what it would have set, where that can be told;
    ``in_shell``: the word ``key=…`` of a script, which may set no more than a shell variable.
    """

    message: str
    line: int
    key: str = ""
    in_shell: bool = False


class Unreadable(ValueError):
    """Syntax that is not resolved here."""


def arguments(text: str) -> tuple[list[Word], list[Word], list[Unread]]:
    """All words of all commands with their lines, the comments, and what could not be read.

    A branch (``if``, ``case``, ``for``, ``while``) is not followed and is named as unread.
    """
    variables: Variables = {}
    words: list[Word] = []
    unread: list[Unread] = []
    depth = 0
    comments, commands = _commands(text)
    for command in commands:
        first, line = command[0]
        if first in BRANCHES:
            depth += 1
            start = " ".join(raw for raw, _ in command)[:60]
            what = f"the branch '{start}' is not followed: what it sets is not read"
            unread.append(Unread(what, line))
        elif first in ("fi", "esac", "done"):
            depth -= 1
        elif depth == 0:
            words += _run(command, variables, unread)
    return words, comments, unread


def _commands(text: str) -> tuple[list[Word], list[list[Word]]]:
    """Comments, and commands as lists of raw words; an array stands as ``NAME=(`` … ``)``."""
    comments: list[Word] = []
    commands: list[list[Word]] = [[]]
    place = 0
    line = 1
    in_array = False
    while place < len(text):
        match = TOKEN.match(text, place)
        kind = match.lastgroup if match else None  # None: a stray quote or backslash
        token = match[0] if match else text[place]
        if kind == "comment":
            comments.append((token.lstrip("# "), line))
        elif kind == "end" and not in_array:
            commands.append([])
        elif kind in ("open", "close", "word"):
            commands[-1].append((token, line))
            in_array = kind == "open" or (in_array and kind == "word")
        place += len(token)
        line += token.count("\n")
    return comments, [command for command in commands if command]


def _run(command: list[Word], variables: Variables, unread: list[Unread]) -> list[Word]:
    """Assignments change ``variables``; any other command gives its words, expanded."""
    while (
        len(command) > 1
        and ASSIGNMENT.fullmatch(command[0][0])
        and not ASSIGNMENT.fullmatch(command[-1][0])
        and command[1][0] != "("
    ):
        command = command[1:]  # the environment of one command: NAME=value program …
    parts = command[1:] if command[0][0] in KEYWORDS else command
    names = [ASSIGNMENT.fullmatch(raw) for raw, _ in parts]
    if len(parts) > 1 and names[0] and parts[1][0] == "(":
        array = variables.get(names[0][1], []) if names[0][2] else []
        for raw, line in parts[2:-1]:
            array = array + _expanded(raw, line, variables, unread)
            if len(array) > MAX_WORDS:
                unread.append(Unread(f"the array {names[0][1]} is too long: not read", line))
                array = []
                break
        variables[names[0][1]] = array
        return []
    if not all(names):
        return [w for raw, line in command for w in _expanded(raw, line, variables, unread)]
    for name, (_, line) in zip(names, parts, strict=True):
        assert name is not None
        variables[name[1]] = _expanded(name[3], line, variables, unread, name[1])
    return []


def _expanded(
    raw: str, line: int, variables: Variables, unread: list[Unread], variable: str = ""
) -> list[Word]:
    """A word with quotes and variables resolved.

    An array gives several words, each with its own line. What cannot be resolved gives none, or
    UNKNOWN where it may be the value of a flag. ``variable``: the one that the word is assigned to.
    """
    if array := WHOLE_ARRAY.fullmatch(raw):
        if array[1] not in variables:
            unread.append(Unread(f"the array {array[1]} is not set in this file", line))
        return variables.get(array[1], [])
    try:
        _check_size(raw)
        text = "".join(
            single or escaped or _substituted(double or bare, variables)
            for single, double, escaped, bare in PIECE.findall(raw)
        )
        _check_size(text)
        return [(text, line)]
    except ValueError as error:
        if raw.startswith(OWN_ARGUMENTS):
            return []
        word = f"{variable}={raw}" if variable else raw
        setting = SETTING.match(word)
        what = f"{word[:200]} is not read: {error}"
        unread.append(Unread(what, line, setting[1] if setting else "", bool(setting)))
        return [] if "=" in word else [(UNKNOWN, line)]


def _check_size(word: str) -> None:
    if len(word) > MAX_CHARACTERS:
        raise Unreadable(f"it has more than {MAX_CHARACTERS} characters")


def _substituted(text: str, variables: Variables) -> str:
    """A text with its variables and arithmetic replaced by their values.

    Raises:
        Unreadable: a variable that is not known, or a command that would have to be run.
        ValueError: arithmetic that cannot be computed.
    """

    def value(match: re.Match[str]) -> str:
        arithmetic, braced, default, array, plain, command = match.groups()
        if arithmetic is not None:
            return _computed(arithmetic, variables)
        if command is not None or array is not None:
            raise Unreadable(f"'{(command or array)[:40]}' would have to be run")
        name = braced or plain
        words = variables.get(name)
        if words == []:
            raise Unreadable(f"the variable {name} could not be read")
        if words and (words[0][0] or default is None):
            return words[0][0]
        if default is not None:
            return _substituted(default.strip("'\""), variables)
        raise Unreadable(f"the variable {name} is not set in this file")

    return VARIABLE.sub(value, text)


def _computed(arithmetic: str, variables: Variables) -> str:
    numbers = {
        name: int(words[0][0])
        for name, words in variables.items()
        if words and re.fullmatch(r"-?\d{1,18}", words[0][0])
    }
    expression = re.sub(r"\$\{?(\w+)\}?", r"\1", arithmetic)
    return str(evaluate(expression.replace("/", "//"), numbers))
