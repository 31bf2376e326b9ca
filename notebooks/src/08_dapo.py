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
# # 08 · DAPO: four changes
#
# **25 minutes. Before it: notebooks 00, 02 and 05.**
#
# *Question: DAPO took GRPO from 30 to 50 points on AIME 2024 by its own table. Which four things did it change, and what does
# each do to a token?*
#
# The pushes below are **exact**; toy runs are **simulated** and say so; DAPO's own numbers are one language model's, quoted
# from the paper.
#
# ## 1. What changed
#
# One heard "DAPO fine-tunes KL differences". It does not: it **removes** the KL term, and it *decouples the two clips*. The
# whole difference to GRPO:

# %% tags=["row-37"]
from grpo_edu import Rollouts, compare, recipe, token_weights

grpo, dapo = recipe("grpo").but("grpo", kl=None), recipe("dapo")
print("KL term of dapo:", dapo.kl, "| clip:", dapo.describe()["surrogate"])
compare(recipe("grpo"), dapo)

# %% [markdown]
# And on the reward side a penalty for running into the limit. Four ideas then: **clip-higher**, **dynamic sampling**, **token
# mean**, **overlong shaping**.
#
# ## 2. Clip-higher, by hand
#
# The clip stops a rising token at π_old·(1 + ε). With ε = 0.2 a token of probability 0.9 may go to 1.08, so it is never
# stopped; one of probability 0.01 stops at 0.012. The clip binds *rare* tokens, and rare tokens are the exploration. DAPO
# raises the upper bound alone to 0.28: 0.0128. The lower one stays, since a larger one would let tokens be pushed to 0.
#
# **Predict:** a right answer's token, ratio 1.25. Its push under GRPO, under DAPO? And a wrong answer's?
#
# <details><summary>Answer</summary>
#
# GRPO: 0, clipped. DAPO: alive, at 1.25 times its on-policy push. The wrong answer's is alive under both: for A < 0 the clip
# acts below 0.8 only.
#
# </details>

# %%
import pandas as pd

from grpo_edu.theory.clip import reach

table = pd.DataFrame(
    {eps: [reach(old, eps) for old in (0.01, 0.2, 0.9)] for eps in (0.2, 0.28)}, [0.01, 0.2, 0.9]
).round(4)
off = Rollouts.from_lengths([2, 2], rewards=[1, 0], ratio=1.25)
print(
    "push at ratio 1.25:",
    {one.name: token_weights(one, off)[:, 0].round(decimals=4).tolist() for one in (grpo, dapo)},
)
table.rename_axis("π_old \\ ε_high")

# %% [markdown]
# DAPO's language model kept its entropy with 0.28 (about 0.4) and lost it with 0.2 (about 0.01). In a bandit of 50 arms, 16
# updates per rollout (**simulated**), we looked for the same:

# %%
from grpo_edu.figures import FIGURES

FIGURES["clip_higher"].show()

# %% [markdown]
# It is not there. The higher bound learns faster and so loses entropy *earlier*; the end is alike. What does hold is the
# mechanism: a higher bound stops fewer tokens (lower left), and the stopped ones are, once training is under way, rarer than
# the average sampled one (lower right). A bandit has no rare token that many contexts share, and that may be the point; this is
# a null result, not a refutation.
#
# ## 3. Dynamic sampling
#
# All right or all wrong: no signal. As training goes on more prompts become all right; the batch shrinks unseen. How bad is it
# at the start? Pass rates of SmolLM2-135M on the shipped arithmetic, 10 prompts × 8 answers:

# %% tags=["row-34"]
from grpo_edu import read_completions
from grpo_edu.theory.difficulty import silent_probability
from grpo_edu.weights import summary

real = read_completions()
rates = summary(grpo, real).groupby("group")["reward"].mean()
print(
    "prompts by right answers of 8:", (8 * rates).astype(int).value_counts().sort_index().to_dict()
)
print("groups without a signal:", float(((rates == 0) | (rates == 1)).mean()))
{
    size: round(sum(silent_probability(p, size) for p in rates) / len(rates), 3)
    for size in (2, 4, 8, 16)
}

# %% [markdown]
# The last line takes each prompt's pass rate as known and asks how many groups of G would be silent. This is why people choose
# their data: Kimi k1.5 and Open-Reasoner-Zero drop prompts by pass rate before training, DAPO during it: it discards silent
# groups and draws *new* prompts until the batch is full.
#
# **Predict:** does that change how prompts are weighed against each other?
#
# <details><summary>Answer</summary>
#
# No. A silent group pushed nothing anyway; every other prompt's weight grows by one common factor. (Drawing the *same* prompt
# again until it is mixed does change them: notebook 04.) What changes is the normaliser and the number of rollouts paid for.
#
# </details>

# %%
from grpo_edu.theory.difficulty import prompt_weight, refilled_weights

