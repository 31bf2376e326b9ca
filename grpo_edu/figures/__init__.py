"""Named figures: data, drawing and all that is said of each. Importing this package registers
them."""

from . import (
    aggregation,
    clip,
    difficulty,
    frameworks,
    length,
    length_race,
    lm,
    policies,
    toy_clip,
    toy_difficulty,
    toy_length,
)
from .registry import FIGURES

__all__ = [
    "FIGURES",
    "aggregation",
    "clip",
    "difficulty",
    "frameworks",
    "length",
    "length_race",
    "lm",
    "policies",
    "toy_clip",
    "toy_difficulty",
    "toy_length",
]
