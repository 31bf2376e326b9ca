"""Toys: the expected update against hand numbers and against samples, what the biases do over seeds, options that act."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from grpo_edu import RECIPES, Recipe, Rollouts, recipe
from grpo_edu.cli import app
from grpo_edu.draws import generators
from grpo_edu.objective import aggregation as agg
from grpo_edu.plots.dynamics import clip_entropy, difficulty_progress, length_dynamics
from grpo_edu.statistics import Interval, interval, intervals, t_quantile
from grpo_edu.toys import arms, difficulty, overlong, stopping
from grpo_edu.toys.ablation import ablate
from grpo_edu.toys.arms import Arms, clip_recipes
from grpo_edu.toys.compare import gradient_sizes, matched_learning_rate, push_sizes
from grpo_edu.toys.difficulty import Difficulty
from grpo_edu.toys.flow import expected_gradient, flow
from grpo_edu.toys.stopping import MODES, Stopping
from grpo_edu.toys.training import ABSENT, Draw, Training, differentiate

GRPO = recipe("grpo").but("sequence_mean", kl=None)
CONSTANT = GRPO.but("constant", aggregation=agg.constant)
PROMPT = GRPO.but("prompt", aggregation=agg.prompt_token_mean)
STEP = GRPO.but("step", aggregation=agg.step_token_mean)
UNSCALED = recipe("dr_grpo").but("unscaled, sequence_mean", aggregation=agg.sequence_mean)
CLIP = recipe("dr_grpo").surrogate
SMALL = Training(steps=5, prompts=2, samples=4, learning_rate=0.5)


def end(table: pd.DataFrame, name: str, column: str) -> list[float]:
    """The column at the last step, one number per seed."""
    rows = table.loc[(table["recipe"] == name) & (table["step"] == table["step"].max())]
    return rows[column].tolist()


def holds_zero(found: Interval) -> bool:
    return found.low <= 0 <= found.high


def first_gradient(
    one: Recipe, policy: Stopping, training: Training, *, seeds: int = 256
) -> torch.Tensor:
    """``[S, 2 + K]`` the sampled gradient of the loss at step 0, one rollout per seed."""
    theta = policy.start(seeds)
    batch = stopping.draw(theta, policy, training, generators(range(seeds)))
    apart = Draw(tuple(a[:, None] for a in batch.actions), *(field[:, None] for field in batch[1:]))
    log_probs = partial(stopping.logp_of, policy, training.samples)
    return differentiate(
        [one], log_probs, theta[:, None], apart, {}, training, policy.cap
    ).gradient[:, 0]


# --- the expected update --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["dr_grpo", "rloo", "reinforce", "maxrl", "constant"])
def test_a_constant_weight_leaves_the_stop_logits_alone(mode, name):
    # the score of a stop logit has mean 0 given the branch, and reward and weight look at the branch only
    one = CONSTANT if name == "constant" else recipe(name)
    policy = Stopping(mode=mode, right=0.35, hazard_right=0.2, hazard_wrong=0.05, cap=12)
    gradient = expected_gradient(one, policy.start()[0], policy, Training(prompts=3, samples=4))
    assert gradient[:2].abs().max() < 1e-12
    table = flow(one, policy, Training(steps=20, prompts=3, samples=4))
    assert (table["stop_right"] - table["stop_right"].iloc[0]).abs().max() < 1e-12
    assert (table["stop_wrong"] - table["stop_wrong"].iloc[0]).abs().max() < 1e-12
    assert (gradient[2] != 0) == (mode != "environment")


def test_sequence_mean_drift_of_the_stop_logit_is_e_stopped_over_length_minus_s():
    # s = .1, cap 10, branch drawn by the environment: E[1{stopped}/L] - s = sum_{n<=10} .1·.9^(n-1)/n - .1 = .1354.
    # Mean-centred advantages, p = 1/2: E[A 1{right}] = (G-1)/G · p(1-p) multiplies it, up for right and down for wrong.
    policy = Stopping(mode="environment", cap=10, hazard_right=0.1, hazard_wrong=0.1)
    stopped = sum(0.1 * 0.9 ** (n - 1) / n for n in range(1, 11))
    drift = 7 / 8 * 0.25 * (stopped - 0.1)
    gradient = expected_gradient(
        UNSCALED, policy.start()[0], policy, Training(prompts=3, samples=8)
    )
    assert stopped - 0.1 == pytest.approx(0.1354, abs=5e-5)
    assert gradient.tolist() == pytest.approx([drift, -drift, 0.0], abs=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_the_attempt_logit_moves_by_the_policy_gradient(mode):
    # RLOO: exactly dp/dz, p = sigmoid(z), times 1 - slip in mode slip; in the environment mode nothing can move
    policy = Stopping(mode=mode, right=0.3, slip=0.25, cap=6)
    slope = {"learnable": 0.3 * 0.7, "slip": 0.75 * 0.3 * 0.7, "environment": 0.0}[mode]
    gradient = expected_gradient(
        recipe("rloo"), policy.start()[0], policy, Training(prompts=2, samples=4)
    )
    assert gradient[2].item() == pytest.approx(slope, abs=1e-12)


def test_expected_update_of_a_pair_by_writing_out_all_its_outcomes():
    # G = 2, one prompt, cap 3: enumerate both completions outright and differentiate Recipe.loss itself
    policy, training = (
        Stopping(mode="learnable", right=0.4, hazard_right=0.3, hazard_wrong=0.2, cap=3),
        Training(prompts=1, samples=2),
    )
    outcomes = [
        (right, last) for right in (True, False) for last in ((0, 1, 0), (0, 0, 1), (0, 0, 0))
    ]
    for one in (
        GRPO,
        PROMPT,
        STEP,
        CONSTANT,
        GRPO.but("balanced", aggregation=agg.balanced),
        recipe("dapo"),
    ):
        theta = policy.start()[0].requires_grad_()
        total = torch.zeros(3, dtype=torch.float64)
        for a in outcomes:
            for b in outcomes:
                right = torch.tensor([a[0], b[0]])
                last = torch.tensor([a[1], b[1]]).bool()
                logp = stopping.logp_of(policy, 2, theta, (right, right, last))
                mask = torch.tensor([[True, True, not x[1][1]] for x in (a, b)])
                rollouts = Rollouts(
                    logp=logp,
                    mask=mask,
                    reward=right.double(),
                    group=training.group,
                    max_new_tokens=3,
                )
                chance = (logp * mask).sum().exp().detach()
                total -= chance * torch.autograd.grad(one.loss(rollouts), theta)[0]
        found = expected_gradient(one, theta.detach(), policy, training)
        torch.testing.assert_close(found, total, rtol=0, atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "one", [GRPO, PROMPT, STEP, CONSTANT, recipe("dapo"), recipe("maxrl")], ids=lambda r: r.name
)
def test_sampled_gradients_agree_with_the_expectation(mode, one):
    policy = Stopping(mode=mode, right=0.4, hazard_right=0.2, hazard_wrong=0.1, cap=8)
    training = Training(prompts=2, samples=4)
    sampled = -first_gradient(one, policy, training, seeds=4000)
    error = sampled.std(0) / math.sqrt(len(sampled))
    expected = expected_gradient(one, policy.start()[0], policy, training)
    assert ((sampled.mean(0) - expected).abs() <= 4 * error + 1e-15).all()


def test_token_means_drift_less_the_more_completions_share_the_denominator():
    # s = .1, p = 1/2, no std; drifts from 200 000 sampled groups, written down before this code: sequence mean .0342 at G = 8,
    # prompt scope .0082, .0027, .0004 at G = 2, 8, 64. Like for like that is 42 % of the sequence mean's .0195 at G = 2, and 8 %, 1 %.
    policy = Stopping(mode="environment", hazard_right=0.1, hazard_wrong=0.1, cap=128)

    def drift(aggregation, prompts, samples):
        one = UNSCALED.but("x", aggregation=aggregation)
        return expected_gradient(
            one, policy.start()[0], policy, Training(prompts=prompts, samples=samples)
        )[0].item()

    whole = {g: drift(agg.sequence_mean, 1, g) for g in (2, 8, 64)}
    token = {g: drift(agg.prompt_token_mean, 1, g) for g in (2, 8, 64)}
    assert whole[8] == pytest.approx(0.0342, abs=2e-4)
    assert list(token.values()) == pytest.approx([0.0082, 0.0027, 0.0004], abs=1e-4)
    assert [token[g] / whole[g] for g in token] == pytest.approx([0.42, 0.08, 0.01], abs=0.006)
    assert drift(agg.step_token_mean, 16, 8) / whole[8] == pytest.approx(0.004, abs=0.002)


# --- what the biases do ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained() -> dict[str, pd.DataFrame]:
    recipes, training = [GRPO, CONSTANT], Training(steps=60, learning_rate=2.0, every=20)
    return {
        mode: stopping.train(
            recipes, Stopping(mode=mode), training, seeds=8, learning_rates={"constant": 10.0}
        )
        for mode in ("learnable", "slip")
    }


@pytest.mark.parametrize("mode", ["learnable", "slip"])
def test_sequence_mean_shortens_right_and_lengthens_wrong_completions(trained, mode):
    table = trained[mode]
    start = Stopping(mode=mode)
    first = stopping.length_given_branch(start.start()[0, :2], start)
    right, wrong = (
        interval(torch.tensor(end(table, "sequence_mean", f"length_{b}")) - x)
        for b, x in zip(("right", "wrong"), first, strict=True)
    )
    assert right.high < 0 < wrong.low
    assert interval(end(table, "sequence_mean", "stop_gap")).low > 0
    gap = interval(end(table, "constant", "gap"))
    assert holds_zero(gap)
    assert abs(gap.mean) < 0.1 * interval(end(table, "sequence_mean", "gap")).mean
    assert interval(end(table, "constant", "pass_rate")).low > (0.8 if mode == "learnable" else 0.7)


def test_the_sampled_run_follows_the_expected_flow(trained):
    exact = flow([GRPO], Stopping(), Training(steps=60, learning_rate=2.0, every=20))
    for column, tolerance in (("pass_rate", 0.01), ("stop_right", 0.15), ("stop_wrong", 0.15)):
        assert interval(end(trained["learnable"], "sequence_mean", column)).mean == pytest.approx(
            end(exact, "sequence_mean", column)[0], abs=tolerance
        )


def test_placebo_rewards_teach_nothing():
    training = Training(steps=60, learning_rate=1.0, placebo=True, every=60)
    table = stopping.train(GRPO, Stopping(), training, seeds=16)
    for column in ("gap", "stop_gap"):
        assert holds_zero(interval(end(table, "sequence_mean", column)))
    assert holds_zero(interval([x - 0.5 for x in end(table, "sequence_mean", "pass_rate")]))


def test_gradient_clipping_makes_even_a_constant_lengthen_wrong_completions():
    # a constant has no drift in expectation, but clipping shrinks the large gradients, those of long completions
    policy, training = (
        Stopping(mode="environment"),
        Training(steps=150, learning_rate=25.0, every=50),
    )
    free = stopping.train(CONSTANT, policy, replace(training, learning_rate=5.0), seeds=24)
    bound = stopping.train(CONSTANT, policy, replace(training, max_norm=0.0008), seeds=24)
    assert holds_zero(interval(end(free, "constant", "stop_gap")))
    assert interval(end(bound, "constant", "stop_gap")).low > 0
    assert (free["norm_clipped"].dropna() == 0).all()
    assert bound["norm_clipped"].mean() > 0.5


def test_ablation_length_comes_from_the_aggregation_and_difficulty_from_the_scale():
    table = ablate(seeds=8)
    assert len(table) == (4 + 2) * 5
    rows = table.set_index(["aggregation", "scale", "outcome"])
    assert rows.loc[("sequence_mean - constant", "both", "length_gap"), "low"] > 0
    assert rows.loc[("both", "group_std - unscaled", "hard_over_medium"), "low"] > 0
    low, high = rows.loc[("sequence_mean - constant", "both", "hard_over_medium"), ["low", "high"]]
    assert low < 0 < high
    for scale in ("group_std", "unscaled"):
        assert rows.loc[("sequence_mean", scale, "length_gap"), "low"] > 0
        low, high = rows.loc[("constant", scale, "length_gap"), ["low", "high"]]
        assert low < 0 < high
    with pytest.raises(ValueError, match="at least 5"):
        ablate(seeds=3)
    with pytest.raises(ValueError, match="hard prompts"):
        ablate(Stopping(right=(0.4,) * 2), Training(steps=1, prompts=2, samples=4), seeds=5)


def test_truncation_as_failure_shortens_the_long_right_mode():
    table = overlong.overlong(training=Training(steps=80, learning_rate=2.0, every=80), seeds=6)
    ends = {name: interval(end(table, name, "length_right")) for name in overlong.TREATMENTS}
    # ignored: reward does not look at length, so the length stays; every treatment shortens, masking too: what is left of the
    # right completions is short (reported as it comes out; the wrong ones grow under the mask)
    assert abs(ends["ignored"].mean - 20.6) < 0.5
    assert ends["failure"].high < ends["mask"].low < ends["mask"].high < ends["ignored"].low
    wrong = {name: interval(end(table, name, "length_wrong")) for name in overlong.TREATMENTS}
    assert wrong["mask"].low > wrong["ignored"].high
    assert wrong["soft"].high < wrong["ignored"].low


# --- the batched program --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [n for n, one in RECIPES.items() if n != "remax" and not one.lacking(ABSENT)]
)
def test_all_seeds_at_once_equal_each_seed_alone(name):
    # balanced and reinforce++ cannot be batched by vmap and fall back to a loop: the same numbers again
    training = replace(SMALL, updates=2, micro_batches=2, max_norm=0.3)
    together = stopping.train(recipe(name), Stopping(cap=6), training, seeds=[3, 1])
    for seed in (3, 1):
        alone = stopping.train(recipe(name), Stopping(cap=6), training, seeds=[seed])
        mine = together.loc[together["seed"] == seed].reset_index(drop=True)
        pd.testing.assert_frame_equal(mine, alone, rtol=0, atol=1e-12)


def test_the_batched_program_equals_a_plain_loop_with_backward():
    policy, training = (
        Stopping(mode="slip", cap=6),
        replace(SMALL, updates=3, optimizer="adamw", learning_rate=0.05),
    )
    table = stopping.train(recipe("grpo"), policy, training, seeds=[7])
    source, start = torch.Generator().manual_seed(7), policy.start()[0]
    theta = start.clone().requires_grad_()
    optimiser = torch.optim.AdamW([theta], lr=0.05, betas=(0.9, 0.95), weight_decay=0.0)
    for _ in range(training.steps):
        batch = stopping.draw(theta.detach()[None], policy, training, [source])
        actions = tuple(a[0] for a in batch.actions)
        log_probs = partial(stopping.logp_of, policy, 4)
        old, ref = (log_probs(t, actions).detach() for t in (theta, start))
        for _ in range(3):
            optimiser.zero_grad()
            rollouts = Rollouts(
                logp=log_probs(theta, actions),
                mask=batch.mask[0],
                reward=batch.reward[0],
                group=training.group,
                old_logp=old,
                ref_logp=ref,
                max_new_tokens=6,
            )
            recipe("grpo").loss(rollouts).backward()
            optimiser.step()
    last = table.iloc[-1]
    torch.testing.assert_close(
        torch.tensor([last.stop_right, last.stop_wrong, last.attempt]),
        theta.detach(),
        rtol=0,
        atol=1e-12,
    )


def test_the_draw_is_a_fair_token_by_token_sample():
    policy, training = (
        Stopping(mode="slip", right=0.6, slip=0.3, hazard_right=0.3, hazard_wrong=0.1, cap=5),
        Training(prompts=500, samples=8),
    )
    rollouts = stopping.rollouts(policy, training, seed=1)
    right = rollouts.reward == 1
    assert right.double().mean().item() == pytest.approx(0.6 * 0.7, abs=0.03)
    for side, s in ((right, 0.3), (~right, 0.1)):
        lengths = rollouts.lengths[side].double()
        # the branch token, then n decisions at most 4: E = 1 + (1 - (1-s)^4)/s
        assert lengths.mean().item() == pytest.approx(1 + (1 - (1 - s) ** 4) / s, abs=0.1)
        assert rollouts.truncated[side].double().mean().item() == pytest.approx(
            (1 - s) ** 4, abs=0.03
        )
    # log-probs are those of the tokens: a completion's total is the product of its decisions
    i = int((right & (rollouts.lengths == 3) & ~rollouts.truncated).nonzero()[0])
    slips = rollouts.logp[i][rollouts.mask[i]].tolist()
    assert slips == pytest.approx([math.log(0.6), math.log(0.7), math.log(0.3)])


# --- options that act -----------------------------------------------------------------------------------------------------


def test_the_clip_acts_from_the_second_update_on():
    once = arms.train(
        clip_recipes([0.2]), training=Training(steps=3, samples=16, learning_rate=8.0), seeds=5
    )
    assert (once["clip_fraction"].dropna() == 0).all()
    several = arms.train(
        clip_recipes([0.2, 0.4]),
        training=Training(steps=3, samples=16, learning_rate=8.0, updates=8),
        seeds=5,
    )
    tight, wide = (several.loc[several["recipe"] == f"eps_high={e}"] for e in (0.2, 0.4))
    assert (tight["clip_fraction"].dropna() > 0).all()
    assert tight["clip_up"].mean() > wide["clip_up"].mean()
    both = several["clip_up"] + several["clip_down"] - several["clip_fraction"]
    assert both.dropna().abs().max() < 1e-12
    soft = arms.train(
        recipe("sapo"), training=Training(steps=2, learning_rate=8.0, updates=8), seeds=2
    )
    assert (soft["clip_fraction"].dropna() == 0).all()


def test_arms_start_where_the_setting_says():
    setting = Arms(arms=4, right=1, spread=0.0)
    table = arms.train(clip_recipes([0.2]), setting, Training(steps=1, prompts=3), seeds=2)
    assert table["entropy"].iloc[0] == pytest.approx(math.log(4))
    assert table["pass_rate"].iloc[0] == pytest.approx(0.25)


def test_group_size_cap_and_micro_batches_matter():
    policy = Stopping(mode="environment", cap=16)
    drift = {
        g: expected_gradient(PROMPT, policy.start()[0], policy, Training(samples=g))[0].item()
        for g in (2, 32)
    }
    assert drift[2] > 2 * drift[32]
    short = expected_gradient(GRPO, Stopping(cap=4).start()[0], Stopping(cap=4), SMALL)
    long = expected_gradient(GRPO, Stopping(cap=64).start()[0], Stopping(cap=64), SMALL)
    assert not torch.allclose(short, long, rtol=0.05)
    one, row = (
        first_gradient(recipe("bnpo"), policy, replace(SMALL, micro_batches=m), seeds=2)
        for m in (1, 8)
    )
    assert not torch.allclose(one, row)
    torch.testing.assert_close(
        row, first_gradient(GRPO, policy, SMALL, seeds=2)
    )  # one completion each: the sequence mean


def test_adamw_moves_a_constant_as_far_whatever_the_scale():
    policy, training = (
        Stopping(cap=8),
        Training(steps=20, learning_rate=0.02, optimizer="adamw", every=20),
    )
    tenth = GRPO.but("tenth", aggregation=partial(agg.constant, length=10.0))
    table = stopping.train([CONSTANT, tenth], policy, training, seeds=3)
    assert end(table, "constant", "attempt") == pytest.approx(
        end(table, "tenth", "attempt"), rel=1e-4
    )
    assert min(end(table, "constant", "attempt")) > 0.2


# --- difficulty -----------------------------------------------------------------------------------------------------------


def test_one_step_moves_each_logit_by_w_p_one_minus_p():
    # tabular, mean-centred: E[dz_q] = lr/Q · (G-1)/G · p(1-p); RLOO without the factor; G = 2 with std (ddof 0): G/(G-1) of RLOO's half
    setting = Difficulty(prompts=3, hardest=0.1, easiest=0.9, spacing="logit", buckets=3)
    training = Training(steps=1, prompts=3, samples=4, learning_rate=3.0)
    named = {"centred": (recipe("dr_grpo"), 3 / 4), "rloo": (recipe("rloo"), 1.0)}
    for name, (one, weight) in named.items():
        table = difficulty.train(one.but(name), setting, training, seeds=3000)
        for b in range(3):
            p = setting.pass_rates[b].item()
            z = torch.tensor(
                end(table, name, f"bucket_{b}"), dtype=torch.float64
            ).logit() - math.log(p / (1 - p))
            # the prompts are drawn in a random order but all of them each step
            assert abs(z.mean().item() - weight * p * (1 - p)) < 4 * z.std().item() / math.sqrt(
                len(z)
            )


def test_with_two_completions_the_std_changes_nothing_but_the_learning_rate():
    setting, training = (
        Difficulty(prompts=6, buckets=3),
        Training(steps=40, prompts=6, samples=2, learning_rate=4.0, every=10),
    )
    rates = {"sequence_mean": 4.0, "rloo": 4.0 / math.sqrt(2), "maxrl": 4.0 / math.sqrt(2)}
    table = difficulty.train(
        [GRPO, recipe("rloo"), recipe("maxrl")], setting, training, seeds=3, learning_rates=rates
    )
    for column in ("pass_rate", "bucket_0", "bucket_2"):
        assert end(table, "rloo", column) == pytest.approx(
            end(table, "sequence_mean", column), rel=1e-9
        )
        assert end(table, "maxrl", column) == pytest.approx(
            end(table, "sequence_mean", column), rel=1e-9
        )


def test_hard_prompts_gain_most_from_maxrl_then_grpo_then_rloo_at_a_large_group():
    setting, training = (
        Difficulty(prompts=20, buckets=4),
        Training(steps=150, prompts=20, samples=64, learning_rate=5.0, every=10),
    )
    recipes = [recipe("maxrl"), GRPO, recipe("rloo")]
    rates = matched_learning_rate(
        gradient_sizes(difficulty.train, recipes, setting, training, seeds=8), 5.0, "sequence_mean"
    )
    table = difficulty.train(recipes, setting, training, seeds=5, learning_rates=rates)
    ends = [interval(end(table, name, "bucket_1")) for name in ("maxrl", "sequence_mean", "rloo")]
    easy = [interval(end(table, name, "bucket_3")) for name in ("maxrl", "sequence_mean")]
    assert ends[0].mean > 0.8
    assert ends[1].low > ends[2].high
    assert easy[0].high < easy[1].low
    reached = (
        difficulty.first_reaching(table, "bucket_1", 0.5)
        .groupby("recipe")["step"]
        .apply(lambda s: s.fillna(math.inf).mean())
    )
    assert reached["maxrl"] < reached["sequence_mean"] <= reached["rloo"]


def test_dynamic_sampling_fills_the_step_and_counts_what_it_cost():
    training = Training(steps=10, prompts=8, samples=4, learning_rate=2.0)
    tables = {
        mode: difficulty.train(
            recipe("dapo(step)"),
            Difficulty(hardest=0.02, easiest=0.98, sampling=mode, rounds=500),
            training,
            seeds=5,
        )
        for mode in difficulty.SAMPLING
    }
    assert (tables["plain"]["rollouts"] == 32 * tables["plain"]["step"]).all()
    assert tables["plain"]["silent"].mean() > 0.2
    for mode in ("refill", "reroll"):
        assert (tables[mode]["silent"].dropna() == 0).all()
        assert interval(end(tables[mode], "dapo(step)", "rollouts")).low > 320
    given_up = difficulty.train(
        recipe("dapo"),
        Difficulty(hardest=1e-6, easiest=1e-6, rounds=3, sampling="refill"),
        training,
        seeds=2,
    )
    assert (given_up["silent"].dropna() == 1).all()
    assert set(given_up["rollouts"] / given_up["step"].clip(lower=1)) == {
        0.0,
        96.0,
    }  # three rounds of 8 x 4 each step


def test_rolling_the_same_prompt_again_until_it_is_mixed_pushes_every_difficulty_alike_in_pairs():
    # G = 2, mixed: A = 1/2 and -1/2, scores 1-p and -p, so dz = lr/P · (1/2)(1/2 (1-p) + 1/2 p) = lr/P · 1/4 whatever p is
    setting = Difficulty(
        prompts=4,
        hardest=0.05,
        easiest=0.95,
        spacing="logit",
        buckets=4,
        sampling="reroll",
        rounds=1000,
    )
    table = difficulty.train(
        recipe("dr_grpo"),
        setting,
        Training(steps=1, prompts=4, samples=2, learning_rate=4.0),
        seeds=2,
    )
    for b in range(4):
        gain = (
            torch.tensor(end(table, "dr_grpo", f"bucket_{b}"), dtype=torch.float64).logit()
            - setting.pass_rates[b].logit()
        )
        assert gain.tolist() == pytest.approx([0.25, 0.25], abs=1e-12)


def test_shared_parameters_move_prompts_that_were_not_drawn():
    training = Training(steps=1, prompts=1, samples=64, learning_rate=5.0)
    moved = {}
    for features in (0, 4):
        setting = Difficulty(prompts=8, hardest=0.3, easiest=0.7, features=features, buckets=8)
        table = difficulty.train(recipe("rloo"), setting, training, seeds=1)
        first, last = (table[[f"bucket_{b}" for b in range(8)]].iloc[i].to_numpy() for i in (0, 1))
        moved[features] = int((abs(last - first) > 1e-9).sum())
    assert moved[0] == 1
    assert moved[4] > 1


# --- comparison, pictures, command, errors --------------------------------------------------------------------------------


def test_intervals_by_hand():
    # 1 2 3: mean 2, sd 1, t(2) = 4.303: half width 4.303/sqrt(3) = 2.4843
    assert interval([1.0, 2.0, 3.0]) == pytest.approx((2.0, 2 - 2.4843, 2 + 2.4843, 3), abs=1e-3)
    assert t_quantile(60) == pytest.approx(2.0003, abs=1e-3)
    assert t_quantile(31) == pytest.approx(2.0395, abs=1e-3)
    table = pd.DataFrame({"recipe": "a", "seed": [0, 1, 2], "step": 0, "x": [1.0, 2.0, 3.0]})
    assert intervals(table, "x").iloc[0].tolist() == pytest.approx(
        ["a", 0, 2.0, 2 - 2.4843, 2 + 2.4843, 3], abs=1e-3
    )
    with pytest.raises(ValueError, match="expected a column of the table: recipe, seed"):
        intervals(table, "y")
    with pytest.raises(ValueError, match="at least two finite"):
        interval([1.0])


def test_matched_learning_rates_make_first_steps_equal():
    # constant against sequence mean, one length 4 and C = 8: the push is half, so the rate is double
    batch = Rollouts.from_lengths([4, 4], rewards=[1, 0], max_new_tokens=8)
    rates = matched_learning_rate(push_sizes([GRPO, CONSTANT], [batch]), 1.0)
    assert rates == pytest.approx({"sequence_mean": 1.0, "constant": 2.0})
    sizes = gradient_sizes(stopping.train, [GRPO, CONSTANT], Stopping(), Training(), seeds=8)
    sizes_at = {n: r * sizes[n] for n, r in matched_learning_rate(sizes, 3.0, "constant").items()}
    assert sizes_at["sequence_mean"] == pytest.approx(sizes_at["constant"])
    with pytest.raises(ValueError, match="dead groups"):
        matched_learning_rate({"a": 0.0}, 1.0)


def test_pictures_are_drawn_and_say_their_level_of_evidence():
    lengths = stopping.train([GRPO, CONSTANT], Stopping(cap=8), replace(SMALL, steps=3), seeds=3)
    hard = difficulty.train(
        recipe("rloo"), Difficulty(prompts=6, buckets=3), Training(steps=3, prompts=4), seeds=3
    )
    clips = arms.train(
        clip_recipes([0.2]), training=Training(steps=3, learning_rate=8.0, updates=3), seeds=3
    )
    for draw, table in (
        (length_dynamics, lengths),
        (difficulty_progress, hard),
        (clip_entropy, clips),
    ):
        figure = draw(table)
        assert figure.get_supxlabel() == "simulated, 3 seeds, 95 % interval"
        assert figure.get_suptitle()
        assert all(axis.get_xlabel() or axis.get_ylabel() for axis in figure.axes if axis.axison)
        assert len(figure.png()) > 10_000
    exact = length_dynamics(flow([GRPO, CONSTANT], Stopping(cap=8), SMALL))
    assert exact.get_supxlabel() == "exact, expected update"
    assert exact.get_suptitle() == "Wrong completions run on under: sequence_mean"
    with pytest.raises(ValueError, match="no column"):
        length_dynamics(hard)


def run(*arguments: str):
    return CliRunner().invoke(app, ["toy", *arguments])


@pytest.mark.parametrize(
    ("arguments", "columns"),
    [
        (
            ("length", "--recipe", "grpo", "--recipe", "dr_grpo", "--mode", "slip"),
            {"stop_gap", "length_wrong"},
        ),
        (("length", "--exact", "--recipe", "dapo"), {"stop_gap"}),
        (
            ("difficulty", "--prompts", "8", "--samples", "4", "--mode", "reroll"),
            {"bucket_0", "rollouts"},
        ),
        (("clip", "--eps-high", "0.2", "--updates", "2"), {"entropy", "clip_up"}),
    ],
)
def test_the_command_prints_a_table_and_writes_runs_and_picture(tmp_path, arguments, columns):
    shown = run(*arguments, "--seeds", "2", "--steps", "2", "--out", str(tmp_path / "deep"))
    assert shown.exit_code == 0, shown.output
    assert "step 2, " in shown.output
    written = sorted(path.name for path in (tmp_path / "deep").iterdir())
    assert written == [f"toy_{arguments[0]}.csv", f"toy_{arguments[0]}.png"]
    assert columns <= set(pd.read_csv(tmp_path / "deep" / written[0]).columns)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("length", "--mode", "both"),
            "mode is 'both': expected one of learnable, environment, slip.",
        ),
        (("length", "--optimizer", "lion"), "optimizer is 'lion': expected one of sgd, adamw."),
        (("length", "--recipe", "grop"), "Did you mean 'grpo'?"),
        (
            ("length", "--recipe", "remax"),
            "needs rollouts.greedy_reward, which a toy does not have",
        ),
        (
            ("length", "--exact", "--recipe", "lite_ppo"),
            "no exact expectation for the scale batch_std",
        ),
        (("difficulty", "--mode", "again"), "expected one of plain, refill, reroll."),
        (("clip", "--seeds", "0"), "seeds is 0: expected a positive number"),
        (("clip", "--recipe", "grpo", "--eps-high", "0.3"), "expected one of them"),
    ],
)
def test_a_bad_option_is_one_line_that_names_the_good_ones(arguments, said):
    shown = run(*arguments)
    assert shown.exit_code == 2
    assert said in shown.output
    assert "Traceback" not in shown.output


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Training(samples=1), "samples is 1: expected a whole number of at least 2"),
        (lambda: Training(updates=0), "updates is 0"),
        (lambda: Training(max_norm=-1.0), "max_norm is -1.0"),
        (lambda: Training(learning_rate=0.0), "learning_rate is 0.0"),
        (
            lambda: Training(prompts=1, samples=2, micro_batches=3),
            "expected at most prompts x samples = 2",
        ),
        (
            lambda: Stopping(hazard_right=0.0),
            "hazard_right is 0.0: expected a number from 1e-09",
        ),
        (lambda: Stopping(right=(0.5, 1.0)), "right[1] is 1.0"),
        (lambda: Difficulty(hardest=0.9, easiest=0.1), "0 < hardest <= easiest < 1"),
        (lambda: Difficulty(buckets=99), "buckets is 99"),
        (lambda: Arms(arms=5, right=5), "fewer than arms = 5"),
        (lambda: stopping.train([GRPO, GRPO]), "each with its own name"),
        (
            lambda: stopping.train(GRPO, Stopping(right=(0.5,) * 3), SMALL),
            "right has 3 entries but prompts is 2",
        ),
        (lambda: stopping.train(GRPO, seeds=[1, 1]), "seeds is"),
        (
            lambda: difficulty.train(GRPO, Difficulty(prompts=2, buckets=1), Training(prompts=3)),
            "the set only 2",
        ),
        (
            lambda: expected_gradient(recipe("grpo"), Stopping().start()[0], Stopping(), SMALL),
            "KL term",
        ),
        (lambda: flow(GRPO, Stopping(), replace(SMALL, optimizer="adamw")), "plain SGD on policy"),
        (lambda: flow(GRPO, Stopping(right=(0.5, 0.5)), SMALL), "one attempt logit"),
        (
            lambda: overlong.with_treatment(GRPO, "drop", 4),
            "expected one of ignored, failure, mask, soft",
        ),
        (lambda: difficulty.first_reaching(pd.DataFrame({"recipe": []}), "x"), "column is 'x'"),
    ],
)
def test_bad_settings_say_what_was_expected(make, said):
    with pytest.raises(ValueError, match="expected") as error:
        make()
    assert said in str(error.value)


def test_recipes_of_the_readers_own_run_too():
    mine = Recipe(baseline=GRPO.baseline, surrogate=CLIP, aggregation=agg.token_sum, name="mine")
    table = stopping.train(mine, Stopping(cap=5), replace(SMALL, learning_rate=0.01), seeds=2)
    assert table["gradient_norm"].iloc[0] > 0
