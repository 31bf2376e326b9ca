# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 03 · Advantages from a group
#
# **30 minutes. Before it: notebooks 00 and 01.**
#
# *Question: GRPO threw PPO's value model away and compares the answers to one prompt with each other. A dozen papers compare
# differently. What does each one's advantage say on the same rewards?*
#
# After this notebook you can compute every one of them by hand, and tell which differences are a mere factor. Everything here
# is **exact**.
#
# ## 1. By hand
#
# Four answers to one prompt, rewards 1 0 0 0. DeepSeekMath calls it *outcome supervision*: every token of an answer gets the
# same advantage, (r − mean) / std. The mean is ¼. The deviations are ¾, −¼, −¼, −¼; their squares add to ¾; over G − 1 = 3 that
# is ¼, the root ½. So **+1.5, −0.5, −0.5, −0.5**. "Answer minus group mean", as the talk says, is only the first half: that
# alone, +0.75 and −0.25, is Dr. GRPO.

# %% tags=["row-8"]
from grpo_edu import Rollouts, recipe
from grpo_edu.compare import advantage_table

grpo = recipe("grpo").but("grpo", kl=None)
four = Rollouts.from_lengths([2, 3, 5, 8], rewards=[1, 0, 0, 0], max_new_tokens=8)
print(
    "GRPO, every token:",
    grpo.plan(four).advantage[0, :2].tolist(),
    grpo.plan(four).advantage[1, :3].tolist(),
)
advantage_table([grpo, recipe("dr_grpo"), recipe("rloo")], four)

# %% [markdown]
# RLOO compares with the *other* three: 1 − 0 and 0 − ⅓. That is Dr. GRPO times G/(G − 1) = 4/3, always. "RLOO and GRPO are
# nearly the same": within one group they differ by a factor. Across groups GRPO's factor is 1/std and varies; RLOO's does not.
#
# ## 2. A value model against the group
#
# PPO asks a second network for V before every token and mixes its errors (GAE). GRPO asks nobody. Take the three-letter policy
# of notebook 01 (right = exactly two *b*'s), and let the value model be *perfect*. Four answers: aab, abb, bba, bbb.
#
# **Predict:** for the wrong *aab*, which token does each blame?
#
# <details><summary>Answer</summary>
#
# GAE with λ = 0 blames the first *a* (−0.125) and the second (−0.25) and leaves the last token alone: nothing was left to
# decide. λ = 1 is return minus value. The group gives −0.866 to all three.
#
# </details>

# %% tags=["row-2", "row-7"]
from functools import partial

import pandas as pd
import torch

from grpo_edu.objective.advantages import gae
from grpo_edu.theory import mdp

policy, words = mdp.uniform(2, 3), mdp.words("ab", 3)
right = torch.tensor([float(word.count("b") == 2) for word in words]).double()
rows = [words.index(word) for word in ("aab", "abb", "bba", "bbb")]
tensors = {"logp": mdp.log_probs(policy)[rows], "value": mdp.values_along(policy, right)[rows]}
batch = Rollouts(
    **tensors, mask=torch.ones(4, 3).bool(), reward=right[rows], group=torch.zeros(4).long()
)

# %% tags=["row-2", "row-7"]
ppo = recipe("ppo(gae)")
estimates = {
    f"GAE, λ = {lam:g}": ppo.but(baseline=partial(gae, gamma=1.0, lam=lam))
    for lam in (0.0, 0.95, 1.0)
}
estimates["group (GRPO)"] = grpo
table = {
    name: [str([round(x, 3) for x in row]) for row in one.plan(batch).advantage.tolist()]
    for name, one in estimates.items()
}
pd.DataFrame(table, index=["aab (wrong)", "abb (right)", "bba (right)", "bbb (wrong)"]).T

# %%
from grpo_edu.figures import FIGURES

FIGURES["ppo_and_grpo"].show()

