"""A whole round with nbgrader itself: hand out, submit, collect, autograde, give back, export."""

import csv
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook

from mha_lab.exercises import names
from mha_lab.grading.sandbox import why_not
from tests.grading import submissions
from tests.grading.submissions import ALL, CHAPTER, EXERCISES, POINTS, write
from tests.notebooks.chapters import NAMES, ROOT, code_cells
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
    "kills": POINTS | dict.fromkeys(("split_heads", "merge_heads", "fix_split"), 0),
    "never-returns": POINTS | {"merge_heads": 0, "fix_split": 0},
    "reaches-out": POINTS,
    "rearranges": POINTS,
    "out-of-order": POINTS,
    "smuggles": POINTS,
    "Muller, Anna": POINTS,
    "zed": POINTS,  # the last one, after all the others
}
REFUSED = {
    "unreadable": "no notebook",
    "linked": "is a link",
    "hard-linked": "hard link",
    "linked-folder": "is a link",
    "pipe": "not a regular file",
    "huge": "larger than 20 MB",
    "misnamed": "there is no",
    "[s123] Ada": "its name",
    ".dot": "its name",
    "flat.ipynb": "not in a folder",
    "two\nlines": "its name",
    "=HYPERLINK(1)": "its name",
}


def without_walls():
    """Why submissions cannot be graded here; on the machines that gate changes they must."""
    missing = why_not("bubblewrap")
    return "" if os.environ.get("MHA_LAB_SKIP_NOTHING") else missing


needs_walls = pytest.mark.skipif(bool(without_walls()), reason=f"no isolation: {without_walls()}")
pytestmark = [pytest.mark.grading, needs_walls]


