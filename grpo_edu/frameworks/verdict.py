"""What ``explain`` returns: a recipe in four lines, a label, biases with their direction, traps."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ..biases import difficulty_bias, length_bias
from ..objective import axes
from ..objective.advantages import given as given_advantage
from ..objective.advantages import unscaled
from ..objective.probes import neutral_rollouts
from ..objective.recipe import Recipe, RecipeWarning
from ..rollouts import Rollouts
from ..weights import token_weights
from . import labels
from .tables import LeftOut

# Without one of these there are no weights.
LOSS_AXES = {"surrogate", "aggregation", "baseline", "scale"}
NOT_COVERED = "not covered, see below"


class Trap(NamedTuple):
    """``text`` about ``key`` at ``line`` (0: the key is not in the file, its default counts).

    ``kind``: the key is ``unknown``, ``misspelt``, of another ``version``, ``repeated``; a
    ``setting`` does not do what it seems to; a ``name`` or comment calls the loss what it is not.
    """

    key: str
    line: int
    text: str
    kind: Literal["unknown", "misspelt", "version", "repeated", "setting", "name"]

    def __str__(self) -> str:
        default = "" if self.kind == "name" else " (default)"
        return f"{self.key}{f' (line {self.line})' if self.line else default}: {self.text}"


@dataclass(frozen=True)
class Verdict:
    """What a config really runs. Prints as text; ``to_dict`` for ``--json``.

    Args:
        framework, version: as which it was read.
        assumed: how the version was chosen, where the user gave none; else "".
        recipe: the loss on this package's axes.
        core: its advantage, surrogate and aggregation alone.
        push: of a token in completions of 10 (A = +1) and of 100 tokens (A = -1); see ``push``.
        advantage, aggregation, clip, kl: the four lines.
        label: "this is …, not …, because …".
        biases: with their direction; empty where a part of the loss is on no axis.
        traps: settings that do not do what they seem to.
        left_out: what no axis expresses; it is missing from ``recipe``.
        conditional: where another version or fork would change the verdict.
        unread: syntax that was not read, with its line.
        remaining: differences between the framework and ``recipe`` that are known.
        unknown: keys that the tables do not know, so that nothing is said of them.
        doubts: why the file may run another loss than this, and what would settle it.
        updates: optimiser steps per rollout; None where the config does not say.
        claim: the recipe that the config goes by; None where it claims none.
    """

    framework: str
    version: str
    assumed: str
    recipe: Recipe
    core: Recipe
    push: tuple[float, float]
    advantage: str
    aggregation: str
    clip: str
    kl: str
    label: str
    biases: list[str] = field(default_factory=list)
    traps: list[Trap] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    conditional: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    remaining: tuple[str, ...] = ()
    unknown: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    updates: float | None = None
    claim: str | None = None

    def lines(self) -> list[str]:
        """Advantage, aggregation, clip and KL, a line each."""
        return [
            f"advantage    {self.advantage}",
            f"aggregation  {self.aggregation}",
            f"clip         {self.clip}",
            f"KL           {self.kl}",
        ]

    def __str__(self) -> str:
        blocks = {
            "Not read, so that defaults stand in": self.unread,
            "Left out, since no axis expresses it": self.left_out,
            "Push per token": self.bars() if self.biases else [],
            "Biases (exact, read off the weights)": self.biases,
            "Traps": self.traps,
            "Would change the verdict": self.conditional,
            "Differs from this package": self.remaining,
            "Nothing is known here of these keys": self._keys_unknown(),
        }
        shown = [
            "\n".join([f"{title}:", *(f"  {row}" for row in rows)])
            for title, rows in blocks.items()
            if rows
        ]
        doubts = "".join(f" ({doubt})" for doubt in (self.assumed, *self.doubts) if doubt)
        read_as = f"read as {self.framework} {self.version}{doubts}"
        return "\n".join([read_as, "", *self.lines(), "", self.label, "", *shown])

    def _keys_unknown(self) -> list[str]:
        more = len(self.unknown) - 5
        shown = ", ".join(self.unknown[:5]) + (f" and {more} more" if more > 0 else "")
        return [shown] if shown else []

    def bars(self) -> list[str]:
        """The two pushes as bars on one scale."""
        largest = max(map(abs, self.push)) or 1.0
        rows = zip((" 10 tokens, A = +1", "100 tokens, A = -1"), self.push, strict=True)
        return [
            f"{title}  {'█' * round(30 * abs(value) / largest) or '▏':<30} {value:+.6f}"
            for title, value in rows
        ]

    def example(self) -> tuple[list[Recipe], Rollouts]:
        """What a picture shows: the paper's recipe that the config goes by, then the config.

        Returns:
            the recipes, and four completions of one prompt: R = 1 0 0 0, lengths 10 100 10 100.

        Raises:
            ValueError: a part of the loss is on no axis, so there are no weights to show.
        """
        if not self.biases:
            parts = "; ".join(map(str, self.left_out))
            raise ValueError(
                f"no weights to draw, since a part of this loss is on no axis: {parts}."
            )
        recipes = [self.core]
        if self.claim:
            published = core_of(labels.TARGETS[self.claim], name=f"{self.claim}, as published")
            recipes.insert(0, published)
        rewards = [1.0, 0.0, 0.0, 0.0]
        return recipes, neutral_rollouts([10, 100, 10, 100], rewards, [0] * 4, self.recipe)

    def headline(self) -> str:
        """The sentence over that picture."""
        short, long = map(abs, self.push)
        if math.isclose(short, long, rel_tol=1e-9):
            times = "as hard"
        else:
            times = f"{short / long:.3g} times as hard" if long else "infinitely harder"
        return (
            f"{self.framework} {self.version}: at equal advantage a token of a 10-token completion "
            f"is pushed {times} as one of 100"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        plain = {name: value for name, value in vars(self).items() if name != "core"}
        return {
            **plain,
            "recipe": self.recipe.describe(),
            "traps": [trap._asdict() for trap in self.traps],
            "left_out": [part._asdict() for part in self.left_out],
        }


# --- what is measured on a recipe -----------------------------------------------------------------


def core_of(recipe: Recipe, **changes: Any) -> Recipe:
    """Advantage, surrogate and aggregation alone, without the warnings about combinations."""
    plain = {"filters": (), "rewards": (), "kl": None, "correction": None, "kl_aggregation": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecipeWarning)
        return recipe.but(**plain, **changes)


def push(core: Recipe) -> tuple[float, float]:
    """Push of a token in a completion of 10 tokens (A = +1) and in one of 100 (A = -1).

    On policy, both in one micro-batch, constant C = 100 where the recipe names none.
    """
    plain = core_of(core, baseline=given_advantage, scale=unscaled)
    rollouts = Rollouts.from_lengths(
        [10, 100], [1, 0], given_advantage=[1.0, -1.0], max_new_tokens=100
    )
    short, long = token_weights(plain, rollouts)[:, 0].tolist()
    return short, long


def biases(core: Recipe, size: float | None) -> list[str]:
    """Length and difficulty bias, read off the weights; ``size``: completions per prompt."""
    if size is not None and 2 <= size <= 1024:
        difficulty = str(difficulty_bias(core, int(size)))
    else:
        difficulty = f"{difficulty_bias(core)} (G is not told: 8 is taken.)"
    return [str(length_bias(core)), difficulty]


# --- the four lines -------------------------------------------------------------------------------


def advantage_line(recipe: Recipe, lost: set[str]) -> str:
    """Baseline and scale, the shaping of rewards, and which groups take part.

    ``lost``, here and below: the axes of which a part is not covered.
    """
    if lost & {"baseline", "scale"}:
        return NOT_COVERED
    formula = axes.text(recipe.scale)
    function = axes.function_of(recipe.scale)
    if function is unscaled:
        scale = "not divided"
    else:
        scale = (
            f"then {formula}" if getattr(function, "centres", False) else f"divided by {formula}"
        )
    shaped = "".join(f"; reward: {axes.text(choice)}" for choice in recipe.rewards)
    groups = "".join(f"; only {axes.text(choice)}" for choice in recipe.filters)
    return f"{axes.text(recipe.baseline)}, {scale}{shaped}{groups}"


def aggregation_line(recipe: Recipe, pushes: tuple[float, float], lost: set[str]) -> str:
    """The aggregation, and the two pushes with each completion's share of the step."""
    if lost & {"aggregation", "surrogate"}:
        return NOT_COVERED
    short, long = pushes
    total = 10 * abs(short) + 100 * abs(long) or 1.0
    return (
        f"{axes.text(recipe.aggregation)}; lengths 10 (A = +1) and 100 (A = -1): "
        f"push per token {short:+.6g} and {long:+.6g}, "
        f"share {10 * short / total:+.4f} and {100 * long / total:+.4f}"
    )


