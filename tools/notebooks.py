"""Run the chapters and store their outputs, cleaned: ``python tools/notebooks.py run [NAME ...]``.

``run`` executes each chapter in one fresh kernel of this Python and writes it back. ``refresh`` writes only
those whose outputs or pictures have changed. ``clean`` writes back the stored outputs, after a change of
text only; ``check`` says which chapters are not clean. ``merge`` writes whole chapters into
``build/chapters``.

Cleaning keeps what a reader sees and what a test compares (outputs, counts, ids, tags, alternative texts) and
drops the rest (times, versions, widget state), so that a second run on one machine gives the same bytes. It
also marks the exercises for nbgrader, so that a chapter can be used as an assignment without changes.

A cell with the tag ``predict`` answers a question that the reader should think about first. Its outputs are
not in the chapter but in ``notebooks/expected/``. A chapter with these outputs in it is called whole.
"""

import argparse
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import nbformat
from ipykernel.kernelspec import get_kernel_dict
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

from mha_course.exercises import find, names

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "notebooks"
MERGED = ROOT / "build" / "chapters"
PREDICT = "predict"  # the tag of a cell whose outputs answer a prediction
# What JupyterLab writes when it opens a chapter, so that opening changes nothing, but no version of Python:
# labextension/main.js in mha_course/explore knows that another version is no change of the reader's.
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {
        "codemirror_mode": {"name": "ipython", "version": 3},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
    },
}
WIDGET = "application/vnd.jupyter.widget-view+json"
SLOW_START = "Matplotlib is building the font cache; this may take a moment.\n"
KEPT_CELL_METADATA = {"tags", "jupyter"}


class OnePython(KernelSpecManager):
    """Always uses this interpreter, whatever kernel is asked for: no kernel that a user installed."""

    interpreter = sys.executable

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        spec = get_kernel_dict(extra_arguments=["--log-level=ERROR"])
        spec["argv"][0] = self.interpreter
        return KernelSpec(resource_dir="", **spec)


def execute(
    notebook: NotebookNode,
    folder: Path,
    python: str = sys.executable,
    variables: dict[str, str] | None = None,
) -> None:
    """Run all cells in one fresh kernel of ``python``, in ``folder``, with ``variables`` added."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    specs = OnePython()
    specs.interpreter = python
    manager = AsyncKernelManager(kernel_spec_manager=specs)
    client = NotebookClient(notebook, km=manager, timeout=300, resources={"metadata": {"path": str(folder)}})
    # A backend chosen in the shell would keep the pictures out of the notebook.
    env = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    env |= variables or {}
    client.execute(cleanup_kc=True, env=env)


def clean(notebook: NotebookNode, name: str) -> NotebookNode:
    """A copy with only what a reader sees and a test compares. Cleaning twice changes nothing."""
    cleaned = nbformat.from_dict(notebook)
    cleaned.metadata = nbformat.from_dict(METADATA)
    cleaned.nbformat, cleaned.nbformat_minor = 4, 5
    taken = {cell.get("id") for cell in cleaned.cells}
    for position, cell in enumerate(cleaned.cells):
        if not cell.get("id"):
            cell.id = _new_id(f"{name[:2]}-{position:02}", taken)
        cell.metadata = nbformat.from_dict(
            {k: v for k, v in cell.metadata.items() if k in KEPT_CELL_METADATA}
        )
        cell.source = cell.source.strip("\n")
        cell.pop("attachments", None)
        if cell.cell_type == "code":
            cell.outputs = _merge_streams([output for output in cell.outputs if not _is_progress(output)])
            for output in cell.outputs:
                output.get("data", {}).pop(WIDGET, None)  # the picture beside it is kept
    _mark_exercises([cell for cell in cleaned.cells if cell.cell_type == "code"])
    return cleaned


def exercise_of(cell: NotebookNode) -> str | None:
    """The exercise that a cell checks: its last line is ``check(name)``."""
    found = re.fullmatch(r"check\((\w+)\)", cell.source.rstrip().rpartition("\n")[2])
    return found[1] if found and found[1] in names() else None


def _mark_exercises(cells: list[NotebookNode]) -> None:
    """nbgrader's marks: ``check(name)`` earns the points, the cell before it is the learner's."""
    for before, cell in pairwise(cells):
        if name := exercise_of(cell):
            common = {"schema_version": 3, "task": False}
            before.metadata.nbgrader = nbformat.from_dict(
                {**common, "grade_id": name, "grade": False, "locked": False, "solution": True}
            )
            cell.metadata.nbgrader = nbformat.from_dict(
                {**common, "grade_id": f"check-{name}", "grade": True, "locked": True, "solution": False}
                | {"points": find(name).points}
            )


def _new_id(wanted: str, taken: set[str]) -> str:
    """``wanted``, with letters added to it if another cell has it already."""
    while wanted in taken:
        wanted += "b"
    taken.add(wanted)
    return wanted


def _is_progress(output: NotebookNode) -> bool:
    """A progress bar that only a live kernel fills, or what Matplotlib says at a slow first start."""
    return output.get("text") == SLOW_START or set(output.get("data", {})) == {WIDGET, "text/plain"}


def _merge_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Join neighbouring prints: a kernel splits them at random places."""
    merged: list[NotebookNode] = []
    for output in outputs:
        last = merged[-1] if merged else None
        if last and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            merged.append(output)
    return merged


def to_text(notebook: NotebookNode) -> str:
    """The file's content."""
    return nbformat.writes(notebook) + "\n"


def expected(path: Path) -> Path:
    """The file with the outputs that a chapter does not show before it runs."""
    return path.parent / "expected" / f"{path.stem}.json"


