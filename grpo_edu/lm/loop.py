"""The training loop on one page: sample → reward → ``Recipe`` → step.

Every step draws its questions and completions from a generator seeded by (seed, step): a run that
goes on from a checkpoint draws what an uninterrupted run would have drawn.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..checks import positive, whole_number
from ..draws import generator_of, shuffled
from ..objective.groups import is_dead
from ..objective.recipe import Plan, Recipe
from ..rollouts import Rollouts
from ..settings import check_training, setting
from ..weights import factors
from .generate import Completions, generate
from .logprobs import token_logp
from .tasks import Problem, Task
from .tokens import encode, end_ids, stop_texts


@dataclass(frozen=True)
class Settings:
    """Everything a run would turn, apart from model, task and recipe.

    The command line has the same defaults.

    The step has N = P·G completions; gradients are summed over the micro-batches, at most N of
    them, and the normaliser stays the step's. ``betas`` are AdamW's, which has no weight decay.
    Weights and optimiser stay float32.

    Raises:
        ValueError: a setting is out of range; names it.
    """

    steps: int = setting(100, "Rollouts.")
    prompts: int = setting(12, "Prompts per step, P.")
    samples: int = setting(8, "Completions per prompt, G; at least 2.")
    max_new_tokens: int | None = setting(None, "Length limit; the task's where none is given.")
    temperature: float = setting(1.0, "Of sampling, and in the logits that are trained.")
    learning_rate: float = setting(2e-4, "Of the optimiser; this default is the lab's.")
    optimizer: str = setting("adamw", "adamw or sgd.")
    betas: tuple[float, float] = (0.9, 0.99)
    updates: int = setting(1, "Optimiser steps on one rollout; the clip acts from the second on.")
    micro_batches: int = setting(4, "Slices of the step; less memory.")
    max_norm: float | None = setting(1.0, "Scale the gradient down to this norm.")
    refill: int = setting(0, "Draw new prompts for dead groups, in at most this many more rounds.")
    placebo: bool = setting(False, "Shuffle rewards inside each group before they are learnt from.")
    bf16: bool = setting(False, "Forward and backward passes in bfloat16 (autocast).")
    bf16_sampler: bool = setting(
        False,
        "Sample from a bfloat16 copy of the policy. On a CPU this is quicker only with bfloat16 "
        "instructions (avx512_bf16 or amx_bf16 in lscpu), and slower without.",
    )
    seed: int = setting(0, "The same seed gives the same run on the same machine.")

    def __post_init__(self) -> None:
        check_training(self, refill=0, seed=0)
        positive("temperature", self.temperature)
        if self.max_new_tokens is not None:
            whole_number("max_new_tokens", self.max_new_tokens, 1)


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
        sampled: how many completions were sampled, kept or not.
    """

    asked: list[Problem]
    ids: Tensor
    attention: Tensor
    drawn: Completions
    texts: list[str]
    correct: Tensor
    rollouts: Rollouts
    sampled: int


