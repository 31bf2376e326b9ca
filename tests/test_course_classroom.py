"""The class: a course folder, nbgrader's grading, right marks, and one bad submission costs its own marks only.

``pytest -m classroom`` grades a submission of every kind; the normal run grades none.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import nbformat
import pytest

from grpo_edu.course import classroom, sheets

pytest.importorskip("nbgrader", reason="the extra 'course' is not installed")
SHEET = "e6_sampling"  # overlong_penalty 1, dynamic_sampling 1, gae 3, silent_share 1: 6 points
ENDLESS = "    while True:\n        pass"
SWALLOWS = (
    "    while True:\n        try:\n            pass\n        except Exception:\n            pass"
)
NOTHING = "    return None"


def solved(folder: Path) -> dict[str, str]:
    """The solutions of the sheet, cell by cell."""
    notebook = nbformat.read(folder / "source" / SHEET / f"{SHEET}.ipynb", as_version=4)
    return {
        c.metadata.nbgrader.grade_id: c.source
        for c in notebook.cells
        if c.metadata.get("nbgrader", {}).get("solution")
    }


def with_body(source: str, body: str) -> str:
    """A function's solution replaced."""
    return re.sub(rf"(?s)    {sheets.BEGIN}.*{sheets.END}", lambda _: body, source)


def hand_in(folder: Path, student: str, answers: dict[str, str], extra: str = "") -> None:
    """A submission: the released notebook with some cells filled, and a cell of the student's own in front."""
    notebook = nbformat.read(folder / "release" / SHEET / f"{SHEET}.ipynb", as_version=4)
    notebook.cells[1].source = f"STUDENT = {student!r}\n{extra}"
    for cell in notebook.cells:
        grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
        cell.source = answers.get(grade_id, cell.source)
    target = folder / "submitted" / student / SHEET / f"{SHEET}.ipynb"
    target.parent.mkdir(parents=True)
    nbformat.write(notebook, target)


def submission(kind: str, right: dict[str, str]) -> tuple[dict[str, str], str, float]:
    """Answers, the student's own code, and the marks that are due, out of 6."""
    if kind == "right":
        return right, "", 6.0
    if kind == "half":
        return (
            {k: right[k] for k in ("overlong_penalty", "dynamic_sampling", "silent_share")},
            "",
            3.0,
        )
    if kind == "wrong":
        return {k: with_body(v, NOTHING) for k, v in right.items()}, "", 0.0
    if kind == "looping":
        return {**right, "overlong_penalty": with_body(right["overlong_penalty"], ENDLESS)}, "", 5.0
    if kind == "loops in its own cell":
        return right, "while True:\n    pass", 6.0
    if kind == "raises":
        return (
            {**right, "gae": with_body(right["gae"], "    return reward.no_such_thing")},
            "1 / 0",
            3.0,
        )
    if kind == "prints":
        return (
            {
                **right,
                "silent_share": right["silent_share"].replace(
                    "    return", "    print('x' * 10**6)\n    return"
                ),
            },
            ("for _ in range(5000):\n    print('y' * 1000)"),
            6.0,
        )
    if kind == "kills":
        return right, "import os\nos._exit(1)", 0.0
    if kind == "rewrites the check":
        return (
            {
                "gae": right["gae"],
                "gae-check": "print('fine')",
                "silent_share-check": "print('fine')",
            },
            "",
            3.0,
        )
    assert kind == "empty"
    return {}, "", 0.0


KINDS = (
    "right",
    "half",
    "wrong",
    "looping",
    "loops in its own cell",
    "raises",
    "prints",
    "kills",
    "rewrites the check",
    "empty",
)


def marks(graded: classroom.Graded) -> dict[str, tuple[float, float]]:
    with graded.grades.open(newline="", encoding="utf-8") as file:
        return {
            row["student_id"]: (float(row["score"] or 0), float(row["max_score"]))
            for row in csv.DictReader(file)
            if row["assignment"] == SHEET
        }


def released(folder: Path) -> list[str]:
    """The cells of the student version."""
    return [
        c.source
        for c in nbformat.read(folder / "release" / SHEET / f"{SHEET}.ipynb", as_version=4).cells
    ]


def round_trip(folder: Path, kinds: list[str]) -> None:
    classroom.new(folder, seed=3)
    ours = released(folder)
    assert "course=3" in "".join(ours)
    right, due = solved(folder), {}
    for number, kind in enumerate(kinds):
        student = f"s{number:02}"
        answers, extra, due[student] = submission(kind, right)
        hand_in(folder, student, answers, extra)
    graded = classroom.grade(folder, SHEET)
    assert (
        released(folder) == ours
    )  # nbgrader's own student version, made meanwhile, is ours cell by cell
    killed = [f"s{n:02}" for n, kind in enumerate(kinds) if kind == "kills"]
    assert graded.failed == killed
    assert graded.borrowed == []
    got = marks(graded)
    assert {s: got.get(s, (0.0, 6.0)) for s in due} == {
        s: (points, 6.0) for s, points in due.items()
    }
    for student in set(due) - set(killed):
        page = (folder / "feedback" / student / SHEET / f"{SHEET}.html").read_text(encoding="utf-8")
        assert f"{due[student]:g}" in page
        assert len(page) < 3_000_000


@pytest.mark.classroom
def test_submissions_of_every_kind_get_their_marks_and_a_killed_kernel_costs_nobody_else(tmp_path):
    round_trip(tmp_path / "class", [*KINDS])


def test_a_second_course_in_one_folder_an_unknown_sheet_and_nobody_are_refused(tmp_path):
    classroom.new(tmp_path, seed=1)
    with pytest.raises(FileExistsError, match="already holds a course"):
        classroom.new(tmp_path, seed=2)
    with pytest.raises(ValueError, match="no sheet e99"):
        classroom.grade(tmp_path, "e99")
    with pytest.raises(ValueError, match="nobody handed in"):
        classroom.grade(tmp_path, SHEET)


def test_a_borrowed_name_is_noticed(tmp_path):
    classroom.new(tmp_path, seed=1)
    hand_in(tmp_path, "ann", {})
    path = tmp_path / "submitted" / "ann" / SHEET / f"{SHEET}.ipynb"
    assert list(classroom.borrowed_names({"ann": path, "Ann ": path})) == []
    assert list(classroom.borrowed_names({"bob": path})) == ["bob (says ann)"]
