"""The script that runs the parts of ``make test``, with a stand-in for make."""

import os
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # it waits for what hangs

LANES = Path(__file__).parents[2] / "tools" / "lanes.sh"

# Each call leaves a line. A part that hangs does so for a child, too, as a test does for its kernel.
MAKE = """#!/bin/sh
echo "$2" >>"$LOG"
case $2 in
good) exit 0 ;;
slow) for i in 1 2 3 4 5 6; do sleep 1; echo $i; done ;;
bad) exit 2 ;;
once) [ "$(grep -c once "$LOG")" -gt 1 ] || sh -c 'sleep 60; true' ;;
always) sh -c 'sleep 60; true' ;;
esac
"""


@pytest.fixture
def run(tmp_path):
    """Run parts: exit status, the last lines, which parts were started."""

    def lanes(*parts, **environment):
        make, log = tmp_path / "make", tmp_path / "log"
        make.write_text(MAKE)
        make.chmod(0o755)
        done = subprocess.run(
            ["sh", LANES, *parts],
            env=os.environ | {"MAKE": str(make), "LOG": str(log)} | environment,
            capture_output=True,
            text=True,
            timeout=50,
        )
        return done.returncode, done.stdout.splitlines(), log.read_text().split()

    return lanes


def test_all_parts_run_and_one_that_fails_makes_it_red(run):
    code, lines, started = run("good", "bad", "good", LANE_SILENCE="30")
    assert code == 1
    assert [(line.split()[0], line.split()[-1]) for line in lines] == [
        ("green", "good"),
        ("red", "bad"),
        ("green", "good"),
    ]
    assert started == ["good", "bad", "good"]  # what fails is not run again


def test_a_part_that_hangs_is_stopped_and_run_once_more(run):
    start = time.monotonic()
    code, lines, started = run("once", "good", LANE_SILENCE="2", LANE_GRACE="1")
    assert (code, started) == (0, ["once", "once", "good"])
    assert [line.split()[0] for line in lines[-3:]] == ["hangs", "green", "green"]
    assert time.monotonic() - start < 20


def test_a_part_that_hangs_twice_is_red(run):
    code, lines, started = run("always", "good", LANE_SILENCE="2", LANE_GRACE="1")
    assert (code, started) == (1, ["always", "always", "good"])
    assert [line.split()[0] for line in lines[-3:]] == ["hangs", "red", "green"]


def test_a_part_that_is_only_slow_goes_on_and_its_lines_are_seen(run):
    code, lines, started = run("slow", LANE_SILENCE="4")
    assert (code, started) == (0, ["slow"])
    assert lines[:6] == ["1", "2", "3", "4", "5", "6"]


def test_without_a_limit_nothing_is_stopped(run):
    code, lines, started = run("good", "bad")
    assert (code, started) == (1, ["good", "bad"])
    assert len(lines) == 2
