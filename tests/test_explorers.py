"""The explorers without a browser: their JavaScript against the library, their traits, their
pictures, their pages."""

import base64
import json
import math
import random
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
import torch
import traitlets

pytest.importorskip("anywidget", reason="the explorer needs anywidget")

from batches import batch
from typer.testing import CliRunner

import grpo_edu
from grpo_edu import Push
from grpo_edu.cli import app
from grpo_edu.objective import corrections, kl, rewards, surrogates
from grpo_edu.objective.advantages import decoupled_rewards, given
from grpo_edu.objective.aggregation import step_token_mean, token_sum
from grpo_edu.objective.axes import run, settings
from grpo_edu.objective.filters import drop_raw_dead_groups
from grpo_edu.objective.surrogates import ppo_clip
from grpo_edu.theory.clip import pushes
from grpo_edu.weights import split
from grpo_edu.widgets import clip, difficulty
from grpo_edu.widgets.advantage import AdvantageExplorer
from grpo_edu.widgets.aggregation import OFFERED, AggregationExplorer
from grpo_edu.widgets.base import spec, static
from grpo_edu.widgets.clip import ClipExplorer
from grpo_edu.widgets.dapo import DapoExplorer
from grpo_edu.widgets.difficulty import DifficultyExplorer
from grpo_edu.widgets.estimators import ESTIMATORS
from grpo_edu.widgets.explorers import EXPLORERS
from grpo_edu.widgets.kl import KLExplorer
from grpo_edu.widgets.step import STEPPED, StepExplorer
from grpo_edu.widgets.stepper import PRESETS, Stepper
from grpo_edu.widgets.toy import ToyPlayer

NODE = shutil.which("node")
RUN = """
import fs from "node:fs";
const { script, states } = JSON.parse(fs.readFileSync(0, "utf8"));
const found = await import("data:text/javascript;base64," + Buffer.from(script).toString("base64"));
const answer = found.texts ?? found.answer;
const tried = (state) => { try { return answer(state); } catch (error) { return { error:
error.message }; } };
process.stdout.write(JSON.stringify(states.map(tried)));
"""


def javascript(states, kind=AggregationExplorer):
    """What the formula of an explorer's page says for each state."""
    return answers(str(kind._esm), states)


def answers(script, states):
    """``answer`` of a JavaScript module for each state."""
    if NODE is None:
        pytest.skip("node is not installed")
    command = [NODE, "--input-type=module", "-e", RUN]
    given = json.dumps({"script": script, "states": states}, allow_nan=False)
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-800:]
    return json.loads(done.stdout)


def padded(rows, width):
    """Lists of unequal length as float64 [N, width], 0 after the end."""
    return torch.tensor([[*row, *[0.0] * (width - len(row))] for row in rows], dtype=torch.float64)


def state_of(explorer, **changes):
    return explorer.state() | changes


def random_explorer(seed):
    """1 or 2 prompts, lengths from 1, rewards with many ties, ratios on both sides of every
    clip."""
    r = random.Random(seed)
    prompts = 1 + seed % 2
    n = r.randint(2 * prompts, 8)
    group = [i * prompts // n for i in range(n)]
    kind = r.choice([[0.0, 1.0], [0.0, 1.0], [0.0, 0.25, 0.7, 1.0], [0.7]])
    rewards = [r.choice(kind) for _ in range(n)]
    if seed % 5 == 0:
        rewards = [
            0.7 if g == 0 else x for g, x in zip(group, rewards, strict=True)
        ]  # the first prompt is dead
    lengths = [r.choice([1, r.randint(1, 64)]) for _ in range(n)]
    own = [[r.choice([1.0, r.uniform(0.1, 9.0)]) for _ in range(length)] for length in lengths]
    return AggregationExplorer(
        lengths=lengths,
        rewards=rewards,
        group=group,
        ratio=[r.choice([1.0, r.uniform(0.5, 2.0), row]) for row in own],
        old=r.uniform(0.01, 0.11),
        greedy=r.choice([True, False]),
        eps_low=r.choice([None, r.uniform(0, 0.6)]),
        eps_high=r.choice([None, r.uniform(0, 0.6)]),
        length_limit=r.randint(64, 512),
        micro_batches=r.randint(1, n),
    )


def random_rewards(seed):
    """An AdvantageExplorer: 1 or 2 prompts of 2 to 8 completions, many ties, dead prompts."""
    r, prompts = random.Random(seed), 1 + seed % 2
    n = r.randint(2 * prompts, 16)
    kind = r.choice([[0.0, 1.0], [0.0, 1.0], [-1.0, 1.0], [0.0, 0.25, 0.7, 1.0], [0.7]])
    return AdvantageExplorer(
        [r.choice(kind) for _ in range(n)],
        [r.randint(1, 64) for _ in range(n)],
        [i * prompts // n for i in range(n)],
        ddof=r.randint(0, 1),
        eps=r.choice([0.0, 1e-4, 0.1]),
        k=r.randint(1, 4),
        greedy=r.choice([True, False]),
    )


def test_every_estimator_of_the_advantage_explorer_is_the_librarys():
    explorers = [random_rewards(seed) for seed in range(60)]
    refused = 0
    for explorer, got in zip(
        explorers, javascript([e.state() for e in explorers], AdvantageExplorer), strict=True
    ):
        assert [line["name"] for line in got] == list(ESTIMATORS)
        for line in got:
            if "error" in line:
                with pytest.raises(ValueError, match="k = "):
                    explorer.advantages(line["name"])
                refused += 1
                continue
            want = explorer.advantages(line["name"])
            torch.testing.assert_close(
                torch.tensor(line["advantage"], dtype=torch.float64), want, rtol=1e-12, atol=1e-12
            )
            assert line["sum"] == pytest.approx(want.sum().item(), abs=1e-12)
    assert refused > 0


def test_a_group_of_one_has_an_advantage_only_where_nobody_is_compared():
    answers = {
        line["name"]: line
        for line in javascript([AdvantageExplorer([1], greedy=False).state()], AdvantageExplorer)[0]
    }
    assert answers["none"]["advantage"] == answers["greedy"]["advantage"] == [1]
    assert {name for name, line in answers.items() if "group size 1" in line.get("error", "")} == {
        "mean", "mean/std", "others", "others/std", "batch std", "whiten", "maxrl", "opo", "gpg",
    }  # fmt: skip


def test_a_lone_success_of_four_by_hand():
    answers = {
        line["name"]: line.get("advantage")
        for line in javascript([AdvantageExplorer().state()], AdvantageExplorer)[0]
    }
    assert answers["mean"] == [0.75, -0.25, -0.25, -0.25]
    assert answers["mean/std"] == pytest.approx(
        [1.5, -0.5, -0.5, -0.5], rel=1e-14
    )  # std, ddof 1: 1/2
    assert answers["others"] == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3], rel=1e-14)
    assert answers["maxrl"] == [3, -1, -1, -1]
    # with k = 2: right 2; wrong 2·(1 - C(2,1)/C(3,1)) = 2/3
    assert answers["pass@k"] == pytest.approx([2, 2 / 3, 2 / 3, 2 / 3], rel=1e-14)


