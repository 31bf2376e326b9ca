"""Which loss is this function? Only its gradient ∂loss/∂logp is looked at, on small batches.

1. On policy: which advantage and which aggregation reproduce the pushes? All pairs are tried.
2. One completion, ratios swept: where does the push follow the ratio, where is it cut, does the
   ratio of one token move the others?
3. No advantage, a reference policy: which KL estimator, which sign, which average?
4. The mask: are padded positions pushed, do their values leak, is a fully masked batch NaN?
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import product
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from ..checks import checked
from ..objective import advantages as adv
from ..objective import aggregation as agg
from ..objective import axes, kl
from ..objective import surrogates as sur
from ..objective.recipe import Recipe, RecipeWarning
from ..rollouts import Rollouts
from ..weights import token_weights

SYNONYMS = {
    "logp": "logp log_prob log_probs logps logprobs per_token_logps new_logp policy_logp",
    "old_logp": "old_logp old_log_prob old_log_probs old_logps old_logprobs old_per_token_logps",
    "ref_logp": "ref_logp ref_log_prob ref_log_probs ref_logps ref_logprobs ref_per_token_logps",
    "advantage": "advantage advantages adv A",
    "reward": "reward rewards score scores",
    "group": "group groups index uid group_ids",
    "mask": "mask response_mask loss_mask completion_mask action_mask",
}
NEAR = 1e-8
EPS = (0.0, 1e-4, 1e-5, 1e-6, 1e-8, 1e-9)
Evidence = list[tuple[str, str]]
Curve = Callable[[float], float]


@dataclass(frozen=True)
class Identified:
    """What a loss function is, as far as its gradient shows.

    Args:
        advantage, aggregation, surrogate, kl: choices of this package with their settings, in
            words; "unknown" where none fits.
        faults: what is wrong, in words ("padding leak: …"); empty where no probe shows a fault.
        evidence: rows of a probe and its result.
        unseen: what the signature hides.
        idle: switches that change no push.
        recipe: the loss on this package's axes where every part was named, else None.
    """

    advantage: str
    aggregation: str
    surrogate: str
    kl: str
    faults: list[str] = field(default_factory=list)
    evidence: Evidence = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    recipe: Recipe | None = None
    idle: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The faults, else the recipe in words, else "unknown"; then the idle switches."""
        from .labels import describe

        parts = self.faults or [describe(self.recipe) if self.recipe else "unknown"]
        return "; ".join([*parts, *(f"flag without effect: {name}" for name in self.idle)])

    def __str__(self) -> str:
        rows = [
            f"{part:<12} {getattr(self, part)}"
            for part in ("advantage", "aggregation", "surrogate", "kl")
        ]
        rows += [
            "",
            self.name,
            "evidence:",
            *(f"  {probe}: {result}" for probe, result in self.evidence),
        ]
        return "\n".join([*rows, *(f"  not seen: {what}" for what in self.unseen)])


