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
# # 02 · PPO: the ratio, the clip, several updates
#
# **25 minutes. Before it: notebooks 00 and 01.**
#
# *Question: sampling is expensive, so one wants to use a batch more than once. What do the ratio and the clip do then, and what
# do they do when it is used only once?*
#
# GRPO is PPO with another advantage, so all of this is GRPO too. Everything here is **exact**.
#
# ## 1. By hand: one token
#
# The policy that sampled gave a token the probability 0.50. Its advantage is +1. PPO's objective for it is min(ρA, clip(ρ, 0.8,
# 1.2)·A), with the **ratio** ρ = π_θ / π_old.
#
# | π_θ now | ρ | objective | push on the token: its derivative by log π_θ |
# |---|---|---|---|
# | 0.50 | 1.0 | 1.0 | 1.0 |
# | 0.55 | 1.1 | 1.1 | 1.1, since ∇(ρA) = ρA·∇log π |
# | 0.65 | 1.3 | 1.2, the clip | **0** |

# %% tags=["row-11"]
from grpo_edu import Rollouts, ledger, recipe

token = Rollouts.from_lengths(
    [1, 1, 1], rewards=[1, 1, 1], given_advantage=[1.0, 1.0, 1.0], ratio=[1.0, 1.1, 1.3]
)
three_times = ledger(recipe("ppo"), token)[["advantage", "ratio", "gate", "push"]]
three_times.assign(push=3 * three_times["push"]).round(4)  # the mean over three tokens divides by 3

# %% [markdown]
# ## 2. The ratio, not its logarithm
#
# The code that one reads in trainers is `coef_1 = exp(logp - old_logp)`. That is the *ratio*; without the exp it is the
# log-ratio. The ratio is near 1, the log-ratio near **0**. A band of 0.8 to 1.2 is −0.223 to +0.182 in logarithms, not
# symmetric; GMPO clips the logarithm itself at ±0.4, which is 0.67 to 1.49.

# %% tags=["row-12", "row-16"]
import math

import torch

ratio, gmpo = torch.tensor([0.8, 1.0, 1.2]).double(), torch.tensor([-0.4, 0.4]).double()
print("log of 0.8, 1, 1.2:", ratio.log().round(decimals=4).tolist())
print("exp of -0.4, 0.4:", gmpo.exp().round(decimals=4).tolist())
print("coef_1 at logp -0.9, old -1.0:", round(math.exp(-0.9 + 1.0), 4), "its log:", 0.1)

# %% [markdown]
# ## 3. Three policies
#
# The most confused point of all. **π_θ** is being trained. **π_old** sampled *this batch*; the ratio and the clip look at it,
# and it is replaced with every new batch. **π_ref** is frozen, often the model one started from; only a KL term looks at it.
# "Old" has nothing to do with the KL.
#
# **Predict:** training has moved π_θ away from π_ref by ratios 1.5, 0.6, 1 and 0.9 on four tokens. A new batch was just
# sampled. Which tokens does the clip silence? And if someone passes π_ref where π_old belongs?
#
# <details><summary>Answer</summary>
#
# None: the batch is fresh, π_θ = π_old, every ratio is 1. With π_ref in its place the first (A > 0, 1.5) and the second (A < 0,
# 0.6) lose their gradient before the first update: training is tied to the start, and no error is raised.
#
# </details>

# %%
from grpo_edu.figures import FIGURES

FIGURES["three_policies"].show()

# %% tags=["row-4"]
rewards, moved = [1, 0, 1, 0], torch.tensor([1.5, 0.6, 1.0, 0.9]).double()
now = torch.full((4, 1), -1.0).double()
reference = now - moved.log()[:, None]
grpo = recipe("grpo").but("grpo", kl=None)
for name, old in (("π_old (right)", now), ("π_ref (swapped)", reference)):
    rows = ledger(grpo, Rollouts.from_lengths([1] * 4, rewards, old_logp=old, ref_logp=reference))
    print(
        f"{name:16} ratio {rows['ratio'].round(3).tolist()} push {rows['push'].round(4).tolist()}"
    )

