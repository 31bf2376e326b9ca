"""Which program does a file belong to? By its own marks, never by what is left."""

from __future__ import annotations

import re
from collections.abc import Iterable


class CannotTell(ValueError):
    """No verdict: another program's file, or the program is not known."""

    exit_code = 1  # of the command


# the words of a command that start a framework's own program
PROGRAMS = {
    "verl": r"(.*[./])?main_(ppo|dapo)(\.py)?|(.*[./])?recipe[./].*[./](\w*main\w*)(\.py)?"
    r"|verl[\w.]*\.(\w*main_\w+|\w+_main)",
    "openrlhf": r"(.*[./])?train_ppo_ray(\.py)?",
    "skyrl": r"(skyrl|skyrl_train|examples|integrations|skyrl_gym)\.[\w.]*main\w*",
    "nemo_rl": r"(.*/)?run_(vlm_)?grpo\w*\.py",
    "open_instruct": r"(.*/)?grpo_(fast|vllm_thread_ray_gtrl)\.py",
    "trl": r"trl|(.*/)?trl/scripts/(grpo|rloo)\.py|(.*/)?open_r1/grpo\.py"
    r"|(.*/)?examples/scripts/(grpo|rloo|gspo)\w*\.py",
}
# keys that only one framework has
KEYS = {
    "verl": r"actor_rollout_ref\..*|algorithm\.adv_estimator",
    "skyrl": r"trainer\.algorithm\..*",
    "nemo_rl": r"loss_fn\..*|grpo\.num_(prompts|generations)_.*",
    "slime": r"n-samples-per-prompt|rollout-batch-size|advantage-estimator",
    "openrlhf": r"algo\.(advantage|kl)\..*|advantage_estimator|n_samples_per_prompt|init_kl_coef"
    r"|rollout\.n_samples_per_prompt|actor\.eps_clip.*",
    "open_instruct": r"loss_denominator|advantage_normalization_type|num_samples_per_prompt_rollout",
    "trl": r"trainer|loss_type|num_generations|max_completion_length|importance_sampling_level"
    r"|scale_rewards|steps_per_generation|reward_weights|mask_truncated_completions",
}
# programs with a loss or defaults of their own that no table here has: keys and words of theirs
FOREIGN = {
    "EasyR1": r"worker\.(actor|rollout|reward)\..*|verl\.trainer\.main",
    "ms-swift": r"rlhf_type|swift|(.*/)?swift/cli/rlhf\.py",
    "LLaMA-Factory": r"llamafactory-cli|finetuning_type",
    "axolotl": r"axolotl(\..*)?|trl\.(beta|loss_type|num_generations|use_vllm|max_completion_length)",
    "Unsloth": r"unsloth(\..*)?",
    "ROLL": r"actor_train\..*|actor_infer\..*|(.*/)?start_(rlvr|agentic)_pipeline\.py",
    "AReaL": r"gconfig\..*|actor\.group_adv_norm|allocation_mode",
    "VLM-R1": r"(.*/)?grpo_(rec|jsonl)\.py",
}
KNOWN = "trl, verl, openrlhf, nemo_rl, skyrl, slime, oat, open_instruct or rlhf_book"


def _named(table: dict[str, str], words: Iterable[str]) -> dict[str, str]:
    """Name -> the first word that is a mark of it."""
    marks: dict[str, str] = {}
    for word in words:
        for name, pattern in table.items():
            if re.fullmatch(pattern, word):
                marks.setdefault(name, word)
    return marks


def program(words: Iterable[str]) -> tuple[str, str] | None:
    """The framework whose program a command starts, or a foreign one, and the word that says so."""
    marks = _named({**FOREIGN, **PROGRAMS}, words)
    return next(iter(marks.items()), None)


def framework_of_keys(keys: Iterable[str]) -> str | None:
    """The framework whose own keys are among these; None where there are none.

    Raises:
        CannotTell: they are keys of another program.
    """
    keys = list(keys)
    refuse_foreign(keys)
    counts = {name: sum(bool(re.fullmatch(p, key)) for key in keys) for name, p in KEYS.items()}
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] else None


def refuse_foreign(words: Iterable[str]) -> None:
    """Refuse what belongs to a program that no table here describes.

    Raises:
        CannotTell: always, where there is a mark of one.
    """
    for name, mark in _named(FOREIGN, words).items():
        raise CannotTell(
            f"'{mark}' is a mark of {name}, whose loss and defaults are in no table here: no "
            f"verdict. Expected a file of {KNOWN}; where it is one, give --framework."
        )
