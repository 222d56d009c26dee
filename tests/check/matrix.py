"""How ``check`` judges what readers typed first: ``python -m tests.check.matrix`` writes the page.

``python -m tests.check.matrix 01 [exercise]`` prints each try with what ``check`` says of it.
"""

import sys
from collections import Counter
from pathlib import Path

from mha_lab.check.diagnosis import Diagnosis
from mha_lab.check.report import make
from mha_lab.exercises import find
from tests.check.corpus import Try, tries

PAGE = Path(__file__).parents[2] / "docs" / "check-matrix.md"
COLUMNS = "tries", "right", "right refused", "wrong accepted", "false", "without a name"


def unnamed(diagnosis: Diagnosis) -> bool:
    """Nothing is said of why: neither a known mistake nor a cause."""
    return diagnosis.name == "wrong" or (diagnosis.name == "raises" and not diagnosis.cause)


def text(judged: list[tuple[Try, Diagnosis | None]], false: Counter) -> str:
    """The table in Markdown; ``false`` counts the tries of which something untrue was said."""
    rows: dict[str, Counter] = {}
    for one, diagnosis in judged:
        row, passed = (
            rows.setdefault(one.exercise, Counter()),
            diagnosis is not None and diagnosis.name is None,
        )
        row["tries"] += 1
        row["right"] += one.right
        row["right refused"] += one.right and not passed
        row["wrong accepted"] += passed and not one.right
        row["without a name"] += not passed and diagnosis is not None and unnamed(diagnosis)
    for name, row in rows.items():
        row["false"] = false[name]
    rows["all"] = sum(rows.values(), Counter())
    lines = ["| exercise | " + " | ".join(COLUMNS) + " |", "| --- |" + " --- |" * len(COLUMNS)]
    for name, row in rows.items():
        shown = name if name == "all" else f"`{name}`"
        lines.append(f"| {shown} | " + " | ".join(str(row[column]) for column in COLUMNS) + " |")
    return "\n".join(lines)


def show(chapter: str, exercise: str = "") -> None:
    """Each try, its verdict, and the message."""
    for one in tries(chapter):
        if exercise in ("", one.exercise):
            diagnosis = one.diagnosis()
            passed = diagnosis is not None and diagnosis.name is None
            flags = [
                "RIGHT REFUSED" * (one.right and not passed),
                "WRONG ACCEPTED" * (passed and not one.right),
                "UNNAMED" * bool(diagnosis and not passed and unnamed(diagnosis)),
                "STUB" * (diagnosis is None),
            ]
            print(f"{'=' * 100}\n{one}  {' '.join(filter(None, flags))}")
            print(f"deserves: {'right' if one.right else 'wrong: ' + one.why}\n{one.source}")
            print(make(find(one.exercise), diagnosis))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        show(*sys.argv[1:])
    else:
        from mha_lab.check import runner
        from tests.check.claims import false_of

        runner.SECONDS = 60.0  # the table does not depend on how busy the machine is
        judged = [(one, one.diagnosis()) for one in tries()]
        head = PAGE.read_text(encoding="utf-8").partition("| exercise |")[0]
        PAGE.write_text(f"{head}{text(judged, false_of(judged))}\n", encoding="utf-8", newline="\n")
