# %% [markdown]
# # Exercises 5 · KL
#
# **Beside chapter 07.** Three estimators, two places to put them, one sign.

# %% [markdown] exercise="kl_estimate"
# With `d = log π - log π_ref`: k1 is `d`, k2 is half its square, k3 is `exp(-d) - 1 + d`. Write all three; `kind` says which.
#
# Hint 1: k3's exponential is π_ref/π, so its sign is opposite to k1's.
#
# Hint 2: three `if`s; `torch.expm1(-d) + d` keeps digits near 0.

# %% exercise="kl_estimate" role="answer"
def kl_estimate(logp, ref_logp, kind):
    """logp, ref_logp [N, T], kind "k1", "k2" or "k3" -> [N, T], differentiable."""
    ### BEGIN SOLUTION
    d = logp - ref_logp
    if kind == "k1":
        return d
    if kind == "k2":
        return d**2 / 2
    return torch.expm1(-d) + d
    ### END SOLUTION


# %% [markdown] exercise="kl_in_reward"
# The other place: `r - β · Σ_t k1`, the KL of the whole completion, before any baseline. A reward is not differentiated.
#
# Hint 1: one number per completion, over live tokens. Sum or mean?
#
# Hint 2: `((logp - ref_logp) * mask).sum(1)`, detached.


# %% exercise="kl_in_reward" role="answer"
def kl_in_reward(reward, logp, ref_logp, mask, beta):
    """reward [N], logp, ref_logp [N, T], mask [N, T] bool -> [N], no graph."""
    ### BEGIN SOLUTION
    paid = ((logp - ref_logp) * mask).sum(dim=1).detach()
    return reward - beta * paid
    ### END SOLUTION


# %% [markdown] exercise="loss_with_kl"
# The longer this loss trains, the further the policy is from its reference. At the start nothing was to be seen. Repair it: the token mean of
# `token_loss + β·k3`.


# %% exercise="loss_with_kl" role="given"
def loss_with_kl_faulty(token_loss, logp, ref_logp, mask, beta):
    k3 = torch.expm1(ref_logp - logp) - (ref_logp - logp)
    return ((token_loss - beta * k3) * mask).sum() / mask.sum()


zero, ref, live = torch.zeros(1, 2), torch.full((1, 2), -1.0), torch.ones(1, 2, dtype=torch.bool)
{
    f"log π - log π_ref = {d}": loss_with_kl_faulty(zero, ref + d, ref, live, 1.0).item()
    for d in (0.0, 0.3, 0.9)
}

# %% [markdown] exercise="loss_with_kl" role="hints"
# Hint 1: the loss is minimised. In which direction does it fall in the run above?
#
# Hint 2: one character.


# %% exercise="loss_with_kl" role="answer"
def loss_with_kl(token_loss, logp, ref_logp, mask, beta):
    """token_loss, logp, ref_logp [N, T], mask [N, T] bool -> scalar, differentiable."""
    ### BEGIN SOLUTION
    k3 = torch.expm1(ref_logp - logp) - (ref_logp - logp)
    return ((token_loss + beta * k3) * mask).sum() / mask.sum()
    ### END SOLUTION


# %% [markdown] exercise="k1_no_pull"
# Hint 1: the gradient is an average over actions of the derivative of the estimator.
#
# Hint 2: for k1 that is the average of ∇log π, under π itself.

# %% exercise="k1_no_pull" role="run"
from functools import partial

from grpo_edu.objective import kl
from grpo_edu.theory.kl import in_loss, reverse

p = k1_no_pull_case.given["p"]
logits, reference = torch.tensor([p, 1 - p]).double().log(), torch.tensor([0.5, 0.5]).double().log()
for name in ("k1", "k2", "k3"):
    value, gradient = in_loss(partial(getattr(kl, name), beta=1.0), logits, reference)
    print(f"{name}: value {value:.4f}, gradient {gradient[0].item():.4f}")
print(
    f"reverse KL: value {reverse(logits, reference)[0]:.4f}, gradient {reverse(logits, reference)[1][0].item():.4f}"
)
