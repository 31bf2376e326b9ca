"""The command ``grpo-edu``.

Exit codes: 0 done, 1 a check failed, 2 bad use, 130 stopped by Ctrl-C.
"""

from .app import app

__all__ = ["app"]
