"""How much longer `import grpo_edu` takes than `import torch`, side by side in fresh processes.

Target: at most 1.15 times.

python benchmarks/import_time.py [ROUNDS] [--smoke]      (--smoke: one round)
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

CODE = "import time; a = time.perf_counter(); import {module}; print(time.perf_counter() - a)"


def seconds(module: str) -> float:
    """Import time in a new process."""
    printed = subprocess.run(
        [sys.executable, "-c", CODE.format(module=module)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(printed.stdout)


def main(rounds: int) -> None:
    """Alternate the two, so that both see the same machine; print medians and their ratio."""
    for module in ("torch", "grpo_edu"):
        seconds(module)  # warms the disk cache
    pairs = [(seconds("torch"), seconds("grpo_edu")) for _ in range(rounds)]
    torch_s, ours_s = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(ours / torch for torch, ours in pairs)
    print(f"import torch {torch_s:.3f} s, import grpo_edu {ours_s:.3f} s")
    print(f"median of {rounds} paired ratios {ratio:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("rounds", nargs="?", type=int, default=15)
    parser.add_argument("--smoke", action="store_true", help="one round")
    given = parser.parse_args()
    main(1 if given.smoke else given.rounds)
