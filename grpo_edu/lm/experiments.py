"""Recorded experiments in the lab: what a loss does to a small language model, over seeds and independent warm starts.

Every run (arm x warm start x seed) is a process's own work with one thread, and one small parquet file; a run that was
interrupted starts again from its beginning, a finished one is never run twice. Arms, seeds and steps are fixed here, before
anything is measured, and every run is reported. Level of evidence: observed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tqdm import tqdm

from ..checks import checked
from ..files import replacing
from ..objective import advantages
from ..objective.catalog import STD, recipe
from ..objective.recipe import Recipe
from ..rollouts import Rollouts
from . import lab
from .loop import Settings, Step, Trainer

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
ARM_TITLES = {
    "grpo": "GRPO (1/|o|, std; no KL)",
    "grpo_no_std": "1/|o| without std",
    "constant_std": "constant, with std",
    "dr_grpo": "Dr. GRPO",
    "dapo(step)": "DAPO, token mean over the step",
    "placebo": "placebo: GRPO on shuffled rewards",
}


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
        every: steps in one row of the table.
        measure: (experiment, arm, warm start, seed) -> table of one run.
    """

    name: str
    title: str
    variant: str
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    settings: Settings
    warm_starts: tuple[int, ...] = lab.WARM_STARTS
    every: int = 5
    measure: Callable[[Experiment, str, int, int], pd.DataFrame] = None  # type: ignore[assignment]

    @property
    def runs(self) -> list[tuple[str, int, int]]:
        """(arm, warm start, seed) of every run; seeds outermost, so that an unfinished experiment is balanced."""
        return [
            (arm, warm, seed)
            for seed, warm, arm in product(self.seeds, self.warm_starts, self.arms)
        ]

    def config(self) -> dict[str, Any]:
        """Everything that decides the numbers, as plain values."""
        chosen = {arm: ARMS[arm].recipe.describe() for arm in self.arms if arm in ARMS}
        return {
            "experiment": self.name,
            "variant": self.variant,
            "arms": list(self.arms),
            "recipes": chosen,
            "seeds": list(self.seeds),
            "warm_starts": list(self.warm_starts),
            "every": self.every,
            "settings": json.loads(json.dumps(asdict(self.settings))),
        }


# --- what is measured -----------------------------------------------------------------------------------------------------


def train_run(experiment: Experiment, arm: str, warm: int, seed: int) -> pd.DataFrame:
    """Train one arm from one warm start. One row per ``every`` steps and level.

    Columns: ``arm, warm, seed, step`` (steps done), ``level``; ``right, wrong`` (completions, by the task's own reward),
    ``tokens_right, tokens_wrong`` (their tokens, end token included); over all levels ``entropy`` (nats per token),
    ``gradient_norm``, ``norm_clipped, truncated, dead`` (shares of updates, completions, groups), ``tokens`` (sampled since
    the start), ``wall_seconds, cpu_seconds`` (since the start).
    """
    import pandas as pd

    net, tokenizer = lab.warm_start(experiment.variant, warm)
    settings = replace(experiment.settings, seed=seed, placebo=ARMS[arm].placebo)
    trainer = Trainer(net, tokenizer, lab.task(experiment.variant), ARMS[arm].recipe, settings)
    rows, block, tokens, clocks = [], [], 0, (time.perf_counter(), time.process_time())
    for step in trainer.run():
        block.append(_seen(step))
        tokens += int(step.batch.drawn.mask.sum())
        if len(block) == experiment.every or step.number == settings.steps - 1:
            shared = {key: sum(b[key] for b in block) / len(block) for key in SHARED}
            spent = {
                "wall_seconds": time.perf_counter() - clocks[0],
                "cpu_seconds": time.process_time() - clocks[1],
            }
            for level in lab.LEVELS:
                counts = {key: sum(b[key, level] for b in block) for key in COUNTS}
                head = {
                    "arm": arm,
                    "warm": warm,
                    "seed": seed,
                    "step": step.number + 1,
                    "level": level,
                }
                rows.append({**head, **counts, **shared, "tokens": tokens, **spent})
            block = []
    return pd.DataFrame(rows)


COUNTS = ("right", "wrong", "tokens_right", "tokens_wrong")
SHARED = ("entropy", "gradient_norm", "norm_clipped", "truncated", "dead")


def _seen(step: Step) -> dict[Any, float]:
    """What one step adds to the table."""
    level = torch.tensor([q.level for q in step.batch.asked])
    right, length = step.batch.correct > 0, step.batch.drawn.mask.sum(dim=1)
    out: dict[Any, float] = {}
    for number in lab.LEVELS:
        for name, rows in (
            ("right", right & (level == number)),
            ("wrong", ~right & (level == number)),
        ):
            out[name, number] = int(rows.sum())
            out[f"tokens_{name}", number] = int(length[rows].sum())
    groups = step.batch.correct.reshape(len(step.batch.rollouts.group.unique()), -1)
    out.update(
        entropy=step.entropy, gradient_norm=step.gradient_norm, norm_clipped=step.norm_clipped
    )
    out["truncated"] = float(step.batch.drawn.truncated.float().mean())
    out["dead"] = float((groups.amax(1) == groups.amin(1)).double().mean())
    return out


