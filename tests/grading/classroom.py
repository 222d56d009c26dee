"""Grades a class of many, and stops it on the way: ``python -m tests.grading.classroom 300``.

The class answers one chapter with what readers typed (``tests/check/tries/``), right and wrong. Its course is
graded three times: all of it, timed; a part of it with one submission at a time; and the same part in a run
that is stopped with Ctrl-C, goes on, is killed, and goes on. What comes out must be the same, byte for byte.
"""

import argparse
import copy
import csv
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from bench.side_by_side import seconds, verdict
from mha_course.exercises import find, names
from mha_course.grading import record
from tests.check.corpus import tries
from tests.notebooks.chapters import ROOT

ASKED = 2.6  # seconds a submission, with two jobs on two cores that do nothing else
PART = 20  # submissions that are graded three times
UNTOUCHED, SOLVED = 0.1, 0.4  # of all answers


def answered(released: NotebookNode, chapter: str, student: int) -> NotebookNode:
    """The chapter with one student's answers: the same in every run."""
    draw = random.Random(student)
    notebook = copy.deepcopy(released)
    cells = {cell.metadata.get("nbgrader", {}).get("grade_id"): cell for cell in notebook.cells}
    for name in (name for name in names() if find(name).chapter == chapter):
        typed = [one for one in tries(chapter[:2]) if one.exercise == name]
        kind = draw.random()
        if kind > UNTOUCHED:
            right = kind < UNTOUCHED + SOLVED
            cells[name].source = draw.choice([one.source for one in typed if one.right or not right])
    return notebook


def hand_in(course: Path, chapter: str, count: int) -> list[str]:
    """Everybody's file in its place; the names of the students."""
    released = nbformat.read(course / "release" / chapter / f"{chapter}.ipynb", as_version=4)
    students = [f"student{number:03}" for number in range(count)]
    for number, student in enumerate(students):
        file = course / "submitted" / student / chapter / f"{chapter}.ipynb"
        file.parent.mkdir(parents=True)
        nbformat.write(answered(released, chapter, number), file)
    return students


def start(course: Path, chapter: str, jobs: int) -> subprocess.Popen:
    """The command that grades, in a group of its own, with its words in a file."""
    command = [sys.executable, "-m", "mha_course.grading", "grade", str(course), chapter, f"--jobs={jobs}"]
    with (course / "said.txt").open("ab") as said:
        return subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said)


def finish(course: Path, chapter: str, jobs: int) -> None:
    """Grade until the end."""
    if start(course, chapter, jobs).wait(timeout=4 * 3600):
        raise SystemExit(f"grading failed: {course / 'said.txt'} says why")


def kept(course: Path) -> dict[str, int]:
    """When each record was written: it is the last thing that happens to a submission."""
    return {path.stem: path.stat().st_mtime_ns for path in (course / record.FOLDER).rglob("*.json")}


def stop(course: Path, chapter: str, jobs: int, how: signal.Signals, many: int) -> dict[str, int]:
    """Begin to grade, and stop when so many submissions are graded; what was kept then."""
    process = start(course, chapter, jobs)
    while len(kept(course)) < many:
        if process.poll() is not None:
            raise SystemExit(f"grading ended before it was stopped: see {course / 'said.txt'}")
        time.sleep(0.05)
    process.send_signal(how)
    if process.wait(timeout=600) == 0:
        raise SystemExit(f"grading was not stopped by {how.name}: see {course / 'said.txt'}")
    found = kept(course)
    print(f"stopped with {how.name}: {len(found)} are graded", flush=True)
    return found


def outcome(course: Path, chapter: str, students: list[str]) -> dict[str, bytes]:
    """For each student the line of the table and the page of feedback."""
    with (course / "grades.csv").open(encoding="utf-8", newline="") as file:
        lines = {line["student_id"]: repr(line).encode() for line in csv.DictReader(file)}
    page = f"{chapter}/{chapter}.html"
    return {s: lines[s] + (course / "feedback" / s / page).read_bytes() for s in students}


def differences(folder: Path, number: str, count: int, jobs: int) -> list[str]:
    """Grade the three copies; whatever is not as it should be."""
    course = folder / "whole"
    subprocess.run([sys.executable, "-m", "mha_course.grading", "layout", course], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL, timeout=600)  # fmt: skip
    (course / ".secret").write_bytes(b"the same problems in all courses")
    (chapter,) = (path.name for path in (course / "release").glob(f"{number}_*"))
    empty = shutil.copytree(course, folder / "serial")
    part = hand_in(empty, chapter, min(PART, count))
    stopped = shutil.copytree(empty, folder / "stopped")
    students = hand_in(course, chapter, count)

    taken = seconds(lambda: finish(course, chapter, jobs))
    print(
        f"{count} submissions of {chapter}, {jobs} at a time, {os.cpu_count()} cores: {taken:.0f} s,", end=" "
    )
    print(f"{taken / count:.2f} s a submission  {verdict(taken / count, ASKED)}", flush=True)
    finish(empty, chapter, 1)
    early = stop(stopped, chapter, jobs, signal.SIGINT, len(part) // 4)
    late = stop(stopped, chapter, jobs, signal.SIGKILL, len(part) // 2)
    finish(stopped, chapter, jobs)

    wrong = [f"not graded: {student}" for student in students if student not in kept(course)]
    end = kept(stopped)
    wrong += [f"lost after a stop: {student}" for student in part if student not in end]
    wrong += [
        f"graded twice: {s}" for before in (early, late) for s, when in before.items() if end[s] != when
    ]
    serial = outcome(empty, chapter, part)
    for other in (course, stopped):
        found = outcome(other, chapter, part)
        wrong += [f"not as in a run of one at a time: {s} in {other}" for s in part if found[s] != serial[s]]
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m tests.grading.classroom", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "count", type=int, help="submissions; at least 8, so that there is time to stop a run"
    )
    parser.add_argument("--chapter", default="01")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    if given.count < 8:
        parser.error("count: at least 8")
    # A shell that starts this in the background ignores Ctrl-C, and what is started here would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="classroom-"))
    print(f"in {folder}, which is removed if all is well", flush=True)
    if found := differences(folder, given.chapter, given.count, given.jobs):
        sys.exit("\n".join(found))
    print("nothing is lost, graded twice or different")
    shutil.rmtree(folder)
