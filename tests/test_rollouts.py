"""Rollouts: what is refused and with which words, what is accepted, and the small builders."""

import re
from math import exp, inf, nan

import pytest
import torch

from grpo_edu import Recipe, Rollouts
from grpo_edu.objective.aggregation import step_token_mean


def fields(**changes):
    """Two completions of one prompt, 2 and 3 tokens."""
    plain = {
        "logp": torch.full((2, 3), -1.0, dtype=torch.float64),
        "mask": torch.tensor([[True, True, False], [True, True, True]]),
        "reward": torch.tensor([1.0, 0.0]),
        "group": torch.tensor([0, 0]),
    }
    return {**plain, **changes}


def refused(error, *parts, **changes):
    """Building fails with a message that holds every part: the argument, what was found, what is expected, the fix."""
    with pytest.raises(error) as caught:
        Rollouts(**fields(**changes))
    for part in parts:
        assert part in str(caught.value)


# --- shapes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["logp", "old_logp", "ref_logp", "sampler_logp"])
def test_log_probs_one_token_too_wide_get_the_hint_to_drop_the_first(name):
    wide = torch.full((2, 4), -1.0)
    fix = f"If {name} still holds the prompt's last position, drop it: {name}[:, 1:]."
    refused(
        ValueError,
        f"{name} has shape [2, 4] but mask has [2, 3]: they must agree.",
        fix,
        **{name: wide},
    )


@pytest.mark.parametrize(
    "name", ["logp", "old_logp", "ref_logp", "sampler_logp", "token_reward", "value"]
)
@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (6,), (2, 3, 1)])
def test_per_token_fields_have_the_shape_of_the_mask(name, shape):
    found = f"{name} has shape {list(shape)} but mask has [2, 3]"
    refused(
        ValueError, found, "One number per token of the mask.", **{name: torch.full(shape, -1.0)}
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reward", torch.zeros(3)),
        ("reward", [1, 0, 1]),
        ("reward", torch.zeros(2, 1)),
        ("group", torch.zeros(3, dtype=torch.long)),
        ("group", [0]),
        ("truncated", torch.zeros(3, dtype=torch.bool)),
        ("greedy_reward", torch.zeros(1)),
        ("scored", torch.ones(3, dtype=torch.bool)),
    ],
)
def test_per_row_fields_have_one_number_per_completion(name, value):
    shape = list(torch.as_tensor(value).shape)
    refused(
        ValueError,
        f"{name} has shape {shape}",
        "mask has 2 completions: expected [2], one per row",
        **{name: value},
    )


@pytest.mark.parametrize("shape", [(2,), (3, 2), (2, 0)])
def test_reward_parts_have_one_column_per_function(shape):
    found = f"reward_parts has shape {list(shape)}: expected [2, K], one column per reward function"
    refused(ValueError, found, reward_parts=torch.zeros(shape))


@pytest.mark.parametrize("shape", [(3,), (2, 2), (3, 2), ()])
def test_advantages_are_per_row_or_per_token(shape):
    refused(
        ValueError,
        f"advantage has shape {list(shape)}: expected [2] or [2, 3]",
        given_advantage=torch.zeros(shape),
    )


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_an_empty_batch_is_refused(shape):
    refused(
        ValueError,
        f"mask has shape {list(shape)}: the batch is empty. Give at least one completion and token.",
        mask=torch.zeros(shape, dtype=torch.bool),
    )


@pytest.mark.parametrize("shape", [(3,), (2, 3, 1)])
def test_the_mask_has_two_dimensions(shape):
    refused(
        ValueError,
        f"mask has shape {list(shape)}: expected two dimensions [N completions, T tokens]",
        mask=torch.ones(shape, dtype=torch.bool),
    )


# --- types ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_the_mask_is_bool(dtype):
    found = f"mask has dtype {dtype}: expected torch.bool, True on trained tokens. Use mask.bool()."
    refused(TypeError, found, mask=torch.ones(2, 3, dtype=dtype))


def test_the_mask_is_a_tensor():
    refused(TypeError, "mask has dtype list: expected torch.bool", mask=[[True] * 3] * 2)


