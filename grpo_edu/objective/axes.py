"""What every axis of a recipe shares: a choice is a pure function, its settings are bound with
``functools.partial``.

A choice asks for its inputs by name (``mask``, ``group``, ``reward`` …), as a pytest test asks for
fixtures, so its signature shows everything it looks at. ``INPUTS`` lists the names, ``SETTINGS``
the range of each setting; ``check`` holds a choice against both when a recipe is built. ``run``
hands the inputs over; ``describe`` names a choice and its settings.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Annotated, Any, NamedTuple, TypeVar

from ..checks import (
    Alpha,
    Check,
    Count,
    Ddof,
    NonNegative,
    Positive,
    Probability,
    check_of,
    number,
    shown,
)
from .numbers import Numbers

Choice = Callable[..., Any]
F = TypeVar("F", bound=Callable[..., Any])


class Input(NamedTuple):
    """An input that a choice may ask for by name: its shape, the axes that have it, and its
    meaning.
    """

    name: str
    shape: str
    axes: tuple[str, ...]
    meaning: str


TOKEN_AXES = ("surrogate", "correction", "kl")
AGGREGATIONS = ("aggregation", "kl_aggregation")
PLAN = ("rewards", "filters", "baseline", "scale", *AGGREGATIONS)
EVERYWHERE = (*PLAN, *TOKEN_AXES)
INPUTS = (
    Input("logp", "[N, T]", EVERYWHERE, "log-probability under the policy that is trained"),
    Input("old_logp", "[N, T]", EVERYWHERE, "log-probability under the proximal policy"),
    Input("ref_logp", "[N, T]", EVERYWHERE, "log-probability under the reference policy"),
    Input("sampler_logp", "[N, T]", EVERYWHERE, "log-probability under the policy that sampled"),
    Input("entropy", "[N, T]", EVERYWHERE, "entropy of the next-token distribution, in nats"),
    Input("mask", "[N, T]", EVERYWHERE, "bool, tokens that are trained"),
    Input("given_advantage", "[N] or [N, T]", PLAN, "advantage given from outside"),
    Input("centred", "[N] or [N, T]", ("scale", *AGGREGATIONS), "what the baseline returned"),
    Input("advantage", "[N, T]", (*AGGREGATIONS, *TOKEN_AXES), "centred and scaled"),
    Input("group", "[N]", PLAN, "prompt of each completion"),
    Input("reward", "[N]", PLAN, "reward, after the shaping so far"),
    Input("raw_reward", "[N]", PLAN, "reward before any shaping"),
    Input("counted", "[N]", PLAN, "bool, rows whose reward enters the statistics"),
    Input("present", "[N]", PLAN, "bool, rows that are in the batch"),
    Input("micro_batch", "[N]", PLAN, "micro-batch of each completion"),
    Input("truncated", "[N]", PLAN, "bool, the length limit cut the completion"),
    Input("reward_parts", "[N, K]", PLAN, "one column per reward function"),
    Input("token_reward", "[N, T]", PLAN, "reward given at a token"),
    Input("value", "[N, T]", PLAN, "value of the state before each token"),
    Input("greedy_reward", "[N]", PLAN, "reward of the prompt's greedy completion"),
    Input("max_new_tokens", "number", PLAN, "length limit of the sampler"),
)


def inputs_at(axis: str) -> list[str]:
    """Names of the inputs that a choice on this axis may ask for."""
    return [entry.name for entry in INPUTS if axis in entry.axes]


Beta = Annotated[float, partial(number, low=-1e6, high=1e6)]  # below 0: a fault that identify names
SETTINGS: dict[str, Any] = {  # the range of each setting, whichever choice has it
    "alone": NonNegative,
    "alpha": Alpha,
    "average": bool,
    "baseline": Choice,
    "beta": Beta,
    "cache": Count,
    "cap": Positive,
    "count_eps": NonNegative,
    "count_masked_rows": bool,
    "ddof": Ddof,
    "delta": Positive,
    "delta_high": Positive,
    "delta_low": Positive,
    "eps": NonNegative,
    "eps_high": NonNegative,
    "eps_low": NonNegative,
    "floor": NonNegative,
    "gamma": Probability,
    "high": Positive,
    "in_baseline": bool,
    "inner": Choice,
    "k": Count,
    "k_neg": NonNegative,
    "k_pos": NonNegative,
    "keep": Annotated[float, partial(number, low=0.0, high=1.0)],
    "lam": Probability,
    "lam_neg": NonNegative,
    "lam_pos": NonNegative,
    "length": Positive,
    "log_cap": Annotated[float, partial(number, low=0.0, high=20.0)],
    "low": float,
    "part": Probability,
    "positive": NonNegative,
    "steps": Positive,
    "tau_neg": Positive,
    "tau_pos": Positive,
    "tokens": Positive,
    "value": Choice,
    "weights": tuple[float, ...] | list[float],
}
MAY_BE_NONE = ("alone", "cap", "length", "log_cap", "low", "weights")


def formula(
    latex: str,
    text: str,
    *,
    label: str,
    numbers: Callable[[Numbers], str] | None = None,
    centres: bool = False,
) -> Callable[[F], F]:
    """Give a choice what is said of it.

    Args:
        latex, text: its formula; ``<name>`` in either is filled with the setting.
        label: its name as people say it.
        numbers: the formula with a token's numbers in it.
        centres: True of a scale that also subtracts a mean (a z-score).
    """

    def attach(function: F) -> F:
        function.latex = latex  # type: ignore[attr-defined]
        function.text = text  # type: ignore[attr-defined]
        function.label = label  # type: ignore[attr-defined]
        function.numbers = numbers  # type: ignore[attr-defined]
        function.centres = centres  # type: ignore[attr-defined]
        return function

    return attach


def numbers(choice: Choice, n: Numbers, part: str = "numbers") -> str | None:
    """The formula of a choice with the numbers of a token in it; None for a choice without one.

    ``part`` is ``numbers``, or ``ratio`` or ``gate`` of a surrogate.
    """
    write = getattr(function_of(choice), part, None)
    if write is None:
        return None
    return write(Numbers(**{**vars(n), "s": Numbers(**settings(choice))}))


def function_of(choice: Choice) -> Choice:
    """The plain function behind a choice."""
    return choice.func if isinstance(choice, partial) else choice


@cache
def _parameters(function: Choice) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


def settings(choice: Choice) -> dict[str, Any]:
    """Bound and default settings of a choice: ``partial(group_std, ddof=1, eps=0)`` -> ``{"ddof":
    1, "eps": 0}``.
    """
    bound = choice.keywords if isinstance(choice, partial) else {}
    values = {
        n: bound.get(n, p.default)
        for n, p in _parameters(function_of(choice)).items()
        if n in bound or _is_setting(p)
    }
    return {name: value for name, value in values.items() if value is not inspect.Parameter.empty}


def _is_setting(parameter: inspect.Parameter) -> bool:
    return parameter.kind is parameter.KEYWORD_ONLY


def key(value: Any) -> Any:
    """What makes a choice equal to another: its function itself, and its settings by value.

    A setting that is no number, text, sequence or choice counts by identity.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return tuple(map(key, value))
    if callable(value):
        return function_of(value), tuple((n, key(v)) for n, v in settings(value).items())
    return id(value)


