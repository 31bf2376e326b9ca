"""Python files and notebooks: the settings that a ``GRPOConfig(...)`` ends up with.

Nothing is executed. Statements are walked in order, with the values that are known; a branch on a
value that cannot be known is walked both ways, and what the ways have in common stays known.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from .expressions import OPERATORS

TRAINERS = {"GRPOConfig": "GRPO", "RLOOConfig": "RLOO", "GMPOConfig": "GMPO"}
PARSERS = ("HfArgumentParser", "TrlParser")
MAX_STEPS = 20_000  # statements walked
MAX_DEPTH = 20  # of calls
MAX_SIZE = 2_000  # of a list or a text
PLAIN = (int, float, str, bool, abs, max, min, round, len, list, tuple, sum, sorted)
CALLS = {function.__name__: function for function in PLAIN}


class Value(NamedTuple):
    """What an expression gives.

    Args:
        data: a plain value, a list or table of values, or a ``Thing``; None where it is not known.
        why: why it is not known; empty where it is.
        switch: what sets it from outside: ``--beta (line 4)``.
        line: where a field or a key got it.
    """

    data: Any = None
    why: str = ""
    switch: str = ""
    line: int = 0


class Thing:
    """An object with fields: a config, the arguments of a parser, a dataclass of the file.

    Args:
        kind: the name of its class.
        line: where it is made.
        trainer: ``GRPO``, ``RLOO`` or ``GMPO`` where it is a config of TRL.

    Attributes:
        fields: name -> value.
        spilled: keywords that could not be followed, with their line.
        classes: those that a parser makes.
        merged: the lines of the other configs that it may be in place of.
        own: the fields that classes of the file declare.
    """

    def __init__(self, kind: str, line: int, trainer: str = "") -> None:
        self.kind = kind
        self.line = line
        self.trainer = trainer
        self.fields: dict[str, Value] = {}
        self.spilled: list[tuple[str, int]] = []
        self.classes: list[str] = []
        self.merged: set[int] = set()
        self.own: set[str] = set()

    def put(self, values: dict[str, Value], line: int) -> None:
        """Set fields."""
        self.fields |= {
            name: each._replace(line=each.line or line) for name, each in values.items()
        }


class Leave(Exception):
    """``return``, ``raise``, ``break`` or ``continue``."""


class TooLong(Exception):
    """The file takes more steps than are walked."""


class Module:
    """A Python file walked once.

    Attributes:
        configs: line -> config of TRL that is made there.
        runs: configs as they are when a trainer gets them.
        outside: what the command line, the environment or another call would change.
        imported: modules.
        origins: imported name -> its module.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.names: dict[str, Value] = {"__name__": Value("__main__")}
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self.defined: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
        self.configs: dict[int, Thing] = {}
        self.runs: list[Thing] = []
        self.outside: list[str] = []
        self.returns: list[list[Value]] = []
        self.steps = 0
        self.origins = {
            alias.asname or alias.name: "." * node.level + (node.module or "")
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        self.imported = [name for node in ast.walk(tree) for name in _imported(node)]
        for statement in tree.body:  # a raise on the way is not followed
            with suppress(Leave):
                self.walk([statement])
        for function in self.defined:  # that nothing calls
            if not self.configs:
                self.run(function, [], {})

    # --- statements -------------------------------------------------------------------------------

    def walk(self, body: list[ast.stmt]) -> None:
        """Statements in order."""
        for statement in body:
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise TooLong
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        """One statement."""
        match node:
            case ast.Assign(targets, value):
                given = self.value(value)
                for target in targets:
                    self.assign(target, given)
            case ast.AnnAssign(target, _, ast.expr() as value):
                self.assign(target, self.value(value))
            case ast.AugAssign(target, op, value):
                before = copy.copy(target)
                before.ctx = ast.Load()
                both = ast.copy_location(ast.BinOp(before, op, value), node)
                self.assign(target, self.value(both))
            case ast.Expr(value):
                self.value(value)
            case ast.If(test, body, orelse):
                self._if(test, body, orelse)
            case ast.For(target, items, body, orelse) | ast.AsyncFor(target, items, body, orelse):
                self._for(target, items, body)
                self.walk(orelse)
            case ast.While(test, body):
                condition = self.value(test)
                if condition.why or condition.data:
                    self._round(body)
            case ast.With(items, body) | ast.AsyncWith(items, body):
                for item in items:
                    given = self.value(item.context_expr)
                    if item.optional_vars is not None:
                        self.assign(item.optional_vars, given)
                self.walk(body)
            case ast.Try(body, _, orelse, final):
                self.walk([*body, *orelse, *final])
            case ast.Match(_, cases):
                self.either([lambda case=case: self.walk(case.body) for case in cases], node.lineno)
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
                self.functions[name] = node  # type: ignore[assignment]
                self.defined.append(self.functions[name])
                self.names.pop(name, None)
            case ast.ClassDef(name):
                self.classes[name] = node
                methods = [row for row in node.body if isinstance(row, ast.FunctionDef)]
                self.defined += methods if not self._trainer_of(name) else []
            case ast.Return(value):
                if self.returns:
                    self.returns[-1].append(self.value(value) if value else Value())
                raise Leave
            case ast.Raise() | ast.Break() | ast.Continue():
                raise Leave

    def assign(self, target: ast.expr, given: Value) -> None:
        """``name = …``, ``thing.field = …``, ``table[key] = …`` or several of them."""
        match target:
            case ast.Name(name):
                self.names[name] = given
            case ast.Attribute(owner, name):
                thing = self.value(owner).data
                if isinstance(thing, Thing):
                    thing.fields[name] = given._replace(line=target.lineno)
            case ast.Subscript(owner, index):
                table = self.value(owner).data
                key = self.value(index)
                if isinstance(table, dict) and not key.why and _is_key(key.data):
                    table[key.data] = given._replace(line=target.lineno)
            case ast.Tuple(parts) | ast.List(parts):
                known = isinstance(given.data, list) and len(given.data) == len(parts)
                several = given.data if known else [Value(why=NOT_LITERAL)] * len(parts)
                for part, each in zip(parts, several, strict=True):
                    self.assign(part, each)

    def _if(self, test: ast.expr, body: list[ast.stmt], orelse: list[ast.stmt]) -> None:
        condition = self.value(test)
        if condition.why:
            self.either([lambda: self.walk(body), lambda: self.walk(orelse)], test.lineno)
            return
        if condition.switch:
            self.outside.append(
                f"line {test.lineno}: 'if {ast.unparse(test)[:40]}' is taken as the default of "
                f"{condition.switch} has it"
            )
        self.walk(body if condition.data else orelse)

    def _for(self, target: ast.expr, iterated: ast.expr, body: list[ast.stmt]) -> None:
        """One round, with the first item: a second one is another run."""
        items = self.value(iterated).data
        if not isinstance(items, (list, dict)):
            first = Value(why=f"is set by the loop of line {target.lineno}")
        elif not items:
            return
        else:
            first = Value(next(iter(items))) if isinstance(items, dict) else items[0]
            if len(items) > 1:
                first = first._replace(switch=f"the loop of line {target.lineno}")
        self.assign(target, first)
        self._round(body)

    def _round(self, body: list[ast.stmt]) -> None:
        with suppress(Leave):
            self.walk(body)

    def either(self, ways: list[Callable[[], Any]], line: int) -> None:
        """Walk several ways of which one is taken."""
        self.steps += 10  # the ways are copied and compared
        before = self.names
        ends = []
        for way in ways:
            self.names = copy.deepcopy(before)
            with suppress(Leave):
                way()
                ends.append(self.names)
        self.names = before
        for name in dict.fromkeys(name for end in ends for name in end):
            self.names[name] = _merged([end[name] for end in ends if name in end], line)
        self._keep(self.names)

    def _keep(self, names: dict[str, Value]) -> None:
        """The configs of these names are those that count: the ways worked on copies."""
        for each in names.values():
            if isinstance(each.data, Thing) and each.data.trainer:
                self.configs[each.data.line] = each.data

    # --- expressions ------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Value:
        """The value of an expression, or why it is not known."""
        try:
            made = self._value(node)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            made = Value(why=NOT_LITERAL)
        named = isinstance(node, ast.Name) and node.id in self.names
        if made.why.endswith(NOT_LITERAL) and not named:
            return made._replace(why=f"= {ast.unparse(node)[:60]} {NOT_LITERAL}")
        return made

    def _value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value):
                return Value(value)
            case ast.Name(name):
                return self.names.get(name, Value(why=NOT_LITERAL))
            case ast.List(parts) | ast.Tuple(parts) | ast.Set(parts):
                return Value([self.value(part) for part in parts])
            case ast.Dict(keys, values):
                return Value(self._table(keys, values))
            case ast.Attribute(owner, name):
                return self._field(self.value(owner), name)
            case ast.Subscript(owner, index):
                inner = self.value(owner)
                key = self.value(index)
                if inner.why or key.why:
                    return Value(why=inner.why or key.why)
                return _as_value(inner.data[key.data])
            case ast.IfExp(test, body, orelse):
                condition = self.value(test)
                if condition.why:
                    return _merged([self.value(body), self.value(orelse)], node.lineno)
                taken = self.value(body if condition.data else orelse)
                return taken._replace(switch=taken.switch or condition.switch)
            case ast.BoolOp(op, operands):
                return self._first_word(isinstance(op, ast.Or), operands)
            case ast.UnaryOp(op, operand):
                inner = self.value(operand)
                signs = {ast.USub: lambda x: -x, ast.Not: lambda x: not x, ast.UAdd: lambda x: +x}
                return inner if inner.why else inner._replace(data=signs[type(op)](inner.data))
            case ast.BinOp(left, op, right):
                return _combined(op, self.value(left), self.value(right))
            case ast.Compare(left, [op], [right]):
                return _compared(op, self.value(left), self.value(right))
            case ast.JoinedStr(parts):
                inner = [
                    self.value(p.value if isinstance(p, ast.FormattedValue) else p) for p in parts
                ]
                if unknown := [part for part in inner if part.why or isinstance(part.data, Thing)]:
                    return Value(why=unknown[0].why or NOT_LITERAL)
                switch = next((part.switch for part in inner if part.switch), "")
                return Value("".join(str(part.data) for part in inner)[:MAX_SIZE], switch=switch)
            case ast.Call():
                return self.call(node)
        return Value(why=NOT_LITERAL)

    def _table(self, keys: list[ast.expr | None], values: list[ast.expr]) -> dict[Any, Value]:
        table: dict[Any, Value] = {}
        for key, item in zip(keys, values, strict=True):
            given = self.value(item)
            if key is None:
                table |= _spread(given._replace(line=item.lineno), ast.unparse(item))
                continue
            name = self.value(key)
            if _is_key(name.data):
                table[name.data] = given._replace(line=key.lineno)
        return table

    def _field(self, owner: Value, name: str) -> Value:
        if isinstance(owner.data, Thing) and name in owner.data.fields:
            return owner.data.fields[name]
        return Value(why=NOT_LITERAL)

    def _first_word(self, first_true: bool, operands: list[ast.expr]) -> Value:
        """``a or b``, ``a and b``."""
        switch = ""
        for operand in operands:
            given = self.value(operand)
            switch = switch or given.switch
            if given.why or bool(given.data) == first_true:
                break
        return given._replace(switch=switch)

    # --- calls ------------------------------------------------------------------------------------

    def call(self, node: ast.Call) -> Value:
        """A call: of a config, a trainer, a parser, a function of the file or a builtin."""
        name = _last(node.func)
        plain = isinstance(node.func, ast.Name)
        arguments = [self.value(argument) for argument in node.args]
        keywords: dict[str, Value] = {}
        for keyword in node.keywords:
            given = self.value(keyword.value)._replace(line=keyword.value.lineno)
            shown = ast.unparse(keyword.value)
            keywords |= {keyword.arg: given} if keyword.arg else _spread(given, shown)
        if plain and name in self.functions:
            return self.run(self.functions[name], arguments, keywords)
        if self._trainer_of(name) or (plain and name in self.classes):
            return Value(self._made(name, node.lineno, keywords))
        if name.endswith("Trainer") and name.removesuffix("Trainer") + "Config" in TRAINERS:
            self._run(name, node, keywords.get("args"), arguments)
        if name in PARSERS:
            listed = [*node.args, *(k.value for k in node.keywords)][:1]
            parser = Thing("parser", node.lineno)
            for each in getattr(listed[0], "elts", listed):
                parser.classes.append(_last(each))
            return Value(parser)
        if isinstance(node.func, ast.Attribute):
            made = self._method(node.func, arguments, keywords, node.lineno)
            if made is not None:
                return made
        match name, arguments:
            case "dict", []:
                return Value(keywords)
            case "dict", [Value(data=dict() as first)]:
                return Value({**first, **keywords})
            case "ArgumentParser", _:
                return Value(Thing("parser", node.lineno))
            case "setattr", [Value(data=Thing() as thing), Value(data=str(field)), given]:
                thing.fields[field] = given._replace(line=node.lineno)
                return Value()
            case "getattr", [owner, Value(data=str(field)), *default]:
                there = self._field(owner, field)
                return default[0] if there.why and default and not owner.why else there
            case (("deepcopy" | "copy"), [given]):
                return copy.deepcopy(given)
            case (("vars" | "asdict"), [Value(data=Thing() as thing)]):
                return Value(dict(thing.fields))
            case "replace", [Value(data=Thing() as thing)]:
                changed = copy.deepcopy(thing)
                changed.put(keywords, node.lineno)
                return Value(changed)
        if plain and name in CALLS and not keywords:
            data = [plain_data(argument) for argument in arguments]
            switch = next((each.switch for each in arguments if each.switch), "")
            made = CALLS[name](*data)
            return Value(
                [Value(x) for x in made] if isinstance(made, (list, tuple)) else made, "", switch
            )
        return Value(why=NOT_LITERAL)

    def _run(self, name: str, node: ast.Call, config: Value | None, arguments: list[Value]) -> None:
        """A trainer gets its config, or TRL's defaults where it gets none."""
        configs = [
            given for given in (config, *arguments) if given and isinstance(given.data, Thing)
        ]
        trained = [given.data for given in configs if given.data.trainer]
        if trained:
            self.runs.append(copy.deepcopy(trained[0]))
        elif name in ("GRPOTrainer", "RLOOTrainer"):
            made = Thing(name, node.lineno, TRAINERS[f"{name.removesuffix('Trainer')}Config"])
            if config is not None:
                made.spilled.append((f"args {config.why}: its settings are not read", node.lineno))
            self.runs.append(made)

    def _method(
        self, function: ast.Attribute, arguments: list[Value], keywords: dict[str, Value], line: int
    ) -> Value | None:
        """A method of a table, of a parser or of the environment; None: of another thing."""
        source = ast.unparse(function)
        if source in ("os.environ.get", "os.getenv") and arguments:
            shown = f"the environment's {arguments[0].data} (line {line})"
            given = arguments[1] if len(arguments) > 1 else Value(why=f"comes from {shown}")
            return given._replace(switch=shown)
        if source == "super().__init__":
            me = self.names.get("self", Value()).data
            if isinstance(me, Thing):
                me.put(keywords, line)
            return Value()
        owner = self.value(function.value).data
        if isinstance(owner, Thing) and owner.kind == "parser":
            return self._parser(function.attr, owner, arguments, keywords, line)
        if not isinstance(owner, dict):
            return None
        match function.attr, arguments:
            case "update", []:
                owner.update(_at(keywords, line))
                return Value()
            case "update", [more]:
                owner.update(_at({**_spread(more, "…"), **keywords}, line))
                return Value()
            case "setdefault", [Value(data=str(key)), given]:
                return owner.setdefault(key, given._replace(line=line))
            case "get", [Value(data=str(key)), *default]:
                return owner.get(key, default[0] if default else Value())
            case "pop", [Value(data=str(key)), *default]:
                return owner.pop(key, default[0] if default else Value())
            case "copy", []:
                return Value(copy.deepcopy(owner))
        return None

    def _parser(
        self,
        name: str,
        parser: Thing,
        arguments: list[Value],
        keywords: dict[str, Value],
        line: int,
    ) -> Value | None:
        """``add_argument``, ``set_defaults``, ``parse_args``, and Hugging Face's parsers."""
        if name == "add_argument" and arguments:
            flags = [str(each.data) for each in arguments]
            flag = next((each for each in flags if each.startswith("--")), flags[0])
            action = keywords.get("action", Value()).data
            given = keywords.get("default", Value(False if action == "store_true" else None))
            if action == "store_false" and "default" not in keywords:
                given = Value(True)
            if keywords.get("required", Value()).data or not flag.startswith("-"):
                given = Value(why=f"comes from {flag} on the command line (line {line})")
            field = keywords.get("dest", Value(flag.lstrip("-").replace("-", "_"))).data
            parser.fields[str(field)] = given._replace(switch=f"{flag} (line {line})")
        elif name == "set_defaults":
            parser.put(keywords, line)
        elif name.startswith("parse_") and parser.classes:
            made = [Value(self._made(each, line, {})) for each in parser.classes]
            for each in made:
                if each.data.trainer:
                    what = "the command line sets fields that are not in this file"
                    self.outside.append(f"line {line}: {what}")
            return Value(made)
        elif name in ("parse_args", "parse_known_args"):
            made = copy.deepcopy(parser)
            made.kind = "arguments"
            return Value(made) if name == "parse_args" else Value([Value(made), Value([])])
        return Value()

    def run(
        self,
        function: ast.FunctionDef | ast.AsyncFunctionDef,
        arguments: list[Value],
        keywords: dict[str, Value],
    ) -> Value:
        """Walk the body of a function; what it returns."""
        if len(self.returns) > MAX_DEPTH:
            return Value(why=NOT_LITERAL)
        outer = self.names
        self.names = {**outer, **self._parameters(function, arguments, keywords)}
        self.returns.append([])
        with suppress(Leave):
            self.walk(function.body)
        inner = {v.data.line: v for v in self.names.values() if isinstance(v.data, Thing)}
        for name, each in outer.items():  # branches in the function worked on copies
            if isinstance(each.data, Thing):
                outer[name] = each._replace(data=inner.get(each.data.line, each).data)
        self.names = outer
        returned = self.returns.pop()
        return _merged(returned, function.lineno) if returned else Value()

    def _parameters(
        self, function: Any, arguments: list[Value], keywords: dict[str, Value]
    ) -> dict[str, Value]:
        """Parameter -> its argument, or its default, which another call may change."""
        places = [*function.args.posonlyargs, *function.args.args]
        names = [place.arg for place in places]
        only = [place.arg for place in function.args.kwonlyargs]
        made = {n: Value(why=f"is a parameter of {function.name}()") for n in (*names, *only)}
        defaults = zip(names[::-1], function.args.defaults[::-1], strict=False)
        for name, default in [*defaults, *zip(only, function.args.kw_defaults, strict=True)]:
            if default is not None:
                shown = f"{name} of {function.name}() (line {function.lineno})"
                made[name] = self.value(default)._replace(switch=shown)
        if function.args.kwarg:
            rest = {name: each for name, each in keywords.items() if name not in made}
            made[function.args.kwarg.arg] = Value(rest)
        made.update(zip(names, arguments, strict=False))
        return made | {name: given for name, given in keywords.items() if name in made}

    # --- configs ----------------------------------------------------------------------------------

    def _trainer_of(self, name: str) -> str:
        """The trainer of a config class: TRL's own, or a subclass in this file; empty: none."""
        for _ in range(MAX_DEPTH):
            if name not in self.classes:
                break
            bases = [_last(base) for base in self.classes[name].bases]
            name_of_base = next((b for b in bases if b in TRAINERS or b in self.classes), "")
            if name_of_base == name:  # class GRPOConfig(trl.GRPOConfig)
                break
            name = name_of_base
        return TRAINERS.get(name, "")

    def _made(self, name: str, line: int, keywords: dict[str, Value]) -> Thing:
        """An object of a config class or of a class of the file, with its fields."""
        thing = Thing(name, line, self._trainer_of(name))
        self._class_fields(thing, name, 0)
        thing.own = set(thing.fields)
        for key, given in keywords.items():
            if key.startswith("**"):
                what = f"{key} {NOT_LITERAL}: its keys are not read"
                thing.spilled.append((what, given.line or line))
            else:
                thing.fields[key] = given
        own = self.classes.get(name)
        for method in own.body if own else []:
            if isinstance(method, ast.FunctionDef) and method.name in ("__init__", "__post_init__"):
                self.run(method, [Value(thing)], keywords)
        if thing.trainer:
            self.configs[line] = thing
        return thing

    def _class_fields(self, thing: Thing, name: str, depth: int) -> None:
        """The defaults of a class of the file, those of its bases first."""
        own = self.classes.get(name)
        if own is None or depth > MAX_DEPTH:
            return
        for base in own.bases:
            if _last(base) != name:
                self._class_fields(thing, _last(base), depth + 1)
        for row in own.body:
            match row:
                case ast.AnnAssign(ast.Name(field), _, ast.expr() as value):
                    thing.fields[field] = self._default(value, row.lineno)
                case ast.Assign([ast.Name(field)], value):
                    thing.fields[field] = self._default(value, row.lineno)

    def _default(self, value: ast.expr, line: int) -> Value:
        """A dataclass default, also that of ``field(default=…)``."""
        if isinstance(value, ast.Call) and _last(value.func) == "field":
            given = {keyword.arg: keyword.value for keyword in value.keywords}
            value = given.get("default", given.get("default_factory", value))
        if isinstance(value, ast.Lambda):
            value = value.body
        return self.value(value)._replace(line=line)


