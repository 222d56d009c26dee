"""A course for nbgrader from the chapters: ``python -m tools.classroom layout FOLDER``.

``layout`` writes the configuration, copies each chapter to ``source/`` as an assignment, and makes the
release version. ``collect`` takes what was submitted through nbgrader's exchange. ``grade`` autogrades one
chapter for everybody, writes feedback and ``grades.csv``.

nbgrader never sees a folder that a student has filled: from each, one file is taken into ``checked/``, and
each submission is graded in a process of its own with a limit of time.
"""

import argparse
import csv
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat
from nbgrader import preprocessors
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.apps import NbGrader, NbGraderAPI
from nbgrader.converters import Autograde
from nbgrader.exchange.default import ExchangeCollect

from mha_lab.classroom import grading, intake
from mha_lab.classroom.isolation import why_not

CHAPTERS = Path(__file__).parents[1] / "notebooks"
CHAPTER_LINK = re.compile(r"\]\((\.\./\d\d_\w+/\d\d_\w+\.ipynb)")
CONFIGURATION = '''"""nbgrader's settings for this course; `nbgrader --help-all` lists what else there is."""

from mha_lab.classroom.grading import configure

c = get_config()
configure(c)

c.CourseDirectory.course_id = "attention"
# The walls around a submission: "bubblewrap" (Linux), "podman" or "docker".
c.GradeApart.isolation = "bubblewrap"
# Where students fetch and submit, if not through a learning platform:
# c.Exchange.root = "/srv/nbgrader/exchange"
'''
CHECKED = "checked"  # one clean notebook for each submission: what nbgrader reads
RECEIVED = "received.json"  # when a submission came through the exchange, by the system's clock
PAGE_SECONDS = 60  # for a page of feedback
COLUMNS = ["assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email"]
POINTS = ["raw_score", "late_submission_penalty", "score", "max_score"]
# A page may show what is in it, and neither load nor run anything.
ALONE = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:"


class Stop(Exception):
    """One sentence that says why nothing is done."""


def settings(course: Path) -> NbGraderAPI:
    """nbgrader with the course's settings, if they hold the walls.

    Raises:
        Stop: the settings cannot be loaded, or submissions would run without our preprocessors.
    """
    if not (course / "nbgrader_config.py").is_file():
        raise Stop(
            f"there is no nbgrader_config.py in {course}; make it with: make classroom COURSE={course}"
        )
    os.chdir(course)
    os.environ["TRAITLETS_APPLICATION_RAISE_CONFIG_FILE_ERROR"] = "1"
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    app = NbGrader()
    try:
        app.load_config_file()
    except Exception as error:
        raise Stop(f"{course}/nbgrader_config.py cannot be loaded: {error!r}") from None
    api = NbGraderAPI(config=app.config)
    api.log.setLevel("WARNING")
    used = Autograde(coursedir=api.coursedir, parent=api)
    first, then = list(used.sanitize_preprocessors), list(used.autograde_preprocessors)
    if (
        grading.OwnCells not in first
        or grading.GradeApart not in then
        or preprocessors.Execute in first + then
    ):
        raise Stop(
            f"{course}/nbgrader_config.py does not call configure(c) of mha_lab.classroom.grading, or "
            "undoes it: submissions would run with your rights. Nothing was done"
        )
    folders = Path(api.coursedir.root).resolve(), Path(api.coursedir.directory_structure)
    if folders != (course, Path("{nbgrader_step}", "{student_id}", "{assignment_id}")):
        raise Stop(
            f"{course}/nbgrader_config.py sets another root or directory_structure than nbgrader's own"
        )
    return api


# Lay out


def assignment(chapter: str) -> str:
    """A chapter's file with links for its new place: each assignment has a folder of its own."""
    chapter = re.sub(r"\]\((\d\d_\w+)\.ipynb", r"](../\1/\1.ipynb", chapter)
    return re.sub(r"\[(\w+)\]\(\.\./\w+\.md\)", r"\1", chapter)


def layout(course: Path) -> int:
    """Lay the folder out, or bring an existing one up to date with the chapters."""
    course.mkdir(parents=True, exist_ok=True)
    configuration = course / "nbgrader_config.py"
    if not configuration.exists():
        configuration.write_text(CONFIGURATION, encoding="utf-8")
    api = settings(course)
    for chapter in sorted(CHAPTERS.glob("*.ipynb")):
        source = course / "source" / chapter.stem / chapter.name
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(assignment(chapter.read_text(encoding="utf-8")), encoding="utf-8")
        done = api.generate_assignment(chapter.stem, force=True)
        if not done["success"]:
            raise Stop(
                f"nbgrader could not make release/{chapter.stem}:\n{done.get('log') or done.get('error')}"
            )
        print(f"release/{chapter.stem}", flush=True)
    print(
        f"Hand out what is under {course / 'release'}; collect into {course / 'submitted'}/STUDENT/CHAPTER/."
    )
    return 0