class Probe:
    """A loss function called with rollouts: arguments by name in, pushes out.

    Args:
        loss_fn: the function.
        settings: other arguments, handed on as they are.
        names: the function's names of our inputs, where they are unusual.
    """

    def __init__(
        self,
        loss_fn: Callable[..., Any],
        settings: dict[str, Any],
        names: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.loss_fn = loss_fn
        self.settings = settings
        self.parameters = _parameters(loss_fn)
        self.names = {
            ours: name
            for ours, synonyms in SYNONYMS.items()
            for name in self.parameters
            if name in synonyms.split()
        } | dict(names)
        for needed in ("logp", "mask"):
            if needed not in self.names:
                raise TypeError(
                    f"the loss has no argument for {needed} ({SYNONYMS[needed]}): "
                    f"it has {', '.join(self.parameters) or 'none'}."
                )
        if not {"advantage", "reward"} & set(self.names):
            raise TypeError(
                "the loss takes neither advantages nor rewards: expected one of them by name."
            )
        self.by_reward = "advantage" not in self.names
        self.per_completion = not self.by_reward
        self.per_completion = self.per_completion and self._runs()

    def _runs(self) -> bool:
        """Does the function run as it is called now?

        With advantages ``[N]`` one that wants ``[N, T]`` cannot: here N is not T.
        """
        try:
            pushes = self.weights(_batches()[0])
        except (ValueError, TypeError):
            return False
        return bool(torch.isfinite(pushes).all())

    def weights(self, rollouts: Rollouts) -> Tensor:
        """``[N, T]`` -∂loss/∂logp."""
        leaf = rollouts.logp.clone().requires_grad_()
        loss = self._loss(rollouts, leaf)
        try:
            return _push(loss, leaf)
        except RuntimeError as error:
            raise _raised(error, leaf) from error

    def value(self, rollouts: Rollouts) -> float:
        """The loss itself."""
        return self._loss(rollouts, rollouts.logp).item()

    def _loss(self, rollouts: Rollouts, leaf: Tensor) -> Tensor:
        """The loss with one element, ``leaf`` in place of ``logp``."""
        values = {
            "logp": leaf,
            "mask": rollouts.mask,
            "group": rollouts.group,
            "reward": rollouts.reward,
            "ref_logp": leaf.detach() if rollouts.ref_logp is None else rollouts.ref_logp,
            "old_logp": leaf.detach() if rollouts.old_logp is None else rollouts.old_logp,
        }
        if not self.by_reward and rollouts.given_advantage is not None:
            per_token = rollouts.given_advantage[:, None].expand_as(leaf)
            values["advantage"] = rollouts.given_advantage if self.per_completion else per_token
        arguments = {theirs: values[ours] for ours, theirs in self.names.items()}
        try:
            loss = self.loss_fn(**arguments, **self.settings)
            loss = loss[0] if isinstance(loss, tuple) and loss else loss
            if isinstance(loss, Tensor) and loss.numel() == 1:
                return loss
        except Exception as error:
            raise _raised(error, leaf) from error
        got = f"shape {list(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise TypeError(
            f"the loss returned {got}: expected a tensor with one element, or a tuple that starts "
            "with one."
        )


def _raised(error: Exception, leaf: Tensor) -> ValueError:
    """The loss's own error, in words."""
    return ValueError(
        f"the loss raised {type(error).__name__} on tensors of shape {list(leaf.shape)}: {error}"
    )


def _push(loss: Tensor, leaf: Tensor) -> Tensor:
    """-∂loss/∂leaf, 0 where the loss does not depend on it."""
    gradient = None
    if loss.requires_grad:
        gradient = torch.autograd.grad(loss.reshape(()), leaf, allow_unused=True)[0]
    return torch.zeros_like(leaf) if gradient is None else -gradient


def _parameters(loss_fn: Any) -> dict[str, inspect.Parameter]:
    """The arguments of a function by name.

    Raises:
        TypeError: no function, or its arguments cannot be seen.
    """
    try:
        return dict(inspect.signature(loss_fn).parameters)
    except (TypeError, ValueError):
        raise TypeError(
            f"loss_fn is {loss_fn!r}: expected a Python function with named arguments."
        ) from None


@checked
def identify(loss_fn: Callable[..., Any], **settings: Any) -> Identified:
    """Probe a loss function and say what it is.

    Args:
        loss_fn: returns a scalar (or a tuple that starts with one) from arguments that are matched
            by name: ``logp [N, T]``, ``mask [N, T]`` bool, ``advantages [N]`` or ``[N, T]``, or
            ``rewards [N]`` (with ``group [N]``), optional ``old_logp``, ``ref_logp [N, T]``.
        settings: other arguments, handed on as they are.

    Raises:
        TypeError: no function, an argument that is needed is missing, or no scalar came back.
        ValueError: the function itself raised.
    """
    probe = Probe(loss_fn, settings)
    evidence: Evidence = []
    faults = list(_mask_faults(probe, evidence))
    advantage, aggregation = _weights_on_policy(probe, faults, evidence)
    surrogate = _surrogate(probe, faults, evidence) if not faults else None
    _splits(probe, evidence)
    kl_term = _kl(probe, aggregation, faults, evidence)
    recipe = None
    if advantage and aggregation and surrogate and kl_term:
        name = getattr(loss_fn, "__name__", "identified")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecipeWarning)
            recipe = Recipe(*advantage, surrogate, aggregation, name=name, **kl_term)
    return Identified(
        advantage=" / ".join(map(axes.describe, advantage)) if advantage else "unknown",
        aggregation=axes.describe(aggregation) if aggregation else "unknown",
        surrogate=axes.describe(surrogate) if surrogate else "unknown",
        kl=_kl_in_words(kl_term),
        faults=faults,
        evidence=evidence,
        unseen=[
            what
            for name, what in UNSEEN.items()
            if name not in probe.names and not (name == "reward" and probe.by_reward)
        ],
        recipe=recipe,
        idle=list(_idle_flags(probe)),
    )


