"""Noise of a gradient estimate, exactly. The noise of an aggregation is ``enumeration.relative_variance``."""

from __future__ import annotations

import math

from ..checks import Cap, GroupSize, Hazard, OpenProbability, checked
from ..objective.catalog import AnyRecipe
from .difficulty import advantages_by_count
from .length import branch


@checked
def advantage_noise(recipe: AnyRecipe, p: OpenProbability, size: GroupSize) -> float:
    r"""Relative variance of the gradient of one group by the logit of p, one token per completion; a common factor cancels.

    .. math:: \frac{\mathrm{Var}(g_K)}{(E\,g_K)^2},\qquad g_K = \frac{1}{G}\big(K A_+(K)(1-p) - (G-K) A_-(K)\,p\big),\quad K \sim \mathrm{Bin}(G, p)
    """
    right, wrong = (side.tolist() for side in advantages_by_count(recipe, size))
    first = second = 0.0
    for k in range(size + 1):
        chance = math.comb(size, k) * p**k * (1 - p) ** (size - k)
        g = (k * right[k] * (1 - p) - (size - k) * wrong[k] * p) / size
        first, second = first + chance * g, second + chance * g * g
    return second / first**2 - 1


@checked
def score_energy(p: OpenProbability, hazards: tuple[Hazard, Hazard], cap: Cap) -> float:
    r"""Mean squared score of a completion of the two-branch policy: squares of its tokens add, so it grows with the length.

    .. math:: E\|S\|^2 = \sum_t E\|s_t\|^2 = p(1-p) + p\,s_+(1-s_+)E[L|+] + (1-p)\,s_-(1-s_-)E[L|-]

    Args:
        p: chance of the right branch.
        hazards: chance to stop at each token, of the right and of the wrong branch.
        cap: stop decisions of one completion at most.
    """
    total = p * (1 - p)
    for share, stop in ((p, hazards[0]), (1 - p, hazards[1])):
        chance = branch(stop, cap).chance.tolist()
        total += share * stop * (1 - stop) * sum(n * c for n, c in enumerate(chance))
    return total
