"""``grpo-edu toy``: the three toys from the command line.

Prints a table, writes the runs as CSV and a picture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..options import with_options
from . import arms as arms_toy
from . import difficulty as difficulty_toy
from . import stopping
from .training import Training

if TYPE_CHECKING:
    import pandas as pd

    from ..objective.recipe import Recipe

app = typer.Typer(
    no_args_is_help=True, help="Train a policy small enough to be checked against theory."
)

Recipes = Annotated[list[str] | None, typer.Option("--recipe", help="A recipe; may be repeated.")]
Seeds = Annotated[int, typer.Option(help="Runs, seeds 0 … N-1; below 5 an interval says little.")]
Match = Annotated[
    bool,
    typer.Option(
        "--match/--no-match", help="Scale learning rates so that first steps are equally large."
    ),
]
Out = Annotated[Path | None, typer.Option(help="Folder for the CSV and the picture.")]


@app.command()
@with_options(training=stopping.TRAINING)
def length(
    training: Training,
    recipe: Recipes = None,
    seeds: Seeds = 8,
    mode: Annotated[str, typer.Option(help="learnable, environment or slip.")] = "learnable",
    cap: Annotated[int, typer.Option(help="Length limit, tokens.")] = 64,
    match: Match = True,
    exact: Annotated[
        bool, typer.Option("--exact", help="Follow the expected update; nothing is sampled.")
    ] = False,
    out: Out = None,
) -> None:
    """Does the loss make wrong completions longer? Two branches that only decide when to stop.

    Example: `grpo-edu toy length --recipe grpo --recipe dr_grpo --mode slip --out runs`
    """
    from .compare import matched_learning_rate, push_sizes
    from .flow import flow

    policy = stopping.Stopping(mode=mode, cap=cap)
    recipes = _catalog_recipes(recipe or ["grpo", "dapo", "dr_grpo"], without_kl=exact)
    rates = None
    if match and training.optimizer == "sgd":
        batches = [stopping.rollouts(policy, training, seed) for seed in range(32)]
        rates = matched_learning_rate(push_sizes(recipes, batches), training.learning_rate)
    if exact:
        table = flow(recipes, policy, training, learning_rates=rates)
    else:
        table = _trained(stopping.train, recipes, policy, training, seeds, rates)
    columns = ["pass_rate", "length_right", "length_wrong", "stop_gap"]
    _report(table, columns, rates, out, "toy_length", "length_dynamics")


@app.command()
@with_options(training=difficulty_toy.TRAINING)
def difficulty(
    training: Training,
    recipe: Recipes = None,
    seeds: Seeds = 8,
    mode: Annotated[
        str,
        typer.Option(
            help="Groups: plain, refill (new prompts for dead groups) or reroll (same prompt)."
        ),
    ] = "plain",
    features: Annotated[
        int, typer.Option(help="Parameters that all prompts share; 0: one logit per prompt.")
    ] = 0,
    match: Match = True,
    out: Out = None,
) -> None:
    """Which prompts does the advantage favour? Fifty prompts, pass rates from .001 to .999.

    Example: `grpo-edu toy difficulty --recipe grpo --recipe rloo --recipe maxrl --samples 64`
    """
    from .compare import gradient_sizes, matched_learning_rate

    toy = difficulty_toy
    setting = toy.Difficulty(sampling=mode, features=features)
    recipes = _catalog_recipes(recipe or ["grpo", "rloo", "maxrl"])
    rates = None
    if match and training.optimizer == "sgd":
        sizes = gradient_sizes(toy.train, recipes, setting, training, seeds=16)
        rates = matched_learning_rate(sizes, training.learning_rate)
    table = _trained(toy.train, recipes, setting, training, seeds, rates)
    buckets = [f"bucket_{number}" for number in (0, setting.buckets // 2, setting.buckets - 1)]
    columns = ["pass_rate", *buckets, "rollouts"]
    _report(table, columns, rates, out, "toy_difficulty", "difficulty_progress")


@app.command()
@with_options(training=arms_toy.TRAINING)
def clip(
    training: Training,
    recipe: Recipes = None,
    eps_high: Annotated[
        list[float] | None, typer.Option(help="Upper clip bounds, where no recipe is given.")
    ] = None,
    seeds: Seeds = 8,
    arms: Annotated[int, typer.Option(help="Arms per prompt.")] = 50,
    right: Annotated[int, typer.Option(help="How many of them are right.")] = 5,
    out: Out = None,
) -> None:
    """What does the clip do to entropy? A many-arm softmax, several updates per rollout.

    Example: `grpo-edu toy clip --eps-high 0.2 --eps-high 0.28 --updates 16`
    """
    if recipe and eps_high:
        raise ValueError("both --recipe and --eps-high are given: expected one of them.")
    toy = arms_toy
    recipes = _catalog_recipes(recipe) if recipe else toy.clip_recipes(eps_high or (0.2, 0.28, 0.4))
    setting = toy.Arms(arms=arms, right=right)
    table = _trained(toy.train, recipes, setting, training, seeds, None)
    _report(table, ["entropy", "pass_rate"], None, out, "toy_clip", "clip_entropy")


def _catalog_recipes(names: Sequence[str], *, without_kl: bool = False) -> list[Recipe]:
    """Catalog recipes; the exact flow leaves a KL term out (it keeps the recipe's name)."""
    from ..objective.catalog import recipe
    from .training import trainable

    recipes = trainable([recipe(name) for name in dict.fromkeys(names)])
    with_kl = ", ".join(recipe.name for recipe in recipes if recipe.kl)
    if not without_kl or not with_kl:
        return recipes
    typer.echo(f"note: the expected update leaves out the KL term of {with_kl}.", err=True)
    return [recipe.but(recipe.name, kl=None) for recipe in recipes]


def _trained(
    train: Callable[..., pd.DataFrame],
    recipes: Sequence[Recipe],
    setting: Any,
    training: Training,
    seeds: int,
    rates: Any,
) -> pd.DataFrame:
    """Run a toy with a progress bar; Ctrl-C ends with exit code 130."""
    try:
        return train(recipes, setting, training, seeds=seeds, learning_rates=rates, progress=True)
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
    seeds = table["seed"].nunique()
    step = table["step"].max()
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
