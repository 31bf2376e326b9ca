r"""Advantage = baseline, then scale.

A **baseline** turns rewards into centred advantages: ``(reward, group, counted, …) -> [N]`` (or ``[N, T]`` where credit differs
by token). A **scale** divides them: ``(advantage, reward, group, counted, …) -> `` the same shape.

``counted``, ``[N]`` bool, are the rows whose reward enters the statistics: scored, and not filtered out of the baseline.
``ddof`` and ``eps`` are always explicit: which of n-1 or n, and how much is added to the std, differs in every framework.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import groups
from .axes import formula


def _need_peers(choice: str, group: Tensor) -> None:
    """A group of one has nothing to be compared with."""
    values, sizes = torch.unique(group, return_counts=True)
    if (sizes == 1).any():
        alone = values[sizes == 1].tolist()
        raise ValueError(
            f"group size 1: no relative signal. {choice} compares completions of one prompt, but group "
            f"{', '.join(map(str, alone[:5]))} has a single one. Sample at least 2 per prompt, or use the baseline "
            "'no_baseline', 'batch_mean' or 'greedy'."
        )


# --- baselines ------------------------------------------------------------------------------------------------------------


@formula(r"r_i", "r_i")
def no_baseline(reward: Tensor) -> Tensor:
    r"""The reward itself.

    .. math:: A_i = r_i

    Source: REINFORCE, Williams 1992.
    """
    return reward


@formula(r"A_{it}\ \text{(given)}", "A (given)")
def given(advantage: Tensor) -> Tensor:
    """Advantages computed elsewhere: ``rollouts.advantage``, ``[N]`` or ``[N, T]``, as a value model would give them."""
    return advantage


@formula(r"r_i-\mathrm{mean}_{j\in q(i)}\,r_j", "r_i - mean(r in group)")
def group_mean(reward: Tensor, group: Tensor, counted: Tensor) -> Tensor:
    r"""Better or worse than the other completions of the same prompt.

    .. math:: A_i = r_i - \frac{1}{G}\sum_{j \in q(i)} r_j

    Its own reward is in the mean, so the expected gradient is (G-1)/G of the policy gradient.

        r  1 0 0 0   ->   A  .75 -.25 -.25 -.25

    Raises:
        ValueError: a group has one row.

    Source: DeepSeekMath (arXiv 2402.03300) §4.1.2; alone, without a scale: Dr. GRPO (arXiv 2503.20783).
    """
    _need_peers("group_mean", group)
    centred = reward - groups.mean(reward, group, counted)
    return torch.where(groups.is_dead(reward, group, counted), torch.zeros_like(reward), centred)


@formula(r"r_i-\mathrm{mean}_{j\ne i}\,r_j", "r_i - mean(r of the others in group)")
def leave_one_out(reward: Tensor, group: Tensor, counted: Tensor) -> Tensor:
    r"""Compared with the *other* completions only: unbiased.

    .. math:: A_i = r_i - \frac{1}{G-1}\sum_{j \ne i} r_j = \frac{G}{G-1}\,(r_i - \bar r)

        r  1 0 0 0   ->   A  1 -1/3 -1/3 -1/3

    Raises:
        ValueError: a group has one row.

    Source: RLOO, Kool et al. 2019; Ahmadian et al. (arXiv 2402.14740).
    """
    _need_peers("leave_one_out", group)
    size = groups.size(group, counted).to(reward.dtype)
    return group_mean(reward, group, counted) * size / (size - 1).clamp(min=1)


# --- scales ---------------------------------------------------------------------------------------------------------------


@formula(r"1", "1")
def unscaled(advantage: Tensor) -> Tensor:
    r"""No division: a prompt's weight is what its rewards make it.

    Source: Dr. GRPO (arXiv 2503.20783); RLOO.
    """
    return advantage


@formula(r"\mathrm{std}_{j\in q(i)}(r_j;\ \mathrm{ddof}=<ddof>)+<eps>", "std(r in group, ddof=<ddof>) + <eps>")
def group_std(advantage: Tensor, reward: Tensor, group: Tensor, counted: Tensor, *, ddof: int, eps: float) -> Tensor:
    r"""Divided by the spread of the rewards of its own prompt: the difficulty bias.

    .. math:: A_i \;/\; \Big(\sqrt{\tfrac{1}{G-\mathrm{ddof}}\textstyle\sum_{j \in q(i)} (r_j-\bar r)^2} + \epsilon\Big)

    A group whose rewards are all equal gets 0, whatever ``eps`` is. For right/wrong rewards the smallest std, so the largest
    weight, belongs to prompts that are almost always or almost never solved.

        r  1 0 0 0, ddof 1, eps 0   ->   A  1.5 -.5 -.5 -.5

    Args:
        advantage: ``[N]`` centred advantages.
        reward, group, counted: ``[N]``.
        ddof: 1 divides by G-1 (torch's default: TRL, verl, OpenRLHF), 0 by G (numpy's: open-instruct, TRL's async trainer).
        eps: added to the std. 1e-4 TRL, 1e-6 verl, 1e-8 oat, 1e-9 OpenRLHF; the papers print none.

    Source: DeepSeekMath (arXiv 2402.03300) §4.1.2.
    """
    spread = groups.std(reward, group, counted, ddof)
    return torch.where(spread > 0, advantage / torch.where(spread > 0, spread + eps, 1.0), torch.zeros_like(advantage))