def describe(choice: Choice) -> str:
    """``group_std(ddof=1, eps=0)``: the name of a choice with its settings."""
    inner = ", ".join(
        f"{name}={_short(value)}" for name, value in settings(choice).items() if value is not None
    )
    return f"{function_of(choice).__name__}({inner})" if inner else function_of(choice).__name__


def _short(value: Any) -> str:
    """A setting as text, with all the digits that it has."""
    if callable(value):
        return describe(value)
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)


def fill(choice: Choice, template: str, inner: Callable[[Choice], str]) -> str:
    """A formula template with the settings of the choice in place of ``<name>`` (braces belong to
    LaTeX).

    A setting that is itself a choice is written by ``inner``; an ``eps`` of 0 is left out.
    """
    for name, value in settings(choice).items():
        if name == "eps" and value == 0:
            template = re.sub(r"\s*\+\s*<eps>", "", template)
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


def label(choice: Choice | None) -> str:
    """What people call a choice; "none" where there is none."""
    if choice is None:
        return "none"
    function = function_of(choice)
    return getattr(function, "label", function.__name__)


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


def check(
    choice: Any, axis: str, inherited: Mapping[str, Any] | None = None, label: str = ""
) -> None:
    """Refuse a choice that could not run: not a function, an input that does not exist, a setting
    without or outside its range.

    Args:
        choice: a function, its settings bound by ``functools.partial``.
        axis: the axis of the recipe, which decides which inputs there are.
        inherited: settings of an outer choice, which an inner one may take over.
        label: what errors call it; "": the axis.

    Raises:
        TypeError, ValueError: with the axis, the choice, what was found, what was expected and
            the fix.
    """
    label = label or axis
    function = function_of(choice)
    if not callable(choice) or not hasattr(function, "__name__") or isinstance(choice, type):
        raise TypeError(
            f"{label} is {shown(choice)}: expected a function of grpo_edu.objective, "
            "with its settings bound by "
            "functools.partial. For a recipe by name use grpo_edu.recipe('grpo')."
        )
    if isinstance(choice, partial) and choice.args:
        raise TypeError(f"{label} {describe(choice)} has settings bound by position: bind by name.")
    bound = settings(choice)
    available = inputs_at(axis)
    for name, parameter in _parameters(function).items():
        if name in bound or name in available or name in (inherited or {}):
            continue
        if _is_setting(parameter):
            raise TypeError(
                f"{label} {describe(choice)} has no value for its setting {name}: bind one with "
                f"functools.partial({function.__name__}, {name}=...)."
            )
        raise TypeError(
            f"{label} {describe(choice)} asks for '{name}', which is neither an input "
            f"({', '.join(sorted(available))}) "
            f"nor bound. Bind a setting with functools.partial({function.__name__}, {name}=...)."
        )
    for name, value in bound.items():
        _check_setting(f"{label} {function.__name__}: {name}", name, value, axis, bound)


