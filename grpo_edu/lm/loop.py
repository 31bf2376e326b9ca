"""The training loop on one page: sample → reward → ``Recipe`` → step.

Every step draws its questions and completions from a generator seeded by (seed, step): a run that goes on from a checkpoint
draws what an uninterrupted run would have drawn.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from .. import checks
from ..checks import one_of, whole_number
from ..objective.groups import is_dead
from ..objective.recipe import Plan, Recipe
from ..rollouts import Rollouts
from ..toys.training import OPTIMIZERS, needs_reference, shuffled
from ..weights import factors
from .generate import Completions, generate
from .logprobs import token_logp
from .quick_llama import QuickLlama
from .sample import encode, end_ids, stop_texts
from .tasks import Question, Task


@dataclass(frozen=True)
class Settings:
    """Everything a run would turn, apart from model, task and recipe.

    Args:
        steps: rollouts drawn.
        prompts, samples: per step, P and G; the step has N = P·G completions.
        max_new_tokens: length limit; None: the task's.
        temperature: τ of sampling, also in the logits that are trained.
        learning_rate, optimizer, betas: ``adamw`` (no weight decay) or ``sgd``.
        updates: optimiser steps on one rollout, each over all of it; from the second on the policy is stale and a clip acts.
        micro_batches: slices of the step; gradients are summed over them, the normaliser stays the step's.
        max_norm: the gradient is scaled down to this norm; None: never.
        refill: draw new prompts for groups without reward differences, in at most this many more rounds; 0: keep them.
        placebo: rewards are shuffled inside each prompt group before they are learnt from.
        bf16: forward and backward passes in bfloat16 (autocast); weights and optimiser stay float32.
        bf16_sampler: completions are drawn from a bfloat16 copy of the policy.
        seed: whole number.
    """

    steps: int = 300
    prompts: int = 16
    samples: int = 8
    max_new_tokens: int | None = None
    temperature: float = 1.0
    learning_rate: float = 1e-4
    optimizer: str = "adamw"
    betas: tuple[float, float] = (0.9, 0.99)
    updates: int = 1
    micro_batches: int = 1
    max_norm: float | None = 1.0
    refill: int = 0
    placebo: bool = False
    bf16: bool = False
    bf16_sampler: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        least = {
            "steps": 1,
            "prompts": 1,
            "samples": 2,
            "updates": 1,
            "micro_batches": 1,
            "refill": 0,
            "seed": 0,
        }
        for name, smallest in least.items():
            whole_number(name, getattr(self, name), smallest, 2**40)
        if self.max_new_tokens is not None:
            whole_number("max_new_tokens", self.max_new_tokens, 1, 2**40)
        one_of("optimizer", self.optimizer, OPTIMIZERS)
        for name in ("learning_rate", "temperature"):
            checks.number(name, getattr(self, name), 1e-12, 1e12)
        if self.max_norm is not None:
            checks.number("max_norm", self.max_norm, 1e-12, 1e12)
        if self.micro_batches > self.prompts * self.samples:
            raise ValueError(
                f"micro_batches is {self.micro_batches}: expected at most prompts x samples = {self.prompts * self.samples}."
            )


@dataclass(frozen=True, eq=False)
class Batch:
    """What one step learns from: N completions with their prompts and rewards.

    Args:
        asked: N questions, G in a row alike.
        ids: ``[N, P + T]`` prompts, padded on the left, and completions.
        attention: ``[N, P + T]``.
        drawn: the completions.
        texts: the completions as text, end tokens left out.
        correct: ``[N]`` rewards as the task gave them, before any placebo.
        rollouts: with the sampler's log-probs.
        rounds: completions that were sampled, kept or not.
    """

    asked: list[Question]
    ids: Tensor
    attention: Tensor
    drawn: Completions
    texts: list[str]
    correct: Tensor
    rollouts: Rollouts
    sampled: int


@dataclass(frozen=True, eq=False)
class Step:
    """What is left to look at after a step.

    ``rollouts`` holds the log-probs of the policy before the first update as ``old_logp`` and ``logp``; ``entropy`` is the
    mean over trained tokens; ``gradient_norm`` that of the first update; ``norm_clipped`` and ``clipped`` the share of
    updates whose gradient was scaled down, and the share of tokens whose gate was 0, over the updates after the first.
    """

    number: int
    batch: Batch
    rollouts: Rollouts
    plan: Plan
    loss: float
    entropy: float
    gradient_norm: float
    norm_clipped: float
    clipped: float
    sample_seconds: float
    train_seconds: float


@dataclass
class Trainer:
    """Model, task, recipe and settings; ``run`` yields one ``Step`` after the other and changes the model in place.

    Args:
        model, tokenizer: what is trained (``models.load``, ``lab.warm_start``).
        task: questions and reward.
        recipe: the loss.
        settings: the rest.
        reference: frozen policy of KL terms; None: the model as it is now.
    """

    model: Any
    tokenizer: Any
    task: Task
    recipe: Recipe
    settings: Settings
    reference: Any = None
    optimizer: torch.optim.Optimizer = field(init=False)
    sampler: Any = field(init=False)

    def __post_init__(self) -> None:
        self.optimizer = make_optimizer(self.model, self.settings)
        self.sampler = (
            copy.deepcopy(self.model).to(torch.bfloat16)
            if self.settings.bf16_sampler
            else self.model
        )
        if not self.settings.bf16_sampler and QuickLlama.fits(self.model):
            self.sampler = QuickLlama(self.model)
        if self.reference is None and needs_reference(self.recipe):
            self.reference = copy.deepcopy(self.model)

    def run(self, start: int = 0) -> Iterator[Step]:
        """Steps ``start`` to ``settings.steps``: sample, reward, plan once, then the updates."""
        for number in range(start, self.settings.steps):
            began = time.perf_counter()
            batch = self.collect(number)
            sampled = time.perf_counter()
            rollouts = self.with_reference(batch)
            slices = self.slices(batch)
            plan = self.recipe.plan(rollouts, micro_batch_of(slices))
            seen = []
            for _ in range(self.settings.updates):
                rollouts, *looked_at = self.update(batch, rollouts, plan, slices)
                seen.append(looked_at)
            loss, entropy, norm, _, _ = seen[0]
            bound, stale = sum(s[3] for s in seen) / len(seen), [s[4] for s in seen[1:]] or [0.0]
            times = (sampled - began, time.perf_counter() - sampled)
            yield Step(
                number,
                batch,
                rollouts,
                plan,
                loss,
                entropy,
                norm,
                bound,
                sum(stale) / len(stale),
                *times,
            )

    def update(
        self, batch: Batch, rollouts: Rollouts, plan: Plan, slices: Sequence[Tensor]
    ) -> tuple[Rollouts, float, float, float, float, float]:
        """One optimiser step. The first on a rollout keeps its log-probs as ``old_logp``: there every ratio is 1."""
        self.optimizer.zero_grad()
        loss, entropy, clipped, before = 0.0, 0.0, 0.0, torch.zeros_like(rollouts.logp)
        for rows in slices:
            with self.precision():
                logp, spread = self.log_probs(self.model, batch, rows)
            part = rollouts[rows].with_logp(logp)
            value = self.recipe.loss(part, plan[rows])
            value.backward()
            loss, entropy = loss + value.item(), entropy + spread.sum().item()
            if rollouts.old_logp is not None:
                gate = factors(self.recipe, part.with_logp(logp.detach()), plan[rows])["gate"]
                clipped += float(((gate == 0) & plan.mask[rows]).sum())
            before[rows] = logp.detach()
        norm = float(
            torch.nn.utils.clip_grad_norm_(
                self.model.parameters(), self.settings.max_norm or float("inf")
            )
        )
        self.optimizer.step()
        if rollouts.old_logp is None:
            rollouts = Rollouts.unchecked(**{**vars(rollouts), "logp": before, "old_logp": before})
        bound = float(norm > (self.settings.max_norm or float("inf")))
        tokens, learning = max(1, int(rollouts.mask.sum())), max(1, int(plan.mask.sum()))
        return rollouts, loss, entropy / tokens, norm, bound, clipped / learning

    def collect(self, number: int) -> Batch:
        """Sample P groups and reward them; with ``refill``, groups without differences are drawn again as new prompts."""
        generator = torch.Generator(device=self.model.device).manual_seed(
            self.settings.seed * 1_000_003 + number
        )
        words = (
            generator
            if generator.device.type == "cpu"
            else torch.Generator().manual_seed(generator.initial_seed())
        )
        self.refresh_sampler()
        goal, kept, sampled = self.settings.prompts, [], 0
        for left in range(self.settings.refill, -1, -1):
            missing = goal - sum(len(part.rows) for part in kept) // self.settings.samples
            part = self.draw(self.task.questions(missing, number, words), generator)
            sampled += len(part.rows)
            kept.append(part if left == 0 else part.live())
            if sum(len(part.rows) for part in kept) == goal * self.settings.samples:
                break
        return self.batch(kept, sampled, words)

    def refresh_sampler(self) -> None:
        """The sampler draws from the policy as it is now."""
        if isinstance(self.sampler, QuickLlama):
            self.sampler.refresh()
        elif self.sampler is not self.model:
            for copied, weight in zip(
                self.sampler.parameters(), self.model.parameters(), strict=True
            ):
                copied.data.copy_(weight.data)

    def draw(self, questions: Sequence[Question], generator: torch.Generator) -> _Drawn:
        """G completions of each question, and their rewards."""
        asked = [q for q in questions for _ in range(self.settings.samples)]
        ids, attention = self.encoded(asked)
        with torch.inference_mode(False), self.precision():
            drawn = generate(
                self.sampler,
                ids,
                attention,
                max_new_tokens=self.limit,
                ends=end_ids(self.model, self.tokenizer),
                generator=generator,
                temperature=self.settings.temperature,
                stopped=stop_texts(self.tokenizer, self.task.stop),
                environment=self.task.environment(asked) if self.task.environment else None,
                compact=True,
            )
        texts = [
            self.tokenizer.decode(row[keep], skip_special_tokens=False)
            for row, keep in zip(drawn.ids, self.words(drawn), strict=True)
        ]
        reward = torch.tensor(
            [self.task.reward(t, q.answer) for t, q in zip(texts, asked, strict=True)],
            dtype=torch.float64,
        )
        return _Drawn(
            asked,
            drawn,
            texts,
            reward,
            torch.arange(len(questions)).repeat_interleave(self.settings.samples),
        )

    def batch(self, parts: Sequence[_Drawn], sampled: int, generator: torch.Generator) -> Batch:
        """The parts of a step put together, right-padded to one width."""
        asked = [parts_asked for part in parts for parts_asked in part.rows]
        width = max(part.drawn.mask.shape[1] for part in parts if part.rows)
        columns = [
            [pad(getattr(p.drawn, n), (0, width - p.drawn.mask.shape[1])) for p in parts]
            for n in _PER_TOKEN
        ]
        ids, logp, mask, own = (torch.cat(column) for column in columns)
        drawn = Completions(ids, logp, mask, torch.cat([p.drawn.truncated for p in parts]), own)
        correct = torch.cat([part.reward for part in parts])
        groups = len(asked) // self.settings.samples
        learnt = (
            shuffled(correct[None], [generator], groups)[0] if self.settings.placebo else correct
        )
        prompt, attention = self.encoded(asked)
        device = prompt.device
        rollouts = Rollouts(
            logp=logp,
            sampler_logp=logp,
            mask=mask,
            reward=learnt.to(device),
            group=torch.arange(groups, device=device).repeat_interleave(self.settings.samples),
            truncated=drawn.truncated,
            max_new_tokens=self.limit,
        )
        both, seen = (
            torch.cat([prompt, ids], dim=1),
            torch.cat([attention, mask.to(attention.dtype)], dim=1),
        )
        return Batch(
            asked,
            both,
            seen,
            drawn,
            [t for p in parts for t in p.texts],
            correct,
            rollouts,
            sampled,
        )

    def with_reference(self, batch: Batch) -> Rollouts:
        """The rollouts, with the reference policy's log-probs where the recipe asks for them."""
        rollouts = batch.rollouts
        if self.reference is None:
            return rollouts
        with torch.no_grad(), self.precision():
            known = torch.zeros_like(rollouts.logp)
            for rows in self.slices(batch):
                known[rows] = self.log_probs(self.reference, batch, rows)[0]
        return Rollouts.unchecked(**{**vars(rollouts), "ref_logp": known})

    def log_probs(self, model: Any, batch: Batch, rows: Tensor) -> tuple[Tensor, Tensor]:
        """``[rows, T]`` log-probs and entropies of these rows under a model; padding beyond their longest is cut off.

        What an environment wrote counts in the length of a completion, like any token, but no gradient flows through it:
        left out of the mask it would shorten |o|, and so raise the weight of just those completions in which it acted.
        """
        mask, all_tokens = batch.rollouts.mask[rows], batch.drawn.mask.shape[1]
        width = int(batch.drawn.mask[rows].any(dim=0).sum())
        keep = batch.ids.shape[1] - all_tokens + width
        ids, attention = batch.ids[rows, :keep], batch.attention[rows, :keep]
        logp, entropy = token_logp(
            model, ids, attention, mask[:, :width], temperature=self.settings.temperature
        )
        logp = torch.where(batch.drawn.own[rows, :width], logp, logp.detach())
        return pad(logp, (0, all_tokens - width)), pad(entropy, (0, all_tokens - width))

    @property
    def limit(self) -> int:
        """The length limit of a completion."""
        return self.settings.max_new_tokens or self.task.max_new_tokens

    def slices(self, batch: Batch) -> list[Tensor]:
        """The rows of each micro-batch, completions of like length together, so that little is padded."""
        order = batch.drawn.mask.sum(dim=1).argsort(stable=True)
        return list(order.tensor_split(min(self.settings.micro_batches, len(order))))

    def encoded(self, asked: Sequence[Question]) -> tuple[Tensor, Tensor]:
        return encode(
            self.tokenizer, [q.prompt for q in asked], chat=self.task.chat, device=self.model.device
        )

    def words(self, drawn: Completions) -> Tensor:
        """``[N, T]`` the tokens of the completion without its end token."""
        return drawn.mask & ~torch.isin(
            drawn.ids, torch.tensor(end_ids(self.model, self.tokenizer), device=drawn.ids.device)
        )

    def precision(self) -> Any:
        kind = self.model.device.type
        return torch.autocast(kind, dtype=torch.bfloat16) if self.settings.bf16 else nullcontext()


