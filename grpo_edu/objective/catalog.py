"""Named recipes. A bare name means the paper: its formula, its defaults. ``eps`` is 0 where the
paper prints none.

Papers write "std" without saying which; the catalog uses ddof 1, as the code released with them
does.
"""

from __future__ import annotations

import difflib
from functools import partial
from typing import Annotated

from ..checks import instance, shown
from . import advantages as adv
from . import aggregation as agg
from . import corrections as cor
from . import surrogates as sur
from .filters import drop_dead_groups
from .kl import k2, k2_old, k2_sequence, k3, kl_cov
from .recipe import Recipe
from .rewards import kl_in_token_reward

STD = partial(adv.group_std, ddof=1, eps=0.0)
CLIP = sur.EXAMPLES["PPO clip"]
CLIP_HIGHER = partial(sur.ppo_clip, eps_low=0.2, eps_high=0.28)

_BASE = [
    Recipe(
        name="reinforce",
        title="the policy gradient with the reward itself",
        paper="REINFORCE, Williams 1992",
        surrogate=sur.reinforce,
        aggregation=agg.sequence_sum,
    ),
    Recipe(
        name="rloo",
        title="the other completions of the prompt are the baseline",
        paper="RLOO, Ahmadian et al. 2024, arXiv 2402.14740 (estimator: Kool et al. 2019)",
        defaults="k = 2 or 4 completions; the paper takes a KL from the reward, left out here: "
        "rewards=(kl_in_reward,)",
        baseline=adv.leave_one_out,
        surrogate=sur.reinforce,
        aggregation=agg.sequence_sum,
    ),
    Recipe(
        name="remax",
        title="the greedy completion of the prompt is the baseline",
        paper="ReMax, Li et al. 2023, arXiv 2310.10505",
        defaults="one sample and one greedy completion per prompt",
        baseline=adv.greedy,
        surrogate=sur.reinforce,
        aggregation=agg.sequence_sum,
    ),
    Recipe(
        name="ppo",
        title="clipped ratio with an advantage given from outside",
        paper="PPO, Schulman et al. 2017, arXiv 1707.06347",
        defaults="eps 0.2; mean over the timesteps of the batch",
        baseline=adv.given,
        surrogate=CLIP,
        aggregation=agg.step_token_mean,
    ),
    Recipe(
        name="ppo(gae)",
        title="PPO with a value model and GAE, one advantage per token",
        paper="PPO, Schulman et al. 2017, arXiv 1707.06347; GAE, Schulman et al. 2016, arXiv "
        "1506.02438",
        defaults="eps 0.2, gamma 1 and lambda 0.95 as usual for language models",
        baseline=partial(adv.gae, gamma=1.0, lam=0.95),
        surrogate=CLIP,
        aggregation=agg.step_token_mean,
    ),
    Recipe(
        name="grpo",
        title="group mean and std, 1/|o|, KL in the loss",
        paper="DeepSeekMath, Shao et al. 2024, arXiv 2402.03300, Eq. 3",
        defaults="G 64, beta 0.04, one update per rollout, max length 1024; eps 0.2 is PPO's",
        baseline=adv.group_mean,
        scale=STD,
        surrogate=CLIP,
        kl=partial(k3, beta=0.04),
        aggregation=agg.sequence_mean,
    ),
    Recipe(
        name="grpo(process)",
        title="GRPO with process supervision: rewards at step ends, one advantage per token",
        paper="DeepSeekMath, Shao et al. 2024, arXiv 2402.03300, §4.1.3",
        defaults="as grpo",
        baseline=partial(adv.process_supervision, ddof=1, eps=0.0),
        surrogate=CLIP,
        kl=partial(k3, beta=0.04),
        aggregation=agg.sequence_mean,
    ),
    Recipe(
        name="dr_grpo",
        title="neither 1/|o| nor 1/std",
        paper="Dr. GRPO, Liu et al. 2025, arXiv 2503.20783",
        defaults="G 8, no KL, C = 3000 in the released code, eps 0.2",
        baseline=adv.group_mean,
        surrogate=CLIP,
        aggregation=agg.constant,
    ),
    Recipe(
        name="dapo",
        title="token mean inside each prompt, clip-higher, live groups only",
        paper="DAPO, Yu et al. 2025, arXiv 2503.14476, Eq. 8",
        defaults="eps 0.2 and 0.28, G 16, no KL, rewards +-1, 16 updates per rollout; "
        "overlong_penalty(cache=4096) at 20480",
        baseline=adv.group_mean,
        scale=STD,
        surrogate=CLIP_HIGHER,
        aggregation=agg.prompt_token_mean,
        filters=(drop_dead_groups,),
    ),
    Recipe(
        name="dapo(step)",
        title="DAPO as frameworks run it: token mean over the whole optimiser step, clip-higher",
        paper="TRL loss_type=dapo and verl token-mean, not the paper's Eq. 8",
        defaults="eps 0.2 and 0.28",
        baseline=adv.group_mean,
        scale=STD,
        surrogate=CLIP_HIGHER,
        aggregation=agg.step_token_mean,
    ),
    Recipe(
        name="bnpo",
        title="token mean of each micro-batch, averaged: the result depends on the split",
        paper="TRL pull request 3256, 2025 (not the Beta-normalisation paper)",
        defaults="eps 0.2",
        baseline=adv.group_mean,
        scale=STD,
        surrogate=CLIP,
        aggregation=agg.micro_batch_token_mean,
    ),
]

