"""Functions and classes taken out of a release's source files, which need not import here.

Every name that a file would import, and that the caller does not give, is a ``MagicMock``.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import os
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

# functions import their loggers when they are called
sys.modules.setdefault("loguru", MagicMock())
SOURCES = Path(os.environ.get("GRPO_EDU_RELEASES", Path(__file__).parent / "sources"))
REAL = (
    "torch",
    "math",
    "itertools",
    "numpy",
    "typing",
    "copy",
    "collections",
    "enum",
    "dataclasses",
    "functools",
    "collections.abc",
    "torch.distributed",
    "torch.nn",
    "torch.nn.functional",
)


class Scope(dict):
    """Global names of a source file: those given, those of harmless modules, stand-ins."""

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            return getattr(builtins, name)
        stand_in = self[name] = MagicMock(name=name)
        return stand_in


def source(release: str, file: str) -> Path:
    """A file of a release such as ``openrlhf-0.6.4``; the test skips where it was not fetched."""
    path = SOURCES / release / file
    if not path.exists():
        pytest.skip(f"{release} is not here: unpack it there, or set GRPO_EDU_RELEASES")
    return path


def taken(release: str, file: str, *names: str, **given: Any) -> Scope:
    """The named functions, classes or constants of a file, executed; a method as ``Class.method``."""
    tree = ast.parse(source(release, file).read_text(encoding="utf-8"))
    scope = Scope({"__name__": __name__, **imports(tree), **given})
    nodes = [node for name in names for node in nodes_named(tree, name)]
    module = ast.parse("from __future__ import annotations")
    module.body += [without_annotations(node) for node in nodes]
    exec(compile(module, f"{release}/{file}", "exec"), scope)
    return scope


def imports(tree: ast.Module) -> dict[str, Any]:
    """What the file imports from modules that are harmless to import here."""
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in (a for a in node.names if a.name in REAL):
                module = importlib.import_module(alias.name)
                top = importlib.import_module(alias.name.split(".")[0])
                found[alias.asname or top.__name__] = module if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module in REAL and not node.level:
            module = importlib.import_module(node.module or "")
            found |= {
                a.asname or a.name: getattr(module, a.name)
                for a in node.names
                if hasattr(module, a.name)
            }
    return found


def nodes_named(tree: ast.Module, name: str) -> list[ast.stmt]:
    """The statement that defines a name, at the top or inside a class."""
    owner, _, method = name.rpartition(".")
    body = tree.body
    if owner:
        body = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == owner).body
    named = [node for node in body if name_of(node) == method]
    assert named, f"no {name}"
    return named


def name_of(node: ast.stmt) -> str:
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return getattr(node, "name", "")


def without_annotations(node: ast.stmt) -> ast.stmt:
    """The same without decorators of its own project, which would need imports."""
    decorators = getattr(node, "decorator_list", [])
    kept = [
        d
        for d in decorators
        if ast.unparse(d).split(".")[0].split("(")[0]
        in ("dataclass", "staticmethod", "classmethod", "property")
    ]
    if decorators:
        node.decorator_list = kept  # type: ignore[attr-defined]
    return node
