"""grpo_edu: what GRPO-family losses really push, token by token."""

from .objective.catalog import RECIPES, recipe
from .objective.recipe import MissingReferenceWarning, Recipe, RecipeWarning
from .rollouts import Rollouts
from .weights import ledger, token_weights

__version__ = "0.1.0"
__all__ = [
    "RECIPES",
    "MissingReferenceWarning",
    "Recipe",
    "RecipeWarning",
    "Rollouts",
    "ledger",
    "recipe",
    "token_weights",
]
