"""A card as text, as Markdown with LaTeX (a notebook, GitHub), and as a page with MathML."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib import resources
from string import Template

from .. import formulas
from .card import Card, card, card_names
from .subject import Name, Neighbour, source

KINDS = {
    "recipe": "Recipes",
    "advantage": "Advantages",
    "aggregation": "Aggregations",
    "surrogate": "Ratio and clip",
    "kl": "KL estimators",
}
ABOUT_BATCH = (
    "The batch: eight answers to two questions, C = 8, two micro-batches. The numbers are those of "
    "token 4 of the first answer, whose probability fell from 0.5 to 0.35: its ratio is 0.7. "
    "Orange is pushed up, purple is pushed down, hatched lost its gradient to the clip or gate."
)


# --- text


def card_text(shown: Card) -> str:
    """For a terminal."""
    about = shown.recipe
    lines = [shown.heading, about.paper, f"The paper's settings: {about.defaults or 'none'}.", ""]
    if shown.about.choice is not None:
        lines = [shown.heading, f"Computed in {about.name}.", ""]
    names = about.describe()
    lines.append("loss = -Σ_it W_it · (surrogate - KL)")
    lines += [
        f"  {axis:<12} {text:<48} {names[axis]}"
        for axis, text in about.formula().items()
        if text != "none"
    ]
    lines += ["", ABOUT_BATCH, "", str(shown.stepped), "", *shown.biases]
    lines.append("(exact, computed from the pushes)")
    lines += ["", *_names_lines(shown.names)]
    lines += [f"Near: {line}" for near in shown.neighbours for line in _neighbour_lines(near)]
    lines += ["", f"LaTeX: {formulas.plain(shown.formula)}"]
    return "\n".join(lines)


def _names_lines(names: Iterable[Name]) -> list[str]:
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


def _neighbour_lines(near: Neighbour) -> list[str]:
    """``bnpo: aggregation … in place of …``, one line for each axis that differs."""
    return [
        f"{near.name}: {axis} {theirs} in place of {ours}" for axis, ours, theirs in near.differing
    ]


# --- Markdown


def card_markdown(shown: Card) -> str:
    """For a notebook and for GitHub: LaTeX, tables and source; the strip stands beside it."""
    parts = [
        f"### {_plain(shown.heading)}",
        f"$${formulas.latex(shown.formula)}$$",
    ]
    if shown.about.choice is None:
        parts.append(f"$${formulas.latex(formulas.push_parts(shown.recipe))}$$")
    parts.append("\n".join(_markdown_definition(line) for line in shown.definitions))
    parts.append(_plain(ABOUT_BATCH))
    rows = ["| factor | formula | with numbers |", "|---|---|---|"]
    rows += [
        f"| {step.name} | ${_cell(shown.typeset(step))}$ | "
        f"{' = '.join(f'`{_cell(text)}`' for text in step.written)} {_plain(step.reason)} |"
        for step in shown.steps
    ]
    parts.append("\n".join(rows))
    parts.append(
        "\n".join(f"- {_plain(line)}" for line in (*shown.biases, *_near_and_names(shown)))
    )
    code = "\n\n".join(source(choice) for choice in shown.choices)
    parts.append(f"```python\n{code}\n```")
    return "\n\n".join(parts)


def _near_and_names(shown: Card) -> list[str]:
    near = [f"Near: {line}" for entry in shown.neighbours for line in _neighbour_lines(entry)]
    return [*_names_lines(shown.names), *near]


def _markdown_definition(line: formulas.Definition) -> str:
    left = formulas.latex([formulas.Part(line.factor, line.symbol)])
    right = rf"={line.latex}" if line.latex else ""
    return f"- ${left}{right}$: {line.words}"


def _plain(text: str) -> str:
    """Text whose characters Markdown must not read as marks."""
    return "".join(f"\\{c}" if c in "_*|`<>[]" else c for c in text)


def _cell(text: str) -> str:
    """Text or LaTeX whose bars do not end a cell of a table."""
    return text.replace("|", "\\|") if "\\" not in text else text.replace("|", r"\vert ")


# --- HTML


def card_html(shown: Card) -> str:
    """The card as a piece of a page, with MathML; its style sheet is ``card.css``."""
    loss = formulas.mathml(shown.formula, display=True)
    push = ""
    if shown.about.choice is None:
        push = formulas.mathml(formulas.push_parts(shown.recipe), display=True)
    symbols = "".join(_html_definition(line) for line in shown.definitions)
    rows = "".join(
        f"<tr><th>{escape(step.name)}</th><td>{formulas.mathml(shown.typeset(step))}</td>"
        f"<td>{' <br/>= '.join(map(escape, step.written))}"
        f'<br/><span class="quiet">{escape(step.reason)}</span></td></tr>'
        for step in shown.steps
    )
    notes = "".join(f"<li>{escape(line)}</li>" for line in (*shown.biases, *_near_and_names(shown)))
    code = escape("\n\n".join(source(choice) for choice in shown.choices))
    paper = "" if shown.about.choice is not None else escape(shown.recipe.paper)
    return Template(_static("card.html")).substitute(
        name=escape(shown.name),
        heading=escape(shown.heading),
        paper=paper,
        loss=loss,
        push=push,
        symbols=symbols,
        about=escape(ABOUT_BATCH),
        strip=shown.strip,
        rows=rows,
        notes=notes,
        code=code,
    )


def _html_definition(line: formulas.Definition) -> str:
    parts = [formulas.Part(line.factor, line.symbol)]
    if line.latex:
        parts.append(formulas.Part(None, "=" + line.latex))
    return f"<li>{formulas.mathml(parts)} <span>{escape(line.words)}</span></li>"


def card_page(name: str) -> str:
    """One card as an HTML page that needs neither network nor script.

    Raises:
        KeyError: no recipe and no choice has this name.
    """
    shown = card(name)
    return _page(shown.heading, "", card_html(shown))


def cards_page(names: Iterable[str] | None = None) -> str:
    """Cards on one page with an index; all where no names are given.

    Raises:
        KeyError: a name without a card.
    """
    kinds = card_names()
    chosen = list(kinds) if names is None else list(names)
    cards = "".join(card_html(card(name)) for name in chosen)
    index = ""
    for kind, title in KINDS.items():
        links = "".join(
            f'<li><a href="#card-{escape(name)}">{escape(name)}</a></li>'
            for name in chosen
            if kinds[name] == kind
        )
        index += f"<h2>{title}</h2><ul>{links}</ul>" if links else ""
    return _page("Formula cards", f'<nav aria-label="Cards">{index}</nav>', cards)


def _page(title: str, index: str, body: str) -> str:
    return Template(_static("page.html")).substitute(
        title=escape(title), style=_static("card.css"), index=index, body=body
    )


def _static(name: str) -> str:
    return (resources.files("grpo_edu") / "cards" / "static" / name).read_text(encoding="utf-8")
