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
# # 10 · Small language models
#
# **30 minutes, one of them waiting. Before it: notebooks 00 and 06.**
#
# *Question: the drift under 1/|o| is exact. Does a language model follow it?*
#
# Everything measured here is **observed**: a small model, several seeds, two independent starts, intervals. It is a laboratory, built so that
# an effect can be seen in a minute on a laptop. It says nothing about the size of the effect in a large model.
#
# ## 1. By hand: one question
#
# The model sorts digits, then says what it thinks of its answer (`!` right, `?` wrong), then trails off. The reward looks at the digits only.

# %%
from grpo_edu.lm import lab

for completion in ("2358#!", "2358#!.........", "2351#?", "2351#?,,,,,,,,,,,,"):
    print(f"5283= -> {completion:20} reward {lab.reward(completion, '2358'):.0f}")

# %% [markdown]
# The tail costs nothing and earns nothing. Whatever happens to its length is the loss's doing.
#
# **Why would an answer be wrong?** Because the hand slips: the environment replaces the last digit, more often in long questions. A slip
# cannot be unlearnt, so wrong answers never run out; and it is no choice of the policy's, so no gradient flows through it.

# %%
lab.SLIP  # probability of a slip by level; level l sorts l + 1 digits

# %% [markdown]
# ## 2. The same in code
#
# Model, tokenizer and 22 characters; one step is *sample → reward → recipe → step*.

# %%
from grpo_edu import recipe
from grpo_edu.lm.loop import Settings, Trainer

net, tokenizer = lab.warm_start("after", 0)
settings = Settings(steps=1, prompts=12, samples=8)
trainer = Trainer(net, tokenizer, lab.task(), recipe("dr_grpo"), settings)
batch = trainer.collect(0)

# %%
for text, question, reward in list(
    zip(batch.texts, batch.asked, batch.correct.tolist(), strict=True)
)[::10]:
    print(f"{question.prompt:8} {reward:.0f}  {text}")

# %% [markdown]
# The lengths of the tails are the same for right and wrong: the warm start was taught so. The model mostly *knows* which is which,
# though: its mark agrees with the reward in about 93 % of answers.
#
# What one step would push, in the two losses, for the first group with both kinds of answers:

# %%
from grpo_edu.weights import summary

chosen = batch.rollouts.group == 3
both = [
    summary(recipe(name).but(name, kl=None), batch.rollouts)[chosen.tolist()]
    for name in ("grpo", "dr_grpo")
]
both[0][["reward", "length", "push_per_token"]].assign(dr_grpo=both[1]["push_per_token"]).round(5)

# %% [markdown]
# Under GRPO a token of a short answer is pushed harder than one of a long answer. Under Dr. GRPO all tokens of one sign are pushed alike.
#
# ## 3. Predict
#
# Sixty steps, 96 completions each; the reward cannot rise. **Predict:** what will the mean length of wrong answers be under GRPO, and under
# Dr. GRPO? They start at 16 tokens; the limit is 48. And right answers, from 14?
#
# ## 4. The recorded runs
#
# Six losses, two independent warm starts, five seeds each, fixed before anything was measured; all 60 runs are drawn.

# %%
from grpo_edu.figures import FIGURES

FIGURES["lm_length"].show()

# %%
from grpo_edu.figures.lm import recorded
from grpo_edu.lm import analysis

analysis.gap_intervals(recorded("length")).round(2)

# %% [markdown]
# **GRPO: 25.7 tokens (95 % interval [25.1, 26.4]) on the first warm start, 29.2 [27.6, 30.8] on the second.** 1/|o| without the std: the same. So it is 1/|o|,
# and not the std. Dr. GRPO: −0.4 [−5.4, 4.5] and −1.0 [−4.7, 2.7]; constant with std, token mean and placebo: all intervals hold 0. Single
# runs under a constant end anywhere between −9 and +4 tokens: a walk, no drift.

# %%
analysis.ends(recorded("length")).groupby("arm", sort=False)[
    ["pass_rate", "length_right", "length_wrong"]
].mean().round(2)

# %% [markdown]
# The pass rates are the same in every arm that learns (the placebo, which learns noise, loses four points): nobody paid for the length, and
# nobody earned by it.
#
# ## 5. What breaks it
#
# **Predict:** the same loss, the same seeds, but the filler comes *before* the digits. Is there a gap?

# %%
analysis.gap_intervals(recorded("length-control")).round(2)

# %% [markdown]
# None to speak of: 0.2 [−0.6, 1.1] and 0.7 [−0.2, 1.5] tokens under GRPO, three seeds each, and much the same under Dr. GRPO
# (0.5 and 0.3). (That the means
# of all four are a little above 0 may be chance.)
#
# A length can only be bent by whether an answer is right if that is settled, and known, when the length is decided. In a chain of thought the
# answer comes last: what the model knows on the way about being wrong is a question about the model, and the size of the effect with it.
#
# A second thing that breaks it, met while this was built: take the slipped digit out of the mask. |o| of a slipped answer is then one less,
# 1/|o| a little more, and under GRPO *all* answers grow, right ones too. Masked tokens change a sequence mean.
#
# ## 6. Your own run
#
# Two arms, twenty steps, about a minute on a laptop.

