"""``grpo-edu train``: a run in a folder.

Every rollout logged, checkpoints, resumable, usable after Ctrl-C or a full disk.

::

    DIR/run.json                  what was asked for, and the versions
    DIR/log.jsonl                 one line per step
    DIR/rollouts/step-00012.jsonl completions of step 12; grpo-edu weights opens them
    DIR/checkpoint-00020/         model, tokenizer and optimiser after 20 steps; transformers opens
    it
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from ..completions import completion_row
from ..files import json_line, replacing, write_json_lines
from ..objective.catalog import recipe as by_name
from ..objective.recipe import Recipe
from ..settings import setting
from . import lab, tasks
from .loop import Settings, Trainer, TrainingStep
from .models import load
from .tasks import Task
from .tokens import check_room, completion_text, encode, end_ids
from .versions import versions

NOT_DRAWN = ("greedy_reward", "value", "token_reward", "reward_parts", "given_advantage")


@dataclass(frozen=True)
class Run:
    """What a run was asked for; ``run.json`` holds it.

    ``stop``: texts that end a completion of a prompt of a file.
    """

    model: str = setting(
        "tiny", "`tiny` (the lab's), `smollm2`, a Hugging Face id, a folder or a .gguf file."
    )
    task: str = setting(
        "lab",
        "`lab`, `lab:VARIANT`, `chain_sum`, `products`, a JSONL of prompts and answers, or "
        "`gsm8k:FILE`.",
    )
    recipe: str = setting("grpo", "A name of the catalog: `grpo-edu recipes`.")
    kl: bool = setting(
        True, "Keep the recipe's KL term, which needs a reference model.", "--kl/--no-kl"
    )
    checker: str = setting(
        "last_number", "Rewards of a JSONL: last_number, first_number or mathematics."
    )
    chat: bool = setting(
        True, "Prompts of a file as turns of a chat, or as they are.", "--chat/--plain"
    )
    stop: tuple[str, ...] = ()
    checkpoint_every: int = setting(20, "Steps between checkpoints; one more at the end.")
    settings: Settings = field(default_factory=Settings)

    @property
    def lab_variant(self) -> str | None:
        """The lab's variant; None where the task is another one."""
        kind, _, variant = self.task.partition(":")
        return (variant or "after") if kind == "lab" else None


def default_learning_rate(model: str) -> float:
    """2e-4 for the lab's model, 1e-6 for others, which are larger."""
    return Settings.learning_rate if model == "tiny" else 1e-6


def make_task(run: Run) -> Task:
    """The task by its name.

    Raises:
        ValueError, ImportError: no such task, or what it needs is missing.
    """
    if run.lab_variant is not None:
        return lab.task(run.lab_variant)
    kind, _, rest = run.task.partition(":")
    if kind in tasks.ARITHMETIC and not rest:
        return tasks.arithmetic(kind)
    if kind == "gsm8k" and rest:
        return tasks.gsm8k(_existing(rest), chat=run.chat)
    if Path(run.task).suffix in (".jsonl", ".json"):
        return tasks.from_file(_existing(run.task), run.checker, chat=run.chat, stop=run.stop)
    variants = [f"lab:{variant}" for variant in lab.VARIANTS[1:]]
    names = ["lab", *variants, *tasks.ARITHMETIC, "gsm8k:FILE", "FILE.jsonl"]
    raise ValueError(f"task is '{run.task}': expected one of {', '.join(names)}.")


def make_recipe(run: Run) -> Recipe:
    """The recipe by its name, without its KL term where the run has none.

    Raises:
        ValueError: it needs more than rewards, such as values or a greedy completion.
    """
    recipe = by_name(run.recipe)
    if missing := recipe.lacking(NOT_DRAWN):
        raise ValueError(
            f"recipe '{run.recipe}' needs {', '.join(missing)}, which a run does not draw (it has "
            f"rewards, log-probs and a reference): "
            "expected a recipe of rewards alone, such as grpo, dr_grpo, rloo, dapo."
        )
    return recipe if run.kl or recipe.kl is None else recipe.but(recipe.name, kl=None)


def prepare(run: Run, model: str | Path | None = None) -> Trainer:
    """Everything checked, then loaded: recipe, task, model, room for the longest prompt.

    Args:
        run: what is asked for.
        model: weights to start from; None: the run's model.
    """
    from transformers.utils import logging

    # transformers would draw one for every load and save, across the run's own
    logging.disable_progress_bar()
    recipe = make_recipe(run)
    task = make_task(run)
    if run.model == "tiny" and run.lab_variant is None:
        raise ValueError(
            f"model is 'tiny', which reads only the lab's 22 characters, and task is '{run.task}': "
            f"take smollm2."
        )
    start, tokenizer = _load(run)
    policy = start if model is None else load(str(model))[0]
    trainer = Trainer(
        policy, tokenizer, task, recipe, run.settings, reference=None if model is None else start
    )
    questions = task.pool or task.questions(
        run.settings.prompts, 0, torch.Generator().manual_seed(0)
    )
    width = max(encode(tokenizer, [q.prompt], chat=task.chat)[0].shape[1] for q in questions)
    check_room(policy, width, trainer.limit)
    return trainer