def _kl_in_words(kl_term: dict[str, Any] | None) -> str:
    if kl_term is None:
        return "unknown"
    return axes.describe(kl_term["kl"]) if kl_term["kl"] else "none"


UNSEEN = {
    "old_logp": "ratio and clip: there is no old_logp",
    "ref_logp": "KL: there is no ref_logp",
    "reward": "baseline and std: advantages come from outside",
    "group": "prompt scope and group statistics: there is no group",
}


# --- batches --------------------------------------------------------------------------------------


def _batch(lengths: list[int], rewards: list[float], group: list[int], width: int) -> Rollouts:
    """On-policy float64 rollouts padded to ``width``, advantages 1, -1, .5, -2 … from outside."""
    size = len(lengths)
    wave = torch.arange(size * width, dtype=torch.float64).remainder(7)
    advantage = torch.tensor([1.0, -1.0, 0.5, -2.0, 1.5, -0.7], dtype=torch.float64)
    return Rollouts(
        logp=-0.5 - 0.1 * wave.reshape(size, width),
        mask=torch.arange(width)[None] < torch.tensor(lengths)[:, None],
        reward=torch.tensor(rewards, dtype=torch.float64),
        group=torch.tensor(group),
        given_advantage=advantage[:size],
        max_new_tokens=width,
    )


def _batches() -> list[Rollouts]:
    """Differing N, widths, lengths, group sizes and reward scales: no two candidates agree."""
    return [
        _batch([2, 5, 3, 7], [1.0, 0.0, 0.0, 0.0], [0, 0, 0, 0], 9),
        _batch([1, 4, 6, 2, 3, 5], [1.0, 0.0, 3.0, 1.0, 0.0, 1.0], [0, 0, 1, 1, 1, 1], 8),
        _batch([4, 3, 1, 5], [0.02, 0.0, 0.01, 0.05], [0, 0, 1, 1], 6),
    ]


# --- 1: advantage and aggregation -----------------------------------------------------------------


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
    probe: Probe, faults: list[str], evidence: Evidence
) -> tuple[tuple[Any, Any] | None, Any]:
    """The first advantage × aggregation that gives the function's pushes.

    They may differ by a factor that is the same in every batch.
    """
    batches = _batches()
    pushes = [probe.weights(b) - probe.weights(_without_advantage(b)) for b in batches]
    if all((w == 0).all() for w in pushes):
        faults.append("no gradient: the loss does not move with logp")
        return None, None
    if not _depends_only_on_ratio(probe, batches[0], pushes[0]):
        faults.append(
            "the weight depends on log π itself, not on the ratio alone: a missing detach"
        )
        return None, None
    first_multiple = None
    for advantage, choice, expected in _candidates(probe.by_reward):
        factors = [_factor(w, e) for w, e in zip(pushes, expected, strict=True)]
        if None in factors:
            continue
        named = _named(choice, factors, faults, batches)  # type: ignore[arg-type]
        if named is not None:
            seen = "" if named is choice else f"as {axes.describe(choice)}, "
            formulas = f"{axes.describe(named)} × {axes.describe(advantage[0])}"
            what = f"{formulas}, {seen}factor {factors[0]:g}"
            evidence.append(("weights on policy, three batches", what))
            return advantage, named
        first_multiple = first_multiple or (choice, factors)
    if first_multiple is not None and not faults:
        _name_factor(*first_multiple, batches, faults)  # type: ignore[arg-type]
    return None, None


