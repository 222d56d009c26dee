"""What earns points, for all exercises: graded without nbgrader around it."""

import base64
import contextlib
import html
import inspect
import json
import os
import struct
import threading
import time

import pytest
from nbconvert.exporters.exporter import ResourcesDict
from nbformat.v4 import new_code_cell, new_notebook
from traitlets.config import Config

from mha_course.exercises import find, names
from mha_course.grading import intake, nbgrader
from mha_course.grading.nbgrader import OUTCOME, Check, GradeApart, Room, Step, _lines, _outputs, judged
from mha_course.grading.sandbox import Worker
from mha_course.grading.worker import TOO_MUCH
from tests.grading.test_round import needs_walls
from tests.notebooks.chapters import NAMES, ROOT, code_cells, read

pytestmark = [pytest.mark.grading, pytest.mark.unchecked]  # wrong answers pass wrong arguments


def graded(cells):
    """``{exercise: points}`` and reports, of a notebook with these cells and all checks."""
    checks = {}
    for name in names():
        marks = {"grade": True, "grade_id": f"check-{name}", "points": find(name).points}
        checks[name] = new_code_cell(f"check({name})", metadata={"nbgrader": marks})
    notebook = new_notebook(cells=[*map(new_code_cell, cells), *checks.values()])
    GradeApart(isolation="none").preprocess(notebook, ResourcesDict())
    shown = {name: [o for o in cell.outputs if "data" in o] for name, cell in checks.items()}
    said = {name: [output.data["text/plain"] for output in outputs] for name, outputs in shown.items()}
    return {name: (float(texts[-1]), texts[0]) for name, texts in said.items()}


def solved(name):
    """A cell with the solution, among what its module knows."""
    known = f"globals().update({{k: v for k, v in vars(_m).items() if k != {name!r}}})"
    return f"import mha_course.exercises.{name} as _m\n{known}\n{inspect.getsource(find(name).answer)}"


def test_every_solution_earns_its_points():
    """Also where a problem holds a function, which cannot be sent to the worker."""
    earned = graded([solved(name) for name in names()])
    assert {name: points for name, (points, _) in earned.items()} == {n: find(n).points for n in names()}


WRONG = "def split_heads(x, num_heads):\n    return x"
STUB = "def split_heads(x, num_heads):\n    raise NotImplementedError"
RIGHT, FINISHED = solved("split_heads"), "from mha_lab import split_heads"
MAGICS = "%matplotlib inline\n%config InlineBackend.figure_format = 'svg'\n"
BEST = [
    ([STUB, RIGHT, WRONG, STUB, FINISHED], 1, "right"),
    ([FINISHED, WRONG, STUB, MAGICS + RIGHT], 1, "right"),
    ([f"{RIGHT}\n{WRONG}", RIGHT], 1, "right"),
    ([*(f"{WRONG}  # {i}" for i in range(30)), RIGHT], 0, ""),  # more than 30 of one name are not tried
    ([STUB, WRONG, STUB], 0, ""),
    ([STUB], 0, "is not written yet"),
    ([FINISHED], 0, ""),
    ([], 0, "there is no function split_heads"),
    (["import torch\n\ndef split_heads(x, num_heads):\n    return (x\n"], 0, "Line 4: '(' was never closed"),
    (
        [MAGICS + "def split_heads(x, num_heads)\n    return x", STUB],
        0,
        "Line 3: expected ':'\n    def split",
    ),
    ([MAGICS + "1 / 0\n" + RIGHT], 1, "right"),
    (["%%time\n1 / 0\n" + RIGHT], 1, "right"),
    ([f"{RIGHT}\nimport os\nos._exit(1)"], 1, "right"),
]