def _load(run: Run) -> tuple[Any, Any]:
    if run.model == "tiny" and run.lab_variant is not None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        net, tokenizer = lab.warm_start(run.lab_variant, 0)
        return net.to(device), tokenizer
    return load(run.model)


def space_needed(trainer: Trainer, run: Run) -> int:
    """Bytes a run may take: two checkpoints (the new one is complete before the old one goes) and
    every rollout.
    """
    weights = sum(p.numel() * p.element_size() for p in trainer.model.parameters())
    moments = 2 * weights if run.settings.optimizer == "adamw" else 0
    completions = run.settings.steps * run.settings.prompts * run.settings.samples
    return 2 * (weights + moments) + completions * (1000 + 80 * trainer.limit)


def check_space(trainer: Trainer, run: Run, out: Path) -> None:
    """Raises OSError where the disk has less room than the run may take."""
    where = next(p for p in (out.absolute(), *out.absolute().parents) if p.exists())
    needed = space_needed(trainer, run)
    free = shutil.disk_usage(where).free
    if free < needed:
        raise OSError(
            f"out is {out}, where {free / 1e9:.2f} GB are free, but the run may take "
            f"{needed / 1e9:.2f} GB "
            "(two checkpoints and every rollout): free some, choose another folder, or take fewer "
            "steps."
        )


def begin(run: Run, out: Path) -> Iterator[dict[str, Any]]:
    """Start a run in a new folder. Yields one line of the log per step.

    Raises:
        FileExistsError: the folder holds a run already.
        ValueError, OSError, ImportError: before anything is trained.
    """
    if (out / "run.json").exists():
        raise FileExistsError(f"{out} holds a run: go on with --resume, or give another folder.")
    trainer = prepare(run)
    check_space(trainer, run, out)
    write_json(out / "run.json", {**asdict(run), "versions": versions()})
    return follow(trainer, run, out, 0)


def resume(out: Path, steps: int | None = None) -> Iterator[dict[str, Any]]:
    """Go on from the last checkpoint of a run, to its own number of steps or to ``steps``.

    What comes out is what an uninterrupted run would have given: questions and draws depend on seed
    and step only.

    Raises:
        FileNotFoundError: no run there.
        ValueError: nothing is left to do.
    """
    if not (out / "run.json").is_file():
        raise FileNotFoundError(
            f"{out} holds no run.json: expected a folder that grpo-edu train wrote."
        )
    run = read_run(out)
    if steps is not None:
        run = replace(run, settings=replace(run.settings, steps=steps))
    last = last_checkpoint(out)
    done = 0 if last is None else int(last.name.split("-")[1])
    if done >= run.settings.steps:
        raise ValueError(f"{out} has done its {done} steps: give a larger --steps to go on.")
    trainer = prepare(run, model=last)
    if last is not None:
        load_optimizer(trainer, last)
    check_space(trainer, run, out)
    write_json(out / "run.json", {**asdict(run), "versions": versions()})
    _forget_after(out, done)
    return follow(trainer, run, out, done)


def follow(trainer: Trainer, run: Run, out: Path, start: int) -> Iterator[dict[str, Any]]:
    """Train, log, keep checkpoints.

    Ctrl-C ends after the step; so does a full disk, with the last whole checkpoint left.
    """
    with asked_to_stop() as stop:
        for step in trainer.run(start):
            done = step.number + 1
            record = log_record(step)
            rollouts = out / "rollouts" / f"step-{step.number:05d}.jsonl"
            write_json_lines(rollouts, rollout_rows(trainer, step))
            with (out / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(json_line(record))
            if done % run.checkpoint_every == 0 or done == run.settings.steps or stop:
                save_checkpoint(trainer, out, done)
            yield record
            if stop:
                raise KeyboardInterrupt


@contextmanager
def asked_to_stop() -> Iterator[list[int]]:
    """A list that is not empty after the first Ctrl-C; the second one goes through at once."""
    asked: list[int] = []

    def note(number: int, frame: Any) -> None:
        asked.append(number)
        signal.signal(signal.SIGINT, before)
        tqdm.write("stopping after this step; Ctrl-C again stops at once")

    before = signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, note)
    except ValueError:  # not the main thread: whoever runs it there has its own way to stop
        yield asked
        return
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


# --- what is kept ---------------------------------------------------------------------------------


