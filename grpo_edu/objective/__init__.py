"""The objective: one room per axis, in the order data flows, and the recipe that composes them."""