def test_the_curves_of_the_difficulty_explorer_are_the_librarys():
    r = random.Random(0)
    explorers = [
        DifficultyExplorer(
            names, r.uniform(0.01, 0.99), r.choice([2, 3, 8, 24]), frame=r.choice(difficulty.FRAMES), ddof=r.randint(0, 1), eps=0.01, k=2
        )
        for names in (difficulty.OFFERED[:4], difficulty.OFFERED[4:8], difficulty.OFFERED[6:10])
        for _ in range(4)
    ]  # fmt: skip
    for explorer, got in zip(
        explorers, javascript([e.state() for e in explorers], DifficultyExplorer), strict=True
    ):
        for line in got["lines"]:
            assert line["w"] == pytest.approx(explorer.weight(line["name"]), rel=1e-12, abs=1e-12)
            assert line["h"] == pytest.approx(
                explorer.objective(line["name"]), rel=1e-12, abs=1e-12
            )
            assert line["weight"][49] == pytest.approx(
                explorer.weight(line["name"], got["ps"][49]), rel=1e-12, abs=1e-12
            )
        assert got["silent"] == pytest.approx(
            explorer.p**explorer.size + (1 - explorer.p) ** explorer.size, rel=1e-13
        )


def test_pass_at_k_larger_than_the_group_is_refused_on_its_own_line():
    got = javascript(
        [DifficultyExplorer(["mean", "pass@k"], size=4, k=5).state()], DifficultyExplorer
    )[0]
    assert got["lines"][0]["w"] == pytest.approx(0.75, rel=1e-14)  # (G-1)/G
    assert got["lines"][1]["error"] == "k is 5: expected at most 4, the completions of a prompt."


def random_clip(seed):
    r = random.Random(seed)
    return ClipExplorer(
        list(clip.OFFERED)[seed % 3 : seed % 3 + 4], r.choice([1, -1]), r.uniform(0.05, 4.0), eps_low=r.uniform(0, 0.6),
        eps_high=r.uniform(0, 0.6), cap=r.uniform(1, 3), high=r.uniform(0.5, 3), tau_pos=r.uniform(0.5, 2), tau_neg=r.uniform(0.5, 2),
    )  # fmt: skip


def test_gradient_and_objective_of_the_clip_explorer_are_the_librarys():
    explorers = [random_clip(seed) for seed in range(60)]
    seen = set()
    for explorer, got in zip(
        explorers, javascript([e.state() for e in explorers], ClipExplorer), strict=True
    ):
        for line in got["lines"]:
            assert line["push"] == pytest.approx(explorer.push(line["name"]), rel=1e-12, abs=1e-15)
            seen.add((line["name"], line["push"] == 0))
            if line["name"] not in ("CISPO", "REINFORCE"):
                assert line["value"] == pytest.approx(
                    value(explorer, line["name"]), rel=1e-12, abs=1e-15
                )
    assert {("PPO clip", True), ("PPO clip", False), ("dual clip", True)} <= seen


def value(explorer, name):
    """The surrogate itself, one token."""
    old = torch.full((1, 1), -1.0, dtype=torch.float64)
    logp = old + torch.tensor(explorer.ratio, dtype=torch.float64).log()
    inputs = {"logp": logp, "old_logp": old, "mask": torch.ones(1, 1, dtype=torch.bool)}
    return run(
        explorer.surrogate(name), {**inputs, "advantage": torch.full_like(old, explorer.advantage)}
    ).item()


@pytest.mark.parametrize("name", ["CISPO", "REINFORCE"])
@pytest.mark.parametrize("advantage", [1, -1])
def test_where_the_ratio_is_detached_the_drawn_objective_is_the_integral_of_the_gradient(
    name, advantage
):
    places = [0.3, 0.9, 1.4, 3.1]
    states = [ClipExplorer([name], advantage, ratio, high=1.3).state() for ratio in places]
    values = [got["lines"][0]["value"] for got in javascript(states, ClipExplorer)]
    for i in range(3):  # Simpson in log ratio, cut at the kink
        cuts = sorted(
            {places[i], places[i + 1], *[c for c in (1.3,) if places[i] < c < places[i + 1]]}
        )
        work = sum(
            simpson(ClipExplorer([name], advantage, high=1.3).surrogate(name), a, b, advantage)
            for a, b in pairwise(cuts)
        )
        assert values[i + 1] - values[i] == pytest.approx(work, abs=1e-10)


