"""``grpo-edu lab``, ``grpo-edu figures`` and ``grpo-edu export-html``: what a browser shows."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


def lab(
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open a browser window.")
    ] = True,
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8888,
    ip: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 for a server that others reach.")
    ] = "localhost",
) -> None:
    """Open JupyterLab on the first notebook.

    Example: `grpo-edu lab --no-browser --port 9000`
    """
    first = NOTEBOOKS / "00_one_number_per_token.ipynb"
    if not first.is_file():
        raise FileNotFoundError(
            f"no notebook at {first}: run this from a clone of the repository (pip install -e .)."
        )
    if importlib.util.find_spec("jupyterlab") is None:
        raise ImportError("JupyterLab is not installed. Fix: pip install -e '.[notebooks]'")
    command = [
        *(sys.executable, "-m", "jupyterlab"),
        f"--port={port}",
        f"--ip={ip}",
        f"--ServerApp.root_dir={NOTEBOOKS}",
        f"--LabApp.default_url=/lab/tree/{first.name}",
    ]
    if not browser:
        command.append("--no-browser")
    if getattr(os, "geteuid", lambda: 1)() == 0:  # in a container one is often root
        command.append("--allow-root")
    try:
        raise typer.Exit(subprocess.call(command))
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def export_html(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="aggregation, advantage, difficulty, clip, kl, dapo, stepper; none: all."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("explorers"),
) -> None:
    """Write explorers as single HTML files that work offline and inside another page.

    Example: `grpo-edu export-html aggregation --out /tmp/explorers`
    """
    from ..widgets.explorers import export

    for path in export(names or [], out):
        typer.echo(f"wrote {path}")


def figures(
    names: Annotated[
        list[str] | None, typer.Argument(help="Figures; all where none is given.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the figures and stop.")] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Write nothing; exit 1 where a committed figure or the gallery is no longer true.",
        ),
    ] = False,
    gallery: Annotated[
        bool, typer.Option("--gallery", help="Write only the pages of the gallery.")
    ] = False,
    format_: Annotated[
        list[str] | None, typer.Option("--format", help="svg, png or pdf; may be repeated.")
    ] = None,
    width: Annotated[
        str | None,
        typer.Option(
            help="`6.5in`, `16cm`, `160mm` or `468pt`: laid out anew, type keeps its size."
        ),
    ] = None,
    theme: Annotated[str, typer.Option(help="light or dark pages.")] = "light",
    style: Annotated[
        Path | None, typer.Option(help="A matplotlib style sheet of your own, applied last.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder to write to, or to check.")] = Path("figures"),
) -> None:
    """Draw the named figures with the data they show, or check the committed ones.

    With a width, the dark theme or a style, pictures are drawn from the recorded data, for a paper
    or a slide; the gallery is left alone.

    Example: `grpo-edu figures clip_objective --format pdf --width 6.5in --out paper`
    """
    from ..figures import gallery as pages
    from ..figures import registry
    from ..figures.layout import AS_COMMITTED, FORMATS, layout_of

    selected = registry.named(names or [])
    formats = format_ or ["svg", "png"]
    if set(formats) - set(FORMATS):
        raise ValueError(f"format is {', '.join(formats)}: expected {', '.join(FORMATS)}.")
    layout = layout_of(width, theme, style)
    if list_:
        for figure in selected:
            typer.echo(f"{figure.name}  [{figure.level}]  {figure.title}")
    elif check:
        problems = [problem for figure in selected for problem in registry.check(figure, out)]
        _fail_on(problems + ([] if names else pages.check(out)))
        typer.echo(f"{len(selected)} figures are as the code draws them.")
    elif gallery:
        typer.echo("wrote " + ", ".join(map(str, pages.write(out))))
    elif layout != AS_COMMITTED:
        for figure in selected:
            written = registry.draw_as(figure, figure.table(), _own_folder(out), formats, layout)
            typer.echo("wrote " + ", ".join(map(str, written)))
    else:
        for figure in selected:
            typer.echo("wrote " + ", ".join(map(str, registry.write(figure, out, formats))))
        if not names:
            typer.echo("wrote " + ", ".join(map(str, pages.write(out))))


def _fail_on(problems: list[str]) -> None:
    for problem in problems:
        typer.echo(f"failed: {problem}", err=True)
    if problems:
        raise typer.Exit(1)


def _own_folder(out: Path) -> Path:
    """A folder that is not that of the committed pictures."""
    from ..figures.registry import COMMITTED

    if out.resolve() == COMMITTED:
        raise ValueError(
            f"out is {out}, the folder of the committed pictures: --width, --theme and --style "
            "would replace them. Give another folder with --out."
        )
    return out
