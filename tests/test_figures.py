"""The files under figures/ are what the code draws."""

import re

import pytest
import torch

from mha_lab import plot
from tools.figures import FIGURES, FOLDER, draw


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    draw(folder)
    return folder


NUMBER = re.compile(r"-?\d+\.\d+")
NAME = re.compile(r"\b[mp][0-9a-f]{10}\b")  # of a path: made from all digits of its coordinates
MAX_MOVED = (
    0.001  # points of 1/72 inch: a coordinate is rounded to six decimals, and processors round differently
)


@pytest.mark.parametrize("name", FIGURES)
def test_a_committed_figure_is_not_stale(drawn, name):
    """SVG, where a changed number or label shows; run `make figures` if this fails."""
    new, stored = (NAME.sub("", (folder / f"{name}.svg").read_text()) for folder in (drawn, FOLDER))
    assert NUMBER.split(new) == NUMBER.split(stored)
    moved = [
        abs(float(a) - float(b)) for a, b in zip(NUMBER.findall(new), NUMBER.findall(stored), strict=True)
    ]
    assert max(moved) <= MAX_MOVED


def test_drawing_twice_gives_the_same_bytes(drawn, tmp_path):
    for path in draw(tmp_path):
        assert path.read_bytes() == (drawn / path.name).read_bytes(), path.name


def test_nothing_else_lies_under_figures():
    assert {path.stem for path in FOLDER.iterdir()} == set(FIGURES)
    assert {path.suffix for path in FOLDER.iterdir()} == {".svg", ".png"}


def test_a_figure_leaves_the_random_numbers_alone():
    """A chapter draws the layer between two steps that use the seed."""
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    plot.layer_shapes()
    assert torch.equal(torch.rand(3), expected)


def test_the_layers_description_names_every_shape():
    (ax,) = plot.layer_shapes().axes
    for shape in ("(2, 5, 6)", "(2, 3, 5, 2)", "(2, 3, 5, 5)", "(2, 1, 1, 5)"):
        assert shape in ax.get_label()
