"""Options of the command line from the fields of a dataclass: one home for name, type, default and
meaning.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import Field, fields, replace
from typing import Annotated, Any, get_type_hints


def with_options(**defaults: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command one option per setting of its dataclass parameters, with the defaults of the
    object given here.

    ``@with_options(training=Training())`` on ``def length(training, out: Path)`` makes the options
    ``--steps``, ``--prompts`` … and calls ``length(Training(steps=…), out=…)``. An option that the
    command declares itself is not made a second time; fields that are not a ``setting`` get no
    option.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.name not in defaults]
        taken = {p.name for p in own}
        shown = {
            name: [f for f in fields(default) if "meaning" in f.metadata and f.name not in taken]
            for name, default in defaults.items()
        }
        made = [_option(f, defaults[name]) for name, listed in shown.items() for f in listed]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            for name, listed in shown.items():
                values = {f.name: given.pop(f.name) for f in listed}
                given[name] = replace(defaults[name], **values)
            command(**given)

        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *made)]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        del run.__wrapped__  # type: ignore[attr-defined]
        return run

    return decorate


def _option(field: Field[Any], default: Any) -> inspect.Parameter:
    """A setting as a parameter that typer reads."""
    import typer

    value = getattr(default, field.name)
    flags = field.metadata["flags"]
    if value is False:  # a switch that is only turned on
        flags = f"--{field.name.replace('_', '-')}"
    option = typer.Option(*filter(None, [flags]), help=field.metadata["meaning"])
    kind = get_type_hints(type(default))[field.name]
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=value,
        annotation=Annotated[kind, option],
    )