# %% [markdown]
# What each keeps in memory, by DeepSeekMath's Figure 4:
#
# | | policy (trained) | reference (frozen) | reward model | value model (trained) |
# |---|---|---|---|---|
# | PPO | ✓ | ✓ | ✓ | ✓ |
# | GRPO | ✓ | ✓ | ✓ or a rule | none: G answers per prompt instead |
#
# Without a KL term the reference goes too. GRPO is a variant of **PPO**: ratio and clip stay (notebook 02), the advantage
# changes.
#
# ## 3. One batch, thirteen estimators
#
# Two prompts: in the first one of four is right, in the second three of four. ReMax's greedy answer was wrong on the first and
# right on the second.
#
# | estimator | compared with | divided by | what is its own |
# |---|---|---|---|
# | REINFORCE | nothing | nothing | wrong answers are not pushed at all |
# | RLOO | mean of the others | nothing | unbiased |
# | ReMax | the greedy answer | nothing | one extra rollout per prompt |
# | GRPO | group mean | group std | uneven groups are louder |
# | Dr. GRPO | group mean | nothing | (G−1)/G of RLOO |
# | OPO | length-weighted mean | nothing | least noise where a score's variance grows with length |
# | GPG | group mean, made up for dead groups | nothing | here no group is dead: Dr. GRPO's numbers |
# | Lite PPO | group mean | std of the whole batch | no prompt gains over another |
# | REINFORCE++ | mean of all tokens of the batch | their std | no group at all: the easy prompt's answers look good |
# | REINFORCE++ baseline | group mean, then z-scored over tokens | std over tokens | long answers count more in mean and std |
# | MaxRL | group mean | group *mean* | hard prompts gain, easy ones do not |
# | pass@k | derived from pass@k | | rewards a prompt solved at least once in k tries |
# | GDPO | group mean and std of each reward function | std of the batch | no reward function drowns another |
#
# **Predict:** which of these estimators give a right answer of the *second* prompt advantage 0? Which give
# a wrong one more than 0?
#
# <details><summary>Answer</summary>
#
# ReMax gives 0: no better than greedy. pass@k gives wrong answers +0.667 or +2: not centred, and with k = 2 a prompt with three
# of four right is solved whatever one does, so nothing there differs. REINFORCE gives wrong
# answers exactly 0.
#
# </details>

# %%
fields = {
    "greedy_reward": torch.tensor([0.0] * 4 + [1.0] * 4).double(),
    "ref_logp": torch.full((8, 8), -1.0).double(),
}
rewards, group = [1, 0, 0, 0, 1, 1, 1, 0], [0] * 4 + [1] * 4
fields["reward_parts"] = torch.tensor(rewards).double()[:, None]
eight = Rollouts.from_lengths([2, 2, 8, 4, 4, 4, 4, 4], rewards, group, max_new_tokens=8, **fields)
names = ["reinforce", "rloo", "remax", "grpo", "dr_grpo", "opo", "gpg", "lite_ppo"]
names += ["reinforce++", "reinforce++(baseline)", "maxrl", "pass@k", "gdpo"]
zoo = advantage_table([recipe(name) for name in names], eight).round(3).T
zoo

# %%
FIGURES["advantage_by_correct_count"].show()

# %% [markdown]
# ## 4. Over the prompt, over the batch, or not at all
#
# TRL's line 870 of March 2025 reads rewards minus mean over std after `view(-1, G)`: **per prompt**, ddof 1, plus 1e-4.
# "Normalisation across multiple prompts" it is not. Across prompts would be this: one prompt with 3 of 4 right, one with none.
#
# **Predict:** what does a batch-wide mean and std do to the four wrong answers of the second prompt?
#
# <details><summary>Answer</summary>
#
# It pushes all four down by −0.724, although none was better or worse than another: the prompt was hard, and they are punished
# for that.
#
# </details>

# %% tags=["row-17"]
from grpo_edu.objective import advantages as adv

hard = Rollouts.from_lengths([1] * 8, [1, 1, 1, 0, 0, 0, 0, 0], [0] * 4 + [1] * 4)
per_prompt = recipe("dr_grpo").but(
    "TRL l. 870", scale=partial(adv.group_std, ddof=1, eps=1e-4), aggregation=grpo.aggregation
)
batch_wide = per_prompt.but(
    "batch mean, std", baseline=adv.batch_mean, scale=partial(adv.batch_std, ddof=1, eps=1e-4)
)
mixed = per_prompt.but("group mean, batch std", scale=partial(adv.batch_std, ddof=1, eps=1e-4))
advantage_table(
    [per_prompt, batch_wide, mixed, per_prompt.but("no std", scale=adv.unscaled)], hard
).round(4)

# %% [markdown]
# Three ways to scale, then: by the prompt (GRPO), by the batch *after* centring in the group (Lite PPO, TRL
# `scale_rewards="batch"`), or not (Dr. GRPO). The first weighs prompts against each other, the other two do not (notebook 04).
#
# ## 5. Which objective is climbed?
#
# The weight w(p) that each gives to a prompt of pass rate p, in units of ∇p, G = 8. REINFORCE and RLOO climb the pass rate
# itself (w = 1). MaxRL approaches log p, pass@2 its own name.

# %%
from grpo_edu.theory.difficulty import prompt_weight

chosen = [recipe("rloo"), recipe("dr_grpo"), grpo, recipe("maxrl"), recipe("pass@k")]
pd.DataFrame(
    {p: {one.name: prompt_weight(one, p, 8) for one in chosen} for p in (0.02, 0.1, 0.5, 0.9)}
).round(3)

