"""Which loss is this function? Probed from outside: only ∂loss/∂logp is looked at, on small batches made for one question each.

1. Everything at once, on policy: which advantage and which aggregation reproduce the weights (all combinations are tried)?
2. One completion, ratios swept: where does the weight follow the ratio, where is it cut, does one token's ratio move the others?
3. No advantage, a reference policy: which KL estimator, which sign, which average?
4. The mask: do padded positions get weight, do their values leak, does the padded width matter, does a fully masked batch give NaN?
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from ..checks import checked
from ..objective import advantages as adv
from ..objective import aggregation as agg
from ..objective import axes, kl
from ..objective.recipe import Recipe, RecipeWarning
from ..rollouts import Rollouts
from ..weights import token_weights

SYNONYMS = {
    "logp": (
        "logp",
        "log_prob",
        "log_probs",
        "logps",
        "logprobs",
        "per_token_logps",
        "new_logp",
        "policy_logp",
    ),
    "old_logp": (
        "old_logp",
        "old_log_prob",
        "old_log_probs",
        "old_logps",
        "old_logprobs",
        "old_per_token_logps",
    ),
    "ref_logp": (
        "ref_logp",
        "ref_log_prob",
        "ref_log_probs",
        "ref_logps",
        "ref_logprobs",
        "ref_per_token_logps",
    ),
    "advantage": ("advantage", "advantages", "adv", "A"),
    "reward": ("reward", "rewards", "score", "scores"),
    "group": ("group", "groups", "index", "uid", "group_ids"),
    "mask": ("mask", "response_mask", "loss_mask", "completion_mask", "action_mask"),
}
NEAR = 1e-8
EPS = (0.0, 1e-4, 1e-5, 1e-6, 1e-8, 1e-9)


@dataclass(frozen=True)
class Identified:
    """What a loss function is, as far as its gradient shows.

    Args:
        advantage, aggregation, surrogate, kl: names of choices of this package with their settings; "unknown" where none fits.
        faults: what is wrong, in words ("padding leak: …"); empty where nothing was found.
        evidence: (probe, what was found) rows.
        unseen: what the signature does not let one see.
        idle: switches that change no weight.
        recipe: the loss on this package's axes where every part was named, else None.
    """

    advantage: str
    aggregation: str
    surrogate: str
    kl: str
    faults: list[str] = field(default_factory=list)
    evidence: list[tuple[str, str]] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    recipe: Recipe | None = None
    idle: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The faults, or the catalog's words for the recipe, or "unknown"; then the switches without effect."""
        from .labels import describe

        known = self.faults or [describe(self.recipe) if self.recipe else "unknown"]
        return "; ".join([*known, *(f"flag without effect: {name}" for name in self.idle)])

    def __str__(self) -> str:
        rows = [
            f"{part:<12} {getattr(self, part)}"
            for part in ("advantage", "aggregation", "surrogate", "kl")
        ]
        rows += [
            "",
            self.name,
            "evidence:",
            *(f"  {probe}: {found}" for probe, found in self.evidence),
        ]
        return "\n".join([*rows, *(f"  not seen: {what}" for what in self.unseen)])


