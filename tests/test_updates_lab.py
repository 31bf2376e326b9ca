"""The lab of several updates on one rollout: its picture is the library's own, and its bound is the
closed form."""

from __future__ import annotations

import pytest

pytest.importorskip("anywidget")
from grpo_edu.widgets.updates import reuse_lab, reuse_picture


def drawn_data(figure):
    return [line.get_xydata().tolist() for panel in figure.axes for line in panel.lines]


def test_a_tiny_step_ends_where_the_wrong_answers_meet_the_bound():
    # three wrong answers stop at .8 of a quarter each, probabilities add to 1: the right one ends
    # at 1 + 3 * .2 = 1.6
    lab = reuse_lab()
    lab.set(learning_rate=0.05, updates=200)
    assert lab.error == ""
    assert "is 1.6" in lab.figure().get_suptitle()
    expected = reuse_picture(eps=0.2, learning_rate=0.05, momentum=0.0, updates=200)
    assert drawn_data(lab.figure()) == drawn_data(expected)
