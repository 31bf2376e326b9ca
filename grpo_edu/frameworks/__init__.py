"""Frameworks: what TRL, verl, OpenRLHF and others really compute, in tables.

Read a config, export a recipe, identify a loss.
"""

from .effective import effective_table
from .explain import explain
from .export import Exported, export
from .identify import Identified, identify
from .tables import FRAMEWORKS, NotCovered, preset, preset_table, presets
from .verdict import Verdict

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
