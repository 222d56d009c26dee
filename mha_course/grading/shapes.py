"""What learners hand in: which of their files is the notebook of a chapter, by its name.

This is the only list of such names. Zip files of platforms, folders and the exchange all use it. Of the files
with the chapter's name, the newest counts that was saved to its end. Files in a zip file count only if there
is no such file beside it, and files with another name only if none has the chapter's.
"""

import io
import re
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, partial
from typing import Any

MAX_FILE = 20 * 2**20  # bytes of a notebook with its pictures, or of a zip file of one student
MAX_PACKED = 1000  # files in a zip file of one student
MAX_PATH = 1000  # characters
TRIES = 10  # files of one student that are read
ARCHIVES = 3  # zip files of one student that are opened
NAMED = 3  # files that a reason names

# What programs leave beside a file. Nobody hands it in on purpose.
LEFT_BEHIND = re.compile(
    r"\.(?!\.?\Z).*|__MACOSX|__pycache__|~\$.*|Thumbs\.db|desktop\.ini|Icon\r", re.I | re.S
)
# Browsers and mail programs append to the ending: `x.ipynb.json`, `x.ipynb.txt`, `x.ipynb (1)`.
NOTEBOOK = re.compile(r"\.ipynb(?:[\s._()-]|\d|json|txt|ipynb)*\Z", re.I)
JSON = re.compile(r"\.json\Z", re.I)  # only after a chapter's name
CHECKPOINT = re.compile(r"checkpoint(_\d+)?_ipynb")  # a copy that Jupyter made, taken out of its folder
ARCHIVE = re.compile(r"\.zip\Z", re.I)
OF_A_CHAPTER = re.compile(r"([01]\d)_[a-z]")  # how the name of each chapter begins
NUMBER = re.compile(r"(\d{1,9})\)?\.ipynb")  # that a program adds to the name of a copy
PLAIN = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
BROKEN = (
    zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError, EOFError, ValueError,
    OSError, OverflowError, MemoryError, IndexError,
)  # fmt: skip


class Refused(ValueError):
    """One sentence that says why a submission is not taken."""


class Kind(Enum):
    """What a name says about a file."""

    CHAPTER = "a notebook with the chapter's name, and whatever stands before and after it"
    CHECKPOINT = "a copy that Jupyter made for itself"
    ANY = "a notebook with another name"
    ANOTHER = "a notebook with the name of another chapter"
    ARCHIVE = "a zip file"
    LEFT_BEHIND = "what a program left behind"
    OTHER = "no notebook"


@dataclass(frozen=True)
class File:
    """A file of one student.

    Args:
        path: below what the student handed in, with "/".
        newness: of two files of a student, the newer one has more.
        read: returns the content, and when and by whom it was changed, if that is known. It raises
            ``Refused`` if the file cannot be taken.
    """

    path: str
    newness: tuple[Any, ...]
    read: Callable[[], tuple[bytes, float, int]]


@dataclass(frozen=True)
class Picked:
    """The file that counts; ``why`` is empty if no other could be meant."""

    path: str
    data: bytes
    changed: float
    owner: int
    why: str


def of_chapter(name: str, chapter: str) -> bool:
    """Whether a chapter's name is in this name, with any signs between its words."""
    return _pattern(chapter).search(_plain(name)) is not None


def kind(path: str, chapter: str, chapters: Iterable[str] = ()) -> Kind:
    """What this file may be, if ``chapter`` was to be handed in."""
    parts = path.split("/")
    if any(LEFT_BEHIND.fullmatch(part) for part in parts):
        return Kind.LEFT_BEHIND
    name, mine = parts[-1][:MAX_PATH], of_chapter(parts[-1], chapter)
    if ARCHIVE.search(name):
        return Kind.ARCHIVE
    if not NOTEBOOK.search(name) and not (mine and JSON.search(name)):
        return Kind.OTHER
    if mine:
        return Kind.CHECKPOINT if CHECKPOINT.search(_plain(name)) else Kind.CHAPTER
    begins = OF_A_CHAPTER.match(_plain(name))
    another = begins is not None and not chapter.startswith(begins[1])
    another = another or any(of_chapter(name, each) for each in chapters if each != chapter)
    return Kind.ANOTHER if another else Kind.ANY


@cache
def _pattern(chapter: str) -> re.Pattern[str]:
    words = "_?".join(re.escape(word) for word in _plain(chapter).split("_") if word)
    return re.compile(rf"(?<!\d)0*{words.lstrip('0')}")


def _plain(name: str) -> str:
    """``_`` for all that is neither a letter nor a digit, and no capitals."""
    return re.sub(r"[\W_]+", "_", unicodedata.normalize("NFKC", name[:MAX_PATH]).casefold())


def number(name: str) -> int:
    """The number that a browser or a platform adds to a name: ``x (2).ipynb``, ``x-2.ipynb``."""
    found = NUMBER.search(name[-MAX_PATH:])
    return int(found[1]) if found else 0


