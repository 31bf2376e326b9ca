"""Exercises on aggregation: a weight per token, its denominators, masks and micro-batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...objective import aggregation as agg
from ...objective import groups
from ..engine import Case, Exercise, Function, Property
from .advantages import near


def of_lengths(*lengths: int, width: int | None = None) -> Tensor:
    """``[N, T]`` bool mask of completions that are only a length."""
    size = max(lengths) if width is None else width
    return torch.arange(size)[None, :] < torch.tensor(lengths)[:, None]


HOLES = torch.tensor([[1, 0, 0, 1, 1, 0], [1, 1, 1, 1, 1, 1], [0, 0, 1, 0, 0, 0]], dtype=torch.bool)


def present(mask: Tensor) -> Tensor:
    return torch.ones(len(mask), dtype=torch.bool)


def tokens(mask: Tensor) -> Tensor:
    return mask.sum(1, keepdim=True).double()


def mask_cases() -> list[Case]:
    return [
        Case("two completions of 2 and 4 tokens", (of_lengths(2, 4),)),
        Case(
            "three completions of 1, 3 and 2 tokens, padded to 7", (of_lengths(1, 3, 2, width=7),)
        ),
        Case("a mask with holes, as tool output makes them", (HOLES,)),
        Case(
            "a completion whose tokens are all masked, beside a live one",
            (of_lengths(0, 3, width=4),),
        ),
        Case("one live token in the whole batch", (of_lengths(0, 1, width=3),)),
        Case("a batch without any live token", (of_lengths(0, 0, width=3),)),
    ]


def unmoved_by_padding(f: Function) -> bool:
    narrow = f(of_lengths(2, 4))
    wide = f(of_lengths(2, 4, width=9))
    return near(narrow, wide[:, :4]) and near(wide[:, 4:], 0.0)


PADDING = Property(
    "padding the batch wider changes no weight and gives the new places 0", unmoved_by_padding
)
EMPTY = Property(
    "a batch without any live token gets zeros, not NaN",
    lambda f: near(f(of_lengths(0, 0, width=3)), 0.0),
)


def sequence_mean(mask: Tensor) -> Tensor:
    """``1/N · 1/|o_i|`` on live tokens."""
    return agg.sequence_mean(mask, present(mask))


def token_mean(mask: Tensor) -> Tensor:
    """``1/Σ|o|`` on live tokens."""
    return agg.step_token_mean(mask)


SEQUENCE_MEAN = Exercise(
    name="sequence_mean",
    title="Sequence mean: GRPO's 1/|o|",
    goal="Give every token the weight it has when each completion is averaged on its own first.",
    minutes=8,
    difficulty=1,
    kind="implement",
    returns="[N, T] weights",
    reference=sequence_mean,
    cases=mask_cases,
    properties=(
        PADDING,
        EMPTY,
        Property(
            "every live completion has the same total weight",
            lambda f: near(f(of_lengths(2, 4, 7)).sum(1).diff(), 0.0),
        ),
        Property(
            "the weights of a batch of live completions add to 1",
            lambda f: near(f(of_lengths(2, 4, 7)).sum(), 1.0),
        ),
    ),
    mistakes={
        "it divides by the padded width, not by the mask": lambda m: m / m.shape[1] / len(m),
        "the mask is in the denominator only: masked places get weight too": lambda m: (
            1 / tokens(m).clamp(min=1) / len(m)
        ).expand(m.shape),
        "not divided by the number of completions": lambda m: m / tokens(m).clamp(min=1),
        "all tokens are pooled: this is the token mean": lambda m: (
            m / m.sum().clamp(min=1).double()
        ),
        "the wrong axis: the mask is summed over completions, not over tokens": lambda m: (
            m / m.sum(0, keepdim=True).clamp(min=1).double() / len(m)
        ),
        "0/0 in a completion without a live token": lambda m: m / tokens(m) / len(m),
        "completions without a live token are not counted in N": lambda m: (
            m / tokens(m).clamp(min=1) / m.any(1).sum().clamp(min=1)
        ),
        "every completion is divided by the longest length, not by its own": lambda m: (
            m / tokens(m).max().clamp(min=1) / len(m)
        ),
    },
    why="It is TRL's loss_type=\"grpo\" and verl's seq-mean-token-mean: a token of a four times "
    "longer answer is pushed a quarter as hard.",
)

TOKEN_MEAN = Exercise(
    name="token_mean",
    title="Token mean over the step",
    goal="Give every live token of the optimiser step the same weight, adding to 1.",
    minutes=5,
    difficulty=1,
    kind="implement",
    returns="[N, T] weights",
    reference=token_mean,
    cases=mask_cases,
    properties=(
        PADDING,
        EMPTY,
        Property(
            "all live tokens have the same weight",
            lambda f: near(f(of_lengths(2, 4, 7))[of_lengths(2, 4, 7)].diff(), 0.0),
        ),
        Property("the weights add to 1", lambda f: near(f(of_lengths(2, 4, 7)).sum(), 1.0)),
    ),
    mistakes={
        "it divides by N·T, the padded size, not by the number of live tokens": lambda m: (
            m.double() / m.numel()
        ),
        "each completion is averaged on its own first: this is the sequence mean": sequence_mean,
        "the mask is in the denominator only: masked places get weight too": lambda m: (
            torch.ones_like(m, dtype=torch.float64) / m.sum().clamp(min=1)
        ),
        "divided by the number of completions as well": lambda m: token_mean(m) / len(m),
        "0/0 in a batch without a live token": lambda m: m / m.sum().double(),
        "multiplied by the number of completions: divided by the mean length": lambda m: (
            token_mean(m) * len(m)
        ),
        "every completion is divided by its own tokens, without 1/N": lambda m: (
            m / tokens(m).clamp(min=1)
        ),
    },
    why='Frameworks run this under the name DAPO (TRL loss_type="dapo", verl token-mean), whatever '
    "the estimator key says.",
)


# --- prompt_token_mean ----------------------------------------------------------------------------


def prompt_token_mean(mask: Tensor, group: Tensor) -> Tensor:
    """``1/P · 1/Σ|o| of the prompt`` on live tokens."""
    return agg.prompt_token_mean(mask, group, present(mask))


def prompt_cases() -> list[Case]:
    return [
        Case(
            "two prompts, one completion each, 2 and 4 tokens",
            (of_lengths(2, 4), torch.tensor([0, 1])),
        ),
        Case(
            "two prompts of two completions, interleaved",
            (of_lengths(1, 6, 3, 2), torch.tensor([5, 2, 5, 2])),
        ),
        Case(
            "prompts with 3 and 1 completions",
            (of_lengths(1, 2, 5, 4, width=8), torch.tensor([0, 0, 0, 9])),
        ),
        Case(
            "three prompts, one of them with a single token",
            (of_lengths(1, 3, 2, 2), torch.tensor([4, 1, 7, 7])),
        ),
        Case(
            "a prompt without a live token beside a live one",
            (of_lengths(0, 0, 3, 1), torch.tensor([0, 0, 1, 1])),
        ),
    ]


def _in_prompt(mask: Tensor, group: Tensor) -> Tensor:
    """Tokens of each row's prompt, ``[N, 1]``."""
    return groups.total(mask.sum(1).double(), group)[:, None]


