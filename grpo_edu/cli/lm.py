"""``grpo-edu sample``, ``grpo-edu train``, ``grpo-edu experiment`` and ``grpo-edu warm-start``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ..lm import train as runs
from ..lm.loop import Settings
from .errors import message
from .options import with_options

Progress = Annotated[
    bool, typer.Option("--progress/--no-progress", help="Draw a progress bar on a terminal.")
]


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
    """Sample completions of any Hugging Face model, score them, and write them with log-probs.

    After Ctrl-C or a kill, finished prompts are kept, and the same call continues with the rest.

    Example: `grpo-edu sample prompts.jsonl out.jsonl --model smollm2 --plain --stop '\\n'`
    """
    from ..lm.sample import sample_file

    written = sample_file(
        model,
        prompts,
        out,
        samples_per_prompt=samples,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=seed,
        checker=checker,
        stop=_line_ends(stop),
        chat=chat,
        overwrite=overwrite,
    )
    typer.echo(f"wrote {written}")


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
    """Run a recorded experiment in the lab: every arm, warm start and seed, and a table of results.

    After Ctrl-C or a kill, finished runs are kept, and the same call continues with the rest.

    Example: `grpo-edu experiment length --quick`
    """
    from ..lm import analysis, experiments

    if name is None:
        for listed in experiments.EXPERIMENTS.values():
            typer.echo(f"{listed.name:<22}{len(listed.runs):>4} runs  {listed.title}")
        return
    experiment = experiments.experiment(name, quick)
    try:
        written = experiments.run(
            experiment, out, processes=processes, overwrite=overwrite, progress=progress
        )
    except KeyboardInterrupt:
        typer.echo("stopped; the same call continues with the runs that are missing.", err=True)
        raise
    typer.echo(analysis.report(experiment, experiments.read(written)[0]))
    typer.echo(f"wrote {written}")


def warm_start(
    variant: Annotated[str, typer.Argument(help="after, before or rising.")],
    number: Annotated[
        int, typer.Argument(help="Seed of weights and examples; 0 and 1 are shipped.")
    ],
    out: Annotated[Path, typer.Argument(help="safetensors file to write.")],
) -> None:
    """Teach the lab's format to a random model, as the shipped warm starts were made.

    It takes about 90 seconds on one core.

    Example: `grpo-edu warm-start after 0 lab_after_0.safetensors`
    """
    import torch

    from ..lm import lab

    torch.set_num_threads(1)
    lab.slips(variant)
    lab.save_warm_start(lab.teach(variant, number, progress=True), out)
    typer.echo(f"wrote {out}")


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
    """Train a language model with any recipe that needs only rewards.

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
        run = replace(run, stop=_line_ends(stop), settings=settings)
        records = runs.begin(run, out)
    _follow(records, out)


def _follow(records: Iterator[dict[str, Any]], out: Path) -> None:
    """Print one line per step; where the run is stopped, say how to continue it."""
    try:
        for record in records:
            typer.echo(f"step {record['step']:>4}  {runs.progress_text(record)}")
    except KeyboardInterrupt:
        typer.echo(f"stopped; continue with: grpo-edu train --resume --out {out}", err=True)
        raise
    except BrokenPipeError:
        raise
    except OSError as error:
        again = f"Once that is mended, continue with: grpo-edu train --resume --out {out}"
        raise OSError(f"{message(error)} {again}") from error
    typer.echo(f"wrote {out}")


def _line_ends(stop: list[str] | None) -> tuple[str, ...]:
    r"""A shell passes ``\n`` as two characters; here it is a line end."""
    return tuple(text.replace("\\n", "\n") for text in stop or [])
