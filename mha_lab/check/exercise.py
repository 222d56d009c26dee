"""What an exercise is: problems to try an answer on, and the mistakes that it can recognise."""

import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from operator import attrgetter
from pkgutil import iter_modules
from typing import Any

import torch
from torch import Tensor

import mha_lab.solutions

Answer = Callable[..., Any]
PRIMES = (2, 3, 5, 7, 11)


class Draw:
    """Random problems from a generator of their own: PyTorch's global seed is neither used nor moved."""

    def __init__(self, seed: int | None = None) -> None:
        seed = int.from_bytes(os.urandom(6)) if seed is None else seed
        self._sizes = random.Random(seed)
        self._numbers = torch.Generator().manual_seed(seed)

    def primes(self, count: int, *, at_least: int = 2) -> list[int]:
        """Sizes that differ from each other, so that no axis can be taken for another."""
        return self._sizes.sample([p for p in PRIMES if p >= at_least], count)

    def below(self, limit: int) -> int:
        """A whole number from 0 to ``limit - 1``."""
        return self._sizes.randrange(limit)

    def shuffled(self, items: Iterable) -> list:
        """The items in a random order."""
        items = list(items)
        return self._sizes.sample(items, len(items))

    def normal(self, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
        """Numbers with mean 0 and variance 1."""
        return torch.randn(shape, generator=self._numbers, dtype=torch.float64, device="cpu").to(dtype)

    def mask(self, *shape: int) -> Tensor:
        """Boolean, about half of it ``True``."""
        return torch.rand(shape, generator=self._numbers, device="cpu") > 0.5


@dataclass(frozen=True)
class Mistake:
    """A misconception: what an answer that has it does, where that is explained, how it computes.

    ``variants`` are functions with the exercise's arguments. They return, or raise, what an answer
    with this misconception does.
    """

    says: str
    section: str
    variants: tuple[Answer, ...]


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    Args:
        answer: the solution; the exercise has its name.
        chapter: the notebook's file name without its ending.
        section: the heading of the step that prepares it.
        points: what a right answer earns.
        problems: yields tuples of arguments, the smallest and most readable first.
        mistakes: by slug.
        same_as: names in ``mha_lab`` of the finished function that this exercise builds; calling
            them, or the solution, is no answer.
        call: how an answer is tried; gets the answer and the arguments.
        accepts: for answers that are not unique: ``None`` if the result is right, else a slug.
        bug: for a function to mend, what the stub computes; an answer that still does is no attempt.
    """

    answer: Answer
    chapter: str
    section: str
    points: int | float
    problems: Callable[[Draw], Iterator[tuple]]
    mistakes: Mapping[str, Mistake] = field(default_factory=dict)
    same_as: tuple[str, ...] = ()
    call: Callable[..., Any] | None = None
    accepts: Callable[..., str | None] | None = None
    bug: Answer | None = None

    @property
    def name(self) -> str:
        """What ``check`` finds it by."""
        return self.answer.__name__

    def refused(self) -> list[Answer]:
        """The functions that are no answer when called."""
        return [attrgetter(path)(mha_lab) for path in self.same_as] + [self.answer]

    def apply(self, answer: Answer, arguments: tuple) -> Any:
        """The result that is judged."""
        return answer(*arguments) if self.call is None else self.call(answer, *arguments)


def names() -> list[str]:
    """All exercises: each is a module of ``mha_lab.solutions``."""
    modules = iter_modules(mha_lab.solutions.__path__)
    return sorted(module.name for module in modules if not module.name.startswith("_"))


def find(name: str) -> Exercise:
    """The exercise of this name."""
    return import_module(f"mha_lab.solutions.{name}").EXERCISE
