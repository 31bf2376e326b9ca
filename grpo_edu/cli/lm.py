"""``grpo-edu sample``, ``grpo-edu train``, ``grpo-edu experiment`` and ``grpo-edu warm-start``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from .errors import message

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
        typer.echo(
            "stopped; finished runs are kept, the same call continues with the rest.", err=True
        )
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


def train(
    out: Annotated[Path, typer.Option(help="Folder of the run.")],
    model: Annotated[
        str, typer.Option(help="`tiny`, `smollm2`, a Hugging Face id, a folder or a .gguf file.")
    ] = "tiny",
    task: Annotated[
        str,
        typer.Option(
            help="`lab`, `chain_sum`, `products`, a JSONL of prompts and answers, or `gsm8k:FILE`."
        ),
    ] = "lab",
    recipe: Annotated[
        str, typer.Option(help="A name of the catalog: `grpo-edu recipes`.")
    ] = "grpo",
    kl: Annotated[
        bool,
        typer.Option(
            "--kl/--no-kl", help="Keep the recipe's KL term, which needs a reference model."
        ),
    ] = True,
    steps: Annotated[int | None, typer.Option(help="Rollouts; 100 where none is given.")] = None,
    prompts: Annotated[int, typer.Option(help="Prompts per step.")] = 12,
    samples: Annotated[int, typer.Option(help="Completions per prompt, G.")] = 8,
    max_new_tokens: Annotated[
        int | None, typer.Option(help="Length limit; the task's where none is given.")
    ] = None,
    temperature: Annotated[
        float, typer.Option(help="Of sampling, and in the logits that are trained.")
    ] = 1.0,
    learning_rate: Annotated[
        float | None, typer.Option(help="2e-4 for tiny, 1e-6 for others.")
    ] = None,
    optimizer: Annotated[str, typer.Option(help="adamw or sgd.")] = "adamw",
    updates: Annotated[
        int, typer.Option(help="Optimiser steps on one rollout; the clip acts from the second on.")
    ] = 1,
    micro_batches: Annotated[int, typer.Option(help="Slices of the step; less memory.")] = 4,
    max_norm: Annotated[float, typer.Option(help="Scale the gradient down to this norm.")] = 1.0,
    refill: Annotated[
        int,
        typer.Option(help="Draw new prompts for dead groups, in at most this many more rounds."),
    ] = 0,
    placebo: Annotated[
        bool, typer.Option("--placebo", help="Shuffle rewards inside each group.")
    ] = False,
    bf16: Annotated[
        bool, typer.Option("--bf16", help="Forward and backward passes in bfloat16.")
    ] = False,
    bf16_sampler: Annotated[
        bool, typer.Option("--bf16-sampler", help="Sample from a bfloat16 copy of the policy.")
    ] = False,
    checker: Annotated[
        str, typer.Option(help="Rewards of a JSONL: last_number, first_number or mathematics.")
    ] = "last_number",
    chat: Annotated[
        bool,
        typer.Option(
            "--chat/--plain", help="Prompts of a file as turns of a chat, or as they are."
        ),
    ] = True,
    stop: Annotated[
        list[str] | None,
        typer.Option(help="A text that ends a completion of a JSONL; `\\n` is a line end."),
    ] = None,
    checkpoint_every: Annotated[int, typer.Option(help="Steps between checkpoints.")] = 20,
    seed: Annotated[
        int, typer.Option(help="The same seed gives the same run on the same machine.")
    ] = 0,
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
    """Train a language model with any recipe that needs only rewards; every rollout is kept.

    `grpo-edu weights` reads the rollouts of a step.

    Example: `grpo-edu train --model tiny --task lab --recipe dr_grpo --steps 60 --out runs/first`
    """
    import torch

    from ..lm import train as runs
    from ..lm.loop import Settings

    torch.set_num_threads(threads or (1 if model == "tiny" else torch.get_num_threads()))
    if resume:
        records = runs.resume(out, steps)
    else:
        settings = Settings(
            steps=100 if steps is None else steps,
            prompts=prompts,
            samples=samples,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            learning_rate=learning_rate or (2e-4 if model == "tiny" else 1e-6),
            optimizer=optimizer,
            updates=updates,
            micro_batches=min(micro_batches, prompts * samples),
            max_norm=max_norm,
            refill=refill,
            placebo=placebo,
            bf16=bf16,
            bf16_sampler=bf16_sampler,
            seed=seed,
        )
        texts = _line_ends(stop)
        run = runs.Run(model, task, recipe, kl, checker, chat, texts, checkpoint_every, settings)
        records = runs.begin(run, out)
    _follow(records, out)


def _follow(records: Iterator[dict[str, Any]], out: Path) -> None:
    """Print one line per step; where the run is stopped, say how to continue it."""
    from ..lm.train import progress_text

    try:
        for record in records:
            typer.echo(f"step {record['step']:>4}  {progress_text(record)}")
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
