"""Does the name of a mistake hang on the luck of the draw? ``python -m tools.draws 100 [exercise ...]``.

The tests judge every first try of ``tests/check/tries/`` on few draws of random problems; this does on many.
Where two mistakes give the same numbers on every problem of a draw, one takes the other's name: then the
exercise needs a problem that tells them apart.
"""

import sys
from collections import Counter

from tests.check.corpus import Try, tries


def slugs(one: Try, draws: int) -> Counter:
    """How often each name was given; ``None`` is right, or the stub."""
    found = (one.judge(seed) for seed in range(draws))
    return Counter(finding and finding.slug for finding in found)


if __name__ == "__main__":
    count, *wanted = sys.argv[1:]
    lines = []
    for one in tries():
        if not wanted or one.exercise in wanted:
            given = slugs(one, int(count))
            if len(given) > 1:
                lines.append(f"{one}: {dict(given)}")
    sys.exit("\n".join(lines) or None)
