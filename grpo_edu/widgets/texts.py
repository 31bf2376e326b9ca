"""Real text with the push of each token: one step, or any step of a training run.

The pushes are the library's own; the browser draws them and needs no kernel. Level of evidence:
exact."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..checks import checked
from ..completions import read_completions
from ..objective import axes
from ..objective.catalog import RECIPES
from ..objective.groups import is_dead
from ..objective.recipe import MissingReferenceWarning, Recipe
from ..plots.heatmap import draw_map, panel_data
from ..plots.style import Picture, look, picture
from ..rollouts import Rollouts
from ..weights import Push
from .base import Framed, script, static, tr
from .lab_pictures import run_curve

if TYPE_CHECKING:
    import pandas as pd


PRESETS = {
    "GRPO and Dr. GRPO": {
        "caption": "GRPO divides by the length of each answer, Dr. GRPO does not. Choose a short "
        "and a long wrong answer to one prompt: under which recipe does a token's push depend on "
        "the length?",
        "left": "grpo",
        "right": "dr_grpo",
        "relative": True,
        "whole": False,
    },
    "two token means": {
        "caption": "Both recipes average over tokens: DAPO over those of the prompt, most "
        "frameworks over those of the step. Which prompts have the larger part of the step under "
        "each?",
        "left": "dapo",
        "right": "dapo(step)",
        "relative": True,
        "whole": False,
    },
}


class TextExplorer(Framed):
    """Completions as text under two recipes, each token coloured by its push; the chosen token's
    ledger below. Every control is a trait.

    Args:
        left, right: names in ``specs``.
        completion, token: the chosen token; a token is chosen by mouse, arrow keys or slider.
        relative: pushes in percent of each recipe's step instead of one absolute scale.
        whole: all answers to the prompt, not the chosen one alone.
    """

    CHOSEN = ("left", "right", "completion", "token", "relative", "whole")
    RUN = ("steps", "index", "log", "metric", "playing")
    SHOWN: tuple[str, ...] = CHOSEN
    _esm = script("texts")
    _css = static("explorer.css") + static("texts.css")
    left = tr.Unicode().tag(sync=True)
    right = tr.Unicode().tag(sync=True)
    completion = tr.Int(0, min=0).tag(sync=True)
    token = tr.Int(0, min=0).tag(sync=True)
    relative = tr.Bool(True).tag(sync=True)
    whole = tr.Bool(False).tag(sync=True)
    steps = tr.List().tag(sync=True)
    index = tr.Int(0, min=0).tag(sync=True)
    metric = tr.Unicode("").tag(sync=True)
    log = tr.Dict().tag(sync=True)
    playing = tr.Bool(False).tag(sync=True)

    @tr.validate("left", "right")
    def _known(self, proposal: Any) -> str:
        return self.checked("a recipe", [proposal["value"]])[0]

    def state(self) -> dict[str, Any]:
        """What the JavaScript sees."""
        return super().state() | {name: getattr(self, name) for name in self.RUN}


class TokenView(TextExplorer):
    """Real text, tokens coloured by their push under two recipes, and the ledger of one token.

    Args:
        rollouts: with token texts, or the path of a completions file; None: the shipped
            completions.
        recipes: the two to start with; the controls offer every recipe that the rollouts have the
            fields for.
        state: the other traits of ``TextExplorer``; ``preset``: a key of ``PRESETS``; ``compact``:
            for a frame of 680 × 520.

    Raises:
        ValueError: the rollouts have no token texts, or lack a field that a recipe needs.
    """

    PRESETS = PRESETS
    TITLE = "Where does this token's push come from?"

    @checked
    def __init__(
        self,
        rollouts: Rollouts | str | Path | None = None,
        recipes: Sequence[str] = ("grpo", "dr_grpo"),
        **state: Any,
    ) -> None:
        self.rollouts, _, first = loaded(rollouts)
        self.losses = readable(self.rollouts)
        offered(recipes, self.losses)
        super().__init__(
            specs=_specs(self.losses),
            steps=[step_data(self.losses, self.rollouts)],
            presets={
                name: start
                for name, start in PRESETS.items()
                if start["left"] in self.losses and start["right"] in self.losses
            },
            **{"left": recipes[0], "right": recipes[-1], "completion": first} | state,
        )

    @picture
    def figure(self) -> Picture:
        """The pushes of the chosen prompt's completions by matplotlib."""
        group = self.rollouts.group
        rows = (group == group[self.completion]).nonzero()[:, 0]
        losses = [self.losses[self.left], self.losses[self.right]]
        pushes = [Push.of(loss, self.rollouts) for loss in losses]
        panels = [panel_data(push, rows.tolist(), self.relative) for push in pushes]
        return draw_map(losses, self.rollouts[rows], panels, relative=self.relative)


