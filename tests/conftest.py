"""One thread per test process: pytest-xdist starts one process per core."""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = (
    "1"  # before torch is imported; programs that tests start inherit it
)

import torch

torch.set_num_threads(1)
