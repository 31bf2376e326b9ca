"""A little of bash, read and never run: variables, ``${VAR:-default}``, ``$((…))``, quotes, arrays, continued lines, comments."""

from __future__ import annotations

import re

from .expressions import evaluate

TOKEN = re.compile(
    r"""(?P<space>(?:[ \t]|\\\n)+)
      | (?P<comment>\#[^\n]*)
      | (?P<end>\n|;;?|&&|\|\||&|\|)
      | (?P<open>\()
      | (?P<close>\))
      | (?P<redirect>\d?>>?(?:&\d)?|<)
      | (?P<word>(?:'[^']*' | "(?:\\.|[^"\\])*" | \$\(\(.*?\)\) | \$\([^()]*(?:\([^()]*\)[^()]*)*\) | \$\{[^}]*\} | \\. | [^\s;&|()<>'"\\])+)
    """,
    re.X | re.S,
)
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.S)
PIECE = re.compile(r"'([^']*)'|\"((?:\\.|[^\"\\])*)\"|\\(.)|([^'\"\\]+)", re.S)
VARIABLE = re.compile(
    r"\$\(\((.*?)\)\)|\$\{(\w+)(?::?-([^}]*))?\}|\$\{(\w+)\[@\]\}|\$(\w+)|(\$[({@*#?!].*)", re.S
)
KEYWORDS = ("export", "local", "declare", "readonly")

UNKNOWN = "\0"  # stands for a word whose variables are not known
Word = tuple[str, int]


class Unreadable(ValueError):
    """Syntax that is not resolved here."""


def arguments(text: str) -> tuple[list[Word], list[Word], list[Word]]:
    """All words of all commands with their lines, the comments, and what could not be read.

    A branch (``if``, ``case``, ``for``, ``while``) is not followed: its assignments are named as unread.
    """
    variables: dict[str, list[Word]] = {}
    words: list[Word] = []
    unread: list[Word] = []
    depth = 0
    comments, commands = _commands(text)
    for command in commands:
        first, line = command[0]
        if first in ("if", "case", "for", "while", "until"):
            depth += 1
            unread.append(
                (
                    f"the branch '{' '.join(w for w, _ in command)[:60]}' is not followed: what it sets is not read",
                    line,
                )
            )
        elif first in ("fi", "esac", "done"):
            depth -= 1
        elif depth == 0:
            words += _run(command, variables, unread)
    return words, comments, unread


def _commands(text: str) -> tuple[list[Word], list[list[Word]]]:
    """Comments, and the commands as lists of raw words; an array stands as ``NAME=(`` … ``)``."""
    comments: list[Word] = []
    commands: list[list[Word]] = [[]]
    place, inside = 0, False
    while place < len(text):
        match = TOKEN.match(text, place) or re.compile(".", re.S).match(text, place)
        assert match is not None
        kind, line = match.lastgroup, text.count("\n", 0, place) + 1
        place = match.end()
        if kind == "comment":
            comments.append((match[0].lstrip("# "), line))
        elif kind == "end" and not inside:
            commands.append([])
        elif kind in ("open", "close"):
            inside = kind == "open"
            commands[-1].append((match[0], line))
        elif kind == "word":
            commands[-1].append((match[0], line))
    return comments, [c for c in commands if c]


def _run(command: list[Word], variables: dict[str, list[Word]], unread: list[Word]) -> list[Word]:
    """Assignments change ``variables``; any other command gives its words, expanded."""
    while (
        len(command) > 1
        and ASSIGNMENT.fullmatch(command[0][0])
        and not ASSIGNMENT.fullmatch(command[-1][0])
        and command[1][0] != "("
    ):
        command = command[1:]  # the environment of one command: NAME=value program …
    start = 1 if command[0][0] in KEYWORDS else 0
    first = ASSIGNMENT.fullmatch(command[start][0]) if len(command) > start else None
    if first and len(command) > start + 1 and command[start + 1][0] == "(":
        values = [
            one
            for raw, line in command[start + 2 : -1]
            for one in _expanded(raw, line, variables, unread)
        ]
        variables[first[1]] = (variables.get(first[1], []) if first[2] else []) + values
        return []
    names = [ASSIGNMENT.fullmatch(raw) for raw, _ in command[start:]]
    if all(names):
        for name, (_, line) in zip(names, command[start:], strict=True):
            assert name is not None
            variables[name[1]] = _expanded(name[3], line, variables, unread, f"{name[1]}=")
        return []
    return [one for raw, line in command for one in _expanded(raw, line, variables, unread)]


def _expanded(
    raw: str, line: int, variables: dict[str, list[Word]], unread: list[Word], before: str = ""
) -> list[Word]:
    """A word with quotes and variables resolved; an array gives several, each with its own line; what cannot be resolved, none."""
    whole = re.fullmatch(r"\"?\$\{(\w+)\[@\]\}\"?", raw)
    if whole:
        if whole[1] not in variables:
            unread.append((f"the array {whole[1]} is not set in this file", line))
        return variables.get(whole[1], [])
    try:
        pieces = PIECE.findall(raw)
        text = "".join(
            single or other or _substituted(double or bare, variables)
            for single, double, other, bare in pieces
        )
        return [(text, line)]
    except (Unreadable, ValueError, SyntaxError) as error:
        unread.append((f"{before}{raw} is not read: {error}", line))
        return [] if before or "=" in raw or raw.strip('"') in ("$@", "$*") else [(UNKNOWN, line)]


def _substituted(text: str, variables: dict[str, list[Word]]) -> str:
    def value(match: re.Match[str]) -> str:
        arithmetic, name, default, array, plain, other = match.groups()
        if arithmetic is not None:
            numbers = {
                k: int(v[0][0])
                for k, v in variables.items()
                if v and re.fullmatch(r"-?\d+", v[0][0])
            }
            result = evaluate(
                re.sub(r"\$\{?(\w+)\}?", r"\1", arithmetic).replace("/", "//"), numbers
            )
            return str(result)
        if other is not None or array is not None:
            raise Unreadable(f"'{(other or array)[:40]}' would have to be run")
        known = variables.get(name or plain or "")
        if known == []:
            raise Unreadable(f"the variable {name or plain} could not be read")
        if known and (known[0][0] or default is None):
            return known[0][0]
        if default is not None:
            return _substituted(default.strip("'\""), variables)
        raise Unreadable(f"the variable {name or plain} is not set in this file")

    return VARIABLE.sub(value, text)