def _prompts(group: Tensor) -> int:
    return len(group.unique())


PROMPT_TOKEN_MEAN = Exercise(
    name="prompt_token_mean",
    title="DAPO as the paper writes it",
    goal="Average the tokens inside each prompt, then the prompts.",
    minutes=10,
    difficulty=2,
    kind="implement",
    returns="[N, T] weights",
    reference=prompt_token_mean,
    cases=prompt_cases,
    properties=(
        Property(
            "every live prompt has the same total weight",
            lambda f: near(f(of_lengths(1, 6, 3, 2), torch.tensor([0, 1, 0, 1]))[::2].sum(), 0.5),
        ),
        Property(
            "inside one prompt all live tokens weigh the same",
            lambda f: near(f(of_lengths(1, 3), torch.tensor([0, 0]))[of_lengths(1, 3)].diff(), 0.0),
        ),
        Property(
            "one completion per prompt: each completion weighs the same",
            lambda f: near(f(of_lengths(2, 4), torch.tensor([0, 1])).sum(1).diff(), 0.0),
        ),
    ),
    mistakes={
        "the tokens of the whole step are pooled: this is what frameworks run, not the paper's "
        "formula": lambda m, g: token_mean(m),
        "not divided by the number of prompts": lambda m, g: m / _in_prompt(m, g).clamp(min=1),
        "divided by the number of completions, not of prompts": lambda m, g: (
            m / _in_prompt(m, g).clamp(min=1) / len(m)
        ),
        "each completion is averaged on its own first: this is the sequence mean": lambda m, g: (
            sequence_mean(m)
        ),
        "it divides by the padded width, not by the mask": lambda m, g: (
            m / (groups.size(g, present(m))[:, None] * m.shape[1]) / _prompts(g)
        ),
        "the mask is in the denominator only: masked places get weight too": lambda m, g: (
            1 / _in_prompt(m, g).clamp(min=1) / _prompts(g)
        ).expand(m.shape),
        "the number of prompts is taken as the largest group number": lambda m, g: (
            m / _in_prompt(m, g).clamp(min=1) / (g.max() + 1)
        ),
        "0/0 in a prompt without a live token": lambda m, g: m / _in_prompt(m, g) / _prompts(g),
    },
    why="verl issue 2776: readers of DAPO's Eq. 8 find a mean per prompt, the framework pools the "
    "batch. With prompts of unequal length the two differ.",
)


