"""``grpo-edu experiment``, ``grpo-edu warm-start`` and ``grpo-edu train``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ..options import with_options
from . import train as runs
from .loop import Settings

app = typer.Typer()

Progress = Annotated[
    bool, typer.Option("--progress/--no-progress", help="Draw a progress bar on a terminal.")
]


@app.command()
def experiment(
    name: Annotated[
        str | None,
        typer.Argument(
            help="length, length-control, length-rising or difficulty-gradients; none: list them."
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Fewer arms, seeds and steps: at most 3 minutes on two cores."
        ),
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for NAME.parquet.")] = Path("runs"),
    processes: Annotated[int, typer.Option(help="Runs at a time, one thread each.")] = 2,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file where it exists.")
    ] = False,
    progress: Progress = True,
) -> None:
    """Run a recorded experiment in the lab: every arm, warm start and seed, and a table of what
    came out.

    Interrupted, or killed, it keeps the finished runs and goes on from there.

    Example: `grpo-edu experiment length --quick`
    """
    from ..cli import plain_errors

    with plain_errors():
        from . import analysis, experiments

        if name is None:
            for listed in experiments.EXPERIMENTS.values():
                typer.echo(f"{listed.name:<22}{len(listed.runs):>4} runs  {listed.title}")
            return
        chosen = experiments.experiment(name, quick)
        try:
            written = experiments.run(
                chosen, out, processes=processes, overwrite=overwrite, progress=progress
            )
        except KeyboardInterrupt:
            typer.echo(
                "stopped; finished runs are kept, the same call goes on from there.", err=True
            )
            raise typer.Exit(130) from None
        typer.echo(analysis.report(chosen, experiments.read(written)[0]))
        typer.echo(f"wrote {written}")


@app.command()
def warm_start(
    variant: Annotated[str, typer.Argument(help="after, before or rising.")],
    number: Annotated[
        int, typer.Argument(help="Seed of weights and examples; 0 and 1 are shipped.")
    ],
    out: Annotated[Path, typer.Argument(help="safetensors file to write.")],
) -> None:
    """Teach the lab's format to a random model: how the shipped warm starts were made, about 90
    seconds on one core.

    Example: `grpo-edu warm-start after 0 lab_after_0.safetensors`
    """
    from ..cli import plain_errors

    with plain_errors():
        import torch

        from . import lab

        torch.set_num_threads(1)
        lab.slips(variant)
        lab.save_warm_start(lab.teach(variant, number, progress=True), out)
        typer.echo(f"wrote {out}")


@app.command()
@with_options(run=runs.Run(), settings=Settings())
def train(
    run: runs.Run,
    settings: Settings,
    out: Annotated[Path, typer.Option(help="Folder of the run.")],
    steps: Annotated[
        int | None, typer.Option(help=f"Rollouts; {Settings.steps} where none is given.")
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help=f"{runs.default_learning_rate('tiny'):g} for tiny, "
            f"{runs.default_learning_rate(''):g} for others, where none is given."
        ),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(help="A text that ends a completion of a JSONL; `\\n` is a line end."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with the run in the folder; only --steps is looked at."
        ),
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(help="Of torch on a CPU; 1 for tiny, torch's own choice for others."),
    ] = None,
) -> None:
    """Train a language model with any recipe that asks for rewards alone.

    Every rollout is kept, and `grpo-edu weights` opens it.

    Example: `grpo-edu train --model tiny --task lab --recipe dr_grpo --steps 60 --out runs/first`
    """
    import torch

    torch.set_num_threads(threads or (1 if run.model == "tiny" else torch.get_num_threads()))
    if resume:
        records = runs.resume(out, steps)
    else:
        settings = replace(
            settings,
            steps=Settings.steps if steps is None else steps,
            learning_rate=learning_rate or runs.default_learning_rate(run.model),
        )
        texts = tuple(text.replace("\\n", "\n") for text in stop or [])
        records = runs.begin(replace(run, stop=texts, settings=settings), out)
    _follow(records, out)


def _follow(records: Iterator[dict[str, Any]], out: Path) -> None:
    """One line per step; Ctrl-C ends with exit code 130."""
    try:
        for record in records:
            typer.echo(f"step {record['step']:>4}  {runs.progress_text(record)}")
    except KeyboardInterrupt:
        typer.echo(f"stopped; go on with: grpo-edu train --resume --out {out}", err=True)
        raise typer.Exit(130) from None
    except OSError as error:
        raise OSError(
            f"{error}. The run stays usable: grpo-edu train --resume --out {out} goes on once "
            f"there is room."
        ) from error
    typer.echo(f"wrote {out}")
