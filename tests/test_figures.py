"""The files under figures/ are what the code draws."""

import pytest
import torch

from mha_lab import plot
from tools.figures import FIGURES, FOLDER, draw


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    draw(folder)
    return folder


@pytest.mark.parametrize("name", FIGURES)
def test_a_committed_figure_is_not_stale(drawn, name):
    """SVG, where a changed number or label shows; run `make figures` if this fails."""
    assert (drawn / f"{name}.svg").read_text() == (FOLDER / f"{name}.svg").read_text()


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
