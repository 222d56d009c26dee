"""What a stored chapter must be, rule by rule; each rule is tried on a chapter that breaks it."""

import ast
import copy
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest
from nbformat import NotebookNode

from mha_lab.exercises import find, names
from mha_lab.explore._widget import START
from tests.notebooks.chapters import (
    FOLDER,
    MEASURED,
    NAMES,
    ROOT,
    alternative_texts,
    code_cells,
    markdown,
    output_texts,
    read,
    without_measured,
)
from tools.notebooks import exercise_of
from tools.site import anchor
from tools.sync import SET_UP, address

MAX_BYTES, MAX_LINES, MIN_DESCRIPTION = 500_000, 30, 40
CORE = {"torch", "numpy", "einops", "jaxtyping", "matplotlib", "seaborn", "tqdm", "safetensors", "mha_lab"}
ABSOLUTE = (
    r"(?<![\w.:/])/(?:home|Users|root|tmp|usr|opt|mnt|var|private|content)/"
    r"|\b[A-Z]:\\\w|site-packages|ipykernel_\d"
)


def counts(notebook: NotebookNode, name: str) -> Iterator[str]:
    """Execution counts run 1…n: nbval compares no cell without one, and skips none that was run."""
    found = [cell.execution_count for cell in code_cells(notebook)]
    if found != list(range(1, len(found) + 1)):
        yield f"execution counts {found}"
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if output.output_type == "execute_result" and output.execution_count != cell.execution_count:
                yield f"cell {cell.execution_count}: its result is numbered {output.execution_count}"


def metadata(notebook: NotebookNode, name: str) -> Iterator[str]:
    """The kernel that every machine has; no widget state, no version, nothing else."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    if notebook.metadata != {"kernelspec": kernel, "language_info": {"name": "python"}}:
        yield f"metadata {dict(notebook.metadata)}"


def ids(notebook: NotebookNode, name: str) -> Iterator[str]:
    """Each cell has an id of its own."""
    found = [cell.get("id") for cell in notebook.cells]
    if len(set(found)) != len(found) or not all(found):
        yield f"ids {found}"


def paths(notebook: NotebookNode, name: str) -> Iterator[str]:
    """No path of the machine that ran it, in text or output."""
    for text in [cell.source for cell in notebook.cells] + output_texts(notebook):
        found = re.search(ABSOLUTE, text)
        if found or str(ROOT) in text or str(Path.home()) + "/" in text:
            yield f"a path of a machine in {text[:80]!r}"


def errors(notebook: NotebookNode, name: str) -> Iterator[str]:
    """A cell that fails says so by its tag, and a cell with the tag fails."""
    for cell in code_cells(notebook):
        fails = any(output.output_type == "error" for output in cell.outputs)
        if fails != ("raises-exception" in cell.metadata.get("tags", [])):
            what = "an error without its tag" if fails else "a tag without its error"
            yield f"cell {cell.execution_count}: {what}"


def stderr(notebook: NotebookNode, name: str) -> Iterator[str]:
    """No warning is stored."""
    for cell in code_cells(notebook):
        if any(output.get("name") == "stderr" for output in cell.outputs):
            yield f"cell {cell.execution_count} writes to stderr"


def pictures(notebook: NotebookNode, name: str) -> Iterator[str]:
    """Each picture is described in words, each kind of output is one that nbval or a description covers."""
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if any(len(text or "") < MIN_DESCRIPTION for text in alternative_texts(output)):
                yield f"cell {cell.execution_count}: a picture without a description"
            text = output.get("data", {}).get("text/plain", "")
            if any(alt and alt not in text for alt in alternative_texts(output)):
                yield f"cell {cell.execution_count}: a picture whose description nbval does not compare"
            unknown = set(output.get("data", {})) - {"text/plain", "text/html", "image/png", START}
            if unknown:
                yield f"cell {cell.execution_count}: output of kind {unknown}"
    for text in re.findall(r"!\[(.*?)\]\(", markdown(notebook)):
        if len(text) < MIN_DESCRIPTION:
            yield f"a picture described as {text!r}"
    if "<img" in markdown(notebook):
        yield "a picture as HTML, which this test cannot read"


def size(notebook: NotebookNode, name: str) -> Iterator[str]:
    """Small enough for a slow line, and for GitHub to show."""
    length = len(nbformat.writes(notebook).encode())
    if length >= MAX_BYTES:
        yield f"{length} bytes"


def cells(notebook: NotebookNode, name: str) -> Iterator[str]:
    """A cell fits on a screen, holds something, and keeps no repr out of sight behind a semicolon."""
    for cell in notebook.cells:
        if not cell.source.strip():
            yield "an empty cell"
        if cell.cell_type == "code" and len(cell.source.splitlines()) > MAX_LINES:
            yield f"cell {cell.execution_count}: {len(cell.source.splitlines())} lines"
        if cell.cell_type == "code" and cell.source.rstrip().endswith(";"):
            yield f"cell {cell.execution_count} ends in a semicolon, behind which nbval sees a repr"


def compared(notebook: NotebookNode, name: str) -> Iterator[str]:
    """No cell takes itself out of the comparison but to train or to measure; the others print no time."""
    for cell in code_cells(notebook):
        tags = " ".join(cell.metadata.get("tags", []))
        marks = re.findall(r"nbval[-_]\w+", (cell.source + tags).lower())
        if marks and (tags != MEASURED or not re.search(r"\btqdm\(|\bmeasure|\bprofile", cell.source)):
            yield f"cell {cell.execution_count}: {marks}"
    for text in output_texts(without_measured(notebook)):
        if re.search(r"\b\d+\.\d+\.\d+\b|\b\d+(\.\d+)? ?(ms|µs|seconds)\b", text):
            yield f"a version or a time in {text[:80]!r}"


def imports(notebook: NotebookNode, name: str) -> Iterator[str]:
    """Only the core's packages: on Colab nothing else is sure to be there."""
    tree = ast.parse("\n".join(cell.source for cell in code_cells(notebook)[1:]))
    for node in ast.walk(tree):
        found = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        found += [node.module] if isinstance(node, ast.ImportFrom) else []
        for module in found:
            top = module.split(".")[0]
            if top not in CORE and top not in sys.stdlib_module_names:
                yield f"imports {module}"