NOT_LITERAL = "is not a literal"


def chosen(module: Module) -> tuple[Thing | None, list[Thing]]:
    """The config that is read, and the others of the file."""
    configs = [*module.runs, *module.configs.values()]
    if not configs:
        return None, []
    first = configs[0]
    same = {first.line, *first.merged}
    others = {each.line: each for each in configs if each.line not in same}
    return first, list(others.values())


def settings(thing: Thing) -> Iterator[tuple[str, Value]]:
    """The fields of a config, their values plain."""
    for name, given in thing.fields.items():
        try:
            yield name, given._replace(data=plain_data(given))
        except ValueError as error:
            yield name, given._replace(why=str(error))


def plain_data(value: Value) -> Any:
    """A value without ``Value`` inside.

    Raises:
        ValueError: a part of it is not known; the message says why.
    """
    if value.why or isinstance(value.data, Thing):
        raise ValueError(value.why or f"= {value.data.kind}(…) {NOT_LITERAL}")
    if isinstance(value.data, list):
        return [plain_data(item) for item in value.data]
    if isinstance(value.data, dict):
        return {key: plain_data(item) for key, item in value.data.items()}
    return value.data


def _combined(op: ast.operator, left: Value, right: Value) -> Value:
    """Arithmetic on numbers; sums of texts, lists and tables."""
    if left.why or right.why:
        return Value(why=left.why or right.why)
    switch = left.switch or right.switch
    if isinstance(op, ast.BitOr) and isinstance(left.data, dict):
        return Value({**left.data, **right.data}, switch=switch)
    numbers = all(isinstance(x, (int, float)) for x in (left.data, right.data))
    if not numbers and not (isinstance(op, ast.Add) and type(left.data) is type(right.data)):
        raise TypeError("no arithmetic on these")
    if isinstance(op, ast.Pow):
        if abs(right.data) > 64 or abs(left.data) > 1e6:
            raise ValueError("too large")
        return Value(left.data**right.data, switch=switch)
    result = OPERATORS[type(op)](left.data, right.data)
    if isinstance(result, (str, list)) and len(result) > MAX_SIZE:
        raise ValueError("too large")
    return Value(result, switch=switch)


