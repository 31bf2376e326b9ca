"""The card of one recipe or one choice: everything it shows, computed once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from .. import formulas
from ..biases import difficulty_bias, length_bias
from ..checks import checked
from ..objective import axes
from ..objective.axes import Choice
from ..objective.catalog import RECIPES
from ..objective.recipe import Recipe
from ..stepper import Step, Stepped, step_through
from ..weights import Push
from . import subject
from .batch import MICRO_BATCH, SHOWN, example_batch

# axis of a choice -> the line of the stepper that holds its numbers
LINE = {"baseline": "centred", "scale": "advantage", "surrogate": "gate", "kl": "KL term"}
LINE["aggregation"] = "W"
# the heading over the formula of a choice: its symbol, and the factor it belongs to
SYMBOL = {
    "baseline": ("A^{\\text{centred}}_{it}", "advantage"),
    "scale": ("\\text{scale}", "advantage"),
    "surrogate": ("f_{it}", "ratio"),
    "kl": ("\\text{KL}_{it}", "kl"),
    "aggregation": ("W_{it}", "W"),
}


KINDS = {
    "baseline": "a baseline of the advantage",
    "scale": "a scale of the advantage",
    "surrogate": "a ratio and clip",
    "kl": "an estimator of the KL divergence",
    "aggregation": "an aggregation",
}


@dataclass(frozen=True, eq=False)
class Card:
    """A formula card. Make it with ``card``. Prints as text; a notebook shows it typeset.

    Args:
        name: of the recipe or choice.
        about: the recipe it computes, and the choice it is about.
    """

    name: str
    about: subject.Subject

    @property
    def recipe(self) -> Recipe:
        """The recipe that the card computes."""
        return self.about.recipe

    @property
    def heading(self) -> str:
        """``gspo: one geometric-mean ratio per completion``."""
        if self.about.axis is None:
            return f"{self.name}: {self.recipe.title}"
        return f"{self.name}: {axes.label(self.about.choice)}, {KINDS[self.about.axis]}"

    @property
    def ideas(self) -> list[str]:
        """What each choice of the card does, in a sentence."""
        return [f"{axes.label(choice)}: {subject.idea(choice)}" for choice in self.choices]

    @property
    def caption(self) -> str:
        """What the batch is, and how its picture is read."""
        rollouts = self.push.rollouts
        lines = [
            f"The batch: {len(rollouts)} completions (answers) of two prompts, four each. The "
            f"limit C on their length is {rollouts.max_new_tokens}."
        ]
        if any("micro_batch" in axes.inputs_of(choice) for choice in self.recipe.choices):
            lines.append("The answers of one prompt make one micro-batch.")
        ratio = "" if self.plain else ", whose ratio is 0.35/0.5 = 0.7"
        lines.append(f"The numbers are those of token 4 of the first answer{ratio}.")
        if self.recipe.kl is not None:
            lines.append("The reference policy gives every token probability 0.4.")
        lines.append(
            "Orange is pushed up, purple is pushed down. The share is an answer's part of the "
            "step's total |push|."
        )
        if self.push.clipped.any() and self.about.axis != "kl":
            rest = "; what is left there is the KL term" if self.recipe.kl is not None else ""
            lines.append(f"Hatched: the clip took the gradient of the reward{rest}.")
        return " ".join(lines)

    @property
    def plain(self) -> bool:
        """True where the surrogate has no ratio."""
        return axes.function_of(self.recipe.surrogate).written is None

    @cached_property
    def push(self) -> Push:
        """The push of the recipe on the card's batch, ``[8, 8]``."""
        return Push.of(self.recipe, example_batch(), MICRO_BATCH)

    @cached_property
    def stepped(self) -> Stepped:
        """The numbers of the shown token in every factor."""
        return step_through(self.recipe, example_batch(), *SHOWN, MICRO_BATCH)

    @property
    def formula(self) -> tuple[formulas.Part, ...]:
        """The loss of a recipe, or the formula of a choice, in parts."""
        if self.about.choice is None:
            return formulas.loss_parts(self.recipe)
        assert self.about.axis is not None
        symbol, factor = SYMBOL[self.about.axis]
        written = axes.latex(self.about.choice)
        return formulas.Part(factor, symbol), formulas.Part(None, "=" + written)

    @property
    def definitions(self) -> tuple[formulas.Definition, ...]:
        """What each symbol means; of a choice only its own symbols."""
        everything = formulas.definitions(self.recipe)
        if self.about.choice is None:
            return everything
        own = formulas.symbols_in(axes.latex(self.about.choice))
        factors = tuple(replace(line, latex="") for line in everything if line.factor is not None)
        return (*own, everything[0], *factors)

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The choices whose source the card shows."""
        if self.about.choice is not None:
            return (self.about.choice,)
        hidden = ("1", "r_i")
        return tuple(c for c in self.recipe.choices if axes.text(c) not in hidden)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every factor of the shown token; of a choice the line that it writes, and the push."""
        steps = self.stepped.steps
        if self.about.axis is None:
            return steps
        own = LINE[self.about.axis]
        return tuple(step for step in steps if step.name in (own, "push"))

    def typeset(self, step: Step) -> str:
        """LaTeX of a step's formula; of a choice of one's own its text."""
        lines = {line.factor: line.latex for line in formulas.definitions(self.recipe)}
        centred = axes.latex(self.recipe.baseline)
        push = formulas.push_parts(self.recipe)
        written = {
            "reward": "r_i",
            "centred": centred,
            "advantage": lines["advantage"].replace(centred, r"\text{centred}", 1),
            "ratio": lines.get("ratio", "1"),
            "gate": lines.get("gate", "1"),
            "correction": lines.get("correction", ""),
            "W": lines["W"],
            "KL term": "-" + push[-1].latex,
            "push": formulas.plain(push[1:]),
        }
        return written[step.name]

    @property
    def strip(self) -> str:
        """The tokens of the batch, coloured by push (of a KL estimator: by its part of it), as
        SVG."""
        from .strip import strip_svg  # matplotlib is slow to import

        if self.about.axis == "kl":
            return strip_svg(self.push, self.push.factors["kl"], "KL part of the push")
        return strip_svg(self.push, self.push.token, "push")

    @property
    def neighbours(self) -> list[subject.Neighbour]:
        """The recipes that differ on the fewest axes; none for a choice."""
        return subject.neighbours(self.recipe) if self.about.choice is None else []

    @cached_property
    def names(self) -> list[subject.Name]:
        """The presets of frameworks that run it, under whatever name."""
        return subject.names_of(self.about)

    @property
    def biases(self) -> tuple[str, ...]:
        """Length bias and difficulty bias of the recipe, in words; none for a choice."""
        if self.about.choice is not None:
            return ()
        return str(length_bias(self.recipe)), str(difficulty_bias(self.recipe))

    @property
    def near(self) -> list[str]:
        """What is near it, a sentence each."""
        return [_neighbour_line(entry) for entry in self.neighbours]

    @property
    def who(self) -> list[str]:
        """Who runs it, a sentence each."""
        return _names_lines(self.names)

    def __str__(self) -> str:
        return card_text(self)

    def _ipython_display_(self) -> None:
        """The typeset card, then the strip as a picture of its own: GitHub shows both."""
        from IPython.display import display

        for bundle in (
            {"text/markdown": card_markdown(self), "text/plain": str(self)},
            {"image/svg+xml": self.strip, "text/plain": f"Push on every token: {self.name}"},
        ):
            display(bundle, raw=True)


