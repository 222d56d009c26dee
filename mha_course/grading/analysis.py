"""What a class has misunderstood, in numbers, and how far these can be trusted in a small class.

All intervals are at 95 %.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import atanh, sqrt, tanh
from random import Random
from statistics import NormalDist, correlation, fmean, quantiles

from mha_course.exercises import find, names
from mha_course.grading.gradebook import Row

Z = NormalDist().inv_cdf(0.975)
FEW = 10  # with fewer students, nothing is said about how an exercise separates them
NOT_TRIED = "untouched", "missing"
Interval = tuple[float, float]


@dataclass(frozen=True)
class Misconception:
    """A known mistake, and who made it: for each exercise, students with their outcomes."""

    name: str
    where: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def students(self) -> list[str]:
        """Everybody who made it at least once."""
        return sorted({student for made in self.where.values() for student in made})

    @property
    def answers(self) -> int:
        """How often it was made."""
        return sum(map(len, self.where.values()))

    @property
    def exercise(self) -> str:
        """The exercise in which most students made it."""
        return max(sorted(self.where), key=lambda name: len(self.where[name]))


@dataclass(frozen=True)
class Item:
    """An exercise: who tried and solved it, and the correlation of solving it with the other points."""

    name: str
    graded: int
    tried: int
    right: int
    unnamed: int  # wrong, and no known mistake
    separates: tuple[float, Interval] | None

    @property
    def share(self) -> float:
        """Of those who tried, how many solved it."""
        return self.right / self.tried if self.tried else 0.0

    @property
    def interval(self) -> Interval:
        """In which the share of a large class may lie."""
        return wilson(self.right, self.tried)


def misconceptions(rows: Sequence[Row]) -> list[Misconception]:
    """Those of the class, made by most students first. Two that an answer combines count both."""
    found: dict[str, Misconception] = {}
    known = {*names()}
    for row in rows:
        for exercise, outcome in row.outcomes.items():
            if exercise not in known or (mistake := find(exercise).mistakes.get(outcome)) is None:
                continue
            for name in mistake.of or (outcome,):
                made = found.setdefault(name, Misconception(name)).where
                made.setdefault(exercise, {})[row.student] = outcome
    return sorted(found.values(), key=lambda one: (-len(one.students), -one.answers, one.name))


def items(rows: Sequence[Row], most: Mapping[str, float]) -> list[Item]:
    """The exercises, the hardest first."""
    graded, known = [row for row in rows if row.outcomes], [name for name in most if name in names()]
    found = []
    for name in known:
        others = [other for other in known if other != name]
        tried = [row for row in graded if row.outcomes.get(name, "missing") not in NOT_TRIED]
        solved = [row.outcomes[name] == "right" for row in tried]
        rest = [sum(most[other] for other in others if row.outcomes.get(other) == "right") for row in tried]
        unnamed = sum(row.outcomes[name] not in {"right", *find(name).mistakes} for row in tried)
        item = Item(name, len(graded), len(tried), sum(solved), unnamed, separation(solved, rest))
        found.append(item)
    return sorted(found, key=lambda item: (item.share, item.name))


def wilson(successes: int, n: int) -> Interval:
    """For a share.

    The formula is that of E. B. Wilson 1927, Probable inference, the law of succession, and statistical
    inference, Journal of the American Statistical Association 22.
    """
    if not n:
        return 0.0, 1.0
    middle = (successes + Z**2 / 2) / (n + Z**2)
    reach = Z * sqrt(successes * (n - successes) / n + Z**2 / 4) / (n + Z**2)
    return max(0.0, middle - reach), min(1.0, middle + reach)


def separation(solved: Sequence[bool], rest: Sequence[float]) -> tuple[float, Interval] | None:
    """The correlation of solving one exercise with the points in the others, with Fisher's interval.

    ``None`` for fewer than ``FEW`` students, or if all have done the same.
    """
    n = len(solved)
    if n < FEW or len(set(solved)) == 1 or len(set(rest)) == 1:
        return None
    r = correlation([float(one) for one in solved], rest)
    z, reach = atanh(max(-0.999, min(0.999, r))), Z / sqrt(n - 3)
    return r, (tanh(z - reach), tanh(z + reach))


def change(before: Sequence[bool], after: Sequence[bool]) -> tuple[float, Interval]:
    """How a share has changed among the same students.

    The interval is method 10 of R. G. Newcombe 1998, Improved confidence intervals for the difference between
    binomial proportions based on paired data, Statistics in Medicine 17.
    """
    n, pairs = len(before), list(zip(before, after, strict=True))
    both, neither = pairs.count((True, True)), pairs.count((False, False))
    first, second = sum(before), sum(after)
    p, q = first / n, second / n
    (p_low, p_high), (q_low, q_high) = wilson(first, n), wilson(second, n)
    excess = both * neither - (first - both) * (second - both)
    margins = first * (n - first) * second * (n - second)
    excess = max(0.0, excess - n / 2) if excess > 0 else excess
    phi = excess / sqrt(margins) if margins else 0.0

    def reach(one: float, other: float) -> float:
        return sqrt(max(0.0, one**2 - 2 * phi * one * other + other**2))

    return q - p, (q - p - reach(q - q_low, p_high - p), q - p + reach(q_high - q, p - p_low))


def gain(before: Sequence[float], after: Sequence[float]) -> tuple[float, Interval]:
    """By how much a mean has grown among the same students, with a percentile interval of 2000 bootstraps."""
    grown, rng = [b - a for a, b in zip(before, after, strict=True)], Random(0)
    means = quantiles([fmean(rng.choices(grown, k=len(grown))) for _ in range(2000)], n=40)
    return fmean(grown), (means[0], means[-1])
