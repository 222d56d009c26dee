"""Submissions to chapter 03: right, wrong, and hostile. Each takes the released notebook and changes it."""

import copy
import inspect
import json
import os

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell

from mha_course.exercises import find, names

CHAPTER = "03_splitting_heads"
EXERCISES = [name for name in names() if find(name).chapter == CHAPTER]
POINTS = {name: find(name).points for name in EXERCISES}
ALL = sum(POINTS.values())


def marked(notebook, grade_id):
    """The cell with this id."""
    return next(c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") == grade_id)


def function(name, body):
    """A cell that defines the exercise's function in another way."""
    arguments = ", ".join(inspect.signature(find(name).answer).parameters)
    return f"def {name}({arguments}):\n    {body}"


def right(notebook):
    """Every exercise solved, with a helper and a picture in cells of the learner's own."""
    for name in EXERCISES:
        marked(notebook, name).source = inspect.getsource(find(name).answer)
    helper = new_code_cell("def in_pieces(x, h):\n    return x.unflatten(-1, (h, -1)).transpose(1, 2)")
    notebook.cells.insert(2, helper)
    picture = "import torch\nfrom mha_lab import plot\nplot.show(plot.attention_heatmap(torch.eye(3)))"
    notebook.cells.append(new_code_cell(picture))
    marked(notebook, "split_heads").source = function("split_heads", "return in_pieces(x, num_heads)")


def of_the_last_release(notebook):
    """All right, in a chapter that was handed out while the course was a part of `mha_lab`."""
    right(notebook)
    old = "from mha_lab import explore, quiz\nfrom mha_lab.check import check\n"
    changed = [
        cell.source.replace("from mha_course import check, explore, quiz\n", old) for cell in notebook.cells
    ]
    assert changed != [cell.source for cell in notebook.cells]
    for cell, source in zip(notebook.cells, changed, strict=True):
        cell.source = source


def from_colab(notebook):
    """All right, as Colab saves it: an older format, no ids, metadata of its own."""
    right(notebook)
    notebook.nbformat_minor = 0
    for cell in notebook.cells:
        del cell["id"]
        cell.metadata.update(id="x1Y2", colab={"base_uri": "https://localhost:8080/"})


def wrong(notebook):
    """A mistake in each."""
    right(notebook)
    answers = {
        "predict_place": "return column % num_heads, token, column // num_heads",
        "split_heads": "return x.view(x.shape[0], num_heads, x.shape[1], -1)",
        "merge_heads": "return x.reshape(x.shape[0], x.shape[2], -1)",
        "per_head_weights": "return query",
        "fix_split": "return split_heads(x, num_heads)",
    }
    for name in EXERCISES:
        marked(notebook, name).source = function(name, answers.get(name, "return None"))


def edits_points(notebook):
    """Asks for more, marks a stub as a check, and copies a check."""
    for name in EXERCISES:
        marked(notebook, f"check-{name}").metadata.nbgrader.points = 1000
    marked(notebook, "split_heads").metadata.nbgrader.update(grade=True, solution=False, points=50)
    marked(notebook, "split_heads").source = "50.0"
    notebook.cells.append(copy.deepcopy(marked(notebook, "check-split_heads")))
    notebook.cells[-1].id = "another"


def rewrites_checks(notebook):
    """Deletes one check; the others print points, or are no longer marked as graded."""
    notebook.cells.remove(marked(notebook, "check-predict_place"))
    marked(notebook, "check-split_heads").source = "1.0"
    marked(notebook, "check-merge_heads").metadata.nbgrader.update(grade=False, locked=False)
    marked(notebook, "check-merge_heads").source = "1.0"
    marked(notebook, "check-per_head_weights").cell_type = "markdown"
    marked(notebook, "check-fix_split").metadata.nbgrader.update(solution=True)
    marked(notebook, "check-fix_split").source = "1.0"


def swaps_check(notebook):
    """Replaces `check` and what is behind it, and says in the worker's name that all is right."""
    forged = [{"step": step, "messages": [{"kind": "returned"}] * 9} for step in range(40)]
    lines = "\n".join(map(json.dumps, forged))
    source = f"""
import os, sys
import mha_course.checker, mha_course.checker.runner, mha_course.checker.diagnosis
check = lambda answer: 1.0
mha_course.checker.check = check
mha_course.checker.diagnose = mha_course.checker.diagnosis.diagnose = lambda *a, **k: None
mha_course.checker.runner.in_a_child = lambda *a: [{{"kind": "returned", "value": {{"number": "1"}}}}] * 9
main = sys.modules["__main__"]
for fd in range(3, 40):
    try:
        os.write(fd, b'''{lines}
''')
    except OSError:
        pass
"""
    notebook.cells.insert(1, new_code_cell(source))


def imports_solutions(notebook):
    """Every finished function that there is, under the name of the exercise."""
    for name in EXERCISES:
        module = "mha_lab" if name in ("split_heads", "merge_heads") else f"mha_course.exercises.{name}"
        body = f"given = [*locals().values()]\n    from {module} import {name} as finished"
        marked(notebook, name).source = function(name, body + "\n    return finished(*given)")


def forges_tensors(notebook):
    """A tensor that says of itself that it has every shape and equals everything; and some markup."""
    source = """
class Yes(torch.Tensor):
    shape = property(lambda self: Yes)
    def __eq__(self, other): return True
    __ne__ = lambda self, other: False
    __hash__ = None
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None): return True

def {name}(*arguments): return torch.zeros(1).as_subclass(Yes)
"""
    for name in EXERCISES:
        marked(notebook, name).source = source.replace("{name}", name)
    markup = "<script>alert(1)</script> <img src=x onerror=alert(2)> ```` [x](javascript:alert(4))"
    html = "from IPython.display import HTML\nHTML('<script>alert(3)</script>')"
    notebook.cells += [new_markdown_cell(markup), new_code_cell(html)]


def kills(notebook):
    """One exercise ends the process that asks, one the process that is asked, one cell the worker."""
    right(notebook)
    ends = "import os, signal\ndef {}(*arguments):\n    os.{}\n"
    marked(notebook, "split_heads").source = ends.format("split_heads", "kill(os.getppid(), signal.SIGKILL)")
    marked(notebook, "merge_heads").source = ends.format("merge_heads", "_exit(0)")
    marked(notebook, "fix_split").source += "\nimport os\nos._exit(0)"


def never_returns(notebook):
    """A function and a cell that loop, and keep every exception to themselves."""
    right(notebook)
    lines = "while True:", "    try:", "        [0 for _ in range(10**9)]", "    except BaseException: pass"
    marked(notebook, "merge_heads").source = function("merge_heads", "\n    ".join(lines))
    marked(notebook, "fix_split").source += "\n".join(["", *lines])


def reaches_out(gradebook, source, mark, port, pid):
    """Tries to write the gradebook, to read the teacher's notebook, to leave a mark, to call home."""
    program = f"""
import os, pathlib, socket, sqlite3
found = {{}}
def tries(what, action):
    try:
        action()
        found[what] = "done"
    except Exception as error:
        found[what] = type(error).__name__
def points():
    connection = sqlite3.connect({str(gradebook)!r})
    connection.execute("update grade set auto_score = 99, manual_score = 99")
    connection.commit()
tries("gradebook", points)
tries("source", lambda: pathlib.Path({str(source)!r}).read_text())
tries("mark", lambda: pathlib.Path({str(mark)!r}).write_text("here"))
tries("package", lambda: open(__import__("mha_lab").__file__, "a"))
tries("course", lambda: open(__import__("mha_course").__file__, "a"))
tries("network", lambda: socket.create_connection(("127.0.0.1", {port}), timeout=2))
tries("signal", lambda: os.kill({pid}, 0))
print(found)
"""

    def change(notebook):
        right(notebook)
        notebook.cells.insert(1, new_code_cell(program))

    return change


def rearranges(notebook):
    """All right, but nothing is where it was: split, copied, moved, retyped, deleted, of another type."""
    right(notebook)
    cells = notebook.cells
    # Split: both halves keep the cell's name.
    whole = marked(notebook, "split_heads")
    half = copy.deepcopy(whole)
    whole.source, half.source = "import torch", whole.source
    half.id = "other-half"
    cells.insert(cells.index(whole) + 1, half)
    # Retyped into a new cell, while the marked one was deleted, and its check too.
    retyped = marked(notebook, "merge_heads")
    cells[cells.index(retyped)] = new_code_cell(retyped.source)
    cells.remove(marked(notebook, "check-merge_heads"))
    # Moved to the top, above what it needs; merged with its check; turned into a text; tried in a copy.
    moved = marked(notebook, "per_head_weights")
    cells.remove(moved)
    cells.insert(0, moved)
    merged = marked(notebook, "fix_split")
    check = marked(notebook, "check-fix_split")
    cells.remove(merged)
    check.source = merged.source + "\n" + check.source
    text = marked(notebook, "predict_place")
    cells[cells.index(text)] = new_markdown_cell(text.source, metadata=text.metadata)
    for body in ("return x  # an experiment", "raise NotImplementedError"):
        cells.append(new_code_cell(function("split_heads", body)))


def out_of_order(notebook):
    """All right, in a notebook that was not run from top to bottom, with slips in the cells' types."""
    right(notebook)
    cells = notebook.cells
    # Above what it needs, and the stub is still there; what it needs comes last.
    cells.insert(0, new_code_cell(function("per_head_weights", "return late(query, key, num_heads)")))
    solution = marked(notebook, "per_head_weights").source.replace("def per_head_weights", "def late")
    marked(notebook, "per_head_weights").source = function("per_head_weights", "raise NotImplementedError")
    cells.append(new_code_cell(f"import torch\nfrom mha_lab import *\n{solution}"))
    # As a text: with its mark and no `def`, and without its mark.
    place = inspect.getsource(find("predict_place").answer).replace("def predict_place", "def my_place")
    text, lines = marked(notebook, "predict_place"), "predict_place = lambda *a: my_place(*a)"
    cells[cells.index(text)] = new_markdown_cell(lines, metadata=text.metadata)
    cells.insert(0, new_code_cell(place))
    text = marked(notebook, "fix_split")
    cells[cells.index(text)] = new_markdown_cell(text.source)
    cells.append(new_markdown_cell("![](data:image/png;base64," + "A" * 200_000 + ")"))


def smuggles(notebook):
    """All right; and whatever may act where the notebook goes: metadata, secrets, odd characters, mass."""
    right(notebook)
    state = {"state": {"x": {"model_module": "anywidget"}}}
    notebook.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": state}
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "X-lexer"}
    for cell in notebook.cells:
        cell.metadata["widgets"] = "anywidget"
    program = """
import glob, os
for path in ["/proc/1/environ", "/proc/self/environ", *glob.glob("/proc/*/environ")]:
    try:
        print(open(path, "rb").read())
    except OSError:
        pass
print(dict(os.environ), "\\ud800 half of a pair")
print("x" * 3_000_000)
"""
    notebook.cells.insert(1, new_code_cell(program))
    notebook.cells.append(new_markdown_cell("a text with \ud800 half of a pair"))


