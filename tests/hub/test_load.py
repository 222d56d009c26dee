"""A real hub with two students, as in hub/load_test.py: lesson, grading, feedback and three faults."""

import csv
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from tests.notebooks.chapters import ROOT

FOLDER = os.environ.get("MHA_HUB_TEST", "")
MISSING = [name for name in ("node", "npm", "git", "bwrap", "setpriv") if not shutil.which(name)]
READY = bool(FOLDER) and os.name == "posix" and os.geteuid() == 0 and not MISSING
WHY = (
    "no JupyterHub: as root, name a folder to install it into in MHA_HUB_TEST (and install node, npm, bwrap)"
)
pytestmark = [pytest.mark.hub, pytest.mark.skipif(not READY, reason=WHY)]
STUDENTS, TEACHER = ["mha-test-ada", "mha-test-bob"], "mha-test-teacher"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


def remove_accounts():
    for name in (*STUDENTS, TEACHER):
        subprocess.run(["userdel", "--remove", name], capture_output=True, check=False, timeout=60)


@pytest.fixture
def hub(tmp_path):
    """The address of a hub that runs until the test ends; it makes accounts, which are removed."""
    remove_accounts()
    folder = Path(FOLDER)
    for name in ("state", "exchange", "chapters", ".handed-out"):
        path = folder / name
        path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)
    with (tmp_path / "class.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id"], *([name] for name in STUDENTS)])
    url = f"http://127.0.0.1:{free_port()}"
    settings = {"HUB": FOLDER, "HUB_URL": url, "TEACHER": TEACHER}
    settings |= {"HUB_PORT": free_port(), "PROXY_PORT": free_port()}
    python = os.environ.get("MHA_HUB_PYTHON", "/usr/bin/python3")
    program = [python, str(ROOT / "hub" / "start.py"), str(tmp_path / "class.csv")]
    running = subprocess.Popen(program, env=os.environ | settings)
    try:
        end = time.monotonic() + 1800  # the first time, PyTorch is installed
        while time.monotonic() < end and running.poll() is None:
            with suppress(OSError), urllib.request.urlopen(f"{url}/hub/login", timeout=5):
                break
            time.sleep(1)
        assert running.poll() is None
        yield url
    finally:
        running.terminate()
        running.wait(timeout=120)
        remove_accounts()


def test_two_students_learn_submit_and_get_their_feedback_whatever_is_killed(hub):
    python = str(Path(FOLDER) / "env" / "bin" / "python")
    program = [python, str(ROOT / "hub" / "load_test.py"), "--students=2", "--arrive=1", "--faults"]
    program += [f"--hub={FOLDER}", f"--url={hub}", f"--teacher={TEACHER}"]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=3600)
    assert done.returncode == 0, done.stdout + done.stderr
    for line in (
        "2 of 2 students ran 01 and 03 to the end and submitted",
        "of others' files, 0 could be read",
        "failed: 0",
        "the hub is killed: 0 of 2 cells lost",
        "the proxy is killed: 0 of 2 cells lost",
        "its kernel was ended; 0 of 1 cells of others lost; its server gave it a new kernel",
    ):
        assert line in done.stdout