# What a cell begins with, and what it then prints.
FAILING = {
    "import wandb": "ModuleNotFoundError",
    "from google.colab import drive\ndrive.mount('/content')": "ModuleNotFoundError",
    "%autosave 60\nprint('goes on')": "goes on\n",
    "%store -r\nprint('goes on')": "goes on\n",
    "%matplotlib widget\nprint('goes on')": "backend name\n\ngoes on",
    "%load_ext jupyter_black\nprint('goes on')": "'jupyter_black'\n\ngoes on",
    "%conda install x\nprint('goes on')": "goes on",
    "try:\n    import wandb\nexcept ImportError: !pip install wandb": "",
    "import getpass, os\nprint(getpass.getuser(), os.environ['USER'])": "student student\n",
    "import psutil\npsutil.virtual_memory()": "NotFoundError",
    "import torch\nfrom torch.utils.data import DataLoader\n"
    "print(len([*DataLoader(torch.ones(9, 1000), num_workers=2)]))": "9\n",
    "import locale\nlocale.setlocale(locale.LC_ALL, 'xx_XX.UTF-8')": "unsupported locale",
    "input()": "EOFError",
    "breakpoint()": "breakpoint",
    "get_ipython().kernel": "AttributeError",
    "from mha_course import check\nresult = check(split_heads)\nprint(result.passed, result.possible)":
        "graded check.\nFalse 1.0\n",
    "print(later(1))\ndef later(x):\n    return x": "NameError",
    "while True:\n    try: [0 for _ in range(10**6)]\n    except Exception: pass": "stopped after 5 seconds",
    "import sys\nsys.exit()": "SystemExit",
}  # fmt: skip
BELOW = """
import not_there
import torch.nn.functional as F{0}
one{0} = int("1")

def split_heads(x, num_heads):
    return F{0}.dropout(x, 0.0).unflatten(-1, (num_heads, -1)).transpose(one{0}, 2)
"""


@pytest.fixture(scope="module")
def failed():
    """One submission: what each cell prints, and what is said of the function that it defines in the end."""
    cells = [new_code_cell(line + BELOW.format(i)) for i, line in enumerate(FAILING)]
    marks = {"grade": True, "grade_id": "check-split_heads", "points": 1}
    checks = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nbgrader, "judged", lambda found: checks.update(found) or judged(found))
        notebook = new_notebook(cells=[*cells, new_code_cell("", metadata={"nbgrader": marks})])
        GradeApart(isolation="bubblewrap", cell_seconds=5).preprocess(notebook, ResourcesDict())
    return [cell.outputs for cell in cells], checks["split_heads"].diagnoses


@needs_walls
@pytest.mark.parametrize("i", range(len(FAILING)), ids=map(repr, FAILING))
def test_a_line_that_fails_costs_no_function_below_it(failed, i):
    outputs, diagnoses = failed
    printed = "".join(output.text for output in outputs[i])
    assert (i in diagnoses, [*FAILING.values()][i] in printed) == (True, True), printed
    assert diagnoses[i].name is None
    assert "left out" not in printed


def test_when_time_is_short_imports_and_definitions_are_run_once_more():
    """Sixteen experiments that run until they are stopped, and others in and below the cell of the answer."""
    loops = ["def run():\n    while True:\n        pass\n\nloss = run()"] * 16
    marks = {"grade": True, "grade_id": "check-split_heads", "points": 1}
    check = new_code_cell("", metadata={"nbgrader": marks})
    cells = [new_code_cell(source) for source in (*loops, f"{loops[0]}\n{RIGHT}", loops[0])]
    grader = GradeApart(isolation="none", seconds=40)
    grader.preprocess(new_notebook(cells=[*cells, check]), ResourcesDict())
    assert check.outputs[0].metadata[OUTCOME] == ["right", 1]
    assert "ended" not in str([cell.outputs for cell in cells])
    (said,) = cells[-1].outputs
    assert said.text == "Of this cell, only imports and definitions were run: the time was over.\n"
    assert intake.is_left_out(said.text.strip())  # so the teacher reads it, too


def test_of_a_cell_that_shows_much_what_fits_into_a_line_is_kept():
    header = base64.b64encode(png(640, 480)).decode().rstrip("=")
    show = f"display({{'image/png': {header!r} + 'A' * 1_900_000}}, raw=True)"
    cell = new_code_cell(
        f"from IPython.display import display\nprint('hello')\nfor _ in range(3): {show}\n'x' * 30_000"
    )
    GradeApart(isolation="none").preprocess(new_notebook(cells=[cell]), ResourcesDict())
    hello, *pictures, long, left_out = cell.outputs
    assert long.data == {"text/plain": "'" + "x" * 19_999}
    assert (hello.text, left_out.text) == ("hello\n", TOO_MUCH)
    assert [output.data.keys() for output in pictures] == [{"image/png"}] * 2


