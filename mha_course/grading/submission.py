"""Grades one submission: the file, nbgrader, the page of feedback, and the record."""

import hmac
import re
import shutil
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import nbformat

from mha_course.grading import filters, gradebook, intake, record, shapes
from mha_course.grading.course import SUBMISSION_SECRET, digest, received, secret, settings
from mha_course.grading.nbgrader import ANSWER, OUTCOME
from mha_course.grading.record import Record

CHECKED = "checked"  # one clean notebook for each submission: what nbgrader reads
ERROR = re.compile(r"(?!nbgrader\.)[\w.]+(Error|Exception): ")
NO_ROOM = "No space left on device", "database or disk is full"
MAX_REASON = 2000  # characters
LITTLE = 2**19  # bytes: less than a page of feedback and a graded notebook take
# A page may show its own content, but must not load or run anything.
ALONE = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:"


def taken(course: Path, chapter: str, student: str) -> shapes.Picked:
    """The one file of a submission.

    Raises:
        intake.Refused: there is none, or it is not a regular file.
    """
    chapters = [path.name for path in (course / "source").iterdir()]
    return shapes.pick(intake.handed_in(course, chapter, student), chapter, chapters)


def grade_one(course: Path, chapter: str, grader: str, student: str) -> None:
    """Take the file, autograde the copy, write the page, and then the record."""
    api = settings(course)
    picked = taken(course, chapter, student)
    data = picked.data
    before = record.read(course, chapter, student)
    notebook = intake.notebook(data)
    folder = course / CHECKED / student / chapter
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    nbformat.write(notebook, folder / f"{chapter}.ipynb")
    time = received(course).get(chapter, {}).get(student)
    if time and time[0] and time[1] == digest(data):
        (folder / "timestamp.txt").write_text(time[0], encoding="utf-8")
    # The same submission gets the same problems in every run, and nobody can know them before.
    words = "\n".join([chapter, student, digest(data)])
    api.config.GradeApart.seed = hmac.new(secret(course), words.encode(), "sha256").hexdigest()
    api.coursedir.submitted_directory = CHECKED
    api.coursedir.db_url = gradebook.shared(api.coursedir.db_url)
    _done(api.autograde(chapter, student))
    _page(course, chapter, student)
    again = before is not None and (before.file != digest(data) or before.resubmitted)
    found = Record(
        file=digest(data),
        grader=grader,
        resubmitted=again,
        by_hand=gradebook.by_hand_of(api, chapter, student),
        **_found(_autograded(course, chapter, student), picked.path),
    )
    record.keep(course, chapter, student, found)


def show_again(course: Path, chapter: str, student: str) -> None:
    """Write only the page of a graded submission, with the points and comments that it has by hand now."""
    _page(course, chapter, student)
    by_hand = gradebook.by_hand_of(settings(course), chapter, student)
    record.keep(course, chapter, student, replace(record.read(course, chapter, student), by_hand=by_hand))


def keep_secret(course: Path, chapter: str, student: str) -> None:
    """Beside the page, what `nbgrader release_feedback` needs if the submission came from the exchange."""
    folder, time = course / "feedback" / student / chapter, received(course).get(chapter, {}).get(student, [])
    if time and time[0] and len(time) > 2 and folder.is_dir():
        (folder / SUBMISSION_SECRET).write_text(time[2], encoding="utf-8")
        (folder / "timestamp.txt").write_text(time[0], encoding="utf-8")


def _page(course: Path, chapter: str, student: str) -> None:
    """The page of feedback, which loads and runs nothing."""
    api = settings(course)
    cells = nbformat.read(_autograded(course, chapter, student), as_version=4).cells
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    api.config.HTMLExporter.filters = filters.within_limits(code)
    _done(api.generate_feedback(chapter, student))
    page = course / "feedback" / student / chapter / f"{chapter}.html"
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"<script\b.*?</script>", "", text, flags=re.DOTALL)
    # In the list at the top, nbgrader names no exercise, and lists a comment that only says "No response."
    text = re.sub(r'(<a href="#check-(\w+)">)Test cell<', r"\1\2<", text)
    text = re.sub(r'<li><a href="#comment-(\w+)">Comment</a></li>', partial(_comment, text), text)
    policy = f'<head>\n<meta http-equiv="Content-Security-Policy" content="{ALONE}">'
    page.write_text(text.replace("<head>", policy, 1), encoding="utf-8")


def _autograded(course: Path, chapter: str, student: str) -> Path:
    """The notebook that nbgrader has graded."""
    return course / "autograded" / student / chapter / f"{chapter}.ipynb"


def _comment(page: str, entry: re.Match) -> str:
    """The entry of a comment with the name of its exercise; nothing if the comment is nbgrader's own."""
    below = page.partition(f'<a name="comment-{entry[1]}">')[2].partition("<b>Comments:</b>")[2]
    own = re.match(r"\s*<p>No response\.</p>", below)
    return "" if own else entry[0].replace(">Comment<", f">Comment on {entry[1]}<")


def _found(autograded: Path, handed_in: str) -> dict[str, Any]:
    """What ``GradeApart`` says: the outcome, the points the code of each exercise, and what is left out."""
    outcomes, points, answers, left_out = {}, {}, {}, Counter()
    for cell in nbformat.read(autograded, as_version=4).cells:
        shown = [cell.source] * (cell.cell_type == "markdown")
        shown += [output.get("text", "").strip() for output in cell.get("outputs", [])]
        left_out.update(filter(intake.is_left_out, shown))
        for output in cell.get("outputs", []):
            if OUTCOME in output.get("metadata", {}):
                name = gradebook.exercise(cell.metadata.nbgrader.grade_id)
                outcomes[name], points[name] = output.metadata[OUTCOME]
                if code := output.metadata[ANSWER]:
                    answers[name] = code
    said = [f"{handed_in!a}: {why}{f' ({many} cells)' * (many > 1)}" for why, many in left_out.items()]
    return {"outcomes": outcomes, "points": points, "answers": answers, "left_out": said}


def _done(result: dict[str, Any]) -> None:
    if not result["success"]:
        said = [str(result.get(part) or "").strip() for part in ("error", "log")]
        lines = "\n".join(["nbgrader says nothing", *filter(None, said)]).splitlines()
        full = any(word in line for line in lines for word in NO_ROOM) or shutil.disk_usage(".").free < LITTLE
        if full:  # then nbgrader may not have been able to write why it failed
            raise intake.Refused(intake.FULL)
        causes = [line for line in lines if ERROR.match(line)]  # nbgrader's own points to a log of its own
        raise intake.Refused((causes or lines)[-1][:MAX_REASON])