_SEQUENCE_RATIO = [
    Recipe(
        name="gspo",
        title="one geometric-mean ratio per completion",
        paper="GSPO, Zheng et al. 2025, arXiv 2507.18071",
        defaults="eps 3e-4 and 4e-4, 4 updates per rollout",
        baseline=adv.group_mean,
        scale=STD,
        surrogate=sur.EXAMPLES["GSPO"],
        aggregation=agg.sequence_mean,
    ),
    Recipe(
        name="gspo_token",
        title="GSPO's ratio, gradient token by token; with one advantage per completion the same "
        "weights as gspo",
        paper="GSPO, Zheng et al. 2025, arXiv 2507.18071, §4.3",
        defaults="eps 3e-4 and 4e-4",
        baseline=adv.group_mean,
        scale=STD,
        surrogate=sur.EXAMPLES["GSPO-token"],
        aggregation=agg.sequence_mean,
    ),
    Recipe(
        name="luspo",
        title="GSPO times |o|: a sequence sum",
        paper="LUSPO, 2026, arXiv 2602.05261",
        defaults="eps 2e-3 and 2.5e-3",
        baseline=adv.group_mean,
        scale=STD,
        surrogate=partial(sur.gspo, eps_low=2e-3, eps_high=2.5e-3),
        aggregation=agg.sequence_sum,
    ),
    Recipe(
        name="gmpo",
        title="geometric mean of token ratios, each clipped in log space",
        paper="GMPO, Zhao et al. 2025, arXiv 2507.20673",
        defaults="log-space eps 0.4 on both sides",
        baseline=adv.group_mean,
        scale=STD,
        surrogate=sur.EXAMPLES["GMPO"],
        aggregation=agg.sequence_mean,
    ),
]

_GATES = [
    Recipe(
        name="cispo",
        title="the ratio is capped and detached, no token loses its gradient",
        paper="CISPO, MiniMax-M1 2025, arXiv 2506.13585",
        defaults="no lower bound; the cap is not printed, 5 is ScaleRL's (arXiv 2510.13786); 16 "
        "updates per rollout",
        baseline=adv.group_mean,
        scale=STD,
        surrogate=sur.EXAMPLES["CISPO"],
        aggregation=agg.prompt_token_mean,
    ),
    Recipe(
        name="sapo",
        title="a soft gate in place of the clip",
        paper="SAPO, 2025, arXiv 2511.20347",
        defaults="tau 1.0 for A > 0, 1.05 else",
        baseline=adv.group_mean,
        scale=STD,
        surrogate=sur.EXAMPLES["SAPO"],
        aggregation=agg.sequence_mean,
    ),
]