def log_record(step: TrainingStep) -> dict[str, Any]:
    """One line of the log."""
    length = step.batch.drawn.mask.sum(dim=1).double().cpu()
    right = step.batch.correct > 0
    groups = step.batch.correct.reshape(-1, len(right) // len(step.rollouts.group.unique()))
    return {
        "step": step.number,
        "reward": step.batch.correct.mean().item(),
        "length_right": length[right].mean().item() if right.any() else None,
        "length_wrong": length[~right].mean().item() if (~right).any() else None,
        "dead_groups": (groups.amax(1) == groups.amin(1)).double().mean().item(),
        "truncated": step.batch.drawn.truncated.double().mean().item(),
        "clipped": step.clipped,
        "entropy": step.entropy,
        "loss": step.loss,
        "gradient_norm": step.gradient_norm,
        "norm_clipped": step.norm_clipped,
        "sampled": step.batch.sampled,
        "sample_seconds": round(step.sample_seconds, 3),
        "train_seconds": round(step.train_seconds, 3),
    }


def progress_text(record: dict[str, Any]) -> str:
    """The log line as a reader follows it."""

    def length(name: str) -> str:
        return "-" if record[name] is None else f"{record[name]:.1f}"

    return (
        f"reward {record['reward']:.2f}  length right {length('length_right')} wrong "
        f"{length('length_wrong')}  "
        f"dead {record['dead_groups']:.0%}  clipped {record['clipped']:.1%}  entropy "
        f"{record['entropy']:.2f}"
    )


def rollout_rows(trainer: Trainer, step: TrainingStep) -> list[dict[str, Any]]:
    """The completions of a step as ``completions.read_completions`` reads them.

    ``reward`` is what was learnt from.
    """
    batch = step.batch
    rollouts = step.rollouts
    ends = end_ids(trainer.model, trainer.tokenizer)
    rows = []
    for i, keep in enumerate(batch.drawn.mask):
        ids = batch.drawn.ids[i][keep].tolist()
        logps = {name: getattr(rollouts, name) for name in ("logp", "sampler_logp", "ref_logp")}
        row = completion_row(
            {name: None if value is None else value[i][keep] for name, value in logps.items()},
            group_id=int(rollouts.group[i]),
            prompt=batch.asked[i].prompt,
            answer=batch.asked[i].answer,
            completion=batch.texts[i],
            reward=float(rollouts.reward[i]),
            correct=float(batch.correct[i]),
            truncated=bool(batch.drawn.truncated[i]),
            max_new_tokens=trainer.limit,
            tokens=completion_text(trainer.tokenizer, ids, ends).tokens,
            token_ids=ids,
        )
        rows.append(row)
    return rows


def write_json(path: Path, content: Any) -> None:
    with replacing(path) as target:
        target.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_run(out: Path) -> Run:
    """``run.json`` as it was asked for.

    Raises:
        ValueError: it is not what ``train`` writes.
    """
    try:
        content = json.loads((out / "run.json").read_text(encoding="utf-8"))
        content.pop("versions", None)
        settings = Settings(**{key: _tuple(v) for key, v in content.pop("settings").items()})
        return Run(**{key: _tuple(v) for key, v in content.items()}, settings=settings)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{out / 'run.json'} is not what grpo-edu train writes ({error}): start a new run."
        ) from error


def _tuple(value: Any) -> Any:
    """JSON has lists where a setting is a tuple."""
    return tuple(value) if isinstance(value, list) else value


def save_checkpoint(trainer: Trainer, out: Path, done: int) -> Path:
    """Model, tokenizer and optimiser under a temporary name, then moved.

    Older checkpoints go last.
    """
    from safetensors.torch import save_file

    final = out / f"checkpoint-{done:05d}"
    temporary = out / f".checkpoint-{done:05d}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        trainer.model.save_pretrained(temporary)
        trainer.tokenizer.save_pretrained(temporary)
        save_file(_optimizer_tensors(trainer.optimizer), temporary / "optimizer.safetensors")
        shutil.rmtree(final, ignore_errors=True)
        temporary.rename(final)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    for older in out.glob("checkpoint-*"):
        if older != final:
            shutil.rmtree(older)
    return final


def last_checkpoint(out: Path) -> Path | None:
    """The newest whole checkpoint; None where there is none yet."""
    return max(out.glob("checkpoint-*"), default=None)


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The optimiser's state by "parameter number.name", as tensors."""
    state = optimizer.state_dict()["state"]
    return {
        f"{i}.{k}": torch.as_tensor(v).detach().clone()
        for i, entry in state.items()
        for k, v in entry.items()
    }


def load_optimizer(trainer: Trainer, checkpoint: Path) -> None:
    """Put the saved state back; the learning rate is that of the settings."""
    from safetensors.torch import load_file

    state: dict[int, dict[str, Any]] = {}
    for name, value in load_file(checkpoint / "optimizer.safetensors").items():
        number, key = name.split(".", 1)
        state.setdefault(int(number), {})[key] = value
    trainer.optimizer.load_state_dict({**trainer.optimizer.state_dict(), "state": state})


def _forget_after(out: Path, done: int) -> None:
    """Steps beyond the checkpoint are done again: their log lines and rollouts go."""
    log = out / "log.jsonl"
    lines = log.read_text(encoding="utf-8").split("\n")[:-1] if log.exists() else []
    write_json_lines(log, [row for row in map(json.loads, lines) if row["step"] < done])
    for path in (out / "rollouts").glob("step-*.jsonl"):
        if int(path.stem.split("-")[1]) >= done:
            path.unlink()


def _existing(path: str) -> Path:
    if not Path(path).expanduser().is_file():
        raise FileNotFoundError(f"task is '{path}' but there is no such file: check the path.")
    return Path(path).expanduser()
