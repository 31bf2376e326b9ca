"""``grpo-edu course``: a course folder, grading, answer keys, and the tables for teachers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    help="Exercises for a class: make a course folder, grade it with nbgrader.",
)


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="Where the course is made.")],
    seed: Annotated[
        int,
        typer.Option(
            help="Of the course: a student's numbers follow from it and from the student's name."
        ),
    ] = 0,
) -> None:
    """Make a course folder for nbgrader: source (solutions) and release (what students get).

    Example: `grpo-edu course new autumn --seed 7`
    """
    from ..course import classroom

    written = classroom.new(folder, seed)
    folders = f"{folder / 'source'} and {folder / 'release'}"
    typer.echo(f"wrote {len(written)} notebooks to {folders}, seed {seed}.")
    typer.echo(f"Submissions go to {folder / 'submitted'}/STUDENT/SHEET/SHEET.ipynb.")
    typer.echo(f"Then run: grpo-edu course grade {folder} SHEET")


@app.command()
def grade(
    folder: Annotated[Path, typer.Argument(help="A course folder.")],
    sheet: Annotated[str, typer.Argument(help="For example e1_advantages.")],
) -> None:
    """Grade what was handed in with nbgrader: marks as CSV, and a feedback page for each student.

    Submissions run with your rights.

    Example: `grpo-edu course grade autumn e1_advantages`
    """
    from ..course import classroom

    graded = classroom.grade(folder, sheet)
    typer.echo(f"wrote {graded.grades} and {folder / 'feedback'}.")
    for student in graded.failed:
        typer.echo(
            f"note: the submission of {student} could not be run and has no marks.", err=True
        )
    for student in graded.borrowed:
        typer.echo(f"note: STUDENT is not the name of the folder: {student}.", err=True)


@app.command()
def key(
    student: Annotated[str, typer.Argument(help="The name as it stands in STUDENT.")],
    seed: Annotated[int, typer.Option(help="Of the course.")] = 0,
) -> None:
    """The answers to all questions, with one student's numbers.

    Example: `grpo-edu course key ann --seed 7`
    """
    from ..course.misconceptions import QUESTIONS
    from ..course.student import Sheet

    sheet = Sheet(student, seed)
    for name in QUESTIONS:
        given = ", ".join(f"{k} {v}" for k, v in sheet.ask(name).given.items())
        typer.echo(f"{name:<20} {sheet.key(name)}" + (f"   ({given})" if given else ""))


@app.command()
def table() -> None:
    """The tables for teachers, as Markdown: exercises, and the mistakes that each checker names."""
    from ..course.tables import exercises, misconceptions, mistakes

    typer.echo("\n\n".join((exercises(), mistakes(), misconceptions())))
