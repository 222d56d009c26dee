"""Takes one notebook from a folder that somebody else may have filled with anything.

Exactly one file is read: a regular file with one name, with no link in its path, of a sensible size.
Only the cells' texts are taken from it; a cell that cannot be taken is left out, and a line says so.
"""

import json
import os
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from mha_course.grading import shapes
from mha_course.grading.people import bad_name
from mha_course.grading.shapes import MAX_FILE, Refused

MAX_CELLS = 1000
MAX_CELL = 100_000  # characters of one cell
MAX_TEXT = 1_000_000  # characters of all cells
MAX_LINES = 5000  # of one cell
DEEP = 4  # folders in the folder of one student
MANY = 2000  # files and folders of one student that are looked at
LEFT_OUT = "The grader left out this cell: {}."
NOT_RUN = "This cell was left out", "Of this cell, only imports and definitions were run"
BECAUSE_OF = "it ended or blocked Python", "the time was over"
PASTED = re.compile(r"data:[\w/+.-]+;base64,[\w+/=]*")  # a picture in a text
FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
FILE = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
FULL = "the disk is full: make room, and run the same command again"


def read(root: Path, *parts: str) -> tuple[bytes, float, int]:
    """A file's content, the time of its last change by the system's clock, and its owner.

    Args:
        root: a folder that is ours.
        parts: the folders below it, which may belong to somebody else, and the file's name.

    Returns:
        the bytes; the time in seconds since 1970, that of the last change of the file or of its permissions,
        which its owner cannot set; and the number of its owner.

    Raises:
        Refused: a part is a link or missing, or the file is not a regular file, has a second name, or is
            larger than ``MAX_FILE`` bytes.
    """
    handles: list[int] = []
    try:
        for i, part in enumerate(parts):
            where = "/".join(parts[: i + 1])
            last = i == len(parts) - 1
            place = {"dir_fd": handles[-1]} if handles else {}
            path = part if handles else root / part
            if os.open not in os.supports_dir_fd:  # Windows
                place, path = {}, root.joinpath(*parts[: i + 1])
            _looks_right(os.lstat(path, **place), last, where)
            handles.append(os.open(path, FILE if last else FOLDER, **place))
            _looks_right(os.fstat(handles[-1]), last, where)
        with os.fdopen(handles.pop(), "rb") as file:
            data = file.read(MAX_FILE + 1)
            if len(data) > MAX_FILE:
                raise Refused(f"{where!a} is larger than {MAX_FILE >> 20} MB")
            about = os.fstat(file.fileno())
            return data, about.st_ctime, about.st_uid
    except FileNotFoundError:
        raise Refused(f"there is no {where!a}") from None
    except OSError as error:
        raise Refused(f"{where!a} cannot be read: {error.strerror}") from None
    finally:
        for handle in handles:
            os.close(handle)


def _looks_right(found: os.stat_result, last: bool, where: str) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise Refused(f"{where!a} is a link")
    if not last:
        if not stat.S_ISDIR(found.st_mode):
            raise Refused(f"{where!a} is not a folder")
    elif not stat.S_ISREG(found.st_mode):
        raise Refused(f"{where!a} is not a regular file")
    elif found.st_nlink > 1:
        raise Refused(f"{where!a} is a file with a second name elsewhere (a hard link)")


def notebook(data: bytes) -> NotebookNode:
    """The cells' types, texts and names of a submitted notebook, as a new notebook.

    A line stands in the place of a cell that is damaged or too long.

    Raises:
        Refused: it is not a notebook of Jupyter's format 4, or it is too large.
    """
    if not data.strip():
        raise Refused("it is empty: the file was not saved, or not uploaded to its end")
    try:
        found = json.loads(data)
        if found["nbformat"] != 4:
            raise Refused("it is a notebook of another format than Jupyter's 4; save it again in JupyterLab")
        cells = found["cells"]
        if not isinstance(cells, list):
            raise TypeError
        if len(cells) > MAX_CELLS:
            raise Refused(f"it has more than {MAX_CELLS} cells")
        taken = [_cell(cell) for cell in cells]
    except Refused:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Refused("it is not a notebook: its content cannot be read") from None
    if sum(len(cell.source) for cell in taken) > MAX_TEXT:
        raise Refused(f"its cells have more than {MAX_TEXT:,} characters")
    return new_notebook(cells=taken)


def _cell(cell: Any) -> NotebookNode:
    """What is taken of a cell, or a line that says why it is left out."""
    try:
        source = cell["source"]
        source = "".join(source) if isinstance(source, list) else source
        code = cell["cell_type"] == "code"
        source = source if code else PASTED.sub("(a picture)", source)
        source = source.encode("utf-8", "replace").decode()
    except (KeyError, TypeError, AttributeError):
        return new_markdown_cell(LEFT_OUT.format("it is damaged"))
    if len(source) > MAX_CELL:
        return new_markdown_cell(LEFT_OUT.format(f"it has more than {MAX_CELL:,} characters"))
    if len(source.splitlines()) > MAX_LINES:
        return new_markdown_cell(LEFT_OUT.format(f"it has more than {MAX_LINES:,} lines"))
    taken = new_code_cell(source) if code else new_markdown_cell(source)
    metadata = cell.get("metadata")
    mark = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    name = mark.get("grade_id") if isinstance(mark, dict) else None
    if isinstance(name, str) and name.isprintable() and len(name) < 200:
        taken.metadata["nbgrader"] = {"grade_id": name}
    return taken


