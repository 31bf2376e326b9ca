"""Readers: a formula with its numbers, real text with its weights, a training run with its
completions."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..checks import checked
from ..completions import read_completions
from ..objective.catalog import RECIPES
from ..objective.groups import is_dead
from ..objective.recipe import MissingReferenceWarning, Recipe
from ..plots.text import weights_on_text
from ..rollouts import Rollouts
from ..stepper import step_through
from .lab_pictures import run_curve
from .panel import Panel, choice, player, slider

if TYPE_CHECKING:
    import pandas as pd


def readable(rollouts: Rollouts) -> dict[str, Recipe]:
    """The recipes of the catalog that these rollouts have every field for; a KL term is left out
    where ``ref_logp`` is missing."""
    complete = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error", MissingReferenceWarning)
        for name, recipe in RECIPES.items():
            loss = recipe if rollouts.ref_logp is not None else recipe.but(name, kl=None)
            try:
                loss.plan(rollouts)
            except (ValueError, MissingReferenceWarning):
                continue
            complete[name] = loss
    return complete


def offered(names: Sequence[str], recipes: dict[str, Recipe]) -> None:
    """Refuses a recipe that the rollouts have not every field for."""
    for name in names:
        if name not in recipes:
            raise ValueError(
                f"recipe {name!r} needs a field that these rollouts lack: expected one of "
                f"{', '.join(recipes)}."
            )


@checked
def formula_stepper(rollouts: Rollouts | None = None, recipe: str = "grpo") -> Panel:
    """One token's weight, factor by factor, the numbers put into the formula; recipe, completion
    and token are turned.

    Args:
        rollouts: None: the shipped completions.
        recipe: the one to start with.
    """
    step, first = loaded(rollouts)
    last = torch.where(step.mask, torch.arange(step.mask.shape[1]), 0).amax(dim=1).tolist()
    recipes = readable(step)
    offered([recipe], recipes)

    def picture(name: str, completion: int, token: int) -> Any:
        return step_through(recipes[name], step, int(completion), int(token))

    controls = {
        "name": choice("recipe", list(recipes), recipe),
        "completion": slider("completion", 0, len(step) - 1, 1, first),
        "token": slider("token", 0, last[first], 1, 0),
    }
    return Panel(picture, controls, lambda values: {"token": last[int(values["completion"])]})


def loaded(rollouts: Rollouts | str | Path | None) -> tuple[Rollouts, int]:
    """The rollouts, and a completion to start with."""
    step = rollouts if isinstance(rollouts, Rollouts) else read_completions(rollouts)
    return step, _first_live(step)


def _first_live(step: Rollouts) -> int:
    """The first completion whose prompt has a signal; 0 where none has."""
    scored = step.scored
    assert scored is not None  # Rollouts fills it in
    live = (~is_dead(step.reward, step.group, scored)).nonzero()[:, 0].tolist()
    return live[0] if live else 0


# --- a training run


@checked
def run_viewer(folder: str | Path, recipes: Sequence[str] = ("grpo", "dr_grpo")) -> Panel:
    """The curves of a training run, then the completions of any step with the weights they had
    under two recipes.

    Args:
        folder: with ``log.jsonl``, one line per step, and ``rollouts/step-*.jsonl``, completions
            files.
        recipes: the two to start with.

    Raises:
        FileNotFoundError: the log or the completions are missing; the message says which.
        ValueError: the log has no step or no number to draw.
    """
    folder = Path(folder)
    log = read_log(folder / "log.jsonl")
    files = completions_by_step(folder / "rollouts")
    columns = [name for name in log.columns if name != "step" and log[name].dtype.kind in "fiu"]
    if not columns:
        raise ValueError(
            f"{folder / 'log.jsonl'} has no column of numbers beside step: expected reward, loss, …"
        )
    load = lru_cache(maxsize=4)(read_completions)
    losses_of = lru_cache(maxsize=4)(lambda path: readable(load(path)))
    steps = sorted(files)
    first = load(files[steps[0]])
    names = list(losses_of(files[min(files)]))
    offered(recipes, losses_of(files[min(files)]))

    def picture(metric: str, step: int, left: str, right: str, group: int) -> list[Any]:
        nearest = min(steps, key=lambda logged: abs(logged - int(step)))
        rollouts = load(files[nearest])
        rows = (rollouts.group == int(group)).nonzero()[:, 0].tolist()
        losses = losses_of(files[nearest])
        text = weights_on_text([losses[left], losses[right]], rollouts, rows=rows, relative=True)
        return [
            run_curve(log["step"].tolist(), log[metric].tolist(), metric, nearest),
            f"step {nearest}, prompt {int(group)}:",
            text,
        ]

    def limits(values: dict[str, Any]) -> dict[str, int]:
        nearest = min(steps, key=lambda logged: abs(logged - int(values["step"])))
        return {"group": int(load(files[nearest]).group.max())}

    controls = {
        "metric": choice("curve", columns, "reward" if "reward" in columns else columns[0]),
        "step": slider("step", steps[0], steps[-1], 1, steps[0]),
        "play": player("the run", of="step"),
        "left": choice("recipe at the left", names, recipes[0]),
        "right": choice("recipe at the right", names, recipes[1]),
        "group": slider(
            "prompt", 0, int(first.group.max()), 1, int(first.group[_first_live(first)])
        ),
    }
    return Panel(picture, controls, limits)


def read_log(path: Path) -> pd.DataFrame:
    """One row per step of ``log.jsonl``; a last line that a crash cut short is left out."""
    import pandas as pd

    if not path.is_file():
        raise FileNotFoundError(
            f"no log at {path}: expected the folder of a run, `grpo-edu train` writes it."
        )
    rows = []
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number < len(lines):
                raise ValueError(
                    f"{path}, line {number}: not JSON ({error.msg}). Expected one object per line."
                ) from error
    if not rows or "step" not in rows[0]:
        raise ValueError(
            f"{path} has no column step: expected one object per line, each with its step."
        )
    return pd.DataFrame(rows)


def completions_by_step(folder: Path) -> dict[int, Path]:
    """``step-00012.jsonl`` by its number."""
    files = {
        int(path.stem.removeprefix("step-")): path
        for path in folder.glob("step-*.jsonl")
        if path.stem[5:].isdigit()
    }
    if not files:
        raise FileNotFoundError(
            f"no step-*.jsonl in {folder}: expected the completions of at least one step."
        )
    return files
