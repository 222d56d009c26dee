"""The tables of one chapter, in cells that a spreadsheet does not run."""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mha_course.grading.course import write
from mha_course.grading.gradebook import Row

COLUMNS = ["assignment", "student_id", "last_name", "first_name", "email", "status", "timestamp", "late"]
BEGINS = "[-=+@−⁺⁼₊₌﬩﹢﹣﹦﹫＋－＝＠]"  # a formula, in any width
# A cell may begin after each sign that is no letter and no digit; after a blank, if no other follows.
FORMULA = re.compile(rf"(?:\A|(?<=[\W_])(?<![ \u00a0']))(?=\s*{BEGINS})|(?<=[ \u00a0])(?={BEGINS}\S)")
TOTALS = ["raw_score", "late_submission_penalty", "score", "max_score"]


def write_all(course: Path, chapter: str, rows: Sequence[Row], most: Mapping[str, float]) -> None:
    """Write the tables into the course's folder."""
    write(course / "grades.csv", as_csv(grades(chapter, rows, most)))
    write(course / "grades-canvas.csv", as_csv(canvas(chapter, rows, most)))
    write(course / "grades-moodle.csv", as_csv(moodle(rows, most)))


def grades(chapter: str, rows: Iterable[Row], most: Mapping[str, float]) -> list[list[Any]]:
    """For each student and exercise the points and the outcome.

    The points of an exercise that was not handed in, or could not be graded, are empty, not 0. The outcome
    says whether they were given by hand.
    """
    header = [*COLUMNS, *(title for name in most for title in (name, f"{name}: outcome")), *TOTALS]
    lines: list[list[Any]] = [header]
    for row in rows:
        has = row.handed_in and not row.reason
        line = [chapter, row.student, row.last_name, row.first_name, row.email, status(row)]
        line += [row.timestamp or "", lateness(row)]
        for name in most:
            said = [row.outcomes.get(name, ""), "by hand" * (name in row.by_hand)]
            line += [row.points.get(name) if has else None, "; ".join(filter(None, said))]
        totals = [row.raw, row.penalty, total(row)] if has else [None] * 3
        lines.append([*line, *totals, sum(most.values())])
    return lines


def canvas(chapter: str, rows: Iterable[Row], most: Mapping[str, float]) -> list[list[Any]]:
    """For the import of Canvas's gradebook; a cell without points is empty, and changes nothing there."""
    head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", chapter]
    lines: list[list[Any]] = [head, ["Points Possible", *[""] * 4, sum(most.values())]]
    for row in rows:
        number = platform_number(row)
        lines.append([_name(row), number, "", "" if number else row.student, "", _points(row)])
    return lines


def moodle(rows: Iterable[Row], most: Mapping[str, float]) -> list[list[Any]]:
    """For Moodle: an assignment's grading worksheet, or the import of its gradebook."""
    head = ["Identifier", "Full name", "ID number", "Email address", "Grade", "Maximum Grade"]
    lines: list[list[Any]] = [[*head, "Last modified (grade)"]]
    for row in rows:
        number = platform_number(row)
        about = [f"Participant {number}" if number else "", _name(row), "" if number else row.student]
        lines.append([*about, row.email, _points(row), sum(most.values()), ""])
    return lines


def platform_number(row: Row) -> str:
    """The number at the end of a name that was taken from a platform's file: ``Ada Lovelace_4711``."""
    found = re.search(r"_(\d+)$", row.student) if row.of_platform else None
    return found[1] if found else ""


def _name(row: Row) -> str:
    if row.last_name:
        return f"{row.last_name}, {row.first_name}"
    return re.sub(r"_\d+$", "", row.student) if row.of_platform else row.student


def _points(row: Row) -> float | None:
    """All points, if nothing is missing."""
    return total(row) if is_graded(row) else None


def lateness(row: Row) -> str:
    """By how much a submission was late, if that is known; empty if it was not late."""
    return f"{row.late / 3600:.1f} hours" if row.late else "yes" if row.said_late else ""


def total(row: Row) -> float:
    """The points, less what a late submission costs."""
    return max(0.0, row.raw - row.penalty)


def is_graded(row: Row) -> bool:
    """All points of a submission are there."""
    return row.handed_in and not row.reason and None not in row.points.values()


def status(row: Row) -> str:
    """What happened to a student's submission."""
    if row.reason:
        return f"not graded: {row.reason}"
    if not row.handed_in:
        return "nothing handed in"
    if None in row.points.values():
        return "waits for points by hand"
    if row.gone:
        return "graded before, and no longer in submitted/"
    return "graded, handed in again" if row.again else "graded"


def as_csv(lines: Iterable[Iterable[Any]]) -> bytes:
    """A table as a file: numbers as they are, texts in quotes and defused."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC)
    for line in lines:
        writer.writerow([cell if isinstance(cell, int | float) else defused(cell) for cell in line])
    return out.getvalue().encode("utf-8", "replace")


def defused(value: Any) -> str:
    """A text that no spreadsheet reads as a formula, at whatever sign it splits a line into cells."""
    text = "" if value is None else str(value)
    return FORMULA.sub("'", f"'{text}" if text != text.strip() else text)
