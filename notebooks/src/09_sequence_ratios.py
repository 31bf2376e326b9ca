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
# # 09 · Sequence ratios and newer losses
#
# **30 minutes. Before it: notebooks 02, 05 and 06.**
#
# *Question: GSPO, GMPO, LUSPO, CISPO, SAPO, Balanced Aggregation, VL-norm: what does each change in the push on a token, and is
# the length bias of GRPO gone?*
#
# After this notebook you can place each of them on two axes, ratio and aggregation, and say which ε belongs to it. Everything
# here is **exact**.
#
# ## 1. By hand: one answer, four tokens
#
# The policy has raised the first token by half and left the others alone: token ratios 1.5, 1, 1, 1. What is *the* ratio?
#
# | loss | ratio | with ε = 0.2 and A > 0 |
# |---|---|---|
# | PPO, GRPO | one per token: 1.5, 1, 1, 1 | the first token loses its gradient |
# | whole answer (the talk's "left side", TRL's RLOO) | the product: 1.5 | the whole answer loses it |
# | GSPO | the geometric mean: 1.5^(1/4) = **1.107** | all tokens keep it |
# | GMPO | the same mean, of tokens cut at e^0.4 = 1.49 | the first token loses it, the others keep it |
#
# And a drift of one part in a thousand on each of 100 tokens: the product is 1.105, the geometric mean 1.001.

# %%
import warnings
from functools import partial

import pandas as pd
import torch

from grpo_edu import Rollouts, ledger, recipe
from grpo_edu.objective import surrogates as sur

