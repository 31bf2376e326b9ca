r"""A language model small enough to write out: a completion is T tokens of a vocabulary of V, every prefix is a state, the reward comes last.

A policy is a list of logits, one tensor per depth d, ``[V^d, V]``: a row for every prefix of d tokens. Prefixes and completions are numbered
as digits to base V, first token first: with V = 2 and T = 3, completion 6 is 1 1 0. Transitions are deterministic, as in any language model:
a state and a token *are* the next state, so Q(s, a) = V(s'). One token (T = 1) is the bandit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..objective.recipe import Recipe
from .enumeration import Groups, group_weights

if TYPE_CHECKING:
    import pandas as pd

Logits = Sequence[Tensor]


def uniform(vocabulary: int, horizon: int) -> list[Tensor]:
    """Logits of the policy that draws every token evenly."""
    return [
        torch.zeros(vocabulary**depth, vocabulary, dtype=torch.float64) for depth in range(horizon)
    ]


def words(vocabulary: str, horizon: int) -> list[str]:
    """Every completion in order: ``words("ab", 2)`` -> aa, ab, ba, bb."""
    return ["".join(word) for word in product(vocabulary, repeat=horizon)]


def along(tables: Sequence[Tensor]) -> Tensor:
    """``[V^T, T]``: what each completion meets on its way in tables ``[V^d, V]``, a number per prefix and next token."""
    horizon, size = len(tables), tables[-1].numel()
    number = torch.arange(size)
    vocabulary = tables[-1].shape[1]
    return torch.stack(
        [t.reshape(-1)[number // vocabulary ** (horizon - d - 1)] for d, t in enumerate(tables)],
        dim=1,
    )


def log_probs(logits: Logits) -> Tensor:
    r"""``[V^T, T]`` log-probability of every token of every completion. Their sum is :math:`\log\pi(o|q)`, so chances *multiply*."""
    return along([table.log_softmax(-1) for table in logits])


def values(logits: Logits, reward: Tensor) -> list[Tensor]:
    r"""V of every prefix, ``[V^d]`` for d = 0 … T, by backward induction; ``reward`` is ``[V^T]``, and also the last entry.

    .. math:: V(s) = \sum_a \pi(a|s)\,V(sa)
    """
    found = [reward]
    for table in reversed(logits):
        found.append((table.softmax(-1) * found[-1].reshape(table.shape)).sum(-1))
    return found[::-1]


def advantages(logits: Logits, reward: Tensor) -> list[Tensor]:
    r"""A(s, a) = Q(s, a) - V(s) = V(sa) - V(s), ``[V^d, V]`` for d = 0 … T-1: better or worse than the policy's own average in s."""
    v = values(logits, reward)
    return [v[d + 1].reshape(table.shape) - v[d][:, None] for d, table in enumerate(logits)]


def values_along(logits: Logits, reward: Tensor) -> Tensor:
    """``[V^T, T]`` V of the state before each token of each completion: what a perfect value model would say."""
    v = values(logits, reward)
    return along([v[d][:, None].expand(table.shape) for d, table in enumerate(logits)])


def weightings(logits: Logits, reward: Tensor, constant: float = 0.0) -> dict[str, Tensor]:
    r"""Five :math:`\Psi_t` that all have the policy gradient as their mean, each ``[V^T, T]``, a factor for every token.

    ``r``; ``r - constant``; ``r - V(start)``; ``r - V(s_t)``; ``Q - V``. They differ in noise only.
    """
    whole, state = reward[:, None].expand(-1, len(logits)), values_along(logits, reward)
    return {
        "r": whole,
        f"r - {constant:g}": whole - constant,
        "r - V(start)": whole - state[:, :1],
        "r - V(s_t)": whole - state,
        "Q - V": along(advantages(logits, reward)),
    }


def exact_gradient(logits: Logits, reward: Tensor) -> Tensor:
    """``[P]`` gradient of the expected reward by all logits, depth by depth, by autograd through the values. No log-probability enters."""
    leaves = [table.detach().clone().requires_grad_() for table in logits]
    return torch.cat(
        [g.reshape(-1) for g in torch.autograd.grad(values(leaves, reward)[0].sum(), leaves)]
    )