class Probe:
    """A loss function called with rollouts: arguments by name, weights out."""

    def __init__(self, loss_fn: Callable[..., Any], settings: dict[str, Any]) -> None:
        self.loss_fn, self.settings = loss_fn, settings
        parameters = list(inspect.signature(loss_fn).parameters)
        self.names = {
            ours: name for ours, theirs in SYNONYMS.items() for name in parameters if name in theirs
        }
        for needed in ("logp", "mask"):
            if needed not in self.names:
                raise TypeError(
                    f"the loss has no argument for {needed} ({', '.join(SYNONYMS[needed])}): it has {', '.join(parameters)}."
                )
        if not {"advantage", "reward"} & set(self.names):
            raise TypeError(
                "the loss takes neither advantages nor rewards: expected one of them by name."
            )
        self.by_reward = "advantage" not in self.names
        self.per_completion = not self.by_reward
        self.per_completion = self.per_completion and self._runs()

    def _runs(self) -> bool:
        """Does the function run as it is called now? With advantages ``[N]`` one that wants ``[N, T]`` cannot: here N is not T."""
        try:
            found = self.weights(_batches()[0])
        except (ValueError, TypeError):
            return False
        return bool(torch.isfinite(found).all())

    def weights(self, rollouts: Rollouts) -> Tensor:
        """``[N, T]`` -∂loss/∂logp."""
        leaf = rollouts.logp.clone().requires_grad_()
        values = {
            "logp": leaf,
            "mask": rollouts.mask,
            "group": rollouts.group,
            "reward": rollouts.reward,
            "ref_logp": leaf.detach() if rollouts.ref_logp is None else rollouts.ref_logp,
            "old_logp": leaf.detach() if rollouts.old_logp is None else rollouts.old_logp,
        }
        if not self.by_reward and rollouts.advantage is not None:
            per_token = rollouts.advantage[:, None].expand_as(leaf)
            values["advantage"] = rollouts.advantage if self.per_completion else per_token
        try:
            loss = self.loss_fn(
                **{theirs: values[ours] for ours, theirs in self.names.items()}, **self.settings
            )
        except Exception as error:
            shape = list(leaf.shape)
            raise ValueError(
                f"the loss raised {type(error).__name__} on tensors of shape {shape}: {error}"
            ) from error
        loss = loss[0] if isinstance(loss, tuple) else loss
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            got = f"shape {list(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise TypeError(
                f"the loss returned {got}: expected a tensor with one element, or a tuple that starts with one."
            )
        if not loss.requires_grad:
            return torch.zeros_like(leaf)
        gradient = torch.autograd.grad(loss.reshape(()), leaf, allow_unused=True)[0]
        return torch.zeros_like(leaf) if gradient is None else -gradient


@checked
def identify(loss_fn: Callable[..., Any], **settings: Any) -> Identified:
    """Probe a loss function and say what it is.

    Args:
        loss_fn: returns a scalar (or a tuple that starts with one) from arguments found by name: ``logp [N, T]``, ``mask [N, T]`` bool,
            ``advantages [N]`` or ``[N, T]``, or ``rewards [N]`` (with ``group [N]``), optional ``old_logp``, ``ref_logp [N, T]``.
        settings: other arguments, handed on as they are.

    Raises:
        TypeError: an argument that is needed is not there, or no scalar came back.
        ValueError: the function itself raised.
    """
    probe = Probe(loss_fn, settings)
    evidence: list[tuple[str, str]] = []
    faults = list(_mask_faults(probe, evidence))
    advantage, aggregation = _weights_on_policy(probe, faults, evidence)
    surrogate = _surrogate(probe, faults, evidence) if not faults else None
    _splits(probe, evidence)
    penalty, kl_aggregation = _kl(probe, aggregation, faults, evidence)
    unseen = [
        text
        for name, text in UNSEEN.items()
        if name not in probe.names and (name != "reward" or not probe.by_reward)
    ]
    choices = [*advantage, aggregation, surrogate] if advantage else [None]
    recipe = None
    if all(c is not None for c in choices) and penalty != "unknown":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecipeWarning)
            recipe = Recipe(
                baseline=advantage[0], scale=advantage[1], aggregation=aggregation, surrogate=surrogate,  # type: ignore[index,arg-type]
                kl=penalty if callable(penalty) else None, kl_aggregation=kl_aggregation, name=getattr(loss_fn, "__name__", "identified"),
            )  # fmt: skip
    said = [axes.describe(c) if callable(c) else "unknown" for c in (aggregation, surrogate)]
    return Identified(
        advantage=" / ".join(axes.describe(c) for c in advantage) if advantage else "unknown", aggregation=said[0], surrogate=said[1],
        kl=axes.describe(penalty) if callable(penalty) else penalty, faults=faults, evidence=evidence, unseen=unseen, recipe=recipe,
        idle=list(_idle_flags(probe)),
    )  # fmt: skip


UNSEEN = {
    "old_logp": "ratio and clip: there is no old_logp",
    "ref_logp": "KL: there is no ref_logp",
    "reward": "baseline and std: advantages come from outside",
    "group": "prompt scope and group statistics: there is no group",
}


