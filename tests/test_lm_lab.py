"""The lab: what the task rewards, where the hand slips, what a warm start can do."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers")

from grpo_edu.lm import lab
from grpo_edu.lm.generate import generate
from grpo_edu.lm.tasks import Problem
from grpo_edu.lm.tokens import encode

TOKENS = lab.tokenizer()


def numbers(text: str) -> list[int]:
    return TOKENS(text)["input_ids"]


@pytest.mark.parametrize(
    ("completion", "value"),
    [
        ("2358#!...", 1),
        ("..23.58#", 1),
        ("2358", 0),
        ("2353#?,,", 0),
        ("235#!", 0),
        ("23588#", 0),
        ("2358#2#", 1),
    ],
)
def test_reward_reads_what_stands_before_the_mark(completion, value):
    assert lab.reward(completion, "2358") == value


def test_tokenizer_has_22_tokens_one_per_character():
    assert len(TOKENS) == 22
    assert TOKENS.decode(numbers("5283=#!.,?")) == "5283=#!.,?"
    assert encode(TOKENS, ["52=", "5283="], chat=False)[1].tolist() == [
        [0, 0, 1, 1, 1],
        [1, 1, 1, 1, 1],
    ]


def test_questions_take_turns_in_level_and_have_distinct_digits():
    asked = lab.questions(10, 3, torch.Generator().manual_seed(0))
    assert [q.level for q in asked] == [4, 5, 1, 2, 3, 4, 5, 1, 2, 3]
    for q in asked:
        assert len(set(q.answer)) == q.level + 1
        assert sorted(q.prompt[:-1]) == list(q.answer)
        assert q.prompt[-1] == "="


def test_the_hand_slips_on_the_last_digit_only_and_as_often_as_said():
    n = 4000
    asked = [Problem("83=", "38", 1)] * n
    hand = lab.slip(asked, {1: 0.3})
    rows, source = torch.arange(n), torch.Generator().manual_seed(1)
    eight, before = torch.full((n,), numbers("8")[0]), torch.tensor(numbers("3")).expand(n, 1)
    first, own = hand(before[:, :0], eight, rows, source)
    assert own.all()
    assert (first == eight).all()
    drawn, own = hand(before, eight, rows, source)
    assert abs((~own).float().mean().item() - 0.3) < 4 * (0.3 * 0.7 / n) ** 0.5
    assert (drawn[own] == numbers("8")[0]).all()
    assert set(drawn[~own].tolist()) == set(lab.DIGITS)
    mark, own = hand(before, torch.full((n,), numbers("#")[0]), rows, source)
    assert own.all()
    assert (mark == numbers("#")[0]).all()


@pytest.mark.parametrize("variant", lab.VARIANTS)
def test_teaching_examples_follow_the_variant(variant):
    source, teaching, asked = (
        torch.Generator().manual_seed(0),
        lab.Teaching(),
        Problem("5283=", "2358", 3),
    )
    made = [lab.example(asked, variant, teaching, source) for _ in range(3000)]
    right = torch.tensor([lab.reward(text, asked.answer) for text, _ in made])
    slipped = torch.tensor([place is not None for _, place in made])
    assert abs(slipped.float().mean().item() - lab.slips(variant)[3]) < 0.04
    assert all(
        text[place].isdigit() and text.index("#") == place + 1
        for text, place in made
        if place is not None
    )
    filler = torch.tensor([float(text.count(".") + text.count(",")) for text, _ in made])
    assert (
        abs(filler[right > 0].mean() - filler[right == 0].mean()) < 1.0
    )  # independent of right and wrong
    assert abs(filler.mean().item() - 7.8) < 0.7  # geometric of mean 8, cut at 40
    assert filler.max() <= 40
    if variant == "before":
        assert all(text.endswith("#") for text, _ in made)
    else:
        honest = torch.tensor(
            [("!" in text) == bool(r) for (text, _), r in zip(made, right, strict=True)]
        )
        assert abs(honest.float().mean().item() - 0.95) < 0.02
        assert any("," in text for text, _ in made)


def test_slipped_digits_are_no_teaching_target():
    source = torch.Generator().manual_seed(0)
    ids, labels = lab._examples("after", lab.Teaching(batch=200), source)
    digit = (ids >= 3) & (ids < 13)
    after_prompt = (ids == numbers("=")[0]).cumsum(1) > 0
    masked = digit & after_prompt & (labels == -100)
    assert abs(masked.any(1).float().mean().item() - 0.5) < 0.12  # mean of SLIP over levels
    assert (labels[~after_prompt] == -100).all()
    assert masked.sum(1).max() == 1


@pytest.mark.parametrize("variant", lab.VARIANTS)
@pytest.mark.parametrize("number", lab.WARM_STARTS)
def test_shipped_warm_starts_know_the_format(variant, number):
    assert lab.warm_start_path(variant, number).stat().st_size < 1_000_000
    net, tokens = lab.warm_start(variant, number)
    asked = [
        lab.question(level, torch.Generator().manual_seed(level))
        for level in lab.LEVELS
        for _ in range(40)
    ]
    ids, attention = encode(tokens, [q.prompt for q in asked], chat=False)
    source = torch.Generator().manual_seed(0)
    drawn = generate(
        net,
        ids,
        attention,
        max_new_tokens=48,
        ends=[lab.END],
        generator=source,
        compact=True,
    )
    texts = [
        tokens.decode(row[mask])[: -len("<eos>")]
        for row, mask in zip(drawn.ids, drawn.mask, strict=True)
    ]
    right = sum(lab.reward(text, q.answer) for text, q in zip(texts, asked, strict=True)) / len(
        asked
    )
    assert right > (0.35 if variant == "rising" else 0.9)  # without slips; rising has learnt to err
    assert drawn.truncated.float().mean() < 0.1


def test_two_warm_starts_are_independent():
    first, second = (
        dict(lab.warm_start("after", n)[0].named_parameters()) for n in lab.WARM_STARTS
    )
    flat = [
        torch.cat([p.detach().flatten() for p in one.values() if p.ndim == 2])
        for one in (first, second)
    ]
    assert abs(torch.corrcoef(torch.stack(flat))[0, 1]) < 0.2


def test_teaching_lowers_the_loss_and_is_reproducible():
    teaching = lab.Teaching(steps=12, batch=32)
    nets = [lab.teach("after", 5, teaching) for _ in range(2)]
    ids, labels = lab._examples("after", teaching, torch.Generator().manual_seed(9))

    def loss(net):
        logits = net(input_ids=ids).logits[:, :-1]
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100
        ).item()

    assert loss(nets[0]) < loss(lab.model(5)) - 0.2
    assert loss(nets[0]) == loss(nets[1])


@pytest.mark.parametrize("call", [lambda: lab.task("later"), lambda: lab.warm_start("after", 7)])
def test_unknown_variants_and_numbers_are_refused(call):
    with pytest.raises(ValueError, match="expected one of"):
        call()
