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
# # 00 · One number per token
#
# **20 minutes. Before it: nothing but what a probability is.**
#
# *Question: when one step of GRPO has looked at a few answers, how hard does it push each token?*
#
# After this notebook you can compute that number by hand, say which factor of it differs between GRPO, Dr. GRPO and DAPO, and
# read it off real completions of a small language model.
#
# Everything here is **exact**: no sampling, no training. What a language model *does* with these pushes is another question.
#
# ## 1. The smallest example, by hand
#
# One prompt, three completions. The first is right (reward 1) and has 2 tokens. The other two are wrong (reward 0) and have 2
# and 8.
#
# GRPO works in three moves:
#
# 1. **Advantage**: reward minus the group's mean, divided by the group's standard deviation. The mean is 1/3. The deviations are
#    2/3, −1/3, −1/3; their squares add to 6/9; divided by G − 1 = 2 that is 1/3, and the root is 0.577. So the advantages are
#    **+1.155, −0.577, −0.577**.
# 2. **Ratio**: the policy that learns is still the one that sampled, so every ratio is 1 and no clip acts.
# 3. **Aggregation**: each completion is averaged over its own tokens (1/|o|), then the three are averaged (1/3).
#
# The push on one token is the product: advantage × 1/3 × 1/|o|.
#
# | completion | advantage | 1/3 × 1/\|o\| | push per token |
# |---|---|---|---|
# | right, 2 tokens | +1.155 | 1/6 | **+0.192** |
# | wrong, 2 tokens | −0.577 | 1/6 | **−0.096** |
# | wrong, 8 tokens | −0.577 | 1/24 | **−0.024** |
#
# The two wrong answers are equally wrong. A token of the long one is pushed down **a quarter as hard**.
#
# ## 2. The same in code
#
# Does the library agree? `Rollouts` holds the completions; `token_weights` is −∂loss/∂log π of every token, by autograd.

# %%
from grpo_edu import Rollouts, compare, ledger, recipe, token_weights

rollouts = Rollouts.from_lengths([2, 2, 8], rewards=[1, 0, 0], max_new_tokens=10)
grpo = recipe("grpo").but("grpo", kl=None)  # no reference policy here, so no KL term

token_weights(grpo, rollouts).round(decimals=3)

# %% [markdown]
# It does. And *why* is a token what it is? The **ledger** has one row per token: advantage · W · ratio · gate + KL.

# %%
ledger(grpo, rollouts).round(4)

# %% [markdown]
# Two columns deserve a second look. `push` is the push on **one token**. `share` is the part of the whole step's |push| that
# this token gets, with its sign; `summary(grpo, rollouts)` adds it up over a **completion**. The long wrong answer has the
# same share as the short one: four times the tokens, each at a quarter of the push. A reader who looks at shares finds no
# bias, and a reader who looks at tokens finds one. Both read the same table.
#
# ## 3. Predict
#
# Dr. GRPO drops two things: the division by the std, and the 1/|o|, which becomes 1/C with a constant C (here 10).
#
# **Before you run the next cell:** what are the three pushes per token? And what happens to the shares?

# %%
token_weights(recipe("dr_grpo"), rollouts).round(decimals=4)

# %% [markdown]
# The advantages are now 2/3, −1/3, −1/3, and every token is divided by 3 · 10 = 30: **+0.0222, −0.0111, −0.0111**. A wrong
# token is pushed down alike wherever it stands. So the long wrong answer now has **four times the share** of the short one.
#
# Which axes moved? `compare` puts the two side by side.

# %%
compare(recipe("grpo"), recipe("dr_grpo"))

# %% [markdown]
# A recipe can also change one axis alone. Here only the aggregation moves: this is *the* change that removes the length bias.

# %%
compare(grpo, grpo.but("grpo, constant", aggregation=recipe("dr_grpo").aggregation))

# %% [markdown]
# And every recipe has a **formula card**: the loss with its symbols defined, the numbers of one token put in, the push on every
# token of a small batch, and the functions that compute it.

# %%
from grpo_edu.cards import card

card("dr_grpo")

# %% [markdown]
# ## 4. The picture
#
# How do GRPO, Dr. GRPO and DAPO look side by side? One colour scale for all: orange is pushed up, purple down, grey is padding.
# Push per token and share per completion stand at the right, always together.

# %%
from grpo_edu.plots.heatmap import weight_map

three = [grpo, recipe("dr_grpo"), recipe("dapo")]
weight_map(
    three,
    rollouts,
    title="Wrong answers: under GRPO a token of the long one is pushed a quarter as hard",
)

# %% [markdown]
# Dr. GRPO looks pale because of its constant: 1/10 is smaller than 1/2. A factor common to *all* tokens is only a learning
# rate, so divide each panel by its own total before you compare the pattern:

# %%
title = "Within one prompt Dr. GRPO and DAPO share one pattern; GRPO's is another"
weight_map(three, rollouts, relative=True, title=title)

# %% [markdown]
# Within one prompt, DAPO's token mean and Dr. GRPO's constant differ by one factor only. (Across prompts, and from step to
# step, they do not: notebook 05.)
#
# ## 5. Turn it yourself
#
# Move a length, flip a reward, raise the ratio above the clip. **Predict first:** what happens to the push of a right answer
# when its ratio passes 1.2? Of a wrong one?

