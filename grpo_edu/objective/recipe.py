"""Recipe: one choice per axis. It makes the loss, differentiable by the log-probs, and writes its
own formula.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..checks import instance
from ..rollouts import Rollouts
from . import axes
from .advantages import no_baseline, unscaled
from .aggregation import (
    generation_token_mean,
    micro_batch_token_mean,
    prompt_token_mean,
    sequence_mean,
    step_token_mean,
)
from .axes import Choice
from .filters import TakingPart
from .surrogates import reinforce

TOKEN_MEANS = (step_token_mean, prompt_token_mean, micro_batch_token_mean, generation_token_mean)
AXES = (
    "rewards",
    "filters",
    "baseline",
    "scale",
    "surrogate",
    "correction",
    "kl",
    "aggregation",
    "kl_aggregation",
)


OPTIONAL = ("correction", "kl", "kl_aggregation")


class RecipeWarning(UserWarning):
    """A combination that runs, and that is known to be unintended; the message says why."""


class MissingReferenceWarning(UserWarning):
    """The recipe has a KL term and the rollouts have no ``ref_logp``: the term was left out."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What is fixed once per optimiser step, before any gradient: computed on the whole step, then
    sliced.

    Args:
        mask: ``[N, T]`` bool, tokens that learn after filtering.
        advantage: ``[N, T]``, 0 under the mask and on rows without a score.
        W: ``[N, T]`` aggregation weight of the surrogate.
        W_kl: ``[N, T]`` aggregation weight of the KL term.
    """

    mask: Tensor
    advantage: Tensor
    W: Tensor
    W_kl: Tensor

    def __getitem__(self, rows: Tensor | slice) -> Plan:
        """The given rows, for one micro-batch."""
        return Plan(self.mask[rows], self.advantage[rows], self.W[rows], self.W_kl[rows])


@dataclass(frozen=True, eq=False)
class Recipe:
    r"""A loss of the GRPO family: one choice on each axis, nothing more.

    .. math::
        \mathcal{L} = -\sum_{i,t} W_{it}\, f_{it}(\rho, A) + \sum_{i,t} W^{KL}_{it}\,
        \beta\,\mathrm{kl}_{it}

    Each choice is a pure function of this package (or your own) with its settings bound by
    ``functools.partial``::

        Recipe(baseline=group_mean, scale=partial(group_std, ddof=1, eps=0.0),
               surrogate=partial(ppo_clip, eps_low=0.2, eps_high=0.2), aggregation=sequence_mean)

    Args:
        baseline, scale: the advantage (``objective.advantages``).
        surrogate: ratio and clip (``objective.surrogates``).
        aggregation: weight per token (``objective.aggregation``).
        correction: importance correction for the sampling engine (``objective.corrections``),
            None for none.
        kl: KL term in the loss (``objective.kl``), None for none.
        kl_aggregation: where the KL term is averaged differently; None: as the surrogate.
        rewards: reward shaping, in order.
        filters: who takes part, in order (``objective.filters``).
        name, title, paper, defaults: what it is called, where it comes from, and which settings
            its paper prints.

    Warns:
        RecipeWarning: a combination known to be unintended. It still runs, since frameworks do
            run it.
    """

    baseline: Choice = no_baseline
    scale: Choice = unscaled
    surrogate: Choice = reinforce
    aggregation: Choice = sequence_mean
    correction: Choice | None = None
    kl: Choice | None = None
    kl_aggregation: Choice | None = None
    rewards: tuple[Choice, ...] = ()
    filters: tuple[Choice, ...] = ()
    name: str = "custom"
    title: str = ""
    paper: str = ""
    defaults: str = ""

    def __post_init__(self) -> None:
        for text in ("name", "title", "paper", "defaults"):
            instance(text, getattr(self, text), str)
        for axis in AXES:
            given = getattr(self, axis)
            if axis in ("rewards", "filters"):
                instance(axis, given, tuple)
                choices = given
            else:
                choices = () if given is None and axis in OPTIONAL else (given,)
            for choice in choices:
                axes.check(choice, axis)
        for reason in self.concerns():
            warnings.warn(f"{self.name}: {reason}", RecipeWarning, stacklevel=3)

    # --- what it computes -------------------------------------------------------------------------

    @torch.no_grad()
    def plan(self, rollouts: Rollouts, micro_batch: Tensor | None = None) -> Plan:
        """Advantages and aggregation weights of one optimiser step.

        Args:
            rollouts: every completion of the step.
            micro_batch: ``[N]`` integer, the micro-batch of each completion; None: one micro-batch.
                Only the micro-batch scope looks at it.

        Raises:
            ValueError: a choice needs a field that is missing, or a group baseline meets a
                group of one.
        """
        return self.plan_with_inputs(rollouts, micro_batch)[0]

    @torch.no_grad()
    def plan_with_inputs(
        self, rollouts: Rollouts, micro_batch: Tensor | None = None
    ) -> tuple[Plan, dict[str, Any]]:
        """The plan, and everything it was made from by name: shaped ``reward``, ``counted``,
        ``centred`` …
        """
        inputs = self._step_inputs(rollouts, micro_batch)
        for shaping in self.rewards:
            if "ref_logp" in axes.inputs_of(shaping) and rollouts.ref_logp is None:
                self._tell_missing_reference(shaping)
            else:
                inputs.update(axes.run(shaping, inputs))
        part = TakingPart(inputs["mask"], inputs["present"], inputs["counted"])
        for narrow in self.filters:
            part = axes.run(narrow, {**inputs, **part._asdict()})
        inputs.update(part._asdict())
        advantage = self._advantage(inputs, rollouts)
        inputs["advantage"] = advantage
        W = axes.run(self.aggregation, inputs).double()
        W_kl = axes.run(self.kl_aggregation, inputs).double() if self.kl_aggregation else W
        return Plan(part.mask, advantage, W, W_kl), inputs

    def loss(
        self, rollouts: Rollouts, plan: Plan | None = None, *, micro_batch: Tensor | None = None
    ) -> Tensor:
        """The scalar loss, differentiable by ``rollouts.logp``.

        With micro-batches, make the plan once and add the losses of its slices; they sum to the
        loss of the whole step::

            plan = recipe.plan(rollouts, micro_batch)
            for rows in slices:
                recipe.loss(rollouts[rows].with_logp(model(...)), plan[rows]).backward()

        Args:
            rollouts: the completions; float16 and bfloat16 log-probs are computed in float32.
            plan: of exactly these rows; None: made here.
            micro_batch: see ``plan``; only where no plan is given.

        Warns:
            MissingReferenceWarning: there is a KL term but no ``ref_logp``; it is left out.
        """
        plan = self.plan(rollouts, micro_batch) if plan is None else plan
        if plan.mask.shape != rollouts.mask.shape:
            raise ValueError(
                f"plan is for {list(plan.mask.shape)} but rollouts are "
                f"{list(rollouts.mask.shape)}: expected the plan of "
                "these rows. Slice both alike: recipe.loss(rollouts[rows], plan[rows])."
            )
        inputs = self.token_inputs(rollouts, plan)
        value = -(self.corrected(plan, inputs) * axes.run(self.surrogate, inputs)).sum()
        kl = self.active_kl(rollouts)
        if kl is not None:
            value = value + (plan.W_kl.to(inputs["logp"].dtype) * axes.run(kl, inputs)).sum()
        return value

    def active_kl(self, rollouts: Rollouts) -> Choice | None:
        """The KL term that these rollouts can have: None, with a warning, where ``ref_logp`` is
        missing.
        """
        if self.kl is None or "ref_logp" not in axes.inputs_of(self.kl):
            return self.kl
        if rollouts.ref_logp is None:
            self._tell_missing_reference(self.kl)
            return None
        return self.kl

    def _tell_missing_reference(self, choice: Choice) -> None:
        warnings.warn(
            f"{self.name} has the KL term {axes.describe(choice)} but rollouts.ref_logp is "
            "missing: the term is left out. "
            "Give ref_logp, or take the term out of the recipe: recipe.but(kl=None).",
            MissingReferenceWarning,
            stacklevel=4,
        )

    def corrected(self, plan: Plan, inputs: dict[str, Any]) -> Tensor:
        """``[N, T]`` aggregation weight times the importance correction, which is detached."""
        W = plan.W.to(inputs["logp"].dtype)
        if self.correction is None:
            return W
        return W * axes.run(self.correction, inputs).detach()

    def token_inputs(self, rollouts: Rollouts, plan: Plan) -> dict[str, Any]:
        """What surrogates and KL terms may look at, in float32 or wider, with everything under the
        mask selected away.
        """
        mask = plan.mask

        def live(value: Tensor | None) -> Tensor | None:
            if value is None:
                return None
            wide = value if value.dtype in (torch.float32, torch.float64) else value.float()
            return torch.where(mask, wide, 0.0)

        logp = live(rollouts.logp)
        assert logp is not None
        old = live(rollouts.old_logp)
        return {
            "logp": logp,
            "old_logp": logp.detach() if old is None else old,
            "ref_logp": live(rollouts.ref_logp),
            "sampler_logp": live(rollouts.sampler_logp),
            "entropy": live(rollouts.entropy),
            "mask": mask,
            "advantage": plan.advantage.to(logp.dtype),
        }

    def _step_inputs(self, rollouts: Rollouts, micro_batch: Tensor | None) -> dict[str, Any]:
        """Everything that rewards, filters, advantages and aggregations may ask for, by name."""
        if micro_batch is None:
            micro_batch = torch.zeros_like(rollouts.group)
        if micro_batch.shape != rollouts.group.shape:
            raise ValueError(
                f"micro_batch has shape {list(micro_batch.shape)}: expected [{len(rollouts)}], one "
                "number per row."
            )
        inputs = {name: getattr(rollouts, name, None) for name in axes.inputs_at("baseline")}
        reward = rollouts.reward
        counted = (
            torch.ones_like(rollouts.group, dtype=torch.bool)
            if rollouts.scored is None
            else rollouts.scored
        )
        present = torch.ones_like(counted)
        return {
            **inputs,
            "reward": reward,
            "raw_reward": reward,
            "counted": counted,
            "present": present,
            "micro_batch": micro_batch,
        }

    def _advantage(self, inputs: dict[str, Any], rollouts: Rollouts) -> Tensor:
        """``[N, T]`` scaled advantages, 0 under the mask and on unscored rows."""
        inputs["centred"] = axes.run(self.baseline, inputs)
        advantage = axes.run(self.scale, inputs)
        if advantage.ndim == 2 and getattr(axes.function_of(self.surrogate), "per_sequence", False):
            raise ValueError(
                f"{axes.describe(self.surrogate)} has one ratio per completion, but "
                f"{axes.describe(self.baseline)} gives one "
                "advantage per token: expected one per completion. Use a token-level surrogate."
            )
        if advantage.ndim == 1:
            advantage = advantage[:, None].expand(rollouts.mask.shape)
        scored = rollouts.scored[:, None]  # type: ignore[index]
        return torch.where(inputs["mask"] & scored, advantage, 0.0)

    # --- what it needs ------------------------------------------------------------------------

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Every choice that is not None, axis by axis."""
        return tuple(choice for axis in AXES for choice in as_tuple(getattr(self, axis)))

    @property
    def needs_reference(self) -> bool:
        """True where a choice looks at ``ref_logp``."""
        return any("ref_logp" in axes.inputs_of(choice) for choice in self.choices)

    def lacking(self, absent: Sequence[str]) -> list[str]:
        """The fields of ``Rollouts`` that the recipe cannot do without, among those that are
        absent.
        """
        asked = set().union(*(axes.inputs_of(c, required=True) for c in self.choices))
        return sorted(asked.intersection(absent))

    # --- what it says -----------------------------------------------------------------------------

    def concerns(self) -> list[str]:
        """Why this combination is known to be unintended; empty where it is not."""
        surrogate = axes.function_of(self.surrogate)
        aggregation = axes.function_of(self.aggregation)
        reasons = []
        if getattr(surrogate, "per_sequence", False) and aggregation in TOKEN_MEANS:
            reasons.append(
                f"{surrogate.__name__} gives one ratio per completion and {aggregation.__name__} "
                "weights a completion by its tokens, so a long completion counts more than the "
                "paper's 1/N. Use sequence_mean."
            )
        concern = getattr(surrogate, "concern", None)
        own = concern(axes.settings(self.surrogate)) if concern else None
        return [*reasons, own] if own else reasons

    def describe(self) -> dict[str, str]:
        """The choice on each axis, in words: ``{"scale": "group_std(ddof=1, eps=0)", …}``."""
        return {
            axis: " + ".join(map(axes.describe, as_tuple(getattr(self, axis)))) or "none"
            for axis in AXES
        }

    def formula(self) -> dict[str, str]:
        """The plain-text formula of each axis, for terminals."""
        return {
            axis: " + ".join(map(axes.text, as_tuple(getattr(self, axis)))) or "none"
            for axis in AXES
        }

    def latex(self) -> str:
        """The whole loss as LaTeX, three lines: loss, weight, advantage."""
        kl = (
            f" - {axes.latex(self.kl)}"
            if self.kl is not None and self.kl_aggregation is None
            else ""
        )
        factor = "" if self.correction is None else axes.latex(self.correction)
        lines = [
            rf"\mathcal{{L}} &= -\sum_{{i,t}} "
            rf"W_{{it}}\Big[{factor}{axes.latex(self.surrogate)}{kl}\Big]"
        ]
        if self.kl is not None and self.kl_aggregation is not None:
            lines[0] += rf" + \sum_{{i,t}} {axes.latex(self.kl_aggregation)}\,{axes.latex(self.kl)}"
        lines.append(rf"W_{{it}} &= {axes.latex(self.aggregation)}")
        if "given" not in self.describe()["baseline"]:
            scale = axes.latex(self.scale)
            centred = axes.latex(self.baseline)
            lines.append(
                r"A &= " + (centred if scale == "1" else rf"\frac{{{centred}}}{{{scale}}}")
            )
        lines += [rf"r_i &\leftarrow {axes.latex(shaping)}" for shaping in self.rewards]
        lines += [rf"i &\in {axes.latex(narrow)}" for narrow in self.filters]
        return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"

    def _repr_latex_(self) -> str:
        return f"$$\n{self.latex()}\n$$"

    def __eq__(self, other: object) -> bool:
        """Equal where every axis has the same functions with the same values of their settings,
        whatever the name.
        """
        return isinstance(other, Recipe) and self.keys() == other.keys()

    def __hash__(self) -> int:
        return hash(tuple(self.keys().items()))

    def keys(self) -> dict[str, Any]:
        """What is compared, axis by axis: functions by identity, settings by value."""
        return {axis: axes.key(getattr(self, axis)) for axis in AXES}

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{axis}={value}" for axis, value in self.describe().items() if value != "none"
        )
        return f"Recipe({self.name}: {shown})"

    def but(self, name: str | None = None, **changes: Any) -> Recipe:
        """The same recipe with other choices: ``grpo.but(aggregation=step_token_mean)``."""
        unknown = set(changes) - {*AXES, "title", "paper", "defaults"}
        if unknown:
            raise TypeError(
                f"unknown axis {', '.join(sorted(unknown))}: expected one of {', '.join(AXES)}."
            )
        return replace(self, name=name or f"{self.name}*", **changes)


def as_tuple(choice: Choice | tuple[Choice, ...] | None) -> tuple[Choice, ...]:
    """The choices of an axis, which may hold several, one, or none."""
    return choice if isinstance(choice, tuple) else () if choice is None else (choice,)
