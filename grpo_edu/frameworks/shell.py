"""Launch scripts read as bash reads them, and never run.

tree-sitter's bash grammar gives the syntax tree. Commands are walked in order, with variables,
functions, loops and branches on known values. A branch on a value that cannot be known is walked
both ways: what the two ways have in common stays known.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import tree_sitter_bash
from tree_sitter import Language, Parser

from .shell_words import MARK, MAX_WORDS, Value, Word, Words, line_of, source_of

MAX_STEPS = 20_000  # statements walked
MAX_DEPTH = 60  # of functions and of eval
QUIET = ("echo", "printf", "cd", "set", "export", "true", ":", "mkdir", "shift", "wait", "trap")
COMPARES = {
    "-eq": int.__eq__,
    "-ne": int.__ne__,
    "-lt": int.__lt__,
    "-le": int.__le__,
    "-gt": int.__gt__,
    "-ge": int.__ge__,
}
LEAVES = ("exit", "return", "break", "continue")


class Unread(NamedTuple):
    """What was not read: ``message`` about ``line``; ``key``: what it would have set, if known."""

    message: str
    line: int
    key: str = ""


class Command(NamedTuple):
    """The words of one command; ``condition``: on what it depends that cannot be known."""

    words: list[Word]
    condition: str = ""

    @property
    def line(self) -> int:
        return self.words[0].line


class Leave(Exception):
    """``exit``, ``return``, ``break`` or ``continue``."""


class Script(Words):
    """A script walked once.

    Args:
        text: of the script.
        is_run: does a command's words start the run that is looked for? An ``exit`` before it
            is not followed: it is the way out of a wrong use.

    Attributes:
        commands: those that would be started, in order.
        comments: with their lines.
        files: name -> text of files that the script writes.
        notes: what was not followed.
    """

    def __init__(self, text: str, is_run: Callable[[list[Word]], bool]) -> None:
        super().__init__()
        self.is_run = is_run
        self.commands: list[Command] = []
        self.files: dict[str, str] = {}
        self.notes: list[Unread] = []
        self.functions: dict[str, Any] = {}
        self.conditions: list[str] = []
        self.output: list[str] | None = None  # where the text of a command goes that is captured
        self.input = ""
        self.locals: list[
            dict[str, Value | None]
        ] = []  # of the functions under way: what was before
        self.steps = 0
        self.depth = 0
        tree = _parsed(text)
        self.comments = [
            Word(source_of(node).lstrip("# "), line_of(node)) for node in _comments(tree)
        ]
        with suppress(Leave):
            self.walk(tree)

    # --- statements -------------------------------------------------------------------------------

    def walk(self, node: Any) -> bool | None:
        """Run a statement in thought; its status, None where that is not known."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            what = f"the script takes more than {MAX_STEPS:,} steps: the rest is not read"
            self.notes = [Unread(what, line_of(node))]
            raise Leave("exit")
        match node.type:
            case "comment" | "heredoc_body" | "heredoc_redirect" | "file_redirect":
                return True
            case "command":
                return self._command(node)
            case "redirected_statement":
                return self._redirected(node)
            case "variable_assignment":
                self._assignment(node)
                return True
            case "declaration_command" | "unset_command":
                return self._declaration(node)
            case "test_command":
                return self._test_all(node)
            case "if_statement":
                return self._if(node)
            case "case_statement":
                return self._case(node)
            case "for_statement" | "select_statement":
                return self._for(node)
            case "while_statement" | "c_style_for_statement":
                return self._while(node)
            case "function_definition":
                self.functions[source_of(node.child_by_field_name("name"))] = node
                return True
            case "list":
                return self._list(node)
            case "negated_command":
                status = self.walk(node.children[-1])
                return None if status is None else not status
            case "pipeline":
                return self._pipeline(node)
            case "compound_statement" if node.children and node.children[0].type == "((":
                number = self.computed(node)
                return None if MARK.search(number) else number != "0"
            case "subshell":
                before = self.state()
                try:
                    return self._all(node.children)
                except Leave:
                    return None
                finally:
                    self.restore(before)
            case "ERROR":
                raw = source_of(node)[:40]
                self.notes.append(Unread(f"'{raw}' is not understood", line_of(node)))
                return self._all(node.children)
        return self._all(node.children)

    def _all(self, nodes: list[Any]) -> bool | None:
        status: bool | None = True
        for node in nodes:
            if node.is_named and node.type != "comment":
                status = self.walk(node)
        return status

    def state(self) -> tuple[dict[str, Value], list[Word] | None]:
        """What a statement may change."""
        return dict(self.variables), self.arguments

    def restore(self, state: tuple[dict[str, Value], list[Word] | None]) -> None:
        """Back to an earlier state."""
        self.variables = dict(state[0])
        self.arguments = state[1]

    def _either(self, ways: list[Callable[[], Any]], reason: str) -> None:
        """Walk several ways of which one is taken: what they have in common stays known."""
        self.steps += 10  # the ways are compared
        before = self.state()
        ends = []
        self.conditions.append(reason)
        for way in ways:
            self.restore(before)
            try:
                way()
            except Leave as leave:
                if str(leave) != "exit":
                    ends.append(self.state()[0])
                continue
            ends.append(self.state()[0])
        self.conditions.pop()
        self.restore(before)
        if ends:
            self.variables = self._common(ends, reason)

    def _common(self, ends: list[dict[str, Value]], reason: str) -> dict[str, Value]:
        merged = {}
        for name in dict.fromkeys(name for end in ends for name in end):
            values = [end.get(name, {}) for end in ends]
            if all(value == values[0] for value in values):
                merged[name] = values[0]
                continue
            mark = self.unknown(f"{name} depends on {reason}")
            shared: Value = {}
            for key, word in values[0].items():
                if not all(value.get(key) == word for value in values):
                    break
                shared[key] = word
            if not shared:
                start = _shared_words([value.get("0", Word("", 0)).text for value in values])
                mark = f"{start} {mark}" if start else mark
            merged[name] = {**shared, str(len(shared)): Word(mark, 0)}
        return merged

    def _taken(self, status: bool | None, way: Callable[[], Any], reason: str) -> bool | None:
        """Walk a way if its condition holds; an ``exit`` before the run is not followed."""
        if status is None:
            self._either([way, lambda: None], reason)
            return None
        if status:
            before = self.state()
            try:
                return way()
            except Leave as leave:
                if str(leave) != "exit" or any(self.is_run(c.words) for c in self.commands):
                    raise
                self.restore(before)
                return None
        return None

    def _if(self, node: Any) -> bool | None:
        """``if``, ``elif`` and ``else``."""
        body: list[Any] = []
        conditions: list[Any] = []
        rest = []
        for child in node.children:
            if child.type in ("elif_clause", "else_clause"):
                rest.append(child)
            elif child.type == "then":
                conditions = body
                body = []
            elif child.is_named:
                body.append(child)
        status = self._all(conditions)
        otherwise = (lambda: self._otherwise(rest)) if rest else lambda: None
        if status is None:
            self._either([lambda: self._all(body), otherwise], self._about(node))
            return None
        return self._taken(True, (lambda: self._all(body)) if status else otherwise, "")

    def _otherwise(self, clauses: list[Any]) -> Any:
        first, *rest = clauses
        if first.type == "else_clause":
            return self._all(first.children)
        body: list[Any] = []
        conditions: list[Any] = []
        for child in first.children:
            if child.type == "then":
                conditions = body
                body = []
            elif child.is_named:
                body.append(child)
        status = self._all(conditions)
        if status is None:
            ways = [lambda: self._all(body), lambda: rest and self._otherwise(rest)]
            self._either(ways, self._about(first))
            return None
        return self._all(body) if status else rest and self._otherwise(rest)

    def _about(self, node: Any) -> str:
        """A branch in words, with its line."""
        start = " ".join(source_of(node).split("\n")[0].split())[:60]
        return f"the branch '{start}' (line {line_of(node)})"

    def _case(self, node: Any) -> bool | None:
        subject = self.assumed(self.text(node.child_by_field_name("value")))
        items = [child for child in node.children if child.type == "case_item"]
        if MARK.search(subject):
            ways = [lambda item=item: self._item(item) for item in items]
            self._either([*ways, lambda: None], self._about(node))
            return None
        for item in items:
            patterns = [self.text(value) for value in item.children_by_field_name("value")]
            if any(fnmatch.fnmatchcase(subject, pattern) for pattern in patterns):
                return self._taken(True, lambda item=item: self._item(item), "")
        return True

    def _item(self, item: Any) -> Any:
        patterns = item.children_by_field_name("value")
        return self._all([child for child in item.children if child not in patterns])

    def _for(self, node: Any) -> bool | None:
        name = source_of(node.child_by_field_name("variable"))
        body = node.child_by_field_name("body")
        values = node.children_by_field_name("value")
        words = [word for value in values for word in self.fields(value)]
        if not values:
            words = list((self.value("@") or {}).values())
        for word in words[:MAX_WORDS]:
            self.assign(name, word.text, word.line)
            if self._round(body):
                break
        return True

    def _round(self, body: Any) -> bool:
        """One round of a loop; True after a ``break``."""
        try:
            self.walk(body)
        except Leave as leave:
            if str(leave) not in ("break", "continue"):
                raise
            return str(leave) == "break"
        return False

    def _while(self, node: Any) -> bool | None:
        """``while``, ``until`` and ``for ((…))``."""
        body = node.child_by_field_name("body")
        until = node.children[0].type == "until"
        conditions = node.children_by_field_name("condition")
        if node.type == "c_style_for_statement":
            self._arithmetic(node.children_by_field_name("initializer"))
        while self.steps < MAX_STEPS:
            self.steps += 1
            if node.type == "c_style_for_statement":
                status = self._arithmetic(conditions)
            else:
                status = self._all(conditions)
            if status is None:
                self._either([lambda: self.walk(body), lambda: None], self._about(node))
                return None
            if status == until:
                return True
            if self._round(body):
                return True
            self._arithmetic(node.children_by_field_name("update"))
        return None

    def _arithmetic(self, nodes: list[Any]) -> bool | None:
        try:
            return bool([self.number(node) for node in nodes if node.is_named][-1:] != [0])
        except (ValueError, ArithmeticError):
            return None

    def _list(self, node: Any) -> bool | None:
        """``a && b`` and ``a || b``."""
        left, sign, *rest = node.children
        right = rest[-1]
        status = self.walk(left)
        if status is None:
            self._taken(None, lambda: self.walk(right), self._about(node))
            return None
        if status != (sign.type == "&&"):
            return status
        return self._taken(True, lambda: self.walk(right), "")

    def _pipeline(self, node: Any) -> bool | None:
        """Every part runs in a shell of its own; what the last one writes is not known."""
        status = None
        before = self.state()
        parts = [child for child in node.children if child.is_named]
        for part in parts:
            kept = self.output
            self.output = [] if part is not parts[-1] else kept
            try:
                status = self.walk(part)
            except Leave:
                status = None
            finally:
                self.output = kept
                self.restore(before)
        return status

    # --- commands ---------------------------------------------------------------------------------

    def _redirected(self, node: Any) -> bool | None:
        """Heredocs become the input; what goes into a file is kept."""
        target = None
        before = self.input
        for redirect in node.children_by_field_name("redirect"):
            for part in [redirect, *redirect.children]:
                if part.type == "heredoc_redirect":
                    self.input = self._heredoc(part)
            places = [redirect, *(c for c in redirect.children if c.type == "file_redirect")]
            for place in places:
                name = place.child_by_field_name("destination")
                is_output = place.children and place.children[0].type in (">", ">>", ">|")
                if place.type == "file_redirect" and name is not None and is_output:
                    target = self.text(name)
        body = node.child_by_field_name("body")
        try:
            if body is None:
                return True
            if target is None or MARK.search(target):
                return self.walk(body)
            status, written = self.captured(lambda: self.walk(body))
            self.files[target] = written
            return status
        finally:
            self.input = before

    def _heredoc(self, node: Any) -> str:
        bodies = [child for child in node.children if child.type == "heredoc_body"]
        starts = [source_of(c) for c in node.children if c.type == "heredoc_start"]
        if not bodies:
            return ""
        body = source_of(bodies[0])
        if starts and starts[0][:1] in "'\"\\":
            return body
        # the grammar misses variables in some heredocs; it finds them between quotes
        quotes = re.sub(r'(\\?)"', lambda m: 2 * m[1] + '\\"', body)
        return self.text(_parsed(f'"{quotes}"'))

    def captured(self, way: Callable[[], Any]) -> tuple[Any, str]:
        """The status of a way and what it writes."""
        kept = self.output
        self.output = []
        try:
            status = way()
        except Leave:
            status = None
        written = "".join(self.output)
        self.output = kept
        return status, written

    def substitution(self, node: Any) -> str:
        """The output of ``$(…)`` where only echo, printf and cat write it; else a mark."""
        raw = source_of(node)
        if raw.startswith("$((") and raw.endswith("))"):  # inside a default the grammar misses it
            return self.computed(_parsed(raw).children[0].children[0].children[0])
        before = self.state()
        recorded = len(self.commands)
        _, written = self.captured(lambda: self._all(node.children))
        del self.commands[recorded:]
        self.restore(before)
        return written

    def _command(self, node: Any) -> bool | None:
        """One command: a builtin, a function of the script, or a program."""
        name = node.child_by_field_name("name")
        words: list[Word] = []
        for child in node.children:
            if child.type == "variable_assignment":
                if name is None:
                    self._assignment(child)
            elif child.type == "herestring_redirect":
                self.input = self.text(child.children[-1])
            elif child.is_named and "redirect" not in child.type:
                words += self.fields(child)
        if not words:
            return True
        return self.start(words)

    def start(self, words: list[Word]) -> bool | None:
        """Run the words of a command in thought."""
        first = words[0].text
        texts = [word.text for word in words[1:]]
        if first in self.functions:
            return self._function(words)
        if first in LEAVES:
            raise Leave(first)
        if first == "set" and "--" in texts:
            self.arguments = words[texts.index("--") + 2 :]
        elif first == "shift":
            count = int(texts[0]) if texts and texts[0].isdigit() else 1
            self.arguments = (self.arguments or [])[count:]
        elif first in ("test", "["):
            return self._test_words([t for t in texts if t != "]"])
        elif first in ("false", "getopts"):
            return False
        elif first == "eval" or (re.search(r"(^|/)(ba|z)?sh$", first) and _inner(texts)):
            inner = " ".join(texts) if first == "eval" else _inner(texts)
            return self._nested(inner, words[0].line)
        elif first in ("read", "mapfile", "readarray"):
            self._read(texts, words[0].line)
        elif first in ("echo", "printf", "cat", "tee"):
            self._write(first, texts)
        elif first in ("source", "."):
            return True
        else:
            if self.output is not None:
                said = " ".join(MARK.sub("…", word.text) for word in words)
                self.output.append(self.unknown(f"'{said[:40]}' would have to be run"))
            if first not in QUIET:
                condition = next(iter(self.conditions), "")
                self.commands.append(Command(words, condition))
                return None
        return True

    def _write(self, first: str, texts: list[str]) -> None:
        """What ``echo``, ``printf``, ``cat`` and ``tee`` write, as far as it is plain."""
        plain = [text for text in texts if text not in ("-n", "-e", "-ne", "-en", "--")]
        if first == "echo":
            written = " ".join(plain) + ("" if "-n" in texts else "\n")
        elif (first == "printf" and plain[:1] == ["%s"]) or plain[:1] == ["%s\\n"]:
            written = "".join(text + plain[0][2:].replace("\\n", "\n") for text in plain[1:])
        elif first == "printf" and not any(sign in "".join(plain) for sign in "%\\"):
            written = "".join(plain[:1])
        elif first == "cat" and (not texts or texts == ["-"]):
            written = self.input
        elif first == "cat" and texts[0] in self.files:
            written = self.files[texts[0]]
        elif first == "tee" and plain:
            written = self.input
            self.files[plain[-1]] = written
        else:
            written = self.unknown(f"'{' '.join([first, *texts])[:40]}' would have to be run")
        if self.output is not None:
            self.output.append(written)

    def _read(self, texts: list[str], line: int) -> None:
        """``read`` and ``mapfile``: from a known text, else not known."""
        names = [text for text in texts if re.fullmatch(r"[A-Za-z_]\w*", text)]
        separator = self.variables.get("IFS", {}).get("0", Word("", 0)).text
        known = self.input if not MARK.search(self.input) and not separator else ""
        parts = [known.strip()] if "-d" in texts else known.split()
        for at, name in enumerate(names):
            mark = self.unknown(f"{name} is read from a file or the keyboard")
            text = parts[at] if known and at < len(parts) and "-a" not in texts else mark
            self.variables[name] = {"0": Word(text, line)}

    def _nested(self, text: str, line: int) -> bool | None:
        """A script inside a word: ``eval`` and ``bash -c``."""
        if MARK.search(text):
            text = MARK.sub("${UNKNOWN_PART}", text)
        if self.depth > MAX_DEPTH:
            raise Leave("exit")
        self.depth += 1
        before = len(self.commands)
        status = self.walk(_parsed(text))
        self.depth -= 1
        for at, command in enumerate(self.commands[before:], before):
            words = [word._replace(line=line + word.line - 1) for word in command.words]
            self.commands[at] = command._replace(words=words)
        return status

    def _function(self, words: list[Word]) -> bool | None:
        kept = self.arguments
        self.arguments = words[1:]
        self.locals.append({})
        self.depth += 1
        try:
            if self.depth > MAX_DEPTH:
                raise Leave("exit")
            return self.walk(self.functions[words[0].text].child_by_field_name("body"))
        except Leave as leave:
            if str(leave) == "exit":
                raise
            return None
        finally:
            self.depth -= 1
            self.arguments = kept
            for name, value in self.locals.pop().items():
                self.variables.pop(name, None)
                if value is not None:
                    self.variables[name] = value

    # --- assignments ------------------------------------------------------------------------------

    def _declaration(self, node: Any) -> bool:
        unset = node.type == "unset_command"
        for child in node.children:
            if child.type == "variable_assignment":
                if self.locals and node.children[0].type in ("local", "declare", "typeset"):
                    name = source_of(child.child_by_field_name("name"))
                    self.locals[-1].setdefault(name, self.variables.get(name))
                self._assignment(child)
            elif child.type == "variable_name" and unset:
                self.variables.pop(source_of(child), None)
            elif child.is_named and child.type != "word" and not unset:
                for word in self.fields(child):
                    name, equals, text = word.text.partition("=")
                    if equals and name.isidentifier():
                        self.assign(name, text, word.line)
        return True

    def _assignment(self, node: Any) -> None:
        place = node.child_by_field_name("name")
        value = node.child_by_field_name("value")
        line = line_of(node)
        append = any(child.type == "+=" for child in node.children)
        name, key = source_of(place), "0"
        if place.type == "subscript":
            name = source_of(place.child_by_field_name("name"))
            key = self._key(name, source_of(place.child_by_field_name("index")))
        if value is None or value.type != "array":
            text = self.text(value) if value is not None else ""
            self.assign(name, text, line, key, append)
            return
        items: Value = dict(self.variables.get(name, {})) if append else {}
        for child in value.children:
            if not child.is_named or child.type == "comment":
                continue
            for word in self.fields(child):
                named = re.fullmatch(r"\[(.*?)\]=(.*)", word.text, re.S)
                if named:
                    items[named[1].strip("'\"")] = word._replace(text=named[2])
                else:
                    items[str(len(items))] = word
        if len(items) > MAX_WORDS:
            items = {"0": Word(self.unknown(f"the array {name} is too long"), line)}
        self.variables[name] = items

    # --- conditions -------------------------------------------------------------------------------

    def _test_all(self, node: Any) -> bool | None:
        parts = [child for child in node.children if child.is_named]
        if node.children[0].type == "((":
            return self._arithmetic(parts)
        return self._test(parts[0]) if len(parts) == 1 else None

    def _test(self, node: Any) -> bool | None:
        """``[ … ]`` and ``[[ … ]]``; None where it is not known."""
        parts = [child for child in node.children if child.is_named]
        match node.type:
            case "parenthesized_expression":
                return self._test(parts[0])
            case "unary_expression" if node.children[0].type == "!":
                inner = self._test(node.children[-1])
                return None if inner is None else not inner
            case "unary_expression":
                return self._one(source_of(node.children[0]), node.children[-1])
            case "binary_expression":
                sign = source_of(node.child_by_field_name("operator"))
                left = node.child_by_field_name("left")
                right = node.child_by_field_name("right")
                if sign in ("&&", "-a", "||", "-o"):
                    return _both(sign in ("||", "-o"), self._test(left), self._test(right))
                quoted = right.type in ("string", "raw_string")
                return self._two(self._assumed(left), sign, self._assumed(right), quoted)
            case "test_command":
                return self._test_all(node)
        text = self._assumed(node)
        return None if MARK.search(text) else bool(text)

    def _assumed(self, node: Any) -> str:
        return self.assumed(self.text(node))

    def _one(self, sign: str, node: Any) -> bool | None:
        if sign == "-v":
            return source_of(node) in self.variables
        if sign not in ("-z", "-n"):
            return None
        text = self._assumed(node)
        if MARK.sub("", text):
            return sign == "-n"
        return None if text else sign == "-z"

    def _two(self, left: str, sign: str, right: str, quoted: bool) -> bool | None:
        if MARK.search(left + right):
            return None
        if sign in COMPARES:
            numbers = [text.strip() for text in (left, right)]
            if not all(re.fullmatch(r"-?\d+", text) for text in numbers):
                return False
            return COMPARES[sign](int(numbers[0]), int(numbers[1]))
        if sign in ("=", "==", "!="):
            same = left == right if quoted else fnmatch.fnmatchcase(left, right)
            return same != (sign == "!=")
        if sign == "=~" and len(left) < 200 and not re.search(r"[*+}].*[*+]\)", right):
            try:
                return bool(re.search(right, left))
            except re.error:
                return None
        return None

    def _test_words(self, texts: list[str]) -> bool | None:
        """``test`` with its words."""
        texts = [self.assumed(text) for text in texts]
        if texts[:1] == ["!"]:
            inner = self._test_words(texts[1:])
            return None if inner is None else not inner
        if len(texts) == 3:
            return self._two(texts[0], texts[1], texts[2], True)
        if len(texts) == 2 and texts[0] in ("-z", "-n") and not MARK.search(texts[1]):
            return bool(texts[1]) == (texts[0] == "-n")
        return None


def _both(either: bool, left: bool | None, right: bool | None) -> bool | None:
    """``and`` or ``or`` with values that may not be known."""
    if either in (left, right):
        return either
    return None if None in (left, right) else not either


def _inner(texts: list[str]) -> str:
    """The script in ``bash -c SCRIPT``."""
    flags = [at for at, text in enumerate(texts) if re.fullmatch(r"-\w*c", text)]
    return texts[flags[0] + 1] if flags and flags[0] + 1 < len(texts) else ""


def _shared_words(texts: list[str]) -> str:
    """The words with which all texts begin."""
    shared = []
    for words in zip(*(text.split() for text in texts), strict=False):
        if len(set(words)) > 1:
            break
        shared.append(words[0])
    return " ".join(shared)


def _parsed(text: str) -> Any:
    parser = Parser(Language(tree_sitter_bash.language()))
    return parser.parse(text.replace("\r\n", "\n").encode()).root_node


def _comments(node: Any) -> Iterator[Any]:
    if node.type == "comment":
        yield node
    for child in node.children:
        yield from _comments(child)
