"""Grades one chapter for everybody: each submission in a separate process, with a time limit."""

import csv
import multiprocessing
import re
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import nbformat
from nbgrader.api import (
    Grade,
    Gradebook,
    MissingEntry,
    SubmittedAssignment,
    SubmittedNotebook,
    get_alembic_version,
)
from nbgrader.apps import NbGraderAPI

from mha_lab.check.runner import limit_memory
from mha_lab.grading import intake
from mha_lab.grading.nbgrader import GradeApart
from mha_lab.grading.sandbox import MEMORY, why_not
from tools.course import Stop, digest, locked, received, settings

CHECKED = "checked"  # one clean notebook for each submission: what nbgrader reads
PAGE_SECONDS = 60  # for a page of feedback
COLUMNS = ["assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email"]
POINTS = ["raw_score", "late_submission_penalty", "score", "max_score"]
# A page may show its own content, but must not load or run anything.
ALONE = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:"


def grade(course: Path, chapter: str) -> int:
    """Points, feedback and a table; one student's submission never stops another's.

    Returns:
        0 if every submission was graded; else 1, with a line for each that was not.
    """
    api = settings(course)
    if not (course / "source" / chapter / f"{chapter}.ipynb").is_file():
        raise Stop(f"there is no assignment {chapter!a} in {course / 'source'}")
    walls = GradeApart(config=api.config)
    if missing := why_not(walls.isolation, walls.image):
        raise Stop(f"nothing was graded, for lack of a sandbox: {missing}. See docs/teaching.md")
    with locked(course):
        _sound_gradebook(api, chapter)
        found, failed = intake.students(course / "submitted", chapter)
        times = received(course).get(chapter, {})
        for student in found:
            time = times.get(student)
            reason = _apart(_grade_one, course, chapter, student, time, seconds=walls.seconds + 30)
            reason = reason or _apart(_page, course, chapter, student, seconds=PAGE_SECONDS)
            if reason:
                failed[student] = reason
            print(f"{student}: {'not graded' if reason else 'graded'}", flush=True)
        for line in [*_by_hand(api, chapter, failed), *_elsewhere(course)]:
            print(line)
        for student, reason in failed.items():
            print(f"not graded: {student!a}: {reason}", file=sys.stderr)
        if not found and not failed:
            print(f"nobody handed {chapter} in: nothing is in {course / 'submitted'}/STUDENT/{chapter}/")
        table = course / "grades.csv"
        try:
            _table(api, table)
        except OSError as reason:
            raise Stop(f"{table} cannot be written: {reason.strerror}") from None
    print(f"points: {table}\nfeedback: {course / 'feedback'}/STUDENT/{chapter}/{chapter}.html")
    return int(bool(failed))


def _sound_gradebook(api: NbGraderAPI, chapter: str) -> None:
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


def _apart(work: Callable[..., None], *arguments: Any, seconds: float) -> str:
    """Do something for one student in a separate process; returns why it failed, or an empty text."""
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    reading, writing = context.Pipe(duplex=False)
    process = context.Process(target=_be_apart, args=(work, arguments, writing))
    process.start()
    writing.close()
    try:
        process.join(seconds)
        if process.is_alive():
            return f"it was stopped after {seconds:g} seconds"
        return reading.recv() if reading.poll() else "the process that graded it ended"
    except EOFError:
        return "the process that graded it ended"
    finally:
        process.terminate()
        process.join(10)
        process.kill()
        process.join()
        reading.close()


def _be_apart(work: Callable[..., None], arguments: tuple, pipe: Any) -> None:
    def stop(*_: object) -> None:
        raise SystemExit("stopped")

    signal.signal(signal.SIGTERM, stop)  # so that all is cleaned up: the sandbox is removed
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        if sys.platform == "linux":
            limit_memory(MEMORY)
        work(*arguments)
        pipe.send("")
    except intake.Refused as reason:
        pipe.send(str(reason))
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}"[:2000])


def _grade_one(course: Path, chapter: str, student: str, time: list[str] | None) -> None:
    """Take the one file, and autograde the copy."""
    api = settings(course)
    data, *_ = intake.read(course, "submitted", student, chapter, f"{chapter}.ipynb")
    notebook = intake.notebook(data)
    folder = course / CHECKED / student / chapter
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    nbformat.write(notebook, folder / f"{chapter}.ipynb")
    if time and time[1] == digest(data):
        (folder / "timestamp.txt").write_text(time[0], encoding="utf-8")
    api.coursedir.submitted_directory = CHECKED
    _done(api.autograde(chapter, student))


def _page(course: Path, chapter: str, student: str) -> None:
    """The page of feedback, which loads and runs nothing."""
    _done(settings(course).generate_feedback(chapter, student))
    page = course / "feedback" / student / chapter / f"{chapter}.html"
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"<script\b.*?</script>", "", text, flags=re.DOTALL)
    policy = f'<head>\n<meta http-equiv="Content-Security-Policy" content="{ALONE}">'
    page.write_text(text.replace("<head>", policy, 1), encoding="utf-8")


def _done(result: dict[str, Any]) -> None:
    if not result["success"]:
        lines = (result.get("error") or result.get("log") or "nbgrader says nothing").strip().splitlines()
        raise RuntimeError(lines[-1])


def _elsewhere(course: Path) -> list[str]:
    """Files in ``submitted/`` at a place that is not a chapter's."""
    chapters = {path.name for path in (course / "source").iterdir()}
    return [
        f"look at this: {place!a} in submitted/ is not a folder STUDENT/CHAPTER/ of a chapter"
        for place in intake.others(course / "submitted", chapters)
    ]


def _by_hand(api: NbGraderAPI, chapter: str, failed: dict[str, str]) -> list[str]:
    """Points that a teacher has to look at: those by hand, and those of students who were not graded now."""
    lines = []
    with Gradebook(api.coursedir.db_url) as gradebook:
        for submission in gradebook.assignment_submissions(chapter):
            student = submission.student_id
            if student in failed:
                score = f"{submission.score:g} points"
                lines.append(f"look at this: {student} was not graded now; the gradebook has {score}")
                continue
            for notebook in submission.notebooks:
                for cell in notebook.grades:
                    given, earned = cell.manual_score, cell.auto_score
                    if given is not None and earned is not None and given != earned:
                        lines.append(
                            f"look at this: {student} has {given:g} points by hand for {cell.name}; "
                            f"what was submitted now earns {earned:g}"
                        )
    return lines


def _table(api: NbGraderAPI, file: Path) -> None:
    """nbgrader's table of all points, in cells that a spreadsheet does not run."""
    with Gradebook(api.coursedir.db_url) as gradebook, file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC)
        writer.writerow(COLUMNS + POINTS)
        for chapter in gradebook.assignments:
            for student in gradebook.students:
                about = [chapter.name, chapter.duedate, "", student.id]
                about += [student.last_name, student.first_name, student.email]
                numbers = [0.0, 0.0, 0.0]
                try:
                    submission = gradebook.find_submission(chapter.name, student.id)
                except MissingEntry:
                    pass
                else:
                    penalty = submission.late_submission_penalty
                    about[2] = submission.timestamp
                    numbers = [submission.score, penalty, max(0.0, submission.score - penalty)]
                writer.writerow([*map(_defused, about), *numbers, chapter.max_score])


def _defused(value: Any) -> str:
    """A text that no spreadsheet reads as a formula."""
    text = "" if value is None else str(value)
    return f"'{text}" if text.strip()[:1] in tuple("=+-@") or text != text.strip() else text
