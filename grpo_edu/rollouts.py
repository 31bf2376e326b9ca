"""Rollouts: what one optimiser step learns from. Log-probs, mask, rewards and groups of N
completions of at most T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from .checks import check_of, instance, number, shown, whole_number

PER_TOKEN = ("logp", "old_logp", "ref_logp", "sampler_logp", "entropy", "token_reward", "value")
PER_ROW = ("reward", "scored", "group", "truncated", "greedy_reward")


@dataclass(frozen=True, eq=False)
class Rollouts:
    """N completions of P prompts, with everything a loss of the GRPO family may look at.

    Args:
        logp: ``[N, T]`` log-probability of each sampled token under the policy that is trained.
            May carry a graph.
        mask: ``[N, T]`` bool, True on the completion tokens that are trained (prompt, padding, tool
            output: False). Whatever stands under False is never read, NaN included.
        reward: ``[N]``, or a list that may hold None for "not scored": such a row gets advantage 0
            and is left out of the statistics of its group. Held in float32 or wider, whatever comes
            in.
        group: ``[N]`` integer, the prompt that each completion answers.
        old_logp: ``[N, T]`` under the policy before the updates of this batch: the proximal
            policy, below the ratio. Missing: the batch is on-policy, every ratio is 1.
        ref_logp: ``[N, T]`` under the frozen reference policy, for KL terms.
        sampler_logp: ``[N, T]`` under the policy and engine that sampled (the behaviour policy),
            where it differs from ``old_logp``.
        entropy: ``[N, T]`` entropy of the policy's next-token distribution at each token, in nats.
        truncated: ``[N]`` bool, True where the completion ran into the length limit.
        reward_parts: ``[N, K]`` one column per reward function; NaN where a function does not
            apply to that completion.
        token_reward: ``[N, T]`` reward given at a token (a step's end, in process supervision);
            NaN where none is given.
        value: ``[N, T]`` value-model estimate of the state before each token.
        greedy_reward: ``[N]`` reward of the greedy completion of the row's prompt (ReMax).
        given_advantage: ``[N]`` or ``[N, T]`` advantages given from outside, read only by the
            baseline ``given``.
        max_new_tokens: the length limit of the sampler. A constant normaliser is this number or one
            the user gives, never the padded width ``mask.shape[1]``.
        tokens: for each row the text of its tokens, at least as many as the mask has positions
            with True.
        prompts: for each row the text of its prompt.
        scored: ``[N]`` bool, made from the None rewards; give it only together with a reward
            tensor.

    Raises:
        ValueError, TypeError: with the argument, what was found, what was expected, and how to
            fix it.
    """

    logp: Tensor
    mask: Tensor
    reward: Tensor
    group: Tensor
    old_logp: Tensor | None = None
    ref_logp: Tensor | None = None
    sampler_logp: Tensor | None = None
    entropy: Tensor | None = None
    truncated: Tensor | None = None
    reward_parts: Tensor | None = None
    token_reward: Tensor | None = None
    value: Tensor | None = None
    greedy_reward: Tensor | None = None
    given_advantage: Tensor | None = None
    max_new_tokens: int | None = None
    tokens: Sequence[Sequence[str]] | None = None
    prompts: Sequence[str] | None = None
    scored: Tensor | None = None

    def __post_init__(self) -> None:
        reward, scored = _rewards(self.reward, self.scored)
        object.__setattr__(self, "reward", reward)
        object.__setattr__(self, "scored", scored)
        for name in ("token_reward", "reward_parts", "greedy_reward", "value", "given_advantage"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _at_least_float32(name, value))
        group: Any = self.group
        if not isinstance(group, Tensor):
            numbers = check_of(Sequence[int])("group", group)
            object.__setattr__(self, "group", torch.as_tensor(numbers))
        _validate(self)

    @classmethod
    def unchecked(cls, **values: Any) -> Rollouts:
        """Build without validation, for inner loops (``torch.vmap``) whose tensors were checked
        once outside.
        """
        self = object.__new__(cls)
        for field in fields(cls):
            object.__setattr__(self, field.name, values.get(field.name))
        if self.scored is None:
            object.__setattr__(self, "scored", torch.ones_like(self.group, dtype=torch.bool))
        return self

    @classmethod
    def from_lengths(
        cls,
        lengths: Sequence[int],
        rewards: Sequence[float | None],
        group: Sequence[int] | None = None,
        *,
        ratio: float | Sequence[float] = 1.0,
        logp: float = -1.0,
        dtype: torch.dtype = torch.float64,
        **others: Any,
    ) -> Rollouts:
        """Completions that are only a length and a reward: the smallest example of anything.

        ``Rollouts.from_lengths([2, 8], rewards=[1, 0])`` is two completions of one prompt.

        Args:
            lengths: N token counts.
            rewards: N rewards; None is "not scored".
            group: N prompt numbers; missing: one prompt.
            ratio: importance ratio of every token, one number or one per completion; 1 is
                on-policy.
            logp: log-probability of every token.
            dtype: of the log-probs.
            others: any other field of ``Rollouts``.
        """
        lengths_t, width = _lengths(lengths)
        if not instance("dtype", dtype, torch.dtype).is_floating_point:
            raise TypeError(f"dtype is {dtype}: expected a floating point type.")
        number("logp", logp, high=0.0)
        mask = torch.arange(width)[None, :] < lengths_t[:, None]
        new = torch.full(mask.shape, float(logp), dtype=dtype)
        ratios = _numbers("ratio", ratio, dtype)
        if ratios.shape not in ((), (len(lengths),)) or not (ratios > 0).all():
            raise ValueError(
                f"ratio is {ratio}: expected one positive number, or one per completion "
                f"({len(lengths)})."
            )
        if (ratios != 1).any():
            if "old_logp" in others:
                raise ValueError(
                    "from_lengths got both ratio and old_logp: expected one of them, each fixes "
                    "the ratios."
                )
            others["old_logp"] = (new - ratios.log().reshape(-1, 1)).clamp(max=0.0)
            new = others["old_logp"] + ratios.log().reshape(-1, 1)
        if "given_advantage" in others:
            others["given_advantage"] = _numbers(
                "given_advantage", others["given_advantage"], dtype
            )
        if group is None:
            group = [0] * len(lengths)
        reward, scored = _rewards(rewards, None)
        return cls(
            logp=new,
            mask=mask,
            reward=reward.to(dtype),
            group=group,  # type: ignore[arg-type]
            scored=scored,
            **others,
        )

    def __len__(self) -> int:
        return len(self.mask)

    def __getitem__(self, rows: Tensor | slice) -> Rollouts:
        """The given rows (a slice, indices or a bool mask), for one micro-batch. Not validated
        again.
        """
        index = torch.arange(len(self), device=self.mask.device)[rows]
        if index.ndim != 1:
            raise TypeError(
                f"rows is {rows!r}: expected a slice, a list of indices or a bool mask. For one "
                "row: rollouts[i : i + 1]."
            )
        values: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                value = value[index]
            elif field.name in ("tokens", "prompts") and value is not None:
                value = [value[i] for i in index.tolist()]
            values[field.name] = value
        return Rollouts.unchecked(**values)

    def with_logp(self, logp: Tensor) -> Rollouts:
        """The same rollouts under other log-probs of the trained policy, ``[N, T]``."""
        return replace(self, logp=logp)

    def to(self, where: torch.device | str | torch.dtype) -> Rollouts:
        """Moved to a device, or with every floating tensor in another dtype (rewards stay at least
        float32).
        """
        moved = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, Tensor) or (
                isinstance(where, torch.dtype) and not value.is_floating_point()
            ):
                continue
            narrow = where in (torch.float16, torch.bfloat16) and not field.name.endswith("logp")
            moved[field.name] = value.to(torch.float32 if narrow else where)
        return replace(self, **moved)

    @property
    def lengths(self) -> Tensor:
        """``[N]`` number of trained tokens of each completion."""
        return self.mask.sum(dim=1)


def _lengths(lengths: Sequence[int]) -> tuple[Tensor, int]:
    """Token counts as a tensor, and the padded width."""
    if isinstance(lengths, Sequence) and not isinstance(lengths, str) and len(lengths):
        counts = [whole_number("lengths", n, 0, 10**8) for n in lengths]
        lengths = torch.as_tensor(counts)  # type: ignore[assignment]
    values: Any = lengths
    right = isinstance(values, Tensor) and values.ndim == 1 and len(values) > 0
    if not right or values.dtype not in (torch.int32, torch.int64) or (values < 0).any():
        raise ValueError(
            f"lengths is {shown(lengths)}: expected a non-empty list of whole numbers >= 0, one "
            "per completion."
        )
    if len(values) * int(values.max()) > 10**8:
        raise ValueError(
            f"lengths are {len(values)} with up to {int(values.max())} tokens: expected at most "
            "1e8 tokens in all."
        )
    return values, max(1, int(values.max()))


def _numbers(name: str, value: Any, dtype: torch.dtype) -> Tensor:
    """A number, a list of numbers (or of lists of them) or a tensor, as a tensor."""
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value):
        return torch.stack(
            [_numbers(f"{name}[{i}]", entry, dtype) for i, entry in enumerate(value)]
        )
    return torch.as_tensor(value if isinstance(value, Tensor) else number(name, value), dtype=dtype)


def _rewards(reward: Any, scored: Tensor | None) -> tuple[Tensor, Tensor]:
    """Rewards in float32 or wider with None turned into (0, not scored)."""
    if not isinstance(reward, Tensor):
        if (
            scored is not None
            or isinstance(reward, (str, bytes))
            or not isinstance(reward, Sequence)
        ):
            raise TypeError(
                f"reward is {reward!r}: expected a tensor, or a list of numbers and None (without "
                "scored, which None says)."
            )
        if not all(r is None or isinstance(r, (int, float)) for r in reward):
            raise TypeError(
                f"reward is {list(reward)}: expected numbers, or None where a completion was not "
                "scored."
            )
        scored = torch.tensor([r is not None for r in reward])
        reward = torch.tensor([0.0 if r is None else float(r) for r in reward], dtype=torch.float64)
    reward = _at_least_float32("reward", reward)
    if scored is None:
        scored = torch.ones(reward.shape, dtype=torch.bool, device=reward.device)
    return reward, scored


def _at_least_float32(name: str, value: Any) -> Tensor:
    """Whole numbers, bool, float16 and bfloat16 become float32; float64 stays."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name} is a {type(value).__name__}: expected a torch.Tensor. Use "
            f"torch.as_tensor({name})."
        )
    if value.is_complex():
        raise TypeError(f"{name} has dtype {value.dtype}: expected real numbers.")
    return value if value.dtype in (torch.float32, torch.float64) else value.to(torch.float32)


