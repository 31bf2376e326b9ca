"""Errors, warnings, Ctrl-C and closed pipes of every command: caught here and nowhere else."""

from __future__ import annotations

import errno
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

EXPECTED = (ValueError, TypeError, LookupError, ImportError, OSError, RuntimeError)
REASONS = {
    errno.ENOENT: "there is no such file or folder. Check the path.",
    errno.EACCES: "permission denied. Choose a path that you may read or write.",
    errno.EPERM: "permission denied. Choose a path that you may read or write.",
    errno.EROFS: "this disk can only be read. Choose another path.",
    errno.EISDIR: "this is a folder, expected a file. Give the name of a file.",
    errno.ENOTDIR: "a part of this path is a file, expected folders. Check the path.",
    errno.EEXIST: "this is a file, expected a folder. Check the path.",
    errno.ENOSPC: "the disk is full. Free some space, or choose another disk.",
}


class Commands(TyperGroup):
    """The top group: an error in any command becomes one line on stderr and an exit code."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        try:
            return super().make_context(*arguments, **options)
        except SystemExit:  # by rich, which prints --help: the pipe is closed
            raise _read_enough() from None

    def invoke(self, ctx: Any) -> Any:
        with _notes():
            try:
                return super().invoke(ctx)
            except (typer.Exit, typer.Abort):
                raise
            except KeyboardInterrupt:
                raise typer.Exit(130) from None
            except (BrokenPipeError, SystemExit):
                raise _read_enough() from None
            except EXPECTED as error:
                typer.echo(f"error: {message(error)}", err=True)
                raise typer.Exit(getattr(error, "exit_code", 2)) from None


def _read_enough() -> typer.Exit:
    """The reader of the output, `head` for example, has seen enough: stop quietly."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return typer.Exit(0)


def message(error: BaseException) -> str:
    """The text for the user: names a file that the system refused, and shows no error number."""
    if isinstance(error, OSError) and error.errno is not None:
        reason = REASONS.get(error.errno, f"{error.strerror}.")
        return reason if error.filename is None else f"{error.filename}: {reason}"
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return re.sub(r"\[(Errno|WinError) -?\d+\] ", "", text) or type(error).__name__


@contextmanager
def _notes() -> Iterator[None]:
    """Print each warning about a recipe once, as one line on stderr; show no other warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            from ..objective.recipe import MissingReferenceWarning, RecipeWarning

            kinds = (MissingReferenceWarning, RecipeWarning)
            texts = (str(w.message) for w in caught if issubclass(w.category, kinds))
            for text in dict.fromkeys(texts):
                typer.echo(f"note: {text}", err=True)
