"""The checkers: a right answer passes, each signature fails under its own name, and every way of going wrong is put into words."""

from __future__ import annotations

import contextlib
import time

import numpy as np
import pytest
import torch

from grpo_edu.course import check, engine
from grpo_edu.course.catalog import EXERCISES
from grpo_edu.course.engine import NotYet, examine

SIGNATURES = [
    (name, mistake) for name, exercise in EXERCISES.items() for mistake in exercise.mistakes
]


def refusal(name, answer) -> str:
    with pytest.raises(NotYet) as caught:
        examine(EXERCISES[name], answer)
    return str(caught.value)


@pytest.mark.parametrize("name", EXERCISES)
def test_the_reference_passes_and_has_at_least_five_known_mistakes(name):
    assert examine(EXERCISES[name], EXERCISES[name].reference).startswith("✓")
    assert len(EXERCISES[name].mistakes) >= 5


@pytest.mark.parametrize(("name", "mistake"), SIGNATURES)
def test_every_known_mistake_is_refused_by_name(name, mistake):
    assert f"Likely mistake: {mistake}." in refusal(name, EXERCISES[name].mistakes[mistake])


def test_check_prints_the_pass_line_and_knows_its_names(capsys):
    check.token_mean(lambda mask: mask / mask.sum().clamp(min=1))
    assert capsys.readouterr().out == "✓ token_mean: all 6 checks hold.\n"
    assert set(EXERCISES) < set(dir(check))
    with pytest.raises(AttributeError, match=r"Did you mean check\.token_mean"):
        _ = check.token_means


@pytest.mark.parametrize("name", EXERCISES)
def test_zero_nothing_a_list_and_a_wrong_shape_are_explained_everywhere(name):
    exercise = EXERCISES[name]

    def zero(*arguments):
        value = exercise.reference(*arguments)
        return (
            value * 0.0
            if isinstance(value, float) or value.dtype.is_floating_point
            else value & False
        )

    said = refusal(name, zero)
    assert (
        "zero everywhere" in said
        or "same everywhere" in said
        or any(m in said for m in exercise.mistakes)
    )
    assert "returns nothing" in refusal(name, lambda *a: None)
    assert "returns a list" in refusal(name, lambda *a: [1.0])
    assert "has shape" in refusal(name, lambda *a: torch.zeros(2, 3, 5))
    assert "returns a ndarray" in refusal(name, lambda *a: np.zeros(2))
    assert "expected a function" in refusal(name, torch.zeros(2))


def test_nan_inf_and_half_precision_are_explained():
    assert "holds NaN" in refusal("token_mean", lambda mask: mask / 0.0 * 0.0)
    assert "holds inf" in refusal("token_mean", lambda mask: (mask + 1) / 0.0)
    assert "torch.float16" in refusal(
        "token_mean", lambda mask: torch.zeros(mask.shape, dtype=torch.float16)
    )
    assert "torch.int64" in refusal("token_mean", lambda mask: mask.long())
    assert "expected torch.bool" in refusal("dead_groups", lambda reward, group: reward)


def test_an_exception_shows_the_students_own_line_and_no_traceback():
    def answer(mask):
        width = mask.shape[1]
        return mask / mask.lengths / width

    said = refusal("sequence_mean", answer)
    assert "AttributeError" in said
    assert "return mask / mask.lengths / width" in said
    assert "Traceback" not in said
    assert "ZeroDivisionError" in refusal("silent_share", lambda p, size: 1 / 0)
    assert "SystemExit" in refusal("silent_share", lambda p, size: exit(3))
    assert "TypeError" in refusal("silent_share", lambda p: p)


def test_an_unfilled_stub_says_so():
    def answer(mask):
        raise NotImplementedError

    assert "not written yet" in refusal("sequence_mean", answer)


def test_a_loop_without_end_is_stopped_even_where_it_swallows_everything(monkeypatch):
    monkeypatch.setattr(engine, "PATIENCE", 0.3)

    def answer(mask):
        while True:
            with contextlib.suppress(Exception):
                time.sleep(0.01)

    assert "does not finish" in refusal("sequence_mean", answer)
    assert "calls itself without end" in refusal("sequence_mean", endless)


def endless(mask):
    return endless(mask)


def test_a_cut_graph_a_wrong_detach_and_a_changed_input_are_explained():
    right = EXERCISES["ppo_clip"].reference
    assert "no graph" in refusal("ppo_clip", lambda *a: right(*a).detach())
    assert "gradient is not" in refusal(
        "cispo",
        EXERCISES["cispo"].mistakes["the detach is missing: the ratio is differentiated too"],
    )

    def spoils(reward, group):
        reward -= reward.mean()
        return reward

    assert "changes its inputs" in refusal("leave_one_out", spoils)


def test_what_an_answer_prints_does_not_reach_the_page(capsys):
    def loud(mask):
        print("x" * 10**6)
        return mask / mask.sum().clamp(min=1)

    check.token_mean(loud)
    assert len(capsys.readouterr().out) < 100


def test_a_hard_coded_answer_is_recognised():
    visible = torch.tensor([1.5, -0.5, -0.5, -0.5], dtype=torch.float64)
    assert "hard-coded" in refusal(
        "group_advantage", lambda reward, group, ddof, eps: visible.clone()
    )


@pytest.mark.parametrize("name", EXERCISES)
def test_no_message_shows_an_expected_number(name):
    exercise = EXERCISES[name]
    case = exercise.cases()[-1]
    wanted = engine.outcome(exercise, exercise.reference, case).value
    assert wanted is not None
    numbers = {
        f"{abs(x):.{d}f}"
        for x in wanted.double().reshape(-1).tolist()
        for d in (3, 4)
        if x not in (0.0, 1.0, -1.0)
    }
    for wrong in exercise.mistakes.values():
        said = refusal(name, wrong)
        assert not [n for n in numbers if n in said], said


def test_jupyter_shows_the_message_alone():
    assert NotYet("a\nb")._render_traceback_() == ["a", "b"]


def variants(exercise):
    """Known mistakes, and three that break almost anything."""
    reference = exercise.reference

    def shifted(*arguments):
        value = reference(*arguments)
        return value + 1.5 if isinstance(value, float) or value.dtype.is_floating_point else ~value

    def uneven(*arguments):
        value = reference(*arguments)
        if isinstance(value, float):
            return value * (1 + arguments[0])
        steps = torch.arange(1, value.numel() + 1, dtype=torch.float64).reshape(value.shape)
        return value * steps if value.dtype.is_floating_point else value & (steps % 2 == 0)

    return [*exercise.mistakes.values(), shifted, uneven, lambda *a: -1.0 * shifted(*a)]


@pytest.mark.parametrize("name", EXERCISES)
def test_every_property_can_fail_holds_for_the_reference_and_is_what_a_student_reads(name):
    exercise = EXERCISES[name]
    for one in exercise.properties:
        assert one.holds(exercise.reference)
        broken = []
        for wrong in variants(exercise):
            try:
                broken += [] if one.holds(wrong) else [wrong]
            except (TypeError, ValueError, RuntimeError, ZeroDivisionError):
                continue  # bool arithmetic of a variant, not a verdict
        assert broken, one.says
    first = exercise.properties[0]
    said = [refusal(name, wrong) for wrong in exercise.mistakes.values()]
    assert any(f"{p.says}." in text for p in exercise.properties for text in said), first.says
