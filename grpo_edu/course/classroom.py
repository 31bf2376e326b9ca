"""A course folder for nbgrader, and nbgrader's own grading, wrapped.

Nothing here grades: nbgrader runs the notebooks and counts the points.

``new`` writes ``source/`` (solutions, with the graded cells) and ``release/`` (what students get).
Submissions go to ``submitted/STUDENT/SHEET/SHEET.ipynb``. ``grade`` runs them, writes feedback
pages and ``grades.csv``. Submissions are programs of strangers: they run with the rights of whoever
grades. See the instructor guide.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..files import replacing

if TYPE_CHECKING:
    from nbformat import NotebookNode

SOURCES = Path(__file__).resolve().parents[2] / "notebooks" / "src" / "exercises"
CONFIG = """# Written by grpo-edu course new. nbgrader reads this file when it runs in this folder.
c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "grpo_edu"
c.Execute.timeout = 60  # seconds for one cell; then it is interrupted and the next one runs
c.LimitOutput.max_lines = 200
"""


class Graded(NamedTuple):
    """What a round of grading left: the table of marks, submissions that could not be run, names
    that do not fit.
    """

    grades: Path
    failed: list[str]
    borrowed: list[str]


def sheet_names() -> list[str]:
    """Names of the exercise sheets, ``e1_advantages`` and so on.

    Raises:
        FileNotFoundError: the sources are not there, since this is not a clone of the repository.
    """
    names = sorted(path.stem for path in SOURCES.glob("*.py"))
    if not names:
        raise FileNotFoundError(
            f"no exercise sources at {SOURCES}: run this from a clone of the repository (pip "
            f"install -e .)."
        )
    return names


def new(folder: Path, seed: int) -> list[Path]:
    """Make a course folder.

    The seed goes into every sheet; a student's numbers follow from it and from the student's name.

    Raises:
        FileExistsError: the folder holds a course already.
        ImportError: the extra ``course`` is not installed.
    """
    if (folder / "nbgrader_config.py").exists():
        raise FileExistsError(
            f"{folder} already holds a course. Give another folder; submissions and grades would "
            f"no longer fit."
        )
    _need("jupytext")
    from .sheets import solution_notebook, student_notebook

    written = []
    for name in sheet_names():
        solution = solution_notebook(SOURCES / f"{name}.py", seed)
        for room, notebook in (("source", solution), ("release", student_notebook(solution))):
            written.append(_write(notebook, folder / room / name / f"{name}.ipynb"))
    (folder / "submitted").mkdir(exist_ok=True)
    with replacing(folder / "nbgrader_config.py") as target:
        target.write_text(CONFIG, encoding="utf-8")
    return written


def grade(folder: Path, name: str) -> Graded:
    """Run nbgrader's ``generate_assignment``, ``autograde``, ``generate_feedback`` and ``export``
    on one sheet.

    Raises:
        ValueError: no course, no such sheet, or nobody handed it in.
        ImportError: nbgrader is not installed.
        RuntimeError: nbgrader failed on the course itself, not on one submission.
    """
    if not (folder / "source" / name / f"{name}.ipynb").is_file():
        raise ValueError(
            f"no sheet {name} in {folder / 'source'}: expected one of {', '.join(sheet_names())} "
            f"in a course folder."
        )
    handed_in = {
        path.parent.parent.name: path
        for path in (folder / "submitted").glob(f"*/{name}/{name}.ipynb")
    }
    if not handed_in:
        raise ValueError(
            f"nobody handed in {name}: expected "
            f"{folder / 'submitted' / 'STUDENT' / name / name}.ipynb."
        )
    _need("nbgrader")
    _nbgrader(folder, "generate_assignment", name, "--force")
    _nbgrader(folder, "autograde", name, "--create", "--force", must=False)
    ran = {
        path.parent.parent.name for path in (folder / "autograded").glob(f"*/{name}/{name}.ipynb")
    }
    if not ran:
        raise RuntimeError(
            f"nbgrader ran none of the submissions of {name}. Look at "
            f"{folder / 'nbgrader_output.txt'}."
        )
    _nbgrader(folder, "generate_feedback", name, "--force")
    _nbgrader(folder, "export", "--to", "grades.csv")
    return Graded(
        folder / "grades.csv", sorted(set(handed_in) - ran), list(borrowed_names(handed_in))
    )


def borrowed_names(handed_in: dict[str, Path]) -> Iterator[str]:
    """Submissions whose STUDENT is not the folder's: their numbers are another student's, or
    nobody's.
    """
    for student, path in sorted(handed_in.items()):
        name = re.search(r"STUDENT = \\?[\"']([^\"'\\]*)", path.read_text(encoding="utf-8"))
        if name is None or name[1].strip().lower() != student.strip().lower():
            yield f"{student} (says {name[1] if name else 'nothing'})"


def _write(notebook: NotebookNode, path: Path) -> Path:
    import nbformat

    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as target:
        target.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    return path


def _need(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ImportError(f"{module} is not installed. Fix: pip install -e '.[course]'")


def _nbgrader(folder: Path, *arguments: str, must: bool = True) -> None:
    """One nbgrader command in the course folder.

    It calls ``alembic`` by name, so this Python's programs come first in PATH.
    """
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    command = [sys.executable, "-m", "nbgrader", *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, "PATH": paths},
    )
    with (folder / "nbgrader_output.txt").open("a", encoding="utf-8") as log:
        log.write(f"$ nbgrader {' '.join(arguments)}\n{done.stdout}{done.stderr}\n")
    if must and done.returncode != 0:
        errors = [
            line.strip()
            for line in done.stderr.splitlines()
            if re.match(r"\s*\w+(Error|Exception): ", line)
        ]
        raise RuntimeError(
            f"nbgrader {arguments[0]} failed: {errors[-1] if errors else 'it says why'} in "
            f"{folder / 'nbgrader_output.txt'}."
        )
