"""Counts of the code: sizes, packing, long lines, files that name one loss, imports.

Run: python benchmarks/house.py. tests/test_house.py holds the imports to the order.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

PACKAGE = Path(__file__).resolve().parent.parent / "grpo_edu"
WIDTH = 100
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}

# Rooms from the ground up. A room imports from rooms above it in this list, not from its own line.
ORDER = (
    ("checks",),
    ("files", "draws", "settings", "statistics"),
    ("rollouts",),
    ("objective",),
    ("weights", "completions", "formulas"),
    ("theory",),
    ("biases", "compare", "stepper"),
    ("toys", "lm", "frameworks"),
    ("plots", "conformance"),
    ("widgets", "course", "figures", "cards"),
    ("cli",),
)
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}


# --- text


def code_tokens(text: str) -> list[tokenize.TokenInfo]:
    """Tokens without comments, docstrings and layout."""
    return [
        token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in NO_CODE
        and not (token.type == tokenize.STRING and token.string.lstrip("rbfRBF").startswith('"""'))
    ]


def code_lines(tokens: list[tokenize.TokenInfo]) -> set[int]:
    """Numbers of the lines that hold a token."""
    return {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}


def body_sizes(tree: ast.Module, lines: set[int]) -> Iterator[int]:
    """Lines of code in the body of each function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = range(node.body[0].lineno, (node.end_lineno or 0) + 1)
            yield len(lines.intersection(body))


def packed(tree: ast.Module) -> int:
    """Assignments of several values to several names at once, swaps apart."""
    return sum(map(_is_packed, ast.walk(tree)))


def _is_packed(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)):
        return False
    target = node.targets[0]
    if not isinstance(target, ast.Tuple) or len(target.elts) < 2:
        return False
    left, right = ({ast.unparse(e) for e in side.elts} for side in (target, node.value))
    return left != right


# --- imports


def imports(package: Path = PACKAGE) -> dict[str, set[str]]:
    """The modules of the package that each module imports, by dotted name.

    An import inside a function counts; one under ``if TYPE_CHECKING`` does not: it never runs.
    The package's own ``__init__`` is left out: it offers the names of all rooms.
    """
    root = package.parent
    files = {_dotted(path, root): path for path in package.rglob("*.py")}
    graph = {}
    for name, path in files.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        home = name if path.name == "__init__.py" else name.rpartition(".")[0]
        targets = {module for node in _running(tree) for module in _modules(node, home, files)}
        graph[name] = targets - {name, package.name}
    graph.pop(package.name, None)
    return graph


def _dotted(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under ``if TYPE_CHECKING``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _running(child)


def _modules(node: ast.AST, home: str, files: Mapping[str, Path]) -> Iterator[str]:
    """Modules of the package that an import statement names."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in files)
    if isinstance(node, ast.ImportFrom):
        steps = home.split(".")
        base = steps[: len(steps) - node.level + 1] if node.level else []
        source = ".".join([*base, *(node.module or "").split(".")]).strip(".")
        for alias in node.names:
            for module in (f"{source}.{alias.name}", source):
                if module in files:
                    yield module
                    break


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, directly or through others."""
    reach = {name: _reachable(name, graph) for name in graph}
    groups = {
        tuple(sorted(other for other in reach[name] if name in reach.get(other, ())))
        for name in graph
        if name in reach[name]
    }
    return [list(group) for group in sorted(groups)]


def _reachable(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += graph.get(name, ())
    return seen


def against_order(graph: Mapping[str, set[str]]) -> list[str]:
    """Imports that go up the order or sideways, as "module -> module".

    Raises:
        KeyError: a room that ``ORDER`` does not name.
    """
    rooms = {name: name.split(".")[1] for name in graph}
    unknown = sorted(set(rooms.values()) - set(LEVEL))
    if unknown:
        raise KeyError(f"ORDER has no room {', '.join(unknown)}: give each a line of its own.")
    return sorted(
        f"{name} -> {target}"
        for name, targets in graph.items()
        for target in targets
        if rooms[name] != rooms[target] and LEVEL[rooms[target]] >= LEVEL[rooms[name]]
    )


# --- the table


def spread(sizes: list[int], at: tuple[float, ...]) -> str:
    """Median, the named quantiles, and the largest."""
    ranked = sorted(sizes)
    quantiles = [ranked[int(q * (len(ranked) - 1))] for q in at]
    return " / ".join(f"{value:g}" for value in (median(ranked), *quantiles, ranked[-1]))


def counts(package: Path = PACKAGE) -> dict[str, str]:
    """What the page prints, by what was counted."""
    functions: list[int] = []
    modules: list[int] = []
    tokens = packs = 0
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        code = code_tokens(text)
        lines = code_lines(code)
        tree = ast.parse(text)
        functions += body_sizes(tree, lines)
        modules.append(len(lines))
        tokens += len(code)
        packs += packed(tree)
    sources = [path for ending in ("py", "js") for path in sorted(package.rglob(f"*.{ending}"))]
    texts = {path: path.read_text(encoding="utf-8") for path in sources}
    wide = {p: sum(len(line) > WIDTH for line in text.splitlines()) for p, text in texts.items()}
    naming = [str(p.relative_to(package)) for p, text in texts.items() if re.search("sapo", text)]
    graph = imports(package)
    loops, upward = circles(graph), against_order(graph)
    return {
        "lines of a function's body, median / p90 / p95 / max": spread(functions, (0.9, 0.95)),
        "lines of a module, median / p90 / max": spread(modules, (0.9,)),
        "code tokens, comments and docstrings apart": f"{tokens:,}",
        "code tokens per line": f"{tokens / sum(modules):.1f}",
        "packed assignments per 1,000 lines": f"{1000 * packs / sum(modules):.1f}",
        f"lines over {WIDTH} columns, Python": str(_total(wide, ".py")),
        f"lines over {WIDTH} columns, JavaScript": str(_total(wide, ".js")),
        "files that name sapo": f"{len(naming)}: {', '.join(naming)}",
        "import circles": "; ".join([str(len(loops)), *map(" <-> ".join, loops)]),
        "imports against the order": "; ".join([str(len(upward)), *upward]),
    }


def _total(wide: Mapping[Path, int], ending: str) -> int:
    return sum(n for path, n in wide.items() if path.suffix == ending)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="the same: it takes seconds")
    parser.parse_args()
    for name, value in counts().items():
        print(f"{name}: {value}")
