"""What to teach next: a page about a class in one chapter without names, and one with names.

``make`` brings the numbers, the answers and the chapter together; nothing of a submission runs, and the
pages load nothing and run nothing.
"""

import base64
import io
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
import nbformat
import seaborn as sns
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.figure import Figure
from nbformat import NotebookNode

from mha_course import explore
from mha_course.exercises import find
from mha_course.grading import short_test
from mha_course.grading.analysis import FEW, Misconception, gain, items, misconceptions
from mha_course.grading.anonymous import names_nobody, words
from mha_course.grading.course import write
from mha_course.grading.gradebook import Row
from mha_course.grading.submission import ALONE
from mha_course.grading.summary import advice
from mha_course.quiz import FORMS, SHORT_TEST, Idea, Question, question

PAGE, WITH_NAMES = "report.html", "report-names.html"
TREATED = 3  # misconceptions that get ten minutes
TWO = 2  # students who must share a misconception: one of them alone would not stay anonymous
ROWS = 12  # of the heatmap
GAINS = 8  # misconceptions of the short test that are shown
STEP = re.compile(r"^## (?P<step>.+)$", re.MULTILINE)
CALL = re.compile(r"explore\.(?P<explorable>\w+)\(|quiz\.ask\(\"(?P<question>[\w.]+)\"")


@dataclass(frozen=True)
class Asked:
    """A question for the class: its answers with their letters, the right one, and the one that shows it."""

    question: Question
    options: list[tuple[str, str]]
    right: str
    shows: str


@dataclass(frozen=True)
class Treated:
    """A misconception worth ten minutes, and what to do about it."""

    misconception: Misconception
    says: str
    explorable: tuple[str, str] | None  # its name and its step
    shown: list[tuple[str, str]]  # the exercise and the code of two answers
    asked: Asked | None


# The chapter


def used(chapter: NotebookNode) -> list[tuple[str, str, str]]:
    """The steps, explorables and questions of a chapter, in order: what it is, its name, and its step."""
    found, step = [], ""
    for cell in chapter.cells:
        for place in (CALL if cell.cell_type == "code" else STEP).finditer(cell.source):
            kind, name = place.lastgroup, place[place.lastgroup]
            step = name if kind == "step" else step
            if kind != "explorable" or name in {*explore.__all__} - {"predict"}:
                found.append((kind, name, step))
    return found


def title(chapter: NotebookNode) -> str:
    """Its heading, if there is one: a teacher may have changed the chapter."""
    lines = [
        line for cell in chapter.cells if cell.cell_type == "markdown" for line in cell.source.splitlines()
    ]
    return next((line[2:] for line in lines if line.startswith("# ")), "a chapter")


def explorable(chapter: NotebookNode, step: str) -> tuple[str, str] | None:
    """The one of this step, else of the next step, else of the one before, with its step."""
    steps = [name for kind, name, _ in used(chapter) if kind == "step"]
    places = {where: name for kind, name, where in reversed(used(chapter)) if kind == "explorable"}
    here = steps.index(step) if step in steps else len(steps)
    near = [*steps[here : here + 2], *steps[max(0, here - 1) : here]]
    return next(((places[where], where) for where in near if where in places), None)


def ask(chapter: NotebookNode, misconception: str, exercise: str, step: str) -> Asked | None:
    """A question of the chapter about other numbers than its own: the best one has this wrong answer.

    Else it is one of the step that treats the misconception, or of the step that prepares the exercise.
    """
    offered = [(name, where) for kind, name, where in used(chapter) if kind == "question"]
    seeds = [seed for seed in range(1, 40) if seed not in FORMS.values()]
    for name, _ in offered:
        for one in (question(name, seed) for seed in seeds if _shows(question(name), misconception)):
            if shown := _shows(one, misconception):
                return _asked(one, shown[0])
    for wanted in (step, find(exercise).section):
        for name, where in offered:
            if where == wanted:
                return _asked(question(name, seeds[0]), None)
    return None


def _shows(one: Question, misconception: str) -> list[str]:
    """The wrong answers that this misconception gives, as they are worded in this question."""
    return [idea for idea in one.wrong if isinstance(idea, Idea) and idea.mistake == misconception]


def _asked(one: Question, shown: str | None) -> Asked:
    options = [
        (letter, *option) for letter, option in zip(string.ascii_lowercase, one.options(), strict=False)
    ]
    letters = {idea: letter for letter, _, idea in options}
    texts = [(letter, text) for letter, text, _ in options]
    return Asked(one, texts, letters[""], letters.get(shown, ""))


# The class


def treated(
    found: Sequence[Misconception],
    code: Mapping[str, Mapping[str, str]],
    chapter: NotebookNode,
    listed: set[str],
) -> list[Treated]:
    """The misconceptions that most students share, each with two short answers of different students."""
    return [
        Treated(
            one,
            advice(one.exercise, one.name),
            explorable(chapter, find(one.exercise).mistakes[one.name].section),
            _shortest(one, code, listed),
            ask(chapter, one.name, one.exercise, find(one.exercise).mistakes[one.name].section),
        )
        for one in found[:TREATED]
        if len(one.students) >= TWO
    ]


