"""The words of a shell script: variables, quotes, arithmetic and splitting, as bash expands them.

A part that cannot be known stands as a mark in the text; ``why`` gives its reason.
"""

from __future__ import annotations

import fnmatch
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

MARK = re.compile("\0(\\d+)\0")  # an unknown part; the number is that of its reason
MAX_CHARACTERS = 4000  # of one word or value
MAX_CUT = 300  # of a text that a pattern cuts
MAX_WORDS = 2000  # of one array
PARAMETER = re.compile(r"\$?\{?([#!]?)(\w+|[@*#?$!-])(?:\[(.*?)\])?(.*?)\}?", re.S)
OPERATOR = re.compile(r":?[-=+?]|##?|%%?|//?[#%]?|\^\^?|,,?|:|@")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}
OPERATIONS: dict[str, Callable[[int, int], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "%": lambda a, b: a - b * OPERATIONS["/"](a, b),
    "**": lambda a, b: a**b if b < 64 else 1 << 64,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "&&": lambda a, b: bool(a and b),
    "||": lambda a, b: bool(a or b),
    "&": operator.and_,
    "|": operator.or_,
    "<<": lambda a, b: a << b if b < 64 else 1 << 64,
    ">>": operator.rshift,
}


class Word(NamedTuple):
    """A text with its line (from 1)."""

    text: str
    line: int


Value = dict[str, Word]  # of a variable: one text has the key "0"
Piece = tuple[list[Word], bool]  # part of a word; several texts begin new words; quoted?


def line_of(node: Any) -> int:
    """The line of a node of the syntax tree, from 1."""
    return node.start_point[0] + 1


def source_of(node: Any) -> str:
    """The text of a node of the syntax tree."""
    return node.text.decode(errors="replace")


class Words:
    """Variables, and the words that they give."""

    def __init__(self) -> None:
        self.variables: dict[str, Value] = {}
        self.arguments: list[Word] | None = None  # None: those of the user, taken as none
        self.reasons: list[str] = []
        self.numbers: dict[str, int] = {}  # of the reasons
        self.unset: set[int] = set()  # the reasons that only say "not set in this file"

    def substitution(self, node: Any) -> str:
        """The output of ``$(…)``."""
        raise NotImplementedError

    # --- unknown parts ----------------------------------------------------------------------------

    def unknown(self, reason: str) -> str:
        """A mark in place of a text that cannot be known."""
        if reason not in self.numbers:
            self.numbers[reason] = len(self.reasons)
            self.reasons.append(reason)
        return f"\0{self.numbers[reason]}\0"

    def why(self, text: str) -> str:
        """The reason of the first unknown part of a text; empty where all is known."""
        mark = MARK.search(text)
        return self.reasons[int(mark[1])] if mark else ""

    def assumed(self, text: str) -> str:
        """A text in a condition: variables of the environment count as not set there."""
        return MARK.sub(lambda mark: "" if int(mark[1]) in self.unset else mark[0], text)

    def short(self, text: str) -> str:
        """The same text, or a mark where it is too long."""
        if len(text) <= MAX_CHARACTERS:
            return text
        return self.unknown(f"it has more than {MAX_CHARACTERS} characters")

    # --- words ------------------------------------------------------------------------------------

    def fields(self, node: Any) -> list[Word]:
        """The words that a node gives after expansion and splitting."""
        found: list[Word] = []
        current: Word | None = None
        for words, quoted in self.pieces(node):
            for number, word in enumerate(words):
                parts = [word.text] if quoted else re.split(r"[ \t\n]+", word.text)
                if number and current is not None:
                    found.append(current)
                    current = None
                for split, part in enumerate(parts):
                    if split and current is not None:
                        found.append(current)
                        current = None
                    if quoted or part:
                        before = current.text if current else ""
                        line = current.line if current and before else word.line
                        current = Word(self.short(before + part), line)
        if current is not None:
            found.append(current)
        return [each for word in found for each in self._braces(node, word)]

    def _braces(self, node: Any, word: Word) -> list[Word]:
        """``a{b,c}`` outside quotes gives ``ab ac``."""
        parts = node.children if node.type == "concatenation" else [node]
        plain = "".join(source_of(part) for part in parts if part.type == "word")
        braces = re.search(r"\{([^{}\s]*,[^{}\s]*)\}", plain)
        inner = braces[0] if braces else ""
        if not braces or inner not in word.text:
            return [word]
        return [Word(word.text.replace(inner, part, 1), word.line) for part in braces[1].split(",")]

    def text(self, node: Any) -> str:
        """What a node gives without splitting: the value of an assignment."""
        words = [word.text for words, _ in self.pieces(node) for word in [_joined(words)]]
        return self.short("".join(words))

    def pieces(self, node: Any, quoted: bool = False) -> Iterator[Piece]:
        """The parts of a word in order."""
        raw = source_of(node)
        line = line_of(node)
        match node.type:
            case "string" | "translated_string":
                start = raw.index('"') + 1
                inner = list(self._region(node, node.start_byte + start, node.end_byte - 1, True))
                if not inner or any(words for words, _ in inner):  # an empty "$@" is no word
                    yield [Word("", line)], True
                yield from inner
            case "raw_string":
                yield [Word(raw if quoted else raw[1:-1], line)], True
            case "ansi_c_string":
                escaped = re.sub(r"\\(.)", lambda m: ESCAPES.get(m[1], m[0]), raw[2:-1])
                yield [Word(escaped, line)], True
            case "concatenation" | "command_name" | "program" | "command":
                yield from self._region(node, node.start_byte, node.end_byte, quoted)
            case "simple_expansion":
                yield from self._parameter(node, quoted)
            case "expansion":
                yield from self._parameter(node, quoted)
            case "command_substitution":
                yield [Word(self.substitution(node).rstrip("\n"), line)], quoted
            case "arithmetic_expansion":
                yield [Word(self.computed(node), line)], quoted
            case "process_substitution":
                yield [Word(self.unknown(f"'{raw[:40]}' would have to be run"), line)], True
            case "brace_expression":
                yield [Word(item, line) for item in _range(raw)], True
            case _:
                yield [Word(self._literal(raw, quoted), line)], True

    def _region(self, node: Any, start: int, end: int, quoted: bool) -> Iterator[Piece]:
        """The children between two bytes, and the plain text between them."""
        plain = ("string_content", "heredoc_content", "variable_name", "special_character")
        source = node.text
        at = start
        for child in [*node.children, None]:
            if child is not None and (
                child.start_byte < at
                or child.end_byte > end
                or child.type in plain
                or not child.is_named
            ):
                continue
            stop = child.start_byte if child is not None else end
            gap = source[at - node.start_byte : stop - node.start_byte].decode(errors="replace")
            if gap:
                yield [Word(self._literal(gap, quoted), line_of(node))], True
            if child is not None:
                yield from self.pieces(child, quoted)
                at = child.end_byte

    def _literal(self, raw: str, quoted: bool) -> str:
        """A plain text without its backslashes; ``~/`` is the home of nobody known."""
        if quoted:
            return re.sub(r'\\([$`"\\])|\\\n', lambda m: m[1] or "", raw)
        text = re.sub(r"\\(.)|\\\n", lambda m: m[1] or "", raw)
        return re.sub(r"^~(?=/|$)", lambda _: self.unknown("the home folder is not known"), text)

    # --- variables --------------------------------------------------------------------------------

    def value(self, name: str) -> Value | None:
        """A variable, ``@``, ``#`` or a number; None where it is not set."""
        mine = self.arguments or []
        if name in ("@", "*"):
            return {str(at): word for at, word in enumerate(mine, 1)}
        if name == "#":
            return {"0": Word(str(len(mine)), 0)}
        if name.isdigit() and name != "0":
            return {"0": mine[int(name) - 1]} if int(name) <= len(mine) else None
        return self.variables.get(name)

    def assign(self, name: str, text: str, line: int, key: str = "0", append: bool = False) -> None:
        """``name[key]=text``, or ``+=``."""
        before = self.variables.get(name, {})
        old = before[key].text if append and key in before else ""
        kept = before if key != "0" or len(before) > 1 else {}
        self.variables[name] = {**kept, key: Word(self.short(old + text), line)}

    def _parameter(self, node: Any, quoted: bool) -> Iterator[Piece]:
        """``$NAME`` or ``${NAME…}``."""
        whole_text = source_of(node)
        raw = whole_text.lstrip()  # the grammar takes spaces before it in
        found = PARAMETER.fullmatch(raw)
        line = line_of(node)
        if raw != whole_text:
            yield [Word(whole_text[: -len(raw)], line)], quoted
        if not found:
            yield [Word(self.unknown(f"'{raw[:40]}' is not understood"), line)], quoted
            return
        prefix, name, index, rest = found.groups()
        key = self._key(name, index) if index else "0"
        whole = name in ("@", "*") or index in ("@", "*")
        star = quoted and "*" in (name, index)
        value = self.value(name)
        if prefix == "!" and not whole and value and "0" in value:
            name = value["0"].text
            value = self.value(name)
        words = list((value or {}).values()) if whole else []
        if not whole and value and key in value:
            words = [value[key]._replace(line=line)]
        if prefix == "#":
            size = len(words) if whole else len(words[0].text) if words else 0
            unknown = self.why(words[0].text) if words and not whole else ""
            yield [Word(self.unknown(unknown) if unknown else str(size), line)], quoted
            return
        if rest:
            yield from self._changed(node, rest, words, (name, key, whole), quoted)
            return
        if not words and not (whole and (value is not None or name in ("@", "*"))):
            words = [Word(self._not_set(name, whole), line)]
        if star:
            words = [_joined(words)]
        yield words, quoted

    def _not_set(self, name: str, array: bool = False) -> str:
        kind = "array" if array else "variable"
        mark = self.unknown(f"the {kind} {name} is not set in this file")
        if not re.fullmatch(r"HOME|PWD|USER|UID|HOSTNAME|RANDOM|SECONDS|BASH.*|OS.*|\W|0", name):
            self.unset.add(int(mark[1:-1]))
        return mark

    def _key(self, name: str, index: str) -> str:
        """The key of an item: a number, or a text in an array with named keys."""
        plain = index.strip("'\"")
        if variable := re.fullmatch(r"\$\{?(\w+)\}?", plain):
            plain = (self.value(variable[1]) or {}).get("0", Word("", 0)).text
        value = self.variables.get(name, {})
        if plain not in value and re.fullmatch(r"[A-Za-z_]\w*", plain) and plain in self.variables:
            plain = self.variables[plain].get("0", Word("", 0)).text
        if re.fullmatch(r"-\d+", plain) and value:
            return list(value)[int(plain)] if int(plain) >= -len(value) else plain
        return plain

    def _changed(
        self, node: Any, rest: str, words: list[Word], place: tuple[str, str, bool], quoted: bool
    ) -> Iterator[Piece]:
        """``${NAME:-default}``, ``${NAME%pattern}``, ``${NAME/old/new}`` and their like."""
        name, key, whole = place
        line = line_of(node)
        match = OPERATOR.match(rest)
        sign = match[0] if match else ""
        start = node.end_byte - 1 - len(rest.encode()) + len(sign)
        operand = list(self._region(node, start, node.end_byte - 1, quoted))
        kind = sign.lstrip(":")
        empty = not words or (sign[:1] == ":" and not "".join(word.text for word in words))
        if kind == "?" and empty:
            yield [Word(self._not_set(name), line)], quoted
        elif kind in ("-", "=") and empty:
            yield from operand
            if kind == "=":
                self.assign(name, "".join(_joined(piece).text for piece, _ in operand), line, key)
        elif kind in ("-", "=", "?"):
            yield words, quoted
        elif kind == "+":
            yield from [] if empty else operand
        else:
            words = words or ([] if whole else [Word(self._not_set(name), line)])
            of = ("@" if name in ("@", "*") else "array") if whole else ""
            yield self._cut(sign, operand, words, of), quoted

    def _cut(self, sign: str, operand: list[Piece], words: list[Word], whole: str) -> list[Word]:
        """``#pattern``, ``%pattern``, ``/old/new``, ``^^``, ``,,`` or ``:offset:length``."""
        given = "".join(_joined(piece).text for piece, _ in operand)
        if any(len(word.text) > MAX_CUT for word in words) and sign != ":":
            given = self.unknown(f"a text of more than {MAX_CUT} characters is cut")
        if sign == ":":
            numbers = [int(part) for part in re.findall(r"-?\d+", given)]
            start, *length = numbers or [0]
            if whole == "@":  # $0 has number 0
                start = max(start - 1, 0)
            stop = start + length[0] if length and length[0] >= 0 else (length or [None])[0]
            return (
                words[start:stop] if whole else [w._replace(text=w.text[start:stop]) for w in words]
            )
        return [
            word
            if MARK.search(word.text)
            else word._replace(
                text=self.unknown(self.why(given))
                if MARK.search(given)
                else _edited(word.text, sign, given)
            )
            for word in words
        ]

    # --- arithmetic -------------------------------------------------------------------------------

    def computed(self, node: Any) -> str:
        """The value of ``$((…))``, or a mark."""
        try:
            results = [self.number(child) for child in node.children if child.is_named]
        except (ValueError, ArithmeticError) as error:
            raw = source_of(node)
            return self.unknown(self.why(str(error)) or f"'{raw[:40]}' cannot be computed")
        return str(results[-1] if results else 0)

    def number(self, node: Any) -> int:
        """Integer arithmetic on a syntax tree.

        Raises:
            ValueError: a part is no number; a mark in the message says why it is not known.
            ArithmeticError: a division by zero.
        """
        parts = [child for child in node.children if child.is_named]
        signs = [child.type for child in node.children if not child.is_named]
        match node.type:
            case "parenthesized_expression":
                return self.number(parts[0])
            case "binary_expression" if signs[0] in OPERATIONS:
                result = OPERATIONS[signs[0]](self.number(parts[0]), self.number(parts[1]))
                if abs(result) >= 1 << 63:
                    raise ValueError("too large")
                return int(result)
            case "binary_expression" | "variable_assignment":
                result = self.number(parts[1])
                if signs[0] != "=":
                    result = OPERATIONS[signs[0][:-1]](self.number(parts[0]), result)
                self.assign(source_of(parts[0]), str(result), line_of(node))
                return result
            case "postfix_expression" | "unary_expression" if signs[0] in ("++", "--"):
                result = self.number(parts[0])
                step = 1 if signs[0] == "++" else -1
                self.assign(source_of(parts[0]), str(result + step), line_of(node))
                return result if node.type == "postfix_expression" else result + step
            case "unary_expression":
                result = self.number(parts[-1])
                return {"-": -result, "+": result, "!": int(not result), "~": ~result}[signs[0]]
            case "ternary_expression":
                return self.number(parts[1] if self.number(parts[0]) else parts[2])
        text = self.text(node)
        if re.fullmatch(r"[A-Za-z_]\w*", text):
            text = (self.value(text) or {"0": Word(self._not_set(text), 0)})["0"].text
        if not re.fullmatch(r"\s*-?(0x)?\d+\s*", text):
            raise ValueError(text)
        return int(text, 0 if "x" in text else 10)


def _joined(words: list[Word]) -> Word:
    return Word(" ".join(word.text for word in words), words[0].line if words else 0)


def _range(raw: str) -> list[str]:
    """``{1..3}`` -> 1 2 3."""
    numbers = [int(part) for part in re.findall(r"-?\d+", raw)]
    if len(numbers) < 2 or not re.fullmatch(r"\{-?\d+\.\.-?\d+(\.\.-?\d+)?\}", raw):
        return [raw]
    first, last, *step = numbers
    size = abs(step[0]) if step and step[0] else 1
    steps = range(0, min(abs(last - first), MAX_WORDS) + 1, size)
    return [str(first + at * (1 if last >= first else -1)) for at in steps]


def _edited(text: str, sign: str, given: str) -> str:
    """A text after ``${…%pattern}``, ``${…/old/new}`` or a change of case."""
    if sign in ("^^", ",,"):
        return text.upper() if sign == "^^" else text.lower()
    if sign in ("^", ","):
        return (text[:1].upper() if sign == "^" else text[:1].lower()) + text[1:]
    pattern, _, new = given.partition("/") if sign[0] == "/" else (given, "", "")
    regex = re.compile(fnmatch.translate(pattern).replace("\\Z", "").replace("\\z", ""), re.S)
    if sign[0] == "/":
        lazy = regex.pattern.replace(".*", "[^/]*") if sign == "//" else regex.pattern
        return re.sub(lazy, lambda _: new, text, count=0 if sign == "//" else 1)
    cuts = range(len(text) + 1)
    if sign in ("#", "##"):
        ends = [at for at in cuts if fnmatch.fnmatchcase(text[:at], pattern)]
        return text[(ends[0] if sign == "#" else ends[-1]) if ends else 0 :]
    starts = [at for at in cuts if fnmatch.fnmatchcase(text[at:], pattern)]
    return text[: (starts[-1] if sign == "%" else starts[0]) if starts else len(text)]
