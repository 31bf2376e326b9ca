"""The stepper: its last line is autograd's number, and every line's arithmetic gives the line's value."""

from __future__ import annotations

import math
import statistics

import pytest
import torch
from batches import batch

from grpo_edu import RECIPES, Rollouts, recipe, step_through, token_weights
from grpo_edu.weights import split


def std(*values: float, ddof: int) -> float:
    return statistics.stdev(values) if ddof else statistics.pstdev(values)


NAMES = {
    "mean": lambda *x: sum(x) / len(x),
    "std": std,
    "exp": math.exp,
    "comb": math.comb,
    "min": min,
    "max": max,
    "sign": lambda x: (x > 0) - (x < 0),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "nan": math.nan,
}


def arithmetic(text: str) -> float:
    """The value of a line's numbers; only names of NAMES exist."""
    return eval(text.replace("·", "*"), {"__builtins__": {}}, NAMES)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("seed", [1, 2])
def test_last_line_is_the_gradient_weight_of_every_token(name, seed):
    rollouts, micro_batch = batch(seed, groups=2, size=3, width=5), split(6, 2)
    weights = token_weights(RECIPES[name], rollouts, micro_batch)
    for i, t in rollouts.mask.nonzero().tolist():
        steps = step_through(RECIPES[name], rollouts, i, t, micro_batch).steps
        assert steps[-1].value == pytest.approx(weights[i, t].item(), rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("name", RECIPES)
def test_the_numbers_of_every_line_give_its_value(name):
    for seed, spread in ((1, 0.3), (5, 0.9)):
        rollouts, micro_batch = batch(seed, groups=2, size=3, width=5, spread=spread), split(6, 2)
        for i, t in rollouts.mask.nonzero().tolist():
            for step in step_through(RECIPES[name], rollouts, i, t, micro_batch).steps:
                if step.name != "reward":  # shaping is shown by its formula
                    assert arithmetic(step.numbers) == pytest.approx(
                        step.value, rel=2e-4, abs=2e-5
                    ), (step, i, t)


def test_a_known_token_step_by_step():
    # two completions, rewards 1 and 0, lengths 2 and 8: A = ±1/sqrt(2), W = 1/(2·2)
    stepped = step_through(recipe("grpo").but(kl=None), Rollouts.from_lengths([2, 8], [1, 0]), 0, 1)
    assert [s.name for s in stepped.steps] == [
        "reward",
        "centred",
        "advantage",
        "ratio",
        "gate",
        "W",
        "push",
    ]
    assert [s.value for s in stepped.steps] == pytest.approx(
        [1, 0.5, 0.5**0.5, 1, 1, 0.25, 0.5**0.5 / 4]
    )
    assert "1/2 · 1/2" in str(stepped)
    assert "<table>" in stepped._repr_html_()


def test_a_token_that_is_not_trained_is_refused():
    with pytest.raises(IndexError, match="not a trained token"):
        step_through(recipe("rloo"), Rollouts.from_lengths([2, 8], [1, 0]), 0, 5)


def test_a_clipped_token_has_gate_zero():
    stepped = step_through(
        recipe("dr_grpo"),
        Rollouts.from_lengths([2, 8], [1, 0], ratio=[1.5, 1.0], max_new_tokens=8),
        0,
        0,
    )
    values = {s.name: s.value for s in stepped.steps}
    assert values["ratio"] == pytest.approx(1.5)
    assert values["gate"] == 0
    assert values["push"] == 0


def test_a_choice_of_ones_own_shows_its_value():
    def halved(reward: torch.Tensor) -> torch.Tensor:
        return reward / 2

    stepped = step_through(
        recipe("rloo").but(baseline=halved), Rollouts.from_lengths([2, 8], [1, 0]), 0, 0
    )
    assert stepped.steps[1].numbers == "0.5"
