"""Shapes of what learners hand in: no honest one is lost, and no other one takes a foreign name."""

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mha_course.grading import collect, intake, people, record, shapes
from mha_course.grading.__main__ import CONFIGURATION, main
from mha_course.grading.submission import taken
from tests.grading import handed_in
from tests.grading.handed_in import Link, Newer, Shape, notebook, pack

pytestmark = pytest.mark.grading
C = handed_in.C
# The files of the others in the class, which no shape may change.
IN_MOODLE = {
    f"{who}_assignsubmission_file/{C}.ipynb": who for who in (handed_in.V, "Zed Last_900", "Ann First_901")
}
IN_CANVAS = {f"{who}_9{n}_{C}.ipynb": who for n, who in enumerate((handed_in.W, "zed_900", "ann_901"))}


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course without a sandbox and without its chapters, of which only the names matter here."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "course"
    for chapter in (C, "04_masking", "05_output_projection"):
        (folder / "source" / chapter).mkdir(parents=True)
        (folder / "source" / chapter / f"{chapter}.ipynb").touch()
    exchange = f'\nc.Exchange.root = "{tmp_path}/exchange"\nc.ExchangeCollect.check_owner = False\n'
    (folder / "nbgrader_config.py").write_text(CONFIGURATION + exchange)
    return folder


def unpack(folder: Path, files: dict[str, object]) -> None:
    """The files of a shape below a folder."""
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        plain = content.content if isinstance(content, Newer) else content
        if isinstance(plain, Link):
            file.symlink_to(plain.to)
            continue
        file.write_bytes(notebook(plain) if isinstance(plain, str) else plain)
        moment = time.mktime((*(handed_in.NEW if isinstance(content, Newer) else handed_in.OLD), 0, 0, 0))
        os.utime(file, (moment, moment))


def graded(course: Path) -> dict[str, bytes]:
    """What would be graded, by student."""
    found, _ = intake.students(course / "submitted", C)
    return {student: taken(course, C, student).data for student in found}


def as_bytes(marks: dict[str, object]) -> dict[str, bytes]:
    return {student: notebook(mark) if isinstance(mark, str) else mark for student, mark in marks.items()}


def collect_and_see(course, capsys, *arguments):
    """Collect; what would be graded then, and what was said."""
    start = time.process_time()
    assert main(["collect", str(course), C, *arguments]) in (0, 1)
    assert time.process_time() - start < 5
    assert {path.name for path in course.parent.iterdir()} <= {"course", "all.zip", "exchange"}
    return graded(course), "".join(capsys.readouterr())


def zipped(course: Path, shape: Shape, others: dict[str, object]) -> list[str]:
    around = next(iter(shape.files)).replace("\\", "/").split("/")[0]
    around = f"{around}/" if around in ("all", "submissions") else ""
    file = course.parent / "all.zip"
    files = shape.files | {f"{around}{name}": content for name, content in others.items()}
    file.write_bytes(pack(files, shape.unflagged))
    return ["--zip", str(file)]


def named(shapes_: dict[str, Shape]) -> dict[str, object]:
    return {"argvalues": shapes_.values(), "ids": shapes_.keys()}


@pytest.mark.parametrize("shape", **named(handed_in.MOODLE))
def test_moodle_loses_nobody(course, capsys, shape):
    found, said = collect_and_see(course, capsys, *zipped(course, shape, IN_MOODLE))
    assert found == as_bytes({who: who for who in (handed_in.V, "Zed Last_900", "Ann First_901")} | shape.has)
    assert shape.said in said
    assert "not collected" not in said


@pytest.mark.parametrize("shape", **named(handed_in.CANVAS))
def test_canvas_loses_nobody(course, capsys, shape):
    found, said = collect_and_see(course, capsys, *zipped(course, shape, IN_CANVAS))
    assert found == as_bytes({who: who for who in (handed_in.W, "zed_900", "ann_901")} | shape.has)
    assert shape.said in said
    assert "not collected" not in said


@pytest.mark.parametrize("shape", **named(handed_in.FOLDER))
def test_a_folder_loses_nobody(course, shape):
    unpack(course / "submitted", shape.files | {f"zed/{C}/{C}.ipynb": "zed"})
    assert graded(course) == as_bytes(shape.has | {"zed": "zed"})


@pytest.mark.parametrize("shape", **named(handed_in.EXCHANGE))
def test_the_exchange_loses_nobody(course, capsys, shape):
    inbound = course.parent / "exchange" / "attention" / "inbound"
    unpack(inbound, shape.files | {f"zed+{C}+t+r/{C}.ipynb": "zed", "ada+04_masking+t+r/x.ipynb": "x"})
    found, said = collect_and_see(course, capsys)
    assert found == as_bytes(shape.has | {"zed": "zed"})
    assert "not collected" not in said


@pytest.mark.parametrize("shape", **named(handed_in.HOSTILE_MOODLE))
def test_moodle_gives_nobody_a_foreign_name(course, capsys, shape):
    found, said = collect_and_see(course, capsys, *zipped(course, shape, IN_MOODLE))
    assert found == as_bytes({who: who for who in (handed_in.V, "Zed Last_900", "Ann First_901")} | shape.has)
    assert shape.said in said
    assert ("not collected" in said) == (not shape.has)


