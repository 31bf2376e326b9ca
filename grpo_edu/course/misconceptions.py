"""The questions: eleven misconceptions met in public, each with a run that refutes it, and five
configs to read.

``source`` says where the misconception was met. Every right number is computed by the library from
the numbers of the student.
"""

from __future__ import annotations

import random
from functools import partial

import torch
from torch import Tensor

from ..objective import kl
from ..objective.surrogates import ppo_clip
from ..theory.clip import pushes
from ..theory.kl import in_loss, reverse
from ..theory.length import sequence_mean_drift, token_mean_drift
from .questions import MultipleChoice, Name, Number, Posed, Question, options

AGGREGATIONS = (
    "sequence_mean",
    "step_token_mean",
    "prompt_token_mean",
    "micro_batch_token_mean",
    "constant",
    "constant_sum",
)
SCALES = ("unscaled", "group_std", "batch_std", "leave_one_out_std")
BASELINES = ("no_baseline", "group_mean", "leave_one_out", "batch_mean")
KLS = ("none", "k1", "k2", "k3", "kl_in_reward")


# --- predict, run, explain ------------------------------------------------------------------------


def longer_answers(source: random.Random) -> Posed:
    short = source.randint(3, 9)
    times = source.choice([3, 5, 6, 8])
    text = (
        f"Two wrong answers of one prompt, {short} and {short * times} tokens, both with advantage "
        f"-1. The loss is GRPO's: each completion is "
        "averaged over its own tokens. **Predict** which one's tokens are pushed down harder, then "
        "run."
    )
    right = "the push on a token shrinks with the length, the push on the whole completion does not"
    wrong = {
        "longer answers get more gradient": "it confuses the sum of token losses with their mean: "
        "1/|o| divides exactly what length adds",
        "the reward is divided by the length": "the advantage of both is the same; it is the "
        "weight of a token that shrinks",
        "both get the same push on every token, since the mean is fair": "equal is the share of a "
        "completion, not the push "
        "on a token",
    }
    return Posed(
        text,
        {"lengths": [short, short * times]},
        (
            Number(
                "How many times as hard is a token of the **long** answer pushed as a token of the "
                "short one?",
                1 / times,
                {
                    "upside down: this is short over long": times,
                    "that is the share of the whole completion, or a constant normaliser": 1.0,
                },
            ),
            MultipleChoice("Which statement does the run support?", options(source, right, wrong)),
        ),
    )


def loss_zero(source: random.Random) -> Posed:
    good, bad = source.choice([(10, 40), (8, 72), (20, 30), (5, 45), (12, 36)])
    text = (
        f"On policy, two completions of one prompt: {good} tokens with advantage +1, {bad} tokens "
        f"with advantage -1. "
        "**Predict** the value of the loss under the sequence mean and under the token mean, then "
        "run."
    )
    total = good + bad
    right = "a loss of 0 is two pushes that cancel in the value; each token is still pushed"
    wrong = {
        "a loss of 0 means that nothing is learnt": "the gradient is weight · advantage · ∇log π, "
        "token by token; the value only adds up W·A",
        "the display rounds a very small loss": "the value is exactly 0 at ratio 1, because the "
        "advantages of a group add to 0",
        "the loss must fall below 0 before learning starts": "the sign follows length times "
        "advantage, it measures no progress",
    }
    return Posed(
        text,
        {"lengths": [good, bad]},
        (
            Number(
                "The value of the loss under the **token mean**?",
                (bad - good) / total,
                {
                    "that is the sequence mean, where the two cancel": 0.0,
                    "the sign: a loss is minus the objective": (good - bad) / total,
                    "summed, not averaged": bad - good,
                },
            ),
            MultipleChoice(
                "Under the **sequence mean** the loss is 0. What follows?",
                options(source, right, wrong),
            ),
        ),
    )


