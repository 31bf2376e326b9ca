"""The bank: no wrong answer is accepted, no right one refused, and each wrong one is told its own mistake."""

from __future__ import annotations

import importlib
from collections import Counter

import pytest
from course_bank import ANSWERS

from grpo_edu.course.catalog import EXERCISES
from grpo_edu.course.engine import NotYet, examine

for room in ("advantages", "aggregation", "surrogates", "sampling"):
    importlib.import_module(f"course_bank.{room}")
RIGHT = [a for a in ANSWERS if a.mistake is None]
WRONG = [a for a in ANSWERS if a.mistake is not None]

pytestmark = pytest.mark.bank


def label(answer):
    return f"{answer.exercise}-{answer.function.__name__}-{answer.mistake}"


def test_every_exercise_has_three_right_and_five_wrong_answers():
    right, wrong = Counter(a.exercise for a in RIGHT), Counter(a.exercise for a in WRONG)
    assert {name: right[name] for name in EXERCISES if right[name] < 3} == {}
    assert {name: wrong[name] for name in EXERCISES if wrong[name] < 5} == {}
    assert set(right) | set(wrong) == set(EXERCISES)


@pytest.mark.parametrize("answer", RIGHT, ids=label)
def test_a_right_answer_passes(answer):
    examine(EXERCISES[answer.exercise], answer.function)


@pytest.mark.parametrize("answer", WRONG, ids=label)
def test_a_wrong_answer_is_told_its_own_mistake(answer):
    with pytest.raises(NotYet) as caught:
        examine(EXERCISES[answer.exercise], answer.function)
    said = str(caught.value)
    assert answer.mistake in said.partition("Likely mistake: ")[2] or (
        answer.mistake.endswith("Error") and answer.mistake in said
    ), said
    assert "Traceback" not in said
