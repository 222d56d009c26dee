"""Where no script runs: the picture of the same state, described; labels as typed there, too."""

import html
import re

import nbformat
import pytest
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_notebook, new_output

from mha_lab.explore._widget import START
from tests.notebooks.chapters import NAMES, code_cells, read
from tools import examples
from tools.notebooks import clean


def exported(notebook):
    return HTMLExporter(template_name="basic").from_notebook_node(notebook)[0]


@pytest.mark.parametrize("name", [n for n in NAMES if "explore." in nbformat.writes(read(n))])
def test_a_chapter_as_a_page_has_a_described_picture_for_each_explorable(name):
    page = html.unescape(exported(read(name)))
    texts = [o.get("data", {}).get("text/plain", "") for c in code_cells(read(name)) for o in c.outputs]
    descriptions = [re.fullmatch(r"<explore\.\w+: (.+)>", t, re.DOTALL)[1] for t in texts if "<explore." in t]
    assert descriptions
    assert all(f'alt="{description}"' in page for description in descriptions)


@pytest.mark.parametrize("name", ["query", "heads", "mask"])
def test_labels_are_text_in_the_stored_output_and_in_the_page(name):
    data, metadata = examples.ALL[name](examples.NASTY)._repr_mimebundle_()
    output = new_output("execute_result", data=data, metadata=metadata, execution_count=1)
    notebook = clean(new_notebook(cells=[new_code_cell("1", outputs=[output], execution_count=1)]), "07_x")
    assert set(notebook.cells[0].outputs[0].data) == {"text/plain", "image/png", START}
    page = exported(notebook)
    assert "<img src=x" not in page
    assert "<script>alert" not in page
    assert "data:image/png;base64," in page
