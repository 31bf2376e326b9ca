"""grpo_edu: what GRPO-family losses really push, token by token."""

from .compare import Comparison, compare
from .completions import read_completions
from .objective.catalog import RECIPES, recipe
from .objective.recipe import MissingReferenceWarning, Recipe, RecipeWarning
from .rollouts import Rollouts
from .stepper import step_through
from .weights import Push, ledger, token_weights

__version__ = "0.1.0"
__all__ = [
    "RECIPES",
    "Comparison",
    "MissingReferenceWarning",
    "Push",
    "Recipe",
    "RecipeWarning",
    "Rollouts",
    "compare",
    "ledger",
    "read_completions",
    "recipe",
    "step_through",
    "token_weights",
]
