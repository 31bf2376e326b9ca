r"""The push on every token (its gradient weight), and the ledger that explains it factor by factor.

The push on a token is :math:`-\partial \mathcal{L} / \partial \log\pi_\theta(o_{it})`: how hard one
optimiser step moves its log-probability, up where positive and down where negative. Every argument
about GRPO and its variants is about this number. ``Push`` holds it for one recipe and one step,
computed once; tables, plots, pages and widgets take a ``Push``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .checks import Count, checked
from .objective import axes
from .objective.catalog import as_recipe
from .objective.kl import slope_of
from .objective.recipe import Plan, Recipe
from .objective.surrogates import derivative_of, mean_of_tokens
from .rollouts import Rollouts

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Push:
    r"""What one recipe does to every token of one optimiser step. Make it with ``Push.of``.

    .. math:: \mathrm{push}_{it} = -\frac{\partial\mathcal{L}}{\partial\log\pi_\theta(o_{it})}
        = A_{it}\, W_{it}\, \rho_{it}\, g_{it} + \mathrm{KL}_{it}

    Args:
        recipe: the loss.
        rollouts: every completion of the step.
        plan: advantages and aggregation weights of the step.
        token: ``[N, T]`` push on each token, by autograd, detached, 0 under the mask.
    """

    recipe: Recipe
    rollouts: Rollouts
    plan: Plan
    token: Tensor

    @classmethod
    @checked
    def of(
        cls, recipe: Recipe | str, rollouts: Rollouts, micro_batch: Tensor | None = None
    ) -> Push:
        """The push of a recipe, or of a name in the catalog, on these rollouts.

        Args:
            recipe: the loss.
            rollouts: every completion of one optimiser step.
            micro_batch: ``[N]`` micro-batch of each completion; only the micro-batch scope
                looks at it.

        Raises:
            TypeError, LookupError: no recipe, or no recipe of this name.
            ValueError: the recipe needs a field that the rollouts lack.
        """
        loss = as_recipe(recipe)
        plan = loss.plan(rollouts, micro_batch)
        known = rollouts.logp.dtype in (torch.float32, torch.float64)
        leaf = rollouts.logp.detach().to(rollouts.logp.dtype if known else torch.float32)
        value = loss.loss(rollouts.with_logp(leaf.requires_grad_()), plan)
        return cls(loss, rollouts, plan, 0.0 - torch.autograd.grad(value, leaf)[0])

    @cached_property
    def factors(self) -> dict[str, Tensor]:
        """``advantage, W, ratio, gate, kl``, each ``[N, T]``, written by hand; see ``factors``."""
        return factors(self.recipe, self.rollouts, self.plan)

    @cached_property
    def share(self) -> Tensor:
        """``[N, T]`` float64: each token's signed part of the step's total |push|; 0 where there is
        none.
        """
        push = self.token.double()
        return push / push.abs().sum().clamp(min=torch.finfo(torch.float64).tiny)

    @property
    def completion_share(self) -> Tensor:
        """``[N]`` each completion's signed part of the step's total |push|."""
        return self.share.sum(dim=1)

    @property
    def completion_mean(self) -> Tensor:
        """``[N]`` mean push on a completion's tokens; 0 for a completion without one."""
        return self.token.double().sum(dim=1) / self.rollouts.lengths.clamp(min=1)

    @property
    def clipped(self) -> Tensor:
        """``[N, T]`` bool, tokens with an advantage that lost their gradient to a clip or gate."""
        gate, advantage = self.factors["gate"], self.factors["advantage"]
        return (gate == 0) & (advantage != 0) & self.rollouts.mask

    def ledger(self) -> pd.DataFrame:
        """One row per trained token: why its push is what it is.

        Columns: ``completion``, ``position``, ``token`` (where texts are known), ``group``,
            ``reward``,
        ``advantage``, ``W``, ``ratio``, ``gate``, ``kl``, ``push`` = advantage · W · ratio · gate +
        kl (with an importance correction also ``correction``, one more factor), and ``share``, the
        token's signed part of the step's total |push|. A token that a filter took out has W 0 and
        push 0; an unscored completion has reward NaN.
        """
        import pandas as pd  # costs as much to import as torch

        i, t = self.rollouts.mask.nonzero(as_tuple=True)
        table = pd.DataFrame({"completion": i.tolist(), "position": t.tolist()})
        texts = self.rollouts.tokens
        if texts is not None:
            table["token"] = [texts[a][b] for a, b in zip(i.tolist(), t.tolist(), strict=True)]
        table["group"] = self.rollouts.group[i].tolist()
        table["reward"] = self._rewards()[i].tolist()
        for name, value in {**self.factors, "push": self.token, "share": self.share}.items():
            table[name] = value.double()[i, t].tolist()
        return table

    def summary(self) -> pd.DataFrame:
        """One row per completion: ``completion, group, reward, length, advantage, push_per_token,
        share``.

        ``advantage`` and ``push_per_token`` are means over its tokens, ``share`` is the
        completion's signed part of the step's total |push|. A completion without a trained token
        has push 0.
        """
        import pandas as pd

        length = self.rollouts.lengths
        mean_advantage = self.plan.advantage.double().sum(dim=1) / length.clamp(min=1)
        columns = {
            "completion": torch.arange(len(length)),
            "group": self.rollouts.group,
            "reward": self._rewards(),
            "length": length,
            "advantage": mean_advantage,
            "push_per_token": self.completion_mean,
            "share": self.completion_share,
        }
        return pd.DataFrame({name: value.tolist() for name, value in columns.items()})

    def _rewards(self) -> Tensor:
        """``[N]`` float64 rewards, NaN where a completion was not scored."""
        unscored = ~self.rollouts.scored  # type: ignore[operator]
        return self.rollouts.reward.double().masked_fill(unscored, torch.nan)


