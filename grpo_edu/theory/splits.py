"""What averaging micro-batch by micro-batch does to a weight: its factor against the mean over the whole step."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from torch import Tensor

from ..checks import checked, tensor
from ..objective.groups import total

Amounts = Annotated[Tensor, partial(tensor, dims="N", low=0.0)]


@checked
def mean_of_means_factor(amount: Amounts, micro_batch: Tensor) -> Tensor:
    r"""``[N]`` weight of a row in the mean of micro-batch means, divided by its weight in the mean over the step.

    .. math:: \frac{\sum_j a_j}{M \sum_{j \in b(i)} a_j}

    1 for every row exactly where all M micro-batches hold the same amount; else rows of a small micro-batch gain.

    Args:
        amount: ``[N]`` what is counted: token counts for a token mean, ones for a mean over completions (micro-batches of unequal rows).
        micro_batch: ``[N]`` integer, the micro-batch of each row.
    """
    values = amount.double()
    return values.sum() / (len(micro_batch.unique()) * total(values, micro_batch))