def token_mean_unbiased(source: random.Random) -> Posed:
    stop = source.choice([0.1, 0.15, 0.2])
    rows = source.choice([2, 4, 8])
    text = (
        f"Every token of a completion is the last one with probability {stop}. A length-unbiased "
        f"loss does not move the stop logit on average. "
        f"**Predict** whether the token mean over a group of {rows} moves it, then run. Level: "
        f"exact."
    )
    drift = token_mean_drift(stop, rows, 64)
    full = sequence_mean_drift(stop, 64)
    right = (
        "the shared denominator contains the own length, so a bias is left; it falls like one "
        "over the number of completions"
    )
    wrong = {
        "the token mean is unbiased: all tokens weigh the same": "equal weights in one step are "
        "not equal weights across steps: "
        "a step with long answers divides "
        "by more",
        "it is biased as much as 1/|o|, whatever the number of completions": "that is so only "
        "where one completion "
        "is alone in its "
        "denominator",
        "a constant has the same bias": "the constant cannot follow the sampled lengths: its drift "
        "is exactly 0",
    }
    return Posed(
        text,
        {"stop": stop, "rows": rows, "cap": 64},
        (
            Number(
                "The drift under the token mean, as a share of the drift under 1/|o|?",
                drift / full,
                {
                    "only a constant normaliser has no drift": 0.0,
                    "that is one completion alone in its denominator": 1.0,
                    "upside down": full / drift,
                },
            ),
            MultipleChoice("Why?", options(source, right, wrong)),
        ),
    )


