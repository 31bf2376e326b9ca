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
# # 04 · Difficulty bias
#
# **30 minutes. Before it: notebook 00.**
#
# *Question: dividing by the std of a prompt's rewards: which prompts does it favour, and by how much at the group size you
# really use?*
#
# After this notebook you can say why "std over-weights the extremes" and "std over-weights the middle" are both true, and why
# neither happens at G = 2 or 3. Everything here is **exact**, but for section 8.
#
# ## 1. By hand: one success in four, two in four
#
# Rewards 1 0 0 0: mean ¼, squares of the deviations 9/16 + 3 · 1/16 = ¾, divided by G − 1 = 3 that is ¼, root ½. Advantage of
# the success: ¾ / ½ = **1.5**; without std 0.75: gain **2**.
#
# Rewards 1 1 0 0: mean ½, squares 4 · ¼ = 1, over 3, root 0.577. Advantage ½ / 0.577 = **0.866**; without std 0.5: gain
# **1.73**.
#
# So the uneven group gets the larger gain. One of four or three of four: the same.

# %%
from grpo_edu import Rollouts, recipe, step_through

uneven = Rollouts.from_lengths([1, 1, 1, 1], rewards=[1, 0, 0, 0])
step_through(recipe("grpo").but("grpo", kl=None), uneven, 0, 0)

# %% [markdown]
# ## 2. A group cannot choose how many are right
#
# A prompt of pass rate p gives K right answers of G by chance. Averaged over K, every group estimator pushes along ∇p with some
# weight w(p). A prompt with w twice as large counts twice.
#
# **Predict:** at G = 2 with the std, is w(0.05) larger than w(0.5), smaller, or equal?

# %%
from grpo_edu.theory.difficulty import std_weight

{size: [round(std_weight(p, size), 3) for p in (0.05, 0.2, 0.5)] for size in (2, 3, 4, 8, 16, 64)}

# %% [markdown]
# **Equal.** At G = 2 every mixed group has the same std, at G = 3 too. The bias appears at G = 4 (6 % between 0.05 and 0.5), is
# 33 % at G = 8 and 2.2-fold at G = 64. w never exceeds √(G−1): hard prompts mostly give groups without any success, which say
# nothing.
#
# ## 3. The picture

# %%
from grpo_edu.figures import FIGURES

FIGURES["prompt_weight"].show()

# %% [markdown]
# The dashed curve, 1/√(p(1−p)), is the one that most texts draw. It is the limit of infinite groups.
#
# ## 4. What the recipes do
#
# Each sentence is computed from the recipe's own weights.

# %%
from grpo_edu.biases import difficulty_bias

for name in ("grpo", "dr_grpo", "rloo", "lite_ppo", "maxrl", "pass@k"):
    print(f"{name:9}", difficulty_bias(recipe(name)))

# %% [markdown]
# ## 5. Three yardsticks, one update
#
# Is w(p) large or small? That depends on what one divides by. Relative to ∇p the std lifts the extremes. Relative to the score
# gap (what moves the *logit* of p) it lifts the middle. Relative to ∇log p it neglects the hard ones. Papers that contradict
# each other use different yardsticks for the same numbers.

# %%
import pandas as pd

from grpo_edu.theory.difficulty import frames

pd.DataFrame({p: frames(std_weight(p, 64), p) for p in (0.02, 0.1, 0.5, 0.9)}).round(3)

# %% [markdown]
# ## 6. Groups that say nothing
#
# All right or all wrong: no advantage, whatever the std. Drag the bar before you unfold the picture below it.

# %% tags=["ask"]
from grpo_edu.widgets.predict import Predict

Predict(
    "What share of groups of 8 is silent at pass rate 0.05?",
    answer=100 * (0.95**8 + 0.05**8),
    span=(0, 100),
    unit="%",
)

# %% tags=["predict"]
FIGURES["silent_groups"].show()

# %% [markdown]
# <details><summary>The answer in words</summary>
#
# Two thirds. Dynamic sampling replaces them. If it draws *new* prompts, the relative weights above stay. If it re-rolls the
# *same* prompt until its group is mixed, a hard prompt is lifted further: at p = 0.02 and G = 8 from 2.57 to 17.2.
#
# </details>

# %%
from functools import partial

from grpo_edu.objective.advantages import group_std
from grpo_edu.theory.difficulty import prompt_weight, rerolled_weight

population = recipe("grpo").but(scale=partial(group_std, ddof=0, eps=0.0))
[round(f(population, 0.02, 8), 2) for f in (prompt_weight, rerolled_weight)]

