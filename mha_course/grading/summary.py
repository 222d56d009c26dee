"""What a class has understood: a page of text that ends a run."""

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence

from mha_course.checker.observe import SAYS
from mha_course.exercises import find, names
from mha_course.grading.gradebook import Row
from mha_course.grading.nbgrader import BECAUSE
from mha_course.grading.people import shown
from mha_course.grading.tables import is_graded, lateness, status, total

WIDTH = 100
# Outcomes that every exercise may have.
GENERAL = SAYS | {
    "untouched": "The function is still as it was handed out.",
    "missing": "There is no function with this name. Its cell may have ended with an error before.",
    "syntax-error": "Python cannot read the cell. The page of feedback names the line.",
    "ends-python": "The function ended or blocked Python.",
    "raises": "The function raises an error. The page of feedback names the line.",
    "too-slow": "The function did not return in time. Is there an endless loop?",
    "returns-nothing": "The function returns None. Is the line `return ...` missing?",
    "wrong-shape": "The result does not have the expected shape.",
    "wrong-dtype": "The result does not have the expected dtype.",
    "wrong": "The result is wrong, and no known mistake gives it.",
    "bug-still-there": "The function gives the same results as with the bug.",
    "calls-a-stub": "The function calls another exercise, which is not written yet.",
    "calls-the-finished-one": "The function calls the finished function instead of doing its work.",
    "uses-the-notebook": "The function uses a variable of the notebook in the place of an argument.",
    "fixed-answer": "The result is the same for all arguments.",
    "fits-one-example": "The result is right for one example only.",
    "changes-its-input": "The result is right, but the function changes its argument.",
    "dropped-out": "Some numbers are 0, and the others are too large by one factor: dropout is on.",
    "row-added": "The same row of numbers is added to each row of the result, as a bias is.",
    "exclusive-or": "`^` is used for a power. In Python it compares bits; a power is `**`.",
}
SIGNS = {"right": "+", "untouched": ".", "missing": "?", "syntax-error": "?", "ends-python": "?"}
LEGEND = (
    "+ right   x wrong   . untouched   ? no function, or Python cannot read it   (blank) nothing handed in\n"
    "* points by hand, which count in place of the automatic ones"
)


def for_the_class(chapter: str, rows: Sequence[Row], most: Mapping[str, float]) -> str:
    """For each exercise, how many were right, and what happened to the others, the commonest first."""
    graded = [row for row in rows if row.outcomes]
    kept = sum(row.kept for row in graded)
    counts = {
        "graded": len(graded) - kept,
        "kept from before": kept,
        "nothing handed in": sum(not row.handed_in and not row.reason for row in rows),
        "could not be graded": sum(bool(row.reason) for row in rows),
    }
    lines = [f"{chapter}: {', '.join(f'{said}: {many}' for said, many in counts.items())}"]
    for exercise in (name for name in most if name in names()):
        found = Counter(row.outcomes.get(exercise, "missing") for row in graded)
        right, untouched = found.pop("right", 0), found.pop("untouched", 0)
        told = f"{right} right of {len(graded) - untouched} who tried"
        lines += ["", f"{exercise}: {told}" + f", {untouched} untouched" * bool(untouched)]
        for outcome, many in sorted(found.items(), key=lambda item: (-item[1], item[0])):
            lines.append(f"{many:5}  {outcome}")
            lines += textwrap.wrap(
                advice(exercise, outcome), WIDTH, initial_indent=" " * 7, subsequent_indent=" " * 7
            )
    return "\n".join(lines)


def advice(exercise: str, outcome: str) -> str:
    """What to say to those with this outcome, and the step that treats it."""
    if outcome.startswith(BECAUSE):
        return f"The function is right but for that mistake: it calls {outcome.removeprefix(BECAUSE)}."
    about = find(exercise)
    mistake = about.mistakes.get(outcome)
    says = mistake.says if mistake else GENERAL.get(outcome, "")
    return f'{says} Step "{mistake.section if mistake else about.section}".'.strip()


def by_student(rows: Sequence[Row], most: Mapping[str, float]) -> str:
    """One line for each student, with a sign for each exercise, the points, and what was late or wrong."""
    who = [_name(row) for row in rows]
    wide = max([7, *map(len, who)])
    signs_of = [[_sign(row, exercise) for exercise in most] for row in rows]
    each = max([2, *(len(sign) for signs in signs_of for sign in signs)])
    head = " ".join(f"{number:>{each}}" for number, _ in enumerate(most, 1))
    lines = [f"{'student':{wide}}  {head}  points"]
    for name, row, of_each in zip(who, rows, signs_of, strict=True):
        signs = " ".join(f"{sign:>{each}}" for sign in of_each)
        points = f"{total(row):6g}" if row.handed_in and not row.reason else " " * 6
        about = [] if is_graded(row) and not row.gone and not row.again else [shown(status(row))]
        about += [f"late: {lateness(row)}"] if lateness(row) else []
        lines.append(f"{name:{wide}}  {signs}  {points}  {'; '.join(about)}".rstrip())
    keys = [f"{number:>2} {name}, {points:g}" for number, (name, points) in enumerate(most.items(), 1)]
    return "\n".join([*lines, "", "exercises and their points:", *keys, "", LEGEND])


def _name(row: Row) -> str:
    named = f"{row.last_name}, {row.first_name} ({row.student})"
    return shown(named if row.last_name else row.student)


def _sign(row: Row, exercise: str) -> str:
    if not row.handed_in or row.reason:
        return ""
    if exercise in row.outcomes:
        sign = SIGNS.get(row.outcomes[exercise], "x")
    else:  # what is only graded by hand
        points = row.points.get(exercise)
        sign = "" if points is None else f"{points:g}"
    return sign + "*" * (exercise in row.by_hand)
