"""The walls: what they are made of, and what is said where they do not stand."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mha_lab
from mha_lab.classroom import isolation
from tests.classroom.test_round import pytestmark as needs_walls
from tests.notebooks.chapters import ROOT


def run(kind, source):
    """What one cell prints inside the walls."""
    request = {"steps": [{"run": source}], "seconds": 20}
    done = subprocess.run(
        isolation.command(kind), input=json.dumps(request), capture_output=True, text=True, check=True
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0] == {"step": 0}
    assert lines[-1] == {"end": True}
    return lines[1]["outputs"]


def test_only_known_kinds():
    with pytest.raises(ValueError, match="expected one of bubblewrap, podman, docker, none, got chroot"):
        isolation.command("chroot")


@needs_walls
def test_inside_bubblewrap():
    """An unprivileged user, alone with this Python, with nowhere to write but /tmp, and no way out."""
    source = """
import os, pathlib, socket
def tries(action):
    try:
        return action()
    except Exception as error:
        return type(error).__name__
print([
    os.getuid(), os.getgid(), "SECRET" not in os.environ, os.getcwd(),
    tries(lambda: pathlib.Path("/usr/here").write_text("")),
    tries(lambda: pathlib.Path("/tmp/here").write_text("x")),
    tries(lambda: os.setuid(0)),
    tries(lambda: socket.create_connection(("192.0.2.1", 80), timeout=1)),
    tries(lambda: socket.getaddrinfo("example.org", 80)),
    len([name for name in os.listdir("/proc") if name.isdigit()]) < 10,
    [line.split()[1] for line in open("/proc/self/status") if line.startswith(("CapEff", "NoNewPrivs"))],
])
"""
    os.environ["SECRET"] = "teacher's"
    try:
        (output,) = run("bubblewrap", source)
    finally:
        del os.environ["SECRET"]
    assert eval(output["stream"]) == [
        65534, 65534, True, "/tmp", "OSError", 1, "OSError", "OSError", "gaierror", True,
        ["0000000000000000", "1"],
    ]  # fmt: skip
    assert not Path("/tmp/here").exists()


@needs_walls
def test_the_repository_is_not_inside_only_the_package():
    source = f"import os\nprint([n for n in os.listdir({str(ROOT)!r}) if not n.startswith('.venv')])"
    (output,) = run("bubblewrap", source)
    assert eval(output["stream"]) == ["mha_lab"]


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_a_container_has_the_same_walls(engine):
    """No engine runs on the machines that gate changes, so only the command is looked at."""
    command = isolation.command(engine, "image")
    options, (image, *program) = command[: command.index("image")], command[command.index("image") :]
    assert options[:5] == [engine, "run", "--rm", "--interactive", "--name=mha-lab"]
    for wall in (
        "--network=none", "--read-only", "--user=65534:65534", "--cap-drop=ALL", "--pids-limit=256",
        "--security-opt=no-new-privileges", "--memory=6g",
    ):  # fmt: skip
        assert wall in options
    assert not any(option.startswith(("-v", "--volume", "--mount", "--privileged")) for option in options)
    assert (image, program) == ("image", ["python", "-m", "mha_lab.classroom.worker"])
    containerfile = (Path(mha_lab.__file__).parent / "classroom" / "Containerfile").read_text()
    for file in containerfile.split("COPY ")[1].split(" /")[0].split():
        assert (ROOT / file).is_file()


def test_a_container_is_ended_by_its_name(monkeypatch, tmp_path):
    """A stand-in for an engine that writes down what it is asked."""
    engine = tmp_path / "podman"
    engine.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\n')
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    isolation.tear_down("podman", "mha-lab-1")
    isolation.tear_down("bubblewrap", "mha-lab-2")
    assert (tmp_path / "asked").read_text() == "rm --force mha-lab-1\n"


def test_what_is_missing_is_said_in_a_line(monkeypatch, tmp_path):
    isolation.why_not.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert isolation.why_not("none") == ""
    assert isolation.why_not("podman").startswith("podman is not installed")
    broken = tmp_path / "bwrap"
    broken.write_text(
        f"#!{shutil.which('sh', path='/bin:/usr/bin')}\necho 'no namespaces for you' >&2; exit 1\n"
    )
    broken.chmod(0o755)
    assert isolation.why_not("bubblewrap") == "bwrap does not run here: no namespaces for you"
    isolation.why_not.cache_clear()


def test_the_worker_speaks_its_language_without_walls_too():
    source = "import matplotlib.pyplot as plt\nprint('hello')\nplt.plot([1, 2]); plt.show()\n6 * 7"
    outputs = run("none", source)
    assert outputs[0] == {"stream": "hello\n"}
    assert outputs[-1]["display"]["text/plain"] == "42"
    assert run("none", "1 / 0")[0]["stream"].strip() == "ZeroDivisionError: division by zero"
    assert sys.executable == isolation.command("none")[0]