# Collect


def collect(course: Path, chapter: str) -> int:
    """nbgrader's collect, of copies that hold one regular file each."""
    api = settings(course)
    exchange = Path(ExchangeCollect(coursedir=api.coursedir, parent=api).root)
    inbound = exchange / api.coursedir.course_id / "inbound"
    if not inbound.is_dir():
        raise Stop(f"there is no {inbound}: has anybody submitted, and is c.Exchange.root right?")
    times, refused = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        staged = Path(folder) / api.coursedir.course_id / "inbound"
        staged.mkdir(parents=True)
        for name in sorted(path.name for path in inbound.iterdir()):
            student, *rest = name.rsplit("+", 3)
            if len(rest) != 3 or rest[0] != chapter:
                continue
            try:
                if reason := intake.bad_name(student):
                    raise intake.Refused(reason)
                data, changed = intake.read(inbound, name, f"{chapter}.ipynb")
            except intake.Refused as reason:
                print(f"not collected: {name!a}: {reason}", file=sys.stderr)
                refused += 1
                continue
            if (owner := _owner(inbound / name)) != student:
                print(f"look at this: {name!a} belongs to the account {owner!a}", file=sys.stderr)
            moment = datetime.fromtimestamp(changed, UTC)
            copy = staged / f"{student}+{chapter}+{moment:%Y-%m-%d %H:%M:%S.%f} UTC+{rest[2]}"
            copy.mkdir()
            (copy / f"{chapter}.ipynb").write_bytes(data)
            (copy / "timestamp.txt").write_text(f"{moment:%Y-%m-%d %H:%M:%S.%f} UTC", encoding="utf-8")
            times[student] = max(times.get(student, ("", "")), (moment.isoformat(), _digest(data)))
        api.config.Exchange.root = folder
        api.config.ExchangeCollect.check_owner = False  # done above: these are our own copies
        done = NbGraderAPI(config=api.config).collect(chapter)
    if not done["success"]:
        raise Stop(f"nbgrader could not collect:\n{done.get('log') or done.get('error')}")
    record = _received(course)
    record[chapter] = record.get(chapter, {}) | times
    (course / RECEIVED).write_text(json.dumps(record, indent=1), encoding="utf-8")
    print(f"{len(times)} collected into {course / 'submitted'}" + f", {refused} refused" * bool(refused))
    return int(refused > 0)


def _owner(path: Path) -> str:
    import pwd  # there is no exchange on Windows

    number = path.lstat().st_uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _received(course: Path) -> dict[str, dict[str, list[str]]]:
    file = course / RECEIVED
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


# Grade


def grade(course: Path, chapter: str) -> int:
    """Points, feedback and a table; one student's submission never stops another's.

    Returns:
        0 if all that was submitted was graded; else 1, with a line for each that was not.
    """
    api = settings(course)
    if not (course / "source" / chapter / f"{chapter}.ipynb").is_file():
        raise Stop(f"there is no assignment {chapter!a} in {course / 'source'}")
    walls = grading.GradeApart(config=api.config)
    if missing := why_not(walls.isolation, walls.image):
        raise Stop(f"nothing was graded, for want of isolation: {missing}. See docs/teaching.md")
    _sound_gradebook(api, chapter)
    found, failed = intake.students(course / api.coursedir.submitted_directory, chapter)
    received = _received(course).get(chapter, {})
    for student in found:
        reason = _apart(_grade_one, api, chapter, student, received.get(student), seconds=walls.seconds + 30)
        reason = reason or _apart(_page, api, chapter, student, seconds=PAGE_SECONDS)
        if reason:
            failed[student] = reason
        print(f"{student}: {'not graded' if reason else 'graded'}", flush=True)
    _table(api, course / "grades.csv")
    print(
        f"points: {course / 'grades.csv'}\nfeedback: {course / 'feedback'}/STUDENT/{chapter}/{chapter}.html"
    )
    for line in _by_hand(api, chapter, failed):
        print(line)
    for student, reason in failed.items():
        print(f"not graded: {student!a}: {reason}", file=sys.stderr)
    if not found and not failed:
        print(f"nobody handed {chapter} in: {course / 'submitted'}/STUDENT/{chapter}/ is what is looked for")
    return int(bool(failed))


