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
# # 06 · Length bias
#
# **30 minutes. Before it: notebooks 00 and 05.**
#
# *Question: why does 1/|o| make wrong answers longer and right ones shorter, although no reward speaks of length?*
#
# Sections 1 to 6 are **exact**, 7 to 9 follow a toy policy (**simulated**). How far a language model follows it is another
# question, and can be nothing.
#
# ## 1. By hand: two wrong answers
#
# One group, two wrong answers of 2 and 8 tokens, advantage −1 each. Under 1/|o| a token of the first is pushed by −1/(2·2), one
# of the second by −1/(2·8): **a quarter**. The end-of-sequence token is one of them: ending early was punished four times as
# hard as ending late.
#
# For right answers the sign turns: ending early is *rewarded* four times as hard. So: right → shorter, wrong → longer. "It
# favours longer answers" is true for A < 0 only, "it prioritises shorter ones" for A > 0 only.

# %% tags=["row-24", "row-36", "question-7"]
import pandas as pd

from grpo_edu import Rollouts, recipe, token_weights
from grpo_edu.biases import length_bias
from grpo_edu.weights import summary

signs = Rollouts.from_lengths(
    [2, 8, 4, 16], rewards=[1, 1, 0, 0], given_advantage=[1.0, 1.0, -1.0, -1.0], max_new_tokens=16
)
sequence = recipe("ppo").but("1/|o|", aggregation=recipe("grpo").aggregation)
constant = recipe("ppo").but("constant", aggregation=recipe("dr_grpo").aggregation)
columns = ["reward", "length", "push_per_token", "share"]
tables = {one.name: summary(one, signs)[columns] for one in (sequence, constant)}
pd.concat(tables, axis=1)

# %% [markdown]
# "But a mean is fair": per *answer* it is, all four have a share of ±0.25. Per *token* the short right one has four times the
# push of the long right one, and the long wrong one a quarter of the short wrong one's. The talk's example, right answers of 10
# and of 1000 tokens:

# %% tags=["row-35"]
example = Rollouts.from_lengths([10, 1000], rewards=[1, 1], given_advantage=[1.0, 1.0])
ten, thousand = token_weights(sequence, example)[:, 0].tolist()
print(
    f"{ten:.4f} {thousand:.4f}, a factor of {ten / thousand:.0f}; the last token, end-of-sequence, is one of them"
)
for name in ("grpo", "dr_grpo", "dapo", "gspo", "luspo", "vl_norm"):
    print(f"{name:8}", length_bias(recipe(name)))

# %% [markdown]
# ## 2. The decision to stop
#
# A policy that stops with probability s after each token has a score 1{stopped} − s·L for its stop logit: mean zero, since long
# answers had more chances to stop. Multiply by a *constant* and the mean stays zero. Divide by L and it does not:
# E[1{stopped}/L] − s > 0.
#
# **Predict:** s = 0.1. Is the drift nearer 0.01, 0.15 or 0.5?

# %%
from grpo_edu.theory import length

drifts = {
    "no cap": length.sequence_mean_drift(0.1),
    "cap 10": length.sequence_mean_drift(0.1, 10),
    "constant": length.constant_drift(0.1, 10),
}
{name: round(drift, 4) + 0.0 for name, drift in drifts.items()}

# %% [markdown]
# 0.156, per unit of advantage. Positive advantage: stop more. Negative: stop less. **No reward mentioned length.** The constant
# has none, up to rounding.
#
# ## 3. Is a token mean free of it?
#
# **Predict:** DAPO divides by the tokens of the whole group. Is the drift gone?

# %%
from grpo_edu.figures import FIGURES

FIGURES["drift_by_scope"].show()

# %% [markdown]
# Not gone: divided. The completion's own length is one of n in the denominator. 42 % is left at two, 8 % at eight, 1 % at
# sixty-four; a micro-batch of one is the sequence mean again. Only a constant is exactly free.
#
# ## 4. Enumerated, through the real loss
#
# Nothing above rests on the formula alone: every group of two completions (right or wrong, 1 to 5 tokens), with its
# probability, through the recipe's own loss. The three numbers are the expected updates of: being right, stopping when right,
# stopping when wrong.

# %% tags=["row-29"]
from grpo_edu.objective import aggregation as agg
from grpo_edu.theory.enumeration import expected_gradient

choices = {
    "sequence mean": agg.sequence_mean,
    "token mean of the group": agg.prompt_token_mean,
    "constant": agg.constant,
}
for name, choice in choices.items():
    update = expected_gradient(recipe("dr_grpo").but(aggregation=choice), 0.4, 0.3, 0.3, 2, 5)
    print(f"{name:24}", (update.round(decimals=5) + 0.0).tolist())

# %% [markdown]
# Right answers stop earlier, wrong ones later, at the same rate. The std changes none of these signs: this is 1/|o| alone.
#
# ## 5. No objective has this gradient
#
# Could 1/|o| be the gradient of *some* objective, one that likes short right answers? Walk around a closed loop and add up the
# work: for a gradient it is zero.

# %%
print(
    "work around the loop:", round(length.loop_integral(8, (-2.0, 2.0), (-3.0, 0.5), right=-1.0), 6)
)
FIGURES["length_field"].show()

# %% [markdown]
# ## 6. The picture of the paper
#
# "But 1/|o| gives every answer the same say." True: that is the other meaning of unbiased, and no weighting by length is both
# (notebook 09, section 7). Dr. GRPO's own illustration, with its arrows computed:

# %%
FIGURES["bias_illustration"].show()

# %% [markdown]
# ## 7. A policy that follows it
#
# A policy with three numbers: how likely a right answer is, and when to stop, given right and given wrong. First its *expected*
# update, enumerated (**exact**). **Predict:** which of the two lengths moves under Dr. GRPO?

