"""What a stored chapter must be, rule by rule; what `make sync` writes is held in test_sync.py."""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from itertools import accumulate, pairwise, takewhile
from pathlib import Path
from urllib.parse import unquote

import pytest
from nbformat import NotebookNode

from mha_course.exercises import find, names
from mha_course.explore._widget import START
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
from tools.handout import FOLD
from tools.notebooks import PREDICT, exercise_of
from tools.pace import EXERCISE, core, hidden, minutes
from tools.pictures import TRAINED
from tools.site import anchor

MIN_DESCRIPTION = 40
MAX_MINUTES, MAX_LINES, MAX_WIDTH = 60, 15, 80
NUMBER = re.compile(r"(?<![\w.])\d+\.\d\d+(?![\w.])")  # with two decimals or more
HEADING = re.compile(r"^## ", re.MULTILINE)
NEARBY = 2  # steps after a prediction's own, in which a table can repeat the numbers that answer it
CORE = {"torch", "numpy", "einops", "jaxtyping", "matplotlib", "seaborn", "tqdm", "safetensors"}
CORE |= {"mha_course", "mha_lab"}
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
        if any(
            output.get("execution_count", cell.execution_count) != cell.execution_count
            for output in cell.outputs
        ):
            yield f"cell {cell.execution_count}: a result with another number"


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


def cells(notebook: NotebookNode, name: str) -> Iterator[str]:
    """A cell holds something, and keeps no repr out of sight; the set-up shows nothing and is folded."""
    if code_cells(notebook)[0].outputs:
        yield "the set-up cell shows something"
    if not hidden(code_cells(notebook)[0]):
        yield "the set-up cell is not folded"
    for cell in notebook.cells:
        if not cell.source.strip():
            yield "an empty cell"
        if cell.cell_type == "code" and cell.source.rstrip().endswith(";"):
            yield f"cell {cell.execution_count} ends in a semicolon, behind which nbval sees a repr"


def compared(notebook: NotebookNode, name: str) -> Iterator[str]:
    """No cell takes itself out of the comparison but to train, to measure, or to show or run code of another
    library, which differs with its version; the others print no time."""
    for cell in code_cells(notebook):
        tags = " ".join(cell.metadata.get("tags", []))
        marks = re.findall(r"nbval[-_]\w+", (cell.source + tags).lower())
        if marks and (
            tags.replace(PREDICT, "").strip() != MEASURED
            or not re.search(
                r"\btqdm\(|\bmeasure|\bprofile|\breading\.(original_code|compared)\(", cell.source
            )
        ):
            yield f"cell {cell.execution_count}: {marks}"
    for text in output_texts(without_measured(notebook)):
        if re.search(r"\b\d+\.\d+\.\d+\b|\b\d+(\.\d+)? ?(ms|µs|seconds)\b", text):
            yield f"a version or a time in {text[:80]!r}"


def trained(notebook: NotebookNode, name: str) -> Iterator[str]:
    """A cell with the tag shows a picture; what else it shows would not be compared.

    ``make test-processors`` finds a cell that shows trained weights without the tag.
    """
    for cell in code_cells(notebook):
        if TRAINED in cell.metadata.get("tags", []):
            shown = [output for output in cell.outputs if output.output_type != "stream"]
            if not shown or any("image/png" not in output.get("data", {}) for output in shown):
                yield f"cell {cell.execution_count}: the tag {TRAINED} without a picture"


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


def anatomy(notebook: NotebookNode, name: str) -> Iterator[str]:
    """Title, promise, set-up, numbered steps, one mistake on purpose, PyTorch's own, what is next."""
    first = notebook.cells[0].source
    if not re.match(rf"# {name[:2]} \S.*\n\n\S", first):
        yield f"the title does not start with {name[:2]}, or no promise follows"
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
        if not re.fullmatch(r"(easy|medium|hard), \d+ minutes(, optional)?", rest):
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
        if not re.search(r"^(Example|Symptom|Predict|First,? predict)", text.source, re.MULTILINE):
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


