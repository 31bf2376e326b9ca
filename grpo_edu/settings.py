"""Settings of a training run: a field with its meaning, and the check that toys and language
models share.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from .checks import one_of, positive, whole_number

OPTIMIZERS = ("sgd", "adamw")


def setting(default: Any, meaning: str, flags: str = "") -> Any:
    """A dataclass field with its meaning, which the command line shows.

    ``flags``: how a yes-or-no option is written.
    """
    return field(default=default, metadata={"meaning": meaning, "flags": flags})


def check_training(settings: Any, **least: int) -> None:
    """Check what every training loop has: counts, learning rate, optimiser, norm of the gradient.

    Args:
        settings: has ``steps``, ``prompts``, ``samples``, ``updates``, ``micro_batches``,
            ``learning_rate``, ``optimizer`` and ``max_norm``.
        least: further whole numbers by name, with the smallest value of each.

    Raises:
        ValueError: names the setting, its value and what was expected.
    """
    counts = {"steps": 1, "prompts": 1, "samples": 2, "updates": 1, "micro_batches": 1}
    for name, smallest in {**counts, **least}.items():
        whole_number(name, getattr(settings, name), smallest)
    positive("learning_rate", settings.learning_rate)
    one_of("optimizer", settings.optimizer, OPTIMIZERS)
    if settings.max_norm is not None:
        positive("max_norm", settings.max_norm, ", or None for no gradient clipping")
