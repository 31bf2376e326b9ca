"""The explorers of texts and of runs without a browser: their JavaScript against the
library and numbers by hand."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

pytest.importorskip("anywidget", reason="the explorer needs anywidget")

from batches import batch
from test_explorers import javascript

from grpo_edu import Push, Rollouts, ledger, recipe
from grpo_edu.completions import read_completions, shipped
from grpo_edu.widgets.texts import RunViewer, TextExplorer, TokenView


def with_texts(rollouts):
    texts = [[f"{i}.{t}" for t in range(rollouts.mask.shape[1])] for i in range(len(rollouts))]
    return replace(rollouts, tokens=texts)


def test_the_pushes_on_the_text_are_the_librarys_with_holes_in_the_mask_and_unscored_rows():
    rollouts = with_texts(batch(3, groups=2, width=7, kind="real", spread=0.5))
    mask = rollouts.mask.clone()
    mask[:, 2] = False  # tool output
    mask[0] = False
    scored = rollouts.scored.clone()
    scored[1] = False
    rollouts = replace(rollouts, mask=mask, scored=scored)
    view = TokenView(rollouts, ["grpo", "dapo"], relative=False)
    assert {"grpo", "gspo", "cispo", "sapo"} <= set(view.losses)
    names = list(view.losses)
    states = [view.state() | {"left": name, "right": name} for name in names]
    for name, got in zip(names, javascript(states, TextExplorer), strict=True):
        want = Push.of(view.losses[name], rollouts)
        (panel,) = got["panels"]
        assert panel["recipe"]["total"] == pytest.approx(want.token.abs().sum().item(), rel=1e-12)
        for i, pushes in enumerate(panel["pushes"]):
            expected = want.token[i][rollouts.mask[i]].tolist()
            assert pushes == pytest.approx(expected, rel=1e-12, abs=1e-16), (name, i)


def test_behind_a_hole_in_the_mask_a_token_keeps_its_own_factors():
    rollouts = with_texts(batch(3, groups=2, width=7, kind="real", spread=0.5))
    mask = torch.ones_like(rollouts.mask)
    mask[:, 2] = False
    view = TokenView(replace(rollouts, mask=mask), ["cispo", "cispo"])
    want = Push.of("cispo", view.rollouts)
    states = [view.state() | {"completion": 1, "token": t} for t in range(7)]
    for t, got in enumerate(javascript(states, TextExplorer)):
        (panel,) = got["panels"]
        if t == 2:
            assert panel["chosen"] is None
            continue
        for name, value in want.factors.items():
            assert panel["chosen"][name] == pytest.approx(value[1, t].item(), rel=1e-12), (t, name)


def test_the_chosen_completion_is_drawn_alone_or_with_the_answers_to_its_prompt():
    view = TokenView(completion=49)
    group = view.rollouts.group
    peers = (group == group[49]).nonzero()[:, 0].tolist()
    alone, whole = javascript([view.state(), view.state() | {"whole": True}], TextExplorer)
    assert (alone["rows"], whole["rows"]) == ([49], peers)
    assert (alone["i"], alone["t"]) == (49, 0)
    far = javascript([view.state() | {"completion": 999, "token": 999}], TextExplorer)[0]
    assert (far["i"], far["t"]) == (79, len(view.rollouts.tokens[79]) - 1)


def test_a_token_view_starts_with_a_signal_and_refuses_what_it_cannot_show():
    view = TokenView()
    rewards = view.rollouts.reward[view.rollouts.group == view.rollouts.group[view.completion]]
    assert 0 < rewards.sum() < len(rewards)
    with pytest.raises(ValueError, match=r"rollouts\.tokens is missing: expected the text"):
        TokenView(Rollouts.from_lengths([1, 1], [1, 0], max_new_tokens=1))
    with pytest.raises(ValueError, match="'ppo' needs a field that these rollouts lack"):
        TokenView(recipes=["ppo"])
    with pytest.raises(ValueError, match="does not draw 'ppo': expected a recipe out of"):
        view.left = "ppo"


def test_a_hostile_text_cannot_leave_the_data_of_the_page():
    nasty = "</script><img src=x onerror=alert(1)>"
    page = TokenView(
        Rollouts.from_lengths([1, 1], [1, 0], max_new_tokens=1, tokens=[[nasty], ["b"]])
    ).page()
    assert "</script><img" not in page


@pytest.fixture
def run_folder(tmp_path):
    folder = tmp_path / "run" / "rollouts"
    folder.mkdir(parents=True)
    for step in (0, 5, 9):
        shutil.copy(shipped(), folder / f"step-{step:05d}.jsonl")
    lines = [json.dumps({"step": step, "reward": step / 10, "note": "x"}) for step in range(10)]
    lines[3] = '{"step": 3, "reward": NaN, "note": "x"}'
    (folder.parent / "log.jsonl").write_text(
        "\n".join([*lines, '{"step": 10, "rew'])
    )  # a crash in the last line
    return folder.parent


def test_a_run_viewer_has_the_curve_and_the_pushes_of_every_recorded_step(run_folder):
    view = RunViewer(run_folder, index=1)
    assert [step["step"] for step in view.steps] == [0, 5, 9]
    assert view.log["step"] == list(range(10))
    assert view.log["reward"] == [0, 0.1, 0.2, None, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    (got,) = javascript([view.state()], TextExplorer)
    assert got["step"]["step"] == 5
    assert got["rows"] == list(range(8, 16))  # the first prompt has no right completion
    table = ledger(recipe("dr_grpo"), read_completions())
    want = table[table["completion"] == 8]["push"].tolist()
    assert got["panels"][1]["pushes"][8] == pytest.approx(want, rel=1e-12)
    assert "step 5 marked" in view.figure().get_suptitle()


def test_a_folder_that_is_no_run_says_what_is_missing(tmp_path, run_folder):
    with pytest.raises(
        FileNotFoundError, match=r"no log at .*log.jsonl: expected the folder of a run"
    ):
        RunViewer(tmp_path)
    shutil.rmtree(run_folder / "rollouts")
    with pytest.raises(FileNotFoundError, match=r"no step-\*.jsonl in"):
        RunViewer(run_folder)
    (run_folder / "log.jsonl").write_text('{"step": 0}\nnope\n{"step": 2}')
    with pytest.raises(ValueError, match="line 2: not JSON"):
        RunViewer(run_folder)
