"""The teacher's guide says what is there."""

import re

from mha_lab.exercises import find, names
from tests.notebooks.chapters import NAMES, ROOT, markdown, read

GUIDE = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")


def test_an_easy_exercise_is_worth_one_point_a_medium_two_a_hard_three():
    headings = [
        h for name in NAMES for h in re.findall(r"### Exercise: (\w+) · (\w+), ", markdown(read(name)))
    ]
    assert len(headings) == len(names())
    worth = {"easy": 1, "medium": 2, "hard": 3}
    assert [name for name, level in headings if find(name).points != worth[level]] == []


def test_every_mistake_that_it_names_is_one_of_that_chapter():
    table = GUIDE.split("## What goes wrong where")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\d\d) \| ((?:`[\w-]+`(?:, )?)+) \| .+ \|$", table, re.MULTILINE)
    assert rows
    for number, listed in rows:
        exercises = [find(name) for name in names() if find(name).chapter[:2] == number]
        known = {mistake for exercise in exercises for mistake in exercise.mistakes}
        assert set(re.findall(r"`(.+?)`", listed)) <= known


def test_exercises_of_the_plans_exist():
    plans = GUIDE.split("## Minutes")[0]
    named = set(re.findall(r"`([a-z_]+)`(?: or|[,;]| \|)", plans))
    assert named
    assert named <= set(names())


def test_files_that_it_names_exist():
    for file in re.findall(r"`((?:mha_lab|tests)/[\w/]+(?:\.\w+|Containerfile))`", GUIDE):
        assert file.endswith("NAME.py") or (ROOT / file).is_file(), file