@pytest.mark.parametrize("name", ["logp", "old_logp", "ref_logp", "sampler_logp"])
def test_log_probs_are_floating_point(name):
    found = f"{name} has dtype torch.int64: expected floating point log-probabilities"
    refused(TypeError, found, **{name: torch.full((2, 3), -1)})


@pytest.mark.parametrize(
    "name", ["logp", "old_logp", "truncated", "token_reward", "value", "given_advantage"]
)
def test_lists_in_place_of_tensors_are_named(name):
    refused(TypeError, f"{name} is a list: expected a torch.Tensor", **{name: [[-1.0] * 3] * 2})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bool])
def test_groups_are_whole_numbers(dtype):
    found = f"group has dtype {dtype}: expected whole numbers, the prompt of each completion"
    refused(TypeError, found, group=torch.zeros(2, dtype=dtype))


@pytest.mark.parametrize("name", ["truncated", "scored"])
def test_flags_are_bool(name):
    found = f"{name} has dtype torch.int64: expected torch.bool. Use {name}.bool()."
    refused(TypeError, found, **{name: torch.ones(2, dtype=torch.long)})


def test_complex_rewards_are_refused():
    refused(
        TypeError,
        "reward has dtype torch.complex64: expected real numbers",
        reward=torch.tensor([1j, 0j]),
    )


# --- values ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["logp", "old_logp", "ref_logp", "sampler_logp"])
@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_a_log_prob_that_is_not_finite_is_refused_on_a_live_token_and_accepted_under_the_mask(
    name, bad
):
    live = torch.full((2, 3), -1.0, dtype=torch.float64)
    live[1, 2] = bad
    found = f"{name} is {bad} at completion 1, token 2: expected a finite log-probability on every trained token"
    refused(ValueError, found, "Mask the token, or look for log(0)", **{name: live})
    masked = torch.full((2, 3), -1.0, dtype=torch.float64)
    masked[0, 2] = bad
    assert len(Rollouts(**fields(**{name: masked}))) == 2


@pytest.mark.parametrize("name", ["logp", "old_logp", "ref_logp", "sampler_logp"])
def test_probabilities_in_place_of_log_probabilities_are_refused(name):
    probabilities = torch.full((2, 3), 0.5)
    found = f"{name} is 0.5 at completion 0, token 0: a log-probability is at most 0"
    refused(ValueError, found, f"take their logarithm: {name}.log()", **{name: probabilities})


def test_a_log_prob_may_be_above_zero_by_rounding_only():
    assert len(Rollouts(**fields(logp=torch.full((2, 3), 1e-6)))) == 2
    refused(ValueError, "logp is 2e-05 at completion 0, token 0", logp=torch.full((2, 3), 2e-5))


@pytest.mark.parametrize("bad", [nan, inf])
@pytest.mark.parametrize("as_list", [True, False])
def test_a_reward_that_is_not_finite_is_refused_with_the_way_to_say_unscored(bad, as_list):
    reward = [1.0, bad] if as_list else torch.tensor([1.0, bad])
    refused(
        ValueError,
        f"reward holds {bad}: expected finite numbers",
        "give None in a list of rewards",
        reward=reward,
    )


@pytest.mark.parametrize("name", ["value", "given_advantage"])
def test_per_token_numbers_are_finite_where_they_are_read(name):
    live = torch.zeros(2, 3)
    live[1, 0] = nan
    refused(ValueError, f"{name} holds nan: expected finite numbers", **{name: live})
    masked = torch.zeros(2, 3)
    masked[0, 2] = nan
    assert len(Rollouts(**fields(**{name: masked}))) == 2


def test_a_reward_function_that_does_not_apply_is_nan_and_infinity_is_refused():
    assert len(Rollouts(**fields(reward_parts=torch.tensor([[1.0, nan], [0.0, 2.0]])))) == 2
    refused(
        ValueError,
        "reward_parts holds inf: expected finite numbers",
        reward_parts=torch.tensor([[inf], [0.0]]),
    )


