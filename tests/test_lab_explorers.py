"""The DAPO explorer without a browser: its JavaScript against the library and numbers by hand."""

import random

import pytest
import torch

pytest.importorskip("anywidget", reason="the explorer needs anywidget")

from test_explorers import javascript

from grpo_edu.objective.rewards import overlong_penalty
from grpo_edu.theory.clip import reach
from grpo_edu.theory.difficulty import silent_probability
from grpo_edu.widgets.dapo import CHANGES, DapoExplorer, long_shares


def at_the_marker(*states):
    """For each state, the number of each line at the marker, by name."""
    answers = javascript([DapoExplorer(**state).state() for state in states], DapoExplorer)
    return [
        {line["name"]: line["at"] for panel in got["panels"] for line in panel["lines"]}
        for got in answers
    ]


def random_state(change, r):
    return {
        "change": change,
        "eps_high": r.uniform(0.1, 0.5),
        "old": r.uniform(0.01, 0.99),
        "p": r.uniform(0.01, 0.99),
        "size": r.randint(2, 64),
        "longest": 8 * r.randint(1, 64),
        "cache": 512 * r.randint(1, 16),
        "length": r.randint(14000, 22000),
    }


def from_the_library(s):
    """The numbers of the lines of a state, from the library."""
    if s["change"] == "clip-higher":
        return [min(1, reach(s["old"], eps)) - s["old"] for eps in (0.2, s["eps_high"])]
    if s["change"] == "dynamic sampling":
        alive = 1 - silent_probability(s["p"], s["size"])
        return [alive, 1 / alive]
    if s["change"] == "token mean":
        return list(long_shares(s["longest"]).values())
    mask = torch.ones(1, s["length"], dtype=torch.bool)
    zero = torch.zeros(1, dtype=torch.float64)
    return overlong_penalty(zero, mask, 20480, cache=s["cache"])["reward"].tolist()


def test_the_lines_of_the_dapo_explorer_are_the_librarys():
    r = random.Random(0)
    states = [random_state(change, r) for change in CHANGES for _ in range(10)]
    for state, got in zip(states, at_the_marker(*states), strict=True):
        want = from_the_library(state)
        assert list(got.values()) == pytest.approx(want, rel=1e-12, abs=1e-15), state


BY_HAND = [
    ({"old": 0.01}, [0.002, 0.0028]),
    ({"old": 0.9}, [0.1, 0.1]),  # both bounds are above 1
    ({"change": "dynamic sampling", "p": 0.5, "size": 2}, [0.5, 2]),
    # 56 of 112 tokens; in its prompt 56 of 80, half the step
    ({"change": "token mean", "longest": 56}, [1 / 8, 56 / 80 / 2, 56 / 112]),
    ({"change": "overlong penalty", "length": 16384}, [0]),
    ({"change": "overlong penalty", "length": 18432}, [-0.5]),
    ({"change": "overlong penalty", "length": 22000}, [-1]),
]


def test_the_four_changes_by_hand():
    for (state, want), got in zip(BY_HAND, at_the_marker(*[s for s, _ in BY_HAND]), strict=True):
        assert list(got.values()) == pytest.approx(want, rel=1e-12, abs=1e-12), state


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_is_said_in_a_sentence_and_drawn_where_no_widget_runs(change):
    (got,) = javascript([DapoExplorer(change).state()], DapoExplorer)
    assert got["claim"].endswith(".")
    assert got["why"].endswith(".")
    assert "image/png" in DapoExplorer(change)._repr_mimebundle_()[0]