def choice_of(axis: str) -> Check:
    """The check of an argument that is a choice on an axis."""

    def check_choice(name: str, value: Any) -> Choice:
        check(value, axis, label=name)
        return value

    return check_choice


def _check_setting(label: str, name: str, value: Any, axis: str, others: Mapping[str, Any]) -> None:
    """Type and range of one setting; a setting that the table does not have is a user's own."""
    if value is None and name in MAY_BE_NONE:
        return
    if SETTINGS.get(name) is Choice:
        check(value, axis, others)
    elif name in SETTINGS:
        check_of(SETTINGS[name])(label, value)
    elif isinstance(value, float):
        number(label, value)
    upper = others.get("high", others.get("cap"))
    if name == "low" and upper is not None and value > upper:
        raise ValueError(f"{label} is {value}: expected at most the upper bound, {upper}.")


def run(choice: Choice, available: Mapping[str, Any]) -> Any:
    """Call a choice with the inputs that its signature asks for.

    An input is a positional parameter; a setting is keyword-only and comes from the choice alone,
    so that no value of the same name can reach it from elsewhere.

    Raises:
        TypeError: the choice asks for an input that does not exist here.
        ValueError: the choice needs a field of the rollouts that is missing.
    """
    bound = choice.keywords if isinstance(choice, partial) else {}
    inputs = {}
    for name, parameter in _parameters(function_of(choice)).items():
        setting = _is_setting(parameter)
        optional = parameter.default is not parameter.empty
        if name in bound or (optional and (setting or name not in available)):
            continue
        if setting or name not in available:
            raise TypeError(
                f"{describe(choice)} asks for '{name}', which does not exist here: expected only "
                f"{', '.join(sorted(available))}."
            )
        if available[name] is None and parameter.default is parameter.empty:
            raise ValueError(
                f"{describe(choice)} needs rollouts.{name}, which is missing. "
                f"Give {name} when you build the Rollouts."
            )
        inputs[name] = available[name]
    return choice(**inputs)