# %%
from grpo_edu.widgets.aggregation import AggregationExplorer

AggregationExplorer(recipes=["grpo", "dr_grpo", "dapo"], lengths=[2, 2, 8], rewards=[1, 0, 0])

# %% [markdown]
# The static twin, with the right answer's ratio at 1.5 (its push is gone, hatched) and the short wrong one's too (its push is
# larger, since for a negative advantage the clip has no upper bound):

# %%
off_policy = Rollouts.from_lengths(
    [2, 2, 8], rewards=[1, 0, 0], ratio=[1.5, 1.5, 1.0], max_new_tokens=10
)
weight_map(
    three, off_policy, title="Above the clip a right answer loses its push, a wrong one does not"
)

# %% [markdown]
# ## 6. What breaks
#
# All rewards equal, and there is no signal: every advantage is 0, whatever is added to the std.

# %%
token_weights(grpo, Rollouts.from_lengths([2, 2, 8], rewards=[1, 1, 1])).abs().max()

# %% [markdown]
# A loss of 0 is *not* the same thing. At ratio 1 the value of GRPO's loss is 0 because the advantages cancel; the pushes do
# not:

# %%
print(f"loss {abs(grpo.loss(rollouts).item()):.4f}")
print(f"largest push {token_weights(grpo, rollouts).abs().max().item():.4f}")

# %% [markdown]
# ## 7. Real completions
#
# The package ships completions that SmolLM2-135M-Instruct sampled on small arithmetic, scored by a checker. Orange tokens go
# up, purple ones down. Here are three answers to "2 + 3": the only right one of its group, a wrong one of 10 tokens, and a
# wrong one of 80 that ran on to the limit. The same completions under two recipes:

# %%
from grpo_edu import read_completions
from grpo_edu.plots.text import weights_on_text

real = read_completions()
weights_on_text([grpo, recipe("dr_grpo")], real, rows=[49, 48, 52], relative=True)

# %%
from grpo_edu.widgets.texts import TokenView

TokenView()

# %% [markdown]
# All of them at once. Each row is a completion, rules part the prompts. Under GRPO short rows are dark and long rows pale;
# under Dr. GRPO a row's colour depends on its prompt and its reward, not on its length; DAPO keeps the std, so hard and easy
# prompts are louder than under Dr. GRPO.

# %%
title = "SmolLM2 on arithmetic: under GRPO short answers are dark, long ones pale"
weight_map(three, real, relative=True, title=title)

# %% [markdown]
# ## 8. In the frameworks
#
# | what | TRL 1.16 | verl 0.9.1 |
# |---|---|---|
# | 1/\|o\|, then mean | `loss_type="grpo"` | `loss_agg_mode=seq-mean-token-mean` |
# | 1/C | `loss_type="dr_grpo"` | `loss_agg_mode=seq-mean-token-sum-norm` |
# | token mean of the step | `loss_type="dapo"` (default) | `loss_agg_mode=token-mean` (default) |
# | std on, off | `scale_rewards="group"` (default), `"none"` | `norm_adv_by_std_in_grpo=True` (default), `False` |
#
# So "GRPO" in either framework, with its defaults, is not the first column of this notebook's pictures but nearer to the third.
#
# ## 9. What to read
#
# The course follows a talk of March 2025 on two papers of the same week, DAPO (17 March) and Dr. GRPO (21 March), against the
# paper that both change. Each recipe names its source; the [map of the course](README.md) says which cell settles which
# sentence of the talk.

# %% tags=["row-1"]
for name in ("grpo", "dapo", "dr_grpo", "ppo"):
    print(f"{name:8}", recipe(name).paper)

# %% [markdown]
# The post that goes with the talk: Interconnects, 31 March 2025. The book behind it: rlhf-book, the chapter on policy
# gradients.
#
# ## Five questions
#
# **1.** Two wrong answers of 10 and 1000 tokens, same group, GRPO. How do their pushes per token compare? Their shares?
#
# <details><summary>Answer</summary>
#
# Per token the long one is pushed a hundredth as hard. Their shares of the step are equal: 1000 tokens at a hundredth of the
# push.
#
# </details>
#
# **2.** Under which aggregation is the answer to both halves of question 1 the other way round?
#
# <details><summary>Answer</summary>
#
# Under a constant (Dr. GRPO) or a token mean: alike per token, a hundred times the share.
#
# </details>
#
# **3.** The loss reads 0.0 at the first step. Is anything learnt? Which call tells?
#
# <details><summary>Answer</summary>
#
# Yes. The loss is 0 because the advantages cancel; `token_weights` shows that the pushes do not.
#
# </details>
#
# **4.** A right answer's ratio is 1.5, the clip 0.2. What is its weight? And a wrong answer's?
#
# <details><summary>Answer</summary>
#
# The right one's weight is 0: it is above 1.2 with A > 0. The wrong one's is 1.5 times its on-policy weight: for A < 0 the clip
# acts below 0.8 only.
#
# </details>
#
# **5.** Your framework divides by the padded width of the batch instead of a constant. Which invariance is lost?
#
# <details><summary>Answer</summary>
#
# Padding: the same completions in a wider batch get smaller pushes. (Also the split into micro-batches, whose widths differ.)
#
# </details>