# --- batches --------------------------------------------------------------------------------------------------------------


def _batch(
    lengths: list[int], rewards: list[float], group: list[int], width: int, **others: Any
) -> Rollouts:
    """On-policy float64 rollouts padded to ``width``, advantages 1, -1, .5, -2 … from outside."""
    mask = torch.arange(width)[None] < torch.tensor(lengths)[:, None]
    advantage = torch.tensor([1.0, -1.0, 0.5, -2.0, 1.5, -0.7], dtype=torch.float64)[: len(lengths)]
    logp = -0.5 - 0.1 * torch.arange(len(lengths) * width, dtype=torch.float64).reshape(
        len(lengths), width
    ).remainder(7)
    reward = torch.tensor(rewards, dtype=torch.float64)
    return Rollouts(
        logp=logp,
        mask=mask,
        reward=reward,
        group=torch.tensor(group),
        advantage=advantage,
        max_new_tokens=width,
        **others,
    )


def _batches() -> list[Rollouts]:
    """Differing N, widths, lengths, group sizes and reward scales: no two candidates agree on all of them."""
    return [
        _batch([2, 5, 3, 7], [1.0, 0.0, 0.0, 0.0], [0, 0, 0, 0], 9),
        _batch([1, 4, 6, 2, 3, 5], [1.0, 0.0, 3.0, 1.0, 0.0, 1.0], [0, 0, 1, 1, 1, 1], 8),
        _batch([4, 3, 1, 5], [0.02, 0.0, 0.01, 0.05], [0, 0, 1, 1], 6),
    ]


# --- 1: advantage and aggregation -----------------------------------------------------------------------------------------


def _advantages(by_reward: bool) -> Iterator[tuple[Any, Any]]:
    if not by_reward:
        yield adv.given, adv.unscaled
        return
    for baseline in (adv.group_mean, adv.leave_one_out, adv.no_baseline, adv.length_weighted_mean):
        yield baseline, adv.unscaled
    for eps in EPS:
        for ddof in (1, 0):
            yield adv.group_mean, partial(adv.group_std, ddof=ddof, eps=eps)
            yield adv.group_mean, partial(adv.batch_std, ddof=ddof, eps=eps)
            yield adv.no_baseline, partial(adv.batch_whiten, ddof=ddof, eps=eps)
        yield adv.leave_one_out, partial(adv.leave_one_out_std, ddof=1, eps=eps)
    yield adv.group_mean, adv.group_mean_scale


AGGREGATIONS = (
    agg.sequence_mean,
    agg.step_token_mean,
    agg.prompt_token_mean,
    agg.sequence_sum,
    agg.token_sum,
    agg.padded_width,
    agg.balanced,
)


def _weights_on_policy(
    probe: Probe, faults: list[str], evidence: list[tuple[str, str]]
) -> tuple[tuple[Any, Any] | None, Any]:
    """The first advantage × aggregation whose weights the function has, up to a number that is the same in every batch."""
    batches = _batches()
    found = [probe.weights(b) - probe.weights(_without_advantage(b)) for b in batches]
    if all((w == 0).all() for w in found):
        faults.append("no gradient: the loss does not move with logp")
        return None, None
    if not _depends_only_on_ratio(probe, batches[0], found[0]):
        faults.append(
            "the weight depends on log π itself, not on the ratio alone: a missing detach"
        )
        return None, None
    shifted = None
    for advantage, choice, expected in _candidates(probe.by_reward):
        factors = [_factor(w, e) for w, e in zip(found, expected, strict=True)]
        if None in factors:
            continue
        named = _named(choice, factors, faults, batches)  # type: ignore[arg-type]
        if named is not None:
            seen = "" if named is choice else f"as {axes.describe(choice)}, "
            what = f"{axes.describe(named)} × {axes.describe(advantage[0])}, {seen}factor {factors[0]:g}"
            evidence.append(("weights on policy, three batches", what))
            return advantage, named
        shifted = shifted or (advantage, choice, factors)
    if shifted is not None and not faults:
        _known_factor(*shifted, batches, faults)  # type: ignore[arg-type]
    return None, None


