"""A loss function and the recipe that it claims to be, on batches that show every difference."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..frameworks.identify import Probe, identify
from ..objective import advantages as adv
from ..objective import axes
from ..objective.catalog import recipe as by_name
from ..objective.recipe import Recipe, RecipeWarning
from ..rollouts import Rollouts
from ..weights import token_weights

NEAR = 1e-6  # of the largest push: a loss may hold its own constants in float32
SMALL = 1e-3  # where the claim pushes less, or nothing: rounding of rewards near 1
# advantages as given from outside: two prompts of three, both signs, no two alike
ADVANTAGES = (1.0, -0.5, -0.7, 1.5, -2.0, 0.4)


def batch(
    lengths: Sequence[int] = (2, 5, 3, 7, 4, 6),
    rewards: Sequence[float] = (1.0, 0.0, 0.0, 1.0, 0.0, 0.5),
    group: Sequence[int] = (0, 0, 0, 1, 1, 1),
    log_ratio: float = 0.0,
) -> Rollouts:
    """Float64 rollouts padded beyond the longest completion.

    Args:
        lengths, rewards, group: one number per completion, at most six.
        log_ratio: size of log π − log π_old, which changes sign and size from token to token; 0:
            on policy.
    """
    n = len(lengths)
    width = max(lengths) + 2
    wave = torch.arange(n * width, dtype=torch.float64).reshape(n, width)
    old = -0.6 - 0.1 * wave.remainder(7)
    pattern = torch.tensor([1.0, -0.3, 0.02, -1.0, 0.4], dtype=torch.float64)
    moved = log_ratio * pattern[wave.long().remainder(5)]
    return Rollouts(
        logp=(old + moved).clamp(max=0.0),
        old_logp=old if log_ratio else None,
        mask=torch.arange(width)[None] < torch.tensor(lengths)[:, None],
        reward=torch.tensor(rewards, dtype=torch.float64),
        group=torch.tensor(group),
        given_advantage=torch.tensor(ADVANTAGES[:n], dtype=torch.float64),
        max_new_tokens=width,
    )


class Subject:
    """A loss function beside the recipe that it claims to be.

    Args:
        loss_fn: as ``identify`` takes it.
        claims: the recipe. Where the function takes advantages, the recipe takes the same ones, and
            its reward shaping and filters, which happen before, are left out.
        settings: other arguments of the function.
        names: the function's names of our inputs, where they are unusual.

    Raises:
        TypeError: an input is missing.
    """

    def __init__(
        self,
        loss_fn: Callable[..., Any],
        claims: Recipe,
        settings: dict[str, Any] | None = None,
        names: dict[str, str] | None = None,
    ) -> None:
        self.loss_fn = loss_fn
        self.settings = settings or {}
        self.probe = Probe(loss_fn, self.settings, names or {})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecipeWarning)
            self.recipe = claims if self.probe.by_reward else _given(claims)

    def has(self, name: str) -> bool:
        """True where the function takes this input."""
        return name in self.probe.names

    @property
    def looks_back(self) -> bool:
        """True where the claim has a ratio."""
        return "old_logp" in axes.inputs_of(self.recipe.surrogate)

    def pushes(self, rollouts: Rollouts) -> Tensor:
        """``[N, T]`` pushes of the function."""
        return self.probe.weights(rollouts)

    def expected(self, rollouts: Rollouts) -> Tensor:
        """``[N, T]`` pushes of the claim."""
        recipe = self.recipe if rollouts.ref_logp is not None else self.recipe.but(kl=None)
        return token_weights(recipe, rollouts)

    def difference(self, rollouts: Rollouts, near: float = NEAR) -> str | None:
        """What differs between the pushes and the claim's, in words; None where nothing does."""
        return difference(self.pushes(rollouts), self.expected(rollouts), rollouts, near)

    @cached_property
    def identified(self) -> str:
        """What the function looks like instead, for a failure."""
        try:
            return f"identify says: {identify(self.loss_fn, **self.settings).name}."
        except (TypeError, ValueError) as error:
            return f"identify cannot name it: {error}"


def from_options(
    loss: str, claims: str, settings: Sequence[str] = (), names: Sequence[str] = ()
) -> Subject:
    """The subject of the command line: ``module:function``, the recipe's name, ``NAME=VALUE``."""
    from ..frameworks.loading import imported, named_values

    return Subject(
        imported(loss, "loss"),
        by_name(claims),
        named_values(settings, "set"),
        {ours: str(theirs) for ours, theirs in named_values(names, "map").items()},
    )