def simpson(choice, low, high, advantage, parts=400):
    at = torch.linspace(0, 1, parts + 1, dtype=torch.float64)
    logs = math.log(low) * (1 - at) + math.log(high) * at
    push = pushes(choice, logs.exp(), float(advantage))
    factor = torch.tensor([1, *[4, 2] * (parts // 2 - 1), 4, 1], dtype=torch.float64)
    return ((push * factor).sum() * (logs[-1] - logs[0]) / parts / 3).item()


@pytest.mark.parametrize("kind", EXPLORERS.values(), ids=EXPLORERS)
def test_every_explorer_shows_a_png_where_no_widget_runs_and_names_its_state(kind):
    explorer = kind()
    data, _ = explorer._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert data["text/plain"].startswith(f"{kind.__name__}({kind.SHOWN[0]}=")


def test_what_is_not_offered_is_refused_by_name():
    with pytest.raises(ValueError, match="does not draw 'std': expected schemes out of none, mean"):
        DifficultyExplorer(["std"])
    with pytest.raises(
        ValueError, match="does not draw 'gspo': expected surrogates out of PPO clip"
    ):
        ClipExplorer(["gspo"])
    with pytest.raises(traitlets.TraitError):
        ClipExplorer(advantage=2)


@pytest.mark.filterwarnings(
    "ignore::grpo_edu.RecipeWarning"
)  # a wide clip on GSPO is one of the things to explore
def test_javascript_and_the_library_give_the_same_push_and_share_for_every_offered_recipe():
    explorers = [random_explorer(seed) for seed in range(30)]
    answers = javascript([state_of(explorer, recipes=list(OFFERED)) for explorer in explorers])
    seen = {"clipped": 0, "uneven": 0, "dead": 0, "two prompts": 0, "length 1": 0}
    for explorer, answer in zip(explorers, answers, strict=True):
        for name, got in zip(OFFERED, answer, strict=True):
            assert got["name"] == name
            push = Push.of(explorer.recipe(name), explorer.rollouts(), explorer.micro_batch())
            inside = push.plan.mask
            has_sign = inside & (
                push.factors["advantage"].abs() > 1e-14
            )  # else either gate is right
            for key in ("advantage", "W", "ratio", "gate", "push"):
                want = push.token if key == "push" else push.factors[key]
                where = has_sign if key == "gate" else inside
                found = padded(got[key], inside.shape[1])[where]
                torch.testing.assert_close(found, want[where].double(), rtol=1e-12, atol=1e-14)
            outside = explorer.rollouts().mask & ~inside  # a filter took these out
            assert not padded(got["push"], inside.shape[1])[outside].any()
            share = push.share.sum(dim=1).tolist()
            assert got["share"] == pytest.approx(share, rel=1e-12, abs=1e-13)
            seen["clipped"] += any(map(any, got["clipped"]))
            seen["uneven"] += any(len(set(row)) > 1 for row in got["push"])
            seen["dead"] += any(got["dead"])
        seen["two prompts"] += len(set(explorer.group)) == 2
        seen["length 1"] += 1 in explorer.lengths
    assert min(seen.values()) >= 5, seen


# --- the push of every token: every recipe, every kind of batch ------------------------------------

RATIO_LIMITS = (20.0, -20.0, 25.0, -25.0, 0.0)
OBJECTIVE = static("objective.js") + "export const answer = (s) => pushOf(s.spec, s.fields);"


def listed(value, mask):
    """[N, T] numbers as lists of each completion's tokens; NaN becomes None."""
    rows = [value[i, :n].tolist() for i, n in enumerate(mask.sum(dim=1).tolist())]
    return [[None if math.isnan(x) else x for x in row] for row in rows]


def fields_of(rollouts, micro_batch):
    """Rollouts as ``pushOf`` of objective.js reads them."""
    per_token = {
        "logRatio": rollouts.logp - rollouts.old_logp,
        "logRef": rollouts.logp - rollouts.ref_logp,
        "logSampler": rollouts.old_logp - rollouts.sampler_logp,
        "logOld": rollouts.old_logp,
        "entropy": rollouts.entropy,
        "tokenReward": rollouts.token_reward,
        "value": rollouts.value,
        "given": rollouts.given_advantage,
    }
    return {
        "rewards": rollouts.reward.tolist(),
        "lengths": rollouts.lengths.tolist(),
        "group": rollouts.group.tolist(),
        "greedy": rollouts.greedy_reward.tolist(),
        "parts": [
            [None if math.isnan(x) else x for x in row] for row in rollouts.reward_parts.tolist()
        ],
        "limit": rollouts.max_new_tokens,
        "micro": micro_batch.tolist(),
        **{n: listed(x, rollouts.mask) for n, x in per_token.items() if x is not None},
    }


def wild_batch(seed):
    """A batch of every kind: dead groups, one-token completions, ratios of 1 and beyond e^±20,
    rewards of a function that does not apply."""
    kind = ("binary", "real", "dead")[seed % 3]
    width = (1, 2, 7)[seed // 3 % 3]
    rollouts = batch(
        seed, groups=1 + seed % 3, width=width, kind=kind, spread=(0.05, 0.5)[seed % 2]
    )
    r = random.Random(seed)
    logp = rollouts.logp.clone()
    old = rollouts.old_logp.clone()
    for i, t in rollouts.mask.nonzero().tolist():
        if seed % 4 == 0 and r.random() < 0.4:
            limit = r.choice(RATIO_LIMITS)
            logp[i, t] = -30.0 + max(limit, 0.0)
            old[i, t] = -30.0 - min(limit, 0.0)
    parts = rollouts.reward_parts.clone()
    parts[0, 1] = torch.nan
    return replace(rollouts, logp=logp, old_logp=old, reward_parts=parts)


def more_recipes():
    """Choices that no recipe of the catalog has, and combinations that reach further."""
    recipe = grpo_edu.recipe
    base = recipe("grpo")
    slopes = {
        n: partial(getattr(kl, n), beta=0.3)
        for n in ("k1", "k3_ratio", "k3_sequence_ratio", "k_abs")
    }
    corrections_ = {
        "importance_sampling": corrections.importance_sampling,
        "high_entropy": partial(corrections.high_entropy, part=0.5),
        "off_policy_mask": partial(corrections.off_policy_mask, delta=0.01),
        "clip_cov": partial(corrections.clip_cov, low=0.01, high=5.0, part=0.3),
        "truncated_is": partial(corrections.truncated_is, cap=1.1, low=0.9),
        "masked_is": partial(corrections.masked_is, low=0.8, high=1.2),
        "sequence_truncated_is": partial(corrections.sequence_truncated_is, cap=1.1),
        "sequence_masked_is": partial(corrections.sequence_masked_is, cap=1.1),
    }  # fmt: skip
    shaped = {
        "overlong": partial(rewards.overlong_penalty, cache=3),
        "kl_in_reward": partial(rewards.kl_in_reward, beta=0.1),
    }
    return [
        *(base.but(name, kl=choice) for name, choice in slopes.items()),
        base.but("kl_cov", kl=partial(kl.kl_cov, beta=0.3, part=0.4)),
        base.but("dppo", surrogate=partial(surrogates.dppo_tv, delta_low=0.01, delta_high=0.02, cap=1.1)),
        base.but("dppo kl", surrogate=partial(surrogates.dppo_kl, delta_low=1e-3, delta_high=2e-3, cap=1.1)),
        base.but("topr", surrogate=partial(surrogates.topr, cap=0.9)),
        base.but("k3 capped", kl=partial(kl.k3, beta=0.3, cap=0.01)),
        base.but("k2_gradient", kl=partial(kl.k2_gradient, beta=0.3, value=kl.k1)),
        base.but("own W of the KL", kl_aggregation=step_token_mean),
        *(base.but(name, correction=choice) for name, choice in corrections_.items()),
        *(recipe("gspo").but(f"gspo {n}", correction=c) for n, c in corrections_.items()),
        *(base.but(name, rewards=(choice,)) for name, choice in shaped.items()),
        base.but("dual", surrogate=surrogates.EXAMPLES["dual clip"]),
        base.but("product", surrogate=surrogates.EXAMPLES["product of ratios"]),
        recipe("gspo_token").but("cap", surrogate=partial(surrogates.gspo_token, eps_low=3e-4, eps_high=9, log_cap=0.1)),
        recipe("grpo").but("raw filter", rewards=(partial(rewards.overlong_penalty, cache=2),), filters=(drop_raw_dead_groups,)),
        recipe("gdpo").but("weights", baseline=partial(decoupled_rewards, ddof=0, eps=0.1, weights=(2.0, 0.5))),
    ]  # fmt: skip


def is_rounding(advantages):
    """True where no advantage differs from 0 by more than rounding, and one differs."""
    return 0 < max(map(abs, advantages), default=0) < 1e-14


def assert_pushes_agree(cases):
    """Every factor, push and share of [(recipe, rollouts, micro_batch)], to 1e-12. Where a filter
    took a completion out, its ratio, gate and correction are 1. An advantage that is 0 but for
    rounding has either gate."""
    states = [{"spec": spec(r), "fields": fields_of(x, m)} for r, x, m in cases]
    for (recipe, rollouts, micro_batch), got in zip(cases, answers(OBJECTIVE, states), strict=True):
        assert "error" not in got, (recipe.name, got)
        push = Push.of(recipe, rollouts, micro_batch)
        ones = torch.ones_like(push.token)
        want = {"correction": ones, **push.factors, "push": push.token, "share": push.share}
        expected = {}
        for name, value in want.items():
            absent = 1.0 if name in ("ratio", "gate", "correction") else 0.0
            value = torch.where(push.plan.mask, value.double(), absent)
            expected[name] = listed(value, rollouts.mask)
        for i in range(len(rollouts)):
            rounding = is_rounding(got["advantage"][i]) or is_rounding(expected["advantage"][i])
            for name in set(want) - ({"gate", "push", "share"} if rounding else set()):
                close = pytest.approx(expected[name][i], rel=1e-12, abs=1e-12)
                assert got[name][i] == close, (recipe.name, name, i)


@pytest.mark.filterwarnings("ignore::grpo_edu.RecipeWarning")
def test_every_factor_push_and_share_of_every_recipe_on_random_batches():
    cases = []
    for seed in range(24):
        rollouts = wild_batch(seed)
        micro_batch = split(len(rollouts), 1 + seed % 3)
        cases += [(r, rollouts, micro_batch) for r in (*grpo_edu.RECIPES.values(), *more_recipes())]
    assert_pushes_agree(cases)


LOG2 = math.log(2)  # exp(log 2) is 2 exactly
ON_BOUND = {
    "ppo_clip": partial(ppo_clip, eps_low=0.5, eps_high=1.0),
    "dual_clip": partial(surrogates.dual_clip, eps_low=0.5, eps_high=1.0, cap=2.0),
    "gspo": partial(surrogates.gspo, eps_low=0.5, eps_high=1.0),
    "gspo_token": partial(surrogates.gspo_token, eps_low=0.5, eps_high=1.0),
    "sequence_product": partial(surrogates.sequence_product, eps_low=0.5, eps_high=1.0),
    "gmpo": partial(surrogates.gmpo, eps_low=LOG2, eps_high=LOG2),
    "cispo": partial(surrogates.cispo, low=0.5, high=2.0),
}


@pytest.mark.filterwarnings("ignore::grpo_edu.RecipeWarning")
@pytest.mark.parametrize("name", ON_BOUND)
@pytest.mark.parametrize("beyond", [0.0, 1e-9])
def test_a_ratio_exactly_on_its_bound_keeps_its_gradient_in_javascript_too(name, beyond):
    zero = torch.zeros(4, 1, dtype=torch.float64)
    edge = LOG2 + beyond
    log_ratio = torch.tensor([[edge], [-edge], [0.0], [edge]], dtype=torch.float64)
    logp = log_ratio.clamp(max=0)
    old = -log_ratio.clamp(min=0)
    recipe = grpo_edu.recipe("dr_grpo").but(name, surrogate=ON_BOUND[name])
    rollouts = grpo_edu.Rollouts(
        logp=logp, old_logp=old, ref_logp=old, sampler_logp=old, mask=torch.ones(4, 1, dtype=torch.bool),
        reward=torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64), group=torch.zeros(4, dtype=torch.long),
        token_reward=zero, value=zero, given_advantage=zero, greedy_reward=zero[:, 0], reward_parts=zero, max_new_tokens=2,
    )  # fmt: skip
    assert_pushes_agree([(recipe, rollouts, torch.zeros(4, dtype=torch.long))])
    gates = Push.of(recipe, rollouts).factors["gate"][:2, 0].tolist()
    bounded = name == "cispo"  # it bounds the ratio and keeps the gradient
    assert gates == ([1.0, 1.0] if not beyond else pytest.approx([1.0 * bounded] * 2, rel=1e-8))


def test_javascript_refuses_what_the_library_refuses_and_says_why():
    explorer = AggregationExplorer(["reinforce", "grpo"], [3], [1])
    odd = grpo_edu.RECIPES["grpo"].but(name="odd", aggregation=token_sum, kl=None)
    outside = grpo_edu.Recipe(
        name="outside", baseline=given, surrogate=partial(ppo_clip, eps_low=0.2, eps_high=0.2)
    )
    unknown = AggregationExplorer([odd, outside])
    states = [
        state_of(explorer),
        state_of(explorer, length_limit=2),
        state_of(explorer, lengths=[0]),
        state_of(explorer, rewards=[1, 0]),
        state_of(explorer, micro_batches=2),
        state_of(explorer, recipes=[]),
        state_of(explorer, ratio=[[1, 2]]),
        state_of(explorer, ratio=[[1, 9, 1]], old=0.2),
        state_of(unknown),
    ]
    alone, *wrong, words = javascript(states)
    assert alone[0]["push"] == [[1, 1, 1]]  # REINFORCE needs no peers: A = r = 1, W = 1/N = 1
    assert alone[1]["error"].startswith("group size 1: no relative signal.")
    assert [w["error"].split(":")[0] for w in wrong] == [
        "C is 2",
        "length of completion 1 is 0",
        "rewards has 2 entries but there are 1 completions",
        "micro-batches is 2",
        "the choice of recipes is empty",
        "ratio of completion 1 has 2 entries but it has 3 tokens",
        "a probability of completion 1 is 1.8",
    ]
    for ratio, old, message in (
        ([[1.0, 2.0]], 0.1, "2 entries but it has 3 tokens"),
        ([[1.0, 9.0, 1.0]], 0.2, "a ratio of 9 makes a probability of 1.8"),
        ([1.0, 1.0], 0.1, "2 entries but there are 1 completions"),
    ):
        with pytest.raises(ValueError, match=message):
            AggregationExplorer(["reinforce"], [3], [1], ratio=ratio, old=old).rollouts()
    assert words[0]["error"] == "the explorer does not draw the aggregation 'token_sum'."
    assert words[1]["error"] == "this recipe needs given, which is missing."


def test_a_wrong_completion_four_times_as_long_is_pushed_a_quarter_as_hard_by_grpo_and_as_hard_by_dr_grpo():
    # one prompt, rewards 1 0 0, mean 1/3; grpo W = 1/(3·2) and 1/(3·8); dr_grpo W = 1/(3·64) on
    # both, A = -1/3
    explorer = AggregationExplorer(["grpo", "dr_grpo"], [4, 2, 8], [1, 0, 0])
    grpo, dr_grpo = javascript([state_of(explorer)])[0]
    assert grpo["push"][2] == pytest.approx([grpo["push"][1][0] / 4] * 8, rel=1e-14)
    assert dr_grpo["push"][1] == pytest.approx([-1 / 3 / 3 / 64] * 2, rel=1e-14)
    assert dr_grpo["push"][2] == pytest.approx([-1 / 3 / 3 / 64] * 8, rel=1e-14)


def test_the_traits_are_the_rollouts_the_library_sees():
    explorer = AggregationExplorer(["dapo"], [2, 5, 3], [1, 0, 0.5], ratio=1.5, length_limit=9)
    explorer.lengths = [4, 5, 1]
    rollouts = explorer.rollouts()
    assert rollouts.lengths.tolist() == [4, 5, 1]
    assert rollouts.reward.tolist() == [1, 0, 0.5]
    assert rollouts.group.tolist() == [0, 0, 0]
    assert rollouts.max_new_tokens == 9
    ratio = (rollouts.logp - rollouts.old_logp).exp()[:, 0]
    torch.testing.assert_close(ratio, torch.full((3,), 1.5, dtype=torch.float64))
    assert explorer.weights("dapo").shape == (3, 5)
    assert explorer.micro_batch().tolist() == [0, 0, 1]
    assert "(KL left out)" in explorer.specs["grpo"]["label"]
    assert explorer.recipe("grpo").kl is None


def test_a_list_of_ratios_is_one_per_token_and_old_is_where_they_start():
    explorer = AggregationExplorer(["grpo"], [2, 1], [1, 0], ratio=[[0.5, 4.0], 2.0], old=0.2)
    rollouts = explorer.rollouts()
    new = rollouts.logp.exp()[rollouts.mask].tolist()
    assert new == pytest.approx([0.1, 0.8, 0.4], rel=1e-14)
    assert rollouts.old_logp.exp()[rollouts.mask].tolist() == pytest.approx([0.2] * 3, rel=1e-14)


# right, right, wrong, wrong of 8 tokens; the first answer's token 2 is less probable, token 4 more
MOVED = [1, 0.15, 1, 6, 1, 1, 1, 1]
STRIPS = ("grpo", "gspo", "cispo", "sapo", "gmpo")


@pytest.mark.filterwarnings("ignore::grpo_edu.RecipeWarning")
def test_five_recipes_give_five_strips_for_one_answer_by_hand():
    explorer = AggregationExplorer(
        list(STRIPS[:4]), [8] * 4, [1, 0, 1, 0], ratio=[MOVED, 1.0, 1.0, 1.0]
    )
    strips = {
        r["name"]: [p / r["advantage"][0][0] / r["W"][0][0] for p in r["push"][0]]
        for r in javascript([state_of(explorer, recipes=list(STRIPS))])[0]
    }

    def soft(ratio):  # SAPO, τ = 1 for A > 0
        s = 1 / (1 + math.exp(-(ratio - 1)))
        return 4 * s * (1 - s) * ratio

    one = 0.9 ** (1 / 8)  # 0.15 · 6 = 0.9
    cut = (0.15 * math.exp(0.4)) ** (1 / 8)  # GMPO bounds the log-ratio at 0.4
    assert strips["grpo"] == pytest.approx([1, 0.15, 1, 0, 1, 1, 1, 1], rel=1e-12)
    assert strips["gspo"] == pytest.approx([one] * 8, rel=1e-12)
    assert strips["cispo"] == pytest.approx([1, 0.15, 1, 5, 1, 1, 1, 1], rel=1e-12)
    assert strips["sapo"] == pytest.approx([soft(x) for x in MOVED], rel=1e-12)
    assert strips["gmpo"] == pytest.approx([cut] * 3 + [0] + [cut] * 4, rel=1e-12)


def random_step(seed):
    r = random.Random(seed)
    policy = [r.uniform(0.05, 1) for _ in range(5)]
    token = r.randrange(5)
    least = policy[token] / sum(policy)
    return StepExplorer(
        ["grpo"],
        policy,
        token,
        r.choice([1.0, r.uniform(max(0.1, least), 1.0), r.uniform(1.0, 6.0)]),
        [r.choice([0.0, 1.0]) for _ in range(r.randint(2, 6))],
        length=r.randint(1, 16),
        learning_rate=r.uniform(0, 30),
    )


@pytest.mark.filterwarnings("ignore::grpo_edu.RecipeWarning")
def test_the_step_is_one_step_of_gradient_descent_by_autograd_for_every_recipe():
    explorers = [random_step(seed) for seed in range(12)]
    got = javascript([state_of(e, recipes=list(STEPPED)) for e in explorers], StepExplorer)
    moved = 0
    for explorer, lines in zip(explorers, got, strict=True):
        for line in lines:
            logits = explorer.logits().requires_grad_()
            rollouts = explorer.rollouts(logits)
            explorer.recipe(line["name"]).loss(rollouts).backward()
            after = (logits - explorer.learning_rate * logits.grad).softmax(0).tolist()
            assert line["after"] == pytest.approx(after, rel=1e-12, abs=1e-14), line["name"]
            assert explorer.after(line["name"]).tolist() == pytest.approx(after, rel=1e-12)
            moved += after[explorer.token] != pytest.approx(explorer.policy[explorer.token])
    assert moved > 100


def test_a_step_that_the_old_policy_cannot_have_sampled_is_refused():
    explorer = StepExplorer(["grpo"], (0.5, 0.5), ratio=0.4)
    with pytest.raises(ValueError, match=r"the old probability of the token would be 1\.25"):
        explorer.rollouts()
    wrong = javascript([explorer.state()], StepExplorer)[0]["error"]
    assert wrong.startswith("the ratio is 0.4: expected at least 0.5")
    with pytest.raises(ValueError, match="token is 7: expected 0 to 4"):
        StepExplorer(token=7).rollouts()


def test_the_clip_controls_are_offsets_from_1_also_for_cispo():
    explorer = AggregationExplorer(["cispo"], eps_low=0.3, eps_high=0.4)
    assert settings(explorer.recipe("cispo").surrogate) == {"low": 0.7, "high": 1.4}
    assert settings(explorer.recipe("grpo").surrogate) == {"eps_low": 0.3, "eps_high": 0.4}
    assert settings(explorer.recipe("rloo").surrogate) == {}
    explorer.eps_low = None
    assert settings(explorer.recipe("cispo").surrogate) == {"low": 0.0, "high": 1.4}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lengths", [0]),
        ("lengths", [65]),
        ("ratio", [0.05]),
        ("ratio", [[1.0, 11.0]]),
        ("old", 1.5),
        ("token", [0]),
        ("eps_low", -0.1),
        ("recipes", ["grpo"] * 5),
    ],
)
def test_a_trait_outside_its_range_is_refused(name, value):
    with pytest.raises(traitlets.TraitError):
        setattr(AggregationExplorer(), name, value)


def test_a_recipe_that_is_not_offered_is_refused_and_a_recipe_of_your_own_is_drawn():
    with pytest.raises(
        ValueError,
        match="the explorer does not draw 'ppo': expected recipes out of reinforce, rloo",
    ):
        AggregationExplorer(["ppo"])
    own = grpo_edu.RECIPES["dr_grpo"].but(name="mine", baseline=grpo_edu.RECIPES["rloo"].baseline)
    explorer = AggregationExplorer([own], [2, 2], [1, 0])
    # leave-one-out of (1, 0) is (1, -1); W = 1/(2·64)
    push = javascript([state_of(explorer)])[0][0]["push"]
    assert push[0] == pytest.approx([1 / 128] * 2, rel=1e-14)
    assert push[1] == pytest.approx([-1 / 128] * 2, rel=1e-14)
    assert explorer.weights("mine")[0, 0].item() == pytest.approx(1 / 128, rel=1e-14)


def test_the_display_holds_the_live_widget_and_a_png_for_where_none_runs():
    data, _ = AggregationExplorer(["gspo"], eps_low=0.2)._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert "AggregationExplorer(recipes=['gspo']" in data["text/plain"]


def test_a_state_without_an_answer_displays_the_widget_without_the_picture():
    data, _ = AggregationExplorer(["grpo"], [3], [1])._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "image/png" not in data


def test_the_saved_page_calls_no_address_and_no_text_of_it_closes_a_script(tmp_path):
    nasty = grpo_edu.RECIPES["dapo"].but(name="</script><b>")
    path = AggregationExplorer([nasty]).save_html(
        tmp_path / "made" / "page.html", title="a </title> <i>"
    )
    page = path.read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\s\"'<]*", page)) <= {"http://www.w3.org/2000/svg"}
    assert "import(" in page
    assert page.count("</script>") == page.count("<script")
    assert "a &lt;/title&gt; &lt;i&gt;" in page
    state = json.loads(re.search(r'id="state">(.*?)</script>', page)[1])
    assert state["recipes"] == ["</script><b>"]
    assert [p.name for p in (tmp_path / "made").iterdir()] == ["page.html"]


