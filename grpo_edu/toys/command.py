"""``grpo-edu toy``: the three toys from the command line. Prints a table, writes the runs as CSV and a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import pandas as pd

    from ..objective.recipe import Recipe
    from .training import Training

app = typer.Typer(
    no_args_is_help=True, help="Train a policy small enough to be checked against theory."
)

Recipes = Annotated[list[str] | None, typer.Option("--recipe", help="A recipe; may be repeated.")]
Seeds = Annotated[int, typer.Option(help="Runs, seeds 0 … N-1; below 5 an interval says little.")]
Steps = Annotated[int, typer.Option(help="Rollouts.")]
Samples = Annotated[int, typer.Option(help="Completions per prompt, G.")]
Prompts = Annotated[int, typer.Option(help="Prompts per step.")]
Rate = Annotated[
    float,
    typer.Option(
        help="Learning rate of the first recipe; the others start with its push (see --match)."
    ),
]
Optimizer = Annotated[str, typer.Option(help="sgd or adamw.")]
Updates = Annotated[
    int, typer.Option(help="Optimiser steps on one rollout; the clip acts from the second on.")
]
MicroBatches = Annotated[
    int, typer.Option(help="Slices of the step; the micro-batch scope looks at them.")
]
MaxNorm = Annotated[float | None, typer.Option(help="Clip the gradient norm of each seed to this.")]
Placebo = Annotated[
    bool,
    typer.Option("--placebo", help="Shuffle rewards inside each group: nothing can be learnt."),
]
Match = Annotated[
    bool,
    typer.Option(
        "--match/--no-match", help="Scale learning rates so that first steps are equally large."
    ),
]
Out = Annotated[Path | None, typer.Option(help="Folder for the CSV and the picture.")]


@app.command()
def length(
    recipe: Recipes = None,
    seeds: Seeds = 8,
    steps: Steps = 300,
    mode: Annotated[str, typer.Option(help="learnable, environment or slip.")] = "learnable",
    samples: Samples = 8,
    prompts: Prompts = 8,
    learning_rate: Rate = 2.0,
    cap: Annotated[int, typer.Option(help="Length limit, tokens.")] = 64,
    optimizer: Optimizer = "sgd",
    updates: Updates = 1,
    micro_batches: MicroBatches = 1,
    max_norm: MaxNorm = None,
    placebo: Placebo = False,
    match: Match = True,
    exact: Annotated[
        bool, typer.Option("--exact", help="Follow the expected update; nothing is sampled.")
    ] = False,
    out: Out = None,
) -> None:
    """Does the loss make wrong completions longer? Two branches that only decide when to stop.

    Example: `grpo-edu toy length --recipe grpo --recipe dr_grpo --mode slip --out runs`
    """
    from ..cli import plain_errors

    with plain_errors():
        from . import stopping
        from .compare import matched_learning_rate, push_sizes
        from .flow import flow

        training = _training(
            steps,
            prompts,
            samples,
            learning_rate,
            optimizer,
            updates,
            micro_batches,
            max_norm,
            placebo,
        )
        policy, chosen = (
            stopping.Stopping(mode=mode, cap=cap),
            _named(recipe or ["grpo", "dapo", "dr_grpo"], without_kl=exact),
        )
        rates = None
        if match and optimizer == "sgd":
            batches = [stopping.rollouts(policy, training, seed) for seed in range(32)]
            rates = matched_learning_rate(push_sizes(chosen, batches), learning_rate)
        if exact:
            table = flow(chosen, policy, training, learning_rates=rates)
        else:
            table = _trained(stopping.train, chosen, policy, training, seeds, rates)
        columns = ["pass_rate", "length_right", "length_wrong", "stop_gap"]
        _report(table, columns, rates, out, "toy_length", "length_dynamics")


@app.command()
def difficulty(
    recipe: Recipes = None,
    seeds: Seeds = 8,
    steps: Steps = 300,
    mode: Annotated[
        str,
        typer.Option(
            help="Groups: plain, refill (new prompts for dead groups) or reroll (same prompt)."
        ),
    ] = "plain",
    features: Annotated[
        int, typer.Option(help="Parameters that all prompts share; 0: one logit per prompt.")
    ] = 0,
    samples: Samples = 16,
    prompts: Prompts = 50,
    learning_rate: Rate = 10.0,
    optimizer: Optimizer = "sgd",
    updates: Updates = 1,
    max_norm: MaxNorm = None,
    placebo: Placebo = False,
    match: Match = True,
    out: Out = None,
) -> None:
    """Which prompts does the advantage favour? Fifty prompts, pass rates from .001 to .999.

    Example: `grpo-edu toy difficulty --recipe grpo --recipe rloo --recipe maxrl --samples 64`
    """
    from ..cli import plain_errors

    with plain_errors():
        from . import difficulty as toy
        from .compare import gradient_sizes, matched_learning_rate

        training = _training(
            steps, prompts, samples, learning_rate, optimizer, updates, 1, max_norm, placebo
        )
        setting, chosen = (
            toy.Difficulty(sampling=mode, features=features),
            _named(recipe or ["grpo", "rloo", "maxrl"]),
        )
        rates = None
        if match and optimizer == "sgd":
            rates = matched_learning_rate(
                gradient_sizes(toy.train, chosen, setting, training, seeds=16), learning_rate
            )
        table = _trained(toy.train, chosen, setting, training, seeds, rates)
        columns = [
            "pass_rate",
            "bucket_0",
            f"bucket_{setting.buckets // 2}",
            f"bucket_{setting.buckets - 1}",
            "rollouts",
        ]
        _report(table, columns, rates, out, "toy_difficulty", "difficulty_progress")


@app.command()
def clip(
    recipe: Recipes = None,
    eps_high: Annotated[
        list[float] | None, typer.Option(help="Upper clip bounds, where no recipe is given.")
    ] = None,
    seeds: Seeds = 8,
    steps: Steps = 100,
    arms: Annotated[int, typer.Option(help="Arms per prompt.")] = 50,
    right: Annotated[int, typer.Option(help="How many of them are right.")] = 5,
    samples: Samples = 16,
    prompts: Prompts = 8,
    learning_rate: Rate = 4.0,
    optimizer: Optimizer = "sgd",
    updates: Updates = 16,
    max_norm: MaxNorm = None,
    placebo: Placebo = False,
    out: Out = None,
) -> None:
    """What does the clip do to entropy? A many-arm softmax, several updates per rollout.

    Example: `grpo-edu toy clip --eps-high 0.2 --eps-high 0.28 --updates 16`
    """
    from ..cli import plain_errors

    with plain_errors():
        from . import arms as toy

        training = _training(
            steps, prompts, samples, learning_rate, optimizer, updates, 1, max_norm, placebo
        )
        if recipe and eps_high:
            raise ValueError("both --recipe and --eps-high are given: expected one of them.")
        chosen = _named(recipe) if recipe else toy.clip_recipes(eps_high or (0.2, 0.28, 0.4))
        table = _trained(toy.train, chosen, toy.Arms(arms=arms, right=right), training, seeds, None)
        _report(table, ["entropy", "pass_rate"], None, out, "toy_clip", "clip_entropy")


def _training(
    steps: int,
    prompts: int,
    samples: int,
    learning_rate: float,
    optimizer: str,
    updates: int,
    micro_batches: int,
    max_norm: float | None,
    placebo: bool,
) -> Training:
    from .training import Training

    return Training(
        steps=steps,
        prompts=prompts,
        samples=samples,
        learning_rate=learning_rate,
        optimizer=optimizer,
        updates=updates,
        micro_batches=micro_batches,
        max_norm=max_norm,
        placebo=placebo,
    )


def _named(names: Sequence[str], *, without_kl: bool = False) -> list[Recipe]:
    """Catalog recipes; the exact flow leaves a KL term out (it keeps the recipe's name)."""
    from ..objective.catalog import recipe
    from .training import trainable

    chosen = trainable([recipe(name) for name in dict.fromkeys(names)])
    if without_kl and any(one.kl for one in chosen):
        left = ", ".join(one.name for one in chosen if one.kl)
        typer.echo(f"note: the expected update leaves out the KL term of {left}.", err=True)
    return [one.but(one.name, kl=None) for one in chosen] if without_kl else chosen


def _trained(
    train: Callable[..., pd.DataFrame],
    chosen: Sequence[Recipe],
    setting: Any,
    training: Training,
    seeds: int,
    rates: Any,
) -> pd.DataFrame:
    """Run a toy with a progress bar; Ctrl-C ends with exit code 130."""
    try:
        return train(chosen, setting, training, seeds=seeds, learning_rates=rates, progress=True)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _report(
    table: pd.DataFrame,
    columns: Sequence[str],
    rates: dict[str, float] | None,
    out: Path | None,
    name: str,
    plot: str,
) -> None:
    """Print the last step, and write the table and the picture where a folder is given."""
    import pandas as pd

    from .compare import last_step

    if rates:
        typer.echo("learning rates: " + ", ".join(f"{k} {v:.4g}" for k, v in rates.items()))
    seeds, step = table["seed"].nunique(), table["step"].max()
    exact = bool(table["reward"].isna().all())
    typer.echo(
        f"step {step}, "
        + ("exact, expected update" if exact else f"simulated, {seeds} seeds, mean [95 % interval]")
    )
    with pd.option_context("display.width", 200, "display.max_columns", 30):
        typer.echo(last_step(table, columns).to_string())
    if out is None:
        return
    from ..files import replacing
    from ..plots import dynamics

    with replacing(out / f"{name}.csv") as target:
        table.to_csv(target, index=False, float_format="%.9g")
    with replacing(out / f"{name}.png") as target:
        target.write_bytes(getattr(dynamics, plot)(table).png())
    typer.echo(f"wrote {out / f'{name}.csv'}, {out / f'{name}.png'}")