def _given(recipe: Recipe) -> Recipe:
    """The recipe with its advantages given from outside."""
    return recipe.but(
        name=recipe.name, baseline=adv.given, scale=adv.unscaled, rewards=(), filters=()
    )


def halves(rollouts: Rollouts, push: Callable[[Rollouts], Tensor]) -> Tensor:
    """``[N, T]`` mean of the gradients of two equal micro-batches, each seen on its own."""
    middle = len(rollouts) // 2
    return torch.cat([push(rollouts[:middle]), push(rollouts[middle:])]) / 2


# --- what differs, in words -----------------------------------------------------------------------


def difference(found: Tensor, expected: Tensor, rollouts: Rollouts, near: float) -> str | None:
    """None where ``found`` is ``expected`` to ``near`` of the largest push; else what differs.

    Args:
        found, expected: ``[N, T]`` pushes.
        rollouts: where they were made.
        near: the relative tolerance.
    """
    if not torch.isfinite(found).all():
        i, t = (~torch.isfinite(found)).nonzero()[0].tolist()
        return f"the push on completion {i + 1}, token {t + 1} is {found[i, t].item()}."
    largest = float(expected.abs().max())
    if float((found - expected).abs().max()) <= near * max(largest, SMALL):
        return None
    if (found[~rollouts.mask] != 0).any():
        i, t = ((found != 0) & ~rollouts.mask).nonzero()[0].tolist()
        return (
            f"token {t + 1} of completion {i + 1} is masked and gets a push of {found[i, t]:.3g}."
        )
    if largest == 0:
        return f"the claim pushes nothing here, the loss up to {float(found.abs().max()):.3g}."
    return _by_factor(found, expected, rollouts.lengths, near) or _worst(found, expected)


def _by_factor(found: Tensor, expected: Tensor, lengths: Tensor, near: float) -> str | None:
    """Found as a multiple of expected: one for all, or one for each completion."""
    rows = [
        _multiple(f, e, near * float(expected.abs().max()))
        for f, e in zip(found, expected, strict=True)
    ]
    pushed = [
        (c, int(n), e.sum().item())
        for c, n, e in zip(rows, lengths, expected, strict=True)
        if e.any()
    ]
    if any(c is None for c, _, _ in pushed):
        return None
    factors = torch.tensor([c for c, _, _ in pushed], dtype=torch.float64)
    sizes = torch.tensor([float(n) for _, n, _ in pushed], dtype=torch.float64)
    patterns = {
        "every push is the claim's": factors,
        "every push is the claim's times |o|, the tokens of its completion,": factors / sizes,
        "every push is the claim's divided by |o|, the tokens of its completion,": factors * sizes,
    }
    for what, values in patterns.items():
        if torch.allclose(values, values[:1].expand_as(values), rtol=1e-7):
            return f"{what} times {values[0]:.6g}."
    listed = ", ".join(f"{c:.4g} ({n} tokens)" for c, n, _ in pushed)
    return f"the pushes are the claim's times a factor of the completion: {listed}."


def _multiple(found: Tensor, expected: Tensor, near: float) -> float | None:
    """c with found = c · expected, or None; 0 where both are 0."""
    square = float((expected * expected).sum())
    if square == 0:
        return None if float(found.abs().max()) > near else 0.0
    c = float((found * expected).sum()) / square
    return c if float((found - c * expected).abs().max()) <= 10 * near * max(1.0, abs(c)) else None


def _worst(found: Tensor, expected: Tensor) -> str:
    apart = (found - expected).abs()
    i, t = divmod(int(apart.argmax()), apart.shape[1])
    count = int((apart > NEAR * float(expected.abs().max())).sum())
    return (
        f"{count} tokens differ; most: completion {i + 1}, token {t + 1}: found "
        f"{found[i, t]:.6g}, the claim gives {expected[i, t]:.6g}."
    )


def without_token(rollouts: Rollouts, row: int) -> Rollouts:
    """The same rollouts with a completion that has no trained token."""
    mask = rollouts.mask.clone()
    mask[row] = False
    return replace(rollouts, mask=mask)