IMPORTED = {
    "from mha_course.exercises.split_heads import split_heads": 0,
    "from mha_course.exercises._heads import split as split_heads": 1,
}


@pytest.mark.parametrize(("line", "points"), IMPORTED.items())
def test_what_an_imported_solution_earns_is_what_the_guide_says(line, points):
    """If the second earns nothing one day, docs/grading.md can say so."""
    assert graded([line])["split_heads"][0] == points
    assert points == 0 or line in (ROOT / "docs/grading.md").read_text()


@pytest.mark.parametrize(("cells", "points", "words"), BEST, ids=range(len(BEST)))
def test_the_best_definition_counts_whatever_stands_before_and_after_it(cells, points, words):
    earned, report = graded(cells)["split_heads"]
    assert (earned, words in report) == (points, True)


def test_a_submission_gets_the_same_problems_again_and_another_one_does_not():
    def drawn(seed):
        marks = {"grade": True, "grade_id": "check-split_heads", "points": 1}
        wrong = "def split_heads(x, num_heads):\n    return x if x.shape[0] > 1 else split(x, num_heads)"
        right = "def split(x, h):\n    return x.unflatten(-1, (h, -1)).transpose(1, 2)"
        check = new_code_cell("", metadata={"nbgrader": marks})
        cells = [*map(new_code_cell, (right, wrong)), check]
        config = Config({"GradeApart": {"isolation": "none", "seed": seed}})
        GradeApart(config=config).preprocess(new_notebook(cells=cells), ResourcesDict())
        return check.outputs[0].data["text/plain"]

    first = drawn("a")
    assert "0 of 1 point" in first
    assert (drawn("a") == first, drawn("b") == first, drawn("") == first) == (True, False, False)


PIECES = """
def per_head_weights(query, key, num_heads):
    q, k = pieces(query, num_heads), pieces(key, num_heads)
    return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1)
"""


@pytest.mark.parametrize("before", ["", "pieces = torch.zeros(3)", "def pieces(x, num_heads):\n    return x"])
def test_a_function_that_stands_above_what_it_needs_counts(before):
    """The name may be missing, no function, or another function until then."""
    helper = "def pieces(x, num_heads):\n    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)"
    for cells, points in (([PIECES, helper], 2), ([helper, PIECES], 2), ([PIECES], 0)):
        assert graded([f"import torch\n{before}", *cells])["per_head_weights"][0] == points


ON_A_GPU = [
    "torch.set_default_device('cuda')",
    "torch.set_default_device('cuda'); torch.arange(3)",
    "torch.set_default_dtype(torch.float64); torch.set_default_device(torch.device('meta'))",
]
MAKES_A_TENSOR = "\n    return x.unflatten(-1, (num_heads, -1))[:, torch.arange(x.shape[1])].transpose(1, 2)"


@pytest.mark.parametrize("line", ON_A_GPU)
@pytest.mark.parametrize("between", ["\n", None], ids=["one cell", "two cells"])
def test_a_device_that_is_missing_here_costs_nothing(line, between):
    cells = ["import torch", line, f"def split_heads(x, num_heads):{MAKES_A_TENSOR}"]
    points, report = graded(cells if between is None else [between.join(cells)])["split_heads"]
    assert points == 1, report


def test_a_stub_that_is_called_is_named():
    stub = "def pieces(x, num_heads):\n    raise NotImplementedError"
    assert "calls `pieces`" in graded(["import torch", stub, PIECES])["per_head_weights"][1]