@dataclass(frozen=True, eq=False)
class TrainingStep:
    """What is left to look at after a step.

    Args:
        number: of the step, from 0.
        batch: what was learnt from.
        rollouts: with the log-probs of the policy before the first update as ``old_logp`` and
            ``logp``.
        plan: advantages and W of the step.
        loss: of the first update.
        entropy: mean over trained tokens at the first update, nats.
        gradient_norm: of the first update.
        norm_clipped: share of the updates whose gradient was scaled down.
        clipped: share of the tokens whose gate was 0, over the updates after the first.
        sample_seconds, train_seconds: wall time.
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


class Update(NamedTuple):
    """One optimiser step: the rollouts as the next one needs them, and the numbers of
    ``TrainingStep`` for this one.
    """

    rollouts: Rollouts
    loss: float
    entropy: float
    gradient_norm: float
    norm_clipped: float
    clipped: float


@dataclass
class Trainer:
    """Model, task, recipe and settings.

    ``run`` yields one ``TrainingStep`` after the other and changes the model in place.

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
        if self.reference is None and self.recipe.needs_reference:
            self.reference = copy.deepcopy(self.model)

    def run(self, start: int = 0) -> Iterator[TrainingStep]:
        """Steps ``start`` to ``settings.steps``: sample, reward, plan once, then the updates."""
        for number in range(start, self.settings.steps):
            began = time.perf_counter()
            batch = self.collect(number)
            sampled = time.perf_counter()
            rollouts = self.with_reference(batch)
            slices = self.slices(batch)
            plan = self.recipe.plan(rollouts, micro_batch_of(slices))
            updates: list[Update] = []
            for _ in range(self.settings.updates):
                updates.append(self.update(batch, rollouts, plan, slices))
                rollouts = updates[-1].rollouts
            first, *later = updates
            yield TrainingStep(
                number=number,
                batch=batch,
                rollouts=rollouts,
                plan=plan,
                loss=first.loss,
                entropy=first.entropy,
                gradient_norm=first.gradient_norm,
                norm_clipped=sum(update.norm_clipped for update in updates) / len(updates),
                clipped=sum(update.clipped for update in later) / max(1, len(later)),
                sample_seconds=sampled - began,
                train_seconds=time.perf_counter() - sampled,
            )

    def update(
        self, batch: Batch, rollouts: Rollouts, plan: Plan, slices: Sequence[Tensor]
    ) -> Update:
        """One optimiser step.

        The first on a rollout keeps its log-probs as ``old_logp``: there every ratio is 1.
        """
        self.optimizer.zero_grad()
        loss = 0.0
        entropy = 0.0
        clipped = 0.0
        before = torch.zeros_like(rollouts.logp)
        for rows in slices:
            with self.precision():
                logp, token_entropy = self.log_probs(self.model, batch, rows)
            part = rollouts[rows].with_logp(logp)
            value = self.recipe.loss(part, plan[rows])
            value.backward()
            loss += value.item()
            entropy += token_entropy.sum().item()
            if rollouts.old_logp is not None:
                gate = factors(self.recipe, part.with_logp(logp.detach()), plan[rows])["gate"]
                clipped += float(((gate == 0) & plan.mask[rows]).sum())
            before[rows] = logp.detach()
        limit = self.settings.max_norm or float("inf")
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit))
        self.optimizer.step()
        if rollouts.old_logp is None:
            rollouts = Rollouts.unchecked(**{**vars(rollouts), "logp": before, "old_logp": before})
        tokens = max(1, int(rollouts.mask.sum()))
        learning = max(1, int(plan.mask.sum()))
        bound = float(norm > limit)
        return Update(rollouts, loss, entropy / tokens, norm, bound, clipped / learning)

    def collect(self, number: int) -> Batch:
        """Sample P groups and reward them.

        With ``refill``, groups without differences are drawn again as new prompts.
        """
        generator = generator_of(self.settings.seed, number, self.model.device)
        on_cpu = generator
        if generator.device.type != "cpu":
            on_cpu = generator_of(self.settings.seed, number)
        self.refresh_sampler()
        wanted = self.settings.prompts * self.settings.samples
        parts: list[Part] = []
        sampled = 0
        for rounds_left in range(self.settings.refill, -1, -1):
            missing = wanted - sum(len(part.asked) for part in parts)
            questions = self.task.questions(missing // self.settings.samples, number, on_cpu)
            part = self.draw(questions, generator)
            sampled += len(part.asked)
            parts.append(part.live() if rounds_left else part)
            if sum(len(part.asked) for part in parts) == wanted:
                break
        return self.batch(parts, sampled, on_cpu)

    def refresh_sampler(self) -> None:
        """The sampler draws from the policy as it is now."""
        if self.sampler is not self.model:
            for copied, weight in zip(
                self.sampler.parameters(), self.model.parameters(), strict=True
            ):
                copied.data.copy_(weight.data)

    def draw(self, questions: Sequence[Problem], generator: torch.Generator) -> Part:
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
        group = torch.arange(len(questions)).repeat_interleave(self.settings.samples)
        return Part(asked, drawn, texts, reward, group)

    def batch(self, parts: Sequence[Part], sampled: int, generator: torch.Generator) -> Batch:
        """The parts of a step put together, right-padded to one width."""
        asked = [question for part in parts for question in part.asked]
        drawn = _joined([part.drawn for part in parts if part.asked])
        correct = torch.cat([part.reward for part in parts])
        groups = len(asked) // self.settings.samples
        learnt = (
            shuffled(correct[None], [generator], groups)[0] if self.settings.placebo else correct
        )
        prompt, attention = self.encoded(asked)
        device = prompt.device
        rollouts = Rollouts(
            logp=drawn.logp,
            sampler_logp=drawn.logp,
            mask=drawn.mask,
            reward=learnt.to(device),
            group=torch.arange(groups, device=device).repeat_interleave(self.settings.samples),
            truncated=drawn.truncated,
            max_new_tokens=self.limit,
        )
        return Batch(
            asked=asked,
            ids=torch.cat([prompt, drawn.ids], dim=1),
            attention=torch.cat([attention, drawn.mask.to(attention.dtype)], dim=1),
            drawn=drawn,
            texts=[text for part in parts for text in part.texts],
            correct=correct,
            rollouts=rollouts,
            sampled=sampled,
        )

    def with_reference(self, batch: Batch) -> Rollouts:
        """The rollouts, with the reference policy's log-probs where the recipe asks for them."""
        rollouts = batch.rollouts
        if self.reference is None:
            return rollouts
        with torch.no_grad(), self.precision():
            ref_logp = torch.zeros_like(rollouts.logp)
            for rows in self.slices(batch):
                ref_logp[rows] = self.log_probs(self.reference, batch, rows)[0]
        return Rollouts.unchecked(**{**vars(rollouts), "ref_logp": ref_logp})

    def log_probs(self, model: Any, batch: Batch, rows: Tensor) -> tuple[Tensor, Tensor]:
        """``[rows, T]`` log-probs and entropies of these rows under a model.

        Padding beyond their longest is cut off.

        What an environment wrote counts in the length of a completion, like any token, but no
        gradient flows through it: left out of the mask it would shorten |o|, and so raise the
        weight of just those completions in which it acted.
        """
        mask = batch.rollouts.mask[rows]
        all_tokens = batch.drawn.mask.shape[1]
        width = int(batch.drawn.mask[rows].any(dim=0).sum())
        keep = batch.ids.shape[1] - all_tokens + width
        logp, entropy = token_logp(
            model,
            batch.ids[rows, :keep],
            batch.attention[rows, :keep],
            mask[:, :width],
            temperature=self.settings.temperature,
        )
        logp = torch.where(batch.drawn.own[rows, :width], logp, logp.detach())
        return pad(logp, (0, all_tokens - width)), pad(entropy, (0, all_tokens - width))

    @property
    def limit(self) -> int:
        """The length limit of a completion."""
        return self.settings.max_new_tokens or self.task.max_new_tokens

    def slices(self, batch: Batch) -> list[Tensor]:
        """The rows of each micro-batch, completions of like length together, so that little is
        padded.
        """
        order = batch.drawn.mask.sum(dim=1).argsort(stable=True)
        return list(order.tensor_split(min(self.settings.micro_batches, len(order))))

    def encoded(self, asked: Sequence[Problem]) -> tuple[Tensor, Tensor]:
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


@dataclass(frozen=True, eq=False)
class Part:
    """Completions of one round of sampling, G in a row, with their rewards.

    ``asked``: the question of each completion; ``drawn`` and ``texts``: the completions; ``reward``
    ``[N]``; ``group`` ``[N]``.
    """

    asked: list[Problem]
    drawn: Completions
    texts: list[str]
    reward: Tensor
    group: Tensor

    def live(self) -> Part:
        """Without the groups whose rewards are all equal."""
        keep = ~is_dead(self.reward, self.group, torch.ones_like(self.group, dtype=torch.bool))
        rows = keep.nonzero()[:, 0].tolist()
        return Part(
            [self.asked[i] for i in rows],
            Completions(**{name: column[keep] for name, column in vars(self.drawn).items()}),
            [self.texts[i] for i in rows],
            self.reward[keep],
            self.group[keep],
        )


def _joined(parts: Sequence[Completions]) -> Completions:
    """The completions of all parts, right-padded to one width."""
    width = max(part.mask.shape[1] for part in parts)

    def column(name: str) -> Tensor:
        columns = [getattr(part, name) for part in parts]
        if columns[0].ndim == 2:
            columns = [pad(values, (0, width - values.shape[1])) for values in columns]
        return torch.cat(columns)

    return Completions(**{name: column(name) for name in vars(parts[0])})


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
        model.parameters(),
        lr=settings.learning_rate,
        betas=settings.betas,
        weight_decay=0.0,
        fused=True,
    )
