"""The command: what it prints, what it writes, exit codes 0, 1 and 2, no traceback on bad use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from grpo_edu import RECIPES
from grpo_edu.cli import app
from grpo_edu.figures import FIGURES


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_recipes_lists_them_all_and_shows_each_one():
    listed = run("recipes")
    assert listed.exit_code == 0
    assert [line.split()[0] for line in listed.output.splitlines()] == list(RECIPES)
    for name in RECIPES:
        shown = run("recipes", name)
        assert shown.exit_code == 0, name
        for part in (
            "aggregation",
            "Length:",
            "Difficulty:",
            r"\mathcal{L}",
            RECIPES[name].paper[:8],
        ):
            assert part in shown.output, (name, part)
    assert "dapo(step)" in run("recipes", "--table").output


def test_recipes_steps_through_a_token_of_the_shipped_completions():
    shown = run("recipes", "dr_grpo", "--token", "49,0")
    assert shown.exit_code == 0
    assert "1 - mean(0, 1, 0, 0, 0, 0, 0, 0)" in shown.output
    assert "1/80 · 1/80" in shown.output


def test_compare_marks_what_differs():
    shown = run("compare", "grpo", "dr_grpo")
    assert "3 of 5 axes differ" in shown.output
    assert "≠ aggregation" in shown.output
    assert "= surrogate" in shown.output
    assert "1 of 5 axes differ" in run("compare", "grpo", "dr_grpo", "--only", "aggregation").output


def test_weights_prints_every_completion_and_writes_a_self_contained_escaped_page(tmp_path):
    out = tmp_path / "deep" / "report.html"
    shown = run("weights", "--recipe", "grpo", "--recipe", "dr_grpo", "--out", str(out))
    assert shown.exit_code == 0, shown.output
    assert len(shown.output.splitlines()) == 1 + 80 + 1
    page = out.read_text(encoding="utf-8")
    assert "https://" not in page
    assert "http://" not in page
    assert "<script" not in page
    assert "push per token" in page
    assert list(out.parent.iterdir()) == [out]


def test_weights_of_one_group_keeps_the_weights_of_the_step():
    line = run("weights", "--recipe", "grpo", "--group", "6").output.splitlines()[2].split()
    assert line[:4] == ["49", "6", "1", "7"]
    assert line[5] == f"{2.474874 / 80 / 7:.3g}"


def test_weights_tells_that_a_kl_term_was_left_out(tmp_path):
    file = tmp_path / "c.jsonl"
    row = '{"group_id": 0, "tokens": ["<b>x</b>"], "logp": [-1.0], "reward": %d}'
    file.write_text(row % 1 + "\n" + row % 0, encoding="utf-8")
    shown = run("weights", str(file), "--recipe", "grpo", "--out", str(tmp_path / "r.html"))
    assert shown.exit_code == 0
    assert "left out" in shown.stderr
    assert "&lt;b&gt;x&lt;/b&gt;" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<b>x" not in (tmp_path / "r.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["recipes", "drgrpo_x"], "Did you mean"),
        (["recipes", "grpo", "--token", "a"], "expected completion,position"),
        (["recipes", "grpo", "--token", "0,79"], "not a trained token"),
        (["compare", "grpo", "nope"], "no recipe named 'nope'"),
        (["compare", "grpo", "rloo", "--only", "loss"], "expected an axis"),
        (["weights", "missing.jsonl"], "no completions file"),
        (["weights", "--recipe", "remax"], "greedy_reward"),
        (["weights", "--group", "99"], "expected one of 0 to 9"),
        (["weights", "--micro-batches", "0"], "expected 1 to 80"),
        (["figures", "nope"], "no figure named nope"),
        (["figures", "--format", "bmp"], "expected svg, png, pdf"),
        (["sample", "missing.jsonl", "out.jsonl"], "missing.jsonl"),
        (["nonsense"], "No such command"),
    ],
)
def test_bad_use_is_one_clear_line_and_exit_code_two(arguments, words):
    shown = run(*arguments)
    assert shown.exit_code == 2, shown.output
    assert words in shown.stderr
    assert "Traceback" not in shown.stderr


def test_figures_lists_writes_and_checks(tmp_path):
    assert [line.split()[0] for line in run("figures", "--list").output.splitlines()] == list(
        FIGURES
    )
    assert (
        run(
            "figures",
            "clip_objective",
            "--out",
            str(tmp_path),
            "--format",
            "pdf",
            "--format",
            "svg",
        ).exit_code
        == 0
    )
    assert {p.name for p in tmp_path.iterdir()} == {
        "clip_objective.pdf",
        "clip_objective.svg",
        "data",
        "manifest.json",
    }
    assert run("figures", "clip_objective", "--out", str(tmp_path), "--check").exit_code == 0
    data = tmp_path / "data" / "clip_objective.csv"
    data.write_text(data.read_text().replace("PPO", "PPQ", 1), encoding="utf-8")
    failed = run("figures", "clip_objective", "--out", str(tmp_path), "--check")
    assert failed.exit_code == 1
    assert "column surrogate differs" in failed.stderr


def test_every_command_has_an_example_in_its_help():
    for command in ("lab", "recipes", "compare", "weights", "sample", "figures"):
        assert f"grpo-edu {command}" in run(command, "--help").output.replace("\n", " "), command


def test_lab_without_a_notebook_says_what_to_do(monkeypatch):
    monkeypatch.setattr("grpo_edu.cli.pages.NOTEBOOKS", Path("/nowhere"))
    shown = run("lab", "--no-browser")
    assert shown.exit_code == 2
    assert "run this from a clone" in shown.stderr


def test_importing_the_package_loads_no_heavy_part():
    code = "import sys, grpo_edu; print([m for m in ('transformers', 'matplotlib', 'ipywidgets', 'pandas', 'anywidget') if m in sys.modules])"
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert printed.strip() == "[]"
