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
# # 01 · The policy gradient, the baseline, Q − V
#
# **25 minutes. Before it: notebook 00, and what a derivative is.**
#
# *Question: a reward comes once, at the end of an answer. What does it say about each token, and why may we subtract a baseline
# from it?*
#
# After this notebook you can say why a baseline changes the noise and not the direction, what an advantage is relative to, and
# which of the two divisions of GRPO (by the std, by the length) follow from the derivation. Neither does.
#
# Everything here is **exact**: every possible answer is written out with its probability.
#
# ## 1. The smallest example, by hand
#
# One prompt, one token, two possible answers. The right one has probability p = ¼ and reward 1, the wrong one reward 0. We want
# the expected reward J = p to rise, so we want its derivative by the logit z of the right answer: with p = σ(z) that is p(1 −
# p) = **3/16**.
#
# But we cannot differentiate a coin toss; we can only draw answers. The *score* ∇log π helps: it is 1 − p = ¾ when the right
# answer was drawn and −p = −¼ when the wrong one was. The policy gradient is the mean of reward × score:
#
# ¼ · (1 · ¾) + ¾ · (0 · −¼) = **3/16**. The same number, from draws alone.
#
# Now subtract a baseline b from the reward: ¼ · (1 − b) · ¾ + ¾ · (0 − b) · (−¼) = 3/16 − b · 3/16 + b · 3/16 = **3/16**,
# whatever b is. The score has mean zero, so a constant times it has mean zero.
#
# ## 2. The same in code
#
# `theory.mdp` writes such a policy out: `error` is how far the mean of an estimate is from the exact derivative (found without
# any log-probability), `variance` how noisy one draw is (over both logits). Does the baseline leave the mean alone?

# %%
import math

import torch

from grpo_edu.theory import mdp

bandit, prize = (
    [torch.tensor([[0.0, math.log(3)]], dtype=torch.float64)],
    torch.tensor([1.0, 0.0]).double(),
)
print(mdp.exact_gradient(bandit, prize).tolist())
mdp.comparison(bandit, mdp.weightings(bandit, prize, 0.75), prize).round(6)

# %% [markdown]
# It does. The noise is another matter: 0.211 without, 0.094 with the mean reward V = ¼ as the baseline, and exactly **0** with
# ¾. So the mean reward is a good baseline, not the best one. (The best is E[r·score²] / E[score²]; with two answers that is 1 −
# p.)
#
# ## 3. Three tokens
#
# Now an answer has three tokens, each an *a* or a *b*, and it is right when it has exactly two *b*'s. Every prefix is a state.
# The chance of an answer is the **product** of its token probabilities; the **log**-probabilities add. (Heard in a talk: "sum
# the probabilities of all tokens". Three tokens of probability ½ would have "probability" 1.5.)

# %% tags=["row-13", "row-14"]
policy = mdp.uniform(2, 3)
logp = mdp.log_probs(policy)
right = torch.tensor([float(word.count("b") == 2) for word in mdp.words("ab", 3)]).double()
print("log-probabilities of 'abb':", logp[3].round(decimals=4).tolist())
print(f"their sum: {logp[3].sum().item():.4f}, exp of that sum: {logp[3].sum().exp().item():.4f}")
print(f"product of its probabilities: {logp[3].exp().prod().item():.4f}")
print("sum of its probabilities:", logp[3].exp().sum().item())

# %% [markdown]
# On a real answer, of SmolLM2, the same sum is what "the log-probability of the response" means:

# %%
from grpo_edu import read_completions

real = read_completions()
one = real.logp[49][real.mask[49]]
print(
    len(one),
    "tokens, log π(o|q) =",
    round(one.sum().item(), 4),
    "so π(o|q) =",
    round(one.sum().exp().item(), 4),
)

