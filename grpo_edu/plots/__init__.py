"""Pictures: pure functions, data in, a matplotlib Figure or HTML out. Nothing here computes a weight."""
