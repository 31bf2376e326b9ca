"""Aggregation weights against numbers by hand, and against means taken by plain Python."""

from functools import partial
from statistics import fmean

import pytest
import torch

from grpo_edu import Recipe, Rollouts, token_weights
from grpo_edu.objective.advantages import given
from grpo_edu.objective.aggregation import (
    constant,
    constant_sum,
    generation_token_mean,
    micro_batch_token_mean,
    prompt_token_mean,
    sequence_mean,
    sequence_sum,
    step_token_mean,
    token_sum,
)
from grpo_edu.objective.surrogates import ppo_clip


def near(value, rel=1e-12):
    return pytest.approx(value, rel=rel, abs=1e-15)


def rows(lengths, width=None):
    """``[N, T]`` mask of the given lengths, and ``[N]`` present rows."""
    mask = torch.arange(width or max(1, *lengths))[None, :] < torch.tensor(lengths)[:, None]
    return mask, torch.ones(len(lengths), dtype=torch.bool)


def ones(n):
    return torch.ones(n, dtype=torch.bool)


# --- numbers by hand ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("aggregation", "short", "long"),
    [
        (sequence_mean, 0.25, 1 / 7),  # 2/(2·4) and 2/(2·7)
        (step_token_mean, 2 / 11, 2 / 11),
        (prompt_token_mean, 2 / 11, 2 / 11),  # one prompt
        (partial(constant, length=7), 1 / 7, 1 / 7),  # 2/(2·7)
        (partial(constant_sum, length=7), 2 / 7, 2 / 7),
        (
            partial(generation_token_mean, tokens=44, steps=4),
            2 / 11,
            2 / 11,
        ),  # 11 tokens a step on average
        (sequence_sum, 1.0, 1.0),  # 2/2
        (token_sum, 2.0, 2.0),
    ],
)
def test_push_on_a_token_of_four_and_on_one_of_seven(aggregation, short, long):
    # lengths 4 and 7, advantage 2 each, ratio 1: the push is 2·W
    rollouts = Rollouts.from_lengths([4, 7], rewards=[0, 0], given_advantage=[2.0, 2.0])
    loss = Recipe(
        baseline=given,
        surrogate=partial(ppo_clip, eps_low=0.2, eps_high=0.2),
        aggregation=aggregation,
    )
    weights = token_weights(loss, rollouts)
    assert weights[0].tolist() == near([short] * 4 + [0] * 3, rel=1e-6)
    assert weights[1].tolist() == near([long] * 7, rel=1e-6)


def test_mean_of_sequences_and_mean_of_tokens_of_the_same_losses():
    # 1 1 1 1 10 and nine 1 with a 10: sequence means 14/5 = 2.8 and 19/10 = 1.9, their mean 2.35; 33/15 = 2.2 over tokens;
    # with C = 10 the sequences give 1.4 and 1.9, mean 1.65
    mask, present = rows([5, 10])
    losses = torch.ones(2, 10, dtype=torch.float64)
    losses[0, 4] = losses[1, 9] = 10.0
    assert (sequence_mean(mask, present) * losses).sum().item() == near(2.35)
    assert (step_token_mean(mask) * losses).sum().item() == near(2.2)
    assert (constant_sum(mask, 10) * losses).sum(dim=1).tolist() == near([1.4, 1.9])
    assert (constant(mask, present, 10) * losses).sum().item() == near(1.65)
    assert (sequence_sum(mask, present) * losses).sum().item() == near(16.5)
    assert (token_sum(mask) * losses).sum().item() == near(33)


def test_prompt_token_mean_gives_each_prompt_the_same_sum():
    # prompt 7: 2 + 6 tokens, prompt 3: 4: 1/(2·8) and 1/(2·4)
    mask, present = rows([2, 6, 4])
    weights = prompt_token_mean(mask, torch.tensor([7, 7, 3]), present)
    assert weights[:, 0].tolist() == near([1 / 16, 1 / 16, 1 / 8])
    assert weights.sum(dim=1).tolist() == near([2 / 16, 6 / 16, 1 / 2])


def test_micro_batch_token_mean_gives_each_micro_batch_the_same_sum():
    # micro-batch 1: 2 + 6 tokens, micro-batch 0: 4
    mask, _ = rows([2, 6, 4])
    weights = micro_batch_token_mean(mask, torch.tensor([1, 1, 0]))
    assert weights[:, 0].tolist() == near([1 / 16, 1 / 16, 1 / 8])


# --- sums of weights ------------------------------------------------------------------------------------------------------

LENGTHS = [3, 1, 7, 5]
GROUP = torch.tensor([0, 0, 1, 1])


