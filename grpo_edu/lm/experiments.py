"""Recorded experiments in the lab: what a loss does to a small language model, over seeds and
independent warm starts.

Every run (arm x warm start x seed) is a process's own work with one thread, and one small parquet
file; a run that was interrupted starts again from its beginning, a finished one is never run twice.
Arms, seeds and steps are fixed here, before anything is measured, and every run is reported. Level
of evidence: observed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from tqdm import tqdm

from ..checks import checked, one_of
from ..files import replacing
from ..objective import advantages
from ..objective.catalog import STD, recipe
from ..objective.recipe import Recipe
from ..rollouts import Rollouts
from . import lab
from .loop import Settings, Trainer, TrainingStep
from .versions import versions

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Arm:
    """A recipe, and whether the rewards it learns from are shuffled within groups."""

    recipe: Recipe
    placebo: bool = False


GRPO = recipe("grpo").but("grpo", kl=None)
ARMS = {
    "grpo": Arm(GRPO),
    "grpo_no_std": Arm(GRPO.but("grpo_no_std", scale=advantages.unscaled)),
    "constant_std": Arm(recipe("dr_grpo").but("constant_std", scale=STD)),
    "dr_grpo": Arm(recipe("dr_grpo")),
    "dapo(step)": Arm(recipe("dapo(step)")),
    "placebo": Arm(GRPO.but("placebo"), placebo=True),
}


class RunKey(NamedTuple):
    """Which run: arm, number of the warm start, seed."""

    arm: str
    warm: int
    seed: int


@dataclass(frozen=True)
class Experiment:
    """What is run, fixed beforehand.

    Args:
        name: also of its files.
        title: what it asks.
        variant: of the lab.
        arms: names in ``ARMS``, or group sizes.
        seeds, warm_starts: every arm runs from every warm start with every seed.
        settings: of each run; the seed is set per run.
        measure: (experiment, run) -> table of one run.
        every: steps in one row of the table.
    """

    name: str
    title: str
    variant: str
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    settings: Settings
    measure: Callable[[Experiment, RunKey], pd.DataFrame]
    warm_starts: tuple[int, ...] = lab.WARM_STARTS
    every: int = 5

    @property
    def runs(self) -> list[RunKey]:
        """Every run; seeds outermost, so that an unfinished experiment is balanced."""
        return [
            RunKey(arm, warm, seed)
            for seed, warm, arm in product(self.seeds, self.warm_starts, self.arms)
        ]

    def config(self) -> dict[str, Any]:
        """Everything that decides the numbers, as plain values."""
        recipes = {arm: ARMS[arm].recipe.describe() for arm in self.arms if arm in ARMS}
        return {
            "experiment": self.name,
            "variant": self.variant,
            "arms": list(self.arms),
            "recipes": recipes,
            "seeds": list(self.seeds),
            "warm_starts": list(self.warm_starts),
            "every": self.every,
            "settings": json.loads(json.dumps(asdict(self.settings))),
        }


# --- what is measured -----------------------------------------------------------------------------


def train_run(experiment: Experiment, run: RunKey) -> pd.DataFrame:
    """Train one arm from one warm start. One row per ``every`` steps and level.

    Columns: ``arm, warm, seed, step`` (steps done), ``level``; ``right, wrong`` (completions, by
    the task's own reward), ``tokens_right, tokens_wrong`` (their tokens, end token included); over
    all levels ``entropy`` (nats per token), ``gradient_norm``, ``norm_clipped, truncated, dead``
    (shares of updates, completions, groups), ``tokens`` (sampled since the start),
    ``wall_seconds, cpu_seconds`` (since the start).
    """
    import pandas as pd

    arm = ARMS[run.arm]
    net, tokenizer = lab.warm_start(experiment.variant, run.warm)
    settings = replace(experiment.settings, seed=run.seed, placebo=arm.placebo)
    trainer = Trainer(net, tokenizer, lab.task(experiment.variant), arm.recipe, settings)
    rows = []
    block: list[StepCounts] = []
    tokens = 0
    wall_start = time.perf_counter()
    cpu_start = time.process_time()
    for step in trainer.run():
        block.append(step_counts(step))
        tokens += int(step.batch.drawn.mask.sum())
        if len(block) == experiment.every or step.number == settings.steps - 1:
            since_start = {
                "tokens": tokens,
                "wall_seconds": time.perf_counter() - wall_start,
                "cpu_seconds": time.process_time() - cpu_start,
            }
            head = {**run._asdict(), "step": step.number + 1}
            rows += [{**head, **row, **since_start} for row in block_rows(block)]
            block = []
    return pd.DataFrame(rows)


class StepCounts(NamedTuple):
    """One step: ``levels``, right and wrong completions and their tokens per level; ``means``,
    numbers over all levels.
    """

    levels: dict[int, dict[str, int]]
    means: dict[str, float]


def step_counts(step: TrainingStep) -> StepCounts:
    """What one step adds to the table."""
    batch = step.batch
    level = torch.tensor([question.level for question in batch.asked])
    length = batch.drawn.mask.sum(dim=1)
    levels = {}
    for number in lab.LEVELS:
        right = (level == number) & (batch.correct > 0)
        wrong = (level == number) & (batch.correct <= 0)
        levels[number] = {
            "right": int(right.sum()),
            "wrong": int(wrong.sum()),
            "tokens_right": int(length[right].sum()),
            "tokens_wrong": int(length[wrong].sum()),
        }
    groups = batch.correct.reshape(len(batch.rollouts.group.unique()), -1)
    means = {
        "entropy": step.entropy,
        "gradient_norm": step.gradient_norm,
        "norm_clipped": step.norm_clipped,
        "truncated": float(batch.drawn.truncated.float().mean()),
        "dead": float((groups.amax(1) == groups.amin(1)).double().mean()),
    }
    return StepCounts(levels, means)


def block_rows(block: Sequence[StepCounts]) -> list[dict[str, float]]:
    """One row per level: sums of the counts over the steps, means of the rest."""
    means = {name: sum(step.means[name] for step in block) / len(block) for name in block[0].means}
    return [
        {
            "level": level,
            **{name: sum(step.levels[level][name] for step in block) for name in counts},
            **means,
        }
        for level, counts in block[0].levels.items()
    ]


def gradient_run(experiment: Experiment, run: RunKey) -> pd.DataFrame:
    r"""Gradient norm of single groups at the warm start, without and with division by the std.

    One row per live group.

    The loss is the constant's, so that nothing but the std differs: per group the ratio of the two
    norms is 1/σ_K exactly, σ_K the std (ddof 1) of K ones among G rewards.

    Columns: ``arm`` (group size), ``warm, seed, level, group`` (number), ``right`` (K),
    ``norm_none, norm_std``.
    """
    import pandas as pd

    net, tokenizer = lab.warm_start(experiment.variant, run.warm)
    settings = replace(experiment.settings, seed=run.seed, samples=int(run.arm))
    trainer = Trainer(net, tokenizer, lab.task(experiment.variant), recipe("dr_grpo"), settings)
    rows = []
    for number in range(settings.steps):
        batch = trainer.collect(number)
        for group in range(settings.prompts):
            index = (batch.rollouts.group == group).nonzero()[:, 0]
            right = int(batch.correct[index].sum())
            if not 0 < right < settings.samples:
                continue
            logp = trainer.log_probs(net, batch, index)[0]
            rollouts = batch.rollouts[index].with_logp(logp)
            row = {
                **run._asdict(),
                "level": batch.asked[int(index[0])].level,
                "group": number * settings.prompts + group,
                "right": right,
            }
            norms = {name: gradient_norm(net, loss, rollouts) for name, loss in SCALES.items()}
            rows.append({**row, **norms})
    return pd.DataFrame(rows)


SCALES = {
    "norm_none": recipe("dr_grpo"),
    "norm_std": recipe("dr_grpo").but("constant_std", scale=STD),
}


def gradient_norm(net: Any, recipe: Recipe, rollouts: Rollouts) -> float:
    """Norm of the gradient of one loss over all parameters; the graph is kept for the next."""
    parts = torch.autograd.grad(recipe.loss(rollouts), list(net.parameters()), retain_graph=True)
    return float(torch.stack([part.norm() for part in parts]).norm())


# --- the experiments ------------------------------------------------------------------------------

LONG = Settings(steps=60, prompts=12, samples=8, learning_rate=2e-4, micro_batches=3)
SHORT = replace(LONG, steps=40, learning_rate=3e-4)
EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "length",
            "Which loss makes wrong answers longer?",
            "after",
            tuple(ARMS),
            (0, 1, 2, 3, 4),
            LONG,
            measure=train_run,
        ),
        Experiment(
            "length-control",
            "The filler comes before the answer: nothing to condition the length on",
            "before",
            ("grpo", "dr_grpo"),
            (0, 1, 2),
            LONG,
            measure=train_run,
        ),
        Experiment(
            "length-rising",
            "The same with a reward that rises",
            "rising",
            ("grpo", "grpo_no_std", "constant_std", "dr_grpo", "dapo(step)"),
            (0, 1, 2),
            replace(LONG, steps=80),
            warm_starts=(0,),
            measure=train_run,
        ),
        Experiment(
            "difficulty-gradients",
            "How much a hard question gains from the division by std, at G = 8, 32, 64",
            "after",
            ("8", "32", "64"),
            (0, 1, 2, 3, 4),
            Settings(steps=4, prompts=10, learning_rate=1e-4, micro_batches=1),
            measure=gradient_run,
        ),
    )
}
QUICK: dict[str, dict[str, Any]] = {
    "length": {"arms": ("grpo", "dr_grpo"), "seeds": (0, 1, 2), "settings": SHORT},
    "length-control": {"arms": ("grpo",), "seeds": (0, 1, 2), "settings": SHORT},
    "length-rising": {
        "arms": ("grpo", "dr_grpo"),
        "seeds": (0, 1, 2),
        "settings": replace(SHORT, steps=60),
    },
    "difficulty-gradients": {"arms": ("8", "32"), "seeds": (0, 1)},
}


@checked
def experiment(name: str, quick: bool = False) -> Experiment:
    """An experiment by name; ``quick``: fewer arms, seeds and steps, at most 3 minutes on two
    cores.

    Raises:
        ValueError: no such experiment.
    """
    one_of("experiment name", name, EXPERIMENTS)
    return replace(EXPERIMENTS[name], **QUICK[name]) if quick else EXPERIMENTS[name]


# --- running them ---------------------------------------------------------------------------------


def run(
    experiment: Experiment,
    out: Path,
    *,
    processes: int = 2,
    overwrite: bool = False,
    progress: bool = True,
) -> Path:
    """Run what is not there yet, and write all of it as one parquet file.

    Finished runs are kept in ``out/NAME.parts`` until the whole is there, also after a kill: the
    same call goes on.

    Args:
        experiment: what to run.
        out: folder.
        processes: runs at a time, one thread each.
        overwrite: replace ``out/NAME.parquet`` where it exists.
        progress: a bar on a terminal, one step per run.

    Returns:
        ``out/NAME.parquet``. Its schema metadata hold config and versions (``read``).

    Raises:
        FileExistsError: it is there already.
        ValueError: the parts were begun with other settings.
    """
    final = out / f"{experiment.name}.parquet"
    parts = out / f"{experiment.name}.parts"
    if final.exists() and not overwrite:
        raise FileExistsError(
            f"{final} exists: give another folder, or overwrite it (--overwrite)."
        )
    parts.mkdir(parents=True, exist_ok=True)
    _check_parts(experiment, parts)
    todo = [key for key in experiment.runs if not _part(parts, key).exists()]
    context = multiprocessing.get_context("spawn")
    with (
        tqdm(
            total=len(experiment.runs),
            initial=len(experiment.runs) - len(todo),
            unit="run",
            disable=None if progress else True,
        ) as bar,
        ProcessPoolExecutor(
            processes, context, initializer=_start_worker, initargs=(os.getpid(),)
        ) as pool,
    ):
        futures = [pool.submit(_run_part, experiment, parts, key) for key in todo]
        try:
            for future in as_completed(futures):
                future.result()
                bar.update()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    _write(combined(experiment, parts), experiment.config(), final)
    shutil.rmtree(parts)
    return final


def combined(experiment: Experiment, parts: Path) -> pd.DataFrame:
    """The finished runs in the order of the experiment."""
    import pandas as pd

    paths = [_part(parts, key) for key in experiment.runs]
    tables = [pd.read_parquet(path) for path in paths if path.exists()]
    return pd.concat(tables, ignore_index=True)


def read(path: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A recorded experiment, and what it was run with."""
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    return table.to_pandas(), json.loads(table.schema.metadata[b"grpo_edu"])


def _run_part(experiment: Experiment, parts: Path, key: RunKey) -> None:
    _write(experiment.measure(experiment, key), experiment.config(), _part(parts, key))


def _part(parts: Path, key: RunKey) -> Path:
    return parts / f"{key.arm}-{key.warm}-{key.seed}.parquet"


def _write(table: pd.DataFrame, config: dict[str, Any], path: Path) -> None:
    """Parquet under a temporary name, then moved; config and versions in the schema."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    plain = pa.Table.from_pandas(table, preserve_index=False)
    metadata = {
        **(plain.schema.metadata or {}),
        b"grpo_edu": json.dumps({"config": config, "versions": versions()}).encode(),
    }
    with replacing(path) as target:
        pq.write_table(plain.replace_schema_metadata(metadata), target, compression="zstd")


def _check_parts(experiment: Experiment, parts: Path) -> None:
    """Finished runs must come from the same settings."""
    for path in parts.glob("*.parquet"):
        config = read(path)[1]["config"]
        different = [
            key
            for key, value in experiment.config().items()
            if config.get(key) != json.loads(json.dumps(value))
        ]
        if different:
            raise ValueError(
                f"{parts} holds runs with another {', '.join(different)}: finish those, delete the "
                f"folder, or choose another."
            )


def _start_worker(parent: int) -> None:
    """One thread, and an end when the parent is gone, even if it was killed."""
    torch.set_num_threads(1)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
