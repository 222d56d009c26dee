"""A sheet about each chapter for its teacher: minutes, answers, likely wrong answers and what to say to them.

All of it is made from the chapter, its questions and its exercises, when the website is built.
"""

import inspect
import re
from collections.abc import Iterator

from nbformat import NotebookNode

from mha_course.exercises import Exercise, find
from mha_course.quiz import Question, question
from tools import mistakes
from tools.pace import EXERCISE, core, cost
from tools.sync import Chapter

HEAD = """\
# A teacher's sheets

There is one sheet for each chapter. It lists the minutes of each step, the answers to all predictions and
questions, and the wrong answers that `check` knows, with what it says about each. The sheets are made from
the chapters."""
LESSON = 40  # the minute at which a lesson often runs out of time
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
ASKED = re.compile(r'quiz\.ask\("([\w.]+)"\)')
FOLD = re.compile(r"<details><summary>Compare[^<]*</summary>\n\n(.+?)\n\n</details>", re.DOTALL)
PREDICT = re.compile(r"(?:^|(?<=\n))[^\n]*\*\*Predict\*\*[^\n]*")


def sheet(chapter: Chapter, notebook: NotebookNode) -> str:
    """The page in Markdown."""
    exercises = [find(name) for name, _, _ in chapter.exercises]
    asked = [question(name) for cell in notebook.cells for name in ASKED.findall(cell.source)]
    parts = [
        f"# {chapter.title.partition(' ')[0]}: a teacher's sheet",
        f"This page is about [{chapter.title}]({chapter.name}.ipynb). It gives the answers away.",
        "## Minutes",
        _minutes(notebook),
        "## Predictions",
        *(f"{text}\n\n> {answer}" for text, answer in _predictions(notebook)),
        "## Questions with answers to choose",
        *map(_question, asked),
        "## Exercises",
        *map(_exercise, exercises),
    ]
    text = "\n\n".join(parts) + "\n"
    return text.replace("](#", f"]({chapter.name}.ipynb#")  # a link of the chapter to a part of itself


def name_of(chapter: Chapter) -> str:
    """The file name of its page without the ending."""
    return f"sheet_{chapter.name[:2]}"


def contents(chapters: list[Chapter]) -> str:
    """The page that leads to all sheets, in Markdown."""
    names = [name_of(chapter) for chapter in chapters]
    lines = [f"- [{chapter.title}]({name}.md)" for chapter, name in zip(chapters, names, strict=True)]
    pages = "\n".join(names)
    return f"{HEAD}\n\n" + "\n".join(lines) + f"\n\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"


def steps(notebook: NotebookNode) -> dict[str, tuple[float, dict[str, int]]]:
    """For each section of the core path, the minutes without exercises, and its exercises with theirs."""
    found: dict[str, tuple[float, dict[str, int]]] = {}
    title = "Introduction"
    for cell in core(notebook):
        if cell.cell_type == "markdown" and (heading := HEADING.search(cell.source)):
            title = heading[1]
        time, exercises = found.get(title, (0.0, {}))
        if cell.cell_type == "markdown" and (exercise := EXERCISE.search(cell.source)):
            found[title] = (time, exercises | {exercise[1]: 0 if exercise[4] else int(exercise[3])})
        else:
            found[title] = (time + cost(cell), exercises)
    return found


def _minutes(notebook: NotebookNode) -> str:
    lines = [
        "| step | reading, running, predicting | exercises | until minute |",
        "| --- | --- | --- | --- |",
    ]
    until, late = 0.0, {}
    for title, (time, exercises) in steps(notebook).items():
        before, until = round(until), until + time + sum(exercises.values())
        # So that the minutes of a reader who adds them are those of the last column.
        time = max(0, round(until) - before - sum(exercises.values()))
        shown = ", ".join(f"`{name}` {minutes or '(optional)'}" for name, minutes in exercises.items())
        lines.append(f"| {title} | {time} | {shown} | {until:.0f} |")
        if until > LESSON:
            late[title] = exercises
    if not late:
        return "\n".join(lines)
    homework = [f"`{name}`" for exercises in late.values() for name, minutes in exercises.items() if minutes]
    left = f"By minute {LESSON}, the class is on step *{next(iter(late))}*."
    left += f" From there to the end it takes {until - LESSON:.0f} minutes."
    if homework:
        saved = sum(sum(exercises.values()) for exercises in late.values())
        left += f" If you give {' and '.join(homework)} as homework, the lesson is {saved} minutes shorter."
    return "\n".join(lines) + f"\n\n{left} Optional exercises and appendices are not counted."


def _predictions(notebook: NotebookNode) -> Iterator[tuple[str, str]]:
    """Each prompt with the answer that the chapter gives in the next fold."""
    waiting: list[str] = []
    for cell in notebook.cells:
        if cell.cell_type != "markdown":
            continue
        for fold in FOLD.findall(cell.source):
            if waiting:
                yield "\n\n".join(waiting), fold.replace("\n", "\n> ")
            waiting = []
        waiting += PREDICT.findall(FOLD.sub("", cell.source))


def _question(asked: Question) -> str:
    lines = [
        f"{asked.text}\n",
        f"- **{asked.shown(asked.answer).removesuffix('.')}**: right. {asked.because}",
    ]
    lines += [f"- {asked.shown(value).removesuffix('.')}: {idea}" for idea, value in asked.wrong.items()]
    return "\n".join(lines)


def _exercise(exercise: Exercise) -> str:
    lines = [
        f"### {exercise.name}",
        f"```python\n{inspect.getsource(exercise.answer).rstrip()}\n```",
        mistakes.table(exercise, lambda section: _link(exercise, section)),
    ]
    return "\n\n".join(lines)


def _link(exercise: Exercise, section: str) -> str:
    """A link, in the brackets that Markdown wants around an address with other signs in it."""
    return f"[{section}](<{exercise.chapter}.ipynb#{section.replace('`', '').replace(' ', '-')}>)"
