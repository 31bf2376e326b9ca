"""The commands ``explain``, ``export`` and ``identify``, to be mounted by ``grpo_edu.cli``."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

Framework = Annotated[
    str | None, typer.Option("--framework", help="trl, verl, openrlhf …; told from the file where none is given.")
]
Version = Annotated[
    str | None, typer.Option("--version", help="`1.16`, a known commit or fork (`tinyzero@de61e6aa`), or a date.")
]


def explain(
    config: Annotated[
        Path, typer.Argument(help="TRL YAML, Python with a GRPOConfig(...) call, or a verl or OpenRLHF shell script.")
    ],
    framework: Framework = None,
    version: Version = None,
    json: Annotated[bool, typer.Option("--json", help="Plain values instead of text.")] = False,
) -> None:
    """Which loss does this config really run? The file is read, never executed.

    Example: `grpo-edu explain run_grpo.sh --framework verl --version 0.9.1`
    """
    from ..cli import plain_errors
    from .explain import explain as explained

    with plain_errors():
        verdict = explained(config, framework, version)
        typer.echo(json_module.dumps(verdict.to_dict(), indent=2, default=str) if json else str(verdict))
