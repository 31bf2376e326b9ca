"""Imports go one way and in no circle; the script that counts them counts made-up packages
right."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "benchmarks" / "house.py"
spec = importlib.util.spec_from_file_location("house", SCRIPT)
house = importlib.util.module_from_spec(spec)
spec.loader.exec_module(house)


def test_imports_go_down_the_order():
    """An import inside a function counts, one under ``if TYPE_CHECKING`` does not."""
    assert house.against_order(house.imports()) == []


def test_no_modules_import_each_other():
    assert house.circles(house.imports()) == []


@pytest.fixture
def package(tmp_path):
    """Writes a package ``p`` of the given files, and returns its folder."""

    def write(**files: str) -> Path:
        for name, text in files.items():
            path = tmp_path / "p" / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path / "p"

    return write


def test_every_form_of_import_is_seen_wherever_it_runs(package):
    root = package(
        plots__a="from ..toys import b\nfrom ..toys.c import x\nimport p.rollouts\nfrom . import d",
        plots__d="",
        toys__b="def f():\n    from ..plots.d import y",
        toys__c="if TYPE_CHECKING:\n    from ..plots import d",
        rollouts="import torch",
    )
    graph = house.imports(root)
    assert graph == {
        "p.plots.a": {"p.toys.b", "p.toys.c", "p.rollouts", "p.plots.d"},
        "p.plots.d": set(),
        "p.toys.b": {"p.plots.d"},
        "p.toys.c": set(),
        "p.rollouts": set(),
    }
    assert house.against_order(graph) == ["p.toys.b -> p.plots.d"]


def test_a_room_that_the_order_does_not_name_is_refused(package):
    with pytest.raises(KeyError, match="ORDER has no room attic"):
        house.against_order(house.imports(package(attic="")))


def test_a_circle_of_three_is_one_circle():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}
    assert house.circles(graph) == [["a", "b", "c"]]


def test_counts_of_a_made_up_module(package):
    text = '''"""Said."""

def f(x):  # a comment
    """Said."""
    a, b = x, 2
    a, b = b, a
    return (a +
            b)
'''
    counted = house.counts(package(rollouts=text))
    # def f ( x ) : | a , b = x , 2 | a , b = b , a | return ( a + b )
    assert counted["code tokens, comments and docstrings apart"] == str(6 + 7 + 7 + 6)
    assert counted["lines of a module, median / p90 / max"] == "5 / 5 / 5"
    assert counted["lines of a function's body, median / p90 / p95 / max"] == "4 / 4 / 4 / 4"
    assert (
        counted["packed assignments per 1,000 lines"] == "200.0"
    )  # one of five lines; a swap is none
