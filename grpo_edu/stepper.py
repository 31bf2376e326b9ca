"""Formula stepper: one token's weight, factor by factor, with the numbers put into the formula."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from types import SimpleNamespace as Numbers
from typing import Any

import torch
from torch import Tensor

from .checks import Index, checked
from .objective import advantages as adv
from .objective import aggregation as agg
from .objective import axes, kl
from .objective import surrogates as sur
from .objective.catalog import AnyRecipe
from .objective.recipe import Recipe
from .rollouts import Rollouts
from .weights import factors


@dataclass(frozen=True)
class Step:
    """One line: what it is, its formula, the numbers in it, and what comes out."""

    name: str
    formula: str
    numbers: str
    value: float


@dataclass(frozen=True)
class Stepped:
    """The weight of one token, step by step. Prints as text, shows as a table in a notebook."""

    recipe: Recipe
    completion: int
    position: int
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        head = f"{self.recipe.name}: completion {self.completion}, token {self.position}"
        lines = [
            f"{s.name:<12} {s.formula}\n{'':<12} = {s.numbers}\n{'':<12} = {_short(s.value)}"
            for s in self.steps
        ]
        return "\n".join([head, *lines])

    def _repr_html_(self) -> str:
        head = "<tr><th>factor</th><th>formula</th><th>with numbers</th><th>value</th></tr>"
        rows = "".join(
            f"<tr><th>{escape(s.name)}</th><td>{escape(s.formula)}</td><td>{escape(s.numbers)}</td><td>{_short(s.value)}</td></tr>"
            for s in self.steps
        )
        return f"<p>{escape(self.recipe.name)}: completion {self.completion}, token {self.position}</p><table>{head}{rows}</table>"


@checked
def step_through(
    recipe: AnyRecipe,
    rollouts: Rollouts,
    completion: Index,
    position: Index,
    micro_batch: Tensor | None = None,
) -> Stepped:
    """Reward → advantage → ratio → gate → KL → W → weight of one token; the last line is its gradient weight.

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
            f"completion, position {completion},{position} is not a trained token: expected a completion 0 to {rows - 1} and a position below its "
            f"length ({', '.join(map(str, rollouts.lengths.tolist()[:8]))}, …)."
        )
    n = _numbers(recipe, rollouts, completion, position, micro_batch)
    lines = [Step("reward", "r_i" + _shaping(recipe), _short(n.raw), n.r)]
    lines.append(_line("baseline", recipe.baseline, n, n.centred))
    divided = (
        "baseline" if axes.text(recipe.scale) == "1" else f"baseline / ({axes.text(recipe.scale)})"
    )
    lines.append(_line("advantage", recipe.scale, n, n.advantage, formula=divided))
    lines.append(_line("ratio", recipe.surrogate, n, n.ratio, RATIO, "ρ"))
    lines.append(
        _line("gate", recipe.surrogate, n, n.gate, GATE, "gate of " + axes.text(recipe.surrogate))
    )
    if recipe.correction is not None:
        lines.append(
            Step("correction", axes.text(recipe.correction), _short(n.correction), n.correction)
        )
    lines.append(_line("W", recipe.aggregation, n, n.W))
    if n.kl_choice is not None:
        lines.append(
            _line(
                "KL term", n.kl_choice, n, n.kl, formula="-W·d/dlogπ of " + axes.text(n.kl_choice)
            )
        )
    product = " · ".join(_short(x) for x in (n.advantage, n.W, n.ratio, n.gate, *n.corrections))
    total = product + (f" + {_short(n.kl)}" if n.kl_choice is not None else "")
    formula = (
        "A · W · ρ · gate"
        + (" · correction" if n.corrections else "")
        + (" + KL" if n.kl_choice is not None else "")
    )
    lines.append(Step("weight", formula, total, n.weight))
    return Stepped(recipe, completion, position, tuple(lines))


def _shaping(recipe: Recipe) -> str:
    return "".join(f", then {axes.text(choice)}" for choice in recipe.rewards)


def _short(value: Any) -> str:
    return f"{float(value):.6g}"


def _list(values: Sequence[float]) -> str:
    return ", ".join(map(_short, values))


def _line(
    name: str,
    choice: axes.Choice,
    n: Numbers,
    value: float,
    table: dict | None = None,
    formula: str | None = None,
) -> Step:
    """One step; a choice that has no entry in the table (a user's own) shows its value alone."""
    write = (BY_CHOICE if table is None else table).get(axes.function_of(choice))
    n.s = Numbers(**axes.settings(choice))
    numbers = _short(value) if write is None else write(n)
    return Step(name, formula or axes.text(choice), numbers, float(value))


def _numbers(
    recipe: Recipe, rollouts: Rollouts, i: int, t: int, micro_batch: Tensor | None
) -> Numbers:
    """Everything that a line may show, for one token."""
    plan, inputs = recipe.plan_with_inputs(rollouts, micro_batch)
    parts = {name: value[i, t].item() for name, value in factors(recipe, rollouts, plan).items()}
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
        scale_choice=recipe.scale,
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
        log_ratios=(token["logp"] - token["old_logp"])[i],
        sign=plan.advantage.sum(dim=1).sign(),
        advantages=plan.advantage,
        kl_choice=kl_choice,
        kl_W=plan.kl_weight[i, t].item(),
        corrections=[parts["correction"]] if "correction" in parts else [],
        **{"W" if name == "aggregation" else name: value for name, value in parts.items()},
    )


# --- baselines and scales: the numbers in the formula, written as plain arithmetic ------------------------------------------


def _length_weighted(n: Numbers) -> str:
    pairs = list(zip(n.lengths[n.peer_rows].tolist(), n.peers, strict=True))
    return f"{_short(n.r)} - ({' + '.join(f'{a}·{_short(b)}' for a, b in pairs)})/({' + '.join(str(a) for a, _ in pairs)})"


def _live_group_mean(n: Numbers) -> str:
    counted, dead = (
        n.inputs["counted"],
        adv.groups.is_dead(n.inputs["reward"], n.group, n.inputs["counted"]),
    )
    return f"{int(counted.sum())}/{int((counted & ~dead).sum())} · ({_short(n.r)} - mean({_list(n.peers)}))"


def _gae(n: Numbers) -> str:
    gamma, lam = n.s.gamma, getattr(n.s, "lam", 1.0)
    reward = adv._rewards_per_token(n.inputs["reward"], n.mask, n.inputs["token_reward"])[n.i, n.t]
    values = (
        n.inputs["value"] if hasattr(n.s, "lam") else torch.zeros_like(reward).expand(n.mask.shape)
    )
    ahead = 0.0 if n.next_token is None else values[n.i, n.next_token]
    after = 0.0 if n.next_token is None else n.all_centred[n.i, n.next_token]
    delta = f"({_short(reward)} + {gamma:g}·{_short(ahead)} - {_short(values[n.i, n.t])})"
    return f"{delta} + {gamma * lam:g}·{_short(after)}"


def _process(n: Numbers) -> str:
    rewards = n.inputs["token_reward"]
    step = n.mask & ~rewards.isnan()
    pool = rewards[step & n.peer_rows[:, None]].tolist()
    later = [rewards[n.i, t].item() for t in range(n.t, n.mask.shape[1]) if step[n.i, t]]
    if not later or max(pool) == min(pool):
        return "0"
    m, s = (
        _short(sum(pool) / len(pool)),
        _short(torch.tensor(pool, dtype=torch.float64).std(correction=n.s.ddof)),
    )
    return " + ".join(f"({_short(r)} - {m})/({s} + {n.s.eps:g})" for r in later)


def _pass_at_k(n: Numbers) -> str:
    size, right, k = len(n.peers), sum(r > 0 for r in n.peers), n.s.k
    return (
        f"{k}"
        if n.r > 0
        else f"{k}·(1 - comb({size - 1 - right}, {k - 1})/comb({size - 1}, {k - 1}))"
    )


def _decoupled(n: Numbers) -> str:
    terms = []
    for k, column in enumerate(n.inputs["reward_parts"].unbind(1)):
        pool, weight = column[n.peer_rows], 1.0 if n.s.weights is None else n.s.weights[k]
        pool = pool[~pool.isnan()].tolist()
        if not column[n.i].isnan() and len(set(pool)) > 1:
            spread = f"std({_list(pool)}, ddof={n.s.ddof})"
            terms.append(
                f"{weight:g}·({_short(column[n.i])} - mean({_list(pool)}))/({spread} + {n.s.eps:g})"
            )
    return " + ".join(terms) or "0"


def _over_std(values: Callable[[Numbers], list[float]]) -> Callable[[Numbers], str]:
    def write(n: Numbers) -> str:
        pool = values(n)
        dead = not pool or max(pool) == min(pool)
        return (
            "0"
            if dead
            else f"{_short(n.centred)}/(std({_list(pool)}, ddof={n.s.ddof}) + {n.s.eps:g})"
        )

    return write


def _leave_one_out_std(n: Numbers) -> str:
    if len(set(n.others)) < 2:
        return f"{_short(n.centred)}/1"
    return f"{_short(n.centred)}/(std({_list(n.others)}, ddof={n.s.ddof}) + {n.s.eps:g})"


def _whiten(n: Numbers) -> str:
    counted = n.inputs["counted"]
    if axes.function_of(n.scale_choice) is adv.token_whiten:
        wide = (
            n.all_centred
            if n.all_centred.ndim == 2
            else n.all_centred[:, None].expand(n.mask.shape)
        )
        pool = wide[n.mask & counted[:, None]].double()
    else:
        pool = n.all_centred[counted].double()
    spread = pool.std(correction=n.s.ddof)
    if pool.max() == pool.min():
        return "0"
    return f"({_short(n.centred)} - {_short(pool.mean())})/({_short(spread)} + {n.s.eps:g})"


# --- ratio and gate -------------------------------------------------------------------------------------------------------


def _token_ratio(n: Numbers) -> str:
    return f"exp({_short(n.logp)} - {_short(n.old)})"


def _geometric(n: Numbers) -> str:
    return f"exp({_short(n.log_ratios.sum())}/{n.length})"


def _gmpo_ratio(n: Numbers) -> str:
    good = n.advantage > 0
    cut = n.log_ratios.clamp(max=n.s.eps_high) if good else n.log_ratios.clamp(min=-n.s.eps_low)
    return f"exp({_short((cut * n.mask[n.i]).sum())}/{n.length})"


def _sapo_gate(n: Numbers) -> str:
    x = f"{n.s.tau_pos if n.advantage > 0 else n.s.tau_neg:g}·({_short(n.ratio)} - 1)"
    return f"4·sigmoid({x})·(1 - sigmoid({x}))"


# --- aggregation ----------------------------------------------------------------------------------------------------------


def _outside(write: Callable[[Numbers], str]) -> Callable[[Numbers], str]:
    """A token that a filter took out has weight 0."""
    return lambda n: write(n) if n.mask[n.i, n.t] else "0"


def _N(n: Numbers) -> int:
    counted = n.present if n.s.count_masked_rows else n.present & n.mask.any(dim=1)
    return max(1, int(counted.sum()))


def _P(n: Numbers) -> int:
    counted = n.present if n.s.count_masked_rows else n.present & n.mask.any(dim=1)
    return len(torch.unique(n.group[counted]))


def _C(n: Numbers) -> float:
    return n.limit if n.s.length is None else n.s.length


def _in_group(n: Numbers) -> Tensor:
    return n.group == n.group[n.i]


def _balanced(n: Numbers) -> str:
    same = _in_group(n) & (n.sign == n.sign[n.i]) & n.present
    size = int((_in_group(n) & n.present).sum())
    return f"1/{_P(n)} · {int(same.sum())}/{size} · 1/{int(n.lengths[same].sum())}"


def _length_power(n: Numbers) -> str:
    lengths = [x for x in n.lengths[_in_group(n)].tolist() if x > 0]
    mean = ", ".join(f"{x}**-{n.s.alpha:g}" for x in lengths)
    return f"1/{_N(n)} · 1/{_C(n):g} · {n.length}**-{n.s.alpha:g}/mean({mean})"


def _micro(n: Numbers) -> str:
    together = n.micro_batch == n.micro_batch[n.i]
    return f"1/{len(torch.unique(n.micro_batch))} · 1/{int(n.lengths[together].sum())}"


BY_CHOICE: dict[Callable[..., Any], Callable[[Numbers], str]] = {
    adv.no_baseline: lambda n: _short(n.r),
    adv.given: lambda n: _short(n.centred),
    adv.group_mean: lambda n: f"{_short(n.r)} - mean({_list(n.peers)})",
    adv.leave_one_out: lambda n: f"{_short(n.r)} - mean({_list(n.others)})",
    adv.batch_mean: lambda n: (
        f"{_short(n.r)} - mean({_list(n.inputs['reward'][n.inputs['counted']].tolist())})"
    ),
    adv.greedy: lambda n: f"{_short(n.r)} - {_short(n.inputs['greedy_reward'][n.i])}",
    adv.length_weighted_mean: _length_weighted,
    adv.live_group_mean: _live_group_mean,
    adv.gae: _gae,
    adv.return_to_go: _gae,
    adv.process_supervision: _process,
    adv.pass_at_k: _pass_at_k,
    adv.decoupled_rewards: _decoupled,
    adv.unscaled: lambda n: _short(n.centred),
    adv.group_std: _over_std(lambda n: n.peers),
    adv.batch_std: _over_std(lambda n: n.inputs["reward"][n.inputs["counted"]].tolist()),
    adv.leave_one_out_std: _leave_one_out_std,
    adv.group_mean_scale: lambda n: (
        f"{_short(n.centred)}/mean({_list(n.peers)})" if sum(n.peers) > 0 else "0"
    ),
    adv.batch_whiten: _whiten,
    adv.token_whiten: _whiten,
    agg.sequence_mean: _outside(lambda n: f"1/{_N(n)} · 1/{n.length}"),
    agg.step_token_mean: _outside(lambda n: f"1/{int(n.lengths.sum())}"),
    agg.prompt_token_mean: _outside(
        lambda n: f"1/{_P(n)} · 1/{int(n.lengths[_in_group(n)].sum())}"
    ),
    agg.micro_batch_token_mean: _outside(_micro),
    agg.generation_token_mean: _outside(lambda n: f"{n.s.steps:g}/{n.s.tokens:g}"),
    agg.constant: _outside(lambda n: f"1/{_N(n)} · 1/{_C(n):g}"),
    agg.constant_sum: _outside(lambda n: f"1/{_C(n):g}"),
    agg.sequence_sum: _outside(lambda n: f"1/{_N(n)}"),
    agg.token_sum: _outside(lambda n: "1"),
    agg.balanced: _outside(_balanced),
    agg.length_power: _outside(_length_power),
    kl.k1: lambda n: f"-{_short(n.kl_W)} · {n.s.beta:g}",
    kl.k2: lambda n: f"-{_short(n.kl_W)} · {n.s.beta:g}·({_short(n.logp)} - {_short(n.ref)})",
    kl.k3: lambda n: (
        f"-{_short(n.kl_W)} · {n.s.beta:g}·(1 - exp({_short(n.ref)} - {_short(n.logp)}))"
    ),
}

RATIO: dict[Callable[..., Any], Callable[[Numbers], str]] = {
    sur.reinforce: lambda n: "1",
    sur.ppo_clip: _token_ratio,
    sur.dual_clip: _token_ratio,
    sur.cispo: _token_ratio,
    sur.sapo: _token_ratio,
    sur.gspo: _geometric,
    sur.gspo_token: _geometric,
    sur.gmpo: _gmpo_ratio,
    sur.sequence_product: lambda n: f"exp({_short(n.log_ratios.sum())})",
}

GATE: dict[Callable[..., Any], Callable[[Numbers], str]] = {
    sur.cispo: lambda n: (
        f"min(max({_short(n.ratio)}, {n.s.low:g}), {n.s.high:g})/{_short(n.ratio)}"
    ),
    sur.sapo: _sapo_gate,
}
