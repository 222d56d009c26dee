"""The tool behind ``make notebooks``: what it keeps, what it drops, and when it writes."""

import base64
import json

import nbformat
import pytest
import torch
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelspec import get_kernel_dict
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from mha_lab import plot
from mha_lab.plot import _layer, _page
from tools import notebooks as tool
from tools.pictures import same


def dirty():
    """A chapter as an editor leaves it."""
    code = new_code_cell("\nprint(1)\n", id="keep-me", execution_count=7)
    code.metadata = {"tags": ["x"], "collapsed": True, "execution": {"iopub.execute_input": "2026"}}
    code.outputs = [new_output("stream", name="stdout", text=text) for text in ("1\n", "2\n")]
    code.outputs += [new_output("stream", name="stderr", text=text) for text in (tool.SLOW_START, "careful")]
    picture = new_output("display_data", data={"image/png": "AAAA"}, metadata={"image/png": {"alt": "words"}})
    code.outputs.append(picture)
    widget = {tool.WIDGET: {"model_id": "1"}, "text/plain": "<explore.query>", "image/png": "AAAA"}
    bar = {tool.WIDGET: {"model_id": "2"}, "text/plain": "  0%|          | 0/9"}
    code.outputs += [new_output("display_data", data=data) for data in (widget, bar)]
    metadata = {
        "kernelspec": {"name": "mine", "display_name": "Mine"},
        "language_info": {"name": "python", "version": "3.11.7"},
        "widgets": {},
    }
    notebook = new_notebook(cells=[new_markdown_cell("# 07 X"), code], metadata=metadata)
    notebook.cells[0].id = ""
    return notebook


def test_a_chapter_has_the_metadata_that_jupyterlab_would_write():
    """All that the kernel says of its language, without the version of this machine's Python."""
    kernel, language = tool.METADATA["kernelspec"], dict(IPythonKernel.language_info)
    assert language.pop("version")
    assert tool.METADATA["language_info"] == language
    assert kernel == {
        "name": "python3",
        **{key: get_kernel_dict()[key] for key in ("display_name", "language")},
    }


def test_cleaning_keeps_what_a_reader_sees_and_drops_the_rest():
    cleaned = tool.clean(dirty(), "07_x")
    text, code = cleaned.cells
    assert cleaned.metadata == tool.METADATA
    assert text.id == "07-00"
    assert (code.id, code.source, code.execution_count) == ("keep-me", "print(1)", 7)
    assert code.metadata == {"tags": ["x"]}
    assert [output.get("text") for output in code.outputs] == ["1\n2\n", "careful", None, None]
    assert code.outputs[2].metadata["image/png"]["alt"] == "words"
    assert set(code.outputs[3].data) == {"text/plain", "image/png"}


def test_cleaning_twice_changes_nothing_and_leaves_its_input():
    notebook = dirty()
    before = json.dumps(notebook)
    cleaned = tool.clean(notebook, "07_x")
    assert json.dumps(notebook) == before
    assert tool.to_text(tool.clean(cleaned, "07_x")) == tool.to_text(cleaned)
    nbformat.validate(cleaned)