HEAD = """
def single_head_attention(x, w_q, w_k, w_v):
    weights = torch.softmax(scaled_scores(x @ w_q, x @ w_k), dim=-1)
    return weights @ (x @ w_v), weights
"""
UNSCALED = "import torch\ndef scaled_scores(query, key):\n    return query @ key.mT"
HELPED = HEAD.replace("scaled_scores", "helper") + "def helper(a, b):\n    return scaled_scores(a, b)"
CALLS = {
    "a wrong one": ([UNSCALED, HEAD], "because of scaled_scores"),
    "by a helper": ([UNSCALED, HELPED], "because of scaled_scores"),
    "a stub": (["import torch\ndef scaled_scores(query, key):\n    raise NotImplementedError", HEAD],
               "because of scaled_scores"),
    "a right one, and is wrong itself": ([solved("scaled_scores"), HEAD.replace("-1", "-2")],
                                         "softmax-over-queries"),
    "a wrong one, and is wrong itself": ([UNSCALED, HEAD.replace("-1", "-2")],
                                         "not-scaled-and-softmax-over-queries"),
    "none": ([UNSCALED, HEAD, HEAD.replace("scaled_scores(x @ w_q, x @ w_k)", "x @ w_q @ (x @ w_k).mT")],
             "not-scaled"),
}  # fmt: skip


@pytest.mark.parametrize(("cells", "outcome"), CALLS.values(), ids=CALLS)
def test_a_mistake_counts_where_it_arises(cells, outcome):
    """A function that is right but for another exercise, which it calls, has no mistake of its own."""
    exercises = "single_head_attention", "scaled_scores"
    marks = [{"grade": True, "grade_id": f"check-{name}", "points": 1} for name in exercises]
    checks = [new_code_cell("", metadata={"nbgrader": mark}) for mark in marks]
    notebook = new_notebook(cells=[*map(new_code_cell, cells), *checks])
    GradeApart(isolation="none").preprocess(notebook, ResourcesDict())
    found, *notes = [*checks[0].outputs[0].metadata[OUTCOME], *checks[0].outputs[1:-1]]
    assert found == outcome
    assert ["calls scaled_scores" in note.text for note in notes[1:]] == [True] * outcome.startswith(
        "because"
    )
    assert notes[0] == 0


RIGHT_SCORES = UNSCALED + " / query.shape[-1] ** 0.5"
NO_SCORES = "def scaled_scores(query, key):\n    raise NotImplementedError"
BESIDE = {
    "a stub below a right one": ([RIGHT_SCORES, NO_SCORES, HEAD], 2),
    "a wrong one below a right one": ([RIGHT_SCORES, UNSCALED, HELPED], 2),
    "a wrong one that is right later": ([UNSCALED, HEAD, RIGHT_SCORES], 2),
    "and a wrong one of its own later": ([UNSCALED, HEAD, RIGHT_SCORES, HEAD.replace("-1", "-2")], 2),
    "no right one": ([UNSCALED, HEAD, NO_SCORES], 0),
}


@pytest.mark.parametrize(("cells", "points"), BESIDE.values(), ids=BESIDE)
def test_a_right_function_counts_beside_the_right_ones_that_it_calls(cells, points):
    """Whatever else their names stood for when it was tried."""
    earned = graded(cells)["single_head_attention"][0]
    assert earned == min(points, find("single_head_attention").points)


HEATMAP = "import torch\nfrom mha_lab import plot\nheatmap = plot.attention_heatmap(torch.eye(3))\n"
PICTURES = {
    "plot.show(heatmap)": "Heatmap of weights",
    "heatmap.figure": "<Figure",
    "explore.split()": "<explore.split",
}


def test_a_students_pictures_are_kept_and_described():
    sources = [f"{HEATMAP}from mha_course import explore\n{last}" for last in PICTURES]
    steps = [{"run": source, "skip": []} for source in sources]
    with Worker("none") as worker:
        said, _ = worker.process.communicate(
            json.dumps({"steps": steps, "exercises": {}, "seconds": 60}).encode(), timeout=600
        )
    shown = [line["outputs"] for line in map(json.loads, said.splitlines()) if "outputs" in line]
    for (output,), words in zip(shown, PICTURES.values(), strict=True):
        assert output["display"].keys() == {"text/plain", "image/png"}
        assert output["display"]["text/plain"].startswith(words)


