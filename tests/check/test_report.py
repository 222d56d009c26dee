"""What a learner reads, and what ``check`` says when it is used in the wrong way."""

import math
import re

import pytest
import torch
from IPython.core.formatters import DisplayFormatter

from mha_course.checker import CheckResult, check, solution
from mha_course.checker.diagnosis import Diagnosis
from mha_course.checker.report import Report, _difference, make
from mha_course.exercises import Rng, find, names
from mha_course.exercises._results import plain
from tests.notebooks.chapters import code_cells, read


def test_a_score_is_a_float_whose_repr_a_grader_reads():
    def merge_heads(x):
        return x.transpose(1, 2).flatten(2)

    result = check(merge_heads)
    assert isinstance(result, float)
    assert repr(result) == "1.0"
    assert (result.points, result.possible, result.passed, result.attempted) == (1.0, 1.0, True, True)


def test_the_report_in_full(capsys):
    def split_heads(x, num_heads):
        return x.view(x.shape[0], num_heads, x.shape[1], -1)

    result = check(split_heads)
    printed = capsys.readouterr().out
    assert printed == result.message + "\n"
    assert printed.splitlines() == [
        "✗ split_heads is not right yet: 0 of 1 point.",
        "Your result has the expected numbers, but in the wrong places.",
        f"Likely cause: {find('split_heads').mistakes['view-without-transpose'].says}",
        "The name of this mistake: view-without-transpose",
        "",
        "For example:",
        "  x = [[[ 0., 1., 2., 3., 4., 5.], [ 6., 7., 8., 9., 10., 11.]]]",
        "  num_heads = 3",
        "  expected: [[[[ 0.,  1.], [ 6.,  7.]], [[ 2.,  3.], [ 8.,  9.]], [[ 4.,  5.], [10., 11.]]]]",
        "  got:      [[[[ 0.,  1.], [ 2.,  3.]], [[ 4.,  5.], [ 6.,  7.]], [[ 8.,  9.], [10., 11.]]]]",
        "                            ^^^  ^^^      ^^^  ^^^    ^^^  ^^^      ^^^  ^^^",
        "  first difference at index (0, 0, 1, 0): expected 6, got 2",
        'Next: read "3 The bare view" in 03_splitting_heads.ipynb',
    ]


def test_the_mark_says_the_verdict_in_text_and_in_a_notebook():
    """Above the number, which nbgrader reads and a notebook does not show: the report says it."""
    exercise, marks = find("merge_heads"), []
    wrong = Diagnosis("wrong", "seen", section="4 Back", example=((torch.ones(1),), 1.0, 2.0))
    for diagnosis in (Diagnosis(None), wrong, None):
        report = make(exercise, diagnosis)
        marks.append(str(report)[0])
        assert f"<strong>{marks[-1]} merge_heads" in report._repr_html_()
        assert len(re.findall("border-left: 4px", report._repr_html_())) == 1
    assert marks == ["✓", "✗", "○"]
    score = CheckResult(exercise, wrong, "")
    data, _ = DisplayFormatter().format(score)
    assert data == {"text/plain": "0.0", "text/html": "<span hidden>0 of 1 point</span>"}


@pytest.mark.parametrize(
    ("expected", "got", "marks"),
    [
        ([True, False, True], [True, True, True], "        ^^^^^"),
        ([[1, 10], [3, 4]], [[1, 10], [3, -400]], f"{' ' * 22}^^^^"),
        ([0.5, math.nan, 2], [0.5, math.nan, math.inf], f"{' ' * 11}^^^"),
        ([1.0, 2.0], [3.0, 4.0], ""),  # all differ: a mark would say nothing
        ([1.0, 2.0], [1.0, 2.0, 3.0], ""),
    ],
)
def test_the_entries_that_differ_are_marked_below(expected, got, marks):
    one, other = (plain(torch.tensor(row)) for row in (expected, got))
    lines = _difference("", one, other)
    if len(expected) == len(got):
        assert len(lines[0]) == len(lines[1])
    found = [line.removeprefix(" " * len("  expected: ")) for line in lines if set(line) == {" ", "^"}]
    assert found == ([marks] if marks else [])


def test_html_escapes_what_comes_from_an_answer():
    def split_heads(x, num_heads):
        raise ValueError("<script>alert(1)</script><img src=x onerror=alert(1)>")

    said = check(split_heads).message
    html = Report("x", (said,), "a <b>", "01_x", "wrong", (said,), said)._repr_html_()
    assert "<script" not in html
    assert "<img" not in html
    assert "&lt;script&gt;" in html
    assert 'href="01_x.ipynb#a-&lt;b&gt;"' in html


@pytest.mark.parametrize("wrong", [torch.ones(2), 3, None])
def test_check_wants_the_function_itself(wrong):
    with pytest.raises(TypeError, match=r"expected a function, got .*without \(\.\.\.\)"):
        check(wrong)


def test_check_knows_its_exercises_by_name():
    def split_head(x, num_heads):
        return x

    with pytest.raises(ValueError, match=r"got split_head\. Did you mean split_heads\?"):
        check(split_head)


def test_solution_shows_the_source_of_the_function(capsys):
    for name in names():
        capsys.readouterr()
        solution(name)
        printed = capsys.readouterr().out
        assert printed.startswith(f"def {name}(")
        space = {}
        exec(code_cells(read(find(name).chapter))[1].source, space)
        exec(printed, space)  # what is shown can be pasted into its chapter
        assert check(space[name]).passed
    with pytest.raises(ValueError, match="got nothing"):
        solution("nothing")


def test_a_bug_that_was_touched_and_is_still_there_is_an_attempt():
    def fix_scale(x, w_q, w_k):
        query, key = x @ w_q, x @ w_k
        return query @ key.mT / x.shape[-1] ** 0.5

    score = check(fix_scale)
    assert (score.attempted, score.diagnosis) == (True, "scaled-by-d_model")


def test_no_order_of_problems_can_be_learned_by_heart():
    """`leaks_future` has only two possible results, so an answer might count its calls."""
    orders = {tuple(p[0].__name__ for p in find("leaks_future").problems(Rng(seed))) for seed in range(8)}
    assert len(orders) == 8
