"""Zip files of Moodle and Canvas, and files that a browser has renamed."""

import json
import os
import time
import zipfile

import pytest

from mha_lab.grading import intake
from mha_lab.grading.__main__ import CONFIGURATION, main
from mha_lab.grading.platforms import recognised

pytestmark = pytest.mark.grading
CHAPTER = "03_splitting_heads"
NAMES = {
    f"Ada Lovelace_4711_assignsubmission_file/{CHAPTER}.ipynb": ("Ada Lovelace_4711", False),
    f"Ada Lovelace_4711_assignsubmission_file_/{CHAPTER} (1).ipynb": ("Ada Lovelace_4711", False),
    f"Ada Lovelace_4711_assignsubmission_file_{CHAPTER}.ipynb": ("Ada Lovelace_4711", False),
    f"Participant_12_assignsubmission_file_/sub/{CHAPTER}.ipynb": ("Participant_12", False),
    f"lovelaceada_4711_9001_{CHAPTER}.ipynb": ("lovelaceada_4711", False),
    f"lovelaceada_LATE_4711_9001_{CHAPTER}-1.ipynb": ("lovelaceada_4711", True),
    f"LATE_anon_Ab1cD_9001_{CHAPTER}.ipynb": ("anon_Ab1cD", True),
    f"submissions/ek_5_6_{CHAPTER}.ipynb": ("ek_5", False),
    "Ada Lovelace_4711_assignsubmission_onlinetext/onlinetext.html": None,
    f"{CHAPTER}.ipynb": None,
    f"lovelaceada_4711_9001_{CHAPTER}.pdf": ("lovelaceada_4711", False),
}


@pytest.mark.parametrize("name", NAMES)
def test_whose_file_it_is(name):
    sent = recognised(zipfile.ZipInfo(name))
    assert (sent and (sent.student, sent.late)) == NAMES[name]


RENAMED = [" (1)", "(2)", " - Copy", "-Copy1", "-1", "_2", " copy", " - Copy (3)", ""]
OTHERS = ["x", "_answers", " of Ada", "(x)", "1" * 100]


def test_a_copy_is_found_by_its_name():
    assert all(intake.is_copy(f"{CHAPTER}{end}.ipynb", CHAPTER) for end in RENAMED)
    assert not any(intake.is_copy(f"{CHAPTER}{end}.ipynb", CHAPTER) for end in OTHERS)
    assert intake.is_copy(f"{CHAPTER.upper()}.ipynb", CHAPTER)
    start = time.process_time()
    assert not intake.is_copy(f"{CHAPTER}{'-1' * 100} x.ipynb", CHAPTER)
    assert time.process_time() - start < 1  # no expression that never ends


def test_the_newest_copy_counts_and_a_link_does_not(tmp_path):
    old, new = tmp_path / f"{CHAPTER}.ipynb", tmp_path / f"{CHAPTER} (1).ipynb"
    new.touch()
    assert intake.file_of(tmp_path, CHAPTER) == new.name
    old.touch()
    os.utime(old, (1, 1))
    assert intake.file_of(tmp_path, CHAPTER) == new.name
    os.utime(new, (0, 0))
    assert intake.file_of(tmp_path, CHAPTER) == old.name
    (tmp_path / f"{CHAPTER} (2).ipynb").symlink_to("/etc/passwd")
    assert intake.file_of(tmp_path, CHAPTER) == old.name
    assert intake.file_of(tmp_path / "none", CHAPTER) == old.name


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
    older = zipfile.ZipInfo(f"ek_5_7_{CHAPTER}-2.ipynb", (2020, 1, 1, 0, 0, 0))
    file = pack(
        tmp_path / "all.zip",
        {
            f"lovelaceada_LATE_4711_9001_{CHAPTER} (1).ipynb": "late",
            f"ek_5_6_{CHAPTER}.ipynb": "newest",
            older: "older",
            "doe_8_9_04_masking.ipynb": "of another chapter",
            "doe_8_10_homework.ipynb": "renamed",
            "doe_8_11_remarks.docx": "beside a notebook",
            "poe_6_1_homework.docx": "in place of a notebook",
            f"../../evil_1_2_{CHAPTER}.ipynb": "elsewhere",
            f".._3_4_{CHAPTER}.ipynb": "above",
            f"big_1_2_{CHAPTER}.ipynb": b" " * (intake.MAX_FILE + 1),
            link: "/etc/passwd",
        },
    )
    assert main(["collect", str(course), "03", "--zip", file]) == 1
    found = {str(path.relative_to(course)): path.read_text() for path in course.glob("submitted/*/*/*")}
    assert found == {
        f"submitted/{student}/{CHAPTER}/{CHAPTER}.ipynb": content
        for student, content in {
            "lovelaceada_4711": "late", "ek_5": "newest", "doe_8": "renamed", "evil_1": "elsewhere",
        }.items()
    }  # fmt: skip
    said = capsys.readouterr().err
    assert f"'doe_8_9_04_masking.ipynb': it is not {CHAPTER}.ipynb" in said
    assert "its name must begin with a letter" in said
    assert "'poe_6_1_homework.docx': it is no notebook" in said
    assert "remarks" not in said
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
