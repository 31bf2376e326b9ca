r"""A language model small enough to write out: a completion is T tokens of a vocabulary of V, every
prefix is a state, the reward comes last.

A policy is a list of logits, one tensor per depth d, ``[V^d, V]``: a row for every prefix of d
tokens. Prefixes and completions are numbered as digits to base V, first token first: with V = 2 and
T = 3, completion 6 is 1 1 0. Transitions are deterministic, as in any language model: a state and a
token *are* the next state, so Q(s, a) = V(s'). One token (T = 1) is the bandit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any

import torch
from torch import Tensor

from ..checks import Count, Index, at_most_power, check_of, checked, shown, tensor
from ..objective.catalog import AnyRecipe
from .enumeration import Groups, group_weights

if TYPE_CHECKING:
    import pandas as pd


def _policy(name: str, value: Any) -> Sequence[Tensor]:
    """Logits of depth 0, 1 … with shapes ``[1, V]``, ``[V, V]``, ``[V², V]`` …"""
    tables = check_of(Sequence[Tensor])(name, value)
    vocabulary = tables[0].shape[-1] if tables[0].ndim else 0
    for depth, table in enumerate(tables):
        if list(table.shape) != [vocabulary**depth, vocabulary] or not table.is_floating_point():
            raise ValueError(
                f"{name}[{depth}] is {shown(table)}: expected floating point numbers of shape "
                f"{[vocabulary**depth, vocabulary]}, a row for every prefix of {depth} tokens."
            )
    return tables


Logits = Annotated[Sequence[Tensor], _policy]
Rewards = Annotated[Tensor, partial(tensor, dims="completions")]


def _agree(name: str, found: int, logits: Logits) -> None:
    """One entry per completion of the policy."""
    if found != logits[-1].numel():
        raise ValueError(
            f"{name} has {found} entries: expected {logits[-1].numel()}, one per completion."
        )


def spelt(vocabulary: str, logits: Logits) -> None:
    """One letter per token of the policy."""
    if len(vocabulary) != logits[0].shape[1]:
        raise ValueError(
            f"vocabulary has {len(vocabulary)} letters: expected {logits[0].shape[1]}."
        )


@checked
def uniform(vocabulary: Count, horizon: Count) -> list[Tensor]:
    """Logits of the policy that draws every token evenly."""
    at_most_power("vocabulary ** horizon", max(2, vocabulary), horizon, 1e6)
    return [
        torch.zeros(vocabulary**depth, vocabulary, dtype=torch.float64) for depth in range(horizon)
    ]


@checked
def words(vocabulary: str, horizon: Index) -> list[str]:
    """Every completion in order: ``words("ab", 2)`` -> aa, ab, ba, bb."""
    at_most_power("vocabulary ** horizon", max(2, len(vocabulary)), horizon, 1e6)
    return ["".join(word) for word in product(vocabulary, repeat=horizon)]


def along(tables: Sequence[Tensor]) -> Tensor:
    """``[V^T, T]``: what each completion meets on its way in tables ``[V^d, V]``, a number per
    prefix and next token.
    """
    horizon, size = len(tables), tables[-1].numel()
    number = torch.arange(size)
    vocabulary = tables[-1].shape[1]
    return torch.stack(
        [t.reshape(-1)[number // vocabulary ** (horizon - d - 1)] for d, t in enumerate(tables)],
        dim=1,
    )


@checked
def log_probs(logits: Logits) -> Tensor:
    r"""``[V^T, T]`` log-probability of every token of every completion. Their sum is
    :math:`\log\pi(o|q)`, so chances *multiply*.
    """
    return along([table.log_softmax(-1) for table in logits])


@checked
def values(logits: Logits, reward: Rewards) -> list[Tensor]:
    r"""V of every prefix, ``[V^d]`` for d = 0 … T, by backward induction; ``reward`` is ``[V^T]``,
    and also the last entry.

    .. math:: V(s) = \sum_a \pi(a|s)\,V(sa)
    """
    _agree("reward", len(reward), logits)
    found = [reward]
    for table in reversed(logits):
        found.append((table.softmax(-1) * found[-1].reshape(table.shape)).sum(-1))
    return found[::-1]


@checked
def advantages(logits: Logits, reward: Rewards) -> list[Tensor]:
    r"""A(s, a) = Q(s, a) - V(s) = V(sa) - V(s), ``[V^d, V]`` for d = 0 … T-1: better or worse than
    the policy's own average in s.
    """
    v = values(logits, reward)
    return [v[d + 1].reshape(table.shape) - v[d][:, None] for d, table in enumerate(logits)]


@checked
def values_along(logits: Logits, reward: Rewards) -> Tensor:
    """``[V^T, T]`` V of the state before each token of each completion: what a perfect value model
    would say.
    """
    v = values(logits, reward)
    return along([v[d][:, None].expand(table.shape) for d, table in enumerate(logits)])


@checked
def weightings(logits: Logits, reward: Rewards, constant: float = 0.0) -> dict[str, Tensor]:
    r"""Five :math:`\Psi_t` that all have the policy gradient as their mean, each ``[V^T, T]``, a
    factor for every token.

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