# %% [markdown]
# ## 4. Six cells
#
# **Predict:** advantage +1 or −1; ratio 0.5, 1 or 1.5. In which of the six does the token lose its gradient?
#
# <details><summary>Answer</summary>
#
# In two: (A > 0, ρ too high) and (A < 0, ρ too low). There it has already moved further than allowed in the *good* direction.
# Where it moved the wrong way (A > 0 and ρ = 0.5, A < 0 and ρ = 1.5) the min keeps the gradient, so that it can come back.
#
# </details>
#
# The last column is a warning: for A < 0 the push has **no upper bound**. A token whose probability rose sixfold although it
# was bad gets six times the push. A dual clip (verl always, c = 3; TRL `delta`) takes it away above c.

# %% tags=["row-6", "question-6"]
import pandas as pd

from grpo_edu.objective.catalog import CLIP
from grpo_edu.theory import clip

places = (0.5, 1.0, 1.5, 6.0)
pd.DataFrame(
    clip.cells(CLIP, places).tolist(), ["A = +1", "A = -1"], [f"ratio {x:g}" for x in places]
)

# %%
FIGURES["clip_objective"].show()

# %% [markdown]
# ## 5. Several updates on one rollout
#
# Four possible answers, each sampled once, the first right. The same rollout is used for 24 updates. **Predict:** the clip is
# 0.2. Where does the ratio of the right answer end: at 1.2, below, or above?
#
# <details><summary>Answer</summary>
#
# Above: at 1.62. Its own gradient is gone from 1.2 on, but the wrong answers are still being pushed down, and what they lose
# the right one gets. Only when all are clipped does the step stop. The clip does not bound the step; it removes the *incentive*
# to go further.
#
# </details>

# %% tags=["row-5"]
from grpo_edu.theory.updates import reuse

even = torch.zeros(4).double()
table = reuse(grpo, even, [0, 1, 2, 3], [1, 0, 0, 0], learning_rate=0.2, updates=24)
table.loc[
    [0, 1, 2, 3, 15, 16, 23],
    ["update", "loss", "gradient_norm", "clip_fraction", "ratio_0", "ratio_1"],
].round(3)

# %%
from grpo_edu.plots.updates import ratios_by_update

ratios_by_update(
    table, ["right", "wrong", "wrong", "wrong"], title="A clip of 0.2, and the ratio ends at 1.62"
)

# %% [markdown]
# The first line of the table is the whole truth for many runs: with **one** update per rollout the ratio is 1, the clip
# fraction 0, and the clip does nothing. "Both take several gradient steps per batch by default" is not true of GRPO itself:
# DeepSeekMath made one update per exploration, and TRL's default is one. DAPO makes 16. With momentum (Adam has it) even a
# gradient of exactly zero does not stop the ratio:

# %%
heavy = reuse(grpo, even, [0, 1, 2, 3], [1, 0, 0, 0], learning_rate=0.2, updates=24, momentum=0.9)
ratios_by_update(
    heavy,
    ["right", "wrong", "wrong", "wrong"],
    title="With momentum the ratio runs on to 3 while no token has a gradient",
)

# %% [markdown]
# The same with everything on a slider. **Predict:** a smaller step size, the same clip. Does the ratio end nearer to 1.2?
#
# <details><summary>Answer</summary>
#
# Hardly: with a tiny step and many updates the wrong answers still fall to 0.8, and the right one gets what they lose: 1 + 3 · 0.2 = 1.6. The
# step size decides by how much each passes its bound.
#
# </details>

# %%
from grpo_edu.widgets.updates import reuse_lab

reuse_lab()

# %% [markdown]
# ## 6. Used once, PPO is REINFORCE
#
# At ratio 1 the push is A·W, clip or no clip. Here with GRPO's advantages, lengths 2 and 8:

# %% tags=["question-5"]
from grpo_edu import token_weights
from grpo_edu.objective.surrogates import reinforce