def _sound_gradebook(api: NbGraderAPI, chapter: str) -> None:
    """Look at the gradebook, and keep a copy of it as it was."""
    if not api.coursedir.db_url.startswith("sqlite:///"):
        return
    file = Path(api.coursedir.db_url.removeprefix("sqlite:///"))
    backup = file.with_name(f"{file.name}.before-grading")
    lost = f"{file} is damaged; nothing was changed. The last good copy may be {backup}"
    if not file.exists():
        raise Stop(f"there is no gradebook {file}: make classroom writes it")
    try:
        with closing(sqlite3.connect(file)) as connection:
            if connection.execute("pragma integrity_check").fetchone() != ("ok",):
                raise Stop(lost)
            with Gradebook(api.coursedir.db_url) as gradebook:
                gradebook.find_notebook(chapter, chapter)
            with closing(sqlite3.connect(backup)) as copy:
                connection.backup(copy)
    except sqlite3.DatabaseError:
        raise Stop(lost) from None
    except MissingEntry:
        raise Stop(f"{file} does not know {chapter}: run make classroom once more") from None


def _apart(work: Callable[..., None], *arguments: Any, seconds: float) -> str:
    """Do something for one student in a process of its own; why it did not work, or an empty text."""
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

    signal.signal(signal.SIGTERM, stop)  # so that what was begun is ended: the walls are taken down
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        work(*arguments)
        pipe.send("")
    except intake.Refused as reason:
        pipe.send(str(reason))
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}"[:2000])


def _grade_one(api: NbGraderAPI, chapter: str, student: str, received: list[str] | None) -> None:
    """Take the one file, and autograde the copy."""
    course = Path(api.coursedir.root)
    data, _ = intake.read(course, api.coursedir.submitted_directory, student, chapter, f"{chapter}.ipynb")
    notebook = intake.notebook(data)
    folder = course / CHECKED / student / chapter
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    nbformat.write(notebook, folder / f"{chapter}.ipynb")
    if received and received[1] == _digest(data):
        (folder / "timestamp.txt").write_text(received[0], encoding="utf-8")
    api.coursedir.submitted_directory = CHECKED
    _done(api.autograde(chapter, student))


def _page(api: NbGraderAPI, chapter: str, student: str) -> None:
    """The page of feedback, which loads and runs nothing."""
    _done(api.generate_feedback(chapter, student))
    page = Path(api.coursedir.root) / "feedback" / student / chapter / f"{chapter}.html"
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"<script\b.*?</script>", "", text, flags=re.DOTALL)
    policy = f'<head>\n<meta http-equiv="Content-Security-Policy" content="{ALONE}">'
    page.write_text(text.replace("<head>", policy, 1), encoding="utf-8")


def _done(result: dict[str, Any]) -> None:
    if not result["success"]:
        lines = (result.get("error") or result.get("log") or "nbgrader says nothing").strip().splitlines()
        raise RuntimeError(lines[-1])


def _by_hand(api: NbGraderAPI, chapter: str, failed: dict[str, str]) -> list[str]:
    """What a teacher has to look at: points by hand, and points of an earlier submission."""
    lines = []
    with Gradebook(api.coursedir.db_url) as gradebook:
        for submission in gradebook.assignment_submissions(chapter):
            student = submission.student_id
            if student in failed:
                lines.append(
                    f"look at this: {student} keeps {submission.score:g} points, of an earlier submission"
                )
                continue
            for notebook in submission.notebooks:
                for cell in notebook.grades:
                    if cell.manual_score is not None and cell.manual_score != cell.auto_score:
                        lines.append(
                            f"look at this: {student} has {cell.manual_score:g} points by hand for "
                            f"{cell.name}; what was submitted now earns {cell.auto_score or 0:g}"
                        )
    return lines


def _table(api: NbGraderAPI, file: Path) -> None:
    """nbgrader's table of all points, in cells that a spreadsheet does not run."""
    with Gradebook(api.coursedir.db_url) as gradebook, file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
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
    """A text that no spreadsheet takes for a formula."""
    text = "" if value is None else str(value)
    return f"'{text}" if text[:1] in tuple("=+-@\t\r") else text


def _chapter(given: str) -> str:
    if not given:
        raise Stop("say which chapter: CHAPTER=03_splitting_heads")
    if not re.fullmatch(r"\w+", given):
        raise Stop(f"{given!a} is not the name of a chapter")
    return given


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("layout", "collect", "grade"):
        command = commands.add_parser(name)
        command.add_argument("course")
        if name != "layout":
            command.add_argument("chapter", help="such as 03_splitting_heads")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")  # of nbgrader's own code
    try:
        if not given.course:
            raise Stop("say which folder: COURSE=../attention")
        course = Path(given.course).resolve()
        if given.command == "layout":
            return layout(course)
        return {"collect": collect, "grade": grade}[given.command](course, _chapter(given.chapter))
    except Stop as reason:
        print(reason, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