# %%
FIGURES["length_flow"].show()

# %% [markdown]
# Neither. Now sampled, token by token, with slips: sometimes a right attempt turns out wrong, so that wrong answers never die
# out (**simulated**). The reward settles at the same level in all three arms.

# %%
FIGURES["length_dynamics"].show()

# %% [markdown]
# Reward *and* length have to be read together: accuracy alone would call the arms equal. (So did Dr. GRPO's own benchmark
# averages; its authors claim token efficiency, not a better score.)

# %% tags=["row-32", "question-13"]
from grpo_edu.figures.registry import recorded_table

runs = recorded_table("length_dynamics")
end = runs[runs["step"] == runs["step"].max()]
end.groupby("recipe", sort=False)[["pass_rate", "length_right", "length_wrong"]].mean().round(3)

# %% [markdown]
# Run it yourself, smaller (a few seconds; `grpo-edu toy length --help` has every knob a class would turn):

# %%
from grpo_edu.toys import stopping
from grpo_edu.toys.compare import last_step, matched_learning_rate, push_sizes
from grpo_edu.toys.training import Training

arms = [recipe("grpo").but("grpo", kl=None), recipe("dr_grpo")]
policy, short = stopping.Stopping(mode="slip"), Training(steps=60, learning_rate=2.0, every=60)
rates = matched_learning_rate(
    push_sizes(arms, [stopping.rollouts(policy, short)]), 2.0
)  # equally hard first steps
last_step(
    stopping.train(arms, policy, short, seeds=5, learning_rates=rates),
    ["pass_rate", "length_right", "length_wrong"],
)

# %%
from grpo_edu.widgets.toy import ToyPlayer

ToyPlayer(["grpo", "dr_grpo", "dapo"], step=40)

# %% [markdown]
# ## 8. Would it appear anyway?
#
# A **placebo**: the same rewards, permuted inside each group. Nothing can be learnt from them, so a gap that stays would be
# ours.

# %%
FIGURES["length_modes"].show()

# %% [markdown]
# Gone. And a constant is not magic: its *gradient* has no drift. Clip the gradient's norm and long answers, which make large
# gradients, are clipped more often; that is a drift of the optimiser. (AdamW's was too small to see here.)

# %%
FIGURES["optimiser_drift"].show()

# %% [markdown]
# ## 9. Two switches
#
# 1/|o| and 1/std, on and off. **Predict:** which of the two makes the length gap, which the lead of the hard prompts?

# %%
FIGURES["two_by_two"].show()

# %% [markdown]
# One each, early on. Later they meet: when right answers have two tokens and wrong ones sixty, 1/|o| also learns faster from
# right answers, and hard prompts have little else to learn from.
#
# What it costs: the same reward with more tokens.

# %%
FIGURES["token_efficiency"].show()

# %% [markdown]
# ## 10. Turn it yourself
#
# Make one wrong answer four times longer and read push and share in each panel. (Static twin: the picture of section 6.)

# %%
from grpo_edu.widgets.aggregation import AggregationExplorer

AggregationExplorer(
    recipes=["grpo", "dr_grpo", "gspo"], lengths=[8, 8, 32, 32], rewards=[1, 0, 1, 0]
)

# %% [markdown]
# ## 11. What breaks
#
# If right and wrong answers share one stop logit, the two drifts cancel: a policy that cannot tell that it has failed shows
# nothing. That is why naive toys, and models that do not know they are wrong, show no length bias. Judge the stop decision, or
# the gap between wrong and right, never the raw length alone.
#
# The failure that practitioners describe, lengths up to the cap with repetition and an eval score near 0, is more than this
# drift: a cut answer counts as wrong, and every long wrong answer is under-punished. Look at the share of truncated answers
# first (notebook 08, section 5).
#
# ## 12. In the frameworks
#
# | what | TRL 1.16 | verl 0.9.1 | OpenRLHF 0.11 |
# |---|---|---|---|
# | 1/\|o\| | `loss_type="grpo"` | `loss_agg_mode=seq-mean-token-mean` | without `token_level_loss` |
# | token mean of the step | `loss_type="dapo"` (default) | `token-mean` (default) | `token_level_loss` (default) |
# | constant | `loss_type="dr_grpo"` | `seq-mean-token-sum-norm` | not available |
#
# ## Five questions
#
# **1.** Wrong answers of 10 and 1000 tokens under GRPO: which is pushed down harder, per token and in all?
#
# <details><summary>Answer</summary>
#
# Per token the short one, by a factor of 100. In all, alike: half of the step each.
#
# </details>
#
# **2.** "1/|o| favours longer answers": for which sign of the advantage is that true?
#
# <details><summary>Answer</summary>
#
# For A < 0: a long wrong answer is pushed down less per token. For A > 0 it favours *shorter* ones.
#
# </details>
#
# **3.** Why does a constant have zero drift although long answers get more of the step?
#
# <details><summary>Answer</summary>
#
# The drift is about the stop decision. A longer answer has more tokens that all say "go on", each weighed like the stop token;
# with equal weights their sum has mean zero. A larger share is not a drift.
#
# </details>
#
# **4.** Micro-batch of two completions, local token mean: how much of the drift is left?
#
# <details><summary>Answer</summary>
#
# 42 % of the sequence mean's, at stop probability 0.1: the own length is one of two in the denominator.
#
# </details>
#
# **5.** Your model's wrong answers do not grow under GRPO. Name two reasons that do not contradict this notebook.
#
# <details><summary>Answer</summary>
#
# For example: it does not know that it is wrong (right and wrong answers share one stop decision); the lengths are pressed
# against the limit; the std, clip or KL of the run drown it; too few wrong answers are left.
#
# </details>
