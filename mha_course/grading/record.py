"""What was graded: one file for each student, written last, so that a run that was stopped can go on."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mha_course.grading.course import write
from mha_course.grading.sandbox import fingerprint

FOLDER = "graded"
MAX_BYTES = 2**22  # of one record


@dataclass(frozen=True)
class Record:
    """One graded submission: digests of its file and of all that it was graded with, and what came out.

    ``by_hand`` has the points and comments by hand that its page of feedback shows. ``answers`` has the code
    of each exercise that a report may show, and ``left_out`` a sentence for each cell that was left out.
    """

    file: str
    grader: str
    outcomes: dict[str, str]
    points: dict[str, float]
    resubmitted: bool = False
    by_hand: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


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
        with place(course, chapter, student).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        said = json.loads(data) if len(data) <= MAX_BYTES else None
        return Record(**said) if isinstance(said, dict) and _is_whole(said) else None
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def _is_whole(said: dict[str, Any]) -> bool:
    """Whether all that is in it has the types of a record."""
    return (
        isinstance(said.get("file"), str)
        and isinstance(said.get("grader"), str)
        and _holds(said.get("outcomes"), str)
        and _holds(said.get("points"), int | float)
        and isinstance(said.get("resubmitted", False), bool)
        and isinstance(said.get("by_hand", {}), dict)
        and _holds(said.get("answers", {}), str)
        and isinstance(left_out := said.get("left_out", []), list)
        and all(isinstance(sentence, str) for sentence in left_out)
    )


def _holds(said: Any, kind: Any) -> bool:
    return isinstance(said, dict) and all(isinstance(value, kind) for value in said.values())


def keep(course: Path, chapter: str, student: str, record: Record) -> None:
    """Write the record, or nothing."""
    file = place(course, chapter, student)
    file.parent.mkdir(parents=True, exist_ok=True)
    write(file, json.dumps(asdict(record), indent=1).encode())