def gradient_run(experiment: Experiment, arm: str, warm: int, seed: int) -> pd.DataFrame:
    r"""Gradient norm of single groups at the warm start, without and with division by the std. One row per live group.

    The loss is the constant's, so that nothing but the std differs: per group the ratio of the two norms is 1/σ_K exactly,
    σ_K the std (ddof 1) of K ones among G rewards.

    Columns: ``arm`` (group size), ``warm, seed, level, group`` (number), ``right`` (K), ``norm_none, norm_std``.
    """
    import pandas as pd

    net, tokenizer = lab.warm_start(experiment.variant, warm)
    settings = replace(experiment.settings, seed=seed, samples=int(arm))
    trainer = Trainer(net, tokenizer, lab.task(experiment.variant), recipe("dr_grpo"), settings)
    rows = []
    for number in range(settings.steps):
        batch = trainer.collect(number)
        for group in range(settings.prompts):
            index = (batch.rollouts.group == group).nonzero()[:, 0]
            right = int(batch.correct[index].sum())
            if 0 < right < settings.samples:
                logp = trainer.log_probs(net, batch, index)[0]
                one = batch.rollouts[index].with_logp(logp)
                norms = {name: gradient_norm(net, chosen, one) for name, chosen in SCALES.items()}
                head = {
                    "arm": arm,
                    "warm": warm,
                    "seed": seed,
                    "level": batch.asked[int(index[0])].level,
                }
                rows.append(
                    {**head, "group": number * settings.prompts + group, "right": right, **norms}
                )
    return pd.DataFrame(rows)


SCALES = {
    "norm_none": recipe("dr_grpo"),
    "norm_std": recipe("dr_grpo").but("constant_std", scale=STD),
}


def gradient_norm(net: Any, chosen: Recipe, rollouts: Rollouts) -> float:
    """Norm of the gradient of one loss over all parameters; the graph is kept for the next."""
    parts = torch.autograd.grad(chosen.loss(rollouts), list(net.parameters()), retain_graph=True)
    return float(torch.stack([part.norm() for part in parts]).norm())


# --- the experiments ------------------------------------------------------------------------------------------------------

LONG = Settings(steps=60, prompts=12, samples=8, learning_rate=2e-4, micro_batches=3)
SHORT = replace(LONG, steps=40, learning_rate=3e-4)
EXPERIMENTS = {
    one.name: one
    for one in (
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
            Settings(steps=4, prompts=10),
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
    """An experiment by name; ``quick``: fewer arms, seeds and steps, at most 3 minutes on two cores.

    Raises:
        ValueError: no such experiment.
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment name is '{name}': expected one of {', '.join(EXPERIMENTS)}.")
    return replace(EXPERIMENTS[name], **QUICK[name]) if quick else EXPERIMENTS[name]


# --- running them -----------------------------------------------------------------------------------------------------------


def run(
    chosen: Experiment,
    out: Path,
    *,
    processes: int = 2,
    overwrite: bool = False,
    progress: bool = True,
) -> Path:
    """Run what is not there yet, and write all of it as one parquet file.

    Finished runs are kept in ``out/NAME.parts`` until the whole is there, also after a kill: the same call goes on.

    Args:
        chosen: the experiment.
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
    final, parts = out / f"{chosen.name}.parquet", out / f"{chosen.name}.parts"
    if final.exists() and not overwrite:
        raise FileExistsError(
            f"{final} exists: give another folder, or overwrite it (--overwrite)."
        )
    parts.mkdir(parents=True, exist_ok=True)
    _check_parts(chosen, parts)
    todo = [one for one in chosen.runs if not _part(parts, *one).exists()]
    context = multiprocessing.get_context("spawn")
    with (
        tqdm(
            total=len(chosen.runs),
            initial=len(chosen.runs) - len(todo),
            unit="run",
            disable=None if progress else True,
        ) as bar,
        ProcessPoolExecutor(
            processes, context, initializer=_start_worker, initargs=(os.getpid(),)
        ) as pool,
    ):
        futures = [pool.submit(_run_part, chosen, parts, *one) for one in todo]
        try:
            for future in as_completed(futures):
                future.result()
                bar.update()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    _write(combined(chosen, parts), chosen.config(), final)
    shutil.rmtree(parts)
    return final


def combined(chosen: Experiment, parts: Path) -> pd.DataFrame:
    """The finished runs in the order of the experiment."""
    import pandas as pd

    tables = [pd.read_parquet(path) for one in chosen.runs if (path := _part(parts, *one)).exists()]
    return pd.concat(tables, ignore_index=True)


def read(path: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A recorded experiment, and what it was run with."""
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    return table.to_pandas(), json.loads(table.schema.metadata[b"grpo_edu"])


def versions() -> dict[str, str]:
    """What a number may depend on besides the config."""
    import transformers

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def _run_part(chosen: Experiment, parts: Path, arm: str, warm: int, seed: int) -> None:
    _write(chosen.measure(chosen, arm, warm, seed), chosen.config(), _part(parts, arm, warm, seed))


def _part(parts: Path, arm: str, warm: int, seed: int) -> Path:
    return parts / f"{arm}-{warm}-{seed}.parquet"


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


def _check_parts(chosen: Experiment, parts: Path) -> None:
    """Finished runs must come from the same settings."""
    for path in parts.glob("*.parquet"):
        found = read(path)[1]["config"]
        different = [
            key
            for key, value in chosen.config().items()
            if found.get(key) != json.loads(json.dumps(value))
        ]
        if different:
            raise ValueError(
                f"{parts} holds runs with another {', '.join(different)}: finish those, delete the folder, or choose another."
            )


def _start_worker(parent: int) -> None:
    """One thread, and an end when the parent is gone, even if it was killed."""
    torch.set_num_threads(1)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
