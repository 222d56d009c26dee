"""How busy a machine is changes no verdict: every child has a time limit, which says when it is over."""

import ast
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.conftest import pytest_runtest_makereport
from tests.notebooks.chapters import ROOT

WAITS = {"run", "call", "check_call", "check_output", "communicate", "wait"}
FILES = sorted(path for folder in ("tests", "tools") for path in (ROOT / folder).rglob("*.py"))


def without_limit(source):
    """Lines that wait for a child of ``subprocess`` for as long as it takes."""
    found = []
    for call in ast.walk(ast.parse(source)):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            continue
        of_module = isinstance(call.func.value, ast.Name) and call.func.value.id == "subprocess"
        waits = call.func.attr in WAITS and (of_module or call.func.attr in ("communicate", "wait"))
        if waits and "timeout" not in {keyword.arg for keyword in call.keywords}:
            found.append(call.lineno)
    return found


def test_no_test_and_no_tool_waits_for_a_child_for_ever():
    lines = {str(path.relative_to(ROOT)): without_limit(path.read_text(encoding="utf-8")) for path in FILES}
    assert {path: found for path, found in lines.items() if found} == {}
    assert without_limit("subprocess.run(x, timeout=1)\nrun(x)\nsubprocess.run(x)\nchild.wait(5)") == [3, 4]


def test_a_time_limit_that_is_over_says_too_slow():
    with pytest.raises(subprocess.TimeoutExpired) as raised:
        subprocess.run([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.1, check=True)
    pytest_runtest_makereport(SimpleNamespace(excinfo=raised))
    (note,) = raised.value.__notes__
    assert note.startswith("too slow: ")
    assert note in raised.exconly()
