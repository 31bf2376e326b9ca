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
# # 07 · KL: three estimators, two places
#
# **25 minutes. Before it: notebooks 00 and 01.**
#
# *Question: "a KL penalty with β = 0.04" can mean eight different things. Which of them pulls the policy back to the reference,
# and to where?*
#
# After this notebook you can tell an estimator's value from its gradient, and read a framework's two or three KL switches.
# Everything here is **exact**.
#
# ## 1. By hand
#
# Two tokens. The policy gives them 0.9 and 0.1, the reference 0.5 and 0.5. Write d = log π − log π_ref: +0.588 for the first,
# −1.609 for the second. The reverse KL, KL(π‖π_ref), is the mean of d: 0.9 · 0.588 − 0.1 · 1.609 = **0.368**.
#
# A trainer sees one token at a time and needs an estimate of that mean:
#
# | | formula | first token | second | mean |
# |---|---|---|---|---|
# | k1 | d | 0.588 | −1.609 | **0.368** |
# | k2 | ½d² | 0.173 | 1.295 | 0.285 |
# | k3 | e^(−d) + d − 1 | 0.143 | 2.391 | **0.368** |
#
# k1 and k3 have the right mean, k2 has not. k1 can be negative on a token, k2 and k3 cannot. So k3, GRPO's choice, looks best.
# As a *value* it is.
#
# ## 2. Value and pull
#
# A loss is not read, it is differentiated. **Predict:** put each estimator into the loss and average its *gradient*. Which of
# the three pulls like the KL that it estimates?
#
# <details><summary>Answer</summary>
#
# Only k2, the one whose value is wrong. k1's gradient is β on every token, drawn from π: a score with mean zero, so **no pull
# at all**. k3 pulls with 0.4, the gradient of the *forward* KL(π_ref‖π). The true reverse-KL gradient is 0.198.
#
# </details>

# %% tags=["question-12"]
from grpo_edu.figures import FIGURES

FIGURES["kl_estimators"].data().set_index("estimator").round(5)

# %%
FIGURES["kl_estimators"].show()

# %% [markdown]
# The card of k3 shows the term of the loss and its part in the push, −W · β · (1 − π_ref/π):

# %%
from grpo_edu.cards import card

card("k3")

# %% [markdown]
# Why: differentiating the mean of d must also differentiate the *drawing* of tokens, and a loss on tokens already drawn does
# not. k2 has the slope d, and E[d · score] is the very term that is missing. k3's slope is 1 − π_ref/π, and E[(1 − π_ref/π) ·
# score] = −Σ π_ref · score.
#
# ## 3. The curves
#
# Left the value of each estimator, right its slope. The two tokens are marked; the mark's area is how often the policy draws
# it. Near d = 0 k2 and k3 agree in both: early in training it hardly matters. On rare tokens that the reference likes (d ≪ 0)
# k3 pulls without bound.

# %%
from grpo_edu.plots.kl import kl_estimators

kl_estimators(
    policy=0.9,
    reference=0.5,
    title="k1 does not pull; k2 pulls in proportion to d; k3 pulls hardest where π is small",
)

# %%
from grpo_edu.widgets.kl import KLExplorer

KLExplorer()

# %% [markdown]
# Move the policy to the reference: values and pulls vanish. Then put the reference at 0.9 and the policy at 0.5.
#
# ## 4. Two places: the reward, or the loss
#
# RLHF takes β·k1 from the *reward*, before any advantage. GRPO puts β·k3 into the *loss*, beside the policy term. Same β = 1,
# the pull on the first logit:

# %% tags=["row-18"]
from functools import partial

import pandas as pd
import torch

from grpo_edu.objective import kl
from grpo_edu.theory import kl as exact

logits, reference = torch.tensor([0.9, 0.1]).double().log(), torch.tensor([0.5, 0.5]).double().log()
kinds = {name: partial(getattr(kl, name), beta=1.0) for name in ("k1", "k2", "k3", "k3_ratio")}
places = {"in the loss": exact.pull_in_loss, "in the reward": exact.in_reward}
print("reverse KL:", round(exact.reverse(logits, reference)[1][0].item(), 5))
print("forward KL:", round(exact.forward(logits, reference)[1][0].item(), 5))
table = {w: [f(k, logits, reference)[0].item() for k in kinds.values()] for w, f in places.items()}
pd.DataFrame(table, index=list(kinds)).round(5)

