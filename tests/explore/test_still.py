"""Where no script runs: the picture of the same state, described; labels as typed there, too."""

import base64
import html
import io
import re
import subprocess
import sys

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
from bs4 import BeautifulSoup
from matplotlib.colors import to_hex, to_rgb
from matplotlib.text import Text
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_notebook, new_output
from PIL import Image

from bench import examples
from mha_course.explore._widget import COLOURS, START
from mha_lab import plot
from tests.notebooks.chapters import PATHS, alternative_texts, code_cells
from tools.notebooks import clean


@pytest.mark.parametrize("name", ["query", "heads", "mask", "flow", "model", "state", "training"])
def test_labels_are_text_in_the_stored_output_and_in_the_page(name):
    data, metadata = examples.ALL[name](examples.NASTY)._repr_mimebundle_()
    output = new_output("execute_result", data=data, metadata=metadata, execution_count=1)
    notebook = clean(new_notebook(cells=[new_code_cell("1", outputs=[output], execution_count=1)]), "07_x")
    assert set(notebook.cells[0].outputs[0].data) == {"text/plain", "image/png", START}
    page, _ = HTMLExporter(template_name="basic").from_notebook_node(notebook)
    assert metadata["image/png"]["alt"] in html.unescape(page)
    assert "<img src=x" not in page
    assert "<script>alert" not in page
    assert "data:image/png;base64," in page


@pytest.mark.parametrize("kind", ["html", "slides"])
def test_jupyters_html_keeps_every_description(tmp_path, kind):
    """As ``pip install`` leaves it, in another folder: of explorables and of other pictures, each once."""
    command = [sys.executable, "-m", "jupyter", "nbconvert", "--to", kind, "--output-dir", tmp_path]
    [file] = [path for path in PATHS if path.stem.startswith("09")]
    subprocess.run([*command, file], cwd=tmp_path, check=True, capture_output=True, timeout=300)
    [page] = (path.read_text(encoding="utf-8") for path in tmp_path.iterdir())
    images = BeautifulSoup(page, "html.parser")("img", src=re.compile("^data:"))
    outputs = [output for cell in code_cells(nbformat.read(file, as_version=4)) for output in cell.outputs]
    told = [text for output in outputs for text in alternative_texts(output)]
    assert [image["alt"] for image in images] == told
    assert len(told) > 3


@pytest.fixture
def still():
    """The picture of an example, which is closed afterwards."""
    yield lambda name: examples.ALL[name]().still()
    plt.close("all")


@pytest.mark.parametrize("name", examples.ALL)
def test_a_still_has_two_pixels_for_each_of_the_pages(name):
    data, metadata = examples.ALL[name]()._repr_mimebundle_()
    picture, about = Image.open(io.BytesIO(base64.b64decode(data["image/png"]))), metadata["image/png"]
    assert picture.size == pytest.approx((2 * about["width"], 2 * about["height"]), abs=1)
    assert picture.mode == "P"
    assert picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)


def of_all(figure):
    """All patches, each with its axes."""
    return [(ax, patch) for ax in figure.axes for patch in ax.patches]


def test_the_still_of_the_model_shows_hidden_keys_the_chosen_query_scales_and_the_cache(still):
    live = examples.model()
    live._row = 2
    figure, n = live.still(), len(live._tokens)
    hidden = [patch for _, patch in of_all(figure) if patch.get_hatch()]
    assert len(hidden) == 8
    centres = np.stack(np.meshgrid(range(n), range(n)), -1).reshape(-1, 2)  # (key, query)
    for patch in hidden:
        inside = patch.get_path().contains_points(centres)
        assert inside.tolist() == [bool(key > query) for key, query in centres]
    [frame] = [p for _, p in of_all(figure) if to_hex(p.get_edgecolor()) == COLOURS["query"]]
    assert (frame.get_xy(), frame.get_width(), frame.get_height()) == ((-0.5, 1.5), n, 1)
    images = [ax.images[0] for ax in figure.axes if ax.images and ax.get_label() != "<colorbar>"]
    assert [image.get_cmap().name for image in images] == ["weight"] * 8 + ["signed"] * 4
    assert [image.get_array().shape for image in images[8:]] == [(64, n)] * 4
    run = live._run()
    np.testing.assert_allclose(images[8].get_array(), run["key"][0].transpose(1, 2).reshape(64, n), atol=1e-6)
    np.testing.assert_allclose(
        images[11].get_array(), run["value"][1].transpose(1, 2).reshape(64, n), atol=1e-6
    )
    assert [ax.get_label() for ax in figure.axes].count("<colorbar>") == 2


def test_the_still_of_a_training_boxes_what_was_asked_first_and_second(still):
    picture = examples.training()
    maps = [ax for ax in still("training").axes if ax.patches]
    assert len(maps) == 3
    for ax in maps:
        boxes = [(int(b.get_y()), int(b.get_x()), b.get_linestyle() in ("-", "solid")) for b in ax.patches]
        assert boxes == [
            (q, j, i == 0) for q, places in enumerate(picture._asked) for i, j in enumerate(places)
        ]
        assert {b.get_edgecolor()[:3] for b in ax.patches} == {to_rgb(COLOURS["accent"])}


def test_the_still_of_the_flow_has_one_scale_for_all_heads_and_names_the_columns(still):
    axes = still("flow").axes
    sums = [ax for ax in axes if ax.get_title().startswith("output of head")]
    assert len(sums) == 2
    assert sums[0].get_xlim() == sums[1].get_xlim()
    for ax in sums:
        low, high = ax.get_xlim()
        assert all(low <= bar.get_x() + w <= high for bar in ax.patches for w in (0, bar.get_width()))
    [output] = [ax for ax in axes if ax.get_title().startswith("output = ")]
    assert [text.get_text().partition(":")[0] for text in output.texts] == [f"col. {c}" for c in range(4)]


def test_the_still_of_positions_has_the_strip_and_the_lengths(still):
    strip, *dials, _ = still("positions").axes
    places = {
        line.get_color(): float(line.get_xdata()[0]) for line in strip.lines if line.get_marker() in "os"
    }
    assert places == {COLOURS["query"]: 8, COLOURS["key"]: 5}
    for part, ax in zip(examples.positions().parts.tolist(), dials, strict=True):
        _, product, total = ax.get_title().split("\n")
        query, key, angle = (float(x) for x in product.replace("cos", "").split("×"))
        assert query * key * np.cos(angle) == pytest.approx(part, abs=0.04)
        assert float(total.removeprefix("= ")) == pytest.approx(part, abs=0.005)


def test_the_still_of_a_query_has_the_numbers_of_the_live_table():
    picture = examples.query()
    written = "".join(text.get_text() for text in picture.still().findobj(Text))
    for key, value in zip(picture._keys, picture._values, strict=True):
        product = key[0] + 1.5 * key[1]  # the query is (1, 1.5)
        assert f"q · k {product:.1f}, score {product / 2**0.5:.1f}" in written
        assert f"value ({value[0]:g}, {value[1]:g})" in written


@pytest.mark.parametrize("name", ["query", "online_softmax", "positions", "model", "flow", "state"])
def test_no_still_has_a_shape_in_black(still, name):
    roles = {sign: colour for colour, sign in plot.ROLES.values()}
    texts = [text for text in still(name).findobj(plt.Text) if set(text.get_text()) & set(roles)]
    for text in texts:
        [sign] = set(text.get_text()) & set(roles)
        assert to_hex(text.get_color()) == roles[sign], text
    assert texts or name == "positions"
