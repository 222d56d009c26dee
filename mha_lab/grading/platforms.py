"""The submissions in a zip file of Moodle or Canvas, by the names that these platforms give."""

import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mha_lab.grading import intake

MAX_FILES = 20_000
# Moodle: a folder for each student, or, if the teacher has switched folders off, a prefix of the file's name.
MOODLE = re.compile(r"(?P<student>[^/]+_\d+)_assignsubmission_file(?:_?/(?:.*/)?|_)(?P<file>[^/]+)")
# Canvas: name, LATE if it is late, the student's number, the number of the file, the file's name.
CANVAS = re.compile(r"(?P<name>[^/]+?)(?P<late>_LATE)?(?P<number>_\d+)_\d+_(?P<file>[^/]+)")
ANONYMOUS = re.compile(r"(?P<late>LATE_)?(?P<name>anon)(?P<number>_[^_/]+)_\d+_(?P<file>[^/]+)")


@dataclass(frozen=True)
class Sent:
    """One file in a zip file."""

    student: str
    file: str
    late: bool
    place: zipfile.ZipInfo


def recognised(place: zipfile.ZipInfo) -> Sent | None:
    """Whose file this is; ``None`` if it has a name that no platform gives."""
    if found := MOODLE.fullmatch(place.filename):
        return Sent(found["student"], found["file"], False, place)
    name = place.filename.rpartition("/")[2]
    if found := ANONYMOUS.fullmatch(name) or CANVAS.fullmatch(name):
        return Sent(found["name"] + found["number"], found["file"], bool(found["late"]), place)
    return None


def submissions(file: Path, chapter: str) -> Iterator[tuple[Sent, bytes | str]]:
    """The notebooks of this chapter, one at a time; of one student the newest comes last.

    Nothing is unpacked to a path that the zip file names. For a file that cannot be taken, there is a reason
    in the place of its content.

    Raises:
        intake.Refused: it is not a zip file of Moodle or Canvas.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            places = archive.infolist()
            if len(places) > MAX_FILES:
                raise intake.Refused(f"it has more than {MAX_FILES:,} files")
            sent_in = [sent for sent in map(recognised, places) if sent]
            found = [sent for sent in sent_in if sent.file.endswith(".ipynb")]
            if not found:
                raise intake.Refused("no file in it has a name that Moodle or Canvas gives to a notebook")
            students = {sent.student for sent in found}
            for sent in sent_in:
                if sent.student not in students:
                    yield sent, "it is no notebook"
            for sent in sorted(found, key=lambda sent: (sent.place.date_time, _number(sent.file), sent.file)):
                yield sent, _unpacked(archive, sent, chapter)
    except (zipfile.BadZipFile, OSError) as error:
        raise intake.Refused(f"it cannot be read: {error}") from None


def _unpacked(archive: zipfile.ZipFile, sent: Sent, chapter: str) -> bytes | str:
    """A file's content, or why it is not taken."""
    if stat.S_ISLNK(sent.place.external_attr >> 16):
        return "it is a link"
    if reason := intake.bad_name(sent.student):
        return reason
    if re.match(r"\d\d_[a-z]", sent.file) and not intake.is_copy(sent.file, chapter):
        return f"it is not {chapter}.ipynb"
    try:
        with archive.open(sent.place) as opened:
            data = opened.read(intake.MAX_FILE + 1)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        return f"it cannot be unpacked: {error}"
    return data if len(data) <= intake.MAX_FILE else f"it is larger than {intake.MAX_FILE >> 20} MB"


def _number(name: str) -> int:
    """The number that a browser or Canvas adds to a name: ``x (2).ipynb``, ``x-2.ipynb``."""
    found = re.search(r"[ _-]\(?(\d{1,9})\)?\.ipynb$", name)
    return int(found[1]) if found else 0
