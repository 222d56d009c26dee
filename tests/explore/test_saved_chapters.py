"""Each chapter as a learner leaves it, run, answered and saved, and opened again without a kernel."""

import os
import re
from pathlib import Path

import nbformat
import pytest

from bench.browser import needs_chromium
from mha_course.explore._widget import START
from tests.explore.test_jupyter import WITH_EXPLORABLES, Opened, end_kernels, live, serving, without_trainings
from tests.explore.test_saved import JUST_NOW, TOLD, no_kernel, save, shown, wrong
from tests.notebooks.chapters import code_cells, read

pytestmark = [pytest.mark.browser, needs_chromium]

PICTURES = os.environ.get("MHA_LAB_PICTURES")  # a folder for screenshots, for somebody who looks at them


def left(chapter, places):
    """The texts of the explorables of these cells, each once it was on the screen."""
    cells = chapter.page.locator(".jp-CodeCell")
    cells.nth(max(places)).wait_for(state="attached")
    return [re.sub(JUST_NOW, "", shown(cells.nth(place)).evaluate(TOLD)) for place in places]


def starts(path):
    """What the file says of each explorable."""
    cells = nbformat.read(path, as_version=4).cells
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    return [output.data[START] for output in outputs if START in output.get("data", {})]


@pytest.mark.parametrize("name", WITH_EXPLORABLES)
def test_a_chapter_is_there_tomorrow_as_it_was_left(browser, tmp_path, name):
    path, notebook = tmp_path / f"{name}.ipynb", read(name)
    without_trainings(code_cells(notebook))
    for cell in code_cells(notebook):
        cell.execution_count = None
    nbformat.write(notebook, path)
    places = [place for place, cell in enumerate(code_cells(read(name))) if live(cell)]
    with serving(tmp_path, "lab") as running:
        chapter = Opened(browser, running, name)
        chapter.run_all(len(code_cells(notebook)))
        for explorable in chapter.page.locator(".mha").all():
            chapter.move(explorable)
        before = left(chapter, places)
        save(chapter, tmp_path, name)
        chapter.page.close()
        end_kernels(running)
    assert len(before) == len(starts(path)) == len(places)
    no_kernel(tmp_path, name)
    for application, view in {"lab": "lab/tree", "notebook": "notebooks"}.items():
        with serving(tmp_path, application) as running:
            chapter = Opened(browser, running, name, view, kernel=False)
            chapter.page.get_by_role("dialog").get_by_role("button", name="No Kernel").click()
            assert left(chapter, places) == before
            assert wrong(chapter) == []
            assert chapter.page.get_by_text("Error displaying widget").count() == 0
            if PICTURES:
                for i, explorable in enumerate(chapter.page.locator(".mha").all()):
                    chapter.bring(explorable)
                    chapter.page.screenshot(path=Path(PICTURES, f"{name}-{application}-{i}.png"))
            chapter.page.close()
