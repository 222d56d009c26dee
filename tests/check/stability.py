"""Does the name of a mistake depend on luck? ``python -m tests.check.stability 100 [exercise ...]``.

The tests judge every first try of ``tests/check/tries/`` on few draws of random problems; this does on many.
Where two mistakes give the same numbers on every problem of a draw, one takes the other's name: then the
exercise needs a problem that tells them apart.
"""

import sys
from collections import Counter

from tests.check.corpus import tries

if __name__ == "__main__":
    count, *wanted = sys.argv[1:]
    lines = []
    for one in tries():
        if not wanted or one.exercise in wanted:
            found = map(one.diagnosis, range(int(count)))
            given = Counter(diagnosis and diagnosis.name for diagnosis in found)  # None: right, or the stub
            if len(given) > 1:
                lines.append(f"{one}: {dict(given)}")
    sys.exit("\n".join(lines) or print("every answer gets the same name on every set of problems"))