def _without_advantage(rollouts: Rollouts) -> Rollouts:
    """The same batch without a signal: equal rewards 0, advantages 0."""
    return replace(
        rollouts,
        reward=torch.zeros_like(rollouts.reward),
        advantage=torch.zeros(len(rollouts), dtype=torch.float64),
    )


def _depends_only_on_ratio(probe: Probe, batch: Rollouts, weights: Tensor) -> bool:
    moved = replace(batch, logp=batch.logp * 0.5)
    return torch.allclose(
        probe.weights(moved) - probe.weights(_without_advantage(moved)),
        weights,
        rtol=1e-7,
        atol=1e-12,
    )


@cache
def _candidates(by_reward: bool) -> list[tuple[tuple[Any, Any], Any, list[Tensor]]]:
    """Every advantage × aggregation with its weights on the three batches."""
    found = []
    for advantage in _advantages(by_reward):
        for choice in AGGREGATIONS:
            plans = [
                Recipe(baseline=advantage[0], scale=advantage[1], aggregation=choice).plan(b)
                for b in _batches()
            ]
            found.append((advantage, choice, [plan.advantage * plan.weight for plan in plans]))
    return found


def _factor(found: Tensor, expected: Tensor) -> float | None:
    """c where found = c · expected, else None."""
    square = (expected * expected).sum()
    if square == 0:
        return None
    c = ((found * expected).sum() / square).item()
    return (
        c
        if c != 0
        and torch.allclose(found, c * expected, rtol=NEAR, atol=NEAR * float(found.abs().max()))
        else None
    )


def _named(choice: Any, factors: list[float], faults: list[str], batches: list[Rollouts]) -> Any:
    """A factor of 1 is the choice itself; one constant other factor is a constant length, or a sign."""
    first = factors[0]
    if any(not math.isclose(f, first, rel_tol=1e-7) for f in factors):
        width = [f * b.mask.shape[1] for f, b in zip(factors, batches, strict=True)]
        if choice is agg.sequence_sum and all(math.isclose(w, 1.0, rel_tol=1e-7) for w in width):
            faults.append("divided by the padded width, which is another in every batch")
            return agg.padded_width
        return None
    if math.isclose(first, 1.0, rel_tol=1e-7):
        return choice
    if first < 0:
        faults.append("the sign is turned: the loss is maximised")
        return _named(choice, [-f for f in factors], [], batches)
    lengths = {agg.sequence_sum: agg.constant, agg.token_sum: agg.constant_sum}
    if choice in lengths:
        return partial(lengths[choice], length=round(1 / first, 6))
    faults.append(f"scaled: {axes.describe(choice)} times {first:g}")
    return choice


def _known_factor(
    advantage: Any, choice: Any, factors: list[float], batches: list[Rollouts], faults: list[str]
) -> None:
    """A factor that differs between batches and is a known count: something is divided (or multiplied) twice."""
    counts = {
        "the number of completions": [float(len(b)) for b in batches],
        "the number of prompts": [float(len(b.group.unique())) for b in batches],
        "the number of tokens": [float(b.mask.sum()) for b in batches],
        "the padded width": [float(b.mask.shape[1]) for b in batches],
        "the padded size": [float(b.mask.numel()) for b in batches],
    }
    for what, numbers in counts.items():
        for power, word in ((-1, "divided"), (1, "multiplied")):
            if all(
                math.isclose(f, n**power, rel_tol=1e-7)
                for f, n in zip(factors, numbers, strict=True)
            ):
                faults.append(
                    f"double division: {axes.describe(choice)} {word} by {what} once more"
                    if power < 0
                    else f"{axes.describe(choice)} {word} by {what}"
                )
                return


