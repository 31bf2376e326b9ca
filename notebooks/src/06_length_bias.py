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
# Sections 1 to 7 are **exact**, 8 to 10 follow a toy policy (**simulated**). How far a language model follows it is another question, and can be
# nothing.
#
# ## 1. By hand: two wrong answers
#
# One group, two wrong answers of 2 and 8 tokens, advantage −1 each. Under 1/|o| a token of the first is pushed by −1/(2·2), one of the
# second by −1/(2·8): **a quarter**. The end-of-sequence token is one of them: ending early was punished four times as hard as ending late.
#
# For right answers the sign turns: ending early is *rewarded* four times as hard. So: right → shorter, wrong → longer.

# %%
from grpo_edu import Rollouts, recipe, token_weights
from grpo_edu.biases import length_bias

rollouts = Rollouts.from_lengths([2, 8], rewards=[0, 0], advantage=[-1.0, -1.0], max_new_tokens=8)
token_weights(recipe("ppo").but(aggregation=recipe("grpo").aggregation), rollouts)[:, 0].tolist()

# %%
for name in ("grpo", "dr_grpo", "dapo", "gspo", "luspo", "vl_norm"):
    print(f"{name:8}", length_bias(recipe(name)))

# %% [markdown]
# ## 2. The decision to stop
#
# A policy that stops with probability s after each token has a score 1{stopped} − s·L for its stop logit: mean zero, since long answers had
# more chances to stop. Multiply by a *constant* and the mean stays zero. Divide by L and it does not: E[1{stopped}/L] − s > 0.
#
# **Predict:** s = 0.1. Is the drift nearer 0.01, 0.15 or 0.5?

# %%
from grpo_edu.theory import length

{
    "no cap": length.sequence_mean_drift(0.1),
    "cap 10": length.sequence_mean_drift(0.1, 10),
    "constant": length.constant_drift(0.1, 10),
}

# %% [markdown]
# 0.156, per unit of advantage. Positive advantage: stop more. Negative: stop less. **No reward mentioned length.** The constant has none, up
# to rounding.
#
# ## 3. Is a token mean free of it?
#
# **Predict:** DAPO divides by the tokens of the whole group. Is the drift gone?

# %%
from grpo_edu.figures import FIGURES

FIGURES["drift_by_scope"].show()

# %% [markdown]
# Not gone: divided. The completion's own length is one of n in the denominator. 42 % is left at two, 8 % at eight, 1 % at sixty-four; a
# micro-batch of one is the sequence mean again. Only a constant is exactly free.
#
# ## 4. Enumerated, through the real loss
#
# Nothing above rests on the formula alone: every group of two completions (right or wrong, 1 to 5 tokens), with its probability, through the
# recipe's own loss. The three numbers are the expected updates of: being right, stopping when right, stopping when wrong.

# %%
from grpo_edu.objective import aggregation as agg
from grpo_edu.theory.enumeration import expected_gradient

choices = {"sequence mean": agg.sequence_mean, "token mean of the group": agg.prompt_token_mean, "constant": agg.constant}
for name, choice in choices.items():
    update = expected_gradient(recipe("dr_grpo").but(aggregation=choice), 0.4, 0.3, 0.3, 2, 5)
    print(f"{name:24}", (update + 0.0).round(decimals=5).tolist())

# %% [markdown]
# Right answers stop earlier, wrong ones later, at the same rate. The std changes none of these signs: this is 1/|o| alone.
#
# ## 5. No objective has this gradient
#
# Could 1/|o| be the gradient of *some* objective, one that likes short right answers? Walk around a closed loop and add up the work: for a
# gradient it is zero.

# %%
length.loop_integral(8, (-2.0, 2.0), (-3.0, 0.5), right=-1.0)

# %%
FIGURES["length_field"].show()

# %% [markdown]
# ## 6. Fair to whom?
#
# "But 1/|o| gives every answer the same say." True: that is the other meaning of unbiased. Shares and drift cannot both be even:

# %%
FIGURES["impossibility_frontier"].show()

# %% [markdown]
# At 4,965 against 8,206 tokens a constant gives the longer answer 62 % of the step; at 10 against 10,000, 99.9 %.

# %%
[round(length.longer_share(ratio), 4) for ratio in (8206 / 4965, 10, 1000)]

# %% [markdown]
# ## 7. The picture of the paper

