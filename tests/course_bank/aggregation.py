"""Answers to the exercises on aggregation, masks and micro-batches."""

import torch

from . import right, wrong

SEQ = "sequence_mean"


@right(SEQ)
def seq_loop(mask):
    out = torch.zeros(mask.shape)
    for i, row in enumerate(mask):
        if row.any():
            out[i, row] = 1 / (len(mask) * int(row.sum()))
    return out


@right(SEQ)
def seq_where(mask):
    n, m = mask.shape[0], mask.double()
    return torch.where(mask, 1 / (n * m.sum(-1, keepdim=True)), 0.0)


@right(SEQ)
def seq_einsum(mask):
    inverse = mask.sum(1).clamp_min(1).double().reciprocal()
    return torch.einsum("nt,n->nt", mask.double(), inverse) / mask.size(0)


wrong(SEQ, "padded width")(lambda mask: mask.float() / mask.numel())
wrong(SEQ, "masked places get weight")(
    lambda mask: torch.ones(mask.shape) / mask.sum(1).clamp(min=1)[:, None] / mask.shape[0]
)
wrong(SEQ, "not divided by the number of completions")(
    lambda mask: mask / mask.sum(-1).clamp(min=1).unsqueeze(-1)
)
wrong(SEQ, "this is the token mean")(lambda mask: mask.float() / mask.float().sum().clamp(min=1))
wrong(SEQ, "the wrong axis")(lambda mask: mask / mask.sum(dim=0).clamp(min=1) / mask.shape[0])
wrong(SEQ, "0/0 in a completion")(
    lambda mask: mask.double() / mask.sum(1, keepdim=True) / mask.shape[0]
)
wrong(SEQ, "are not counted in N")(
    lambda mask: (
        mask / mask.sum(1, keepdim=True).clamp(min=1) / max(int((mask.sum(1) > 0).sum()), 1)
    )
)
wrong(SEQ, "the longest length")(lambda mask: mask / max(int(mask.sum(1).max()), 1) / mask.shape[0])
wrong(SEQ, "sign is flipped")(
    lambda mask: -(mask / mask.sum(1, keepdim=True).clamp(min=1)) / mask.shape[0]
)
wrong(SEQ, "zero everywhere")(lambda mask: torch.zeros(mask.shape))
wrong(SEQ, "one constant factor")(
    lambda mask: 2 * mask / mask.sum(1, keepdim=True).clamp(min=1) / mask.shape[0]
)
wrong(SEQ, "hard-coded")(lambda mask: torch.tensor([[0.25, 0.25, 0, 0], [0.125] * 4]))

TOK = "token_mean"


@right(TOK)
def tok_where(mask):
    return torch.where(mask, 1.0 / max(mask.sum().item(), 1), 0.0)


@right(TOK)
def tok_float(mask):
    m = mask.to(torch.float64)
    return m / torch.clamp(m.sum(), min=1.0)


@right(TOK)
def tok_index(mask):
    out = torch.zeros(mask.shape, dtype=torch.float64)
    out[mask] = 1 / mask.count_nonzero().clamp(min=1).double()
    return out


wrong(TOK, "the padded size")(lambda mask: mask.float() / (mask.shape[0] * mask.shape[1]))
wrong(TOK, "this is the sequence mean")(
    lambda mask: mask.float() / mask.sum(1, keepdim=True).clamp(min=1) / len(mask)
)
wrong(TOK, "masked places get weight")(
    lambda mask: torch.full(mask.shape, 1 / max(float(mask.sum()), 1.0))
)
wrong(TOK, "number of completions as well")(
    lambda mask: mask.double() / mask.sum().clamp(min=1) / mask.size(0)
)
wrong(TOK, "0/0 in a batch")(lambda mask: mask.float() / mask.float().sum())
wrong(TOK, "mean length")(
    lambda mask: mask / (mask.sum().double() / len(mask)).clamp(min=1 / len(mask))
)
wrong(TOK, "without 1/N")(
    lambda mask: mask.double() / mask.double().sum(1, keepdim=True).clamp(min=1)
)
wrong(TOK, "sign is flipped")(lambda mask: -mask.double() / mask.sum().clamp(min=1))
wrong(TOK, "zero everywhere")(lambda mask: mask.double() * 0)

