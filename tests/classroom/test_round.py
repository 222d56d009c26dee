"""A whole round with nbgrader itself: hand out, submit, collect, autograde, give back, export."""

import csv
import os
import re
import socket
import sqlite3
import subprocess
import sys

import nbformat
import pytest

from mha_lab.check.exercise import names
from mha_lab.classroom.isolation import why_not
from tests.classroom import submissions
from tests.classroom.submissions import ALL, CHAPTER, EXERCISES, POINTS, write
from tests.notebooks.chapters import NAMES, code_cells
from tools import classroom
from tools.notebooks import exercise_of

NOTHING = dict.fromkeys(EXERCISES, 0)
# What each submission has earned, and no more.
EARNED = {
    "ada": POINTS,
    "bob": NOTHING,
    "eve": NOTHING,
    "untouched": NOTHING,
    "edits-points": NOTHING,
    "rewrites-checks": NOTHING,
    "swaps-check": NOTHING,
    "imports-solutions": NOTHING,
    "forges-tensors": NOTHING,
    "kills": NOTHING | {name: POINTS[name] for name in ("predict_place", "per_head_weights")},
    "never-returns": POINTS | {"merge_heads": 0, "mend_split": 0},
    "reaches-out": POINTS,
    "unreadable": NOTHING,
    "zed": POINTS,  # the last one, after all the others
}


def without_walls():
    """Why submissions cannot be graded here; on the machines that gate changes they must."""
    missing = why_not("bubblewrap")
    return "" if os.environ.get("MHA_LAB_SKIP_NOTHING") else missing


pytestmark = pytest.mark.skipif(bool(without_walls()), reason=f"no isolation: {without_walls()}")