# %%
FIGURES["bias_illustration"].show()

# %% [markdown]
# ## 8. A policy that follows it
#
# A policy with three numbers: how likely a right answer is, and when to stop, given right and given wrong. First its *expected* update,
# enumerated (**exact**). **Predict:** which of the two lengths moves under Dr. GRPO?

# %%
FIGURES["length_flow"].show()

# %% [markdown]
# Neither. Now sampled, token by token, with slips: sometimes a right attempt turns out wrong, so that wrong answers never die out
# (**simulated**). The reward settles at the same level in all three arms.

# %%
FIGURES["length_dynamics"].show()

# %% [markdown]
# Run it yourself, smaller (a few seconds; `grpo-edu toy length --help` has every knob a class would turn):

# %%
from grpo_edu.toys import stopping
from grpo_edu.toys.compare import last_step, matched_learning_rate, push_sizes
from grpo_edu.toys.training import Training

arms = [recipe("grpo").but("grpo", kl=None), recipe("dr_grpo")]
policy, short = stopping.Stopping(mode="slip"), Training(steps=60, learning_rate=2.0, every=60)
rates = matched_learning_rate(push_sizes(arms, [stopping.rollouts(policy, short)]), 2.0)  # equally hard first steps
last_step(stopping.train(arms, policy, short, seeds=5, learning_rates=rates), ["pass_rate", "length_right", "length_wrong"])

# %% [markdown]
# ## 9. Would it appear anyway?
#
# A **placebo**: the same rewards, permuted inside each group. Nothing can be learnt from them, so a gap that stays would be ours.

# %%
FIGURES["length_modes"].show()

# %% [markdown]
# Gone. And a constant is not magic: its *gradient* has no drift. Clip the gradient's norm and long answers, which make large gradients, are
# clipped more often; that is a drift of the optimiser. (AdamW's was too small to see here.)

# %%
FIGURES["optimiser_drift"].show()

# %% [markdown]
# ## 10. Two switches
#
# 1/|o| and 1/std, on and off. **Predict:** which of the two makes the length gap, which the lead of the hard prompts?

# %%
FIGURES["two_by_two"].show()

# %% [markdown]
# One each, early on. Later they meet: when right answers have two tokens and wrong ones sixty, 1/|o| also learns faster from right answers,
# and hard prompts have little else to learn from.
#
# What it costs: the same reward with more tokens.

# %%
FIGURES["token_efficiency"].show()

# %% [markdown]
# ## 11. Turn it yourself
#
# Make one wrong answer four times longer and read push and share in each panel. (Static twin: the picture of section 7.)

# %%
from grpo_edu.widgets.explorer import WeightExplorer

WeightExplorer(recipes=["grpo", "dr_grpo", "gspo"], lengths=[8, 8, 32, 32], rewards=[1, 0, 1, 0])

# %% [markdown]
# ## 12. What breaks
#
# If right and wrong answers share one stop logit, the two drifts cancel: a policy that cannot tell that it has failed shows nothing. That is
# why naive toys, and models that do not know they are wrong, show no length bias. Judge the stop decision, or the gap between wrong and
# right, never the raw length alone.
#
# ## 13. Newer losses
#
# GSPO's ratio has the 1/|o| inside; on policy it is GRPO, bias and all. LUSPO multiplies it back.

# %%
FIGURES["sequence_ratio_equivalence"].show()

# %% [markdown]
# ## 14. In the frameworks
#
# | what | TRL 1.16 | verl 0.9.1 | OpenRLHF 0.11 |
# |---|---|---|---|
# | 1/\|o\| | `loss_type="grpo"` | `loss_agg_mode=seq-mean-token-mean` | without `token_level_loss` |
# | token mean of the step | `loss_type="dapo"` (default) | `token-mean` (default) | `token_level_loss` (default) |
# | constant | `loss_type="dr_grpo"` | `seq-mean-token-sum-norm` | not available |
#
# ## Five questions
#
# 1. Wrong answers of 10 and 1000 tokens under GRPO: which is pushed down harder, per token and in all?
# 2. "1/|o| favours longer answers": for which sign of the advantage is that true?
# 3. Why does a constant have zero drift although long answers get more of the step?
# 4. Micro-batch of two completions, local token mean: how much of the drift is left?
# 5. Your model's wrong answers do not grow under GRPO. Name two reasons that do not contradict this notebook.
