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
# # 11 · Which GRPO is this?
#
# **25 minutes. Before it: notebooks 00, 04 and 05.**
#
# *Question: a config says `adv_estimator=grpo`, a paper says "we train with GRPO". Which loss ran?*
#
# After this notebook you can read the four lines that make a loss (advantage, aggregation, clip, KL) off a config or off a function,
# and say which bias stays when a switch is called "Dr. GRPO".
#
# The numbers are **exact** for the losses that the framework tables state. Where the tables come from is said in each row: tested
# against the installed code, or read in the source.

# %% [markdown]
# ## 1. By hand: two examples are enough
#
# **Advantage.** Rewards 1 0 0 0: mean 1/4, std 1/2 with ddof 1. The one success gets
#
# | rule | advantage of the success |
# |---|---|
# | (r − mean) / std, ddof 1 | 0.75 / 0.5 = **1.5** |
# | the same with ε = 1e-4 added | 0.75 / 0.5001 = **1.4997** |
# | the same with ddof 0 (std 0.433) | **1.732** |
# | r − mean | **0.75** |
# | mean and std of the *others*; the others are all 0, so no division | **1.0** |
#
# **Aggregation.** Two completions of 10 and 100 tokens, advantage +1 and −1. One token of each is pushed by
#
# | rule | 10 tokens | 100 tokens |
# |---|---|---|
# | mean of each completion, then over the two | 1/20 | 1/200 |
# | mean over all 110 tokens | 1/110 | 1/110 |
# | constant C = 100 | 1/200 | 1/200 |
#
# Every framework's "GRPO" is one line of the first table with one line of the second.

# %% [markdown]
# ## 2. The same in code
#
# The paper's recipe, Dr. GRPO and the token mean that frameworks run, on one group with rewards 1 0 0 0 and lengths 10 and 100. The
# first number of `grpo` must be 1.5 · 1/4 · 1/10 = 0.0375, of `dr_grpo` 0.75 · 1/4 · 1/100 = 0.001875, of `dapo(step)` 1.5 / 220 = 0.0068.

# %%
from grpo_edu import Rollouts, recipe, token_weights
from grpo_edu.plots.heatmap import weight_map

rollouts = Rollouts.from_lengths([10, 100, 10, 100], rewards=[1, 0, 0, 0], max_new_tokens=100)
names = ["grpo", "dr_grpo", "dapo(step)"]
losses = [recipe(name).but(name, kl=None, filters=()) for name in names]
print(
    {
        loss.name: [round(w, 6) for w in token_weights(loss, rollouts)[:, 0].tolist()]
        for loss in losses
    }
)
weight_map(
    losses, rollouts, relative=True, title="One group, three losses that have been called GRPO"
)

# %% [markdown]
# Move a length and flip a reward: which of the three answers to a length?

# %%
from grpo_edu.widgets.aggregation import AggregationExplorer

AggregationExplorer(recipes=names, lengths=[10, 40, 10, 40], rewards=[1, 0, 0, 0])

# %% [markdown]
# ## 3. Predict
#
# An empty `GRPOConfig()` of TRL 1.16. **Before you unfold the output of the second cell below:** what is the push at 10 and at
# 100 tokens? Is there a KL term? May the clip act? And what would an older release have run?

# %% tags=["ask"]
from grpo_edu import token_weights
from grpo_edu.frameworks import explain
from grpo_edu.widgets.predict import Predict

two = Rollouts.from_lengths([10, 100], rewards=[1, 0])
short, long = token_weights(explain("GRPOConfig()").recipe, two)[:, 0].abs().tolist()
Predict(
    "One answer has 10 tokens, one has 100. How many times as hard is a token of the short one pushed?",
    answer=short / long,
)

# %% tags=["predict"]

print(explain("GRPOConfig()"))

