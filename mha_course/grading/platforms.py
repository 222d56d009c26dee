"""The submissions in a zip file of Moodle or Canvas, by the names that these platforms give.

Which platform made a zip file is decided once, from all its names. What a student chose, such as the names of
files and of folders in a folder, says nothing about whose they are.
"""

import re
import unicodedata
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from mha_course.grading.people import folder_name
from mha_course.grading.shapes import BROKEN, LEFT_BEHIND, File, Refused, content, number, path_of

MAX_FILES = 20_000
DEEP = 3  # folders that somebody has put around the files of a platform
# Moodle: a folder for each student, or, if the teacher has switched folders off, a prefix of the file's name.
# Moodle replaces `_` in names by a blank. Teams have no number if they are all others.
# Written by mod/assign/classes/downloader.php.
MOODLE = re.compile(
    r"(?P<student>[^/_]+(?:_[0-9]+)?)_assignsubmission_[a-z0-9]+(?:_?/(?P<path>.+)|_(?P<file>[^/]+))", re.S
)
# Canvas: name, LATE if it is late, the student's number, the number of the file, the file's name; a text or
# an address has no file. The rest of a name is in small letters. Written by lib/content_zipper.rb.
FILE = r"_(?:(?P<order>[0-9]+)_(?P<path>.+)|(?P<other>(?:text|link)\.html))"
CANVAS = re.compile(rf"(?P<name>.+?)(?P<late>_LATE)?(?P<number>_[0-9]+){FILE}", re.S)
ANONYMOUS = re.compile(rf"(?P<late>LATE_)?(?P<name>anon)(?P<number>_[^_]+){FILE}", re.S)
# Two more numbers after those of Canvas. Then the first ones may be a part of a name that a student chose,
# and the others those of Canvas, which do not begin with 0. That of a file is long, and is taken for no year.
TWICE = re.compile(r"_[1-9][0-9]*_(?!(?:19|20)[0-9]{2}_)[1-9][0-9]{2,}_")


@dataclass
class Sent:
    """What one student handed in, or the reason why it cannot be taken."""

    student: str
    files: list[File] = field(default_factory=list)
    late: set[str] = field(default_factory=set)  # paths
    names: set[str] = field(default_factory=set)  # as the platform writes this student's
    reason: str = ""


@dataclass(frozen=True)
class Name:
    """What a platform says by a file's name.

    ``below`` is the name that the student chose, and ``order`` grows with the time of the upload.
    """

    student: str
    below: str
    late: bool = False
    order: int = 0
    doubt: str = ""


def moodle(path: str) -> Name | None:
    """What Moodle says; ``None`` if it gives no such name."""
    found = MOODLE.fullmatch(path)
    return Name(found["student"], found["path"] or found["file"]) if found else None


def canvas(path: str) -> Name | None:
    """What Canvas says, which makes no folders."""
    found = None if "/" in path else ANONYMOUS.fullmatch(path) or CANVAS.fullmatch(path)
    if not found:
        return None
    student, name = found["name"] + found["number"], found["path"] or found["other"]
    doubt = "whose it is cannot be known: there are several pairs of numbers in its name"
    twice = found["order"] and TWICE.search(f"_{found['order']}_{name}")
    return Name(student, name, bool(found["late"]), int(found["order"] or 0), doubt if twice else "")


def submissions(file: Path) -> Iterator[Sent]:
    """What each student handed in, and a reason for each file that is nobody's.

    Nothing is unpacked to a path that the zip file names.

    Raises:
        Refused: it is not a zip file of Moodle or Canvas.
    """
    try:
        opened = zipfile.ZipFile(file)
    except BROKEN as error:
        raise Refused(f"it cannot be read: {error}") from None
    with opened as archive:
        places = archive.infolist()
        if len(places) > MAX_FILES:
            raise Refused(f"it has more than {MAX_FILES:,} files")
        yield from _sorted(archive, places)


def _sorted(archive: zipfile.ZipFile, places: Sequence[zipfile.ZipInfo]) -> Iterator[Sent]:
    handed_in = [(path, place) for place in places if not (path := path_of(place)).endswith("/")]
    deep, whose = _platform([path for path, _ in handed_in])
    found: dict[str, Sent] = {}
    for i, (path, place) in enumerate(handed_in):
        if not (said := whose(path.split("/", deep)[-1])):
            if not any(map(LEFT_BEHIND.fullmatch, path.split("/"))):
                yield Sent(path, reason="the platform gives no file such a name")
            continue
        if said.doubt:
            yield Sent(path, reason=said.doubt)
            continue
        student = folder_name(said.student)
        sent = found.setdefault(unicodedata.normalize("NFC", student.casefold()), Sent(student))
        sent.names.add(said.student)
        sent.late |= {said.below} if said.late else set()
        # Canvas writes the time of the download. Moodle writes a student's files in the order of their times.
        newness = said.order, () if said.order else place.date_time, number(said.below), i
        sent.files.append(File(said.below, newness, partial(content, archive, place)))
    for sent in found.values():
        if len(sent.names) > 1:
            names = ", ".join(f"{name!a}" for name in sorted(sent.names))
            sent.reason = f"{names} would get the same name"
        yield sent


def _platform(paths: Sequence[str]) -> tuple[int, Callable[[str], Name | None]]:
    """How many folders are around the files, and the platform that gives most of them their names."""
    for deep in range(DEEP + 1):
        inner = [path.split("/", deep)[-1] for path in paths]
        many = {whose: sum(whose(path) is not None for path in inner) for whose in (moodle, canvas)}
        if any(many.values()):
            return deep, max(many, key=lambda whose: many[whose])
        if len({path.split("/")[0] for path in inner if not path.startswith("__MACOSX/")}) != 1:
            break
    raise Refused("no file in it has a name that Moodle or Canvas gives to a notebook")