def _splits(probe: Probe, evidence: list[tuple[str, str]]) -> None:
    """Two equal halves of a batch, their gradients added, over the gradient of the whole."""
    whole = _batch([3, 3, 3, 3], [1.0, 0.0, 1.0, 0.0], [0, 0, 1, 1], 4)
    halves = torch.cat([probe.weights(whole[:2]), probe.weights(whole[2:])])
    factor = _factor(halves, probe.weights(whole))
    evidence.append(
        (
            "two equal micro-batches added",
            "not a multiple of the whole" if factor is None else f"{factor:g} times the whole",
        )
    )


def _idle_flags(probe: Probe) -> Iterator[str]:
    """Arguments that are True or False and change no weight when they are turned, on batches with all kinds of ratios."""
    defaults = {name: p.default for name, p in inspect.signature(probe.loss_fn).parameters.items()}
    batches = [
        replace(b, old_logp=b.logp + 0.4 * torch.sin(10 * b.logp), ref_logp=b.logp - 0.3)
        for b in _batches()
    ]
    for name, value in {**defaults, **probe.settings}.items():
        if not isinstance(value, bool):
            continue
        turned = Probe(probe.loss_fn, {**probe.settings, name: not value})
        try:
            same = all(
                torch.allclose(probe.weights(b), turned.weights(b), rtol=1e-12, atol=0.0)
                for b in batches
            )
        except (
            TypeError,
            ValueError,
        ):  # turned, the function wants what is not here: it has an effect
            continue
        if same:
            yield name


# --- 2: the ratio ---------------------------------------------------------------------------------------------------------


def _swept(
    probe: Probe, ratio: float, sign: float, tokens: int = 4, only: int | None = None
) -> Tensor:
    """``[tokens]`` weight relative to on-policy when every token of one completion (or one of them) has this ratio."""
    base = _batch([tokens, tokens], [1.0, -0.5], [0, 0], tokens)
    advantage = torch.tensor([1.0, -1.0], dtype=torch.float64)
    row = 0 if sign > 0 else 1
    base = replace(base, advantage=advantage, logp=torch.full_like(base.logp, -15.0))
    moved = torch.zeros_like(base.logp)
    moved[row, slice(None) if only is None else only] = math.log(ratio)
    off = replace(base, logp=base.logp + moved, old_logp=base.logp)
    flat = replace(base, old_logp=base.logp)
    nothing = probe.weights(_without_advantage(off))[row]
    return (probe.weights(off)[row] - nothing) / (
        probe.weights(flat)[row] - probe.weights(_without_advantage(flat))[row]
    )


def _surrogate(probe: Probe, faults: list[str], evidence: list[tuple[str, str]]) -> Any:
    """The ratio's part in the weight, from sweeps."""
    from ..objective import surrogates as sur

    if "old_logp" not in probe.names:
        return sur.reinforce
    one = _swept(probe, 1.0001, 1.0, only=1)
    evidence.append(
        ("ratio 1.0001 on one token of four", f"factors {[round(x, 6) for x in one.tolist()]}")
    )
    shared = not math.isclose(one[0].item(), 1.0, abs_tol=1e-9)
    if shared:
        kind = (
            "product"
            if math.isclose(one[0].item(), 1.0001, rel_tol=1e-8)
            else "mean"
            if math.isclose(one[0].item(), 1.0001**0.25, rel_tol=1e-8)
            else ""
        )
        return _sequence_surrogate(probe, kind, faults, evidence)
    curve = {s: partial(lambda s, r: _swept(probe, r, s)[0].item(), s) for s in (1.0, -1.0)}
    if all(
        math.isclose(curve[s](r), 1.0, rel_tol=1e-9) for s in curve for r in (0.05, 0.5, 2.0, 20.0)
    ):
        return sur.reinforce
    return _token_surrogate(curve, faults, evidence)


