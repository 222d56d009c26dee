"""The teacher's sheets are complete: minutes that add up, every answer, every mistake that has a name."""

import math
import re

import pytest

from mha_course.exercises import find
from mha_course.quiz import question
from tests.notebooks.chapters import FOLDER, NAMES, ROOT, markdown, read
from tools import sheets
from tools.sync import Chapter


@pytest.fixture(params=NAMES, scope="module")
def pair(request):
    return Chapter.read(FOLDER / f"{request.param}.ipynb"), read(request.param)


def test_the_minutes_add_up_to_those_of_the_chapter(pair):
    chapter, notebook = pair
    steps = sheets.steps(notebook).values()
    total = sum(time + sum(exercises.values()) for time, exercises in steps)
    assert 5 * math.ceil(total / 5) == chapter.minutes
    minutes = {name: 0 if "optional" in how else time for name, how, time in chapter.exercises}
    found = {name: time for _, exercises in steps for name, time in exercises.items()}
    assert found
    assert found.items() <= minutes.items()


def test_the_minutes_of_a_sheet_add_up_line_by_line(pair):
    lines, until = sheets._minutes(pair[1]).splitlines(), 0
    for line in lines[2:]:
        if line.startswith("|"):
            _, _, time, exercises, end, _ = re.split(r" ?\| ?", line)
            until += int(time) + sum(map(int, re.findall(r"` (\d+)", exercises)))
            assert until == int(end), line


def test_the_guide_says_of_chapter_03_what_its_sheet_says():
    guide = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")
    (step,) = re.findall(r"By minute 40, the class is on step \*(\d+) ", sheets._minutes(read(NAMES[3])))
    assert re.findall(r"By minute 40, you should be on step (\d+)", guide) == [step]
    first = re.search(rf"(?m)^\| (\d+)–(\d+) \| step {step}, ", guide)
    assert int(first[1]) <= 40 < int(first[2])


def test_every_prediction_has_the_answer_of_its_fold(pair):
    chapter, notebook = pair
    pairs = list(sheets._predictions(notebook))
    asked = markdown(notebook).count("**Predict**")
    assert sum(text.count("**Predict**") for text, _ in pairs) == asked
    assert all(len(answer) > 10 and "<details" not in answer for _, answer in pairs)
    assert all(text in sheets.sheet(chapter, notebook) for text, _ in pairs)


def test_every_question_and_every_named_mistake_is_there(pair):
    chapter, notebook = pair
    page = sheets.sheet(chapter, notebook)
    for name in sheets.ASKED.findall("".join(cell.source for cell in notebook.cells)):
        assert question(name).text in page
        assert all(idea in page for idea in question(name).wrong)
    for name, _, _ in chapter.exercises:
        part = page.partition(f"### {name}\n")[2].partition("\n### ")[0]
        named = {each for each, mistake in find(name).mistakes.items() if not mistake.of}
        assert set(re.findall(r"^\| `(.+?)` \|", part, re.MULTILINE)) == named


def test_a_lesson_that_runs_out_of_time_is_told_what_can_be_homework():
    chapter = Chapter.read(FOLDER / "03_splitting_heads.ipynb")
    page = sheets.sheet(chapter, read("03_splitting_heads"))
    said = re.search(r"If you give (.+) as homework, the lesson is (\d+) minutes shorter\.", page)
    heading = r"### Exercise: {} · \w+, (\d+) minutes"
    stated = [
        re.search(heading.format(name), markdown(read("03_splitting_heads")))[1]
        for name in re.findall(r"`(\w+)`", said[1])
    ]
    assert sum(map(int, stated)) == int(said[2]) > 0
    assert "By minute 40" not in sheets.sheet(
        Chapter.read(FOLDER / "00_start_here.ipynb"), read("00_start_here")
    )


def test_a_link_of_a_chapter_to_a_part_of_itself_leads_to_the_chapter(pair):
    chapter, notebook = pair
    page = sheets.sheet(chapter, notebook)
    own = {
        target for text in sheets._predictions(notebook) for target in re.findall(r"\]\((#.+?)\)", str(text))
    }
    assert "](#" not in page
    assert not [target for target in own if f"]({chapter.name}.ipynb{target})" not in page]
