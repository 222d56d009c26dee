"""The tables: read back as a spreadsheet, Canvas and Moodle read them."""

import csv
import io
import re
import unicodedata

import pytest

from mha_course.grading.gradebook import Row
from mha_course.grading.tables import as_csv, canvas, defused, grades, moodle
from tests.grading.test_summary import MOST, row

pytestmark = pytest.mark.grading
CHAPTER = "03_splitting_heads"
CLASS = [
    row("ada", "right", "right", 3.0, last_name="Lovelace", first_name="Ada", email="ada@example.org"),
    row(
        "Bo Ek_4711",
        "view-without-transpose",
        "untouched",
        0.0,
        penalty=1.0,
        of_platform=True,
        by_hand=dict.fromkeys(["split_heads", "essay"]),
    ),
    row("dee", "untouched", "right"),  # waits for points by hand
    Row("eve", last_name='=HYPERLINK("x")', first_name="Eve"),
    Row("fay", handed_in=True, points={"split_heads": 1.0}, reason="it is not a notebook"),
]


def read(lines):
    return list(csv.DictReader(io.StringIO(as_csv(lines).decode(), newline="")))


def test_missing_untouched_and_wrong_are_told_apart():
    ada, bo, dee, eve, fay = read(grades(CHAPTER, CLASS, MOST))
    assert (ada["last_name"], ada["email"], ada["status"]) == ("Lovelace", "ada@example.org", "graded")
    assert (ada["split_heads"], ada["split_heads: outcome"], ada["score"]) == ("1.0", "right", "5.0")
    assert (bo["split_heads"], bo["split_heads: outcome"]) == ("0.0", "view-without-transpose; by hand")
    assert (bo["essay: outcome"], ada["essay: outcome"]) == ("by hand", "")
    assert (bo["merge_heads"], bo["merge_heads: outcome"]) == ("0.0", "untouched")
    assert (dee["essay"], dee["status"]) == ("", "waits for points by hand")
    assert (eve["split_heads"], eve["status"], eve["score"]) == ("", "nothing handed in", "")
    assert (fay["split_heads"], fay["status"]) == ("", "not graded: it is not a notebook")
    assert {line["max_score"] for line in (ada, eve, fay)} == {"5.0"}


FORMULAS = "=1+1", "+1", "-1", "@x", "=cmd|' /C calc'!A0", "＝1", " = 1", "\u200b=1", "− 1"
BEGINS = tuple(c for c in map(chr, range(0x110000)) if unicodedata.normalize("NFKC", c) in {*"=+-@"})
# Readers split a line at one of these, with and without a blank after it.
SPLIT_AT = [
    c for c in map(chr, range(1, 0x3000)) if not c.isalnum() and c not in "'\u00a0 " + "".join(BEGINS)
]


def test_no_cell_is_a_formula():
    for text in (*FORMULAS, "\t=1", " =1", "\r=1", *(f"{sign}1" for sign in BEGINS)):
        assert "'" in defused(text).lstrip()[:2]
    for text in ("Ada-Lovelace = x", "Ada - Lovelace", "d'Arc-Ek", "ada@x.org", "2026-11-28 08:00:00+00:00"):
        assert defused(text) == text
    for lines in (grades(CHAPTER, CLASS, MOST), canvas(CHAPTER, CLASS, MOST), moodle(CLASS, MOST)):
        cells = [cell for line in read(lines) for cell in line.values()]
        assert any("HYPERLINK" in cell for cell in cells)
        assert not any(cell.startswith(("=", "+", "-", "@")) for cell in cells)


@pytest.mark.parametrize("formula", FORMULAS)
def test_no_cell_is_a_formula_wherever_a_reader_splits(formula):
    for sign in SPLIT_AT:
        for text in (f"x{sign}{formula}", f"x{sign} {formula}", f"x {sign}\n{formula}"):
            *_, cell = defused(text).split(sign)
            assert not cell.strip().startswith(BEGINS), (text, cell)
    *_, cell = defused(f"Ada {formula.strip()}").split(" ", 1)
    assert not cell.startswith(BEGINS) or cell[1] == " "


def test_a_name_is_no_formula_in_a_table_that_is_read_with_other_signs():
    """As a spreadsheet in Germany reads it, which splits at ``;`` and does not know quotation marks."""
    evil = row("x;=cmd|' /C calc'!A0", "right", "right", 3.0, last_name='a;"=1', first_name="b\n;+1")
    for lines in (grades(CHAPTER, [evil], MOST), canvas(CHAPTER, [evil], MOST), moodle([evil], MOST)):
        for cell in re.split(r'[;,\t\n"]', as_csv(lines).decode()):
            assert not cell.strip().startswith(BEGINS), cell


def test_canvas_finds_its_columns_and_each_student():
    """By the rules of its importer: fixed columns up to Section, then assignments, then a row of points."""
    lines = list(csv.reader(io.StringIO(as_csv(canvas(CHAPTER, CLASS, MOST)).decode(), newline="")))
    head, possible, *students = lines
    assert head == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", CHAPTER]
    assert ("Points Possible" in possible[0], possible[-1]) == (True, "5.0")
    assert [(line[1] or line[3], line[-1]) for line in students] == [
        ("ada", "5.0"), ("4711", "0.0"), ("dee", ""), ("eve", ""), ("fay", ""),
    ]  # fmt: skip
    assert students[1][0] == "Bo Ek"


def test_an_id_of_a_teachers_own_list_is_no_number_of_a_platform():
    own = [row("maier_2", "right", "right", 3.0)]
    (line,) = read(moodle(own, MOST))
    assert (line["Identifier"], line["Full name"], line["ID number"]) == ("", "maier_2", "maier_2")
    *_, line = csv.reader(io.StringIO(as_csv(canvas(CHAPTER, own, MOST)).decode(), newline=""))
    assert line[:4] == ["maier_2", "", "", "maier_2"]


def test_moodle_finds_its_columns_and_each_student():
    """By the rules of its worksheet: three named columns, and a number after the word Participant."""
    found = read(moodle(CLASS, MOST))
    assert {"Identifier", "Grade", "Last modified (grade)"} <= found[0].keys()
    assert [(line["Identifier"][len("Participant ") :], line["Grade"]) for line in found] == [
        ("", "5.0"), ("4711", "0.0"), ("", ""), ("", ""), ("", ""),
    ]  # fmt: skip
    assert (found[0]["ID number"], found[0]["Email address"]) == ("ada", "ada@example.org")