def test_a_new_cell_gets_an_id_that_no_other_has():
    notebook = new_notebook(cells=[new_markdown_cell("a"), new_markdown_cell("b"), new_markdown_cell("c")])
    for cell, given in zip(notebook.cells, ("", "07-00", ""), strict=True):
        cell.id = given
    assert [cell.id for cell in tool.clean(notebook, "07_x").cells] == ["07-00b", "07-00", "07-02"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two small chapters in place of the real ones."""
    monkeypatch.setattr(tool, "FOLDER", tmp_path)
    good = new_notebook(cells=[new_code_cell("x = 6 * 7"), new_code_cell("print('x'); x")])
    bad = new_notebook(cells=[new_code_cell("1 / 0")])
    nbformat.write(good, tmp_path / "00_good.ipynb")
    nbformat.write(bad, tmp_path / "01_bad.ipynb")
    return tmp_path


def test_cleaning_what_is_stored_runs_nothing(folder, capsys):
    path = folder / "00_good.ipynb"
    assert tool.main(["run", "00"]) == 0
    stored = path.read_text()
    edited = nbformat.read(path, as_version=4)
    edited.metadata.kernelspec.display_name = "Python 3 (ipykernel)"  # as JupyterLab saves it
    edited.cells[1].metadata = {"trusted": True, "editable": True}
    edited.cells[1].source = "print('y'); x"
    nbformat.write(edited, path)
    assert tool.main(["check", "00"]) == 1
    assert tool.main(["clean", "00"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "00_good.ipynb"
    assert tool.main(["check", "00"]) == 0
    assert path.read_text() == stored.replace("print('x'); x", "print('y'); x")


def test_running_stores_outputs_in_the_same_bytes_each_time_and_the_check_is_content(folder, capsys):
    assert tool.main(["check", "00"]) == 1
    assert "00_good.ipynb: not clean; run `make format`" in capsys.readouterr().err
    assert tool.main(["run", "00"]) == 0
    assert tool.main(["check", "00"]) == 0
    first, second = nbformat.read(folder / "00_good.ipynb", as_version=4).cells
    assert (first.execution_count, second.execution_count) == (1, 2)
    assert second.outputs[0].text == "x\n"
    assert second.outputs[1].data["text/plain"] == "42"
    stored = (folder / "00_good.ipynb").read_bytes()
    tool.main(["run", "00"])
    assert (folder / "00_good.ipynb").read_bytes() == stored


def test_a_chapter_that_fails_is_not_written(folder, capsys):
    before = (folder / "01_bad.ipynb").read_bytes()
    assert tool.main(["run", "01_bad.ipynb"]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert (folder / "01_bad.ipynb").read_bytes() == before


def test_a_name_that_fits_nothing_is_said(folder, capsys):
    assert tool.main(["run", "77"]) == 1
    assert "no chapter matches" in capsys.readouterr().err


def test_exercises_are_marked_for_nbgrader():
    sources = ["def causal_mask(n):\n    ...", "# try it\ncheck(causal_mask)", "check(no_exercise)"]
    notebook = new_notebook(cells=[new_code_cell(source) for source in sources])
    notebook.cells.insert(1, new_markdown_cell("## A text between"))
    stub, _, check, other = tool.clean(notebook, "07_x").cells
    assert stub.metadata.nbgrader == {
        "schema_version": 3, "grade_id": "causal_mask",
        "task": False, "grade": False, "locked": False, "solution": True,
    }  # fmt: skip
    assert check.metadata.nbgrader == {
        "schema_version": 3, "grade_id": "check-causal_mask", "points": 1,
        "task": False, "grade": True, "locked": True, "solution": False,
    }  # fmt: skip
    assert other.metadata == {}


@pytest.mark.parametrize(
    "changed",
    ["query", "INK", *(pytest.param(x, marks=pytest.mark.slow) for x in ("key", "value", "LEARNED"))],
)
def test_a_picture_with_one_other_colour_is_not_the_same(changed, monkeypatch):
    """Chapter 05's picture of the layer, whose description says nothing of colours."""

    def drawn():
        return base64.b64encode(plot.png(plot.layer_shapes())[0]).decode()

    before = drawn()
    assert same(before, drawn())
    if changed in _page.ROLES:
        monkeypatch.setitem(_page.ROLES, changed, ("#1d4ed8", _page.ROLES[changed][1]))
    else:
        for module in (_page, _layer):
            monkeypatch.setattr(module, changed, "#d8f0d8" if changed == "LEARNED" else "#cc0000")
    assert not same(before, drawn())


def test_a_picture_of_weights_that_are_rounded_differently_is_the_same():
    def drawn(weights):
        return base64.b64encode(plot.png(plot.attention_heatmap(weights).figure)[0]).decode()

    weights = torch.tensor([[0.61, 0.26, 0.13], [0.08, 0.84, 0.08], [0.33, 0.33, 0.34]])
    rounding = torch.tensor([[3e-7, -3e-7, 0.0], [-2e-7, 1e-7, 1e-7], [2e-7, 2e-7, -4e-7]])
    assert same(drawn(weights), drawn(weights + rounding))
    assert not same(drawn(weights), drawn(weights + 1e5 * rounding))


def test_refresh_writes_what_changed_and_keeps_what_was_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tool, "FOLDER", tmp_path)
    path = tmp_path / "00_x.ipynb"
    steady, measured = new_code_cell("print('new')"), new_code_cell("print('now')", id="measured")
    steady.outputs, measured.outputs = (
        [new_output("stream", name="stdout", text=text)] for text in ("new\n", "a minute ago\n")
    )
    measured.metadata["tags"] = ["nbval-ignore-output"]
    steady.execution_count, measured.execution_count = 1, 2
    tool.write({path: tool.to_text(tool.clean(new_notebook(cells=[steady, measured]), "00_x"))})
    before = path.read_text()
    assert tool.main(["refresh"]) == 0
    assert path.read_text() == before  # a measurement is another one each time, and that is no change
    path.write_text(before.replace("new\\n", "old\\n"))
    assert tool.main(["refresh"]) == 0
    assert path.read_text() == before  # the measurement stays
