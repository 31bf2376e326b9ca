"""Policy gradient on a token tree: hand numbers, enumeration in plain Python, finite differences, and the real recipes."""

from __future__ import annotations

import math
from functools import partial
from itertools import product

import pytest
import torch

from grpo_edu import recipe
from grpo_edu.objective.advantages import gae
from grpo_edu.theory import mdp

near = partial(pytest.approx, rel=1e-9, abs=1e-12)
TWO_BS = torch.tensor(
    [float(word.count("b") == 2) for word in mdp.words("ab", 3)], dtype=torch.float64
)


def skewed(vocabulary: int = 2, horizon: int = 3) -> list[torch.Tensor]:
    source = torch.Generator().manual_seed(3)
    return [
        torch.randn(vocabulary**d, vocabulary, generator=source, dtype=torch.float64)
        for d in range(horizon)
    ]


def test_values_and_advantages_of_the_even_policy_are_the_hand_numbers():
    # two b's out of three: 3 of 8 words; after b 2 of 4; after a 1 of 4; after aa none; before the last token 1 of 2
    v = mdp.values(mdp.uniform(2, 3), TWO_BS)
    assert v[0].tolist() == near([3 / 8])
    assert v[1].tolist() == near([1 / 4, 1 / 2])
    assert v[2].tolist() == near([0, 1 / 2, 1 / 2, 1 / 2])
    a = mdp.advantages(mdp.uniform(2, 3), TWO_BS)
    assert a[0].tolist() == [near([-1 / 8, 1 / 8])]
    assert a[1].tolist() == [near([-1 / 4, 1 / 4]), near([0, 0])]
    assert mdp.state_table(mdp.uniform(2, 3), TWO_BS, "ab").loc["bb", "A(b)"] == near(-0.5)


def test_log_probs_add_and_probabilities_multiply_word_by_word():
    logits = skewed(3, 2)
    first, second = logits[0].softmax(-1)[0].tolist(), logits[1].softmax(-1).tolist()
    expected = [first[i] * second[i][j] for i, j in product(range(3), repeat=2)]
    assert mdp.log_probs(logits).sum(1).exp().tolist() == near(expected)
    assert sum(expected) == near(1.0)


def test_exact_gradient_agrees_with_finite_differences():
    logits, step = skewed(), 1e-6
    gradient = mdp.exact_gradient(logits, TWO_BS)
    flat = torch.cat([t.reshape(-1) for t in logits])
    for k in range(len(flat)):
        moved = [flat + s * step * (torch.arange(len(flat)) == k) for s in (1, -1)]
        parts = [
            [p.reshape(t.shape) for p, t in zip(m.split([2, 4, 8]), logits, strict=True)]
            for m in moved
        ]
        up, down = (mdp.values(p, TWO_BS)[0].item() for p in parts)
        assert gradient[k].item() == pytest.approx((up - down) / (2 * step), abs=1e-9)


def test_every_weighting_has_the_policy_gradient_as_its_mean():
    reward = torch.tensor([0, 0, 0, 1, 0, 1, 3, 2], dtype=torch.float64)
    table = mdp.comparison(skewed(), mdp.weightings(skewed(), reward, 5.0), reward)
    assert (table["error"] < 1e-12).all()
    assert (
        table.loc["r - 5", "variance"] > table.loc["r", "variance"] > table.loc["Q - V", "variance"]
    )


def test_noise_of_the_bandit_is_the_hand_number_and_vanishes_at_the_best_baseline():
    # p = 1/4, score of the first logit: 3/4 or -1/4. r: second moment 1/4 * 9/16, squared mean 9/256, twice (two logits): 27/128
    logits, reward = (
        [torch.tensor([[0.0, math.log(3)]], dtype=torch.float64)],
        torch.tensor([1.0, 0.0], dtype=torch.float64),
    )
    psi = mdp.weightings(logits, reward, 0.75)
    assert mdp.exact_gradient(logits, reward).tolist() == near([3 / 16, -3 / 16])
    assert mdp.estimate(logits, psi["r"])[1] == near(27 / 128)
    assert mdp.estimate(logits, psi["r - V(start)"])[1] == near(3 / 32)
    assert mdp.estimate(logits, psi["r - 0.75"])[1] == near(0.0)


@pytest.mark.parametrize(
    ("name", "factor"), [("reinforce", 1.0), ("rloo", 1.0), ("dr_grpo", 2 / 3 / 3)]
)
def test_group_estimators_without_std_are_the_policy_gradient_up_to_a_factor(name, factor):
    # Dr. GRPO at G = 3 and 3 tokens: (G-1)/G from its own reward in the mean, 1/3 from the constant
    reward = torch.tensor([0, 0, 0, 1, 0, 1, 3, 2], dtype=torch.float64)
    update = mdp.group_gradient(recipe(name), skewed(), reward, 3)
    assert torch.allclose(update, factor * mdp.exact_gradient(skewed(), reward), rtol=0, atol=1e-12)


def test_with_the_std_and_several_reward_levels_the_update_points_elsewhere():
    reward = torch.tensor([0, 0, 0, 1, 0, 1, 3, 2], dtype=torch.float64)
    table = mdp.group_comparison(
        [recipe("rloo"), recipe("grpo").but("grpo", kl=None)], mdp.uniform(2, 3), reward, 3
    )
    assert table.loc["rloo"].tolist() == near([1.0, 1.0])
    assert 0.98 < table.loc["grpo", "cosine"] < 0.99


def test_gae_with_the_exact_values_is_q_minus_v_at_lambda_0_and_return_minus_v_at_lambda_1():
    logits = skewed()
    psi, value = mdp.weightings(logits, TWO_BS), mdp.values_along(logits, TWO_BS)
    mask = torch.ones(8, 3, dtype=torch.bool)
    assert torch.allclose(
        gae(TWO_BS, mask, value, gamma=1.0, lam=0.0), psi["Q - V"], rtol=0, atol=1e-12
    )
    assert torch.allclose(
        gae(TWO_BS, mask, value, gamma=1.0, lam=1.0), psi["r - V(s_t)"], rtol=0, atol=1e-12
    )
