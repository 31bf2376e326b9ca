# %% [markdown]
# # Exercises 4 · Ratio and clip
#
# **Beside chapter 02.** Which ratio, which side, and which tokens lose their gradient. `advantage` is `[N]`, one per completion.

# %% [markdown] exercise="ppo_clip"
# Write PPO's objective of every token, `min(ρ·A, clip(ρ, 1 - eps_low, 1 + eps_high)·A)` with `ρ = π/π_old`. It is to be maximised.
#
# Hint 1: `advantage[:, None]` lays one number per completion on its tokens.
#
# Hint 2: `torch.where(free <= held, free, held)` with `free = ratio * a` and `held = ratio.clamp(1 - eps_low, 1 + eps_high) * a`. `torch.minimum` has the same values, but on a bound its gradient depends on the release of torch.

# %% exercise="ppo_clip" role="answer"
def ppo_clip(logp, old_logp, advantage, eps_low, eps_high):
    """logp, old_logp [N, T], advantage [N] -> [N, T]."""
    ### BEGIN SOLUTION
    ratio = (logp - old_logp).exp()
    a = advantage[:, None]
    free = ratio * a
    held = ratio.clamp(1 - eps_low, 1 + eps_high) * a
    return torch.where(free <= held, free, held)
    ### END SOLUTION


# %% [markdown] exercise="cispo"
# CISPO caps the ratio, takes it out of the graph and lets it scale the policy gradient: `sg[clip(ρ, low, high)] · A · log π`. `low` and `high`
# are bounds of the ratio itself.
#
# Hint 1: what is differentiated in the end, the ratio or log π?
#
# Hint 2: `(logp - old_logp).exp().clamp(low, high).detach()` times two more factors.


# %% exercise="cispo" role="answer"
def cispo(logp, old_logp, advantage, low, high):
    """logp, old_logp [N, T], advantage [N] -> [N, T]."""
    ### BEGIN SOLUTION
    weight = (logp - old_logp).exp().clamp(low, high).detach()
    return weight * advantage[:, None] * logp
    ### END SOLUTION


# %% [markdown] exercise="sequence_ratio"
# GSPO has one ratio per completion: the geometric mean of its token ratios, over live tokens. A completion without a live token has ratio 1.
#
# Hint 1: the geometric mean is the exp of the mean of the logs.
#
# Hint 2: `((logp - old_logp) * mask).sum(1)`, divided by the live tokens, then `.exp()`.


# %% exercise="sequence_ratio" role="answer"
def sequence_ratio(logp, old_logp, mask):
    """logp, old_logp [N, T], mask [N, T] bool -> [N]."""
    ### BEGIN SOLUTION
    total = ((logp - old_logp) * mask).sum(dim=1)
    return (total / mask.sum(dim=1).clamp(min=1)).exp()
    ### END SOLUTION


# %% [markdown] exercise="clipped_tokens"
# A log shows the share of clipped tokens, and it does not match the tokens that lost their gradient. Repair the metric.


# %% exercise="clipped_tokens" role="given"
def clipped_tokens_faulty(ratio, advantage, eps_low, eps_high):
    return (ratio < 1 - eps_low) | (ratio > 1 + eps_high)


four = torch.tensor([[1.5], [0.5], [1.5], [0.5]])
clipped_tokens_faulty(four, torch.tensor([1.0, 1.0, -1.0, -1.0]), 0.2, 0.2).flatten()

# %% [markdown] exercise="clipped_tokens" role="hints"
# Hint 1: for each of the four: which of the two terms is the smaller one, and does it depend on the ratio?
#
# Hint 2: a good token is clipped above the band only, a bad one below it only.


# %% exercise="clipped_tokens" role="answer"
def clipped_tokens(ratio, advantage, eps_low, eps_high):
    """ratio [N, T], advantage [N] -> [N, T] bool, True where the gradient is gone."""
    ### BEGIN SOLUTION
    a = advantage[:, None]
    too_high = (a > 0) & (ratio > 1 + eps_high)
    too_low = (a < 0) & (ratio < 1 - eps_low)
    return too_high | too_low
    ### END SOLUTION


# %% [markdown] exercise="idle_clip"
# Hint 1: on the first update after a rollout the trained policy *is* the old policy.
#
# Hint 2: prompts per rollout over prompts per mini-batch.

# %% exercise="idle_clip" role="run"
case = idle_clip_case.given
logp = torch.tensor([-1.0], requires_grad=True)
ratio = (logp - logp.detach()).exp()
print("updates", case["prompts"] / case["mini_batch"], "and", case["prompts"] / case["prompts"])
print(
    "ratio on the first update",
    ratio.item(),
    "its gradient",
    torch.autograd.grad(ratio.sum(), logp)[0].item(),
)

# %% [markdown] exercise="bad_token_unbounded"
# Hint 1: with A = -1 compare -ρ with -(1 + eps): which is smaller?
#
# Hint 2: the derivative of ρ·A by log π is ρ·A.

# %% exercise="bad_token_unbounded" role="run"
from functools import partial

from grpo_edu.objective import surrogates
from grpo_edu.theory.clip import pushes

case = bad_token_unbounded_case.given
settings, place = (
    {"eps_low": case["eps"], "eps_high": case["eps"]},
    torch.tensor([0.5, 1.0, case["ratio"]]),
)
for name, clip in (
    ("PPO", partial(surrogates.ppo_clip, **settings)),
    ("dual clip", partial(surrogates.dual_clip, cap=2.0, **settings)),
):
    print(
        name,
        {
            f"ratio {r:g}": round(p, 3)
            for r, p in zip(place.tolist(), pushes(clip, place, -1.0).tolist(), strict=True)
        },
    )
