"""The pieces that the chapters teach can be read: short files, and functions that fit on a screen."""

import ast
import inspect
from pathlib import Path

import pytest

import mha_lab

FILES = sorted(Path(mha_lab.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_is_short_and_each_of_its_functions_fits_on_a_screen(path):
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 350
    functions = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    assert {f.name: f.end_lineno - f.lineno + 1 for f in functions if f.end_lineno - f.lineno >= 60} == {}


def test_the_layer_fits_on_two_screens():
    """Its code, of 120 lines at most; what the docstrings say is read elsewhere, too."""
    source = inspect.getsource(mha_lab.MultiHeadAttention)
    parts = (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ClassDef | ast.FunctionDef))
    said = [part.body[0] for part in parts if ast.get_docstring(part)]
    lines = {number for number, line in enumerate(source.splitlines(), 1) if line}
    assert len(lines - {n for text in said for n in range(text.lineno, text.end_lineno + 1)}) <= 120
