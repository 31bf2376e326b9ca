"""Writing files so that nothing is ever half written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place when all went well.

    Folders are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def json_line(row: dict[str, Any]) -> str:
    """One row as one line of JSON, in ASCII: no reader takes a character of the text for the end of
    the line.
    """
    return json.dumps(row) + "\n"


def write_json_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """One row per line; a reader never sees half a file."""
    with replacing(path) as target, target.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(map(json_line, rows))
