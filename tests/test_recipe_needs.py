"""What a recipe says it needs, against what happens when it is run without it."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest

from grpo_edu import RECIPES, Rollouts, recipe
from grpo_edu.objective.recipe import MissingReferenceWarning
from grpo_edu.theory.difficulty import neutral_rollouts

FIELDS = ("given_advantage", "value", "greedy_reward", "token_reward", "reward_parts")


def runs(name: str, rollouts: Rollouts) -> bool:
    try:
        recipe(name).plan(rollouts)
    except ValueError as error:
        return "which is missing" not in str(error)
    return True


@pytest.mark.parametrize("name", list(RECIPES))
def test_a_recipe_lacks_exactly_the_fields_without_which_it_does_not_run(name):
    full = neutral_rollouts([2, 3, 2, 1], [1.0, 0.0, 1.0, 0.0], [0, 0, 1, 1], recipe(name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingReferenceWarning)
        stopped_by = [f for f in FIELDS if not runs(name, replace(full, **{f: None}))]
    assert recipe(name).lacking(FIELDS) == sorted(stopped_by)


def test_ppo_lacks_an_advantage_and_grpo_does_not_though_its_clip_looks_at_one():
    assert recipe("ppo").lacking(["given_advantage", "value"]) == ["given_advantage"]
    assert recipe("grpo").lacking(["given_advantage", "value"]) == []


def test_a_reference_is_needed_where_there_is_a_kl_term_and_nowhere_else():
    assert recipe("grpo").needs_reference
    assert not recipe("grpo").but(kl=None).needs_reference
    assert not recipe("dr_grpo").needs_reference


def test_choices_are_those_of_the_axes_that_are_not_empty():
    grpo = recipe("grpo").but(kl=None)
    assert set(grpo.choices) == {grpo.baseline, grpo.scale, grpo.surrogate, grpo.aggregation}
