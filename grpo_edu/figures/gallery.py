"""The gallery: every figure with its sentence, its evidence, its data, the line that makes it and
the line to cite it, as ``README.md`` and as ``index.html``."""

from __future__ import annotations

from html import escape
from importlib import resources
from pathlib import Path
from string import Template

from .. import __version__
from ..files import read_text, replacing
from .registry import FIGURES, Figured

LEVELS = {
    "exact": "Exact: closed form or enumeration",
    "simulated": "Simulated: a toy policy over several seeds",
    "observed": "Observed: a small language model",
}
INTRODUCTION = (
    "Every picture is drawn from the small table beside it. `grpo-edu figures --check` makes the "
    "data anew and compares. For a paper or a slide: `grpo-edu figures NAME --format pdf "
    "--width 6.5in --out paper`, with `--theme dark` for a dark slide and `--style FILE.mplstyle` "
    "for a style sheet of your own."
)


def write(out: Path) -> list[Path]:
    """Write both pages beside the pictures. Returns the files."""
    written = []
    for name, text in _pages().items():
        with replacing(out / name) as target:
            target.write_text(text, encoding="utf-8")
        written.append(out / name)
    return written


def check(out: Path) -> list[str]:
    """What is no longer true of the committed pages; empty where all is well."""
    return [
        f"{out / name} does not show the figures of today: run `grpo-edu figures --gallery`."
        for name, text in _pages().items()
        if not (out / name).is_file() or read_text(out / name) != text
    ]


def _pages() -> dict[str, str]:
    return {"README.md": _markdown(), "index.html": _html()}


def _of_level(level: str) -> list[Figured]:
    return [figured for figured in FIGURES.values() if figured.level.split(",")[0] == level]


def citation(figured: Figured) -> str:
    """The line to cite a figure by."""
    title = figured.title.rstrip(".")
    return f"“{title}”, figure {figured.name} of grpo_edu {__version__}, Apache-2.0."


def _markdown() -> str:
    parts = ["# Figures", INTRODUCTION]
    for level, heading in LEVELS.items():
        parts.append(f"## {heading}")
        parts += [_markdown_figure(figured) for figured in _of_level(level)]
    return "\n\n".join(parts) + "\n"


def _markdown_figure(figured: Figured) -> str:
    name = figured.name
    picture = (
        f'<a href="{name}.svg"><img src="{name}.png" width="560" alt="{_quoted(figured)}"></a>'
    )
    facts = [
        f"evidence: {figured.level}",
        f"answers: {figured.answers}",
        f"data: [{name}.csv](data/{name}.csv)",
        f"made by `grpo-edu figures {name}`",
        f"cite: {citation(figured)}",
    ]
    return f"### {figured.title}\n\n{picture}\n\n" + "\n".join(f"- {fact}" for fact in facts)


def _quoted(figured: Figured) -> str:
    """The alt text on one line, as an attribute."""
    return escape(" ".join(figured.alt.split()))


def _html() -> str:
    sections = "".join(
        f"<h2>{escape(heading)}</h2><ul>"
        + "".join(_html_figure(figured) for figured in _of_level(level))
        + "</ul>"
        for level, heading in LEVELS.items()
    )
    words = INTRODUCTION.split("`")
    introduction = "".join(
        f"<code>{escape(word)}</code>" if k % 2 else escape(word) for k, word in enumerate(words)
    )
    template = (resources.files("grpo_edu") / "figures" / "gallery.html").read_text("utf-8")
    return Template(template).substitute(introduction=introduction, sections=sections)


def _html_figure(figured: Figured) -> str:
    name = figured.name
    dark = (
        f'<source media="(prefers-color-scheme: dark)" srcset="{name}_dark.png">'
        if figured.dark
        else ""
    )
    image = f'<img loading="lazy" src="{name}.png" alt="{_quoted(figured)}">'
    moving = f', <a href="{name}.gif">in motion</a>' if figured.frames else ""
    facts = (
        ("Evidence", escape(figured.level)),
        ("Answers", escape(figured.answers)),
        ("Data", f'<a href="data/{name}.csv">{name}.csv</a>'),
        ("Made by", f"<code>grpo-edu figures {name}</code>"),
        ("Cite", escape(citation(figured))),
    )
    lines = "".join(f"<dt>{term}</dt><dd>{fact}</dd>" for term, fact in facts)
    files = f'<a href="{name}.svg">SVG</a>, <a href="{name}.png">PNG</a>{moving}'
    return (
        f'<li id="{name}"><h3>{escape(figured.title)}</h3>'
        f'<a href="{name}.svg"><picture>{dark}{image}</picture></a>'
        f"<p>{files}</p><details><summary>Evidence, data, citation</summary>"
        f"<dl>{lines}</dl></details></li>"
    )
