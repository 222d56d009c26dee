"""The names that the course had in ``mha_lab`` work for one release, and say the new line."""

import importlib
import pickle
import re
import subprocess
import sys

import pytest
import torch

import mha_course
import mha_lab
from mha_course.chapters import pictures
from mha_course.chapters.modern import ModernAttention
from mha_lab import MultiHeadAttention, _moved
from mha_lab.masks import SlidingWindow

PARTS = {
    "check": "runner", "exercises": "split_heads", "quiz": "ch03", "explore": "_mask", "grading": "source",
    "chapters": "recall",
}  # fmt: skip
LINES = {
    "from mha_lab.check import check; got = check": "from mha_course import check",
    "from mha_lab import check; got = check.check": "from mha_course import check",
    "from mha_lab import explore, plot; got = explore.mask": "from mha_course import explore",
    "import mha_lab.explore; got = mha_lab.explore.mask": "from mha_course import explore",
    "import mha_lab; got = mha_lab.explore.mask": "from mha_course import explore",
    "from mha_lab import quiz; got = quiz.question": "from mha_course import quiz",
    "from mha_lab.chapters import recall; got = recall.record": "mha_course.chapters",
    "import mha_lab.exercises.split_heads as own; got = own.split_heads": "mha_course.exercises",
    "from mha_lab.grading.nbgrader import configure; got = configure": "mha_course.grading",
}


@pytest.fixture
def forgotten(monkeypatch):
    """As if no old name had been used yet."""
    for name in [name for name in sys.modules if _moved._place(name)]:
        monkeypatch.delitem(sys.modules, name)
    for name in PARTS:
        monkeypatch.delitem(vars(mha_lab), name, raising=False)


@pytest.mark.parametrize("part", PARTS)
def test_an_old_name_is_the_same_module_and_says_the_new_line_once(part, forgotten):
    new = _moved.PLACES[part]
    with pytest.warns(FutureWarning, match=f"`mha_lab.{part}` has moved") as told:
        old = importlib.import_module(f"mha_lab.{part}.{PARTS[part]}")
    assert old is importlib.import_module(f"{new}.{PARTS[part]}")
    assert importlib.import_module(f"mha_lab.{part}") is getattr(mha_lab, part) is sys.modules[new]
    assert sys.modules[new].__name__ == sys.modules[new].__spec__.name == new
    assert len(told) == 1


@pytest.mark.parametrize("line", LINES)
def test_an_old_line_works_and_points_at_itself(line, forgotten):
    space = {}
    with pytest.warns(FutureWarning, match=f"write `{LINES[line]}`") as told:
        exec(compile(line, "a cell", "exec"), space)
    assert [(one.filename, one.lineno) for one in told] == [("a cell", 1)]
    assert space["got"].__module__.startswith("mha_course.")


@pytest.mark.parametrize("name", sorted(_moved.PICTURES))
def test_a_picture_of_one_chapter_is_found_where_it_was(name):
    line = f"from mha_course.chapters.pictures import {name}"
    with pytest.warns(FutureWarning, match=f"`plot.{name}` has moved, .* write `{line}`"):
        old = getattr(mha_lab.plot, name)
    assert old is getattr(pictures, name)


@pytest.mark.slow
def test_the_old_command_of_a_teacher_works():
    def run(package):
        command = [sys.executable, "-m", f"{package}.grading", "--help"]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    old, new = run("mha_lab"), run("mha_course")
    assert (old.returncode, new.returncode) == (0, 0), old.stderr
    assert old.stdout.replace("mha_lab", "mha_course") == new.stdout
    assert "write `mha_course.grading`" in old.stderr
    assert new.stderr == ""


def test_no_other_name_is_taken_for_a_moved_one(forgotten):
    with pytest.raises(ModuleNotFoundError, match=r"mha_lab\.checks"):
        importlib.import_module("mha_lab.checks")
    with pytest.warns(FutureWarning, match="quiz"), pytest.raises(ModuleNotFoundError, match=r"quiz\.ch99"):
        importlib.import_module("mha_lab.quiz.ch99")
    for package in (mha_lab, mha_lab.plot, mha_course):
        with pytest.raises(AttributeError, match="no attribute 'checks'"):
            package.checks  # noqa: B018


def test_a_cache_in_a_file_finds_its_class_under_the_old_name_too():
    assert pickle.loads(b"cmha_lab.multihead\nCache\n.") is mha_lab.cache.Cache


def made(kind, **options):
    torch.manual_seed(7)
    return kind(8, 2, **options)


@pytest.mark.parametrize(
    "options", [{"sinks": True}, {"gate": True}, {"sinks": True, "gate": True, "d_k": 3}]
)
def test_an_old_option_makes_the_new_layer_with_the_same_numbers_and_says_its_line_once(options):
    line = "from mha_course.chapters.modern import ModernAttention"
    with pytest.warns(FutureWarning, match=rf"`MultiHeadAttention\(.+=\.\.\.\)` .+ write `{line}`") as told:
        old = made(MultiHeadAttention, **options)
    assert [one.filename for one in told] == [__file__]
    new = made(ModernAttention, **options)
    assert type(old) is ModernAttention
    assert repr(old) == repr(new)
    assert all(torch.equal(one, other) for one, other in zip(old.parameters(), new.parameters(), strict=True))


@pytest.mark.unchecked
def test_no_other_option_is_taken_for_an_old_one():
    with pytest.raises(TypeError, match="sink"):
        MultiHeadAttention(8, 2, sink=True)
    with (
        pytest.warns(FutureWarning),
        pytest.raises(TypeError, match="gate: expected True or False"),
    ):
        MultiHeadAttention(8, 2, gate=None)


def test_the_old_window_is_the_new_mask():
    line = re.escape("write `mask=mha_lab.masks.SlidingWindow(3)`")
    with pytest.warns(FutureWarning, match=line) as told:
        layer = MultiHeadAttention(8, 2, window=3)
    assert [one.filename for one in told] == [__file__]
    assert layer.mask == SlidingWindow(3)
    with pytest.warns(FutureWarning, match=r"SlidingWindow\(2\)|ModernAttention") as told:
        layer = MultiHeadAttention(8, 2, window=2, sinks=True)
    assert [one.filename for one in told] == [__file__] * 2
    assert (type(layer), layer.mask, layer.sinks.tolist()) == (ModernAttention, SlidingWindow(2), [0, 0])
    with pytest.warns(FutureWarning):
        assert MultiHeadAttention(8, 2, window=None).mask is None


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("options", [{}, {"sinks": True}, {"gate": True}])
def test_a_layer_in_an_old_file_becomes_the_new_one(options, window):
    """As it was pickled: by the name of its old class, with all that it had."""
    layer, x = made(ModernAttention, **options), torch.randn(2, 5, 8)
    layer.__class__ = MultiHeadAttention
    del layer.mask
    vars(layer)["window"] = window
    again = pickle.loads(pickle.dumps(layer))
    assert type(again) is (ModernAttention if options else MultiHeadAttention)
    place = None if window is None else SlidingWindow(window)
    assert torch.equal(again(x)[0], made(ModernAttention, mask=place, **options)(x)[0])
    assert again.window == window
