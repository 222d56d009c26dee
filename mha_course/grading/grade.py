"""Grades one chapter for everybody, several students at a time; a run that was stopped can go on."""

import gc
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import nbformat
import torch
from nbgrader.apps import NbGraderAPI
from tqdm import tqdm

from mha_course.exercises import find, names
from mha_course.grading import apart, gradebook, intake, limits, record, report, shapes, summary, tables
from mha_course.grading.course import Stop, digest, locked, received, settings, write
from mha_course.grading.nbgrader import GradeApart, handed_out_functions
from mha_course.grading.sandbox import why_not
from mha_course.grading.submission import grade_one, keep_secret, show_again, taken

SHOWN = 50  # students at most whose lines are shown in the terminal
# More than a submission may run: for nbgrader and a page of feedback, and for reading its texts three times,
# each time with patience for a machine that has other work.
MORE_SECONDS = 90 + 3 * limits.PATIENCE * limits.ALL_SECONDS


def grade(course: Path, chapter: str, jobs: int = 0) -> int:
    """Points, feedback and tables; one student's submission never stops another's.

    Args:
        jobs: how many submissions run at a time, if the memory allows it; 0 is one for each processor.

    Returns:
        0 if every submission was graded; else 1, with a line for each that was not.
    """
    api = settings(course)
    walls = GradeApart(config=api.config)
    if missing := why_not(walls.isolation, walls.image):
        raise Stop(f"nothing was graded, for lack of a sandbox: {missing}. See docs/grading.md")
    with locked(course):
        gradebook.sound(api, chapter)
        found, failed = intake.students(course / "submitted", chapter)
        grader = record.grader(course, chapter)
        graded = _graded(api, course, chapter, found, grader)
        if graded:
            print(f"{len(graded)} of {len(found)} submissions were graded before and have not changed")
        left = [student for student in found if student not in graded]
        if left:
            _warm(course, chapter)
        changed = _changed_by_hand(api, course, chapter, graded)
        at_once = _at_once(jobs) if left or changed else 1
        each = partial(apart.each, jobs=at_once, seconds=walls.seconds + MORE_SECONDS)
        with closing(each(partial(show_again, course, chapter), changed)) as ends:
            failed |= {student: _in_file(course, chapter, student, why) for student, why in ends if why}
        ends = each(partial(grade_one, course, chapter, grader), left)
        try:
            with closing(ends):
                ended = _shown(ends, len(left))
                failed |= {student: _in_file(course, chapter, student, why) for student, why in ended if why}
        except KeyboardInterrupt:
            done = len(_graded(api, course, chapter, found, grader))
            raise KeyboardInterrupt(
                f"stopped: {done} of {len(found)} submissions are graded and kept. To grade the other "
                f"{len(found) - done}, run the same command again"
            ) from None
        for student in found:
            keep_secret(course, chapter, student)
        if not found and not failed:
            print(f"nobody handed {chapter} in: nothing is in {course / 'submitted'}/STUDENT/{chapter}/")
        rows = _rows(api, course, chapter, failed, set(found), graded)
        told = [f"points or comments by hand, and a new page of feedback: {student}" for student in changed]
        told += [*_again(course, chapter, left, failed), *gradebook.differences(rows), *_elsewhere(course)]
        told += _left_out(course, chapter, rows)
        told += _of_several(course, chapter, found)
        print(*told, sep="\n", end="\n" * bool(told))
        for student, reason in failed.items():
            print(f"not graded: {student!a}: {reason}", file=sys.stderr)
        most = gradebook.maximum(api, chapter)
        whole = [summary.for_the_class(chapter, rows, most), summary.by_student(rows, most)]
        try:
            tables.write_all(course, chapter, rows, most)
            write(course / "summary.txt", "\n\n".join([*whole, ""]).encode())
            report.write_all(course, chapter, rows, most)
        except OSError as reason:
            raise Stop(f"a table or a report in {course} cannot be written: {reason.strerror}") from None
    print("", *whole[: 1 + (len(rows) <= SHOWN)], sep="\n\n")
    print(f"\npoints: {course / 'grades.csv'}\nsummary: {course / 'summary.txt'}")
    print(f"feedback: {course / 'feedback'}/STUDENT/{chapter}/{chapter}.html")
    print(f"what to teach next: {course / report.PAGE}, and with names {course / report.WITH_NAMES}")
    return int(bool(failed))


def report_on(course: Path, chapter: str) -> int:
    """The two pages of the report once more, from what was graded."""
    api = settings(course)
    with locked(course):
        gradebook.sound(api, chapter)
        found, failed = intake.students(course / "submitted", chapter)
        rows = _rows(api, course, chapter, failed, set(found), set(found))
        if not any(row.outcomes for row in rows):
            raise Stop(f"no submission of {chapter} in {course} is graded: run make grade first")
        try:
            report.write_all(course, chapter, rows, gradebook.maximum(api, chapter))
        except OSError as reason:
            raise Stop(f"a report in {course} cannot be written: {reason.strerror}") from None
        print(*(told := list(_left_out(course, chapter, rows))), sep="\n", end="\n" * bool(told))
    print(f"{course / report.PAGE}\nwith names: {course / report.WITH_NAMES}")
    return 0


def _at_once(jobs: int) -> int:
    """How many submissions run at a time; a line says so if the memory allows fewer than asked."""
    fitting, wanted = apart.at_once(jobs), jobs or apart.cores()
    if not fitting:
        raise Stop(
            f"nothing was graded: a submission needs {apart.NEEDS >> 20} MB of memory, and only "
            f"{apart.free_memory() >> 20} MB are free. Shut down other notebooks, and try again"
        )
    if fitting < wanted:
        print(f"{fitting} at a time, not {wanted}, because there is no memory for more", flush=True)
    return fitting