def nbgrader(folder, *arguments):
    """One of nbgrader's commands, which must succeed."""
    environment = dict(os.environ, PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    command = [sys.executable, "-W", "ignore", "-m", "nbgrader", *arguments, "--log-level=WARN"]
    assert subprocess.run(command, cwd=folder, env=environment, check=False).returncode == 0


def run(*arguments):
    """``make classroom``, ``collect`` or ``grade``, as a command; with a secret in the teacher's shell."""
    command = [sys.executable, "-m", "tools.classroom", *map(str, arguments)]
    environment = dict(os.environ, A_TOKEN="teachers-secret")
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course in which everybody has submitted chapter 03 and been graded."""
    root = tmp_path_factory.mktemp("class")
    course = root / "course"
    exchange = root / "exchange"
    exchange.mkdir()
    exchange.chmod(0o777)
    assert run("layout", course).returncode == 0
    configuration = course / "nbgrader_config.py"
    settings = f'c.GradeApart.cell_seconds = 8\nc.Exchange.root = "{exchange}"\n'
    settings += "c.ExchangeCollect.check_owner = False\n"  # there is one account here
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
    (root / "home").mkdir()
    (root / "home" / "private").write_text("private")
    inbound = exchange / "attention" / "inbound"
    (inbound / f"mallory+{CHAPTER}+2020-01-01 00:00:00 UTC+1").symlink_to(root / "home")
    submitted_by_ada = next(inbound.glob("ada+*"))
    for name in (f"+{CHAPTER}+t+r", f"carl+{CHAPTER}+t+{'A' * 200}", f"..+{CHAPTER}+t+r"):
        shutil.copytree(submitted_by_ada, inbound / name)
    (course / "submitted").mkdir()
    (course / "submitted" / "dora").symlink_to(root / "home")
    shutil.copytree(submitted_by_ada, inbound / f"dora+{CHAPTER}+t+r")
    collected = run("collect", course, CHAPTER)
    assert collected.returncode == 1
    for word in ("'mallory", "'+", "'..+", "'dora'"):
        assert f"not collected: {word}" in collected.stderr
    assert sorted(path.name for path in (course / "submitted").iterdir()) == [
        "ada", "bob", "carl", "dora", "eve",
    ]  # fmt: skip
    assert [path.name for path in (root / "home").iterdir()] == ["private"]
    shutil.rmtree(course / "submitted" / "carl")
    (course / "submitted" / "dora").unlink()

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
            "rearranges": submissions.rearranges,
            "out-of-order": submissions.out_of_order,
            "smuggles": submissions.smuggles,
            "Muller, Anna": submissions.right,
            "zed": submissions.from_colab,
        }.items():
            write(notebook, change, submitted(student))
        submissions.odd_files(notebook, course, submitted)
        (submitted("smuggles").parent / "page.html").write_text("<script>alert(5)</script>")
        (submitted("zed").parent / "timestamp.txt").write_text("2001-01-01 00:00:00 UTC")
        started = time.monotonic()
        done = run("grade", course, CHAPTER)
        print(f"{len(EARNED)} graded in {time.monotonic() - started:.0f} s")
    return course, done


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


@pytest.mark.parametrize("student", REFUSED)
def test_what_cannot_be_graded_is_named_and_stops_nobody(course, student):
    folder, done = course
    assert done.returncode == 1
    assert any(
        line.startswith(f"not graded: {student!a}: ") and REFUSED[student] in line
        for line in done.stderr.splitlines()
    )
    assert not (folder / "feedback" / student).exists()
    assert not (folder / "autograded" / student).exists()


def test_what_lies_in_no_place_for_a_submission_is_named(course):
    _, done = course
    for place in ("'anna.zip'", "'bob/chapter3'"):
        assert f"look at this: {place} in submitted/ is not a folder STUDENT/CHAPTER/" in done.stdout


def test_nobody_else_is_named_as_not_graded(course):
    _, done = course
    assert done.stderr.count("not graded: ") == len(REFUSED)


def test_one_file_of_each_submission_goes_on(course):
    folder, _ = course
    for place, ending in {"autograded": "ipynb", "feedback": "html"}.items():
        for student in EARNED:
            files = [path.name for path in (folder / place / student).rglob("*") if path.is_file()]
            assert set(files) - {"timestamp.txt"} == {f"{CHAPTER}.{ending}"}


def test_a_submissions_metadata_goes_no_further(course):
    """A widget in it would run when the notebook is opened."""
    folder, _ = course
    for place in ("checked", "autograded"):
        for path in (folder / place).rglob("*.ipynb"):
            text = path.read_text(encoding="utf-8")
            assert "anywidget" not in text
            assert "X-lexer" not in text
            graded = nbformat.reads(text, as_version=4)
            assert set(graded.metadata) <= {"kernelspec", "language_info"}
            assert not any(set(cell.metadata) - {"nbgrader"} for cell in graded.cells)


def test_the_teachers_environment_is_not_inside(course):
    folder, _ = course
    for path in folder.rglob("*"):
        if path.is_file():
            assert b"teachers-secret" not in path.read_bytes()


def test_only_the_exchange_says_when(course):
    """Not a file that a student hands in."""
    folder, _ = course
    with (folder / "grades.csv").open(encoding="utf-8") as file:
        rows = {row["student_id"]: row for row in csv.DictReader(file) if row["assignment"] == CHAPTER}
    assert rows["zed"]["timestamp"] == ""
    assert rows["ada"]["timestamp"].startswith(str(datetime.now(UTC).year))


def test_a_page_asks_no_other_host(course):
    folder, _ = course
    for page in (folder / "feedback").rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "Content-Security-Policy" in text
        assert "<script" not in text
        assert not re.search(r"""(src|href)=["']?(https?:)?//(?=[^"']*\.(js|css|png|woff))""", text)


def test_points_by_hand_and_of_an_earlier_submission_are_named(course):
    """Graded once more: one has points by hand, one hands in a file that cannot be read."""
    folder, _ = course
    small = folder.parent / "small"
    small.mkdir()
    for part in ("source", "release", "nbgrader_config.py", "gradebook.db"):
        copy = shutil.copytree if (folder / part).is_dir() else shutil.copy
        copy(folder / part, small / part)
    for student in ("bob", "zed"):
        shutil.copytree(folder / "submitted" / student, small / "submitted" / student)
    submissions.unreadable(small / "submitted" / "zed" / CHAPTER / f"{CHAPTER}.ipynb")
    with Gradebook(f"sqlite:///{small / 'gradebook.db'}") as gradebook:
        gradebook.find_grade("check-split_heads", CHAPTER, CHAPTER, "bob").manual_score = 0.5
        gradebook.db.commit()
    done = run("grade", small, CHAPTER)
    assert done.returncode == 1
    assert "look at this: zed was not graded now; the gradebook has 7 points" in done.stdout
    assert (
        "look at this: bob has 0.5 points by hand for check-split_heads; what was submitted now earns 0"
        in (done.stdout)
    )

    (small / "gradebook.db").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    before = sorted(small.rglob("*"))
    done = run("grade", small, CHAPTER)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "is damaged" in done.stderr
    assert sorted(small.rglob("*")) == before
    backup = small / "gradebook.db.before-grading"
    with Gradebook(f"sqlite:///{backup}") as gradebook:
        assert gradebook.find_submission(CHAPTER, "zed").score == 7

    # Sound, but no gradebook of this version: it stays as it is, and so does the last good copy.
    good = backup.read_bytes()
    for change in (
        None,
        "update alembic_version set version_num = 'deadbeef'",
        "alter table grade rename column manual_score to by_hand",
    ):
        (small / "gradebook.db").write_bytes(good if change else b"")
        if change:
            with sqlite3.connect(small / "gradebook.db") as connection:
                connection.execute(change)
        before = (small / "gradebook.db").read_bytes()
        done = run("grade", small, CHAPTER)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert "is not a gradebook of this version of nbgrader; nothing was changed" in done.stderr
        assert (small / "gradebook.db").read_bytes() == before
        assert backup.read_bytes() == good


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
        "package": "PermissionError",
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


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (None, "there is no nbgrader_config.py"),
        ("c = get_config()", "does not call configure"),
        ("{start}configure(c)\nc.GradeApart.isolation = 'podman'", "for lack of a sandbox"),
        ("{start}configure(d)", "name 'd' is not defined"),
        ("{start}configure(c)\nc.Autograde.autograde_preprocessors = []", "does not call configure"),
        ("{start}configure(c)\nc.Autograde.sanitize_preprocessors = []", "does not call configure"),
        ("{start}configure(c)\nc.CourseDirectory.root = '/'", "another root"),
        ("{start}configure(c)\nc.CourseDirectory.feedback_directory = 'x'", "feedback_directory"),
        (
            "{start}configure(c)\nc.Autograde.autograde_preprocessors = "
            "[*c.Autograde.autograde_preprocessors, 'nbgrader.preprocessors.Execute']",
            "changes its preprocessors",
        ),
        (
            "{start}configure(c)\nc.HTMLExporter.preprocessors = "
            "['nbconvert.preprocessors.ExecutePreprocessor']",
            "sets c.HTMLExporter.preprocessors: delete that line",
        ),
        ("{start}configure(c)\nc.GradeApart.enabled = False", "sets c.GradeApart.enabled"),
        ("{start}configure(c)\nc.OwnCells.enabled = False", "sets c.OwnCells.enabled"),
        ("{start}configure(c)\nc.SaveAutoGrades.enabled = False", "sets c.SaveAutoGrades.enabled"),
        ("{start}configure(c)\nc.NbGraderPreprocessor.enabled = False", "NbGraderPreprocessor"),
        ("{start}configure(c)\nc.GradeApart.isolation = 'bubblewarp'", "bubblewarp"),
        ("{start}configure(c)\nc.GradeApart.seconds = 'long'", "'long'"),
        ("{start}configure(c)\nc.GradeApart.seconds = float('nan')", "seconds"),
        ("{start}configure(c)\nc.GradeApart.cell_seconds = -1", "cell_seconds"),
        ("{start}configure(c)\nc.GradeApart.image = '--privileged'", "expected the name of an image"),
        ("{start}configure(c)\nc.Autograde.exporter_class = 'x'", "sets c.Autograde.exporter_class"),
        ("{start}configure(c)\nc.BaseConverter.pre_convert_hook = 'x'", "sets c.BaseConverter"),
        ("import sys\nsys.exit()", "cannot be loaded"),
        ("c = = 1", "cannot be loaded"),
    ],
)
def test_without_walls_nothing_is_graded(course, tmp_path, settings, words):
    """Also where the settings cannot be read: nbgrader alone would go on with its own."""
    folder, _ = course
    for part in ("source", "release", "gradebook.db"):
        (tmp_path / part).symlink_to(folder / part)
    target = tmp_path / "submitted" / "ada" / CHAPTER
    target.mkdir(parents=True)
    for file in (folder / "submitted" / "ada" / CHAPTER).iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    if settings is not None:
        start = "from mha_lab.grading.nbgrader import configure\nc = get_config()\n"
        (tmp_path / "nbgrader_config.py").write_text(settings.replace("{start}", start))
    done = run("grade", tmp_path, CHAPTER)
    assert done.returncode == 2
    assert words in done.stderr
    assert not list(tmp_path.glob("autograded/*/*/*"))
    assert len(done.stderr.splitlines()) == 1
    if settings is not None and "podman" not in settings:
        assert run("layout", tmp_path).returncode == 2


@pytest.mark.parametrize("arguments", [["grade", "", CHAPTER], ["grade", "{}", ""], ["grade", "{}", "../x"]])
def test_nothing_is_guessed(tmp_path, arguments):
    done = run(*(argument.format(tmp_path) for argument in arguments))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert list(tmp_path.iterdir()) == []
