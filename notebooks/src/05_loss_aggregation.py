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
# # 05 · Loss aggregation
#
# **25 minutes. Before it: notebook 00.**
#
# *Question: four denominators are used under one name. What does each do on the same batch, and when does gradient accumulation
# change the loss?*
#
# Everything here is **exact**.
#
# ## 1. The example that started the argument
#
# Two completions whose token losses are [1, 1, 1, 1, 10] and nine 1s and a 10. Average each, then average the two: (2.8 + 1.9)
# / 2 = **2.35**. Average all 15 tokens: 33 / 15 = **2.2**. (The text of March 2025 printed 2.27 for it.) Divide each sum by a
# constant 10: **1.4** and **1.9**.

# %% tags=["row-22"]
from functools import partial

import torch

from grpo_edu import Rollouts, compare, recipe, token_weights
from grpo_edu.objective import aggregation as agg

losses = torch.tensor([[1.0] * 4 + [10.0] + [0.0] * 5, [1.0] * 9 + [10.0]], dtype=torch.float64)
rows = Rollouts.from_lengths([5, 10], rewards=[1, 1])
present = torch.ones(2, dtype=torch.bool)
weights = {"mean of means": agg.sequence_mean(rows.mask, present)}
weights["mean over tokens"] = agg.step_token_mean(rows.mask)
print({name: round((w * losses).sum().item(), 4) for name, w in weights.items()})
each = (agg.constant_sum(rows.mask, length=10.0) * losses).sum(1)
print("constant 10, each:", each.round(decimals=4).tolist())

# %% [markdown]
# ## 2. The gradient is what counts
#
# Lengths 4 and 7, advantage 2 on both. Which token is pushed how hard?

# %% tags=["row-22"]
strips = Rollouts.from_lengths([4, 7], rewards=[1, 1], given_advantage=[2.0, 2.0])
kinds = {
    "sequence mean": agg.sequence_mean,
    "constant 7": partial(agg.constant, length=7.0),
    "token mean": agg.step_token_mean,
}
{
    name: token_weights(recipe("ppo").but(aggregation=kind), strips)[:, 0]
    .round(decimals=4)
    .tolist()
    for name, kind in kinds.items()
}

# %%
from grpo_edu.figures import FIGURES

FIGURES["aggregation_strips"].show()

# %% [markdown]
# 0.25 and 0.1429 under the sequence mean, 0.1429 on both under a constant of 7, 0.1818 on both under the token mean. (A
# well-known text prints 0.0909 for the last: it left the advantage of 2 out.)
#
# The formula of an aggregation, with the numbers of one token put in, stands on its card:

# %%
from grpo_edu.cards import card

card("sequence_mean")

# %% [markdown]
# ## 3. Three denominators that all call themselves token mean
#
# Two prompts; the second one has nine times the tokens (90 against 10). **Predict:** under the paper's DAPO (mean inside each
# prompt, then over prompts), how does the push on a token of prompt 0 compare with one of prompt 1? And under the step-wide
# mean that frameworks run?

# %% tags=["question-8"]
batch = Rollouts.from_lengths(
    [4, 6, 40, 50], rewards=[1, 0, 1, 0], group=[0, 0, 1, 1], max_new_tokens=64
)
{
    name: token_weights(recipe(name), batch)[:, 0].round(decimals=5).tolist()
    for name in ("dapo", "dapo(step)", "bnpo")
}

# %% [markdown]
# Paper: a token of the short prompt is pushed nine times harder (every *prompt* weighs the same). Step-wide: alike (every
# *token* weighs the same). "The global mean is unbalanced", said the talk: long answers then have most of the step. The share
# of each answer, against GRPO's own aggregation:

# %% tags=["row-23"]
from grpo_edu.weights import split, summary

both = {
    name: summary(recipe(name).but(name, kl=None), batch)["share"].abs().round(4).tolist()
    for name in ("grpo", "dapo(step)")
}
both

# %% [markdown]
# The third, per micro-batch, equals the second only while there is one micro-batch:

