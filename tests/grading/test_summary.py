"""What a teacher reads at the end: the class by exercise, and each student."""

import inspect
import re

import pytest

from mha_course.checker import diagnosis
from mha_course.exercises import find
from mha_course.grading.gradebook import Row
from mha_course.grading.summary import GENERAL, advice, by_student, for_the_class

pytestmark = pytest.mark.grading
MOST = {"split_heads": 1.0, "merge_heads": 1.0, "essay": 3.0}


def row(student, split, merge, essay=None, **more):
    """A graded student."""
    outcomes = {"split_heads": split, "merge_heads": merge}
    points = {name: float(said == "right") for name, said in outcomes.items()} | {"essay": essay}
    return Row(student, handed_in=True, outcomes=outcomes, points=points, **more)


CLASS = [
    row("ada", "right", "right", 3.0, last_name="Lovelace", first_name="Ada"),
    row("bob", "view-without-transpose", "syntax-error", 0.0, late=5400.0),
    row("cy", "view-without-transpose", "untouched", 0.0, again=True),
    row("dee", "untouched", "right", said_late=True, by_hand={"split_heads": [0.5, None]}, kept=True),
    Row("eve"),
    Row("fay", handed_in=True, points={"split_heads": 1.0}, reason="it is not a notebook"),
]


def test_the_class_by_exercise_the_commonest_first():
    text = for_the_class("03_splitting_heads", CLASS, MOST)
    counts = "graded: 3, kept from before: 1, nothing handed in: 1, could not be graded: 1"
    assert text.startswith(f"03_splitting_heads: {counts}\n")
    assert re.findall(r"(?m)^ +(\d+)  ([\w-]+)$|^(\w+: .*)$", text)[1:] == [
        ("", "", "split_heads: 1 right of 3 who tried, 1 untouched"),
        ("2", "view-without-transpose", ""),
        ("", "", "merge_heads: 2 right of 3 who tried, 1 untouched"),
        ("1", "syntax-error", ""),
    ]
    mistake = find("split_heads").mistakes["view-without-transpose"]
    assert f'{mistake.says} Step "{mistake.section}".' in " ".join(text.split())


def test_each_student_by_exercise():
    table, keys, legend = by_student(CLASS, MOST).split("\n\n")
    lines = table.splitlines()
    assert [line.split() for line in lines[:5]] == [
        ["student", "1", "2", "3", "points"],
        ["Lovelace,", "Ada", "(ada)", "+", "+", "3", "5"],
        ["bob", "x", "?", "0", "0", "late:", "1.5", "hours"],
        ["cy", "x", ".", "0", "0", "graded,", "handed", "in", "again"],
        ["dee", ".*", "+", "1", "waits", "for", "points", "by", "hand;", "late:", "yes"],
    ]
    assert lines[5].split() == ["eve", "nothing", "handed", "in"]
    failed = ["fay", "not", "graded:", "it", "is", "not", "a", "notebook"]
    assert lines[6].split() == failed  # and no points of before
    assert keys.splitlines()[1:] == [" 1 split_heads, 1", " 2 merge_heads, 1", " 3 essay, 3"]
    assert legend.startswith("+ right")
    assert "\n* points by hand" in legend


def test_a_mistake_of_a_function_that_is_called_is_told_as_such():
    text = for_the_class("03", [row("ada", "wrong", "because of split_heads")], MOST)
    advice = "The function is right but for that mistake: it calls split_heads."
    said = f"    1  because of split_heads\n       {advice}"
    assert f"merge_heads: 0 right of 1 who tried\n{said}" in text


def test_a_name_cannot_write_to_the_terminal():
    assert "\x1b" not in by_student([Row("x", last_name="\x1b[2J", first_name="y")], MOST)


def test_each_outcome_says_something_and_names_a_step():
    """Those of every exercise, and those of one."""
    said = set(re.findall(r'_say\(\s*"([a-z-]+)"|Diagnosis\("([a-z-]+)"', inspect.getsource(diagnosis)))
    assert {name for pair in said for name in pair if name} <= GENERAL.keys()
    assert advice("split_heads", "raises") == f'{GENERAL["raises"]} Step "{find("split_heads").section}".'
