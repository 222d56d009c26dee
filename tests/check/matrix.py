"""What ``check`` says of what readers typed first: ``python -m tests.check.matrix`` writes the pages.

One page has a row for each exercise, and a page for each chapter has the wrong answers themselves.
``... row NAME`` writes what belongs to one exercise, and ``... same NAME`` fails if that has changed.
``python -m tests.check.matrix 01 [exercise]`` prints each try with what ``check`` says of it.
"""

import re
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from mha_course.checker import runner
from mha_course.checker.diagnosis import Diagnosis
from mha_course.checker.report import make
from mha_course.exercises import find
from tests.check.claims import false_of
from tests.check.corpus import Try, tries
from tests.notebooks.chapters import FOLDER
from tools.sync import Chapter

PAGE = Path(__file__).parents[2] / "docs" / "check-matrix.md"
ANSWERS = PAGE.with_name("wrong-answers")
COLUMNS = "tries", "right", "right refused", "wrong accepted", "false", "without a name"


def unnamed(diagnosis: Diagnosis) -> bool:
    """Nothing is said of why: neither a known mistake nor a cause."""
    return diagnosis.name == "wrong" or (diagnosis.name == "raises" and not diagnosis.cause)


def rows(judged: list[tuple[Try, Diagnosis | None]], false: Counter) -> dict[str, list[int]]:
    """The numbers of each exercise; ``false`` counts the tries of which something untrue was said."""
    found: dict[str, Counter] = {}
    for one, diagnosis in judged:
        row = found.setdefault(one.exercise, Counter({"false": false[one.exercise]}))
        passed = diagnosis is not None and diagnosis.name is None
        row["tries"] += 1
        row["right"] += one.right
        row["right refused"] += one.right and not passed
        row["wrong accepted"] += passed and not one.right
        row["without a name"] += not passed and diagnosis is not None and unnamed(diagnosis)
    return {name: [row[column] for column in COLUMNS] for name, row in found.items()}


def published() -> dict[str, list[int]]:
    found = re.findall(r"^\| \[`(\w+)`\]\S+ \| ([\d |]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: [int(number) for number in numbers.split(" | ")] for name, numbers in found}


def text(table: dict[str, list[int]]) -> str:
    """The table in Markdown, with its sums."""
    lines = ["| exercise | " + " | ".join(COLUMNS) + " |", "| --- |" + " --- |" * len(COLUMNS)]
    for name, numbers in table.items():
        link = f"[`{name}`]({answer_page(name).relative_to(PAGE.parent)}#{name})"
        lines.append(f"| {link} | " + " | ".join(map(str, numbers)) + " |")
    sums = [sum(column) for column in zip(*table.values(), strict=True)]
    return "\n".join([*lines, "| all | " + " | ".join(map(str, sums)) + " |"])


HEAD = """\
# {title}: wrong answers

Most of these answers are what readers who had only the chapter typed first. Some were found later, because
`check` had accepted them or had no name for them. The line above an answer says what is wrong with it. For a
first answer, somebody who did not write the diagnoses wrote it. At its end is the name that `check` gives.
[mistakes.md](../mistakes.md) explains these names, and [check-matrix.md](../check-matrix.md) counts the
answers. `make matrix` writes this page."""
SECTION = r"(?ms)^## (\w+)\n\n.*?(?=\n\n## \w+\n\n|\n\Z)"


def answers(judged: list[tuple[Try, Diagnosis | None]]) -> dict[str, str]:
    """The wrong answers to each exercise in Markdown: why it is wrong, its name, and what was typed."""
    found: dict[str, list[str]] = {}
    for one, diagnosis in judged:
        if not one.right:
            name = f"`{diagnosis.name}`" if diagnosis else "the function to fix is still the same"
            why = re.sub(r"(?<!\\)([*<\[$])(?=[^`]*(?:`[^`]*`[^`]*)*$)", r"\\\1", one.why)  # not in code
            found.setdefault(one.exercise, []).append(f"{why}: {name}\n\n```python\n{one.source}```")
    return {name: "\n\n".join([f"## {name}", *typed]) for name, typed in found.items()}


def published_answers() -> dict[str, str]:
    """The same, as the pages have it."""
    pages = [path.read_text(encoding="utf-8") for path in sorted(ANSWERS.glob("*.md"))]
    return {found[1]: found[0] for page in pages for found in re.finditer(SECTION, page)}


def answer_page(exercise: str) -> Path:
    """Where the wrong answers to it are."""
    return ANSWERS / f"wrong_answers_{find(exercise).chapter[:2]}.md"


def answer_pages(sections: dict[str, str]) -> dict[Path, str]:
    """A page for each chapter."""
    parts: dict[Path, list[str]] = {}
    for name, section in sections.items():
        title = Chapter.read(FOLDER / f"{find(name).chapter}.ipynb").title
        parts.setdefault(answer_page(name), [HEAD.format(title=title)]).append(section)
    return {path: "\n\n".join(texts) + "\n" for path, texts in parts.items()}


def judge(exercise: str = "") -> list[tuple[Try, Diagnosis | None]]:
    """The tries at one exercise or at all, each with what is said of it now."""
    runner.SECONDS = 60.0  # the pages do not depend on how busy the machine is
    return [(one, one.diagnosis()) for one in tries() if exercise in ("", one.exercise)]


def of(exercise: str) -> tuple[dict[str, list[int]], dict[str, str]]:
    """Its row, and its wrong answers."""
    judged = judge(exercise)
    return rows(judged, false_of(judged)), answers(judged)


def in_order(by_exercise: dict[str, Any]) -> dict[str, Any]:
    """In the order of the tries."""
    return {one.exercise: by_exercise[one.exercise] for one in tries() if one.exercise in by_exercise}


def show(chapter: str, exercise: str = "") -> None:
    """Each try, its verdict, and the message."""
    for one in tries(chapter):
        if exercise in ("", one.exercise):
            diagnosis = one.diagnosis()
            passed = diagnosis is not None and diagnosis.name is None
            said = (
                "WRONG ACCEPTED" if passed and not one.right else "RIGHT REFUSED" * (one.right and not passed)
            )
            said += " WITHOUT A NAME, which is allowed" * bool(
                diagnosis and not passed and unnamed(diagnosis)
            )
            print(f"{'=' * 100}\n{one}  {said}{' STUB' * (diagnosis is None)}")
            print(f"deserves: {'right' if one.right else 'wrong: ' + one.why}\n{one.source}")
            print(make(find(one.exercise), diagnosis))


if __name__ == "__main__":
    match sys.argv[1:]:
        case [] | ["row", _]:
            known = [*dict.fromkeys(one.exercise for one in tries())]
            whole, asked = len(sys.argv) == 1, sys.argv[2:] or known
            table, sections = ({}, {}) if whole else (published(), published_answers())
            with ProcessPoolExecutor() as pool:
                for numbers, typed in pool.map(of, asked):
                    table |= numbers
                    sections |= typed
            head = PAGE.read_text(encoding="utf-8").partition("| exercise |")[0]
            pages = {PAGE: f"{head}{text(in_order(table))}\n"} | answer_pages(in_order(sections))
            for path, page in pages.items():
                path.write_text(page, encoding="utf-8", newline="\n")
        case ["same", name]:
            judged = judge(name)
            same = published().get(name) == rows(judged, false_of(judged)).get(name)
            sys.exit(not same or published_answers().get(name) != answers(judged).get(name))
        case given:
            show(*given)
