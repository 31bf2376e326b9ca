"""Exercise notebooks: student and solution version from one source; no leak; solutions run, stubs say that they are stubs.

CI also executes the solutions in a kernel (``notebooks/build.py --check``); here the cells run in this process.
"""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from pathlib import Path

import nbformat
import pytest

from grpo_edu.course import check, sheets
from grpo_edu.course.catalog import EXERCISES
from grpo_edu.course.engine import NotYet
from grpo_edu.course.misconceptions import QUESTIONS

HERE = Path(__file__).resolve().parent.parent / "notebooks"
SOURCES = sorted((HERE / "src" / "exercises").glob("*.py"))


def build():
    spec = importlib.util.spec_from_file_location("build_notebooks", HERE / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(notebook, skip: str = "") -> list[tuple[str, BaseException]]:
    """Every code cell in one namespace; the errors with the exercise's id."""
    space, errors = {}, []
    for cell in notebook.cells:
        if cell.cell_type == "code" and not (skip and skip in cell.source):
            try:
                exec(compile(cell.source, cell.id, "exec"), space)
            except BaseException as error:
                errors.append((cell.metadata.get("nbgrader", {}).get("grade_id", ""), error))
    return errors


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.stem)
def test_both_versions_are_built_from_the_source_and_the_solutions_ran_clean(path):
    assert build().differences(path) == []
    solution = nbformat.read(HERE / "exercises" / "solutions" / f"{path.stem}.ipynb", as_version=4)
    outputs = [o for cell in solution.cells if cell.cell_type == "code" for o in cell.outputs]
    assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
    passed = sum(o.get("text", "").startswith("✓") for o in outputs)
    assert passed == sum(bool(c.metadata.get("nbgrader", {}).get("grade")) for c in solution.cells)
    student = nbformat.read(HERE / "exercises" / f"{path.stem}.ipynb", as_version=4)
    assert not [
        c for c in student.cells if c.cell_type == "code" and (c.outputs or c.execution_count)
    ]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.stem)
def test_a_student_version_raises_only_in_unfilled_stubs_and_says_so(path):
    student = sheets.student_notebook(sheets.solution_notebook(path))
    answers = [
        c.metadata.nbgrader.grade_id
        for c in student.cells
        if c.metadata.get("nbgrader", {}).get("solution")
    ]
    refused = set()
    for grade_id, error in run(student):
        if grade_id in answers:
            assert isinstance(error, NotImplementedError)
        else:
            assert isinstance(error, NotYet), (grade_id, error)
            assert "not written yet" in str(error), (grade_id, error)
            refused.add(grade_id.removesuffix("-check"))
    assert refused == set(answers)


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.stem)
@pytest.mark.parametrize("student", ["Ann", "Bob"])
def test_solutions_follow_every_students_numbers(path, student, capsys):
    solution = sheets.solution_notebook(path, course=5)
    solution.cells[1].source = f"STUDENT = {student!r}"
    assert run(solution, skip="table = train(") == [] or path.stem.startswith("e8")
    graded = sum(bool(c.metadata.get("nbgrader", {}).get("grade")) for c in solution.cells)
    assert capsys.readouterr().out.count("✓") == graded - path.stem.startswith("e8")


def test_every_exercise_is_asked_once_with_two_hints_its_goal_and_its_minutes():
    cells = [cell for path in SOURCES for cell in sheets.solution_notebook(path).cells]
    asked = Counter(
        c.metadata.nbgrader.grade_id
        for c in cells
        if c.metadata.get("nbgrader", {}).get("solution")
    )
    assert asked == Counter([*EXERCISES, *QUESTIONS, "length_project"])
    assert len(asked) >= 30
    assert 6 <= len(SOURCES) <= 8
    text = "\n".join(c.source for c in cells if c.cell_type == "markdown")
    assert text.count(sheets.PREDICTION) == sum(one.kind == "predict" for one in QUESTIONS.values())
    assert (
        text.count("<summary>Hint 1</summary>")
        == text.count("<summary>Hint 2</summary>")
        == len(asked)
    )
    for name in asked:
        about = sheets.description(name)
        assert f"{about.title}\n\n**Goal.** {about.goal} *(" in text
        assert f"*In the frameworks.* {about.why}" in text
        assert hasattr(check, name)
    assert len(re.findall(r"\d+ minutes · [●○]{3}\)", text)) == len(asked)


def test_nbgrader_finds_what_it_needs_in_every_graded_cell():
    for path in SOURCES:
        notebook = sheets.solution_notebook(path)
        ids = [c.metadata.nbgrader.grade_id for c in notebook.cells if "nbgrader" in c.metadata]
        assert len(ids) == len(set(ids))
        for cell in notebook.cells:
            mark = cell.metadata.get("nbgrader")
            if mark is not None:
                assert mark.schema_version == 3
                assert mark.locked is not mark.solution
                assert mark.get("points", 0) == (
                    sheets.description(mark.grade_id.removesuffix("-check")).difficulty
                    if mark.grade
                    else 0
                )


def planted(source: str) -> nbformat.NotebookNode:
    notebook = sheets.solution_notebook(SOURCES[0])
    cell = next(
        c
        for c in notebook.cells
        if c.metadata.get("nbgrader", {}).get("grade_id") == "leave_one_out"
    )
    cell.source = source
    return notebook


def test_the_build_fails_where_a_stub_leaks_a_solution():
    begin, end = sheets.BEGIN, sheets.END
    line = "    return reward - reward.mean() * 2"
    for leaking in (
        f"def f(reward):\n{line}\n    {begin}\n{line}\n    {end}",  # a line of the solution stands outside of the markers
        f"def f(reward):\n    {begin}\n{line}\n    # end solution",  # a marker mistyped
        "answer = sheet.key('x')",
        f"def f(reward):\n    {begin}\n{line}\n    {end}\n    # {begin} {end}",
    ):
        with pytest.raises(ValueError, match=r"leaks a solution|solutions begin"):
            sheets.student_notebook(planted(leaking))
    kept = sheets.student_notebook(planted(f"def f(reward):\n    {begin}\n{line}\n    {end}"))
    assert any(
        c.source == "def f(reward):\n    # YOUR CODE HERE\n    raise NotImplementedError()"
        for c in kept.cells
    )


def test_an_unknown_exercise_or_a_stray_cell_stops_the_build(tmp_path):
    for text, said in (
        ('# %% [markdown]\n# a\n\n# %% exercise="nothing"\n1\n', "no exercise"),
        ("# %% [markdown]\n# a\n\n# %%\n1\n", "belongs to no"),
    ):
        path = tmp_path / "e9.py"
        path.write_text(text)
        with pytest.raises((KeyError, ValueError), match=said):
            sheets.solution_notebook(path)


def test_the_guide_gives_the_minutes_and_points_of_every_sheet():
    guide = (HERE / "exercises" / "README.md").read_text(encoding="utf-8")
    total = 0
    for path in SOURCES:
        ids = [
            c.metadata.nbgrader
            for c in sheets.solution_notebook(path).cells
            if c.metadata.get("nbgrader", {}).get("solution")
        ]
        asked = [sheets.description(mark.grade_id) for mark in ids]
        total += len(asked)
        row = f"| {len(asked)} | {sum(a.minutes for a in asked)} | {sum(a.difficulty for a in asked)} |"
        assert re.search(rf"\({path.stem}\.ipynb\) \|[^|]*{re.escape(row)}", guide), row
    assert guide.startswith(
        f"# Exercises that mark themselves: guide for teachers\n\n{total} exercises in {len(SOURCES)} sheets"
    )