def test_export_html_writes_one_page_per_explorer_and_refuses_an_unknown_name(tmp_path):
    cli = CliRunner()
    done = cli.invoke(app, ["export-html", "--out", str(tmp_path / "all")])
    assert done.exit_code == 0
    assert sorted(p.name for p in (tmp_path / "all").iterdir()) == sorted(
        f"{name}.html" for name in EXPLORERS
    )
    one = cli.invoke(app, ["export-html", "clip", "--out", str(tmp_path / "one")])
    assert [p.name for p in (tmp_path / "one").iterdir()] == ["clip.html"]
    assert str(tmp_path / "one" / "clip.html") in one.output
    wrong = cli.invoke(app, ["export-html", "clips"])
    assert wrong.exit_code == 2
    assert f"no explorer 'clips': expected one of {', '.join(EXPLORERS)}" in wrong.output


def test_kl_k1_in_the_loss_has_no_gradient_and_k2_and_k3_those_of_the_two_kls():
    got = KLExplorer(0.7, 0.3).gradients()
    # softmax: reverse p(1-p)·(log p/q - log (1-p)/(1-q)), forward p - q
    reverse = 0.7 * 0.3 * 2 * 0.8472978603872037
    assert got["k1 in the loss"] == pytest.approx(0, abs=1e-15)
    for name in ("k2 in the loss", "ratio · k3 in the loss", "k1 in the reward"):
        assert got[name] == pytest.approx(reverse, rel=1e-12)
    assert got["k3 in the loss"] == pytest.approx(0.4, rel=1e-12)


