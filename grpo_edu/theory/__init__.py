"""Exact results, no sampling: difficulty, length, clip, KL, variance. Each is tested against
enumeration through the real Recipe.
"""
