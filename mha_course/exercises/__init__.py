"""The exercises: what an exercise is, and a module for each, found by its name.

An exercise has problems to try an answer on, a solution, and the mistakes that it can recognise.
"""

import os
import random
import re
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import combinations
from pathlib import Path
from pkgutil import iter_modules
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mha_course.exercises._results import Outcome, Trial, plain, same, words

Answer = Callable[..., Any]
PRIMES = (2, 3, 5, 7, 11)
CHANGEABLE = Tensor, list  # arguments that an answer can change


class Rng:
    """Random numbers from a generator of its own: PyTorch's global seed is neither used nor changed."""

    def __init__(self, seed: int | None = None) -> None:
        seed = int.from_bytes(os.urandom(6)) if seed is None else seed
        self._sizes = random.Random(seed)
        self._numbers = torch.Generator().manual_seed(seed)

    def primes(self, count: int, *, at_least: int = 2) -> list[int]:
        """Sizes that differ from each other, so that no axis can be mistaken for another."""
        return self._sizes.sample([p for p in PRIMES if p >= at_least], count)

    def below(self, limit: int) -> int:
        """A whole number from 0 to ``limit - 1``."""
        return self._sizes.randrange(limit)

    def shuffled(self, items: Iterable) -> list:
        """The items in a random order."""
        items = list(items)
        return self._sizes.sample(items, len(items))

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Numbers with mean 0 and variance 1."""
        return torch.randn(shape, generator=self._numbers, dtype=torch.float64, device="cpu").to(dtype)

    def mask(self, *shape: int) -> Tensor:
        """Boolean, about half of it ``True``."""
        return torch.rand(shape, generator=self._numbers, device="cpu") > 0.5


@dataclass(frozen=True)
class Mistake:
    """A misconception: what it does to an answer, where that is explained, and how such an answer computes.

    ``variants`` are functions with the exercise's arguments. They return, or raise, what an answer
    with this misconception does. ``says`` must be true of each of them: it is shown only for an answer that
    gives the same results as one of them on every problem.

    If ``says`` names several causes, ``causes`` has for the words of each the variants that have it alone.
    ``form`` is the sentence with ``{}`` in the place of these words.
    """

    says: str
    section: str
    variants: Sequence[Answer]
    of: tuple[str, ...] = ()  # the two mistakes that this one combines
    causes: Mapping[str, Sequence[Answer]] = field(default_factory=dict)
    form: str = ""

    def told(self, fits: Callable[[Answer], bool]) -> str:
        """What is said of an answer: of several causes, only those with a variant that ``fits`` it."""
        those = [words for words, variants in self.causes.items() if any(map(fits, variants))]
        return self.form.format(OR.join(those)) if those else self.says


OR = ", or "
Choice = tuple[str, str, Sequence[Any] | Mapping[str, Sequence[Any]]]
# What is said, where it is explained, the wrong pieces; with ``{}`` in what is said, those of each cause.


def pieces(wrong: Sequence[Any] | Mapping[str, Sequence[Any]]) -> list[Any]:
    """The wrong pieces of a choice, whatever their causes are."""
    return [one for some in wrong.values() for one in some] if isinstance(wrong, Mapping) else list(wrong)


def either(form: str, section: str, causes: Mapping[str, Sequence[Answer]]) -> Mistake:
    """A mistake with one of several causes, which are named in the place of ``{}``."""
    return Mistake(form.format(OR.join(causes)), section, pieces(causes), causes=causes, form=form)


class Form(NamedTuple):
    """A wrong form of a piece that many exercises have: written once, in the piece's own file.

    ``needs``: what an exercise must have so that this form can occur. ``says`` has the symbols of the paper.
    ``of``: the wrong pieces, as in a ``Choice``. ``about``: which of an exercise's headings explains it.
    """

    needs: str
    says: str
    of: Sequence[Any] | Mapping[str, Sequence[Any]]
    about: str = ""


def known(
    forms: Mapping[str, Form],
    section: str | Mapping[str, str],
    there: Container[str] = (),
    symbols: Mapping[str, str] | None = None,
    see: Mapping[str, str] | None = None,
) -> dict[str, Choice]:
    """The forms that can occur where these things are ``there``, as one knob of ``deviations``.

    ``section``: one heading, or one for each thing that a form is about; ``""`` is the heading of the others.
    ``symbols``: how the exercise calls what a sentence calls as the paper does. ``see``: where an earlier
    chapter explains it, for each thing that a form is about.
    """

    def said(form: Form) -> str:
        says = form.says
        for theirs, own in (symbols or {}).items():
            says = re.sub(rf"\b{theirs}\b", own, says)
        return f"{says} See {see[form.about]}." if see and form.about in see else says

    sections = {"": section} if isinstance(section, str) else section
    return {
        name: (said(form), sections.get(form.about, sections[""]), form.of)
        for name, form in forms.items()
        if not form.needs or form.needs in there
    }


def deviations(
    build: Callable[..., Answer | tuple[Answer, ...]],
    knobs: Mapping[str, Mapping[str, Choice]],
    *,
    pairs: bool = True,
    alone: Container[str] = (),
) -> dict[str, Mistake]:
    """Mistakes of a function that is put together from pieces: each wrong piece, and each pair of them.

    ``build(**pieces)`` makes an answer, or a tuple of answers that do the same in different ways. ``knobs``
    has, for the name of each piece, the wrong versions of it by the name of the mistake. Those that are
    ``alone`` are not tried in pairs: they raise, or hide what else is wrong.
    """

    def built(*pieces: Mapping[str, Any]) -> tuple[Answer, ...]:
        made = [build(**some) for some in pieces]
        return tuple(answer for some in made for answer in (some if isinstance(some, tuple) else (some,)))

    found, singles = {}, []
    for knob, choices in knobs.items():
        for name, (says, section, wrong) in choices.items():
            if isinstance(wrong, Mapping):
                causes = {words: built(*({knob: one} for one in some)) for words, some in wrong.items()}
                found[name] = either(says, section, causes)
            else:
                found[name] = Mistake(says, section, built(*({knob: one} for one in wrong)))
            singles.append((knob, name, found[name].says, section, pieces(wrong)))
    paired = [single for single in singles if pairs and single[1] not in alone]
    for one, two in combinations(paired, 2):
        if one[0] != two[0]:
            variants = built(*({one[0]: a, two[0]: b} for a in one[4] for b in two[4]))
            names = (one[1], two[1])
            found["-and-".join(names)] = Mistake(f"{one[2]} And: {two[2]}", one[3], variants, names)
    return found


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    Args:
        answer: the solution; the exercise has its name.
        chapter: the notebook's file name without its ending.
        section: the heading of the step that prepares it.
        points: what a right answer earns.
        problems: yields tuples of arguments, the smallest and most readable first.
        mistakes: by their names.
        same_as: the finished functions of ``mha_lab`` that this exercise builds; an answer may call neither
            them nor the solution.
        results: the names of the results, if there are several: ``("output", Many("weights"))``.
        call: calls an answer; gets the answer and the arguments.
        accepts: for answers that are not unique: ``None`` if the result is right, else the name of a mistake
            and what was seen. Gets the result, as ``plain`` converts it, and the arguments.
        shows: the words for a result of ``accepts`` in the example, or ``None`` where its numbers are shown.
        explains: gets all problems and all results; the name of a mistake and a cause that fit them
            together, or ``None``.
        bug: for a function to fix, the stub as it is in the chapter; the unchanged stub is not an attempt.
    """

    answer: Answer
    chapter: str
    section: str
    points: int | float
    problems: Callable[[Rng], Iterator[tuple]]
    mistakes: Mapping[str, Mistake] = field(default_factory=dict)
    same_as: tuple[Answer, ...] = ()
    results: tuple[str, ...] = ()
    call: Callable[..., Any] | None = None
    accepts: Callable[..., tuple[str, str] | None] | None = None
    shows: Callable[[Any], str | None] | None = None
    explains: Callable[[list[tuple], list[Any]], tuple[str, str] | None] | None = None
    bug: Answer | None = None

    @property
    def name(self) -> str:
        """The name by which ``check`` finds it."""
        return self.answer.__name__

    @property
    def refused(self) -> list[Answer]:
        """The functions that an answer may not call."""
        return [*self.same_as, self.answer]

    def apply(self, answer: Answer, arguments: tuple) -> Any:
        """The result that is judged."""
        return answer(*arguments) if self.call is None else self.call(answer, *arguments)

    def compute(self, answer: Answer, arguments: tuple) -> Outcome:
        """One problem for code that is trusted: the solution, or a known mistake."""
        with warnings.catch_warnings(action="ignore"):
            try:
                return Outcome("returned", plain(self.apply(answer, copies(arguments))))
            except Exception as error:
                return Outcome("raised", words(error))

    def expected(self, arguments: tuple) -> Any:
        """The result of the solution, as ``plain`` converts it."""
        return self.compute(self.answer, arguments).value

    def trials(self, problems: list[tuple], outcomes: list[Outcome]) -> list[Trial]:
        """The outcomes beside the expected results: the answer has ended before these are computed."""
        pairs = zip(problems, outcomes, strict=True)
        return [Trial(problem, self.expected(problem), outcome) for problem, outcome in pairs]

    def is_right(self, trial: Trial) -> bool:
        """Whether the answer is right on this problem."""
        if trial.outcome.kind != "returned":
            return False
        if self.accepts is not None:
            return self.accepts(trial.got, *trial.problem) is None
        return same(trial.expected, trial.got)


def copies(arguments: tuple) -> tuple:
    """The arguments for an answer, which may change or inspect them."""
    return tuple(_copy(argument) for argument in arguments)


def _copy(given: Any) -> Any:
    """A new tensor or list; a function without its name, which would tell what it does."""
    if isinstance(given, FunctionType):
        code = given.__code__.replace(co_name="function", co_qualname="function")
        return FunctionType(code, given.__globals__, "function", given.__defaults__, given.__closure__)
    if isinstance(given, list):
        return given.copy()
    return given.clone() if isinstance(given, Tensor) else given


def names() -> list[str]:
    """All exercises, in alphabetical order."""
    return sorted(module.name for module in iter_modules(__path__) if not module.name.startswith("_"))


def ordered() -> list[Exercise]:
    """All exercises, in the order of the chapters."""
    return [find(name) for name in Path(__file__).with_name("order.txt").read_text(encoding="utf-8").split()]


def find(name: str) -> Exercise:
    """The exercise of this name."""
    return import_module(f"{__name__}.{name}").EXERCISE