two = Rollouts.from_lengths([2, 8], rewards=[1, 0], max_new_tokens=8)
both = [
    token_weights(one, two)[:, 0].round(decimals=4).tolist()
    for one in (grpo, grpo.but("no ratio, no clip", surrogate=reinforce))
]
both

# %% [markdown]
# How many updates does a rollout get? Rollout size over mini-batch size, times epochs. `num_generations` (G) plays no part.
#
# | setting | updates per rollout | can the clip act? |
# |---|---|---|
# | verl: `train_batch_size=1024`, `ppo_mini_batch_size=256`, `ppo_epochs=1` | 4 | yes |
# | verl: 128 and 128 | 1 | no |
# | TRL: `num_iterations=1`, `steps_per_generation` = `gradient_accumulation_steps` (default) | 1 | no |
# | TRL: `steps_per_generation=8`, `gradient_accumulation_steps=2` | 4 | yes |
#
# ## 7. The loss is 0, and it learns
#
# At ratio 1 the *value* of the loss is −ΣW·A, and under GRPO's own aggregation the advantages of a group cancel: **0**. The
# gradient is ΣW·A·∇log π, and does not. Under a token mean the value is whatever lengths make of it; negative is not better.
# Which number is which?

# %% tags=["question-1", "question-2", "question-3"]
from grpo_edu.objective import aggregation as agg

given = {"rewards": [1, 0], "given_advantage": [1.0, -1.0], "max_new_tokens": 100}
ten = Rollouts.from_lengths([10, 100], **given)
swapped = Rollouts.from_lengths([100, 10], **given)
choices = {"sequence mean": agg.sequence_mean, "token mean": agg.step_token_mean}
choices["constant"] = agg.constant
losses = {name: recipe("ppo").but(name, aggregation=choice) for name, choice in choices.items()}
values = {name: [one.loss(x).item() + 0.0 for x in (ten, swapped)] for name, one in losses.items()}
table = pd.DataFrame.from_dict(values, orient="index", columns=["loss", "right answer longer"])
table["largest_push"] = [token_weights(one, ten).abs().max().item() for one in losses.values()]
table.round(4) + 0.0

# %% [markdown]
# "Wait some steps, it is display rounding" is wrong: it is 0, and the model learns. What does mean "nothing learnt" is a
# largest push of 0 (all rewards of every group alike). The loss is no measure of progress: watch the reward.
#
# Where there is a KL term, the loss at ratio 1 *is* β·KL. It starts at 0 and rises as the policy moves, while the reward rises
# too: no sign of divergence.

# %% tags=["question-4"]
drifted = Rollouts.from_lengths([4, 4], rewards=[1, 0], ref_logp=torch.full((2, 4), -1.5).double())
(
    round(recipe("grpo").loss(drifted).item(), 6),
    round(0.04 * (math.exp(-0.5) + 0.5 - 1), 6),
)  # β·k3, log-ratio to the reference 0.5

# %% [markdown]
# ## 8. The talk's "left side and right side"
#
# GRPO is sometimes written with the ratio of the *whole answer*, π(o)/π_old(o), a product of token ratios, and sometimes as a
# sum of token terms. Are they the same? On policy the first has the gradient of the **sum** of token terms, not of their mean
# (1/|o|); away from it they agree to first order only. (And it is the ratio that is multiplied by the advantage, not the
# log-ratio.)

# %% tags=["row-10"]
from functools import partial

from grpo_edu.objective.surrogates import sequence_product

product = partial(sequence_product, eps_low=0.2, eps_high=0.2)
base = grpo.but("token terms, summed", aggregation=agg.sequence_sum)
whole = base.but("ratio of the whole answer", surrogate=product)
forms = [whole, base, grpo.but("token terms, averaged")]
near = Rollouts.from_lengths([2, 8], rewards=[1, 0], ratio=1.01)
pushes = {one.name: [token_weights(one, x)[1, 0].item() for x in (two, near)] for one in forms}
pd.DataFrame.from_dict(
    pushes, orient="index", columns=["on policy", "every token ratio 1.01"]
).round(4)

