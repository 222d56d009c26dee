"""Zip files of Moodle and Canvas, and files that a browser has renamed."""

import json
import zipfile
from pathlib import Path

import pytest

from mha_course.grading import intake
from mha_course.grading.__main__ import CONFIGURATION, main
from mha_course.grading.platforms import canvas, moodle
from mha_course.grading.shapes import File, Kind, Refused, kind, pick

pytestmark = pytest.mark.grading
CHAPTER = "03_splitting_heads"
NAMES = {
    (moodle, f"Ada Lovelace_4711_assignsubmission_file/{CHAPTER}.ipynb"): ("Ada Lovelace_4711", False),
    (moodle, f"Ada Lovelace_4711_assignsubmission_file_/{CHAPTER} (1).ipynb"): ("Ada Lovelace_4711", False),
    (moodle, f"Ada Lovelace_4711_assignsubmission_file_{CHAPTER}.ipynb"): ("Ada Lovelace_4711", False),
    (moodle, f"Participant_12_assignsubmission_file_/sub/{CHAPTER}.ipynb"): ("Participant_12", False),
    (moodle, "Ada Lovelace_4711_assignsubmission_onlinetext/x.html"): ("Ada Lovelace_4711", False),
    (moodle, f"Ada_Lovelace_4711_assignsubmission_file/{CHAPTER}.ipynb"): None,
    (moodle, f"lovelaceada_4711_9001_{CHAPTER}.ipynb"): None,
    (canvas, f"lovelaceada_4711_9001_{CHAPTER}.ipynb"): ("lovelaceada_4711", False),
    (canvas, f"lovelaceada_LATE_4711_9001_{CHAPTER}-1.ipynb"): ("lovelaceada_4711", True),
    (canvas, f"LATE_anon_Ab1cD_9001_{CHAPTER}.ipynb"): ("anon_Ab1cD", True),
    (canvas, "lovelaceada_4711_text.html"): ("lovelaceada_4711", False),
    (canvas, f"submissions/ek_5_6_{CHAPTER}.ipynb"): None,
    (canvas, f"{CHAPTER}.ipynb"): None,
    (canvas, f"lovelaceada_4711_9001_{CHAPTER}.pdf"): ("lovelaceada_4711", False),
}


@pytest.mark.parametrize(("platform", "name"), NAMES)
def test_whose_file_it_is(platform, name):
    said = platform(name)
    assert (said and (said.student, said.late)) == NAMES[platform, name]


@pytest.mark.parametrize("number", [4711, 2026, 28])
def test_a_file_is_in_doubt_if_other_numbers_than_the_first_may_be_those_of_canvas(number):
    assert canvas(f"ada_1_{number}_b_2_9001_x.ipynb").doubt
    assert canvas(f"ada_1_{number}_345_x.ipynb").doubt  # ada_1 may be somebody's own name
    assert not canvas(f"ada_1_{number}_{CHAPTER}_2026_11_28_v_1_2_x.ipynb").doubt


OF_THIS = [" (1)", "(2)", " - Copy", "-Copy1", "_2", " - Kopie", "_An", "_final", "(x)", " of Ada", "1" * 100]
KINDS = {
    **{f"{CHAPTER}{end}.ipynb": Kind.CHAPTER for end in OF_THIS},
    f"a/b/Copy of {CHAPTER}.ipynb": Kind.CHAPTER,
    f"{CHAPTER.upper()}.IPYNB": Kind.CHAPTER,
    f"04_masking_and_{CHAPTER}.ipynb": Kind.CHAPTER,
    f"{CHAPTER}-checkpoint.ipynb": Kind.CHECKPOINT,
    f".ipynb_checkpoints/{CHAPTER}-checkpoint.ipynb": Kind.LEFT_BEHIND,
    f"._{CHAPTER}.ipynb": Kind.LEFT_BEHIND,
    f"__MACOSX/{CHAPTER}.ipynb": Kind.LEFT_BEHIND,
    "homework.ipynb": Kind.ANY,
    "03.ipynb": Kind.ANY,
    f"1{CHAPTER}.ipynb": Kind.ANY,
    "28_11_mine.ipynb": Kind.ANY,
    "04_masking.ipynb": Kind.ANOTHER,
    "10_of_another_course.ipynb": Kind.ANOTHER,
    "Copy of 05 Output Projection (1).ipynb": Kind.ANOTHER,
    f"{CHAPTER}.zip": Kind.ARCHIVE,
    f"{CHAPTER}.pdf": Kind.OTHER,
    f"{CHAPTER}.ipynb.pdf": Kind.OTHER,
    "data.json": Kind.OTHER,
}


@pytest.mark.parametrize("name", KINDS)
def test_what_a_name_says(name):
    assert kind(name, CHAPTER, [CHAPTER, "04_masking", "05_output_projection"]) is KINDS[name]


WHOLE = b'{"cells": [], "nbformat": 4}\n'
PICKED = {
    "the newest": ({"a": (1, WHOLE), "b": (2, WHOLE)}, "b", "it is the newest"),
    "alone": ({"a": (1, WHOLE)}, "a", ""),
    "alone, and not whole": ({"a": (1, b"")}, "a", ""),
    "the newest is not whole": (
        {"a": (1, WHOLE), "b": (2, WHOLE[:9])},
        "a",
        "it is the newest that is whole",
    ),
    "none is whole": ({"a": (1, b""), "b": (2, b"{")}, "b", "it is the newest, and none is whole"),
}