# %% [markdown]
# In the reward it is the other way round: there k1 has the reverse-KL gradient, since reward × score differentiates the
# drawing, and k2 and k3 have neither. `k3_ratio` is k3 times the (differentiable) importance ratio, DeepSeek-V3.2's correction
# and TRL's default: in the loss it pulls like the reverse KL.
#
# ## 5. To where does each pull?
#
# Reward 1 for the first token, 0 for the second, β = ½, start at the even reference. **Predict:** the probability of the first
# token at the end, for k1, k2 and k3 in the loss.
#
# <details><summary>Answer</summary>
#
# k1: 1, there is no penalty. k2: 0.881 = σ(1/β), the textbook optimum π ∝ π_ref·e^(r/β). k3: 0.809, the optimum of another
# objective, reward minus β·KL(π_ref‖π). k1 in the reward: 0.881.
#
# </details>

# %%
reward = torch.tensor([1.0, 0.0]).double()
pulls = {(n, where): partial(pull, k) for n, k in kinds.items() for where, pull in places.items()}
ends = {key: exact.settle(pull, reward, reference, 0.5)[0].item() for key, pull in pulls.items()}
pd.Series(ends).unstack().round(3)

# %% [markdown]
# So "β = 0.04" of one paper is not the β of another. And k2 or k3 in the *reward* hold nothing back here: the policy ran into
# the corner.
#
# ## 6. Noise
#
# Standard deviation of each estimate over one token, for a policy near its reference and one far from it. k3 is quieter than k1
# only while the two are close; k2 is the quietest in both rows.

# %%
near = torch.tensor([0.55, 0.45]).double().log()
pd.DataFrame(
    {n: [exact.spread(k, z, reference) for z in (near, logits)] for n, k in kinds.items()},
    ["π = 0.55", "π = 0.9"],
).round(4)

# %% [markdown]
# ## 7. Off policy
#
# With several updates per rollout the tokens were drawn by π_old. Then even the *value* of k3 is that of another distribution.
# Drawn from 0.7 / 0.3 while π is 0.9 / 0.1 (KL 0.368, gradient 0.198):

# %%
old = torch.tensor([0.7, 0.3]).double().log()
rows = {
    n: [v, g[0].item()]
    for n, (v, g) in ((n, exact.in_loss(k, logits, reference, old)) for n, k in kinds.items())
}
pd.DataFrame.from_dict(rows, orient="index", columns=["value", "pull"]).round(4)

# %% [markdown]
# Only the ratio-corrected one is right.
#
# ## 8. In the reward, and then through the std
#
# KL taken from the reward goes through baseline and std like any reward. Four answers, **all right**, with KL sums of 10, 20,
# 30 and 40 and a tiny β = 0.001. **Predict** the advantages.
#
# <details><summary>Answer</summary>
#
# ±1.16 and ±0.39. The rewards differ by hundredths, the std divides the hundredths out: in a group that is all right (or all
# wrong) the KL alone drives the update at full strength. Dr. GRPO's centring alone leaves ±0.015.
#
# </details>

# %%
from grpo_edu import Rollouts, recipe
from grpo_edu.compare import advantage_table
from grpo_edu.objective.rewards import kl_in_reward

sums = torch.tensor([1.0, 2.0, 3.0, 4.0]).double()[:, None]
right = Rollouts.from_lengths(
    [10] * 4, [1, 1, 1, 1], ref_logp=-1.0 - sums.expand(4, 10), max_new_tokens=10
)
grpo = recipe("grpo").but(
    "GRPO, KL in reward", kl=None, rewards=(partial(kl_in_reward, beta=0.001),)
)
dr_grpo = recipe("dr_grpo").but("Dr. GRPO, KL in reward", rewards=grpo.rewards)
advantage_table([grpo, dr_grpo], right).round(4)

# %% [markdown]
# ## 9. In the loss, it has a 1/|o| too
#
# GRPO's KL term is averaged like the policy term: over the answer's own tokens. So a long answer is held to the reference less
# per token. Two answers of 2 and 8 tokens, the policy alike above the reference on all of them:

# %%
from grpo_edu import ledger