def read_whole(path: Path) -> NotebookNode:
    """A chapter with all its outputs, also those that answer a prediction."""
    notebook, file = nbformat.read(path, as_version=4), expected(path)
    outputs = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code, 1):
        if cell.id in outputs and not cell.outputs:
            cell.outputs, cell.execution_count = nbformat.from_dict(outputs[cell.id]), number
        elif PREDICT in cell.metadata.get("tags", []):
            cell.execution_count = number
    return notebook


def files(path: Path, whole: NotebookNode) -> dict[Path, str]:
    """The content of a chapter's two files: itself, and the outputs that answer its predictions."""
    stored, hidden = nbformat.from_dict(whole), {}
    for cell in stored.cells:
        if cell.cell_type == "code" and PREDICT in cell.metadata.get("tags", []):
            if cell.outputs:
                hidden[cell.id] = cell.outputs
            cell.outputs, cell.execution_count = [], None
    apart = json.dumps(hidden, indent=1, sort_keys=True, ensure_ascii=False) + "\n" if hidden else ""
    return {path: to_text(stored), expected(path): apart}


def different(path: Path, whole: NotebookNode) -> dict[Path, str]:
    """Those of the chapter's files that the disk has with another content; no content means no file."""
    return {
        file: text
        for file, text in files(path, whole).items()
        if (file.read_text(encoding="utf-8") if file.is_file() else "") != text
    }


def write(texts: dict[Path, str]) -> None:
    """Write files, the same bytes on every system; a file without content is removed."""
    for file, text in texts.items():
        file.parent.mkdir(exist_ok=True)
        if text:
            file.write_text(text, encoding="utf-8", newline="\n")
        else:
            file.unlink(missing_ok=True)


def run(paths: list[Path]) -> int:
    """Execute, clean and write each chapter. A chapter that fails does not change."""
    for path in paths:
        start = time.perf_counter()
        notebook = nbformat.read(path, as_version=4)
        try:
            execute(notebook, path.parent)
        except CellExecutionError as error:
            print(f"{path.name}: not written, a cell failed\n\n{error}", file=sys.stderr)
            return 1
        texts = files(path, clean(notebook, path.stem))
        write(texts)
        size = sum(len(text.encode()) for text in texts.values()) / 1000
        print(f"{path.name:34} {time.perf_counter() - start:5.1f} s  {size:4.0f} kB", flush=True)
    return 0


def refresh(paths: list[Path]) -> int:
    """Execute each chapter, and write those whose outputs or pictures have changed."""
    from tools.pictures import all_same

    changed = []
    for path in paths:
        notebook = read_whole(path)
        stored = clean(notebook, path.stem)
        try:
            execute(notebook, path.parent)
        except CellExecutionError as error:
            print(f"{path.name}: not written, a cell failed\n\n{error}", file=sys.stderr)
            return 1
        fresh = clean(notebook, path.stem)
        if any(_changed(*cells, all_same) for cells in zip(stored.cells, fresh.cells, strict=True)):
            for old, new in zip(stored.cells, fresh.cells, strict=True):
                if _measures(old):  # its outputs are others at each run, whatever has changed
                    new.outputs = old.outputs
            write(files(path, fresh))
            changed.append(path.name)
        print(f"{path.name}: {'written again' if path.name in changed else 'as stored'}", flush=True)
    return 0


def _measures(cell: NotebookNode) -> bool:
    """Whether a cell trains, or measures time, or shows what was trained or measured."""
    return bool({"nbval-ignore-output", "trained"} & set(cell.metadata.get("tags", [])))


def _changed(stored: NotebookNode, fresh: NotebookNode, same_pictures: Callable[..., bool]) -> bool:
    """Whether a cell shows something else; cells that train or measure always do, and do not count."""
    if stored.cell_type != "code" or _measures(stored):
        return False

    def words(cell: NotebookNode) -> str:
        kept = [{**output, "data": {**output.get("data", {}), "image/png": ""}} for output in cell.outputs]
        return json.dumps(kept, sort_keys=True)

    return words(stored) != words(fresh) or not same_pictures(fresh.outputs, stored.outputs)


def dirty(paths: list[Path]) -> Iterator[tuple[Path, dict[Path, str]]]:
    """Each chapter that cleaning would change, with the files that would change."""
    for path in paths:
        if found := different(path, clean(read_whole(path), path.stem)):
            yield path, found


def clean_stored(paths: list[Path]) -> int:
    """Clean chapters without running them: their outputs stay."""
    for path, texts in dirty(paths):
        write(texts)
        print(path.name)
    return 0


def check(paths: list[Path]) -> int:
    """Say which chapters are not clean."""
    found = list(dirty(paths))
    for path, _ in found:
        print(f"{path.name}: not clean; run `make format`", file=sys.stderr)
    return 1 if found else 0


def merge(paths: list[Path]) -> int:
    """Write whole chapters into ``build/chapters``, where nbval runs and compares them."""
    shutil.rmtree(MERGED, ignore_errors=True)
    MERGED.mkdir(parents=True)
    for path in paths:
        write({MERGED / path.name: to_text(read_whole(path))})
    return 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["run", "refresh", "clean", "check", "merge"])
    parser.add_argument("chapters", nargs="*", help="file names or their first letters; all if none")
    given = parser.parse_args(arguments)
    paths = sorted(FOLDER.glob("*.ipynb"))
    if given.chapters:
        starts = tuple(Path(chapter).name for chapter in given.chapters)
        paths = [path for path in paths if path.name.startswith(starts)]
    if not paths:
        print(f"no chapter matches {given.chapters}", file=sys.stderr)
        return 1
    commands = {"run": run, "refresh": refresh, "clean": clean_stored, "check": check, "merge": merge}
    return commands[given.command](paths)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
