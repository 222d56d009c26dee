"""What a teacher gives to students, or shows to them: ``python -m tools.handout zip`` and ``... projector``.

``zip`` packs the chapters, the package as a wheel, and an installation text into one file, so that a class
can work with a course that is not published. ``projector`` copies chapters without outputs and answers.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from mha_course.exercises import names
from tools.notebooks import to_text
from tools.sheets import ASKED
from tools.sync import LAUNCH, chapter_paths

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"
FOLDER = "attention"  # in the zip
TEXT = Path(__file__).with_name("install.txt")
# Links to other chapters; a chapter that is handed out alone has their text.
TO_CHAPTER = re.compile(r"\[([^\[\]]+)\]\(\d\d_\w+\.ipynb(?:#[^)\s]*)?\)")
# What a text before a folded cell, or the first line of the cell, says if its code solves an exercise.
SOLVES = re.compile(rf"(?i)\banswer to (?:the exercise|`?({'|'.join(names())})\b)")
LEFT_OUT = "# The code of this cell is left out: it shows the answer to an exercise."
FOLD = re.compile(r"\n*<details>(?:(?!<details>).)*?</details>", re.DOTALL)  # one without another in it


TOGETHER = """\
A link from one chapter to another works while both files are in the same
folder. You can also run a chapter without the others."""
ALONE = """\
This folder has one chapter. Where the course has a link to another chapter,
this copy only has its name. The chapter needs no other chapter."""


def distributions(folder: Path) -> list[Path]:
    """The source distribution, and from it the wheel, in ``folder``."""
    build = [sys.executable, "-m", "build", "--outdir", folder, ROOT]
    subprocess.run(build, check=True, capture_output=True, timeout=1800)
    return sorted(folder.iterdir())


def handed_out(notebook: NotebookNode, alone: bool = False) -> NotebookNode:
    """A chapter that needs no address; its set-up cell finds the wheel beside it.

    Handed out alone, it has text in the place of links to other chapters.
    """
    copy = nbformat.from_dict(notebook)
    copy.cells[0].source = LAUNCH.sub("", copy.cells[0].source)
    for cell in copy.cells:
        if cell.cell_type != "code" and alone:
            cell.source = TO_CHAPTER.sub(r"\1", cell.source)
    return copy


def projected(notebook: NotebookNode) -> NotebookNode:
    """A chapter without outputs, and without folds: hints, answers to predictions, and what is optional.

    A folded cell that solves an exercise is empty. A cell that answers a question above it is folded.
    """
    copy, before, asked = nbformat.from_dict(notebook), "", False
    for cell in copy.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
            folded = cell.metadata.get("jupyter", {}).get("source_hidden")
            if folded and SOLVES.search(f"{before}\n{cell.source.partition(chr(10))[0]}"):
                cell.source = LEFT_OUT
            asks = ASKED.search(cell.source)
            if asked and not asks and "predict" in cell.metadata.get("tags", []):
                cell.metadata["jupyter"] = {"source_hidden": True}
            asked, before = asks, ""
            continue
        before, asked = cell.source, asked and FOLD.search(cell.source) is None
        while FOLD.search(cell.source):
            cell.source = FOLD.sub("", cell.source)
        cell.source = cell.source.strip("\n")
    copy.cells = [cell for cell in copy.cells if cell.source]
    return copy


def pack(out: Path, only: str = "") -> None:
    """Write the zip for students: all chapters, or only the one whose name begins like this."""
    paths = chapter_paths(ROOT / "notebooks")
    chosen = [path for path in paths if path.name.startswith(only)]
    shown = chosen[0] if only else next(path for path in paths if path.name.startswith("03"))
    words = {
        "folder": FOLDER,
        "chapters": "the chapter" if only else "the chapters",
        "opened": chosen[0].name,
        "opens": "the chapter" if only else "the first chapter",
        "number": shown.name[:2],
        "handed in": shown.name,
        "links": ALONE if only else TOGETHER,
    }
    with tempfile.TemporaryDirectory() as made, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        wheel = next(path for path in distributions(Path(made)) if path.suffix == ".whl")
        packed.write(wheel, f"{FOLDER}/{wheel.name}")
        packed.write(ROOT / "constraints.txt", f"{FOLDER}/constraints.txt")
        text = TEXT.read_text(encoding="utf-8").replace("{wheel}", wheel.name)
        for name, word in words.items():
            text = text.replace(f"{{{name}}}", word)
        packed.writestr(f"{FOLDER}/INSTALL.txt", text.replace("\n", "\r\n"))  # older editors of Windows
        for path in chosen:
            chapter = handed_out(nbformat.read(path, as_version=4), alone=bool(only))
            packed.writestr(f"{FOLDER}/{path.name}", to_text(chapter))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["zip", "projector"])
    parser.add_argument("chapter", nargs="?", default="", help="such as 03; all if none")
    given = parser.parse_args(arguments)
    paths = [path for path in chapter_paths(ROOT / "notebooks") if path.name.startswith(given.chapter)]
    if given.command == "zip" and (len(paths) == 1 or not given.chapter):
        BUILD.mkdir(exist_ok=True)
        out = BUILD / (f"handout-{paths[0].name[:2]}.zip" if given.chapter else "handout.zip")
        pack(out, given.chapter)
        print(out)
        return 0
    if given.command == "zip":
        print(f"not one chapter begins with {given.chapter}: say, for example, CHAPTER=03", file=sys.stderr)
        return 1
    for path in paths:
        out = BUILD / "projector" / path.name
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(to_text(projected(nbformat.read(path, as_version=4))), encoding="utf-8", newline="\n")
        print(out)
    if not paths:
        print(f"no chapter begins with {given.chapter}", file=sys.stderr)
    return int(not paths)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
