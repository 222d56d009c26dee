"""Right answers of strangers, through the door that a teacher uses: nothing is lost."""

import csv
import json
import subprocess
import sys
import unicodedata
import zipfile
from functools import cache
from pathlib import Path

import pytest

import tests.grading.honest_more_strangers  # noqa: F401 (it adds its own)
from mha_course.exercises import find
from tests.grading.honest_strangers import CHAPTERS, STRANGERS, Stranger
from tests.notebooks.chapters import ROOT

pytestmark = [pytest.mark.grading, pytest.mark.slow]


def run(*command: object) -> str:
    """What the command says, whether it ends with an error or not."""
    done = subprocess.run(
        [sys.executable, "-m", "mha_course.grading", *map(str, command)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=3600,
    )
    return done.stdout + done.stderr


def _in_zip(number: int, one: Stranger, name: str) -> str:
    person = f"{one.student}_{1000 + number}"
    match one.door:
        case "moodle":
            return f"{person}_assignsubmission_file{'_' * (number % 2)}/{name}"
        case "moodle flat":
            return f"{person}_assignsubmission_file_{name}"
        case "again":
            return f"submissions/{person}_assignsubmission_file_/{name}"
    student, *late = one.student.split()
    return "_".join([student, *late, str(1000 + number), str(90_000 + number), name])


def folder(number: int, one: Stranger) -> str:
    """The student's id in the course."""
    return one.student if one.door == "folder" else f"{one.student.removesuffix(' LATE')}_{1000 + number}"


def hand_in(course: Path) -> None:
    released = {
        number: json.loads((course / "release" / name / f"{name}.ipynb").read_text())
        for number, name in CHAPTERS.items()
    }
    archives: dict[tuple[str, str], dict[str, bytes]] = {}
    for number, one in enumerate(STRANGERS):
        for name, content in one.hand_in(released[one.chapter]):
            if one.door == "folder":
                file = course / "submitted" / one.student / CHAPTERS[one.chapter] / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            else:
                key = one.chapter, one.door.removesuffix(" flat")
                archives.setdefault(key, {})[_in_zip(number, one, name)] = content
    for (chapter, door), files in archives.items():
        path = course / f"{chapter} {door}.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
                if door == "again":
                    archive.writestr(f"__MACOSX/{name.replace('/', '/._')}", bytes(200))
        print(run("collect", course, CHAPTERS[chapter], "--zip", path))


@pytest.fixture(scope="module")
def grades(tmp_path_factory):
    course = tmp_path_factory.mktemp("strangers") / "course"
    run("layout", course)
    hand_in(course)

    @cache
    def table(chapter: str) -> dict[str, dict[str, str]]:
        print(run("grade", course, CHAPTERS[chapter]))
        (found,) = course.rglob("grades.csv")
        with found.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
        return {unicodedata.normalize("NFC", row["student_id"]): row for row in rows}

    return table


@pytest.mark.parametrize(
    "number",
    range(len(STRANGERS)),
    ids=[f"{one.chapter} {one.door}: {one.student[:50]}" for one in STRANGERS],
)
def test_a_stranger_loses_nothing(grades, number):
    one = STRANGERS[number]
    row = grades(one.chapter).get(unicodedata.normalize("NFC", folder(number, one)))
    assert row, "the student is not in the table"
    lost = {name: row for name in one.right if float(row[name] or 0) != find(name).points}
    assert not lost