# %% [markdown]
# ## 4. V, Q, A
#
# **V(s)** is the mean reward that this policy gets from prefix s on. **Q(s, a)** is the same after one more token; in a
# language model the next state is certain, so Q(s, a) = V(sa). The **advantage** A = Q − V says how much better the token is
# than *the policy's own average in that state*. It is not relative to "the environment" and not relative to other prompts.
#
# **Predict:** the even policy. After *b*, how much better is *b* than *a*? After *aa*, how much worse is *a*?
#
# <details><summary>Answer</summary>
#
# Both 0. After *b* half of the continuations are right either way. After *aa* nothing can be right any more: V = 0, and no
# token there deserves blame or praise. The mistake was made before.
#
# </details>

# %% tags=["row-3"]
mdp.state_table(policy, right, "ab")

# %%
from grpo_edu.plots.tree import token_tree

token_tree(
    policy,
    right,
    "ab",
    title="Only tokens that decide something have an advantage: after aa it is too late",
)

# %% [markdown]
# ## 5. Five estimates of one gradient
#
# In place of the reward, which factor Ψ may stand before ∇log π of a token? All five below have the same mean. **Predict:**
# order them by noise, and where does r − 5 land?
#
# <details><summary>Answer</summary>
#
# Q − V is quietest (0.08), then r − V(s_t), r − V(start), r alone (0.52). r − 5 has sixty times the noise of r: a bad baseline
# is *worse* than none, and still unbiased.
#
# </details>

# %%
mdp.comparison(policy, mdp.weightings(policy, right, 5.0), right).round(6)

# %% [markdown]
# That is the whole case for advantages: not another direction, less noise. PPO learns V with a second network to get near the
# last row. GRPO has no such network and stands at the third: one number per answer, V(start) estimated by the mean of the
# group.
#
# ## 6. The group as a baseline
#
# With G answers to one prompt the others can estimate V(start). Leave-one-out (RLOO) uses the others only, Dr. GRPO the mean of
# all, its own reward included. Every group of 3, through each recipe's own loss: what part of the exact gradient is the
# expected update?
#
# **Predict** the factor of Dr. GRPO, which divides by the constant C = 3 tokens.
#
# <details><summary>Answer</summary>
#
# (G − 1)/G · 1/C = ⅔ · ⅓ = 0.2222: its own reward stands in its own baseline, and the constant scales. The *direction* is
# exact.
#
# </details>

# %% tags=["row-27"]
from grpo_edu import recipe

mdp.group_comparison(
    [recipe("reinforce"), recipe("rloo"), recipe("dr_grpo")], policy, right, 3
).round(4)

# %% [markdown]
# ## 7. What the derivation does not contain
#
# Nothing above divided by a std or by a length. Appendix A of Dr. GRPO follows the same steps and finds neither 1/std nor
# 1/|o|. (The talk has it the wrong way round: "they assert that the dividing term shows up intrinsically".)
#
# Does it matter? For right/wrong rewards and one prompt the std only scales. With several reward levels, say 0, 1, 2 and 3, it
# bends:

# %%
levels = torch.tensor([0, 0, 0, 1, 0, 1, 3, 2]).double()
recipes = [recipe("rloo"), recipe("dr_grpo"), recipe("grpo").but("grpo", kl=None), recipe("maxrl")]
mdp.group_comparison(recipes, policy, levels, 3).round(4)

# %% [markdown]
# All answers here have three tokens, so 1/|o| is a constant too. What it does when lengths differ is notebook 06; what the std
# does between prompts is notebook 04.
#
# ## 8. The picture
#
# Four answers of three tokens, one right. REINFORCE pushes the right one only; with a baseline the wrong ones go down as well,
# and the expected update is the same.

# %%
from grpo_edu import Rollouts
from grpo_edu.plots.heatmap import weight_map

four = Rollouts.from_lengths([3] * 4, rewards=[1, 0, 0, 0], max_new_tokens=3)
recipes = [recipe("reinforce"), recipe("rloo"), recipe("dr_grpo")]
weight_map(
    recipes, four, title="REINFORCE praises the right answer; a baseline blames the wrong ones too"
)