# %% [markdown]
# ## 7. Two loose sentences, set right
#
# *"Low-std prompts get weaker learning signals."* The other way round: per group, the smaller the std, the **larger** the
# weight; only a std of exactly zero gives nothing. *"Harder questions have higher variance."* For right/wrong rewards the
# variance is p(1−p): highest at one half, lower for harder ones.
#
# Three groups: one of four right, two of four, all four. What does the std multiply each advantage by?

# %% tags=["row-33", "question-9"]
from grpo_edu.compare import advantage_table

rewards, group = [1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 1], [0] * 4 + [1] * 4 + [2] * 4
grpo = recipe("grpo").but("with std", kl=None)
table = advantage_table(
    [grpo, recipe("dr_grpo").but("without")],
    Rollouts.from_lengths([1] * 12, rewards, group, max_new_tokens=1),
)
table.assign(gain=table["with std"] / table["without"]).iloc[[0, 1, 4, 6, 8]].round(4)

# %% [markdown]
# 2 and 1.732; nothing times anything for the silent group. And what removing the std costs: the lone success is worth 3.0 with
# it (G = 10, ddof 0), 0.9 without.

# %%
FIGURES["advantage_by_correct_count"].show()

# %% [markdown]
# ## 8. Over training
#
# Fifty prompts, pass rates from 0.001 to 0.999, each with a logit of its own (**simulated**). **Predict:** who learns the
# hardest fifth first in groups of 64: GRPO, RLOO or MaxRL? And in groups of 2?

# %%
FIGURES["difficulty_training"].show()

# %% [markdown]
# The order of the weights, as long as the optimiser keeps it. AdamW rescales every parameter's own gradient; where each prompt
# has its own parameter, as here, little of the order is left. In a language model prompts share parameters; nobody may read
# this picture as a forecast.
#
# A smaller run of your own (`grpo-edu toy difficulty --help`):

# %%
from grpo_edu.toys import difficulty as toy
from grpo_edu.toys.compare import last_step
from grpo_edu.toys.training import Training

arms = [recipe("grpo").but("grpo", kl=None), recipe("rloo"), recipe("maxrl")]
runs = toy.train(
    arms, training=Training(steps=40, prompts=50, samples=64, learning_rate=10.0, every=40), seeds=5
)
last_step(runs, ["pass_rate", "pass_at_8", "bucket_1"])

# %% [markdown]
# (Same learning rate for all three here: MaxRL's advantages are larger, so part of its lead is step size. The figure matches
# the first steps.)
#
# Dynamic sampling over training: what an update gains, and what it costs.

# %%
FIGURES["dynamic_sampling"].show()

# %% [markdown]
# ## 9. Turn it yourself
#
# Start at G = 2 and let G grow: where does the curve of the std leave the flat one? Then change the yardstick. (Static twin: the picture of
# section 3.)

# %%
from grpo_edu.widgets.difficulty import DifficultyExplorer

DifficultyExplorer(schemes=["mean/std", "mean", "maxrl"], p=0.05, size=2)

# %% [markdown]
# ## 10. In the frameworks
#
# | what | TRL 1.16 | verl 0.9.1 | OpenRLHF 0.11 |
# |---|---|---|---|
# | group std | `scale_rewards="group"` (default) | `norm_adv_by_std_in_grpo=True` (default) | `group_norm` |
# | batch std | `scale_rewards="batch"` | not available | `reinforce_baseline` (over tokens) |
# | none | `scale_rewards="none"` | `norm_adv_by_std_in_grpo=False` | `dr_grpo` |
#
# The group std has ddof 1 in all three; ε is 1e-4, 1e-6, 1e-9.
#
# ## Five questions
#
# **1.** G = 2. Does the std favour any prompt? Why not?
#
# <details><summary>Answer</summary>
#
# No: every mixed group of two has the same std, so it is one common factor. (The same at G = 3.)
#
# </details>
#
# **2.** G = 8, p = 0.05 against 0.5: what is the gain, and what does the textbook curve say?
#
# <details><summary>Answer</summary>
#
# 1.33. The textbook curve 1/√(p(1−p)), which is G = ∞, says 2.29.
#
# </details>
#
# **3.** "GRPO over-weights medium prompts": relative to what is that true?
#
# <details><summary>Answer</summary>
#
# Relative to the score gap, that is, in the logit of p: w·p(1−p) is largest in the middle. Relative to ∇p the same weights are
# largest at the ends.
#
# </details>
#
# **4.** A batch-wide std: which prompts gain?
#
# <details><summary>Answer</summary>
#
# None relative to ∇p: one number divides all. (As a random number it couples prompts a little, by O(1/batch).)
#
# </details>
#
# **5.** Your rewards are scaled by 0.001 and ε is 1e-4. Is the std-scaled advantage still invariant?
#
# <details><summary>Answer</summary>
#
# No: a std of about 0.0005 is no longer large beside 0.0001. The advantage of a lone success in four falls from 1.5 to 1.25.
#
# </details>
