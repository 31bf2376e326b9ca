"""What a card is about: a recipe, or one choice and the recipe that shows it; who is near it, and
who runs it."""

from __future__ import annotations

import ast
import difflib
import inspect
import textwrap
import warnings
from functools import cache, partial
from typing import NamedTuple

from ..compare import compare
from ..frameworks import FRAMEWORKS, presets
from ..frameworks.labels import differences, unwrapped
from ..frameworks.tables import framework
from ..objective import advantages, aggregation, axes, kl, surrogates
from ..objective.axes import Choice
from ..objective.catalog import RECIPES, recipe
from ..objective.recipe import Recipe, RecipeWarning

ROOMS = {
    "advantage": advantages,
    "aggregation": aggregation,
    "surrogate": surrogates,
    "kl": kl,
}
# settings of a choice that no recipe of the catalog has; the values that frameworks use
FRAMEWORK_SETTINGS = {
    "average": True,
    "baseline": advantages.group_mean,
    "beta": 0.04,
    "ddof": 1,
    "eps": 1e-6,
    "eps_high": 0.2,
    "eps_low": 0.2,
    "cap": 3.0,
    "count_eps": 0.0,
    "floor": 1e-8,
    "inner": aggregation.sequence_mean,
    "keep": 1.0,
    "steps": 2,
    "tokens": 74,
    "value": kl.k3,
}


class Subject(NamedTuple):
    """The recipe that a card computes, and the axis and choice that it is about (None: all)."""

    recipe: Recipe
    axis: str | None = None
    choice: Choice | None = None


@cache
def choices() -> dict[str, str]:
    """Every choice that has a card, by name, with its kind: advantage, aggregation, …"""
    return {
        function.__name__: kind
        for kind, room in ROOMS.items()
        for function in vars(room).values()
        if inspect.isfunction(function)
        and function.__module__ == room.__name__
        and hasattr(function, "latex")
    }


def subject(name: str) -> Subject:
    """The subject of a name: a recipe of the catalog first, then a choice.

    Raises:
        KeyError: neither has this name.
    """
    if name in RECIPES:
        return Subject(RECIPES[name])
    kinds = choices()
    if name not in kinds:
        near = difflib.get_close_matches(name, [*RECIPES, *kinds], n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise KeyError(
            f"name: there is no card '{name}'.{hint} Recipes: {', '.join(RECIPES)}. Choices: "
            f"{', '.join(kinds)}."
        )
    function = getattr(ROOMS[kinds[name]], name)
    axis = _axis_of(function, kinds[name])
    for entry in RECIPES.values():
        choice = getattr(entry, axis)
        if choice is not None and axes.function_of(choice) is function:
            return Subject(entry, axis, choice)
    choice = _with_settings(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecipeWarning)
        host = recipe("grpo").but(f"grpo with {name}", **{axis: choice})
    return Subject(host, axis, choice)


def _axis_of(function: Choice, kind: str) -> str:
    if kind != "advantage":
        return kind
    return "scale" if "centred" in axes.inputs_of(function) else "baseline"


def _with_settings(function: Choice) -> Choice:
    names = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    ]
    return partial(function, **{name: FRAMEWORK_SETTINGS[name] for name in names})


def source(choice: Choice) -> str:
    """The function of a choice as it stands in the library, without decorators and docstring."""
    text = textwrap.dedent(inspect.getsource(axes.function_of(choice)))
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    lines = text.splitlines()
    if ast.get_docstring(function) is None:
        return "\n".join(lines[function.lineno - 1 :])
    docstring = function.body[0]
    end = docstring.end_lineno or docstring.lineno
    return "\n".join([*lines[function.lineno - 1 : docstring.lineno - 1], *lines[end:]])


def idea(choice: Choice) -> str:
    """The first sentence of a choice's docstring."""
    text = " ".join((inspect.getdoc(axes.function_of(choice)) or "").split("\n\n")[0].split())
    return text.replace("*", "").replace("``", "")


def label(choice: Choice | None) -> str:
    """What people call a choice."""
    if choice is None:
        return "none"
    function = axes.function_of(choice)
    return getattr(function, "label", function.__name__)


class Neighbour(NamedTuple):
    """A recipe near another: its name, and per axis that differs what each of the two has."""

    name: str
    title: str
    differing: tuple[tuple[str, str, str], ...]


def neighbours(about: Recipe, most: int = 3) -> list[Neighbour]:
    """The recipes of the catalog that differ from ``about`` on the fewest axes."""
    near = []
    for other in RECIPES.values():
        axes_that_differ = compare(about, other).differing()
        if other.name != about.name and axes_that_differ:
            lines = tuple(
                (axis, _labels(getattr(about, axis)), _labels(getattr(other, axis)))
                for axis in axes_that_differ
            )
            near.append(Neighbour(other.name, other.title, lines))
    near.sort(key=lambda entry: len(entry.differing))
    return near[:most]


def _labels(value: Choice | tuple[Choice, ...] | None) -> str:
    if isinstance(value, tuple):
        return " and ".join(map(label, value)) or "none"
    return label(value)


class Name(NamedTuple):
    """A preset of a framework: where it is, its name, and on which axes it is another loss."""

    place: str
    preset: str
    differing: tuple[str, ...]


@cache
def _presets() -> list[tuple[str, str, Recipe]]:
    """Every preset of the newest release that was read of each framework."""
    return [
        (f"{who} {framework(who).version}", name, preset)
        for who in FRAMEWORKS
        for name, preset in presets(who).items()
    ]


def names_of(about: Subject) -> list[Name]:
    """Presets that run this loss or this choice, whatever they call it; then presets that have
    the recipe's name and are another loss."""
    if about.choice is not None:
        assert about.axis is not None
        plain = unwrapped(about.choice)
        return [
            Name(place, name, ())
            for place, name, preset in _presets()
            if getattr(preset, about.axis) is not None
            and unwrapped(getattr(preset, about.axis)) == plain
        ]
    found = [
        Name(place, name, tuple(differences(preset, about.recipe.name)))
        for place, name, preset in _presets()
    ]
    return [entry for entry in found if not entry.differing] + [
        entry for entry in found if entry.differing and entry.preset == about.recipe.name
    ]
