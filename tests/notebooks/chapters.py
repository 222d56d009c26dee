"""Where the chapters are, and what else the tests of the notebooks share."""

import copy
import json
from pathlib import Path

from nbformat import NotebookNode

from tools.notebooks import read_whole

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))
NAMES = [path.stem for path in PATHS]
MEASURED = "nbval-ignore-output"  # the tag of a cell that trains or measures


def read(name: str) -> NotebookNode:
    """One whole chapter by its file's name without the ending: with the outputs that answer predictions."""
    return read_whole(FOLDER / f"{name}.ipynb")


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """The cells that run."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def without_measured(notebook: NotebookNode) -> NotebookNode:
    """The chapter without the outputs that are another at every run: times, losses, progress."""
    kept = copy.deepcopy(notebook)
    for cell in code_cells(kept):
        if MEASURED in cell.metadata.get("tags", []):
            cell.outputs = []
    return kept


def markdown(notebook: NotebookNode) -> str:
    """All text of a chapter."""
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def output_texts(notebook: NotebookNode) -> list[str]:
    """Every text that a reader or a test reads in the outputs, described pictures included."""
    texts = []
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if output.output_type == "stream":
                texts.append(output.text)
            elif output.output_type == "error":
                texts.append("\n".join([output.ename, output.evalue, *output.traceback]))
            else:
                kinds = sorted(kind for kind in output.data if not kind.startswith("image/"))
                texts += [
                    value if isinstance(value := output.data[kind], str) else json.dumps(value)
                    for kind in kinds
                ]
                texts += [text for text in alternative_texts(output) if text]
    return texts


def alternative_texts(output: NotebookNode) -> list[str | None]:
    """What stands for each picture of one output where the picture cannot be seen."""
    pictures = [kind for kind in output.get("data", {}) if kind.startswith("image/")]
    return [output.metadata.get(kind, {}).get("alt") for kind in pictures]
