# %% [markdown]
# # Exercises 7 · The two biases, exactly
#
# **Beside chapters 04 and 06.** Closed forms in place of opinions. Everything here is **exact**.

# %% [markdown] exercise="group_weight"
# A prompt of pass rate p gives K right answers in a group of G, K binomial. Divided by the group std, its expected weight is
#
# $$w = \frac{1}{p(1-p)}\; E\Big[\frac{\sigma_K^2}{s_K}\Big],\qquad \sigma_K^2 = \frac{K}{G}\Big(1-\frac{K}{G}\Big),\quad
# s_K = \sigma_K\sqrt{\frac{G}{G-\mathrm{ddof}}}$$
#
# where silent groups (K = 0 or G) add 0. Write it.
#
# Hint 1: sum over K = 1 … G - 1 with the chances `math.comb(G, K) * p**K * (1-p)**(G-K)`.
#
# Hint 2: σ²/s is σ times √((G - ddof)/G).

# %% exercise="group_weight" role="answer"
def group_weight(p, size, ddof):
    """p in (0, 1), size int, ddof 0 or 1 -> float."""
    ### BEGIN SOLUTION
    total = 0.0
    for k in range(1, size):
        sigma = math.sqrt(k / size * (1 - k / size))
        spread = sigma * math.sqrt(size / (size - ddof))
        total += math.comb(size, k) * p**k * (1 - p) ** (size - k) * sigma**2 / spread
    return total / (p * (1 - p))
    ### END SOLUTION


# %% [markdown] exercise="hard_prompts"
# Hint 1: the std of k ones among G is the same for k and G - k.
#
# Hint 2: print 1/std for every k.

# %% exercise="hard_prompts" role="run"
size = hard_prompts_case.given["size"]
gain = {
    k: 1 / torch.tensor([1.0] * k + [0.0] * (size - k), dtype=torch.float64).std().item()
    for k in range(1, size)
}
print({k: round(v, 3) for k, v in gain.items()})
print("lone success over half right:", gain[1] / gain[size // 2])

# %% [markdown] exercise="token_mean_unbiased"
# Hint 1: is the sampled length independent of the denominator?
#
# Hint 2: run it with `rows` 1, 2, 8, 64 and look how the share falls.

# %% exercise="token_mean_unbiased" role="run"
from grpo_edu.theory.length import constant_drift, sequence_mean_drift, token_mean_drift

case = token_mean_unbiased_case.given
full, shared = (
    sequence_mean_drift(case["stop"], case["cap"]),
    token_mean_drift(case["stop"], case["rows"], case["cap"]),
)
print(
    "1/|o|:",
    full,
    "token mean:",
    shared,
    "constant:",
    round(constant_drift(case["stop"], case["cap"]), 12),
)
print("share left by the token mean:", shared / full)

# %% [markdown] exercise="removing_length"
# Hint 1: compare the two columns *per token*, then *per completion*.
#
# Hint 2: log π of a completion is the sum of the log π of its tokens.

# %% exercise="removing_length" role="run"
from grpo_edu import Rollouts, recipe, token_weights
from grpo_edu.objective import aggregation

case = removing_length_case.given
wrong = Rollouts.from_lengths(
    case["lengths"], rewards=[0, 0], given_advantage=[-1.0, -1.0], max_new_tokens=case["limit"]
)
for choice in (aggregation.sequence_mean, aggregation.constant):
    w = token_weights(recipe("ppo").but(aggregation=choice), wrong)
    print(choice.__name__, "per token", w[:, 0].tolist(), "per completion", w.sum(1).tolist())