def pick(files: Iterable[File], chapter: str, chapters: Iterable[str] = ()) -> Picked:
    """The file of one student that counts.

    Args:
        files: everything that this student handed in.
        chapter: what was to be handed in.
        chapters: all chapters of the course.

    Raises:
        Refused: there is none.
    """
    refused: list[str] = []
    first, tried = None, 0
    loose = _sorted(files, chapter, chapters)
    for tried, file in enumerate(_in_order(loose, chapter, chapters, refused), 1):
        try:
            found = file.read()
        except Refused as reason:
            refused.append(str(reason))
        else:
            if is_whole(found[0]):
                return Picked(file.path, *found, _why(file, loose, chapter, tried))
            first = first or Picked(file.path, *found, "")
        if tried == TRIES:
            break
    if first:
        return replace(first, why="it is the newest, and none is whole" if tried > 1 else "")
    raise Refused(refused[0] if refused else _nothing(loose, chapter))


def counts(student: str, picked: Picked) -> str:
    """The line that says which of a student's files counts, and why."""
    return f"of the notebooks of {student!a}, {picked.path!a} counts: {picked.why}"


def is_whole(data: bytes) -> bool:
    """Whether this may be a notebook that was saved to its end: seen from outside, it is not parsed."""
    data = data.replace(b"\0", b"")  # UTF-16 has one beside each letter of JSON
    ends = data[:100].lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n")[:1] + data[-100:].rstrip()[-1:]
    return ends == b"{}" and b'"cells"' in data


def _sorted(files: Iterable[File], chapter: str, chapters: Iterable[str]) -> dict[Kind, list[File]]:
    """The files of each kind, the newest first."""
    found: dict[Kind, list[File]] = {each: [] for each in Kind}
    chapters = {*chapters}
    for file in sorted(files, key=lambda file: file.newness, reverse=True):
        found[kind(file.path, chapter, chapters)].append(file)
    return found


def _in_order(
    loose: dict[Kind, list[File]], chapter: str, chapters: Iterable[str], refused: list[str]
) -> Iterator[File]:
    """Those that may count, the best first. Zip files are opened when nothing before them was taken."""
    yield from loose[Kind.CHAPTER]
    inside: list[File] = []
    for archive in loose[Kind.ARCHIVE][:ARCHIVES]:
        try:
            inside += unpacked(archive)
        except Refused as reason:
            refused.append(f"{archive.path!a}: {reason}")
    packed = _sorted(inside, chapter, chapters)
    named = [*packed[Kind.CHAPTER], *loose[Kind.CHECKPOINT], *packed[Kind.CHECKPOINT]]
    yield from named
    if not named and not loose[Kind.CHAPTER]:
        yield from loose[Kind.ANY]
        yield from packed[Kind.ANY]


def _why(file: File, loose: dict[Kind, list[File]], chapter: str, tried: int) -> str:
    """Why this one, if another could be meant."""
    if kind(file.path, chapter) is Kind.ANY:
        return f"there is no notebook with the name {chapter}"
    if tried > 1:
        return "it is the newest that is whole"
    return "it is the newest" if len(loose[Kind.CHAPTER]) > 1 else ""


def _nothing(loose: dict[Kind, list[File]], chapter: str) -> str:
    there = sorted(f.path for what, of_kind in loose.items() if what is not Kind.LEFT_BEHIND for f in of_kind)
    shown = ", ".join(f"{path[:MAX_PATH]!a}" for path in there[:NAMED]) + ", ..." * (len(there) > NAMED)
    return f"there is no notebook of {chapter}" + f", only {shown}" * bool(there)


# Zip files


def unpacked(archive: File) -> list[File]:
    """The files in a zip file of one student. Nothing is written, and what they are called leads nowhere.

    Raises:
        Refused: it cannot be read, or it has more than ``MAX_PACKED`` files.
    """
    data = archive.read()[0]
    if data.count(zipfile.stringCentralDir) > MAX_PACKED:
        raise Refused(f"it has more than {MAX_PACKED:,} files")
    try:
        opened = zipfile.ZipFile(io.BytesIO(data))
        return [
            File(path, (archive.newness, place.date_time, number(path), i), partial(content, opened, place))
            for i, place in enumerate(opened.infolist())
            if (path := path_of(place)) and not path.endswith("/")
        ]
    except BROKEN as error:
        raise Refused(f"it cannot be unpacked: {error}") from None


def path_of(place: zipfile.ZipInfo) -> str:
    """The name of a file in a zip file, with "/", and in UTF-8 also where the zip file does not say so."""
    name = place.filename
    if not place.flag_bits & 0x800:  # what zipfile then takes for the character set of the first PCs
        try:
            name = name.encode("cp437").decode()
        except UnicodeError:
            name = place.filename
    return re.sub(r"(?:\A|(?<=/))(?:\./)+", "", name.replace("\\", "/"))


def content(archive: zipfile.ZipFile, place: zipfile.ZipInfo) -> tuple[bytes, float, int]:
    """The content of a file in a zip file, which says neither when nor by whom it was changed.

    Raises:
        Refused: it is a link or too large, or it cannot be unpacked.
    """
    if stat.S_ISLNK(place.external_attr >> 16):
        raise Refused(f"{path_of(place)!a} is a link")
    if place.compress_type not in PLAIN:  # others may ask for any amount of memory
        raise Refused(f"{path_of(place)!a} cannot be unpacked: it is not packed as in an ordinary zip file")
    try:
        with archive.open(place) as opened:
            data = opened.read(MAX_FILE + 1)
    except BROKEN as error:
        raise Refused(f"{path_of(place)!a} cannot be unpacked: {error}") from None
    if len(data) > MAX_FILE:
        raise Refused(f"{path_of(place)!a} is larger than {MAX_FILE >> 20} MB")
    return data, 0.0, 0
