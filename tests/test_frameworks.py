"""The framework tables: presets by version, against numbers worked out by hand from the frameworks' source."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import sqrt

import pytest
import torch

from grpo_edu import Recipe, Rollouts, token_weights
from grpo_edu.frameworks.data_files import parse
from grpo_edu.frameworks.effective import effective_table
from grpo_edu.frameworks.export import export
from grpo_edu.frameworks.expressions import evaluate, holds, in_range
from grpo_edu.frameworks.tables import FRAMEWORKS, framework, preset, preset_table, presets
from grpo_edu.weights import split


def lone_success(recipe: Recipe) -> list[float]:
    """Advantages of R = [1, 0, 0, 0]."""
    return (
        recipe.plan(Rollouts.from_lengths([1, 1, 1, 1], [1, 0, 0, 0], max_new_tokens=4))
        .advantage[:, 0]
        .tolist()
    )


# reference numbers: sqrt(1/4) = std with ddof 1, sqrt(3)/4 = .433 with ddof 0; NeMo's leave-one-out std is 0 for the lone success
LONE = {
    "trl==1.16": [0.75 / 0.5001, *[-0.25 / 0.5001] * 3],
    "verl==0.9.1": [0.75 / 0.500001, *[-0.25 / 0.500001] * 3],
    "openrlhf==0.11": [1.5, *[-0.5] * 3],
    "nemo_rl": [1.0, *[-1 / sqrt(3)] * 3],
    "skyrl": [1.5, *[-0.5] * 3],
    "slime": [1.5, *[-0.5] * 3],
    "oat": [1.5, *[-0.5] * 3],
    "rlhf_book": [1.5, *[-0.5] * 3],
    "open_instruct": [0.75, *[-0.25] * 3],
}


@pytest.mark.parametrize("at", LONE)
def test_grpo_gives_the_lone_success_this_advantage(at: str) -> None:
    assert lone_success(preset("grpo", at)) == pytest.approx(LONE[at], abs=3e-6)


def test_open_instruct_standard_divides_by_the_population_std() -> None:
    assert lone_success(preset("grpo(standard)", "open_instruct")) == pytest.approx(
        [sqrt(3), *[-1 / sqrt(3)] * 3], abs=1e-6
    )


# weight of a token per unit advantage for lengths 10 and 100 in one micro-batch: sequence mean 1/20 and 1/200, token mean 1/110,
# constant C: 1/(2C); without 1/N: 1/C
SEQUENCE, TOKEN = (1 / 20, 1 / 200), (1 / 110, 1 / 110)
PUSH = {
    ("grpo", "trl==0.14"): SEQUENCE,
    ("grpo", "trl==0.16"): TOKEN,
    ("grpo", "trl==0.18"): TOKEN,
    ("grpo", "trl==1.16"): TOKEN,
    ("grpo(paper)", "trl==1.16"): SEQUENCE,
    ("grpo", "trl@fc4dae256"): TOKEN,
    ("dr_grpo", "trl==0.17"): (1 / 512, 1 / 512),
    ("dr_grpo", "trl==1.16"): (1 / 1024, 1 / 1024),
    ("grpo", "verl==0.4"): TOKEN,
    ("grpo", "verl==0.9.1"): TOKEN,
    ("dr_grpo", "verl==0.6"): (1 / 512, 1 / 512),
    ("dr_grpo", "verl==0.7.0"): (1 / 512, 1 / 512),
    ("dr_grpo", "verl==0.9.1"): (1 / 1024, 1 / 1024),
    ("grpo", "openrlhf@69246e0e"): SEQUENCE,
    ("grpo", "openrlhf==0.10.1"): TOKEN,
    ("grpo", "openrlhf==0.11"): TOKEN,
    ("dr_grpo", "openrlhf==0.11"): TOKEN,
    ("gspo", "openrlhf==0.11"): SEQUENCE,
    ("grpo", "nemo_rl"): TOKEN,
    ("grpo(paper)", "nemo_rl"): SEQUENCE,
    ("grpo", "skyrl"): TOKEN,
    ("dapo", "skyrl"): TOKEN,
    ("dr_grpo", "skyrl"): (1 / 2048, 1 / 2048),
    ("grpo", "slime"): SEQUENCE,
    ("dr_grpo", "slime"): SEQUENCE,
    ("dapo", "slime"): TOKEN,
    ("grpo", "oat"): SEQUENCE,
    ("dr_grpo", "oat"): (1 / 6000, 1 / 6000),
    ("grpo", "open_instruct"): TOKEN,
    ("dr_grpo", "open_instruct"): (1 / 8192, 1 / 8192),
    ("grpo", "rlhf_book"): SEQUENCE,
    ("dr_grpo", "rlhf_book"): SEQUENCE,
    ("dapo", "rlhf_book"): TOKEN,
}


@pytest.mark.parametrize(("name", "at"), PUSH)
def test_push_of_a_token_per_unit_advantage(name: str, at: str) -> None:
    rollouts = Rollouts.from_lengths(
        [10, 100], [1, 0], max_new_tokens=200, truncated=torch.zeros(2, dtype=torch.bool)
    )
    recipe = preset(name, at).but(kl=None, correction=None)
    weights, advantage = token_weights(recipe, rollouts), recipe.plan(rollouts).advantage
    assert [(weights[i, 0] / advantage[i, 0]).item() for i in (0, 1)] == pytest.approx(
        PUSH[name, at]
    )


@pytest.mark.parametrize(
    ("at", "scope"),
    [
        ("openrlhf==0.10.3", "micro"),
        ("openrlhf==0.10.4", "step"),
        ("verl==0.7.1", "micro"),
        ("verl==0.8.0", "step"),
        ("trl==0.21", "micro"),
        ("trl==0.22", "step"),
        ("rlhf_book", "micro"),
        ("skyrl", "step"),
    ],
)
def test_the_scope_of_the_token_mean_changed_at_these_releases(at: str, scope: str) -> None:
    # micro-batches of 2 and 8 tokens: 1/4 and 1/16 per micro-batch, 1/10 over the step
    rollouts = Rollouts.from_lengths([2, 8], [1, 0])
    recipe = preset("dapo" if at == "rlhf_book" else "grpo", at)
    weight = recipe.plan(rollouts, split(2, 2)).W[:, 0].tolist()
    assert weight == pytest.approx([1 / 4, 1 / 16] if scope == "micro" else [1 / 10, 1 / 10])


def test_masked_rows_count_where_the_framework_counts_them() -> None:
    # one live row of 4 tokens, one masked row: 1/(2·4) where it counts, 1/4 where it does not
    mask = torch.tensor([[True] * 4, [False] * 4])
    rollouts = Rollouts(
        logp=torch.full((2, 4), -1.0),
        mask=mask,
        reward=torch.tensor([1.0, 0.0]),
        group=torch.tensor([0, 0]),
    )
    counts = {"trl==1.16": 1 / 8, "verl==0.9.1": 1 / 8, "nemo_rl": 1 / 4}
    for at, expected in counts.items():
        assert preset("grpo(paper)", at).plan(rollouts).W[0, 0].item() == pytest.approx(expected)


def test_every_preset_of_every_version_builds() -> None:
    for who in FRAMEWORKS:
        table = framework(who)
        for version in table.changes():
            assert presets(who, version) or version == table.oldest


def test_the_table_of_grpo_shows_each_version_at_which_it_changed() -> None:
    rows = preset_table("grpo").index.tolist()
    assert [r for r in rows if r.startswith("trl")] == [
        "trl==0.14",
        "trl==0.16",
        "trl==0.19",
        "trl==0.22",
        "trl@fc4dae256",
    ]
    assert [r for r in rows if r.startswith("verl==")] == ["verl==0.2", "verl==0.4", "verl==0.8"]


@pytest.mark.parametrize("who", FRAMEWORKS)
def test_data_files_say_where_their_facts_come_from(who: str) -> None:
    table = framework(who)
    assert table.source
    assert table.evidence.startswith(("parity-tested", "from source reading"))
    names = set(table.option)
    for entry in (*table.rule, *table.trap, *table.claim):
        assert set(entry.when) <= names, entry
    assert {trap.key for trap in table.trap} <= names


def test_unknown_names_are_named() -> None:
    with pytest.raises(KeyError, match=r"Known: .*trl"):
        framework("keras")
    with pytest.raises(KeyError, match="has no preset 'opo'"):
        preset("opo", "trl==1.16")
    with pytest.raises(KeyError, match="fc4dae256"):
        preset("grpo", "trl@0000000")


def test_versions_and_expressions() -> None:
    assert in_range("1.16.0", "==1.16")
    assert in_range("0.9", "<0.10")
    assert in_range("0.10.1", ">=0.9,<0.10.2")
    assert not in_range("0.10.2", ">=0.9,<0.10.2")
    assert evaluate("1 + (high or low) * 2", {"high": None, "low": 3}) == 7
    assert holds({"a": {"above": 1, "given": True}, "b": [1, 2]}, {"a": 2, "b": 1}, {"a": 2})
    with pytest.raises(ValueError, match="not arithmetic"):
        evaluate("__import__('os')", {})
    with pytest.raises(ValueError, match=r"'a / b' cannot be computed"):
        evaluate("a / b", {"a": 1, "b": 0})
    with pytest.raises(ValueError, match="version is 'banana': expected numbers"):
        preset("grpo", "trl==banana")


SMALL = """name = "small"
evidence = "from source reading"
source = "nowhere"
version = "2.0"
oldest = "1.0"
updates = "1"