def files(notebook: NotebookNode, name: str) -> Iterator[str]:
    """Nothing is read from a file, which on Colab is not there; only the set-up cell may fetch."""
    for cell in code_cells(notebook)[1:]:
        found = re.search(
            r"\bopen\(|Path\(|\burllib|\brequests\b|!\w+|imread|read_csv|%pip|%run", cell.source
        )
        if found:
            yield f"cell {cell.execution_count}: {found.group()}"


def set_up(notebook: NotebookNode, name: str) -> Iterator[str]:
    """The first code is the set-up cell of every chapter, and it shows nothing."""
    first = code_cells(notebook)[0]
    if first.source != SET_UP.format(address=address()) or first.outputs:
        yield "the first code cell is not the set-up cell, or it shows something"


def anatomy(notebook: NotebookNode, name: str) -> Iterator[str]:
    """Title, promise, set-up, numbered steps, one mistake on purpose, PyTorch's own, what is next."""
    first = notebook.cells[0].source
    number = name[:2]
    if not re.match(rf"# {number} \S.*\n\n\S", first):
        yield f"the title does not start with {number}, or no promise follows"
    for part in (
        "After this chapter you can",
        "You need",
        "**Time**: ",
        " minutes",
        "**Paper**: ",
        "section",
    ):
        if part not in first:
            yield f"the first cell does not say {part!r}"
    steps = re.findall(r"^## (.+)$", markdown(notebook), re.MULTILINE)
    if steps[:1] != ["Set-up"] or steps[-1:] != ["Summary"]:
        yield f"steps {steps}"
    numbered = steps[1:-1]
    if [step.split(" ")[0] for step in numbered] != [str(n) for n in range(1, len(numbered) + 1)]:
        yield f"steps {numbered} are not numbered 1, 2, 3"
    if sum("Break it" in step for step in numbered) != 1:
        yield "not one step that breaks it"
    if not any("Compare with PyTorch" in step for step in numbered):
        yield "no comparison with PyTorch"
    following = [other for other in NAMES if other > name][:1]
    if following and f"({following[0]}.ipynb)" not in notebook.cells[-1].source:
        yield f"the last cell does not lead to {following[0]}"