def card_names() -> dict[str, str]:
    """The name of every card with its kind: recipe, advantage, aggregation, surrogate, kl.

    A choice that has the name of a recipe (``gspo``) is shown on the card of the recipe.
    """
    kinds = {name: kind for name, kind in subject.choices().items() if name not in RECIPES}
    return {**dict.fromkeys(RECIPES, "recipe"), **kinds}


@checked
def card(name: str) -> Card:
    """The formula card of a recipe, an advantage estimator, an aggregation, a surrogate or a KL
    estimator.

    It holds the typeset formula with its symbols defined, the numbers of a small batch put in and
    evaluated, the source of its functions, the push on every token of the batch, the recipes next
    to it, and the frameworks that run it.

    Args:
        name: ``"gspo"``, ``"leave_one_out"``, ``"sequence_mean"``, ``"k3"`` …; ``card_names()``
            lists all.

    Raises:
        KeyError: no recipe and no choice has this name.
    """
    return Card(name, subject.subject(name))


# --- text


def card_text(shown: Card) -> str:
    """For a terminal."""
    about = shown.recipe
    lines = [shown.heading, about.paper, f"Published settings: {about.defaults or 'none'}.", ""]
    if shown.about.choice is not None:
        lines = [shown.heading, f"Computed in {about.name}.", ""]
    names = about.describe()
    lines.append("loss = -Σ_it W_it · (surrogate - KL)")
    lines += [
        f"  {axis:<12} {text:<48} {names[axis]}"
        for axis, text in about.formula().items()
        if text != "none"
    ]
    lines += ["", *shown.ideas, "", shown.caption, "", str(shown.stepped), ""]
    lines += [f"{line} (exact)" for line in shown.biases]
    lines += [*shown.who, *(f"Near: {line}" for line in shown.near)]
    lines += ["", f"LaTeX: {formulas.plain(shown.formula)}"]
    return "\n".join(lines)


