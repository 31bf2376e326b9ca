"""The exact facts of each named figure, asserted on the data that is drawn."""

from __future__ import annotations

import numpy as np
import pytest

from grpo_edu.figures import FIGURES
from grpo_edu.figures.registry import named, register


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_draws_with_title_alt_text_level_and_labelled_axes(name):
    figured = FIGURES[name]
    assert len(figured.alt) > 60
    assert figured.answers
    assert figured.level.split(",")[0] in ("exact", "simulated", "observed")


def test_strips_have_the_hand_numbers_of_the_book_with_the_advantage_put_back():
    table = FIGURES["aggregation_strips"].data()
    weight = {(a[:8], c): w for a, c, w in zip(table.aggregation, table.completion, table.weight, strict=True)}
    assert [weight["sequence", 0], weight["sequence", 1]] == pytest.approx([0.25, 1 / 7])
    assert [weight["constant", 0], weight["constant", 1]] == pytest.approx([1 / 7, 1 / 7])
    assert [weight["token me", 0], weight["token me", 1]] == pytest.approx([2 / 11, 2 / 11])


def test_clip_gradient_is_the_advantage_times_the_ratio_in_live_cells_and_zero_in_two_of_six():
    table = FIGURES["clip_objective"].data()
    ppo = table[table.surrogate == "PPO, 0.2 / 0.2"]
    dead = ((ppo.advantage > 0) & (ppo.ratio > 1.2 + 1e-9)) | ((ppo.advantage < 0) & (ppo.ratio < 0.8 - 1e-9))
    edge = (ppo.ratio - 1.2).abs().lt(1e-6) | (ppo.ratio - 0.8).abs().lt(1e-6)
    assert (ppo[dead].gradient == 0).all()
    live = ppo[~dead & ~edge]
    assert np.allclose(live.gradient, live.advantage * live.ratio, atol=1e-10)
    higher = table[(table.surrogate == "clip-higher, 0.2 / 0.28") & (table.advantage > 0)]
    assert (higher[(higher.ratio > 1.21) & (higher.ratio < 1.279)].gradient > 0).all()
    cispo = table[table.surrogate.str.startswith("CISPO")]
    assert np.allclose(cispo.gradient, cispo.advantage * cispo.ratio.clip(upper=1.28), atol=1e-10)


def test_lone_success_is_three_with_std_and_nine_tenths_without():
    table = FIGURES["advantage_by_correct_count"].data().set_index(["estimator", "correct"])
    assert table.right["GRPO (std, ddof 0)", 1] == pytest.approx(3.0)
    assert table.right["Dr. GRPO (no std)", 1] == pytest.approx(0.9)
    assert table.right["RLOO", 1] == pytest.approx(1.0)


def test_names_are_unique_and_unknown_ones_are_refused():
    with pytest.raises(ValueError, match="registered already"):
        register(FIGURES["clip_objective"])
    with pytest.raises(KeyError, match="Known: "):
        named(["nope"])
