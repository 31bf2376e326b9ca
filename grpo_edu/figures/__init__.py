"""Named figures: each has a function for its data and one that draws it. Importing this package registers them all."""

from . import (
    aggregation,
    clip,
    difficulty,
    frameworks,
    length,
    lm,
    policies,
    toy_clip,
    toy_difficulty,
    toy_length,
)
from .registry import FIGURES, Figured, check, write

__all__ = [
    "FIGURES",
    "Figured",
    "aggregation",
    "check",
    "clip",
    "difficulty",
    "frameworks",
    "length",
    "lm",
    "policies",
    "toy_clip",
    "toy_difficulty",
    "toy_length",
    "write",
]
