"""``grpo-edu toy``: trains a toy policy, prints a table, writes the runs as CSV and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..toys import arms as arms_toy
from ..toys import difficulty as difficulty_toy
from ..toys import stopping
from ..toys.training import Training
from .options import with_options
from .tables import Csv, Json, for_programs

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
    json: Json = False,
    csv: Csv = False,
) -> None:
    """Does the loss make wrong completions longer? Two branches that only decide when to stop.

    Example: `grpo-edu toy length --recipe grpo --recipe dr_grpo --mode slip --out runs`
    """
    from ..toys.compare import matched_learning_rate, push_sizes
    from ..toys.flow import flow

    policy = stopping.Stopping(mode=mode, cap=cap)
    recipes = _catalog_recipes(recipe or ["grpo", "dapo", "dr_grpo"], without_kl=exact)
    rates = None
    if match and training.optimizer == "sgd":
        batches = [stopping.rollouts(policy, training, seed) for seed in range(32)]
        rates = matched_learning_rate(push_sizes(recipes, batches), training.learning_rate)
    if exact:
        table = flow(recipes, policy, training, learning_rates=rates)
    else:
        table = stopping.train(
            recipes, policy, training, seeds=seeds, learning_rates=rates, progress=True
        )
    columns = ["pass_rate", "length_right", "length_wrong", "stop_gap"]
    _print(table, columns, rates, json=json, csv=csv)
    _write(table, out, "toy_length", "length_dynamics")


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
    json: Json = False,
    csv: Csv = False,
) -> None:
    """Which prompts does the advantage favour? Fifty prompts, pass rates from .001 to .999.

    Example: `grpo-edu toy difficulty --recipe grpo --recipe rloo --recipe maxrl --samples 64`
    """
    from ..toys.compare import gradient_sizes, matched_learning_rate

    toy = difficulty_toy
    setting = toy.Difficulty(sampling=mode, features=features)
    recipes = _catalog_recipes(recipe or ["grpo", "rloo", "maxrl"])
    rates = None
    if match and training.optimizer == "sgd":
        sizes = gradient_sizes(toy.train, recipes, setting, training, seeds=16)
        rates = matched_learning_rate(sizes, training.learning_rate)
    table = toy.train(recipes, setting, training, seeds=seeds, learning_rates=rates, progress=True)
    buckets = [f"bucket_{number}" for number in (0, setting.buckets // 2, setting.buckets - 1)]
    columns = ["pass_rate", *buckets, "rollouts"]
    _print(table, columns, rates, json=json, csv=csv)
    _write(table, out, "toy_difficulty", "difficulty_progress")


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
    json: Json = False,
    csv: Csv = False,
) -> None:
    """What does the clip do to entropy? A many-arm softmax, several updates per rollout.

    Example: `grpo-edu toy clip --eps-high 0.2 --eps-high 0.28 --updates 16`
    """
    if recipe and eps_high:
        raise ValueError("both --recipe and --eps-high are given: expected one of them.")
    toy = arms_toy
    recipes = _catalog_recipes(recipe) if recipe else toy.clip_recipes(eps_high or (0.2, 0.28, 0.4))
    setting = toy.Arms(arms=arms, right=right)
    table = toy.train(recipes, setting, training, seeds=seeds, progress=True)
    _print(table, ["entropy", "pass_rate"], None, json=json, csv=csv)
    _write(table, out, "toy_clip", "clip_entropy")


def _catalog_recipes(names: Sequence[str], *, without_kl: bool = False) -> list[Recipe]:
    """Catalog recipes; the exact flow leaves a KL term out (it keeps the recipe's name)."""
    from ..objective.catalog import recipe
    from ..toys.training import trainable

    recipes = trainable([recipe(name) for name in dict.fromkeys(names)])
    with_kl = ", ".join(recipe.name for recipe in recipes if recipe.kl)
    if not without_kl or not with_kl:
        return recipes
    typer.echo(f"note: the expected update leaves out the KL term of {with_kl}.", err=True)
    return [recipe.but(recipe.name, kl=None) for recipe in recipes]


def _print(
    table: pd.DataFrame,
    columns: Sequence[str],
    rates: dict[str, float] | None,
    *,
    json: bool,
    csv: bool,
) -> None:
    """The last step: mean and 95 % interval of each column over the seeds."""
    import pandas as pd

    from ..toys.compare import intervals, last_step

    step = table["step"].max()
    if json or csv:
        end = table.loc[table["step"] == step]
        rows = [intervals(end, name, by=["recipe"]).assign(quantity=name) for name in columns]
        for_programs(pd.concat(rows), json=json, csv=csv)
        return
    if rates:
        typer.echo("learning rates: " + ", ".join(f"{k} {v:.4g}" for k, v in rates.items()))
    level = f"simulated, {table['seed'].nunique()} seeds, mean [95 % interval]"
    if bool(table["reward"].isna().all()):
        level = "exact, expected update"
    typer.echo(f"step {step}, {level}")
    typer.echo(last_step(table, columns).to_string())


def _write(table: pd.DataFrame, out: Path | None, name: str, plot: str) -> None:
    """The table as CSV and its picture, where a folder is given."""
    if out is None:
        return
    from ..files import replacing
    from ..plots import dynamics

    with replacing(out / f"{name}.csv") as target:
        table.to_csv(target, index=False, float_format="%.9g")
    with replacing(out / f"{name}.png") as target:
        target.write_bytes(getattr(dynamics, plot)(table).png())
    typer.echo(f"wrote {out / f'{name}.csv'}, {out / f'{name}.png'}", err=True)
