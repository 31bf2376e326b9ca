"""A Python file run with stubs: which settings does the config end up with that a trainer gets?

The truth for ``read_scripts.py``; its child process. Every module but a few plain ones is a stub
that takes anything; ``open``, ``exec`` and the like are stubs too. What a statement that fails
would have set takes anything as well.

python benchmarks/run_stubbed.py < file.py     prints {"settings": {…}} or {"settings": null}
    --show     why statements failed
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import types
from typing import Any

PLAIN = {
    "argparse", "dataclasses", "typing", "math", "re", "json", "collections", "functools",
    "itertools", "enum", "random", "string", "copy", "abc", "textwrap", "datetime", "__future__",
}  # fmt: skip
CONFIGS = ("GRPOConfig", "RLOOConfig", "GMPOConfig")
SECONDS = 5
NOBODY = 65534


class Anything:
    """Takes every call, attribute and operation, and is empty."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *_: Any, **__: Any) -> Anything:
        return Anything()

    def __getitem__(self, _: Any) -> Anything:
        return Anything()

    def __setitem__(self, *_: Any) -> None:
        pass

    def __iter__(self) -> Any:
        return iter(())

    def __enter__(self) -> Anything:
        return self

    def __exit__(self, *_: Any) -> None:
        pass


def _empty(*_: Any) -> Anything:
    return Anything()


for operation in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "gt", "le", "ge"):
    setattr(Anything, f"__{operation}__", _empty)
    setattr(Anything, f"__r{operation}__", _empty)
CREATED: list[Config] = []
ARGV: list[str] = []
TRAINED: list[dict[str, Any]] = []


class Kind(type):
    """Makes a config as TRL's dataclasses are made: defaults of every class, then the keywords."""

    def __call__(cls, *_: Any, **keywords: Any) -> Any:
        made: Any = object.__new__(cls)
        for base in reversed(cls.__mro__[:-1]):
            for name in getattr(base, "__annotations__", {}):
                default = vars(base).get("__dataclass_fields__", vars(base)).get(name)
                factory = getattr(default, "default_factory", None)
                plain = getattr(default, "default", default)
                setattr(made, name, factory() if callable(factory) else plain)
        for name, value in keywords.items():
            setattr(made, name, value)
        with contextlib.suppress(Exception):
            made.__post_init__()
        CREATED.append(made)
        return made


class Config(metaclass=Kind):
    """A stub of ``GRPOConfig``."""

    def __post_init__(self) -> None:
        pass


class Trainer:
    """A stub of ``GRPOTrainer``: it records the config that it gets."""

    def __init__(self, *given: Any, **keywords: Any) -> None:
        for config in [keywords.get("args"), *given]:
            if isinstance(config, Config):
                TRAINED.append(dict(vars(config)))
                break

    def __getattr__(self, _: str) -> Any:
        return Anything()


class Parser:
    """A stub of ``TrlParser``: it makes every class without arguments."""

    def __init__(self, kinds: Any, *_: Any, **__: Any) -> None:
        self.kinds = kinds if isinstance(kinds, (tuple, list)) else (kinds,)

    def made(self, *_: Any, **__: Any) -> tuple[Any, ...]:
        return tuple(kind() for kind in self.kinds)

    parse_args_and_config = made
    parse_args_into_dataclasses = made


class Stub(types.ModuleType):
    """A module that has everything."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in CONFIGS:
            return Config
        if name in ("TrlParser", "HfArgumentParser"):
            return Parser
        return Trainer if name.endswith("Trainer") else Anything()


def _import(name: str, scope: Any = None, _: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    if name.split(".")[0] in PLAIN and not level:
        return REAL_IMPORT(name, scope, None, fromlist, 0)
    stub: Any = Stub(name)
    if name == "os":
        stub.environ = {}
        stub.getenv = {}.get
    if name == "sys":
        stub.argv = ["train.py"]
    return stub


REAL_IMPORT = builtins.__import__


def run(text: str) -> dict[str, Any] | None:
    """The settings of the config that the first trainer gets, or that is made first."""
    names = dict(vars(builtins))
    for name in ("open", "exec", "eval", "compile", "input", "breakpoint", "exit", "quit"):
        names[name] = Anything()
    names["__import__"] = _import
    names["print"] = lambda *_, **__: None
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    scope = vars(module) | {
        "__builtins__": names,
        "__name__": "__main__",
        "get_ipython": Anything(),
    }
    vars(module).update(scope)
    scope = vars(module)
    for statement in ast.parse(text).body:
        code = compile(ast.Module([statement], []), "file", "exec")
        try:
            exec(code, scope)
        except (Exception, SystemExit) as error:
            if "--show" in ARGV:
                print(f"{statement.lineno}: {error!r}", file=sys.stderr)
            stored = (n for n in ast.walk(statement) if isinstance(n, ast.Name))
            scope.update({n.id: Anything() for n in stored if isinstance(n.ctx, ast.Store)})
    first = TRAINED[0] if TRAINED else vars(CREATED[0]) if CREATED else None
    return first


def main() -> None:
    text = sys.stdin.read()
    ARGV.extend(sys.argv)
    sys.argv = ["train.py"]
    for name in (*PLAIN, "shutil", "locale", "gettext"):  # argparse needs three more later
        importlib.import_module(name)
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    signal.alarm(SECONDS)
    try:
        settings = run(text)
    except SyntaxError:
        settings = None
    plain = settings and {k: v for k, v in settings.items() if not isinstance(v, Anything)}
    print(json.dumps({"settings": plain}, default=lambda _: "?"))


if __name__ == "__main__":
    main()
