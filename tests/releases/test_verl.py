"""Every verl release against its table: the gradient of one step, by the release's own code."""

from __future__ import annotations

import verl_cases as cases
import pytest
