"""The toy player: the stopping toy trained under a few recipes, played step by step. Level of
evidence: paths simulated, arrows exact."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..checks import Probability, checked
from ..objective.catalog import RECIPES
from ..toys import stopping
from ..toys.compare import matched_learning_rate, push_sizes
from ..toys.flow import expected_gradient
from ..toys.stopping import Stopping
from ..toys.training import Training
from .base import Explorer, script, tr

if TYPE_CHECKING:
    import pandas as pd

STEPS = 60
SEEDS = 8
OFFERED = ("grpo", "dr_grpo", "dapo", "dapo(step)", "bnpo", "rloo", "balanced", "vl_norm")
COLUMNS = ("stop_right", "stop_wrong", "length_right", "length_wrong", "pass_rate")


class ToyPlayer(Explorer):
    """Where both stop logits of the stopping toy go, and what becomes of pass rate and lengths.

    Each recipe is trained when the player is made; the browser plays the recorded runs. Learning
    rates are matched, so all recipes push equally hard at the start.

    Args:
        recipes: one or more of ``OFFERED``.
        mode: a key of ``toys.stopping.MODES``.
        right: pass rate at the start.
        state: ``recipe``: the one that is shown; ``step``: 0 to ``STEPS``, even.

    Raises:
        ValueError: a recipe that is not offered, an unknown mode.
    """

    TITLE = "Where a policy goes, step by step"
    SHOWN = ("recipe", "step", "playing")
    _esm = script("toy")
    runs = tr.Dict().tag(sync=True)
    recipe = tr.Unicode().tag(sync=True)
    step = tr.Int(0, min=0, max=STEPS).tag(sync=True)
    playing = tr.Bool(False).tag(sync=True)

    @checked
    def __init__(
        self,
        recipes: Sequence[str] = ("grpo", "dr_grpo"),
        mode: str = "environment",
        right: Probability = 0.3,
        **state: Any,
    ) -> None:
        unknown = [name for name in recipes if name not in OFFERED]
        if unknown:
            raise ValueError(
                f"recipes has {unknown[0]!r}: expected names out of {', '.join(OFFERED)}."
            )
        self.trained = {name: trained(name, mode, round(right, 6)) for name in recipes}
        super().__init__(
            specs={name: {"label": name} for name in recipes},
            runs={name: recorded(*run) for name, run in self.trained.items()},
            **{"recipe": recipes[0], **state},
        )

    @tr.validate("recipe")
    def _offered(self, proposal: Any) -> str:
        return self.checked("recipe", [proposal["value"]])[0]

    def state(self) -> dict[str, Any]:
        """What the JavaScript sees."""
        return {**super().state(), "runs": self.runs}

    def figure(self) -> Any:
        """The same picture by matplotlib."""
        from .lab_pictures import phase_portrait

        return phase_portrait(*self.trained[self.recipe], self.step, self.recipe)


@cache
def trained(name: str, mode: str, right: float) -> tuple[pd.DataFrame, np.ndarray]:
    """The run of all seeds, and the expected first update on a grid of stop logits: ``[K, 4]``
    right, wrong, and how each moves."""
    policy = Stopping(mode=mode, right=right, cap=32)
    training = Training(steps=STEPS, every=2)
    loss = RECIPES[name].but(name, kl=None)
    base = RECIPES["grpo"].but("grpo", kl=None)
    batches = [stopping.rollouts(policy, training, seed) for seed in range(4)]
    sizes = push_sizes([loss, base] if name != "grpo" else [base], batches)
    rate = matched_learning_rate(sizes, 0.5, "grpo")
    table = stopping.train(loss, policy, training, seeds=SEEDS, learning_rates=rate)
    arrows = []
    attempt = policy.start()[0][2:]
    for a in np.linspace(-4.5, 0, 6):
        for b in np.linspace(-4.5, 0, 6):
            theta = torch.cat([torch.tensor([a, b], dtype=torch.float64), attempt])
            update = expected_gradient(loss, theta, policy, Training(prompts=1))
            arrows.append([a, b, update[0].item(), update[1].item()])
    return table, np.array(arrows)


def recorded(table: pd.DataFrame, arrows: np.ndarray) -> dict[str, Any]:
    """A run as the browser reads it: ``paths`` of each seed, the mean of each column by step."""
    rows: Any = table
    paths = [
        path[["stop_right", "stop_wrong"]].to_numpy().tolist() for _, path in rows.groupby("seed")
    ]
    mean = rows.groupby("step")[list(COLUMNS)].mean()
    return {
        "steps": mean.index.tolist(),
        "paths": paths,
        "arrows": arrows.tolist(),
        **{name: mean[name].tolist() for name in COLUMNS},
    }