def nbgrader(folder, *arguments):
    """One of nbgrader's commands, which must succeed."""
    assert classroom.nbgrader(folder, *arguments) == 0


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course in which everybody has submitted chapter 03 and been graded."""
    root = tmp_path_factory.mktemp("class")
    course = root / "course"
    exchange = root / "exchange"
    exchange.mkdir()
    exchange.chmod(0o777)
    assert classroom.layout(course) == 0
    configuration = course / "nbgrader_config.py"
    settings = f'c.GradeApart.cell_seconds = 4\nc.Exchange.root = "{exchange}"\n'
    configuration.write_text(configuration.read_text() + settings)
    notebook = nbformat.read(course / "release" / CHAPTER / f"{CHAPTER}.ipynb", as_version=4)

    # Three go all the way, through nbgrader's own exchange.
    nbgrader(course, "release_assignment", CHAPTER)
    for student, change in {
        "ada": submissions.right, "bob": submissions.wrong, "eve": submissions.forges_tensors,
    }.items():  # fmt: skip
        home = root / student
        write(notebook, change, home / CHAPTER / f"{CHAPTER}.ipynb")
        where = f"--Exchange.root={exchange}", "--course=attention"
        nbgrader(home, "submit", CHAPTER, f"--CourseDirectory.student_id={student}", *where)
    nbgrader(course, "collect", CHAPTER)

    # The others hand in over a learning platform: their files are put where collect puts them.
    def submitted(student):
        return course / "submitted" / student / CHAPTER / f"{CHAPTER}.ipynb"

    (root / "mark").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        reaches_out = submissions.reaches_out(
            course / "gradebook.db",
            course / "source" / CHAPTER / f"{CHAPTER}.ipynb",
            root / "mark" / "here",
            server.getsockname()[1],
            os.getpid(),
        )
        for student, change in {
            "untouched": lambda notebook: None,
            "edits-points": submissions.edits_points,
            "rewrites-checks": submissions.rewrites_checks,
            "swaps-check": submissions.swaps_check,
            "imports-solutions": submissions.imports_solutions,
            "forges-tensors": submissions.forges_tensors,
            "kills": submissions.kills,
            "never-returns": submissions.never_returns,
            "reaches-out": reaches_out,
            "zed": submissions.from_colab,
        }.items():
            write(notebook, change, submitted(student))
        submitted("unreadable").parent.mkdir(parents=True)
        submissions.unreadable(submitted("unreadable"))
        status = classroom.grade(course, CHAPTER)
    return course, status


@pytest.fixture(scope="module")
def scores(course):
    """``{student: {exercise: points}}`` from the gradebook."""
    query = """
        select submitted_assignment.student_id, base_cell.name, grade.auto_score, grade.manual_score
        from grade join submitted_notebook on grade.notebook_id = submitted_notebook.id
        join submitted_assignment on submitted_notebook.assignment_id = submitted_assignment.id
        join base_cell on grade.cell_id = base_cell.id
    """
    found = {}
    with sqlite3.connect(course[0] / "gradebook.db") as connection:
        for student, cell, points, by_hand in connection.execute(query):
            assert by_hand is None
            found.setdefault(student, {})[cell.removeprefix("check-")] = points or 0
    return found


@pytest.mark.parametrize("student", EARNED)
def test_everybody_has_what_they_earned(scores, student):
    assert scores[student] == EARNED[student]


def test_the_table_has_the_same_points(course):
    folder, _ = course
    with (folder / "grades.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["assignment"] == CHAPTER]
    assert {row["student_id"]: float(row["score"]) for row in rows} == {
        student: sum(points.values()) for student, points in EARNED.items()
    }
    assert {float(row["max_score"]) for row in rows} == {ALL}


def test_a_submission_that_is_no_notebook_is_reported_and_stops_nobody(course):
    _, status = course
    assert status != 0


def test_the_release_is_the_chapter_with_its_stubs(course):
    folder, _ = course
    for name in NAMES:
        released = nbformat.read(folder / "release" / name / f"{name}.ipynb", as_version=4)
        source = nbformat.read(folder / "source" / name / f"{name}.ipynb", as_version=4)
        assert [cell.source for cell in released.cells] == [cell.source for cell in source.cells]
        assert not any(cell.outputs for cell in code_cells(released))
        for cell in code_cells(released):
            assert cell.metadata.get("editable", True) == (exercise_of(cell) is None)
    assert sum(
        exercise_of(c) is not None for n in NAMES for c in code_cells(released_chapter(folder, n))
    ) == len(names())


def released_chapter(folder, name):
    return nbformat.read(folder / "release" / name / f"{name}.ipynb", as_version=4)


def test_links_between_chapters_lead_from_folder_to_folder(course):
    folder, _ = course
    for name in NAMES:
        text = (folder / "release" / name / f"{name}.ipynb").read_text(encoding="utf-8")
        assert "](../README.md)" not in text
        for target in classroom.CHAPTER_LINK.findall(text):
            assert (folder / "release" / name / target).is_file(), target


def test_nothing_outside_the_walls_was_in_reach(course):
    folder, _ = course
    graded = nbformat.read(folder / "autograded" / "reaches-out" / CHAPTER / f"{CHAPTER}.ipynb", as_version=4)
    (found,) = (o.text for c in code_cells(graded) for o in c.outputs if "'gradebook'" in o.get("text", ""))
    assert eval(found) == {
        "gradebook": "OperationalError",
        "source": "FileNotFoundError",
        "mark": "FileNotFoundError",
        "package": "OSError",
        "network": "ConnectionRefusedError",
        "signal": "ProcessLookupError",
    }
    assert list((folder.parent / "mark").iterdir()) == []


def test_feedback_names_the_mistake_and_runs_nothing(course):
    folder, _ = course
    page = (folder / "feedback" / "bob" / CHAPTER / f"{CHAPTER}.html").read_text(encoding="utf-8")
    assert "split_heads: view-without-transpose, 0 of 1 point" in page
    assert "merge_heads: merge-without-transpose, 0 of 1 point" in page
    assert 'href="#3-The-bare-view"' in page
    assert 'id="3-The-bare-view"' in page
    page = (folder / "feedback" / "ada" / CHAPTER / f"{CHAPTER}.html").read_text(encoding="utf-8")
    assert "split_heads: right, 1 point" in page
    assert "data:image/png;base64," in page
    assert "<summary>Hint 1" in page
    page = (folder / "feedback" / "eve" / CHAPTER / f"{CHAPTER}.html").read_text(encoding="utf-8")
    for number in (1, 2, 3, 4):
        assert not re.search(rf"<[^>]*alert\({number}\)|<script>alert", page)
    assert "&lt;script&gt;alert(1)" in page


def test_without_walls_nothing_is_graded(course, tmp_path):
    """Also where the settings cannot be read: nbgrader alone would go on with its own."""
    folder, _ = course
    for settings, words in {
        "configure(c)\nc.GradeApart.isolation = 'podman'": "for want of isolation",
        "configure(d)": "name 'd' is not defined",
    }.items():
        other = tmp_path / words.replace("'", "")
        other.mkdir()
        for part in ("source", "release", "gradebook.db"):
            (other / part).symlink_to(folder / part)
        target = other / "submitted" / "ada" / CHAPTER
        target.mkdir(parents=True)
        for file in (folder / "submitted" / "ada" / CHAPTER).iterdir():
            (target / file.name).write_bytes(file.read_bytes())
        start = "from mha_lab.classroom.grading import configure\nc = get_config()\n"
        (other / "nbgrader_config.py").write_text(start + settings)
        program = (
            "import sys; from pathlib import Path; from tools import classroom; "
            f"sys.exit(classroom.nbgrader(Path({str(other)!r}), 'autograde', {CHAPTER!r}))"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert words in done.stdout + done.stderr
        assert not list(other.glob("autograded/*/*/*"))
