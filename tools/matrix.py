"""How ``check`` judges what readers typed first: ``python -m tools.matrix`` writes the page.

``python -m tools.matrix 01`` or ``... 01 scaled_scores`` prints each try with what ``check`` says of it.
"""

import sys
from collections import Counter
from pathlib import Path

from mha_lab.check.diagnose import Finding
from mha_lab.check.exercise import find
from mha_lab.check.report import make
from tests.check.corpus import Try, tries

PAGE = Path(__file__).parents[1] / "docs" / "check-matrix.md"
COLUMNS = "tries", "right", "right refused", "wrong accepted", "false", "without a name"


def unnamed(finding: Finding) -> bool:
    """Nothing is said of why: neither a known mistake nor a cause."""
    return finding.slug == "wrong" or (finding.slug == "raises" and not finding.cause)


def text(judged: list[tuple[Try, Finding | None]], false: Counter) -> str:
    """The table in Markdown; ``false`` counts the tries of which something untrue was said."""
    rows: dict[str, Counter] = {}
    for one, finding in judged:
        row, passed = rows.setdefault(one.exercise, Counter()), finding is not None and finding.slug is None
        row["tries"] += 1
        row["right"] += one.right
        row["right refused"] += one.right and not passed
        row["wrong accepted"] += passed and not one.right
        row["without a name"] += not passed and finding is not None and unnamed(finding)
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
            finding = one.judge()
            passed = finding is not None and finding.slug is None
            flags = [
                "RIGHT REFUSED" * (one.right and not passed),
                "WRONG ACCEPTED" * (passed and not one.right),
                "UNNAMED" * bool(finding and not passed and unnamed(finding)),
                "STUB" * (finding is None),
            ]
            print(f"{'=' * 100}\n{one}  {' '.join(filter(None, flags))}")
            print(f"deserves: {'right' if one.right else 'wrong: ' + one.why}\n{one.source}")
            print(make(find(one.exercise), finding))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        show(*sys.argv[1:])
    else:
        from mha_lab.check import sandbox
        from tests.check.claims import false_of

        sandbox.SECONDS = 60.0  # the table does not depend on how busy the machine is
        judged = [(one, one.judge()) for one in tries()]
        head = PAGE.read_text(encoding="utf-8").partition("| exercise |")[0]
        PAGE.write_text(f"{head}{text(judged, false_of(judged))}\n", encoding="utf-8", newline="\n")
