"""How ``check`` judges the right and wrong answers of the tests, for its page: ``python -m tools.matrix``."""

import contextlib
import io
from collections import Counter
from pathlib import Path

from mha_lab.check import check
from tests.check.answers import table

PAGE = Path(__file__).parents[1] / "docs" / "check-matrix.md"


def rows() -> dict[str, list[tuple[str | None, str | None, bool]]]:
    """``{exercise: [(wanted slug, found slug, accepted)]}``."""
    found = {}
    for name, answers in table().items():
        found[name] = []
        for slug, answer in answers:
            with contextlib.redirect_stdout(io.StringIO()):
                score = check(answer)
            found[name].append((slug, score.diagnosis, score.passed))
    return found


def text(judged_rows: dict[str, list[tuple[str | None, str | None, bool]]]) -> str:
    """The matrix as a Markdown table."""
    lines = [
        "| exercise | right answers accepted | wrong answers rejected | named as wanted | mistakes known |",
        "| --- | --- | --- | --- | --- |",
    ]
    total = Counter()
    for name, judged in judged_rows.items():
        right = [row for row in judged if row[0] is None]
        wrong = [row for row in judged if row[0] is not None]
        numbers = Counter(
            right=len(right),
            accepted=sum(row[2] for row in right),
            wrong=len(wrong),
            rejected=sum(not row[2] for row in wrong),
            named=sum(row[0] == row[1] for row in wrong),
        )
        total += numbers
        known = len({row[0] for row in wrong})
        lines.append(_line(f"`{name}`", numbers, known))
    lines.append(_line("all", total, ""))
    return "\n".join(lines)


def _line(name: str, n: Counter, known: object) -> str:
    return (
        f"| {name} | {n['accepted']} of {n['right']} | {n['rejected']} of {n['wrong']} "
        f"| {n['named']} of {n['wrong']} | {known} |"
    )


if __name__ == "__main__":
    head = PAGE.read_text(encoding="utf-8").partition("| exercise |")[0]
    PAGE.write_text(f"{head}{text(rows())}\n", encoding="utf-8", newline="\n")
