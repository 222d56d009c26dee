"""The teacher's guide says what is there."""

import re
from itertools import pairwise

import pytest

from mha_lab.exercises import find, names
from mha_lab.grading import sandbox, worker
from tests.notebooks.chapters import NAMES, ROOT, markdown, read

GUIDE = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")


def test_minutes_and_points_of_every_exercise():
    found = re.findall(r"^\| (\d\d) \| `(\w+)` \| (\w+) \| (\d+) \| (\d) \|$", GUIDE, re.MULTILINE)
    expected = [
        (chapter[:2], name, level, minutes, str(find(name).points))
        for chapter in NAMES
        for name, level, minutes in re.findall(
            r"^### Exercise: (\w+) · (\w+), (\d+) minutes$", markdown(read(chapter)), re.MULTILINE
        )
    ]
    assert found == expected
    assert len(found) == len(names())
    worth = {"easy": "1", "medium": "2", "hard": "3"}
    assert all(worth[level] == points for _, _, level, _, points in found)


def test_every_mistake_that_it_names_is_one_of_that_chapter():
    table = GUIDE.split("## What goes wrong where")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\d\d) \| ((?:`[\w-]+`(?:, )?)+) \| .+ \|$", table, re.MULTILINE)
    assert rows
    assert {number for number, _ in rows} <= {name[:2] for name in NAMES}
    for number, listed in rows:
        exercises = [find(name) for name in names() if find(name).chapter[:2] == number]
        known = {mistake for exercise in exercises for mistake in exercise.mistakes}
        assert set(re.findall(r"`(.+?)`", listed)) <= known


@pytest.mark.parametrize(
    ("plan", "minutes"), {"One session of 90 minutes": 90, "One chapter in one session": 60}.items()
)
def test_a_plan_fills_its_minutes(plan, minutes):
    part = GUIDE.split(f"\n## {plan}\n")[1].split("\n## ")[0]
    assert f" {minutes} minutes" in f" {plan} {part}"
    spans = [(int(a), int(b)) for a, b in re.findall(r"^\| (\d+)–(\d+) \|", part, re.MULTILINE)]
    assert (spans[0][0], spans[-1][1]) == (0, minutes)
    assert all(before[1] == after[0] for before, after in pairwise(spans))


def test_the_plan_of_one_chapter_takes_its_steps_in_order():
    part = GUIDE.split("\n## One chapter in one session\n")[1].split("\n## ")[0]
    rows = " ".join(re.findall(r"\| (steps? [^|]+) \|", part))
    assert re.findall(r"\b\d\b", rows) == list("1234567")
    assert "## 7 Break it" in markdown(read("03_splitting_heads"))


@pytest.mark.parametrize(
    "name", re.findall(r"`([a-z_]+)` or|`([a-z_]+)`[,;]|`([a-z_]+)` \|", GUIDE.split("## Minutes")[0])
)
def test_exercises_of_the_plans_exist(name):
    assert "".join(name) in names()


def test_links_limits_and_files():
    for target in re.findall(r"\]\((?!https)([^)#]+)\)", GUIDE):
        assert (ROOT / "docs" / target).is_file()
    for file in re.findall(r"`((?:mha_lab|tests)/[\w/]+(?:\.\w+|Containerfile))`", GUIDE):
        assert file.endswith("NAME.py") or (ROOT / file).is_file(), file
    command = " ".join(sandbox.command("podman"))
    assert "--memory=6g" in command
    assert "--pids-limit=256" in command
    assert worker.MEMORY == 4 * 2**30
