"""Labs and readers without a browser: what a control does to the picture, and that an error takes
its place."""

import base64

import pytest

pytest.importorskip("anywidget", reason="the panels need anywidget")

from grpo_edu import Rollouts, recipe
from grpo_edu.completions import read_completions
from grpo_edu.widgets import labs, texts
from grpo_edu.widgets.panel import Panel, choice, slider, tick


def text_of(panel):
    """The title of the picture."""
    return panel.figure().get_suptitle()


def test_a_control_draws_anew_and_an_error_takes_the_place_of_the_picture_until_the_next_value():
    def draw(n, word, sure):
        if n == 3:
            raise ValueError("n is 3: expected another.")
        return f"<{word}> {10 / n:g} {sure}"

    panel = Panel(
        draw,
        {
            "n": slider("n", 1, 4, 1, 1),
            "word": choice("word", ["a", "b"], "a"),
            "sure": tick("sure"),
        },
    )
    assert (panel.content, panel.error) == ("<p>&lt;a&gt; 10 False</p>", "")
    panel.set(n=2, word="b", sure=True)
    assert panel.content == "<p>&lt;b&gt; 5 True</p>"
    panel.set(n=3)
    assert panel.drawn_for == panel.values
    assert (panel.content, panel.error) == ("", "ValueError: n is 3: expected another.")
    assert "image/png" not in panel._repr_mimebundle_()[0]
    panel.set(n=4)
    assert (panel.content, panel.error) == ("<p>&lt;b&gt; 2.5 True</p>", "")
    assert panel.drawn == 4
    with pytest.raises(ValueError, match="no control 'm': expected one of n, word"):
        panel.set(m=1)


def test_a_panel_has_a_picture_for_where_no_widget_runs():
    data = labs.accumulation_lab()._repr_mimebundle_()[0]
    assert "application/vnd.jupyter.widget-view+json" in data
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")


def test_accumulation_moves_a_local_token_mean_and_leaves_what_is_planned_once():
    panel = labs.accumulation_lab()
    assert "up to" in text_of(panel)
    panel.set(local=False)
    assert "does not matter" in text_of(panel)
    panel.set(name="bnpo")
    assert "up to" in text_of(panel)  # its scope is the micro-batch, planned or not
    panel.set(name="dr_grpo", local=True)
    assert "does not matter" in text_of(panel)  # 8 rows in 2 equal slices
    panel.set(micro_batches=3)
    assert "up to" in text_of(panel)  # 3, 3, 2 rows: a mean over unequal slices


def test_local_weights_by_hand():
    # lengths 2 | 6, one row each slice: 1/2 / 2 = 1/4 and 1/12; the whole: 1/8
    rollouts = Rollouts.from_lengths([2, 6], [1, 0])
    weight = labs.local_weight(recipe("dapo(step)"), rollouts, labs.split(2, 2))
    assert weight.tolist() == pytest.approx([1 / 4, 1 / 12], rel=1e-15)


def test_only_recipes_whose_fields_are_there_are_offered():
    assert "ppo" not in texts.readable(read_completions())
    assert {"grpo", "balanced", "dapo"} <= set(
        texts.readable(Rollouts.from_lengths([2, 2], [1, 0]))
    )
    assert texts.readable(Rollouts.from_lengths([2, 2], [1, 0]))["grpo"].kl is None
    with pytest.raises(ValueError, match="'dr_grpo' needs a field that these rollouts lack"):
        texts.offered(["dr_grpo"], texts.readable(Rollouts.from_lengths([2, 2], [1, 0])))
