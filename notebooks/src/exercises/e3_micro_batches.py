# %% [markdown]
# # Exercises 3 · Masks and micro-batches
#
# **Beside chapter 05.** The largest class of public reports: a denominator that counts the wrong things, or counts them per micro-batch.

# %% [markdown] exercise="masked_mean"
# One NaN in the padding, and the loss is NaN. Repair the mean. What stands under the mask must have no say in the value nor in the gradient, and
# where everything is masked the mean is 0.

# %% exercise="masked_mean" role="given"
def masked_mean_faulty(value, mask):
    return (value * mask).sum() / mask.sum()


masked_mean_faulty(torch.tensor([[1.0, float("nan"), 3.0]]), torch.tensor([[True, False, True]]))

# %% [markdown] exercise="masked_mean" role="hints"
# Hint 1: what is 0 · NaN?
#
# Hint 2: select with `torch.where` before any arithmetic, and keep the count from being 0.


# %% exercise="masked_mean" role="answer"
def masked_mean(value, mask):
    """value [N, T], mask [N, T] bool -> scalar."""
    ### BEGIN SOLUTION
    return torch.where(mask, value, 0.0).sum() / mask.sum().clamp(min=1)
    ### END SOLUTION


# %% [markdown] exercise="completion_mask"
# The padding id is the end-of-sequence id. Models trained with the mask below never learn to stop. Repair it: everything up to and
# including the first EOS is trained; a completion without EOS was truncated and is trained to its last token.


# %% exercise="completion_mask" role="given"
def completion_mask_faulty(ids, eos):
    return ids != eos


completion_mask_faulty(torch.tensor([[5, 6, 2, 2, 2], [5, 6, 7, 8, 9]]), 2)

# %% [markdown] exercise="completion_mask" role="hints"
# Hint 1: how many EOS have been seen *before* each place? `cumsum` counts.
#
# Hint 2: `(hit.cumsum(1) - hit) == 0` with `hit = (ids == eos).long()`.


# %% exercise="completion_mask" role="answer"
def completion_mask(ids, eos):
    """ids [N, T] integer, eos int -> [N, T] bool."""
    ### BEGIN SOLUTION
    hit = (ids == eos).long()
    return (hit.cumsum(dim=1) - hit) == 0
    ### END SOLUTION


# %% [markdown] exercise="micro_batch_loss"
# A step is cut into micro-batches whose losses are added by `.backward()`. Write the loss of one of them, so that the parts add to the step's token
# mean however the step is cut. `step_tokens` is the number of live tokens of the whole step. NaN may stand under the mask.
#
# Hint 1: which denominator is the same for all micro-batches of a step?
#
# Hint 2: the sum over live tokens, divided by `step_tokens`.


# %% exercise="micro_batch_loss" role="answer"
def micro_batch_loss(token_loss, mask, step_tokens):
    """token_loss [n, T], mask [n, T] bool, step_tokens int -> scalar, differentiable."""
    ### BEGIN SOLUTION
    return torch.where(mask, token_loss, 0.0).sum() / step_tokens
    ### END SOLUTION


# %% [markdown] exercise="accumulated_loss"
# The gradient of this step shrinks with the number of accumulation steps. Repair it: `losses` and `masks` are lists, one entry per micro-batch.


# %% exercise="accumulated_loss" role="given"
def accumulated_loss_faulty(losses, masks):
    tokens = sum(int(m.sum()) for m in masks)
    parts = [torch.where(m, x, 0.0).sum() / tokens for x, m in zip(losses, masks, strict=True)]
    return sum(parts) / len(parts)


[
    accumulated_loss_faulty([torch.ones(1, 4)] * n, [torch.ones(1, 4, dtype=torch.bool)] * n)
    for n in (1, 2, 4)
]

# %% [markdown] exercise="accumulated_loss" role="hints"
# Hint 1: every token has loss 1. What should the three numbers be?
#
# Hint 2: how often is the number of micro-batches already in the denominator?


# %% exercise="accumulated_loss" role="answer"
def accumulated_loss(losses, masks):
    """losses, masks: lists of [n, T] -> scalar, differentiable."""
    ### BEGIN SOLUTION
    tokens = sum(int(m.sum()) for m in masks)
    return sum(torch.where(m, x, 0.0).sum() / tokens for x, m in zip(losses, masks, strict=True))
    ### END SOLUTION


# %% [markdown] exercise="mean_of_means"
# Hint 1: how much does one token of each micro-batch weigh in the mean of means?
#
# Hint 2: the first number is the sum of all losses over the number of all tokens.

# %% exercise="mean_of_means" role="run"
tokens, losses = mean_of_means_case.given["tokens"], mean_of_means_case.given["losses"]
values = torch.cat([torch.full((n,), float(x)) for n, x in zip(tokens, losses, strict=True)])
{
    "mean of the means": sum(losses) / 2,
    "weight of a token in it": [1 / 2 / n for n in tokens],
    "token mean": values.mean().item(),
}