_ADVANTAGES = [
    Recipe(
        name="gpg",
        title="centred rewards made up for dead groups, no ratio, no clip",
        paper="GPG, Chu et al. 2025, arXiv 2504.02546",
        defaults="F_norm 1, no KL",
        baseline=adv.live_group_mean,
        surrogate=sur.reinforce,
        aggregation=agg.step_token_mean,
    ),
    Recipe(
        name="opo",
        title="length-weighted mean as the baseline, exactly on policy",
        paper="OPO, Hao et al. 2025, arXiv 2505.23585",
        defaults="one update per rollout, no KL",
        baseline=adv.length_weighted_mean,
        surrogate=sur.reinforce,
        aggregation=agg.sequence_sum,
    ),
    Recipe(
        name="reinforce++",
        title="return to go with KL in the token reward, z-scored over all tokens of the batch",
        paper="REINFORCE++, Hu et al. 2025, arXiv 2501.03262",
        defaults="eps 0.2; beta 0.01 and eps 1e-8 as in OpenRLHF, the author's framework",
        rewards=(partial(kl_in_token_reward, beta=0.01),),
        baseline=partial(adv.return_to_go, gamma=1.0),
        scale=partial(adv.token_whiten, ddof=0, eps=0.0),
        surrogate=CLIP,
        aggregation=agg.step_token_mean,
    ),
    Recipe(
        name="reinforce++(baseline)",
        title="group mean, then z-scored over all tokens of the batch, k2 in the loss",
        paper="REINFORCE++ with baseline, Hu et al. 2025, arXiv 2501.03262",
        defaults="eps 0.2; beta 0.01 as in OpenRLHF",
        baseline=adv.group_mean,
        scale=partial(adv.token_whiten, ddof=0, eps=0.0),
        surrogate=CLIP,
        kl=partial(k2, beta=0.01),
        aggregation=agg.step_token_mean,
    ),
    Recipe(
        name="lite_ppo",
        title="group mean, std of the whole batch, token mean",
        paper="Lite PPO, Tricks or Traps, 2025, arXiv 2508.08221",
        defaults="eps 0.2, no KL",
        baseline=adv.group_mean,
        scale=partial(adv.batch_std, ddof=1, eps=0.0),
        surrogate=CLIP,
        aggregation=agg.step_token_mean,
    ),
    Recipe(
        name="maxrl",
        title="divided by the pass rate instead of the std",
        paper="MaxRL, 2026, arXiv 2602.02710",
        defaults="on policy, N = 128 on GSM8K",
        baseline=adv.group_mean,
        scale=adv.group_mean_scale,
        surrogate=sur.reinforce,
        aggregation=agg.sequence_sum,
    ),
    Recipe(
        name="pass@k",
        title="the exact gradient of pass@k, k = 2",
        paper="PKPO, Walder and Karkhanis 2025, arXiv 2505.15201",
        defaults="k is the user's; without the paper's further baseline",
        baseline=partial(adv.pass_at_k, k=2),
        surrogate=sur.reinforce,
        aggregation=agg.sequence_sum,
    ),
    Recipe(
        name="gdpo",
        title="every reward function normalised on its own, added, z-scored over the batch",
        paper="GDPO, 2026, arXiv 2601.05242",
        defaults="weights 1, eps 0.2",
        baseline=partial(adv.decoupled_rewards, ddof=1, eps=0.0),
        scale=partial(adv.batch_whiten, ddof=1, eps=0.0),
        surrogate=CLIP,
        aggregation=agg.sequence_mean,
    ),
]

_AGGREGATIONS = [
    Recipe(
        name="balanced",
        title="token mean inside each sign of the advantage",
        paper="Balanced Aggregation, 2026, arXiv 2605.04077",
        defaults="eps 0.2 and 0.28 as in DAPO",
        baseline=adv.group_mean,
        scale=STD,
        surrogate=CLIP_HIGHER,
        aggregation=agg.balanced,
    ),
    Recipe(
        name="vl_norm",
        title="completions weighted by a power of their length, then a constant",
        paper="Delta-L normalisation (VL-norm), He et al. 2025, arXiv 2509.07558",
        defaults="alpha 1 for least variance, 0.75 for mathematics; the released code differs from "
        "the paper: it divides by the std of the group and takes the mean of |o|^-alpha over the "
        "whole batch",
        baseline=adv.group_mean,
        surrogate=CLIP,
        aggregation=partial(agg.length_power, alpha=0.75),
    ),
]

