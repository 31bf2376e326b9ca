"""Build the notebooks from notebooks/src: convert, execute, give widgets stable ids, write.

Exercises (notebooks/src/exercises) become two notebooks: the student version, neither executed nor solved, and the executed solutions.

The output of a code cell with the tag "predict" is folded, and the source of one with the tag "ask": the
reader guesses first.

python notebooks/build.py            # all
python notebooks/build.py 00 e1      # those whose name starts so
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

from grpo_edu.course.sheets import solution_notebook, student_notebook
from grpo_edu.files import replacing

HERE = Path(__file__).resolve().parent
STATE = "application/vnd.jupyter.widget-state+json"
FOLDED = {"predict": "outputs_hidden", "ask": "source_hidden"}  # tag: what JupyterLab folds
RANDOM_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")


def source(path: Path) -> nbformat.NotebookNode:
    """The notebook of a percent file, cells numbered, without outputs."""
    notebook = jupytext.read(path)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata.pop("lines_to_next_cell", None)
        folded = [FOLDED[tag] for tag in cell.metadata.get("tags", []) if tag in FOLDED]
        if folded:
            cell.metadata["jupyter"] = dict.fromkeys(folded, True)
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
            "language_info": {"name": "python"},
        }
    )
    return notebook


def is_exercise(path: Path) -> bool:
    """Sources of exercises have a folder of their own."""
    return path.parent.name == "exercises"


def wanted(path: Path) -> nbformat.NotebookNode:
    """The notebook of a source before it is executed; of exercises the solution version."""
    return solution_notebook(path) if is_exercise(path) else source(path)


def target_of(path: Path) -> Path:
    """Where the executed notebook lies."""
    return HERE / ("exercises/solutions" if is_exercise(path) else "") / f"{path.stem}.ipynb"


def student_target_of(path: Path) -> Path:
    """Where the student version lies."""
    return HERE / "exercises" / f"{path.stem}.ipynb"


def executed(path: Path) -> nbformat.NotebookNode:
    """The notebook after a run from top to bottom; raises where a cell or a widget's output does."""
    notebook = wanted(path)
    NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": HERE}},
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
            i
            for i in dict.fromkeys(
                RANDOM_ID.findall(json.dumps(state.get(model, {}), sort_keys=True))
            )
            if i not in order
        ]
    names = {old: f"{number:032x}" for number, old in enumerate(order, 1)}
    renamed = nbformat.from_dict(
        json.loads(RANDOM_ID.sub(lambda m: names.get(m.group(), m.group()), text))
    )
    kept = renamed.metadata.get("widgets", {}).get(STATE, {}).get("state")
    if kept is not None:
        renamed.metadata["widgets"][STATE]["state"] = {
            key: kept[key] for key in sorted(kept) if key in names.values()
        }
    return renamed


def differences(path: Path) -> list[str]:
    """Where the committed notebooks of a source are not what it says."""
    found = changed(path.name, target_of(path), wanted(path))
    return found + (
        changed(path.name, student_target_of(path), student_notebook(wanted(path)))
        if is_exercise(path)
        else []
    )


def changed(name: str, built: Path, notebook: nbformat.NotebookNode) -> list[str]:
    """Cells of one committed notebook that differ from the wanted one."""
    if not built.is_file():
        return [f"{built.relative_to(HERE)} is missing"]
    committed, where = nbformat.read(built, as_version=4), built.relative_to(HERE)
    pairs = zip(committed.cells, notebook.cells, strict=False)
    found = [
        f"{where}, cell {n} differs from {name}"
        for n, (a, b) in enumerate(pairs)
        if (a.source, a.metadata.get("jupyter")) != (b.source, b.metadata.get("jupyter"))
    ]
    return found + (
        [f"{where} has another number of cells"]
        if len(committed.cells) != len(notebook.cells)
        else []
    )


def write(notebook: nbformat.NotebookNode, built: Path) -> None:
    """Write one notebook."""
    built.parent.mkdir(parents=True, exist_ok=True)
    with replacing(built) as target:
        target.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Build or check; the exit code."""
    if sys.platform == "win32":
        asyncio.set_event_loop_policy(asyncio.WindowsSelectorEventLoopPolicy())
    checking, names = "--check" in arguments, [a for a in arguments if a != "--check"]
    problems: list[str] = []
    for path in [
        *sorted((HERE / "src").glob("*.py")),
        *sorted((HERE / "src" / "exercises").glob("*.py")),
    ]:
        if names and not any(path.name.startswith(name) for name in names):
            continue
        print(f"{'checking' if checking else 'building'} {path.stem}", flush=True)
        problems += differences(path) if checking else []
        notebook = executed(path)
        if not checking:
            write(notebook, target_of(path))
        if not checking and is_exercise(path):
            write(student_notebook(wanted(path)), student_target_of(path))
    for problem in problems:
        print(f"failed: {problem}. Run python notebooks/build.py", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
