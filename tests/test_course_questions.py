"""Questions: the key passes for every student, each foreseen wrong answer is told its misconception, numbers follow the seed."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from grpo_edu.cli import app
from grpo_edu.course import check, project
from grpo_edu.course.catalog import EXERCISES
from grpo_edu.course.engine import NotYet
from grpo_edu.course.misconceptions import QUESTIONS
from grpo_edu.course.questions import MultipleChoice, Name, Number, near
from grpo_edu.course.student import Sheet, mark

SHEETS = [Sheet(f"student {n}", course=7) for n in range(12)]


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_key_passes_and_every_foreseen_mistake_is_told(name):
    for sheet in SHEETS:
        parts, key = sheet.ask(name).parts, sheet.key(name)
        assert mark(name, key, sheet).startswith("✓")
        for place, part in enumerate(parts):
            wrong = {
                Number: lambda p: p.mistakes.items(),
                Name: lambda p: [(v, k) for k, v in p.mistakes.items()],
            }
            if isinstance(part, MultipleChoice):
                pairs = [
                    (said, letter)
                    for letter, said in zip("abcdef", part.options.values(), strict=False)
                    if said
                ]
            else:
                pairs = list(wrong[type(part)](part))
            assert pairs
            for said, answer in pairs:
                with pytest.raises(NotYet) as caught:
                    mark(name, [*key[:place], answer, *key[place + 1 :]], sheet)
                assert said in str(caught.value)
                assert f"Part {place + 1}" in str(caught.value)


@pytest.mark.parametrize("name", QUESTIONS)
def test_foreseen_wrong_numbers_are_wrong_and_can_be_told_apart(name):
    for sheet in SHEETS:
        for part in sheet.ask(name).parts:
            if isinstance(part, Number):
                assert not [m for m, v in part.mistakes.items() if near(v, part.right)]
                assert not [
                    (a, b) for a, b in combinations(part.mistakes.values(), 2) if near(a, b)
                ]
            if isinstance(part, Name):
                assert {part.right, *part.mistakes} <= set(part.names)
                assert part.right not in part.mistakes


@pytest.mark.parametrize("name", QUESTIONS)
def test_students_differ_and_one_student_always_gets_the_same(name):
    assert Sheet("Ann", 7).key(name) == Sheet(" ann ", 7).key(name)
    assert len({str(Sheet(f"s{n}", 7).ask(name)) for n in range(12)}) > 1
    assert len({str(Sheet("ann", n).ask(name)) for n in range(12)}) > 1


def test_numbers_of_one_sheet_by_hand():
    # 10 tokens with A = +1, 40 with -1: -(10 - 40) / 50 = 0.6; 1 of 8 right: std² = (7/8) / 7 = 1/8, half right: 2/7
    sheet = next(
        s
        for s in map(Sheet, map(str, range(99)))
        if s.ask("loss_zero").given["lengths"] == [10, 40]
    )
    assert sheet.ask("loss_zero").parts[0].right == pytest.approx(0.6)
    sheet = next(
        s for s in map(Sheet, map(str, range(99))) if s.ask("hard_prompts").given["size"] == 8
    )
    assert sheet.ask("hard_prompts").parts[0].right == pytest.approx((8 * 2 / 7) ** 0.5)


def test_answers_of_a_wrong_form_are_explained():
    sheet = SHEETS[0]
    for answer, said in (
        (None, "not written yet"),
        ([..., ...], "not written yet"),
        ([1], "a list of 2"),
        (0.2, "a list of 2"),
        (["x", "a"], "expected a number"),
        ([True, "a"], "expected a number"),
        ([float("nan"), "a"], "does not follow"),
        ([1.0, ""], "expected one of a, b, c, d"),
        ([1.0, " "], "expected one of a, b, c, d"),
        ([1.0, "ab"], "expected one of a, b, c, d"),
        ([1.0, "z"], "expected one of a, b, c, d"),
    ):
        with pytest.raises(NotYet, match=said):
            check.longer_answers(answer, sheet)
    with pytest.raises(NotYet, match="expected one of sequence_mean"):
        check.dapo_config(["token-mean", *sheet.key("dapo_config")[1:]], sheet)
    with pytest.raises(KeyError, match="no question named"):
        sheet.ask("nothing")


def test_a_number_may_be_a_tensor_or_another_real():
    part = SHEETS[0].ask("loss_zero").parts[0]
    for answer in (
        torch.tensor(part.right),
        np.float32(part.right),
        Fraction(part.right).limit_denominator(10**6),
    ):
        assert part.wrong(answer) is None


def test_a_question_shows_its_options_and_not_its_key(capsys):
    shown = SHEETS[0].ask("longer_answers")._repr_markdown_()
    assert "**a**" in shown
    assert "**d**" in shown
    assert "one of `sequence_mean`" in SHEETS[0].ask("oat_config")._repr_markdown_()
    check.longer_answers(SHEETS[0].key("longer_answers"), SHEETS[0])
    assert capsys.readouterr().out == "✓ longer_answers: all 2 parts are right.\n"


def runs(shift: float, seeds: int = 6) -> pd.DataFrame:
    noise = [0.0, 0.1, -0.1, 0.05, -0.05, 0.02][:seeds]
    rows = [("a", s, 9, 10 + shift + e) for s, e in enumerate(noise)] + [
        ("b", s, 9, 10.0) for s in range(seeds)
    ]
    return pd.DataFrame(rows, columns=["recipe", "seed", "step", "length_wrong"])


@pytest.mark.parametrize(
    ("shift", "claim"), [(2.0, "longer"), (-2.0, "shorter"), (0.0, "no difference")]
)
def test_the_project_accepts_what_the_interval_supports_and_nothing_else(shift, claim):
    assert "support" in project.length_project(runs(shift), ("a", "b"), claim)
    for other in set(project.CLAIMS) - {claim}:
        with pytest.raises(NotYet, match="does not support"):
            project.length_project(runs(shift), ("a", "b"), other)


def test_the_project_wants_seeds_recipes_and_a_claim():
    for arguments, said in (
        ((runs(2.0, seeds=4), ("a", "b"), "longer"), "at least 5 seeds"),
        ((runs(2.0), ("a", "c"), "longer"), "two different recipes"),
        ((runs(2.0), ("a", "a"), "no difference"), "two different recipes"),
        ((runs(2.0), ("a", "b"), "bigger"), "expected one of"),
        ((runs(2.0).drop(columns="seed"), ("a", "b"), "longer"), "no column seed"),
        ((runs(2.0).query("recipe == 'b' or seed > 0"), ("a", "b"), "longer"), "the same for both"),
    ):
        with pytest.raises(NotYet, match=said):
            project.length_project(*arguments)


def test_the_command_prints_a_key_and_the_committed_tables():
    shown = CliRunner().invoke(app, ["course", "key", "Ann", "--seed", "7"])
    assert shown.exit_code == 0
    for name in QUESTIONS:
        assert f"{Sheet('ann', 7).key(name)}" in shown.output
    printed = CliRunner().invoke(app, ["course", "table"]).output
    committed = (
        Path(__file__).resolve().parent.parent / "notebooks" / "exercises" / "TABLES.md"
    ).read_text(encoding="utf-8")
    assert committed.endswith(printed)
    assert all(
        mistake.replace("|", "\\|") in printed
        for one in EXERCISES.values()
        for mistake in one.mistakes
    )


def test_the_command_refuses_bad_use_in_one_line(tmp_path):
    refused = CliRunner().invoke(app, ["course", "grade", str(tmp_path), "e1_advantages"])
    assert refused.exit_code == 2
    assert refused.output.startswith("error: no sheet e1_advantages")
    assert CliRunner().invoke(app, ["course", "new", str(tmp_path / "c")]).exit_code == 0
    assert (
        "already holds a course"
        in CliRunner().invoke(app, ["course", "new", str(tmp_path / "c")]).output
    )
