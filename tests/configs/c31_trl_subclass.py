"""Train with GRPO. Usage: accelerate launch train.py --beta 0.01"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


@dataclass
class MyConfig(GRPOConfig):
    """TRL's config with defaults of our own."""

    loss_type: str = "dr_grpo"
    scale_rewards: str = field(default="none", metadata={"help": "no division by the std"})
    tool_names: list[str] = field(default_factory=lambda: ["search"])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--beta", type=float, default=0.04)
    parser.add_argument("--num-generations", type=int, default=8)
    return parser.parse_args()


def exact(completions, answer, **_):
    return [float(a in c) for c, a in zip(completions, answer, strict=True)]


def main() -> None:
    args = parse()
    devices = int(os.environ.get("WORLD_SIZE", "8"))
    common = dict(num_iterations=2, max_completion_length=2 * 1024)  # noqa: C408
    common["epsilon_high"] = 0.28
    if torch.cuda.is_bf16_supported():
        common.update(bf16=True)
    config = MyConfig(
        output_dir=f"runs/{args.model}",
        beta=args.beta,
        num_generations=args.num_generations,
        per_device_train_batch_size=64 // devices,
        **common,
    )
    config.use_bias_correction_kl = False
    data = load_dataset("json", data_files="train.jsonl", split="train")
    GRPOTrainer(model=args.model, args=config, train_dataset=data, reward_funcs=exact).train()


if __name__ == "__main__":
    main()