@pytest.mark.parametrize("shape", **named(handed_in.HOSTILE_CANVAS))
def test_canvas_gives_nobody_a_foreign_name(course, capsys, shape):
    found, said = collect_and_see(course, capsys, *zipped(course, shape, IN_CANVAS))
    assert found == as_bytes({who: who for who in (handed_in.W, "zed_900", "ann_901")} | shape.has)
    assert shape.said in said
    assert ("not collected" in said) == (not shape.has)


@pytest.mark.parametrize("shape", **named(handed_in.HOSTILE_FOLDER))
def test_a_folder_gives_nobody_a_foreign_name(course, shape):
    unpack(course / "submitted", {f"{who}/{C}/{C}.ipynb": who for who in ("victim", "zed")} | shape.files)
    found, refused = intake.students(course / "submitted", C)
    data = {}
    for student in found:
        try:
            data[student] = taken(course, C, student).data
        except intake.Refused as reason:
            refused[student] = str(reason)
    assert data == as_bytes({"victim": "victim", "zed": "zed"})
    (student,) = refused
    assert shape.said in f"{student!a}: {refused[student]}"


def test_in_the_exchange_a_file_must_be_its_owners_and_no_link(course, capsys, monkeypatch):
    inbound = course.parent / "exchange" / "attention" / "inbound"
    private = {"private.ipynb": "private"}
    unpack(course.parent / "exchange", private)
    unpack(
        inbound,
        {
            f"zed+{C}+t+r/Copy of {C}.ipynb": "zed",
            f"mal+{C}+t+r/{C}.ipynb": Link("../../../private.ipynb"),
            f"eve+{C}+t+r": Link("../../../exchange"),
            f"victim+{C}+t+r/{C}.ipynb": "evil",
            f"vic\ntim+{C}+t+r/{C}.ipynb": "evil",
        },
    )
    (course / "nbgrader_config.py").write_text(
        (course / "nbgrader_config.py").read_text().replace("check_owner = False", "check_owner = True")
    )
    monkeypatch.setattr(collect, "_account", lambda _: "zed")
    found, said = collect_and_see(course, capsys)
    assert found == {"zed": notebook("zed")}
    assert said.count("not collected: ") == 4
    for words in ("'mal+", "is a link", "'eve+", "belongs to the account 'zed'", "cannot be shown"):
        assert words in said


def test_many_files_and_folders_of_one_student_stop_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(intake, "MANY", 50)
    unpack(tmp_path, {f"mal/{C}/{i}/{j}/x": b"x" for i in range(12) for j in range(12)})
    unpack(tmp_path, {f"mal/{C}/{C}.ipynb": "x"})
    assert [file.path for file in intake.files(tmp_path, "mal", C)].count(f"{C}.ipynb") == 1
    listed = []
    monkeypatch.setattr(os, "scandir", lambda path, scandir=os.scandir: listed.append(path) or scandir(path))
    intake.files(tmp_path, "mal", C)
    assert len(listed) < 60


def test_any_bytes_in_place_of_a_zip_file_are_one_sentence():
    """A student's zip file with a few bytes changed is taken, or refused, and nothing else happens."""
    whole = pack({f"x/{C}.ipynb": "x", "y.txt": b"y" * 50})
    for i in range(len(whole)):
        for value in (0, 0xFF, whole[i] ^ 0x10):
            data = whole[:i] + bytes([value]) + whole[i + 1 :]
            files = [shapes.File("a.zip", (0,), lambda data=data: (data, 0.0, 0))]
            with suppress(shapes.Refused):
                assert shapes.pick(files, C).path


@given(st.text(max_size=300))
@settings(max_examples=400, deadline=None)
def test_every_name_of_a_platform_becomes_the_name_of_a_folder(name):
    for number in ("_4711", "_anon4", ""):
        folder = people.folder_name(f"{name}{number}")
        assert people.bad_name(folder) == ""
        assert (folder.endswith(number), people.folder_name(folder)) == (True, folder)
        assert len(folder.encode()) < 210
        assert "/" not in folder
        assert people.shown(folder) == folder


@pytest.mark.parametrize("letter", ["n", "é", "名"])
def test_the_longest_name_of_a_folder_fits_into_that_of_a_record(tmp_path, letter):
    """A file system has room for 255 bytes; what is beside a name in that of a file takes some of them."""
    name = next(name for n in range(250, 0, -1) if not people.bad_name(name := letter * n))
    record.keep(tmp_path, C, name, record.Record("", "", {}, {}))
    assert record.read(tmp_path, C, name)
    assert people.bad_name(name + letter) == "its name is too long; rename the folder"


def test_no_name_takes_long():
    start = time.process_time()
    for name in ("_1" * 30_000, ".ipynb" * 10_000 + "x", "03_" * 20_000, f"{C}-1" * 3000, "(" * 60_000):
        shapes.kind(f"{name}/{name}", C, [C, "04_masking"])
        shapes.number(name)
    assert time.process_time() - start < 1


def test_there_are_as_many_shapes_as_were_asked_for():
    honest = handed_in.MOODLE, handed_in.CANVAS | handed_in.FOLDER | handed_in.EXCHANGE
    hostile = [*handed_in.HOSTILE_MOODLE, *handed_in.HOSTILE_CANVAS, *handed_in.HOSTILE_FOLDER]
    assert [len(each) >= 30 for each in (*honest, hostile)] == [True] * 3
