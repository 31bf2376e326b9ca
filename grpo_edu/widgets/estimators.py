"""The advantage estimators that explorers offer: a baseline and a scale each, with the ddof, eps
and k of the controls."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..objective import advantages as adv
from ..objective import axes
from ..objective.recipe import Recipe

_STD: dict[str, Any] = {"ddof": 1, "eps": 0.0}
ESTIMATORS = {
    estimator.name: estimator
    for estimator in (
        Recipe(name="none", title="none: REINFORCE", baseline=adv.no_baseline),
        Recipe(name="greedy", title="greedy: ReMax", baseline=adv.greedy),
        Recipe(name="mean", title="mean: Dr. GRPO", baseline=adv.group_mean),
        Recipe(
            name="mean/std",
            title="mean, std: GRPO",
            baseline=adv.group_mean,
            scale=partial(adv.group_std, **_STD),
        ),
        Recipe(name="others", title="others: RLOO", baseline=adv.leave_one_out),
        Recipe(
            name="others/std",
            title="others, their std",
            baseline=adv.leave_one_out,
            scale=partial(adv.leave_one_out_std, **_STD),
        ),
        Recipe(
            name="batch std",
            title="batch std: Lite PPO",
            baseline=adv.group_mean,
            scale=partial(adv.batch_std, **_STD),
        ),
        Recipe(
            name="whiten",
            title="REINFORCE++ base",
            baseline=adv.group_mean,
            scale=partial(adv.token_whiten, **_STD),
        ),
        Recipe(name="maxrl", title="MaxRL", baseline=adv.group_mean, scale=adv.group_mean_scale),
        Recipe(name="pass@k", title="pass@k", baseline=partial(adv.pass_at_k, k=2)),
        Recipe(name="opo", title="OPO", baseline=adv.length_weighted_mean),
        Recipe(name="gpg", title="GPG", baseline=adv.live_group_mean),
    )
}
WORDS = {
    "none": "r",
    "greedy": "r − r(greedy)",
    "mean": "r − mean of the prompt",
    "mean/std": "(r − mean) / std of the prompt",
    "others": "r − mean of the others",
    "others/std": "(r − mean) / std, both of the others",
    "batch std": "(r − mean) / std of the batch",
    "whiten": "r − mean, z-scored over all tokens",
    "maxrl": "(r − mean) / mean",
    "pass@k": "gradient of pass@k, not centred",
    "opo": "r − mean weighted by length",
    "gpg": "(r − mean) · N / N live",
}


def turned(name: str, *, ddof: int, eps: float, k: int) -> Recipe:
    """An estimator with the settings of the controls where it has them."""
    given = {"ddof": ddof, "eps": eps, "k": k}

    def turn(choice: axes.Choice) -> axes.Choice:
        own = {key: value for key, value in given.items() if key in axes.settings(choice)}
        return partial(choice, **own) if own else choice

    estimator = ESTIMATORS[name]
    return estimator.but(name, baseline=turn(estimator.baseline), scale=turn(estimator.scale))
