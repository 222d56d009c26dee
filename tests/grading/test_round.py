"""A whole round with nbgrader itself: hand out, submit, collect, autograde, give back, export."""

import contextlib
import csv
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook
from nbgrader.utils import notebook_hash

from mha_course.exercises import names
from mha_course.grading.__main__ import CHAPTER_LINK
from mha_course.grading.sandbox import why_not
from tests.grading import submissions
from tests.grading.submissions import ALL, CHAPTER, EXERCISES, POINTS, write
from tests.notebooks.chapters import NAMES, ROOT, code_cells
from tools.notebooks import exercise_of

# What each submission changes in the released notebook, and what it has earned, and no more.
NOTHING = dict.fromkeys(EXERCISES, 0)
CHANGES = {
    "ada": (submissions.right, POINTS),
    "bob": (submissions.wrong, NOTHING),
    "eve": (submissions.forges_tensors, NOTHING),
    "untouched": (lambda notebook: None, NOTHING),
    "edits-points": (submissions.edits_points, NOTHING),
    "rewrites-checks": (submissions.rewrites_checks, NOTHING),
    "swaps-check": (submissions.swaps_check, NOTHING),
    "imports-solutions": (submissions.imports_solutions, NOTHING),
    "forges-tensors": (submissions.forges_tensors, NOTHING),
    "kills": (submissions.kills, POINTS | {"split_heads": 0, "merge_heads": 0}),
    "never-returns": (submissions.never_returns, POINTS | {"merge_heads": 0}),
    "reaches-out": (submissions.reaches_out, POINTS),
    "rearranges": (submissions.rearranges, POINTS),
    "out-of-order": (submissions.out_of_order, POINTS),
    "smuggles": (submissions.smuggles, POINTS),
    "last-release": (submissions.of_the_last_release, POINTS),
    "Muller, Anna": (submissions.right, POINTS),
    "zed": (submissions.from_colab, POINTS),  # the last one, after all the others
}
EARNED = {student: points for student, (_, points) in CHANGES.items()}
EXCHANGED = "ada", "bob", "eve"  # these hand in through nbgrader's own exchange
REFUSED = {
    "unreadable": "not a notebook", "linked": "is a link", "hard-linked": "hard link",
    "linked-folder": "is a link", "pipe": "not a regular file", "huge": "larger than 20 MB",
    "misnamed": "there is no", "[s123] Ada": "its name", ".dot": "its name",
    "two\nlines": "its name", "=HYPERLINK(1)": "its name",
}  # fmt: skip


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
    assert subprocess.run(command, cwd=folder, env=environment, check=False, timeout=600).returncode == 0


