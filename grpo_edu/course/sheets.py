"""Exercise notebooks from one source: the solution version, and the student version without
solutions and outputs.

A source is a percent file. A cell says which exercise it belongs to and its ``role``: the text
(Markdown, with lines ``Hint 1: …``), ``given`` (a fault to look at), ``run`` (a refutation) and
``answer`` (with the solution between two markers). Title, goal, minutes, why, the question, the
check and nbgrader's metadata are added here from the exercise itself, so that none of them is
written twice.
"""

from __future__ import annotations

import copy
import random
import re
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from .catalog import EXERCISES
from .misconceptions import QUESTIONS

BEGIN = "### BEGIN SOLUTION"
END = "### END SOLUTION"
STUB = "# YOUR CODE HERE\nraise NotImplementedError()"  # what nbgrader puts in place of a solution
PREDICTION = "**My prediction** (not marked; write it before you run the next cell): …"
KINDS = {
    "implement": "write",
    "debug": "find and repair",
    "predict": "predict, run, explain",
    "read": "read a config",
    "project": "project",
}


class Description(NamedTuple):
    """What a student is told about an exercise."""

    title: str
    goal: str
    minutes: int
    difficulty: int
    kind: str
    why: str


PROJECT = Description(
    "Show the length bias, or hide it",
    "Make a claim about lengths that your own runs support.",
    40,
    3,
    "project",
    "A published replication came out reversed on one seed. A claim about training needs seeds and "
    "an interval.",
)


def description(name: str) -> Description:
    """Title, goal, minutes, difficulty, kind and why of an exercise.

    Raises:
        KeyError: there is no such exercise.
    """
    if name == "length_project":
        return PROJECT
    exercise = EXERCISES.get(name) or QUESTIONS.get(name)
    if exercise is None:
        raise KeyError(f"no exercise named '{name}' in the catalog.")
    return Description(*(getattr(exercise, field) for field in Description._fields))


def solution_notebook(path: Path, course: int = 0) -> NotebookNode:
    """The solution version of a source: solutions between markers, answer cells folded, nbgrader
    metadata, no outputs.
    """
    import jupytext

    source = jupytext.read(path)
    cells: list[NotebookNode] = [source.cells[0], *_setup(course)]
    order = list(dict.fromkeys(_exercise(cell) for cell in source.cells[1:]))
    for number, name in enumerate(order, 1):
        cells += _cells(
            number, name, [cell for cell in source.cells[1:] if _exercise(cell) == name]
        )
    notebook = new_notebook(cells=[copy.deepcopy(cell) for cell in cells])
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
            "language_info": {"name": "python"},
        }
    )
    return notebook


def student_notebook(solution: NotebookNode) -> NotebookNode:
    """The same without solutions and outputs.

    Raises:
        ValueError: a solution, or a line of one, would be left in it.
    """
    notebook = copy.deepcopy(solution)
    hidden: list[str] = []
    for cell in notebook.cells:
        cell.metadata.pop("jupyter", None)
        if cell.cell_type == "code":
            cell.outputs = []
            cell.execution_count = None
            hidden += solution_lines(cell.source)
            cell.source = without_solutions(cell.source)
    leaked = leaks(notebook, hidden)
    if leaked:
        raise ValueError(
            f"the student version leaks a solution: {leaked[0]!r}. Check the markers of its answer "
            f"cell."
        )
    return notebook


def without_solutions(source: str) -> str:
    """Code with every solution replaced by the stub, at the solution's indentation."""
    if source.count(BEGIN) != source.count(END):
        raise ValueError(
            f"{source.count(BEGIN)} solutions begin and {source.count(END)} end: expected a pair "
            f"of markers."
        )

    def stub(match: re.Match[str]) -> str:
        return "\n".join(match["indent"] + line for line in STUB.splitlines())

    return re.sub(
        rf"(?m)^(?P<indent>[ ]*){BEGIN}[ ]*\n.*?^[ ]*{END}[ ]*$", stub, source, flags=re.DOTALL
    )


def solution_lines(source: str) -> list[str]:
    """Lines of the solutions of a cell that say something: 12 characters or more."""
    parts = re.findall(rf"{BEGIN}(.*?){END}", source, flags=re.DOTALL)
    return [line.strip() for part in parts for line in part.splitlines() if len(line.strip()) >= 12]


