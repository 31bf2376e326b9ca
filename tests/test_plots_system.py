"""One visual system: every registered figure, in both themes, has names as people write them, type
that can be read, colours of the palette, and no text on another text or on the data it labels."""

from __future__ import annotations

import re
from itertools import combinations

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.container import BarContainer
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from packaging.version import Version

from grpo_edu.figures import FIGURES
from grpo_edu.figures.registry import Layout, recorded_table
from grpo_edu.plots import style

READ_AT = 900  # pixels: the width of a picture in a README
SMALLEST = 10  # pixels
RAW = re.compile(
    r"[a-z]{2,}_[a-z]{2,}|==|ddof=|eps=|\b(" + "|".join(map(re.escape, style.RECIPES)) + r")\b"
)


ALL = [(name, theme) for name in FIGURES for theme in ("light", "dark")]


@pytest.fixture(scope="module", params=ALL, ids="-".join)
def drawn(request):
    """A figure of its committed table, laid out, and its renderer."""
    name, theme = request.param
    figure = FIGURES[name].draw(recorded_table(name), Layout(theme))
    figure.set_dpi(READ_AT / figure.get_figwidth())
    canvas = FigureCanvasAgg(figure)
    with style.styled(theme):
        canvas.draw()
        yield name, figure, canvas.get_renderer()


def texts(figure) -> list[Text]:
    """Every text that is seen: of ticks only those in view."""
    seen = [*figure.texts]
    for axis in figure.axes:
        if not axis.axison:
            seen += [*axis.texts, axis._left_title, axis.title]
            continue
        seen += [*axis.texts, axis._left_title, axis.title, axis.xaxis.label, axis.yaxis.label]
        for side in (axis.xaxis, axis.yaxis):
            low, high = sorted(side.get_view_interval())
            slack = 1e-9 * (high - low)
            for tick in side.get_major_ticks():
                if low - slack <= tick.get_loc() <= high + slack:
                    seen += [tick.label1, tick.label2]
        if legend := axis.get_legend():
            seen += [*legend.get_texts(), legend.get_title()]
    return [text for text in seen if text and text.get_visible() and text.get_text().strip()]


def box(text: Text, renderer, shrink: float = 1.0) -> Bbox:
    return text.get_window_extent(renderer).padded(-shrink)


def test_names_are_written_as_people_write_them(drawn):
    _, figure, _ = drawn
    for text in texts(figure):
        shown = re.sub(r"\$[^$]*\$", "", text.get_text()).split("·\u00a0grpo-edu")[0]
        assert not RAW.search(shown.replace("\n", " ")), shown


def test_type_can_be_read_in_a_readme(drawn):
    _, figure, _ = drawn
    pixels = READ_AT / 72 / figure.get_figwidth()
    small = {t.get_text(): t.get_fontsize() * pixels for t in texts(figure)}
    assert min(small.values()) >= SMALLEST, min(small, key=small.__getitem__)


def test_the_headline_is_the_largest_and_boldest_line(drawn):
    _, figure, _ = drawn
    others = [text for text in texts(figure) if text is not figure._suptitle]
    assert figure._suptitle.get_fontweight() == "bold"
    assert figure._suptitle.get_fontsize() > max(text.get_fontsize() for text in others)


def colours(figure):
    """Every colour of lines, areas, markers and texts; scales of numbers have their own."""
    for text in texts(figure):
        yield text.get_color()
    for axis in figure.axes:
        for line in axis.lines:
            yield from (line.get_color(), line.get_markeredgecolor(), line.get_markerfacecolor())
        for patch in axis.patches:
            yield from (patch.get_facecolor(), patch.get_edgecolor())
        for collection in axis.collections:
            if collection.get_array() is None:
                yield from (*collection.get_facecolor(), *collection.get_edgecolor())


def test_colours_have_one_meaning_each(drawn):
    _, figure, _ = drawn
    palette = np.array([to_rgba(colour)[:3] for colour in style.COLOURS])
    pushes = style.signed()(np.linspace(0, 1, 512))[:, :3]
    for colour in colours(figure):
        *rgb, alpha = to_rgba(colour)
        grey = max(rgb) - min(rgb) < 0.1
        known = min(np.abs(np.concatenate([palette, pushes]) - rgb).max(axis=1)) < 0.01
        assert alpha == 0 or grey or known, colour


@pytest.mark.skipif(
    Version(matplotlib.__version__) < Version("3.10"),
    reason="matplotlib 3.9 lays the ticks out closer; the committed pictures come from a newer one",
)
def test_no_two_texts_meet_and_none_leaves_the_picture(drawn):
    _, figure, renderer = drawn
    boxes = [(text.get_text(), box(text, renderer)) for text in texts(figure)]
    for text, area in boxes:
        inside = figure.bbox.padded(1)
        assert inside.contains(area.x0, area.y0), text
        assert inside.contains(area.x1, area.y1), text
    for (one, a), (two, b) in combinations(boxes, 2):
        assert Bbox.intersection(a, b) is None, (one, two)


def marks(axis):
    """Points along every line and interval, of every scatter, and the bars, in pixels."""
    points = []
    for line in axis.lines:
        if line.get_transform() == axis.transData and len(line.get_xdata()):
            path = axis.transData.transform(line.get_xydata())
            drawn_line = line.get_linestyle() not in ("None", "none", "")
            steps = np.linspace(0, len(path) - 1, 400 if drawn_line else len(path))
            spots = [np.interp(steps, range(len(path)), path[:, k]) for k in (0, 1)]
            points.append(np.stack(spots, axis=1))
    for collection in axis.collections:
        if len(collection.get_offsets()) > 1:
            points.append(axis.transData.transform(np.asarray(collection.get_offsets())))
        if isinstance(collection, LineCollection):
            for first, last in map(axis.transData.transform, collection.get_segments()):
                points.append(np.linspace(first, last, 50))
    groups = [group for group in axis.containers if isinstance(group, BarContainer)]
    bars = [bar.get_window_extent() for group in groups for bar in group.get_children()]
    empty = np.empty((0, 2))
    return np.concatenate([empty, *points]), [bar for bar in bars if bar.width and bar.height]


def test_no_text_lies_on_the_data_it_labels(drawn):
    _, figure, renderer = drawn
    for axis in figure.axes:
        points, bars = marks(axis)
        for text in axis.texts:
            if not text.get_text().strip():
                continue
            area = box(text, renderer)
            hit = (points > area.min).all(axis=1) & (points < area.max).all(axis=1)
            assert not hit.any(), text.get_text()
            assert not any(Bbox.intersection(area, bar) for bar in bars), text.get_text()
