"""Formula stepper: one token's weight, factor by factor, with the numbers put into the formula."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from typing import Any

import torch
from torch import Tensor

from .checks import checked
from .objective import axes
from .objective.numbers import Numbers, short, steps_of
from .objective.recipe import Recipe
from .rollouts import Rollouts
from .weights import Push


@dataclass(frozen=True)
class Step:
    """One line: what it is, its formula, the numbers in it, what comes out, and why (may be
    empty)."""

    name: str
    formula: str
    numbers: str
    value: float
    reason: str = ""

    @property
    def written(self) -> list[str]:
        """The numbers, step by step, down to the value."""
        steps = [*steps_of(self.numbers), short(self.value)]
        kept = [text for i, text in enumerate(steps) if i == 0 or text != steps[i - 1]]
        return [text.replace("**", "^") for text in kept]


@dataclass(frozen=True)
class Stepped:
    """The weight of one token, step by step. Prints as text, shows as a table in a notebook."""

    recipe: Recipe
    completion: int
    position: int
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        head = f"{self.recipe.name}: completion {self.completion}, token {self.position}"
        lines = [head]
        for step in self.steps:
            lines.append(f"{step.name:<12} {step.formula}")
            lines += [f"{'':<12} = {text}" for text in step.written]
            lines += [f"{'':<12} {step.reason}"] if step.reason else []
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "<tr><th>factor</th><th>formula</th><th>with numbers</th></tr>"
        rows = "".join(
            f"<tr><th>{escape(s.name)}</th><td>{escape(s.formula)}</td>"
            f"<td>{' = '.join(map(escape, s.written))} {escape(s.reason)}</td></tr>"
            for s in self.steps
        )
        return (
            f"<p>{escape(self.recipe.name)}: completion {self.completion}, token "
            f"{self.position}</p><table>{head}{rows}</table>"
        )


@checked
def step_through(
    recipe: Recipe,
    rollouts: Rollouts,
    completion: int,
    position: int,
    micro_batch: Tensor | None = None,
) -> Stepped:
    """Reward → advantage → ratio → gate → KL → W → weight of one token; the last line is its
    gradient weight.

    Args:
        recipe: the loss.
        rollouts: the completions of the step.
        completion, position: which token.
        micro_batch: ``[N]``.

    Raises:
        IndexError: no such token, or it is not trained.
    """
    rows, width = rollouts.mask.shape
    if (
        not (0 <= completion < rows and 0 <= position < width)
        or not rollouts.mask[completion, position]
    ):
        raise IndexError(
            f"token {completion},{position} is not a trained token: expected a completion 0 to "
            f"{rows - 1} and a position below its "
            f"length ({', '.join(map(str, rollouts.lengths.tolist()[:8]))}, …)."
        )
    n = Context(Push.of(recipe, rollouts, micro_batch), micro_batch).numbers(completion, position)
    return Stepped(recipe, completion, position, all_steps(recipe, n))


def all_steps(recipe: Recipe, n: Numbers) -> tuple[Step, ...]:
    """Every step of one token, from its reward to its push."""
    reward, centred, advantage, W = shared_steps(recipe, n)
    lines = [reward, centred, advantage]
    plain = getattr(axes.function_of(recipe.surrogate), "written", recipe) is None
    if not plain:
        lines.append(_line("ratio", recipe.surrogate, n, n.ratio, "ratio", _ratio_text(recipe)))
        gate = _line(
            "gate", recipe.surrogate, n, n.gate, "gate", f"gate of {axes.label(recipe.surrogate)}"
        )
        lines.append(replace(gate, reason=axes.numbers(recipe.surrogate, n, "reason") or ""))
    if recipe.correction is not None:
        lines.append(_line("correction", recipe.correction, n, n.correction))
    lines.append(W)
    if n.kl_choice is not None:
        lines.append(
            _line(
                "KL term", n.kl_choice, n, n.kl, formula="-W·d/dlogπ of " + axes.text(n.kl_choice)
            )
        )
    between = () if plain else (n.ratio, n.gate)
    product = " · ".join(short(x) for x in (n.advantage, n.W, *between, *n.corrections))
    total = product + (f" + {short(n.kl)}" if n.kl_choice is not None else "")
    formula = (
        ("A · W" if plain else "A · W · ratio · gate")
        + (" · correction" if n.corrections else "")
        + (" + KL" if n.kl_choice is not None else "")
    )
    lines.append(Step("push", formula, total, n.push))
    return tuple(lines)


def shared_steps(recipe: Recipe, n: Numbers) -> tuple[Step, Step, Step, Step]:
    """The steps that most recipes share between all tokens of a completion: reward, centred,
    advantage, W."""
    scale = axes.text(recipe.scale)
    divided = f"centred / ({scale})" if " + " in scale else f"centred / {scale}"
    if scale == "1":
        divided = "centred"
    return (
        Step("reward", "r_i" + _shaping(recipe), short(n.raw), n.r),
        _line("centred", recipe.baseline, n, n.centred),
        _line("advantage", recipe.scale, n, n.advantage, formula=divided),
        _line("W", recipe.aggregation, n, n.W),
    )


def _ratio_text(recipe: Recipe) -> str:
    written = getattr(axes.function_of(recipe.surrogate), "written", None)
    return written.text if written else "ratio of one's own surrogate"


def _shaping(recipe: Recipe) -> str:
    return "".join(f", then {axes.text(choice)}" for choice in recipe.rewards)


def _line(
    name: str,
    choice: axes.Choice,
    n: Numbers,
    value: float,
    part: str = "numbers",
    formula: str | None = None,
) -> Step:
    """One step; a choice without numbers (a user's own) shows its value alone."""
    written = axes.numbers(choice, n, part) or short(value)
    return Step(name, formula or axes.text(choice), written, float(value))


class Context:
    """What the numbers of every token of one push are made from, computed once.

    Args:
        push: of one recipe on one step.
        micro_batch: ``[N]``, as it was given to ``Push.of``.
    """

    def __init__(self, push: Push, micro_batch: Tensor | None) -> None:
        rollouts = push.rollouts
        self.push = push
        self.inputs = push.recipe.plan_with_inputs(rollouts, micro_batch)[1]
        token = push.recipe.token_inputs(rollouts, push.plan)
        self.token = {name: x.detach() for name, x in token.items() if isinstance(x, Tensor)}
        self.step = {
            "all_centred": self.inputs["centred"],
            "lengths": self.inputs["mask"].sum(dim=1),
            "mask": self.inputs["mask"],
            "present": self.inputs["present"],
            "group": self.inputs["group"],
            "micro_batch": self.inputs["micro_batch"],
            "limit": rollouts.max_new_tokens,
            "sign": push.plan.advantage.sum(dim=1).sign(),
            "advantages": push.plan.advantage,
            "kl_choice": push.recipe.active_kl(rollouts),
        }

    def numbers(self, i: int, t: int) -> Numbers:
        """Everything that a line may show, for token t of completion i."""
        parts = {name: value[i, t].item() for name, value in self.push.factors.items()}
        centred = self.inputs["centred"]
        return Numbers(
            i=i,
            t=t,
            raw=self.push.rollouts.reward[i],
            r=self.inputs["reward"][i].item(),
            inputs=self.inputs,
            token=self.token,
            centred=float(centred[i] if centred.ndim == 1 else centred[i, t]),
            length=int(self.step["lengths"][i]),
            kl_W=self.push.plan.W_kl[i, t].item(),
            corrections=[parts["correction"]] if "correction" in parts else [],
            push=self.push.token[i, t].item(),
            **self._peers(i),
            **self._own(i, t),
            **self.step,
            **parts,
        )

    def _peers(self, i: int) -> dict[str, Any]:
        """The rewards that completion i is compared with."""
        group = self.inputs["group"]
        peers = self.inputs["counted"] & (group == group[i])
        others = peers & (torch.arange(len(peers), device=peers.device) != i)
        reward = self.inputs["reward"]
        return {
            "peer_rows": peers,
            "peers": reward[peers].tolist(),
            "others": reward[others].tolist(),
        }

    def _own(self, i: int, t: int) -> dict[str, Any]:
        """Log-probabilities of the token and of its completion."""
        token = self.token
        following = self.inputs["mask"][i, t + 1 :].nonzero()[:, 0]
        sampler = token.get("sampler_logp")
        return {
            "logp": token["logp"][i, t],
            "old": token["old_logp"][i, t],
            "ref": token["ref_logp"][i, t] if "ref_logp" in token else None,
            "log_ratios": token["logp"][i] - token["old_logp"][i],
            "log_weights": None if sampler is None else token["old_logp"][i] - sampler[i],
            "next_token": t + 1 + int(following[0]) if len(following) else None,
        }
