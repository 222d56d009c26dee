"""What is taken from a folder that somebody else has filled: the rest of it is in test_round."""

import json

import pytest

from mha_course.grading import intake


def test_a_folder_that_cannot_be_read_stops_nobody(tmp_path, monkeypatch):
    """As root everything can be read, so the refusal is a stand-in."""
    for student in ("ada", "bob"):
        (tmp_path / student / "03").mkdir(parents=True)

    def inside(entry):
        if entry.name == "ada":
            raise PermissionError(13, "Permission denied")
        return ["03"]

    monkeypatch.setattr(intake, "_inside", inside)
    refused = {"ada": "its folder cannot be read: Permission denied"}
    assert intake.students(tmp_path, "03") == (["bob"], refused)
    assert intake.others(tmp_path, {"03"}) == []


@pytest.mark.parametrize("content", [{"nbformat": 3}, {"nbformat": 4}, {"nbformat": 4, "cells": {}}, []])
def test_a_file_that_is_no_notebook_says_why(content):
    old = content == {"nbformat": 3}
    with pytest.raises(intake.Refused, match="save it again" if old else "its content cannot be read"):
        intake.notebook(json.dumps(content).encode())


@pytest.mark.parametrize("data", [b"", b"\n"])
def test_an_empty_file_is_called_empty(data):
    with pytest.raises(intake.Refused, match="it is empty"):
        intake.notebook(data)


def test_a_picture_in_a_text_is_left_out_and_one_in_code_is_not():
    picture = "![](data:image/png;base64," + "A" * 200_000 + ")"
    cells = [{"cell_type": "markdown", "source": picture}, {"cell_type": "code", "source": "x = 1"}]
    taken = intake.notebook(json.dumps({"nbformat": 4, "cells": cells}).encode())
    assert [cell.source for cell in taken.cells] == ["![]((a picture))", "x = 1"]
    cells[1]["source"] = picture
    taken = intake.notebook(json.dumps({"nbformat": 4, "cells": cells}).encode())
    assert taken.cells[1].source == "The grader left out this cell: it has more than 100,000 characters."


CODE = {"cell_type": "code", "source": "x = 1", "metadata": {"nbgrader": {"grade_id": "split_heads"}}}
CELLS = [
    (CODE | {"source": "x" * 100_001}, "The grader left out this cell: it has more than 100,000 characters."),
    (CODE | {"source": 5}, "The grader left out this cell: it is damaged."),
    (CODE | {"source": [5]}, "The grader left out this cell: it is damaged."),
    ({"source": "x = 1"}, "The grader left out this cell: it is damaged."),
    (7, "The grader left out this cell: it is damaged."),
    (CODE | {"metadata": None}, "x = 1"),
    (CODE | {"metadata": [5]}, "x = 1"),
    (CODE | {"metadata": {"nbgrader": None}}, "x = 1"),
]


@pytest.mark.parametrize(("cell", "left"), CELLS, ids=range(len(CELLS)))
def test_an_odd_cell_costs_no_other(cell, left):
    taken = intake.notebook(json.dumps({"nbformat": 4, "cells": [cell, CODE]}).encode()).cells
    assert [one.source for one in taken] == [left, "x = 1"]
    assert ["nbgrader" in one.metadata for one in taken] == [False, True]
    assert (taken[0].cell_type == "code") == (left == "x = 1")
