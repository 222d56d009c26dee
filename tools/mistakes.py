"""The mistakes of the exercises as tables, for ``docs/mistakes.md`` and the teacher's sheets."""

from collections.abc import Callable

from mha_lab.exercises import Exercise, find
from mha_lab.exercises._to_say import to_say


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


def page(exercises: dict[str, list[str]]) -> str:
    """A section for each title of a chapter, and in it one for each of its exercises."""
    parts = []
    for title, names in exercises.items():
        parts += [f"## {title}", *(f"### {name}\n\n{table(find(name))}" for name in names)]
    return "\n\n".join(parts)


def _cell(text: str) -> str:
    """Text that may stand in a table."""
    return " ".join(text.split()).replace("|", "\\|")