[option.beta]
history = [{ since = "0", default = 0.1 }]

[[rule]]
axis = "kl"
choice = "k3"
settings = { beta = "=beta" }
versions = "<2.0"

[[trap]]
key = "beta"
text = "small"

[[claim]]
name = "grpo"

[[preset]]
name = "grpo"

[[fork]]
name = "small@1"
version = "1.0"
note = "one"
[[fork.rule]]
axis = "aggregation"
choice = "sequence_mean"
"""


def test_a_small_data_file_is_read_into_typed_tables() -> None:
    table = parse(SMALL, "small.toml")
    assert table.option["beta"].default("1.0") == 0.1
    assert [rule.axis for rule in table.rule] == ["kl"]
    assert [rule.choice for rule in table.fork[0].rule] == ["sequence_mean"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('versions = "<2.0"', 'version = "<2.0"', "line 15: unknown key 'version' in Rule: did you mean versions"),
        ("history = [", "histroy = [", "line 9: unknown key 'histroy' in Option: did you mean history"),
        ("since =", "sinse =", "line 9: unknown key 'sinse' in Since: did you mean since"),
        ('text = "small"', 'txet = "small"', "line 19: unknown key 'txet' in TrapRule: did you mean text"),
        ('[[claim]]\nname = "grpo"', '[[claim]]\nkey = "grpo"', "line 22: unknown key 'key' in Claim"),
        ('[[preset]]\nname = "grpo"', '[[preset]]\nname = "grpo"\nwhen = {}', "line 26: unknown key 'when' in Preset"),
        ('note = "one"', 'notes = "one"', "line 30: unknown key 'notes' in Fork: did you mean note"),
        ('oldest = "1.0"', 'older = "1.0"', "line 5: unknown key 'older' in Framework"),
        ("[[rule]]", "[[rules]]", "line 11: unknown table 'rules'"),
        ("[option.beta]", "[options.beta]", "line 8: unknown table 'options.beta'"),
        ('choice = "k3"', "choice = 3", "line 13: choice is 3: expected str"),
        ('version = "2.0"', "version = 2.0", "line 4: version is 2.0: expected str"),
        ('choice = "k3"', 'choice = "k7"', "line 11: choice is 'k7': no function"),
        ('choice = "k3"\n', "", "line 11: a rule has either a choice or not_covered"),
        ('axis = "kl"', 'axis = "KL"', "line 11: axis is 'KL': expected one of rewards"),
        ('"<2.0"', '"before 2"', "line 15: versions is 'before 2': expected a range"),
        ('text = "small"\n', "", "line 17: TrapRule needs text"),
        ('key = "beta"', 'key = "beta"\nwhen = { beta = { over = 1 } }', "line 17: when.beta has the condition over"),
        ('note = "one"', "note = ", "Invalid value (at line 30"),
    ],
)  # fmt: skip
def test_a_misspelt_data_file_is_refused_with_file_and_line(old: str, new: str, said: str) -> None:
    assert old in SMALL
    with pytest.raises(ValueError, match=re.escape(said)) as refused:
        parse(SMALL.replace(old, new, 1), "small.toml")
    assert str(refused.value).startswith("small.toml")


def test_a_fork_s_table_without_a_fork_is_refused() -> None:
    text = SMALL.replace("[[fork]]", "[[preset]]").replace('version = "1.0"\nnote = "one"\n', "")
    with pytest.raises(ValueError, match=r"line 29: unknown table 'fork\.rule'"):
        parse(text, "small.toml")


def test_a_later_patch_of_the_newest_release_is_read_as_that_release() -> None:
    patched = preset("grpo", "trl==1.16.2")
    assert patched.name == "grpo (trl==1.16.2, read as 1.16)"
    assert patched.describe() == preset("grpo", "trl==1.16").describe()
    assert export(patched, "trl", "1.16.2").version == "1.16"
    for other in ("trl==1.17", "nemo_rl==2026.8.23"):
        with pytest.raises(ValueError, match="was read from"):
            preset("grpo", other)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: framework(None), KeyError, "no framework named 'None'"),  # type: ignore[arg-type]
        (lambda: framework("../pyproject"), KeyError, "no framework named"),
        (lambda: preset("grpo", None), TypeError, "version is None: expected a text"),  # type: ignore[arg-type]
        (lambda: preset("grpo", "trl==99"), ValueError, "trl was read from 0.14 to 1.16"),
        (lambda: preset(None, "trl"), KeyError, "has no preset 'None'"),  # type: ignore[arg-type]
        (lambda: presets("trl", 1.16), TypeError, "version is 1.16: expected a text"),  # type: ignore[arg-type]
        (lambda: effective_table("grop"), KeyError, "no framework has a preset named 'grop'"),
        (lambda: effective_table(3), TypeError, "name is 3: expected a text"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(call: Callable, error: type, said: str) -> None:
    with pytest.raises(error, match=re.escape(said)):
        call()
