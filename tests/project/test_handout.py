"""What a teacher hands out: a zip whose text leads to a running course, and copies that give nothing away."""

import contextlib
import os
import re
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
import zipfile
from itertools import pairwise
from pathlib import Path
from urllib.error import URLError

import nbformat
import pytest
from nbconvert.exporters.exporter import ResourcesDict

from mha_course.exercises import names
from mha_course.grading.nbgrader import GradeApart
from tests.grading import submissions
from tests.notebooks.chapters import NAMES, code_cells, markdown, output_texts, read, without_measured
from tools import handout
from tools.notebooks import clean, execute

FIRST = "03_splitting_heads"
LINK = re.compile(r"\]\(([\w-]+\.ipynb)[^)]*\)")


def commands(text, system):
    """The indented lines below the name of a system."""
    block = text.partition(f"\n{system}:\n\n")[2].partition("\n\n")[0]
    return [line.strip() for line in block.splitlines()]


def test_windows_has_the_same_commands_as_the_others():
    text = handout.TEXT.read_text(encoding="utf-8")
    ours, theirs = (commands(text, system) for system in ("macOS and Linux", "Windows"))
    assert len(ours) == 4
    assert ours == [
        re.sub(r"^py ", "python3 ", line).replace("\\", "/").replace("Scripts", "bin") for line in theirs
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_projected_chapter_has_all_of_its_code_and_no_answer(name):
    given = read(name)
    made = handout.projected(given)
    pairs = list(zip(code_cells(made), code_cells(given), strict=True))
    left_out = [old for new, old in pairs if new.source != old.source]
    assert all(new.source in (old.source, handout.LEFT_OUT) for new, old in pairs)
    assert len(left_out) == {FIRST: 3}.get(name, 0)
    assert all(cell.metadata.jupyter.source_hidden for cell in left_out)
    answers = re.findall(r"answer to `?(\w+)", "\n".join(cell.source for cell in code_cells(made)))
    assert not {*answers} & {*names()}
    for (asks, _), (new, _) in pairwise(pairs):
        if "quiz.ask(" in asks.source and "quiz.ask(" not in new.source and is_next(given, asks, new):
            assert "predict" not in new.metadata.get("tags", []) or new.metadata.jupyter.source_hidden
    assert not any(cell.outputs or cell.execution_count for cell in code_cells(made))
    text = markdown(made)
    assert "details>" not in text
    assert "<summary>" not in text
    headings = re.findall(r"^#+ .+$", markdown(given), re.MULTILINE)
    assert re.findall(r"^#+ .+$", text, re.MULTILINE) == headings
    assert text.count("**Predict**") == markdown(given).count("**Predict**")
    nbformat.validate(made)


def is_next(notebook, one, other):
    """Whether one cell comes directly after another."""
    ids = [cell.id for cell in notebook.cells]
    return ids.index(other.id) == ids.index(one.id) + 1


def test_a_projected_chapter_keeps_what_stands_between_two_folds():
    cell = nbformat.v4.new_markdown_cell(
        "one\n\n<details>a<details>b</details></details>\n\ntwo <details>c</details>"
    )
    made = handout.projected(nbformat.v4.new_notebook(cells=[cell]))
    assert made.cells[0].source.split() == ["one", "two"]


def test_the_command_writes_one_chapter_and_names_a_number_without_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(handout, "BUILD", tmp_path)
    assert handout.main(["projector", "03"]) == 0
    assert [path.name for path in (tmp_path / "projector").iterdir()] == [f"{FIRST}.ipynb"]
    assert capsys.readouterr().out.strip() == str(tmp_path / "projector" / f"{FIRST}.ipynb")
    assert handout.main(["projector", "77"]) == 1
    assert "no chapter begins with 77" in capsys.readouterr().err


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The folder in a student's home, and the lines of the text for this system."""
    home = tmp_path_factory.mktemp("home")
    handout.pack(home / "handout.zip")
    with zipfile.ZipFile(home / "handout.zip") as packed:
        packed.extractall(home)
    (home / "handout.zip").unlink()
    (folder,) = home.iterdir()
    return folder, commands((folder / "INSTALL.txt").read_text(encoding="utf-8"), "macOS and Linux")


@pytest.fixture(scope="module")
def python(unpacked):
    """The Python that the first three lines of the text install."""
    folder, lines = unpacked
    subprocess.run(
        "\n".join(lines[:3]), shell=True, check=True, env=student(folder), capture_output=True, timeout=3600
    )
    return str(folder / ".venv" / "bin" / "python")


def student(folder):
    """A student's shell: another home, this Python, and nothing of this repository."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    return kept | {"HOME": str(folder.parent), "PATH": path}


@pytest.mark.grading
@pytest.mark.unchecked
def test_a_chapter_of_the_handout_earns_its_points():
    notebook = handout.handed_out(read(FIRST))
    submissions.right(notebook)
    GradeApart(isolation="none").preprocess(notebook, ResourcesDict())
    checks = [cell for cell in code_cells(notebook) if cell.metadata.get("nbgrader", {}).get("grade")]
    earned = {cell.source.strip(): float(cell.outputs[-1].data["text/plain"]) for cell in checks}
    assert earned == {f"check({name})": points for name, points in submissions.POINTS.items()}


@pytest.mark.slow
def test_every_link_between_chapters_leads_to_a_file_of_the_folder(unpacked):
    folder, _ = unpacked
    for name in NAMES:
        text = markdown(nbformat.read(folder / f"{name}.ipynb", as_version=4))
        assert {target for target in LINK.findall(text) if not (folder / target).is_file()} == set()
        assert "Binder" not in text.split("## ")[0]
    assert len(LINK.findall(text)) > 1


@pytest.mark.slow
def test_a_chapter_that_is_handed_out_alone_has_no_link_to_another(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(handout, "BUILD", tmp_path)
    assert handout.main(["zip", "05"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "handout-05.zip")
    with zipfile.ZipFile(tmp_path / "handout-05.zip") as packed:
        (name,) = [name for name in packed.namelist() if name.endswith(".ipynb")]
        chapter = packed.read(name).decode()
        text = packed.read(f"{handout.FOLDER}/INSTALL.txt").decode()
    assert name == f"{handout.FOLDER}/05_output_projection.ipynb"
    assert ".ipynb" not in chapter
    assert "chapter 03" in chapter
    assert "in chapter 05, hand in the file 05_output_projection.ipynb" in text
    assert "This folder has one chapter" in text
    assert not re.search(r"\{[a-z ]+\}|03_|00_", text)
    assert handout.main(["zip", "0"]) == 1
    assert "CHAPTER=03" in capsys.readouterr().err


@pytest.mark.colab
def test_a_chapter_runs_as_it_is_stored(unpacked, python):
    folder, _ = unpacked
    notebook = nbformat.read(folder / f"{FIRST}.ipynb", as_version=4)
    code_cells(notebook)[-1].source += "\nprint(mha_lab.__file__)"
    execute(notebook, folder, python, student(folder) | {"PYTHONPATH": ""})
    output = code_cells(notebook)[-1].outputs[-1]
    output.text, _, where = output.text.removesuffix("\n").rpartition("\n")
    assert Path(where).is_relative_to(folder / ".venv")
    output.text += "\n"
    fresh, stored = (output_texts(without_measured(each)) for each in (clean(notebook, FIRST), read(FIRST)))
    assert len(fresh) > 20
    assert fresh == stored


@pytest.mark.colab
def test_the_last_line_opens_jupyterlab(unpacked, python):
    folder, lines = unpacked
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    quiet = f"--no-browser --allow-root --ip=127.0.0.1 --port={port} --ServerApp.port_retries=0"
    running = subprocess.Popen(
        f"exec {lines[3]} {quiet}",
        shell=True,
        cwd=folder,
        env=student(folder) | {"JUPYTER_TOKEN": token},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = f"http://127.0.0.1:{port}/api/contents/00_start_here.ipynb?content=0&token={token}"
        end = time.monotonic() + 300
        while time.monotonic() < end and running.poll() is None:
            with contextlib.suppress(URLError):  # it is not there yet
                urllib.request.urlopen(address, timeout=30).close()
                return
            time.sleep(0.5)
        pytest.fail("JupyterLab was too slow to begin (300 seconds), ended, or does not find the chapter")
    finally:
        running.terminate()
        running.wait(timeout=300)


@pytest.mark.colab
def test_the_set_up_cell_installs_the_wheel_where_the_package_is_missing(unpacked, python):
    """In a Jupyter of one's own; it is the last test, because it takes the package away first."""
    folder, _ = unpacked
    subprocess.run(
        [python, "-m", "pip", "uninstall", "-q", "-y", "mha-lab"],
        check=True,
        capture_output=True,
        timeout=600,
    )
    first = code_cells(nbformat.read(folder / f"{FIRST}.ipynb", as_version=4))[0]
    look = nbformat.v4.new_code_cell("import mha_lab\nprint(mha_lab.__file__)")
    notebook = nbformat.v4.new_notebook(cells=[first, look])
    execute(notebook, folder, python, student(folder) | {"PYTHONPATH": "", "PIP_NO_INDEX": "1"})
    assert str(folder / ".venv") in look.outputs[0].text
