"""What earns points, for all exercises: graded without nbgrader around it."""

import contextlib
import inspect
import os
import threading
import time

import pytest
from nbconvert.exporters.exporter import ResourcesDict
from nbformat.v4 import new_code_cell, new_notebook

from mha_lab.exercises import find, names
from mha_lab.grading.nbgrader import Check, GradeApart, _lines
from tests.notebooks.chapters import NAMES, code_cells, read

pytestmark = [pytest.mark.grading, pytest.mark.unchecked]  # wrong answers pass wrong arguments


def graded(cells):
    """``{exercise: points}`` and reports, of a notebook with these cells and all checks."""
    checks = [
        new_code_cell(
            f"check({name})",
            metadata={"nbgrader": {"grade": True, "grade_id": f"check-{name}", "points": find(name).points}},
        )
        for name in names()
    ]
    notebook = new_notebook(cells=[*map(new_code_cell, cells), *checks])
    GradeApart(isolation="none").preprocess(notebook, ResourcesDict())
    return {
        name: (float(check.outputs[-1].data["text/plain"]), check.outputs[0].data["text/plain"])
        for name, check in zip(names(), checks, strict=True)
    }


def solved(name):
    """A cell with the solution, among what its module knows."""
    module = f"mha_lab.exercises.{name}"
    known = (
        f"import {module} as _m\nglobals().update({{k: v for k, v in vars(_m).items() if k != {name!r}}})\n"
    )
    return known + inspect.getsource(find(name).answer)


def test_every_solution_earns_its_points():
    """Also where a problem holds a function, which cannot be sent to the worker."""
    earned = graded([solved(name) for name in names()])
    assert {name: points for name, (points, _) in earned.items()} == {n: find(n).points for n in names()}


def test_the_best_definition_counts():
    """Whatever stands before and after it; more than 30 of one name are not tried."""
    right, wrong = solved("split_heads"), "def split_heads(x, num_heads):\n    return x"
    stub = "def split_heads(x, num_heads):\n    raise NotImplementedError"
    finished = "from mha_lab import split_heads"
    for cells in (
        [stub, right, wrong, stub, finished],
        [finished, wrong, stub, right],
        [right + "\n" + wrong, right],
    ):
        points, report = graded(cells)["split_heads"]
        assert (points, "right" in report) == (1, True)
    for cells in (
        [wrong + f"  # {i}" for i in range(30)] + [right],
        [stub, wrong, stub],
        [stub],
        [finished],
        [],
    ):
        assert graded(cells)["split_heads"][0] == 0
    assert "there is no function split_heads" in graded([])["split_heads"][1]
    assert "not attempted" in graded([stub])["split_heads"][1]


PIECES = """
def per_head_weights(query, key, num_heads):
    q, k = pieces(query, num_heads), pieces(key, num_heads)
    return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1)
"""


@pytest.mark.parametrize("before", ["", "pieces = torch.zeros(3)", "def pieces(x, num_heads):\n    return x"])
def test_a_function_that_stands_above_what_it_needs_counts(before):
    """The name may be missing, no function, or another function until then."""
    helper = "def pieces(x, num_heads):\n    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)"
    start = f"import torch\n{before}"
    assert graded([start, PIECES, helper])["per_head_weights"][0] == 2
    assert graded([start, helper, PIECES])["per_head_weights"][0] == 2
    assert graded([start, PIECES])["per_head_weights"][0] == 0


def test_a_stub_that_is_called_is_named():
    stub = "def pieces(x, num_heads):\n    raise NotImplementedError"
    assert "calls `pieces`" in graded(["import torch", stub, PIECES])["per_head_weights"][1]


def test_magics_do_not_stop_a_cell():
    cell = "%matplotlib inline\n%config InlineBackend.figure_format = 'svg'\n" + solved("split_heads")
    assert graded([cell])["split_heads"][0] == 1


def test_a_submissions_own_check_reports_nothing():
    """It would stand in the page beside the verdict, and contradict it."""
    cell = new_code_cell(
        f"from mha_lab.check import check\n{solved('split_heads')}\nprint(check(split_heads))"
    )
    GradeApart(isolation="none").preprocess(new_notebook(cells=[cell]), ResourcesDict())
    assert cell.outputs[0].text == "The report on split_heads is at its graded check.\n0.0\n"


