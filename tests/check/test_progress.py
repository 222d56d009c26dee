"""What ``check`` keeps about a learner, what ``progress`` shows of it, and what may go wrong with a file."""

import errno
import json
import os
import re
import threading
import time
from contextlib import contextmanager, nullcontext
from datetime import date

import pytest
from IPython.core.formatters import DisplayFormatter

import mha_course.checker
from mha_course.checker import _progress as kept
from mha_course.checker import check, progress
from mha_course.checker.diagnosis import Diagnosis
from mha_course.exercises import Exercise, find, names
from tests.notebooks import chapters
from tools.notebooks import exercise_of

RIGHT = """\
✓ merge_heads is right: 1 point.
Next: per_head_weights. It uses step "6 A loop over heads equals one wide projection and a split" in \
03_splitting_heads.ipynb
"""
NAMES = ("weighted_average", "sizes_by_hand", "average_of_top", "scaled_scores", "split_heads", "fix_scale")


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Where progress is kept, which is nowhere else in this file."""
    monkeypatch.setenv("MHA_LAB_PROGRESS", "1")
    for variable in ("XDG_DATA_HOME", "APPDATA", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setattr(kept, "_said", set())
    return kept._path()


def points_of(chapter):
    return sum(find(name).points for name in names() if find(name).chapter.startswith(chapter))


def solve(*solved):
    """What is said about keeping each."""
    return "".join(kept.record(find(name)) for name in solved)


def merge_heads(x):
    return x.transpose(1, 2).flatten(2)


def split_heads(x, num_heads):
    return x


def write(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def test_a_right_answer_is_kept_and_a_wrong_one_is_not(file, capsys):
    assert check(split_heads).diagnosis
    assert not file.exists()
    begun = date.today()
    assert check(merge_heads).passed
    written = json.loads(file.read_text())
    day = written["solved"]["merge_heads"].pop("date")
    assert written == {"solved": {"merge_heads": {"points": 1}}}
    assert begun <= date.fromisoformat(day) <= date.today()
    assert [path.name for path in file.parent.iterdir()] == ["progress.json"]
    capsys.readouterr()
    assert check(merge_heads).passed
    assert capsys.readouterr().out == RIGHT  # the same the second time


def test_what_is_shown_in_a_terminal(file, capsys):
    solve(*NAMES)
    result = progress()
    printed = capsys.readouterr().out
    possible, earned = points_of(""), sum(find(name).points for name in NAMES)
    assert printed.startswith(
        f"{len(NAMES)} of {len(names())} exercises solved, {earned} of {possible} points\n\n00 Start"
    )
    told = "\n".join(" ".join(line.split()) for line in printed.splitlines())
    assert f"00 Start here {points_of('00')} of {points_of('00')} points ##########\n" in told
    one = rf"01 Single head attention 3 of {points_of('01')} points #+\.+\nscaled_scores, fix_scale\n"
    assert re.search(one, told)
    assert f"04 Masking 0 of {points_of('04')} points ..........\n" in told
    end = r'Next: attention_weights, 1 point\nRead ".+" in 01_single_head_attention.ipynb\n.+progress.json.+'
    assert re.search(f"{end}$", told)
    assert (set(result.solved), result.points, result.possible) == (set(NAMES), earned, possible)


def test_what_is_shown_in_a_notebook(file, monkeypatch):
    shown = []
    monkeypatch.setattr(kept, "present", shown.append)
    solve(*NAMES)
    result = progress()
    for part in (
        '<a href="01_single_head_attention.ipynb">01 Single head attention</a>',
        f'<progress aria-hidden="true" value="3" max="{points_of("01")}">',
        "scaled_scores, fix_scale</td>",
        'Read <a href="01_single_head_attention.ipynb#3-',
    ):
        assert part in shown[0]._repr_html_()
    # The returned value is the last of its cell, and puts nothing below the table.
    assert DisplayFormatter().format(result) == ({}, {})
    assert repr(result) == ""


def test_what_comes_next_goes_through_all_chapters_in_order(file, monkeypatch):
    shown = []
    monkeypatch.setattr(kept, "present", shown.append)
    order = []
    while (progress(), shown[-1].next)[1]:
        order.append(shown[-1].next)
        solve(order[-1].name)
    checked = [
        exercise_of(cell) for name in chapters.NAMES for cell in chapters.code_cells(chapters.read(name))
    ]
    assert [exercise.name for exercise in order] == [name for name in checked if name]
    assert sorted(exercise.name for exercise in order) == names()
    assert "You have solved all exercises." in str(shown[-1])
    assert all(chapter.bar == "#" * 10 for chapter in shown[-1].chapters)


def test_a_right_answer_leads_to_the_next_unsolved_exercise(file, capsys):
    solve("per_head_weights", "predict_place")
    check(merge_heads)
    assert "Next: fix_split. It uses step" in capsys.readouterr().out
    assert kept.following(kept.ordered()[-1]) is None


def test_reset_forgets_all_and_says_how_many(file, capsys):
    solve(*NAMES)
    assert progress(reset=True).solved == {}
    assert capsys.readouterr().out == f"Forgotten: {len(NAMES)} solved exercises.\n"
    assert list(file.parent.iterdir()) == []
    progress(reset=True)
    assert capsys.readouterr().out == "Nothing was kept, so nothing is forgotten.\n"
    solve("split_heads")
    progress(reset=True)
    assert capsys.readouterr().out == "Forgotten: 1 solved exercise.\n"


@pytest.mark.parametrize("value", ["0", "off", "OFF"])
def test_switched_off_nothing_is_read_written_or_deleted(file, monkeypatch, capsys, value):
    write(file, "damaged")
    monkeypatch.setenv("MHA_LAB_PROGRESS", value)
    assert check(merge_heads).passed
    assert capsys.readouterr().out == RIGHT
    for reset in (False, True):
        assert progress(reset=reset).solved == {}
        assert capsys.readouterr().out == f"Progress is switched off (MHA_LAB_PROGRESS={value}).\n"
    assert file.read_text() == "damaged"


DAMAGED = [
    "", "{", "[]", "null", '"solved"', "{}", '{"solved": []}', '{"solved": {"split_heads": 1}}',
    '{"solved": {"split_heads": {"date": 1}}}', "[" * 100_000, "\x00",
]  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_file_is_named_and_left_until_it_is_reset(file, capsys, text):
    write(file, text)
    assert check(merge_heads).passed
    problem = f"Your progress is not kept: {kept._shown(file)} is damaged; progress(reset=True) deletes it."
    assert capsys.readouterr().out == f"{RIGHT}{problem}\n"
    assert check(merge_heads).passed
    assert capsys.readouterr().out == RIGHT  # said once
    assert progress().solved == {}
    assert "is damaged" in capsys.readouterr().out
    assert file.read_text() == text
    progress(reset=True)
    assert capsys.readouterr().out == "The damaged file is deleted.\n"
    assert solve("split_heads") == ""
    assert progress().solved.keys() == {"split_heads"}


def test_an_exercise_of_another_version_stays_in_the_file(file):
    write(file, '{"solved": {"of_tomorrow": {"date": "2030-01-01", "points": 9}}, "more": 1}')
    solve("split_heads")
    assert json.loads(file.read_text())["solved"].keys() == {"of_tomorrow", "split_heads"}
    assert (progress().solved.keys(), progress().points) == ({"split_heads"}, 1)


def refuse(path, *_):
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))


def no_home():
    raise RuntimeError("Could not determine home directory.")


@contextmanager
def full_disk():
    """The system refuses every byte."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