def test_values_and_pulls_of_kl_estimators_are_the_librarys():
    turned = [
        KLExplorer(p, q, beta)
        for p in (0.05, 0.3, 0.5, 0.95)
        for q in (0.05, 0.5, 0.8)
        for beta in (0.01, 1.0)
    ]
    for explorer, got in zip(
        turned, javascript([state_of(e) for e in turned], KLExplorer), strict=True
    ):
        near = {"rel": 1e-12, "abs": 1e-14}
        assert got["gradients"] == pytest.approx(explorer.gradients(), **near)
        assert got["truths"] == pytest.approx(explorer.true_gradients(), **near)
        for name, line in explorer.values().items():
            assert got["values"][name] == pytest.approx(line, **near)
        assert got["reverse"] == pytest.approx(explorer.values()["k1"][2], **near)


def test_dapo_shows_one_change_at_a_time_with_the_librarys_numbers():
    turned = [
        DapoExplorer(eps_high=0.28),
        DapoExplorer(part="dynamic sampling", p=0.5, size=2),
        *(DapoExplorer(part="token mean", longest=n) for n in (8, 56, 512)),
        DapoExplorer(part="overlong penalty", cache=4096),
    ]
    reach, sampling, *means, overlong = javascript([state_of(e) for e in turned], DapoExplorer)
    assert "a token at 0.01 may rise to 0.0128, one at 0.5 to 0.64" in reach["sentence"]
    assert "50 % of the groups are live, so 2 are sampled" in sampling["sentence"]
    for explorer, got in zip(turned[2:5], means, strict=True):
        shares = {line["name"]: line["value"] for line in got["bars"]}
        assert shares == pytest.approx(explorer.shares(), rel=1e-12)
    # 56 of 112 tokens; in its prompt 56 of 80, half the step
    assert list(turned[3].shares().values()) == pytest.approx([1 / 8, 56 / 80 / 2, 56 / 112])
    assert "starts at 16384 tokens" in overlong["sentence"]
    (plot,) = overlong["plots"]
    penalty = dict(zip(plot["x"]["values"], plot["lines"][0]["values"], strict=True))
    assert [penalty[0], penalty[20480]] == [0, -1]
    titles = [explorer.figure().get_suptitle() for explorer in turned]
    assert "may rise to 0.0128, one at .5 to 0.64" in titles[0]
    assert len(set(titles)) == len(titles)


