"""Predict, then reveal: a question that takes a guess before it shows the answer. It needs no
kernel."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from ..checks import checked
from .base import Explorer, script, tr
from .panel import text_picture


class Predict(Explorer):
    """A question that takes a guess, then shows the answer beside the guess and one sentence on the
    difference. ``guess`` and ``revealed`` are traits that Python can read.

    The guess is one of ``choices``; with ``span`` a bar that is dragged; otherwise a number that is
    typed. Nothing of the answer is in the page before a guess or "show me".

    Args:
        question: one or two sentences.
        answer: a number, or one of ``choices``.
        because: one sentence that is shown with the answer; empty: none.
        choices: at least two different texts; none: the answer is a number.
        span: lowest and highest value of the bar; None: no bar.
        step: of the bar; None: a hundredth of the span.
        tolerance: the largest difference that counts as right; None: a twentieth of the answer.
        unit: is written after a number.

    Raises:
        ValueError: the answer is not one of the choices, not a number, or outside the span.
    """

    TITLE = "Predict, then reveal"
    SHOWN = (
        "question",
        "choices",
        "span",
        "step",
        "tolerance",
        "unit",
        "answer",
        "because",
        "guess",
        "revealed",
    )
    _esm = script("predict")
    question = tr.Unicode().tag(sync=True)
    choices = tr.List(tr.Unicode()).tag(sync=True)
    span = tr.List(tr.Float()).tag(sync=True)
    step = tr.Float(1.0).tag(sync=True)
    tolerance = tr.Float(0.0).tag(sync=True)
    unit = tr.Unicode().tag(sync=True)
    answer = tr.Union([tr.Float(), tr.Unicode()]).tag(sync=True)
    because = tr.Unicode().tag(sync=True)
    guess = tr.Union([tr.Float(), tr.Unicode()], allow_none=True, default_value=None).tag(sync=True)
    revealed = tr.Bool(False).tag(sync=True)

    @checked
    def __init__(
        self,
        question: str,
        answer: float | str,
        because: str = "",
        *,
        choices: Sequence[str] = (),
        span: tuple[float, float] | None = None,
        step: float | None = None,
        tolerance: float | None = None,
        unit: str = "",
    ) -> None:
        _answerable(answer, choices, span)
        size = 0.0 if isinstance(answer, str) else abs(answer)
        width = span[1] - span[0] if span else 1.0
        super().__init__(
            question=question,
            answer=answer if isinstance(answer, str) else float(answer),
            because=because,
            choices=list(choices),
            span=[float(end) for end in span or ()],
            step=width / 100 if step is None else step,
            tolerance=size / 20 if tolerance is None else tolerance,
            unit=unit,
        )

    def answer_text(self) -> str:
        """The answer in words, with its unit."""
        if isinstance(self.answer, str):
            return self.answer
        return f"{self.answer:.3g} {self.unit}".rstrip()

    def figure(self) -> Any:
        """Question and answer as a picture."""
        return text_picture(f"{self.question}\n\n{self.answer_text()}\n\n{self.because}")

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The live widget; where none runs, the question with its answer folded."""
        bundle = super(Explorer, self)._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        offered = "".join(f"<li>{escape(choice)}</li>" for choice in self.choices)
        twin = (
            f"<p>{escape(self.question)}</p>{f'<ul>{offered}</ul>' if offered else ''}"
            f"<details><summary>show the answer</summary><p><b>{escape(self.answer_text())}</b> "
            f"{escape(self.because)}</p></details>"
        )
        return {**data, "text/html": twin}, metadata

    def __repr__(self) -> str:
        return f"Predict({self.question!r})"


def _answerable(
    answer: float | str, choices: Sequence[str], span: tuple[float, float] | None
) -> None:
    """Refuses an answer that no guess could give."""
    if choices and span:
        raise ValueError("choices and span are both given: expected one of the two.")
    if choices and (len(choices) < 2 or len(set(choices)) < len(choices)):
        raise ValueError(f"choices is {list(choices)}: expected at least two different texts.")
    if choices and answer not in choices:
        raise ValueError(f"answer is {answer!r}: expected one of {', '.join(choices)}.")
    if choices:
        return
    if isinstance(answer, str):
        raise ValueError(f"answer is {answer!r}: expected a number, or choices to pick from.")
    if span and not span[0] <= answer <= span[1]:
        raise ValueError(f"answer is {answer:g}: expected a number of the span {span}.")
