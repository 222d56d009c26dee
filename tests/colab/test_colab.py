"""Every chapter as on Colab: other versions, alone in its folder, the package from the set-up cell."""

import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import nbformat
import pytest

from mha_lab.explore._widget import START
from tests.colab import like_colab
from tests.no_network import refusing
from tests.notebooks.chapters import NAMES, ROOT, code_cells, output_texts, read, without_measured
from tools.notebooks import WIDGET, clean, execute

pytestmark = [
    pytest.mark.colab,
    pytest.mark.skipif(like_colab.python_3_13() is None, reason="Colab's Python: install Python 3.13"),
]
TRAINING = [name for name in NAMES if any("MHA_LAB_QUICK" in cell.source for cell in code_cells(read(name)))]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The distributions, and meanwhile the environment, which is deleted at the end: it has 5 GB."""
    folder = tmp_path_factory.mktemp("colab") / "venv"
    with ThreadPoolExecutor(2) as pool:
        built = pool.submit(like_colab.build, tmp_path_factory.mktemp("dist"))
        python = pool.submit(like_colab.environment, folder)
        yield built.result(), python.result()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def wheel(made):
    (path,) = (path for path in made[0] if path.suffix == ".whl")
    return path


@pytest.fixture(scope="module")
def python(made):
    return made[1]


@pytest.fixture(scope="module")
def before(python):
    """What was installed before any chapter ran."""
    return like_colab.versions(python)


@pytest.fixture(scope="module")
def first(before, python, wheel, tmp_path_factory):
    """Chapter 01, which installs the package; the others find it there."""
    folder = tmp_path_factory.mktemp("first") / "empty"
    return like_colab.run("01_single_head_attention", folder, python, wheel, network=True), folder


@pytest.fixture(scope="module")
def others(first, python, wheel, tmp_path_factory):
    """All other chapters, two at a time, without a network: ``{name: (notebook, folder)}``."""
    root = tmp_path_factory.mktemp("others")
    left = [name for name in NAMES if name != "01_single_head_attention"]
    left.sort(key=lambda name: name not in TRAINING)  # the long ones first
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        running = {name: pool.submit(like_colab.run, name, root / name, python, wheel) for name in left}
        return {name: (future.result(), root / name) for name, future in running.items()}


@pytest.fixture(scope="module")
def ran(first, others):
    return others | {"01_single_head_attention": first}


def test_the_distributions_are_as_an_index_wants_them(made):
    """Source and wheel, with metadata that renders, and every file that the package reads."""
    built, _ = made
    assert [path.suffix for path in built] == [".whl", ".gz"]
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *built], check=True)
    with zipfile.ZipFile(built[0]) as wheel:
        found = {name for name in wheel.namelist() if name.startswith("mha_lab/")}
    kept = (ROOT / "mha_lab").rglob("*")
    assert found == {
        str(path.relative_to(ROOT)) for path in kept if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_set_up_cell_moves_nothing_and_adds_the_core_only(before, first, python):
    after = like_colab.versions(python)
    assert {name: after[name] for name in before} == before
    assert set(like_colab.NOT_MOVED) <= set(before)
    assert set(after) - set(before) <= {"mha-lab", "jaxtyping", "wadler-lindig"}
    assert "mha-lab" not in before


def seen(notebook):
    """Cell by cell, what a reader sees. Explorables are compared below; tracebacks have their own styles."""
    cells = []
    for cell in code_cells(without_measured(notebook))[1:]:
        kept = [output for output in cell.outputs if START not in output.get("data", {})]
        for output in kept:
            if output.output_type == "error":
                output.traceback = []
        cells.append(output_texts(nbformat.from_dict({"cells": [cell | {"outputs": kept}]})))
    return cells


def explorables(notebook, kind):
    """By cell, the beginning of each explorable's text: what ipywidgets 7 keeps of it."""
    cells = enumerate(code_cells(notebook))
    outputs = [(number, output) for number, cell in cells for output in cell.outputs]
    return [
        (number, output.data["text/plain"].rstrip("…")[:100])
        for number, output in outputs
        if kind in output.get("data", {}) and "<explore." in output.data["text/plain"]
    ]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in TRAINING])
def test_a_chapter_shows_what_is_stored(name, ran):
    """Texts, and for each picture its description, which is made from the drawn numbers."""
    fresh = clean(ran[name][0], name)
    for number, (now, then) in enumerate(zip(seen(fresh), seen(read(name)), strict=True), start=2):
        assert now == then, f"cell {number}"


@pytest.mark.parametrize("name", NAMES)
def test_explorables_are_shown_as_widgets(name, ran):
    """With ipywidgets 7 they come without the picture for places without scripts."""
    assert explorables(ran[name][0], WIDGET) == explorables(read(name), START)


@pytest.mark.parametrize("name", TRAINING)
def test_a_quick_run_reaches_the_end_and_judges_nothing(name, ran):
    assert any("quick run: not judged" in text for text in output_texts(ran[name][0]))
    assert not any("quick run" in text for text in output_texts(read(name)))


@pytest.mark.parametrize("name", NAMES)
def test_a_chapter_leaves_nothing_behind(name, ran):
    assert [path.name for path in ran[name][1].iterdir()] == [f"{name}.ipynb"]


@pytest.mark.parametrize(
    "source",
    [
        "import urllib.request; urllib.request.urlopen('https://example.org')",
        "import socket; socket.create_connection(('192.0.2.1', 80), timeout=1)",
    ],
)
def test_the_network_really_is_refused(source, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", refusing(tmp_path / "path"))
    cell = nbformat.v4.new_code_cell(source, metadata={"tags": ["raises-exception"]})
    execute(nbformat.v4.new_notebook(cells=[cell]), tmp_path)
    assert "a chapter asked for the network" in str(cell.outputs)
