"""Times two things in turns, so that other work of the machine affects both."""

import statistics
import time
from collections.abc import Callable


def seconds(run: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def ratio(
    ours: Callable[[], object], theirs: Callable[[], object], rounds: int
) -> tuple[float, float, float]:
    """Time of ours divided by time of theirs: ``(median, lower quartile, upper quartile)`` over rounds.

    Each round runs both, in an order that changes from round to round; one round before is thrown
    away.
    """
    found = []
    for turn in range(rounds + 1):
        if turn % 2:
            mine, other = seconds(ours), seconds(theirs)
        else:
            other, mine = seconds(theirs), seconds(ours)
        found.append(mine / other)
    low, middle, high = statistics.quantiles(found[1:], n=4)
    return middle, low, high


def verdict(value: float, most: float) -> str:
    """The limit, and whether it is met."""
    return f"asked: at most {most:g}  {'ok' if value <= most else 'MISSED'}"