def hard_prompts(source: random.Random) -> Posed:
    size = source.choice([8, 12, 16])
    text = (
        f"Groups of {size}, reward 0 or 1. In one group a single answer is right, in another "
        f"exactly half. The centred advantage is "
        "divided by the group's std (ddof 1). **Predict** which group the division lifts more, "
        "then run."
    )
    lone = _gain(1, size)
    half = _gain(size // 2, size)
    right = (
        "it lifts nearly unsolved and nearly solved prompts alike; groups without any "
        "difference get nothing"
    )
    wrong = {
        "std shrinks hard prompts and lifts easy ones": "the std depends on k(G-k): one right of G "
        "and one wrong of G have the same",
        "std shrinks easy prompts and lifts hard ones": "the std depends on k(G-k): one right of G "
        "and one wrong of G have the same",
        "std is what lengthens wrong answers": "the std is one number per prompt; what differs "
        "between lengths is 1/|o|",
    }
    return Posed(
        text,
        {"size": size},
        (
            Number(
                "The gain 1/std of the lone-success group, "
                "divided by that of the half-right group?",
                lone / half,
                {"upside down": half / lone, "the std does differ between the two": 1.0},
            ),
            MultipleChoice(
                "Which prompts does the division favour?", options(source, right, wrong)
            ),
        ),
    )


def _gain(right: int, size: int) -> float:
    return 1 / float(
        torch.tensor([1.0] * right + [0.0] * (size - right), dtype=torch.float64).std()
    )


def removing_length(source: random.Random) -> Posed:
    short = source.randint(2, 6)
    times = source.choice([4, 7, 10])
    limit = source.choice([128, 256, 512])
    text = (
        f"The same two wrong answers, {short} and {short * times} tokens, under Dr. GRPO's "
        f"constant {limit}. The long one now gets more push in total. "
        "**Predict**: did removing 1/|o| create a length bias? Then run both."
    )
    right = (
        "no: the log-probability of a completion is a sum over its tokens, so the policy "
        "gradient weighs every token alike"
    )
    wrong = {
        "yes: removing 1/|o| creates the bias, the mean was fair": "fair in shares per completion; "
        "but then a wrong answer is "
        "punished less per token the "
        "longer it is, and it pays to "
        "run on",
        "yes: long answers are now pushed harder per token": "per token the two are equal, in each "
        "of the runs; compare the columns",
        "it makes no difference, the advantage is the same": "the advantage is the same, the "
        "weight of a token is not",
    }
    return Posed(
        text,
        {"lengths": [short, short * times], "limit": limit},
        (
            Number(
                "Under the constant: total push on the long answer over that on the short one?",
                times,
                {"that is 1/|o|, where the shares are equal": 1.0, "upside down": 1 / times},
            ),
            MultipleChoice("So?", options(source, right, wrong)),
        ),
    )


def mean_of_means(source: random.Random) -> Posed:
    few = source.randint(2, 4)
    many = source.randint(8, 16)
    low = source.randint(1, 3)
    high = source.randint(4, 9)
    text = (
        f"Two micro-batches: {few} tokens with a loss of {low} each, {many} tokens with a loss of "
        f"{high} each. A framework takes the token mean "
        "of each and averages over the accumulation steps. **Predict** what it gets and what the "
        "step's token mean is, then run."
    )
    true = (few * low + many * high) / (few + many)
    faulty = (low + high) / 2
    right = (
        "a token in the smaller micro-batch counts more, so the result depends on how the "
        "batch was cut"
    )
    wrong = {
        "gradient accumulation never changes the result": "only where every micro-batch has the "
        "same number of tokens",
        "a token in the larger micro-batch counts more": "the other way round: each mean weighs "
        "the same, so fewer tokens share it",
        "it only changes the learning rate by a constant": "the two micro-batches change by "
        "different factors, so the direction "
        "changes too",
    }
    return Posed(
        text,
        {"tokens": [few, many], "losses": [low, high]},
        (
            Number(
                "The token mean of the **step**?",
                true,
                {
                    "that is the mean of the two means": faulty,
                    "that is the sum of the two means": low + high,
                    "that is the sum over all tokens": few * low + many * high,
                },
            ),
            MultipleChoice(
                "What is wrong with averaging the two means?", options(source, right, wrong)
            ),
        ),
    )


def idle_clip(source: random.Random) -> Posed:
    prompts, mini = source.choice([(1024, 256), (512, 64), (512, 128), (768, 128)])
    samples = source.choice([5, 7, 9])
    text = (
        f"A run draws {prompts} prompts with {samples} completions each, takes one pass, and its "
        f"mini-batch is {mini} prompts. Its log shows a clip "
        f"fraction near 0, and exactly 0 in a second run with a mini-batch of {prompts}. "
        f"**Predict** the number of updates per rollout, then run."
    )
    right = (
        f"the ratio is 1 on the first update after every rollout; only the run with a "
        f"mini-batch of {mini} ever makes a second one"
    )
    wrong = {
        "the clip fraction is 0 because the learning rate is too small": "in the second run the "
        "ratio is 1 by "
        "construction, whatever "
        "the learning rate",
        "with ratio 1 there is no gradient, so the second run learns nothing": "the derivative of "
        "the ratio is not 0 "
        "where its value is "
        "1",
        "more completions per prompt would make the clip act": "the number of completions changes "
        "the batch, not how often it is "
        "reused",
    }
    return Posed(
        text,
        {"prompts": prompts, "mini_batch": mini, "samples": samples},
        (
            Number(
                "Updates per rollout in the first run?",
                prompts / mini,
                {
                    "the number of completions plays no part: both sizes are in prompts": prompts
                    * samples
                    / mini,
                    "that is the second run": 1.0,
                    "upside down": mini / prompts,
                },
            ),
            MultipleChoice(
                "Why is the clip idle in the second run?", options(source, right, wrong)
            ),
        ),
    )


def bad_token_unbounded(source: random.Random) -> Posed:
    ratio = source.choice([3.0, 4.0, 5.0, 6.0, 8.0])
    eps = source.choice([0.2, 0.28])
    text = (
        f"One token with advantage -1; since the rollout its probability rose to {ratio:g} times. "
        f"PPO's clip, eps {eps} on both sides. "
        "**Predict** the push on it, then run."
    )
    push = float(
        pushes(partial(_ppo, eps=eps), torch.tensor([ratio], dtype=torch.float64), -1.0)[0]
    )
    right = (
        "the minimum takes the unclipped term there: for a bad token the clip has no upper "
        "bound, a dual clip or delta gives it one"
    )
    wrong = {
        "outside the band every token loses its gradient": "only in two cases of six: a good token "
        "above the band, a bad one below it",
        "the clip bounds the push at 1 + eps": "that is the clipped term, and the minimum of the "
        "two is the other one",
        "a bad token cannot become likelier": "a neighbour's update can raise it, and several "
        "updates on one rollout do",
    }
    return Posed(
        text,
        {"ratio": ratio, "eps": eps},
        (
            Number(
                "The push −∂loss/∂log π on it, with weight 1?",
                push,
                {
                    "the clip does not act here": 0.0,
                    "that is the clipped term": -(1 + eps),
                    "the sign: a bad token is pushed down": -push,
                    "the ratio is a factor of the gradient": -1.0,
                },
            ),
            MultipleChoice("Why?", options(source, right, wrong)),
        ),
    )


def _ppo(logp: Tensor, old_logp: Tensor, advantage: Tensor, *, eps: float) -> Tensor:
    return ppo_clip(logp, old_logp, advantage, eps_low=eps, eps_high=eps)


def k1_no_pull(source: random.Random) -> Posed:
    p = source.choice([0.7, 0.8, 0.9])
    text = (
        f"Two actions, policy ({p}, {1 - p:.1f}), reference (0.5, 0.5). An estimator of the KL "
        f"stands in the loss, with coefficient 1. "
        "**Predict** the expected gradient by the first logit for k1, k2 and k3, then run. Level: "
        "exact."
    )
    logits = torch.tensor([p, 1 - p], dtype=torch.float64).log()
    reference = torch.tensor([0.5, 0.5], dtype=torch.float64).log()
    gradients = {
        name: float(in_loss(partial(getattr(kl, name), beta=1.0), logits, reference)[1][0])
        for name in ("k1", "k2", "k3")
    }
    true = float(reverse(logits, reference)[1][0])
    right = (
        "k2: its gradient is that of KL(π ‖ π_ref); k1 gives none on average and k3 the "
        "gradient of the forward KL"
    )
    wrong = {
        "k1: its value is unbiased, so its gradient is too": "the gradient of the value does not "
        "see how the sampling changes; for k1 "
        "it averages to 0",
        "k3: unbiased value and low variance, so the right gradient": "its gradient is that of "
        "KL(π_ref ‖ π); compare with "
        "the last row",
        "all three: they estimate the same number": "values and gradients are different matters; "
        "compare the columns",
    }
    return Posed(
        text,
        {"p": p},
        (
            Number(
                "The expected gradient by the first logit for **k1**?",
                0.0,
                {
                    "that is k2, the true gradient of the reverse KL": true,
                    "that is k3": gradients["k3"],
                    "that is the value, not the gradient": in_loss(
                        partial(kl.k1, beta=1.0), logits, reference
                    )[0],
                },
            ),
            MultipleChoice(
                "Which one in the loss pulls along the reverse KL?", options(source, right, wrong)
            ),
        ),
    )


def normalised_twice(source: random.Random) -> Posed:
    size = source.choice([4, 6, 8])
    dead = source.choice([1, 2, 3])
    text = (
        f"One live group of {size} with a single success, and {dead} groups of {size} that are all "
        f"right. Advantages are z-scores in each group (ddof 1), "
        "and then whitened over the batch. **Predict** what the second normalisation does to the "
        "lone success, then run."
    )
    once = torch.tensor([1.0] + [0.0] * (size - 1), dtype=torch.float64)
    once = (once - once.mean()) / once.std()
    twice = torch.cat([once, torch.zeros(dead * size, dtype=torch.float64)])
    factor = 1 / float(twice.std())
    right = "the step size now depends on how many groups of the batch are dead"
    wrong = {
        "nothing: a z-score of z-scores is the same": "the dead groups' zeros are in the second "
        "std, and shrink it",
        "it makes the batch independent of the dead groups": "it makes it depend on them: more "
        "zeros, smaller std, larger advantages",
        "it removes the difficulty bias": "the group std stays where it was; the second one is the "
        "same for all prompts",
    }
    return Posed(
        text,
        {"size": size, "dead": dead},
        (
            Number(
                "By which factor does the second normalisation change the lone success?",
                factor,
                {"the dead groups' zeros shrink the std": 1.0, "upside down": 1 / factor},
            ),
            MultipleChoice("What is the harm?", options(source, right, wrong)),
        ),
    )


def group_of_two(source: random.Random) -> Posed:
    low = source.choice([0.0, 1.0, 5.0])
    gap = source.choice([0.01, 0.1, 3.0])
    text = (
        f"Groups of two. In one the rewards are 1 and 0, in the other {low + gap:g} and {low:g}. "
        f"Group mean and std, ddof 1, eps 0. "
        "**Predict** the two advantages of the better answer, then run."
    )
    right = "with two completions the std is the gap itself, up to a factor: only the order is left"
    wrong = {
        "a larger gap gives a larger advantage": "the std grows with the gap, and the two cancel "
        "exactly",
        "the smaller gap is drowned by eps": "eps is 0 here; with 1e-4 only gaps near 1e-4 are",
        "the std of two numbers is not defined": "the sample std of two is the gap over √2; of one "
        "it is undefined",
    }
    return Posed(
        text,
        {"rewards": [low + gap, low]},
        (
            Number(
                "The advantage of the better answer in the **second** group?",
                2**-0.5,
                {"that is ddof 0": 1.0, "centred only, the std is missing": gap / 2},
            ),
            MultipleChoice("Why?", options(source, right, wrong)),
        ),
    )


# --- read a config --------------------------------------------------------------------------------


TRL_AGGREGATIONS = {  # an answer, and why it is wrong where it is
    "sequence_mean": "that is what the paper's GRPO is and what TRL ran up to 0.15; the "
    "default has changed three times since",
    "step_token_mean": "close to the newer `dapo`, but its denominator is not the optimiser "
    "step's own",
    "prompt_token_mean": "that is DAPO's paper, which TRL does not run under any name",
    "micro_batch_token_mean": "that was the default from 0.16 to 0.21 (`bnpo` from 0.17 on)",
    "constant": "that is `dr_grpo`, which has to be asked for",
    "generation_token_mean": "that is the newer default, `dapo`, whose denominator is counted "
    "over the generation batch",
}


def trl_config(source: random.Random) -> Posed:
    version, agg, beta = source.choice(
        [
            ("0.15", "sequence_mean", 0.04),
            ("0.18", "micro_batch_token_mean", 0.04),
            ("1.10", "generation", 0.0),
        ]
    )
    agg = "generation_token_mean" if agg == "generation" else agg
    generations, accumulation = source.choice([(16, 4), (8, 4), (4, 2)])
    text = (
        f"A TRL YAML file, run with **trl {version}**:\n\n```yaml\nnum_generations: "
        f"{generations}\nper_device_train_batch_size: 16\n"
        f"gradient_accumulation_steps: {accumulation}\nmax_completion_length: 2048\nreward_funcs: "
        f"[accuracy, format]\nreward_weights: [1.0, 1.0]\n```\n\n"
        "No `loss_type`, `beta`, `epsilon`, `scale_rewards`, `num_iterations`. What does it really "
        "run?"
    )
    no = {k: v for k, v in TRL_AGGREGATIONS.items() if k != agg}
    return Posed(
        text,
        {"version": version},
        (
            Name("The aggregation?", tuple(TRL_AGGREGATIONS), agg, no),
            Name(
                "The KL term?",
                KLS,
                "k3" if beta else "none",
                {"none": "beta defaulted to 0.04 in this version"}
                if beta
                else {
                    "k3": "beta has defaulted to 0 since 0.19: no reference model is even loaded"
                },
            ),
            Number(
                "Updates per rollout?",
                1.0,
                {
                    "accumulation makes one update out of many micro-batches, "
                    "not many updates": accumulation,
                    "completions per prompt are no updates": generations,
                },
            ),
        ),
    )


def verl_config(source: random.Random) -> Posed:
    prompts, mini = source.choice([(1024, 256), (1024, 128), (512, 256)])
    samples = source.choice([5, 8])
    factor = source.choice([0.001, 0.01])
    text = (
        "A verl command (0.9):\n\n```bash\nalgorithm.adv_estimator=grpo "
        "\\\nalgorithm.use_kl_in_reward=False \\\n"
        f"data.train_batch_size={prompts} \\\nactor_rollout_ref.actor.ppo_mini_batch_size={mini} "
        f"\\\nactor_rollout_ref.rollout.n={samples} \\\n"
        f"actor_rollout_ref.actor.use_kl_loss=True "
        f"\\\nactor_rollout_ref.actor.kl_loss_coef={factor} "
        f"\\\nactor_rollout_ref.actor.kl_loss_type=low_var_kl\n```\n\n"
        "What does it really run?"
    )
    return Posed(
        text,
        {},
        (
            Name(
                "The aggregation?",
                AGGREGATIONS,
                "step_token_mean",
                {
                    "sequence_mean": "`adv_estimator=grpo` sets the advantage only; the loss has "
                    "its own key, loss_agg_mode, and its default pools the tokens",
                    "constant": "that is seq-mean-token-sum-norm and has to be asked for",
                    "micro_batch_token_mean": "so it was up to 0.6; since 0.7 the count is the "
                    "mini-batch's",
                    "prompt_token_mean": "that is the DAPO paper; verl pools the mini-batch",
                },
            ),
            Name(
                "The scale of the advantage?",
                SCALES,
                "group_std",
                {"unscaled": "norm_adv_by_std_in_grpo defaults to True"},
            ),
            Name(
                "The KL term?",
                KLS,
                "k3",
                {
                    "none": "use_kl_loss is on",
                    "kl_in_reward": "use_kl_in_reward is off; kl_loss_* belongs to the loss",
                    "k1": "low_var_kl is not the plain log-ratio",
                    "k2": "low_var_kl is not the squared one (mse is)",
                },
            ),
            Number(
                "Updates per rollout?",
                prompts / mini,
                {
                    "both sizes are in prompts; n plays no part": prompts * samples / mini,
                    "one pass is not one update": 1.0,
                },
            ),
        ),
    )


def dapo_config(source: random.Random) -> Posed:
    prompts, mini = source.choice([(512, 32), (512, 64), (256, 32)])
    text = (
        f"A recipe called DAPO, for "
        f"verl:\n\n```bash\nadv_estimator=grpo\nclip_ratio_low=0.2\n"
        'clip_ratio_high=0.28\nloss_agg_mode="token-mean"\n'
        f"enable_filter_groups=True\nuse_kl_loss=False\ntrain_prompt_bsz={prompts}\n"
        f"train_prompt_mini_bsz={mini}\nn_resp_per_prompt=16\n```\n\n"
        "What does it really run?"
    )
    return Posed(
        text,
        {},
        (
            Name(
                "The aggregation?",
                AGGREGATIONS,
                "step_token_mean",
                {
                    "prompt_token_mean": "that is the paper's Eq. 8, a mean inside each prompt; "
                    "the key pools the mini-batch",
                    "sequence_mean": "the key says token-mean",
                },
            ),
            Name(
                "The scale of the advantage?",
                SCALES,
                "group_std",
                {
                    "unscaled": "DAPO keeps the std: the difficulty weighting stays. Dr. GRPO is "
                    "the one that drops it"
                },
            ),
            Name("The KL term?", KLS, "none", {"k3": "use_kl_loss is False"}),
            Number(
                "Updates per rollout?",
                prompts / mini,
                {
                    "responses per prompt are no updates": prompts * 16 / mini,
                    "one pass is not one update": 1.0,
                },
            ),
        ),
    )


def gspo_config(source: random.Random) -> Posed:
    prompts, samples, batch = source.choice([(128, 8, 64), (64, 16, 128), (256, 16, 128)])
    eps = source.choice([0.2, 0.28])
    right = (
        "practically never: the geometric-mean ratio stays within a few thousandths of 1, eps "
        "would have to be some 3e-4"
    )
    wrong = {
        "as often as in GRPO, the epsilon is the same": "a mean of log-ratios is far closer to 0 "
        "than a single one",
        "more often, since a whole sequence drifts further than a token": "the product would; this "
        "is its |o|-th root",
        "never, because there is one update per rollout": "count them: completions per rollout "
        "over the global batch",
    }
    text = (
        f"A NeMo-RL file:\n\n```yaml\nsequence_level_importance_ratios: true\ntoken_level_loss: "
        f"false\nratio_clip_min: {eps}\nratio_clip_max: {eps}\n"
        f"use_leave_one_out_baseline: true\nnormalize_rewards: true\nreference_policy_kl_penalty: "
        f"0.0\nnum_prompts_per_step: {prompts}\n"
        f"num_generations_per_prompt: {samples}\ntrain_global_batch_size: {batch}\n```\n\nWhat "
        f"does it really run?"
    )
    return Posed(
        text,
        {},
        (
            Name(
                "The baseline?",
                BASELINES,
                "leave_one_out",
                {
                    "group_mean": "the name of the algorithm does not decide it, "
                    "use_leave_one_out_baseline does"
                },
            ),
            Name(
                "The aggregation?",
                AGGREGATIONS,
                "sequence_mean",
                {"step_token_mean": "token_level_loss is false"},
            ),
            MultipleChoice("How often does the clip act?", options(source, right, wrong)),
            Number(
                "Updates per rollout?",
                prompts * samples / batch,
                {
                    "here the batch is in completions, not in prompts": prompts / batch,
                    "one pass is not one update": 1.0,
                },
            ),
        ),
    )


def oat_config(source: random.Random) -> Posed:
    limit, samples = source.choice([(3000, 8), (4096, 8), (2048, 16)])
    text = (
        f"oat:\n\n```bash\n--critic_type drgrpo --num_ppo_epochs 1 --beta 0 --num_samples "
        f"{samples} --generate_max_length {limit} \\\n"
        "--rollout_batch_size 128 --train_batch_size 128\n```\n\nrollout_batch_size counts "
        "prompts, train_batch_size completions. What does it really run?"
    )
    return Posed(
        text,
        {},
        (
            Name(
                "The aggregation?",
                AGGREGATIONS,
                "constant",
                {
                    "sequence_mean": "this is Dr. GRPO by its authors, 1/|o| is gone",
                    "step_token_mean": "the denominator is fixed, no count of tokens",
                    "constant_sum": "oat divides by the batch too",
                },
            ),
            Name(
                "The scale of the advantage?",
                SCALES,
                "unscaled",
                {"group_std": "drgrpo drops the std as well"},
            ),
            Number(
                "The weight of one token, times 10⁶?",
                1e6 / (128 * limit),
                {
                    "not divided by the batch": 1e6 / limit,
                    "divided by prompts times samples: an optimiser step holds train_batch_size "
                    "completions": 1e6 / (128 * samples * limit),
                },
            ),
            Number(
                "Updates per rollout?", float(samples), {"128 prompts are not 128 completions": 1.0}
            ),
        ),
    )


QUESTIONS: dict[str, Question] = {
    q.name: q
    for q in (
        Question(
            "longer_answers",
            "Longer answers get more gradient",
            "Tell the push on a token from the push on a completion.",
            8,
            1,
            "predict",
            longer_answers,
            "Longer answers get more gradient.",
            "an encyclopedia page on Dr. GRPO; understand-r1-zero issues 10, 11, 25",
            'TRL\'s documentation itself calls loss_type="grpo" length-biased.',
        ),
        Question(
            "loss_zero",
            "The loss is 0",
            "Tell a loss that cancels from a loss that teaches nothing.",
            8,
            1,
            "predict",
            loss_zero,
            "Loss 0 means that nothing is learnt.",
            "open-r1 issue 239; TRL issues 2703, 3452; unsloth 2614",
            "Every framework logs this number, and none says that it is 0 by construction.",
        ),
        Question(
            "token_mean_unbiased",
            "The token mean is unbiased",
            "Measure what is left of the length bias in a token mean.",
            12,
            3,
            "predict",
            token_mean_unbiased,
            "The token mean has no length bias.",
            "most texts on DAPO; rlhf-book chapter 6",
            "TRL's default, verl's default: small groups per denominator keep a good part of the "
            "bias.",
        ),
        Question(
            "hard_prompts",
            "The std shrinks hard prompts",
            "Find which prompts the std favours.",
            8,
            2,
            "predict",
            hard_prompts,
            "Dividing by the std shrinks hard prompts.",
            "a public book page on GRPO; replies in tinker-cookbook issue 579",
            "scale_rewards and norm_adv_by_std_in_grpo are on by default.",
        ),
        Question(
            "removing_length",
            "Removing 1/|o| creates the bias",
            "Say which of the two normalisations is the policy gradient.",
            8,
            2,
            "predict",
            removing_length,
            "Removing 1/|o| creates a length bias.",
            "understand-r1-zero issues 10, 25",
            "Readers who look at shares and readers who look at tokens argue past each other: look "
            "at both.",
        ),
        Question(
            "mean_of_means",
            "Accumulation never changes the result",
            "Compute what averaging micro-batch means does.",
            6,
            1,
            "predict",
            mean_of_means,
            "Gradient accumulation does not change the loss.",
            "TRL issue 3021; open-instruct PR 1161",
            "TRL's bnpo and older verl still do it.",
        ),
        Question(
            "idle_clip",
            "The clip does nothing",
            "Say when the clip can act at all.",
            8,
            2,
            "predict",
            idle_clip,
            "A clip fraction of 0 means that something is broken.",
            "verl issue 1477; DAPO issue 31; TRL issues 3120, 3757",
            "Before tuning epsilon compute the updates per rollout.",
        ),
        Question(
            "bad_token_unbounded",
            "The clip bounds every push",
            "Find the side on which PPO's clip has no bound.",
            8,
            2,
            "predict",
            bad_token_unbounded,
            "Outside the band no token has a gradient.",
            "TRL issues 3032, 3435",
            "verl's clip_ratio_c and TRL's delta exist for this token.",
        ),
        Question(
            "k1_no_pull",
            "k1 in the loss",
            "Tell the value of a KL estimator from its gradient.",
            10,
            3,
            "predict",
            k1_no_pull,
            "An unbiased estimate of the KL has the right gradient.",
            "open-instruct issue 534",
            "A KL coefficient with k1 in the loss costs memory for a reference model and pulls at "
            "nothing.",
        ),
        Question(
            "normalised_twice",
            "Normalised twice",
            "See what whitening does after a group std.",
            8,
            2,
            "predict",
            normalised_twice,
            "A second normalisation changes nothing.",
            "axon-rl/gem PR 113; reskill PR 12",
            "REINFORCE++ with baseline whitens over the batch on purpose, without a group std "
            "before.",
        ),
        Question(
            "group_of_two",
            "Two completions",
            "See what is left of the reward at G = 2.",
            6,
            1,
            "predict",
            group_of_two,
            "A larger gap gives a larger advantage.",
            "CoursIA issue 10603",
            "num_generations=2 saves memory and throws away how much better an answer is.",
        ),
        Question(
            "trl_config",
            "The empty TRL file",
            "Say what a TRL file runs, from its version.",
            8,
            2,
            "read",
            trl_config,
            "A config without loss_type runs the paper's GRPO.",
            "TRL issue 3187; open-r1 config_demo.yaml",
            "The same file meant four losses in two years.",
        ),
        Question(
            "verl_config",
            "adv_estimator=grpo",
            "Say what a verl command runs.",
            8,
            2,
            "read",
            verl_config,
            "adv_estimator=grpo runs GRPO's loss.",
            "verl issue 957; EasyR1 issue 212; verl's run_qwen3_8b_fsdp.sh",
            "Advantage, aggregation, clip and KL have separate keys with separate defaults.",
        ),
        Question(
            "dapo_config",
            "A script called DAPO",
            "Compare a DAPO script with its paper.",
            6,
            1,
            "read",
            dapo_config,
            "A DAPO script runs DAPO's formula.",
            "verl issue 2776; verl-recipe's DAPO script",
            "The std is still on, the scope is the mini-batch.",
        ),
        Question(
            "gspo_config",
            "GSPO with an inherited clip",
            "Find the inherited value that switches the clip off.",
            8,
            2,
            "read",
            gspo_config,
            "The usual epsilon of 0.2 also fits GSPO.",
            "TRL issue 3834; ROLL issue 165; NeMo-RL's GSPO recipe",
            "A child config changes the ratio, its parent keeps the epsilon.",
        ),
        Question(
            "oat_config",
            "Dr. GRPO by its authors",
            "Read off the weight of a token.",
            8,
            2,
            "read",
            oat_config,
            "Dr. GRPO only drops the std.",
            "rlhf-book's drgrpo; understand-r1-zero's example script",
            "The constant is the generation limit: change that and you change the learning rate.",
        ),
    )
}
