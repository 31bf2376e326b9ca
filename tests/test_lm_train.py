"""``grpo-edu train``: rollouts that ``weights`` opens, resuming, Ctrl-C, full disks, tasks, errors before training."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

pytest.importorskip("transformers")

from grpo_edu import recipe
from grpo_edu.cli import app
from grpo_edu.completions import read_completions
from grpo_edu.lm import checkers, tasks, train
from grpo_edu.lm.loop import Settings
from grpo_edu.lm.models import load
from grpo_edu.lm.train import Run, begin, last_checkpoint, resume
from grpo_edu.weights import summary

SETTINGS = Settings(steps=4, prompts=3, samples=4, learning_rate=1e-3, micro_batches=2)
RUN = Run("tiny", "lab", "grpo", checkpoint_every=2, settings=SETTINGS)


def weights_of(folder: Path) -> torch.Tensor:
    return torch.cat(
        [p.detach().flatten() for p in load(str(last_checkpoint(folder)))[0].parameters()]
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, list]:
    out = tmp_path_factory.mktemp("run") / "whole"
    return out, list(begin(RUN, out))


def test_every_rollout_is_kept_and_opens_as_completions(finished):
    out, records = finished
    files = sorted((out / "rollouts").iterdir())
    assert [f.name for f in files] == [f"step-{i:05d}.jsonl" for i in range(4)]
    for file, record in zip(files, records, strict=True):
        rollouts = read_completions(file)
        assert len(rollouts) == 12
        assert rollouts.group.tolist() == [0] * 4 + [1] * 4 + [2] * 4
        assert rollouts.reward.mean().item() == pytest.approx(record["reward"])
        assert rollouts.ref_logp is not None  # grpo has a KL term
        assert summary(recipe("dr_grpo"), rollouts)["share"].abs().sum() == pytest.approx(1.0)
    result = CliRunner().invoke(app, ["weights", str(files[0]), "--recipe", "grpo"])
    assert result.exit_code == 0, result.output


def test_log_has_a_line_per_step_and_only_the_last_checkpoint_stays(finished):
    out, records = finished
    assert [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()] == records
    assert [path.name for path in out.glob("*checkpoint*")] == ["checkpoint-00004"]


def test_resumed_it_ends_where_an_uninterrupted_run_ends(finished, tmp_path):
    out, run = tmp_path / "run", begin(RUN, tmp_path / "run")
    for _ in range(3):  # a checkpoint after two steps, one more step, then gone
        next(run)
    run.close()
    assert last_checkpoint(out) == out / "checkpoint-00002"
    assert [r["step"] for r in resume(out)] == [2, 3]
    assert torch.allclose(weights_of(out), weights_of(finished[0]), atol=1e-6)
    lines = [json.loads(line)["step"] for line in (out / "log.jsonl").read_text().splitlines()]
    assert lines == [0, 1, 2, 3]
    first, again = (folder / "rollouts" / "step-00003.jsonl" for folder in (finished[0], out))
    texts = [
        [json.loads(line)["completion"] for line in file.read_text().splitlines()]
        for file in (first, again)
    ]
    assert texts[0] == texts[1]


def test_interrupted_before_any_checkpoint_it_starts_again(tmp_path):
    next(begin(RUN, tmp_path / "run"))
    assert [r["step"] for r in resume(tmp_path / "run", steps=2)] == [0, 1]
    with pytest.raises(ValueError, match="has done its 2 steps"):
        resume(tmp_path / "run")


def test_ctrl_c_ends_after_the_step_and_leaves_a_usable_run(tmp_path):
    out = tmp_path / "run"
    code = "from grpo_edu.cli import app; app()"
    command = [
        sys.executable,
        "-c",
        code,
        "train",
        "--out",
        str(out),
        "--steps",
        "5000",
        "--prompts",
        "3",
    ]
    here = str(Path(__file__).resolve().parent.parent)
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": here},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    limit = time.monotonic() + 120
    while not (out / "log.jsonl").exists():
        assert time.monotonic() < limit
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"--resume" in said
    done = int(last_checkpoint(out).name.split("-")[1])
    assert done == len((out / "log.jsonl").read_text().splitlines())
    assert next(resume(out))["step"] == done


def test_a_disk_that_fills_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    import safetensors.torch

    save, out = safetensors.torch.save_file, tmp_path / "run"

    def full(tensors, path):
        if "00004" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        save(tensors, path)

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(OSError, match="No space"):
        list(begin(RUN, out))
    assert [path.name for path in out.glob("*checkpoint*")] == ["checkpoint-00002"]
    monkeypatch.setattr(safetensors.torch, "save_file", save)
    assert [r["step"] for r in resume(out)] == [2, 3]


def test_too_little_space_is_said_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr(train.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(OSError, match="GB are free, but the run may take"):
        begin(RUN, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--task", "sums"], "task is 'sums': expected one of lab"),
        (["--recipe", "grp"], "no recipe named 'grp'"),
        (["--recipe", "remax"], "recipe 'remax' needs greedy_reward"),
        (["--recipe", "ppo"], "recipe 'ppo' needs given_advantage"),
        (["--steps", "0"], "steps is 0"),
        (["--model", "./nowhere.gguf", "--task", "lab"], "no such file"),
        (["--max-new-tokens", "400"], "256 positions"),
        (["--model", "tiny", "--task", "PROMPTS"], "22 characters"),
        (["--task", "missing.jsonl"], "no such file"),
        (["--task", "lab:later"], "variant is 'later'"),
        (["--task", "PROMPTS", "--checker", "taste"], "checker is 'taste'"),
        (["--samples", "1"], "samples is 1"),
        (["--resume"], "no run.json"),
    ],
)
def test_wrong_use_is_one_line_before_training(options, said, tmp_path):
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('{"prompt": "What is 3 + 4?", "answer": "7"}\n')
    options = [str(prompts) if o == "PROMPTS" else o for o in options]
    result = CliRunner().invoke(app, ["train", "--out", str(tmp_path / "run"), *options])
    assert result.exit_code == 2
    assert said in result.output
    assert not (tmp_path / "run").exists()


def test_a_run_is_not_overwritten(finished):
    with pytest.raises(FileExistsError, match="--resume"):
        begin(RUN, finished[0])


def test_questions_of_a_pool_repeat_only_when_they_must():
    pool = [tasks.Problem(str(i), str(i)) for i in range(5)]
    draw = tasks.drawn_from(pool)
    source = torch.Generator().manual_seed(0)
    assert sorted(q.prompt for q in draw(5, 0, source)) == list("01234")
    assert sorted(q.prompt for q in draw(10, 0, source)) == sorted("0123401234")
    assert len({q.prompt for q in draw(3, 0, source)}) == 3


def test_gsm8k_reads_the_number_after_the_hashes(tmp_path):
    file = tmp_path / "gsm.jsonl"
    file.write_text(
        json.dumps({"question": "Two and two?", "answer": "2 + 2 = <<2+2=4>>4\n#### 1,204"}) + "\n"
    )
    task = tasks.gsm8k(file, chat=True)
    assert task.pool[0].answer == "1,204"
    assert task.reward("so it is 1204.", task.pool[0].answer) == 1.0
    file.write_text(json.dumps({"question": "Two?", "answer": "four"}) + "\n")
    with pytest.raises(ValueError, match=r"line 1.*####"):
        tasks.gsm8k(file, chat=True)


@pytest.mark.skipif(find_spec("reasoning_gym") is None, reason="reasoning-gym is not installed")
@pytest.mark.parametrize(("name", "sign"), [("chain_sum", "+"), ("products", "*")])
def test_arithmetic_answers_are_right(name, sign):
    task = tasks.arithmetic(name)
    for question in task.pool[:200]:
        asked = question.prompt.split("\n")[-1].removesuffix("=")
        left, operator, right = asked.split()
        value = {
            "+": int(left) + int(right),
            "-": int(left) - int(right),
            "*": int(left) * int(right),
        }[operator]
        assert str(value) == question.answer
        assert task.reward(f" {value}\n", question.answer) == 1.0
        assert task.reward(f" {value + 1}\n", question.answer) == 0.0
    assert any(sign in q.prompt for q in task.pool)


@pytest.mark.skipif(find_spec("math_verify") is None, reason="math-verify is not installed")
@pytest.mark.parametrize(
    ("completion", "answer", "value"),
    [("so $\\frac{1}{2}$", "0.5", 1), ("it is 7", "8", 0), ("$x+1$", "1+x", 1), ("", "7", 0)],
)
def test_mathematics_compares_expressions(completion, answer, value):
    assert checkers.mathematics(completion, answer) == value
