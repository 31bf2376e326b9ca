"""The toy with all seeds in one tensor program, against a plain loop over seeds, side by side.

The plain loop does the same work: it samples token by token, builds checked `Rollouts`, calls
`Recipe.loss(...).backward()` and steps `torch.optim.SGD`. Both must end at the same parameters, or
the ratio means nothing. Target: at least 20 times faster at 5 recipes x 16 seeds.

python benchmarks/toy_speed.py [STEPS] [--smoke]      (--smoke: one step)
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from grpo_edu import Recipe, Rollouts, recipe
from grpo_edu.toys import stopping
from grpo_edu.toys.stopping import Stopping
from grpo_edu.toys.training import Training

NAMES = ("grpo", "dr_grpo", "dapo", "dapo(step)", "rloo")
SEEDS = 16
POLICY = Stopping()


def complete(theta: Tensor, training: Training, source: torch.Generator) -> Rollouts:
    """One step's completions of one seed, one token after the other."""
    group = training.group
    u = torch.rand(len(group), 2 + POLICY.cap - 1, generator=source, dtype=torch.float64)
    right = u[:, 0] < torch.sigmoid(theta[2])
    logit = torch.where(right, theta[0], theta[1])
    columns = [
        torch.where(
            right,
            torch.nn.functional.logsigmoid(theta[2]),
            torch.nn.functional.logsigmoid(-theta[2]),
        )
    ]
    running = torch.ones_like(right)
    masks = [torch.ones_like(right)]
    for t in range(POLICY.cap - 1):
        stop = u[:, 2 + t] < torch.sigmoid(logit)
        columns.append(
            torch.where(
                stop, torch.nn.functional.logsigmoid(logit), torch.nn.functional.logsigmoid(-logit)
            )
        )
        masks.append(running)
        running = running & ~stop
        if not running.any():
            break
    return Rollouts(
        logp=torch.stack(columns, 1),
        mask=torch.stack(masks, 1),
        reward=right.double(),
        group=group,
        truncated=running,
        max_new_tokens=POLICY.cap,
    )


def plain(recipes: Sequence[Recipe], training: Training) -> dict[tuple[str, int], Tensor]:
    """Recipe by recipe, seed by seed."""
    ends = {}
    for loss in recipes:
        for seed in range(SEEDS):
            source = torch.Generator().manual_seed(seed)
            theta = POLICY.start()[0].clone().requires_grad_()
            optimiser = torch.optim.SGD([theta], lr=training.learning_rate)
            for _ in range(training.steps):
                optimiser.zero_grad()
                loss.loss(complete(theta, training, source)).backward()
                optimiser.step()
            ends[loss.name, seed] = theta.detach()
    return ends


def main(steps: int) -> None:
    """Time both, check that they agree, print the ratio; the same for one seed at a time."""
    recipes = [recipe(name).but(name, kl=None) for name in NAMES]
    training = Training(steps=steps, prompts=4, learning_rate=0.5, every=steps)
    stopping.train(recipes, POLICY, Training(steps=2), seeds=2)  # warm up
    start = time.process_time()
    table = stopping.train(recipes, POLICY, training, seeds=SEEDS)
    batched = time.process_time() - start
    start = time.process_time()
    ends = plain(recipes, training)
    looped = time.process_time() - start
    start = time.process_time()
    for seed in range(SEEDS):
        stopping.train(recipes, POLICY, training, seeds=[seed])
    one_by_one = time.process_time() - start
    last = table.loc[table["step"] == steps]
    for row in last.to_dict("records"):
        mine = torch.tensor(
            [row["stop_right"], row["stop_wrong"], row["attempt"]], dtype=torch.float64
        )
        torch.testing.assert_close(mine, ends[row["recipe"], row["seed"]], rtol=0, atol=1e-9)
    size = f"{len(recipes)} recipes x {SEEDS} seeds x {steps} steps"
    print(f"{size}, {torch.get_num_threads()} threads; parameters agree to 1e-9")
    ratio = looped / batched
    print(f"CPU time: batched {batched:.2f} s, plain loop {looped:.2f} s, ratio {ratio:.1f}")
    ratio = one_by_one / batched
    print(f"the same program one seed at a time {one_by_one:.2f} s, ratio {ratio:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("steps", nargs="?", type=int, default=50)
    parser.add_argument("--smoke", action="store_true", help="one step")
    given = parser.parse_args()
    main(1 if given.smoke else given.steps)
