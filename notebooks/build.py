"""Build the notebooks from notebooks/src: convert, execute, give widgets stable ids, write.

python notebooks/build.py            # all
python notebooks/build.py 00         # those whose name starts so
python notebooks/build.py --check    # write nothing; exit 1 where a cell differs from its source or raises
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

from grpo_edu.files import replacing

HERE = Path(__file__).resolve().parent
STATE = "application/vnd.jupyter.widget-state+json"
RANDOM_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")


def source(path: Path) -> nbformat.NotebookNode:
    """The notebook of a percent file, cells numbered, without outputs."""
    notebook = jupytext.read(path)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata.pop("lines_to_next_cell", None)
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
            "language_info": {"name": "python"},
        }
    )
    return notebook


def executed(path: Path) -> nbformat.NotebookNode:
    """The notebook after a run from top to bottom; raises where a cell or a widget's output does."""
    notebook = source(path)
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", record_timing=False, resources={"metadata": {"path": HERE}}
    ).execute()
    hidden = errors_inside_widgets(notebook)
    if hidden:
        raise RuntimeError(
            f"{path.name}: a widget's output holds {', '.join(hidden)}, which running the notebook does not show."
        )
    notebook.metadata["language_info"] = nbformat.from_dict({"name": "python"})
    return with_stable_ids(notebook)


def errors_inside_widgets(notebook: nbformat.NotebookNode) -> list[str]:
    """Names of the errors that widget callbacks raised into Output widgets."""
    models = notebook.metadata.get("widgets", {}).get(STATE, {}).get("state", {}).values()
    outputs = [output for model in models for output in model["state"].get("outputs", [])]
    return [str(output.get("ename")) for output in outputs if output.get("output_type") == "error"]


def with_stable_ids(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Random widget ids renamed in order of appearance, so that two runs give the same file."""
    text = json.dumps(notebook, sort_keys=True)
    state = notebook.metadata.get("widgets", {}).get(STATE, {}).get("state", {})
    order = list(dict.fromkeys(RANDOM_ID.findall(json.dumps(list(notebook.cells), sort_keys=True))))
    for model in order:  # grows while it is walked: ids that models refer to, breadth first
        order += [
            i for i in dict.fromkeys(RANDOM_ID.findall(json.dumps(state.get(model, {}), sort_keys=True))) if i not in order
        ]
    names = {old: f"{number:032x}" for number, old in enumerate(order, 1)}
    renamed = nbformat.from_dict(json.loads(RANDOM_ID.sub(lambda m: names.get(m.group(), m.group()), text)))
    kept = renamed.metadata.get("widgets", {}).get(STATE, {}).get("state")
    if kept is not None:
        renamed.metadata["widgets"][STATE]["state"] = {key: kept[key] for key in sorted(kept) if key in names.values()}
    return renamed


def differences(path: Path, built: Path) -> list[str]:
    """Where the committed notebook is not what its source says."""
    if not built.is_file():
        return [f"{built.name} is missing"]
    committed = nbformat.read(built, as_version=4)
    wanted = source(path)
    pairs = zip(committed.cells, wanted.cells, strict=False)
    changed = [f"{built.name}, cell {n} differs from {path.name}" for n, (a, b) in enumerate(pairs) if a.source != b.source]
    return changed + ([f"{built.name} has another number of cells"] if len(committed.cells) != len(wanted.cells) else [])


def main(arguments: list[str]) -> int:
    """Build or check; the exit code."""
    if sys.platform == "win32":
        asyncio.set_event_loop_policy(asyncio.WindowsSelectorEventLoopPolicy())
    checking, names = "--check" in arguments, [a for a in arguments if a != "--check"]
    problems: list[str] = []
    for path in sorted((HERE / "src").glob("*.py")):
        if names and not any(path.name.startswith(name) for name in names):
            continue
        built = HERE / f"{path.stem}.ipynb"
        print(f"{'checking' if checking else 'building'} {path.stem}", flush=True)
        problems += differences(path, built) if checking else []
        notebook = executed(path)
        if not checking:
            with replacing(built) as target:
                target.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    for problem in problems:
        print(f"failed: {problem}. Run python notebooks/build.py", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
