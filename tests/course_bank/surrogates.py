"""Answers to the exercises on ratio, clip and KL."""

import torch

from . import right, wrong

CLIP = "ppo_clip"


@right(CLIP)
def clip_min(logp, old_logp, advantage, eps_low, eps_high):
    ratio = torch.exp(logp - old_logp)
    a = advantage.unsqueeze(1)
    return torch.min(ratio * a, torch.clip(ratio, 1 - eps_low, 1 + eps_high) * a)


@right(CLIP)
def clip_as_loss(logp, old_logp, advantage, eps_low, eps_high):
    ratio = (logp - old_logp).exp()
    unclipped = -advantage.view(-1, 1) * ratio
    clipped = -advantage.view(-1, 1) * ratio.clamp(1 - eps_low, 1 + eps_high)
    return -torch.maximum(unclipped, clipped)


@right(CLIP)
def clip_by_sign(logp, old_logp, advantage, eps_low, eps_high):
    ratio = torch.exp(logp) / torch.exp(old_logp)
    a = advantage[:, None].expand_as(ratio)
    good = ratio.clamp(max=1 + eps_high) * a
    bad = ratio.clamp(min=1 - eps_low) * a
    return torch.where(a > 0, good, bad)


def clipped(
    ratio_of=lambda n, o: (n - o).exp(),
    low=lambda lo, hi: 1 - lo,
    high=lambda lo, hi: 1 + hi,
    pick=torch.min,
):
    def answer(logp, old_logp, advantage, eps_low, eps_high):
        ratio = ratio_of(logp, old_logp)
        bounded = ratio.clamp(low(eps_low, eps_high), high(eps_low, eps_high))
        return pick(ratio * advantage[:, None], bounded * advantage[:, None])

    return answer


wrong(CLIP, "the larger of the two")(clipped(pick=torch.max))
wrong(CLIP, "only the clipped term")(clipped(pick=lambda a, b: b))
wrong(CLIP, "not clipped at all")(clipped(pick=lambda a, b: a))
wrong(CLIP, "eps_low is used on both sides")(clipped(high=lambda lo, hi: 1 + lo))
wrong(CLIP, "eps_high is used on both sides")(clipped(low=lambda lo, hi: 1 - hi))
wrong(CLIP, "the two epsilons are swapped")(
    clipped(low=lambda lo, hi: 1 - hi, high=lambda lo, hi: 1 + lo)
)
wrong(CLIP, "eps is read as a bound")(clipped(low=lambda lo, hi: lo))
wrong(CLIP, "upside down")(clipped(ratio_of=lambda n, o: o.exp() / n.exp()))
wrong(CLIP, "the exp is missing")(clipped(ratio_of=lambda n, o: n - o))
wrong(CLIP, "the ratio is detached")(clipped(ratio_of=lambda n, o: (n.detach() - o).exp()))
wrong(CLIP, "the sign is flipped")(clipped(pick=lambda a, b: torch.max(-a, -b)))
wrong(CLIP, "zero everywhere")(clipped(pick=lambda a, b: 0 * a))

CISPO = "cispo"


@right(CISPO)
def cispo_no_grad(logp, old_logp, advantage, low, high):
    with torch.no_grad():
        weight = torch.exp(logp - old_logp).clamp(low, high)
    return weight * advantage[:, None] * logp


@right(CISPO)
def cispo_data(logp, old_logp, advantage, low, high):
    ratio = (logp - old_logp).exp().detach()
    capped = torch.minimum(torch.maximum(ratio, torch.tensor(low)), torch.tensor(high))
    return advantage.reshape(-1, 1) * capped * logp


@right(CISPO)
def cispo_detached_input(logp, old_logp, advantage, low, high):
    fixed = logp.detach()
    return torch.clip((fixed - old_logp).exp(), low, high) * logp * advantage[:, None]


def capped(
    ratio=lambda n, o: (n - o).exp(),
    bound=lambda r, lo, hi: r.clamp(lo, hi),
    stop=lambda r: r.detach(),
    factor=lambda n, o: n,
):
    def answer(logp, old_logp, advantage, low, high):
        return (
            stop(bound(ratio(logp, old_logp), low, high))
            * advantage[:, None]
            * factor(logp, old_logp)
        )

    return answer