def test_a_submissions_own_check_reports_nothing():
    """It would stand in the page beside the verdict, and contradict it; and the progress is the teacher's."""
    source = f"from mha_course import check, progress\n{RIGHT}\nprint(check(split_heads))\nprogress()"
    cell = new_code_cell(source)
    GradeApart(isolation="none").preprocess(new_notebook(cells=[cell]), ResourcesDict())
    said = "The report on split_heads is at its graded check.\n0.0\n"
    told = "".join(output.text for output in cell.outputs)
    assert told == f"{said}Progress is switched off (MHA_LAB_PROGRESS=0).\n"


ODD = [
    "return 10**400", "return torch.empty(5_000_000, 0)", "return torch.empty(300_000_000, 0)",
    "return numpy.empty((10**15, 0))", "return torch.zeros(3, dtype=torch.complex64)",
    "return [[]] * 10**6", "return numpy.zeros(3, dtype='S8')", "return numpy.longdouble(1)",
    "raise ValueError(\"masked_fill'mask'\" * 10**6)",
]  # fmt: skip


@pytest.mark.parametrize("line", ODD)
def test_an_odd_result_costs_its_exercise_and_no_other(line):
    arguments = "token, column, n, num_heads, d_k"
    odd = f"import numpy, torch\ndef predict_place({arguments}):\n    {line}"
    earned = graded([odd, RIGHT])
    assert (earned["predict_place"][0], earned["split_heads"][0]) == (0, 1)
    assert len(earned["predict_place"][1]) < 5000


TENSOR = {"tensor": "x", "shape": [1], "data": "AAAAAAAAAAA="}
FORGED = [
    {"kind": "raised", "value": {"text": 5}},
    {"kind": "returned", "value": {"text": "words"}},
    {"kind": "raised", "value": {"number": "1"}},
    {"kind": "returned", "value": TENSOR | {"numpy": "f4,f4"}},
    {"kind": "returned", "value": TENSOR | {"numpy": "S8"}},
    {"kind": "returned", "value": {"tensor": "x", "numpy": "f4", "shape": [2**60, 0], "data": ""}},
    {"kind": "returned", "value": {"other": "x" * 10**6}},
    {"kind": "returned", "value": {"sequence": [{"number": "1"}] * 10**5}},
    {"kind": "returned", "value": {"number": "1" + "0" * 400}},
    {"kind": "raised", "value": {"text": "E\n" + "masked_fill'mask'" * 10**5}},
    7,
    None,
]
# Names in place of a regular expression that would never end.
NAMES_READ = [["(a+)+$", "shape (1, 2, 3)"], ["x", "shape (2, 3)"]]
PART = "a" * 199 + "!"
WHERE = {"function": "f", "line": 1, "text": PART, "part": PART, "near": "", "names": NAMES_READ}
WORDS = "The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 0"
RAISED = {"kind": "raised", "value": {"text": f"RuntimeError\n{WORDS}"}}
FORGED.append(RAISED | {"where": WHERE, "reads": NAMES_READ})


@pytest.mark.parametrize("forged", FORGED, ids=range(len(FORGED)))
def test_what_a_submission_writes_in_the_workers_place_is_no_result(forged):
    base = {"inputs": {"sequence": []}, "where": {}, "reads": [], "code": ""}
    check = Check(new_code_cell(), find("predict_place"))
    check.tried[0] = [base | forged if isinstance(forged, dict) else forged] * len(check.problems)
    report, earned, outcome = check.judge()
    assert (earned, outcome == "right") == (0, False)
    assert len(str(report)) < 5000
    assert "(a+)+$" not in str(report)


def test_a_line_that_would_swell_is_not_read():
    """30 MB of JSON would take 4 GB."""

    def pour():
        with contextlib.suppress(BrokenPipeError):
            pipe.write(b'{"step": 0}\n{"outputs": [')
            for _ in range(30):
                pipe.write(b"{}," * 2**18)
                pipe.flush()

    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe, contextlib.suppress(BrokenPipeError):
        thread = threading.Thread(target=pour)
        thread.start()
        assert list(_lines(reading, time.monotonic() + 60, 60, Room())) == [{"step": 0}]
        os.close(reading)
        thread.join()