@pytest.mark.parametrize("limit", [2, 0, -1])
def test_the_length_limit_is_a_whole_number_that_no_completion_exceeds(limit):
    found = f"max_new_tokens is {limit} but the longest completion has 3 trained tokens"
    refused(ValueError, found, "Give the sampler's own limit", max_new_tokens=limit)
    refused(TypeError, "max_new_tokens is 8.0: expected a whole number", max_new_tokens=8.0)
    assert Rollouts(**fields(max_new_tokens=3)).max_new_tokens == 3


def test_tokens_and_prompts_have_one_entry_per_completion():
    refused(
        ValueError,
        "tokens has 1 entries but mask has 2 completions: one per completion",
        tokens=[["a", "b", "c"]],
    )
    refused(
        ValueError,
        "prompts has 3 entries but mask has 2 completions: one per completion",
        prompts=["p"] * 3,
    )


def test_token_texts_reach_as_far_as_the_mask():
    short = [["a", "b"], ["a", "b"]]
    refused(
        ValueError,
        "tokens[1] has 2 texts but the mask reaches token 3: give one text each",
        tokens=short,
    )
    # the mask decides by its last position, not by its count: True on token 3 only needs three texts
    mask = torch.tensor([[False, False, True], [True, False, False]])
    refused(
        ValueError, "tokens[0] has 2 texts but the mask reaches token 3", mask=mask, tokens=short
    )
    assert len(Rollouts(**fields(tokens=[["a", "b"], ["a", "b", "c"]], prompts=["p", "p"]))) == 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a second device")
def test_tensors_on_different_devices_are_refused():
    refused(
        ValueError,
        "tensors lie on different devices",
        "rollouts.to(device)",
        reward=torch.zeros(2, device="cuda"),
    )


# --- what comes in and what is held ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int64, torch.uint8, torch.bfloat16, torch.float16, torch.float32]
)
def test_rewards_are_held_in_float32(dtype):
    rollouts = Rollouts(**fields(reward=torch.tensor([1, 0]).to(dtype)))
    assert rollouts.reward.dtype == torch.float32
    assert rollouts.reward.tolist() == [1, 0]


@pytest.mark.parametrize("reward", [[0.1, 0.7], torch.tensor([0.1, 0.7], dtype=torch.float64)])
def test_rewards_in_float64_and_lists_keep_every_digit(reward):
    rollouts = Rollouts(**fields(reward=reward))
    assert rollouts.reward.dtype == torch.float64
    assert rollouts.reward.tolist() == [0.1, 0.7]


@pytest.mark.parametrize("name", ["value", "given_advantage"])
def test_other_numbers_are_held_in_float32_or_wider(name):
    assert (
        getattr(Rollouts(**fields(**{name: torch.zeros(2, 3, dtype=torch.bfloat16)})), name).dtype
        == torch.float32
    )
    assert (
        getattr(Rollouts(**fields(**{name: torch.zeros(2, 3, dtype=torch.float64)})), name).dtype
        == torch.float64
    )


def test_none_is_unscored_and_zero_is_a_score():
    rollouts = Rollouts(**fields(reward=[None, 0]))
    assert rollouts.scored.tolist() == [False, True]
    assert rollouts.reward.tolist() == [0, 0]
    assert Rollouts(**fields()).scored.tolist() == [True, True]


def test_a_nan_reward_is_accepted_where_the_row_is_said_to_be_unscored():
    rollouts = Rollouts(
        **fields(reward=torch.tensor([nan, 1.0]), scored=torch.tensor([False, True]))
    )
    assert rollouts.scored.tolist() == [False, True]


def test_groups_may_be_a_list():
    assert Rollouts(**fields(group=[4, 4])).group.tolist() == [4, 4]


def test_lengths_count_the_trained_tokens():
    mask = torch.tensor([[False, True, True], [False, False, False]])
    rollouts = Rollouts(**fields(mask=mask))
    assert rollouts.lengths.tolist() == [2, 0]
    assert len(rollouts) == 2


def test_log_probs_keep_their_graph():
    leaf = torch.full((2, 3), -1.0, requires_grad=True)
    rollouts = Rollouts(**fields(logp=leaf))
    assert rollouts.logp is leaf
    assert Rollouts(**fields()).with_logp(leaf).logp is leaf


