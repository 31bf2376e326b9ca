"""Pictures: the drawn data is the weights, one scale for all panels, nothing unescaped, no window
left open."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest

from grpo_edu import Rollouts, read_completions, recipe, token_weights
from grpo_edu.plots.heatmap import DRAWN_ROWS, weight_map
from grpo_edu.plots.text import weights_on_text

GRPO = recipe("grpo").but("grpo", kl=None)
THREE = Rollouts.from_lengths([2, 2, 8], [1, 0, 0], ratio=[1.5, 1.0, 1.0], max_new_tokens=10)


def images(figure) -> list:
    return [axis.images[0] for axis in figure.axes if axis.images]


def test_the_heat_map_draws_the_weights_on_one_symmetric_scale():
    figure = weight_map([GRPO, recipe("dr_grpo")], THREE)
    shown = images(figure)
    for image, one in zip(shown, (GRPO, recipe("dr_grpo")), strict=True):
        drawn, weights = np.asarray(image.get_array()), token_weights(one, THREE).numpy()
        assert np.array_equal(drawn[THREE.mask], weights[THREE.mask])
        assert np.isnan(np.ma.filled(image.get_array(), np.nan)[~THREE.mask.numpy()]).all()
    assert shown[0].norm is shown[1].norm
    assert shown[0].norm.vmin == -shown[0].norm.vmax


def test_clipped_tokens_are_hatched_and_push_and_share_stand_beside_each_row():
    axis = weight_map([GRPO], THREE).axes[0]
    hatched = [p for p in axis.patches if p.get_hatch()]
    assert {(p.get_x() + 0.5, p.get_y() + 0.5) for p in hatched} == {(0, 0), (1, 0)}
    texts = [t.get_text() for t in axis.texts]
    assert any("push" in t and "share" in t for t in texts)
    assert sum("%" in t for t in texts) == 3


def test_relative_panels_are_percent_of_each_recipes_total_push():
    for image in images(weight_map([GRPO, recipe("dr_grpo")], THREE, relative=True)):
        assert np.abs(
            np.ma.filled(image.get_array(), 0)[THREE.mask.numpy()]
        ).sum() == pytest.approx(100)


def test_many_rows_get_prompts_and_bars_and_no_window_is_left_open():
    before = plt.get_fignums()
    figure = weight_map([GRPO], read_completions(), relative=True)
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == [
        f"prompt {g}" for g in range(10)
    ]
    assert len(figure.png()) > 10_000
    assert plt.get_fignums() == before


def test_of_ten_thousand_completions_a_few_are_drawn_and_the_text_says_what_is_left_out():
    rewards = [float(i % 2) for i in range(10_000)]
    rewards[5000] = 50.0
    many = Rollouts.from_lengths([2] * 10_000, rewards, tokens=[["a", "b"]] * 10_000)
    figure = weight_map([GRPO], many, relative=True)
    rows = images(figure)[0].get_array().shape[0]
    assert rows == DRAWN_ROWS
    push = token_weights(GRPO, many).abs().sum(dim=1)
    kept = push[[0, 9999]].sum() + push[1:-1].sort(descending=True).values[: rows - 2].sum()
    held = 100 * (1 - kept / push.sum()).item()
    text = str(weights_on_text([GRPO], many))
    assert text.count('class="row"') == DRAWN_ROWS
    assert all(f">completion {number} " in text for number in (0, 5000, 9999))
    for place in (text, figure.get_supxlabel()):
        assert "256 of 10,000 completions are drawn" in place.replace("\n", " ")
        assert f"GRPO {held:.3g} %" in place.replace("\n", " ")


def test_text_is_escaped_and_tokens_carry_sign_clip_and_mask():
    tokens = [["<script>", "&"], ["a", "b"], list("12345678")]
    page = weights_on_text(
        [GRPO],
        Rollouts.from_lengths(
            [2, 2, 8], [1, 0, 0], tokens=tokens, prompts=["<i>"] * 3, ratio=[1.5, 1, 1]
        ),
    )
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "&lt;i&gt;" in page
    assert 'class=" clipped"' in page
    assert 'class="down"' in page
    assert "not trained" in page
    assert page._repr_html_() == str(page)


def test_text_needs_tokens_and_existing_rows():
    with pytest.raises(ValueError, match="tokens is missing"):
        weights_on_text([GRPO], THREE)
    with pytest.raises(ValueError, match="from 0 to 79"):
        weights_on_text([GRPO], read_completions(), rows=[80])