def band(recipe: Recipe) -> str:
    """The clip band in ratio space, in words."""
    surrogate = axes.function_of(recipe.surrogate)
    return surrogate.band(axes.settings(recipe.surrogate))  # type: ignore[attr-defined]


def clip_line(recipe: Recipe, updates: float | None, lost: set[str]) -> str:
    """The clip band, and whether it can act."""
    if "surrogate" in lost:
        return NOT_COVERED + (f"; updates per rollout: {updates:g}" if updates else "")
    sampler = f"; times {axes.text(recipe.correction)} for the sampler" if recipe.correction else ""
    if updates is None:
        return f"{band(recipe)}; updates per rollout: not told by the config{sampler}"
    acts = "it can act" if updates > 1 else "idle, every ratio is 1"
    if updates < 1:
        acts = "a step asks for more completions than a rollout gives"
    plural = "" if updates == 1 else "s"
    return f"{band(recipe)}; {updates:g} update{plural} per rollout: {acts}{sampler}"


def kl_line(recipe: Recipe, lost: set[str]) -> str:
    """The KL terms."""
    if "kl" in lost:
        return NOT_COVERED
    terms = []
    if recipe.kl:
        own = recipe.kl_aggregation
        average = f", averaged by {axes.text(own)}" if own else ""
        terms.append(f"in the loss: {axes.text(recipe.kl)}{average}")
    for shaping in recipe.rewards:
        if "ref_logp" in axes.inputs_of(shaping):
            terms.append(f"in the reward: {axes.text(shaping)}")
    if "rewards" in lost:
        terms.append("a part in the reward is not covered, see below")
    return "; ".join(terms) or "none"
