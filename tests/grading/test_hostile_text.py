"""Texts that take a parser hours, gigabytes or the whole stack: they cost their student a cell, at most."""

import json
import shutil

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell

from mha_course.grading import intake, limits, record
from mha_course.grading.functions import WIDTH, answers, definitions, short
from mha_course.grading.source import MAX_BLOCKS, looked_at, syntax_error
from tests.grading import test_going_on
from tests.grading.test_going_on import ANSWERS, NAME, STUDENTS, submit
from tests.grading.test_round import needs_walls, run

RIGHT = ANSWERS[0]
# Each of these takes Python or IPython minutes, and the longest some days.
HARD = {
    "tabs behind a command": "a =" + "\t" * 99_000 + "!b",
    "tabs before a question": "x" + "\t" * 99_000 + "?",
    "names before a question": "x." * 49_000 + "?",
    "commas": "," * 99_000,
    "commands in many lines": "a = !b\n" * 199 + "x\n" * 24_000,
}
# These are quick now.
READ = {
    "empty lines": "\n" * 99_000 + "def split_heads(x, num_heads):\n    return x",
    "empty lines and a command": "a = !b" + "\n" * 20_000,
    "no end of quotes": "'" * 99_000,
    "parentheses": "(" * 99_000,
    "calls in calls": "f(" * 40_000,
    "operators": "+".join("a" * 49_000),
    "powers": "1**" * 30_000 + "1",
    "else if": "if a: pass\n" + "elif a: pass\n" * 7000,
    "comprehensions": "[x for x in " * 6000,
    "a number of many digits": "9" * 99_000,
    "half of a pair": "'\ud800'",
    "no characters": "\0" * 99,
    "escapes": "\\\n" * 40_000,
}  # fmt: skip


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(limits, "SECONDS", 0.5)


def test_what_is_too_hard_is_left_out_and_the_rest_is_read(quick):
    texts = [text for hard in HARD.values() for text in (hard, RIGHT)]
    found = limits.each(lambda text: looked_at(text, code=True), texts)
    assert found[1::2] == [True] * len(HARD)
    assert found[::2] == ["takes too long to read"] * len(HARD)
    assert all(isinstance(one, limits.TooHard) for one in found[::2])


def test_after_some_time_nothing_more_is_read(monkeypatch):
    monkeypatch.setattr(limits, "SECONDS", 0.3)
    monkeypatch.setattr(limits, "ALL_SECONDS", 0.5)
    found = limits.each(lambda text: looked_at(text, code=True), [*HARD.values(), RIGHT])
    assert found == ["takes too long to read"] * (len(HARD) + 1)


@pytest.mark.parametrize("name", READ)
def test_other_odd_texts_are_read(name, monkeypatch):
    """What is read of them, however slow this machine is."""
    monkeypatch.setattr(limits, "SECONDS", 15.0)

    def read(text):
        return [looked_at(text, code=False), syntax_error(text), definitions(text)]

    ((looked, error, functions),) = limits.each(read, [READ[name]])
    assert (looked is True) == (name == "empty lines")
    assert len(functions) == (name == "empty lines")
    assert len(error) < 500


def test_what_ends_or_fills_the_process_is_left_out(monkeypatch):
    monkeypatch.setattr(limits, "MEMORY", 2**27)

    def read(text):
        match text:
            case "deep":
                return read(text)
            case "large":
                return len("x" * 2**31)
            case "ends":
                raise SystemExit
            case "fails":
                raise KeyError
        return text

    found = limits.each(read, ["deep", "a", "large", "ends", "b", "fails", "c"])
    assert found == [
        "is nested too deeply to be read", "a", "needs too much memory to be read", "cannot be read", "b",
        "cannot be read", "c",
    ]  # fmt: skip


CHAIN = "\n".join(
    ["def split_heads(x, num_heads): return f0(x)"]
    + [f"def f{i}(x): return f{i + 1}(x)" for i in range(1500)]
)


