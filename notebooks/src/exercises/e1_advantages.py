# %% [markdown]
# # Exercises 1 · Advantages
#
# **Beside chapter 03.** From the rewards of a prompt's group to one number per completion: what is compared, by what it is divided, and what
# happens where there is nothing to compare.

# %% [markdown] exercise="group_advantage"
# Write `(r - mean) / (std + eps)` within each prompt. `group` holds the prompt number of each completion; the rows of a prompt need not be
# neighbours, and groups need not have the same size. `ddof` is 1 for dividing by G - 1 and 0 for dividing by G. A group whose rewards are all
# equal gets 0, at `eps = 0` too.
#
# By hand: rewards 1 0 0 0, ddof 1, eps 0 give 1.5, -0.5, -0.5, -0.5.
#
# Hint 1: `for g in group.unique():` and a boolean index `rows = group == g` is fine; `Tensor.std` has the argument `correction`.
#
# Hint 2: `out = torch.zeros_like(reward)`, then for each group where `r.max() > r.min()`: `out[rows] = (r - r.mean()) / (r.std(correction=...) + eps)`.

# %% exercise="group_advantage" role="answer"
def group_advantage(reward, group, ddof, eps):
    """reward [N] float, group [N] prompt numbers -> [N] advantages."""
    ### BEGIN SOLUTION
    out = torch.zeros_like(reward)
    for g in group.unique():
        rows = group == g
        r = reward[rows]
        if r.max() > r.min():
            out[rows] = (r - r.mean()) / (r.std(correction=ddof) + eps)
    return out
    ### END SOLUTION


# %% [markdown] exercise="leave_one_out"
# Each completion is compared with the mean reward of the **other** completions of its prompt.
#
# Hint 1: the sum of the others is the sum of the group minus your own reward. How many are they?
#
# Hint 2: for one group: `r - (r.sum() - r) / (len(r) - 1)`.


# %% exercise="leave_one_out" role="answer"
def leave_one_out(reward, group):
    """reward [N] float, group [N] prompt numbers -> [N] advantages."""
    ### BEGIN SOLUTION
    out = torch.zeros_like(reward)
    for g in group.unique():
        rows = group == g
        r = reward[rows]
        out[rows] = r - (r.sum() - r) / (len(r) - 1)
    return out
    ### END SOLUTION


# %% [markdown] exercise="scored_advantage"
# Where a reward function does not apply, the reward is NaN. The version below was reported because completions without a score got worse
# and worse. Run it, find the fault, and write a repaired version: a completion without a score gets 0, the others are centred among themselves.


# %% exercise="scored_advantage" role="given"
def scored_advantage_faulty(reward, group):
    known = torch.nan_to_num(reward, nan=0.0)
    out = torch.zeros_like(known)
    for g in group.unique():
        out[group == g] = known[group == g] - known[group == g].mean()
    return out


scored_advantage_faulty(torch.tensor([1.0, float("nan"), 0.0, 1.0]), torch.tensor([0, 0, 0, 0]))

# %% [markdown] exercise="scored_advantage" role="hints"
# Hint 1: what does the second completion get, and what enters the mean for it?
#
# Hint 2: index by `rows = (group == g) & ~reward.isnan()`, and skip groups where no row is left.


# %% exercise="scored_advantage" role="answer"
def scored_advantage(reward, group):
    """reward [N] with NaN for "not scored", group [N] -> [N] centred advantages."""
    ### BEGIN SOLUTION
    out = torch.zeros_like(reward)
    for g in group.unique():
        rows = (group == g) & ~reward.isnan()
        if rows.any():
            out[rows] = reward[rows] - reward[rows].mean()
    return out
    ### END SOLUTION


# %% [markdown] exercise="dead_groups"
# Seven completions with reward 0.7 each: nothing to learn. The version below does not see it in float32. Repair it; real differences, even of
# 1e-5, must still count.


# %% exercise="dead_groups" role="given"
def dead_groups_faulty(reward, group):
    out = torch.zeros_like(group, dtype=torch.bool)
    for g in group.unique():
        out[group == g] = reward[group == g].std() == 0
    return out


sevens = torch.tensor([0.7] * 7)
dead_groups_faulty(sevens, torch.zeros(7, dtype=torch.long)), sevens.std(), sevens.mean() - 0.7

# %% [markdown] exercise="dead_groups" role="hints"
# Hint 1: why is the std of seven equal numbers not 0? Which statistic of a group involves no arithmetic at all?
#
# Hint 2: compare the largest with the smallest reward of the group.


# %% exercise="dead_groups" role="answer"
def dead_groups(reward, group):
    """reward [N], group [N] -> [N] bool, True on rows whose prompt's rewards are all equal."""
    ### BEGIN SOLUTION
    out = torch.zeros_like(group, dtype=torch.bool)
    for g in group.unique():
        r = reward[group == g]
        out[group == g] = r.max() == r.min()
    return out
    ### END SOLUTION


# %% [markdown] exercise="group_of_two"
# Hint 1: what is the sample std of two numbers, written with their difference?
#
# Hint 2: run the cell with `ddof` 0 and 1, and with other gaps.

# %% exercise="group_of_two" role="run"
pair = torch.tensor(group_of_two_case.given["rewards"], dtype=torch.float64)
(pair - pair.mean()) / pair.std(correction=1)

# %% [markdown] exercise="normalised_twice"
# Hint 1: the whitening std is over live *and* dead completions.
#
# Hint 2: change `dead` in the cell and watch.

# %% exercise="normalised_twice" role="run"
size, dead = normalised_twice_case.given["size"], normalised_twice_case.given["dead"]
live = torch.tensor([1.0] + [0.0] * (size - 1), dtype=torch.float64)
once = (live - live.mean()) / live.std()
batch = torch.cat([once, torch.zeros(dead * size)])
once[0], ((batch - batch.mean()) / batch.std())[0]
