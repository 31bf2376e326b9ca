"""Who takes part. A filter narrows ``TakingPart``; what stays decides the mask, N, and the
statistics of the baseline.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from . import groups
from .axes import formula


class TakingPart(NamedTuple):
    """``mask`` ``[N, T]``: tokens that learn; ``present`` ``[N]``: rows in the batch; ``counted``
    ``[N]``: in the baseline.
    """

    mask: Tensor
    present: Tensor
    counted: Tensor


@formula(r"\text{groups with } r_i\ne r_j", "groups whose rewards differ", label="live groups only")
def drop_dead_groups(
    mask: Tensor, present: Tensor, counted: Tensor, reward: Tensor, group: Tensor
) -> TakingPart:
    """Prompts whose completions all have the same reward leave the batch: they count neither in N,
    nor in P, nor in the tokens. The reward is the shaped one.

    Drawing new prompts in their place is the sampling loop's work, not the objective's.

    Source: the constraint 0 < #correct < G of DAPO (arXiv 2503.14476), Eq. 8 and 11.
    """
    live = ~groups.is_dead(reward, group, counted)
    return TakingPart(mask & live[:, None], present & live, counted)


@formula(
    r"\text{groups with } r^{\text{raw}}_i\ne r^{\text{raw}}_j",
    "groups whose rewards differ before any shaping",
    label="live groups only, by the raw reward",
)
def drop_raw_dead_groups(
    mask: Tensor, present: Tensor, counted: Tensor, raw_reward: Tensor, group: Tensor
) -> TakingPart:
    """The same with the reward before any shaping.

    A group that is wrong throughout leaves the batch, though an overlong penalty tells its rewards
    apart.

    Source: verl ``filter_groups.metric=acc`` (recipe/dapo/dapo_ray_trainer.py).
    """
    return drop_dead_groups(mask, present, counted, raw_reward, group)


@formula(
    r"o_i\ \text{not truncated}",
    "completions that were not truncated (in the baseline: <in_baseline>)",
    label="truncation mask",
)
def truncation_mask(
    mask: Tensor, present: Tensor, counted: Tensor, truncated: Tensor, *, in_baseline: bool
) -> TakingPart:
    """Overlong filtering: tokens of truncated completions do not learn. The row stays in the batch,
    fully masked.

    Args:
        in_baseline: the reward of a truncated row still enters the statistics of its group
            (TRL) or not.

    Source: DAPO (arXiv 2503.14476) §3.4; TRL ``mask_truncated_completions=True`` (rows stay in the
    baseline).
    """
    return TakingPart(
        mask & ~truncated[:, None], present, counted if in_baseline else counted & ~truncated
    )
