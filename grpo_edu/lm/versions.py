"""The versions that a recorded number may depend on."""

from __future__ import annotations

import platform

import torch


def versions() -> dict[str, str]:
    """Of Python, torch and transformers."""
    import transformers

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
