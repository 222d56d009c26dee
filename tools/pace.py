"""How long a chapter takes: an honest count of its core path.

``minutes = words / 180 + predictions + 1.5 x long code cells + the minutes of the exercises``. A code cell
is long if a reader sees over 8 lines of it. What is optional does not count: a section whose heading begins
with "Appendix", a fold that begins with "Optional", an exercise whose heading ends with "optional". Hints
belong to the minutes of their exercise.
"""

import math
import re
from collections.abc import Iterator
from itertools import takewhile

from nbformat import NotebookNode

from mha_course.exercises import names

WORDS_A_MINUTE = 180
PREDICTION = 1.0
LONG_CELL = 1.5
MAX_SHORT = 8  # lines
EXERCISE = re.compile(r"^### Exercise: (\w+) · (\w+), (\d+) minutes(, optional)?$", re.MULTILINE)
LEFT_OUT = " (without optional exercises and appendices)"  # behind the minutes; it does not count itself
OPTIONAL = re.compile(r"<details>\s*<summary>Optional.*?</details>", re.DOTALL)
TARGET = re.compile(r"\]\([^)\s]*\)|<[^>]*>|\$\$.*?\$\$", re.DOTALL)


def hidden(cell: NotebookNode) -> bool:
    """Whether a reader sees a code cell only after opening it."""
    return bool(cell.metadata.get("jupyter", {}).get("source_hidden"))


def has_optional_parts(notebook: NotebookNode) -> bool:
    """Whether a chapter has an optional exercise or an appendix, which its minutes leave out."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    optional = any(exercise[4] for exercise in EXERCISE.finditer(text))
    return optional or re.search(r"^## (\d+ )?Appendix", text, re.MULTILINE) is not None


def core(notebook: NotebookNode) -> Iterator[NotebookNode]:
    """The cells of the core path; an exercise is there with its text only."""
    optional = False
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and (heading := re.match(r"## (?:\d+ )?(\w+)", cell.source)):
            optional = heading[1] == "Appendix"
        stub = cell.cell_type == "code" and re.match(r"(?:def|check)\W?\(?(\w+)", cell.source)
        if not optional and not (stub and stub[1] in names()):
            yield cell


def cost(cell: NotebookNode) -> float:
    """The minutes of one cell of the core path."""
    if cell.cell_type == "code":
        lines = [line for line in cell.source.splitlines() if line.strip()]
        return LONG_CELL * (len(lines) > MAX_SHORT and not hidden(cell)) + PREDICTION * (
            "quiz.ask(" in cell.source
        )
    if exercise := EXERCISE.search(cell.source):
        return 0 if exercise[4] else int(exercise[3])
    text = TARGET.sub(" ", OPTIONAL.sub(" ", cell.source.replace(LEFT_OUT, "")))
    words = len(re.findall(r"\S*\w\S*", text))
    return words / WORDS_A_MINUTE + PREDICTION * text.count("**Predict**")


def minutes(notebook: NotebookNode, before: str | None = None) -> int:
    """The minutes of the core path, or of what stands before a heading of it, rounded up to the next 5."""
    cells = takewhile(lambda cell: not (before and cell.source.startswith(before)), core(notebook))
    return 5 * math.ceil(sum(map(cost, cells)) / 5)
