"""What ``check`` says of what readers typed first: ``python -m tests.check.matrix`` writes the page.

``... row NAME`` writes one exercise's row, and ``... same NAME`` fails if that row has changed.
``python -m tests.check.matrix 01 [exercise]`` prints each try with what ``check`` says of it.
"""

import re
import sys
from collections import Counter
from pathlib import Path

from mha_lab.check import runner
from mha_lab.check.diagnosis import Diagnosis
from mha_lab.check.report import make
from mha_lab.exercises import find
from tests.check.claims import false_of
from tests.check.corpus import Try, tries

PAGE = Path(__file__).parents[2] / "docs" / "check-matrix.md"
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
    found = re.findall(r"^\| `(\w+)` \| ([\d |]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: [int(number) for number in numbers.split(" | ")] for name, numbers in found}


def text(table: dict[str, list[int]]) -> str:
    """The table in Markdown, with its sums."""
    lines = ["| exercise | " + " | ".join(COLUMNS) + " |", "| --- |" + " --- |" * len(COLUMNS)]
    for name, numbers in table.items():
        lines.append(f"| `{name}` | " + " | ".join(map(str, numbers)) + " |")
    sums = [sum(column) for column in zip(*table.values(), strict=True)]
    return "\n".join([*lines, "| all | " + " | ".join(map(str, sums)) + " |"])


def fresh(exercise: str = "") -> dict[str, list[int]]:
    """The rows as they are now, of one exercise or of all."""
    runner.SECONDS = 60.0  # the table does not depend on how busy the machine is
    judged = [(one, one.diagnosis()) for one in tries() if exercise in ("", one.exercise)]
    return rows(judged, false_of(judged))


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
            table = published() | fresh(sys.argv[2]) if sys.argv[2:] else fresh()
            table = {name: table[name] for name in dict.fromkeys(one.exercise for one in tries())}
            head = PAGE.read_text(encoding="utf-8").partition("| exercise |")[0]
            PAGE.write_text(f"{head}{text(table)}\n", encoding="utf-8", newline="\n")
        case ["same", name]:
            sys.exit(int(published().get(name) != fresh(name).get(name)))
        case given:
            show(*given)
