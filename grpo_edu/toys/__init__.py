"""Toys: policies small enough to be checked against theory.

All seeds run as one tensor program; evidence level "simulated".
"""