def _token_surrogate(
    curve: dict[float, Any], faults: list[str], evidence: list[tuple[str, str]]
) -> Any:
    from ..objective import surrogates as sur

    follows = {s: (_edge(curve[s], low=True), _edge(curve[s], low=False)) for s in curve}
    evidence.append(
        (
            "the weight follows the ratio",
            f"A > 0 in {_band(follows[1.0])}, A < 0 in {_band(follows[-1.0])}",
        )
    )
    if all(low == 0 and high == math.inf for low, high in follows.values()):
        faults.append("no clip: the ratio is never cut")
        return None
    (plow, phigh), (nlow, nhigh) = follows[1.0], follows[-1.0]
    if (
        plow == 0
        and 1 < phigh < math.inf
        and 0 < nlow < 1
        and curve[1.0](phigh * 1.02) == 0 == curve[-1.0](nlow * 0.98)
    ):
        clip = {"eps_low": round(1 - nlow, 8), "eps_high": round(phigh - 1, 8)}
        return (
            partial(sur.ppo_clip, **clip)
            if nhigh == math.inf
            else partial(sur.dual_clip, **clip, cap=round(nhigh, 6))
        )
    if (plow, phigh) == (nlow, nhigh) and all(_flat(f, plow, phigh) for f in curve.values()):
        if curve[1.0](phigh * 1.02) != 0:
            return partial(sur.cispo, low=round(plow, 8), high=round(phigh, 8))
        faults.append(f"clipped on both sides whatever the sign of A: [{plow:g}, {phigh:g}]")
    elif plow > 0 and phigh == math.inf and nlow == 0:
        faults.append("the clip is upside down: min and max are swapped")
    return _soft_gate(curve) if not faults else None


def _flat(curve: Callable[[float], float], low: float, high: float) -> bool:
    """One value beyond the upper edge and one below the lower."""
    above = high == math.inf or math.isclose(curve(high * 1.02), curve(high * 3), rel_tol=1e-9)
    return above and (low == 0 or math.isclose(curve(low * 0.98), curve(low * 0.3), rel_tol=1e-9))


def _soft_gate(curve: dict[float, Any]) -> Any:
    """SAPO's gate: 4σ(1-σ) at τ(ρ-1), τ solved from one point."""
    from ..objective import surrogates as sur

    taus = {}
    for s, f in curve.items():
        gate = f(1.5) / 1.5
        if not 0 < gate < 1:
            return None
        soft = (1 + math.sqrt(1 - gate)) / 2
        taus[s] = round(math.log(soft / (1 - soft)) / 0.5, 7)
        soft = 1 / (1 + math.exp(-taus[s] * (0.7 - 1)))
        if not math.isclose(f(0.7), 0.7 * 4 * soft * (1 - soft), rel_tol=1e-5):
            return None
    return partial(sur.sapo, tau_pos=taus[1.0], tau_neg=taus[-1.0])


def _sequence_surrogate(
    probe: Probe, kind: str, faults: list[str], evidence: list[tuple[str, str]]
) -> Any:
    """One ratio for the completion: its clip, and whether single tokens are cut (GMPO)."""
    from ..objective import surrogates as sur

    power = 4 if kind == "product" else 1
    curve = {
        s: partial(lambda s, r: _swept(probe, r ** (1 / power), s)[0].item(), s)
        for s in (1.0, -1.0)
    }
    high, low = _edge(curve[1.0], low=False), _edge(curve[-1.0], low=True)
    evidence.append(
        (
            f"one ratio per completion ({kind or 'neither product nor geometric mean'})",
            f"cut above {high:g} (A > 0), below {low:g} (A < 0)",
        )
    )
    if not kind or high == math.inf or low == 0:
        if kind:
            faults.append("no clip: the sequence ratio is never cut")
        return None
    single = _swept(probe, high**2, 1.0, only=1)
    if kind == "mean" and single[1] == 0 and single[0] > 1:
        return partial(
            sur.gmpo, eps_low=round(-math.log(low), 9), eps_high=round(math.log(high), 9)
        )
    choice = sur.sequence_product if kind == "product" else sur.gspo
    return partial(choice, eps_low=round(1 - low, 9), eps_high=round(high - 1, 9))


def _edge(curve: Callable[[float], float], low: bool) -> float:
    """Where the weight stops to follow the ratio, below or above 1, by bisection; 0 or inf where it never does."""
    inside, outside = 1.0, 1e-4 if low else 1e4

    def follows(ratio: float) -> bool:
        return math.isclose(curve(ratio), ratio, rel_tol=1e-7)

    if follows(outside):
        return 0.0 if low else math.inf
    for _ in range(60):
        middle = math.sqrt(inside * outside)
        inside, outside = (middle, outside) if follows(middle) else (inside, middle)
    return round(inside, 9)


