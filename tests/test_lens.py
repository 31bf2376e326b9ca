"""The push lens: the page holds the digits of the ledger, and nothing of a file is read as HTML."""

from __future__ import annotations

import base64
import gzip
import json
import re

import numpy as np
import pytest
import torch

from grpo_edu import Rollouts, read_completions, recipe, step_through
from grpo_edu.plots.lens import LONGEST, decimals, push_lens
from grpo_edu.weights import Push

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "\" onfocus='alert(3)' `",
    "\u2028\x1b[31m\x00\u202e",
    "\ud800",
    "",
)
FACTORS = ("advantage", "W", "ratio", "gate", "kl", "push")


def batch() -> Rollouts:
    """Two prompts: ratios that differ from token to token, a completion without a score, a token
    that is not trained, a completion without any, and more texts than positions."""
    mask = torch.ones(6, 4, dtype=torch.bool)
    mask[1, 2] = False
    mask[5] = False
    old = torch.full((6, 4), -1.5, dtype=torch.float64)
    new = old + torch.tensor([[0.5, 0.0, -0.4, 0.1]] * 6, dtype=torch.float64)
    return Rollouts(
        logp=new,
        old_logp=old,
        ref_logp=old + 0.2,
        mask=mask,
        reward=[1, 0, 0.5, None, 1, 0],
        group=torch.tensor([7, 7, 7, 7, 3, 3]),
        tokens=[[*HOSTILE[:4], " more"], *[["a", "b", "c", "d"]] * 4, list(HOSTILE[:4])],
        prompts=["<b>first</b>"] * 4 + ["second"] * 2,
        max_new_tokens=4,
    )


def page_of(names, rollouts=None, rows=None, micro_batch=None) -> str:
    rollouts = rollouts or batch()
    pushes = [
        Push.of(recipe(name) if isinstance(name, str) else name, rollouts, micro_batch)
        for name in names
    ]
    table = pushes[0].summary()
    return push_lens(pushes, table if rows is None else table.loc[rows], micro_batch)


def block(page: str, name: str) -> bytes:
    found = re.search(rf'<script type="text/plain" id="{name}">([\w+/=]*)</script>', page)
    return gzip.decompress(base64.b64decode(found[1]))


def data_of(page: str) -> dict:
    return json.loads(block(page, "data"))


def digits(page: str, column: dict) -> list[float]:
    """The numbers of a column, read without the code that wrote them."""
    raw, at, count = block(page, "columns"), column["at"], column["count"]
    mantissa = np.frombuffer(raw, "<i2", count, at)
    power = np.frombuffer(raw, "i1", count, at + 2 * count)
    return [float(f"{m}e{p}") for m, p in zip(mantissa, power, strict=True)]


def per_token(page: str, column: dict) -> list[float]:
    """One number per token of the page."""
    numbers = digits(page, column)
    if column["each"] == "token":
        return numbers
    return np.repeat(numbers, data_of(page)["count"]).tolist()


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "gspo", "cispo", "sapo", "balanced"])
def test_every_number_of_the_page_is_that_of_the_ledger_in_four_digits(name):
    page = page_of([name])
    data = data_of(page)
    entry = data["recipes"][0]
    ledger = Push.of(recipe(name), batch()).ledger()
    starts = np.cumsum([0, *data["count"]])
    at = [starts[i] + t for i, t in zip(ledger["completion"], ledger["position"], strict=True)]
    assert len(at) == 19
    for factor, column in entry["factors"].items():
        expected = ledger[factor] * (100 if factor == "share" else 1)
        assert np.array(per_token(page, column))[at].tolist() == [
            float(f"{x:.4g}") for x in expected
        ]
    trained = np.frombuffer(block(page, "columns"), "u1", starts[-1], data["trained"])
    assert np.flatnonzero(trained).tolist() == at
    words = np.frombuffer(block(page, "columns"), "<u4", starts[-1], data["word"])
    texts = [text for row in batch().tokens for text in row]
    assert [data["words"][k] for k in words] == texts