def test_the_toy_starts_where_lengths_are_equal_and_grpo_lengthens_the_wrong_ones():
    player = ToyPlayer(["grpo", "rloo"])
    states = [state_of(player, step=step) for step in (0, 31, 60)]
    start, middle, end = (got["now"] for got in javascript(states, ToyPlayer))
    assert start["length_right"] == pytest.approx(start["length_wrong"], rel=1e-12)
    assert end["length_wrong"] > 1.5 * end["length_right"]
    table, _ = player.trained["grpo"]
    at_30 = table[table["step"] == 30]  # every second step is recorded
    assert middle["pass_rate"] == pytest.approx(at_30["pass_rate"].mean(), rel=1e-12)
    assert "grpo, step 0" in player.figure().get_suptitle()
    with pytest.raises(ValueError, match="recipes has 'ppo': expected names out of grpo"):
        ToyPlayer(["ppo"])


def test_a_preset_sets_its_traits_and_an_unknown_one_is_refused():
    explorer = AdvantageExplorer(preset="every answer right")
    assert explorer.rewards == [1, 1, 1, 1]
    explorer.preset = "an easy and a hard prompt"
    assert explorer.group == [0] * 4 + [1] * 4
    assert explorer.state()["presets"] == AdvantageExplorer.PRESETS
    with pytest.raises(ValueError, match="no preset 'mine': expected one of past the band"):
        clip.ClipExplorer(preset="mine")
    with pytest.raises(ValueError, match="does not draw 'mean/sd'"):
        AdvantageExplorer(estimators=["mean/sd"])