@pytest.mark.parametrize(
    ("weights", "total"),
    [
        (lambda mask: sequence_mean(mask, ones(4)), 1.0),
        (lambda mask: step_token_mean(mask), 1.0),
        (lambda mask: prompt_token_mean(mask, GROUP, ones(4)), 1.0),
        (lambda mask: micro_batch_token_mean(mask, torch.tensor([0, 1, 2, 2])), 1.0),
        (lambda mask: sequence_sum(mask, ones(4)), 4.0),  # 16 tokens / 4 completions
        (lambda mask: token_sum(mask), 16.0),
        (lambda mask: constant(mask, ones(4), 8), 0.5),  # 16/(4·8)
        (lambda mask: constant_sum(mask, 8), 2.0),
        (
            lambda mask: generation_token_mean(mask, tokens=64, steps=2),
            0.5,
        ),  # half the tokens of an average step
    ],
)
def test_weights_add_up(weights, total):
    mask, _ = rows(LENGTHS, width=9)
    assert weights(mask).sum().item() == near(total)
    assert weights(mask)[~mask].abs().max().item() == 0


@pytest.mark.parametrize("width", [7, 8, 40])
def test_wider_padding_changes_no_weight(width):
    mask, present = rows(LENGTHS)
    wide, _ = rows(LENGTHS, width=width)
    own = torch.arange(4)
    for choice in (
        lambda m: sequence_mean(m, present),
        step_token_mean,
        lambda m: prompt_token_mean(m, GROUP, present),
        lambda m: micro_batch_token_mean(m, own),
        lambda m: constant(m, present, 9),
        lambda m: constant_sum(m, 9),
        lambda m: sequence_sum(m, present),
        token_sum,
    ):
        assert torch.equal(choice(wide)[:, :7], choice(mask))


def test_means_agree_with_plain_python_on_a_ragged_batch():
    losses = [[0.3, 1.2], [2.0, -1.0, 0.5, 4.0], [7.0], [1.0, 1.5, 2.5]]
    group = [0, 1, 1, 0]
    mask, present = rows([len(x) for x in losses])
    table = torch.zeros(mask.shape, dtype=torch.float64)
    table[mask] = torch.tensor([v for x in losses for v in x], dtype=torch.float64)
    flat = [v for x in losses for v in x]
    prompt = [[v for x, g in zip(losses, group, strict=True) if g == p for v in x] for p in (0, 1)]
    assert (sequence_mean(mask, present) * table).sum().item() == near(fmean(map(fmean, losses)))
    assert (step_token_mean(mask) * table).sum().item() == near(fmean(flat))
    assert (prompt_token_mean(mask, torch.tensor(group), present) * table).sum().item() == near(
        fmean(map(fmean, prompt))
    )
    assert (micro_batch_token_mean(mask, torch.tensor(group)) * table).sum().item() == near(
        fmean(map(fmean, prompt))
    )
    assert (sequence_sum(mask, present) * table).sum().item() == near(fmean(map(sum, losses)))


@pytest.mark.parametrize("lengths", [[1, 1], [3, 9]])
def test_every_choice_gives_float64(lengths):
    mask, present = rows(lengths)
    two = torch.tensor([0, 1])
    weights = [
        sequence_mean(mask, present),
        step_token_mean(mask),
        prompt_token_mean(mask, two, present),
        micro_batch_token_mean(mask, two),
        constant(mask, present, 9),
        constant_sum(mask, 9),
        sequence_sum(mask, present),
        token_sum(mask),
    ]
    assert {w.dtype for w in weights} == {torch.float64}
    assert {w.shape for w in weights} == {mask.shape}


def test_generation_token_mean_gives_float64():
    # 1/7 has no exact float32: 12 digits need float64
    mask, _ = rows([3])
    assert generation_token_mean(mask, tokens=7).dtype == torch.float64
    assert generation_token_mean(mask, tokens=7)[0].tolist() == near([1 / 7] * 3)


def test_float32_rewards_leave_the_weight_in_float64():
    # the log-probs are float64; W = 1/(2·7) with 16 digits
    one = torch.ones(2, 3, dtype=torch.float64)
    rollouts = Rollouts(
        logp=-one, mask=one.bool(), reward=torch.tensor([1.0, 0.0]), group=torch.tensor([0, 0])
    )
    weight = Recipe(aggregation=partial(constant, length=7)).plan(rollouts).W
    assert weight.flatten().tolist() == near([1 / 14] * 6)


# --- micro-batches --------------------------------------------------------------------------------------------------------


def test_one_micro_batch_is_the_step_mean_and_one_row_each_the_sequence_mean():
    mask, present = rows(LENGTHS)
    assert torch.equal(
        micro_batch_token_mean(mask, torch.zeros(4, dtype=torch.long)), step_token_mean(mask)
    )
    assert torch.equal(
        micro_batch_token_mean(mask, torch.tensor([9, 4, 6, 0])), sequence_mean(mask, present)
    )


def test_the_weight_of_a_token_depends_on_who_shares_its_micro_batch():
    # the row of 3 with the row of 1: 1/(2·4); with the row of 7: 1/(2·10)
    mask, _ = rows(LENGTHS)
    assert micro_batch_token_mean(mask, torch.tensor([0, 0, 1, 1]))[0, 0].item() == near(1 / 8)
    assert micro_batch_token_mean(mask, torch.tensor([0, 1, 0, 1]))[0, 0].item() == near(1 / 20)