wrong(CISPO, "the detach is missing")(capped(stop=lambda r: r))
wrong(CISPO, "log π is missing")(capped(stop=lambda r: r, factor=lambda n, o: 1.0))
wrong(CISPO, "everything is detached")(capped(factor=lambda n, o: n.detach()))
wrong(CISPO, "log π of the old policy")(capped(factor=lambda n, o: o))
wrong(CISPO, "offsets from 1")(capped(bound=lambda r, lo, hi: r.clamp(1 - lo, 1 + hi)))
wrong(CISPO, "the ratio is not capped")(capped(bound=lambda r, lo, hi: r))
wrong(CISPO, "the floor is missing")(capped(bound=lambda r, lo, hi: r.clamp(max=hi)))
wrong(CISPO, "upside down")(capped(ratio=lambda n, o: (o - n).exp()))
wrong(CISPO, "the sign is flipped")(capped(factor=lambda n, o: -n))
wrong(CISPO, "zero everywhere")(capped(factor=lambda n, o: n * 0))

RATIO = "sequence_ratio"


@right(RATIO)
def ratio_where(logp, old_logp, mask):
    difference = torch.where(mask, logp - old_logp, 0.0)
    return torch.exp(difference.sum(-1) / mask.sum(-1).clamp(min=1))


@right(RATIO)
def ratio_loop(logp, old_logp, mask):
    out = []
    for n, o, m in zip(logp, old_logp, mask, strict=True):
        out.append(((n - o)[m].mean() if m.any() else (n * 0).sum()).exp())
    return torch.stack(out)


@right(RATIO)
def ratio_power(logp, old_logp, mask):
    product = torch.where(mask, (logp - old_logp).exp(), 1.0).prod(dim=1)
    return product ** (1 / mask.sum(1).clamp(min=1).double())


wrong(RATIO, "product of the token ratios")(
    lambda n, o, m: torch.where(m, (n - o).exp(), 1.0).prod(1)
)
wrong(RATIO, "the padded width")(lambda n, o, m: torch.where(m, n - o, 0.0).mean(1).exp())
wrong(RATIO, "the arithmetic mean")(
    lambda n, o, m: torch.where(m, (n - o).exp(), 0.0).sum(1) / m.sum(1).clamp(min=1)
)
wrong(RATIO, "masked places enter the mean")(lambda n, o, m: torch.exp((n - o).sum(1) / n.shape[1]))
wrong(RATIO, "the numerator is not masked")(
    lambda n, o, m: torch.exp((n - o).sum(1) / m.sum(1).clamp(min=1))
)
wrong(RATIO, "upside down")(
    lambda n, o, m: 1 / torch.exp(torch.where(m, n - o, 0.0).sum(1) / m.sum(1).clamp(min=1))
)
wrong(RATIO, "the exp is missing")(
    lambda n, o, m: torch.where(m, n - o, 0.0).sum(1) / m.sum(1).clamp(min=1)
)
wrong(RATIO, "0/0 in a completion")(
    lambda n, o, m: torch.exp(torch.where(m, n - o, 0.0).sum(1) / m.sum(1))
)
wrong(RATIO, "the ratio is detached")(
    lambda n, o, m: torch.exp(torch.where(m, n - o, 0.0).sum(1) / m.sum(1).clamp(min=1)).detach()
)

TOKENS = "clipped_tokens"


@right(TOKENS)
def tokens_by_autograd(ratio, advantage, eps_low, eps_high):
    r = ratio.detach().clone().requires_grad_()
    a = advantage[:, None].expand_as(r)
    torch.where(a > 0, r.clamp(max=1 + eps_high) * a, r.clamp(min=1 - eps_low) * a).sum().backward()
    return (r.grad == 0) & (a != 0)


@right(TOKENS)
def tokens_by_terms(ratio, advantage, eps_low, eps_high):
    a = advantage.unsqueeze(-1)
    return ratio.clamp(1 - eps_low, 1 + eps_high) * a < ratio * a


