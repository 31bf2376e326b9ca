# %% [markdown]
# # Exercises 6 · Sampling and credit
#
# **Beside chapters 03, 04 and 08.** What happens before the loss: penalties, groups that go, and credit per token.

# %% [markdown] exercise="overlong_penalty"
# DAPO's soft punishment: 0 up to `max_new_tokens - cache` tokens, then linearly down to -1 at `max_new_tokens`, and -1 beyond.
#
# Hint 1: how many tokens beyond the start of the slope, as a share of `cache`?
#
# Hint 2: `-((length - start) / cache).clamp(0, 1)`.

# %% exercise="overlong_penalty" role="answer"
def overlong_penalty(length, max_new_tokens, cache):
    """length [N] integer -> [N], to be added to the reward."""
    ### BEGIN SOLUTION
    start = max_new_tokens - cache
    return -((length - start) / cache).clamp(0, 1)
    ### END SOLUTION


# %% [markdown] exercise="dynamic_sampling"
# Keep the prompts whose completions differ in reward. Rewards may be 0 and 1, -1 and +1, or graded.
#
# Hint 1: a verdict per group, laid on its rows.
#
# Hint 2: largest against smallest reward of the group.


# %% exercise="dynamic_sampling" role="answer"
def dynamic_sampling(reward, group):
    """reward [N], group [N] -> [N] bool, True where the row stays."""
    ### BEGIN SOLUTION
    keep = torch.zeros_like(group, dtype=torch.bool)
    for g in group.unique():
        r = reward[group == g]
        keep[group == g] = r.max() > r.min()
    return keep
    ### END SOLUTION


# %% [markdown] exercise="gae"
# One advantage per token: `δ_t = r_t + γ·V_{t+1} - V_t`, `A_t = δ_t + γλ·A_{t+1}`. The reward arrives at the last live token; after it there is no
# value. Completions are padded on the right.
#
# Hint 1: walk backwards over the columns and carry `A_{t+1}` and `V_{t+1}`; both are 0 after the end.
#
# Hint 2: `last = mask.sum(1) - 1`; the reward enters where `t == last`; where a column is masked the carry stays 0.


# %% exercise="gae" role="answer"
def gae(reward, value, mask, gamma, lam):
    """reward [N], value [N, T], mask [N, T] bool -> [N, T]."""
    ### BEGIN SOLUTION
    out, last = torch.zeros_like(value), mask.sum(dim=1) - 1
    carry, ahead = torch.zeros_like(reward), torch.zeros_like(reward)
    for t in reversed(range(mask.shape[1])):
        delta = reward * (last == t) + gamma * ahead - value[:, t]
        carry = torch.where(mask[:, t], delta + gamma * lam * carry, 0.0)
        ahead = torch.where(mask[:, t], value[:, t], 0.0)
        out[:, t] = carry
    return out
    ### END SOLUTION


# %% [markdown] exercise="silent_share"
# A prompt of pass rate p, groups of `size` completions. How probable is a group that is all right or all wrong?
#
# Hint 1: two ways to be silent, and they exclude each other.
#
# Hint 2: the completions are independent: powers.


# %% exercise="silent_share" role="answer"
def silent_share(p, size):
    """p in (0, 1), size int -> probability."""
    ### BEGIN SOLUTION
    return p**size + (1 - p) ** size
    ### END SOLUTION