def leaks(notebook: NotebookNode, hidden: list[str]) -> list[str]:
    """Markers, outputs, or lines of a solution that stand in a code cell of a student version."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    # a given faulty version may share a line with the repaired one, which the student is meant to
    # keep
    asked = [cell.source for cell in code if cell.metadata.get("nbgrader", {}).get("solution")]
    leaked = [marker for cell in code for marker in (BEGIN, END, ".key(") if marker in cell.source]
    leaked += [
        line
        for line in hidden
        for text in asked
        if line in text.splitlines() or line in (x.strip() for x in text.splitlines())
    ]
    return leaked + ["an output" for cell in code if cell.outputs]


def _exercise(cell: NotebookNode) -> str:
    name = cell.metadata.get("exercise")
    if name is None:
        raise ValueError(
            f'a cell belongs to no exercise: {cell.source[:60]!r}. Write # %% exercise="name".'
        )
    return name


def _setup(course: int) -> list[NotebookNode]:
    return [
        new_code_cell('STUDENT = "your name"  # your numbers follow from it'),
        _locked(
            new_code_cell(
                "import math\n\nimport torch\n\nfrom grpo_edu.course import check\nfrom "
                "grpo_edu.course.student import Sheet\n\n"
                f"sheet = Sheet(STUDENT, course={course})"
            ),
            "setup",
        ),
    ]


def _cells(number: int, name: str, cells: list[NotebookNode]) -> list[NotebookNode]:
    """All cells of one exercise, in the order in which a student meets them."""
    about = description(name)
    out: list[NotebookNode] = []
    hints = ""
    for place, cell in enumerate(cells):
        role = cell.metadata.get("role", "text")
        if cell.cell_type == "markdown":
            text, more = _without_hints(cell.source)
            hints += more
            head = _head(number, about) if place == 0 else ""
            if head or text:
                out.append(new_markdown_cell(f"{head}{text}".rstrip()))
            if place == 0 and name in QUESTIONS:
                out.append(
                    _locked(
                        new_code_cell(f'{name}_case = sheet.ask("{name}")\n{name}_case'),
                        f"{name}-ask",
                    )
                )
                out += [new_markdown_cell(PREDICTION)] if about.kind == "predict" else []
        elif role == "answer":
            out += [*_folded(hints), _answer(new_code_cell(cell.source), name)]
            hints = ""
        else:
            out.append(_locked(new_code_cell(cell.source), f"{name}-{role}"))
    if name in QUESTIONS:
        out += [*_folded(hints), _answer(new_code_cell(_question_answer(name)), name)]
    return [
        *out,
        _check(new_code_cell(_check_call(name)), name, about.difficulty),
        new_markdown_cell(f"*In the frameworks.* {about.why}"),
    ]


def _question_answer(name: str) -> str:
    parts = len(QUESTIONS[name].ask(random.Random(0)).parts)
    empty = ", ".join(["..."] * parts)
    return (
        f"{name} = [{empty}]  # one answer per part, in order; delete the line that "
        f'raises\n{BEGIN}\n{name} = sheet.key("{name}")\n{END}\n{name}'
    )


def _check_call(name: str) -> str:
    if name == "length_project":
        return "check.length_project(table, pair, claim)"
    return f"check.{name}({name}, sheet)" if name in QUESTIONS else f"check.{name}({name})"


def _head(number: int, about: Description) -> str:
    marks = "●" * about.difficulty + "○" * (3 - about.difficulty)
    return (
        f"## {number}. {about.title}\n\n**Goal.** {about.goal} *({KINDS[about.kind]} · "
        f"{about.minutes} minutes · {marks})*\n\n"
    )


def _without_hints(text: str) -> tuple[str, str]:
    """The text, and its hints as they stand."""
    before, mark, after = text.partition("Hint 1:")
    return before.strip(), mark + after


def _folded(hints: str) -> list[NotebookNode]:
    if not hints.strip():
        return []
    pairs = re.findall(r"Hint (\d): (.*?)(?=\n\s*\nHint |\Z)", hints, flags=re.DOTALL)
    folded = [
        f"<details><summary>Hint {n}</summary>\n\n{text.strip()}\n\n</details>" for n, text in pairs
    ]
    return [new_markdown_cell("\n\n".join(folded))]


def _graded(cell: NotebookNode, grade_id: str, **changes: Any) -> NotebookNode:
    plain = {
        "grade": False,
        "solution": False,
        "locked": False,
        "task": False,
        "schema_version": 3,
        "cell_type": cell.cell_type,
    }
    cell.metadata["nbgrader"] = nbformat.from_dict({**plain, "grade_id": grade_id, **changes})
    return cell


def _locked(cell: NotebookNode, grade_id: str) -> NotebookNode:
    return _graded(cell, grade_id, locked=True)


def _answer(cell: NotebookNode, name: str) -> NotebookNode:
    cell.metadata["jupyter"] = {"source_hidden": True}
    return _graded(cell, name, solution=True)


def _check(cell: NotebookNode, name: str, points: int) -> NotebookNode:
    return _graded(cell, f"{name}-check", grade=True, locked=True, points=points)