_TRUST_REGIONS = [
    Recipe(
        name="dppo_tv",
        title="a trust region on the token's probability, not on its ratio",
        paper="DPPO, 2026, arXiv 2602.04879 (binary total variation)",
        defaults="delta 0.15, ratio capped to 20 as in verl; formula read in verl 0.9.1",
        baseline=adv.group_mean,
        scale=STD,
        surrogate=sur.EXAMPLES["DPPO, total variation"],
        aggregation=agg.step_token_mean,
    ),
    Recipe(
        name="dppo_kl",
        title="a trust region on the KL of two outcomes, this token or another",
        paper="DPPO, 2026, arXiv 2602.04879 (binary KL)",
        defaults="delta 0.05, ratio capped to 20 as in verl; formula read in verl 0.9.1",
        baseline=adv.group_mean,
        scale=STD,
        surrogate=sur.EXAMPLES["DPPO, KL"],
        aggregation=agg.step_token_mean,
    ),
    Recipe(
        name="dro",
        title="no ratio, half the squared log-ratio to the old policy as a penalty",
        paper="Direct reward optimisation as in verl 0.9.1",
        defaults="beta is the user's, 0.1 here",
        baseline=adv.group_mean,
        scale=STD,
        surrogate=sur.reinforce,
        kl=partial(k2_old, beta=0.1),
        aggregation=agg.step_token_mean,
    ),
    Recipe(
        name="kimi",
        title="mean reward as baseline, squared log-ratio of the whole completion as penalty",
        paper="Kimi k1.5, 2025, arXiv 2501.12599, section 2.3.2",
        defaults="tau is the user's, 0.1 here",
        baseline=adv.group_mean,
        surrogate=sur.reinforce,
        kl=partial(k2_sequence, beta=0.1),
        aggregation=agg.sequence_sum,
    ),
    Recipe(
        name="vespo",
        title="a soft weight of the whole completion's likelihood ratio",
        paper="VESPO, 2026, arXiv 2602.10693",
        defaults="k 2 and 3, lambda 3 and 2; formula read in TRL 1.16",
        baseline=adv.group_mean,
        scale=STD,
        surrogate=sur.EXAMPLES["VESPO"],
        aggregation=agg.step_token_mean,
    ),
    Recipe(
        name="topr",
        title="good completions without a ratio, bad ones with a truncated one",
        paper="TOPR, Le Roux et al. 2025, arXiv 2503.14286",
        defaults="ratio of bad completions clipped to [0, 1]",
        baseline=adv.group_mean,
        surrogate=sur.EXAMPLES["TOPR"],
        aggregation=agg.sequence_sum,
    ),
    Recipe(
        name="decoupled_ppo",
        title="three policies: a weight for the sampler, a clip around the proximal policy",
        paper="Hilton et al. 2021, arXiv 2110.00641; AReaL, Fu et al. 2025, arXiv 2505.24298",
        defaults="eps 0.2; advantages of GRPO",
        baseline=adv.group_mean,
        scale=STD,
        surrogate=CLIP,
        correction=cor.importance_sampling,
        aggregation=agg.step_token_mean,
    ),
    Recipe(
        name="grpo(off_policy_mask)",
        title="bad completions that the policy has left are masked",
        paper="DeepSeek-V3.2, 2025, arXiv 2512.02556, Eq. 9",
        defaults="delta 0.5 as TRL suggests; advantages of GRPO, the KL term left out",
        baseline=adv.group_mean,
        scale=STD,
        surrogate=CLIP,
        correction=partial(cor.off_policy_mask, delta=0.5),
        aggregation=agg.sequence_mean,
    ),
]