def is_left_out(text: str) -> bool:
    """Whether this is a line that stands in the place of a cell, or below it. Who types one gains nothing."""
    not_read = re.fullmatch(LEFT_OUT.format(r"it [a-z][\w ,]{0,100}"), text)
    return bool(not_read) or text in {f"{what}: {why}." for what in NOT_RUN for why in BECAUSE_OF}


def files(root: Path, *parts: str, only: Callable[[str], bool] | None = None) -> list[shapes.File]:
    """The files in a folder, and in the folders in it, as far as ``DEEP``; no link is followed.

    Args:
        root: a folder that is ours.
        parts: the folders below it, which may belong to somebody else.
        only: of what is directly in the folder, the names to look at; by default all.

    Raises:
        Refused: it, or a folder directly in it, is a link or cannot be read.
    """
    found: list[shapes.File] = []
    folders: list[tuple[str, ...]] = [()]
    seen = 0
    if root.joinpath(*parts).is_symlink():
        raise Refused(f"{'/'.join(parts)!a} is a link")
    try:
        for inside in folders:  # it grows: the files that are nearest come first
            for entry in _entries(root.joinpath(*parts, *inside), MANY - seen):
                here = *inside, entry.name
                seen += 1
                if (only and not inside and not only(entry.name)) or shapes.LEFT_BEHIND.fullmatch(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders += [here] * (len(here) < DEEP)
                elif not inside and entry.is_dir():
                    raise Refused(f"{'/'.join((*parts, *here))!a} is a link")
                else:
                    changed = entry.stat(follow_symlinks=False).st_mtime
                    newness = changed, shapes.number(entry.name), entry.name
                    found.append(shapes.File("/".join(here), newness, partial(read, root, *parts, *here)))
    except OSError as error:
        raise Refused(f"{'/'.join(parts)!a} cannot be read: {error.strerror}") from None
    return found


def handed_in(course: Path, chapter: str, student: str) -> list[shapes.File]:
    """What a student has in ``submitted/`` for a chapter: files with its name, or in a folder with it."""
    return files(course, "submitted", student, only=partial(shapes.of_chapter, chapter=chapter))


def students(folder: Path, chapter: str) -> tuple[list[str], dict[str, str]]:
    """Who handed a chapter in, below ``folder``, and which folders cannot be graded, with the reason."""
    found, refused = [], {}
    for entry in _entries(folder):
        try:
            inside = _inside(entry)
            near = [
                name
                for name in inside
                if shapes.of_chapter(name, chapter) and not shapes.LEFT_BEHIND.fullmatch(name)
            ]
            astray = [] if near or not inside else _of_nobody(folder, entry.name, chapter)
        except OSError as error:
            refused[entry.name] = f"its folder cannot be read: {error.strerror}"
            continue
        except Refused as reason:
            refused[entry.name] = str(reason)
            continue
        if entry.is_symlink():
            refused[entry.name] = "it is a link"
        elif shapes.of_chapter(entry.name, chapter):
            if inside:
                refused[entry.name] = "it is the name of a chapter: expected STUDENT/CHAPTER/"
        elif astray:
            refused[entry.name] = f"{astray[0]!a} is not in a folder {chapter}/"
        elif near:
            if reason := bad_name(entry.name):
                refused[entry.name] = reason
            else:
                found.append(entry.name)
    return found, refused


def _of_nobody(folder: Path, student: str, chapter: str) -> list[str]:
    """Files with a chapter's name in other folders of a student: whose they are cannot be known."""
    return [f.path for f in files(folder, student) if shapes.kind(f.path, chapter) is shapes.Kind.CHAPTER]


def others(folder: Path, chapters: set[str]) -> list[str]:
    """All in ``folder`` that is not ``STUDENT/CHAPTER/``: files, archives, folders with other names."""
    found = []
    for entry in _entries(folder):
        if entry.is_symlink() or not entry.is_dir():
            found.append(entry.name)
            continue
        with suppress(OSError):
            inside = _inside(entry)
            known = {name for name in inside for each in chapters if shapes.of_chapter(name, each)}
            found += [f"{entry.name}/{name}" for name in inside if name not in known]
    return [name for name in found if not name.rpartition("/")[2].startswith(".")]


def _entries(folder: Path, most: int | None = None) -> list[os.DirEntry]:
    """What is in a folder, sorted by name, but no more than the first ``most`` that the system names."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return sorted(islice(entries, most), key=lambda entry: entry.name)


def _inside(entry: os.DirEntry) -> list[str]:
    """The names in a folder that is not a link."""
    return (
        []
        if entry.is_symlink() or not entry.is_dir()
        else sorted(path.name for path in Path(entry.path).iterdir())
    )
