"""Does the name of a mistake hang on the luck of the draw? ``python -m tools.draws 100 [exercise ...]``.

The tests judge every answer of ``tests/check/answers/`` on one draw of random problems, always the same.
This tries each answer on many. Where two mistakes give the same numbers on every problem of a draw, one
takes the other's name: then the exercise needs a problem that tells them apart.
"""

import sys
from collections import Counter

from mha_lab.check.diagnose import Finding, copies, verdict
from mha_lab.check.exercise import Answer, Draw, Exercise, find
from mha_lab.check.sandbox import in_this_process, read
from tests.check.answers import table


def judge(exercise: Exercise, answer: Answer, seed: int) -> Finding | None:
    """What ``check`` says of it on this draw, without a process of its own: that takes 20 times as long."""
    problems = list(exercise.problems(Draw(seed)))
    messages = in_this_process(exercise.apply, answer, [copies(p) for p in problems], exercise.refused())
    return verdict(exercise, problems, [read(message) for message in messages])


def surprises(name: str, draws: int) -> dict[tuple[str | None, str | None], int]:
    """How often an answer meant as the first slug was given the second; ``None`` is right."""
    found: Counter = Counter()
    for meant, answer in table()[name]:
        if meant == "too-slow":
            continue
        for seed in range(draws):
            finding = judge(find(name), answer, seed)
            given = "not attempted" if finding is None else finding.slug
            if given != meant:
                found[meant, given] += 1
    return dict(found)


if __name__ == "__main__":
    count, *wanted = sys.argv[1:]
    lines = []
    for name in wanted or table():
        print(name, flush=True)
        for (meant, given), times in surprises(name, int(count)).items():
            taken = f"{meant or 'right'} was taken for {given or 'right'}"
            lines.append(f"{name}: {taken}, {times} times in {count} draws of each answer")
    sys.exit("\n".join(lines) or None)
