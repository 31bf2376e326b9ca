"""Reading text so that errors name the file, and writing so that nothing is ever half written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file; a byte order mark at its start is left out.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not UTF-8; names the file and the byte.
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 text (byte {error.start}): expected a text file in UTF-8."
        ) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place when all went well.

    Folders are made.

    Raises:
        OSError: the file cannot be written; names ``path``, not the temporary one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        error.filename = str(path)
        raise
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