def predictions(notebook: NotebookNode, name: str) -> Iterator[str]:
    """What answers a prediction shows nothing before it runs, and the explanation after it is folded."""
    cells = notebook.cells
    for i, cell in enumerate(cells):
        if cell.cell_type != "markdown" or "**Predict**" not in cell.source:
            continue
        if "### Exercise" in cell.source:
            continue
        shown = list(takewhile(lambda cell: cell.cell_type == "code", cells[i + 1 :]))
        if not shown:
            yield f"no code answers {cell.source[-80:]!r}"
        for code in shown:
            live = re.search(r"\b(explore|quiz)\.", code.source)
            if code.outputs and not live and PREDICT not in code.metadata.get("tags", []):
                yield f"cell {code.execution_count} answers a prediction without the tag {PREDICT}"
        after = cells[i + 1 + len(shown)]
        if not re.match(r"<details><summary>Compare after running it</summary>\n\n|#", after.source):
            yield f"the explanation is not folded: {after.source[:60]!r}"


def numbers(text: str) -> set[str]:
    """The numbers of a text, without those that every layer prints, such as 1.00."""
    return {number for number in NUMBER.findall(text) if float(number) not in (0, 1)}


def open_text(cell: NotebookNode) -> str:
    """What a reader sees of a cell who has run nothing and opened no fold."""
    if cell.cell_type == "code":
        stored = PREDICT not in cell.metadata.get("tags", [])
        return "\n".join(output_texts(NotebookNode(cells=[cell]))) if stored else ""
    text = cell.source
    while FOLD.search(text):  # a fold in a fold goes first
        text = FOLD.sub("", text)
    return text


def in_sight(notebook: NotebookNode, name: str) -> Iterator[str]:
    """Numbers that answer a prediction stand open nowhere near it, in text or in a stored output.

    In the prediction's own step, one such number is enough. In the next steps one may be chance, but two
    in one cell are not. What the reader has before the prediction is given. Explorables keep their stills.
    """
    steps = list(accumulate(bool(HEADING.search(cell.source)) for cell in notebook.cells))
    each = list(zip(notebook.cells, steps, strict=True))
    for i, (asks, step) in enumerate(each):
        if asks.cell_type != "markdown" or "**Predict**" not in asks.source or "### Exercise" in asks.source:
            continue
        shown = list(takewhile(lambda cell: cell.cell_type == "code", notebook.cells[i + 1 :]))
        given = numbers("\n".join(cell.source for cell in [*notebook.cells[: i + 1], *shown]))
        hidden = [cell for cell in shown if PREDICT in cell.metadata.get("tags", [])]
        answers = numbers("\n".join(output_texts(NotebookNode(cells=hidden)))) - given
        for cell, at in each[i + 1 + len(shown) :]:
            if at > step + NEARBY or (at > step and re.match(r"## \d+ Appendix", cell.source)):
                break
            live = cell.cell_type == "code" and re.search(r"\b(explore|quiz)\.", cell.source)
            found = set() if live else numbers(open_text(cell)) & answers
            if len(found) > (at > step):
                yield f"{sorted(found)} answer {asks.source[-60:]!r} and stand open in {cell.source[:40]!r}"


def pace(notebook: NotebookNode, name: str) -> Iterator[str]:
    """At most an hour, and cells that fit on a page and on a projector."""
    if minutes(notebook) > MAX_MINUTES:
        yield f"{minutes(notebook)} minutes"
    unfinished = [
        stub
        for text, stub in pairwise(notebook.cells)
        if (exercise := EXERCISE.search(text.source)) and not exercise[4]
    ]
    for cell in [*core(notebook), *unfinished]:
        if cell.cell_type == "code" and not hidden(cell):
            lines = [line for line in cell.source.splitlines() if line.strip()]
            if len(lines) > MAX_LINES or max(map(len, lines)) > MAX_WIDTH:
                yield f"cell {cell.execution_count}: {len(lines)} lines, {max(map(len, lines))} wide"


RULES = [
    counts, ids, paths, errors, stderr, pictures, cells, compared, imports, files, anatomy, exercises, links,
    predictions, in_sight, pace, trained,
]  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_a_chapter_keeps_the_rule(name, rule):
    if broken := list(rule(read(name), name)):
        pytest.fail(f"notebooks/{name}.ipynb:\n" + "\n".join(map(str, broken)), pytrace=False)


def test_the_chapters_are_numbered_without_a_gap():
    assert [name[:2] for name in NAMES] == [f"{number:02}" for number in range(len(NAMES))]
    assert all(re.fullmatch(r"\d\d(_[a-z]+)+", name) for name in NAMES)
    assert {find(exercise).chapter for exercise in names()} <= set(NAMES)
