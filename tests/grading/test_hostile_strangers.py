"""Two strangers attack a class: nobody gets a point for it, and nobody else loses one."""

import csv
import json
import os
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mha_course.exercises import find
from tests.grading import hostile_strangers as hostile
from tests.grading.honest_strangers import saved, solved
from tests.grading.test_honest_strangers import run

pytestmark = [pytest.mark.grading, pytest.mark.slow]

CHAPTER = "03_splitting_heads"
GROUPS = {
    "points": hostile.POINTS,
    "values": hostile.VALUES,
    "stops": hostile.STOPS,
    "text": hostile.TEXTS,
    "slow": hostile.SLOW,
}
TOGETHER = {"values": 3, "text": 5, "slow": 4}  # attacks of one student: none of these spoils the next
ATTACKS = {
    f"{kind} {', '.join(some)}": (kind, [group[name] for name in some])
    for kind, group in GROUPS.items()
    for n in [TOGETHER.get(kind, 1)]
    for some in (list(group)[i : i + n] for i in range(0, len(group), n))
}
ATTACKS["stops many functions"] = "stops", hostile.MANY_FUNCTIONS


def submit(course: Path, student: str, content: bytes, file: str = f"{CHAPTER}.ipynb") -> None:
    folder = course / "submitted" / student / CHAPTER
    folder.mkdir(parents=True)
    (folder / file).write_bytes(content)


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    course = tmp_path_factory.mktemp("hostile") / "course"
    run("layout", course, CHAPTER)
    hand_in(course)
    said = run("grade", course, CHAPTER)
    print(said)
    return course, said, table(course)


def hand_in(course: Path) -> None:
    text = (course / "release" / CHAPTER / f"{CHAPTER}.ipynb").read_text()
    for name, (kind, cells) in ATTACKS.items():
        submit(course, name, saved(hostile.attack(json.loads(text), cells, kind)))
    for number in range(2):
        submit(
            course, f"reads {number}", saved(hostile.attack(json.loads(text), hostile.reads(course), "code"))
        )
    right = saved(solved(json.loads(text), "merge_heads"))
    submit(course, hostile.HONEST, right)
    for name in hostile.NAMES:
        submit(course, name, right)
    submit(course, os.fsdecode(b"\xff\xfe\x80"), right)
    files(course, right)


def files(course: Path, right: bytes) -> None:
    """Files that are no notebook, or more than one."""
    lists = b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [' + b"[]," * 6_000_000 + b"[]]}"
    submit(course, "file lists", lists)
    submit(course, "file twice", right.replace(b'"cells":', b'"cells": 3, "nbformat": "x", "cells":', 1))
    submit(
        course,
        "file marks",
        right.replace(b'"grade_id": "', b'"points": 1e999, "task": true, "grade_id": "../../', 9),
    )
    submit(
        course,
        "file types",
        json.dumps(
            {
                "nbformat": 4,
                "cells": [
                    {"cell_type": ["code"], "source": "x"},
                    {"cell_type": "code", "source": [1, [2]]},
                    {"cell_type": "\ud800", "source": "a"},
                    {"cell_type": "code", "source": {"a": 1}},
                    None,
                    3,
                    [],
                    {"cell_type": "code", "source": "\0\ud800", "metadata": {"nbgrader": [1]}},
                    {
                        "cell_type": "code",
                        "source": "1",
                        "metadata": {"nbgrader": {"grade_id": "\ud800", "grade": True, "points": -1}},
                    },
                ],
            }
        ).encode(),
    )
    same = json.loads(right)
    for cell in same["cells"]:
        cell["id"] = "x"
        cell["metadata"]["nbgrader"] = {
            "grade": True,
            "solution": True,
            "locked": True,
            "points": 99,
            "schema_version": 99,
            "grade_id": "check-split_heads",
            "cell_type": "code",
            "checksum": "0",
        }
    submit(course, "file same marks", saved(same))
    folder = course / "submitted" / "file folder" / CHAPTER
    (folder / f"{CHAPTER}.ipynb").mkdir(parents=True)
    deep = folder
    for _ in range(60):
        deep = deep / "d"
    deep.mkdir(parents=True)
    for number in range(3000):
        (folder / f"{CHAPTER} ({number}).ipynb").touch()


def table(course: Path) -> dict[str, dict[str, str]]:
    with (course / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        return {row["student_id"]: row for row in csv.DictReader(file)}


def points(row: dict[str, str]) -> float:
    return sum(float(row[name] or 0) for name in hostile.ANSWERED)


@pytest.mark.parametrize("name", ATTACKS)
def test_no_point_for_an_attack(graded, name):
    """It is graded, or a sentence names it."""
    _, said, rows = graded
    assert name in rows or name in said
    assert name not in rows or points(rows[name]) == 0


def test_the_honest_keep_their_points(graded):
    _, _, rows = graded
    assert points(rows[hostile.HONEST]) == find("merge_heads").points


@pytest.mark.parametrize("name", hostile.NAMES)
def test_who_has_an_odd_name_is_graded_or_named(graded, name):
    _, said, rows = graded
    found = [row for who, row in rows.items() if who.lstrip("'") == name]
    if found and found[0]["merge_heads"]:
        assert points(found[0]) == find("merge_heads").points
    else:
        plain = ascii(name)[1:-1]
        assert plain[:30] in said or name[:30] in said


def test_nothing_of_others_is_read(graded):
    course, _, _ = graded
    for number in range(2):
        page = (course / "autograded" / f"reads {number}" / CHAPTER / f"{CHAPTER}.ipynb").read_text()
        shown = "".join(
            "".join(output.get("text", ""))
            for cell in json.loads(page)["cells"]
            for output in cell.get("outputs", [])
        )
        assert "LOOKED\n" in shown
        assert "FOUND" not in shown


class Looks(HTMLParser):
    """What could act in a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple] = []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        if tag in {
            "script",
            "iframe",
            "object",
            "embed",
            "form",
            "base",
            "link",
            "frame",
            "applet",
            "button",
        }:
            self.found.append((tag, attrs))
        if tag == "meta" and any(k == "http-equiv" and (v or "").lower() == "refresh" for k, v in attrs):
            self.found.append((tag, attrs))
        for key, value in attrs:
            here = (value or "").strip().lower()
            if key.startswith("on") or (
                key in ("href", "src", "xlink:href") and here.startswith(("javascript", "http"))
            ):
                self.found.append((tag, key, value))


def test_no_page_runs_or_loads_anything(graded):
    course, _, _ = graded
    allowed = {*_acts(course / "feedback" / hostile.HONEST / CHAPTER / f"{CHAPTER}.html")}
    pages = [*(course / "feedback").rglob("*.html"), *course.glob("*.html")]
    assert len(pages) > len(ATTACKS)
    assert not {str(page): more for page in pages if (more := {*_acts(page)} - allowed)}


def _acts(page: Path) -> list[str]:
    looks = Looks()
    looks.feed(page.read_text(encoding="utf-8"))
    return [str(each) for each in looks.found]


def test_no_cell_of_a_table_begins_a_formula(graded):
    course, _, _ = graded
    for path in course.glob("*.csv"):
        for cell in (
            path.read_text(encoding="utf-8-sig")
            .replace(";", "\n")
            .replace(",", "\n")
            .replace("\t", "\n")
            .split("\n")
        ):
            assert not cell.strip(' "').startswith(("=", "+", "@", "＝", "＋", "＠")), (path.name, cell)