def _without_advantage(rollouts: Rollouts) -> Rollouts:
    """The same batch without a signal: equal rewards 0, advantages 0."""
    return replace(
        rollouts,
        reward=torch.zeros_like(rollouts.reward),
        given_advantage=torch.zeros(len(rollouts), dtype=torch.float64),
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
    """Every advantage × aggregation with its pushes on the three batches."""
    candidates = []
    for advantage, choice in product(_advantages(by_reward), AGGREGATIONS):
        recipe = Recipe(baseline=advantage[0], scale=advantage[1], aggregation=choice)
        plans = [recipe.plan(batch) for batch in _batches()]
        candidates.append((advantage, choice, [plan.advantage * plan.W for plan in plans]))
    return candidates


def _factor(pushes: Tensor, expected: Tensor) -> float | None:
    """c where pushes = c · expected, else None."""
    square = (expected * expected).sum()
    if square == 0:
        return None
    c = ((pushes * expected).sum() / square).item()
    near = NEAR * float(pushes.abs().max())
    same = torch.allclose(pushes, c * expected, rtol=NEAR, atol=near)
    return c if same and c != 0 else None


def _named(choice: Any, factors: list[float], faults: list[str], batches: list[Rollouts]) -> Any:
    """A factor of 1 is the choice itself; another constant is a constant length, or a sign."""
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


def _name_factor(
    choice: Any, factors: list[float], batches: list[Rollouts], faults: list[str]
) -> None:
    """A factor that differs between batches as a count does: something is divided twice."""
    counts = {
        "the number of completions": [float(len(b)) for b in batches],
        "the number of prompts": [float(len(b.group.unique())) for b in batches],
        "the number of tokens": [float(b.mask.sum()) for b in batches],
        "the padded width": [float(b.mask.shape[1]) for b in batches],
        "the padded size": [float(b.mask.numel()) for b in batches],
    }
    formula = axes.describe(choice)
    for what, numbers in counts.items():
        divided = [f * n for f, n in zip(factors, numbers, strict=True)]
        multiplied = [f / n for f, n in zip(factors, numbers, strict=True)]
        if all(math.isclose(x, 1.0, rel_tol=1e-7) for x in divided):
            faults.append(f"double division: {formula} divided by {what} once more")
            return
        if all(math.isclose(x, 1.0, rel_tol=1e-7) for x in multiplied):
            faults.append(f"{formula} multiplied by {what}")
            return


def _splits(probe: Probe, evidence: Evidence) -> None:
    """Two equal halves of a batch, their gradients added, over the gradient of the whole."""
    whole = _batch([3, 3, 3, 3], [1.0, 0.0, 1.0, 0.0], [0, 0, 1, 1], 4)
    halves = torch.cat([probe.weights(whole[:2]), probe.weights(whole[2:])])
    factor = _factor(halves, probe.weights(whole))
    what = "not a multiple of the whole" if factor is None else f"{factor:g} times the whole"
    evidence.append(("two equal micro-batches added", what))


def _idle_flags(probe: Probe) -> Iterator[str]:
    """Arguments that are True or False and change no push when they are turned, at many ratios."""
    defaults = {name: parameter.default for name, parameter in probe.parameters.items()}
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
        except (TypeError, ValueError):
            continue  # turned, the function wants something else: the flag has an effect
        if same:
            yield name


# --- 2: the ratio ---------------------------------------------------------------------------------


def _swept(
    probe: Probe, ratio: float, sign: float, tokens: int = 4, only: int | None = None
) -> Tensor:
    """``[tokens]`` push relative to on-policy when a completion's tokens have this ratio.

    Args:
        ratio, sign: of the tokens, and of the completion's advantage.
        tokens: length of the completion.
        only: the one token that has the ratio; None: all have it.
    """
    base = _batch([tokens, tokens], [1.0, -0.5], [0, 0], tokens)
    advantage = torch.tensor([1.0, -1.0], dtype=torch.float64)
    row = 0 if sign > 0 else 1
    base = replace(base, given_advantage=advantage, logp=torch.full_like(base.logp, -15.0))
    moved = torch.zeros_like(base.logp)
    moved[row, slice(None) if only is None else only] = math.log(ratio)
    off = replace(base, logp=base.logp + moved, old_logp=base.logp)
    flat = replace(base, old_logp=base.logp)
    nothing = probe.weights(_without_advantage(off))[row]
    return (probe.weights(off)[row] - nothing) / (
        probe.weights(flat)[row] - probe.weights(_without_advantage(flat))[row]
    )


def _surrogate(probe: Probe, faults: list[str], evidence: Evidence) -> Any:
    """The ratio's part in the push, from sweeps."""
    if "old_logp" not in probe.names:
        return sur.reinforce
    pushes = _swept(probe, 1.0001, 1.0, only=1).tolist()
    factors = [round(value, 6) for value in pushes]
    evidence.append(("ratio 1.0001 on one token of four", f"factors {factors}"))
    other_token = pushes[0]
    if not math.isclose(other_token, 1.0, abs_tol=1e-9):
        averages = {"product": 1.0001, "mean": 1.0001**0.25}
        same = (
            k for k, ratio in averages.items() if math.isclose(other_token, ratio, rel_tol=1e-8)
        )
        return _sequence_surrogate(probe, next(same, ""), faults, evidence)
    curves = _curves(probe)
    ratios = (0.05, 0.5, 2.0, 20.0)
    if all(math.isclose(f(r), 1.0, rel_tol=1e-9) for f in curves.values() for r in ratios):
        return sur.reinforce
    return _token_surrogate(curves, faults, evidence)


def _curves(probe: Probe, power: int = 1) -> dict[float, Curve]:
    """For A > 0 and A < 0, the push by the ratio of the completion, ``power`` tokens multiplied."""

    def push(sign: float, ratio: float) -> float:
        return _swept(probe, ratio ** (1 / power), sign)[0].item()

    return {sign: partial(push, sign) for sign in (1.0, -1.0)}


def _token_surrogate(curves: dict[float, Curve], faults: list[str], evidence: Evidence) -> Any:
    """The surrogate behind a push that each token's own ratio decides."""
    up, down = curves[1.0], curves[-1.0]
    follows = [(_edge(curve, low=True), _edge(curve, low=False)) for curve in (up, down)]
    what = f"A > 0 in {_band(follows[0])}, A < 0 in {_band(follows[1])}"
    evidence.append(("the weight follows the ratio", what))
    if all(band == (0, math.inf) for band in follows):
        faults.append("no clip: the ratio is never cut")
        return None
    (up_low, up_high), (down_low, down_high) = follows
    sided = up_low == 0 and 1 < up_high < math.inf and 0 < down_low < 1
    if sided and up(up_high * 1.02) == 0 == down(down_low * 0.98):
        clip = {"eps_low": round(1 - down_low, 8), "eps_high": round(up_high - 1, 8)}
        if down_high == math.inf:
            return partial(sur.ppo_clip, **clip)
        return partial(sur.dual_clip, **clip, cap=round(down_high, 6))
    if follows[0] == follows[1] and all(_flat(curve, up_low, up_high) for curve in (up, down)):
        if up(up_high * 1.02) != 0:
            return partial(sur.cispo, low=round(up_low, 6), high=round(up_high, 6))
        faults.append(f"clipped on both sides whatever the sign of A: {_band(follows[0])}")
    elif up_low > 0 and up_high == math.inf and down_low == 0:
        faults.append("the clip is upside down: min and max are swapped")
    return _soft_gate(curves) if not faults else None


def _flat(curve: Curve, low: float, high: float) -> bool:
    """One value beyond the upper edge and one below the lower."""
    above = high == math.inf or math.isclose(curve(high * 1.02), curve(high * 3), rel_tol=1e-9)
    return above and (low == 0 or math.isclose(curve(low * 0.98), curve(low * 0.3), rel_tol=1e-9))


def _soft_gate(curves: dict[float, Curve]) -> Any:
    """SAPO's gate: 4σ(1-σ) at τ(ρ-1), τ solved from one point."""
    taus = {}
    for s, f in curves.items():
        gate = f(1.5) / 1.5
        if not 0 < gate < 1:
            return None
        soft = (1 + math.sqrt(1 - gate)) / 2
        taus[s] = round(math.log(soft / (1 - soft)) / 0.5, 7)
        soft = 1 / (1 + math.exp(-taus[s] * (0.7 - 1)))
        if not math.isclose(f(0.7), 0.7 * 4 * soft * (1 - soft), rel_tol=1e-5):
            return None
    return partial(sur.sapo, tau_pos=taus[1.0], tau_neg=taus[-1.0])


def _sequence_surrogate(probe: Probe, kind: str, faults: list[str], evidence: Evidence) -> Any:
    """One ratio for the completion: its clip, and whether single tokens are cut (GMPO).

    ``kind``: the ratio is the ``product`` or geometric ``mean`` of the tokens', or neither ("").
    """
    curves = _curves(probe, power=4 if kind == "product" else 1)
    high = _edge(curves[1.0], low=False)
    low = _edge(curves[-1.0], low=True)
    what = f"one ratio per completion ({kind or 'neither product nor geometric mean'})"
    evidence.append((what, f"cut above {high:g} (A > 0), below {low:g} (A < 0)"))
    if not kind:
        return None
    if high == math.inf or low == 0:
        faults.append("no clip: the sequence ratio is never cut")
        return None
    single = _swept(probe, high**2, 1.0, only=1)
    if kind == "mean" and single[1] == 0 and single[0] > 1:
        logs = {"eps_low": round(-math.log(low), 9), "eps_high": round(math.log(high), 9)}
        return partial(sur.gmpo, **logs)
    choice = sur.sequence_product if kind == "product" else sur.gspo
    return partial(choice, eps_low=round(1 - low, 9), eps_high=round(high - 1, 9))


def _edge(curve: Curve, low: bool) -> float:
    """Where the push stops to follow the ratio, below or above 1, by bisection.

    0 or inf where it never does.
    """
    inside = 1.0
    outside = 1e-4 if low else 1e4

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


# --- 3: KL ----------------------------------------------------------------------------------------


ESTIMATORS = (kl.k3, kl.k1, kl.k2, kl.k3_ratio, kl.k_abs, kl.k3_sequence_ratio)


def _kl(
    probe: Probe, aggregation: Any, faults: list[str], evidence: Evidence
) -> dict[str, Any] | None:
    """The KL term as arguments of ``Recipe``: ``kl``, and ``kl_aggregation`` where it has its own.

    ``kl`` is None without a KL gradient; the whole is None where no estimator fits.
    """
    absent = {"kl": None, "kl_aggregation": None}
    if "ref_logp" not in probe.names:
        return absent
    batch = _without_advantage(_batches()[1])
    pattern = torch.tensor([0.3, -0.2, 0.7, -0.5, 0.1], dtype=torch.float64).repeat(20)
    distance = pattern[: batch.logp.numel()].reshape(batch.logp.shape)
    on_policy = replace(batch, ref_logp=batch.logp - distance)
    batches = (replace(on_policy, old_logp=batch.logp - 0.2), on_policy)
    pushes = [probe.weights(rollouts) for rollouts in batches]
    if all(float(w.abs().max()) < 1e-15 for w in pushes):
        return absent
    averages = [choice for choice in dict.fromkeys([aggregation, *AGGREGATIONS]) if choice]
    for average, estimator in product(averages, ESTIMATORS):
        recipe = Recipe(baseline=adv.given, aggregation=average, kl=partial(estimator, beta=1.0))
        beta, again = (
            _factor(w, token_weights(recipe, b)) for w, b in zip(pushes, batches, strict=True)
        )
        if beta is None or again is None or not math.isclose(beta, again, rel_tol=1e-7):
            continue
        what = f"{beta:g} · {estimator.__name__} by {axes.describe(average)}"
        evidence.append(("advantage 0, reference at other log-probs", what))
        if beta < 0:
            faults.append("the KL term is subtracted: KL is maximised")
        own = None if average is aggregation else average
        return {"kl": partial(estimator, beta=round(beta, 9)), "kl_aggregation": own}
    return None


# --- 4: the mask ----------------------------------------------------------------------------------


def _mask_faults(probe: Probe, evidence: Evidence) -> Iterator[str]:
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
        off_by_one = (clean[~shifted] == 0).all() or (clean[:, :-1][~batch.mask[:, 1:]] == 0).all()
        yield (
            "the mask is shifted by one token"
            if off_by_one
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