# %% [markdown]
# ## 9. Whose 1/|o| is it?
#
# DeepSeekMath writes *PPO* with 1/|o| as well (its Eq. 1). The PPO paper does not: it has a mean over the timesteps of a batch
# of fixed size, which for answers of different lengths is the token mean. The same PPO, both ways, for answers of 2 and 8
# tokens with advantage 1:

# %% tags=["row-9", "row-25"]
ones = Rollouts.from_lengths([2, 8], rewards=[1, 1], given_advantage=[1.0, 1.0])
as_in_deepseekmath = recipe("ppo").but("1/|o|", aggregation=agg.sequence_mean)
[token_weights(one, ones)[:, 0].tolist() for one in (recipe("ppo"), as_in_deepseekmath)]

# %% [markdown]
# So the length bias is older than GRPO: any PPO code that averages each answer with a masked mean has it, while the formula in
# its docs does not. The Dr. GRPO paper calls this a mismatch of formulation and implementation.
#
# ## 10. Turn it yourself
#
# Put PPO's clip beside CISPO and SAPO, and let the ratio run; then turn the advantage to −1. (Static twin: the picture of section 4.)

# %%
from grpo_edu.widgets.clip import ClipExplorer

ClipExplorer(surrogates=["PPO clip", "dual clip", "CISPO", "SAPO"], advantage=1, ratio=1.3)

# %% [markdown]
# ## 11. In the frameworks
#
# | what | TRL 1.16 | verl 0.9.1 | OpenRLHF 0.11 |
# |---|---|---|---|
# | clip, both sides | `epsilon=0.2` | `clip_ratio_low=0.2`, `clip_ratio_high=0.2` (`clip_ratio` alone is shadowed) | `--actor.eps_clip_low_high 0.2 0.2` |
# | cap for A < 0 | `delta` (off) | `clip_ratio_c=3.0`, **always on** | `--actor.dual_clip` (off) |
# | updates per rollout | `num_iterations`, `steps_per_generation` | `ppo_mini_batch_size`, `ppo_epochs` | rollout batch size over train batch size |
# | π_old | log-probs stored with the rollout; with one update, π_θ itself, detached | recomputed before the updates | stored with the rollout |
#
# What breaks silently: `exp(logp - logp.detach())` is 1 in value and alive in gradient. Write `1.0` instead and nothing is
# learnt.
#
# ## Five questions
#
# **1.** Your clip fraction is 0.0 all day. Is the clip broken?
#
# <details><summary>Answer</summary>
#
# Count the updates per rollout (section 6). If it is one, π_old = π_θ, the ratio is 1, and the clip cannot act.
#
# </details>
#
# **2.** A token has A < 0 and ratio 1.5, clip 0.2. Clipped?
#
# <details><summary>Answer</summary>
#
# No. It rose although it was bad; min(ρA, …) keeps −1.5, gradient and all. Only A < 0 with a ratio below 0.8 is clipped.
#
# </details>
#
# **3.** Does ε = 0.2 keep every probability within 20 % of the old one?
#
# <details><summary>Answer</summary>
#
# No: 62 % in section 5 by plain gradient descent, a factor of 3 with momentum. It takes the gradient away, not the movement.
#
# </details>
#
# **4.** The loss is 0.0 at step 1 and 0.0004 at step 50, and the reward rises. What is the 0.0004?
#
# <details><summary>Answer</summary>
#
# β·KL: at ratio 1 under the sequence mean the policy term is 0 at every step.
#
# </details>
#
# **5.** Someone sets π_old to the reference model "since both are frozen". What happens?
#
# <details><summary>Answer</summary>
#
# The ratio is then π_θ/π_ref: tokens that have improved are clipped from the first update on. It acts like a tether to the
# start: whatever has moved 20 % in its good direction gets no more gradient.
#
# </details>
