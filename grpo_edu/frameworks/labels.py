"""What a recipe is called: its axes compared with the catalog's, and with what it claims to be."""

from __future__ import annotations

from collections.abc import Collection

from ..objective import axes
from ..objective.aggregation import step_token_mean
from ..objective.axes import Choice
from ..objective.catalog import RECIPES
from ..objective.filters import drop_dead_groups, drop_raw_dead_groups
from ..objective.recipe import Recipe
from .data_files import WRAPPERS

NO_LABEL = "this is a loss that no axis here expresses: see what is left out"
# the same loss up to a detail: dual clip, ε, groups of one, micro-batches
FAMILY = {
    "dual_clip": "ppo_clip",
    "gspo_token": "gspo",
    "token_whiten_variance": "token_whiten",
    "padded_width": "constant",
    "nonzero_group_mean": "live_group_mean",
    "best_minus_second": "pass_at_k",
}
# the paper's token mean is per prompt; frameworks take it over the step, under the same name
AS_RUN = ("dapo", "cispo")
# not worth the name: a token mean with a clip alone; what a correction or a KL term makes, on which
# recipes are not compared
BY_CORRECTION_OR_KL = tuple(
    name
    for name, recipe in RECIPES.items()
    if recipe.correction is not None
    or (recipe.kl is not None and "ref_logp" not in axes.inputs_of(recipe.kl))
)
UNNAMED = ("dapo(step)", *BY_CORRECTION_OR_KL)
TARGETS = {
    **RECIPES,
    **{name: RECIPES[name].but(name, aggregation=step_token_mean) for name in AS_RUN},
}
ADVANTAGE = {
    ("group_mean", "group_std"): "GRPO's advantage",
    ("group_mean", "unscaled"): "Dr. GRPO's advantage",
    ("group_mean", "batch_std"): "Lite PPO's advantage",
    ("group_mean", "token_whiten"): "the advantage of REINFORCE++ with baseline",
    ("group_mean", "group_mean_scale"): "MaxRL's advantage",
    ("leave_one_out", "unscaled"): "RLOO's advantage",
    ("leave_one_out", "leave_one_out_std"): "a leave-one-out z-score",
    ("leave_one_out", "batch_whiten"): "RLOO's advantage, whitened",
    ("return_to_go", "token_whiten"): "the advantage of REINFORCE++",
    ("gae", "token_whiten"): "PPO's advantage (GAE), whitened",
    ("length_weighted_mean", "unscaled"): "OPO's advantage",
    ("decoupled_rewards", "batch_whiten"): "GDPO's advantage",
    ("decoupled_rewards", "token_whiten"): "GDPO's advantage",
}
AGGREGATION = {
    "sequence_mean": "the mean over each completion's tokens (1/|o|)",
    "step_token_mean": "a token mean over the optimiser step",
    "micro_batch_token_mean": "a token mean of each micro-batch",
    "micro_batches_by_rows": "a mean of each micro-batch, weighted by its rows",
    "prompt_token_mean": "a token mean inside each prompt",
    "constant": "a constant length",
    "padded_width": "the longest completion of each micro-batch in place of a constant",
    "constant_sum": "a constant length without 1/N",
    "sequence_sum": "a sum over each completion's tokens",
    "token_sum": "a plain sum over tokens",
}
SURROGATE = {"ppo_clip": "PPO clip", "reinforce": "no ratio"}
COMPARED = ("filters", "baseline", "scale", "surrogate", "aggregation")
# names that a comment or a run uses for a whole family, or for something else
GENERIC = ("reinforce", "remax", "ppo", "grpo", "bnpo", "gspo_token", "gpg", "opo", "lite_ppo")
GENERIC += ("maxrl", "gdpo", "balanced", "vl_norm")
# the other names mean one loss each: a pattern that finds them in a comment or the name of a run
NAMES = {
    name.replace("_", "[._ -]*"): name
    for name in RECIPES
    if name.isidentifier() and name not in GENERIC
}


def unwrapped(choice: Choice) -> str:
    """The name of the formula behind a choice: ``sequence_mean`` of ``per_micro_batch(…)``."""
    settings = axes.settings(choice)
    for name in WRAPPERS:
        if callable(settings.get(name)):
            return unwrapped(settings[name])
    plain = axes.function_of(choice).__name__
    return FAMILY.get(plain, plain)


def essence(recipe: Recipe) -> dict[str, str]:
    """The formulas of a recipe without their settings, on the axes that make its name."""
    live_only = {drop_dead_groups, drop_raw_dead_groups} & {*map(axes.function_of, recipe.filters)}
    return {
        "filters": "drop_dead_groups" if live_only else "all groups",
        **{axis: unwrapped(getattr(recipe, axis)) for axis in COMPARED[1:]},
    }


def differences(recipe: Recipe, name: str, lost: Collection[str] = ()) -> list[str]:
    """The axes on which a recipe is not what ``name`` means, in words.

    ``lost``: the axes of which a part is not covered; nothing is said of them.
    """
    ours = essence(recipe)
    theirs = essence(TARGETS[name])
    return [
        f"{axis} is {ours[axis]} where {name} has {theirs[axis]}"
        for axis in COMPARED
        if ours[axis] != theirs[axis] and axis not in lost
    ]


def describe(recipe: Recipe) -> str:
    """The recipe in words: "GRPO's advantage with a plain sum over tokens, PPO clip"."""
    parts = essence(recipe)
    pair = (parts["baseline"], parts["scale"])
    advantage = ADVANTAGE.get(pair, " / ".join(pair))
    surrogate = SURROGATE.get(parts["surrogate"], parts["surrogate"].upper())
    outer = axes.function_of(recipe.aggregation).__name__
    inner = parts["aggregation"]
    aggregation = AGGREGATION.get(outer) or AGGREGATION.get(inner, inner)
    return f"{advantage} with {aggregation}, {surrogate}"


def label(recipe: Recipe, claim: str | None) -> str:
    """ "This is …, not …, because …". ``claim`` is the name that the config goes by."""
    why = differences(recipe, claim) if claim else []
    if claim and not why:
        paper = ""
        if claim in AS_RUN:
            paper = " as frameworks run it (the paper's token mean is per prompt)"
        kl = ""
        if bool(recipe.kl) != bool(TARGETS[claim].kl):
            kl = f", {'with' if recipe.kl else 'without'} a KL term"
        return f"this is {claim}{paper}{kl}: {describe(recipe)}"
    same = (name for name in TARGETS if name not in UNNAMED and not differences(recipe, name))
    name = next((f"{name}: " for name in same), "")
    instead = f"; not {claim}, because {'; '.join(why)}" if claim else ""
    return f"this is {name}{describe(recipe)}{instead}"
