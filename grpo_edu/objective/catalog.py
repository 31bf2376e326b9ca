"""Named recipes. A bare name means the paper: its formula, its defaults. ``eps`` is 0 where the paper prints none.

Papers write "std" without saying which; the catalog uses ddof 1, as the code released with them does.
"""

from __future__ import annotations

import difflib
from functools import partial

from .advantages import given, group_mean, group_std, leave_one_out, no_baseline, unscaled
from .aggregation import (
    constant,
    micro_batch_token_mean,
    prompt_token_mean,
    sequence_mean,
    sequence_sum,
    step_token_mean,
)
from .filters import drop_dead_groups
from .kl import k3
from .recipe import Recipe
from .surrogates import cispo, gspo, ppo_clip, reinforce

PAPER_STD = partial(group_std, ddof=1, eps=0.0)
CLIP = partial(ppo_clip, eps_low=0.2, eps_high=0.2)
CLIP_HIGHER = partial(ppo_clip, eps_low=0.2, eps_high=0.28)


def _recipes() -> dict[str, Recipe]:
    entries = [
        Recipe(
            name="reinforce",
            title="REINFORCE: the policy gradient with the reward itself",
            paper="Williams 1992",
            baseline=no_baseline,
            scale=unscaled,
            surrogate=reinforce,
            aggregation=sequence_sum,
        ),
        Recipe(
            name="rloo",
            title="RLOO: the other completions of the prompt are the baseline",
            paper="Ahmadian et al. 2024, arXiv 2402.14740",
            baseline=leave_one_out,
            scale=unscaled,
            surrogate=reinforce,
            aggregation=sequence_sum,
        ),
        Recipe(
            name="ppo",
            title="PPO: clipped ratio with an advantage given from outside",
            paper="Schulman et al. 2017, arXiv 1707.06347",
            baseline=given,
            scale=unscaled,
            surrogate=CLIP,
            aggregation=step_token_mean,
        ),
        Recipe(
            name="grpo",
            title="GRPO as in DeepSeekMath: group std, 1/|o|, KL in the loss",
            paper="Shao et al. 2024, arXiv 2402.03300",
            baseline=group_mean,
            scale=PAPER_STD,
            surrogate=CLIP,
            kl=partial(k3, beta=0.04),
            aggregation=sequence_mean,
        ),
        Recipe(
            name="dr_grpo",
            title="Dr. GRPO: neither 1/|o| nor 1/std",
            paper="Liu et al. 2025, arXiv 2503.20783",
            baseline=group_mean,
            scale=unscaled,
            surrogate=CLIP,
            aggregation=constant,
        ),
        Recipe(
            name="dapo",
            title="DAPO as in the paper: token mean inside each prompt, clip-higher, live groups only",
            paper="Yu et al. 2025, arXiv 2503.14476",
            baseline=group_mean,
            scale=PAPER_STD,
            surrogate=CLIP_HIGHER,
            aggregation=prompt_token_mean,
            filters=(drop_dead_groups,),
        ),
        Recipe(
            name="dapo(step)",
            title="DAPO as frameworks run it: token mean over the whole optimiser step, clip-higher",
            paper="what TRL loss_type=dapo and verl token-mean compute",
            baseline=group_mean,
            scale=PAPER_STD,
            surrogate=CLIP_HIGHER,
            aggregation=step_token_mean,
        ),
        Recipe(
            name="bnpo",
            title="BNPO as TRL named it: token mean of each micro-batch, averaged",
            paper="TRL pull request 3256 (not the Beta-normalisation paper)",
            baseline=group_mean,
            scale=PAPER_STD,
            surrogate=CLIP,
            aggregation=micro_batch_token_mean,
        ),
        Recipe(
            name="gspo",
            title="GSPO: one geometric-mean ratio per completion",
            paper="Zheng et al. 2025, arXiv 2507.18071",
            baseline=group_mean,
            scale=PAPER_STD,
            surrogate=partial(gspo, eps_low=3e-4, eps_high=4e-4),
            aggregation=sequence_mean,
        ),
        Recipe(
            name="cispo",
            title="CISPO: the ratio is capped and detached, no token loses its gradient",
            paper="MiniMax 2025, arXiv 2506.13585; its cap is not printed, 5 is ScaleRL's (arXiv 2510.13786)",
            baseline=group_mean,
            scale=PAPER_STD,
            surrogate=partial(cispo, low=0.0, high=5.0),
            aggregation=prompt_token_mean,
        ),
    ]
    return {entry.name: entry for entry in entries}


RECIPES: dict[str, Recipe] = _recipes()


def recipe(name: str) -> Recipe:
    """A recipe of the catalog by name, ``recipe("dr_grpo")``.

    Raises:
        KeyError: no such recipe; the message names the nearest and lists them all.
    """
    key = name.strip().lower().replace("-", "_").replace(" ", "_").replace("dr._", "dr_")
    if key not in RECIPES:
        near = difflib.get_close_matches(key, RECIPES, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise KeyError(f"no recipe named '{name}'.{hint} Known: {', '.join(RECIPES)}.")
    return RECIPES[key]