@pytest.mark.parametrize("case", PICKED)
def test_of_several_files_one_counts_and_the_teacher_reads_why(case):
    given, name, why = PICKED[case]
    files = [
        File(f"{CHAPTER}_{end}.ipynb", (when,), lambda data=data: (data, 0.0, 0))
        for end, (when, data) in given.items()
    ]
    picked = pick(files, CHAPTER)
    assert (picked.path, picked.data, picked.why) == (f"{CHAPTER}_{name}.ipynb", given[name][1], why)


NONE = {
    (): f"there is no notebook of {CHAPTER}",
    ("04_masking.ipynb",): f"there is no notebook of {CHAPTER}, only '04_masking.ipynb'",
    ("a.rar", ".DS_Store"): f"there is no notebook of {CHAPTER}, only 'a.rar'",
    ("1", "2", "3", "4"): f"there is no notebook of {CHAPTER}, only '1', '2', '3', ...",
}


@pytest.mark.parametrize("names", NONE)
def test_if_there_is_none_what_is_there_is_named(names):
    with pytest.raises(Refused) as refused:
        pick([File(name, (0,), lambda: (WHOLE, 0.0, 0)) for name in names], CHAPTER, ["04_masking"])
    assert str(refused.value) == NONE[names]


@pytest.fixture
def course(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "course"
    source = folder / "source" / CHAPTER / f"{CHAPTER}.ipynb"
    source.parent.mkdir(parents=True)
    source.touch()
    (folder / "nbgrader_config.py").write_text(CONFIGURATION)
    return folder


def pack(file, files):
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return str(file)


def test_a_zip_file_is_collected_and_writes_nowhere_else(course, tmp_path, capsys):
    link = zipfile.ZipInfo(f"linked_1_2_{CHAPTER}.ipynb")
    link.external_attr = 0o120777 << 16
    newer = zipfile.ZipInfo(f"ek_5_7_{CHAPTER}-2.ipynb", (2020, 1, 1, 0, 0, 0))
    file = pack(
        tmp_path / "all.zip",
        {
            f"lovelaceada_LATE_4711_9001_{CHAPTER} (1).ipynb": "late",
            f"ek_5_6_{CHAPTER}.ipynb": "older, and written later",
            newer: '{"cells": "newest"}',
            "doe_8_9_04_masking.ipynb": "of another chapter",
            "doe_8_10_homework.ipynb": "renamed",
            "doe_8_11_remarks.docx": "beside a notebook",
            "poe_6_1_homework.docx": "in place of a notebook",
            f"../../evil_1_2_{CHAPTER}.ipynb": "elsewhere",
            f".._3_4_{CHAPTER}.ipynb": "of dots",
            f"big_1_2_{CHAPTER}.ipynb": b" " * (intake.MAX_FILE + 1),
            link: "/etc/passwd",
        },
    )
    assert main(["collect", str(course), "03", "--zip", file]) == 1
    found = {str(path.relative_to(course)): path.read_text() for path in course.glob("submitted/*/*/*")}
    assert found == {
        f"submitted/{student}/{CHAPTER}/{CHAPTER}.ipynb": content
        for student, content in {
            "lovelaceada_4711": "late", "ek_5": '{"cells": "newest"}', "doe_8": "renamed",
            "student_3": "of dots",
        }.items()
    }  # fmt: skip
    said = capsys.readouterr().err
    assert "'../../evil_1_2_03_splitting_heads.ipynb': the platform gives no file such a name" in said
    assert f"'poe_6': there is no notebook of {CHAPTER}, only 'homework.docx'" in said
    assert "doe_8" not in said
    assert "larger than 20 MB" in said
    assert "is a link" in said
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("course", "all.zip")] == []
    record = json.loads((course / "received.json").read_text())[CHAPTER]
    assert [len(record[student]) for student in ("lovelaceada_4711", "ek_5")] == [3, 2]


@pytest.mark.parametrize(
    ("content", "words"), [("x", "it cannot be read"), ({"a.ipynb": ""}, "no file in it")]
)
def test_another_file_is_one_clear_line(course, tmp_path, capsys, content, words):
    file = tmp_path / "x.zip"
    if isinstance(content, str):
        file.write_text(content)
    else:
        pack(file, content)
    assert main(["collect", str(course), "03", "--zip", str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_a_zip_file_that_python_cannot_open_is_one_clear_line(course, tmp_path, capsys):
    """One file of it says that it needs a newer version of zip."""
    file = Path(pack(tmp_path / "x.zip", {f"Ada_1_assignsubmission_file_/{CHAPTER}.ipynb": "{}"}))
    data = bytearray(file.read_bytes())
    data[data.rindex(b"PK\1\2") + 6] = 99
    file.write_bytes(data)
    assert main(["collect", str(course), "03", "--zip", str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "it cannot be read: zip file version 9.9" in line


def test_a_folder_that_is_no_course_is_called_so(tmp_path, capsys):
    for command in ("grade", "collect", "report"):
        assert main([command, str(tmp_path / "nocourse"), "03"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"there is no nbgrader_config.py in {tmp_path / 'nocourse'}")


@pytest.mark.parametrize("chapter", ["99", "x/../y", "0*", "splitting"])
def test_an_unknown_chapter_is_one_clear_line(course, capsys, chapter):
    for command in ("grade", "collect"):
        assert main([command, str(course), chapter]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith(f"its chapters are: {CHAPTER}")
