"""What `make test` says when something fails, and the versions of the other lanes."""

import os
import subprocess
import sys
import tomllib

import pytest

from tests.notebooks.chapters import ROOT
from tools import alone, gate, lane

TESTS = """
def test_good():
    pass

def test_bad():
    assert 1 == 2

def test_worse():
    raise ValueError("no")
"""


@pytest.fixture
def run(tmp_path):
    """A pytest run of three tests, two of which fail: what it printed, and what it handed on."""
    (tmp_path / "test_three.py").write_text(TESTS)

    def call(*flags, **variables):
        environment = os.environ | {"PYTHONPATH": str(ROOT), "FAILED": str(tmp_path / "failed")}
        environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | variables
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tools.alone", "--rootdir=.", *flags]
        done = subprocess.run(
            [*command, "test_three.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout, (tmp_path / "failed").read_text() if (tmp_path / "failed").exists() else ""

    return call


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "2")])
def test_a_failure_is_named_at_once_with_the_command_for_it(run, workers):
    printed, handed_on = run(*workers, ALONE="python -m pytest --flag")
    before, _, _ = printed.partition("= FAILURES =")
    for name in ("test_bad", "test_worse"):
        line = f"failed: test_three.py::{name}\n    alone: python -m pytest --flag test_three.py::{name}\n"
        assert before.count(line) == 1
        assert handed_on.count(line) == 1
    assert "test_good" not in printed


def test_the_command_runs_that_test_alone(run, tmp_path):
    _, handed_on = run(ALONE=f"{sys.executable} -m pytest -q")
    line = next(line for line in handed_on.splitlines() if "alone: " in line and "bad" in line)
    done = subprocess.run(
        f"PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {line.partition('alone: ')[2]}",
        shell=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed" in done.stdout
    assert "passed" not in done.stdout


def test_a_cell_is_run_with_its_whole_chapter(monkeypatch):
    monkeypatch.setenv("ALONE", "pytest")
    assert alone.command("notebooks/01_x.ipynb::Cell 3") == "pytest notebooks/01_x.ipynb"
    assert alone.command("tests/a.py::test_b[x y]") == "pytest 'tests/a.py::test_b[x y]'"


MAKEFILE = """
good: ; @echo good ran
bad: ; @echo 'failed: a::b' >"$$FAILED"; echo '    alone: pytest a::b' >>"$$FAILED"; exit 1
dumb: ; @exit 2
"""


def call_gate(folder, *parts):
    (folder / "Makefile").write_text(MAKEFILE)
    done = subprocess.run(
        [sys.executable, "-m", "tools.gate", *parts],
        cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_a_part_that_fails_stops_no_other_and_the_end_begins_with_it(tmp_path):
    status, printed = call_gate(tmp_path, "bad", "dumb", "good")
    assert status == 1
    assert "[3/3] make good\ngood ran" in printed
    end = printed.partition("good ran\n")[2].strip().splitlines()
    assert end[:4] == [
        "FAILED: make bad",
        "    failed: a::b",
        "        alone: pytest a::b",
        "FAILED: make dumb",
    ]
    assert end[4].startswith("bad 0 s, dumb 0 s, good 0 s; in all 0.0 min")
    assert len(end) == 5


def test_all_green(tmp_path):
    status, printed = call_gate(tmp_path, "good")
    assert status == 0
    assert "\nall green\ngood 0 s; in all 0.0 min\n" in printed


def test_times_are_added_up():
    found = {"a": (0, 61.0, ""), "b": (0, 59.0, "")}
    assert gate.summary(found) == "all green\na 61 s, b 59 s; in all 2.0 min"


def test_the_oldest_lane_holds_what_learners_install_at_its_bounds():
    project = {
        "dependencies": ["torch>=2.6", "numpy>=2.0"],
        "optional-dependencies": {
            "lab": ["jupyterlab>=4.2"],
            "class": [],
            "pretrained": [],
            "dev": ["PyYAML>=6.0"],
        },
    }
    pins = "# pins\ntorch==2.13.0\npyyaml==6.0.3\nother==1.0\n"
    assert lane.oldest(project, pins) == ["torch==2.6", "numpy==2.0", "jupyterlab==4.2", "PyYAML==6.0.3"]


def test_every_requirement_of_the_project_is_in_the_oldest_lane():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    names = {
        line.partition(">=")[0] for lines in (project["dependencies"], *extras.values()) for line in lines
    }
    held = dict(line.split("==") for line in lane.oldest(project, (ROOT / "constraints.txt").read_text()))
    assert set(held) == names
    assert {f"{name}>={held[name]}" for name in lane.bounds(project["dependencies"])} == set(
        project["dependencies"]
    )


def test_the_newest_lane_holds_nothing(capsys):
    lane.main("newest")
    assert [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")] == [""]
