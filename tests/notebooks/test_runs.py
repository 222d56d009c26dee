"""A stored output that is wrong makes the suite red. The chapters themselves run in `make test-notebooks`."""

import base64
import io
import re
import subprocess
import sys

import nbformat
import pytest
from matplotlib.image import imread, imsave

from tests.notebooks.chapters import ROOT, code_cells, read

pytestmark = pytest.mark.slow

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
FLAGS = re.search(r"^NBVAL := (.+)$", MAKEFILE, re.MULTILINE)[1]


def nbval(chapter, folder):
    """nbval as ``make test`` runs it: the exit status and what it printed."""
    path = folder / "chapter.ipynb"
    nbformat.write(chapter, path)
    command = [sys.executable, "-m", "pytest", "-q", *FLAGS.split(), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    return done.returncode, done.stdout


def test_no_check_loads_published_weights():
    """On a machine with a network, chapter 10 would fetch a gigabyte in a test."""
    (line,) = re.findall(r"^(.*): export HF_HUB_OFFLINE := 1$", MAKEFILE, re.MULTILINE)
    assert {"test-fast", "test-slow", "test-notebooks", "notebooks"} <= set(line.split())


def change_digit(text):
    """The last digit of a text, one up."""
    position = [match.start() for match in re.finditer(r"\d", text)][-1]
    return f"{text[:position]}{(int(text[position]) + 1) % 10}{text[position + 1 :]}"


def results(notebook):
    """Where digits are stored, by kind: in each print, each result, and each picture's description."""
    for cell in code_cells(notebook):
        for output in cell.outputs:
            stream = output.output_type == "stream"
            place, key = (output, "text") if stream else (output.get("data", {}), "text/plain")
            kind = "picture" if "image/png" in place else output.output_type
            if re.search(r"\d", place.get(key, "")):
                yield kind, place, key


@pytest.fixture
def chapter():
    """The chapter that runs in the shortest time; it prints, returns and draws numbers."""
    return read("00_start_here")


def test_an_unchanged_copy_is_green(chapter, tmp_path):
    status, printed = nbval(chapter, tmp_path)
    assert status == 0, printed


@pytest.mark.parametrize("wanted", ["stream", "execute_result", "picture"])
def test_one_changed_digit_is_red(wanted, chapter, tmp_path):
    """Of a picture nbval compares the description, which is made from the drawn numbers."""
    place, key = next((place, key) for kind, place, key in results(chapter) if kind == wanted)
    place[key] = change_digit(place[key])
    status, printed = nbval(chapter, tmp_path)
    assert status == 1
    assert "1 failed" in printed


@pytest.mark.parametrize("tags", [[], ["trained"]])
def test_a_picture_in_another_colour_is_red_but_where_it_shows_trained_weights(tags, chapter, tmp_path):
    """Its description is the same."""
    for cell in code_cells(chapter):
        cell.metadata["tags"] = [*cell.metadata.get("tags", []), *tags]
    outputs = [output for cell in code_cells(chapter) for output in cell.outputs]
    data = next(output.data for output in outputs if "image/png" in output.get("data", {}))
    pixels = imread(io.BytesIO(base64.b64decode(data["image/png"])))
    recoloured = io.BytesIO()
    imsave(recoloured, pixels[..., [2, 1, 0, 3]], format="png")
    data["image/png"] = base64.b64encode(recoloured.getvalue()).decode()
    status, printed = nbval(chapter, tmp_path)
    assert status == (0 if tags else 1)
    assert ("the stored picture is not what is drawn now: run make refresh" in printed) == (not tags)
