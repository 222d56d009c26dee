"""What a learner reads, and what ``check`` says when it is used in the wrong way."""

import pytest
import torch

from mha_lab.check import CheckResult, check, solution
from mha_lab.check.report import Report
from mha_lab.exercises import find, names
from tests.notebooks.chapters import code_cells, read


def test_a_score_is_a_float_whose_repr_a_grader_reads():
    def merge_heads(x):
        return x.transpose(1, 2).flatten(2)

    result = check(merge_heads)
    assert isinstance(result, CheckResult)
    assert isinstance(result, float)
    assert repr(result) == "1.0"
    assert (result.points, result.possible, result.passed, result.attempted) == (1.0, 1.0, True, True)


def test_the_report_in_full(capsys):
    def split_heads(x, num_heads):
        return x.view(x.shape[0], num_heads, x.shape[1], -1)

    result = check(split_heads)
    printed = capsys.readouterr().out
    assert printed == result.message + "\n"
    assert printed.splitlines()[:6] == [
        "split_heads: view-without-transpose, 0 of 1 point",
        "Your result has the expected numbers, at other places.",
        f"Likely cause: {find('split_heads').mistakes['view-without-transpose'].says}",
        "",
        "For example:",
        "  x = [[[ 0., 1., 2., 3., 4., 5.], [ 6., 7., 8., 9., 10., 11.]]]",
    ]
    assert "first difference at index (0, 0, 1, 0): expected 6, got 2" in printed
    assert 'Read "3 The bare view" in 03_splitting_heads.ipynb' in printed


def test_html_escapes_what_comes_from_an_answer():
    class Evil(Exception):
        pass

    def split_heads(x, num_heads):
        raise Evil("<script>alert(1)</script><img src=x onerror=alert(1)>")

    message = check(split_heads).message
    html = Report("x", (message,), "a <b>", "01_x")._repr_html_()
    assert "<script" not in html
    assert "<img" not in html
    assert "&lt;script&gt;" in html
    assert 'href="01_x.ipynb#a-&lt;b&gt;"' in html


def test_large_tensors_are_named_by_their_shape():
    def weighted_average(weights, values):
        return weights @ values + (len(weights) > 2)

    message = check(weighted_average).message
    assert "a tensor of shape" in message or "values = [[" in message
    assert len(message) < 2000


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


def test_points_follow_the_difficulty_of_the_chapter():
    assert {find(name).points for name in names()} == {1, 2, 3}
