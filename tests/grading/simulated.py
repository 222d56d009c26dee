"""A simulated class: ``python -m tests.grading.simulated`` writes docs/class-report-example.html about it.

Its students have an ability, and some have a misconception. What they "type" are first tries of readers, from
``tests/check/tries/``; what came out is what ``check`` says of these. Only who types what is simulated.
"""

import csv
import io
import re
import string
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from math import exp
from pathlib import Path
from random import Random

from nbformat import NotebookNode

from mha_course.exercises import find
from mha_course.grading import report, short_test
from mha_course.grading.functions import answers, definitions, short
from mha_course.grading.gradebook import Row
from mha_course.quiz import SHORT_TEST, Idea, Question, question
from tests.check.corpus import Try, tries
from tests.notebooks.chapters import NAMES, ROOT, code_cells, read

PAGE = ROOT / "docs" / "class-report-example.html"
SEED, CHAPTER = 3, "03"
# Named here, so that an exercise or a reader that is added to the chapter changes nobody in this class.
EXERCISES = (
    "predict_place", "split_heads", "merge_heads", "per_head_weights", "fix_split", "reorder_checkpoint",
    "split_by_hand",
)  # fmt: skip
READERS = re.compile("03_([a-d]|ana_a|reader_[ab]|reorder_checkpoint_[ab]|split_by_hand_[ab])")
# How many of 30 students have a misconception; nobody else types a try that shows it.
PLANTED = {"view-without-transpose": 13, "heads-interleaved": 10, "scaled-by-d_model": 8}
BY_CHANCE = "predict_place"  # solved by two of three students, whatever their ability
EASY, STEEP, LEFT_OUT = 0.5, 2.0, 0.1
# In the short test, this wrong answer to this question is picked by 13 students before, and by 4 after.
ASKED, IDEA, PICKED = "ch03.place_after_split", "view-without-transpose", {"before": 13, "after": 4}
FIRST = [
    "Ayla", "Bruno", "Chiara", "Dmitri", "Elif", "Farid", "Greta", "Hanna", "Ines", "Jonas", "Keiko",
    "Lars", "Mirela", "Nadia", "Oskar", "Petra", "Quentin", "Rania", "Sven", "Tomasz", "Ursula", "Viktor",
    "Wanda", "Ximena", "Yusuf", "Zoe", "Amira", "Boris", "Celine", "Dario",
]  # fmt: skip
LAST = [
    "Abend", "Brandt", "Castillo", "Duarte", "Eriksen", "Farkas", "Gruber", "Hoxha", "Ivanova", "Jensen",
    "Kowalski", "Lindqvist", "Moreau", "Novak", "Okafor", "Pereira", "Quispe", "Rossi", "Schuster",
    "Tanaka", "Ulrich", "Varga", "Weiss", "Xu", "Yilmaz", "Zimmer", "Almeida", "Bianchi", "Cohen",
    "Dvorak",
]  # fmt: skip


