"""Every chapter as on Colab: other versions, alone in its folder, the package from the set-up cell."""

import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import nbformat
import pytest
from packaging.utils import canonicalize_name

from mha_course.explore._widget import START
from tests.colab import like_colab
from tests.notebooks.chapters import NAMES, ROOT, code_cells, output_texts, read, without_measured
from tools.handout import distributions
from tools.notebooks import WIDGET, clean

pytestmark = [
    pytest.mark.colab,
    pytest.mark.skipif(like_colab.python_3_13() is None, reason="Colab's Python: install Python 3.13"),
]
FIRST = "01_single_head_attention"
TRAINING = [name for name in NAMES if any("MHA_LAB_QUICK" in cell.source for cell in code_cells(read(name)))]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The distributions, and meanwhile the environment, which is deleted at the end: it has 5 GB."""
    folder = tmp_path_factory.mktemp("colab") / "venv"
    with ThreadPoolExecutor(2) as pool:
        built = pool.submit(distributions, tmp_path_factory.mktemp("dist"))
        python = pool.submit(like_colab.environment, folder)
        yield built.result(), python.result()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def before(made):
    """What was installed before any chapter ran."""
    return like_colab.versions(made[1])


@pytest.fixture(scope="module")
def ran(before, made, tmp_path_factory):
    """Every chapter, run: ``{name: (notebook, folder)}``; and what is installed after the first.

    That one installs the package; the others find it there, and run two at a time, without a network.
    """
    (wheel, _), python = made
    root = tmp_path_factory.mktemp("chapters")
    first, *left = sorted(NAMES, key=lambda name: (name != FIRST, name not in TRAINING))  # long ones first
    notebooks = {first: like_colab.run(first, root / first, python, wheel, network=True)}
    after = like_colab.versions(python)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        running = {name: pool.submit(like_colab.run, name, root / name, python, wheel) for name in left}
        notebooks |= {name: future.result() for name, future in running.items()}
    return {name: (notebook, root / name) for name, notebook in notebooks.items()}, after


def test_the_distributions_are_as_an_index_wants_them(made):
    """Source and wheel, with metadata that renders, and every file that the package reads."""
    built, _ = made
    assert [path.suffix for path in built] == [".whl", ".gz"]
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *built], check=True, timeout=600)
    with zipfile.ZipFile(built[0]) as wheel:
        found = {name for name in wheel.namelist() if name.startswith(("mha_lab/", "mha_course/"))}
    files = (path for name in ("mha_lab", "mha_course") for path in (ROOT / name).rglob("*"))
    kept = [path for path in files if "__pycache__" not in path.parts]
    assert found == {str(path.relative_to(ROOT)) for path in kept if path.is_file()}


def test_the_set_up_cell_moves_nothing_and_adds_the_core_only(before, ran):
    after = ran[1]
    assert {name: after[name] for name in before} == before
    assert set(like_colab.NOT_MOVED) <= set(before)
    assert set(after) - set(before) <= {"mha-lab", *map(canonicalize_name, like_colab.ADDED)}
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
    shown = [(i, output.get("data", {})) for i, c in enumerate(code_cells(notebook)) for output in c.outputs]
    shown = [(i, data["text/plain"].rstrip("…")[:100]) for i, data in shown if kind in data]
    return [(i, text) for i, text in shown if "<explore." in text]


@pytest.mark.parametrize("name", NAMES)
def test_a_chapter_shows_what_is_stored_and_leaves_nothing_behind(name, ran):
    """Texts, and for each picture its description, which is made from the drawn numbers.

    A training chapter's quick run reaches the end and judges nothing. With ipywidgets 7, explorables come
    as widgets without the picture for places without scripts.
    """
    fresh, folder = ran[0][name]
    stored = read(name)
    assert [path.name for path in folder.iterdir() if path.suffix != ".whl"] == [f"{name}.ipynb"]
    now, then = explorables(fresh, WIDGET), explorables(stored, START)
    if name in TRAINING:  # what is shown of a training is another after a quick run
        now, then = ([(cell, text.partition(":")[0]) for cell, text in each] for each in (now, then))
    assert now == then
    if name in TRAINING:
        assert any("quick run: not checked" in text for text in output_texts(fresh))
        assert not any("quick run" in text for text in output_texts(stored))
    else:
        for number, (now, then) in enumerate(zip(seen(clean(fresh, name)), seen(stored), strict=True), 2):
            assert now == then, f"cell {number}"