PROMPT = "prompt_token_mean"


@right(PROMPT)
def prompt_loop(mask, group):
    out = torch.zeros(mask.shape, dtype=torch.float64)
    prompts = group.unique()
    for g in prompts:
        rows = group == g
        total = mask[rows].sum()
        if total > 0:
            out[rows] = mask[rows].double() / total / len(prompts)
    return out


@right(PROMPT)
def prompt_matrix(mask, group):
    same = (group[:, None] == group[None, :]).double()
    tokens = same @ mask.double().sum(1)
    return mask / tokens.clamp(min=1)[:, None] / group.unique().numel()


@right(PROMPT)
def prompt_bincount(mask, group):
    _, index = group.unique(return_inverse=True)
    tokens = torch.bincount(index, weights=mask.sum(1).double())
    return torch.where(mask, 1 / (len(tokens) * tokens.clamp(min=1)[index, None]), 0.0)


def in_prompt(mask, group):
    return torch.stack([mask[group == g].sum() for g in group]).clamp(min=1).double()[:, None]


wrong(PROMPT, "pooled")(lambda mask, group: mask.double() / mask.sum())
wrong(PROMPT, "not divided by the number of prompts")(
    lambda mask, group: mask / in_prompt(mask, group)
)
wrong(PROMPT, "number of completions, not of prompts")(
    lambda mask, group: mask / in_prompt(mask, group) / mask.shape[0]
)
wrong(PROMPT, "this is the sequence mean")(
    lambda mask, group: mask.double() / mask.sum(1, keepdim=True).clamp(min=1) / len(mask)
)
wrong(PROMPT, "padded width")(
    lambda mask, group: (
        mask.double()
        / torch.stack([mask[group == g].numel() + 0 * g for g in group])[:, None]
        / len(group.unique())
    )
)
wrong(PROMPT, "masked places get weight")(
    lambda mask, group: (
        torch.ones(mask.shape).double() / in_prompt(mask, group) / len(set(group.tolist()))
    )
)
wrong(PROMPT, "largest group number")(
    lambda mask, group: mask / in_prompt(mask, group) / (int(group.max()) + 1)
)
wrong(PROMPT, "zero everywhere")(lambda mask, group: torch.zeros_like(mask, dtype=torch.float64))


@wrong(PROMPT, "0/0 in a prompt")
def prompt_nan(mask, group):
    tokens = torch.stack([mask[group == g].sum() for g in group]).double()
    return mask / tokens[:, None] / len(group.unique())


CONST = "constant_mean"


@right(CONST)
def const_where(mask, max_new_tokens):
    return torch.where(mask, 1.0 / (mask.shape[0] * max_new_tokens), 0.0)


@right(CONST)
def const_double(mask, max_new_tokens):
    return mask.double().div(max_new_tokens).div(len(mask))


@right(CONST)
def const_full(mask, max_new_tokens):
    out = torch.full(mask.shape, 1 / max_new_tokens, dtype=torch.float64) / mask.size(0)
    out[~mask] = 0
    return out


wrong(CONST, "padded width of the batch")(
    lambda mask, max_new_tokens: mask.double() / mask.shape[-1] / mask.shape[0]
)
wrong(CONST, "the longest completion")(
    lambda mask, c: mask.double() / mask.sum(1).max() / len(mask)
)
wrong(CONST, "it grows with the batch")(lambda mask, c: mask.float() / c)
wrong(CONST, "this is GRPO's sequence mean")(
    lambda mask, c: mask / mask.sum(1, keepdim=True).clamp(min=1).double() / len(mask)
)
wrong(CONST, "the mask is missing")(
    lambda mask, c: torch.full(mask.shape, 1 / (c * len(mask)), dtype=torch.float64)
)
wrong(CONST, "not counted in N")(lambda mask, c: mask.double() / c / (mask.sum(1) > 0).sum())
wrong(CONST, "mean length of the batch")(
    lambda mask, c: mask.double() / mask.sum(1).double().mean() / len(mask)
)
wrong(CONST, "the constant is missing")(lambda mask, c: mask.float() / mask.shape[0])
wrong(CONST, "one constant factor")(lambda mask, c: mask.double() / len(mask) / (2 * c))
wrong(CONST, "zero everywhere")(lambda mask, c: mask.double() - mask.double())

