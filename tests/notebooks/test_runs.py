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
from tools.pictures import TRAINED

pytestmark = pytest.mark.slow

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
FLAGS = re.search(r"^NBVAL := (.+)$", MAKEFILE, re.MULTILINE)[1]


def test_no_check_loads_published_weights():
    """On a machine with a network, chapter 10 would fetch a gigabyte in a test."""
    (line,) = re.findall(r"^(.*): export HF_HUB_OFFLINE := 1$", MAKEFILE, re.MULTILINE)
    assert {"test-fast", "test-slow", "test-notebooks", "notebooks"} <= set(line.split())


def test_a_changed_digit_and_a_changed_colour_are_red_and_the_rest_is_green(tmp_path):
    """In a print, a result, and two pictures: of one the description changes, of one only the colours.

    Another picture with changed colours is green: its cell says that it shows trained weights.
    """
    chapter, found, heatmaps = read("00_start_here"), {}, []  # it runs in the shortest time
    for cell, output in [(one, output) for one in code_cells(chapter) for output in one.outputs]:
        data = output.get("data", {})
        place, key = (output, "text") if output.output_type == "stream" else (data, "text/plain")
        if place.get(key, "").startswith("Heatmap"):
            heatmaps.append((cell, data))
        elif re.search(r"\d", place.get(key, "")):
            found.setdefault("picture" if "image/png" in data else output.output_type, (place, key))
    for kind in ("stream", "execute_result", "picture"):
        place, key = found[kind]
        place[key] = re.sub(r"\d(?=\D*$)", lambda digit: str((int(digit[0]) + 1) % 10), place[key])
    for _, data in heatmaps[:2]:
        pixels, recoloured = imread(io.BytesIO(base64.b64decode(data["image/png"]))), io.BytesIO()
        imsave(recoloured, pixels[..., [2, 1, 0, 3]], format="png")
        data["image/png"] = base64.b64encode(recoloured.getvalue()).decode()
    heatmaps[1][0].metadata.tags.append(TRAINED)
    nbformat.write(chapter, tmp_path / "chapter.ipynb")
    command = [sys.executable, "-m", "pytest", "-q", *FLAGS.split(), tmp_path / "chapter.ipynb"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=600)
    assert (done.returncode, "4 failed" in done.stdout) == (1, True), done.stdout
    assert "the stored picture is not what is drawn now: run make refresh" in done.stdout
