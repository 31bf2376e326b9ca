"""The completions file: what is read, what is refused and with which words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from grpo_edu import read_completions, recipe, token_weights
from grpo_edu.completions import completion_row
from grpo_edu.files import write_json_lines
from grpo_edu.weights import summary

ROW = {
    "group_id": "a",
    "sample_id": 0,
    "prompt": "p",
    "completion": "x y",
    "tokens": ["x", " y"],
    "logp": [-1.0, -2.0],
    "reward": 1,
    "truncated": False,
}


def write(path: Path, *rows: dict | str) -> Path:
    path.write_text(
        "\n".join(r if isinstance(r, str) else json.dumps({**ROW, **r}) for r in rows),
        encoding="utf-8",
    )
    return path


def test_columns_become_rollouts(tmp_path):
    more = {"tokens": ["z"], "logp": [-0.5], "reward": None, "truncated": True}
    rollouts = read_completions(
        write(tmp_path / "c.jsonl", {}, more, {"group_id": 7, "mask": [1, 0]})
    )
    assert rollouts.mask.tolist() == [[True, True], [True, False], [True, False]]
    assert rollouts.logp[rollouts.mask].tolist() == [-1, -2, -0.5, -1]
    assert rollouts.group.tolist() == [0, 0, 1]
    assert rollouts.scored.tolist() == [True, False, True]
    assert rollouts.truncated.tolist() == [False, True, False]
    assert rollouts.ref_logp is None
    assert rollouts.max_new_tokens is None


def test_optional_log_probs_are_read_where_every_row_has_them(tmp_path):
    row = {"ref_logp": [-1.5, -1.5], "old_logp": [-1.0, -2.5], "max_new_tokens": 9}
    rollouts = read_completions(write(tmp_path / "c.jsonl", row, row))
    assert rollouts.ref_logp.tolist() == [[-1.5, -1.5]] * 2
    assert rollouts.old_logp.tolist() == [[-1.0, -2.5]] * 2
    assert rollouts.max_new_tokens == 9


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{not json", "line 2: not JSON"),
        ("[1]", "expected a JSON object"),
        ('{"tokens": []}', "no column group_id, logp, reward"),
        ({"logp": [-1.0]}, "logp has 1 entries but tokens has 2"),
        ({"tokens": "xy"}, "tokens must be a list of texts"),
        ({"reward": "good"}, "reward is 'good'"),
        ({"mask": [1]}, "mask has 1 entries but tokens has 2"),
        ({"logp": [-1.0, 0.7]}, "a log-probability is at most 0"),
    ],
)
def test_bad_lines_are_named(tmp_path, row, words):
    with pytest.raises(ValueError, match=words.replace("[", r"\[")):
        read_completions(write(tmp_path / "c.jsonl", {}, row))


def test_missing_empty_and_binary_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="grpo-edu sample"):
        read_completions(tmp_path / "none.jsonl")
    with pytest.raises(ValueError, match="no completions"):
        read_completions(write(tmp_path / "empty.jsonl", ""))
    (tmp_path / "b.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not UTF-8"):
        read_completions(tmp_path / "b.jsonl")


def test_the_shipped_completions_have_no_kl_push_since_the_reference_is_the_sampler():
    rollouts = read_completions()
    assert torch.equal(
        token_weights(recipe("grpo"), rollouts),
        token_weights(recipe("grpo").but(kl=None), rollouts),
    )


def test_two_wrong_answers_one_four_times_longer_a_quarter_under_grpo_and_the_same_under_dr_grpo(
    tmp_path,
):
    def long(n: int, reward: int) -> dict:
        return {
            "tokens": ["t"] * n,
            "logp": [-1.0] * n,
            "ref_logp": [-1.0] * n,
            "reward": reward,
            "max_new_tokens": 32,
        }

    rollouts = read_completions(write(tmp_path / "c.jsonl", long(5, 0), long(20, 0), long(6, 1)))
    short, longer, _ = summary(recipe("grpo"), rollouts)["push_per_token"]
    assert longer / short == pytest.approx(0.25, rel=1e-12)
    assert short < 0
    short, longer, _ = summary(recipe("dr_grpo"), rollouts)["push_per_token"]
    assert longer / short == pytest.approx(1, rel=1e-12)


def test_what_is_written_is_read_again(tmp_path):
    logp = torch.tensor([-0.1234567, -2.5])
    row = completion_row(
        {"logp": logp, "ref_logp": 2 * logp, "sampler_logp": None},
        group_id="a",
        prompt="p",
        completion="x y",
        reward=0.5,
        truncated=True,
        max_new_tokens=2,
        tokens=["x", " y"],
    )
    assert list(row)[-2:] == ["logp", "ref_logp"]
    assert "sampler_logp" not in row
    write_json_lines(tmp_path / "c.jsonl", [row])
    rollouts = read_completions(tmp_path / "c.jsonl", dtype=torch.float32)
    assert torch.equal(rollouts.logp[0], logp)  # 9 digits are all of float32
    assert torch.equal(rollouts.ref_logp[0], 2 * logp)
    assert (rollouts.reward.item(), rollouts.truncated.item()) == (0.5, True)
    assert (rollouts.max_new_tokens, rollouts.tokens) == (2, [["x", " y"]])


def test_a_column_that_the_format_does_not_have_and_a_missing_one_are_refused():
    logps = {"logp": torch.tensor([-1.0])}
    with pytest.raises(ValueError, match="columns are group_id, tokens, logp: expected group_id"):
        completion_row(logps, group_id=0, tokens=["x"])
    with pytest.raises(ValueError, match=r"columns are .*rewards"):
        completion_row(logps, group_id=0, tokens=["x"], reward=1.0, rewards=1.0)