def odd_files(notebook, course, submitted):
    """Folders that hold no notebook to grade; each has a reason."""
    misnamed = "[s123] Ada", ".dot", "two\nlines", "=HYPERLINK(1)"
    for name in ("unreadable", "linked", "hard-linked", "pipe", "huge", "misnamed", *misnamed):
        submitted(name).parent.mkdir(parents=True)
    unreadable(submitted("unreadable"))
    submitted("linked").symlink_to(course / "source" / CHAPTER / f"{CHAPTER}.ipynb")
    elsewhere = course.parent / "elsewhere.ipynb"
    elsewhere.write_bytes(submitted("zed").read_bytes())
    submitted("hard-linked").hardlink_to(elsewhere)
    submitted("linked-folder").parents[1].mkdir()
    submitted("linked-folder").parent.symlink_to(submitted("zed").parent)
    os.mkfifo(submitted("pipe"))
    submitted("huge").touch()
    os.truncate(submitted("huge"), 30 * 2**20)
    (course / "submitted" / "flat.ipynb").write_text("{}")
    (course / "submitted" / "anna.zip").write_text("PK")
    (course / "submitted" / "bob" / "chapter3").mkdir()
    (submitted("misnamed").parent / "notes.txt").write_text("nothing")
    for name in misnamed:
        write(notebook, right, submitted(name))


def unreadable(path):
    path.write_text("{" * 100_000, encoding="utf-8")


def write(notebook, change, path):
    """A changed copy in its place."""
    notebook = copy.deepcopy(notebook)
    change(notebook)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(nbformat.writes(notebook), encoding="utf-8", errors="surrogatepass")
