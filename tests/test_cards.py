"""Formula cards: their numbers are autograd's, their pages are whole, their text is escaped."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
import torch

from grpo_edu import RECIPES, cards, token_weights
from grpo_edu.cards.batch import MICRO_BATCH, SHOWN, example_batch
from grpo_edu.cards.card import card_markdown
from grpo_edu.cards.subject import source

NAMES = cards.card_names()


def test_every_recipe_estimator_aggregation_and_kl_term_has_a_card():
    kinds = list(NAMES.values())
    assert kinds.count("recipe") == len(RECIPES)
    assert kinds.count("advantage") >= 13
    assert kinds.count("aggregation") >= 8
    assert kinds.count("kl") == 9


def test_the_batch_is_the_one_that_its_comment_says():
    rollouts = example_batch()
    assert rollouts.lengths.tolist() == [6, 4, 8, 2, 2, 4, 8, 3]
    ratio = (rollouts.logp - rollouts.old_logp).exp()[rollouts.mask]
    assert sorted(set(ratio.round(decimals=9).tolist())) == [0.7, 0.75, 0.9, 1, 1.1, 1.4, 1.5, 6]
    assert rollouts.logp[*SHOWN].exp().item() == pytest.approx(0.35)
    assert rollouts.logp.max() <= 0
    assert rollouts.reward.tolist() == [1, 0, 0, 0, 1, 1, 0, 1]


@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_of_a_card_are_those_of_autograd(name):
    card = cards.card(name)
    expected = token_weights(card.recipe, example_batch(), MICRO_BATCH)
    assert card.steps[-1].name == "push"
    assert card.steps[-1].value == pytest.approx(expected[*SHOWN].item(), rel=1e-9, abs=1e-15)
    if NAMES[name] == "kl":
        expected = card.push.factors["kl"]
    drawn = [float(text) for text in re.findall(r">([+-][\d.e-]+|0)</text>", card.strip)]
    assert drawn == pytest.approx(expected[example_batch().mask].tolist(), rel=0.06, abs=1e-12)


def test_ratios_that_differ_make_pushes_that_differ_inside_a_completion():
    push = {name: cards.card(name).push.token[0] for name in ("grpo", "gspo", "cispo", "sapo")}
    assert push["gspo"].abs().max() == 0
    assert push["grpo"][0].abs() < 0.001 < push["grpo"][1]
    assert push["cispo"][0] > push["cispo"][1] > push["cispo"][3] > 0
    assert push["sapo"][0] != push["sapo"][1]


@pytest.mark.parametrize("name", NAMES)
def test_a_card_is_whole_in_every_form(name):
    card = cards.card(name)
    page = cards.card_page(name)
    assert page.startswith("<!doctype html>")
    for wrong in ("merror", "$name", "None"):
        assert wrong not in re.sub(r"<pre>.*?</pre>", "", page, flags=re.S), wrong
    ET.fromstring(card.strip)
    body = page[page.index("<body>") : page.index("</body>") + 7]
    ET.fromstring(re.sub(r"&\w+;", "", body))  # every element is closed
    markdown = card_markdown(card)
    assert markdown.count("$$") in (2, 4)
    assert r"$\|" not in markdown  # a double bar in LaTeX
    assert card.heading in str(card)
    for choice in card.choices:
        text = source(choice)
        assert text.startswith("def ")
        assert '"""' not in text
        compile(text, name, "exec")


def test_the_page_of_all_cards_links_to_each():
    page = cards.cards_page(["grpo", "sequence_mean", "k3"])
    for name in ("grpo", "sequence_mean", "k3"):
        assert f'href="#card-{name}"' in page
        assert f'id="card-{name}"' in page


def test_neighbours_and_names_are_those_of_the_tables():
    card = cards.card("gspo")
    assert card.neighbours[0].name == "gspo_token"
    assert any(name.place.startswith("trl") and not name.differing for name in card.names)
    assert any(name.differing for name in cards.card("grpo").names)


def test_a_sentence_says_why_gspo_cuts_the_whole_answer():
    gate = next(step for step in cards.card("gspo").steps if step.name == "gate")
    assert gate.value == 0
    assert "whole completion 1.00816 is above 1.0004" in gate.reason
    geometric_mean = (1.5 * 0.7) ** (1 / 6)
    assert geometric_mean == pytest.approx(1.00816, abs=1e-5)


def test_unknown_names_are_refused_with_those_there_are():
    with pytest.raises(KeyError, match=r"no card 'grpoo'.*gspo.*sequence_mean"):
        cards.card("grpoo")


def test_a_notebook_gets_typeset_text_and_a_picture(monkeypatch):
    shown = []
    import IPython.display

    monkeypatch.setattr(IPython.display, "display", lambda data, raw: shown.append(data))
    cards.card("dr_grpo")._ipython_display_()
    assert [next(iter(data)) for data in shown] == ["text/markdown", "image/svg+xml"]
    assert torch.is_tensor(cards.card("dr_grpo").push.token)