AGENT = "agent_weights"


@right(AGENT)
def agent_where(mask, response_length):
    own = mask.sum(1, keepdim=True)
    return torch.where(mask, 1.0 / own.clamp(min=1), 0.0) / len(mask)


@right(AGENT)
def agent_loop(mask, response_length):
    rows = [row.double() / max(int(row.sum()), 1) for row in mask]
    return torch.stack(rows) / len(rows)


@right(AGENT)
def agent_normalised(mask, response_length):
    return torch.nn.functional.normalize(mask.double(), p=1, dim=1) / mask.shape[0]


wrong(AGENT, "counts tool tokens")(lambda mask, n: mask.double() / n.unsqueeze(1) / mask.shape[0])
wrong(AGENT, "tool tokens are trained")(
    lambda mask, n: (
        (torch.arange(mask.shape[1]) < n[:, None])
        / mask.sum(1, keepdim=True).clamp(min=1)
        / len(mask)
    )
)
wrong(AGENT, "padded width")(lambda mask, n: mask.double() / mask.size(1) / mask.size(0))
wrong(AGENT, "not divided by the number of completions")(
    lambda mask, n: mask / mask.sum(1, keepdim=True).clamp(min=1)
)
wrong(AGENT, "this is the token mean")(lambda mask, n: mask.double() / mask.sum())
wrong(AGENT, "0/0 in a response")(lambda mask, n: mask / mask.sum(1, keepdim=True) / len(mask))
wrong(AGENT, "zero everywhere")(lambda mask, n: torch.zeros(mask.shape))
wrong(AGENT, "sign is flipped")(
    lambda mask, n: -mask.double() / mask.sum(1, keepdim=True).clamp(min=1) / len(mask)
)

MASKED = "masked_mean"


@right(MASKED)
def masked_index(value, mask):
    live = value[mask]
    return live.mean() if live.numel() else value.nan_to_num(0.0, 0.0, 0.0).sum() * 0


@right(MASKED)
def masked_fill(value, mask):
    return value.masked_fill(~mask, 0.0).sum() / max(int(mask.sum()), 1)


@right(MASKED)
def masked_loop(value, mask):
    total, count = (value[:0]).sum(), 0
    for v, m in zip(value.reshape(-1), mask.reshape(-1), strict=True):
        if m:
            total, count = total + v, count + 1
    return total / max(count, 1)


wrong(MASKED, "0 times NaN")(lambda v, m: (v * m.double()).sum() / m.double().sum().clamp(min=1))
wrong(MASKED, "the numerator is not masked")(lambda v, m: v.sum() / max(int(m.sum()), 1))
wrong(MASKED, "by all places")(lambda v, m: v.masked_fill(~m, 0.0).mean())
wrong(MASKED, "0/0 where everything")(lambda v, m: v.masked_fill(~m, 0.0).sum() / m.sum())
wrong(MASKED, "averaged on their own first")(
    lambda v, m: (v.masked_fill(~m, 0).sum(1) / m.sum(1).clamp(min=1)).mean()
)
wrong(MASKED, "still count")(
    lambda v, m: torch.where(v.isfinite(), v, 0.0).sum() / m.sum().clamp(min=1)
)
wrong(MASKED, "the sum, not the mean")(lambda v, m: v.masked_fill(~m, 0.0).sum())
wrong(MASKED, "zero everywhere")(lambda v, m: v.masked_fill(~m, 0.0).sum() * 0)
wrong(MASKED, "the graph is cut")(
    lambda v, m: torch.tensor(v.masked_fill(~m, 0.0).sum().item() / max(int(m.sum()), 1))
)

MICRO = "micro_batch_loss"


@right(MICRO)
def micro_fill(token_loss, mask, step_tokens):
    return token_loss.masked_fill(~mask, 0.0).sum() / step_tokens