# %% tags=["question-11"]

{
    parts: token_weights(recipe("bnpo"), batch, split(4, parts))[:, 0].round(decimals=5).tolist()
    for parts in (1, 2, 4)
}

# %% [markdown]
# Cut in two it became the prompt scope (each micro-batch holds one prompt here); cut in four, the sequence mean.
#
# ## 4. Accumulation
#
# **Predict:** which of five aggregations change when the step is cut into micro-batches, if the normaliser is computed once per
# step?

# %%
FIGURES["micro_batch_invariance"].show()

# %%
from grpo_edu.widgets.labs import accumulation_lab

accumulation_lab()

# %% [markdown]
# Only the one whose formula says "of this micro-batch". In code the others break when a framework averages micro-batch means
# instead of dividing by the step's own count. Two micro-batches, 2 tokens of loss 1 and 8 of loss 2: the mean of means is 1.5,
# the mean 1.8.
#
# ## 5. Which lines differ?
#
# Dr. GRPO's aggregation, put into GRPO, and DAPO's: each is one axis that moves.

# %%
compare(recipe("grpo"), recipe("dr_grpo"), only="aggregation")

# %%
compare(recipe("grpo"), recipe("dapo"), only="aggregation")

# %% [markdown]
# ## 6. The lines of the talk, rebuilt
#
# TRL of 13 March 2025 (`fc4dae256`) took a token mean over the *micro-batch*, not the paper's 1/|o|. OpenRLHF of 20 March
# (`69246e0e`) took the mean of each row, then of the rows: the sequence mean. On one batch, cut in two:

# %% tags=["row-19", "row-21"]
talk = {"TRL fc4dae256": agg.micro_batch_token_mean, "OpenRLHF 69246e0e": agg.sequence_mean}
base = recipe("grpo").but(kl=None)
weights = {
    name: token_weights(base.but(aggregation=choice), batch, split(4, 2))
    for name, choice in talk.items()
}
{name: w[:, 0].round(decimals=5).tolist() for name, w in weights.items()}

# %% [markdown]
# "Masked mean divides by the number of samples" is a slip: it divides by the number of *tokens*. "A global mean" is one too: it
# is local to the micro-batch. And the constant of Dr. GRPO is a constant, not the number of tokens in the batch. What is a
# token of each answer divided by?

# %% tags=["row-20", "row-26", "row-30"]
part, everyone = split(4, 2), torch.ones(4, dtype=torch.bool)
divisors = {
    "sequence mean: 4·|o|": agg.sequence_mean(batch.mask, everyone),
    "micro-batch mean, two": agg.micro_batch_token_mean(batch.mask, part),
}
divisors |= {
    "step mean": agg.step_token_mean(batch.mask),
    "constant: 4·64": agg.constant(batch.mask, everyone, 64),
}
{name: (1 / w[:, 0]).round().long().tolist() for name, w in divisors.items()}

# %% [markdown]
# The TRL loss itself, in four lines, against the recipe `bnpo` in one micro-batch (a right answer whose ratio is 1.5, a wrong
# one at 0.9):

# %% tags=["row-15"]
x = Rollouts.from_lengths([2, 8], rewards=[1, 0], ratio=[1.5, 0.9])
ratio, A = (x.logp - x.old_logp).exp(), recipe("bnpo").plan(x).advantage
surrogate = torch.minimum(ratio * A, ratio.clamp(0.8, 1.2) * A)
by_hand = -(surrogate * x.mask).sum() / x.mask.sum()
round(by_hand.item(), 6), round(recipe("bnpo").loss(x).item(), 6)

# %% [markdown]
# ## 7. Loss 0
#
# At ratio 1 the *value* of a loss is −Σ W·A. Lengths 10 and 100, advantages +1 and −1: 0 under the sequence mean, 0.818 under
# the token mean, 0.45 under a constant of 100. The gradient is alive in all three.