prompts = [0.02, 0.2, 0.5, 0.9]
plain, refilled = [prompt_weight(grpo, p, 8) for p in prompts], refilled_weights(grpo, prompts, 8)
table = pd.DataFrame({"plain": plain, "refilled": refilled}, prompts)
table.assign(factor=table["refilled"] / table["plain"]).round(4)

# %%
FIGURES["dynamic_sampling"].show()

# %% [markdown]
# Faster per update, and more completions drawn for it (**simulated**). DAPO's Figure 6 counts updates; on one's own cluster the
# completions cost.
#
# A side effect under a token mean: silent groups stay in the denominator unless they are dropped. One live group of 40 tokens
# beside a silent one of 60:

# %%
mixed = Rollouts.from_lengths([15] * 4 + [10] * 4, [1, 1, 1, 1, 1, 0, 0, 1], [0] * 4 + [1] * 4)
kept = recipe("dapo(step)")
dropped = kept.but("silent groups dropped", filters=dapo.filters)
[round(token_weights(one, mixed)[4, 0].item(), 5) for one in (kept, dropped)]

# %% [markdown]
# 2.5 times the push. Both are legal; know which one runs.
#
# ## 4. Token mean: three denominators
#
# GRPO gives every *answer* the same say, so a token of a long one has little: long good answers are learnt slowly, long
# gibberish is hardly punished. DAPO divides by the number of tokens. Of what? Its Eq. 8: of the **prompt's** G answers, then a
# mean over prompts. Its code, and every framework's `dapo` or `token-mean`: of the **whole step** (or of one **micro-batch**).
# Two prompts, 10 and 90 tokens, each with a right and a wrong answer, cut into two micro-batches:

# %% tags=["row-38"]
from grpo_edu.weights import split

two = Rollouts.from_lengths([2, 8, 40, 50], [1, 0, 1, 0], [0, 0, 1, 1], max_new_tokens=50)
losses = {
    "prompt (Eq. 8)": dapo,
    "step (frameworks)": recipe("dapo(step)"),
    "micro-batch of 2": recipe("bnpo"),
    "sequence (GRPO)": grpo,
}
push = {name: token_weights(one, two, split(4, 2))[:, 0].tolist() for name, one in losses.items()}
pd.DataFrame(push, index=["2 tokens", "8 tokens", "40 tokens", "50 tokens"]).round(5).T

# %% [markdown]
# Under Eq. 8 the short prompt's tokens are pushed nine times as hard as the long prompt's, in the step mean all alike. (Here a
# micro-batch holds one prompt, so its mean is Eq. 8's.) Now a good answer of 1000 tokens and one of 10: what does each
# aggregation give to a token, and to the answer?

# %% tags=["row-39"]
good = Rollouts.from_lengths([10, 1000], [1, 1], given_advantage=[1.0, 1.0])
ppo = recipe("ppo")
aggregations = {"sequence mean": grpo.aggregation, "token mean": dapo.aggregation}
pushes = {
    name: token_weights(ppo.but(aggregation=choice), good) for name, choice in aggregations.items()
}
rows = {name: [*w[:, 0].tolist(), (w[1].sum() / w.sum()).item()] for name, w in pushes.items()}
pd.DataFrame.from_dict(
    rows, orient="index", columns=["token of 10", "token of 1000", "share of the long answer"]
).round(5)

# %% [markdown]
# The price is the other column: the long answer takes 99 % of the step. DAPO reports calmer entropy and steadier length growth
# with it; its sample-level run first grew, then *fell*, so "grows under one, not under the other" is not what its Figure 4
# shows. (The author of the talk prefers this group token mean to dropping the normaliser altogether; that is a choice between
# two biases: notebook 09, section 7.)
#
# ## 5. Overlong shaping
#
# An answer that meets the limit is cut; its reward says "wrong" although the thought may have been right. DAPO's soft penalty
# leans on the last 4,096 of 20,480 tokens. (A well-known post says "12k to 16k"; the paper has 16,384 + 4,096.)

# %% tags=["question-13"]
import torch

from grpo_edu.objective.rewards import overlong_penalty

lengths = torch.tensor([16384, 17408, 18432, 20480])
mask = torch.arange(20480)[None] < lengths[:, None]
print(overlong_penalty(torch.zeros(4).double(), mask, 20480, cache=4096)["reward"].tolist())
FIGURES["overlong_penalty"].show()

# %% [markdown]
# Rewards of ±1 or 0/1: under the std the same advantages, since it divides scale and shift out. **Predict:** still so with the
# penalty?
#
# <details><summary>Answer</summary>
#
# No. The penalty is up to 1 either way, half the gap of ±1, but all of the gap of 0/1: a right answer at the limit is then as
# good as a short wrong one.
#
# </details>

# %%
from functools import partial

from grpo_edu.compare import advantage_table