old = -1.0 - torch.tensor([[1.5, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]).double().log()
raised = Rollouts.from_lengths([4, 4], rewards=[1, 0], old_logp=old)
grpo, gspo = recipe("grpo").but("grpo", kl=None), recipe("gspo")

# %% tags=["question-14"]
with warnings.catch_warnings(record=True) as said:
    wide = gspo.but("gspo, ε 0.2", surrogate=partial(sur.gspo, eps_low=0.2, eps_high=0.2))
print("The library warns:", *(warning.message for warning in said))
rows = {
    one.name: ledger(one, raised).query("completion == 0")[["ratio", "gate"]]
    for one in (grpo, wide, recipe("gmpo"))
}
pd.DataFrame(
    {name: [f"{r:.4f} · {g:g}" for r, g in part.values] for name, part in rows.items()}
).T.rename_axis("ratio · gate")

# %% [markdown]
# The card of GSPO puts numbers into the formula. The first answer there has one token whose ratio is 1.5 and one whose ratio is
# 0.7: their geometric mean is above the bound, and the whole answer loses its gradient.

# %%
from grpo_edu.cards import card

card("gspo")

# %% [markdown]
# Step through the same loss yourself, beside GRPO: one answer of four tokens whose ratios differ. Stop at "clip or gate": GRPO
# cuts one token, GSPO cuts the whole answer.

# %%
from grpo_edu.widgets.stepper import Stepper

Stepper(["grpo", "gspo"])

# %% [markdown]
# Under CISPO every token keeps its own, capped ratio:

# %%
card("cispo")

# %% [markdown]
# Now move the probability of any token yourself: click a token and drag its bar, or use the arrow keys. One answer, five losses,
# five different strips; GSPO's is even.

# %%
from grpo_edu.widgets.aggregation import AggregationExplorer

AggregationExplorer(preset="a ratio for every token")

# %% [markdown]
# And take the step: a policy over five tokens before and after one update of each loss.

# %%
from grpo_edu.widgets.step import StepExplorer

StepExplorer(ratio=1.4)

# %% [markdown]
# ## 2. On policy
#
# **Predict:** the batch is fresh, all ratios are 1. Does GSPO, "which prevents length bias", push a token of a long answer as
# hard as one of a short?
#
# <details><summary>Answer</summary>
#
# No. s = exp(mean log ρ): its derivative by one token's log-probability is s/|o|. The 1/|o| has moved from the aggregation into
# the ratio; on policy GSPO and GMPO *are* GRPO. LUSPO multiplies |o| back and is the sequence sum.
#
# </details>

# %%
from grpo_edu import token_weights

lengths = Rollouts.from_lengths([3, 12, 6, 24], [1, 0, 0, 1], max_new_tokens=24)
names = ("gspo", "gmpo", "luspo", "cispo", "sapo")
pushes = {"grpo": grpo} | {name: recipe(name) for name in names}
pd.DataFrame(
    {name: token_weights(one, lengths)[:, 0].tolist() for name, one in pushes.items()},
    ["|o| = 3", "12", "6", "24"],
).round(4).T

# %%
from grpo_edu.figures import FIGURES

FIGURES["sequence_ratio_equivalence"].show()

# %% [markdown]
# CISPO stands on a token mean (all tokens of one sign alike), SAPO on the sequence mean. So the first question to a new loss is
# not "which ratio?" but "which aggregation comes with it?"
#
# ## 3. Which ε?
#
# A geometric mean stays very near 1. A drift of 0.001 per token over 100 tokens, advantage +1. **Predict:** clipped by GSPO
# with its own ε of 3e-4 and 4e-4? With the usual 0.2?
#
# <details><summary>Answer</summary>
#
# With its own: yes, 1.0010 > 1.0004. With 0.2: never; "GSPO with ε = 0.2" is GSPO without a clip. Whoever leaves out the 1/|o|
# in the exponent gets 1.105, and an explosion for longer answers.
#
# </details>

# %%
drift = torch.full((1, 100), 0.001).double()
mask = torch.ones(1, 100).bool()
now, before = torch.full((1, 100), -1.0).double(), -1.0 - drift
own, usual = (
    sur.gspo_factors(now, before, mask, torch.ones(1, 100), eps_low=low, eps_high=high)
    for low, high in ((3e-4, 4e-4), (0.2, 0.2))
)
print(
    "geometric mean:",
    round(own.ratio[0, 0].item(), 7),
    " product:",
    round(drift.sum().exp().item(), 5),
)
print("gate with 3e-4, 4e-4:", int(own.gate[0, 0]), " gate with 0.2:", int(usual.gate[0, 0]))

# %% [markdown]
# (A *sampler-mismatch* weight of a whole answer, as in truncated importance sampling, is a product and has to be: it is a
# likelihood ratio. Two objects, two formulas.)
#
# ## 4. Gates
#
# What is left of a token's push, ratio · gate, for A = +1 (first of each pair of rows) and A = −1? **Predict** the empty cells
# of PPO, and who has none.
#
# <details><summary>Answer</summary>
#
# PPO: two of the six at ratios 0.5, 1 and 1.5 (and A > 0 at 6), and no bound at (A < 0, ratio 6). A dual clip empties that one too. CISPO caps the ratio and empties none;
# SAPO fades out softly on both sides.
#
# </details>

# %%
from grpo_edu.objective.catalog import CLIP
from grpo_edu.theory import clip

places = (0.5, 1.0, 1.5, 6.0)
gates = {"ppo": CLIP, "dual clip, 3": partial(sur.dual_clip, eps_low=0.2, eps_high=0.2, cap=3.0)}
gates |= {"cispo, cap 5": recipe("cispo").surrogate, "sapo": recipe("sapo").surrogate}
table = {
    (name, sign): row
    for name, choice in gates.items()
    for sign, row in zip("+-", clip.cells(choice, places).tolist(), strict=True)
}
pd.DataFrame.from_dict(table, orient="index", columns=[f"ratio {x:g}" for x in places]).round(3)

# %%
FIGURES["clip_objective"].show()

# %% [markdown]
# Two traps of CISPO. Its bounds are *absolute* in TRL (`epsilon_high=5.0`); leave the default and the cap is 0.2, which scales
# every on-policy token by 0.2. And the ratio is **detached**; without that its gradient has a term A·ρ·log π of either sign and
# any size.
#
# ## 5. Balanced Aggregation
#
# Under a token mean the side with the longer answers has more mass: two right answers of 2 tokens, two wrong ones of 8. How
# large is the positive part of the step?

# %%
from grpo_edu.weights import summary

uneven = Rollouts.from_lengths([2, 2, 8, 8], [1, 1, 0, 0], max_new_tokens=8)
choices = {
    "sequence mean": grpo,
    "token mean": recipe("dapo"),
    "balanced": recipe("balanced"),
    "vl_norm": recipe("vl_norm"),
}
tables = {name: summary(one, uneven) for name, one in choices.items()}
columns = {
    name: [*t["push_per_token"], t["share"].clip(lower=0).sum()] for name, t in tables.items()
}
pd.DataFrame(columns, ["right, 2", "right, 2", "wrong, 8", "wrong, 8", "positive share"]).round(4).T

# %% [markdown]
# 20 % under the token mean, although half of the answers were right: *sign-length coupling*. Balanced takes a token mean inside
# each sign and puts the two together by how many answers each has: 50 %. (Here it coincides with the sequence mean; it does not
# when lengths differ inside a sign.) VL-norm weighs answers by |o|^−0.75: in between.
#
# ## 6. Drift and noise
#
# Why divide by a length at all, when a constant has no bias? Every group of 3 answers (right or wrong, 1 to 5 tokens, p = 0.4,
# stop chance 0.3), through the real loss. **Predict:** which is least noisy?
#
# <details><summary>Answer</summary>
#
# The ones that divide by the length. A long answer has more random tokens in its gradient, so weighing it down lowers the
# variance: bias against noise. That is a real argument for 1/|o|; that DeepSeek kept it "for stability" is a guess of the talk,
# for which it gives no evidence (V3.2 still writes 1/|o|).
#
# </details>

# %% tags=["row-31"]
from grpo_edu.objective import aggregation as agg
from grpo_edu.theory import enumeration

choices = {"sequence mean": agg.sequence_mean}
choices |= {"VL-norm, α = 1": partial(agg.length_power, alpha=1.0), "balanced": agg.balanced}
choices |= {"token mean (prompt)": agg.prompt_token_mean, "constant": agg.constant}
policy = {"p": 0.4, "stop_right": 0.3, "stop_wrong": 0.3, "size": 3, "cap": 5}
losses = [recipe("dr_grpo").but(name, aggregation=choice) for name, choice in choices.items()]
drifts = torch.stack([enumeration.expected_gradient(one, **policy) for one in losses])
moves = ["be right", "stop when right", "stop when wrong"]
table = pd.DataFrame((drifts.round(decimals=5) + 0.0).tolist(), list(choices), moves)
noise = [enumeration.relative_variance(one, **policy) for one in losses]
table.assign(relative_variance=noise).round(4)

# %% [markdown]
# The two middle columns should be 0: stopping earned no reward. Only the constant's are. VL-norm is called unbiased by its
# paper; that holds where score and advantage do not depend on the length, and here they do.
#
# ## 7. The impossibility frontier
#
# Weigh a token by L^(α−1). α = 0 gives every *answer* the same say, α = 1 every *token* the same push. Nothing in between, and
# no other function of the length, gives both (arXiv 2607.23364).

# %%
from grpo_edu.theory import length

print(
    "share of the longer, α = 1:",
    {
        f"{a}:{b}": round(length.longer_share(b / a), 4)
        for a, b in ((4965, 8206), (1, 10), (10, 10000))
    },
)
FIGURES["impossibility_frontier"].show()

# %% [markdown]
# ## 8. All of them, once more
#
# The one question of this course, to ten recipes: how hard is the last token
# of a four times longer answer pushed, relative to the short one's, and what share of the step do the two answers get?

# %% tags=["row-41"]
pair = Rollouts.from_lengths([2, 8], [1, 1], given_advantage=[1.0, 1.0], max_new_tokens=8)
names = ("grpo", "gspo", "gmpo", "sapo", "luspo", "cispo", "dapo", "dr_grpo", "balanced", "vl_norm")
rows = {}
for name in names:
    aggregation, surrogate = recipe(name).aggregation, recipe(name).surrogate
    push = token_weights(recipe("ppo").but(aggregation=aggregation, surrogate=surrogate), pair)
    rows[name] = [(push[1, -1] / push[0, 0]).item(), (push[1].sum() / push.sum()).item()]
columns = ["token of the 4 times longer", "its share of the step"]
pd.DataFrame.from_dict(rows, orient="index", columns=columns).round(3)

# %% [markdown]
# Two columns, and no row with 1 and 0.5. In the talk's year the choice of aggregation went from a line nobody read to a setting
# that papers compare. What does it do to a *score*? ScaleRL finds the prompt mean best by its asymptote and the type of
# advantage normalisation nearly irrelevant; the Balanced Aggregation paper finds token or sequence mean better depending on how
# lengths and signs are mixed. Report length beside accuracy.
#
# ## 9. Turn it yourself
#
# Raise a ratio and watch who cuts: a token (CISPO: nobody) or the whole answer (GSPO). The static twin:

# %%
from grpo_edu.plots.heatmap import weight_map

far = Rollouts.from_lengths([2, 8, 4, 16], [1, 1, 0, 0], ratio=[1.1, 1.0, 0.9, 1.1])
title = "Ratios of 1.1 and 0.9: inside GRPO's clip, far outside GSPO's, and CISPO has none"
weight_map([grpo, gspo, recipe("cispo")], far, relative=True, title=title)

# %%
from grpo_edu.widgets.aggregation import AggregationExplorer

AggregationExplorer(
    recipes=["grpo", "gspo", "cispo"],
    lengths=[2, 8, 4, 16],
    rewards=[1, 1, 0, 0],
    ratio=[1.1, 1.0, 0.9, 1.1],
    relative=True,
)

# %% [markdown]
# ## 10. What breaks
#
# A sequence ratio under a *token* mean. Every token of an answer holds the same value, so the answer counts once per token: its
# weight is multiplied by its length, on top of the 1/|o| inside. verl's `gspo` does so by default, since `loss_agg_mode` is
# another key.

# %%
with warnings.catch_warnings(record=True) as said:
    mismatched = gspo.but("gspo under a token mean", aggregation=agg.step_token_mean)
print("The library warns:", *(warning.message for warning in said))
{
    one.name: token_weights(one, lengths)[:, 0].round(decimals=4).tolist()
    for one in (gspo, mismatched)
}

# %% [markdown]
# The 1/|o| is gone, by accident: this is the token mean of section 2's CISPO, with GSPO's gate.
#
# ## 11. In the frameworks
#
# | loss | TRL 1.16 | verl 0.9.1 | ε that belongs to it |
# |---|---|---|---|
# | GSPO | `importance_sampling_level="sequence"`, `loss_type="grpo"` | `loss_mode=gspo`, `loss_agg_mode=seq-mean-token-mean` | 3e-4, 4e-4 |
# | LUSPO | `loss_type="luspo"`, `importance_sampling_level="sequence"` | not available | 2e-3, 2.5e-3 |
# | GMPO | `GMPOTrainer`, `epsilon=0.4` | `loss_mode=geo_mean`, `clip_ratio_low=0.4`, `clip_ratio_high=0.4` (default 0.2) | 0.4 in log space |
# | CISPO | `loss_type="cispo"`, `epsilon_high=5.0` (absolute) | `loss_mode=cispo`, `clip_ratio_low=1.0`, `clip_ratio_high=4.0` (offsets) | cap 5 |
# | SAPO | `loss_type="sapo"` | `loss_mode=sapo`, `tau_pos`, `tau_neg` | temperatures 1.0, 1.05 |
# | Balanced, VL-norm | not available | not available | as DAPO; α |
#
# OpenRLHF 0.11 has GSPO (`--actor.policy_loss_type gspo`) of these.
#
# ## Five questions
#
# **1.** "GSPO removes the length bias." On policy?
#
# <details><summary>Answer</summary>
#
# No: its gradient on policy is GRPO's, 1/|o| included. What it equalises is the scale at which the clip acts.
#
# </details>
#
# **2.** Which of GSPO, GMPO, LUSPO is the sequence sum on policy?
#
# <details><summary>Answer</summary>
#
# LUSPO, GSPO times |o|.
#
# </details>
#
# **3.** TRL, `loss_type="cispo"`, everything else default. What is the gradient on policy?
#
# <details><summary>Answer</summary>
#
# 0.2 times what you meant: the cap is the absolute number ε = 0.2, and every ratio is above it.
#
# </details>
#
# **4.** Right answers are short. Does a token mean give the positive side more or less than half of the step?
#
# <details><summary>Answer</summary>
#
# Less, in proportion to lengths: section 5, 20 %. Balanced Aggregation restores the half.
#
# </details>
#
# **5.** Is there a weighting by length that is fair to answers and free of drift?
#
# <details><summary>Answer</summary>
#
# No. α = 0 is the first, α = 1 the second, and no function of the length is both. Choose, and report the length.
#
# </details>