def test_with_logp_checks_the_new_log_probs():
    with pytest.raises(ValueError, match=re.escape("logp has shape [2, 2] but mask has [2, 3]")):
        Rollouts(**fields()).with_logp(torch.full((2, 2), -1.0))


# --- slices ---------------------------------------------------------------------------------------------------------------


def full():
    """Four completions of two prompts with every optional field."""
    n, t = 4, 3
    number = torch.arange(n * t, dtype=torch.float64).reshape(n, t)
    return Rollouts(
        logp=-number,
        mask=torch.ones(n, t, dtype=torch.bool),
        reward=[1, None, 3, 4],
        group=torch.tensor([0, 0, 1, 1]),
        old_logp=-number - 1,
        ref_logp=-number - 2,
        sampler_logp=-number - 3,
        truncated=torch.tensor([False, True, False, True]),
        reward_parts=number[:, :2],
        token_reward=number,
        value=number,
        greedy_reward=number[:, 0],
        given_advantage=number[:, 1],
        max_new_tokens=9,
        tokens=[[f"{i}{j}" for j in range(t)] for i in range(n)],
        prompts=["p", "p", "q", "q"],
    )


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (slice(1, 3), [1, 2]),
        (slice(None, None, 2), [0, 2]),
        (torch.tensor([3, 1]), [3, 1]),
        (torch.tensor([False, False, True, True]), [2, 3]),
    ],
)
def test_slicing_takes_the_same_rows_of_every_field(rows, expected):
    whole = full()
    part = whole[rows]
    assert len(part) == len(expected)
    assert part.max_new_tokens == 9
    assert part.tokens == [whole.tokens[i] for i in expected]
    assert part.prompts == [whole.prompts[i] for i in expected]
    for name in (
        *(
            "logp",
            "mask",
            "reward",
            "group",
            "old_logp",
            "ref_logp",
            "sampler_logp",
            "truncated",
            "reward_parts",
        ),
        *("token_reward", "value", "greedy_reward", "given_advantage", "scored"),
    ):
        assert torch.equal(getattr(part, name), getattr(whole, name)[expected])


def test_losses_of_the_slices_add_up_to_the_loss_of_the_step():
    # one plan for the step: 12 tokens, W = 1/12; A log π with rewards 1 0 3 4 and log π = 0, -1, … -11 row by row:
    # (1·3 + 3·21 + 4·30)/12 = 15.5
    rollouts, loss = full(), Recipe(aggregation=step_token_mean)
    plan = loss.plan(rollouts)
    parts = [loss.loss(rollouts[rows], plan[rows]).item() for rows in (slice(0, 1), slice(1, 4))]
    assert loss.loss(rollouts).item() == pytest.approx(15.5, rel=1e-12)
    assert sum(parts) == pytest.approx(15.5, rel=1e-12)


def test_a_plan_of_other_rows_is_refused():
    rollouts, loss = full(), Recipe()
    with pytest.raises(
        ValueError, match=r"plan is for \[4, 3\] but rollouts are \[2, 3\].* Slice both alike"
    ):
        loss.loss(rollouts[:2], loss.plan(rollouts))


# --- dtype and device -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_to_a_dtype_changes_floating_tensors_and_no_others(dtype):
    moved = full().to(dtype)
    assert (
        moved.logp.dtype
        == moved.old_logp.dtype
        == moved.ref_logp.dtype
        == moved.sampler_logp.dtype
        == dtype
    )
    assert (moved.mask.dtype, moved.group.dtype, moved.truncated.dtype) == (
        torch.bool,
        torch.int64,
        torch.bool,
    )
    assert moved.scored.tolist() == [True, False, True, True]
    held = torch.float32 if dtype == torch.bfloat16 else dtype
    assert moved.reward.dtype == moved.value.dtype == moved.given_advantage.dtype == held


def test_to_a_narrow_dtype_does_not_round_the_rewards():
    # bfloat16 has 8 bits: .7 and .701 would both be .69921875, a dead group
    rollouts = Rollouts(**fields(reward=[0.7, 0.701])).to(torch.bfloat16)
    assert rollouts.reward.tolist() == pytest.approx([0.7, 0.701], rel=1e-6)