class RunViewer(TextExplorer):
    """The curves of a training run, and the completions of any step with their pushes.

    Args:
        folder: with ``log.jsonl``, one line per step, and ``rollouts/step-*.jsonl``, completions
            files.
        recipes: one to four that the controls offer.
        state: the other traits: ``index`` (which of the recorded steps), ``metric`` (which curve),
            and those of ``TextExplorer``.

    Raises:
        FileNotFoundError: the log or the completions are missing; the message says which.
        ValueError: the log has no step or no number to draw, or a recipe needs a field that the
            completions lack.
    """

    TITLE = "Look inside a run"
    SHOWN = ("metric", "index", *TextExplorer.CHOSEN)

    @checked
    def __init__(
        self,
        folder: str | Path,
        recipes: Sequence[str] = ("grpo", "dr_grpo", "dapo(step)"),
        **state: Any,
    ) -> None:
        folder = Path(folder)
        log = read_log(folder / "log.jsonl")
        files = completions_by_step(folder / "rollouts")
        columns = [name for name in log.columns if name != "step" and log[name].dtype.kind in "fiu"]
        if not columns:
            raise ValueError(
                f"{folder / 'log.jsonl'} has no column of numbers beside step: expected reward, "
                "loss, …"
            )
        self.files = [files[step] for step in sorted(files)]
        first = read_completions(self.files[0])
        self.losses = readable(first)
        offered(recipes, self.losses)
        self.losses = {name: self.losses[name] for name in recipes}
        super().__init__(
            specs=_specs(self.losses),
            steps=[
                {"step": step, **step_data(self.losses, read_completions(files[step]))}
                for step in sorted(files)
            ],
            log={name: _numbers(log[name].tolist()) for name in ("step", *columns)},
            **{
                "left": recipes[0],
                "right": recipes[min(1, len(recipes) - 1)],
                "completion": first_live(first),
                "metric": "reward" if "reward" in columns else columns[0],
                "whole": True,
            }
            | state,
        )

    def figure(self) -> Picture:
        """The curve by matplotlib, the chosen step marked."""
        return run_curve(
            self.log["step"], self.log[self.metric], self.metric, self.steps[self.index]["step"]
        )


def _specs(losses: Mapping[str, Recipe]) -> dict[str, dict[str, Any]]:
    """What is written of each recipe: its name, and the formula of each factor."""
    return {
        name: {"label": look(loss.name).label, "formula": _formulas(loss)}
        for name, loss in losses.items()
    }


def _formulas(loss: Recipe) -> dict[str, str]:
    """The plain formula behind each factor of the push."""
    text = loss.formula()
    divided = (
        text["baseline"] if text["scale"] == "1" else f"({text['baseline']}) / {text['scale']}"
    )
    return {
        "advantage": divided,
        "W": text["aggregation"],
        "gate": text["surrogate"],
        "correction": text["correction"],
        "kl": "none" if loss.kl is None else f"−W·d/dlogπ of {axes.text(loss.kl)}",
    }


def step_data(losses: Mapping[str, Recipe], rollouts: Rollouts) -> dict[str, Any]:
    """The completions of a step as the browser reads them: texts, rewards, and the factors of each
    recipe's push.

    A factor of a completion is one number where its trained tokens share it, otherwise one number
    per trained token.

    Raises:
        ValueError: the rollouts have no token texts.
    """
    if rollouts.tokens is None:
        raise ValueError(
            "rollouts.tokens is missing: expected the text of each token. Read a completions file, "
            "or give tokens=."
        )
    assert rollouts.scored is not None
    mask = [row[: len(text)] for row, text in zip(rollouts.mask, rollouts.tokens, strict=True)]
    rewards = zip(rollouts.reward.tolist(), rollouts.scored.tolist(), strict=True)
    return {
        "tokens": rollouts.tokens,
        "prompts": rollouts.prompts,
        "group": rollouts.group.tolist(),
        "rewards": [reward if scored else None for reward, scored in rewards],
        "trained": [True if row.all() else row.tolist() for row in mask],
        "recipes": {name: _factors(loss, rollouts) for name, loss in losses.items()},
    }


def _factors(loss: Recipe, rollouts: Rollouts) -> dict[str, Any]:
    push = Push.of(loss, rollouts)
    return {
        "total": push.token.double().abs().sum().item(),
        **{name: _shared(value, rollouts.mask) for name, value in push.factors.items()},
    }


def _shared(values: Tensor, mask: Tensor) -> list[Any]:
    """Of each row its numbers under the mask; one number where they are all equal."""
    rows = [row[trained] for row, trained in zip(values.double(), mask, strict=True)]
    return [
        row[0].item() if len(row) and bool((row == row[0]).all()) else row.tolist() for row in rows
    ]


def _numbers(column: Sequence[float]) -> list[float | None]:
    """A column of a log; JSON has no NaN."""
    return [float(x) if math.isfinite(x) else None for x in column]


# --- what is read


def readable(rollouts: Rollouts) -> dict[str, Recipe]:
    """The recipes of the catalog that these rollouts have every field for; a KL term is left out
    where ``ref_logp`` is missing."""
    complete = {}
    optional = ("old_logp", "ref_logp")  # without them: on policy, no KL term
    names = [field.name for field in fields(rollouts) if field.name not in optional]
    absent = [name for name in names if getattr(rollouts, name) is None]
    with warnings.catch_warnings():
        warnings.simplefilter("error", MissingReferenceWarning)
        for name, recipe in RECIPES.items():
            pulls = recipe.kl is not None and "ref_logp" in axes.inputs_of(recipe.kl)
            loss = recipe.but(name, kl=None) if pulls and rollouts.ref_logp is None else recipe
            if loss.lacking(absent):
                continue
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


def loaded(rollouts: Rollouts | str | Path | None) -> tuple[Rollouts, list[int], int]:
    """The rollouts, the last trained position of each completion, and a completion to start
    with."""
    step = rollouts if isinstance(rollouts, Rollouts) else read_completions(rollouts)
    last = torch.where(step.mask, torch.arange(step.mask.shape[1]), 0).amax(dim=1)
    return step, last.tolist(), first_live(step)


def first_live(step: Rollouts) -> int:
    """The first completion whose prompt has a signal; 0 where none has."""
    scored = step.scored
    assert scored is not None  # Rollouts fills it in
    live = (~is_dead(step.reward, step.group, scored)).nonzero()[:, 0].tolist()
    return live[0] if live else 0


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
