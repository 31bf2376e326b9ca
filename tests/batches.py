"""Random batches for property tests: several groups, unequal lengths, empty rows, off-policy, every optional field."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from grpo_edu import Rollouts


def batch(
    seed: int,
    *,
    groups: int = 3,
    size: int = 4,
    width: int = 7,
    kind: str = "binary",
    spread: float = 0.3,
) -> Rollouts:
    """A float64 batch; the same seed gives the same batch. ``kind`` of reward: binary, real or dead (all equal in a group)."""
    g = torch.Generator().manual_seed(seed)
    n = groups * size

    def rand(*shape: int) -> Tensor:
        return torch.rand(shape, generator=g, dtype=torch.float64)

    def randn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=g, dtype=torch.float64)

    lengths = torch.randint(0, width + 1, (n,), generator=g)
    lengths[int(torch.randint(0, n, (1,), generator=g))] = width
    mask = torch.arange(width)[None] < lengths[:, None]
    logp = -0.05 - 3 * rand(n, width)
    rewards = {
        "binary": (rand(n) < 0.5).double(),
        "real": randn(n),
        "dead": rand(groups).repeat_interleave(size),
    }
    step_end = (rand(n, width) < 0.4) & mask
    return Rollouts(
        logp=logp,
        mask=mask,
        reward=rewards[kind],
        group=torch.arange(groups).repeat_interleave(size),
        old_logp=(logp + spread * randn(n, width)).clamp(max=0),
        ref_logp=(logp + spread * randn(n, width)).clamp(max=0),
        sampler_logp=(logp + spread * randn(n, width)).clamp(max=0),
        entropy=3 * rand(n, width),
        truncated=rand(n) < 0.2,
        reward_parts=torch.stack([rewards[kind], randn(n)], dim=1),
        token_reward=torch.where(step_end, randn(n, width), torch.nan),
        value=randn(n, width),
        greedy_reward=(rand(groups) < 0.5).double().repeat_interleave(size),
        given_advantage=randn(n, width),
        max_new_tokens=width + 3,
    )


def product_of(parts: dict[str, Tensor]) -> Tensor:
    """The factors of a push multiplied out, with the KL term added."""
    product = parts["advantage"] * parts["W"] * parts["ratio"] * parts["gate"]
    return product * parts.get("correction", 1.0) + parts["kl"]


@st.composite
def batches(draw: st.DrawFn, kinds: tuple[str, ...] = ("binary", "real", "dead")) -> Rollouts:
    """Hypothesis strategy over ``batch``."""
    return batch(
        draw(st.integers(0, 10**6)),
        groups=draw(st.integers(1, 3)),
        size=draw(st.integers(2, 5)),
        width=draw(st.integers(1, 7)),
        kind=draw(st.sampled_from(kinds)),
        spread=draw(st.sampled_from([0.0, 0.3, 1.0])),
    )
