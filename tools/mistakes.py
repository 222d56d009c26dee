"""The mistakes of the exercises as tables, for the website's page about them and the teacher's sheets."""

from collections.abc import Callable

from mha_course.exercises import Exercise, find
from mha_course.exercises._to_say import to_say
from tools.sync import Chapter

# The repository need not keep the list.
PLACE = (
    "*The website has the list here: `make site` builds it. In the repository, `git grep "
    "softmax-over-queries mha_course` finds\nthe file that has this name.*"
)


def table(exercise: Exercise, step: Callable[[str], str] = str) -> str:
    """Every mistake by its name, what is said about it, and the step that treats it, as ``step`` shows it.

    A combination of two mistakes is left out: its name is made of theirs.
    """
    lines = ["| mistake | what `check` says, *and what you can say* | step |", "| --- | --- | --- |"]
    for name, mistake in exercise.mistakes.items():
        if not mistake.of:
            said = _cell(mistake.says) + (f" *{_cell(more)}*" if (more := to_say(exercise, name)) else "")
            lines.append(f"| `{name}` | {said} | {step(mistake.section)} |")
    return "\n".join(lines)


def page(text: str, chapters: list[Chapter]) -> str:
    """``docs/mistakes.md`` with a section for each chapter, and in it one for each of its exercises."""
    parts = []
    for chapter in chapters:
        names = [name for name, *_ in chapter.exercises]
        parts += [f"## {chapter.title}", *(f"### {name}\n\n{table(find(name))}" for name in names)]
    before, found, after = text.partition(PLACE)
    if not found:
        raise ValueError(f"docs/mistakes.md: no place for the list: expected {PLACE}")
    return before + "\n\n".join(parts) + after


def _cell(text: str) -> str:
    """Text that may stand in a table."""
    return " ".join(text.split()).replace("|", "\\|")
