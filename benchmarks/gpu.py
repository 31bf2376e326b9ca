"""One GPU, at most 8 minutes: the lab's two losses, then SmolLM2's shape against TRL.

Runs smaller on a CPU.

1. GRPO and Dr. GRPO in the lab, one warm start and seed each: the gap must open under one and not
   under the other.
2. A randomly initialised Llama of SmolLM2-135M's shape (no download): tokens per second of sampling
   and training, and peak memory, here and, where trl is installed, in TRL's GRPOTrainer. Float32
   weights, bfloat16 autocast on CUDA.

python benchmarks/gpu.py [--smoke]      (--smoke: one step of the smallest sizes)
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import tempfile
import time
from typing import Any, NamedTuple

import torch

from grpo_edu import recipe
from grpo_edu.lm import lab
from grpo_edu.lm.experiments import GRPO
from grpo_edu.lm.loop import Settings, Trainer
from grpo_edu.lm.tasks import Problem, Task, drawn_from

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
SHAPE = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}


class Size(NamedTuple):
    """Of the step on the model of SmolLM2's shape, and steps of the lab."""

    prompts: int
    samples: int
    tokens: int
    steps: int
    lab_steps: int
    layers: int


SMOKE = Size(prompts=2, samples=2, tokens=4, steps=2, lab_steps=1, layers=1)
ON_CPU = Size(prompts=2, samples=4, tokens=32, steps=2, lab_steps=20, layers=30)
ON_CUDA = Size(prompts=16, samples=8, tokens=256, steps=6, lab_steps=60, layers=30)


def model(layers: int) -> Any:
    """SmolLM2-135M's shape, random weights: its end token is never likely, so texts are long."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        **SHAPE, num_hidden_layers=layers, pad_token_id=0, eos_token_id=1, bos_token_id=2
    )
    net: Any = LlamaForCausalLM(config)
    return net.to(DEVICE).eval()


def parity(completion: str, answer: str) -> float:
    """A reward that differs within a group and costs nothing."""
    return float(len(completion) % 2)


def length_gap(name: str, steps: int) -> float:
    """Length given wrong minus length given right over the last 10 steps in the lab."""
    net, tokenizer = lab.warm_start("after", 0)
    loss = GRPO if name == "grpo" else recipe(name)
    settings = Settings(steps=steps, prompts=12, samples=8, learning_rate=3e-4)
    right = []
    wrong = []
    for step in Trainer(net.to(DEVICE), tokenizer, lab.task(), loss, settings).run():
        length = step.batch.drawn.mask.sum(1).double().cpu()
        good = step.batch.correct > 0
        right.append(length[good].mean().item())
        wrong.append(length[~good].mean().item())
    return statistics.mean(wrong[-10:]) - statistics.mean(right[-10:])


def ours(size: Size) -> dict[str, float]:
    """Tokens per second and peak memory of our loop on the model of SmolLM2's shape."""
    pool = [Problem(f"{n}=", "") for n in range(100)]
    task = Task("shape", drawn_from(pool), parity, size.tokens)
    settings = Settings(
        steps=size.steps,
        prompts=size.prompts,
        samples=size.samples,
        learning_rate=1e-6,
        micro_batches=4,
        bf16=CUDA,
    )
    trainer = Trainer(
        model(size.layers), lab.tokenizer(), task, recipe("grpo").but(kl=None), settings
    )
    _forget_peak()
    steps = list(trainer.run())[1:]
    tokens = sum(int(step.rollouts.mask.sum()) for step in steps)
    return {
        "sampled tokens/s": tokens / sum(s.sample_seconds for s in steps),
        "trained tokens/s": tokens / sum(s.train_seconds for s in steps),
        "seconds/step": sum(s.sample_seconds + s.train_seconds for s in steps) / len(steps),
        "peak GB": _peak(),
    }


def trl(size: Size) -> dict[str, float]:
    """The same step in GRPOTrainer."""
    from datasets import Dataset  # pyright: ignore[reportMissingImports]
    from trl import GRPOConfig, GRPOTrainer  # pyright: ignore

    _forget_peak()
    rows = Dataset.from_list([{"prompt": f"{n % 100}="} for n in range(200)])
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=size.prompts * size.samples // 4,
            gradient_accumulation_steps=4,
            num_generations=size.samples,
            max_completion_length=size.tokens,
            max_steps=size.steps,
            learning_rate=1e-6,
            loss_type="grpo",
            beta=0.0,
            temperature=1.0,
            use_cpu=not CUDA,
            bf16=CUDA,
            gradient_checkpointing=False,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        score: Any = _lengths
        trainer = GRPOTrainer(
            model(size.layers), score, config, rows, processing_class=lab.tokenizer()
        )
        began = time.perf_counter()
        trainer.train()
        return {
            "seconds/step, first included": (time.perf_counter() - began) / size.steps,
            "peak GB": _peak(),
        }


def _lengths(completions: list[str], **others: Any) -> list[float]:
    return [parity(text, "") for text in completions]


def _forget_peak() -> None:
    if CUDA:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _peak() -> float:
    return torch.cuda.max_memory_allocated() / 1e9 if CUDA else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="one step of the smallest sizes")
    size = ON_CUDA if CUDA else ON_CPU
    if parser.parse_args().smoke:
        size = SMOKE
    print(f"device {torch.cuda.get_device_name() if CUDA else 'cpu'}, torch {torch.__version__}")
    if not CUDA:
        torch.set_num_threads(1)
    for name in ("grpo", "dr_grpo"):
        began = time.perf_counter()
        gap = length_gap(name, size.lab_steps)
        seconds = time.perf_counter() - began
        print(f"lab {name}: gap {gap:+.1f} tokens after {size.lab_steps} steps, {seconds:.0f} s")
    print("shape of SmolLM2, ours:", {k: round(v, 2) for k, v in ours(size).items()})
    if importlib.util.find_spec("trl") and importlib.util.find_spec("datasets"):
        print("shape of SmolLM2, TRL:", {k: round(v, 2) for k, v in trl(size).items()})
    else:
        print("no comparison with TRL: needs trl")


if __name__ == "__main__":
    main()
