"""Committed notebooks are what their sources say, ran without an error, and show on a page that runs nothing.

CI also executes them again (``notebooks/build.py --check``).
"""

from __future__ import annotations

import base64
import importlib.util
from pathlib import Path

import nbformat
import pytest

HERE = Path(__file__).resolve().parent.parent / "notebooks"
SOURCES = sorted((HERE / "src").glob("*.py"))


def build():
    spec = importlib.util.spec_from_file_location("build_notebooks", HERE / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.stem)
def test_notebook_is_built_from_its_source_and_ran_clean(path):
    assert build().differences(path) == []
    notebook = nbformat.read(HERE / f"{path.stem}.ipynb", as_version=4)
    outputs = [
        output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
    ]
    assert not [o for o in outputs if o.output_type == "error"]
    assert not [o for o in outputs if o.output_type == "stream" and o.name == "stderr"]
    assert build().errors_inside_widgets(notebook) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.stem)
def test_every_code_cell_is_short_and_every_widget_has_a_picture(path):
    notebook = nbformat.read(HERE / f"{path.stem}.ipynb", as_version=4)
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        assert len(cell.source.splitlines()) <= 15, cell.source
        for output in cell.outputs:
            data = output.get("data", {})
            if "<details>" in "".join(data.get("text/html", "")):  # a question with a folded answer
                continue
            if "application/vnd.jupyter.widget-view+json" in data:
                assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")


def test_a_predicted_output_and_the_source_of_its_question_are_folded():
    cells = build().source(HERE / "src" / "04_difficulty_bias.py").cells
    folded = [cell.metadata.get("jupyter") for cell in cells]
    at = next(i for i, cell in enumerate(cells) if "Predict(" in cell.source)
    assert folded[at : at + 2] == [{"source_hidden": True}, {"outputs_hidden": True}]
    assert [f for f in folded if f] == folded[at : at + 2]