def _graded(api: NbGraderAPI, course: Path, chapter: str, found: Iterable[str], grader: str) -> set[str]:
    """Those whose file was graded already, in the same way, and whose points are in the gradebook."""
    rows, same = gradebook.rows(api, chapter), set()
    for student in found:
        done, row = record.read(course, chapter, student), rows.get(student)
        if done is None or row is None or done.grader != grader:
            continue
        try:
            data = taken(course, chapter, student).data
        except intake.Refused:
            continue
        stands = all(row.automatic.get(name) == points for name, points in done.points.items())
        if stands and done.file == digest(data):
            same.add(student)
    return same


def _changed_by_hand(api: NbGraderAPI, course: Path, chapter: str, graded: set[str]) -> list[str]:
    """Those whose page of feedback does not show what a teacher has given since."""
    rows = gradebook.rows(api, chapter)
    shown = {student: record.read(course, chapter, student).by_hand for student in sorted(graded)}
    return [student for student, by_hand in shown.items() if by_hand != rows[student].by_hand]


def _warm(course: Path, chapter: str) -> None:
    """Load and compile here, once, what each process would load and compile for itself."""
    torch.set_num_threads(1)  # each of them has one processor
    file = course / "source" / chapter / f"{chapter}.ipynb"
    handed_out_functions(tuple(cell.source for cell in nbformat.read(file, as_version=4).cells))
    if sys.platform == "linux":
        for name in names():
            find(name)
        from nbconvert import HTMLExporter

        HTMLExporter().from_filename(file)
        gc.freeze()  # else each of them looks through all this for what can be freed, and so copies it


def _shown(ends: Iterable[tuple[str, str]], many: int) -> Iterator[tuple[str, str]]:
    """The same, with a bar in a terminal, and a line for each where there is none."""
    with tqdm(total=many, desc="grading", unit="student", disable=None) as bar:
        for student, reason in ends:
            bar.update()
            if bar.disable:
                print(f"{student}: {'not graded' if reason else 'graded'}", flush=True)
            yield student, reason


def _rows(
    api: NbGraderAPI, course: Path, chapter: str, failed: dict[str, str], found: set[str], kept: set[str]
) -> list[gradebook.Row]:
    """The class, by name, with everybody's outcomes, or the reason why there are none."""
    rows, all_times = gradebook.rows(api, chapter), received(course)
    times = all_times.get(chapter, {})
    # What came from a platform's zip file has no time. Whoever handed nothing in is listed like the others.
    zipped = {student for of_one in all_times.values() for student, time in of_one.items() if not time[0]}
    for student, reason in failed.items():
        if student in rows or not intake.bad_name(student):
            rows.setdefault(student, gradebook.Row(student)).reason = reason
    for row in rows.values():
        row.gone = row.handed_in and not row.reason and row.student not in found
        row.kept = row.gone or row.student in kept
        done = record.read(course, chapter, row.student) if row.handed_in and not row.reason else None
        if done:
            row.outcomes, row.again, row.code = done.outcomes, done.resubmitted, done.answers
        file = done.file if done else _file(course, chapter, row.student)
        row.said_late = [file, "late"] == times.get(row.student, [])[1:]
        row.of_platform = row.student in zipped or (bool(zipped) and not row.handed_in and not row.reason)
    return sorted(rows.values(), key=lambda row: (row.last_name, row.first_name, row.student))


def _in_file(course: Path, chapter: str, student: str, reason: str) -> str:
    """The reason with the name of the file that was taken; if none was, the reason has a name itself."""
    with suppress(intake.Refused):
        return reason if reason == intake.FULL else f"{taken(course, chapter, student).path!a}: {reason}"
    return reason


def _file(course: Path, chapter: str, student: str) -> str:
    """The digest of a submission that was not graded; empty if there is none that can be read."""
    try:
        return digest(taken(course, chapter, student).data)
    except intake.Refused:
        return ""


def _again(course: Path, chapter: str, left: list[str], failed: dict[str, str]) -> Iterator[str]:
    for student in left:
        done = record.read(course, chapter, student)
        if student not in failed and done and done.resubmitted:
            yield f"handed in again, and graded again: {student}"


def _left_out(course: Path, chapter: str, rows: Iterable[gradebook.Row]) -> Iterator[str]:
    """The cells that were not graded, and the students of whom nothing is known but their points."""
    for student in (row.student for row in rows if row.handed_in and not row.reason):
        done = record.read(course, chapter, student)
        if done is None:
            file = record.place(course, chapter, student).relative_to(course)
            yield f"look at this: {student}: {str(file)!a} is missing or damaged; the report leaves it out"
        else:
            yield from (f"look at this: {student}: {sentence}" for sentence in done.left_out)


def _of_several(course: Path, chapter: str, found: list[str]) -> Iterator[str]:
    """A line for each student from whose files one was chosen."""
    for student in found:
        with suppress(intake.Refused):
            picked = taken(course, chapter, student)
            if picked.why:
                yield shapes.counts(student, picked)


def _elsewhere(course: Path) -> list[str]:
    """Files in ``submitted/`` at a place that is not a chapter's."""
    chapters = {path.name for path in (course / "source").iterdir()}
    return [
        f"look at this: {place!a} in submitted/ is not a folder STUDENT/CHAPTER/ of a chapter"
        for place in intake.others(course / "submitted", chapters)
    ]