@right(MICRO)
def micro_index(token_loss, mask, step_tokens):
    return (token_loss[mask] / step_tokens).sum()


@right(MICRO)
def micro_weighted(token_loss, mask, step_tokens):
    safe = torch.where(mask, token_loss, torch.zeros_like(token_loss))
    return (safe * (mask.double() / step_tokens)).sum()


wrong(MICRO, "a mean of means")(lambda x, m, n: x.masked_fill(~m, 0.0).sum() / max(int(m.sum()), 1))
wrong(MICRO, "0 times NaN")(lambda x, m, n: (x * m.double() / n).sum())
wrong(MICRO, "averaged on its own first")(
    lambda x, m, n: (x.masked_fill(~m, 0.0).sum(1) / m.sum(1).clamp(min=1)).mean()
)
wrong(MICRO, "the graph is cut")(
    lambda x, m, n: torch.tensor(float(x.detach().masked_fill(~m, 0.0).sum()) / n)
)
wrong(MICRO, "a plain sum")(lambda x, m, n: x[m].sum())
wrong(MICRO, "the padded size")(lambda x, m, n: x.masked_fill(~m, 0.0).mean())
wrong(MICRO, "the mask is missing")(lambda x, m, n: x.sum() / n)
wrong(MICRO, "completions as well")(lambda x, m, n: x[m].sum() / n / x.shape[0])
wrong(MICRO, "zero everywhere")(lambda x, m, n: x[m].sum() * 0)
wrong(MICRO, "sign is flipped")(lambda x, m, n: -x[m].sum() / n)

ACCUM = "accumulated_loss"


@right(ACCUM)
def accum_cat(losses, masks):
    live = torch.cat([x[m] for x, m in zip(losses, masks, strict=True)])
    return live.sum() / max(len(live), 1)


@right(ACCUM)
def accum_loop(losses, masks):
    total = 0
    for m in masks:
        total += int(m.sum())
    value = 0
    for x, m in zip(losses, masks, strict=True):
        value = value + x.masked_fill(~m, 0).sum() / total
    return value


@right(ACCUM)
def accum_weighted_means(losses, masks):
    counts = [m.sum().clamp(min=1) for m in masks]
    means = [x.masked_fill(~m, 0).sum() / c for x, m, c in zip(losses, masks, counts, strict=True)]
    total = sum(m.sum() for m in masks)
    return sum(v * m.sum() / total for v, m in zip(means, masks, strict=True))


def live_sums(losses, masks):
    return [x.masked_fill(~m, 0).sum() for x, m in zip(losses, masks, strict=True)]


def live_count(masks):
    return sum(int(m.sum()) for m in masks)


wrong(ACCUM, "although the step's tokens are already")(
    lambda x, m: sum(live_sums(x, m)) / live_count(m) / len(m)
)
wrong(ACCUM, "the mean of the micro-batch means")(
    lambda x, m: sum(s / int(k.sum()) for s, k in zip(live_sums(x, m), m, strict=True)) / len(x)
)
wrong(ACCUM, "the sum of the micro-batch means")(
    lambda x, m: sum(s / k.sum() for s, k in zip(live_sums(x, m), m, strict=True))
)
wrong(ACCUM, "the mask is missing")(lambda x, m: sum(v.sum() for v in x) / live_count(m))
wrong(ACCUM, "the padded size")(lambda x, m: sum(live_sums(x, m)) / sum(k.numel() for k in m))


@wrong(ACCUM, "only the last micro-batch counts")
def accum_overwrites(losses, masks):
    for x, m in zip(losses, masks, strict=True):
        loss = x.masked_fill(~m, 0).sum() / live_count(masks)
    return loss


@wrong(ACCUM, "averaged on its own first")
def accum_rows(losses, masks):
    means = []
    for x, m in zip(losses, masks, strict=True):
        for row, live in zip(x, m, strict=True):
            means.append(row.masked_fill(~live, 0).sum() / max(int(live.sum()), 1))
    return sum(means) / len(means)


wrong(ACCUM, "the graph is cut")(
    lambda x, m: torch.tensor(sum(s.item() for s in live_sums(x, m)) / live_count(m))
)
