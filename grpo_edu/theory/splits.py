"""What averaging micro-batch by micro-batch does to a weight: its factor against the mean over the whole step."""

from __future__ import annotations

from torch import Tensor

from ..objective.groups import total


def mean_of_means_factor(amount: Tensor, micro_batch: Tensor) -> Tensor:
    r"""``[N]`` weight of a row in the mean of micro-batch means, divided by its weight in the mean over the step.

    .. math:: \frac{\sum_j a_j}{M \sum_{j \in b(i)} a_j}

    1 for every row exactly where all M micro-batches hold the same amount; else rows of a small micro-batch gain.

    Args:
        amount: ``[N]`` what is counted: token counts for a token mean, ones for a mean over completions (micro-batches of unequal rows).
        micro_batch: ``[N]`` integer, the micro-batch of each row.
    """
    values = amount.double()
    return values.sum() / (len(micro_batch.unique()) * total(values, micro_batch))
