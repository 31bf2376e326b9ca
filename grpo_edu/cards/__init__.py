"""Formula cards: one page for a recipe or a choice, made from what it carries and computes."""

from .card import Card, card, card_names
from .page import card_page, cards_page

__all__ = ["Card", "card", "card_names", "card_page", "cards_page"]
