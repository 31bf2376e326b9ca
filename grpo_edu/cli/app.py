"""The commands put together; each stands in the file of its group."""

from __future__ import annotations

import typer

from . import course, frameworks, lm, pages, recipes, toys
from .errors import Commands

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="What GRPO-family losses really push, token by token.",
)
app.add_typer(toys.app, name="toy")
app.add_typer(course.app, name="course")
for command in (
    pages.lab,
    recipes.recipes,
    recipes.compare,
    recipes.weights,
    frameworks.explain,
    frameworks.identify,
    frameworks.export,
    lm.sample,
    lm.train,
    lm.experiment,
    lm.warm_start,
    pages.figures,
    pages.export_html,
):
    app.command()(command)