@right(TOKENS)
def tokens_by_sign(ratio, advantage, eps_low, eps_high):
    sign = torch.sign(advantage)[:, None]
    return torch.where(sign > 0, ratio > 1 + eps_high, (sign < 0) & (ratio < 1 - eps_low))


wrong(TOKENS, "whatever the sign of the advantage")(
    lambda r, a, lo, hi: ~((r >= 1 - lo) & (r <= 1 + hi))
)
wrong(TOKENS, "the sides are swapped")(
    lambda r, a, lo, hi: ((a > 0)[:, None] & (r < 1 - lo)) | ((a < 0)[:, None] & (r > 1 + hi))
)
wrong(TOKENS, "only the upper side")(lambda r, a, lo, hi: (r > 1 + hi).logical_and(a[:, None] > 0))
wrong(TOKENS, "only the lower side")(lambda r, a, lo, hi: (r < 1 - lo).logical_and(a[:, None] < 0))
wrong(TOKENS, "the two epsilons are swapped")(
    lambda r, a, lo, hi: ((a[:, None] > 0) & (r > 1 + lo)) | ((a[:, None] < 0) & (r < 1 - hi))
)
wrong(TOKENS, "advantage 0 is counted as negative")(
    lambda r, a, lo, hi: torch.where(a[:, None] > 0, r > 1 + hi, r < 1 - lo)
)
wrong(TOKENS, "eps_low is used on both sides")(
    lambda r, a, lo, hi: ((a[:, None] > 0) & (r > 1 + lo)) | ((a[:, None] < 0) & (r < 1 - lo))
)
wrong(TOKENS, "same everywhere")(lambda r, a, lo, hi: torch.zeros_like(r, dtype=torch.bool))

KL = "kl_estimate"


@right(KL)
def kl_branches(logp, ref_logp, kind):
    d = logp - ref_logp
    if kind == "k1":
        return d
    if kind == "k2":
        return 0.5 * d.pow(2)
    return torch.exp(-d) - 1 + d


@right(KL)
def kl_table(logp, ref_logp, kind):
    x = ref_logp - logp
    return {"k1": -x, "k2": x * x / 2, "k3": torch.special.expm1(x) - x}[kind]


@right(KL)
def kl_ratio(logp, ref_logp, kind):
    ratio = ref_logp.exp() / logp.exp()
    if kind == "k3":
        return ratio - 1 - ratio.log()
    return -ratio.log() if kind == "k1" else ratio.log().square() / 2


def kinds(k1=lambda d: d, k2=lambda d: d * d / 2, k3=lambda d: (-d).exp() - 1 + d):
    def answer(logp, ref_logp, kind):
        return {"k1": k1, "k2": k2, "k3": k3}[kind](logp - ref_logp)

    return answer


wrong(KL, "k3 has the ratio upside down")(kinds(k3=lambda d: d.exp() - 1 - d))
wrong(KL, "k1 has the wrong sign")(kinds(k1=lambda d: -d))
wrong(KL, "one half")(kinds(k2=lambda d: d.square()))
wrong(KL, "k3 lacks the -1")(kinds(k3=lambda d: (-d).exp() + d))
wrong(KL, "k3 lacks the log term")(kinds(k3=lambda d: (-d).exp() - 1))
wrong(KL, "the absolute value")(kinds(k2=torch.abs))
wrong(KL, "k3's exponential is detached")(kinds(k3=lambda d: (-d).exp().detach() - 1 + d))
wrong(KL, "k2 and k3 are swapped")(kinds(k2=lambda d: (-d).exp() - 1 + d, k3=lambda d: d * d / 2))
wrong(KL, "zero everywhere")(kinds(k1=lambda d: 0 * d, k2=lambda d: 0 * d, k3=lambda d: 0 * d))

IN_REWARD = "kl_in_reward"


@right(IN_REWARD)
def reward_no_grad(reward, logp, ref_logp, mask, beta):
    with torch.no_grad():
        return reward - beta * torch.where(mask, logp - ref_logp, 0.0).sum(1)


@right(IN_REWARD)
def reward_loop(reward, logp, ref_logp, mask, beta):
    d = (logp - ref_logp).detach()
    return torch.stack([r - beta * row[m].sum() for r, row, m in zip(reward, d, mask, strict=True)])