ODD = [
    "return 10**400",
    "return torch.empty(5_000_000, 0)",
    "return torch.empty(300_000_000, 0)",
    "return numpy.empty((10**15, 0))",
    "return torch.zeros(3, dtype=torch.complex64)",
    "return [[]] * 10**6",
    "return numpy.zeros(3, dtype='S8')",
    "return numpy.longdouble(1)",
    "raise ValueError(\"masked_fill'mask'\" * 10**6)",
]


@pytest.mark.parametrize("line", ODD)
def test_an_odd_result_costs_its_exercise_and_no_other(line):
    arguments = "token, column, n, num_heads, d_k"
    odd = f"import numpy, torch\ndef predict_place({arguments}):\n    {line}"
    earned = graded([odd, solved("split_heads")])
    assert (earned["predict_place"][0], earned["split_heads"][0]) == (0, 1)
    assert len(earned["predict_place"][1]) < 5000


FORGED = [
    {"kind": "raised", "value": {"text": 5}},
    {"kind": "returned", "value": {"text": "words"}},
    {"kind": "raised", "value": {"number": "1"}},
    {"kind": "returned", "value": {"tensor": "x", "numpy": "f4,f4", "shape": [1], "data": "AAAAAAAAAAA="}},
    {"kind": "returned", "value": {"tensor": "x", "numpy": "S8", "shape": [1], "data": "AAAAAAAAAAA="}},
    {"kind": "returned", "value": {"tensor": "x", "numpy": "f4", "shape": [2**60, 0], "data": ""}},
    {"kind": "returned", "value": {"other": "x" * 10**6}},
    {"kind": "returned", "value": {"sequence": [{"number": "1"}] * 10**5}},
    {"kind": "returned", "value": {"number": "1" + "0" * 400}},
    {"kind": "raised", "value": {"text": "E\n" + "masked_fill'mask'" * 10**5}},
    7,
    None,
]


@pytest.mark.parametrize("forged", FORGED, ids=range(len(FORGED)))
def test_what_a_submission_writes_in_the_workers_place_is_no_result(forged):
    base = {"inputs": {"sequence": []}, "where": {}, "reads": [], "code": ""}
    check = Check(new_code_cell(), find("predict_place"))
    check.tried[0] = [base | forged if isinstance(forged, dict) else forged] * len(check.problems)
    report, earned = check.judge()
    assert earned == 0
    assert len(str(report)) < 5000


def test_what_a_submission_writes_about_its_code_is_looked_at_in_no_time():
    """Names in place of a regular expression that would never end."""
    where = {"function": "f", "line": 1, "text": "a" * 199 + "!", "part": "a" * 199 + "!", "near": ""}
    names = [["(a+)+$", "shape (1, 2, 3)"], ["x", "shape (2, 3)"]]
    words = "The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 0"
    said = {"kind": "raised", "value": {"text": f"RuntimeError\n{words}"}, "inputs": {"sequence": []}}
    said |= {"where": where | {"names": names}, "reads": names, "code": ""}
    check = Check(new_code_cell(), find("predict_place"))
    check.tried[0] = [said] * len(check.problems)
    report, earned = check.judge()
    assert earned == 0
    assert "(a+)+$" not in str(report)


def test_a_line_that_would_swell_is_not_read():
    """30 MB of JSON would take 4 GB."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe, contextlib.suppress(BrokenPipeError):
        thread = threading.Thread(target=pour, args=(pipe,))
        thread.start()
        assert list(_lines(reading, time.monotonic() + 60, 60)) == [{"step": 0}]
        os.close(reading)
        thread.join()


def pour(pipe):
    """A word, and then one endless line."""
    with contextlib.suppress(BrokenPipeError):
        pipe.write(b'{"step": 0}\n{"outputs": [')
        for _ in range(30):
            pipe.write(b"{}," * 2**18)
            pipe.flush()


def test_much_output_takes_no_room_from_results():
    show = "display({'image/png': 'A' * 1_900_000}, raw=True)"
    loud = f"from IPython.display import display\nfor _ in range(20):\n    {show}"
    earned = graded([solved("split_heads"), loud, solved("merge_heads")])
    assert (earned["split_heads"][0], earned["merge_heads"][0]) == (1, find("merge_heads").points)


@pytest.mark.parametrize("name", NAMES)
def test_no_cell_of_a_chapter_defines_an_exercises_function_but_its_stub(name):
    """It would count as an answer."""
    for cell in code_cells(read(name)):
        for exercise in names():
            if f"def {exercise}(" in cell.source or f"\n{exercise} =" in f"\n{cell.source}":
                stub = cell.metadata.get("nbgrader", {}).get("grade_id") == exercise
                assert stub or find(exercise).chapter != name
