"""What is read of a student's texts is read in a child process, one text after another, within limits.

For some texts Python's parser, IPython or a regular expression takes hours, gigabytes, or the whole stack.
Such a text is left out, with the reason, and the others are read.
"""

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from mha_course.checker import child

SECONDS = 2.0  # of computing, for one text; the longest cell of a chapter takes a hundredth of a second
ALL_SECONDS = 20.0  # for all texts of a call
PATIENCE = 4  # times ALL_SECONDS may pass on the clock, if the machine has other work
MEMORY = 2**29  # bytes that this may take, on top of what the process has


class TooHard(str):
    """Why a text was not read, to go on after "it"."""


class Refused(ValueError):
    """Raised by what reads a text, with the words of ``TooHard``."""


def each(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """What ``work`` returns for each item, which must be something that JSON can hold, or ``TooHard``.

    Elsewhere than on Linux there is no child, and only the limits of the process of a submission hold.
    """
    if sys.platform != "linux":
        return [_result(_tried(work, item)) for item in items]
    found: list[Any] = []
    left = ALL_SECONDS
    while len(found) < len(items):
        if left <= 0:
            return found + [TooHard("takes too long to read")] * (len(items) - len(found))
        said = child.run(
            lambda item: _tried(work, item),
            items[len(found) :],
            seconds=left,
            patience=PATIENCE * left,
            memory=MEMORY,
            each=min(SECONDS, left),
        )
        found += map(_result, map(json.loads, said.lines))
        left -= max(said.seconds, 0.01)
        if len(found) < len(items):
            found.append(TooHard("takes too long to read" if said.too_slow else "cannot be read"))
    return found


def _tried(work: Callable[[Any], Any], item: Any) -> list[Any]:
    """A list of the result, or of nothing and why there is none."""
    try:
        return [work(item)]
    except Refused as reason:
        return [None, str(reason)]
    except (RecursionError, MemoryError) as error:
        what = "is nested too deeply" if isinstance(error, RecursionError) else "needs too much memory"
        return [None, f"{what} to be read"]


def _result(said: list[Any]) -> Any:
    return TooHard(said[1]) if len(said) > 1 else said[0]
