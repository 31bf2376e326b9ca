"""Which program does a file belong to? By its own marks, never by what is left."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from .tables import FRAMEWORKS


class CannotTell(ValueError):
    """No verdict: another program's file, or the program is not known."""

    exit_code = 1  # of the command


# the words of a command that start a framework's own program
PROGRAMS = {
    "skyrl": r"(skyrl|skyrl_train|examples|integrations|skyrl_gym)\.[\w.]*main\w*",
    "verl": r"(.*[./])?main_(ppo|dapo)(\.py)?|(.*[./])?recipe[./].*[./](\w*main\w*)(\.py)?"
    r"|verl[\w.]*\.(\w*main_\w+|\w+_main)",
    "openrlhf": r"(.*[./])?train_ppo_ray(\.py)?",
    "nemo_rl": r"(.*/)?run_(vlm_)?grpo\w*\.py",
    "open_instruct": r"(.*/)?grpo_(fast|vllm_thread_ray_gtrl)\.py",
    "trl": r"trl (grpo|rloo)|(.*/)?trl/scripts/(grpo|rloo)\.py|(.*/)?open_r1/grpo\.py"
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
    "open_instruct": r"loss_denominator|advantage_normalization_type|num_samples_per_prompt_.*",
    "trl": r"trainer|num_generations|max_completion_length|importance_sampling_level"
    r"|scale_rewards|steps_per_generation|reward_weights|mask_truncated_completions",
}
# with loss_type, which others have too, one of these makes it TRL's
TRL_TOO = {
    "beta",
    "epsilon",
    "epsilon_high",
    "delta",
    "learning_rate",
    "per_device_train_batch_size",
}
# programs with a loss or defaults of their own: words, keys and imported modules of theirs. Where a
# data file has the name of one, in small letters and with _ for -, that table reads it.
FOREIGN = {
    "EasyR1": r"worker\.(actor|rollout|reward|ref|critic)\..*|verl\.trainer\.main",
    "ms-swift": r"rlhf_type|(swift|megatron) rlhf|(.*/)?swift/cli/rlhf\.py|swift(\..*)?",
    "LLaMA-Factory": r"(llamafactory-cli|lmf) train|finetuning_type|llamafactory(\..*)?",
    "axolotl": r"axolotl train|axolotl(\..*)?|sequence_len|base_model"
    r"|trl\.(beta|loss_type|num_generations|use_vllm|max_completion_length)",
    "Unsloth": r"unsloth(\..*)?",
    "ROLL": r"(actor_train|actor_infer)\..*|(.*/)?start_\w*_pipeline\.py|roll\..*"
    r"|num_return_sequences_in_group",
    "AReaL": r"gconfig\..*|actor\.(group_adv_norm|adv_norm|reward_norm|use_decoupled_loss)(\..*)?"
    r"|allocation_mode|areal(\..*)?",
    "prime-rl": r"rl @|prime_rl(\..*)?|(.*/)?prime_rl/.*|orchestrator\..*",
    "miles": r"(.*/)?miles/train(_async)?\.py|miles(\..*)?",
    "VLM-R1": r"(.*/)?grpo_(rec|jsonl)\.py|(.*/)?open-r1-multimodal/.*",
    "R1-V": r"(.*/)?r1-v/.*\.py",
    "Tunix": r"tunix(\..*)?",
}


class Program(NamedTuple):
    """A framework, or a foreign program; the words that say so; where the next word stands."""

    name: str
    mark: str
    after: int


def program(words: list[str]) -> Program | None:
    """The framework's own program that a command starts, or a foreign one."""
    for at, word in enumerate(words):
        for mark in (word, " ".join([word, *words[at + 1 : at + 2]])):
            if mark != word and word.startswith("-"):
                continue
            for name, pattern in (FOREIGN | PROGRAMS).items():
                if re.fullmatch(pattern, mark):
                    return Program(name, mark, at + 1 + mark.count(" "))
    return None


def framework_of_keys(keys: Iterable[str]) -> str | None:
    """The framework whose own keys are among these; None where there are none."""
    keys = list(keys)
    counts = {name: sum(bool(re.fullmatch(p, key)) for key in keys) for name, p in KEYS.items()}
    counts["trl"] += "loss_type" in keys and bool(TRL_TOO & {*keys})
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] else None


def own_program(framework: str, mark: str) -> bool:
    """Is it the framework's own program, and not one that is built on it?"""
    pattern = r"(verl\.trainer\.|(.*/)?trainer/)?main_ppo(\.py)?|.*main_dapo(\.py)?"
    return framework != "verl" or bool(re.fullmatch(pattern, mark.split()[-1]))


def foreign(words: Collection[str]) -> str | None:
    """The table of a program that has a loss or defaults of its own; None where it is none of them.

    Raises:
        CannotTell: there is a mark of one that no table here describes.
    """
    for name, pattern in FOREIGN.items():
        for mark in (word for word in words if re.fullmatch(pattern, word)):
            table = name.lower().replace("-", "_")
            if table in FRAMEWORKS:
                return table
            raise CannotTell(
                f"'{mark}' is a mark of {name}, whose loss and defaults are in no table here: no "
                f"verdict. Where the file is not {name}'s, give --framework (framework=): one of "
                f"{', '.join(FRAMEWORKS)}."
            )
    return None
