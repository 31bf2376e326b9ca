r"""Aggregation: how per-token losses become one number. Each choice is a weight per token, and the
loss is ``(W * per_token_loss).sum()``.

All take ``mask``, ``[N, T]`` bool after filtering, and return ``W``, ``[N, T]`` in float64, zero
where the mask is False. ``present``, ``[N]`` bool, says which rows are in the batch at all (a
dropped row is not); a row that is present but fully masked counts in N only where
``count_masked_rows`` is True. A batch without any token gets finite zeros.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from . import axes
from .axes import Choice, formula
from .groups import total
from .numbers import Numbers, short


def _rows(mask: Tensor, present: Tensor, count_masked_rows: bool) -> Tensor:
    """Number of completions N, as a float64 scalar, at least 1."""
    counted = present if count_masked_rows else present & mask.any(dim=1)
    return counted.sum().to(torch.float64).clamp(min=1)


def _tokens(mask: Tensor) -> Tensor:
    """``[N]`` float64 token counts."""
    return mask.sum(dim=1).to(torch.float64)


def _column(x: Tensor, mask: Tensor) -> Tensor:
    """One number per completion, ``[N]``, laid on its tokens, ``[N, T]``."""
    return mask * x[:, None]


def _inside(write: Callable[[Numbers], str]) -> Callable[[Numbers], str]:
    """The numbers of W; 0 on a token that a filter took out."""
    return lambda n: write(n) if n.mask[n.i, n.t] else "0"


def _counted(n: Numbers) -> Tensor:
    return n.present if n.s.count_masked_rows else n.present & n.mask.any(dim=1)


def _N(n: Numbers) -> int:
    return max(1, int(_counted(n).sum()))


def _P(n: Numbers) -> int:
    return len(torch.unique(n.group[_counted(n)]))


def _C(n: Numbers) -> float:
    return n.limit if n.s.length is None else n.s.length


def _in_group(n: Numbers) -> Tensor:
    return n.group == n.group[n.i]


@formula(
    r"\frac{1}{N}\,\frac{1}{|o_i|}",
    "1/N · 1/|o_i|",
    label="sequence mean",
    numbers=_inside(lambda n: f"1/{_N(n)} · 1/{n.length}"),
)
def sequence_mean(mask: Tensor, present: Tensor, *, count_masked_rows: bool = True) -> Tensor:
    r"""Every sequence weighs the same; inside it, every token does.

    .. math:: W_{it} = \frac{1}{N}\,\frac{m_{it}}{|o_i|}

    A token of a long completion is pushed less than one of a short completion: the length bias
    (exact).

        mask  1 1 0 0   ->   W  1/4 1/4  0   0
              1 1 1 1           1/8 1/8 1/8 1/8

    Args:
        mask: ``[N, T]`` bool, True on trained tokens.
        present: ``[N]`` bool, rows that are in the batch.
        count_masked_rows: a fully masked row counts in N (TRL, verl's trainer, slime) or not
            (OpenRLHF, NeMo-RL).

    Source: DeepSeekMath (arXiv 2402.03300), Eq. 3; TRL ``loss_type="grpo"``; verl
    ``seq-mean-token-mean``.
    """
    return _column(1 / _tokens(mask).clamp(min=1), mask) / _rows(mask, present, count_masked_rows)


@formula(
    r"\frac{1}{\sum_j |o_j|}",
    "1/Σ_j|o_j| (step)",
    label="token mean of the step",
    numbers=_inside(lambda n: f"1/{int(n.lengths.sum())}"),
)
def step_token_mean(mask: Tensor) -> Tensor:
    r"""Every token of the optimiser step weighs the same.

    .. math:: W_{it} = \frac{m_{it}}{\sum_j |o_j|}

        mask  1 1 0 0   ->   W  1/6 1/6  0   0
              1 1 1 1           1/6 1/6 1/6 1/6

    Source: what frameworks run under the name DAPO: TRL ``loss_type="dapo"``, verl ``token-mean``
    (>= 0.8).
    """
    return mask / _tokens(mask).sum().clamp(min=1)


@formula(
    r"\frac{1}{P}\,\frac{1}{\sum_{j\in q(i)} |o_j|}",
    "1/P · 1/Σ_{j in group}|o_j|",
    label="token mean of each prompt",
    numbers=_inside(lambda n: f"1/{_P(n)} · 1/{int(n.lengths[_in_group(n)].sum())}"),
)
def prompt_token_mean(
    mask: Tensor, group: Tensor, present: Tensor, *, count_masked_rows: bool = True
) -> Tensor:
    r"""Every prompt weighs the same; inside its group, every token does.

    .. math:: W_{it} = \frac{1}{P}\,\frac{m_{it}}{\sum_{j \in q(i)} |o_j|}

    P counts the prompts with a row in the batch; a prompt whose rows are all masked counts as
    ``count_masked_rows`` says.

        group 0  mask  1 1 0 0   ->   W  1/4 1/4  0   0
        group 1        1 1 1 1           1/8 1/8 1/8 1/8

    Source: DAPO (arXiv 2503.14476), Eq. 8, whose expectation over prompts stands outside the
    fraction; SkyRL ``loss_reduction="prompt_mean"``; the "prompt average" of ScaleRL (arXiv
    2510.13786).
    """
    tokens = total(_tokens(mask), group)
    counted = present if count_masked_rows else present & (tokens > 0)
    share = counted / total(counted.to(torch.float64), group).clamp(min=1)
    return _column(1 / tokens.clamp(min=1), mask) / share.sum().clamp(min=1)


def _micro(n: Numbers) -> str:
    together = n.micro_batch == n.micro_batch[n.i]
    return f"1/{len(torch.unique(n.micro_batch))} · 1/{int(n.lengths[together].sum())}"


@formula(
    r"\frac{1}{M}\,\frac{1}{\sum_{j\in b(i)} |o_j|}",
    "1/M · 1/Σ_{j in micro-batch}|o_j|",
    label="token mean of each micro-batch",
    numbers=_inside(_micro),
)
def micro_batch_token_mean(mask: Tensor, micro_batch: Tensor) -> Tensor:
    r"""Every micro-batch weighs the same; inside it, every token does. It depends on who shares a
    micro-batch.

    .. math:: W_{it} = \frac{1}{M}\,\frac{m_{it}}{\sum_{j \in b(i)} |o_j|}

    One micro-batch: the step's token mean. One completion per micro-batch: the sequence mean.

    Args:
        mask: ``[N, T]`` bool, True on trained tokens.
        micro_batch: ``[N]`` integer, the micro-batch of each completion; M of them.

    Source: TRL ``loss_type="bnpo"`` (PR 3256), verl ``token-mean`` up to 0.7.1, OpenRLHF up to
    0.10.2.
    """
    _, first = torch.unique(micro_batch, return_inverse=True)
    return _column(1 / total(_tokens(mask), micro_batch).clamp(min=1), mask) / (first.max() + 1)


@formula(
    r"\frac{<steps>}{<tokens>}",
    "<steps>/<tokens>",
    label="token mean of the generation batch",
    numbers=_inside(lambda n: f"{n.s.steps:g}/{n.s.tokens:g}"),
)
def generation_token_mean(mask: Tensor, *, tokens: float, steps: float = 1) -> Tensor:
    r"""Every token of the generation batch weighs the same, whichever optimiser step it falls in.

    .. math:: W_{it} = m_{it}\,\frac{\mathrm{steps}}{\mathrm{tokens}}

    The denominator is the *average* token count of the steps, not this step's own, so one step's
    weights need not add to 1.

    Args:
        mask: ``[N, T]`` bool, True on trained tokens of this optimiser step.
        tokens: number of trained tokens in the whole generation batch.
        steps: number of optimiser steps that share it.

    Source: TRL >= 1.10 ``loss_type="dapo"``, ``num_items_in_batch`` (issue 5619, PR 6024).
    """
    if tokens <= 0 or steps <= 0:
        raise ValueError(
            f"tokens is {tokens} and steps is {steps}: expected positive numbers. Count the mask "
            "of the batch."
        )
    return mask.to(torch.float64) * (float(steps) / float(tokens))


@formula(
    r"\frac{1}{N}\,\frac{1}{C}",
    "1/N · 1/C",
    label="constant",
    numbers=_inside(lambda n: f"1/{_N(n)} · 1/{_C(n):g}"),
)
def constant(
    mask: Tensor,
    present: Tensor,
    max_new_tokens: int | None = None,
    *,
    length: float | None = None,
    count_masked_rows: bool = True,
) -> Tensor:
    r"""Every token weighs the same, in every step: divided by a constant length C, not by a counted
    one.

    .. math:: W_{it} = \frac{1}{N}\,\frac{m_{it}}{C}

    C is ``length``, or the sampler's ``max_new_tokens``; never the padded width, which changes from
    batch to batch.

        C = 8, mask  1 1 0 0   ->   W  1/16 1/16   0    0
                     1 1 1 1           1/16 1/16 1/16 1/16

    Raises:
        ValueError: neither ``length`` nor ``max_new_tokens`` is given.

    Source: Dr. GRPO (arXiv 2503.20783), Listing 1; TRL ``loss_type="dr_grpo"``; verl
    ``seq-mean-token-sum-norm``.
    """
    return mask / _rows(mask, present, count_masked_rows) / _constant_length(length, max_new_tokens)


@formula(r"\frac{1}{C}", "1/C", label="constant, summed", numbers=_inside(lambda n: f"1/{_C(n):g}"))
def constant_sum(
    mask: Tensor, max_new_tokens: int | None = None, *, length: float | None = None
) -> Tensor:
    r"""The constant without 1/N: the loss grows with the number of completions.

    .. math:: W_{it} = \frac{m_{it}}{C}

    Source: verl 0.4 to 0.7.0 ``seq-mean-token-sum-norm`` (in each micro-batch), ROLL, open-instruct
    ``loss_denominator=<number>``.
    """
    return mask / torch.tensor(
        _constant_length(length, max_new_tokens), dtype=torch.float64, device=mask.device
    )


def _constant_length(length: float | None, max_new_tokens: int | None) -> float:
    value = max_new_tokens if length is None else length
    if value is None:
        raise ValueError(
            "the constant normaliser has no length: expected rollouts.max_new_tokens or "
            "constant(length=...). "
            "Give the sampler's length limit; the padded width of a batch is not a constant."
        )
    if value <= 0:
        raise ValueError(f"the constant normaliser has length {value}: expected a positive number.")
    return float(value)


@formula(r"\frac{1}{N}", "1/N", label="sequence sum", numbers=_inside(lambda n: f"1/{_N(n)}"))
def sequence_sum(mask: Tensor, present: Tensor, *, count_masked_rows: bool = True) -> Tensor:
    r"""Every token weighs 1/N: the log-probability of a whole completion, averaged over
    completions.

    .. math:: W_{it} = \frac{m_{it}}{N}

    Source: REINFORCE and RLOO (arXiv 2402.14740); verl ``seq-mean-token-sum``; the objective (not
    the code) of Dr. GRPO.
    """
    return mask / _rows(mask, present, count_masked_rows)


@formula(r"1", "1", label="token sum", numbers=_inside(lambda n: "1"))
def token_sum(mask: Tensor) -> Tensor:
    r"""Every token weighs 1: a plain sum, the learning rate carries the scale.

    .. math:: W_{it} = m_{it}

    Source: verl ``token-sum`` (>= 0.9), tinker ``loss:sum``.
    """
    return mask.to(torch.float64)


def _balanced(n: Numbers) -> str:
    same = _in_group(n) & (n.sign == n.sign[n.i]) & n.present
    size = int((_in_group(n) & n.present).sum())
    return f"1/{_P(n)} · {int(same.sum())}/{size} · 1/{int(n.lengths[same].sum())}"


@formula(
    r"\frac{1}{P}\,\frac{n_{\pm}}{G}\,\frac{1}{\sum_{j\in q(i),\,\mathrm{sign} A_j=\mathrm{sign} "
    r"A_i}|o_j|}",
    "1/P · n±/G · 1/Σ_{j in group, same sign of A}|o_j|",
    label="balanced",
    numbers=_inside(_balanced),
)
def balanced(
    mask: Tensor,
    group: Tensor,
    present: Tensor,
    advantage: Tensor,
    *,
    count_masked_rows: bool = True,
) -> Tensor:
    r"""Token mean inside each sign of the advantage, the two put together by how many completions
    have it.

    .. math::
        W_{it} = \frac{1}{P}\,\frac{n_\pm}{G}\,\frac{m_{it}}{\sum_{j \in q(i),\ \mathrm{sign} A_j =
        \mathrm{sign} A_i} |o_j|}

    The mass of the positive and of the negative side no longer depends on their mean lengths.

    Source: Balanced Aggregation (arXiv 2605.04077).
    """
    sign = advantage.sum(dim=1).sign()
    counted = present if count_masked_rows else present & mask.any(dim=1)
    rows, tokens = counted.to(torch.float64), _tokens(mask)
    size = total(rows, group).clamp(min=1)
    weight = torch.zeros_like(tokens)
    for side in (sign > 0, sign < 0, sign == 0):
        per_token = total(rows * side, group) / size / total(tokens * side, group).clamp(min=1)
        weight = weight + side * per_token
    return _column(weight, mask) / (rows / size).sum().clamp(min=1)


def _length_power(n: Numbers) -> str:
    lengths = [x for x in n.lengths[_in_group(n)].tolist() if x > 0]
    mean = ", ".join(f"{x}**-{n.s.alpha:g}" for x in lengths)
    return f"1/{_N(n)} · 1/{_C(n):g} · {n.length}**-{n.s.alpha:g}/mean({mean})"


@formula(
    r"\frac{1}{N}\,\frac{1}{C}\,\frac{|o_i|^{-<alpha>}}{\mathrm{mean}_{j\in q(i)}|o_j|^{-<alpha>}}",
    "1/N · 1/C · |o_i|^-<alpha> / mean_{j in group}|o_j|^-<alpha>",
    label="power of the length",
    numbers=_inside(_length_power),
)
def length_power(
    mask: Tensor,
    group: Tensor,
    present: Tensor,
    max_new_tokens: int | None = None,
    *,
    alpha: float,
    length: float | None = None,
    count_masked_rows: bool = True,
) -> Tensor:
    r"""Between the constant (alpha 0) and, within a group, the sequence mean (alpha 1): completions
    weighted by a power of length.

    .. math::
        W_{it} = \frac{1}{N}\,\frac{m_{it}}{C}\,\frac{|o_i|^{-\alpha}}{\mathrm{mean}_{j \in q(i)}
        |o_j|^{-\alpha}}

    Its variance is smallest at alpha = 1 where the variance of a completion's score grows with its
    length. "Unbiased" in the paper assumes that a completion's advantage and score do not depend on
    its length.

    This is the paper's formula. Its released code (zerolllin/Delta-L-Normalization at 89da5b9,
    verl/trainer/ppo/core_algos.py:228-244) takes the mean over the whole batch instead of the
    group, and divides the advantages by the std of the group: it has GRPO's difficulty bias.

    Source: ΔL normalisation, VL-norm (arXiv 2509.07558).
    """
    lengths = _tokens(mask)
    live = (lengths > 0).to(torch.float64)
    power = live * lengths.clamp(min=1) ** -alpha
    average = total(power, group) / total(live, group).clamp(min=1)
    scale = power / torch.where(average > 0, average, 1.0)
    return (
        _column(scale, mask)
        / _rows(mask, present, count_masked_rows)
        / _constant_length(length, max_new_tokens)
    )


# --- forms that only frameworks have --------------------------------------------------------------


def _own_micro_batch(n: Numbers) -> str:
    parts = len(torch.unique(n.micro_batch))
    return f"{short(n.W * parts)}/{parts}" if n.s.average else short(n.W)


@formula(
    r"<inner>\ \text{(inside each micro-batch; divided by their number: <average>)}",
    "<inner> (inside each micro-batch; divided by their number: <average>)",
    label="inside each micro-batch",
    numbers=_inside(_own_micro_batch),
)
def per_micro_batch(
    mask: Tensor,
    present: Tensor,
    group: Tensor,
    micro_batch: Tensor,
    max_new_tokens: int | None = None,
    *,
    inner: Choice,
    average: bool,
) -> Tensor:
    r"""An aggregation that only sees its own micro-batch; the M micro-batches are then averaged, or
    merely added.

    .. math::
        W_{it} = \frac{1}{M}\,W^{inner}_{it}\big(\text{rows of } b(i)\big) \qquad (\text{added:
        without } 1/M)

    With a sequence mean inside, a row's weight is 1/(M·n_b·|o|), n_b the rows of its micro-batch:
    equal to the step's 1/(N·|o|) where all micro-batches have equally many rows.

    Args:
        mask, present, group, micro_batch, max_new_tokens: as everywhere.
        inner: the aggregation inside a micro-batch.
        average: divided by M (gradient accumulation) or not (gradients summed).

    Source: TRL ``loss_type="grpo"``, ``"dr_grpo"``, ``"luspo"``; oat; rlhf-book; summed: verl
    ``loss_mode=geo_mean`` (>= 0.8).
    """
    parts = torch.unique(micro_batch)
    weight = _inside_each(mask, present, group, micro_batch, max_new_tokens, inner)
    return weight / len(parts) if average else weight


def _inside_each(
    mask: Tensor,
    present: Tensor,
    group: Tensor,
    micro_batch: Tensor,
    max_new_tokens: int | None,
    inner: Choice,
) -> Tensor:
    """``inner`` on each micro-batch by itself, as if it were the whole batch (M = 1)."""
    weight = torch.zeros(mask.shape, dtype=torch.float64, device=mask.device)
    alone = {"group": group, "max_new_tokens": max_new_tokens}
    alone["micro_batch"] = torch.zeros_like(micro_batch)
    for number in torch.unique(micro_batch):
        here = micro_batch == number
        inputs = {**alone, "mask": mask & here[:, None], "present": present & here}
        weight = weight + axes.run(inner, inputs).double()
    return weight


def _row_share(n: Numbers) -> str:
    rows = int((n.micro_batch == n.micro_batch[n.i]).sum())
    return f"{rows}/{len(n.micro_batch)} · {short(n.W * len(n.micro_batch) / rows)}"


@formula(
    r"\frac{n_{b(i)}}{N}\,<inner>\ \text{(inside micro-batch } b(i) \text{ alone, } M = 1\text{)}",
    "n_b/N · <inner> (inside micro-batch b alone, M = 1)",
    label="micro-batches weighted by their rows",
    numbers=_inside(_row_share),
)
def micro_batches_by_rows(
    mask: Tensor,
    present: Tensor,
    group: Tensor,
    micro_batch: Tensor,
    max_new_tokens: int | None = None,
    *,
    inner: Choice,
) -> Tensor:
    r"""An aggregation that only sees its own micro-batch b; each micro-batch then weighs by its
    share of the N rows.

    .. math::
        W_{it} = \frac{n_{b(i)}}{N}\,W^{inner}_{it}\big(\text{rows of } b(i)\big)

    With a sequence mean inside, that is the step's 1/(N·|o|). With a token mean inside it is
    (n_b/N)/Σ_{j in b}|o_j|: micro-batches filled up to a number of tokens hold many short or few
    long completions, so a token among short ones weighs more.

    Args:
        mask, present, group, micro_batch, max_new_tokens: as everywhere.
        inner: the aggregation inside a micro-batch.

    Source: verl up to 0.7.1 with ``use_dynamic_bsz=True`` (``dp_actor.py``:
    ``response_mask.shape[0] / ppo_mini_batch_size``).
    """
    rows = total(torch.ones(len(mask), dtype=torch.float64, device=mask.device), micro_batch)
    weight = _inside_each(mask, present, group, micro_batch, max_new_tokens, inner)
    return weight * (rows / len(mask))[:, None]


def _padded_width(n: Numbers) -> str:
    together = n.mask[n.micro_batch == n.micro_batch[n.i]]
    return f"1/{_N(n)} · 1/{int(together.any(dim=0).nonzero().max()) + 1}"


@formula(
    r"\frac{1}{N}\,\frac{1}{T_{b(i)}}",
    "1/N · 1/T_b, T_b longest of the slice",
    label="padded width",
    numbers=_inside(_padded_width),
)
def padded_width(
    mask: Tensor, present: Tensor, micro_batch: Tensor, *, count_masked_rows: bool = True
) -> Tensor:
    r"""The "constant" that is no constant: each micro-batch is divided by its own padded width.

    .. math::
        W_{it} = \frac{1}{N}\,\frac{m_{it}}{T_{b(i)}},\quad T_b = \text{last trained position in the
        micro-batch}

    Who shares a micro-batch with one long completion is pushed less.

    Source: verl 0.9 ``seq-mean-token-sum-norm`` without ``loss_scale_factor``
    (``loss_mask.shape[-1]``); ROLL.
    """
    reach = (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(dim=1)
    values, index = torch.unique(micro_batch, return_inverse=True)
    width = torch.zeros(len(values), dtype=reach.dtype, device=mask.device).scatter_reduce(
        0, index, reach, "amax"
    )[index]
    return _column(1 / width.double().clamp(min=1), mask) / _rows(mask, present, count_masked_rows)
