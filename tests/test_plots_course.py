"""Pictures of the course: what is written and drawn on them is the number that it stands for."""

from __future__ import annotations

import pandas as pd
import pytest
import torch

from grpo_edu.plots.kl import kl_estimators
from grpo_edu.plots.tree import token_tree
from grpo_edu.plots.updates import ratios_by_update
from grpo_edu.theory import mdp


def texts(figure):
    return [text.get_text() for axis in figure.axes for text in axis.texts]


def test_the_tree_writes_each_value_and_each_advantage_once():
    reward = torch.tensor(
        [float(word.count("b") == 2) for word in mdp.words("ab", 3)], dtype=torch.float64
    )
    found = texts(token_tree(mdp.uniform(2, 3), reward, "ab"))
    assert {
        "start: V = 0.375",
        "a: V = 0.250",
        "b: V = 0.500",
        "aa: V = 0.000",
        "abb: r = 1",
        "bbb: r = 0",
    } <= set(found)
    # A: first token -1/8, +1/8; after a -1/4, +1/4; three prefixes that decide by +-1/2; after b
    # and after aa nothing
    counts = {
        word: found.count(word)
        for word in ("-0.125", "+0.125", "-0.250", "+0.250", "-0.500", "+0.500", "0")
    }
    assert counts == {
        "-0.125": 1,
        "+0.125": 1,
        "-0.250": 1,
        "+0.250": 1,
        "-0.500": 3,
        "+0.500": 3,
        "0": 4,
    }


def test_ratios_are_drawn_as_given_with_the_band_and_the_silenced_share():
    table = pd.DataFrame(
        {
            "update": [1, 2],
            "ratio_0": [1.0, 1.3],
            "ratio_1": [1.0, 0.9],
            "clip_fraction": [0.0, 0.5],
        }
    )
    left, right = ratios_by_update(table, ["right", "wrong"], band=(0.7, 1.25)).axes
    assert [line.get_ydata().tolist() for line in left.lines] == [[1.0, 1.3], [1.0, 0.9]]
    assert left.patches[0].get_bbox().intervaly.tolist() == [0.7, 1.25]
    assert right.lines[0].get_ydata().tolist() == [0.0, 50.0]


def test_the_estimators_show_mean_and_pull_of_public_report_b40():
    # policy .9 .1, reference even (open-instruct issue 534): means .368 .285 .368, pulls 0 .198 .4
    left, right = kl_estimators(policy=0.9, reference=0.5).axes
    assert [t.get_text()[-5:] for t in left.get_legend().get_texts()] == ["0.368", "0.285", "0.368"]
    assert [t.get_text()[-5:] for t in right.get_legend().get_texts()] == [
        "0.000",
        "0.198",
        "0.400",
    ]


@pytest.mark.parametrize(("policy", "reference"), [(0.0, 0.5), (0.5, 1.0)])
def test_a_certain_policy_has_no_finite_estimate(policy, reference):
    with pytest.raises(ValueError, match=r"expected a number from 1e-09 to 0.999999999"):
        kl_estimators(policy=policy, reference=reference)
