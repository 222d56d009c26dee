"""Whether an answer may be shown to the class: it must name nobody."""

import re
from collections.abc import Iterable

from mha_lab.grading.gradebook import Row

SHORT = 3  # letters of a name that is looked for; many shorter words are code


def words(rows: Iterable[Row]) -> set[str]:
    """The words of the class list: parts of names, of ids and of addresses."""
    found = set()
    for row in rows:
        found |= _words(" ".join([row.student, row.first_name, row.last_name, row.email.partition("@")[0]]))
    return {word for word in found if len(word) >= SHORT}


def names_nobody(code: str, listed: set[str]) -> bool:
    """Whether no word of the class list is in it."""
    return _words(code).isdisjoint(listed)


def _words(text: str) -> set[str]:
    """``anna_split``, ``annaSplit2`` and ``Anna's`` all contain ``anna``."""
    return set(re.findall(r"[^\W\d_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).casefold()))
