"""The chapters run as a learner runs them, and a stored output that is wrong makes the suite red."""

import copy
import re
import subprocess
import sys

import nbformat
import pytest

from tests.notebooks.chapters import (
    NAMES,
    PATHS,
    ROOT,
    alternative_texts,
    code_cells,
    output_texts,
    read,
    without_measured,
)
from tools.notebooks import clean, execute

NO_NETWORK = '''
"""Loaded by every Python that finds it on its path: no connection leaves this machine."""
import socket

def refuse(self, address, *rest):
    if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
        raise PermissionError(f"a chapter asked for the network: {address}")
    return connect(self, address, *rest)

def unknown(host, *rest, **options):
    if host not in ("127.0.0.1", "::1", "localhost", "", None):
        raise PermissionError(f"a chapter asked for the network: {host}")
    return getaddrinfo(host, *rest, **options)

connect, socket.socket.connect = socket.socket.connect, refuse
getaddrinfo, socket.getaddrinfo = socket.getaddrinfo, unknown
'''


@pytest.fixture
def no_network(tmp_path, monkeypatch):
    """Kernels started from here on refuse to connect to any other machine."""
    folder = tmp_path / "no network"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(NO_NETWORK, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder))


def seen(notebook):
    """Cell by cell, what a reader sees: texts, and for each picture its description."""
    cells = code_cells(without_measured(notebook))
    return [output_texts(nbformat.from_dict({"cells": [cell]})) for cell in cells]


@pytest.mark.parametrize("name", NAMES)
def test_a_fresh_run_without_network_in_an_empty_folder_shows_the_same(name, no_network, tmp_path):
    """Descriptions come from the drawn numbers, so a heatmap that changed is seen here; nbval skips it."""
    folder = tmp_path / "empty"
    folder.mkdir()
    stored = read(name)
    fresh = copy.deepcopy(stored)
    execute(fresh, folder)
    fresh = clean(fresh, name)
    for number, (now, then) in enumerate(zip(seen(fresh), seen(stored), strict=True), start=1):
        assert now == then, f"cell {number}"
    drawn = [len(alternative_texts(o)) for c in code_cells(fresh) for o in c.outputs]
    assert drawn == [len(alternative_texts(o)) for c in code_cells(stored) for o in c.outputs]
    assert list(folder.iterdir()) == []


TRAINING = [name for name in NAMES if any("MHA_LAB_QUICK" in cell.source for cell in code_cells(read(name)))]


@pytest.mark.parametrize("name", TRAINING)
def test_a_quick_run_reaches_the_end_and_judges_nothing(name, monkeypatch, tmp_path):
    """In addition to the full run above: fewer steps, the same cells."""
    monkeypatch.setenv("MHA_LAB_QUICK", "1")
    notebook = read(name)
    execute(notebook, tmp_path)
    assert any("quick run: not judged" in text for text in output_texts(notebook))
    assert not any("quick run" in text for text in output_texts(read(name)))


def run_cell(source, tmp_path):
    """The outputs of one cell in a fresh kernel."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    notebook.cells[0].metadata["tags"] = ["raises-exception"]
    execute(notebook, tmp_path)
    return notebook.cells[0].outputs


@pytest.mark.parametrize(
    "source",
    [
        "import urllib.request; urllib.request.urlopen('https://example.org')",
        "import socket; socket.create_connection(('192.0.2.1', 80), timeout=1)",
    ],
)
def test_the_network_really_is_refused(source, no_network, tmp_path):
    assert "a chapter asked for the network" in str(run_cell(source, tmp_path))


def nbval(path):
    """nbval as ``make test`` runs it: the exit status and what it printed."""
    flags = "-q -p no:cacheprovider -W default --nbval --nbval-current-env --nbval-cell-timeout=120"
    command = [sys.executable, "-m", "pytest", *flags.split(), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    return done.returncode, done.stdout


def test_these_are_the_flags_of_make_test():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "-p no:cacheprovider -W default --nbval --nbval-current-env --nbval-cell-timeout=120\n" in makefile


def test_no_check_loads_published_weights():
    """On a machine with a network, chapter 10 would fetch a gigabyte in a test."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (line,) = re.findall(r"^(.*): export HF_HUB_OFFLINE := 1$", makefile, re.MULTILINE)
    assert {"test-package", "test-notebooks", "notebooks"} <= set(line.split())


def change_digit(text):
    """The last digit of a text, one up."""
    position = [match.start() for match in re.finditer(r"\d", text)][-1]
    return f"{text[:position]}{(int(text[position]) + 1) % 10}{text[position + 1 :]}"


def results(notebook):
    """Where digits are stored: ``(output, key)`` of each print and each result."""
    for cell in code_cells(notebook):
        for output in cell.outputs:
            place = output if output.output_type == "stream" else output.get("data", {})
            key = "text" if output.output_type == "stream" else "text/plain"
            if output.output_type in ("stream", "execute_result") and re.search(r"\d", place[key]):
                yield place, key


@pytest.fixture(scope="module")
def cheapest(tmp_path_factory):
    """A chapter cut down to its set-up and the first cells that print and that return numbers."""
    notebook = read("00_start_here")
    kinds = {output.output_type for cell in code_cells(notebook) for output in cell.outputs}
    assert {"stream", "execute_result"} <= kinds
    path = tmp_path_factory.mktemp("nbval") / "chapter.ipynb"
    nbformat.write(notebook, path)
    return path


def test_an_unchanged_copy_is_green(cheapest):
    status, printed = nbval(cheapest)
    assert status == 0, printed


@pytest.mark.parametrize("kind", ["text", "text/plain"])
def test_one_changed_digit_is_red(kind, cheapest):
    notebook = nbformat.read(cheapest, as_version=4)
    place, key = next((place, key) for place, key in results(notebook) if key == kind)
    place[key] = change_digit(place[key])
    path = cheapest.with_name(f"changed-{kind[:4]}-{len(kind)}.ipynb")
    nbformat.write(notebook, path)
    status, printed = nbval(path)
    assert status == 1
    assert "1 failed" in printed


def test_a_changed_heatmap_is_red():
    """Its description holds its numbers, so the comparison of a fresh run with the stored one sees it."""
    stored = read("00_start_here")
    changed = copy.deepcopy(stored)
    pictures = [o for c in code_cells(changed) for o in c.outputs if any(alternative_texts(o))]
    alt = pictures[0].metadata["image/png"]["alt"]
    assert re.search(r"\d", alt)
    pictures[0].metadata["image/png"]["alt"] = change_digit(alt)
    assert seen(changed) != seen(stored)


def test_there_are_chapters():
    assert len(PATHS) >= 6
