"""Answers to the exercises on sampling, credit and difficulty."""

import math
from itertools import product

import torch

from . import right, wrong

OVER = "overlong_penalty"


@right(OVER)
def over_clamp(length, max_new_tokens, cache):
    start = max_new_tokens - cache
    return ((start - length.double()) / cache).clamp(min=-1.0, max=0.0)


@right(OVER)
def over_branches(length, max_new_tokens, cache):
    out = []
    for n in length.tolist():
        if n <= max_new_tokens - cache:
            out.append(0.0)
        elif n <= max_new_tokens:
            out.append(((max_new_tokens - cache) - n) / cache)
        else:
            out.append(-1.0)
    return torch.tensor(out)


@right(OVER)
def over_where(length, max_new_tokens, cache):
    slope = (max_new_tokens - cache - length.float()) / cache
    return torch.where(slope > 0, 0.0, torch.where(length > max_new_tokens, -1.0, slope))


wrong(OVER, "no floor")(lambda n, top, c: -torch.relu(n.double() - (top - c)) / c)
wrong(OVER, "short completions are paid")(
    lambda n, top, c: torch.clamp((top - c - n.double()) / c, min=-1)
)
wrong(OVER, "being long is rewarded")(lambda n, top, c: ((n.double() - top + c) / c).clamp(0, 1))
wrong(OVER, "a hard cut")(lambda n, top, c: torch.where(n >= top, -1.0, 0.0))
wrong(OVER, "a hard cut")(lambda n, top, c: -((n - (top - c)) // c).clamp(0, 1).float())
wrong(OVER, "the slope starts at the limit")(
    lambda n, top, c: ((top - n.double()) / c).clamp(-1, 0)
)
wrong(OVER, "divides by the limit")(lambda n, top, c: ((top - c - n.double()) / top).clamp(-1, 0))
wrong(OVER, "the slope starts at length 0")(lambda n, top, c: (-n.double() / top).clamp(-1, 0))
wrong(OVER, "zero everywhere")(lambda n, top, c: torch.zeros(len(n)))

DYN = "dynamic_sampling"


@right(DYN)
def dyn_loop(reward, group):
    keep = torch.zeros(len(group), dtype=torch.bool)
    for g in group.unique():
        r = reward[group == g]
        keep[group == g] = bool((r != r[0]).any())
    return keep


@right(DYN)
def dyn_pairs(reward, group):
    same = group[:, None] == group
    return (same & (reward[:, None] != reward)).any(1) | (
        same.double() @ ((same & (reward[:, None] != reward)).any(1)).double() > 0
    )


@right(DYN)
def dyn_sets(reward, group):
    seen = {}
    for g, r in zip(group.tolist(), reward.tolist(), strict=True):
        seen.setdefault(g, set()).add(r)
    return torch.tensor([len(seen[g]) > 1 for g in group.tolist()])


def kept(rule):
    def answer(reward, group):
        keep = torch.zeros(len(group), dtype=torch.bool)
        for g in group.unique():
            keep[group == g] = rule(reward[group == g])
        return keep

    return answer


wrong(DYN, "all right stay")(kept(lambda r: bool((r > 0).any())))
wrong(DYN, "all wrong stay")(kept(lambda r: bool((r <= 0).any())))
wrong(DYN, "rewards are taken as 0 and 1")(kept(lambda r: bool(0 < r.sum() < len(r))))
wrong(DYN, "std > 0")(kept(lambda r: bool(r.std() > 0)))
wrong(DYN, "the tolerance is so wide")(kept(lambda r: bool(r.max() - r.min() > 1e-3)))
wrong(DYN, "compared with the group's mean")(kept(lambda r: r != r.mean()))
wrong(DYN, "only right answers stay")(lambda reward, group: reward > 0)
wrong(DYN, "the whole batch is judged")(
    lambda reward, group: torch.ones_like(group).bool() & bool((reward != reward[0]).any())
)
wrong(DYN, "inverted")(kept(lambda r: bool((r == r[0]).all())))
wrong(DYN, "same everywhere")(lambda reward, group: torch.ones(len(reward), dtype=torch.bool))

GAE = "gae"


@right(GAE)
def gae_rows(reward, value, mask, gamma, lam):
    out = torch.zeros_like(value)
    for i in range(len(reward)):
        n, carry = int(mask[i].sum()), 0.0
        for t in reversed(range(n)):
            last = t == n - 1
            delta = (
                (float(reward[i]) if last else 0.0)
                + (0.0 if last else gamma * float(value[i, t + 1]))
                - float(value[i, t])
            )
            carry = delta + gamma * lam * carry
            out[i, t] = carry
    return out


@right(GAE)
def gae_sums(reward, value, mask, gamma, lam):
    n, width = value.shape
    v = torch.where(mask, value, 0.0)
    ahead = torch.cat([v[:, 1:], v.new_zeros(n, 1)], dim=1)
    end = mask & ~torch.cat([mask[:, 1:], mask.new_zeros(n, 1)], dim=1)
    delta = end * reward[:, None] + gamma * ahead - v
    gap = torch.arange(width)[None, :] - torch.arange(width)[:, None]
    discount = torch.where(
        gap >= 0, torch.tensor(gamma * lam, dtype=v.dtype) ** gap.clamp(min=0), 0.0
    )
    return torch.where(mask, (delta * mask) @ discount.T, 0.0)


@right(GAE)
def gae_columns(reward, value, mask, gamma, lam):
    width, columns = mask.shape[1], []
    carry, ahead = torch.zeros_like(reward), torch.zeros_like(reward)
    length = mask.sum(1)
    for t in range(width - 1, -1, -1):
        live = mask[:, t].double()
        r = reward * (length - 1 == t)
        carry = live * (r + gamma * ahead - value[:, t] + gamma * lam * carry)
        ahead = live * value[:, t]
        columns.insert(0, carry)
    return torch.stack(columns, 1)


def row_by_row(
    pay=lambda r, t, n, width: r if t == n - 1 else 0.0,
    ahead=lambda v, t, n, g: g * v[t + 1] if t + 1 < n else 0.0,
    decay=lambda g, k: g * k,
    give=lambda a, v: a,
    base=lambda v: v,
):
    def answer(reward, value, mask, gamma, lam):
        out = torch.zeros_like(value)
        for i in range(len(reward)):
            n, carry = int(mask[i].sum()), 0.0
            for t in reversed(range(n)):
                carry = (
                    pay(reward[i], t, n, mask.shape[1])
                    + ahead(value[i], t, n, gamma)
                    - base(value[i, t])
                    + decay(gamma, lam) * carry
                )
                out[i, t] = give(carry, value[i, t])
        return out

    return answer


wrong(GAE, "at every token")(row_by_row(pay=lambda r, t, n, width: r))
wrong(GAE, "at the last column")(
    row_by_row(pay=lambda r, t, n, width: r if t == width - 1 else 0.0)
)
wrong(GAE, "lambda is missing")(row_by_row(decay=lambda g, k: g))
wrong(GAE, "gamma is missing before lambda")(row_by_row(decay=lambda g, k: k))
wrong(GAE, "gamma is missing before the next value")(
    row_by_row(ahead=lambda v, t, n, g: v[t + 1] if t + 1 < n else 0.0)
)
wrong(GAE, "a value after the end is used")(
    row_by_row(ahead=lambda v, t, n, g: g * v[t + 1] if t + 1 < len(v) else 0.0)
)
wrong(GAE, "the value was added back")(row_by_row(give=lambda a, v: a + v))
wrong(GAE, "only the one-step error")(row_by_row(decay=lambda g, k: 0.0))
wrong(GAE, "a discounted reward")(row_by_row(base=lambda v: 0.0, ahead=lambda v, t, n, g: 0.0))
wrong(GAE, "the sign is flipped")(row_by_row(give=lambda a, v: -a))

END = "completion_mask"


@right(END)
def end_loop(ids, eos):
    out = torch.ones(ids.shape, dtype=torch.bool)
    for i, row in enumerate(ids.tolist()):
        if eos in row:
            out[i, row.index(eos) + 1 :] = False
    return out


@right(END)
def end_argmax(ids, eos):
    hit = ids == eos
    first = torch.where(hit.any(1), hit.int().argmax(1), ids.shape[1])
    return torch.arange(ids.shape[1])[None, :] <= first[:, None]


@right(END)
def end_before(ids, eos):
    hit = (ids == eos).int()
    return (hit.cumsum(1) - hit) == 0


wrong(END, "every EOS is masked")(lambda ids, eos: ids.ne(eos))
wrong(END, "everything is live")(lambda ids, eos: torch.ones(ids.shape).bool())
wrong(END, "masked whole")(
    lambda ids, eos: (
        (((ids == eos).int().cumsum(1) - (ids == eos).int()) == 0) & (ids == eos).any(1)[:, None]
    )
)
wrong(END, "only the EOS itself")(
    lambda ids, eos: ((ids == eos).int().cumsum(1) == 1) & (ids == eos)
)
wrong(END, "at the last EOS")(
    lambda ids, eos: (
        torch.arange(ids.shape[1])[None]
        <= torch.where(ids == eos, torch.arange(ids.shape[1]), -1).amax(1)[:, None]
    )
)


@wrong(END, "before the first EOS")
def end_too_early(ids, eos):
    out = torch.ones(ids.shape, dtype=torch.bool)
    for i, row in enumerate(ids.tolist()):
        if eos in row:
            out[i, row.index(eos) :] = False
    return out


@wrong(END, "one place too many")
def end_too_late(ids, eos):
    out = torch.ones(ids.shape, dtype=torch.bool)
    for i, row in enumerate(ids.tolist()):
        if eos in row:
            out[i, row.index(eos) + 2 :] = False
    return out


WEIGHT = "group_weight"


@right(WEIGHT)
def weight_enumerated(p, size, ddof):
    total = 0.0
    for k in range(1, size):
        r = torch.tensor([1.0] * k + [0.0] * (size - k), dtype=torch.float64)
        gain = float(r.var(correction=0) / r.std(correction=ddof))
        total += math.comb(size, k) * p**k * (1 - p) ** (size - k) * gain
    return total / (p * (1 - p))


@right(WEIGHT)
def weight_simplified(p, size, ddof):
    scale = math.sqrt((size - ddof) / size) / (p * (1 - p))
    return scale * sum(
        math.comb(size, k) * p**k * (1 - p) ** (size - k) * math.sqrt(k * (size - k)) / size
        for k in range(size + 1)
    )


@right(WEIGHT)
def weight_recursive(p, size, ddof):
    chances = [1.0]
    for _ in range(size):
        chances = [
            a * p + b * (1 - p) for a, b in zip([0.0, *chances], [*chances, 0.0], strict=True)
        ]
    shrink = math.sqrt(1 - ddof / size)
    return (
        shrink
        * sum(c * math.sqrt(k / size * (1 - k / size)) for k, c in enumerate(chances))
        / p
        / (1 - p)
    )


def over_counts(term, start=1):
    def answer(p, size, ddof):
        return sum(term(p, size, ddof, k) for k in range(start, size))

    return answer


def std(size, ddof, k):
    return math.sqrt(k * (size - k) / size / (size - ddof))


def chance(p, size, k):
    return math.comb(size, k) * p**k * (1 - p) ** (size - k)


def var(size, k):
    return (k / size) * (1 - k / size)


wrong(WEIGHT, "the limit of infinite groups")(lambda p, size, ddof: (p * (1 - p)) ** -0.5)
wrong(WEIGHT, "as if it were 0")(
    over_counts(lambda p, n, d, k: chance(p, n, k) * var(n, k) / std(n, 0, k) / (p * (1 - p)))
)
wrong(WEIGHT, "as if it were 1")(
    over_counts(lambda p, n, d, k: chance(p, n, k) * var(n, k) / std(n, 1, k) / (p * (1 - p)))
)
wrong(WEIGHT, "not divided by p(1-p)")(
    over_counts(lambda p, n, d, k: chance(p, n, k) * var(n, k) / std(n, d, k))
)
wrong(WEIGHT, "the binomial coefficient")(
    over_counts(
        lambda p, n, d, k: p**k * (1 - p) ** (n - k) * var(n, k) / std(n, d, k) / (p * (1 - p))
    )
)
wrong(WEIGHT, "averaged over live groups only")(
    over_counts(
        lambda p, n, d, k: (
            chance(p, n, k) * var(n, k) / std(n, d, k) / (p * (1 - p)) / (1 - p**n - (1 - p) ** n)
        )
    )
)
wrong(WEIGHT, "the weight without it")(
    over_counts(lambda p, n, d, k: chance(p, n, k) * var(n, k) / (p * (1 - p)))
)
wrong(WEIGHT, "by the variance, not by the std")(
    over_counts(lambda p, n, d, k: chance(p, n, k) * var(n, k) / std(n, d, k) ** 2 / (p * (1 - p)))
)
wrong(WEIGHT, "zero everywhere")(lambda p, size, ddof: 0.0)
wrong(WEIGHT, "ZeroDivisionError")(
    over_counts(
        lambda p, n, d, k: chance(p, n, k) * var(n, k) / std(n, d, k) / (p * (1 - p)), start=0
    )
)

SILENT = "silent_share"
right(SILENT)(lambda p, size: math.pow(p, size) + math.pow(1 - p, size))
right(SILENT)(lambda p, size: 1 - sum(chance(p, size, k) for k in range(1, size)))


@right(SILENT)
def silent_enumerated(p, size):
    if size > 12:
        return math.exp(size * math.log(p)) + math.exp(size * math.log1p(-p))
    total = 0.0
    for outcome in product([0, 1], repeat=size):
        if len(set(outcome)) == 1:
            total += math.prod(p if right_answer else 1 - p for right_answer in outcome)
    return total


wrong(SILENT, "all wrong")(lambda p, size: (1 - p) ** size)
wrong(SILENT, "all right")(lambda p, size: p**size)
wrong(SILENT, "the opposite")(lambda p, size: 1 - p**size - (1 - p) ** size)
wrong(SILENT, "multiplied")(lambda p, size: (p * (1 - p)) ** size)
wrong(SILENT, "one completion too few")(lambda p, size: p ** (size - 1) + (1 - p) ** (size - 1))
wrong(SILENT, "not a power")(lambda p, size: p * size + (1 - p) * size)
wrong(SILENT, "that of a pair")(lambda p, size: p**2 + (1 - p) ** 2)
wrong(SILENT, "zero everywhere")(lambda p, size: 0.0)


@right(GAE)
def gae_in_float32(reward, value, mask, gamma, lam):
    return gae_rows(reward.float(), value.float(), mask, gamma, lam)