# --- constant_mean --------------------------------------------------------------------------------


def constant_mean(mask: Tensor, max_new_tokens: int) -> Tensor:
    """``1/N · 1/C`` on live tokens."""
    return agg.constant(mask, present(mask), max_new_tokens)


def constant_cases() -> list[Case]:
    return [
        Case("two completions of 2 and 4 tokens, limit 8", (of_lengths(2, 4), 8)),
        Case("three completions padded to 7, limit 16", (of_lengths(1, 3, 2, width=7), 16)),
        Case("a mask with holes, limit 10", (HOLES, 10)),
        Case("a masked completion beside a live one, limit 5", (of_lengths(0, 3, width=4), 5)),
    ]


CONSTANT_MEAN = Exercise(
    name="constant_mean",
    title="Dr. GRPO's constant",
    goal="Divide by a constant that no batch can change.",
    minutes=6,
    difficulty=1,
    kind="implement",
    returns="[N, T] weights",
    reference=constant_mean,
    cases=constant_cases,
    properties=(
        Property(
            "padding the batch wider changes no weight",
            lambda f: near(f(of_lengths(2, 4), 8), f(of_lengths(2, 4, width=7), 8)[:, :4]),
        ),
        Property(
            "a longer neighbour does not change the weight of a token",
            lambda f: near(f(of_lengths(2, 3, width=6), 8)[0], f(of_lengths(2, 6), 8)[0]),
        ),
        Property(
            "twice the limit, half the weight",
            lambda f: near(f(of_lengths(2, 4), 8), 2 * f(of_lengths(2, 4), 16)),
        ),
    ),
    mistakes={
        "it divides by the padded width of the batch, not by the constant": lambda m, c: (
            m / m.shape[1] / len(m)
        ),
        "it divides by the longest completion of the batch, not by the constant": lambda m, c: (
            m / tokens(m).max() / len(m)
        ),
        "not divided by the number of completions: it grows with the batch": lambda m, c: (
            m.double() / c
        ),
        "each completion is divided by its own length: this is GRPO's sequence mean": lambda m, c: (
            sequence_mean(m)
        ),
        "the mask is missing: masked places get weight too": lambda m, c: (
            torch.ones_like(m, dtype=torch.float64) / len(m) / c
        ),
        "completions without a live token are not counted in N": lambda m, c: (
            m.double() / c / m.any(1).sum()
        ),
        "the mean length of the batch in place of the constant": lambda m, c: token_mean(m),
        "only 1/N, the constant is missing": lambda m, c: m.double() / len(m),
    },
    why="verl issue 3741: seq-mean-token-sum-norm used the padded length, which is no constant, "
    "and from 0.4 to 0.7 left out 1/N.",
)


# --- agent_weights --------------------------------------------------------------------------------


def agent_weights(mask: Tensor, response_length: Tensor) -> Tensor:
    """Sequence mean over the model's own tokens.

    The length of the response, tool output included, plays no part.
    """
    return sequence_mean(mask)


def agent_cases() -> list[Case]:
    return [
        Case("a response of 6 tokens, 3 of them from a tool", (HOLES[:1], torch.tensor([5]))),
        Case("three responses with tool output", (HOLES, torch.tensor([5, 6, 4]))),
        Case("no tool output at all", (of_lengths(2, 4), torch.tensor([2, 4]))),
        Case(
            "a response that is tool output only, beside a live one",
            (of_lengths(0, 3, width=4), torch.tensor([4, 3])),
        ),
    ]


