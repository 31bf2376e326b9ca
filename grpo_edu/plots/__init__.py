"""Pictures: numbers in, a matplotlib Figure or HTML out.

Most functions take a table. ``heatmap``, ``text`` and ``report`` take recipes and rollouts, and ask
``weights`` for the numbers; ``tree`` and ``kl`` take a small policy, and ask ``theory``.
"""