def _validate(rollouts: Rollouts) -> None:
    """Every check of the fields of one batch; raises on the first that fails."""
    mask = rollouts.mask
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        found = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(
            f"mask has dtype {found}: expected torch.bool, True on trained tokens. Use mask.bool()."
        )
    if mask.ndim != 2:
        raise ValueError(
            f"mask has shape {list(mask.shape)}: expected two dimensions [N completions, T tokens]."
        )
    if mask.shape[0] == 0 or mask.shape[1] == 0:
        raise ValueError(
            f"mask has shape {list(mask.shape)}: the batch is empty. Give at least one completion "
            "and token."
        )
    _check_shapes(rollouts)
    for name in ("logp", "old_logp", "ref_logp", "sampler_logp"):
        _check_log_probs(name, getattr(rollouts, name), mask)
    _check_finite(rollouts)
    group = rollouts.group
    if group.is_floating_point() or group.is_complex() or group.dtype == torch.bool:
        raise TypeError(
            f"group has dtype {group.dtype}: expected whole numbers, the prompt of each completion."
        )
    limit = rollouts.max_new_tokens
    longest = int(mask.sum(dim=1).max())
    if limit is not None and whole_number("max_new_tokens", limit) < longest:
        raise ValueError(
            f"max_new_tokens is {limit} but the longest completion has {longest} trained tokens: "
            "expected a whole number that no completion exceeds. Give the sampler's own limit."
        )
    _check_texts(rollouts, mask)
    devices = {
        str(v.device): f.name
        for f in fields(rollouts)
        if isinstance(v := getattr(rollouts, f.name), Tensor)
    }
    if len(devices) > 1:
        raise ValueError(
            f"tensors lie on different devices ({devices}): move them with rollouts.to(device)."
        )


