# %% [markdown]
# # Exercises 2 · Aggregation
#
# **Beside chapter 05.** An aggregation is a weight per token, `W[N, T]`; the loss is `-(W * surrogate).sum()`. `mask[N, T]` is True on tokens
# that are trained. Weights under the mask are 0.

# %% [markdown] exercise="sequence_mean"
# GRPO averages each completion over its own tokens, then averages the completions. Write the weight of every token. A completion without a live
# token counts in N and gets zeros; a batch without any live token gets zeros too.
#
# Hint 1: `mask.sum(dim=1, keepdim=True)` is the length of each completion. What if it is 0?
#
# Hint 2: `mask / lengths.clamp(min=1) / N`.

# %% exercise="sequence_mean" role="answer"
def sequence_mean(mask):
    """mask [N, T] bool -> [N, T] weights."""
    ### BEGIN SOLUTION
    lengths = mask.sum(dim=1, keepdim=True)
    return mask / lengths.clamp(min=1) / len(mask)
    ### END SOLUTION


# %% [markdown] exercise="token_mean"
# All live tokens of the optimiser step weigh the same.
#
# Hint 1: the denominator is one number for the whole step.
#
# Hint 2: `mask.sum()`, kept from being 0.


# %% exercise="token_mean" role="answer"
def token_mean(mask):
    """mask [N, T] bool -> [N, T] weights."""
    ### BEGIN SOLUTION
    return mask / mask.sum().clamp(min=1)
    ### END SOLUTION


# %% [markdown] exercise="prompt_token_mean"
# DAPO's Eq. 8 has an expectation over prompts outside the fraction: tokens are averaged inside each prompt, then the P prompts are averaged. Write
# it. Prompt numbers are any integers; rows of a prompt need not be neighbours. A prompt without a live token counts in P and gets zeros.
#
# Hint 1: first the number of live tokens of each row's prompt.
#
# Hint 2: for each `g` in `group.unique()`: `out[rows] = mask[rows] / tokens_of_g / P`.


# %% exercise="prompt_token_mean" role="answer"
def prompt_token_mean(mask, group):
    """mask [N, T] bool, group [N] prompt numbers -> [N, T] weights."""
    ### BEGIN SOLUTION
    out = torch.zeros(mask.shape)
    prompts = group.unique()
    for g in prompts:
        rows = group == g
        out[rows] = mask[rows] / mask[rows].sum().clamp(min=1) / len(prompts)
    return out
    ### END SOLUTION


# %% [markdown] exercise="constant_mean"
# Dr. GRPO divides by N and by the sampler's limit, which no batch can change.
#
# Hint 1: which of `mask.shape[1]`, `mask.sum(1).max()` and `max_new_tokens` stays the same from batch to batch?
#
# Hint 2: two divisions, nothing is counted.


# %% exercise="constant_mean" role="answer"
def constant_mean(mask, max_new_tokens):
    """mask [N, T] bool, max_new_tokens int -> [N, T] weights."""
    ### BEGIN SOLUTION
    return mask / len(mask) / max_new_tokens
    ### END SOLUTION


# %% [markdown] exercise="agent_weights"
# An agent's response holds tool output, which is masked. In the version below agents with long tool output learn slowly. Repair the sequence mean.


# %% exercise="agent_weights" role="given"
def agent_weights_faulty(mask, response_length):
    return mask / response_length[:, None] / len(mask)


agent_weights_faulty(
    torch.tensor([[True, True, False, False], [True, True, True, True]]), torch.tensor([4, 4])
)

# %% [markdown] exercise="agent_weights" role="hints"
# Hint 1: both completions above count alike in a sequence mean. What do their rows add to?
#
# Hint 2: numerator and denominator must look at the same mask.


# %% exercise="agent_weights" role="answer"
def agent_weights(mask, response_length):
    """mask [N, T] bool, response_length [N] with tool output -> [N, T] weights."""
    ### BEGIN SOLUTION
    return mask / mask.sum(dim=1, keepdim=True).clamp(min=1) / len(mask)
    ### END SOLUTION


# %% [markdown] exercise="longer_answers"
# Hint 1: print the weights of both completions, and their sums.
#
# Hint 2: the first number is a weight of the second row over a weight of the first.

# %% exercise="longer_answers" role="run"
from grpo_edu import Rollouts, recipe, token_weights
from grpo_edu.objective import aggregation

wrong = Rollouts.from_lengths(
    longer_answers_case.given["lengths"], rewards=[0, 0], given_advantage=[-1.0, -1.0]
)
weights = token_weights(recipe("ppo").but(aggregation=aggregation.sequence_mean), wrong)
{
    "push on the first token": weights[:, 0].tolist(),
    "push on the completion": weights.sum(1).tolist(),
}

# %% [markdown] exercise="loss_zero"
# Hint 1: at ratio 1 the value of the loss is -Σ W·A.
#
# Hint 2: print the value and the weights for both recipes; is any weight 0?

# %% exercise="loss_zero" role="run"
both = Rollouts.from_lengths(
    loss_zero_case.given["lengths"], rewards=[1, 0], given_advantage=[1.0, -1.0]
)
for choice in (aggregation.sequence_mean, aggregation.step_token_mean):
    one = recipe("ppo").but(aggregation=choice)
    print(
        choice.__name__,
        "loss",
        round(one.loss(both).item(), 6),
        "pushes",
        token_weights(one, both)[:, 0].tolist(),
    )