# %% [markdown]
# pass@2 has 2(1 − p) exactly; MaxRL Σ(1 − p)^(k−1) up to k = G − 1 = 7, not G, since its group mean contains the answer itself.
#
# ## 6. ddof, ε and the scale of the reward
#
# With the std a reward ten times larger changes nothing; one a thousand times smaller does, once ε = 1e-4 is felt. With G = 2
# the std throws the size of a gap away: [1, 0] and [10, 9.99] look almost alike.

# %% tags=["question-15"]
cases = {"1 0 0 0": [1, 0, 0, 0], "times 10": [10, 0, 0, 0], "times .001": [0.001, 0, 0, 0]}
cases |= {"1 0": [1, 0], "10 9.99": [10, 9.99]}
numpy_std = per_prompt.but("ddof 0", scale=partial(adv.group_std, ddof=0, eps=1e-8))
recipes = {"std, ddof 1, ε 1e-4": per_prompt, "std, ddof 0, ε 1e-8": numpy_std}
recipes["centred only"] = recipe("dr_grpo")
batches = [Rollouts.from_lengths([1] * len(r), r, max_new_tokens=1) for r in cases.values()]
table = {
    name: [one.plan(x).advantage[0, 0].item() for x in batches] for name, one in recipes.items()
}
pd.DataFrame(table, index=list(cases)).round(5)

# %% [markdown]
# ## 7. Groups that say nothing
#
# All rewards alike: every advantage is 0, whatever ε (a KL term still acts). How many generations does one need? The chance of
# a silent group at pass rate 0.18, for G = 2, 4, 8, 16:

# %% tags=["question-10"]
from grpo_edu.theory.difficulty import silent_probability

dead = Rollouts.from_lengths([1] * 7, [0.7] * 7)
print("advantages of seven times 0.7:", per_prompt.plan(dead).advantage[:, 0].tolist())
{size: round(silent_probability(0.1819, size), 3) for size in (2, 4, 8, 16)}

# %%
FIGURES["silent_groups"].show()

# %% [markdown]
# ## 8. Several rewards
#
# Correctness is 0 or 1, a second reward runs from 0 to 10. Right answers 1 and 4 fail the second. **Predict:** add the two and
# normalise (the usual way): are the right answers pushed up?
#
# <details><summary>Answer</summary>
#
# Down: the totals are 1, 10, 10, 1. Normalise each reward on its own and then add (GDPO, TRL `normalize_then_sum`): the two
# cancel exactly. Weights decide what neither rule can: which of the two you meant.
#
# </details>
#
# And a reward of `None` means *not scored*, not 0: it is left out of the group. Taken as 0 the unscored answer would be pushed
# down.

# %%
parts = torch.tensor([[1, 0], [0, 10], [0, 10], [1, 0]]).double()
summed = Rollouts.from_lengths([1] * 4, parts.sum(1).tolist(), reward_parts=parts)
each = grpo.but(
    "each, then added", baseline=partial(adv.decoupled_rewards, ddof=1, eps=0.0), scale=adv.unscaled
)
heavy = each.but(
    "weights 1, 0.5", baseline=partial(adv.decoupled_rewards, ddof=1, eps=0.0, weights=(1.0, 0.5))
)
for missing in (None, 0):
    four = Rollouts.from_lengths([1] * 4, [1, missing, 0, 1])
    print(
        f"rewards 1 {missing} 0 1:",
        per_prompt.plan(four).advantage[:, 0].round(decimals=4).tolist(),
    )
advantage_table([grpo.but("added, then normalised"), each, heavy], summed).round(4) + 0.0  # no -0.0

# %% [markdown]
# ## 9. Outcome against process supervision
#
# A reward at the end of every *step*: DeepSeekMath normalises all step rewards of the group together, and a token gets the sum
# of those still to come. Two answers of two steps, step rewards 1 1 and 1 0. Mean ¾, std ½, so the steps are worth 0.5 0.5 and
# 0.5 −1.5.
#
# **Predict:** the second answer's *first* step was right. Is it pushed up?
#
# <details><summary>Answer</summary>
#
# No: 0.5 − 1.5 = −1. It is blamed for what came after. Less than the bad step (−1.5), more than nothing. With one reward at the
# very end, process supervision *is* outcome supervision.
#
# </details>

# %%
nan = float("nan")
steps = {
    "two steps": [[nan, 1, nan, 1], [nan, 1, nan, 0]],
    "one, at the end": [[nan] * 3 + [1.0], [nan] * 3 + [0.0]],
}
process = recipe("grpo(process)").but(kl=None)
answers = {
    k: Rollouts.from_lengths([4, 4], [1, 0], token_reward=torch.tensor(v).double())
    for k, v in steps.items()
}
advantages = {name: process.plan(x).advantage.tolist() for name, x in answers.items()}
pd.DataFrame(
    advantages | {"outcome": grpo.plan(answers["two steps"]).advantage.tolist()},
    ["first answer", "second answer"],
).T

