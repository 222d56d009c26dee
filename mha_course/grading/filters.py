"""nbconvert's filters for a page of feedback, whatever a student has typed.

The time of some of its own filters grows with the square of the length of a text.
"""

import html
from collections.abc import Callable, Iterable

from nbconvert.filters import Highlight2HTML

from mha_course.grading import limits

MAX_COLOURED = 2**20  # characters of all coloured cells of a page; those of a chapter have 150,000 at most
PLAIN = '<div class="highlight"><pre>{}</pre></div>\n<p>This cell has no colours: it {}.</p>'


def within_limits(code: Iterable[str]) -> dict[str, Callable[..., str]]:
    """The filters, by name, for a page with these cells of code."""
    cells, room, made = [*dict.fromkeys(code)], MAX_COLOURED, {}
    for source, found in zip(cells, limits.each(Highlight2HTML(), cells), strict=True):
        if len(found) > room:
            found = limits.TooHard("would make the page too large")
        if isinstance(found, limits.TooHard):
            found = PLAIN.format(html.escape(source), found)
        else:
            room -= len(found)
        made[source] = found
    # The other one looks for an old form of addresses.
    return {"highlight_code": lambda source, **_: made[source], "strip_files_prefix": lambda text: text}