# %%
ten = Rollouts.from_lengths(
    [10, 100], rewards=[1, 0], given_advantage=[1.0, -1.0], max_new_tokens=100
)
three = {
    "sequence mean": agg.sequence_mean,
    "token mean": agg.step_token_mean,
    "constant": agg.constant,
}
{
    name: round(recipe("ppo").but(aggregation=choice).loss(ten).item(), 4) + 0.0
    for name, choice in three.items()
}

# %%
FIGURES["silent_loss"].show()

# %% [markdown]
# ## 8. Why would anyone divide by a length?
#
# A conjecture of the Dr. GRPO authors, not established: it is inherited from pre-training, where texts are packed into rows of
# one fixed length and `loss.mean(-1)` is innocent. With equal lengths all aggregations are one:

# %% tags=["row-28"]
packed = Rollouts.from_lengths([8] * 4, rewards=[1, 1, 1, 1], max_new_tokens=8)
kinds = {
    "sequence mean": agg.sequence_mean,
    "token mean": agg.step_token_mean,
    "prompt": agg.prompt_token_mean,
    "constant": agg.constant,
}
{
    name: token_weights(recipe("reinforce").but(aggregation=kind), packed).unique().tolist()
    for name, kind in kinds.items()
}

# %% [markdown]
# ## 9. Turn it yourself
#
# Raise the number of micro-batches and watch `bnpo` walk from the token mean to the sequence mean. The static twin is the
# picture of section 4.

# %%
from grpo_edu.widgets.aggregation import AggregationExplorer

AggregationExplorer(
    recipes=["bnpo", "grpo", "dapo(step)"],
    lengths=[4, 8, 24, 40],
    rewards=[1, 0, 1, 0],
    micro_batches=2,
)

# %% [markdown]
# ## 10. In the frameworks
#
# | what | TRL 1.16 | verl 0.9.1 | OpenRLHF 0.11 |
# |---|---|---|---|
# | sequence mean | `loss_type="grpo"` | `loss_agg_mode=seq-mean-token-mean` | without `token_level_loss` |
# | token mean of the step | `loss_type="dapo"` (default) | `token-mean` (default; per micro-batch up to 0.6.1) | `token_level_loss` (default) |
# | token mean of the micro-batch | `loss_type="bnpo"` | not any more | up to 0.10.2 |
# | token mean of the prompt (Eq. 8) | not available | not available | not available (SkyRL: `prompt_mean`) |
# | constant | `loss_type="dr_grpo"` | `seq-mean-token-sum-norm` with `loss_scale_factor` | not available |
#
# "GRPO" by default was the sequence mean in TRL 0.14 and 0.15, a micro-batch token mean from 0.16 on, and is the step's token
# mean since 0.22. A config without a version says little.
#
# ## Five questions
#
# **1.** Which token mean is DAPO's Eq. 8, and which one runs when a framework says `dapo`?
#
# <details><summary>Answer</summary>
#
# Eq. 8 is the mean inside each prompt, then over prompts. Frameworks run the mean over the tokens of the whole step.
#
# </details>
#
# **2.** One completion per micro-batch: what does a local token mean become?
#
# <details><summary>Answer</summary>
#
# The sequence mean: the micro-batch's tokens are the completion's tokens.
#
# </details>
#
# **3.** Two prompts of very different lengths: which aggregation lets the long one dominate, and in what sense?
#
# <details><summary>Answer</summary>
#
# The step's token mean, by share: the prompt with more tokens gets more of the step, although each of its tokens is pushed like
# any other. Under Eq. 8 it has equal share and weaker tokens.
#
# </details>
#
# **4.** The loss is 0.0 at the first step and 0.8 in another run with the same data. Which aggregations are these?
#
# <details><summary>Answer</summary>
#
# 0.0: sequence mean. 0.8: token mean (section 7: lengths 10 and 100, the right answer short).
#
# </details>
#
# **5.** Every group of the batch but one is all-right. What does dropping dead groups do to the push of the live one under a
# token mean?
#
# <details><summary>Answer</summary>
#
# It grows: the denominator loses the tokens of the dead groups. With 60 dead and 40 live tokens by a factor of 2.5.
#
# </details>
