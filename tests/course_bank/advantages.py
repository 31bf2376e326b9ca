"""Answers to the exercises on advantages."""

import torch

from . import right, wrong

ADV = "group_advantage"


@right(ADV)
def loop(reward, group, ddof, eps):
    out = torch.zeros_like(reward)
    for g in group.unique():
        rows = group == g
        r = reward[rows]
        if r.max() > r.min():
            out[rows] = (r - r.mean()) / (r.std(correction=ddof) + eps)
    return out


@right(ADV)
def scattered(reward, group, ddof, eps):
    _, index = torch.unique(group, return_inverse=True)
    count = torch.bincount(index).double()
    mean = torch.bincount(index, weights=reward) / count
    centred = reward - mean[index]
    var = torch.bincount(index, weights=centred**2) / (count - ddof)
    std = var.sqrt()[index]
    return torch.where(
        std > 1e-12, centred / (std + eps).clamp(min=1e-30), torch.zeros_like(centred)
    )


@right(ADV)
def same_prompt_matrix(reward, group, ddof, eps):
    same = (group[:, None] == group[None, :]).to(reward.dtype)
    n = same.sum(1)
    centred = reward - same @ reward / n
    std = (same @ centred**2 / (n - ddof)) ** 0.5
    return torch.nan_to_num(centred / (std + eps), nan=0.0)


@right(ADV)
def plain_python(reward, group, ddof, eps):
    r, g = reward.tolist(), group.tolist()
    out = []
    for value, mine in zip(r, g, strict=True):
        peers = [x for x, other in zip(r, g, strict=True) if other == mine]
        mean = sum(peers) / len(peers)
        std = (sum((x - mean) ** 2 for x in peers) / (len(peers) - ddof)) ** 0.5
        out.append((value - mean) / (std + eps) if std > 1e-12 else 0.0)
    return torch.tensor(out, dtype=reward.dtype)


def per_group(rule):
    def answer(reward, group, ddof, eps):
        out = torch.zeros_like(reward)
        for g in group.unique():
            rows = group == g
            if reward[rows].max() > reward[rows].min():
                out[rows] = rule(reward[rows], ddof, eps)
        return out

    return answer


wrong(ADV, "it always divides by G - 1")(
    per_group(lambda r, ddof, eps: (r - r.mean()) / (r.std() + eps))
)
wrong(ADV, "it always divides by G (numpy")(
    per_group(lambda r, ddof, eps: (r - r.mean()) / (r.std(unbiased=False) + eps))
)
wrong(ADV, "eps stands under the root")(
    per_group(lambda r, ddof, eps: (r - r.mean()) / torch.sqrt(r.var(correction=ddof) + eps))
)
wrong(ADV, "eps is left out")(
    per_group(lambda r, ddof, eps: (r - r.mean()) / r.std(correction=ddof))
)
wrong(ADV, "only centred")(per_group(lambda r, ddof, eps: r - r.mean()))
wrong(ADV, "not centred")(per_group(lambda r, ddof, eps: r / (r.std(correction=ddof) + eps)))
wrong(ADV, "divided by the variance")(
    per_group(lambda r, ddof, eps: (r - r.mean()) / (r.var(correction=ddof) + eps))
)
wrong(ADV, "sign is flipped")(
    per_group(lambda r, ddof, eps: (r.mean() - r) / (r.std(correction=ddof) + eps))
)


@wrong(ADV, "mean and std of the whole batch")
def batch(reward, group, ddof, eps):
    if reward.max() == reward.min():
        return torch.zeros_like(reward)
    return (reward - reward.mean()) / (reward.std(correction=ddof) + eps)


@wrong(ADV, "the std is the whole batch's")
def lite(reward, group, ddof, eps):
    same = (group[:, None] == group[None, :]).double()
    spread = reward.std(correction=ddof)
    centred = reward - same @ reward / same.sum(1)
    return centred / (spread + eps) if spread > 0 else centred * 0


@wrong(ADV, "0/0 in a group of equal rewards")
def unguarded(reward, group, ddof, eps):
    out = torch.empty_like(reward)
    for g in group.unique():
        r = reward[group == g]
        out[group == g] = (r - r.mean()) / (r.std(correction=ddof) + eps)
    return out


@wrong(ADV, "consecutive rows")
def reshaped(reward, group, ddof, eps):
    rows = reward.view(-1, int((group == group[0]).sum()))
    std = rows.std(dim=1, keepdim=True, correction=ddof)
    return torch.where(
        std > 0, (rows - rows.mean(dim=1, keepdim=True)) / (std + eps), 0.0
    ).flatten()


@wrong(ADV, "hard-coded")
def visible(reward, group, ddof, eps):
    return torch.tensor([1.5, -0.5, -0.5, -0.5], dtype=torch.float64)


@wrong(ADV, "zero everywhere")
def nothing(reward, group, ddof, eps):
    return torch.zeros_like(reward)


LOO = "leave_one_out"


@right(LOO)
def loo_loop(reward, group):
    out = torch.zeros_like(reward)
    for i in range(len(reward)):
        others = [reward[j] for j in range(len(reward)) if j != i and group[j] == group[i]]
        out[i] = reward[i] - sum(others) / len(others)
    return out


@right(LOO)
def loo_matrix(reward, group):
    other = (group[:, None] == group[None]).double() - torch.eye(len(group), dtype=torch.float64)
    return reward - other @ reward / other.sum(1)


@right(LOO)
def loo_scaled(reward, group):
    _, index, count = torch.unique(group, return_inverse=True, return_counts=True)
    n = count[index].double()
    mean = torch.zeros(len(count), dtype=reward.dtype).index_add(0, index, reward)[index] / n
    return n / (n - 1) * (reward - mean)


