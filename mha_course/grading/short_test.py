"""The short test on paper: a class's answers before and after the course, and what changed."""

import csv
import re
import string
from dataclasses import dataclass
from pathlib import Path

from mha_course.grading.analysis import Interval, change
from mha_course.grading.course import Stop
from mha_course.quiz import FORMS, SHORT_TEST, Idea, question

FILE = "short-test.csv"  # in the course's folder
COLUMNS = ["student", "form", "question", "answer"]
SEEDS = {form.split()[0]: seed for form, seed in FORMS.items()}  # before, after
RIGHT = ""  # the idea behind a right answer
Ticked = dict[str, dict[str, dict[int, str]]]


@dataclass(frozen=True)
class Gain:
    """A misconception, the question that shows it, how many had it before and after, and the change."""

    idea: str
    chapter: str
    section: str
    before: int
    after: int
    change: tuple[float, Interval]


def read(file: Path) -> Ticked:
    """For each form, student and question, the misconception behind what was ticked.

    Raises:
        Stop: a line of the file cannot be read.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
        lines = csv.DictReader(text.splitlines(), delimiter=";" if ";" in text.partition("\n")[0] else ",")
        if lines.fieldnames != COLUMNS:
            raise ValueError(f"expected the columns {', '.join(COLUMNS)}")
        ideas = {form: _ideas(seed) for form, seed in SEEDS.items()}
        ticked: Ticked = {form: {} for form in SEEDS}
        for number, line in enumerate(lines, 2):
            student, form, asked, letter = ((line[column] or "").strip() for column in COLUMNS)
            if form not in SEEDS or not asked.isdecimal() or int(asked) not in ideas[form]:
                raise ValueError(
                    f"line {number}: expected before or after, and a question from 1 to {len(SHORT_TEST)}"
                )
            mine = ticked[form].setdefault(student, {})
            if int(asked) in mine:
                raise ValueError(f"line {number}: {student} has answered question {asked} twice")
            if letter and letter not in ideas[form][int(asked)]:
                raise ValueError(f"line {number}: question {asked} has no answer {letter!a}")
            if letter:
                mine[int(asked)] = ideas[form][int(asked)][letter]
    except OSError as reason:
        raise Stop(f"{file} cannot be read: {reason.strerror}") from None
    except ValueError as reason:
        raise Stop(f"{file}: {reason}") from None
    return ticked


def _ideas(seed: int) -> dict[int, dict[str, str]]:
    """For each question of a form, the misconception behind each letter."""
    asked = {number: question(name, seed) for number, name in enumerate(SHORT_TEST, 1)}
    return {
        number: {
            letter: idea for letter, (_, idea) in zip(string.ascii_lowercase, one.options(), strict=False)
        }
        for number, one in asked.items()
    }


def paired(ticked: Ticked) -> list[str]:
    """Those who have answered both forms."""
    return sorted(set.intersection(*map(set, ticked.values())))


def right(ticked: Ticked, form: str) -> list[int]:
    """How many right answers each of them has in this form."""
    return [list(ticked[form][student].values()).count(RIGHT) for student in paired(ticked)]


def gains(ticked: Ticked) -> list[Gain]:
    """Each misconception that both forms offer and somebody had, the commonest before the course first."""
    found, students = [], paired(ticked)
    for number, name in enumerate(SHORT_TEST, 1) if students else ():
        asked = question(name, SEEDS["before"])
        for idea in asked.wrong:
            before, after = (
                [_same(ticked[form][student].get(number, RIGHT)) == _same(idea) for student in students]
                for form in SEEDS
            )
            offered = any(_same(other) == _same(idea) for other in question(name, SEEDS["after"]).wrong)
            if offered and any(before + after):
                gain = Gain(idea, name[2:4], asked.section, sum(before), sum(after), change(before, after))
                found.append(gain)
    return sorted(found, key=lambda one: (-one.before, -one.after, one.idea))


def _same(idea: str) -> str:
    """The name of a known mistake; else the sentence without its numbers, which differ between the forms."""
    return idea.mistake if isinstance(idea, Idea) else re.sub(r"\d+(\.\d+)?", "#", idea)