def _names_lines(names: Iterable[subject.Name]) -> list[str]:
    """Who runs it, framework by framework; then who runs something else under its name."""
    places: dict[str, list[str]] = {}
    for entry in names:
        if not entry.differing:
            places.setdefault(entry.place, []).append(entry.preset)
    runs = "; ".join(f"{place}: {', '.join(presets)}" for place, presets in places.items())
    lines = [f"Who runs it: {runs}." if runs else "No preset of a framework that was read runs it."]
    lines += [
        f"Another loss under this name, {entry.place}: {'; '.join(entry.differing)}."
        for entry in names
        if entry.differing
    ]
    return lines


def _neighbour_line(near: subject.Neighbour) -> str:
    """``bnpo differs in the aggregation (…, here …)``, with every axis that differs."""
    axes_of = "; ".join(
        f"{axis.replace('_', ' ')}: {theirs} (here {ours})" for axis, ours, theirs in near.differing
    )
    return f"{near.name} ({near.title}) differs in {axes_of}."


# --- Markdown


def card_markdown(shown: Card) -> str:
    """For a notebook and for GitHub: LaTeX, tables and source; the strip stands beside it."""
    parts = [
        f"### {_plain(shown.heading)}",
        f"$${formulas.latex(shown.formula)}$$",
    ]
    if shown.about.choice is None:
        parts.append(f"$${formulas.latex(formulas.push_parts(shown.recipe))}$$")
    rows = ["| symbol | meaning |", "|---|---|"]
    parts.append("\n".join([*rows, *map(_markdown_definition, shown.definitions)]))
    parts.append("\n".join(f"- {_plain(line)}" for line in shown.ideas))
    parts.append(_plain(shown.caption))
    rows = ["| factor | formula | with numbers |", "|---|---|---|"]
    rows += [
        f"| {step.name} | ${_cell_latex(shown.typeset(step))}$ | "
        f"{' = '.join(f'`{_cell(text)}`' for text in step.written)} {_plain(step.reason)} |"
        for step in shown.steps
    ]
    parts.append("\n".join(rows))
    notes = [*shown.biases, *shown.who, *(f"Near: {line}" for line in shown.near)]
    parts.append("\n".join(f"- {_plain(line)}" for line in notes))
    code = "\n\n".join(subject.source(choice) for choice in shown.choices)
    parts.append(f"```python\n{code}\n```")
    return "\n\n".join(parts)


def _markdown_definition(line: formulas.Definition) -> str:
    left = formulas.latex([formulas.Part(line.factor, line.symbol)])
    right = rf"={line.latex}" if line.latex else ""
    return f"| ${_cell_latex(left + right)}$ | {_plain(line.words)} |"


def _plain(text: str) -> str:
    """Text whose characters Markdown must not read as marks."""
    return "".join(f"\\{c}" if c in "_*|`<>[]" else c for c in text)


def _cell(text: str) -> str:
    """Text whose bars do not end a cell of a table."""
    return text.replace("|", "\\|")


def _cell_latex(formula: str) -> str:
    """LaTeX whose bars do not end a cell of a table."""
    return formula.replace("|", r"\vert ")