# %% [markdown]
# ## 10. The picture, and turn it yourself
#
# One success in six: who is pushed how hard? Below, the rewards of section 3: flip them until a group is all right, or
# all wrong. (Two rows differ from the table: the greedy answer counts as right for both prompts here, and every std has the ddof of the
# control.)

# %%
from grpo_edu.plots.heatmap import weight_map

six = Rollouts.from_lengths([4] * 6, rewards=[1, 0, 0, 0, 0, 0], max_new_tokens=4)
three = [recipe("rloo"), grpo, recipe("dr_grpo")]
weight_map(
    three,
    six,
    relative=True,
    title="In one group of equal lengths RLOO, GRPO and Dr. GRPO share one pattern",
)

# %%
from grpo_edu.widgets.advantage import AdvantageExplorer

AdvantageExplorer(
    rewards=[1, 0, 0, 0, 1, 1, 1, 0],
    group=[0, 0, 0, 0, 1, 1, 1, 1],
    lengths=[2, 2, 8, 4, 4, 4, 4, 4],
)

# %% [markdown]
# And one token, step by step, as text and in the stepper. The arrow keys walk from the reward to the push; at each step one
# factor of the formula lights up, its numbers are put in, and the tokens fill in.

# %%
from grpo_edu import step_through
from grpo_edu.widgets.stepper import Stepper

step_through(recipe("rloo"), Rollouts.from_lengths([2, 4, 4], rewards=[1, 0, 0]), 0, 0)

# %%
Stepper(["rloo"])

# %% [markdown]
# Every estimator has a formula card too. Here is the group std, the denominator of GRPO's advantage:

# %%
from grpo_edu.cards import card

card("group_std")

# %% [markdown]
# ## 11. In the frameworks
#
# | what | TRL 1.16 | verl 0.9.1 | OpenRLHF 0.11 |
# |---|---|---|---|
# | GRPO | `scale_rewards="group"`, ε 1e-4 | `adv_estimator=grpo`, ε 1e-6 | `group_norm`, ε 1e-9 |
# | Dr. GRPO (this half) | `scale_rewards="none"` | `norm_adv_by_std_in_grpo=False` | `dr_grpo` |
# | batch std | `scale_rewards="batch"` | not available | not available |
# | RLOO | `RLOOTrainer` | `rloo` | `rloo` |
# | REINFORCE++ | not available | `reinforce_plus_plus`, `reinforce_plus_plus_baseline` | `reinforce`, `reinforce_baseline` |
# | OPO, ReMax, GPG, pass@k | not available | `opo`, `remax`, `gpg`, `grpo_passk` | not available |
# | several rewards | `multi_objective_aggregation="normalize_then_sum"` | `gdpo` | not available |
#
# On rewards 1 0 0 0 "GRPO" gives the lone success 1.5 in verl, 1.4997 in TRL, 0.75 in open-instruct (`centered`, its default;
# 1.732 under `standard`, ddof 0), 1.0 in NeMo-RL's default.
#
# What breaks: one generation per prompt. There is nothing to compare with, so the library refuses; verl quietly uses the raw
# reward.
#
# ## Five questions
#
# **1.** RLOO and Dr. GRPO at G = 8: by which factor do their advantages differ, and does it matter?
#
# <details><summary>Answer</summary>
#
# 8/7 on every completion of every prompt: a learning rate.
#
# </details>
#
# **2.** `reward_std` in your log is 0.5, and the gradient is 0. How?
#
# <details><summary>Answer</summary>
#
# A std over the whole batch can be large while every *group* is constant (one prompt all right, the next all wrong). The
# advantage sees groups.
#
# </details>
#
# **3.** Whom does OPO's baseline favour when the right answers are the short ones?
#
# <details><summary>Answer</summary>
#
# Long answers weigh more in the baseline, so it lies lower; the right short one stands out more (0.875 in place of 0.75) and
# the wrong ones are blamed less (−0.125).
#
# </details>
#
# **4.** A prompt with 7 of 8 right: MaxRL, GRPO or RLOO: who gives it most?
#
# <details><summary>Answer</summary>
#
# GRPO: dividing by the std lifts both ends, MaxRL only the hard one (w(0.9) in section 5).
#
# </details>
#
# **5.** You multiply all rewards by 15 and see no difference. Why? When would you?
#
# <details><summary>Answer</summary>
#
# The group std divides the 15 out. Under Dr. GRPO or RLOO the gradient grows 15-fold, which SGD feels and AdamW does not. With
# a KL term in the loss the balance between the two moves, except under the std.
#
# </details>
