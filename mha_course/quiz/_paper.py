"""Questions on paper: a short test with answers to tick, and its key."""

import string
from collections.abc import Sequence

from mha_course.quiz import Question, question


def sheet(names: Sequence[str], seed: int) -> str:
    """The questions as Markdown, numbered, with their answers as (a), (b), (c)."""
    return "\n\n".join(
        f"{number}. {asked.text}\n\n{_choices(asked)}" for number, asked in _asked(names, seed)
    )


def key(names: Sequence[str], seed: int) -> str:
    """For each question, the right answer and why, and the misconception behind each other one."""
    return "\n\n".join(
        f"{number}. See chapter {name[2:4]}, {_explained(asked)}"
        for name, (number, asked) in zip(names, _asked(names, seed), strict=True)
    )


def _asked(names: Sequence[str], seed: int) -> list[tuple[int, Question]]:
    return [(number, question(name, seed)) for number, name in enumerate(names, 1)]


def _choices(asked: Question) -> str:
    lines = zip(string.ascii_lowercase, asked.options(), strict=False)
    return "\n".join(f"    - ({letter}) {shown}" for letter, (shown, _) in lines)


def _explained(asked: Question) -> str:
    lines = []
    for letter, (_, idea) in zip(string.ascii_lowercase, asked.options(), strict=False):
        lines.append(f"    - ({letter}) {idea or f'**Right.** {asked.because}'}")
    stop = "" if asked.section.endswith("?") else "."
    return f"*{asked.section}*{stop}\n\n" + "\n".join(lines)
