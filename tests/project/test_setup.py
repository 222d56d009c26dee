"""The set-up script, with stand-ins for Python, pip and df: each failure gets one clear line."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("sh", "awk", "df", "find", "grep", "rm", "tail", "touch", "cp", "mkdir", "chmod", "cat")

# Stands in for python3: what it is asked is written down, what it answers comes from the environment.
PYTHON = """#!/bin/sh
echo "$*" >>"$LOG"
case "$*" in
*"version_info < "*) exit "${TOO_OLD:-0}" ;;
*"version_info[:2]"*) echo "3.9" ;;
*"import ensurepip"*) exit "${NO_VENV:-0}" ;;
*"import pip"*) test -x "$0" ;;
"-m venv "*)
    if [ -n "${VENV_SAYS:-}" ]; then echo "$VENV_SAYS" >&2; exit 1; fi
    mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
"-m pip install"*)
    echo "Collecting torch"
    if [ -n "${PIP_SAYS:-}" ]; then echo "$PIP_SAYS" >&2; exit 1; fi ;;
esac
"""


@pytest.fixture
def project(tmp_path):
    """A folder with what the script reads, and a PATH with nothing but the stand-ins."""
    (tmp_path / "tools").mkdir()
    for name in ("pyproject.toml", "constraints.txt", "tools/setup.sh"):
        shutil.copy(ROOT / name, tmp_path / name)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in TOOLS:
        (programs / name).symlink_to(shutil.which(name))
    return tmp_path


def add_python(project, name="python3"):
    path = project / "bin" / name
    path.write_text(PYTHON)
    path.chmod(0o755)


def setup(project, **environment):
    """Run the script: exit status, what it said on each channel, what it asked of Python."""
    log = project / "log"
    log.write_text("")
    environment = {"PATH": str(project / "bin"), "LOG": str(log), "NEED_MB": "1"} | environment
    done = subprocess.run(
        ["sh", "tools/setup.sh"], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr, log.read_text()


def installs(log):
    return log.count("-m pip install")


def test_it_makes_the_environment_at_the_pins_and_shows_progress(project):
    add_python(project)
    status, out, err, log = setup(project)
    assert (status, err) == (0, "")
    assert "[1/2] making .venv with python3" in out
    assert "[2/2] installing" in out
    assert "Collecting torch" in out
    assert out.endswith("ready\n")
    assert "at the versions of constraints.txt" in out
    assert "-m pip install --editable .[lab] --constraint constraints.txt" in log


def test_the_checks_get_more_than_a_learner_and_a_learner_then_needs_nothing(project):
    add_python(project)
    assert setup(project)[0] == 0
    status, out, _, log = setup(project, EXTRAS="all")
    assert status == 0
    assert "[1/2]" not in out
    extras = "lab,dev,class,browser,pretrained,project,site"
    assert f"-m pip install --editable .[{extras}] --constraint constraints.txt" in log
    assert (project / ".venv" / "etc" / "jupyter" / "jupyter_server_config.json").exists()
    for again in ("all", "lab"):
        assert installs(setup(project, EXTRAS=again)[3]) == 0


def test_a_second_run_does_nothing(project):
    add_python(project)
    setup(project)
    status, out, err, log = setup(project)
    assert (status, out, err) == (0, "", "")
    assert installs(log) == 0


@pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt"])
def test_a_changed_list_is_installed_again(project, changed):
    add_python(project)
    setup(project)
    later = (project / ".venv" / ".ready-lab").stat().st_mtime + 10
    os.utime(project / changed, (later, later))
    status, out, _, log = setup(project)
    assert status == 0
    assert "[1/2]" not in out
    assert installs(log) == 1


def test_other_versions_can_be_asked_for(project):
    add_python(project)
    (project / "old.txt").write_text("torch==2.6\n")
    status, _, _, log = setup(project, CONSTRAINTS="old.txt", VENV="old")
    assert status == 0
    assert "--constraint old.txt" in log
    assert (project / "old" / ".ready-lab").exists()


def test_an_environment_whose_python_is_gone_is_made_again(project):
    add_python(project)
    setup(project)
    (project / ".venv" / "bin" / "python").unlink()
    status, out, _, log = setup(project)
    assert status == 0
    assert "[1/2]" in out
    assert installs(log) == 1


FAILURES = {
    "too old": ({"TOO_OLD": "1"}, "Python 3.11 or newer is needed, and here python3 is 3.9: install it"),
    "no venv": ({"NO_VENV": "1"}, "python3 has no venv module: install it"),
    "little space": ({"NEED_MB": "999999999"}, "MB free and the set-up needs about 999999999 MB"),
    "full before pip": ({"VENV_SAYS": "OSError: [Errno 28] No space left on device"}, "the disk is full"),
    "venv fails": ({"VENV_SAYS": "Error: x\nPermission denied"}, "making .venv failed: Permission denied"),
    "full during pip": (
        {"PIP_SAYS": "ERROR: Could not install: [Errno 28] No space left on device"},
        "the disk became full during the installation",
    ),
}


@pytest.mark.parametrize(("environment", "line"), list(FAILURES.values()), ids=list(FAILURES))
def test_a_failure_is_one_clear_line(project, environment, line):
    add_python(project)
    status, _, err, _ = setup(project, **environment)
    assert status == 1
    assert line in err
    assert len(err.splitlines()) == 1
    assert err.startswith("make: ")


def test_no_python_is_one_clear_line(project):
    status, out, err, _ = setup(project)
    assert (status, out) == (1, "")
    assert err == (
        "make: Python 3.11 or newer is needed, and none was found: "
        "install it, or say make PYTHON=/path/to/python3.11\n"
    )


def test_a_newer_python_behind_an_old_one_is_found(project):
    add_python(project, "python3.12")
    old = project / "bin" / "python3"
    old.write_text('#!/bin/sh\ncase "$*" in *"[:2]"*) echo 3.8 ;; *) exit 1 ;; esac\n')
    old.chmod(0o755)
    status, out, _, _ = setup(project)
    assert status == 0
    assert "with python3.12" in out


def test_a_python_can_be_named(project):
    add_python(project, "mine")
    assert "with mine" in setup(project, PYTHON="mine")[1]


def test_when_pip_fails_its_own_words_are_shown_and_the_next_run_goes_on(project):
    add_python(project)
    status, _, err, _ = setup(project, PIP_SAYS="ERROR: No matching distribution found for torch")
    assert status == 1
    assert err.splitlines()[0] == "ERROR: No matching distribution found for torch"
    assert "Run this again to go on" in err.splitlines()[1]
    status, out, _, log = setup(project)
    assert status == 0
    assert "[1/2]" not in out
    assert installs(log) == 1
