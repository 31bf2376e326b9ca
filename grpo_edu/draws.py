"""Random numbers from generators that are passed on: one per run of a toy, one per step of a
language model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def seed_numbers(seeds: int | Sequence[int]) -> list[int]:
    """The seeds as a list: an int n stands for 0 … n-1.

    Raises:
        ValueError: no seed, a seed twice, or a negative one.
    """
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not numbers or len(set(numbers)) < len(numbers) or any(n < 0 for n in numbers):
        raise ValueError(
            f"seeds is {seeds}: expected a positive number, or a list of different whole numbers."
        )
    return numbers


def generators(numbers: Sequence[int]) -> list[torch.Generator]:
    """One generator per seed: a seed draws the same alone or among others."""
    return [torch.Generator().manual_seed(number) for number in numbers]


def generator_of(seed: int, place: int, device: Any = None) -> torch.Generator:
    """The generator of one step of a run, or of one prompt of a file: it depends on nothing that
    was drawn before.
    """
    return torch.Generator(device=device or "cpu").manual_seed(seed * 1_000_003 + place)


def uniform(sources: Sequence[torch.Generator], *shape: int) -> Tensor:
    """``[B, *shape]`` float64 uniform numbers in [0, 1), each run from its own generator."""
    return torch.stack(
        [torch.rand(shape, generator=source, dtype=torch.float64) for source in sources]
    )


def shuffled(reward: Tensor, sources: Sequence[torch.Generator], prompts: int) -> Tensor:
    """``[B, N]`` rewards in a random order inside each of the P prompt groups: the placebo."""
    grouped = reward.reshape(len(reward), prompts, -1)
    order = uniform(sources, *grouped.shape[1:]).argsort(dim=-1)
    return grouped.gather(-1, order).reshape(reward.shape)
