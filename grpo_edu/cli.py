"""The command ``grpo-edu``. Exit codes: 0 done, 1 a check failed, 2 bad use."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .course.command import app as course
from .frameworks.command import explain, export, identify
from .lm.command import app as lm
from .toys.command import app as toy

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from .objective.recipe import Recipe
    from .rollouts import Rollouts

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="What GRPO-family losses really push, token by token.",
)

app.add_typer(toy, name="toy")
app.add_typer(lm)
app.add_typer(course, name="course")


@contextmanager
def plain_errors() -> Iterator[None]:
    """A wrong argument, file or name is one line on stderr and exit code 2; warnings are one line each."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        except (ValueError, TypeError, LookupError, ImportError, OSError) as error:
            typer.echo(
                f"error: {error.args[0] if isinstance(error, KeyError) else error}", err=True
            )
            raise typer.Exit(2) from None
        finally:
            from .objective.recipe import MissingReferenceWarning, RecipeWarning

            ours = [
                w
                for w in caught
                if issubclass(w.category, (MissingReferenceWarning, RecipeWarning))
            ]
            for message in dict.fromkeys(str(w.message) for w in ours):
                typer.echo(f"note: {message}", err=True)


@app.command()
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
    notebooks = Path(__file__).resolve().parent.parent / "notebooks"
    first = notebooks / "00_one_number_per_token.ipynb"
    if not first.is_file():
        typer.echo(
            f"error: no notebook at {first}: run this from a clone of the repository (pip install -e .).",
            err=True,
        )
        raise typer.Exit(2)
    if importlib.util.find_spec("jupyterlab") is None:
        typer.echo(
            "error: JupyterLab is not installed. Fix: pip install -e '.[notebooks]'", err=True
        )
        raise typer.Exit(2)
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        f"--port={port}",
        f"--ip={ip}",
        f"--ServerApp.root_dir={notebooks}",
    ]
    command.append(f"--LabApp.default_url=/lab/tree/{first.name}")
    command += [] if browser else ["--no-browser"]
    command += (
        ["--allow-root"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
    )  # in a container one is often root
    try:
        raise typer.Exit(subprocess.call(command))
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


@app.command()
def recipes(
    name: Annotated[
        str | None, typer.Argument(help="A recipe, `dr_grpo` say; all where none is given.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(help="`i,t`: step through token t of completion i, numbers in the formula."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="Completions for --token; the shipped ones where none is given."),
    ] = None,
    table: Annotated[bool, typer.Option("--table", help="All recipes by axis.")] = False,
) -> None:
    """List the recipes, or show one: formula, settings, source, biases; or step through one token.

    Example: `grpo-edu recipes dr_grpo --token 49,0`
    """
    with plain_errors():
        from .objective.catalog import RECIPES, recipe

        if name is None and table:
            from .compare import axis_table

            typer.echo(axis_table(RECIPES.values()).to_string())
        elif name is None:
            width = max(map(len, RECIPES))
            for entry in RECIPES.values():
                typer.echo(f"{entry.name:<{width}}  {entry.title}")
        elif token is not None:
            _step(name, token, file)
        else:
            _show(recipe(name))


def _show(one: Recipe) -> None:
    from .biases import difficulty_bias, length_bias

    typer.echo(
        f"{one.name}: {one.title}\n{one.paper}\nThe paper's settings: {one.defaults or 'none printed'}.\n"
    )
    typer.echo("loss = -Σ_it W_it · (surrogate - KL)")
    names, formulas = one.describe(), one.formula()
    for axis, text in formulas.items():
        if text != "none":
            typer.echo(f"  {axis:<12} {text:<48} {names[axis]}")
    typer.echo(
        f"\n{length_bias(one)}\n{difficulty_bias(one)}\n(exact, read off the weights)\n\nLaTeX:\n{one.latex()}"
    )


def _step(name: str, token: str, file: Path | None) -> None:
    from .completions import read_completions
    from .objective.catalog import recipe
    from .stepper import step_through

    place = token.split(",")
    if len(place) != 2 or not all(part.strip().isdigit() for part in place):
        raise ValueError(
            f"token is '{token}': expected completion,position, two whole numbers such as 49,0."
        )
    typer.echo(
        str(step_through(recipe(name), read_completions(file), int(place[0]), int(place[1])))
    )


@app.command()
def compare(
    left: str,
    right: str,
    only: Annotated[
        str | None,
        typer.Option(help="Take this one axis from the second recipe: the single change."),
    ] = None,
) -> None:
    """Two formulas axis by axis; the axes that differ are marked with ≠.

    Example: `grpo-edu compare grpo dr_grpo --only aggregation`
    """
    with plain_errors():
        from .compare import compare as compared
        from .objective.catalog import recipe

        typer.echo(str(compared(recipe(left), recipe(right), only)))


@app.command()
def weights(
    file: Annotated[
        Path | None,
        typer.Argument(help="Completions (JSONL); the shipped ones where none is given."),
    ] = None,
    recipe: Annotated[
        list[str] | None, typer.Option(help="A recipe; give it again for a second, side by side.")
    ] = None,
    group: Annotated[
        int | None,
        typer.Option(
            help="Show only this prompt (0 is the first); weights stay those of the step."
        ),
    ] = None,
    micro_batches: Annotated[
        int, typer.Option(help="Cut the step into this many micro-batches.")
    ] = 1,
    out: Annotated[Path | None, typer.Option(help="Write a self-contained HTML page.")] = None,
) -> None:
    """Push per token and share of the step for every completion of a file.

    Example: `grpo-edu weights --recipe grpo --recipe dr_grpo --out report.html`
    """
    with plain_errors():
        import pandas as pd

        from .completions import read_completions
        from .objective.catalog import recipe as by_name
        from .weights import split, summary

        chosen = [by_name(name) for name in recipe or ["grpo", "dr_grpo"]]
        rollouts = read_completions(file)
        micro_batch = split(len(rollouts), micro_batches)
        tables = [summary(one, rollouts, micro_batch).assign(recipe=one.name) for one in chosen]
        table = _side_by_side(tables)
        if group is not None:
            if group not in rollouts.group.tolist():
                raise ValueError(
                    f"group is {group}: expected one of 0 to {int(rollouts.group.max())}."
                )
            table = table.loc[table["group"] == group]
        with pd.option_context(
            "display.width", 200, "display.max_columns", 30, "display.max_rows", 200
        ):
            typer.echo(table.to_string(index=False, float_format="%.6f"))
        if out is not None:
            _write_report(out, chosen, rollouts, table, micro_batch)


def _side_by_side(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """One row per completion; advantage, push and share of each recipe in columns of their own."""
    import pandas as pd

    columns = {name: tables[0][name] for name in ("completion", "group", "reward", "length")}
    for one in tables:
        name = one["recipe"].iloc[0]
        columns[f"{name}: advantage"] = one["advantage"]
        columns[f"{name}: push/token"] = one["push_per_token"]
        columns[f"{name}: share %"] = 100 * one["share"]
    return pd.DataFrame(columns)


def _write_report(
    out: Path, chosen: list[Recipe], rollouts: Rollouts, table: pd.DataFrame, micro_batch: Tensor
) -> None:
    from .files import replacing
    from .plots.report import report

    with replacing(out) as target:
        target.write_text(report(chosen, rollouts, table, micro_batch), encoding="utf-8")
    typer.echo(f"wrote {out}")


@app.command()
def sample(
    prompts: Annotated[Path, typer.Argument(help="JSONL with `prompt` and `answer`.")],
    out: Annotated[Path, typer.Argument(help="Completions file to write.")],
    model: Annotated[
        str, typer.Option(help="Hugging Face id, local folder, .gguf file, or `smollm2`.")
    ] = "smollm2",
    samples: Annotated[int, typer.Option(help="Completions per prompt.")] = 8,
    max_new_tokens: Annotated[int, typer.Option(help="Length limit.")] = 64,
    temperature: Annotated[
        float,
        typer.Option(help="Of the sampling distribution; log-probs are of that distribution."),
    ] = 1.0,
    seed: Annotated[
        int, typer.Option(help="The same seed gives the same file on the same machine.")
    ] = 0,
    checker: Annotated[
        str, typer.Option(help="What scores a completion: last_number or first_number.")
    ] = "last_number",
    stop: Annotated[
        list[str] | None,
        typer.Option(help="A text that ends a completion; may be repeated. `\\n` is a line end."),
    ] = None,
    chat: Annotated[
        bool,
        typer.Option(
            "--chat/--plain", help="Use the model's chat template, or the prompt as it is."
        ),
    ] = True,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file where it exists.")
    ] = False,
) -> None:
    """Sample completions of any Hugging Face model, score them, and write them with their log-probs.

    Interrupted, it keeps the finished prompts and goes on from there.

    Example: `grpo-edu sample prompts.jsonl out.jsonl --model smollm2 --plain --stop '\\n' --samples 8`
    """
    with plain_errors():
        from .lm.sample import sample_file

        texts = [text.replace("\\n", "\n") for text in stop or []]
        try:
            written = sample_file(
                model,
                prompts,
                out,
                samples_per_prompt=samples,
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                seed=seed,
                checker=checker,
                stop=texts,
                chat=chat,
                overwrite=overwrite,
            )
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        typer.echo(f"wrote {written}")


@app.command(name="export-html")
def export_html(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="aggregation, advantage, difficulty, clip; all where none is given."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("explorers"),
) -> None:
    """Write explorers as single HTML files that work offline, from disk, and inside another page (`<iframe src=clip.html>`).

    Example: `grpo-edu export-html aggregation --out /tmp/explorers`
    """
    with plain_errors():
        from .widgets.explorers import export

        for path in export(names or [], out):
            typer.echo(f"wrote {path}")


@app.command()
def figures(
    names: Annotated[
        list[str] | None, typer.Argument(help="Figures; all where none is given.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the figures and stop.")] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Write nothing; exit 1 where a committed figure is no longer true."
        ),
    ] = False,
    format_: Annotated[
        list[str] | None, typer.Option("--format", help="svg, png or pdf; may be repeated.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder to write to, or to check.")] = Path("figures"),
) -> None:
    """Draw the named figures with the data they show, or check the committed ones.

    Example: `grpo-edu figures clip_objective --format pdf --out /tmp/figures`
    """
    with plain_errors():
        from .figures import registry
        from .figures.registry import FORMATS, named

        chosen = named(names or [])
        formats = format_ or ["svg", "png"]
        if set(formats) - set(FORMATS):
            raise ValueError(f"format is {', '.join(formats)}: expected {', '.join(FORMATS)}.")
        if list_:
            for figure in chosen:
                typer.echo(f"{figure.name}  [{figure.level}]  {figure.title}")
            return
        problems = []
        for figure in chosen:
            if check:
                problems += registry.check(figure, out)
            else:
                typer.echo("wrote " + ", ".join(map(str, registry.write(figure, out, formats))))
        if not check and not names:
            typer.echo(f"wrote {registry.gallery(out)}")
        for problem in problems:
            typer.echo(f"failed: {problem}", err=True)
        if problems:
            raise typer.Exit(1)
        if check:
            typer.echo(f"{len(chosen)} figures are as the code draws them.")


for command in (explain, export, identify):
    app.command()(command)