_PER_TOKEN = ("ids", "logp", "mask", "own")


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Completions of one round of sampling, G in a row, with their rewards."""

    rows: list[Question]
    drawn: Completions
    texts: list[str]
    reward: Tensor
    group: Tensor

    def live(self) -> _Drawn:
        """Without the groups whose rewards are all equal."""
        keep = ~is_dead(self.reward, self.group, torch.ones_like(self.group, dtype=torch.bool))
        drawn = Completions(
            *(getattr(self.drawn, n)[keep] for n in ("ids", "logp", "mask", "truncated", "own"))
        )
        left = keep.nonzero()[:, 0].tolist()
        rows, texts = [self.rows[i] for i in left], [self.texts[i] for i in left]
        return _Drawn(rows, drawn, texts, self.reward[keep], self.group[keep])


def micro_batch_of(slices: Sequence[Tensor]) -> Tensor:
    """``[N]`` the micro-batch of each row."""
    number = torch.repeat_interleave(
        torch.arange(len(slices)), torch.tensor([len(rows) for rows in slices])
    )
    return number.to(slices[0].device)[torch.cat(list(slices)).argsort()]


def make_optimizer(model: Any, settings: Settings) -> torch.optim.Optimizer:
    """AdamW without weight decay, or plain SGD, over every parameter."""
    if settings.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    return torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate, betas=settings.betas, weight_decay=0.0
    )
