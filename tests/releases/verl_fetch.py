"""Fetch verl's wheels for the release suite into an ignored folder; nothing is installed.

    python tests/releases/verl_fetch.py            # every release
    python tests/releases/verl_fetch.py --part     # those at the ends of the rules' ranges (CI)

Then ``python -m pytest tests/releases/test_verl.py`` runs what is there.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from .verl_cases import BOUNDARIES, RELEASES

FOLDER = Path(__file__).resolve().parents[2] / ".releases" / "verl"


def root(version: str) -> Path:
    """Where the package of a release lies."""
    return FOLDER / RELEASES[version] / "verl"


def fetch(version: str) -> None:
    wheel = f"verl=={RELEASES[version]}"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
        subprocess.run([*command, folder, wheel], check=True)
        (file,) = Path(folder).iterdir()
        zipfile.ZipFile(file).extractall(FOLDER / RELEASES[version])


if __name__ == "__main__":
    for release in BOUNDARIES if "--part" in sys.argv else RELEASES:
        if not root(release).exists():
            fetch(release)
