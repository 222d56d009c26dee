"""What was graded: one file for each student, written last, so that a run that was stopped can go on."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mha_lab.grading.course import write
from mha_lab.grading.sandbox import fingerprint

FOLDER = "graded"


@dataclass(frozen=True)
class Record:
    """One graded submission: digests of its file and of all that it was graded with, and what came out.

    ``by_hand`` has the points and comments by hand that its page of feedback shows.
    """

    file: str
    grader: str
    outcomes: dict[str, str]
    points: dict[str, float]
    resubmitted: bool = False
    by_hand: dict[str, Any] = field(default_factory=dict)


def grader(course: Path, chapter: str) -> str:
    """A digest of the chapter, the settings and this package."""
    found = hashlib.sha256(fingerprint().encode())
    for file in (course / "source" / chapter / f"{chapter}.ipynb", course / "nbgrader_config.py"):
        found.update(file.read_bytes())
    return found.hexdigest()


def place(course: Path, chapter: str, student: str) -> Path:
    """The file of a record."""
    return course / FOLDER / chapter / f"{student}.json"


def read(course: Path, chapter: str, student: str) -> Record | None:
    """The record, if there is a whole one."""
    try:
        return Record(**json.loads(place(course, chapter, student).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def keep(course: Path, chapter: str, student: str, record: Record) -> None:
    """Write the record, or nothing."""
    file = place(course, chapter, student)
    file.parent.mkdir(parents=True, exist_ok=True)
    write(file, json.dumps(asdict(record), indent=1).encode())