AGENT_WEIGHTS = Exercise(
    name="agent_weights",
    title="Tool output in the denominator",
    goal="Repair a sequence mean that makes agents with long tool output learn slowly.",
    minutes=8,
    difficulty=1,
    kind="debug",
    returns="[N, T] weights",
    reference=agent_weights,
    cases=agent_cases,
    properties=(
        Property(
            "more tool output in a response does not change the weight of the model's own tokens",
            lambda f: near(
                f(torch.tensor([[1, 1, 0, 0]], dtype=torch.bool), torch.tensor([4]))[0, 0],
                float(f(torch.tensor([[1, 1, 0, 0]], dtype=torch.bool), torch.tensor([2]))[0, 0]),
            ),
        ),
        Property(
            "tool output gets weight 0",
            lambda f: near(f(HOLES, torch.tensor([5, 6, 4]))[~HOLES], 0.0),
        ),
    ),
    mistakes={
        "the denominator counts tool tokens: "
        "it is the response's length, not the mask's sum": lambda m, n: (
            m / n[:, None].double().clamp(min=1) / len(m)
        ),
        "the numerator is not masked: tool tokens are trained": lambda m, n: (
            (torch.arange(m.shape[1])[None] < n[:, None]) / tokens(m).clamp(min=1) / len(m)
        ),
        "it divides by the padded width, not by the mask": lambda m, n: m / m.shape[1] / len(m),
        "not divided by the number of completions": lambda m, n: m / tokens(m).clamp(min=1),
        "all tokens are pooled: this is the token mean": lambda m, n: token_mean(m),
        "0/0 in a response without an own token": lambda m, n: m / tokens(m) / len(m),
    },
    why="slime issue 364: the response length normalised the loss although the mask had zeros for "
    "tool tokens.",
)


# --- masked_mean ----------------------------------------------------------------------------------


def masked_mean(value: Tensor, mask: Tensor) -> Tensor:
    """Mean over live places; what is under the mask has no say, NaN included."""
    return torch.where(mask, value, 0.0).sum() / mask.sum().clamp(min=1)


def masked_cases() -> list[Case]:
    nan = float("nan")
    inf = float("inf")

    def row(*v: float) -> Tensor:
        return torch.tensor([v], dtype=torch.float64)

    return [
        Case("three values, one masked", (row(1, 100, 3), torch.tensor([[True, False, True]]))),
        Case(
            "two rows of unequal length",
            (torch.tensor([[1.0, 2, 0], [4, 5, 9]]).double(), of_lengths(2, 3)),
        ),
        Case("NaN under the mask", (row(1, nan, 3), torch.tensor([[True, False, True]]))),
        Case("inf under the mask", (row(2, 5, inf), torch.tensor([[True, True, False]]))),
        Case("one live value", (row(6, 2), torch.tensor([[True, False]]))),
        Case("everything masked", (row(1, 2, 3), torch.tensor([[False, False, False]]))),
    ]


MASKED_MEAN = Exercise(
    name="masked_mean",
    title="Zero times NaN",
    goal="Repair a masked mean through which one NaN in the padding reaches the loss.",
    minutes=8,
    difficulty=1,
    kind="debug",
    returns="a scalar that can be differentiated, also where everything is masked",
    reference=masked_mean,
    cases=masked_cases,
    properties=(
        Property(
            "whatever stands under the mask, the result is the same",
            lambda f: near(
                f(torch.tensor([[1.0, 7.0]], dtype=torch.float64), torch.tensor([[True, False]])),
                float(
                    f(
                        torch.tensor([[1.0, -4.0]], dtype=torch.float64),
                        torch.tensor([[True, False]]),
                    )
                ),
            ),
        ),
        Property(
            "all values 1 have mean 1",
            lambda f: near(f(torch.ones(2, 3, dtype=torch.float64), of_lengths(1, 3)), 1.0),
        ),
    ),
    mistakes={
        "0 times NaN is NaN: it multiplies by the mask in place of selecting": lambda v, m: (
            (v * m).sum() / m.sum().clamp(min=1)
        ),
        "the numerator is not masked": lambda v, m: v.sum() / m.sum().clamp(min=1),
        "it divides by all places, not by the live ones": lambda v, m: (
            torch.where(m, v, 0.0).sum() / m.numel()
        ),
        "0/0 where everything is masked": lambda v, m: torch.where(m, v, 0.0).sum() / m.sum(),
        "the rows are averaged on their own first": lambda v, m: (
            torch.where(m, v, 0.0).sum(1) / m.sum(1).clamp(min=1)
        ).mean(),
        "NaN is replaced everywhere, but finite values under the mask still count": lambda v, m: (
            v.nan_to_num(0.0, 0.0, 0.0).sum() / m.sum().clamp(min=1)
        ),
        "the sum, not the mean": lambda v, m: torch.where(m, v, 0.0).sum(),
    },
    learns=0,
    why="SkyRL issue 1633: positions that the mask excludes held NaN, and 0 · NaN is NaN in the "
    "loss and in every gradient.",
)


