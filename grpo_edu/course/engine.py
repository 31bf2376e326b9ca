"""How an answer is checked: run it on generated inputs, find the first property that fails,
recognise the mistake.

An exercise knows its reference solution, the cases to try, properties in words, and **signatures**:
the usual wrong versions, each a function under the name of its mistake. An answer that behaves like
a signature on every case, in value and in gradient, made that mistake. The expected number is never
shown.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import math
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

Function = Callable[..., Any]
PATIENCE = 5.0  # seconds for everything that one answer runs; a right answer needs a few hundredths


class NotYet(AssertionError):
    """An answer that is not right yet. Jupyter shows the message alone, without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return str(self).splitlines()


class TooSlow(BaseException):
    """Time is up. Not an ``Exception``, so that an answer's own ``except`` does not swallow it."""


class Case(NamedTuple):
    """One input: ``what`` it is in words, and the arguments in the order of the signature."""

    what: str
    arguments: tuple[Any, ...]


class Property(NamedTuple):
    """What a right answer does, in words, and a test that calls the answer."""

    says: str
    holds: Callable[[Function], bool]


@dataclass(frozen=True)
class Exercise:
    """One function to write or to repair.

    Args:
        name: of the function, and of its checker.
        title, goal, minutes, difficulty: what the student is told; difficulty 1 to 3, also its
            points.
        kind: ``implement`` or ``debug``.
        returns: shape and meaning of the result, in words.
        reference: a right solution.
        cases: makes the inputs, smallest first.
        properties: tried in order, after the form of the result and before its values.
        mistakes: name of a mistake -> a function that makes it.
        learns: index of the argument by which the result is differentiated; None: no gradient is
            looked at.
        detached: the result must not carry a graph although its inputs do.
        why: why it matters in a framework.
    """

    name: str
    title: str
    goal: str
    minutes: int
    difficulty: int
    kind: str
    returns: str
    reference: Function
    cases: Callable[[], Sequence[Case]]
    properties: tuple[Property, ...]
    mistakes: Mapping[str, Function]
    why: str
    learns: int | None = None
    detached: bool = False


class Outcome(NamedTuple):
    """What a function did on one case: its value, the gradient of a fixed mix of its values, or how
    it went wrong.
    """

    value: Tensor | None
    gradient: Tensor | None = None
    problem: str | None = None
    raised: str | None = None


# --- running an answer ----------------------------------------------------------------------------


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises ``TooSlow`` after so many seconds, again and again.

    Only in the main thread of a system that has SIGALRM.
    """
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: Any) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.2)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Nowhere(io.TextIOBase):
    """Swallows what an answer prints."""

    def write(self, text: str, /) -> int:
        return len(text)


def copied(value: Any) -> Any:
    """Tensors cloned, in lists too, so that an answer cannot spoil the next case."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    return [copied(v) for v in value] if isinstance(value, list) else value


def leaves(value: Any) -> list[Tensor]:
    """The tensors of an argument."""
    if isinstance(value, Tensor):
        return [value]
    return [t for v in value for t in leaves(v)] if isinstance(value, list) else []


def call(function: Function, arguments: Sequence[Any]) -> Any:
    """The function's result, silently.

    Raises:
        NotYet: it raised, was not written yet, or took too long; in words.
    """
    try:
        with contextlib.redirect_stdout(_Nowhere()), contextlib.redirect_stderr(_Nowhere()):
            return function(*arguments)
    except NotImplementedError:
        raise NotYet(
            "not written yet: the stub still raises NotImplementedError. Fill it in and run both "
            "cells."
        ) from None
    except RecursionError:
        raise NotYet(
            "it calls itself without end (RecursionError). Give the recursion a case where it "
            "stops."
        ) from None
    except (Exception, SystemExit) as error:
        raise NotYet(_where(error, function)) from None


def _where(error: BaseException, function: Function) -> str:
    """``ValueError in line 3 of your function, `x = …`: message``."""
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file
    ]
    message = (
        f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
    )
    if not frames:
        return f"it raised {message}"
    line = (
        frames[-1].line or linecache.getline(frames[-1].filename, frames[-1].lineno or 0)
    ).strip()
    return f"it raised {message}\nIn line {frames[-1].lineno}: {line}"


def outcome(exercise: Exercise, function: Function, case: Case) -> Outcome:
    """Run one case. Problems of form are explained against the reference's result."""
    arguments = [copied(a) for a in case.arguments]
    follow = leaves(arguments[exercise.learns]) if exercise.learns is not None else []
    for leaf in follow:
        leaf.requires_grad_()
    before = [t.detach().clone() for a in arguments for t in leaves(a)]
    try:
        result = call(function, arguments)
    except NotYet as error:
        return Outcome(None, problem=str(error), raised=type(error).__name__)
    after = [t.detach() for a in arguments for t in leaves(a)]
    if not all(
        torch.equal(x.nan_to_num(7.0), y.nan_to_num(7.0))
        for x, y in zip(before, after, strict=True)
    ):
        return Outcome(
            None,
            problem="it changes its inputs in place: "
            "the caller's tensors are different afterwards.",
        )
    return _described(exercise, result, follow)