def test_an_answer_of_many_functions_is_short_whatever_they_call():
    (code,) = answers(definitions(CHAIN), [], ["split_heads"]).values()
    assert code.startswith("def f1499(x):")
    assert code.endswith("def split_heads(x, num_heads):\n    return f0(x)")
    wide = f"def split_heads(x, num_heads):\n    return {[*range(9000)]}"
    for text in (CHAIN, wide):
        (code,) = answers(definitions(text), [], ["split_heads"]).values()
        assert len(short(code)) < 9 * (WIDTH + 20)
    deep = "def split_heads(x, num_heads):\n    return " + "-" * 500 + "x"
    assert definitions(f"{deep}\n\ndef merge_heads(x):\n    return x")[-1].name == "merge_heads"


def test_a_text_of_many_blocks_is_left_out():
    block = f"```\n{RIGHT}```\n"
    assert looked_at(block * MAX_BLOCKS, code=False) == [RIGHT] * MAX_BLOCKS
    (found,) = limits.each(lambda text: looked_at(text, code=False), [block * (MAX_BLOCKS + 1)])
    assert found == "has more than 100 blocks of code"


def saved(cells):
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


def test_a_cell_of_many_lines_is_left_out_and_the_others_are_taken():
    cells = [
        {"cell_type": "code", "source": text, "metadata": {}}
        for text in ("\n" * intake.MAX_LINES, "x\n" * intake.MAX_LINES, RIGHT)
    ]
    kinds = [intake.is_left_out(cell.source) for cell in intake.notebook(saved(cells)).cells]
    assert kinds == [False, False, False]
    cells[0]["source"] += "\n"
    cells[1]["source"] = list(f"{cells[1]['source']}x")
    first, second, third = intake.notebook(saved(cells)).cells
    assert first.source == second.source == "The grader left out this cell: it has more than 5,000 lines."
    assert intake.is_left_out(first.source)
    assert third.source == RIGHT