@checked
def exact_gradient(logits: Logits, reward: Rewards) -> Tensor:
    """``[P]`` gradient of the expected reward by all logits, depth by depth, by autograd through
    the values. No log-probability enters.
    """
    leaves = [table.detach().clone().requires_grad_() for table in logits]
    return torch.cat(
        [g.reshape(-1) for g in torch.autograd.grad(values(leaves, reward)[0].sum(), leaves)]
    )


@checked
def scores(logits: Logits) -> Tensor:
    """``[V^T, T, P]`` derivative of each token's log-probability by all logits."""
    shapes = [table.shape for table in logits]

    def of(flat: Tensor) -> Tensor:
        parts = flat.split([shape.numel() for shape in shapes])
        return log_probs([part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)])

    jacobian = torch.func.jacrev(of)(torch.cat([table.reshape(-1) for table in logits]))
    assert isinstance(jacobian, Tensor)
    return jacobian


@checked
def estimate(logits: Logits, psi: Tensor) -> tuple[Tensor, float]:
    r"""Mean ``[P]`` and total variance of the one-sample gradient estimate, over every completion
    with its probability.

    .. math::
        g = \sum_t \Psi_t\,\nabla\log\pi(o_t),\qquad \mathrm{tr}\,\mathrm{Var}(g) = E\|g\|^2 - \|E
        g\|^2
    """
    chance = log_probs(logits).sum(1).exp()
    g = (psi[..., None] * scores(logits)).sum(1)
    mean = chance @ g
    return mean, ((chance @ g**2).sum() - (mean**2).sum()).item()


@checked
def comparison(logits: Logits, psis: Mapping[str, Tensor], reward: Rewards) -> pd.DataFrame:
    """One row per weighting: ``error``, the largest deviation of its mean from the exact gradient,
    and ``variance``.
    """
    import pandas as pd

    exact, rows = exact_gradient(logits, reward), {}
    shape = [logits[-1].numel(), len(logits)]
    for name, psi in psis.items():
        if list(psi.shape) != shape:
            raise ValueError(f"psis[{name!r}] is {shown(psi)}: expected the shape {shape}.")
    for name, psi in psis.items():
        mean, variance = estimate(logits, psi)
        rows[name] = {"error": (mean - exact).abs().max().item(), "variance": variance}
    return pd.DataFrame.from_dict(rows, orient="index")


@checked
def state_table(logits: Logits, reward: Rewards, vocabulary: str) -> pd.DataFrame:
    """One row per prefix: ``V``, and ``Q`` and ``A`` of each next token."""
    import pandas as pd

    spelt(vocabulary, logits)
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


@checked
def group_gradient(recipe: AnyRecipe, logits: Logits, reward: Rewards, size: Count) -> Tensor:
    """``[P]`` expected update of a recipe, on policy: every ordered group of ``size`` completions
    through the recipe's own loss.
    """
    horizon, chance = len(logits), log_probs(logits).sum(1).exp()
    at_most_power("the number of groups (by size)", len(reward), size, 300_000)
    rows = torch.cartesian_prod(*[torch.arange(len(reward))] * size).reshape(-1, size)
    length = torch.full(rows.shape, horizon)
    mask = torch.ones(*rows.shape, horizon, dtype=torch.bool)
    groups = Groups(chance[rows].prod(1), reward[rows], length, length > 0, mask)
    gradient = (group_weights(recipe, groups)[..., None] * scores(logits)[rows]).sum((1, 2))
    return groups.chance @ gradient


@checked
def group_comparison(
    recipes: Sequence[AnyRecipe], logits: Logits, reward: Rewards, size: Count
) -> pd.DataFrame:
    """One row per recipe: its expected update as a ``factor`` times the exact gradient, and the
    ``cosine`` between the two (1: same direction).
    """
    import pandas as pd

    exact, rows = exact_gradient(logits, reward), {}
    if not exact.norm() > 0:
        raise ValueError("reward has no gradient under logits: expected rewards that differ.")
    for recipe in recipes:
        update = group_gradient(recipe, logits, reward, size)
        inner, length = (update @ exact).item(), exact.norm().item()
        rows[recipe.name] = {
            "factor": inner / length**2,
            "cosine": inner / (length * (update.norm().item() or 1.0)),
        }
    return pd.DataFrame.from_dict(rows, orient="index")