TROUBLE = {
    "a file in the way": lambda file, patch: file.parent.write_text(""),
    "a folder in the way": lambda file, patch: file.mkdir(parents=True),
    "read only, also for root": lambda file, patch: patch.setattr(os, "open", refuse),
    "another kernel writes": lambda file, patch: write(file.with_suffix(".new"), "half"),
    "no home": lambda file, patch: (
        patch.delenv(kept.ELSEWHERE[0]),
        patch.setattr(kept.Path, "home", no_home),
    ),
    "a full disk": None,
}


@pytest.mark.parametrize("trouble", TROUBLE)
def test_whatever_the_system_refuses_is_one_line_and_no_error(file, monkeypatch, capsys, trouble):
    monkeypatch.setattr(
        mha_course.checker, "run", lambda *_: []
    )  # the answer itself needs a system that works
    monkeypatch.setattr(Exercise, "trials", lambda *_: [])
    monkeypatch.setattr(mha_course.checker, "diagnose", lambda *_: Diagnosis(None))
    monkeypatch.setattr(kept, "PATIENCE", 0.05)
    monkeypatch.setattr(kept.sys, "platform", "linux")
    with full_disk() if trouble == "a full disk" else nullcontext(TROUBLE[trouble](file, monkeypatch)):
        assert check(merge_heads) == 1.0
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == RIGHT.splitlines()
    assert [line.partition(":")[0] for line in said[2:]] == ["Your progress is not kept"]
    assert progress().solved == {}
    progress(reset=True)
    left = file.with_suffix(".new")
    assert left.exists() == (trouble == "another kernel writes")  # nothing half written is ours


def test_a_failure_leaves_what_was_kept_before_and_what_a_dead_kernel_left_is_removed(file):
    solve("split_heads")
    with full_disk():
        assert "not kept" in solve("scaled_scores")
    assert progress().solved.keys() == {"split_heads"}
    assert solve("scaled_scores") == ""  # the next time it works
    assert progress().solved.keys() == {"split_heads", "scaled_scores"}
    write(file.with_suffix(".new"), "half")
    os.utime(file.with_suffix(".new"), (time.time() - 60,) * 2)
    assert solve("fix_scale") == ""
    assert progress().solved.keys() == {"split_heads", "scaled_scores", "fix_scale"}


def test_kernels_at_once_lose_nothing(file, monkeypatch):
    monkeypatch.setattr(kept, "PATIENCE", 30.0)
    begin = threading.Barrier(8)

    def kernel(number):
        begin.wait(timeout=60)
        said.append(solve(*names()[number::8]))

    said, threads = [], [threading.Thread(target=kernel, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == [""] * 8
    assert sorted(progress().solved) == names()


@pytest.mark.parametrize(
    ("system", "variable", "usual"),
    [
        ("linux", "XDG_DATA_HOME", ".local/share"),
        ("win32", "APPDATA", "AppData/Roaming"),
        ("darwin", "", "Library/Application Support"),
    ],
)
def test_the_file_is_where_the_system_wants_it(tmp_path, monkeypatch, system, variable, usual):
    monkeypatch.setattr(kept.sys, "platform", system)
    monkeypatch.setattr(kept.Path, "home", lambda: tmp_path)
    for given in (None, "", "relative"):
        for name in ("XDG_DATA_HOME", "APPDATA"):
            monkeypatch.delenv(name, raising=False) if given is None else monkeypatch.setenv(name, given)
        assert kept._path() == tmp_path / usual / "mha_lab" / "progress.json"
        assert kept._shown(kept._path()).startswith("~")  # no user's name in a notebook that is passed on
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "data"))
        assert kept._path() == tmp_path / "data" / "mha_lab" / "progress.json"
