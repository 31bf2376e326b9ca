"""The small batch that every card computes: eight short answers to two questions, by hand."""

from __future__ import annotations

from math import log, nan

import torch

from ..rollouts import Rollouts

PROMPTS = ("What is 2 + 3?", "What is 4 + 4?")
# (prompt, reward, tokens, ratio of each token): old probability ½, unless the ratio needs less
ANSWERS = (
    (0, 1, "2| plus| 3| is| 5|.", (1.5, 1, 1, 0.7, 1, 1)),
    (0, 0, "It| is| 6|.", (1, 0.75, 1, 1)),
    (0, 0, "2| times| 3| is| 6|,| so| 6", (1, 1.1, 1, 1, 1.4, 1, 1, 1)),
    (0, 0, " 4|.", (1, 1)),
    (1, 1, " 8|.", (1, 1)),
    (1, 1, "It| is| 8|.", (1, 0.9, 1, 1.1)),
    (1, 0, "4| and| 4| is| 9|,| so| 9", (1, 1, 1, 1, 1, 1, 1, 1.5)),
    (1, 1, " eight|!|.", (6, 1, 1)),
)
MICRO_BATCH = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
LIMIT = 10
WIDTH = 8
SHOWN = (0, 3)  # the token whose numbers a card puts into the formula: its ratio is 0.7


def example_batch() -> Rollouts:
    """Eight completions of two prompts, ``[8, 8]`` float64, with every field that a recipe of the
    catalog may ask for.

    The ratios differ from token to token. The reference gives every token probability 0.4, the
    value model 0.5 before every token; a step ends in the middle of an answer of four tokens or
    more, with half the reward, and at the last token; the second reward pays a final full stop. The
    policy that sampled gave every token 0.8 times its old probability; the entropies are made up.
    """
    texts = [answer[2].split("|") for answer in ANSWERS]
    rewards = torch.tensor([float(answer[1]) for answer in ANSWERS], dtype=torch.float64)
    mask = torch.tensor([[t < len(text) for t in range(WIDTH)] for text in texts])
    old = torch.full(mask.shape, log(0.5), dtype=torch.float64)
    new = old.clone()
    steps = torch.full(mask.shape, nan, dtype=torch.float64)
    for i, (_, reward, _, ratios) in enumerate(ANSWERS):
        for t, ratio in enumerate(ratios):
            old[i, t] = log(0.5 if ratio <= 2 else 0.1)
            new[i, t] = old[i, t] + log(ratio)
        if len(ratios) >= 4:
            steps[i, len(ratios) // 2 - 1] = reward / 2
        steps[i, len(ratios) - 1] = reward
    rows = torch.arange(len(ANSWERS))
    stop = torch.tensor([float(text[-1] == ".") for text in texts], dtype=torch.float64)
    return Rollouts(
        logp=new,
        old_logp=old,
        ref_logp=torch.full_like(old, log(0.4)),
        sampler_logp=old + log(0.8),
        entropy=0.3 + 0.2 * (3 * rows[:, None] + 5 * torch.arange(WIDTH)).remainder(8).double(),
        mask=mask,
        reward=rewards,
        group=torch.tensor([answer[0] for answer in ANSWERS]),
        reward_parts=torch.stack([rewards, stop], dim=1),
        token_reward=steps,
        value=torch.full_like(old, 0.5),
        greedy_reward=torch.tensor([0.0] * 4 + [1.0] * 4, dtype=torch.float64),
        given_advantage=rewards - 0.5,
        max_new_tokens=LIMIT,
        tokens=texts,
        prompts=[PROMPTS[answer[0]] for answer in ANSWERS],
    )
