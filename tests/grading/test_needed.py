"""What is left of a chapter when a submission is graded, and that this changes no verdict."""

import pytest
from nbconvert.exporters.exporter import ResourcesDict
from nbformat.v4 import new_code_cell, new_notebook

from mha_course.grading import nbgrader
from mha_course.grading.needed import READS_ALL, needed
from tests.check.corpus import tries
from tests.notebooks.chapters import NAMES, code_cells, read

pytestmark = [pytest.mark.grading, pytest.mark.unchecked]

SET_UP = """\
import math
import torch
from mha_lab import plot, toy

%matplotlib inline
torch.manual_seed(0)"""
CHANGES = {
    "x[0] = y": True,
    "x.shape = y": True,
    "del x[0]": True,
    "x += 1": True,
    "x.add_(1)": True,
    "y = x.add_(1)": True,
    "x.append(1)": True,
    "torch.nn.init.zeros_(x)": True,
    "losses = train(x)": True,
    "for _ in range(3):\n    train(x)": True,
    "x(1)": True,
    "x.eval()": True,
    "if y:\n    x = 2": True,
    "for x in y:\n    pass": True,
    "with y as x:\n    pass": True,
    "def later():\n    global x\n    x = 1": True,
    "y = [x := 3]": True,
    "from y import x": True,
    "def x():\n    pass": True,
    "y = x + 1": False,
    "y = torch.softmax(x, -1)": False,
    "print(x)": False,
    "plot.show(plot.attention_heatmap(x))": False,
    "y = x.sum()": False,
    "y = [x for x in range(3)]": False,
    "def later(x):\n    x[0] = 1": False,
    "x": False,
}


@pytest.mark.parametrize(("statement", "kept"), CHANGES.items())
def test_a_statement_is_needed_if_it_may_change_what_is_used(statement, kept):
    set_up, own = "import torch\nfrom mha_lab import plot\nfrom y import train", "def mine(): return x"
    cells = [set_up, "x = y = []", statement, own]
    ran = needed(cells, [False, False, False, True], [])
    assert bool(ran[2]) == kept, ran
    assert ran[1] == "x = y = []\npass"
    assert ran[3] == cells[3]


def test_only_what_an_answer_uses_is_left_of_a_chapter():
    own = "def mine(x):\n    return torch.exp(x) + v"
    cells = [SET_UP, "w = toy.embeddings()\nplot.show(w)", "v = w + 1", own]
    ran = needed(cells, [False, False, False, True], ["stub"])
    assert ran[0] == "import torch\nfrom mha_lab import toy\ntorch.manual_seed(0)\npass"  # shows no generator
    assert ran[1] == "w = toy.embeddings()\npass"
    assert ran[2:] == ["v = w + 1\npass", cells[3]]


def test_a_stub_is_bound_although_nobody_uses_it():
    stub = "def stub(x):\n    raise NotImplementedError"
    assert needed([stub, stub.replace("stub", "other")], [False, False], ["stub"]) == [f"{stub}\npass", ""]


@pytest.mark.parametrize("name", sorted(READS_ALL))
def test_a_cell_that_may_read_any_name_leaves_the_chapter_whole(name):
    cells = [SET_UP, "x = 3\nprint(x)", f"def mine():\n    return {name}('x')"]
    assert needed(cells, [False, False, True], []) == cells


def test_a_magic_of_a_student_and_what_python_cannot_read_stay():
    cells = ["x = 3\nprint(x)", "%time x", "def mine(:"]
    assert needed(cells, [False, True, True], []) == cells
    assert needed(["x = 3", "def mine(:"], [False, False], []) == ["", "def mine(:"]


@pytest.mark.parametrize("name", NAMES[1::3])
def test_no_verdict_depends_on_what_is_left_out(name, monkeypatch):
    """What readers typed at a chapter, among all of its cells and among those that are needed."""
    handed_out = [cell.source for cell in code_cells(read(name)) if not cell.source.startswith("check(")]
    typed = tries(name[:2])[::4]
    checks = {}
    for exercise in {one.exercise for one in typed}:
        marks = {"grade": True, "grade_id": f"check-{exercise}", "points": 1}
        checks[exercise] = new_code_cell("", metadata={"nbgrader": marks})
    seen = []
    judged = nbgrader.judged
    monkeypatch.setattr(nbgrader, "judged", lambda checks: seen.append(checks) or judged(checks))

    def diagnoses(chapter):
        given = new_notebook(cells=list(map(new_code_cell, chapter)))
        monkeypatch.setattr(nbgrader, "_chapter", lambda *_: given)
        sources = [*handed_out, *(one.source for one in typed)]
        cells = [*map(new_code_cell, sources), *checks.values()]
        walls = nbgrader.GradeApart(isolation="bubblewrap", seed="the same problems")
        walls.preprocess(new_notebook(cells=cells), ResourcesDict(nbgrader={}))
        return {
            exercise: {step: diagnosis.name for step, diagnosis in check.diagnoses.items()}
            for exercise, check in seen.pop().items()
        }

    assert diagnoses(handed_out) == (whole := diagnoses([]))
    assert sum(map(len, whole.values())) >= len(typed) // 2
