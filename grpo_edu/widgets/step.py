"""Take the step: the probabilities of a small vocabulary before and after one update.

Level of evidence: exact. The formula runs in the browser; every choice and setting of a recipe
comes from the library.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..checks import checked
from ..objective.recipe import Recipe
from ..rollouts import Rollouts
from ..weights import token_weights
from .aggregation import OFFERED, drawn_spec, recipes_by_name, without_kl
from .base import Explorer, script, static, tr

# a greedy answer has no control here; these look at the probability of every token
NEEDS_MORE = ("remax", "dppo_tv", "dppo_kl", "clip_cov", "kl_cov")
STEPPED = tuple(name for name in OFFERED if name not in NEEDS_MORE)


class StepExplorer(Explorer):
    r"""One token of one answer, under up to four recipes: the push, and what one step of gradient
    descent on the logits z of its softmax policy makes of the probabilities.

    .. math:: z_v \leftarrow z_v + \eta\;\mathrm{push}\,(1[v = o] - \pi_v)

    The token is the first of answer 1. All answers to the question have the same length, and every
    other token has ratio 1 and logits of its own, so it does not move these probabilities. There is
    no reference policy, so a KL term is left out (the label says so).

    Args:
        recipes: one to four, names of ``STEPPED`` or ``Recipe`` objects.
        policy: probability of each token of the vocabulary before the step; they are divided by
            their sum.
        token: which token of the vocabulary was sampled, from 0.
        ratio: π/π_old of that token, 0.1 to 10.
        rewards: of the answers, 2 to 8; the first holds the token.
        state: the other traits. ``length`` of every answer, 1 to 16; ``limit``: C of the constant,
            at least 16; ``learning_rate``: η, 0 to 100; ``vocabulary``: the text of each token.

    Raises:
        ValueError: a recipe the explorer does not offer. traitlets.TraitError: a value outside its
        range.
    """

    TITLE = "Take the step"
    SHOWN = (
        "recipes",
        "policy",
        "vocabulary",
        "token",
        "ratio",
        "rewards",
        "length",
        "limit",
        "learning_rate",
    )
    _esm = script("grips", "step")
    _css = static("explorer.css") + static("grips.css")
    recipes = tr.List(tr.Unicode(), maxlen=4).tag(sync=True)
    policy = tr.List(tr.Float(min=1e-6, max=1.0), minlen=2, maxlen=8).tag(sync=True)
    vocabulary = tr.List(tr.Unicode()).tag(sync=True)
    token = tr.Int(0, min=0).tag(sync=True)
    ratio = tr.Float(min=0.1, max=10.0).tag(sync=True)
    rewards = tr.List(tr.Float(), minlen=2, maxlen=8).tag(sync=True)
    length = tr.Int(4, min=1, max=16).tag(sync=True)
    limit = tr.Int(16, min=16).tag(sync=True)
    learning_rate = tr.Float(10.0, min=0.0, max=100.0).tag(sync=True)

    @checked
    def __init__(
        self,
        recipes: Sequence[str | Recipe] = ("grpo", "dr_grpo", "gspo", "cispo"),
        policy: Sequence[float] = (0.3, 0.25, 0.2, 0.15, 0.1),
        token: int = 0,
        ratio: float = 1.0,
        rewards: Sequence[float] = (1, 0, 0, 0),
        **state: Any,
    ) -> None:
        self._by_name = recipes_by_name(STEPPED, recipes)
        super().__init__(
            specs={name: drawn_spec(recipe) for name, recipe in self._by_name.items()},
            recipes=[r.name if isinstance(r, Recipe) else r for r in recipes],
            policy=[p / sum(policy) for p in policy],
            token=token,
            ratio=ratio,
            rewards=list(rewards),
            **{"vocabulary": ["4", "5", "3", "22", "?"][: len(policy)], **state},
        )

    @tr.validate("recipes")
    def _offered(self, proposal: Any) -> list[str]:
        return self.checked("recipes", proposal["value"])

    def rollouts(self, logits: Tensor | None = None) -> Rollouts:
        """The answers, float64; the first token of the first has its log-prob from ``logits``,
        which may carry a graph.

        Raises:
            ValueError: a token outside the vocabulary, or an old probability above 1.
        """
        if self.token >= len(self.policy):
            raise ValueError(f"token is {self.token}: expected 0 to {len(self.policy) - 1}.")
        if (old := self.policy[self.token] / self.ratio) > 1 + 1e-12:
            raise ValueError(
                f"ratio is {self.ratio:g}: the old probability of the token would be {old:g}. "
                "Expected at most 1: raise the ratio."
            )
        n = len(self.rewards)
        plain = Rollouts.from_lengths([self.length] * n, self.rewards, max_new_tokens=self.limit)
        logits = self.logits() if logits is None else logits
        first = torch.zeros_like(plain.mask)
        first[0, 0] = True
        now = logits.log_softmax(0)[self.token]
        before = self.logits().log_softmax(0)[self.token] - math.log(self.ratio)
        return replace(
            plain,
            old_logp=torch.where(first, before.clamp(max=0), plain.logp),
            logp=torch.where(first, now, plain.logp),
        )

    def logits(self) -> Tensor:
        """``[V]`` logits of the policy before the step."""
        return torch.tensor(self.policy, dtype=torch.float64).log()

    def recipe(self, name: str) -> Recipe:
        """The recipe that a panel draws: without KL."""
        return without_kl(self._by_name[name])

    def push(self, name: str) -> float:
        """The push of a recipe on the token, from the library itself by autograd."""
        return token_weights(self.recipe(name), self.rollouts())[0, 0].item()

    def after(self, name: str) -> Tensor:
        """``[V]`` probabilities after the step of a recipe."""
        logits = self.logits()
        own = torch.zeros_like(logits)
        own[self.token] = 1
        return (logits + self.learning_rate * self.push(name) * (own - logits.softmax(0))).softmax(
            0
        )

    def figure(self) -> Any:
        """The same picture by matplotlib."""
        from .twins import step_bars

        after = {name: self.after(name).tolist() for name in self.recipes}
        return step_bars(self.policy, after, self.vocabulary)
