"""``grpo-edu explain``, ``grpo-edu identify`` and ``grpo-edu export``."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..frameworks.explain import Verdict

Framework = Annotated[
    str | None,
    typer.Option(
        "--framework", help="trl, verl, openrlhf …; read off the file where none is given."
    ),
]
Version = Annotated[
    str | None,
    typer.Option(
        "--version", help="`1.16`, a known commit or fork (`tinyzero@de61e6aa`), or a date."
    ),
]


def explain(
    config: Annotated[
        Path,
        typer.Argument(
            help="Python or a notebook with a GRPOConfig(...) call, a launch script, YAML or TOML, "
            "or the folder of a run with what hydra or wandb wrote there."
        ),
    ],
    framework: Framework = None,
    version: Version = None,
    json: Annotated[bool, typer.Option("--json", help="Plain values instead of text.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Draw the weights into this .png, or text and weights into this .html."),
    ] = None,
) -> None:
    """Which loss does this config really run? The file is read, never executed.

    Example: `grpo-edu explain run_grpo.sh --framework verl --version 0.9.1 --out verdict.html`
    """
    from ..frameworks.explain import explain as explained

    verdict = explained(config, framework, version)
    typer.echo(
        json_module.dumps(verdict.to_dict(), indent=2, default=str) if json else str(verdict)
    )
    if out is not None:
        _draw(verdict, out)


def _draw(verdict: Verdict, out: Path) -> None:
    if out.suffix not in (".png", ".html"):
        raise ValueError(f"out is {out}: expected a name that ends in .png or .html.")
    from ..files import replacing
    from ..plots.heatmap import weight_map
    from ..plots.verdict_page import verdict_page

    recipes, rollouts = verdict.example()
    picture = weight_map(recipes, rollouts, title=verdict.headline(), relative=True)
    page = verdict_page(verdict.headline(), str(verdict), picture) if out.suffix == ".html" else ""
    with replacing(out) as target:
        target.write_bytes(page.encode() or picture.png())
    typer.echo(f"wrote {out}", err=True)


def identify(
    function: Annotated[
        str,
        typer.Argument(
            help="`module:function`; the module is imported from the current folder or the path."
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="`name=value` for another argument; may be repeated."),
    ] = None,
) -> None:
    """Which loss is this function? Its gradient ∂loss/∂logp says advantage, aggregation, clip, KL.

    The module is imported, so its own code runs. Arguments are found by name: `logp, mask`,
    `advantages` or `rewards` with `group`, optional `old_logp, ref_logp`.

    Example: `grpo-edu identify my_losses:grpo_loss --set beta=0.04`
    """
    from ..frameworks.identify import identify as identified
    from ..frameworks.loading import imported, named_values

    values = named_values(settings or [], "set")
    typer.echo(str(identified(imported(function, "function"), **values)))


def export(
    recipe: Annotated[str, typer.Argument(help="A recipe of the catalog: `dr_grpo`, `dapo` …")],
    to: Annotated[str, typer.Option("--to", help="trl, verl or openrlhf.")],
    version: Version = None,
) -> None:
    """The settings that run a recipe in a framework, and every difference that stays.

    For TRL it is a complete training script.

    Example: `grpo-edu export dr_grpo --to trl > train.py`
    """
    from ..frameworks.export import export as exported
    from ..objective.catalog import recipe as by_name

    typer.echo(str(exported(by_name(recipe), to, version)))