# %% [markdown]
# <details><summary>The answers in words</summary>
#
# A token mean, no KL, and a clip that never acts, since there is one update per rollout. So it is not the paper's GRPO: the default
# `loss_type` is `"dapo"`. No version was given, so `explain` says which one it assumed and what another would change.
#
# </details>
#
# ## 4. The table
#
# What does the name run, framework by framework, version by version where it changed? Everything here is drawn from the files in
# `grpo_edu/frameworks/data/`, which a person can read and correct. *Parity-tested* holds for TRL 1.16 and verl 0.9.1 only; earlier
# releases are from reading their source. OpenRLHF's rows carry the KL flags of its GRPO scripts; `group_norm` alone takes 0.01·k1
# from the reward.

# %%
from grpo_edu.frameworks import effective_table

effective_table("grpo").round(4)

# %%
from grpo_edu.figures import FIGURES

FIGURES["which_grpo"].show()

# %% [markdown]
# Two points on the right: the mean of each completion, a length bias of ten to one. One point: a token mean. NeMo-RL divides by the
# std of the *others*, open-instruct does not divide. TRL alone changed the loss behind the name three times.
#
# The name "Dr. GRPO" fares no better:

# %%
effective_table("dr_grpo")[
    ["framework", "advantage of the success", "push, 10 tokens", "push, 100 tokens"]
].round(6)

# %% [markdown]
# In NeMo-RL, OpenRLHF, slime and rlhf-book it changes the advantage only: the aggregation stays what it was. And where there is a
# constant, it is another one in each (verl's, from 0.7 on, only if `loss_scale_factor` is set: next section).
#
# ## 5. A recipe from the documentation
#
# TRL's page of papers sets `loss_type="dr_grpo"` and leaves `scale_rewards` alone. **Predict:** which of the two biases is left? Does one
# key more change the label?

# %%
documented = explain('GRPOConfig(loss_type="dr_grpo", beta=0.0)', version="1.16")
print(documented.label, *documented.biases, *documented.traps, sep="\n\n")
print(
    "\none key more:",
    explain(
        'GRPOConfig(loss_type="dr_grpo", scale_rewards="none", beta=0.0)', version="1.16"
    ).label,
)

# %% [markdown]
# The difficulty bias is left. `scale_rewards` is a key of its own, and its default still divides.
#
# ## 6. A shell script
#
# verl is set by overrides in a script. Nothing is executed: variables, defaults and arithmetic are read.

# %%
script = """# Dr. GRPO on 4 GPUs
len=${MAX_LEN:-$((8 * 128))}
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo algorithm.norm_adv_by_std_in_grpo=False \\
    data.train_batch_size=128 data.max_response_length=$len actor_rollout_ref.actor.ppo_mini_batch_size=64 \\
    actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm actor_rollout_ref.actor.use_kl_loss=False \\
    actor_rollout_ref.actor.kl_loss_coef=0.001 algorithm.kl_ctrl.kl_coef=0.001 actor_rollout_ref.rollout.n=5
"""
verdict = explain(script, version="0.9.1")
print(*verdict.lines(), *verdict.traps, sep="\n")

# %% [markdown]
# Two KL coefficients without effect, and a "constant" that is the longest completion of each micro-batch. **Predict:** the same file
# was written for a fork of an early verl. Is KL off there?

# %%
print(*explain(script, version="tinyzero@de61e6aa").lines(), sep="\n")

# %% [markdown]
# It is not: in that fork `use_kl_loss=False` means KL *in the reward*. And before 0.7.1 the loss was not divided by the number of
# completions. A config without the version of the program is half a statement.
#
# The picture of a verdict: the paper's recipe of that name beside what runs. Here the two agree, and that is the trap: the longest
# completion of this example happens to be the limit. In a micro-batch whose longest has 50 tokens every push would be twice as large.

# %%
recipes, example = verdict.example()
weight_map(recipes, example, relative=True, title=verdict.headline())

# %% [markdown]
# ## 7. And without a config? Ask the function
#
# Here is a loss from somebody's repository. Its name is a claim. `identify` looks at nothing but its gradient.

