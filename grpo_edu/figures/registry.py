"""The registry of named figures: write them with their data, and check the committed ones."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..checks import checked
from ..files import replacing
from ..plots.style import evidence, headline, styled
from .layout import AS_COMMITTED, Layout, save

Drawing = TypeVar("Drawing", bound=Callable[[pd.DataFrame], Figure])


@dataclass(frozen=True)
class Figured:
    """One named figure: all that is said of it, where its numbers come from, and how they are
    drawn.

    Args:
        name: file name without ending, the name of the drawing function.
        title: the sentence it says.
        level: level of evidence, "exact", "simulated, …" or "observed, …".
        alt: what a reader who cannot see it should know.
        answers: the talk, paper or post that it answers.
        data: makes the table that is drawn; every exact fact on the picture is in it.
        drawing: draws the table.
        caption: the line under the picture where it says more than the level; None: the level.
        recorded: the table comes from sampled runs; it is kept as data, and ``check`` does not
            make it anew.
        dark: a second picture for dark pages is written, ``NAME_dark``.
        frames: the pictures of an animation of the table, a GIF beside the still picture; None:
            nothing moves.
    """

    name: str
    title: str
    level: str
    alt: str
    answers: str
    data: Callable[[], pd.DataFrame]
    drawing: Callable[[pd.DataFrame], Figure]
    caption: str | None = None
    recorded: bool = False
    dark: bool = False
    frames: Callable[[pd.DataFrame], Iterator[Figure]] | None = None

    def draw(self, table: pd.DataFrame, layout: Layout = AS_COMMITTED) -> Figure:
        """The picture of a table, its title above, its evidence and the command that makes it
        below; a line of evidence that the drawing wrote is kept where there is no caption."""
        with layout.styled():
            return self._finished(self.drawing(table))

    def moving(self, table: pd.DataFrame) -> Iterator[Figure]:
        """The pictures of the animation, with the same title and foot."""
        with styled():
            for picture in self.frames(table) if self.frames else ():
                yield self._finished(picture)

    def _finished(self, picture: Figure) -> Figure:
        headline(picture, self.title)
        level = self.caption or picture.get_supxlabel() or self.level
        command = f"· grpo-edu figures {self.name}".replace(" ", "\u00a0")  # stays on one line
        evidence(picture, f"{level} {command}")
        return picture

    def table(self) -> pd.DataFrame:
        """The data: made anew; of sampled runs the recorded table."""
        return recorded_table(self.name) if self.recorded else self.data()

    def show(self) -> Figure:
        """The picture, for a notebook."""
        return self.draw(self.table())


FIGURES: dict[str, Figured] = {}
COMMITTED = Path(__file__).resolve().parents[2] / "figures"


def figure(**fields: Any) -> Callable[[Drawing], Drawing]:
    """Decorator of a drawing function: registers it under its own name.

    Args:
        fields: the other fields of ``Figured``.

    Raises:
        ValueError: a figure of this name is registered already.
    """

    def register(drawing: Drawing) -> Drawing:
        name = drawing.__name__
        if name in FIGURES:
            raise ValueError(f"a figure named {name} is registered already: choose another name.")
        FIGURES[name] = Figured(name=name, drawing=drawing, **fields)
        return drawing

    return register


@checked
def recorded_table(name: str) -> pd.DataFrame:
    """The committed table of a figure, from the repository's ``figures/data``.

    Raises:
        FileNotFoundError: the package was installed without the repository.
    """
    path = COMMITTED / "data" / f"{name}.csv"
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: work in a clone of the repository, "
            f"or run `grpo-edu figures {name}`."
        )
    return pd.read_csv(path)


def named(names: Sequence[str]) -> list[Figured]:
    """The figures of these names, all where none is given.

    Raises:
        KeyError: an unknown name; the message lists the known ones.
    """
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        raise KeyError(f"no figure named {', '.join(unknown)}. Known: {', '.join(FIGURES)}.")
    return [FIGURES[name] for name in names] if names else list(FIGURES.values())


def write(figured: Figured, out: Path, formats: Sequence[str] = ("svg", "png")) -> list[Path]:
    """Write the data (CSV) and the picture of one figure, and note both in ``manifest.json``.
    Returns the files."""
    path = out / "data" / f"{figured.name}.csv"
    with replacing(path) as target:
        figured.data().to_csv(
            target,
            index=False,
            lineterminator="\n",
            float_format="%.9g" if figured.recorded else None,
        )
    return [path, *redraw(figured, out, formats)]


def redraw(figured: Figured, out: Path, formats: Sequence[str] = ("svg", "png")) -> list[Path]:
    """Draw a figure from the data that is in ``out`` already. Returns the files."""
    table = pd.read_csv(out / "data" / f"{figured.name}.csv")
    written = draw_as(figured, table, out, formats, AS_COMMITTED)
    if figured.dark:
        written += draw_as(figured, table, out, formats, Layout("dark"))
    if figured.frames and "png" in formats:
        written.append(_animate(figured.moving(table), out / f"{figured.name}.gif"))
    _note(out, figured, written)
    return written


def draw_as(
    figured: Figured, table: pd.DataFrame, out: Path, formats: Sequence[str], layout: Layout
) -> list[Path]:
    """Draw a table in a layout, as ``NAME`` or ``NAME_dark``. Returns the files."""
    written = []
    for ending in formats:  # drawn anew for each: laying a picture out twice moves it
        path = out / f"{figured.name}{'_dark' if layout.theme == 'dark' else ''}.{ending}"
        picture = figured.draw(table, layout)
        with layout.styled(), replacing(path) as target:
            save(picture, target, ending, layout.width)
        written.append(path)
    return written


def _animate(frames: Iterator[Figure], path: Path) -> Path:
    """Write a GIF that plays on and on: 10 pictures a second, the last one for three seconds."""
    from PIL import Image

    images = []
    for frame in frames:
        buffer = io.BytesIO()
        frame.savefig(buffer, format="png", dpi=110)
        images.append(Image.open(buffer).convert("RGB").quantize(64))
    durations = [100] * (len(images) - 1) + [3000]
    with replacing(path) as target:
        images[0].save(
            target, "GIF", save_all=True, append_images=images[1:], duration=durations, loop=0
        )
    return path


def check(figured: Figured, out: Path) -> list[str]:
    """What is no longer true of the committed figure; empty where all is well.

    The data is made anew and must agree to 1e-9. Files are compared byte by byte only under the
    matplotlib that drew them, since another minor release moves a tenth of the pixels.
    """
    path = out / "data" / f"{figured.name}.csv"
    if not path.is_file():
        return [f"{path} is missing: run `grpo-edu figures {figured.name}`."]
    problems = [] if figured.recorded else _differences(pd.read_csv(path), figured.data(), path)
    entry = _manifest(out).get(figured.name, {})
    for file, digest in entry.get("files", {}).items():
        if not (out / file).is_file():
            problems.append(f"{out / file} is missing.")
        elif _digest(out / file) != digest:
            problems.append(f"{out / file} was changed after it was drawn.")
    if entry.get("matplotlib") == matplotlib.__version__ and not problems:
        with tempfile.TemporaryDirectory() as fresh:
            (Path(fresh) / "data").mkdir()
            shutil.copy(path, Path(fresh) / "data")
            redraw(figured, Path(fresh), ["svg"])
            changed = [
                f
                for f, d in entry["files"].items()
                if f.endswith(".svg") and _digest(Path(fresh) / f) != d
            ]
        problems += [
            f"{out / file} is drawn differently now: run `grpo-edu figures {figured.name}`."
            for file in changed
        ]
    return problems


def _differences(old: pd.DataFrame, new: pd.DataFrame, path: Path) -> list[str]:
    if list(old.columns) != list(new.columns) or len(old) != len(new):
        return [
            f"{path} has columns {list(old.columns)} x {len(old)}, now {list(new.columns)} x "
            f"{len(new)}."
        ]
    for name in new.columns:
        numeric = pd.api.types.is_numeric_dtype(new[name]) and not pd.api.types.is_bool_dtype(
            new[name]
        )
        a = old[name].to_numpy()
        b = new[name].to_numpy()
        same = (
            np.allclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True)
            if numeric
            else (a.astype(str) == b.astype(str)).all()
        )
        if not same:
            return [f"{path}: column {name} differs from what the code gives now."]
    return []


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _manifest(out: Path) -> dict[str, dict]:
    path = out / "manifest.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _note(out: Path, figured: Figured, pictures: Sequence[Path]) -> None:
    files = {path.name: _digest(path) for path in pictures}
    entry = {
        "title": figured.title,
        "level": figured.level,
        "matplotlib": matplotlib.__version__,
        "files": files,
    }
    manifest = {**_manifest(out), figured.name: entry}
    with replacing(out / "manifest.json") as target:
        target.write_text(
            json.dumps(dict(sorted(manifest.items())), indent=2) + "\n", encoding="utf-8"
        )