@right(IN_REWARD)
def reward_einsum(reward, logp, ref_logp, mask, beta):
    return reward + beta * torch.einsum("nt,nt->n", (ref_logp - logp).detach(), mask.double())


def paid(rule):
    def answer(reward, logp, ref_logp, mask, beta):
        return reward - rule(torch.where(mask, (logp - ref_logp).detach(), 0.0), mask, beta)

    return answer


wrong(IN_REWARD, "averaged over the tokens")(
    paid(lambda d, m, b: b * d.sum(1) / m.sum(1).clamp(min=1))
)
wrong(IN_REWARD, "added to the reward")(paid(lambda d, m, b: -b * d.sum(1)))
wrong(IN_REWARD, "beta is missing")(paid(lambda d, m, b: d.sum(1)))
wrong(IN_REWARD, "k3 in place of k1")(paid(lambda d, m, b: b * ((-d).exp() - 1 + d).sum(1)))
wrong(IN_REWARD, "the absolute value")(paid(lambda d, m, b: b * d.abs().sum(1)))
wrong(IN_REWARD, "one number for the whole batch")(paid(lambda d, m, b: b * d.sum()))
wrong(IN_REWARD, "masked places are counted")(
    lambda w, n, r, m, b: w - b * (n.detach() - r).sum(dim=1)
)
wrong(IN_REWARD, "a detach is missing")(
    lambda w, n, r, m, b: w - b * torch.where(m, n - r, 0.0).sum(1)
)
wrong(IN_REWARD, "zero everywhere")(lambda w, n, r, m, b: w * 0)

SIGN = "loss_with_kl"


@right(SIGN)
def sign_separate(token_loss, logp, ref_logp, mask, beta):
    d = ref_logp - logp
    return token_loss[mask].mean() + beta * (d.exp() - d - 1)[mask].mean()


@right(SIGN)
def sign_joined(token_loss, logp, ref_logp, mask, beta):
    k3 = torch.expm1(ref_logp - logp) - (ref_logp - logp)
    return ((token_loss + beta * k3) * mask).sum() / mask.sum()


@right(SIGN)
def sign_as_objective(token_loss, logp, ref_logp, mask, beta):
    d = ref_logp - logp
    objective = -token_loss - beta * (torch.exp(d) - 1 - d)
    return -(objective.masked_fill(~mask, 0).sum() / mask.sum())


def summed(policy=lambda x, m: x[m].mean(), penalty=lambda k, m, b: b * k[m].mean()):
    def answer(token_loss, logp, ref_logp, mask, beta):
        d = ref_logp - logp
        return policy(token_loss, mask) + penalty(d.exp() - d - 1, mask, beta)

    return answer


wrong(SIGN, "it is maximised")(summed(penalty=lambda k, m, b: -b * k[m].mean()))
wrong(SIGN, "beta is missing")(summed(penalty=lambda k, m, b: k[m].mean()))
wrong(SIGN, "the KL is averaged over padding")(
    summed(penalty=lambda k, m, b: b * k.sum() / k.numel())
)
wrong(SIGN, "summed, not averaged")(summed(penalty=lambda k, m, b: b * k[m].sum()))
wrong(SIGN, "the KL is detached")(
    summed(penalty=lambda k, m, b: b * (k.detach()[m].mean() + 0 * k[m].mean()))
)
wrong(SIGN, "the policy loss is averaged over padding")(summed(policy=lambda x, m: x.mean()))
wrong(SIGN, "the KL term is left out")(summed(penalty=lambda k, m, b: 0 * k.sum()))
wrong(SIGN, "k1 in place of k3")(lambda x, n, r, m, b: x[m].mean() + b * (n - r)[m].mean())
wrong(SIGN, "beta scales the policy loss")(
    lambda x, n, r, m, b: b * (x + (r - n).exp() - (r - n) - 1)[m].mean()
)


@right(CLIP)
def clip_in_float32(logp, old_logp, advantage, eps_low, eps_high):
    return clip_min(logp.float(), old_logp.float(), advantage.float(), eps_low, eps_high)


@right(KL)
def kl_in_float32(logp, ref_logp, kind):
    return kl_branches(logp.float(), ref_logp.float(), kind)