def by_group(rule):
    def answer(reward, group):
        out = torch.zeros_like(reward)
        for g in group.unique():
            out[group == g] = rule(reward[group == g])
        return out

    return answer


wrong(LOO, "this is GRPO's centring")(by_group(lambda r: r - r.mean()))
wrong(LOO, "divided by G, not by G - 1")(by_group(lambda r: r - (r.sum() - r) / len(r)))
wrong(LOO, "although its own reward is in the sum")(by_group(lambda r: r - r.sum() / (len(r) - 1)))
wrong(LOO, "the sum of the others")(by_group(lambda r: r - (r.sum() - r)))
wrong(LOO, "only the baseline")(by_group(lambda r: (r.sum() - r) / (len(r) - 1)))
wrong(LOO, "divided by the std as well")(
    by_group(lambda r: (r - (r.sum() - r) / (len(r) - 1)) / r.std())
)
wrong(LOO, "sign is flipped")(by_group(lambda r: (r.sum() - r) / (len(r) - 1) - r))
wrong(LOO, "the whole batch")(
    lambda reward, group: reward - (reward.sum() - reward) / (len(reward) - 1)
)
wrong(LOO, "zero everywhere")(lambda reward, group: reward - reward)

SCORED = "scored_advantage"


@right(SCORED)
def scored_loop(reward, group):
    out = torch.zeros_like(reward)
    for g in group.unique():
        rows = (group == g) & ~torch.isnan(reward)
        if rows.any():
            out[rows] = reward[rows] - reward[rows].mean()
    return out


@right(SCORED)
def scored_nanmean(reward, group):
    out = reward.clone()
    for g in set(group.tolist()):
        out[group == g] -= torch.nanmean(reward[group == g])
    return torch.nan_to_num(out, nan=0.0)


@right(SCORED)
def scored_matrix(reward, group):
    ok = (~reward.isnan()).double()
    r = torch.where(ok > 0, reward, 0.0)
    w = (group[:, None] == group).double() * ok
    return ok * (r - (w @ r) / w.sum(1).clamp(min=1))


def filled(rule):
    def answer(reward, group):
        out = torch.zeros_like(reward)
        for g in group.unique():
            rows = group == g
            out[rows] = rule(reward[rows])
        return out

    return answer


wrong(SCORED, "counted as 0")(filled(lambda r: r.nan_to_num() - r.nan_to_num().mean()))
wrong(SCORED, "still gets an advantage")(
    filled(
        lambda r: (
            r.nan_to_num()
            - (r.nanmean() if not r.isnan().all() else torch.zeros((), dtype=r.dtype))
        )
    )
)
wrong(SCORED, "divided by G all the same")(
    filled(lambda r: torch.where(r.isnan(), 0.0, r.nan_to_num() - r.nansum() / len(r)))
)
wrong(SCORED, "the NaN spreads")(filled(lambda r: r - r.mean()))
wrong(SCORED, "silences its whole group")(filled(lambda r: (r - r.mean()).nan_to_num(nan=0.0)))
wrong(SCORED, "the whole batch")(
    lambda reward, group: (reward - reward.nanmean()).nan_to_num(nan=0.0)
)
wrong(SCORED, "added, not taken away")(filled(lambda r: (r + r.nanmean()).nan_to_num(nan=0.0)))
wrong(SCORED, "zero everywhere")(lambda reward, group: torch.zeros_like(reward))

DEAD = "dead_groups"


@right(DEAD)
def dead_loop(reward, group):
    out = torch.zeros(len(group), dtype=torch.bool)
    for g in group.unique():
        r = reward[group == g]
        out[group == g] = bool(r.max() == r.min())
    return out


@right(DEAD)
def dead_sets(reward, group):
    values = {}
    for g, r in zip(group.tolist(), reward.tolist(), strict=True):
        values.setdefault(g, set()).add(r)
    return torch.tensor([len(values[g]) == 1 for g in group.tolist()])


@right(DEAD)
def dead_pairs(reward, group):
    same_prompt = group[:, None] == group[None, :]
    equal = reward[:, None] == reward[None, :]
    return (equal | ~same_prompt).all(dim=1)[:, None].logical_or(~same_prompt.T).all(dim=0)


def verdict(rule):
    def answer(reward, group):
        out = torch.zeros(len(group), dtype=torch.bool)
        for g in group.unique():
            out[group == g] = rule(reward[group == g])
        return out

    return answer


wrong(DEAD, "std == 0")(verdict(lambda r: r.std().item() == 0.0))
wrong(DEAD, "the tolerance is so wide")(verdict(lambda r: bool(r.max() - r.min() < 1e-4)))
wrong(DEAD, "only groups of zero reward")(verdict(lambda r: bool((r == 0).all())))
wrong(DEAD, "the whole batch is compared")(
    lambda reward, group: torch.full((len(group),), bool((reward == reward[0]).all()))
)
wrong(DEAD, "only the first and the last")(verdict(lambda r: bool(r[0] == r[-1])))
wrong(DEAD, "rows are judged one by one")(
    verdict(lambda r: torch.isclose(r, r.mean(), atol=1e-6, rtol=0.0))
)
wrong(DEAD, "inverted")(verdict(lambda r: bool(r.max() > r.min())))
wrong(DEAD, "same everywhere")(lambda reward, group: torch.ones_like(group, dtype=torch.bool))


@right(ADV)
def in_float32(reward, group, ddof, eps):
    return loop(reward.float(), group, ddof, eps)
