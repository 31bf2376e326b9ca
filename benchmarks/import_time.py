"""CPU time of `import grpo_edu` and of the first commands, each as a multiple of `import torch`.

Aims: `import grpo_edu` at most 1.15 times, `grpo-edu --help` and `grpo-edu recipes` 1.3 times.
Every round runs all of them in turn, each in a new process, so that they see the same machine.

python benchmarks/import_time.py [ROUNDS] [--smoke]      (--smoke: one round)
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

COMMAND = "import sys; sys.argv = ['grpo-edu', '{}']; from grpo_edu.cli import app; app()"
CASES = {
    "import torch": "import torch",
    "import grpo_edu": "import grpo_edu",
    "grpo-edu --help": COMMAND.format("--help"),
    "grpo-edu recipes": COMMAND.format("recipes"),
}


def cpu_seconds(code: str) -> float:
    """User and system time of a new process, from its start to its end."""
    before = os.times()
    subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    user = after.children_user - before.children_user
    return user + after.children_system - before.children_system


def main(rounds: int) -> None:
    """Print the median time of each case and its median ratio to `import torch`."""
    for code in CASES.values():
        cpu_seconds(code)  # warms the disk cache
    seconds = [[cpu_seconds(code) for code in CASES.values()] for _ in range(rounds)]
    for number, name in enumerate(CASES):
        median = statistics.median(row[number] for row in seconds)
        ratio = statistics.median(row[number] / row[0] for row in seconds)
        print(f"{name:<17} {median:.2f} CPU s, {ratio:.2f} x import torch, {rounds} rounds")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("rounds", nargs="?", type=int, default=15)
    parser.add_argument("--smoke", action="store_true", help="one round")
    given = parser.parse_args()
    main(1 if given.smoke else given.rounds)
