"""The predicates of ``claims.sentences`` notice a sentence that is not so; each sentence is written whole."""

import ast
from pathlib import Path

import numpy as np
import pytest

from mha_course.checker.diagnosis import Diagnosis
from mha_course.exercises import find
from mha_course.exercises._results import Plain
from tests.check.claims.sentences import denied

ROOT = Path(__file__).parents[2]
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
ROWS, SQUARE = Plain("float32", np.ones((2, 3))), Plain("float32", np.eye(2))
HALF = Plain("float32", np.full((2, 2), 0.5))
TWO = find("single_head_attention")  # its results are an output and weights
A, B = "a tensor of shape (2, 3)", "a tensor of shape (2, 2)"
BOTH = f"2 results: {A}; {B}"
CHANGES = "The result is right, but your function changes its argument `x`"
CASES = [
    # the expected result, the answer's, a sentence about them, and whether it is so
    ((ROWS, SQUARE), (ROWS, HALF), "Your output is right; your weights are not", True),
    ((ROWS, SQUARE), (ROWS, HALF), "Your weights are right; your output is not", False),
    ((ROWS, SQUARE), ROWS, f"Your function returns {A}; {BOTH} are expected", True),
    ((ROWS, SQUARE), ROWS, f"Your function returns {B}; {BOTH} are expected", False),
    ((ROWS, SQUARE), ROWS, f"Your function returns {A}; {B} is expected", False),
    (ROWS, None, "Your function returns None", True),
    (ROWS, (), "Your function returns None", False),
    (ROWS, (ROWS, SQUARE), f"One is expected: {A}", True),
    (ROWS, (ROWS, SQUARE), f"One is expected: {B}", False),
    ((ROWS, SQUARE), (ROWS, None), f"Your weights are None; {B} is expected", True),
    ((ROWS, SQUARE), (ROWS, None), f"Your weights are None; {A} is expected", False),
    (True, 3.0, "Your result is the single number 3; the single value True is expected", True),
    (True, 3.0, "Your result is the single number 4; the single value True is expected", False),
    (ROWS, ROWS, CHANGES, False),
    (SQUARE, HALF, CHANGES, True),
]


@pytest.mark.parametrize(("expected", "got", "sentence", "so"), CASES)
def test_a_sentence_about_the_example_is_compared_with_it(expected, got, sentence, so):
    diagnosis = Diagnosis("wrong", f"{sentence}.", example=((), expected, got))
    assert denied(TWO, diagnosis, list) == ("" if so else f"not so: {sentence}.")


FIRST = "Your result is right for the first problem, and wrong for the other 2."
SAME = "Your function returns the same for all 3 problems that were tried."


@pytest.mark.parametrize(
    ("sentence", "fresh", "so"),
    [
        (FIRST, [(True, 1), (False, 2), (False, 3)], True),
        (FIRST, [(True, 1), (False, 2), (False, 3), (False, 4)], False),
        (FIRST, [(False, 1), (True, 2), (False, 3)], False),
        (FIRST, [(True, 1), (True, 2), (True, 3)], False),
        (SAME, [(True, 1), (False, 1), (False, 1)], True),
        (SAME, [(True, 1), (False, 1), (False, 2)], False),
        (SAME, [(True, 1), (False, 1)], False),
    ],
)
def test_a_sentence_about_all_problems_is_compared_with_a_fresh_draw(sentence, fresh, so):
    diagnosis = Diagnosis("wrong", sentence, example=((), 1, 2))
    assert denied(find("cache_bytes"), diagnosis, lambda: fresh) == ("" if so else f"not so: {sentence}")


EXERCISES = "_leaks", "_padding", "leaks_future", "sees_padding"
TREATED = [
    *(ROOT / "mha_course" / "checker").glob("*.py"),
    *(ROOT / "mha_lab" / "plot").glob("*.py"),
    *(ROOT / "mha_course" / "exercises" / f"{name}.py" for name in EXERCISES),
]


MARKUP = "<", '="'


def _says(node):
    """A text with letters in it, written here or chosen by ``if``, ``or`` or ``*``."""
    match node:
        case ast.Constant(value=str(text)):
            return any(letter.isalpha() for letter in text) and not any(mark in text for mark in MARKUP)
        case ast.JoinedStr(values=pieces) | ast.BoolOp(values=pieces):
            return any(map(_says, pieces))
        case ast.IfExp(body=one, orelse=other) | ast.BinOp(left=one, op=ast.Mult(), right=other):
            return _says(one) or _says(other)
    return False


def _glued(function):
    """The lines of a function where a text is put together from pieces of a sentence."""
    nodes = list(ast.walk(function))
    pieces = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and _says(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def piece(node):
        return _says(node) or (isinstance(node, ast.Name) and node.id in pieces)

    for node in nodes:
        match node:
            case ast.BinOp(left=one, op=ast.Add(), right=other):
                glued = piece(one) or piece(other)
            case ast.AugAssign(op=ast.Add(), value=value):
                glued = piece(value)
            case ast.FormattedValue(value=value):  # in another text
                glued = piece(value)
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=" "), attr="join"), args=[among]):
                glued = any(map(piece, ast.walk(among)))
            case _:
                continue
        if glued:
            yield node.lineno


@pytest.mark.parametrize("path", TREATED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_function_glues_a_sentence_from_pieces(path):
    """It is whole, at the top of its module or in ``_sentences``, with a name for each thing put in."""
    functions = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, FUNCTIONS)]
    assert sorted({line for function in functions for line in _glued(function)}) == []