def test_the_package_does_not_load_the_widgets():
    code = "import sys, grpo_edu, grpo_edu.widgets; print(sorted({'anywidget', 'ipywidgets', 'matplotlib'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "[]"


def test_without_anywidget_the_error_names_the_extra():
    code = "import sys; sys.modules['anywidget'] = None; import grpo_edu.widgets.base"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert 'pip install "grpo-edu[notebooks]"' in done.stderr.splitlines()[-1]


# --- the stepper -----------------------------------------------------------------------------------

TEXTS = "export const texts = (s) => answer(s).map((r) => ({ name: r.name, texts: Object.fromEntries(stagesOf(s).map((key) => [key, stageText(r, s, key)])) }));"


def texts_of(states):
    """What the stepper says at each stage, for each recipe of each state."""
    return answers(str(Stepper._esm) + TEXTS, states)


def own_state(stepper):
    """The state of a stepper with the specs of its own recipes alone."""
    specs = {name: stepper.specs[name] for name in stepper.recipes}
    return stepper.state() | {"specs": specs}


def random_stepper(seed, name):
    r = random.Random(seed)
    lengths = [r.randint(1, 6) for _ in range(4)]

    def tokens(low, high):
        return [[r.uniform(low, high) for _ in range(n)] for n in lengths]

    ends = [
        [r.random() if t == n - 1 or r.random() < 0.4 else None for t in range(n)] for n in lengths
    ]
    return Stepper(
        [name], rewards=[r.choice([0, 0.5, 1]) for _ in lengths], lengths=lengths, group=[0, 0, seed % 2, seed % 2],
        old=tokens(0.1, 0.9), new=tokens(0.1, 0.9), ref=tokens(0.1, 0.9), value=tokens(0, 1), given=tokens(-1, 1),
        step_rewards=ends, parts=[[r.choice([0, 0.5, 1]), r.choice([0, 1])] for _ in lengths], greedy=[r.random()] * 4,
        token=[seed % 4, 0], max_new_tokens=9,
    )  # fmt: skip