def _check_shapes(rollouts: Rollouts) -> None:
    """Per-token fields are [N, T], per-row fields [N]; the mask decides."""
    n, t = rollouts.mask.shape
    for field in fields(rollouts):
        value = getattr(rollouts, field.name)
        if not isinstance(value, Tensor):
            if field.name == "logp" or (field.name in (*PER_TOKEN, *PER_ROW) and value is not None):
                raise TypeError(f"{field.name} is {shown(value)}: expected a torch.Tensor.")
            continue
        shape = list(value.shape)
        if field.name in PER_TOKEN and shape != [n, t]:
            off_by_one = (
                f" If {field.name} still holds the prompt's last position, drop it: "
                f"{field.name}[:, 1:]."
            )
            hint = off_by_one if shape == [n, t + 1] else " One number per token of the mask."
            raise ValueError(
                f"{field.name} has shape {shape} but mask has {[n, t]}: they must agree.{hint}"
            )
        if field.name in PER_ROW and shape != [n]:
            raise ValueError(
                f"{field.name} has shape {shape} but mask has {n} completions: expected [{n}], one "
                "per row."
            )
        if field.name == "reward_parts" and (value.ndim != 2 or shape[0] != n or shape[1] == 0):
            raise ValueError(
                f"reward_parts has shape {shape}: expected [{n}, K], one column per reward "
                "function."
            )
        if field.name == "given_advantage" and shape not in ([n], [n, t]):
            raise ValueError(f"given_advantage has shape {shape}: expected [{n}] or {[n, t]}.")
        if field.name in ("scored", "truncated") and value.dtype != torch.bool:
            raise TypeError(
                f"{field.name} has dtype {value.dtype}: expected torch.bool. Use "
                f"{field.name}.bool()."
            )


