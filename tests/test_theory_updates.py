"""Several updates on one rollout, against hand numbers of the first update and the fixed points of the clip."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch

from grpo_edu import recipe
from grpo_edu.theory.updates import reuse

near = partial(pytest.approx, rel=1e-9, abs=1e-12)
GRPO = recipe("grpo").but("grpo", kl=None)
EVEN = partial(reuse, GRPO, torch.zeros(4), [0, 1, 2, 3], [1, 0, 0, 0], learning_rate=0.2)


def test_the_first_update_is_on_policy_and_the_second_is_the_hand_number():
    # advantages 1.5, -.5, -.5, -.5; chance 1/4 each; d loss/d logit_0 = -(1.5 * 3/4 + 3 * .5 * 1/4) / 4 = -.375, the others +.125
    # so after one step of .2 the logits are .075, -.025, -.025, -.025, and the chance of arm 0 is e^.1 / (e^.1 + 3)
    table = EVEN(updates=2)
    first, second = table.iloc[0], table.iloc[1]
    assert first[["ratio_0", "ratio_1", "loss", "clip_fraction"]].tolist() == near([1, 1, 0, 0])
    assert first["gradient_norm"] == near(math.sqrt(0.375**2 + 3 * 0.125**2))
    assert second["ratio_0"] == near(4 * math.exp(0.1) / (math.exp(0.1) + 3))


def test_the_clip_stops_the_gradient_but_not_the_ratio():
    table = EVEN(updates=24)
    assert table["clip_fraction"].iloc[0] == 0
    assert table["clip_fraction"].is_monotonic_increasing
    assert table["clip_fraction"].iloc[-1] == 1
    assert table["gradient_norm"].iloc[-1] == near(0.0)
    # the three wrong arms stop below .8 each, a hair; probabilities add to 1, so the right one ends above 1 + 3 * .2 = 1.6
    assert table["ratio_1"].iloc[-1] < 0.8
    assert 1.6 < table["ratio_0"].iloc[-1] < 1.65


def test_momentum_carries_the_ratio_on_without_any_gradient():
    table = EVEN(updates=24, momentum=0.9)
    silent = table[table["gradient_norm"] < 1e-15]
    assert len(silent) > 10
    assert silent["ratio_0"].is_monotonic_increasing
    assert silent["ratio_0"].iloc[-1] > 3.0


def test_without_a_clip_nothing_stops():
    table = reuse(
        recipe("rloo"), torch.zeros(4), [0, 1, 2, 3], [1, 0, 0, 0], learning_rate=0.2, updates=24
    )
    assert (table["clip_fraction"] == 0).all()
    assert (table["gradient_norm"] > 0.01).all()