def test_the_stepper_gives_the_librarys_push_for_every_recipe():
    cases = [(name, random_stepper(seed, name)) for name in grpo_edu.RECIPES for seed in range(4)]
    for (name, stepper), (got,) in zip(
        cases, javascript([own_state(x) for _, x in cases], Stepper), strict=True
    ):
        want = stepper.push(name)
        mask = stepper.rollouts(name).mask
        for key, value in (("push", want.token), ("share", want.share), *want.factors.items()):
            for found, row in zip(got[key], listed(value, mask), strict=True):
                assert (
                    found == pytest.approx(row, rel=1e-12, abs=1e-12) or not want.plan.mask.all()
                ), (name, key)


def evaluated(side):
    """The value of one side of an equation as the stepper writes it; None where it has words."""
    text = side.strip()
    for old, new in (
        ("·", "*"),
        ("−", "-"),
        ("√", "sqrt"),
        ("²", "**2"),
        ("^", "**"),
        (" %", "/100"),
    ):
        text = text.replace(old, new)
    if set(re.findall(r"[^\W\d]+", text)) - {"sqrt", "log", "e", "min", "max"}:
        return None
    names = {
        "sqrt": math.sqrt,
        "log": math.log,
        "e": math.e,
        "min": min,
        "max": max,
        "__builtins__": {},
    }
    return eval(text, names)


def test_every_equation_of_the_stepper_is_true_to_its_digits():
    states = [
        own_state(random_stepper(seed, name)) for name in grpo_edu.RECIPES for seed in range(6)
    ]
    states += [
        own_state(Stepper([name], preset)) for name in grpo_edu.RECIPES for preset in PRESETS
    ]
    checked = 0
    for (got,) in texts_of(states):
        for key, text in got["texts"].items():
            assert text["say"].endswith("."), (got["name"], key, text)
            assert not re.search("undefined|NaN|null|Infinity", text["math"] + text["say"]), text
            for equation in re.split(r"; | → |, (?=[^\d(]*=)", text["math"]):
                left = re.split(" [<>≤≥] | is between ", equation)[0]
                values = [evaluated(side) for side in left.split(" = ")]
                values = [value for value in values if value is not None]
                tolerance = 6e-3 if key == "share" else 6e-4
                for value in values[1:]:
                    close = pytest.approx(values[0], rel=3e-3, abs=tolerance)
                    assert value == close, (got["name"], key, text["math"])
                    checked += 1
    assert checked > 1000


def test_the_stepper_says_why_gspo_cuts_a_whole_answer_and_grpo_one_token():
    grpo, gspo = texts_of([Stepper(("grpo", "gspo")).state()])[0]
    # s = (1.5 · .7)^(1/4) = 1.0123
    assert (
        gspo["texts"]["gate"]["math"]
        == "s = (1.5 · 1 · 1 · 0.7)^(1/4) = 1.012 > 1 + 0.0004, A > 0 → g = 0"
    )
    assert "All 4 tokens share this one ratio" in gspo["texts"]["gate"]["say"]
    assert grpo["texts"]["gate"]["math"] == "ρ = 1.5 > 1 + 0.2, A > 0 → g = 0"
    assert "Only this token gets gate 0" in grpo["texts"]["gate"]["say"]
    assert grpo["texts"]["centred"]["math"] == "r − mean = 1 − 1/4 = 3/4"
    assert grpo["texts"]["advantage"]["math"] == "A = (3/4) / (1/2) = 1.5"
    assert grpo["texts"]["W"]["math"] == "W = 1/4 · 1/4 = 0.0625"


def test_a_stepper_refuses_what_it_does_not_have():
    with pytest.raises(
        ValueError, match="no preset 'none': expected one of one right answer of four"
    ):
        Stepper(preset="none")
    with pytest.raises(ValueError, match="does not draw 'grop'"):
        Stepper(["grop"])
    with pytest.raises(traitlets.TraitError):
        Stepper(old=[[1.5]])
    state = Stepper(["grpo"], rewards=[1, 0], lengths=[2, 2]).state()
    assert (
        javascript([state | {"token": [0, 2]}], Stepper)[0]["error"]
        == "the token is 3: expected 1 to 2, the length of answer 1."
    )
