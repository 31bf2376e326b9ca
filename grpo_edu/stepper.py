"""Formula stepper: one token's weight, factor by factor, with the numbers put into the formula."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape

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
    n = _numbers(recipe, rollouts, completion, position, micro_batch)
    lines = [Step("reward", "r_i" + _shaping(recipe), short(n.raw), n.r)]
    lines.append(_line("centred", recipe.baseline, n, n.centred))
    scale = axes.text(recipe.scale)
    divided = f"centred / ({scale})" if " + " in scale else f"centred / {scale}"
    if scale == "1":
        divided = "centred"
    lines.append(_line("advantage", recipe.scale, n, n.advantage, formula=divided))
    plain = getattr(axes.function_of(recipe.surrogate), "written", recipe) is None
    if not plain:
        lines.append(_line("ratio", recipe.surrogate, n, n.ratio, "ratio", _ratio_text(recipe)))
        gate = _line("gate", recipe.surrogate, n, n.gate, "gate", f"gate of {_label(recipe)}")
        lines.append(replace(gate, reason=axes.numbers(recipe.surrogate, n, "reason") or ""))
    if recipe.correction is not None:
        lines.append(_line("correction", recipe.correction, n, n.correction))
    lines.append(_line("W", recipe.aggregation, n, n.W))
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
    return Stepped(recipe, completion, position, tuple(lines))


def _ratio_text(recipe: Recipe) -> str:
    written = getattr(axes.function_of(recipe.surrogate), "written", None)
    return written.text if written else "ratio of one's own surrogate"


def _label(recipe: Recipe) -> str:
    function = axes.function_of(recipe.surrogate)
    return getattr(function, "label", function.__name__)


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


def _numbers(
    recipe: Recipe, rollouts: Rollouts, i: int, t: int, micro_batch: Tensor | None
) -> Numbers:
    """Everything that a line may show, for one token."""
    plan, inputs = recipe.plan_with_inputs(rollouts, micro_batch)
    push = Push.of(recipe, rollouts, micro_batch)
    parts = {name: value[i, t].item() for name, value in push.factors.items()}
    token = {
        k: v.detach()
        for k, v in recipe.token_inputs(rollouts, plan).items()
        if isinstance(v, Tensor)
    }
    counted, group, mask = inputs["counted"], inputs["group"], inputs["mask"]
    peers = counted & (group == group[i])
    others = peers.clone()
    others[i] = False
    centred = inputs["centred"]
    live = mask[i].nonzero()[:, 0]
    following = live[live > t]
    lengths = mask.sum(dim=1)
    kl_choice = recipe.active_kl(rollouts)
    return Numbers(
        i=i,
        t=t,
        raw=rollouts.reward[i],
        r=inputs["reward"][i].item(),
        peers=inputs["reward"][peers].tolist(),
        others=inputs["reward"][others].tolist(),
        peer_rows=peers,
        inputs=inputs,
        centred=float(centred[i] if centred.ndim == 1 else centred[i, t]),
        all_centred=centred,
        next_token=int(following[0]) if len(following) else None,
        lengths=lengths,
        mask=mask,
        length=int(lengths[i]),
        present=inputs["present"],
        group=group,
        micro_batch=inputs["micro_batch"],
        limit=rollouts.max_new_tokens,
        logp=token["logp"][i, t],
        old=token["old_logp"][i, t],
        ref=token["ref_logp"][i, t] if "ref_logp" in token else None,
        token=token,
        log_weights=(token["old_logp"] - token["sampler_logp"])[i]
        if "sampler_logp" in token
        else None,
        log_ratios=(token["logp"] - token["old_logp"])[i],
        sign=plan.advantage.sum(dim=1).sign(),
        advantages=plan.advantage,
        kl_choice=kl_choice,
        kl_W=plan.W_kl[i, t].item(),
        corrections=[parts["correction"]] if "correction" in parts else [],
        push=push.token[i, t].item(),
        **parts,
    )