def test_a_number_has_the_four_digits_that_python_prints():
    some = np.random.default_rng(0).normal(size=20_000) * 10.0 ** np.tile(np.arange(-100, 100), 100)
    ties = [0.0, -0.0, 0.0078125, 0.12345, 9999.5, 99995.0, 0.00099995, -1e-5, 1e100, 1e-130]
    values = np.array([*some, *ties, *(2.0 ** -np.arange(1, 60))])
    raw = decimals(values)
    mantissa = np.frombuffer(raw, "<i2", len(values))
    power = np.frombuffer(raw, "i1", offset=2 * len(values))
    for value, m, p in zip(values, mantissa, power, strict=True):
        assert float(f"{m}e{p}") == (0 if abs(value) < 1e-120 else float(f"{value:.4g}"))


@pytest.mark.parametrize("name", ["grpo", "rloo", "dapo", "reinforce"])
def test_the_steps_are_those_of_step_through(name):
    rollouts = batch()
    entry = data_of(page_of([name], rollouts))["recipes"][0]
    for i, t in ((0, 0), (1, 3), (2, 1)):
        steps = step_through(recipe(name), rollouts, i, t).steps
        assert list(entry["formula"].items()) == [(step.name, step.formula) for step in steps]
        for step in steps:
            if step.name in entry["written"][i]:
                assert entry["written"][i][step.name] == " = ".join(step.written)


def test_a_micro_batch_counts_in_numbers_and_steps():
    micro_batch = torch.tensor([0, 0, 0, 1, 1, 1])
    page = page_of(["bnpo"], micro_batch=micro_batch)
    entry = data_of(page)["recipes"][0]
    assert entry["written"][0]["W"].startswith("1/2 · 1/11 = ")
    assert digits(page, entry["factors"]["W"])[0] == float(f"{1 / 22:.4g}")


def test_a_group_shows_its_completions_with_the_numbers_of_the_whole_step():
    page = page_of(["grpo"], rows=[3, 4])
    data = data_of(page)
    whole = page_of(["grpo"])
    assert data["completion"] == [3, 4]
    assert data["reward"] == [None, 1]
    assert data["prompts"] == {"7": "<b>first</b>", "3": "second"}
    share = digits(whole, data_of(whole)["recipes"][0]["share"])
    assert digits(page, data["recipes"][0]["share"]) == share[3:5]
    assert "2 completions of the 6 of the step, 2 prompts, 8 trained tokens" in page


def test_texts_of_a_file_never_stand_in_the_page_as_html():
    page = page_of(["grpo", "dr_grpo"])
    assert page.count("<script") == page.count("</script>") == 3
    assert "<img" not in page
    assert "&lt;/script&gt;&lt;script&gt;" in page
    assert not {"\u2028", "\x1b", "\x00", "\u202e"} & set(page)
    assert "http" not in page.lower()
    page.encode("utf-8")


def test_a_long_line_of_numbers_is_cut():
    many = Rollouts.from_lengths([1] * 300, [k % 2 for k in range(300)], tokens=[["a"]] * 300)
    written = data_of(page_of(["rloo"], many))["recipes"][0]["written"][0]
    assert len(written["centred"]) < LONGEST + 20
    assert written["centred"].endswith("… = -0.501672")


def test_the_table_without_javascript_has_every_completion():
    page = page_of(["grpo"], read_completions())
    table = page[page.index("<noscript>") : page.index("</noscript>")]
    assert table.count("<tr") == 81


def test_columns_that_two_recipes_share_are_kept_once():
    first, second = data_of(page_of(["grpo", "dr_grpo"]))["recipes"]
    assert first["factors"]["ratio"]["at"] == second["factors"]["ratio"]["at"]
    assert first["factors"]["W"]["at"] != second["factors"]["W"]["at"]
    assert "kl" not in second["factors"]


def test_texts_are_needed():
    with pytest.raises(ValueError, match=r"tokens is missing: expected the text of each token"):
        page_of(["rloo"], Rollouts.from_lengths([2, 2], [1, 0]))