@dataclass(frozen=True)
class Class:
    """Its class list with outcomes and code, its short test, and what was put in."""

    rows: list[Row]
    most: dict[str, float]
    test: str
    ability: dict[str, float]
    planted: dict[str, set[str]]

    def ticked(self) -> short_test.Ticked:
        """The short test as the report reads it, from a file."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, short_test.FILE)
            file.write_text(self.test, encoding="utf-8")
            return short_test.read(file)


def shown(cells: list[str], handed_out: list[str], exercises: Iterable[str]) -> dict[str, str]:
    """The code of each exercise as the report may show it, as the grader keeps it."""
    submitted, given = ([each for cell in part for each in definitions(cell)] for part in (cells, handed_out))
    return {name: short(text) for name, text in answers(submitted, given, exercises).items()}


@cache
def _chapter() -> NotebookNode:
    return read(next(name for name in NAMES if name.startswith(CHAPTER)))


@cache
def judged(chapter: str) -> dict[str, list[tuple[Try, str]]]:
    """The first tries at each exercise of a chapter that are not stubs, with what ``check`` says."""
    found: dict[str, list[tuple[Try, str]]] = {}
    for one in tries(chapter):
        if (diagnosis := one.diagnosis()) is not None:
            found.setdefault(one.exercise, []).append((one, diagnosis.name or "right"))
    return found


def simulate(seed: int, students: int = 30) -> Class:
    """The class of this seed."""
    rng = Random(seed)
    pool = {
        name: [made for made in judged(CHAPTER)[name] if READERS.fullmatch(made[0].file)]
        for name in EXERCISES
    }
    ids = [f"s{rng.randrange(10**5):05}" for _ in range(students)]
    ability = {student: rng.gauss(0, 1) for student in ids}
    planted = {name: set(rng.sample(ids, many * students // 30)) for name, many in PLANTED.items()}
    most = {name: float(find(name).points) for name in pool}
    handed_out = [cell.source for cell in code_cells(_chapter())]
    rows = []
    for i, student in enumerate(ids):
        must: dict[str, str] = {}
        for name in sorted(PLANTED, key=lambda name: len(_shown_in(pool, name))):
            if student in planted[name]:
                must[rng.choice([exercise for exercise in _shown_in(pool, name) if exercise not in must])] = (
                    name
                )
        typed = [_types(rng, ability[student], pool[exercise], must.get(exercise)) for exercise in pool]
        outcomes = {
            exercise: one[1] if one else "untouched" for exercise, one in zip(pool, typed, strict=True)
        }
        points = {name: most[name] * (outcome == "right") for name, outcome in outcomes.items()}
        first, last = FIRST[i % len(FIRST)], LAST[i % len(LAST)]
        email = f"{first}.{last}@example.org".lower()
        code = shown([one[0].source for one in typed if one], handed_out, most)
        given = {"points": points, "outcomes": outcomes, "code": code}
        rows.append(Row(student, last, first, email, handed_in=True, **given))
    rows += [
        Row("s90001", "Achterberg", "Emre"),
        Row("s90002", "Baptiste", "Fleur", handed_in=True, reason="it is not a notebook"),
    ]
    return Class(rows, most, _ticked(rng, ability), ability, planted)


def _shown_in(pool: dict[str, list[tuple[Try, str]]], name: str) -> list[str]:
    """The exercises in which a try shows this misconception, and no other."""
    return [exercise for exercise, made in pool.items() if name in dict(made).values()]


def _types(
    rng: Random, ability: float, pool: list[tuple[Try, str]], must: str | None
) -> tuple[Try, str] | None:
    """A try that shows what it must show, a right one or a wrong one, or nothing."""
    if must:
        return rng.choice([one for one in pool if one[1] == must])
    if rng.random() < LEFT_OUT:
        return None
    able = 2 / 3 if pool[0][0].exercise == BY_CHANCE else 1 / (1 + exp(-STEEP * ability - EASY))
    right = rng.random() < able
    fitting = [one for one in pool if (one[1] == "right") == right and not _combines(one, PLANTED)]
    outcome = rng.choice(sorted({outcome for _, outcome in fitting}))
    return rng.choice([one for one in fitting if one[1] == outcome])


def _combines(one: tuple[Try, str], planted: dict[str, int]) -> bool:
    """Whether a try shows one of these, alone or together with another mistake."""
    mistake = find(one[0].exercise).mistakes.get(one[1])
    return mistake is not None and not set(planted).isdisjoint(mistake.of or (one[1],))


def idea_of(asked: Question, mistake: str) -> str:
    """The wrong answer's sentence that is about this mistake, as this question words it."""
    return next(idea for idea in asked.wrong if isinstance(idea, Idea) and idea.mistake == mistake)


def _ticked(rng: Random, ability: dict[str, float]) -> str:
    """The short test as the file that a teacher types; the weakest have the planted misconception."""
    lines = [short_test.COLUMNS]
    for form, seed in short_test.SEEDS.items():
        weakest = sorted(ability, key=ability.get)[: PICKED[form]]
        for student, able in ability.items():
            for number, name in enumerate(SHORT_TEST, 1):
                asked = question(name, seed)
                ideas = {
                    idea: letter
                    for letter, (_, idea) in zip(string.ascii_lowercase, asked.options(), strict=False)
                }
                ease = 1.5 if form == "after" else 0.0
                planted = idea_of(asked, IDEA) if name == ASKED else None
                wrong = [letter for idea, letter in ideas.items() if idea not in ("", planted)]
                picked = ideas[""] if rng.random() < 1 / (1 + exp(-able - ease)) else rng.choice(wrong)
                picked = ideas[planted] if planted and student in weakest else picked
                lines.append([student, form, number, picked])
    out = io.StringIO()
    csv.writer(out).writerows(lines)
    return out.getvalue()


def pages(made: Class) -> dict[str, str]:
    """The report about a simulated class."""
    return report.make(_chapter(), made.rows, made.most, made.ticked())


if __name__ == "__main__":
    PAGE.write_text(pages(simulate(SEED))[report.PAGE], encoding="utf-8", newline="\n")
    print(PAGE.relative_to(ROOT))