def test_a_fully_masked_micro_batch_counts_in_m_and_gets_zeros():
    # M = 2: 1/(2·3)
    mask, _ = rows([0, 3])
    weights = micro_batch_token_mean(mask, torch.tensor([0, 1]))
    assert weights.tolist() == [[0, 0, 0], near([1 / 6] * 3)]


# --- rows without a token -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "n"), [(True, 3), (False, 2)])
def test_count_masked_rows_decides_n(count, n):
    # lengths 0, 2, 4
    mask, present = rows([0, 2, 4])
    weights = sequence_mean(mask, present, count_masked_rows=count)
    assert weights[:, 0].tolist() == near([0, 1 / (2 * n), 1 / (4 * n)])
    weights = sequence_sum(mask, present, count_masked_rows=count)
    assert weights[:, 0].tolist() == near([0, 1 / n, 1 / n])
    weights = constant(mask, present, 8, count_masked_rows=count)
    assert weights[:, 0].tolist() == near([0, 1 / (8 * n), 1 / (8 * n)])


@pytest.mark.parametrize(("count", "p"), [(True, 2), (False, 1)])
def test_count_masked_rows_decides_whether_a_masked_prompt_counts(count, p):
    # prompt 0: two masked rows; prompt 1: lengths 2 and 4
    mask, present = rows([0, 0, 2, 4])
    weights = prompt_token_mean(mask, GROUP, present, count_masked_rows=count)
    assert weights[:, 0].tolist() == near([0, 0, 1 / (6 * p), 1 / (6 * p)])


@pytest.mark.parametrize("count", [True, False])
def test_one_masked_row_does_not_halve_its_prompt(count):
    # prompt 0: lengths 0 and 3; prompt 1: 4 and 2: P = 2 either way
    mask, present = rows([0, 3, 4, 2])
    weights = prompt_token_mean(mask, GROUP, present, count_masked_rows=count)
    assert weights[:, 0].tolist() == near([0, 1 / 6, 1 / 12, 1 / 12])


@pytest.mark.parametrize("count", [True, False])
def test_a_row_that_is_not_present_never_counts(count):
    # rows 0 and 1 were dropped: N = 2, P = 1
    mask, present = rows([0, 0, 2, 4])
    present[:2] = False
    assert sequence_mean(mask, present, count_masked_rows=count)[:, 0].tolist() == near(
        [0, 0, 1 / 4, 1 / 8]
    )
    assert sequence_sum(mask, present, count_masked_rows=count)[:, 0].tolist() == near(
        [0, 0, 1 / 2, 1 / 2]
    )
    assert prompt_token_mean(mask, GROUP, present, count_masked_rows=count)[:, 0].tolist() == near(
        [0, 0, 1 / 6, 1 / 6]
    )


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("count", [True, False])
def test_a_batch_without_any_token_gets_finite_zeros(count, there):
    mask = torch.zeros(4, 3, dtype=torch.bool)
    present = torch.full((4,), there)
    for weights in (
        sequence_mean(mask, present, count_masked_rows=count),
        step_token_mean(mask),
        prompt_token_mean(mask, GROUP, present, count_masked_rows=count),
        micro_batch_token_mean(mask, GROUP),
        generation_token_mean(mask, tokens=10),
        constant(mask, present, 8, count_masked_rows=count),
        constant_sum(mask, 8),
        sequence_sum(mask, present, count_masked_rows=count),
        token_sum(mask),
    ):
        assert weights.tolist() == [[0, 0, 0]] * 4


# --- refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", [constant, constant_sum])
def test_the_constant_refuses_to_invent_a_length(choice):
    rollouts = Rollouts.from_lengths([2, 3], rewards=[1, 0])
    with pytest.raises(
        ValueError, match=r"no length: expected rollouts.max_new_tokens or constant\(length=...\)"
    ):
        Recipe(aggregation=choice).loss(rollouts)


@pytest.mark.parametrize("length", [0, -3.0])
def test_the_constant_refuses_a_length_that_is_not_positive(length):
    mask, present = rows([2, 3])
    with pytest.raises(ValueError, match="expected a positive number"):
        constant(mask, present, 8, length=length)


def test_a_length_of_ones_own_wins_over_the_limit_of_the_sampler():
    # N = 2: 1/(2·8) from max_new_tokens, 1/(2·5) from length; the padded width 4 appears in neither
    mask, present = rows([2, 3], width=4)
    assert constant(mask, present, 8)[0, 0].item() == near(1 / 16)
    assert constant(mask, present, 8, length=5)[0, 0].item() == near(1 / 10)
    assert constant_sum(mask, 8)[0, 0].item() == near(1 / 8)
    assert constant_sum(mask, 8, length=5)[0, 0].item() == near(1 / 5)


@pytest.mark.parametrize(("tokens", "steps"), [(0, 1), (-1, 1), (10, 0)])
def test_generation_token_mean_refuses_counts_that_are_not_positive(tokens, steps):
    mask, _ = rows([2, 3])
    with pytest.raises(
        ValueError, match=f"tokens is {tokens} and steps is {steps}: expected positive numbers"
    ):
        generation_token_mean(mask, tokens=tokens, steps=steps)
