"""The ledger is complete: each reason has one verdict, and each verdict says enough."""

import ast
import datetime
import re
from functools import cache

import pytest

from tests.notebooks.chapters import MEASURED, NAMES, ROOT, code_cells, read
from tools import reasons
from tools.reasons import FIELDS, HEDGE, KINDS, LEDGER, Row
from tools.sync import Chapter

# The others come later. A chapter with a file is complete.
LISTED = [name for name in NAMES if (LEDGER / f"{name[:2]}.toml").exists()]
PLACE = re.compile(
    r"\b(section|line|figure|table|footnote|abstract|appendix|page|pull request|issue|docstring)s?\b", re.I
)


@cache
def defined_in(path):
    """The names of the tests of a file in ``tests``; none if there is no such file."""
    file = ROOT / "tests" / path
    tree = ast.parse(file.read_text(encoding="utf-8") if file.is_file() else "")
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@cache
def compared_cells():
    """The cells whose outputs are compared at every run of the chapters, or that assert something."""
    cells = [cell for name in NAMES for cell in code_cells(read(name))]
    return {cell.id for cell in cells if MEASURED not in cell.metadata.get("tags", [])}


def wrong(row):
    """What is wrong with a row by itself; an empty string if nothing is."""
    details = row.details
    if row.verdict not in FIELDS:
        return f"{row.verdict} is no verdict"
    if missing := FIELDS[row.verdict] ^ set(details):
        return f"fields: {sorted(FIELDS[row.verdict])} are expected, not {sorted(missing)}"
    if row.verdict == "no_claim":
        return "" if details["kind"] in KINDS else f"{details['kind']} is none of {list(KINDS)}"
    if not all(str(value).strip() for value in details.values()):
        return "a field is empty"
    if row.verdict == "shown":
        path, _, test = details["by"].partition("::")
        if test not in defined_in(path) if test else path not in compared_cells():
            return f"there is no test, and no compared cell, {details['by']}"
    if row.verdict == "cited":
        if not PLACE.search(details["source"]):
            return "the source has no section, line, figure or table"
        if not isinstance(details["opened"], datetime.date):
            return "opened is no date, such as 2026-11-28"
    if row.verdict == "hedged" and not HEDGE.search(row.sentence):
        return "the sentence does not say that this may be so"
    return ""


@pytest.mark.parametrize("name", LISTED)
def test_every_reason_has_one_row_and_every_row_a_sentence(name):
    said = reasons.statements(name, read(name))
    listed = [row.sentence for row in reasons.rows(LEDGER / f"{name[:2]}.toml")]
    assert not [each for each, needed in said.items() if needed and each not in listed], (
        f"run python -m tools.reasons {name[:2]}"
    )
    assert not [each for each in listed if each not in said], "the chapter does not say this any more"
    assert not [each for each in listed if listed.count(each) > 1], "a sentence has one verdict"


@pytest.mark.parametrize("name", LISTED)
def test_every_row_says_enough_for_its_verdict(name):
    rows = reasons.rows(LEDGER / f"{name[:2]}.toml")
    assert {row.sentence: told for row in rows if (told := wrong(row))} == {}


def test_every_file_belongs_to_a_chapter_and_every_test_of_a_reason_to_a_row():
    assert {path.stem for path in LEDGER.glob("*.toml")} <= {name[:2] for name in NAMES}
    rows = [row for name in LISTED for row in reasons.rows(LEDGER / f"{name[:2]}.toml")]
    named = {row.details["by"] for row in rows if row.verdict == "shown"}
    tests = {
        f"reasons/{path.name}::{test}"
        for path in LEDGER.glob("test_ch*.py")
        for test in defined_in(f"reasons/{path.name}")
        if test.startswith("test_")
    }
    assert tests <= named


DAY = datetime.date(2026, 11, 28)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (Row("So it is.", "guessed", {}), "no verdict"),
        (Row("So it is.", "shown", {"by": "test_masks.py::test_of_nothing"}), "no test"),
        (Row("So it is.", "shown", {"by": "test_nothing.py::test_of_nothing"}), "no test"),
        (Row("So it is.", "shown", {"by": "ch04-nothing"}), "no compared cell"),
        (Row("So it is.", "shown", {"where": "step 3"}), "fields"),
        (Row("So it is.", "proved", {"where": " "}), "empty"),
        (Row("So it is.", "cited", {"source": "Vaswani et al. 2017", "opened": DAY}), "no section"),
        (
            Row("So it is.", "cited", {"source": "Vaswani et al. 2017, section 3.2", "opened": "today"}),
            "no date",
        ),
        (Row("So it is.", "hedged", {"untried": "other sizes"}), "does not say"),
        (Row("So it is.", "no_claim", {"kind": "obvious"}), "none of"),
        (Row("So it may be.", "hedged", {"untried": "other sizes"}), ""),
        (Row("So it is.", "shown", {"by": "reasons/test_ledger.py::test_what_is_a_reason"}), ""),
        (Row("So it is.", "cited", {"source": "Vaswani et al. 2017, section 3.2", "opened": DAY}), ""),
    ],
)
def test_a_row_that_says_too_little_is_found(row, says):
    assert says in wrong(row)
    assert says or wrong(row) == ""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It works, because it is scaled. Run the cell.", ["It works, because it is scaled."]),
        ("So the row sums to 1. Why is that so?", ["So the row sums to 1."]),
        ("Choose a number so that it is safe. So far, nothing.", []),
        ("**A mask** is [never](x.ipynb#a) *wide*:\n\n- one axis.", ["A mask is never wide:"]),
        ("- Look.\n- only one is.\n2. It was.\n3. so it is.", ["only one is.", "so it is."]),
        ("## Only a heading\n\n```\nonly code\n```\n\n| a | only a cell |", ["only a cell |"]),
        ("Jain et al. Show it. (It needs `x`.) *saw* is **so.** Yes.", ["(It needs `x`.)"]),
        ("*saw* looks. *dog* never does.", ["dog never does."]),
        ("Only `2 ** 3` is **8**.", ["Only `2 ** 3` is 8."]),
    ],
)
def test_what_is_a_reason(text, found):
    assert [each for each in reasons.sentences(text) if reasons.is_reason(each)] == found


def test_a_page_has_the_claims_in_their_order_and_counts_them():
    name = LISTED[0]
    chapter = Chapter.read(ROOT / "notebooks" / f"{name}.ipynb")
    rows = reasons.rows(LEDGER / f"{name[:2]}.toml")
    claims = [row for row in rows if row.verdict != "no_claim"]
    page = reasons.page(chapter, read(name), rows[::-1])
    said = {row.sentence for row in claims}
    places = [page.find(f"| {each} |") for each in reasons.statements(name, read(name)) if each in said]
    assert places == sorted(places)
    assert -1 not in places
    for verdict in {row.verdict for row in claims}:
        assert f"{sum(row.verdict == verdict for row in claims)} {verdict}" in page
