"""``grpo-edu recipes``, ``grpo-edu compare`` and ``grpo-edu weights``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .tables import Csv, Json, aligned, for_programs

if TYPE_CHECKING:
    import pandas as pd

    from ..objective.recipe import Recipe


def recipes(
    name: Annotated[
        str | None,
        typer.Argument(help="A recipe, for example `dr_grpo`; all where none is given."),
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
    card: Annotated[
        Path | None,
        typer.Option(help="Write the formula card as an HTML page; all cards without a name."),
    ] = None,
    json: Json = False,
    csv: Csv = False,
) -> None:
    """List the recipes, or show one: formula, numbers, biases, neighbours; or step through one
    token; or write its formula card.

    A card also takes the name of a choice: `group_std`, `sequence_mean`, `k3`.

    Example: `grpo-edu recipes gspo --card gspo.html`
    """
    from ..compare import axis_table
    from ..objective.catalog import RECIPES, recipe

    if card is not None:
        _write_card(name, card)
        return
    entries = list(RECIPES.values()) if name is None else [recipe(name)]
    if token is not None:
        if name is None or json or csv:
            raise ValueError("--token needs the name of a recipe, and prints text only.")
        _step(entries[0], token, file)
    elif json or csv:
        rows = axis_table(entries).reset_index(names="recipe")
        rows.insert(1, "title", [entry.title for entry in entries])
        rows.insert(2, "paper", [entry.paper for entry in entries])
        for_programs(rows, json=json, csv=csv)
    elif table:
        typer.echo(axis_table(entries).to_string())
    elif name is None:
        width = max(map(len, RECIPES))
        for entry in entries:
            typer.echo(f"{entry.name:<{width}}  {entry.title}")
    else:
        _show(entries[0])


def _show(recipe: Recipe) -> None:
    from ..cards import card

    typer.echo(str(card(recipe.name)))


def _write_card(name: str | None, path: Path) -> None:
    from ..cards import card_page, cards_page
    from ..files import replacing

    text = cards_page() if name is None else card_page(name)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    typer.echo(f"wrote {path}")


def _step(recipe: Recipe, token: str, file: Path | None) -> None:
    from ..completions import read_completions
    from ..stepper import step_through

    place = token.split(",")
    if len(place) != 2 or not all(part.strip().isdigit() for part in place):
        raise ValueError(
            f"token is '{token}': expected completion,position, two whole numbers such as 49,0."
        )
    typer.echo(str(step_through(recipe, read_completions(file), int(place[0]), int(place[1]))))


def compare(
    left: Annotated[str, typer.Argument(help="A recipe.")],
    right: Annotated[str, typer.Argument(help="Another recipe.")],
    only: Annotated[
        str | None,
        typer.Option(help="Take only this axis from the second recipe: a single change."),
    ] = None,
    json: Json = False,
    csv: Csv = False,
) -> None:
    """Two formulas axis by axis; the axes that differ are marked with ≠.

    Example: `grpo-edu compare grpo dr_grpo --only aggregation`
    """
    import pandas as pd

    from ..compare import compare as compared
    from ..objective.catalog import recipe

    comparison = compared(recipe(left), recipe(right), only)
    if json or csv:
        columns = ["axis", comparison.left.name, comparison.right.name, "differs"]
        for_programs(pd.DataFrame(comparison.rows(), columns=columns), json=json, csv=csv)
    else:
        typer.echo(str(comparison))


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
    json: Json = False,
    csv: Csv = False,
) -> None:
    """Push per token and share of the step for every completion of a file.

    Example: `grpo-edu weights --recipe grpo --recipe dr_grpo --out report.html`
    """
    import pandas as pd

    from ..completions import read_completions
    from ..objective.catalog import recipe as by_name
    from ..weights import Push, split

    recipes = [by_name(name) for name in dict.fromkeys(recipe or ["grpo", "dr_grpo"])]
    rollouts = read_completions(file)
    micro_batch = split(len(rollouts), micro_batches)
    if group is not None and group not in rollouts.group.tolist():
        raise ValueError(f"group is {group}: expected one of 0 to {int(rollouts.group.max())}.")
    pushes = [Push.of(entry, rollouts, micro_batch) for entry in recipes]
    tables = [push.summary() for push in pushes]
    if group is not None:
        tables = [table.loc[table["group"] == group] for table in tables]
    names = [entry.name for entry in recipes]
    side_by_side = _side_by_side(dict(zip(names, tables, strict=True)))
    if json or csv:
        rows = pd.concat(tables, keys=names, names=["recipe", None]).reset_index(level=0)
        for_programs(rows, json=json, csv=csv)
    else:
        typer.echo(aligned(side_by_side, ["completion", "group"]))
    if out is not None:
        from ..files import replacing
        from ..plots.lens import push_lens

        with replacing(out) as target:
            page = push_lens(pushes, side_by_side, micro_batch)
            target.write_text(page, encoding="utf-8")
        typer.echo(f"wrote {out}", err=True)


def _side_by_side(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """One row per completion; advantage, push and share of each recipe in columns of their own."""
    import pandas as pd

    first = next(iter(tables.values()))
    columns = {name: first[name] for name in ("completion", "group", "reward", "length")}
    for name, table in tables.items():
        columns[f"{name}: advantage"] = table["advantage"]
        columns[f"{name}: push/token"] = table["push_per_token"]
        columns[f"{name}: share %"] = 100 * table["share"]
    return pd.DataFrame(columns)
