"""The command: what it prints, what it writes, exit codes 0, 1 and 2, no traceback on bad use."""

from __future__ import annotations

import errno
import io
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from grpo_edu import RECIPES, read_completions, recipe, token_weights
from grpo_edu.cli import app
from grpo_edu.cli.errors import message
from grpo_edu.cli.tables import aligned
from grpo_edu.figures import FIGURES
from grpo_edu.figures.registry import COMMITTED


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
    assert page.count("<script") == 3
    assert "Push on every token: GRPO, Dr. GRPO" in page
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
    assert "<td>&lt;b&gt;x&lt;/b&gt;</td>" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<b>x" not in (tmp_path / "r.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["recipes", "drgrpo_x"], "Did you mean"),
        (["recipes", "grpo", "--token", "a"], "expected completion,position"),
        (["recipes", "grpo", "--token", "0,79"], "not a trained token"),
        (["compare", "grpo", "nope"], "no recipe named 'nope'"),
        (["compare", "grpo", "rloo", "--only", "loss"], "only is 'loss': expected one of rewards"),
        (["weights", "missing.jsonl"], "no completions file"),
        (["weights", "--recipe", "remax"], "greedy_reward"),
        (["weights", "--group", "99"], "expected one of 0 to 9"),
        (["weights", "--micro-batches", "0"], "expected 1 to 80"),
        (["figures", "nope"], "no figure named nope"),
        (["figures", "--format", "bmp"], "expected svg, png, pdf"),
        (["figures", "--width", "wide"], "width is 'wide': expected 3in to 40in"),
        (["figures", "--style", "none.mplstyle"], "no style sheet at none.mplstyle"),
        (["figures", "--theme", "dark", "--out", str(COMMITTED)], "would replace them"),
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
    paper = tmp_path / "paper"
    line = f"figures length_dynamics --format pdf --width 6.5in --theme dark --out {paper}"
    assert run(*line.split()).exit_code == 0
    assert [path.name for path in paper.iterdir()] == ["length_dynamics_dark.pdf"]
    data = tmp_path / "data" / "clip_objective.csv"
    data.write_text(data.read_text().replace("PPO", "PPQ", 1), encoding="utf-8")
    failed = run("figures", "clip_objective", "--out", str(tmp_path), "--check")
    assert failed.exit_code == 1
    assert "column surrogate differs" in failed.stderr


def test_every_command_has_an_example_in_its_help():
    for command in ("lab", "recipes", "compare", "weights", "sample", "figures"):
        assert f"grpo-edu {command}" in " ".join(run(command, "--help").output.split()), command


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


GRPO_EDU = [sys.executable, "-c", "from grpo_edu.cli import app; app()"]


@pytest.mark.parametrize("arguments", [["weights"], ["--help"]])
def test_a_reader_that_closes_the_pipe_ends_the_command_without_a_word(arguments):
    process = subprocess.Popen(
        [*GRPO_EDU, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=120)
    assert [line for line in errors.splitlines() if not line.startswith(b"note: ")] == []


def test_head_ends_a_page_of_help_without_a_failure():
    command = f'{sys.executable} -c "from grpo_edu.cli import app; app()"'
    for words in ("--help", "weights --help", "recipes gspo"):
        shell = f"set -o pipefail; {command} {words} | head -1 > /dev/null"
        done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), words


def test_the_first_line_is_enough_for_head():
    shell = f'{sys.executable} -c "from grpo_edu.cli import app; app()" recipes | head -1'
    done = subprocess.run(shell, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == next(iter(RECIPES))
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_tables_for_programs_hold_every_digit():
    rollouts = read_completions()
    csv = pd.read_csv(io.StringIO(run("weights", "--csv").stdout))
    rows = json.loads(run("weights", "--json").stdout)
    assert len(csv) == len(rows) == 2 * len(rollouts)
    for name in ("grpo", "dr_grpo"):
        push = token_weights(recipe(name), rollouts).sum(dim=1) / rollouts.lengths
        for table in (csv, pd.DataFrame(rows)):
            own = table.loc[table["recipe"] == name, "push_per_token"]
            assert own.to_numpy() == pytest.approx(push.numpy(), rel=1e-12)
    assert [row["recipe"] for row in json.loads(run("recipes", "--json").stdout)] == list(RECIPES)
    axes = json.loads(run("compare", "grpo", "dr_grpo", "--json").stdout)
    assert [row["axis"] for row in axes if row["differs"]] == ["scale", "kl", "aggregation"]
    toy = json.loads(run("toy", "length", "--steps", "2", "--seeds", "2", "--json").stdout)
    assert {row["quantity"] for row in toy} > {"pass_rate", "stop_gap"}
    assert all(row["low"] <= row["mean"] <= row["high"] for row in toy)


def test_an_unscored_reward_is_null_and_a_dash(tmp_path):
    file = tmp_path / "c.jsonl"
    row = '{"group_id": 0, "tokens": ["a"], "logp": [-1.0], "max_new_tokens": 4, "reward": %s}'
    file.write_text("\n".join(row % reward for reward in ("null", "1", "12345")), encoding="utf-8")
    assert json.loads(run("weights", str(file), "--json").stdout)[0]["reward"] is None
    lines = run("weights", str(file)).stdout.splitlines()
    assert [line.split()[2] for line in lines[1:]] == ["-", "1", "12,345"]


def test_columns_are_aligned_at_the_decimal_point():
    table = pd.DataFrame({"number": [0, 1000], "push": [0.25, -0.00442], "length": [12, 1234]})
    assert aligned(table, ["number"]).splitlines() == [
        "number     push length",
        "     0  0.25        12",
        "  1000 -0.00442  1,234",
    ]


@pytest.fixture
def places(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x", encoding="utf-8")
    (tmp_path / "binary").write_bytes(b'{"prompt": "\xff"}')
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "place", "words"),
    [
        (["weights", "{}"], "folder", "this is a folder"),
        (["weights", "{}"], "binary", "not UTF-8"),
        (["weights", "--out", "{}"], "folder", "this is a folder"),
        (["weights", "--out", "{}/page.html"], "file", "this is a file"),
        (["explain", "{}"], "none.yaml", "no such file"),
        (["explain", "{}"], "folder", "is a folder"),
        (["explain", "{}"], "binary", "UTF-8"),
        (["sample", "{}", "out.jsonl"], "folder", "this is a folder"),
        (["sample", "{}", "out.jsonl"], "binary", "not UTF-8"),
        (["train", "--task", "gsm8k:{}", "--out", "run"], "binary", "not UTF-8"),
        (["export-html", "clip", "--out", "{}"], "file", "this is a file"),
        (["course", "new", "{}"], "file", "is a file"),
    ],
)
def test_an_error_names_the_file_and_shows_no_error_number(places, arguments, place, words):
    path = str(places / place)
    shown = run(*(argument.replace("{}", path) for argument in arguments))
    assert shown.exit_code == 2, shown.output
    assert path in shown.stderr
    assert words in shown.stderr
    assert ".tmp" not in shown.stderr
    assert "Errno" not in shown.stderr
    assert "Traceback" not in shown.stderr


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "a.csv"), "a.csv: permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
        (OSError(errno.ELOOP, "Too many levels", "a"), "a: Too many levels."),
        (ValueError("did not load ([Errno 13] Permission denied)"), "load (Permission denied)"),
        (KeyError("no recipe named 'x'"), "no recipe named 'x'"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_messages_are_words(error, text):
    assert text in message(error)
    assert "Errno" not in message(error)


def test_an_interrupted_command_exits_with_130(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("grpo_edu.completions.read_completions", interrupted)
    assert run("weights").exit_code == 130