def test_to_a_device_keeps_every_value():
    moved = full().to("cpu")
    assert torch.equal(moved.logp, full().logp)
    assert moved.tokens == full().tokens


# --- from_lengths ---------------------------------------------------------------------------------------------------------


def test_from_lengths_is_a_ragged_mask_one_prompt_and_on_policy():
    rollouts = Rollouts.from_lengths([2, 0, 3], rewards=[1, 0, None])
    assert rollouts.mask.tolist() == [[True, True, False], [False] * 3, [True] * 3]
    assert rollouts.logp.tolist() == [[-1.0] * 3] * 3
    assert rollouts.logp.dtype == rollouts.reward.dtype == torch.float64
    assert rollouts.reward.tolist() == [1, 0, 0]
    assert rollouts.scored.tolist() == [True, True, False]
    assert rollouts.group.tolist() == [0, 0, 0]
    assert rollouts.old_logp is None


@pytest.mark.parametrize("ratio", [1.5, 0.5, 0.01, 1000.0, [1.5, 0.02]])
def test_from_lengths_has_the_ratio_that_was_asked_for(ratio):
    rollouts = Rollouts.from_lengths([2, 3], rewards=[1, 0], ratio=ratio)
    found = (rollouts.logp - rollouts.old_logp).exp()
    wanted = torch.as_tensor(ratio, dtype=torch.float64).reshape(-1, 1).expand(2, 3)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=0)
    assert (rollouts.old_logp <= 0).all()


def test_from_lengths_takes_groups_dtype_and_any_other_field():
    rollouts = Rollouts.from_lengths(
        [1, 2],
        [1, 0],
        [7, 8],
        logp=-0.5,
        dtype=torch.float32,
        max_new_tokens=4,
        given_advantage=[1, 2],
        prompts=["p", "q"],
    )
    assert rollouts.group.tolist() == [7, 8]
    assert rollouts.logp.unique().tolist() == [-0.5]
    assert rollouts.logp.dtype == torch.float32
    assert rollouts.max_new_tokens == 4
    assert rollouts.given_advantage.tolist() == [1, 2]
    assert rollouts.prompts == ["p", "q"]


def test_from_lengths_does_not_drop_a_ratio_beside_old_log_probs():
    old = torch.full((2, 3), -2.0, dtype=torch.float64)
    try:
        rollouts = Rollouts.from_lengths([2, 3], [1, 0], ratio=exp(0.5), old_logp=old)
    except ValueError:
        return  # refusing the pair is right too
    torch.testing.assert_close(rollouts.logp, old + 0.5)


@pytest.mark.parametrize("lengths", [[], [2.5, 1.0], [3, -1]])
def test_from_lengths_refuses_what_is_no_length(lengths):
    with pytest.raises(
        (TypeError, ValueError),
        match=r"lengths is .*: expected a (non-empty list of )?whole number",
    ):
        Rollouts.from_lengths(lengths, [0] * len(lengths))


@pytest.mark.parametrize("ratio", [0.0, -1.0, [1.0, 2.0, 3.0], [[1.0, 1.0]]])
def test_from_lengths_refuses_what_is_no_ratio(ratio):
    with pytest.raises(
        ValueError, match=r"expected one positive number, or one per completion \(2\)"
    ):
        Rollouts.from_lengths([2, 3], [1, 0], ratio=ratio)


def test_from_lengths_refuses_another_number_of_rewards():
    with pytest.raises(
        ValueError, match=re.escape("reward has shape [3] but mask has 2 completions")
    ):
        Rollouts.from_lengths([2, 3], [1, 0, 1])


# --- unchecked ------------------------------------------------------------------------------------------------------------


def test_unchecked_is_the_same_without_the_checks():
    checked = Rollouts(**fields())
    free = Rollouts.unchecked(**fields())
    assert Recipe().loss(free).item() == Recipe().loss(checked).item()
    assert free.scored.tolist() == [True, True]
    # what is checked above is not checked here
    assert Rollouts.unchecked(**fields(logp=torch.full((2, 3), 0.5))).logp.max() == 0.5
