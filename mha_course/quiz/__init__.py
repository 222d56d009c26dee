"""Questions to answer before a cell runs, and tests on paper made of the same questions.

A question is a function of random numbers, in one module for each chapter. In the chapter it is asked about
the chapter's own numbers; a test asks it about others. The wrong answers that are offered are computed: each
is what a known misconception gives.

>>> question("ch01.spread_of_scores").text.split(".")[0]
'The entries of a query and of a key are random and independent, with mean 0 and variance 1'
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from inspect import getmembers, isfunction
from pkgutil import iter_modules
from typing import Any
from zlib import crc32

import torch

from mha_course import explore
from mha_course.exercises import Rng, find
from mha_course.explore._predict import Predict, _words

# A test of a quarter of an hour, before the course and after it: the same questions about other numbers.
SHORT_TEST = (
    "ch01.row_of_weights",
    "ch01.largest_weight",
    "ch01.spread_of_scores",
    "ch02.equal_keys",
    "ch02.what_changes",
    "ch03.average_of_heads",
    "ch03.place_after_split",
    "ch04.share_of_visible_keys",
    "ch04.pairs_under_two_masks",
    "ch05.place_in_concat",
    "ch05.what_head_0_writes",
    "ch09.row_after_swap",
)
# With these seeds, no question has the same numbers in both forms, and each has as many answers in both.
FORMS = {"before the course": 31, "after the course": 108}

# Five questions for the last minutes of a first lesson, in two forms for two neighbours.
EXIT_QUIZ = (
    "ch00.cell_of_the_verb",
    "ch01.row_of_weights",
    "ch01.same_differences",
    "ch01.spread_of_scores",
    "ch02.equal_keys",
)
# With these seeds, both forms also offer the same misconceptions, and no two right answers share a letter.
EXIT_FORMS = {"form 1": 7, "form 2": 9}

Answer = str | float | tuple[int, int] | list[float]


class Idea(str):
    """A misconception as a sentence, which knows the name of the mistake that it is about."""

    __slots__ = ("mistake",)

    def __new__(cls, text: str, mistake: str) -> "Idea":
        made = super().__new__(cls, text)
        made.mistake = mistake
        return made

    def reworded(self, text: str) -> "Idea":
        """The same misconception in other words."""
        return Idea(text, self.mistake)


def reworded(wrong: dict[str, Answer], say: Callable[[str], str]) -> dict[str, Answer]:
    """Wrong answers with other words for their misconceptions."""
    return {
        idea.reworded(say(idea)) if isinstance(idea, Idea) else say(idea): value
        for idea, value in wrong.items()
    }


MAX_WRONG = 4  # on paper


@dataclass(frozen=True)
class Question:
    """A question with one right answer.

    Args:
        text: the question, with everything that is needed to answer it.
        answer: a text to pick, a number to type, a cell ``(row, column)`` to pick, or the heights of bars.
        wrong: for each misconception, as a sentence, the answer that it gives; all answers differ.
        because: why the answer is right, in one or two sentences.
        section: the heading of the step that explains it.
        labels: the names of the bars, or of the rows and the columns.
        order: a number that shuffles the answers on paper; ``question`` makes it from name and seed.
    """

    text: str
    answer: Answer
    wrong: dict[str, Answer]
    because: str
    section: str
    labels: Sequence[Any] | None = field(default=None)
    order: int = 0

    def options(self) -> list[tuple[str, str]]:
        """Answers as text, each with its misconception: the right one, which has ``""``, and the first four.

        They are shuffled, in the same way each time. In order, the right one would always be the first.
        """
        found = [("", self.answer), *[*self.wrong.items()][:MAX_WRONG]]
        return [(self.shown(value), idea) for idea, value in Rng(self.order).shuffled(found)]

    def shown(self, value: Answer) -> str:
        """An answer as text."""
        if isinstance(value, str):
            return value
        if isinstance(value, tuple):
            return _words("cell", value, [list(names) for names in self.labels])
        if isinstance(value, list):
            names = self.labels or [f"bar {i}" for i in range(len(value))]
            return ", ".join(f"{name}: {height:.2f}" for name, height in zip(names, value, strict=True))
        return f"{value:.4g}"


Make = Callable[[Rng | None], Question]


def _all() -> Iterator[tuple[str, Make]]:
    for module in iter_modules(__path__):
        if module.name.startswith("_"):
            continue
        found = import_module(f"{__name__}.{module.name}")
        for name, make in getmembers(found, isfunction):
            if make.__module__ == found.__name__ and not name.startswith("_"):
                yield f"{module.name}.{name}", make


def names() -> list[str]:
    """All questions, such as ``ch01.spread_of_scores``, in the order of the chapters."""
    return [name for name, _ in _all()]


@cache
def question(name: str, seed: int | None = None) -> Question:
    """A question about the chapter's own numbers, or about random ones.

    Args:
        name: one of ``names()``.
        seed: ``None`` for the chapter's numbers; another seed gives other numbers.

    Raises:
        ValueError: there is no question of this name.
    """
    if name not in names():
        raise ValueError(f"quiz: expected the name of a question ({', '.join(names())}), got {name}.")
    made = dict(_all())[name](None if seed is None else Rng(seed))
    return replace(made, order=crc32(f"{name} {seed}".encode()))


def ask(name: str) -> Predict:
    """The question, to be answered in the notebook before the next cell runs.

    Args:
        name: one of ``names()``.

    Raises:
        ValueError: there is no question of this name.
    """
    asked = question(name)
    text, because = _plain(asked.text), _plain(asked.because)
    wrong = {_plain(idea): value for idea, value in asked.wrong.items()}
    return explore.predict(text, asked.answer, wrong, labels=asked.labels, because=because)


def _plain(text: str) -> str:
    """Without the marks for code, which only Markdown reads."""
    return text.replace("`", "")


def from_mistakes(
    exercise: str,
    arguments: tuple,
    mistakes: Sequence[str] | Mapping[str, str],
    read: Callable[[Any], Answer] = lambda result: result,
) -> tuple[Answer, dict[str, Answer]]:
    """The right answer of an exercise, and the answers that some of its known mistakes give.

    Args:
        exercise: its name, such as ``split_heads``.
        arguments: what its solution is called with.
        mistakes: names of its mistakes; the first variant of each computes a wrong answer. A mapping gives
            each of them a sentence that fits the question; else the exercise's own sentence is used.
        read: makes an answer out of a result, for example one entry of a tensor.

    Returns:
        ``(answer, wrong)``, as ``Question`` has them; ``wrong`` has no value twice, and not the right one.
    """
    known = find(exercise)
    answer, wrong = read(known.answer(*arguments)), {}
    for name in mistakes:
        mistake = known.mistakes[name]
        value = read(mistake.variants[0](*arguments))
        if value != answer and value not in wrong.values():
            says = mistakes[name] if isinstance(mistakes, Mapping) else mistake.says
            wrong[Idea(says, name)] = value
    return answer, wrong


def vector(tensor: torch.Tensor, digits: int = 2) -> str:
    """A row of numbers as text: ``0.50, 0.25, 0.25``."""
    return ", ".join(f"{number:.{digits}f}" for number in tensor.flatten().tolist())
