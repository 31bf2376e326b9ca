"""A user's own function by name, and ``name=value`` entries of a command line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .readers import scalar


def imported(function: str, name: str) -> Callable[..., Any]:
    """``module:function`` from the current folder or the path; importing runs the module's code.

    Args:
        function: the module and the function in it, ``my_losses:grpo_loss``.
        name: what errors call the argument.

    Raises:
        ValueError, TypeError: it cannot be imported, or is no function.
    """
    module, colon, attribute = function.partition(":")
    if not colon or not attribute:
        raise ValueError(
            f"{name} is '{function}': expected module:function, for example my_losses:grpo_loss."
        )
    sys.path.insert(0, str(Path.cwd()))
    try:
        loss = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise ValueError(
            f"{function} could not be imported: {type(error).__name__}: {error}"
        ) from error
    if not callable(loss):
        raise TypeError(f"{function} is a {type(loss).__name__}: expected a function.")
    return loss


def named_values(entries: Sequence[str], name: str) -> dict[str, Any]:
    """``["beta=0.04"]`` -> ``{"beta": 0.04}``; ``name`` is what errors call the argument.

    Raises:
        ValueError: an entry without ``=``.
    """
    values = {}
    for entry in entries:
        key, equals, value = entry.partition("=")
        if not equals:
            raise ValueError(f"{name} is '{entry}': expected name=value.")
        values[key] = scalar(value)
    return values