def token_weights(
    recipe: Recipe | str, rollouts: Rollouts, micro_batch: Tensor | None = None
) -> Tensor:
    r"""The exact push on every token, ``[N, T]``: :math:`-\partial \mathcal{L}/\partial
    \log\pi_\theta(o_{it})`, by autograd.

    Its arguments and errors are those of ``Push.of``; in float32 or wider, 0 under the mask.
    """
    return Push.of(recipe, rollouts, micro_batch).token


def ledger(
    recipe: Recipe | str, rollouts: Rollouts, micro_batch: Tensor | None = None
) -> pd.DataFrame:
    """``Push.of(…).ledger()``: one row per trained token, factor by factor."""
    return Push.of(recipe, rollouts, micro_batch).ledger()


def summary(
    recipe: Recipe | str, rollouts: Rollouts, micro_batch: Tensor | None = None
) -> pd.DataFrame:
    """``Push.of(…).summary()``: one row per completion."""
    return Push.of(recipe, rollouts, micro_batch).summary()


@checked
def split(rows: Count, parts: int) -> Tensor:
    """``[rows]`` the micro-batch of each row when ``parts`` of nearly equal size are cut in order.
    ``(5, 2)`` -> 0 0 0 1 1.
    """
    if not 1 <= parts <= rows:
        raise ValueError(f"parts is {parts}: expected 1 to {rows}, the number of completions.")
    sizes = torch.tensor([len(x) for x in torch.tensor_split(torch.arange(rows), parts)])
    return torch.repeat_interleave(torch.arange(parts), sizes)


def factors(recipe: Recipe, rollouts: Rollouts, plan: Plan) -> dict[str, Tensor]:
    r"""The factors of the push, each ``[N, T]``, from hand-written derivatives; autograd is not
    used.

    Keys: ``advantage``, ``W``, ``ratio``, ``gate``, ``kl`` (the KL term with its sign and its own
    W); with an importance correction also ``correction``, one more factor. The push is their
    product plus ``kl``.

    Raises:
        TypeError: a surrogate or KL term of your own without a hand-written derivative.
    """
    inputs = recipe.token_inputs(rollouts, plan)
    inputs["logp"] = inputs["logp"].detach()
    ratio, gate = axes.run(derivative_of(recipe.surrogate), inputs)
    W, correction = _shared(recipe, plan, inputs)
    kl_term = torch.zeros_like(ratio)
    kl = recipe.active_kl(rollouts)
    if kl is not None:
        kl_term = -plan.W_kl.to(ratio.dtype) * axes.run(slope_of(kl), inputs)
    return {
        "advantage": inputs["advantage"],
        "W": W,
        **({} if correction is None else {"correction": correction}),
        "ratio": ratio,
        "gate": gate.to(ratio.dtype),
        "kl": kl_term,
    }


def _shared(recipe: Recipe, plan: Plan, inputs: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
    """W and the importance correction of each token, as its push sees them.

    A surrogate with one ratio per completion mixes what its tokens carry: each token is pushed by
    the completion's mean of W, and of W times the correction.
    """
    W = plan.W.to(inputs["logp"].dtype)
    mixed = getattr(axes.function_of(recipe.surrogate), "per_sequence", False)
    if mixed:
        W = mean_of_tokens(W, plan.mask) * plan.mask
    if recipe.correction is None:
        return W, None
    correction = axes.run(recipe.correction, inputs)
    if mixed:
        product = mean_of_tokens(plan.W.to(correction.dtype) * correction, plan.mask)
        live = W != 0
        correction = torch.where(live, product / torch.where(live, W, 1.0), 0.0)
    return W, correction
