"""Exercises that mark themselves: ``check`` recognises the usual mistakes and names them."""