def run(*arguments):
    """``make classroom``, ``collect`` or ``grade``, as a command; with a secret in the teacher's shell."""
    command = [sys.executable, "-m", "mha_course.grading", *map(str, arguments)]
    environment = dict(os.environ, A_TOKEN="teachers-secret")
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=3600
    )


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course in which everybody has submitted chapter 03 and been graded."""
    root = tmp_path_factory.mktemp("class")
    course, exchange, home = root / "course", root / "exchange", root / "home"
    exchange.mkdir()
    exchange.chmod(0o777)
    assert run("layout", course).returncode == 0
    configuration = course / "nbgrader_config.py"
    settings = f'c.GradeApart.cell_seconds = 8\nc.Exchange.root = "{exchange}"\n'
    one_account = "c.ExchangeCollect.check_owner = False\n"
    configuration.write_text(configuration.read_text() + settings + one_account)
    notebook = nbformat.read(course / "release" / CHAPTER / f"{CHAPTER}.ipynb", as_version=4)

    nbgrader(course, "release_assignment", CHAPTER)
    for student in EXCHANGED:
        write(notebook, CHANGES[student][0], root / student / CHAPTER / f"{CHAPTER}.ipynb")
        where = f"--Exchange.root={exchange}", "--course=attention", f"--CourseDirectory.student_id={student}"
        nbgrader(root / student, "submit", CHAPTER, *where)
    home.mkdir()
    (home / "private").write_text("private")
    inbound, collected = exchange / "attention" / "inbound", course / "submitted"
    (inbound / f"mallory+{CHAPTER}+2020-01-01 00:00:00 UTC+1").symlink_to(home)
    submitted_by_ada = next(inbound.glob("ada+*"))
    for name in ("", "..", "dora", "carl"):
        end = "A" * 200 if name == "carl" else "r"
        shutil.copytree(submitted_by_ada, inbound / f"{name}+{CHAPTER}+t+{end}")
    collected.mkdir()
    (collected / "dora").symlink_to(home)
    done = run("collect", course, CHAPTER)
    assert done.returncode == 1
    for word in ("'mallory", "'+", "'..+", "'dora'"):
        assert f"not collected: {word}" in done.stderr
    assert {path.name for path in collected.iterdir()} == {*EXCHANGED, "carl", "dora"}
    assert [path.name for path in home.iterdir()] == ["private"]
    shutil.rmtree(collected / "carl")
    (collected / "dora").unlink()

    # The others hand in over a learning platform: their files are put where collect puts them.
    def submitted(student):
        return collected / student / CHAPTER / f"{CHAPTER}.ipynb"

    (root / "mark").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        source, port = course / "source" / CHAPTER / f"{CHAPTER}.ipynb", server.getsockname()[1]
        reached = course / "gradebook.db", source, root / "mark" / "here", port, os.getpid()
        for student, (change, _) in CHANGES.items():
            if student not in EXCHANGED:
                own = change(*reached) if student == "reaches-out" else change
                write(notebook, own, submitted(student))
        submissions.odd_files(notebook, course, submitted)
        (submitted("smuggles").parent / "page.html").write_text("<script>alert(5)</script>")
        (submitted("zed").parent / "timestamp.txt").write_text("2001-01-01 00:00:00 UTC")
        done = run("grade", course, CHAPTER)
    return course, done


@pytest.fixture(scope="module")
def folder(course):
    return course[0]


@pytest.fixture(scope="module")
def rows(folder):
    """The table of grades: ``{student: its row}``."""
    with (folder / "grades.csv").open(encoding="utf-8") as file:
        return {row["student_id"]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def scores(folder):
    """``{student: {exercise: points}}`` from the gradebook."""
    query = """
        select submitted_assignment.student_id, base_cell.name, grade.auto_score, grade.manual_score
        from grade join submitted_notebook on grade.notebook_id = submitted_notebook.id
        join submitted_assignment on submitted_notebook.assignment_id = submitted_assignment.id
        join base_cell on grade.cell_id = base_cell.id
    """
    found = {}
    with sqlite3.connect(folder / "gradebook.db") as connection:
        for student, cell, points, by_hand in connection.execute(query):
            assert by_hand is None
            found.setdefault(student, {})[cell.removeprefix("check-")] = points or 0
    return found


@pytest.mark.parametrize("student", EARNED)
def test_everybody_has_what_they_earned(scores, student):
    assert scores[student] == EARNED[student]


def test_the_table_has_the_same_points_and_only_the_exchange_says_when(rows):
    """Not a file that a student hands in."""
    graded = {student: row for student, row in rows.items() if row["status"] == "graded"}
    found = {student: (float(row["score"]), float(row["max_score"])) for student, row in graded.items()}
    assert found == {student: (sum(points.values()), ALL) for student, points in EARNED.items()}
    assert rows.keys() <= CHANGES.keys() | REFUSED.keys()  # no file is a student
    for student in rows.keys() - graded.keys():
        row = rows[student]
        assert REFUSED[student] in row["status"]
        assert (row["score"], row["split_heads"]) == ("", "")
    assert rows["zed"]["timestamp"] == ""
    handed_in = datetime.fromisoformat(rows["ada"]["timestamp"]).replace(tzinfo=UTC)
    assert abs(datetime.now(UTC) - handed_in) < timedelta(days=2)


@pytest.mark.parametrize("student", REFUSED)
def test_what_cannot_be_graded_is_named_and_stops_nobody(course, student):
    folder, done = course
    assert done.returncode == 1
    said = f"not graded: {student!a}: "
    assert any(line.startswith(said) and REFUSED[student] in line for line in done.stderr.splitlines())
    assert not (folder / "feedback" / student).exists()
    assert not (folder / "autograded" / student).exists()


def test_nobody_else_is_named_and_what_lies_in_no_place_for_a_submission_is(course):
    _, done = course
    assert done.stderr.count("not graded: ") == len(REFUSED)
    for place in ("'anna.zip'", "'flat.ipynb'", "'bob/chapter3'"):
        assert f"look at this: {place} in submitted/ is not a folder STUDENT/CHAPTER/" in done.stdout


def test_one_file_of_each_submission_goes_on(folder):
    for place, ending in {"autograded": "ipynb", "feedback": "html"}.items():
        for student in EARNED:
            files = [path.name for path in (folder / place / student).rglob("*") if path.is_file()]
            assert set(files) - {"timestamp.txt", "submission_secret.txt"} == {f"{CHAPTER}.{ending}"}


def test_a_submissions_metadata_goes_no_further(folder):
    """A widget in it would run when the notebook is opened."""
    for place in ("checked", "autograded"):
        for path in (folder / place).rglob("*.ipynb"):
            text = path.read_text(encoding="utf-8")
            assert not re.search("anywidget|X-lexer", text)
            graded = nbformat.reads(text, as_version=4)
            assert set(graded.metadata) <= {"kernelspec", "language_info"}
            assert not any(set(cell.metadata) - {"nbgrader"} for cell in graded.cells)


def test_the_teachers_environment_is_not_inside(folder):
    assert not [p for p in folder.rglob("*") if p.is_file() and b"teachers-secret" in p.read_bytes()]


def test_a_page_goes_back_through_the_exchange_under_a_name_that_only_its_student_knows(folder):
    exchange = folder.parent / "exchange" / "attention"
    for student in EXCHANGED:
        nbgrader(folder, "release_feedback", CHAPTER, f"--student={student}")
        page = folder / "feedback" / student / CHAPTER / f"{CHAPTER}.html"
        (submitted,) = (exchange / "inbound").glob(f"{student}+{CHAPTER}+*")
        secret = (submitted / "submission_secret.txt").read_text()
        name = notebook_hash(secret=secret, notebook_id=CHAPTER)
        assert (exchange / "feedback" / f"{name}.html").read_bytes() == page.read_bytes()
    assert len(list((exchange / "feedback").iterdir())) == len(EXCHANGED)
    assert (exchange / "feedback").stat().st_mode & 0o066 == 0


def test_a_page_asks_no_other_host(folder):
    for page in (folder / "feedback").rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "Content-Security-Policy" in text
        assert "<script" not in text
        assert not re.search(r"""(src|href)=["']?(https?:)?//(?=[^"']*\.(js|css|png|woff))""", text)


def test_points_by_hand_and_of_an_earlier_submission_are_named(folder):
    """Graded once more: one has points by hand, one hands in a file that cannot be read."""
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
    bob = "bob has 0.5 points by hand for split_heads; what was submitted now earns 0"
    for words in (f"zed was not graded now; the gradebook has {sum(POINTS.values())} points", bob):
        assert f"look at this: {words}" in done.stdout

    backup, database = small / "gradebook.db.before-grading", small / "gradebook.db"
    database.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    before = sorted(small.rglob("*"))
    done = run("grade", small, CHAPTER)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "is damaged" in done.stderr
    assert sorted(small.rglob("*")) == before
    with Gradebook(f"sqlite:///{backup}") as gradebook:
        assert gradebook.find_submission(CHAPTER, "zed").score == sum(POINTS.values())

    # Sound, but no gradebook of this version: it stays as it is, and so does the last good copy.
    good = backup.read_bytes()
    another_version = "update alembic_version set version_num = 'deadbeef'"
    for change in ("", another_version, "alter table grade rename column manual_score to by_hand"):
        database.write_bytes(good if change else b"")
        with contextlib.closing(sqlite3.connect(database)) as connection, connection:
            connection.execute(change)
        before = database.read_bytes()
        done = run("grade", small, CHAPTER)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert "is not a gradebook of this version of nbgrader; nothing was changed" in done.stderr
        assert (database.read_bytes(), backup.read_bytes()) == (before, good)


def test_the_release_is_the_chapter_with_its_stubs(folder):
    checks = []
    for name in NAMES:
        files = [folder / where / name / f"{name}.ipynb" for where in ("release", "source")]
        released, source = [nbformat.read(file, as_version=4) for file in files]
        assert [cell.source for cell in released.cells] == [cell.source for cell in source.cells]
        for cell in code_cells(released):
            assert not cell.outputs
            assert cell.metadata.get("editable", True) == (exercise_of(cell) is None)
            checks += [exercise_of(cell)] if exercise_of(cell) else []
    assert sorted(checks) == sorted(names())


def test_links_between_chapters_lead_from_folder_to_folder(folder):
    for name in NAMES:
        text = (folder / "release" / name / f"{name}.ipynb").read_text(encoding="utf-8")
        assert "](../README.md)" not in text
        for target in CHAPTER_LINK.findall(text):
            assert (folder / "release" / name / target).is_file(), target


def test_a_chapter_that_is_handed_out_alone_has_no_link_to_another(tmp_path):
    assert run("layout", tmp_path / "one", "0").returncode == 2
    assert run("layout", tmp_path / "one", "03").returncode == 0
    (file,) = (tmp_path / "one" / "release").glob("*/*.ipynb")
    text = file.read_text(encoding="utf-8")
    assert file.name == f"{CHAPTER}.ipynb"
    assert not re.search(r"\]\((\.\./)?\d\d_", text)
    assert "chapter 01" in text


def test_nothing_outside_the_walls_was_in_reach(folder):
    graded = nbformat.read(folder / "autograded" / "reaches-out" / CHAPTER / f"{CHAPTER}.ipynb", as_version=4)
    (found,) = (o.text for c in code_cells(graded) for o in c.outputs if "'gradebook'" in o.get("text", ""))
    assert eval(found) == {
        "gradebook": "OperationalError", "source": "FileNotFoundError", "mark": "FileNotFoundError",
        "package": "PermissionError", "course": "PermissionError", "network": "ConnectionRefusedError",
        "signal": "ProcessLookupError",
    }  # fmt: skip
    assert list((folder.parent / "mark").iterdir()) == []


def test_feedback_names_the_mistake_and_runs_nothing(folder):
    pages = [folder / "feedback" / student / CHAPTER / f"{CHAPTER}.html" for student in EXCHANGED]
    ada, bob, eve = [page.read_text(encoding="utf-8") for page in pages]
    assert "✗ split_heads is not right yet: 0 of 1 point." in bob
    assert "The name of this mistake: view-without-transpose" in bob
    assert "The name of this mistake: merge-without-transpose" in bob
    assert 'href="#3-The-bare-view"' in bob
    assert 'id="3-The-bare-view"' in bob
    assert "✓ split_heads is right: 1 point." in ada
    assert '<a href="#check-split_heads">split_heads</a> (Score: 1.0 / 1.0)' in ada
    assert "Test cell" not in ada
    assert "explore</span>" in bob
    assert "&lt;explore." not in bob  # what no answer needs is not run
    for page in ada, bob:
        assert page.count("data:image/png;base64,") == 1  # one that the student has drawn is shown
    assert "<summary>Hint 1" in ada
    assert not re.search(r"<[^>]*alert\([1-4]\)|<script>alert", eve)
    assert "&lt;script&gt;alert(1)" in eve


ITS = "Autograde.autograde_preprocessors"
# In place of the teacher's settings, and after settings as they should be.
INSTEAD = {
    "c = get_config()": "does not call configure",
    "configure(d)": "name 'd' is not defined",
    "import sys\nsys.exit()": "cannot be loaded",
    "c = = 1": "cannot be loaded",
}
AFTER = {
    "GradeApart.isolation = 'podman'": "for lack of a sandbox",
    "GradeApart.isolation = 'bubblewarp'": "bubblewarp",
    "GradeApart.enabled = False": "sets c.GradeApart.enabled",
    "GradeApart.seed = 'known'": "sets c.GradeApart.seed",
    "GradeApart.seconds = 'long'": "'long'",
    "GradeApart.seconds = float('nan')": "seconds",
    "GradeApart.cell_seconds = -1": "cell_seconds",
    "GradeApart.image = '--privileged'": "expected the name of an image",
    "OwnCells.enabled = False": "sets c.OwnCells.enabled",
    "SaveAutoGrades.enabled = False": "sets c.SaveAutoGrades.enabled",
    "NbGraderPreprocessor.enabled = False": "NbGraderPreprocessor",
    f"{ITS} = []": "does not call configure",
    "Autograde.sanitize_preprocessors = []": "does not call configure",
    f"{ITS} = [*c.{ITS}, 'nbgrader.preprocessors.Execute']": "changes its preprocessors",
    "Autograde.exporter_class = 'x'": "sets c.Autograde.exporter_class",
    "HTMLExporter.preprocessors = ['nbconvert.preprocessors.ExecutePreprocessor']":
        "sets c.HTMLExporter.preprocessors: delete that line",
    "BaseConverter.pre_convert_hook = 'x'": "sets c.BaseConverter",
    "CourseDirectory.root = '/'": "another root",
    "CourseDirectory.feedback_directory = 'x'": "feedback_directory",
}  # fmt: skip
START = "from mha_course.grading.nbgrader import configure\nc = get_config()\n"
SETTINGS = {None: "there is no nbgrader_config.py"} | {f"{START}{lines}": INSTEAD[lines] for lines in INSTEAD}
SETTINGS |= {f"{START}configure(c)\nc.{line}": AFTER[line] for line in AFTER}


@pytest.mark.parametrize(("settings", "words"), SETTINGS.items(), ids=["no file", *INSTEAD, *AFTER])
def test_without_walls_nothing_is_graded(folder, tmp_path, settings, words):
    """Also where the settings cannot be read: nbgrader alone would go on with its own."""
    for part in ("source", "release", "gradebook.db"):
        (tmp_path / part).symlink_to(folder / part)
    shutil.copytree(folder / "submitted" / "ada", tmp_path / "submitted" / "ada")
    if settings is not None:
        (tmp_path / "nbgrader_config.py").write_text(settings)
    done = run("grade", tmp_path, CHAPTER)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert words in done.stderr
    assert not list(tmp_path.glob("autograded/*/*/*"))
    if settings is not None and "podman" not in settings:
        assert run("layout", tmp_path).returncode == 2


def test_a_course_of_the_last_release_goes_on(folder, tmp_path):
    """Its settings have the old line, which works and says the new one."""
    shutil.copytree(folder / "source", tmp_path / "source")
    shutil.copytree(folder / "release", tmp_path / "release")
    shutil.copy(folder / "gradebook.db", tmp_path)
    student = "last-release"
    shutil.copytree(folder / "submitted" / student, tmp_path / "submitted" / student)
    old = START.replace("mha_course", "mha_lab")
    (tmp_path / "nbgrader_config.py").write_text(f"{old}configure(c)\n")
    done = run("grade", tmp_path, CHAPTER)
    assert done.returncode == 0, done.stderr
    assert "write `mha_course.grading`" in done.stderr
    assert list(tmp_path.glob(f"autograded/{student}/{CHAPTER}/{CHAPTER}.ipynb"))


@pytest.mark.parametrize("arguments", [["grade", "", CHAPTER], ["grade", "{}", ""], ["grade", "{}", "../x"]])
def test_nothing_is_guessed(tmp_path, arguments):
    done = run(*(argument.format(tmp_path) for argument in arguments))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert list(tmp_path.iterdir()) == []