_CHOSEN_TOKENS = [
    Recipe(
        name="high_entropy",
        title="only the fifth of the tokens with the highest entropy learns",
        paper="Beyond the 80/20 rule, Wang et al. 2025, arXiv 2506.01939",
        defaults="part 0.2, DAPO's clip; formula read in TRL 1.16",
        baseline=adv.group_mean,
        scale=STD,
        surrogate=CLIP_HIGHER,
        correction=partial(cor.high_entropy, part=0.2),
        aggregation=agg.step_token_mean,
    ),
    Recipe(
        name="clip_cov",
        title="the tokens that make the policy certain fastest get no gradient",
        paper="Clip-Cov, Cui et al. 2025, arXiv 2505.22617",
        defaults="bounds 1 and 5, part 0.0002; formula read in verl 0.9.1",
        baseline=adv.group_mean,
        scale=STD,
        surrogate=CLIP,
        correction=partial(cor.clip_cov, low=1.0, high=5.0, part=0.0002),
        aggregation=agg.step_token_mean,
    ),
    Recipe(
        name="kl_cov",
        title="the tokens that make the policy certain fastest get a penalty",
        paper="KL-Cov, Cui et al. 2025, arXiv 2505.22617",
        defaults="beta 1, part 0.0002, no clip; formula read in verl 0.9.1",
        baseline=adv.group_mean,
        scale=STD,
        surrogate=sur.importance,
        kl=partial(kl_cov, beta=1.0, part=0.0002),
        aggregation=agg.step_token_mean,
    ),
]

_MORE_ADVANTAGES = [
    Recipe(
        name="nsr",
        title="right answers count a tenth of wrong ones, no baseline",
        paper="W-REINFORCE, Zhu et al. 2025, arXiv 2506.01347",
        defaults="lambda 0.1; 0 is the paper's NSR, wrong answers alone",
        baseline=partial(adv.right_and_wrong, positive=0.1),
        surrogate=CLIP,
        aggregation=agg.step_token_mean,
    ),
    Recipe(
        name="pass@k(training)",
        title="the mean advantage over all subsets of k, a subset right if one answer is",
        paper="Pass@k training, Chen et al. 2025, arXiv 2508.10751",
        defaults="k is the user's, 2 here; formula read in the authors' code",
        baseline=partial(adv.pass_at_k_training, k=2),
        surrogate=CLIP_HIGHER,
        aggregation=agg.step_token_mean,
    ),
    Recipe(
        name="distillation",
        title="on-policy distillation: the teacher's log-ratio is the advantage of each token",
        paper="on-policy distillation, Lu 2025; GKD, Agarwal et al. 2023, arXiv 2306.13649",
        defaults="the teacher stands in ref_logp; one update per rollout",
        baseline=adv.teacher_log_ratio,
        surrogate=sur.importance,
        aggregation=agg.step_token_mean,
    ),
    Recipe(
        name="vapo",
        title="PPO with a value model and a GAE whose lambda grows with the length",
        paper="VAPO, Yue et al. 2025, arXiv 2504.05118",
        defaults="alpha 0.05, eps 0.2 and 0.28; without its likelihood term on right answers",
        baseline=partial(adv.length_adaptive_gae, gamma=1.0, alpha=0.05),
        surrogate=CLIP_HIGHER,
        aggregation=agg.step_token_mean,
    ),
]

RECIPES: dict[str, Recipe] = {
    entry.name: entry
    for entry in (
        *_BASE,
        *_SEQUENCE_RATIO,
        *_GATES,
        *_ADVANTAGES,
        *_AGGREGATIONS,
        *_TRUST_REGIONS,
        *_CHOSEN_TOKENS,
        *_MORE_ADVANTAGES,
    )
}


def recipe(name: str) -> Recipe:
    """A recipe of the catalog by name, ``recipe("dr_grpo")``.

    Raises:
        TypeError: the name is not a text.
        KeyError: no such recipe; the message names the nearest and lists them all.
    """
    return as_recipe(instance("name", name, str), "name")


def as_recipe(value: Recipe | str, argument: str = "recipe") -> Recipe:
    """A recipe as it is, or the recipe of the catalog with that name; ``argument`` is what an error
    calls it.

    Raises:
        TypeError: neither a recipe nor a text.
        KeyError: no such recipe; the message names the nearest and lists them all.
    """
    if isinstance(value, Recipe):
        return value
    if not isinstance(value, str):
        raise TypeError(
            f"{argument} is {shown(value)}: expected a Recipe or the name of one, 'grpo' say."
        )
    key = value.strip().lower().replace("-", "_").replace(" ", "_").replace("dr._", "dr_")
    if key not in RECIPES:
        near = difflib.get_close_matches(key, RECIPES, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise KeyError(
            f"{argument}: no recipe named '{value}'.{hint} The catalog has: {', '.join(RECIPES)}."
        )
    return RECIPES[key]


AnyRecipe = Annotated[Recipe, lambda name, value: as_recipe(value, name)]