soft = grpo.but("with penalty", rewards=(partial(overlong_penalty, cache=4),))
for name, rewards in {"0/1": [1, 1, 0, 0], "±1": [1, 1, -1, -1]}.items():
    group = Rollouts.from_lengths([4, 16, 4, 4], rewards, max_new_tokens=16)
    print(
        name,
        advantage_table([grpo, soft], group)[["grpo", "with penalty"]].round(3).T.values.tolist(),
    )

# %% [markdown]
# *Overlong filtering*, the first aid before the penalty, masks cut answers out of the loss. In a toy where the right answers
# are the long ones (**simulated**), each treatment of cut answers, from the same start:

# %%
FIGURES["truncation_treatments"].show()

# %% [markdown]
# Masking is not neutral: the longest right answers are exactly the ones no longer seen.
#
# ## 6. The ladder
#
# DAPO's Table 1, AIME 2024, mean of 32 samples, one run per rung: GRPO 30, + overlong filtering 36, + clip-higher 38, + soft
# penalty 41, + token-level loss 42, + dynamic sampling 50. No intervals. DAPO argues by such a table, Dr. GRPO by a derivation.
# In our stopping toy (**simulated**) the same rungs give another picture, and nothing says that they should not:

# %% tags=["row-40"]
from grpo_edu.figures.registry import recorded_table

recorded_table("dapo_ladder").groupby("recipe", sort=False)[
    ["pass_rate", "length_right", "length_wrong"]
].mean().round(3)

# %%
FIGURES["dapo_ladder"].show()

# %% [markdown]
# ## 7. Turn it yourself
#
# Two prompts of different lengths. Make the second one all right: under `dapo` it leaves, under `dapo(step)` its tokens stay in
# the denominator. The static twin:

# %%
from grpo_edu.plots.heatmap import weight_map

weight_map(
    [grpo, dapo, recipe("dapo(step)")],
    two,
    title="Eq. 8 gives both prompts the same say; the step mean gives it to the longer one",
)

# %%
from grpo_edu.widgets.aggregation import AggregationExplorer

AggregationExplorer(
    recipes=["grpo", "dapo", "dapo(step)"],
    lengths=[2, 8, 40, 50],
    rewards=[1, 0, 1, 0],
    group=[0, 0, 1, 1],
)

# %%
from grpo_edu.widgets.dapo import DapoExplorer

DapoExplorer()

# %% [markdown]
# ## 8. In the frameworks
#
# | part | TRL 1.16 | verl 0.9.1 | OpenRLHF 0.11 |
# |---|---|---|---|
# | token mean (of the step) | `loss_type="dapo"` (default) | `loss_agg_mode=token-mean` (default) | default |
# | clip-higher | `epsilon_high=0.28` | `clip_ratio_high=0.28` | `--actor.eps_clip_low_high 0.2 0.28` |
# | dynamic sampling | not available (logs `frac_reward_zero_std`) | `algorithm.filter_groups.enable=True` | `--algo.dynamic_filtering_enable` |
# | soft penalty | `get_soft_overlong_punishment(20480, 4096)` | `reward.reward_manager.name=dapo`, `overlong_buffer_cfg` (not floored at −1) | `--reward.overlong_buffer_len 4096` |
# | filtering | `mask_truncated_completions=True` (rows stay in the baseline) | not built in | not available |
#
# What breaks: `loss_type="dapo"` alone is a token mean with GRPO's symmetric clip and nothing else. And no framework but SkyRL
# offers Eq. 8. When you compare curves, mind the step axis: DAPO makes 16 updates per rollout, so its "steps" are not
# R1-Zero-Qwen's.
#
# ## Five questions
#
# **1.** Which tokens does a higher upper bound let go further, and which does it not touch?
#
# <details><summary>Answer</summary>
#
# Rising tokens of good answers, most of all rare ones (0.01 to 0.0128). Those of bad answers not: their bound is the lower one.
#
# </details>
#
# **2.** Refill with new prompts, or re-roll the same one. Which changes the objective?
#
# <details><summary>Answer</summary>
#
# Re-rolling: a hard prompt then always contributes. Refilling multiplies all weights by one number.
#
# </details>
#
# **3.** Eq. 8 or the step mean: under which does a prompt with long answers get more of the step?
#
# <details><summary>Answer</summary>
#
# Under the step mean, in proportion to its tokens. Eq. 8 gives every prompt the same total and so weaker tokens to the long
# one.
#
# </details>
#
# **4.** Half of your groups are silent and you use the step's token mean. What happens to the live ones if you do not drop the
# silent?
#
# <details><summary>Answer</summary>
#
# Their push is divided by the silent tokens too: a smaller step, varying with how many groups happen to be silent.
#
# </details>
#
# **5.** Your correctness reward is 0/1 and you add the soft penalty of DAPO unchanged. What did you change?
#
# <details><summary>Answer</summary>
#
# Its size relative to the gap: 1 of 1 in place of 1 of 2. At the limit being right is worth nothing.
#
# </details>