# %% [markdown]
# ## 9. Turn it yourself
#
# Give all answers reward 1: what do the three do? And with rewards 5, 4, 4, 4? (The buttons know 0 and 1: write
# `rewards=[5, 4, 4, 4]` into the cell and run it again.) Static twin: the picture above.

# %%
from grpo_edu.widgets.aggregation import AggregationExplorer

AggregationExplorer(
    recipes=["reinforce", "rloo", "dr_grpo"], lengths=[3] * 4, rewards=[1, 0, 0, 0], length_limit=3
)

# %% [markdown]
# ## 10. What breaks
#
# **A baseline that looks at the token.** It may depend on the state, not on the action. Subtract Q instead of V and nothing is
# left of the gradient (an error of 0.0625 is the largest entry of the exact gradient itself: the mean of this estimate is 0):

# %%
psi = mdp.weightings(policy, right)
mdp.comparison(policy, {"r - Q (wrong)": psi["r - V(s_t)"] - psi["Q - V"]}, right).round(6)

# %% [markdown]
# **One number for all tokens.** The answer *aab* is wrong because of its first two tokens. GRPO's advantage pushes down the
# innocent *b* at the end just as hard; Q − V leaves it alone. On average over many answers it comes out right, at the price of
# the noise of section 5.

# %%
row = mdp.words("ab", 3).index("aab")
{name: psi[name][row].tolist() for name in ("r - V(start)", "Q - V")}

# %% [markdown]
# ## 11. In the frameworks
#
# | what | TRL 1.16 | verl 0.9.1 | OpenRLHF 0.11 |
# |---|---|---|---|
# | leave-one-out | `RLOOTrainer` | `algorithm.adv_estimator=rloo` | `--algo.advantage.estimator rloo` |
# | group mean, no std | `scale_rewards="none"` | `algorithm.norm_adv_by_std_in_grpo=False` | `--algo.advantage.estimator dr_grpo` |
# | group mean and std | `scale_rewards="group"` (default) | `algorithm.adv_estimator=grpo` | `--algo.advantage.estimator group_norm` |
# | value model, GAE | not available | `algorithm.adv_estimator=gae` (default) | `--algo.advantage.estimator gae` (default) |
# | no baseline at all | not available | not available | not available (`reinforce` whitens over the batch) |
#
# These keys choose the advantage only. The aggregation is another key (notebook 05), and "grpo" here does not switch it.
#
# ## Five questions
#
# **1.** Adding 100 to every reward changes neither RLOO nor Dr. GRPO. And REINFORCE?
#
# <details><summary>Answer</summary>
#
# Its mean stays (the score has mean zero), its noise explodes: section 5 with r − 5.
#
# </details>
#
# **2.** Why may a baseline depend on the prompt and on the prefix, but not on the token drawn?
#
# <details><summary>Answer</summary>
#
# E[b(s)·∇log π] = b(s)·∇Σπ = 0 needs b outside the sum over tokens. With b = Q everything cancels: section 10.
#
# </details>
#
# **3.** What is an advantage relative to?
#
# <details><summary>Answer</summary>
#
# To V(s), the policy's own mean reward from that prefix on. The same token's advantage changes when the policy does.
#
# </details>
#
# **4.** Dr. GRPO's expected update is (G − 1)/G of the gradient, RLOO's is all of it. Which is better?
#
# <details><summary>Answer</summary>
#
# Neither: a common factor is a learning rate (and AdamW removes even that). They are the same estimator up to G/(G − 1).
#
# </details>
#
# **5.** Where in the derivation do 1/std and 1/|o| appear?
#
# <details><summary>Answer</summary>
#
# Nowhere. Each may still be useful (smaller noise, a step size per prompt), but as a choice with a bias of its own: notebooks
# 04 and 06.
#
# </details>