def scores(logits: Logits) -> Tensor:
    """``[V^T, T, P]`` derivative of each token's log-probability by all logits."""
    shapes = [table.shape for table in logits]

    def of(flat: Tensor) -> Tensor:
        parts = flat.split([shape.numel() for shape in shapes])
        return log_probs([part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)])

    jacobian = torch.func.jacrev(of)(torch.cat([table.reshape(-1) for table in logits]))
    assert isinstance(jacobian, Tensor)
    return jacobian


def estimate(logits: Logits, psi: Tensor) -> tuple[Tensor, float]:
    r"""Mean ``[P]`` and total variance of the one-sample gradient estimate, over every completion with its probability.

    .. math:: g = \sum_t \Psi_t\,\nabla\log\pi(o_t),\qquad \mathrm{tr}\,\mathrm{Var}(g) = E\|g\|^2 - \|E g\|^2
    """
    chance = log_probs(logits).sum(1).exp()
    g = (psi[..., None] * scores(logits)).sum(1)
    mean = chance @ g
    return mean, ((chance @ g**2).sum() - (mean**2).sum()).item()


def comparison(logits: Logits, psis: Mapping[str, Tensor], reward: Tensor) -> pd.DataFrame:
    """One row per weighting: ``error``, the largest deviation of its mean from the exact gradient, and ``variance``."""
    import pandas as pd

    exact, rows = exact_gradient(logits, reward), {}
    for name, psi in psis.items():
        mean, variance = estimate(logits, psi)
        rows[name] = {"error": (mean - exact).abs().max().item(), "variance": variance}
    return pd.DataFrame.from_dict(rows, orient="index")


def state_table(logits: Logits, reward: Tensor, vocabulary: str) -> pd.DataFrame:
    """One row per prefix: ``V``, and ``Q`` and ``A`` of each next token."""
    import pandas as pd

    v, a, rows = values(logits, reward), advantages(logits, reward), []
    for depth in range(len(logits)):
        for i, prefix in enumerate(words(vocabulary, depth)):
            state = v[depth][i].item()
            each = {
                f"Q({c})": state + x for c, x in zip(vocabulary, a[depth][i].tolist(), strict=True)
            }
            gap = {f"A({c})": x for c, x in zip(vocabulary, a[depth][i].tolist(), strict=True)}
            rows.append({"prefix": prefix or "(start)", "V": state, **each, **gap})
    return pd.DataFrame(rows).set_index("prefix")


def group_gradient(recipe: Recipe, logits: Logits, reward: Tensor, size: int) -> Tensor:
    """``[P]`` expected update of a recipe, on policy: every ordered group of ``size`` completions through the recipe's own loss."""
    horizon, chance = len(logits), log_probs(logits).sum(1).exp()
    rows = torch.cartesian_prod(*[torch.arange(len(reward))] * size).reshape(-1, size)
    length = torch.full(rows.shape, horizon)
    mask = torch.ones(*rows.shape, horizon, dtype=torch.bool)
    groups = Groups(chance[rows].prod(1), reward[rows], length, length > 0, mask)
    gradient = (group_weights(recipe, groups)[..., None] * scores(logits)[rows]).sum((1, 2))
    return groups.chance @ gradient


def group_comparison(
    recipes: Sequence[Recipe], logits: Logits, reward: Tensor, size: int
) -> pd.DataFrame:
    """One row per recipe: its expected update as a ``factor`` times the exact gradient, and the ``cosine`` between the two (1: same direction)."""
    import pandas as pd

    exact, rows = exact_gradient(logits, reward), {}
    for recipe in recipes:
        update = group_gradient(recipe, logits, reward, size)
        inner, length = (update @ exact).item(), exact.norm().item()
        rows[recipe.name] = {
            "factor": inner / length**2,
            "cosine": inner / (length * update.norm().item()),
        }
    return pd.DataFrame.from_dict(rows, orient="index")