def _check_log_probs(name: str, value: Tensor | None, mask: Tensor) -> None:
    """Floating point, no NaN or infinity on a trained token, none above 0 by more than rounding."""
    if value is None:
        return
    if not value.is_floating_point():
        raise TypeError(
            f"{name} has dtype {value.dtype}: expected floating point log-probabilities."
        )
    live = value.detach()[mask]
    if not torch.isfinite(live).all():
        where = tuple((~torch.isfinite(value.detach()) & mask).nonzero()[0].tolist())
        raise ValueError(
            f"{name} is {value.detach()[where].item()} at completion {where[0]}, token {where[1]}: "
            "expected a finite "
            "log-probability on every trained token. Mask the token, or look for log(0) and "
            "overflow upstream."
        )
    if (live.abs() > _largest(value)).any():
        raise ValueError(
            f"{name} holds {live.min().item()}: expected numbers of size at most "
            f"{_largest(value):g}, "
            "since their squares must be finite."
        )
    if (live > 1e-5).any():
        where = tuple(((value.detach() > 1e-5) & mask).nonzero()[0].tolist())
        raise ValueError(
            f"{name} is {value.detach()[where].item():.4g} at completion {where[0]}, token "
            f"{where[1]}: a log-probability "
            f"is at most 0. If these are probabilities, take their logarithm: {name}.log()."
        )


def _check_finite(rollouts: Rollouts) -> None:
    """Rewards, values and advantages that are read must be numbers."""
    for name in (
        "reward",
        "greedy_reward",
        "reward_parts",
        "entropy",
        "token_reward",
        "value",
        "given_advantage",
    ):
        value = getattr(rollouts, name)
        if value is None:
            continue
        per_token = name in PER_TOKEN or (name == "given_advantage" and value.ndim == 2)
        read = value[rollouts.mask] if per_token else value[rollouts.scored]
        read = read.reshape(-1)
        bad = (
            torch.isinf(read) if name in ("reward_parts", "token_reward") else ~torch.isfinite(read)
        )
        if bad.any():
            found = read[bad][0].item()
            raise ValueError(
                f"{name} holds {found}: expected finite numbers. Where a completion could not be "
                "scored, give None in a "
                "list of rewards (it is then left out of its group); a 0 would punish or reward it."
            )
        if (read.abs() > _largest(value)).any():
            raise ValueError(
                f"{name} holds {read[read.abs() > _largest(value)][0].item()}: expected numbers of "
                "size at most "
                f"{_largest(value):g} in {value.dtype}, since a std adds their squares, which must "
                "not "
                "overflow. Divide the rewards by a constant."
            )


def _largest(value: Tensor) -> float:
    """1e100 in float64, 1e15 in narrower types: sums of squares of a million such numbers are
    finite (1e308, 3e38).
    """
    return 1e100 if value.dtype == torch.float64 else 1e15


def _check_texts(rollouts: Rollouts, mask: Tensor) -> None:
    """Token texts reach as far as the mask does."""
    for name in ("tokens", "prompts"):
        texts = getattr(rollouts, name)
        if texts is None:
            continue
        if isinstance(texts, str) or not isinstance(texts, Sequence):
            raise TypeError(f"{name} is {shown(texts)}: expected a list, one entry per completion.")
        if len(texts) != len(mask):
            raise ValueError(
                f"{name} has {len(texts)} entries but mask has {len(mask)} completions: one per "
                "completion."
            )
    if rollouts.tokens is None:
        return
    last = (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(dim=1).tolist()
    for i, (row, needed) in enumerate(zip(rollouts.tokens, last, strict=True)):
        if isinstance(row, str) or not isinstance(row, Sequence):
            raise TypeError(f"tokens[{i}] is {shown(row)}: expected a list of texts.")
        if len(row) < needed:
            raise ValueError(
                f"tokens[{i}] has {len(row)} texts but the mask reaches token {needed}: give one "
                "text each."
            )