def _described(exercise: Exercise, result: Any, follow: list[Tensor]) -> Outcome:
    if isinstance(result, (bool, int, float)):
        result = torch.tensor(
            result, dtype=torch.bool if isinstance(result, bool) else torch.float64
        )
    if result is None:
        return Outcome(None, problem="it returns nothing (None). Is the return statement missing?")
    if not isinstance(result, Tensor):
        return Outcome(
            None,
            problem=f"it returns a {type(result).__name__}; expected a torch tensor, "
            f"{exercise.returns}.",
        )
    if exercise.detached:
        kept = "the result still carries a graph: this is a reward, nothing is learnt through it."
        return Outcome(
            result.detach(),
            torch.tensor(result.requires_grad),
            kept if result.requires_grad else None,
        )
    if not follow:
        return Outcome(result.detach())
    if not result.requires_grad:
        cut = (
            "the result has no graph: no gradient flows back from it, so nothing would be "
            "learnt "
            "(a bare 0 has none either: let it hang on the input)."
        )
        return Outcome(
            result.detach(), torch.cat([torch.zeros_like(x).reshape(-1) for x in follow]), cut
        )
    mix = torch.linspace(1.0, 2.0, result.numel(), dtype=result.dtype).reshape(result.shape)
    gradients = torch.autograd.grad((result * mix).sum(), follow, allow_unused=True)
    flat = [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, follow, strict=True)]
    return Outcome(result.detach(), torch.cat([g.reshape(-1) for g in flat]))


def misshapen(exercise: Exercise, got: Outcome, right: Outcome) -> str | None:
    """What is wrong with the form of a result: shape, dtype, NaN; None where nothing is."""
    if got.value is None or right.value is None:
        return got.problem
    value = got.value
    wanted = right.value
    if value.shape != wanted.shape:
        return (
            f"the result has shape {list(value.shape)}; expected {exercise.returns}, here "
            f"{list(wanted.shape)}."
        )
    if wanted.dtype == torch.bool and value.dtype != torch.bool:
        return f"the result has dtype {value.dtype}; expected torch.bool, {exercise.returns}."
    if wanted.dtype != torch.bool and value.dtype not in (torch.float32, torch.float64):
        return (
            f"the result has dtype {value.dtype}; expected float32 or float64, so that "
            f"fractions survive."
        )
    if not value.isfinite().all():
        return f"the result holds {'NaN' if value.isnan().any() else 'inf'}."
    if got.problem is not None:
        return got.problem
    if got.gradient is not None and not got.gradient.isfinite().all():
        return (
            "the value is finite but its gradient holds NaN or inf: something is computed "
            "first "
            "and masked afterwards."
        )
    return None


# --- comparing and recognising --------------------------------------------------------------------


def close(a: Tensor | None, b: Tensor | None) -> bool:
    """Equal up to the rounding of the narrower dtype; NaN equals NaN."""
    if a is None or b is None:
        return a is b
    if a.shape != b.shape or (a.dtype == torch.bool) != (b.dtype == torch.bool):
        return False
    if a.dtype == torch.bool:
        return torch.equal(a, b)
    wide = a.dtype == b.dtype == torch.float64
    relative = 1e-6 if wide else 2e-5
    absolute = 1e-9 if wide else 1e-6
    return torch.allclose(a.double(), b.double(), rtol=relative, atol=absolute, equal_nan=True)


def same(a: Outcome, b: Outcome) -> bool:
    """Two functions did the same on one case."""
    if a.raised or b.raised:
        return a.raised == b.raised
    broken = a.value is not None and not a.value.isfinite().all()
    return close(a.value, b.value) and (broken or close(a.gradient, b.gradient))


def recognise(
    exercise: Exercise, cases: Sequence[Case], got: Sequence[Outcome], right: Sequence[Outcome]
) -> str | None:
    """The name of the mistake whose signature the outcomes have, None where they have none."""
    for name, wrong in exercise.mistakes.items():
        signature = [outcome(exercise, wrong, case) for case in cases]
        if all(map(same, got, signature)) and not all(o.raised for o in got):
            return name
    return _general(got, right)


def _general(got: Sequence[Outcome], right: Sequence[Outcome]) -> str | None:
    """Mistakes that every exercise can have."""
    if _hard_coded(got, right):
        return "the same answer for different inputs: is it hard-coded for the visible example?"
    pairs = [
        (g, r)
        for g, r in zip(got, right, strict=True)
        if g.value is not None and r.value is not None
    ]
    pairs = [
        (g, r)
        for g, r in pairs
        if g.value.shape == r.value.shape  # type: ignore[union-attr]
        and g.value.dtype.is_floating_point  # type: ignore[union-attr]
    ]
    if len(pairs) < len(got) or not pairs:
        return _boolean(got, right)
    values = [(g.value.double(), r.value.double()) for g, r in pairs]  # type: ignore[union-attr]
    if all((g == 0).all() for g, _ in values):
        return "the answer is zero everywhere"
    if all(close(g, r) for g, r in values) and any(g.problem for g in got):
        return "the values are right but the graph is cut (detach, item, a new tensor or no_grad)"
    if all(close(g, r) for g, r in values):
        return (
            "the values are right, the gradient is not: a detach is missing or stands in the "
            "wrong place"
        )
    if all(close(g, -r) for g, r in values):
        return "the sign is flipped"
    return _factor(values)


