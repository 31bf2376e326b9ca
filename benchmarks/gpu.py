"""One GPU, at most 8 minutes: the lab's two losses, then a model of SmolLM2's shape against TRL. Runs smaller on a CPU.

1. GRPO and Dr. GRPO in the lab, one warm start and seed each: the gap must open under one and not under the other.
2. A randomly initialised Llama of SmolLM2-135M's shape (no download): tokens per second of sampling and training, and peak memory,
   here and, where trl is installed, in TRL's GRPOTrainer. Float32 weights, bfloat16 autocast on CUDA.

python benchmarks/gpu.py
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from typing import Any

import torch

from grpo_edu import recipe
from grpo_edu.lm import lab
from grpo_edu.lm.experiments import GRPO
from grpo_edu.lm.loop import Settings, Trainer
from grpo_edu.lm.tasks import Question, Task, drawn_from

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
SHAPE = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
PROMPTS, SAMPLES, TOKENS, STEPS = (16, 8, 256, 6) if CUDA else (2, 4, 32, 2)


def model() -> Any:
    """SmolLM2-135M's shape with random weights; its end token is never likely, so completions run to the limit."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(**SHAPE, pad_token_id=0, eos_token_id=1, bos_token_id=2)
    net: Any = LlamaForCausalLM(config)
    return net.to(DEVICE).eval()


def parity(completion: str, answer: str) -> float:
    """A reward that differs within a group and costs nothing."""
    return float(len(completion) % 2)


def length_gap(name: str, steps: int) -> float:
    """Length given wrong minus length given right over the last 10 steps in the lab."""
    net, tokenizer = lab.warm_start("after", 0)
    chosen = GRPO if name == "grpo" else recipe(name)
    settings = Settings(steps=steps, prompts=12, samples=8, learning_rate=3e-4, micro_batches=1)
    right, wrong = [], []
    for step in Trainer(net.to(DEVICE), tokenizer, lab.task(), chosen, settings).run():
        length, good = step.batch.drawn.mask.sum(1).double().cpu(), step.batch.correct > 0
        right.append(length[good].mean().item())
        wrong.append(length[~good].mean().item())
    return sum(wrong[-10:]) / 10 - sum(right[-10:]) / 10


def ours() -> dict[str, float]:
    """Tokens per second and peak memory of our loop on the model of SmolLM2's shape."""
    pool = [Question(f"{n}=", "") for n in range(100)]
    task = Task("shape", drawn_from(pool), parity, TOKENS)
    settings = Settings(
        steps=STEPS,
        prompts=PROMPTS,
        samples=SAMPLES,
        learning_rate=1e-6,
        micro_batches=4,
        bf16=CUDA,
    )
    trainer = Trainer(model(), lab.tokenizer(), task, recipe("grpo").but(kl=None), settings)
    _forget_peak()
    steps = list(trainer.run())[1:]
    tokens = sum(int(step.rollouts.mask.sum()) for step in steps)
    return {
        "sampled tokens/s": tokens / sum(s.sample_seconds for s in steps),
        "trained tokens/s": tokens / sum(s.train_seconds for s in steps),
        "seconds/step": sum(s.sample_seconds + s.train_seconds for s in steps) / len(steps),
        "peak GB": _peak(),
    }


def trl() -> dict[str, float]:
    """The same step in GRPOTrainer."""
    from datasets import Dataset  # pyright: ignore[reportMissingImports]
    from trl import GRPOConfig, GRPOTrainer  # pyright: ignore

    _forget_peak()
    rows = Dataset.from_list([{"prompt": f"{n % 100}="} for n in range(200)])
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=PROMPTS * SAMPLES // 4,
            gradient_accumulation_steps=4,
            num_generations=SAMPLES,
            max_completion_length=TOKENS,
            max_steps=STEPS,
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
        trainer = GRPOTrainer(model(), score, config, rows, processing_class=lab.tokenizer())
        began = time.perf_counter()
        trainer.train()
        return {
            "seconds/step, first included": (time.perf_counter() - began) / STEPS,
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
    print(f"device {torch.cuda.get_device_name() if CUDA else 'cpu'}, torch {torch.__version__}")
    if not CUDA:
        torch.set_num_threads(1)
    steps = 60 if CUDA else 20
    for name in ("grpo", "dr_grpo"):
        began = time.perf_counter()
        print(
            f"lab {name}: gap {length_gap(name, steps):+.1f} tokens after {steps} steps, {time.perf_counter() - began:.0f} s"
        )
    print("shape of SmolLM2, ours:", {k: round(v, 2) for k, v in ours().items()})
    if importlib.util.find_spec("trl"):
        print("shape of SmolLM2, TRL:", {k: round(v, 2) for k, v in trl().items()})
    else:
        print("trl is not installed: no comparison")


if __name__ == "__main__":
    main()
