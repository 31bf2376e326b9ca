"""Frameworks: what TRL, verl, OpenRLHF and others really compute, in tables; read a config, export a recipe, identify a loss."""

from .effective import effective_table
from .explain import Verdict, explain
from .export import Exported, export
from .identify import Identified, identify
from .tables import FRAMEWORKS, NotCovered, preset, preset_table, presets

__all__ = [
    "FRAMEWORKS",
    "Exported",
    "Identified",
    "NotCovered",
    "Verdict",
    "effective_table",
    "explain",
    "export",
    "identify",
    "preset",
    "preset_table",
    "presets",
]
