"""The picture panel: one picture however often a control moves, an error in place of a stale picture, recovery, a PNG without a kernel."""

from __future__ import annotations

import base64

import pytest

pytest.importorskip("ipywidgets")
from matplotlib import pyplot

from grpo_edu.plots.kl import kl_estimators
from grpo_edu.widgets.panel import PicturePanel, slider


def panel():
    return PicturePanel(kl_estimators, policy=slider("π", 0.9, 0.0, 1.0), reference=slider("π_ref", 0.5, 0.0, 1.0))


def test_twenty_moves_leave_one_picture_equal_to_a_fresh_one():
    shown = panel()
    children = len(shown.children)
    for k in range(1, 21):
        shown.controls["policy"].value = k / 25
    assert len(shown.children) == children
    assert pyplot.get_fignums() == []
    assert shown.image.value == kl_estimators(policy=20 / 25, reference=0.5).png()


def test_an_error_takes_the_picture_away_says_why_and_the_next_input_recovers():
    shown = panel()
    shown.controls["reference"].value = 0.0
    assert "reference is 0.0: expected a probability" in shown.message.value
    assert shown.image.layout.display == "none"
    shown.controls["reference"].value = 0.4
    assert shown.message.value == ""
    assert shown.image.layout.display == ""
    assert shown.image.value == kl_estimators(policy=0.9, reference=0.4).png()


def test_messages_are_escaped():
    def fails(x):
        raise ValueError("<script>")

    assert "&lt;script&gt;" in PicturePanel(fails, x=slider("x", 1, 0, 2)).message.value


def test_a_page_that_runs_nothing_gets_the_picture():
    bundle = panel()._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