def _band(pair: tuple[float, float]) -> str:
    return f"[{pair[0]:g}, {pair[1]:g}]"


# --- 3: KL ----------------------------------------------------------------------------------------------------------------


def _kl(
    probe: Probe, aggregation: Any, faults: list[str], evidence: list[tuple[str, str]]
) -> tuple[Any, Any]:
    """The estimator, its coefficient, and its average where it is not the surrogate's; ("none", None) without a KL gradient."""
    if "ref_logp" not in probe.names:
        return "none", None
    batch = _without_advantage(_batches()[1])
    distance = (
        torch.tensor([0.3, -0.2, 0.7, -0.5, 0.1], dtype=torch.float64)
        .repeat(20)[: batch.logp.numel()]
        .reshape(batch.logp.shape)
    )
    off = replace(batch, ref_logp=batch.logp - distance, old_logp=batch.logp - 0.2)
    plain = replace(batch, ref_logp=batch.logp - distance)
    found = [probe.weights(off), probe.weights(plain)]
    if all(float(w.abs().max()) < 1e-15 for w in found):
        return "none", None
    for choice in dict.fromkeys([aggregation, *AGGREGATIONS]):
        for estimator in (kl.k3, kl.k1, kl.k2, kl.k3_ratio, kl.k_abs, kl.k3_sequence_ratio):
            if choice is None:
                continue
            recipe = Recipe(baseline=adv.given, aggregation=choice, kl=partial(estimator, beta=1.0))
            betas = [
                _factor(w, token_weights(recipe, b))
                for w, b in zip(found, (off, plain), strict=True)
            ]
            if (
                betas[0] is not None
                and betas[1] is not None
                and math.isclose(betas[0], betas[1], rel_tol=1e-7)
            ):
                evidence.append(
                    (
                        "advantage 0, reference at other log-probs",
                        f"{betas[0]:g} · {estimator.__name__} by {axes.describe(choice)}",
                    )
                )
                if betas[0] < 0:
                    faults.append("the KL term is subtracted: KL is maximised")
                return partial(
                    estimator, beta=round(betas[0], 9)
                ), None if choice is aggregation else choice
    return "unknown", None


# --- 4: the mask ----------------------------------------------------------------------------------------------------------


def _mask_faults(probe: Probe, evidence: list[tuple[str, str]]) -> Iterator[str]:
    """Leaks of padding, a mask off by one, NaN without a token."""
    batch = _batches()[0]
    batch = replace(batch, ref_logp=batch.logp - 0.3)
    clean = probe.weights(batch)
    if not torch.isfinite(clean).all():
        yield "not finite on ordinary input"
        return
    under = clean[~batch.mask]
    evidence.append(("weights under the mask", f"largest {float(under.abs().max()):g}"))
    if (under != 0).any():
        shifted = torch.cat([torch.zeros_like(batch.mask[:, :1]), batch.mask[:, :-1]], dim=1)
        one_off = (clean[~shifted] == 0).all() or (clean[:, :-1][~batch.mask[:, 1:]] == 0).all()
        yield (
            "the mask is shifted by one token"
            if one_off
            else "padding leak: masked positions are pushed"
        )
        return
    pushed = (clean != 0).any(dim=1, keepdim=True)
    if ((clean == 0) & batch.mask & pushed).any():
        yield "trained tokens without weight: the mask is applied wrongly"
        return
    dirty = replace(
        batch,
        logp=torch.where(batch.mask, batch.logp, -3.0),
        old_logp=torch.where(batch.mask, batch.logp, -1.0),
    )
    if not torch.allclose(probe.weights(dirty), clean, rtol=NEAR, atol=1e-14):
        yield "padding leak: values under the mask change the weights"
        return
    empty = probe.weights(replace(batch, mask=torch.zeros_like(batch.mask)))
    evidence.append(
        ("a fully masked batch", "finite" if torch.isfinite(empty).all() else "not finite")
    )
