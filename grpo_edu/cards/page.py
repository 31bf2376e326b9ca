"""Cards as a page: HTML with MathML, without script and without network."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib import resources
from string import Template

from .. import formulas
from .card import Card, card, card_names
from .subject import source

KINDS = {
    "recipe": "Recipes",
    "advantage": "Advantages",
    "aggregation": "Aggregations",
    "surrogate": "Ratio and clip",
    "kl": "KL estimators",
}
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
    notes = _items((*shown.biases, *(f"Near: {line}" for line in shown.near)))
    code = escape("\n\n".join(source(choice) for choice in shown.choices))
    paper = "" if shown.about.choice is not None else escape(shown.recipe.paper)
    return Template(_static("card.html")).substitute(
        name=escape(shown.name),
        heading=escape(shown.heading),
        paper=paper,
        loss=loss,
        push=push,
        symbols=symbols,
        ideas=_items(shown.ideas),
        caption=escape(shown.caption),
        strip=shown.strip,
        rows=rows,
        notes=notes,
        who=_items(shown.who),
        code=code,
    )


def _items(lines: Iterable[str]) -> str:
    return "".join(f"<li>{escape(line)}</li>" for line in lines)


def _html_definition(line: formulas.Definition) -> str:
    parts = [formulas.Part(line.factor, line.symbol)]
    if line.latex:
        parts.append(formulas.Part(None, "=" + line.latex))
    return f"<tr><td>{formulas.mathml(parts)}</td><td>{escape(line.words)}</td></tr>"


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