two = Rollouts.from_lengths(
    [2, 8], [1, 1], ref_logp=torch.full((2, 8), -1.2).double(), max_new_tokens=8
)
both = {
    name: ledger(recipe("grpo").but(name, aggregation=recipe(name).aggregation), two)
    for name in ("grpo", "dr_grpo")
}
{name: table.groupby("completion")["kl"].first().round(5).tolist() for name, table in both.items()}

# %% [markdown]
# This group is all right, so every advantage is 0, and still both answers are pushed. "A dead group does nothing" is false
# where β > 0.
#
# ## 10. The picture
#
# Four answers, all right; the second far from the reference. Left without a KL term: nothing. Right with β = 0.04. (The policy
# is *above* the reference on all tokens, so the KL pushes all of them down.)

# %%
from grpo_edu.plots.heatmap import weight_map

gap = torch.tensor([-1.1, -3.0, -1.1, -1.1]).double()[:, None].expand(4, 6)
four = Rollouts.from_lengths([6] * 4, [1, 1, 1, 1], ref_logp=gap, max_new_tokens=6)
losses = [recipe("grpo").but("grpo, β = 0", kl=None), recipe("grpo").but("grpo, β = 0.04")]
weight_map(
    losses, four, title="A group that is all right is silent without a KL term, and not with it"
)

# %% [markdown]
# ## 11. What breaks
#
# *Overflow.* A token that the reference finds e^100 times likelier makes e^(−d) infinite and its gradient NaN; clamp d
# **before** the exp (the library and verl: ±20). *Cancellation.* In float32 e^x − x − 1 loses everything for small x; `expm1`
# keeps it:

# %%
x = torch.tensor([1e-6, 1e-4, 1e-3])
print("naive:", (x.exp() - 1 - x).tolist())
print("expm1:", (torch.expm1(x) - x).tolist())
print("d = -100:", kl.k3(torch.tensor([-100.0]), torch.tensor([0.0]), beta=1.0).item())

# %% [markdown]
# k3 below zero is always this. *Sign.* KL is **added** to a loss, **taken from** a reward; an early fork subtracted it from the
# loss, and so maximised it. *Dropout.* If the KL is above 0 at step 0, the two forward passes differ.
#
# ## 12. In the frameworks
#
# | | where, default | estimators |
# |---|---|---|
# | TRL 1.16 GRPO | loss, `beta=0.0` | k3 × ratio (`use_bias_correction_kl=True`); False: plain k3 |
# | TRL RLOO | reward, `beta=0.05` | k1, summed over the answer |
# | verl 0.9.1 | loss: `use_kl_loss=False`, `kl_loss_coef=0.001`, `kl_loss_type=low_var_kl`; reward: `use_kl_in_reward=False` | `kl` = k1, `mse` = k2, `low_var_kl` = k3; a trailing `+` takes k2's gradient |
# | OpenRLHF 0.11 | reward, `--algo.kl.init_coef 0.01`; `--algo.kl.use_loss` moves it | k1, k2, k3 |
#
# R1-Zero-like training mostly sets β = 0: DAPO and Dr. GRPO have no KL. Then no reference model is held either.
#
# ## Five questions
#
# **1.** Your config puts k1 into the loss with β = 10, and the policy leaves the reference anyway. A bug?
#
# <details><summary>Answer</summary>
#
# No: on policy its expected gradient is exactly 0, at any β. It adds noise only.
#
# </details>
#
# **2.** Which estimator would you log, and which would you train on?
#
# <details><summary>Answer</summary>
#
# Log k1 or k3, whose means are the KL. Train on k2 or ratio-corrected k3 in the loss, or k1 in the reward: these pull like the
# reverse KL.
#
# </details>
#
# **3.** The logged KL is −0.02. Possible?
#
# <details><summary>Answer</summary>
#
# With k1 yes, over a finite sample. With k3 only by rounding: e^x − x − 1 is at least 0 for every x, whichever
# models x comes from.
#
# </details>
#
# **4.** β·KL in the reward, all answers of a group right. Is the group silent?
#
# <details><summary>Answer</summary>
#
# Not any more: section 8. With the std it is as loud as any other group.
#
# </details>
#
# **5.** "GRPO's KL in the loss is the RLHF penalty, moved." True?
#
# <details><summary>Answer</summary>
#
# No: another place *and* another estimator, and on policy the gradient of the other KL. 0.4 against 0.198 here, and another end
# point (section 5).
#
# </details>