def exercises(notebook: NotebookNode, name: str) -> Iterator[str]:
    """Each exercise of the package is here: difficulty, minutes, three hints, a stub, and its check."""
    code = code_cells(notebook)
    checked = [exercise_of(cell) for cell in code if exercise_of(cell)]
    wanted = {exercise for exercise in names() if find(exercise).chapter == name}
    if len(set(checked)) != len(checked) or set(checked) != wanted:
        yield f"checks {checked}, wanted {sorted(wanted)}"
    headings = re.findall(r"^### Exercise: (.+?) · (.+)$", markdown(notebook), re.MULTILINE)
    if [title for title, _ in headings] != checked:
        yield f"headings {headings}, checks {checked}"
    for title, rest in headings:
        if not re.fullmatch(r"(easy|medium|hard), \d+ minutes", rest):
            yield f"exercise {title}: {rest!r} is no difficulty with minutes"
    for text, stub, check in zip(notebook.cells, notebook.cells[1:], notebook.cells[2:], strict=False):
        if check.cell_type != "code" or not (exercise := exercise_of(check)):
            continue
        if [function.name for function in ast.parse(stub.source).body] != [exercise]:
            yield f"exercise {exercise}: the cell before its check is not its stub"
        arguments = list(inspect.signature(find(exercise).answer).parameters)
        if [a.arg for a in ast.parse(stub.source).body[0].args.args] != arguments:
            yield f"exercise {exercise}: the stub's arguments are not {arguments}"
        unfolds = "".join(rf"<details><summary>Hint {n}</summary>\n\n(?s:.+?)\n\n" for n in (1, 2, 3))
        if not re.search(unfolds + "</details></details></details>$", text.source):
            yield f"exercise {exercise}: not three hints that unfold one inside the other"
        if not re.search(r"^(Example|Symptom|Predict)", text.source, re.MULTILINE):
            yield f"exercise {exercise}: no example"


def links(notebook: NotebookNode, name: str) -> Iterator[str]:
    """A link inside the series leads to a file, its anchor to a heading there; others are https."""
    for target in re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)", markdown(notebook)):
        file, _, part = unquote(target).partition("#")
        if file.startswith("https://"):
            continue
        if "//" in file or file.startswith("/") or (file and not (FOLDER / file).is_file()):
            yield f"{target} leads nowhere"
            continue
        there = read(Path(file).stem) if file.endswith(".ipynb") else notebook
        headings = re.findall(r"^#+ (.+)$", markdown(there), re.MULTILINE)
        if part and part not in {anchor(heading) for heading in headings}:
            yield f"{target}: no heading {part!r}"


RULES = [
    counts, metadata, ids, paths, errors, stderr, pictures, size, cells, compared, imports, files,
    set_up, anatomy, exercises, links,
]  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_a_chapter_keeps_the_rule(name, rule):
    assert list(rule(read(name), name)) == []


def test_the_chapters_are_numbered_without_a_gap():
    assert [name[:2] for name in NAMES] == [f"{number:02}" for number in range(len(NAMES))]
    assert all(re.fullmatch(r"\d\d(_[a-z]+)+", name) for name in NAMES)
    assert {find(exercise).chapter for exercise in names()} <= set(NAMES)


# Each rule on a chapter that breaks it.


def change_code(change):
    """Break the fourth code cell."""
    return lambda notebook: change(code_cells(notebook)[3])


def change_text(old, new):
    """Break a text wherever it stands."""

    def broken(notebook):
        assert old in markdown(notebook)
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = cell.source.replace(old, new)

    return broken


def picture(notebook):
    """The first picture's output."""
    return next(o for c in code_cells(notebook) for o in c.outputs if alternative_texts(o))


def new_output(kind, **content):
    return change_code(lambda cell: cell.outputs.append(nbformat.v4.new_output(kind, **content)))


def change_exercise(old, new):
    """Break a stub or a check."""

    def broken(notebook):
        for cell in code_cells(notebook):
            if "nbgrader" in cell.metadata:
                cell.source = cell.source.replace(old, new)

    return broken


def new_source(source):
    return change_code(lambda cell: cell.update(source=source))


