"""Settings of a training run: a field with its meaning, and the checks that toys and language
models share.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from .checks import one_of

OPTIMIZERS = ("sgd", "adamw")


def setting(default: Any, meaning: str, flags: str = "") -> Any:
    """A dataclass field with its meaning, which the command line shows.

    ``flags``: how a yes-or-no option is written.
    """
    return field(default=default, metadata={"meaning": meaning, "flags": flags})


def whole(name: str, value: Any, least: int) -> None:
    """A whole number from ``least`` on, or a ValueError that says so."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is {value!r}: expected a whole number of at least {least}.")


def positive(name: str, value: Any, hint: str = "") -> None:
    """A finite number above 0, or a ValueError that says so.

    ``hint`` goes behind "a positive number".
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < float("inf"):
        raise ValueError(f"{name} is {value!r}: expected a positive number{hint}.")


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
        whole(name, getattr(settings, name), smallest)
    positive("learning_rate", settings.learning_rate)
    one_of("optimizer", settings.optimizer, OPTIMIZERS)
    if settings.max_norm is not None:
        positive("max_norm", settings.max_norm, ", or None for no gradient clipping")