# %%
from dataclasses import replace

from grpo_edu.lm import experiments

mine = experiments.experiment("length", quick=True)
mine = replace(mine, settings=replace(mine.settings, steps=20))
tables = {arm: experiments.train_run(mine, experiments.RunKey(arm, 0, 7)) for arm in mine.arms}

# %%
{arm: analysis.ends(table, last=10)["gap"].round(1).item() for arm, table in tables.items()}

# %% [markdown]
# The whole quick form, six runs an arm: `grpo-edu experiment length --quick`.
#
# ## 7. Look inside a run
#
# A single run is `grpo-edu train --model tiny --recipe grpo --steps 60 --out runs/mine`. It keeps every completion. Here one of eight steps (static
# twin of the pushes: the table of section 2): choose a step, and read what each token of its completions was pushed.

# %%
import tempfile
from pathlib import Path

from grpo_edu.lm.train import Run, begin
from grpo_edu.widgets.texts import RunViewer

folder = Path(tempfile.mkdtemp(), "run")
settings = Settings(steps=8, prompts=6, samples=8, learning_rate=2e-4)
run = Run("tiny", "lab", "grpo", kl=False, settings=settings)
rewards = [line["reward"] for line in begin(run, folder)]
RunViewer(folder)

# %% [markdown]
# ## 8. With a reward that rises

# %%
FIGURES["lm_token_efficiency"].show()

# %% [markdown]
# In this variant the warm start errs in ways that can be unlearnt, so the pass rate rises from .49 to .72, under every loss alike. The gap is there
# again (28.6 [25.9, 31.4] under GRPO, 1.7 [−3.8, 7.1] under Dr. GRPO, three seeds, one warm start). The *token efficiency* of the paper is not:
# 116 thousand tokens under GRPO, 113 under Dr. GRPO, 119 under the token mean, for one pass rate. Right answers, which become many, shrink as
# wrong ones grow. Where most answers are wrong, the sum would come out otherwise.

# %% [markdown]
# ## 9. The other bias
#
# Division by the std multiplies a group's gradient by 1/σ, exactly. How much does a hard question gain, measured on the model?

# %%
FIGURES["lm_difficulty_gradients"].show()

# %% [markdown]
# At G = 8 the rarest live group gains a factor of 1.5 over one that is half right; at G = 64, four.
#
# **Predict:** does the model then *learn* the hard levels sooner? Same constant, with and without std, pass rate over the first 20 steps:

# %%
rising = recorded("length-rising")
early = analysis.learning_by_level(rising[rising["arm"].isin(["constant_std", "dr_grpo"])])
early.pivot(index="level", columns="arm", values="mean").round(3)

# %% [markdown]
# No: .478 with std and .471 without on the hardest level, three seeds, intervals of ±.1. **A null result**: at G = 8 the factor is small, the
# levels share one skill, and Adam divides by the size of the gradient anyway. In notebook 04's toy, where questions share nothing and G is
# 64, there is a difference under SGD, and little of it under AdamW.
#
# ## 10. The frameworks' flags
#
# | | 1/\|o\| | Dr. GRPO: constant, no std |
# |---|---|---|
# | TRL 1.16 | `loss_type="grpo"` | `loss_type="dr_grpo"`, `scale_rewards="none"` |
# | verl 0.9.1 | `loss_agg_mode="seq-mean-token-mean"` | `loss_agg_mode="seq-mean-token-sum-norm"`, `loss_scale_factor=<max_response_length>`, `norm_adv_by_std_in_grpo=False` |
#
# ## Five questions
#
# **1.** Why must wrong answers persist for the effect to be seen?
#
# <details><summary>Answer</summary>
#
# The drift acts on what is sampled. A model that stops failing after fifty steps has no wrong answers left to lengthen.
#
# </details>
#
# **2.** Why is the gap taken within levels, and not over all answers?
#
# <details><summary>Answer</summary>
#
# Hard questions have more digits and fail more often: over all answers wrong ones would be longer for that reason alone.
#
# </details>
#
# **3.** What does the placebo arm rule out? What does it not rule out?
#
# <details><summary>Answer</summary>
#
# That the machinery itself (clipping, AdamW, the measure of the gap) makes one: with shuffled rewards there is none. It does not rule out that
# another reward, task or model shows more or less.
#
# </details>
#
# **4.** Under Dr. GRPO the lengths of single runs wander. Why is that no drift, and how would you show it?
#
# <details><summary>Answer</summary>
#
# A drift has a sign that seeds share. Fix the seeds beforehand, report all of them, and look at the interval of their mean: it holds 0.
#
# </details>
#
# **5.** You see wrong answers grow in your own training. Name two explanations that have nothing to do with 1/|o|.
#
# <details><summary>Answer</summary>
#
# For example: hard questions need longer answers and are what is left to fail; answers that met the limit are counted as wrong; the gradient's norm
# is clipped, which is a drift of its own (notebook 06).
#
# </details>