def test_much_output_takes_no_room_from_results():
    show = "display({'image/png': 'A' * 1_900_000}, raw=True)"
    loud = f"from IPython.display import display\nfor _ in range(20):\n    {show}"
    earned = graded([RIGHT, loud, solved("merge_heads")])
    assert (earned["split_heads"][0], earned["merge_heads"][0]) == (1, find("merge_heads").points)


def png(width, height):
    """The beginning of a picture: its size is in its header."""
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + bytes(20)


def test_the_report_is_about_the_last_function_in_the_notebook_not_the_last_that_was_tried():
    """A later run may try the function of an earlier cell."""
    check, base = Check(new_code_cell(), find("predict_place")), {"inputs": {"sequence": []}, "where": {}}
    for step in (7, 5):
        text = f"ValueError\nof step {step}"
        message = base | {"kind": "raised", "value": {"text": text}, "reads": [], "code": "", "xor": False}
        check.tried[step] = [message] * len(check.problems)
    assert "of step 7" in str(check.judge()[0])


def test_what_one_run_has_shown_is_not_read_again_in_the_next():
    """Else a loud submission would use up what it may write before its answer is tried."""
    show = "from IPython.display import display\ndisplay({'image/png': 'A' * 1_900_000}, raw=True)"
    ends = [f"import os\nos._exit({i})" for i in range(3)]
    assert graded([show] * 8 + ends + [RIGHT])["split_heads"][0] == 1


PICTURES_READ = {
    "a plot": (png(640, 480), True),
    "a large one": (png(4096, 4096), True),
    "one that swells": (png(32_000, 16_000), False),
    "one line": (png(2**31 - 1, 1), False),
    "a JPEG under another name": (b"\xff\xd8\xff\xc0" + bytes(40), False),
    "no header": (b"\x89PNG\r\n\x1a\n" + bytes(40), False),
    "cut off": (png(640, 480)[:20], False),
    "a byte": (b"x", False),
}


@pytest.mark.parametrize(("data", "shown"), PICTURES_READ.values(), ids=PICTURES_READ)
def test_a_picture_that_would_swell_is_left_out(data, shown):
    text = base64.encodebytes(data).decode()  # with line breaks, as some libraries write it
    outputs = _outputs(Step(new_code_cell(), said=[{"display": {"image/png": text}}]), Room())
    for odd in ("A", "=AAA", "AAAAA"):
        assert not Room().draws(odd)
    assert [output.get("data", {}).get("image/png") for output in outputs] == [text if shown else None]
    assert shown or outputs[0].text == "A picture was left out: it is too large, or not a PNG.\n"


def test_all_outputs_of_a_submission_share_one_budget():
    room, text = Room(), "<" * 20_000
    picture = base64.b64encode(png(4096, 4096)).decode()
    loud = Step(new_code_cell(), said=[{"stream": text}] * 20)
    shown = [_outputs(loud, room) for _ in range(60)]
    assert 3_000_000 < sum(len(html.escape(o.text)) for some in shown for o in some) < 4_000_000
    assert [o.text for o in shown[-1]] == ["Too much output; it was left out.\n"]
    many = Step(new_code_cell(), said=[{"display": {"image/png": picture}}] * 20)
    kept = [o for o in _outputs(many, Room()) if "data" in o]
    assert len(kept) == 8  # of 16 million pixels


def test_all_runs_of_a_submission_share_what_may_be_read():
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(b'{"step": 0}\n' * 100)
    room = Room(bytes=2000)
    assert len(list(_lines(reading, time.monotonic() + 60, 60, room))) == 100
    os.close(reading)
    assert room.bytes == 800


@pytest.mark.parametrize("name", NAMES)
def test_no_cell_of_a_chapter_defines_an_exercises_function_but_its_stub(name):
    """It would count as an answer."""
    for cell in code_cells(read(name)):
        for exercise in names():
            if f"def {exercise}(" in cell.source or f"\n{exercise} =" in f"\n{cell.source}":
                stub = cell.metadata.get("nbgrader", {}).get("grade_id") == exercise
                assert stub or find(exercise).chapter != name