# --- micro_batch_loss -----------------------------------------------------------------------------


def micro_batch_loss(token_loss: Tensor, mask: Tensor, step_tokens: int) -> Tensor:
    """This micro-batch's part of the step's token mean."""
    return torch.where(mask, token_loss, 0.0).sum() / step_tokens


def _losses(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def micro_cases() -> list[Case]:
    under = torch.tensor(
        [[1.0, 2.0, float("nan")], [3.0, float("nan"), float("nan")]], dtype=torch.float64
    )
    return [
        Case(
            "2 of the step's 10 tokens", (torch.ones(1, 2, dtype=torch.float64), of_lengths(2), 10)
        ),
        Case(
            "8 of the step's 10 tokens",
            (torch.full((1, 8), 2.0, dtype=torch.float64), of_lengths(8), 10),
        ),
        Case(
            "two rows of a longer step, padded",
            (_losses(2, 5, seed=1), of_lengths(2, 4, width=5), 20),
        ),
        Case("NaN under the mask", (under, of_lengths(2, 1, width=3), 6)),
        Case(
            "a micro-batch without a live token",
            (_losses(2, 3, seed=2), of_lengths(0, 0, width=3), 6),
        ),
    ]


def _splits_agree(f: Function) -> bool:
    loss = _losses(4, 6, seed=3)
    mask = of_lengths(1, 6, 3, 2)
    whole = f(loss, mask, 12)
    parts = [[0, 1, 2, 3], [1, 3], [2]]
    halves = f(loss[:2], mask[:2], 12) + f(loss[2:], mask[2:], 12)
    return near(whole, halves) and near(
        whole, sum(f(loss[i : i + 1], mask[i : i + 1], 12) for i in parts[0])
    )


MICRO_BATCH_LOSS = Exercise(
    name="micro_batch_loss",
    title="A normaliser that accumulation cannot change",
    goal="Write the loss of one micro-batch so that the parts of a step add to the step's token "
    "mean, however it is cut.",
    minutes=10,
    difficulty=2,
    kind="implement",
    returns="a scalar that can be differentiated",
    reference=micro_batch_loss,
    cases=micro_cases,
    properties=(
        Property(
            "the parts of a step add to the whole, for any split into micro-batches", _splits_agree
        ),
        Property(
            "the weights of the whole step add to 1",
            lambda f: near(f(torch.ones(2, 6, dtype=torch.float64), of_lengths(3, 6), 9), 1.0),
        ),
    ),
    mistakes={
        "it divides by the micro-batch's own tokens: a mean of means": lambda x, m, n: (
            torch.where(m, x, 0.0).sum() / m.sum().clamp(min=1)
        ),
        "0 times NaN is NaN: it multiplies by the mask in place of selecting": lambda x, m, n: (
            (x * m).sum() / n
        ),
        "each completion is averaged on its own first": lambda x, m, n: (
            torch.where(m, x, 0.0).sum(1) / m.sum(1).clamp(min=1)
        ).mean(),
        "the graph is cut: the loss is a new tensor": lambda x, m, n: micro_batch_loss(
            x.detach(), m, n
        ),
        "not divided by the step's tokens: a plain sum": lambda x, m, n: torch.where(
            m, x, 0.0
        ).sum(),
        "it divides by the padded size, not by the step's tokens": lambda x, m, n: (
            torch.where(m, x, 0.0).sum() / x.numel()
        ),
        "the mask is missing in the numerator": lambda x, m, n: x.sum() / n,
        "divided by the number of completions as well": lambda x, m, n: (
            micro_batch_loss(x, m, n) / len(m)
        ),
    },
    learns=0,
    why="TRL issue 3021, open-instruct PR 1161: means of micro-batches are averaged, and the "
    "answer depends on how the batch was cut.",
)


# --- accumulated_loss -----------------------------------------------------------------------------


def accumulated_loss(losses: list[Tensor], masks: list[Tensor]) -> Tensor:
    """The step's token mean from its micro-batches."""
    count = sum(int(m.sum()) for m in masks)
    return torch.stack(
        [micro_batch_loss(x, m, max(count, 1)) for x, m in zip(losses, masks, strict=True)]
    ).sum()


def accumulated_cases() -> list[Case]:
    two = [torch.ones(1, 2, dtype=torch.float64), torch.full((1, 8), 2.0, dtype=torch.float64)]
    even = [_losses(1, 5, seed=s) for s in (4, 5, 6, 7)]
    odd = [_losses(2, 3, seed=8), _losses(1, 6, seed=9), _losses(3, 2, seed=10)]
    return [
        Case("one micro-batch", ([_losses(2, 3, seed=11)], [of_lengths(2, 3)])),
        Case("micro-batches of 2 and 8 tokens", (two, [of_lengths(2), of_lengths(8)])),
        Case("four micro-batches of 5 tokens", (even, [of_lengths(5)] * 4)),
        Case(
            "three micro-batches of other shapes, padded",
            (odd, [of_lengths(1, 3), of_lengths(4, width=6), of_lengths(0, 2, 1)]),
        ),
    ]


def _means(losses: list[Tensor], masks: list[Tensor]) -> Tensor:
    pairs = zip(losses, masks, strict=True)
    return torch.stack([torch.where(m, x, 0.0).sum() / m.sum().clamp(min=1) for x, m in pairs])


def _rows_mean(losses: list[Tensor], masks: list[Tensor]) -> Tensor:
    pairs = zip(losses, masks, strict=True)
    return torch.cat(
        [torch.where(m, x, 0.0).sum(1) / m.sum(1).clamp(min=1) for x, m in pairs]
    ).mean()


ACCUMULATED_LOSS = Exercise(
    name="accumulated_loss",
    title="Divided twice",
    goal="Repair a training step whose gradient shrinks with the number of accumulation steps.",
    minutes=10,
    difficulty=2,
    kind="debug",
    returns="a scalar that can be differentiated",
    reference=accumulated_loss,
    cases=accumulated_cases,
    properties=(
        Property(
            "1, 2 or 4 accumulation steps give the same loss on the same tokens",
            lambda f: (
                near(
                    f([torch.ones(4, 5, dtype=torch.float64)], [of_lengths(5, 5, 5, 5)]),
                    float(f([torch.ones(2, 5, dtype=torch.float64)] * 2, [of_lengths(5, 5)] * 2)),
                )
                and near(
                    f([torch.ones(4, 5, dtype=torch.float64)], [of_lengths(5, 5, 5, 5)]),
                    float(f([torch.ones(1, 5, dtype=torch.float64)] * 4, [of_lengths(5)] * 4)),
                )
            ),
        ),
        Property(
            "a loss of 1 on every token gives 1",
            lambda f: near(
                f(
                    [torch.ones(1, 2, dtype=torch.float64), torch.ones(1, 8, dtype=torch.float64)],
                    [of_lengths(2), of_lengths(8)],
                ),
                1.0,
            ),
        ),
    ),
    mistakes={
        "divided by the number of micro-batches although the step's tokens are already in the "
        "denominator": lambda x, m: accumulated_loss(x, m) / len(x),
        "the mean of the micro-batch means, which is not the mean of the tokens": lambda x, m: (
            _means(x, m).mean()
        ),
        "the sum of the micro-batch means": lambda x, m: _means(x, m).sum(),
        "only the last micro-batch counts": lambda x, m: micro_batch_loss(
            x[-1], m[-1], max(sum(int(k.sum()) for k in m), 1)
        ),
        "the mask is missing in the numerator": lambda x, m: (
            torch.stack([v.sum() for v in x]).sum() / max(sum(int(k.sum()) for k in m), 1)
        ),
        "each completion is averaged on its own first": _rows_mean,
        "it divides by the padded size, not by the live tokens": lambda x, m: (
            torch.stack([torch.where(k, v, 0.0).sum() for v, k in zip(x, m, strict=True)]).sum()
            / sum(v.numel() for v in x)
        ),
    },
    learns=0,
    why="ms-swift issue 10117: already divided by the global token count, then by the accumulation "
    "steps: a quarter of the gradient at 4.",
)

EXERCISES: Sequence[Exercise] = (
    SEQUENCE_MEAN,
    TOKEN_MEAN,
    PROMPT_TOKEN_MEAN,
    CONSTANT_MEAN,
    AGENT_WEIGHTS,
    MASKED_MEAN,
    MICRO_BATCH_LOSS,
    ACCUMULATED_LOSS,
)
