"""The token view: real text, each token coloured by its push under two recipes. Level of evidence:
exact."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ..checks import checked
from ..rollouts import Rollouts
from .base import Explorer, script, spec, tr
from .readers import loaded, offered, readable


class TokenView(Explorer):
    """Text of a completion, its tokens coloured by their push under two recipes, and the factors of
    the chosen token under both. A token is chosen by a click or by the slider.

    Args:
        rollouts: with token texts, or the path of a completions file; None: the shipped
            completions.
        recipes: the two to start with.
        state: the other traits. ``completion``, ``token``: the chosen ones; ``relative``: the push
            in percent of each recipe's step.

    Raises:
        ValueError: the rollouts have no token texts, hold a completion without a score, or lack a
            field that a recipe needs.
    """

    TITLE = "What pushes each token of a text"
    SHOWN = ("recipes", "completion", "token", "relative")
    _esm = script("tokens")
    fields = tr.Dict().tag(sync=True)
    texts = tr.List().tag(sync=True)
    prompts = tr.List().tag(sync=True)
    recipes = tr.List(tr.Unicode(), minlen=2, maxlen=2).tag(sync=True)
    completion = tr.Int(0, min=0).tag(sync=True)
    token = tr.Int(0, min=0).tag(sync=True)
    relative = tr.Bool(False).tag(sync=True)

    @checked
    def __init__(
        self,
        rollouts: Rollouts | str | Path | None = None,
        recipes: Sequence[str] = ("grpo", "dr_grpo"),
        **state: Any,
    ) -> None:
        step, first = loaded(rollouts)
        if step.tokens is None:
            raise ValueError(
                "rollouts.tokens is missing: expected the text of each token. Read a completions "
                "file, or give tokens=."
            )
        if step.scored is not None and not step.scored.all():
            raise ValueError(
                "rollouts.scored is False for a completion: expected a reward for each. Leave the "
                "others out: rollouts[rollouts.scored]."
            )
        self.rollouts = step
        self.losses = readable(step)
        offered(recipes, self.losses)
        super().__init__(
            specs={name: {**spec(loss), "label": name} for name, loss in self.losses.items()},
            fields=fields_of(step),
            texts=texts_of(step),
            prompts=list(step.prompts or [""] * len(step)),
            recipes=list(recipes),
            **{"completion": first, **state},
        )

    @tr.validate("recipes")
    def _offered(self, proposal: Any) -> list[str]:
        return self.checked("recipes", proposal["value"])

    def state(self) -> dict[str, Any]:
        """What the JavaScript sees."""
        own = ("fields", "texts", "prompts")
        return {**super().state(), **{name: getattr(self, name) for name in own}}

    def figure(self) -> Any:
        """The pushes of the step under both recipes, by matplotlib."""
        from ..plots.heatmap import weight_map

        losses = [self.losses[name] for name in self.recipes]
        return weight_map(losses, self.rollouts, relative=self.relative)


def fields_of(step: Rollouts) -> dict[str, Any]:
    """A step as ``pushOf`` of objective.js reads it; what the rollouts lack is left out."""
    pairs = {
        "logRatio": (step.logp, step.old_logp),
        "logRef": (step.logp, step.ref_logp),
        "logSampler": (step.logp if step.old_logp is None else step.old_logp, step.sampler_logp),
    }
    per_token = {name: a - b for name, (a, b) in pairs.items() if b is not None}
    alone = {
        "tokenReward": step.token_reward,
        "value": step.value,
        "given": step.given_advantage,
    }
    per_token |= {name: value for name, value in alone.items() if value is not None}
    per_completion = {"greedy": step.greedy_reward, "parts": step.reward_parts}
    return {
        "rewards": step.reward.tolist(),
        "lengths": step.lengths.tolist(),
        "group": step.group.tolist(),
        "limit": step.max_new_tokens,
        "micro": [0] * len(step),
        **{name: _plain(value) for name, value in per_completion.items() if value is not None},
        **{name: _trained(value, step) for name, value in per_token.items()},
    }


def texts_of(step: Rollouts) -> list[list[tuple[str, int | None]]]:
    """Of each completion the text of every token and its number among the trained ones; None: it is
    not trained."""
    assert step.tokens is not None
    lines = []
    for texts, mask in zip(step.tokens, step.mask.tolist(), strict=True):
        numbers = iter(range(len(texts)))
        pairs = zip(texts, mask, strict=False)  # the mask is as wide as the longest completion
        lines.append([(text, next(numbers) if on else None) for text, on in pairs])
    return lines


def _trained(values: Tensor, step: Rollouts) -> list[Any]:
    """Numbers of the trained tokens; those of a whole completion as they are."""
    if values.ndim == 1:
        return _plain(values)
    return [_plain(row[mask]) for row, mask in zip(values, step.mask, strict=True)]


def _plain(values: Tensor) -> list[Any]:
    """A tensor as lists, NaN as None."""
    if values.ndim > 1:
        return [_plain(row) for row in values]
    return [None if x != x else x for x in values.double().tolist()]