def _boolean(got: Sequence[Outcome], right: Sequence[Outcome]) -> str | None:
    pairs = [
        (g.value, r.value)
        for g, r in zip(got, right, strict=True)
        if g.value is not None and r.value is not None
    ]
    fits = [(g, r) for g, r in pairs if g.shape == r.shape and g.dtype == r.dtype == torch.bool]
    if len(fits) < len(got):
        return None
    if all(torch.equal(g, ~r) for g, r in fits):
        return "inverted: True and False are swapped"
    if all(g.all() for g, _ in fits) or not any(g.any() for g, _ in fits):
        return "the answer is the same everywhere, whatever the input"
    return None


def _factor(values: Sequence[tuple[Tensor, Tensor]]) -> str | None:
    """One factor between answer and definition, the same in all cases."""
    factors = [float((g * r).sum() / (r * r).sum()) for g, r in values if (r != 0).any()]
    if not factors or not all(math.isclose(f, factors[0], rel_tol=1e-6) for f in factors):
        return None
    if all(close(g, factors[0] * r) for g, r in values):
        return "off by one constant factor, the same in every case"
    return None


def _hard_coded(got: Sequence[Outcome], right: Sequence[Outcome]) -> bool:
    """One and the same non-zero answer wherever it was called, though the right ones differ."""
    values = [g.value for g in got]
    wanted = [r.value for r in right]
    if any(v is None or not v.any() for v in values) or all(close(w, wanted[0]) for w in wanted):
        return False
    return all(close(v, values[0]) for v in values)


# --- the check ------------------------------------------------------------------------------------


def examine(exercise: Exercise, function: Function) -> str:
    """The pass line.

    Raises:
        NotYet: what failed, the likely mistake by name, and where; never the expected number.
    """
    if not callable(function):
        raise NotYet(
            f"{exercise.name}: expected a function, got {type(function).__name__}. Pass it without "
            f"brackets."
        )
    try:
        with time_limit(PATIENCE):
            failed = _first_failure(exercise, function)
    except TooSlow:
        failed = (
            f"it does not finish: stopped after {PATIENCE:g} s. Is there a loop that never ends?"
        )
    if failed is not None:
        raise NotYet(f"✗ {exercise.name}: not yet.\n{failed}")
    return f"✓ {exercise.name}: all {len(exercise.properties) + 2} checks hold."


def _first_failure(exercise: Exercise, function: Function) -> str | None:
    cases = list(exercise.cases())
    got = [outcome(exercise, function, case) for case in cases]
    right = [outcome(exercise, exercise.reference, case) for case in cases]
    failure = (
        _form(exercise, cases, got, right)
        or _property(exercise, function)
        or _values(cases, got, right)
    )
    if failure is None:
        return None
    name = recognise(exercise, cases, got, right)
    return f"What failed: {failure}" + (f"\nLikely mistake: {name}." if name else "")


def _form(
    exercise: Exercise, cases: Sequence[Case], got: Sequence[Outcome], right: Sequence[Outcome]
) -> str | None:
    for case, g, r in zip(cases, got, right, strict=True):
        problem = misshapen(exercise, g, r)
        if problem is not None:
            return (
                problem if problem.startswith("not written") else f"{problem}\nWhere: {case.what}."
            )
    return None


def _property(exercise: Exercise, function: Function) -> str | None:
    for says, holds in exercise.properties:
        try:
            if not holds(lambda *arguments: call(function, [copied(a) for a in arguments])):
                return f"this should hold and does not: {says}."
        except NotYet as error:
            return f"{error}\nWhere: while trying that {says}."
    return None


def _values(cases: Sequence[Case], got: Sequence[Outcome], right: Sequence[Outcome]) -> str | None:
    for case, g, r in zip(cases, got, right, strict=True):
        if not close(g.value, r.value):
            return (
                f"the result is not the definition's.\nWhere: "
                f"{case.what}{_places(g.value, r.value)}."
            )
    for case, g, r in zip(cases, got, right, strict=True):
        if not close(g.gradient, r.gradient):
            return f"the values are right, their gradient is not.\nWhere: {case.what}."
    return None


def _places(got: Tensor | None, right: Tensor | None) -> str:
    """Which entries differ: ``, at [1, 0] and 3 more``."""
    if got is None or right is None or got.ndim == 0:
        return ""
    wrong = (got.double() - right.double()).abs() > 1e-6 * (1 + right.double().abs())
    places = wrong.nonzero().tolist()
    return (
        f", first at {places[0]} ({len(places)} of {got.numel()} entries differ)" if places else ""
    )
