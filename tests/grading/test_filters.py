"""A page of feedback is there soon, whatever a student has typed or printed."""

import html
from pathlib import Path

import nbgrader
import pytest
from nbconvert import HTMLExporter
from nbconvert.filters import Highlight2HTML
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from traitlets.config import Config

from mha_course.grading import filters, limits
from mha_course.grading.nbgrader import Room, _as_typed
from tests.notebooks.chapters import NAMES, code_cells, read

# Pygments takes from ten seconds to hours for each of these.
SLOW = {"attributes": "a." * 49_000, "stars": "*" * 99_000}
COLOURED = ["x = 1", "", "def f():\n    return '<script>'", "é" * 99_000]


def test_what_takes_too_long_is_shown_without_colours_and_the_rest_in_colours(monkeypatch):
    monkeypatch.setattr(limits, "SECONDS", 0.5)
    cells = [*COLOURED[:2], SLOW["attributes"], SLOW["stars"], *COLOURED[2:]]
    show = filters.within_limits(cells)["highlight_code"]
    own = Highlight2HTML()
    assert [show(cell, metadata={}) for cell in COLOURED] == [own(cell) for cell in COLOURED]
    for cell in SLOW.values():
        assert html.escape(cell) in show(cell, metadata={})
        assert show(cell).endswith("<p>This cell has no colours: it takes too long to read.</p>")


def test_a_page_has_room_for_the_colours_of_every_chapter_and_not_for_any_number(monkeypatch):
    for name in NAMES:
        cells = [cell.source for cell in code_cells(read(name))]
        show = filters.within_limits(cells)["highlight_code"]
        assert not any("has no colours" in show(cell) for cell in cells), name
    many = [*(f"# {i}" + 90_000 * "<" for i in range(3)), "x = 1"]  # soon read: "<" is "&lt;" on a page
    show = filters.within_limits(many)["highlight_code"]
    assert show(many[2]).endswith("<p>This cell has no colours: it would make the page too large.</p>")
    assert html.escape(many[2]) in show(many[2])
    for cell in (many[0], many[1], many[3]):
        assert show(cell) == Highlight2HTML()(cell)


def page(cell, made_by):
    """The characters of nbgrader's page with this cell, made by these filters."""
    pages = Path(nbgrader.__file__).parent / "server_extensions" / "formgrader"
    config = Config()
    config.HTMLExporter.template_name = "feedback"
    config.HTMLExporter.extra_template_basedirs = [str(pages / "templates")]
    css = pages / "static" / "node_modules" / "bootstrap" / "dist" / "css"
    config.HTMLExporter.extra_template_paths = [str(css)]
    config.HTMLExporter.filters = made_by
    about = {"notebook": "x", "score": 0, "max_score": 1, "late_penalty": 0}
    resources = {"nbgrader": about, "inlining": {"css": []}}
    return len(HTMLExporter(config=config).from_notebook_node(new_notebook(cells=[cell]), resources)[0])


def typed(text):
    return new_markdown_cell(_as_typed(text))


def printed(text):
    """As many outputs of this text as a page has room for."""
    room, outputs = Room(), []
    while room.shows(text):
        outputs.append(new_output("stream", name="stdout", text=text))
    return new_code_cell("", outputs=outputs)


TEXTS = [
    "[",
    "![",
    "](",
    "<",
    "&",
    "$",
    "`",
    "~~~\n",
    "\\begin{a}",
    "\\\\[",
    "> ",
    "- ",
    "<!--",
    "\t",
    "\n",
    "|",
]
PRINTS = ["<", "\x1b[", "\x1b[1", "\x1b[\n", "\x1b[1;4;7;38;2;1;1;1;48;2;1;1;1mx", "[", "x"]
WORST = {f"typed {text!r}": lambda text=text: typed((text * 99_000)[:99_000]) for text in TEXTS}
WORST |= {f"printed {text!r}": lambda text=text: printed((text * 20_000)[:20_000]) for text in PRINTS}
WORST |= {f"code {name}": lambda text=text: new_code_cell(text) for name, text in SLOW.items()}


@pytest.mark.grading
@pytest.mark.parametrize("name", WORST)
def test_the_worst_texts_take_less_than_the_minute_of_a_page(name, monkeypatch):
    cell = WORST[name]()
    made_by = filters.within_limits([cell.source] * (cell.cell_type == "code"))
    monkeypatch.setattr(limits, "SECONDS", 30.0)
    monkeypatch.setattr(limits, "ALL_SECONDS", 30.0)
    monkeypatch.setattr(limits, "MEMORY", 2**32)
    (characters,) = limits.each(lambda cell: page(cell, made_by), [cell])
    assert not isinstance(characters, limits.TooHard)
    assert characters > 90_000