def _compared(op: ast.cmpop, left: Value, right: Value) -> Value:
    if left.why or right.why:
        return Value(why=left.why or right.why)
    one, other = plain_data(left), plain_data(right)
    match op:
        case ast.Is() | ast.IsNot():
            result = (one is other) == isinstance(op, ast.Is)
        case ast.In() | ast.NotIn():
            result = (one in other) == isinstance(op, ast.In)
        case ast.LtE():
            result = one <= other
        case ast.GtE():
            result = one >= other
        case _:
            result = OPERATORS[type(op)](one, other)
    return Value(result, switch=left.switch or right.switch)


def _merged(values: list[Value], line: int) -> Value:
    """What several ways have in common."""
    first, *others = values
    tables = [each.data for each in values]
    if all(isinstance(thing, Thing) and thing.kind == first.data.kind for thing in tables):
        for other in tables[1:]:
            first.data.spilled += [row for row in other.spilled if row not in first.data.spilled]
            first.data.merged |= {other.line, *other.merged} - {first.data.line}
        first.data.fields = _merged_tables([thing.fields for thing in tables], line)
        return first
    if all(isinstance(table, dict) for table in tables):
        return first._replace(data=_merged_tables(tables, line))
    if all((first.data, first.why) == (other.data, other.why) for other in others):
        return first
    shown = dict.fromkeys("?" if each.why else str(each.data)[:30] for each in values)
    return Value(why=f"depends on line {line} ({' or '.join(shown)})", line=first.line)


def _merged_tables(tables: list[dict[str, Value]], line: int) -> dict[str, Value]:
    keys = dict.fromkeys(key for table in tables for key in table)
    absent = Value("its default")
    return {key: _merged([table.get(key, absent) for table in tables], line) for key in keys}


def _spread(more: Value, shown: str) -> dict[str, Value]:
    """What ``**table`` hands over; a table that is not known keeps its stars."""
    if isinstance(more.data, dict) and not more.why:
        return {key: v._replace(line=v.line or more.line) for key, v in more.data.items()}
    return {f"**{shown}": more}


def _at(table: dict[str, Value], line: int) -> dict[str, Value]:
    return {key: each._replace(line=each.line or line) for key, each in table.items()}


def _as_value(item: Any) -> Value:
    return item if isinstance(item, Value) else Value(item)


def _is_key(key: Any) -> bool:
    return isinstance(key, (str, int, float, bool, type(None)))


def _last(node: ast.expr) -> str:
    """The last name of ``a.b.c``."""
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def _imported(node: ast.AST) -> list[str]:
    """The modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []
