r"""Advantage = baseline, then scale.

A **baseline** turns rewards into centred advantages: ``(reward, group, counted, …) -> [N]`` (or
``[N, T]`` where credit differs by token). A **scale** divides them:
``(centred, reward, group, counted, …) -> `` the same shape.

``counted``, ``[N]`` bool, are the rows whose reward enters the statistics: scored, and not filtered
out of the baseline. ``ddof`` and ``eps`` are always explicit: which of n-1 or n, and how much is
added to the std, differs in every framework.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from . import axes, groups
from .axes import Choice, formula
from .numbers import Numbers, listed, short, with_eps


def _need_peers(choice: str, group: Tensor) -> None:
    """A group of one has nothing to be compared with."""
    values, sizes = torch.unique(group, return_counts=True)
    if (sizes == 1).any():
        alone = values[sizes == 1].tolist()
        raise ValueError(
            f"group size 1: no relative signal. {choice} compares completions of one prompt, but "
            "group "
            f"{', '.join(map(str, alone[:5]))} has a single one. Sample at least 2 per prompt, or "
            "use the baseline "
            "'no_baseline', 'batch_mean' or 'greedy'."
        )


# --- baselines ------------------------------------------------------------------------------------


def _minus_mean(pool: Callable[[Numbers], list[float]]) -> Callable[[Numbers], str]:
    """The numbers of a reward less the mean of a pool."""
    return lambda n: f"{short(n.r)} - mean({listed(pool(n))})"


def _batch_rewards(n: Numbers) -> list[float]:
    return n.inputs["reward"][n.inputs["counted"]].tolist()


@formula(r"r_i", "r_i", label="no baseline", numbers=lambda n: short(n.r))
def no_baseline(reward: Tensor) -> Tensor:
    r"""The reward itself.

    .. math:: A_i = r_i

    Source: REINFORCE, Williams 1992.
    """
    return reward


@formula(
    r"A_{it}\ \text{(given)}",
    "A (given)",
    label="given advantage",
    numbers=lambda n: short(n.centred),
)
def given(given_advantage: Tensor) -> Tensor:
    """Advantages computed elsewhere: ``rollouts.given_advantage``, ``[N]`` or ``[N, T]``, as a
    value model would give them.
    """
    return given_advantage


@formula(
    r"r_i-\mathrm{mean}_{j\in q(i)}\,r_j",
    "r_i - mean(r in group)",
    label="group mean",
    numbers=_minus_mean(lambda n: n.peers),
)
def group_mean(reward: Tensor, group: Tensor, counted: Tensor) -> Tensor:
    r"""Better or worse than the other completions of the same prompt.

    .. math:: A_i = r_i - \frac{1}{G}\sum_{j \in q(i)} r_j

    Its own reward is in the mean, so the expected gradient is (G-1)/G of the policy gradient.

        r  1 0 0 0   ->   A  .75 -.25 -.25 -.25

    Raises:
        ValueError: a group has one row.

    Source: DeepSeekMath (arXiv 2402.03300) §4.1.2; alone, without a scale: Dr. GRPO (arXiv
    2503.20783).
    """
    _need_peers("group_mean", group)
    centred = reward - groups.mean(reward, group, counted)
    return torch.where(groups.is_dead(reward, group, counted), torch.zeros_like(reward), centred)


@formula(
    r"r_i-\mathrm{mean}_{j\in q(i),\,j\ne i}\,r_j",
    "r_i - mean(r of the others in group)",
    label="leave-one-out mean",
    numbers=_minus_mean(lambda n: n.others),
)
def leave_one_out(reward: Tensor, group: Tensor, counted: Tensor) -> Tensor:
    r"""Compared with the *other* completions only: unbiased.

    .. math:: A_i = r_i - \frac{1}{G-1}\sum_{j \ne i} r_j = \frac{G}{G-1}\,(r_i - \bar r)

        r  1 0 0 0   ->   A  1 -1/3 -1/3 -1/3

    Raises:
        ValueError: a group has one row.

    Source: RLOO, Kool et al. 2019; Ahmadian et al. (arXiv 2402.14740).
    """
    _need_peers("leave_one_out", group)
    size = groups.size(group, counted).to(reward.dtype)
    return group_mean(reward, group, counted) * size / (size - 1).clamp(min=1)


@formula(
    r"r_i-\mathrm{mean}_j\,r_j",
    "r_i - mean(r in the batch)",
    label="batch mean",
    numbers=_minus_mean(lambda n: _batch_rewards(n)),
)
def batch_mean(reward: Tensor, counted: Tensor) -> Tensor:
    r"""Compared with the whole batch: completions of easy prompts come out good and of hard prompts
    bad, whatever they did.

    .. math:: A_i = r_i - \frac{1}{N}\sum_j r_j

        r  1 1 1 0 | 0 0 0 0   ->   A  .625 .625 .625 -.375 | -.375 -.375 -.375 -.375

    Source: the plain REINFORCE baseline; in place of the group mean it is a known mistake
    (flow_grpo issue 46, MetaClaw issue 58).
    """
    return reward - groups.mean(reward, _everyone(counted), counted)


# --- scales ---------------------------------------------------------------------------------------


@formula(r"1", "1", label="not scaled", numbers=lambda n: short(n.centred))
def unscaled(centred: Tensor) -> Tensor:
    r"""No division: a prompt's weight is what its rewards make it.

    Source: Dr. GRPO (arXiv 2503.20783); RLOO.
    """
    return centred


def _over_std(pool_of: Callable[[Numbers], list[float]]) -> Callable[[Numbers], str]:
    """The numbers of a centred advantage over the std of a pool, 0 where the pool has no spread."""

    def write(n: Numbers) -> str:
        pool = pool_of(n)
        if not pool or max(pool) == min(pool):
            return "0"
        return f"{short(n.centred)}/{with_eps(f'std({listed(pool)}, ddof={n.s.ddof})', n.s.eps)}"

    return write


@formula(
    r"\mathrm{std}_{j\in q(i)}(r_j;\ \mathrm{ddof}=<ddof>)+<eps>",
    "std(r in group, ddof=<ddof>) + <eps>",
    label="group std",
    numbers=_over_std(lambda n: n.peers),
)
def group_std(
    centred: Tensor,
    reward: Tensor,
    group: Tensor,
    counted: Tensor,
    *,
    ddof: int,
    eps: float,
    alone: float | None = None,
) -> Tensor:
    r"""Divided by the spread of the rewards of its own prompt: the difficulty bias.

    .. math::
        A_i \;/\; \Big(\sqrt{\tfrac{1}{G-\mathrm{ddof}}\textstyle\sum_{j \in q(i)} (r_j-\bar r)^2} +
        \epsilon\Big)

    A group whose rewards are all equal gets 0, whatever ``eps`` is. For right/wrong rewards the
    smallest std, so the largest weight, belongs to prompts that are almost always or almost never
    solved.

        r  1 0 0 0, ddof 1, eps 0   ->   A  1.5 -.5 -.5 -.5

    Args:
        centred: ``[N]`` centred advantages.
        reward, group, counted: ``[N]``.
        ddof: 1 divides by G-1 (torch's default: TRL, verl, OpenRLHF), 0 by G (numpy's:
            open-instruct, TRL's async trainer).
        eps: added to the std. 1e-4 TRL, 1e-6 verl, 1e-8 oat, 1e-9 OpenRLHF; the papers print none.
        alone: the std that a group of one is given (verl: 1); None: 0, as for any group without
            spread.

    Source: DeepSeekMath (arXiv 2402.03300) §4.1.2.
    """
    spread = groups.std(reward, group, counted, ddof)
    if alone is not None:
        spread = torch.where(groups.size(group, torch.ones_like(counted)) == 1, alone, spread)
    return _divided(centred, spread, eps)


def _everyone(rows: Tensor) -> Tensor:
    """One group that holds every row. A new tensor, so that under ``torch.vmap`` it is not batched
    like the data.
    """
    return torch.zeros(len(rows), dtype=torch.long, device=rows.device)


def _divided(centred: Tensor, spread: Tensor, eps: float) -> Tensor:
    """``centred / (spread + eps)``, 0 where the spread is 0; ``spread`` is ``[N]``, ``centred``
    ``[N]`` or ``[N, T]``.
    """
    scale = torch.where(spread > 0, 1 / torch.where(spread > 0, spread + eps, 1.0), 0.0)
    return centred * (scale if centred.ndim == 1 else scale[:, None])


# --- further baselines ----------------------------------------------------------------------------


@formula(
    r"r_i-r(\text{greedy})",
    "r_i - r(greedy completion)",
    label="greedy reward",
    numbers=lambda n: f"{short(n.r)} - {short(n.inputs['greedy_reward'][n.i])}",
)
def greedy(reward: Tensor, greedy_reward: Tensor) -> Tensor:
    r"""Compared with the greedy completion of the same prompt.

    .. math:: A_i = r_i - r(o^{greedy})

    Source: ReMax (arXiv 2310.10505).
    """
    return reward - greedy_reward


def _length_weighted(n: Numbers) -> str:
    lengths = n.lengths[n.peer_rows].tolist()
    products = " + ".join(f"{a}·{short(b)}" for a, b in zip(lengths, n.peers, strict=True))
    return f"{short(n.r)} - ({products})/({' + '.join(map(str, lengths))})"


@formula(
    r"r_i-\frac{\sum_{j\in q(i)}|o_j|\,r_j}{\sum_{j\in q(i)}|o_j|}",
    "r_i - Σ|o_j|·r_j / Σ|o_j| (in group)",
    label="length-weighted mean",
    numbers=_length_weighted,
)
def length_weighted_mean(reward: Tensor, group: Tensor, counted: Tensor, mask: Tensor) -> Tensor:
    r"""The mean weighted by length: the baseline of least variance where a score's variance grows
    with its length.

    .. math:: A_i = r_i - \frac{\sum_j |o_j| r_j}{\sum_j |o_j|}

    A group without a token has the plain mean.

    Source: OPO (arXiv 2505.23585).
    """
    _need_peers("length_weighted_mean", group)
    length = mask.sum(dim=1).to(reward.dtype) * counted
    tokens = groups.total(length, group)
    mean = torch.where(
        tokens > 0,
        groups.total(length * reward, group) / tokens.clamp(min=1),
        groups.mean(reward, group, counted),
    )
    return torch.where(
        groups.is_dead(reward, group, counted), torch.zeros_like(reward), reward - mean
    )


def _live_group_mean(n: Numbers) -> str:
    counted = n.inputs["counted"]
    live = counted & ~groups.is_dead(n.inputs["reward"], n.group, counted)
    return f"{int(counted.sum())}/{int(live.sum())} · ({short(n.r)} - mean({listed(n.peers)}))"


@formula(
    r"\frac{N}{N_{live}}\big(r_i-\mathrm{mean}_{j\in q(i)}\,r_j\big)",
    "N/N_live · (r_i - mean(r in group))",
    label="group mean, rescaled for dead groups",
    numbers=_live_group_mean,
)
def live_group_mean(reward: Tensor, group: Tensor, counted: Tensor) -> Tensor:
    r"""Group-mean centring, made up for the dead groups: scaled by all rows over rows in live
    groups.

    .. math:: A_i = \frac{N}{N_{live}} (r_i - \bar r)

    Source: GPG (arXiv 2504.02546), its correction of the gradient for groups without a signal, with
    F_norm = 1. (verl's ``gpg`` counts non-zero rewards instead of rows in live groups.)
    """
    live = (counted & ~groups.is_dead(reward, group, counted)).sum().to(reward.dtype)
    return group_mean(reward, group, counted) * counted.sum() / live.clamp(min=1)


def _gae(n: Numbers) -> str:
    lam = getattr(n.s, "lam", 1.0)
    reward = _rewards_per_token(n.inputs["reward"], n.mask, n.inputs["token_reward"])[n.i, n.t]
    has_values = hasattr(n.s, "lam")
    values = n.inputs["value"] if has_values else torch.zeros_like(reward).expand(n.mask.shape)
    ahead = 0.0 if n.next_token is None else values[n.i, n.next_token]
    after = 0.0 if n.next_token is None else n.all_centred[n.i, n.next_token]
    delta = f"({short(reward)} + {n.s.gamma:g}·{short(ahead)} - {short(values[n.i, n.t])})"
    return f"{delta} + {n.s.gamma * lam:g}·{short(after)}"


@formula(
    r"\delta_{it}+\gamma\lambda A_{i,t+1},\ \ \delta=r+\gamma V'-V,\ \gamma=<gamma>,\ "
    r"\lambda=<lam>",
    "GAE(γ=<gamma>, λ=<lam>): δ_t + γλ·A_{t+1}, δ_t = r_t + γ·V_{t+1} - V_t",
    label="GAE",
    numbers=_gae,
)
def gae(
    reward: Tensor,
    mask: Tensor,
    value: Tensor,
    token_reward: Tensor | None = None,
    *,
    gamma: float,
    lam: float,
) -> Tensor:
    r"""Generalised advantage estimation, one advantage per token. The reward arrives at the last
    trained token.

    .. math::
        A_{it} = \delta_{it} + \gamma\lambda A_{i,t+1},\quad \delta_{it} = r_{it} + \gamma V_{i,t+1}
        - V_{it},\quad V_{i,|o_i|+1} = 0

    Masked positions (tool output) are stepped over. lambda 1, gamma 1: return minus value. lambda
    0: the one-step error.

    Returns:
        ``[N, T]``.

    Source: Schulman et al. 2016 (arXiv 1506.02438); PPO for RLHF (gamma 1, lambda 0.95).
    """
    rewards, values = (
        _rewards_per_token(reward, mask, token_reward),
        torch.where(mask, value.to(reward.dtype), 0.0),
    )
    carry, following, columns = torch.zeros_like(reward), torch.zeros_like(reward), []
    for t in reversed(range(mask.shape[1])):
        live = mask[:, t]
        here = rewards[:, t] + gamma * following - values[:, t] + gamma * lam * carry
        carry, following = (
            torch.where(live, here, carry),
            torch.where(live, values[:, t], following),
        )
        columns.append(torch.where(live, here, 0.0))
    return torch.stack(columns[::-1], dim=1)


def _gae_length(n: Numbers) -> str:
    n.s.lam = 1 - 1 / max(1.0, n.s.alpha * n.length)
    return _gae(n)


@formula(
    r"\delta_{it}+\gamma\lambda_i A_{i,t+1},\ \ \delta=r+\gamma V'-V,\ \gamma=<gamma>,\ "
    r"\lambda_i=1-\frac{1}{<alpha>\,|o_i|}",
    "GAE(γ=<gamma>, λ_i = 1 - 1/(<alpha>·|o_i|)): δ_t + γλ·A_{t+1}, δ_t = r_t + γ·V_{t+1} - V_t",
    label="length-adaptive GAE",
    numbers=_gae_length,
)
def length_adaptive_gae(
    reward: Tensor,
    mask: Tensor,
    value: Tensor,
    token_reward: Tensor | None = None,
    *,
    gamma: float,
    alpha: float,
) -> Tensor:
    r"""GAE whose λ grows with the completion, so that the reward reaches its first token.

    .. math:: \lambda_i = 1 - \frac{1}{\alpha |o_i|}

    λ is 0 where α|o| is below 1.

    Returns:
        ``[N, T]``.

    Source: VAPO (arXiv 2504.05118), α = 0.05. Its extra likelihood term on right answers is left
    out.
    """
    lam = 1 - 1 / (alpha * mask.sum(dim=1)).clamp(min=1.0)
    return gae(reward, mask, value, token_reward, gamma=gamma, lam=lam.to(reward.dtype))  # type: ignore[arg-type]


@formula(
    r"\sum_{s\ge t}\gamma^{s-t}r_{is},\ \gamma=<gamma>",
    "Σ_{s≥t} γ^(s-t)·r_s, γ = <gamma>",
    label="return to go",
    numbers=_gae,
)
def return_to_go(
    reward: Tensor, mask: Tensor, token_reward: Tensor | None = None, *, gamma: float
) -> Tensor:
    r"""What is still to come after each token, ``[N, T]``: with KL in the token reward, tokens of
    one completion differ.

    .. math:: A_{it} = \sum_{s \ge t} \gamma^{s-t} r_{is}

    Source: REINFORCE++ (arXiv 2501.03262), Eq. 8.
    """
    return gae(
        reward, mask, torch.zeros_like(mask, dtype=reward.dtype), token_reward, gamma=gamma, lam=1.0
    )


def _rewards_per_token(reward: Tensor, mask: Tensor, token_reward: Tensor | None) -> Tensor:
    """``[N, T]`` token rewards with the completion's reward added at its last trained token."""
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    last = mask & (places == (mask * places).amax(dim=1, keepdim=True))
    given = (
        torch.zeros_like(last, dtype=reward.dtype)
        if token_reward is None
        else token_reward.to(reward.dtype).nan_to_num(0.0)
    )
    return torch.where(mask, given, 0.0) + last * reward[:, None]


def _process(n: Numbers) -> str:
    rewards = n.inputs["token_reward"]
    step = n.mask & ~rewards.isnan()
    pool = rewards[step & n.peer_rows[:, None]].double()
    later = [rewards[n.i, t].item() for t in range(n.t, n.mask.shape[1]) if step[n.i, t]]
    if not later or pool.max() == pool.min():
        return "0"
    scale = with_eps(short(pool.std(correction=n.s.ddof)), n.s.eps)
    return " + ".join(f"({short(r)} - {short(pool.mean())})/{scale}" for r in later)


@formula(
    r"\sum_{j:\,index(j)\ge t}\frac{r_j-\mathrm{mean}(R)}{\mathrm{std}(R;\ "
    r"\mathrm{ddof}=<ddof>)+<eps>}",
    "Σ_{steps ending at or after t} (r_step - mean) / (std(ddof=<ddof>) + <eps>), over all steps "
    "of the group",
    label="process supervision",
    numbers=_process,
)
def process_supervision(
    mask: Tensor, group: Tensor, token_reward: Tensor, counted: Tensor, *, ddof: int, eps: float
) -> Tensor:
    r"""Rewards at step ends, normalised over all steps of the group; a token gets the sum of those
    still to come.

    .. math:: A_{it} = \sum_{j:\ index(j) \ge t} \tilde r_i^{\,index(j)},\quad
        \tilde r = \frac{r - \mathrm{mean}(R)}{\mathrm{std}(R) + \epsilon}

    R are the step rewards of every completion of the prompt. ``token_reward`` is NaN where no step
    ends. Equal step rewards give 0.

    Returns:
        ``[N, T]``.

    Source: DeepSeekMath (arXiv 2402.03300) §4.1.3.
    """
    step = mask & ~token_reward.isnan() & counted[:, None]
    flat, keep = token_reward.double().nan_to_num(0.0).reshape(-1), step.reshape(-1)
    owner = group[:, None].expand_as(mask).reshape(-1)
    spread = groups.std(flat, owner, keep, ddof)
    scaled = (flat - groups.mean(flat, owner, keep)) / torch.where(spread > 0, spread + eps, 1.0)
    steps = torch.where(keep & (spread > 0), scaled, 0.0).reshape(mask.shape)
    return steps.flip(1).cumsum(1).flip(1)


def _pass_at_k(n: Numbers) -> str:
    others = len(n.peers) - 1
    wrong = others - sum(r > 0 for r in n.peers)
    if n.r > 0:
        return str(n.s.k)
    return f"{n.s.k}·(1 - comb({wrong}, {n.s.k - 1})/comb({others}, {n.s.k - 1}))"


@formula(
    r"\begin{cases}<k> & r_i>0\\ <k>\Big(1-\tbinom{G-1-c}{<k>-1}\big/\tbinom{G-1}{<k>-1}\Big) & "
    r"\text{else}\end{cases}",
    "<k> if right, else <k>·(1 - C(G-1-c, <k>-1)/C(G-1, <k>-1)), c right in the group of G",
    label="pass@k",
    numbers=_pass_at_k,
)
def pass_at_k(reward: Tensor, group: Tensor, counted: Tensor, *, k: int) -> Tensor:
    r"""Weights whose expected gradient is that of pass@k, exactly, at any group size G >= k.
    "Right" is a reward above 0.

    .. math::
        A_i = k \ (r_i > 0),\qquad A_i = k\Big(1 - \binom{G-1-c}{k-1} \Big/ \binom{G-1}{k-1}\Big) \
        (r_i \le 0)

    with c right completions. The advantages are not centred.

    Raises:
        ValueError: a group has fewer than k scored rows.

    Source: PKPO (arXiv 2505.15201), unbiased estimator of the gradient; checked by enumeration in
    this package.
    """
    size, correct = _sizes_for_k(reward, group, counted, k)
    right = (reward > 0) & counted
    others = size - 1  # a group without a score has advantage 0 whatever stands here
    log_wrong = _log_binomial(others - correct, k - 1) - _log_binomial(others, k - 1)
    return torch.where(right, float(k), k * (1 - log_wrong.exp()))


def _right_of(n: Numbers) -> int:
    return sum(r > 0 for r in n.peers)


def _pass_at_k_training(n: Numbers) -> str:
    size = len(n.peers)
    wrong = size - _right_of(n)
    if size == 0 or n.centred == 0:
        return "0"
    fail = f"comb({wrong}, {n.s.k})/comb({size}, {n.s.k})"
    spread = f"(({fail})·(1 - {fail}))**0.5"
    if n.r > 0:
        return f"({fail})/{spread}"
    return f"({fail} - comb({wrong - 1}, {n.s.k - 1})/comb({size - 1}, {n.s.k - 1}))/{spread}"


@formula(
    r"\frac{1-\bar R-1[r_i\le 0]\tbinom{G-c-1}{<k>-1}\big/\tbinom{G-1}{<k>-1}}"
    r"{\sqrt{\bar R(1-\bar R)}},\ \bar R=1-\tbinom{G-c}{<k>}\big/\tbinom{G}{<k>}",
    "(1 - R - [wrong]·C(G-c-1, <k>-1)/C(G-1, <k>-1)) / sqrt(R(1-R)), R = 1 - C(G-c, <k>)/C(G, "
    "<k>), c right in the group of G",
    label="pass@k training",
    numbers=_pass_at_k_training,
)
def pass_at_k_training(reward: Tensor, group: Tensor, counted: Tensor, *, k: int) -> Tensor:
    r"""The mean advantage of a completion over every subset of k that holds it, where a subset is
    right if one of its completions is, and subsets are centred and divided by their std.

    .. math::
        A_i = \frac{1 - \bar R - 1[r_i \le 0]\binom{G-c-1}{k-1}\big/\binom{G-1}{k-1}}
        {\sqrt{\bar R (1 - \bar R)}},\qquad \bar R = 1 - \binom{G-c}{k}\Big/\binom{G}{k}

    with c right completions of G. 0 where every subset is right, or none.

    Raises:
        ValueError: a group has fewer than k scored rows.

    Source: Pass@k training (arXiv 2508.10751), its analytical form; the authors' code adds 1e-6 to
    the std.
    """
    size, correct = _sizes_for_k(reward, group, counted, k)
    wrong = (size - correct).clamp(min=0)
    fail = (_log_binomial(wrong, k) - _log_binomial(size, k)).exp()
    without = (_log_binomial(wrong - 1, k - 1) - _log_binomial(size - 1, k - 1)).exp()
    right = (reward > 0) & counted
    spread = (fail * (1 - fail)).clamp(min=0).sqrt()
    deviation = fail - torch.where(right, 0.0, without)
    live = counted & (spread > 0)
    return torch.where(live, deviation / torch.where(live, spread, 1.0), 0.0)


def _sizes_for_k(reward: Tensor, group: Tensor, counted: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """``[N]`` scored and right completions of each prompt; the first at least k where there are
    none.

    Raises:
        ValueError: a group has fewer than k scored rows.
    """
    size = groups.size(group, counted).to(reward.dtype)
    too_small = (size > 0) & (size < k)
    if too_small.any():
        raise ValueError(
            f"a group has {int(size[too_small][0])} scored completions but pass@k has k = {k}: "
            "expected at least k scored completions per prompt. Sample more, or lower k."
        )
    right = (reward > 0) & counted
    return size.clamp(min=k), groups.size(group, right).to(reward.dtype)


@formula(
    r"<positive>\,1[r_i>0]-1[r_i\le 0]",
    "<positive> if right, else -1",
    label="right and wrong apart",
    numbers=lambda n: f"{n.s.positive:g}" if n.r > 0 else "-1",
)
def right_and_wrong(reward: Tensor, *, positive: float) -> Tensor:
    r"""No baseline: every right completion counts ``positive``, every wrong one -1.

    .. math:: A_i = \lambda\,1[r_i > 0] - 1[r_i \le 0]

    λ = 0 learns from wrong answers alone; a prompt without a right answer is pushed too.

    Source: negative-sample reinforcement (arXiv 2506.01347): NSR has λ = 0, W-REINFORCE 0.1.
    """
    return torch.full_like(reward, -1.0).masked_fill(reward > 0, positive)


def _teacher(n: Numbers) -> str:
    old = n.inputs["old_logp"]
    wrote = n.inputs["logp"] if old is None else old
    return f"{short(n.inputs['ref_logp'][n.i, n.t])} - {short(wrote[n.i, n.t])}"


@formula(
    r"\log\pi_{ref}(o_{it})-\log\pi_{old}(o_{it})",
    "log π_teacher - log π_old, token by token",
    label="log-ratio to a teacher",
    numbers=_teacher,
)
def teacher_log_ratio(
    logp: Tensor, ref_logp: Tensor, mask: Tensor, old_logp: Tensor | None = None
) -> Tensor:
    r"""On-policy distillation: a token is good where the teacher finds it more likely. Rewards are
    not read.

    .. math:: A_{it} = \log\pi_{teacher}(o_{it}) - \log\pi_{old}(o_{it})

    The teacher stands in ``ref_logp``. On policy π_old is the policy itself, and the expected push
    is that of the reverse KL to the teacher without the tokens that follow (discount 0).

    Returns:
        ``[N, T]``.

    Source: on-policy distillation, Lu 2025 (Thinking Machines); GKD (arXiv 2306.13649).
    """
    wrote = logp if old_logp is None else old_logp
    return torch.where(mask, ref_logp - wrote, 0.0).detach()


def _log_binomial(n: Tensor, k: int) -> Tensor:
    """log C(n, k); -inf where n < k."""
    value = (
        torch.lgamma(n.clamp(min=k) + 1)
        - torch.lgamma(torch.tensor(k + 1.0, dtype=n.dtype))
        - torch.lgamma(n.clamp(min=k) - k + 1)
    )
    return torch.where(n >= k, value, -torch.inf)


def _decoupled(n: Numbers) -> str:
    terms = []
    for k, column in enumerate(n.inputs["reward_parts"].unbind(1)):
        pool = column[n.peer_rows]
        pool = pool[~pool.isnan()].tolist()
        weight = 1.0 if n.s.weights is None else n.s.weights[k]
        if not column[n.i].isnan() and len(set(pool)) > 1:
            centred = f"({short(column[n.i])} - mean({listed(pool)}))"
            spread = with_eps(f"std({listed(pool)}, ddof={n.s.ddof})", n.s.eps)
            terms.append(f"{weight:g}·{centred}/{spread}")
    return " + ".join(terms) or "0"


@formula(
    r"\sum_k \lambda_k\,\frac{r^{(k)}_i-\mathrm{mean}_{j\in q(i)}r^{(k)}_j}{\mathrm{std}_{j\in "
    r"q(i)}(r^{(k)}_j;\ \mathrm{ddof}=<ddof>)+<eps>}",
    "Σ_k λ_k·(r^k - mean)/(std(ddof=<ddof>) + <eps>) in group",
    label="each reward normalised",
    numbers=_decoupled,
)
def decoupled_rewards(
    reward_parts: Tensor,
    group: Tensor,
    counted: Tensor,
    *,
    ddof: int,
    eps: float,
    weights: tuple[float, ...] | None = None,
) -> Tensor:
    r"""Each reward function is normalised within the group on its own, then they are added, so that
    none drowns another.

    .. math::
        A_i = \sum_k \lambda_k \frac{r^{(k)}_i - \mathrm{mean}\, r^{(k)}}{\mathrm{std}\, r^{(k)} +
        \epsilon}

    A NaN part ("does not apply") is left out of its statistics and adds 0.

    Source: GDPO (arXiv 2601.05242); TRL ``multi_objective_aggregation="normalize_then_sum"``.
    """
    _need_peers("decoupled_rewards", group)
    lambdas = (1.0,) * reward_parts.shape[1] if weights is None else weights
    if len(lambdas) != reward_parts.shape[1]:
        raise ValueError(
            f"weights has {len(lambdas)} entries but reward_parts has {reward_parts.shape[1]} "
            "columns: one each."
        )
    summed = torch.zeros(len(group), dtype=torch.float64, device=group.device)
    for column, weight in zip(reward_parts.double().unbind(1), lambdas, strict=True):
        known = counted & ~column.isnan()
        part = column.nan_to_num(0.0)
        centred = part - groups.mean(part, group, known)
        scaled = group_std(centred, part, group, known, ddof=ddof, eps=eps)
        summed = summed + weight * torch.where(known, scaled, 0.0)
    return summed


# --- further scales -------------------------------------------------------------------------------


@formula(
    r"\mathrm{std}_{j}(r_j;\ \mathrm{ddof}=<ddof>)+<eps>",
    "std(r in the whole batch, ddof=<ddof>) + <eps>",
    label="batch std",
    numbers=_over_std(_batch_rewards),
)
def batch_std(centred: Tensor, reward: Tensor, counted: Tensor, *, ddof: int, eps: float) -> Tensor:
    r"""Divided by the spread of all rewards of the batch: one number, so no prompt gains over
    another.

    .. math:: A_i \;/\; (\mathrm{std}_{j}(r_j) + \epsilon)

    Source: Lite PPO, "Tricks or Traps" (arXiv 2508.08221); TRL ``scale_rewards="batch"``.
    """
    return _divided(centred, groups.std(reward, _everyone(counted), counted, ddof), eps)


def _leave_one_out_std(n: Numbers) -> str:
    if len(set(n.others)) < 2:
        return f"{short(n.centred)}/1"
    return f"{short(n.centred)}/{with_eps(f'std({listed(n.others)}, ddof={n.s.ddof})', n.s.eps)}"


@formula(
    r"\mathrm{std}_{j\in q(i),\,j\ne i}(r_j;\ \mathrm{ddof}=<ddof>)+<eps>",
    "std(r of the others in group, ddof=<ddof>) + <eps>, 1 where that std is 0",
    label="leave-one-out std",
    numbers=_leave_one_out_std,
)
def leave_one_out_std(
    centred: Tensor, reward: Tensor, group: Tensor, counted: Tensor, *, ddof: int, eps: float
) -> Tensor:
    r"""Divided by the spread of the *other* rewards; not divided where that is 0, so a lone success
    keeps advantage 1.

    .. math:: A_i \;/\; (\mathrm{std}_{j \ne i}(r_j) + \epsilon)

        r  1 0 0 0, leave-one-out baseline, ddof 1   ->   A  1 -.577 -.577 -.577

    Source: NeMo-RL's default "grpo" (``calculate_baseline_and_std_per_prompt``).
    """
    x = torch.where(
        counted, (reward - groups.mean(reward, group, counted)).double(), 0.0
    )  # centred, so that squares do not cancel
    others = groups.size(group, counted) - counted.double()
    first, second = groups.total(x, group) - x, groups.total(x**2, group) - x**2
    squares = second - first**2 / others.clamp(min=1)
    squares = torch.where(
        squares > 64 * torch.finfo(squares.dtype).eps * groups.total(x**2, group), squares, 0.0
    )  # cancelled
    variance = squares / (others - ddof).clamp(min=1)
    largest = torch.where(counted, reward.abs(), 0.0).max()
    rounding = (8 * torch.finfo(reward.dtype).eps * largest) ** 2
    spread = torch.where(variance > rounding, variance, 0.0).sqrt()
    return _divided(centred, torch.where(spread > 0, spread, 1.0 - eps), eps)


@formula(
    r"\mathrm{mean}_{j\in q(i)}\,r_j",
    "mean(r in group)",
    label="group mean as the scale",
    numbers=lambda n: f"{short(n.centred)}/mean({listed(n.peers)})" if sum(n.peers) > 0 else "0",
)
def group_mean_scale(centred: Tensor, reward: Tensor, group: Tensor, counted: Tensor) -> Tensor:
    r"""Divided by the mean reward of the prompt, its estimated pass rate: hard prompts gain, easy
    ones do not. 0 where the mean is 0.

    .. math:: A_i \;/\; \bar r

    Source: MaxRL (arXiv 2602.02710). With centred advantages the estimator is of order G-1.
    """
    return _divided(centred, groups.mean(reward, group, counted), eps=0.0)


def _z_score(n: Numbers, pool: Tensor) -> str:
    """The numbers of a z-score within a pool of centred advantages."""
    if pool.max() == pool.min():
        return "0"
    spread = pool.double().std(correction=n.s.ddof)
    mean = pool.double().mean()
    if mean.abs() < 1e-12 * spread:  # the rounding of centred values
        mean = 0.0
    return f"({short(n.centred)} - {short(mean)})/{with_eps(short(spread), n.s.eps)}"


def _token_pool(n: Numbers) -> Tensor:
    """Centred advantages of all trained tokens that count."""
    per_token = n.all_centred if n.all_centred.ndim == 2 else n.all_centred[:, None]
    return per_token.expand(n.mask.shape)[n.mask & n.inputs["counted"][:, None]]


@formula(
    r"\mathrm{std}_{j}(A_j;\ \mathrm{ddof}=<ddof>)+<eps>\ \text{(centred)}",
    "z-score over the batch (ddof=<ddof>, eps=<eps>)",
    label="whitened over the batch",
    numbers=lambda n: _z_score(n, n.all_centred[n.inputs["counted"]]),
    centres=True,
)
def batch_whiten(centred: Tensor, counted: Tensor, *, ddof: int, eps: float) -> Tensor:
    r"""The advantages themselves as z-scores over the completions of the batch.

    .. math:: (A_i - \mathrm{mean}_j A_j) \;/\; (\mathrm{std}_j A_j + \epsilon)

    Source: GDPO (arXiv 2601.05242), last step.
    """
    if centred.ndim == 2:
        raise ValueError(
            "batch_whiten got one advantage per token: expected one per completion. Use "
            "token_whiten."
        )
    everyone = _everyone(counted)
    deviation = centred - groups.mean(centred, everyone, counted)
    return group_std(deviation, centred, everyone, counted, ddof=ddof, eps=eps)


@formula(
    r"\mathrm{std}_{j,s}(A_{js};\ \mathrm{ddof}=<ddof>)+<eps>\ \text{(centred)}",
    "z-score over all tokens of the batch (ddof=<ddof>, eps=<eps>)",
    label="whitened over the tokens",
    numbers=lambda n: _z_score(n, _token_pool(n)),
    centres=True,
)
def token_whiten(
    centred: Tensor, mask: Tensor, counted: Tensor, *, ddof: int, eps: float
) -> Tensor:
    r"""The advantages as z-scores over the *tokens* of the batch: long completions count more in
    mean and std.

    .. math:: (A_{it} - \mathrm{mean}_{js} A_{js}) \;/\; (\mathrm{std}_{js} A_{js} + \epsilon)

    Returns:
        ``[N, T]``.

    Source: REINFORCE++ (arXiv 2501.03262), Eq. 10 and its baseline form; verl ``masked_whiten``.
    """
    tokens = centred if centred.ndim == 2 else centred[:, None].expand(mask.shape)
    keep = (mask & counted[:, None]).reshape(-1)
    flat, everyone = torch.where(mask, tokens, 0.0).reshape(-1), _everyone(keep)
    deviation = flat - groups.mean(flat, everyone, keep)
    return torch.where(
        keep, group_std(deviation, flat, everyone, keep, ddof=ddof, eps=eps), 0.0
    ).reshape(mask.shape)


# --- forms that only frameworks have --------------------------------------------------------------


def _when_alone(n: Numbers) -> str:
    if int((n.group == n.group[n.i]).sum()) == 1:
        return f"{n.s.keep:g}·{short(n.r)}"
    return axes.numbers(n.s.baseline, n) or short(n.centred)


@formula(
    r"<baseline>\ \text{(a group of one: }<keep>\,r_i)",
    "<baseline> (a group of one: <keep>·r_i)",
    label="group baseline that keeps a group of one",
    numbers=_when_alone,
)
def when_alone(
    reward: Tensor, group: Tensor, counted: Tensor, mask: Tensor, *, baseline: Choice, keep: float
) -> Tensor:
    """A group baseline that does not refuse a group of one: its advantage is ``keep`` times its
    reward.

        r  1 0 | .7, groups 0 0 | 1, baseline group_mean, keep 1   ->   A  .5 -.5 .7

    Args:
        reward, group, counted: ``[N]``.
        mask: ``[N, T]`` bool.
        baseline: one whose statistics stay inside a group.
        keep: 1 the raw reward (verl ``grpo``, ``rloo``, ``opo``), 0 nothing (verl
            ``rloo_vectorized``).

    Source: verl ``core_algos.py``, every estimator with an ``index`` (mean 0 where a prompt has one
    response).
    """
    single = groups.size(group, torch.ones_like(counted)) == 1
    rows = torch.cat(
        [torch.arange(len(group), device=group.device), single.nonzero()[:, 0]]
    )  # a twin for each single row
    inputs = {
        "reward": reward[rows],
        "group": group[rows],
        "counted": counted[rows],
        "mask": mask[rows],
    }
    return torch.where(single, keep * reward, axes.run(baseline, inputs)[: len(group)])


def _nonzero_group_mean(n: Numbers) -> str:
    counted = n.inputs["counted"]
    nonzero = int(((n.inputs["reward"] != 0) & counted).sum())
    mean = listed(n.peers) if len(n.peers) > 1 else "0"
    return f"{int(counted.sum())}/{max(1, nonzero)} · ({short(n.r)} - mean({mean}))"


@formula(
    r"\frac{N}{\#\{r\ne 0\}}\big(r_i-\mathrm{mean}_{j\in q(i)}\,r_j\big)",
    "N/#(r≠0) · (r_i - mean(r in group))",
    label="group mean, rescaled for zero rewards",
    numbers=_nonzero_group_mean,
)
def nonzero_group_mean(reward: Tensor, group: Tensor, counted: Tensor, mask: Tensor) -> Tensor:
    r"""Group-mean centring scaled by all rows over rows whose reward is not 0; a group of one keeps
    its reward.

    .. math:: A_i = \frac{N}{\#\{j: r_j \ne 0\}}\,(r_i - \bar r)

    Not the paper's correction, which counts rows of *live groups*: 7 right of 8 and 1 right of 8
    get different factors here.

    Source: verl ``adv_estimator=gpg``.
    """
    nonzero = ((reward != 0) & counted).sum().clamp(min=1)
    return (
        when_alone(reward, group, counted, mask, baseline=group_mean, keep=1.0)
        * counted.sum()
        / nonzero
    )


def _best_minus_second(n: Numbers) -> str:
    ranked = sorted(n.peers, reverse=True)
    sole = len(ranked) > 1 and n.r == ranked[0] > ranked[1]
    return f"{short(ranked[0])} - {short(ranked[1])}" if sole else "0"


@formula(
    r"1[i=\arg\max]\,\big(r_{(1)}-r_{(2)}\big)",
    "r_best - r_second for the best of the group, 0 for the others",
    label="best minus second",
    numbers=_best_minus_second,
)
def best_minus_second(reward: Tensor, group: Tensor, counted: Tensor) -> Tensor:
    r"""Only the best completion of a prompt has an advantage: how far it lies above the second.

    .. math:: A_i = 1[r_i = \max_j r_j]\,(r_{(1)} - r_{(2)})

        r  1 0 .4 .2   ->   A  .6 0 0 0

    Raises:
        ValueError: a group has one row.

    Source: Pass@k training (arXiv 2503.19595); verl ``adv_estimator=grpo_passk``.
    """
    _need_peers("best_minus_second", group)
    index, count = groups.index_of(group)
    floor = torch.full((count,), -torch.inf, dtype=reward.dtype, device=reward.device)
    known = reward.masked_fill(~counted, -torch.inf)
    first = floor.scatter_reduce(0, index, known, "amax")[index]
    best = counted & (known == first)
    second = floor.scatter_reduce(0, index, known.masked_fill(best, -torch.inf), "amax")[index]
    sole = best & (groups.size(group, best) == 1) & torch.isfinite(second)
    return torch.where(sole, first - torch.where(sole, second, 0.0), 0.0)


def _z_score_variance(n: Numbers) -> str:
    pool = _token_pool(n).double()
    variance = f"max({short(pool.var(correction=n.s.ddof))}, {n.s.floor:g}) + {n.s.eps:g}"
    return f"({short(n.centred)} - {short(pool.mean())})/({variance})**0.5"


@formula(
    r"\sqrt{\max(\mathrm{var}_{j,s}(A_{js};\ \mathrm{ddof}=<ddof>),\,<floor>)+<eps>}\ "
    r"\text{(centred)}",
    "z-score over all tokens: / sqrt(max(var(ddof=<ddof>), <floor>) + <eps>)",
    label="whitened over the tokens, ε under the root",
    numbers=_z_score_variance,
    centres=True,
)
def token_whiten_variance(
    centred: Tensor,
    mask: Tensor,
    counted: Tensor,
    *,
    ddof: int,
    eps: float,
    floor: float,
    count_eps: float,
) -> Tensor:
    r"""Z-scores over the tokens of the batch with ε under the root, as frameworks write it.

    .. math:: (A_{it} - \mu) \;/\; \sqrt{\max(\sigma^2, \mathrm{floor}) + \epsilon}

    Args:
        centred: ``[N]`` or ``[N, T]``.
        mask, counted: as everywhere.
        ddof: 1 verl, 0 OpenRLHF.
        eps: added to the variance (verl 1e-8).
        floor: the least variance (OpenRLHF 1e-8).
        count_eps: added to the number of tokens in both means (verl 1e-8).

    Returns:
        ``[N, T]``.

    Source: verl ``masked_whiten``; OpenRLHF ``experience_maker.py`` ("reinforce").
    """
    tokens = centred if centred.ndim == 2 else centred[:, None].expand(mask.shape)
    keep = mask & counted[:, None]
    count = keep.sum().to(tokens.dtype)
    deviation = torch.where(
        keep, tokens - torch.where(keep, tokens, 0.0).sum() / (count + count_eps).clamp(min=1), 0.0
    )
    variance = (
        (deviation**2).sum()
        / (count + count_eps).clamp(min=1)
        * (count / (count - ddof).clamp(min=1))
    )
    spread = (variance.clamp(min=floor) + eps).sqrt()
    return torch.where(spread > 0, deviation / torch.where(spread > 0, spread, 1.0), 0.0)