# %%
from grpo_edu.frameworks import identify


def dr_grpo_loss(logp, old_logp, advantages, mask):
    ratio = (logp - old_logp).exp()
    surrogate = (ratio * advantages).minimum(ratio.clamp(0.8, 1.28) * advantages)
    return -((surrogate * mask).sum(1) / mask.sum(1)).mean()


print(identify(dr_grpo_loss))

# %% [markdown]
# The mean of each completion, 1/|o|: the length bias is there, whatever the name says. Whether the std divides cannot be seen, since the
# advantages come from outside, and `identify` says so.
#
# **Predict:** what does it say about this one?


# %%
def grpo_loss(logp, old_logp, advantages, mask):
    ratio = (logp - old_logp).exp()
    return -(ratio * advantages * mask).mean()


print(identify(grpo_loss))

# %% [markdown]
# `.mean()` also counts the padding: the width of the batch is in the weight. That is named first; that nothing is clipped either shows
# once it is mended.
#
# ## 8. What breaks
#
# A value that is computed, a misspelt key, a cap that is meant as an offset: each is named with its line, nothing is guessed in silence.
# What no axis expresses (the last line) is said too, and then no number is shown for it.

# %%
broken = """GRPOConfig(
    loss_type="cispo",
    beta=schedule(0),
    epsilon=0.2,
    num_generation=8,
)"""
found = explain(broken, version="1.16")
print(*found.unread, *found.traps, sep="\n")
print(
    *explain(
        "python -m verl.trainer.main_ppo actor_rollout_ref.actor.policy_loss.loss_mode=clip_cov\n"
    ).left_out
)

# %% [markdown]
# ## 9. The way back: in the frameworks
#
# Which settings run DAPO as the paper has it? `export` reads the same tables backwards, and says what it cannot do and what differs.
# (The recipe is the loss; DAPO's overlong penalty is a reward, set on its own: notebook 08.)

# %%
from grpo_edu.frameworks import export

print(export(recipe("dapo"), "verl"))

# %% [markdown]
# For TRL it writes a complete training script (`grpo-edu export dr_grpo --to trl > train.py`) that `accelerate launch` starts on many GPUs.
#
# | you have | in Python | at the command line |
# |---|---|---|
# | a config | `explain(path, framework, version)` | `grpo-edu explain run.sh --version 0.9.1 --out verdict.html` |
# | a function | `identify(loss)` | `grpo-edu identify my_losses:grpo_loss` |
# | a recipe | `export(recipe("dr_grpo"), "trl")` | `grpo-edu export dr_grpo --to trl` |
#
# ## Five questions
#
# 1. `algorithm.adv_estimator=grpo` in verl 0.9.1 and nothing else: what is the push at 10 and at 100 tokens?
# 2. You move from TRL 0.15 to 0.19 with an empty config. Which two lines change?
# 3. `loss_type="cispo"` in TRL with `epsilon=0.2` and no `epsilon_high`: what happens to a token whose ratio is exactly 1?
# 4. A script has `clip_ratio=0.1` for verl. Why is the band still [0.8, 1.2]?
# 5. `identify` calls a loss "a token mean over the optimiser step" where the author meant a mean over each micro-batch. Who is right?
#
# <details><summary>Answers</summary>
#
# 1. 1/110 for both: the key sets the advantage only, and the default aggregation is the token mean.
# 2. The aggregation (from the mean of each completion to a token mean of each micro-batch, in 0.16) and the KL (0.04 to none, in 0.19).
# 3. Its push is multiplied by 0.2: `epsilon` becomes an absolute cap of the ratio.
# 4. `clip_ratio_low` and `clip_ratio_high` have defaults of their own, 0.2, which win.
# 5. Both: a function sees one batch. What happens between micro-batches is decided by who adds them; `identify` prints the factor of two
#    halves added, which is 2 for a mean.
#
# </details>