def _shortest(
    one: Misconception, code: Mapping[str, Mapping[str, str]], listed: set[str]
) -> list[tuple[str, str]]:
    """Two different answers that show this mistake alone, if there are such."""
    candidates = sorted(
        (outcome != one.name, len(text), text, exercise, student)
        for exercise, made in one.where.items()
        for student, outcome in made.items()
        if (text := code.get(student, {}).get(exercise, "")) and names_nobody(text, listed)
    )
    chosen: dict[str, tuple[str, str]] = {}
    for _, _, text, exercise, student in candidates:
        if student not in chosen and (exercise, text) not in chosen.values() and len(chosen) < TWO:
            chosen[student] = exercise, text
    return [*chosen.values()]


# The picture


def heatmap(found: Sequence[Misconception]) -> tuple[str, str]:
    """Misconceptions by exercise, the commonest on top, the most wrong exercise on the left.

    Returns:
        the picture as the address of an image, and the same numbers in words.
    """
    shown = found[:ROWS]
    counts: dict[str, int] = {}
    for one in shown:
        for exercise, made in one.where.items():
            counts[exercise] = counts.get(exercise, 0) + len(made)
    columns = sorted(counts, key=lambda name: (-counts[name], name))
    table = [[len(one.where.get(name, {})) for name in columns] for one in shown]
    with mpl.rc_context({"svg.hashsalt": "mha_lab", "font.size": 10}):
        figure = Figure((3.1 + 0.75 * len(columns), 1.4 + 0.29 * max(2, len(shown))), layout="constrained")
        ax = sns.heatmap(
            table, annot=[[count or "" for count in row] for row in table], fmt="", cmap="Blues", vmin=0,
            xticklabels=columns, yticklabels=[one.name for one in shown], cbar=False,
            linewidths=1, linecolor="#dddddd", ax=figure.subplots(),
        )  # fmt: skip
        ax.xaxis.tick_top()
        ax.set_xticks(ax.get_xticks(), columns, rotation=30, ha="left", rotation_mode="anchor")
        ax.set_yticks(ax.get_yticks(), [one.name for one in shown], rotation=0)
        ax.tick_params(length=0)
        file = io.BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    words = "; ".join(
        f"{one.name}: {', '.join(f'{name} {len(made)}' for name, made in sorted(one.where.items()))}"
        for one in shown
    )
    return f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode()}", words


# The pages


def _code(text: str) -> Markup:
    """Text in which backticks mark code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _percent(share: float) -> str:
    return f"{round(100 * share)}".replace("-", "−")


def _signed(number: float) -> str:
    return f"{round(number, 2) + 0.0:+.2f}".replace("-", "−")


PAGES = Environment(
    loader=PackageLoader("mha_course.grading", "pages"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
PAGES.filters.update(code=_code, percent=_percent, signed=_signed, named=lambda one, by: by[one])


def make(
    chapter: NotebookNode,
    rows: Sequence[Row],
    most: Mapping[str, float],
    ticked: short_test.Ticked | None = None,
) -> dict[str, str]:
    """The pages by their names.

    Args:
        chapter: the notebook that was handed out.
        rows: the class.
        most: the points of each exercise.
        ticked: what was ticked in the short test.
    """
    graded, found = [row for row in rows if row.outcomes], misconceptions(rows)
    about: dict[str, Any] = {
        "title": title(chapter),
        "policy": ALONE,
        "graded": len(graded),
        "absent": sum(not row.handed_in and not row.reason for row in rows),
        "failed": sum(bool(row.reason) for row in rows),
        "found": found,
        "treated": treated(found, {row.student: row.code for row in rows}, chapter, words(rows)),
    }
    class_page = about | {
        "items": items(rows, most),
        "picture": heatmap(found) if found else None,
        "rows": ROWS,
        "few": FEW,
        "test": _test(ticked) if ticked else None,
    }
    names_page = about | {"named": {row.student: _name(row) for row in rows}, "rows": rows}
    return {
        PAGE: PAGES.get_template(PAGE).render(class_page),
        WITH_NAMES: PAGES.get_template(WITH_NAMES).render(names_page),
    }


def _test(ticked: short_test.Ticked) -> dict[str, Any]:
    gains, students = short_test.gains(ticked), len(short_test.paired(ticked))
    about = {"students": students, "gains": gains[:GAINS], "more": len(gains[GAINS:]), "few": FEW}
    if not students:
        return about
    before, after = (short_test.right(ticked, form) for form in short_test.SEEDS)
    about |= {"questions": len(SHORT_TEST), "before": fmean(before), "after": fmean(after)}
    return about | {"gain": gain(before, after)}


def _name(row: Row) -> str:
    return f"{row.first_name} {row.last_name} ({row.student})" if row.last_name else row.student


def write_all(course: Path, chapter: str, rows: Sequence[Row], most: Mapping[str, float]) -> None:
    """Write both pages into the course's folder, from what was graded."""
    handed_out = nbformat.read(course / "source" / chapter / f"{chapter}.ipynb", as_version=4)
    file = course / short_test.FILE
    ticked = short_test.read(file) if file.exists() else None
    for name, page in make(handed_out, rows, most, ticked).items():
        write(course / name, page.encode("utf-8", "replace"))