BREAKS = {
    "a cell was not run": (counts, change_code(lambda cell: cell.update(execution_count=None))),
    "a cell was run twice": (counts, change_code(lambda cell: cell.update(execution_count=9))),
    "a result of another run": (
        counts,
        new_output("execute_result", data={"text/plain": "1"}, execution_count=99),
    ),
    "another kernel": (metadata, lambda nb: nb.metadata.kernelspec.update(name="my-env")),
    "widget state": (metadata, lambda nb: nb.metadata.update(widgets={})),
    "an id twice": (ids, lambda nb: nb.cells[1].update(id=nb.cells[2].id)),
    "no id": (ids, lambda nb: nb.cells[1].pop("id")),
    "a path in a print": (paths, new_output("stream", name="stdout", text="/home/ada/lab/x.py:1")),
    "a path in a source": (paths, new_source("data = '/Users/ada/x'")),
    "a path of Windows": (paths, new_output("stream", name="stdout", text=r"C:\Users\ada")),
    "an error": (errors, new_output("error", ename="ValueError", evalue="x", traceback=[])),
    "a tag only": (errors, change_code(lambda cell: cell.metadata.update(tags=["raises-exception"]))),
    "a warning": (stderr, new_output("stream", name="stderr", text="UserWarning: careful")),
    "no description": (pictures, lambda nb: picture(nb).metadata.clear()),
    "a short one": (pictures, lambda nb: picture(nb).metadata["image/png"].update(alt="Figure")),
    "described apart": (pictures, lambda nb: picture(nb).data.update({"text/plain": "<Figure>"})),
    "a picture in the text": (
        pictures,
        lambda nb: nb.cells[0].update(source=nb.cells[0].source + "\n![x](y.png)"),
    ),
    "another kind": (pictures, new_output("display_data", data={"application/javascript": "alert(1)"})),
    "too big": (size, new_output("display_data", data={"image/png": "A" * MAX_BYTES})),
    "a long cell": (cells, new_source("x = 1\n" * (MAX_LINES + 1))),
    "an empty cell": (cells, new_source("  ")),
    "a semicolon": (cells, new_source("1;")),
    "left out by a tag": (compared, change_code(lambda cell: cell.metadata.update(tags=["nbval-skip"]))),
    "left out for no reason": (compared, change_code(lambda cell: cell.metadata.update(tags=[MEASURED]))),
    "left out by a comment": (compared, new_source("# NBVAL_IGNORE_OUTPUT\n1")),
    "a version": (compared, new_output("stream", name="stdout", text="torch 2.13.0")),
    "a time": (compared, new_output("stream", name="stdout", text="took 12 ms")),
    "another package": (imports, new_source("import pandas")),
    "a part of another": (imports, new_source("from scipy.special import softmax")),
    "a file": (files, new_source("open('../figures/x.png')")),
    "an installation": (files, new_source("%pip install x")),
    "another set-up": (
        set_up,
        lambda nb: code_cells(nb)[0].update(source="%pip install -q mha_lab"),
    ),
    "another number": (anatomy, change_text("# 01 ", "# 07 ")),
    "no minutes": (anatomy, change_text("**Time**", "Time")),
    "steps out of order": (anatomy, change_text("## 3 ", "## 4 ")),
    "nothing broken": (anatomy, change_text("Break it", "Look at it")),
    "no comparison": (anatomy, change_text("Compare with PyTorch", "More")),
    "no way on": (anatomy, change_text("(02_toy_queries_keys_values.ipynb)", "(03_splitting_heads.ipynb)")),
    "no difficulty": (exercises, change_text("· easy, ", "· ")),
    "a hint less": (exercises, change_text("<details><summary>Hint 3</summary>", "")),
    "hints side by side": (
        exercises,
        change_text("<details><summary>Hint 3", "</details><details><summary>Hint 3"),
    ),
    "another heading": (exercises, change_text("Exercise: scaled_scores", "Exercise: scores")),
    "no example": (exercises, change_text("Example: ", "")),
    "no check": (exercises, change_exercise("check(scaled_scores)", "scaled_scores")),
    "a check twice": (exercises, change_exercise("check(attention_weights)", "check(scaled_scores)")),
    "another function": (exercises, change_exercise("def scaled_scores", "def scores")),
    "other arguments": (exercises, change_exercise("(query, key)", "(q, k)")),
    "a link to nothing": (links, change_text("(02_toy_queries_keys_values.ipynb)", "(02_toys.ipynb)")),
    "no such heading": (
        links,
        change_text("(02_toy_queries_keys_values.ipynb)", "(02_toy_queries_keys_values.ipynb#nowhere)"),
    ),
    "a link without https": (links, change_text("https://", "http://")),
}


@pytest.mark.parametrize(("rule", "broken"), list(BREAKS.values()), ids=list(BREAKS))
def test_the_rule_sees_what_breaks_it(rule, broken):
    name = "01_single_head_attention"
    notebook = read(name)
    before = copy.deepcopy(notebook)
    broken(notebook)
    assert notebook != before
    assert list(rule(notebook, name))


def test_every_rule_was_seen_to_fail():
    assert {rule for rule, _ in BREAKS.values()} == set(RULES)