DIGITS = b'{"cells": [], "nbformat": ' + b"9" * 10**6 + b"}"
FILES = {
    "lists in lists": b'{"nbformat": 4, "cells": ' + b"[" * 10**5 + b"]" * 10**5 + b"}",
    "lists in a cell": b'{"nbformat": 4, "cells": [' + b'{"a":' * 10**5 + b"1" + b"}" * 10**5 + b"]}",
    "digits": DIGITS,
    "no text": b"\0" * 10**6,
    "no unicode": b"\xff\xfe" * 10**5,
    "a list": b"[]",
    "a number": b"4",
    "cells in a text": b'{"nbformat": 4, "cells": "' + b"x" * 10**6 + b'"}',
    "infinite": b'{"nbformat": 1e999, "cells": []}',
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_notebook_is_one_sentence(name):
    with pytest.raises(intake.Refused, match=r"^it is (not )?a notebook") as refused:
        intake.notebook(FILES[name])
    assert len(str(refused.value)) < 120


WHOLE = {"file": "1", "grader": "2", "outcomes": {"split_heads": "right"}, "points": {"split_heads": 1}}
BROKEN = {
    "nothing": "",
    "half": json.dumps(WHOLE)[:-9],
    "a list": "[]",
    "lists in lists": "[" * 10**5,
    "no outcomes": json.dumps(WHOLE | {"outcomes": 5}),
    "outcomes of numbers": json.dumps(WHOLE | {"outcomes": {"split_heads": 5}}),
    "code of numbers": json.dumps(WHOLE | {"answers": {"split_heads": 5}}),
    "sentences of numbers": json.dumps(WHOLE | {"left_out": [5]}),
    "of another version": json.dumps(WHOLE | {"other": 1}),
    "huge": json.dumps(WHOLE | {"file": "x" * record.MAX_BYTES}),
    "digits": json.dumps(WHOLE).replace(": 1}", ": " + "1" * 10**5 + "}"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_record_is_none(name, tmp_path):
    file = record.place(tmp_path, NAME, "ada")
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(WHOLE))
    assert record.read(tmp_path, NAME, "ada").outcomes == {"split_heads": "right"}
    file.write_text(BROKEN[name])
    assert record.read(tmp_path, NAME, "ada") is None


# The whole way

course = test_going_on.course  # one exercise and four students


@needs_walls
@pytest.mark.grading
def test_hostile_texts_stop_neither_the_class_nor_its_report(course):
    """A student hands in each of them beside a right answer, and keeps its points."""
    hostile = {
        "chain": [new_code_cell(CHAIN.replace("split_heads", "other_heads"))],
        "chained": [new_code_cell(CHAIN)],
        "hard": [new_code_cell(text) for text in HARD.values() if text.count("\n") < 5000],
        "odd": [new_code_cell(text[:4000]) for text in READ.values()],
        "long": [new_code_cell("x = 1\n" * 5001) for _ in range(2)],
        "blocks": [new_markdown_cell("```\nx\n```\n" * 1000)],
        "texts": [new_markdown_cell(f"{'```' * 30_000}{i}") for i in range(2)]
        + [new_markdown_cell("`" * 99_000)],
        "coloured": [new_code_cell("a." * 49_000), new_markdown_cell("[" * 95_000)],
        "copies": [new_code_cell("def split_heads(x, num_heads): ...") for _ in range(900)],
        "ends": [new_code_cell("import os\nos._exit(0)")],
    }
    for student, cells in hostile.items():
        submit(course, student, RIGHT)
        file = course / "submitted" / student / NAME / f"{NAME}.ipynb"
        notebook = nbformat.read(file, as_version=4)
        notebook.cells += cells
        file.write_text(nbformat.writes(notebook), encoding="utf-8", errors="surrogatepass")
    for student, data in FILES.items():
        (folder := course / "submitted" / student / NAME).mkdir(parents=True)
        (folder / f"{NAME}.ipynb").write_bytes(data)
    done = run("grade", course, NAME)
    assert done.returncode == 1, done.stderr
    refused = [line for line in done.stderr.splitlines() if line.startswith("not graded")]
    file = f"'{NAME}/{NAME}.ipynb'"
    assert sorted(line.partition(": it is")[0] for line in refused) == sorted(
        f"not graded: {student!a}: {file}" for student in FILES
    )
    found = test_going_on.scores(course)
    assert {student: found[student] for student in hostile} == dict.fromkeys(hostile, 1)
    assert {student: found[student] for student in STUDENTS} == dict(zip(STUDENTS, [1, 0] * 2, strict=True))
    words = "look at this: "
    said = [line.removeprefix(words) for line in done.stdout.splitlines() if line.startswith(words)]
    left = "The grader left out this cell: it"
    assert said == [
        f"blocks: {file}: {left} has more than 100 blocks of code.",
        f"ends: {file}: This cell was left out: it ended or blocked Python.",
        f"hard: {file}: {left} takes too long to read. (4 cells)",
        f"long: {file}: {left} has more than 5,000 lines. (2 cells)",
    ]
    page = (course / "feedback" / "hard" / NAME / f"{NAME}.html").read_text(encoding="utf-8")
    assert page.count(f"{left} takes too long to read.") == 4
    page = (course / "feedback" / "coloured" / NAME / f"{NAME}.html").read_text(encoding="utf-8")
    assert page.count("<p>This cell has no colours: it takes too long to read.</p>") == 1
    assert "a." * 49_000 in page
    assert "[" * 95_000 in page

    # The report reads records, and nothing that a student wrote.
    shutil.rmtree(course / "autograded")
    shutil.rmtree(course / "checked")
    record.place(course, NAME, "s0").unlink()
    record.place(course, NAME, "s1").write_text("{")
    done = run("report", course, NAME)
    assert done.returncode == 0, done.stderr
    for student in ("s0", "s1"):
        said = f"look at this: {student}: 'graded/{NAME}/{student}.json' is missing or damaged"
        assert f"{said}; the report leaves it out" in done.stdout
