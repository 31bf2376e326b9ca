"""Small language models: loading, sampling with exact log-probs, and rewards that can be checked by
eye.
"""
