"""The gradebook of a course: whether it is sound, and what it says of a chapter."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from nbgrader.api import (
    Grade,
    Gradebook,
    MissingEntry,
    SubmittedAssignment,
    SubmittedNotebook,
    get_alembic_version,
)
from nbgrader.apps import NbGraderAPI

from mha_course.grading.course import Stop

PATIENCE = 120  # seconds that one process waits for another that writes


@dataclass
class Row:
    """One student in one chapter.

    ``points`` and ``automatic`` are by exercise, with and without what was given by hand; ``None`` is not yet
    graded. ``by_hand`` is what the function of this name returns. ``outcomes`` has the words of ``judged``.
    ``reason`` says why nothing was graded now. ``code`` has the code of each exercise that a report may show.
    """

    student: str
    last_name: str = ""
    first_name: str = ""
    email: str = ""
    handed_in: bool = False
    timestamp: datetime | None = None
    late: float = 0.0
    said_late: bool = False  # by a platform, which does not say by how much
    of_platform: bool = False  # its id came from a platform's zip file, and ends with the platform's number
    penalty: float = 0.0
    points: dict[str, float | None] = field(default_factory=dict)
    automatic: dict[str, float | None] = field(default_factory=dict)
    by_hand: dict[str, Any] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)
    code: dict[str, str] = field(default_factory=dict)
    reason: str = ""
    again: bool = False  # it was handed in before, and has changed since
    kept: bool = False  # it was graded by an earlier run
    gone: bool = False  # its folder was removed after that

    @property
    def raw(self) -> float:
        """All points, before a penalty."""
        return sum(points or 0.0 for points in self.points.values())


def shared(address: str) -> str:
    """The gradebook's address for one of several processes that write to it at once."""
    return f"{address}?timeout={PATIENCE}" if address.startswith("sqlite:///") else address


def maximum(api: NbGraderAPI, chapter: str) -> dict[str, float]:
    """The points of a chapter's exercises, and of what is graded by hand, in the order of the chapter."""
    with Gradebook(api.coursedir.db_url) as gradebook:
        notebook = gradebook.find_notebook(chapter, chapter)
        cells = {cell.name: cell.max_score for cell in (*notebook.grade_cells, *notebook.task_cells)}
        order = [cell.name for cell in notebook.source_cells]
    return {exercise(name): cells[name] for name in sorted(cells, key=order.index)}


def exercise(cell: str) -> str:
    """The exercise of a graded cell."""
    return cell.removeprefix("check-")


def rows(api: NbGraderAPI, chapter: str) -> dict[str, Row]:
    """Everybody in the class list, and what they have."""
    with Gradebook(api.coursedir.db_url) as gradebook:
        found = {
            one.id: Row(one.id, one.last_name or "", one.first_name or "", one.email or "")
            for one in gradebook.students
        }
        for submission in gradebook.assignment_submissions(chapter):
            row = found[submission.student_id]
            row.handed_in, row.timestamp = True, submission.timestamp
            row.late, row.penalty = submission.total_seconds_late, submission.late_submission_penalty or 0.0
            for notebook in submission.notebooks:
                for cell in notebook.grades:
                    waits = cell.manual_score is None and cell.auto_score is None
                    row.points[exercise(cell.name)] = None if waits else cell.score
                    row.automatic[exercise(cell.name)] = cell.auto_score
                row.by_hand |= by_hand(notebook)
    return found


def by_hand(notebook: SubmittedNotebook) -> dict[str, Any]:
    """The points that a teacher has given, by exercise, and the comments, by cell."""
    points = {exercise(c.name): [c.manual_score, c.extra_credit] for c in notebook.grades}
    comments = {f"comment on {c.name}": c.manual_comment for c in notebook.comments if c.manual_comment}
    return {name: given for name, given in points.items() if given[0] is not None or given[1]} | comments


def by_hand_of(api: NbGraderAPI, chapter: str, student: str) -> dict[str, Any]:
    """The same for one student."""
    with Gradebook(api.coursedir.db_url) as gradebook:
        return by_hand(gradebook.find_submission_notebook(chapter, chapter, student))


def differences(rows: Iterable[Row]) -> list[str]:
    """A line for all points that are not those of what is submitted now."""
    lines = []
    for row in rows:
        has = f"the gradebook has {row.raw:g} points"
        if row.gone:
            lines.append(f"look at this: the folder of {row.student} is no longer in submitted/; {has}")
        elif row.reason and row.raw:
            lines.append(f"look at this: {row.student} was not graded now; {has}")
        for name, earned in row.automatic.items() if not row.reason else ():
            if earned is not None and row.points[name] != earned:
                lines.append(
                    f"look at this: {row.student} has {row.points[name]:g} points by hand for {name}; "
                    f"what was submitted now earns {earned:g}"
                )
    return lines


def sound(api: NbGraderAPI, chapter: str) -> None:
    """Check the gradebook, and then keep a copy of it."""
    address = api.coursedir.db_url
    file = Path(address.removeprefix("sqlite:///"))
    backup = file.with_name(f"{file.name}.before-grading")
    if address.startswith("sqlite:///") and not file.is_file():
        raise Stop(f"there is no gradebook {file}: make classroom writes it")
    try:
        if address.startswith("sqlite:///"):
            with closing(sqlite3.connect(file)) as connection:
                if connection.execute("pragma integrity_check").fetchone() != ("ok",):
                    raise sqlite3.DatabaseError
                version = connection.execute("select version_num from alembic_version").fetchone()
                if version != (get_alembic_version(),):
                    raise LookupError
        with Gradebook(address) as gradebook:
            gradebook.find_notebook(chapter, chapter)
            for table in (Grade, SubmittedAssignment, SubmittedNotebook):
                gradebook.db.query(table).first()  # all columns are there
        if address.startswith("sqlite:///"):
            with closing(sqlite3.connect(file)) as connection:
                _copy(connection, backup)
    except sqlite3.OperationalError as reason:
        if "no such table" in str(reason):
            raise Stop(
                f"{file} is not a gradebook of this version of nbgrader; nothing was changed"
            ) from None
        raise Stop(f"{file} cannot be read, or no copy of it can be written: {reason}") from None
    except OSError as reason:
        raise Stop(f"{file} cannot be read, or no copy of it can be written: {reason}") from None
    except sqlite3.DatabaseError:
        last = f"The last good copy may be {backup}" if backup.exists() else "There is no copy"
        raise Stop(f"{file} is damaged; nothing was changed. {last}") from None
    except MissingEntry:
        raise Stop(f"{file} does not know {chapter}: run make classroom once more") from None
    except Exception:  # a database with other tables
        raise Stop(f"{file} is not a gradebook of this version of nbgrader; nothing was changed") from None


def _copy(connection: sqlite3.Connection, backup: Path) -> None:
    """Copy into a new file, which then replaces the old one."""
    part = backup.with_name(f".{backup.name}.part")
    part.unlink(missing_ok=True)
    with closing(sqlite3.connect(part)) as copy:
        connection.backup(copy)
    part.replace(backup)
