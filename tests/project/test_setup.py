"""The set-up script, with stand-ins for Python, pip and df: each failure gets one clear line."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from jupyterlab_server.settings_utils import get_settings

ROOT = Path(__file__).parents[2]
TOOLS = ("sh", "awk", "df", "find", "grep", "rm", "tail", "touch", "cp", "mkdir", "chmod", "cat", "dirname")

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
    for folder in ("tools", "hub"):
        (tmp_path / folder).mkdir()
    for name in ("pyproject.toml", "setup.py", "constraints.txt", "tools/setup.sh", "hub/overrides.json"):
        shutil.copy(ROOT / name, tmp_path / name)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in TOOLS:
        (programs / name).symlink_to(shutil.which(name))
    add(tmp_path, "python3", PYTHON)
    return tmp_path


def add(project, name, program):
    path = project / "bin" / name
    path.write_text(program)
    path.chmod(0o755)


def setup(project, **environment):
    """Run the script: exit status, what it said on each channel, what it had pip install."""
    log = project / "log"
    log.write_text("")
    environment = {"PATH": str(project / "bin"), "LOG": str(log), "NEED_MB": "1"} | environment
    done = subprocess.run(
        ["sh", "tools/setup.sh"],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    installs = [line for line in log.read_text().splitlines() if line.startswith("-m pip install")]
    return done.returncode, done.stdout, done.stderr, installs


def test_it_makes_the_environment_at_the_pins_shows_progress_and_then_does_nothing(project):
    status, out, err, installs = setup(project)
    assert (status, err) == (0, "")
    first, second, *rest = out.splitlines()
    assert first == "[1/2] making .venv with python3"
    assert re.fullmatch(r"\[2/2\] installing.* at the versions of constraints\.txt.*", second)
    assert rest == ["Collecting torch", "ready"]
    assert installs == ["-m pip install --no-compile --editable .[lab] --constraint constraints.txt"]
    assert setup(project) == (0, "", "", [])


def test_jupyterlab_asks_no_question_about_news(project):
    assert setup(project)[0] == 0
    settings = project / ".venv" / "share" / "jupyter" / "lab" / "settings"
    schemas = Path(sys.prefix, "share", "jupyter", "lab", "schemas")
    found, _ = get_settings(settings, schemas, project, "@jupyterlab/apputils-extension:notification")
    chosen = found["schema"]["properties"]
    assert (chosen["fetchNews"]["default"], chosen["checkForUpdates"]["default"]) == ("false", False)


def test_the_checks_get_more_than_a_learner_and_a_learner_then_needs_nothing(project):
    status, _, _, installs = setup(project, EXTRAS="all")
    assert status == 0
    extras = "lab,dev,class,browser,pretrained,project,site"
    assert installs == [f"-m pip install --compile --editable .[{extras}] --constraint constraints.txt"]
    assert (project / ".venv" / "etc" / "jupyter" / "jupyter_server_config.json").exists()
    for again in ("all", "lab"):
        assert setup(project, EXTRAS=again) == (0, "", "", [])


def test_progress_is_shown_until_a_list_was_installed_once(project):
    """The checks bring a gigabyte more than `make lab` did; after a change of a list, little is new."""
    setup(project)
    assert "--quiet" not in setup(project, EXTRAS="all")[3][0]
    later = (project / ".venv" / ".ready-all").stat().st_mtime + 10
    os.utime(project / "pyproject.toml", (later, later))
    assert "--quiet" in setup(project, EXTRAS="all")[3][0]


@pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt"])
def test_a_changed_list_is_installed_again(project, changed):
    setup(project)
    later = (project / ".venv" / ".ready-lab").stat().st_mtime + 10
    os.utime(project / changed, (later, later))
    status, out, _, installs = setup(project)
    assert (status, len(installs), "[1/2]" in out) == (0, 1, False)
    (project / ".venv" / "bin" / "python").unlink()  # gone: the environment is made again
    status, out, _, installs = setup(project)
    assert (status, len(installs), "[1/2]" in out) == (0, 1, True)


def test_other_versions_can_be_asked_for(project):
    (project / "old.txt").write_text("torch==2.6\n")
    status, _, _, installs = setup(project, CONSTRAINTS="old.txt", VENV="old")
    assert status == 0
    assert installs[0].endswith("--constraint old.txt")
    assert (project / "old" / ".ready-lab").exists()


FULL = "[Errno 28] No space left on device"
FAILURES = {
    "too old": ({"TOO_OLD": "1"}, "Python 3.11 or newer is needed, and here python3 is 3.9: install it"),
    "none": ({"PYTHON": "none"}, "Python 3.11 or newer is needed, and none was found: install it, or say"),
    "no venv": ({"NO_VENV": "1"}, "python3 has no venv module: install it"),
    "little space": ({"NEED_MB": "999999999"}, "MB free and the set-up needs about 999999999 MB"),
    "full before pip": ({"VENV_SAYS": f"OSError: {FULL}"}, "the disk is full"),
    "venv fails": ({"VENV_SAYS": "Error: x\nPermission denied"}, "making .venv failed: Permission denied"),
    "full during pip": ({"PIP_SAYS": f"ERROR: {FULL}"}, "the disk became full during the installation"),
}


@pytest.mark.parametrize(("environment", "line"), list(FAILURES.values()), ids=list(FAILURES))
def test_a_failure_is_one_clear_line(project, environment, line):
    status, _, err, _ = setup(project, **environment)
    assert (status, err.count("\n")) == (1, 1)
    assert err.startswith("make: ")
    assert line in err


def test_a_newer_python_behind_an_old_one_is_found_and_another_can_be_named(project):
    add(project, "python3", '#!/bin/sh\ncase "$*" in *"[:2]"*) echo 3.8 ;; *) exit 1 ;; esac\n')
    add(project, "python3.12", PYTHON)
    add(project, "mine", PYTHON)
    assert "with python3.12" in setup(project)[1]
    assert "with mine" in setup(project, VENV="other", PYTHON="mine")[1]


def test_names_with_spaces_are_one_name(project):
    python = project / "a dir" / "python3"
    python.parent.mkdir()
    shutil.copy(project / "bin" / "python3", python)
    status, out, err, installs = setup(project, PYTHON=str(python), VENV="my venv")
    assert (status, err, len(installs)) == (0, "", 1)
    assert f"making my venv with {python}" in out
    assert (project / "my venv" / ".ready-lab").exists()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("lab", "VENV=my venv"), '"my venv/bin/python" -m jupyter'),
        (("hub", "PYTHON=/a dir/python3"), '"/a dir/python3" hub/start.py'),
        (("clean", "VENV=my venv"), 'rm -rf "my venv" '),
    ],
)
def test_make_keeps_a_name_with_spaces_in_one_piece(command, said):
    done = subprocess.run(
        ["make", "-n", *command], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert said in done.stdout


@pytest.mark.parametrize(
    ("system", "mounted", "free"),
    [
        ("/dev/sda1", "/", 7000),
        ("//nas/our course", "/mnt/our course", 7000),
        ("a 1 2 3", "/100% mine", 7000),
        ("tmpfs", "/", 5),
    ],
)
def test_free_space_is_read_whatever_the_name_of_the_file_system(project, system, mounted, free):
    """As POSIX has it: name, blocks, used, free, share, place."""
    (project / "bin" / "df").unlink()
    line = f"{system}  9000000 1234567 {1024 * free} 20% {mounted}"
    head = "Filesystem 1024-blocks Used Available Capacity Mounted on"
    add(project, "df", f"#!/bin/sh\necho '{head}'\necho '{line}'\n")
    assert setup(project, NEED_MB="6999")[0] == (free < 6999)
    if free < 6999:
        assert f"the disk has {free} MB free" in setup(project, NEED_MB="6999")[2]


def test_the_space_is_that_of_the_disk_on_which_the_environment_is_made(project):
    (project / "bin" / "df").unlink()
    (project / "big").mkdir()
    small, large = "a 9 9 1024 9% /", "a 9 9 9999999 9% /"
    add(project, "df", f'#!/bin/sh\nif [ "$2" = big ]; then echo "{large}"; else echo "{small}"; fi\n')
    assert setup(project, NEED_MB="100")[0] == 1
    assert setup(project, NEED_MB="100", VENV="big/venv")[0] == 0


def test_when_pip_fails_its_own_words_are_shown_and_the_next_run_goes_on(project):
    status, _, err, _ = setup(project, PIP_SAYS="ERROR: No matching distribution found for torch")
    assert status == 1
    pip, ours = err.splitlines()
    assert pip == "ERROR: No matching distribution found for torch"
    assert "Run this again to go on" in ours
    status, out, _, installs = setup(project)
    assert (status, len(installs), "[1/2]" in out) == (0, 1, False)
