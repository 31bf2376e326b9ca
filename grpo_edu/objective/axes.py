"""What every axis of a recipe shares: a choice is a pure function, its settings are bound with ``functools.partial``.

A choice asks for its inputs by name (``mask``, ``group``, ``reward`` …), as a pytest test asks for fixtures, so its
signature shows everything it looks at. ``run`` hands them over; ``describe`` names a choice and its settings.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, TypeVar

Choice = Callable[..., Any]
F = TypeVar("F", bound=Callable[..., Any])


def formula(latex: str, text: str) -> Callable[[F], F]:
    """Give a choice its formula, as LaTeX and as plain text. ``<name>`` in either is filled with the setting."""

    def attach(function: F) -> F:
        function.latex, function.text = latex, text  # type: ignore[attr-defined]
        return function

    return attach


def function_of(choice: Choice) -> Choice:
    """The plain function behind a choice."""
    return choice.func if isinstance(choice, partial) else choice


@cache
def _parameters(function: Choice) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


def settings(choice: Choice) -> dict[str, Any]:
    """Bound and default settings of a choice: ``partial(group_std, ddof=1, eps=0)`` -> ``{"ddof": 1, "eps": 0}``."""
    bound = choice.keywords if isinstance(choice, partial) else {}
    values = {
        n: bound.get(n, p.default)
        for n, p in _parameters(function_of(choice)).items()
        if n in bound or _is_setting(p)
    }
    return {name: value for name, value in values.items() if value is not inspect.Parameter.empty}


def _is_setting(parameter: inspect.Parameter) -> bool:
    return parameter.kind is parameter.KEYWORD_ONLY


def describe(choice: Choice) -> str:
    """``group_std(ddof=1, eps=0)``: the name of a choice with its settings, the same text for equal choices."""
    inner = ", ".join(
        f"{name}={_short(value)}" for name, value in settings(choice).items() if value is not None
    )
    return f"{function_of(choice).__name__}({inner})" if inner else function_of(choice).__name__


def _short(value: Any) -> str:
    return (
        describe(value)
        if callable(value)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def fill(choice: Choice, template: str, inner: Callable[[Choice], str]) -> str:
    """A formula template with the settings of the choice in place of ``<name>`` (braces belong to LaTeX).

    A setting that is itself a choice is written by ``inner``.
    """
    for name, value in settings(choice).items():
        template = template.replace(f"<{name}>", inner(value) if callable(value) else _short(value))
    return template


def latex(choice: Choice) -> str:
    """LaTeX of a choice; a function without ``@formula`` shows its name."""
    function = function_of(choice)
    name = function.__name__.replace("_", r"\_")
    return fill(choice, getattr(function, "latex", rf"\mathrm{{{name}}}"), latex)


def text(choice: Choice) -> str:
    """Plain-text formula of a choice."""
    function = function_of(choice)
    return fill(choice, getattr(function, "text", function.__name__), text)


def companion(choice: Choice, function: Choice) -> Choice:
    """A function that belongs to a choice (its derivative), with the same settings bound."""
    own = _parameters(function)
    return partial(function, **{n: v for n, v in settings(choice).items() if n in own})


def inputs_of(choice: Choice, *, required: bool = False) -> set[str]:
    """Names of everything that a choice asks for, or of what it cannot do without."""
    parameters = _parameters(function_of(choice))
    return {
        name
        for name, parameter in parameters.items()
        if not required or parameter.default is parameter.empty
    }


def run(choice: Choice, available: Mapping[str, Any]) -> Any:
    """Call a choice with the inputs that its signature asks for.

    An input is a positional parameter; a setting is keyword-only and comes from the choice alone, so
    that no value of the same name can reach it from elsewhere.

    Raises:
        TypeError: the choice asks for an input that does not exist, or has a setting without a value.
        ValueError: the choice needs a field of the rollouts that is missing.
    """
    bound = choice.keywords if isinstance(choice, partial) else {}
    inputs = {}
    for name, parameter in _parameters(function_of(choice)).items():
        if name in bound or (parameter.default is not parameter.empty and name not in available):
            continue
        if name not in available or _is_setting(parameter):
            known = ", ".join(sorted(available))
            raise TypeError(
                f"{describe(choice)} asks for '{name}', which is neither an input ({known}) nor bound. "
                f"Bind a setting with functools.partial({function_of(choice).__name__}, {name}=...)."
            )
        if available[name] is None and parameter.default is parameter.empty:
            raise ValueError(
                f"{describe(choice)} needs rollouts.{name}, which is missing. Give {name} when you build the Rollouts."
            )
        inputs[name] = available[name]
    return choice(**inputs)
