"""Which text of a submission is an answer, whatever cell it stands in."""

import json
import platform
import textwrap

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_raw_cell
from nbgrader.api import Gradebook

from mha_course.grading.__main__ import CONFIGURATION
from mha_course.grading.course import settings
from mha_course.grading.functions import answers, definitions
from mha_course.grading.source import defines, fenced, parse, readable, syntax_error
from tests.grading.test_by_hand import NAME, assignment
from tests.grading.test_round import needs_walls, run

pytestmark = pytest.mark.grading

SPLIT = """\
import torch

def split_heads(x, num_heads):
    return torch.stack(x.chunk(num_heads, -1), 1)
"""
FENCED = f"My answer:\n\n```python\n{SPLIT}```\n\nand a test:\n\n```\n$ ls -l\n```"
IN_A_LIST = "1. My answer:\n" + textwrap.indent(f"~~~\n{SPLIT}~~~", "   ")
BLOCKS = {
    "a fenced block": (FENCED, [SPLIT]),
    "a block in a list": (IN_A_LIST, [SPLIT]),
    "a block without an end": (f"````\n{SPLIT}", [SPLIT]),
    "what it needs, in another block": (
        f"```\nimport math\n```\n```py\n{SPLIT}```",
        ["import math\n", SPLIT],
    ),
    "no answer": ("```\nimport math\n```", []),
    "no block": ("def split_heads(x, num_heads) is my function", []),
}


@pytest.mark.parametrize(("text", "blocks"), BLOCKS.values(), ids=BLOCKS)
def test_the_python_in_a_text(text, blocks):
    assert fenced(text) == blocks


@pytest.mark.parametrize("before", ["", "%%time\n", "%%capture out\n", "\n%%time\n"])
def test_a_definition_is_seen_below_a_magic_and_indented_as_a_whole(before):
    for text in (SPLIT, textwrap.indent(SPLIT, "    ")):
        assert defines(before + text)
        assert answers(definitions(before + text), [], ["split_heads"]).keys() == {"split_heads"}
    assert not defines(f"%%writefile answer.py\n{SPLIT}")


def test_a_cell_of_many_magics_is_not_read():
    """IPython would take minutes, outside of the sandbox."""
    assert syntax_error("!ls\n" * 3) == ""
    with pytest.raises(ValueError, match="more than 200 magics"):
        parse("!ls\n" * 25_000)


LEFT_OUT = {
    "try:\n    import x\nexcept: !pip install x\n": "try:\n    import x\nexcept: pass\n",
    "import math; %matplotlib inline\n!ls\n": "import math; pass\n!ls\n",
    "x = 1\n  %matplotlib inline\n": "x = 1\n\n",
    "%matplotlib inline\nx = '1; !2'\n": "%matplotlib inline\nx = '1; !2'\n",  # can be read as it is
    "!ls\nx = (1\n": "!ls\nx = (1\n",  # cannot be read without magics, either
}


@pytest.mark.parametrize(("source", "read"), LEFT_OUT.items(), ids=range(len(LEFT_OUT)))
def test_a_magic_where_ipython_reads_none_costs_nothing_else(source, read):
    assert readable(source) == read
    assert bool(syntax_error(source)) == ("(1\n" in source)


@pytest.mark.parametrize("magic", ["", "\n\n", "%%time\n"])
def test_the_version_and_the_line_are_named_if_python_cannot_read_a_cell(magic):
    version = ".".join(platform.python_version_tuple()[:2])
    line = 3 + len(magic.splitlines())
    said = syntax_error(f"{magic}import torch\n\ndef split_heads(x, num_heads)\n    return x")
    start = f"Python {version} cannot read this cell. Line {line}: expected ':'"
    assert said.startswith(f"{start}\n    def split_heads(x, num_heads)")


@needs_walls
def test_an_answer_counts_in_every_kind_of_cell(tmp_path, monkeypatch):
    """And a cell that cannot be taken costs only itself, and the page says so."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nbgrader_config.py").write_text(CONFIGURATION)
    source = tmp_path / "source" / NAME / f"{NAME}.ipynb"
    source.parent.mkdir(parents=True)
    task = assignment()
    handed_out = f"An example of what an answer looks like:\n\n```\n{SPLIT}```"
    task.cells.append(new_markdown_cell(handed_out))
    nbformat.write(task, source)
    assert settings(tmp_path).generate_assignment(NAME)["success"]
    cells = {
        "fenced": [new_markdown_cell(FENCED)],
        "indented": [new_markdown_cell(textwrap.indent(SPLIT, "    "))],
        "raw": [new_raw_cell(f"%%time\n{SPLIT}")],
        "marked": [],
        "odd": [new_code_cell("x" * 100_001), new_code_cell(SPLIT)],
        "nothing": [],
    }
    for student, more in cells.items():
        nb = nbformat.read(tmp_path / "release" / NAME / f"{NAME}.ipynb", as_version=4)
        if student == "marked":  # the answer's own cell, as a text
            nb.cells[0] = new_markdown_cell(FENCED, metadata=nb.cells[0].metadata)
        nb.cells += more
        saved = json.loads(nbformat.writes(nb))
        if student == "odd":
            saved["cells"][-1]["metadata"] = None
        file = tmp_path / "submitted" / student / NAME / f"{NAME}.ipynb"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(saved), encoding="utf-8")
    done = run("grade", tmp_path, NAME)
    assert done.returncode == 0, done.stderr
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as gradebook:
        earned = {one.student_id: one.score for one in gradebook.assignment_submissions(NAME)}
    assert earned == dict.fromkeys(cells, 1) | {"nothing": 0}
    pages = {s: (tmp_path / "feedback" / s / NAME / f"{NAME}.html").read_text() for s in cells}
    said = "The grader left out this cell: it has more than 100,000 characters."
    assert {student for student, page in pages.items() if said in page} == {"odd"}
    assert "and a test:" in pages["fenced"]
