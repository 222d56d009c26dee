"""Does the name of a mistake depend on luck? ``python -m tests.check.stability 100 [exercise ...]``.

The tests judge every first try of ``tests/check/tries/`` on few sets of random problems; this judges it on
many. If two mistakes give the same numbers on every problem of a set, one takes the other's name: then the
exercise needs a problem on which they differ.

``... quick NAME`` is for one exercise, takes seconds, and also looks at the functions of each known mistake.
"""

import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from mha_course.checker import runner
from mha_course.exercises import Exercise, Rng, find
from tests.check.claims import unclaimed
from tests.check.corpus import Try, agrees, diagnosis_of, tries

SETS = range(8)  # of problems, for ``quick``
LONGEST = 20.0  # seconds for its tries
FEWEST = 12  # first tries that an exercise needs


def accepted(exercise: Exercise, sets: range) -> Iterator[str]:
    """The mistakes that are right on a whole set of problems: there, ``check`` cannot name them.

    Of two mistakes at once, all functions must be right: in one of several forms, two may cancel each other.
    """
    found = Counter()
    for seed in sets:
        problems = list(exercise.problems(Rng(seed)))
        for name, mistake in exercise.mistakes.items():
            right = (all(agrees(exercise, v, p) for p in problems) for v in mistake.variants)
            found[name] += bool(mistake.variants) and (all if mistake.of else any)(right)
    for name, count in (+found).items():
        yield (
            f"{name}: on {count} of {len(sets)} sets of problems, a function of this mistake returns the "
            "solution's own result, so check accepts it. Remove it, or add a problem on which it is wrong."
        )


def raising(exercise: Exercise, sets: range) -> Iterator[str]:
    """The mistakes that raise an error on some sets of problems and not on others."""
    found = Counter()
    for seed in sets:
        problems = list(exercise.problems(Rng(seed)))
        for name, mistake in exercise.mistakes.items():
            for number, variant in enumerate(() if mistake.of else mistake.variants, 1):
                found[name, number] += any(exercise.compute(variant, p).kind == "raised" for p in problems)
    for (name, number), count in found.items():
        if 0 < count < len(sets):
            yield (
                f"{name}: its function {number} raises an error on {count} of {len(sets)} sets of problems "
                "only. Choose the sizes of the problems so that it raises on all sets, or on none."
            )


def unstable(exercise: Exercise, given: Iterable[Try], sets: range) -> Iterator[str]:
    """The wrong tries that are named after a known mistake on some sets only.

    If the first set gives a known mistake, the others are asked for this one alone: that takes seconds.
    Tries that take longer, because they compute much, are asked on two sets at least.
    """
    singles = {name: mistake for name, mistake in exercise.mistakes.items() if not mistake.of}
    asked, found = {}, {one: Counter() for one in given}
    start = time.monotonic()
    for number, seed in enumerate(sets):
        if number > 1 and time.monotonic() - start > LONGEST:
            break
        for one, names in found.items():
            about = asked.get(one, exercise)
            diagnosis = diagnosis_of(about, one.function(), seed)
            name = diagnosis and diagnosis.name
            names[name] += 1
            if about is exercise:
                few = {name: exercise.mistakes[name]} if name in exercise.mistakes else singles
                asked[one] = replace(exercise, mistakes=few)
    for one, names in found.items():
        if len(names) > 1 and any(exercise.mistakes[n].variants for n in names if n in exercise.mistakes):
            yield f"{one}: its name depends on the set of problems: {dict(names)}"


def quick(exercise: Exercise, given: list[Try], sets: range = SETS) -> list[str]:
    """What to change in an exercise, its problems or its first tries."""
    before, runner.SECONDS = runner.SECONDS, 60.0  # nothing here depends on how busy the machine is
    few = [f"write more first tries: there are {len(given)}, and at least {FEWEST} are needed"]
    wrong = [one for one in given if not one.right]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # wrong answers pass wrong arguments
            lines = [*accepted(exercise, sets), *raising(exercise, sets), *unstable(exercise, wrong, sets)]
    finally:
        runner.SECONDS = before
    return few * (len(given) < FEWEST) + lines


def line_to_add(exercise: Exercise, mistake: str) -> str:
    """For a known mistake without a variant and without a predicate."""
    key = f'CLAIMS[("{exercise.name}", "{mistake}")]'
    return (
        f"add to tests/check/claims/ch{exercise.chapter[:2]}.py: {key} = lambda problem, expected, got: ..."
    )


def everywhere(count: int, wanted: list[str]) -> list[str]:
    """The first tries that do not get the same name on ``count`` sets of problems."""
    lines = []
    for one in tries():
        if not wanted or one.exercise in wanted:
            found = map(one.diagnosis, range(count))
            given = Counter(diagnosis and diagnosis.name for diagnosis in found)  # None: right, or the stub
            if len(given) > 1:
                lines.append(f"{one}: {dict(given)}")
    return lines


if __name__ == "__main__":
    first, *wanted = sys.argv[1:]
    if first == "quick":
        exercise, given = find(wanted[0]), [one for one in tries() if one.exercise == wanted[0]]
        lines = [line_to_add(exercise, mistake) for mistake in unclaimed(exercise)] + quick(exercise, given)
    else:
        lines = everywhere(int(first), wanted)
    print("\n".join(lines) or "every answer gets the same name on every set of problems")
    sys.exit(bool(lines))
