"""Takes one notebook from a folder that somebody else may have filled with anything.

Exactly one file is read: a regular file with one name, with no link in its path, of a sensible size.
Only the cells' texts are taken from it; a cell that cannot be taken is left out, and a line says so.
"""

import json
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

MAX_FILE = 20 * 2**20  # bytes of a notebook with its pictures
MAX_CELLS = 1000
MAX_CELL = 100_000  # characters of one cell
MAX_TEXT = 1_000_000  # characters of all cells
MAX_LINES = 5000  # of one cell
LEFT_OUT = "The grader left out this cell: {}."
PASTED = re.compile(r"data:[\w/+.-]+;base64,[\w+/=]*")  # a picture in a text
FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
FILE = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)


FULL = "the disk is full: make room, and run the same command again"


class Refused(ValueError):
    """One sentence that says why a submission is not taken."""


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
    """Whether this is a line that stands in the place of a cell. Who types one gains nothing."""
    return re.fullmatch(LEFT_OUT.format(r"it [a-z][\w ,]{0,100}"), text) is not None


def is_copy(name: str, chapter: str) -> bool:
    """Whether this is a chapter's file, or a copy that a browser or a platform has renamed."""
    renamed = r"(?:[ _-]+(?:\(\d+\)|copy\d*|\d+)|\(\d+\))*"
    return re.fullmatch(rf"{re.escape(chapter)}{renamed}\.ipynb", name, re.IGNORECASE) is not None


def file_of(folder: Path, chapter: str) -> str:
    """The name of a chapter's file in a student's folder for it; if there are several, the newest."""
    exact = f"{chapter}.ipynb"
    entries = [] if folder.is_symlink() or not folder.is_dir() else list(os.scandir(folder))
    copies = [entry for entry in entries if is_copy(entry.name, chapter)]
    if not copies or any(entry.is_symlink() or not entry.is_file() for entry in copies):
        return exact  # reading it says what is wrong
    return max(copies, key=lambda entry: (entry.stat().st_mtime, entry.name == exact, entry.name)).name


def students(folder: Path, chapter: str) -> tuple[list[str], dict[str, str]]:
    """Who handed a chapter in, below ``folder``, and which folders cannot be graded, with the reason."""
    found, refused = [], {}
    for entry in _entries(folder):
        try:
            inside = _inside(entry)
        except OSError as error:
            refused[entry.name] = f"its folder cannot be read: {error.strerror}"
            continue
        near = [name for name in inside if name.casefold().startswith(chapter.casefold())]
        if entry.is_symlink():
            refused[entry.name] = "it is a link"
        elif near and chapter not in near:
            refused[entry.name] = f"{near[0]!a} is not in a folder {chapter}/"
        elif near:
            if reason := bad_name(entry.name):
                refused[entry.name] = reason
            else:
                found.append(entry.name)
    return found, refused


def others(folder: Path, chapters: set[str]) -> list[str]:
    """All in ``folder`` that is not ``STUDENT/CHAPTER/``: files, archives, folders with other names."""
    found = []
    for entry in _entries(folder):
        if entry.is_symlink() or not entry.is_dir():
            found.append(entry.name)
            continue
        with suppress(OSError):
            found += [f"{entry.name}/{name}" for name in _inside(entry) if name not in chapters]
    return [name for name in found if not name.rpartition("/")[2].startswith(".")]


def _entries(folder: Path) -> list[os.DirEntry]:
    return sorted(os.scandir(folder), key=lambda entry: entry.name) if folder.is_dir() else []


def _inside(entry: os.DirEntry) -> list[str]:
    """The names in a folder that is not a link."""
    return (
        []
        if entry.is_symlink() or not entry.is_dir()
        else sorted(path.name for path in Path(entry.path).iterdir())
    )


def bad_name(name: str) -> str:
    """Why a folder's name cannot be a student's; empty if it can."""
    if not name.isprintable():
        return "its name has a character that cannot be shown; rename the folder"
    if name != name.strip():
        return "its name begins or ends with a blank; rename the folder"
    if not name[:1].isalnum():
        return "its name must begin with a letter or a digit; rename the folder"
    if odd := sorted(set(name) & set('[]{}*?\\"<>|:;=')):
        return f"its name contains {' '.join(odd)}; rename the folder"
    return ""
