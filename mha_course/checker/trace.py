"""Facts about an answer's own code: the line that raised, the notebook's names that it reads.

This runs in the same process as the answer, so its reader does not trust it; all of it is short text.
"""

import difflib
import dis
import hashlib
import linecache
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

from torch import Tensor

import mha_lab
from mha_course.exercises._finished import code_of

MAX_CHARACTERS = 200  # characters of one text
MAX_AXES = 64  # of one tensor
_NAME = r"(?<![\w.'\"])[A-Za-z_]\w*"
_INSTALLED = tuple(
    str(place) + os.sep
    for place in {
        Path(__file__).parents[1],
        Path(mha_lab.__file__).parent,
        Path(sysconfig.get_path("stdlib")),
        Path(sysconfig.get_path("purelib")),
        Path(sysconfig.get_path("platlib")),
        Path(sys.modules["torch"].__file__).parents[1],
    }
)


Fact = tuple[int, ...] | str


def brief(value: Any) -> Fact:
    """A tensor's shape; of anything else, in words: a number is itself, and others are their type."""
    if isinstance(value, Tensor):
        return tuple(value.shape) if value.ndim else f"a tensor of one number, {value.item():.4g}"
    if value is None or isinstance(value, bool | int | float):
        return repr(value)[:MAX_CHARACTERS]
    if isinstance(value, tuple | list) and len(value) < 9 and all(type(v) in (int, float) for v in value):
        return repr(value)[:MAX_CHARACTERS]
    return f"a {type(value).__name__}"[:MAX_CHARACTERS]


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


@lru_cache(maxsize=8)  # the same for every problem
def _instructions(code: CodeType | None) -> list[dis.Instruction]:
    """Those of a function and of the functions in it."""
    return [step for inner in _nested(code) for step in dis.get_instructions(inner)] if code else []


def fingerprint(answer: Any) -> str:
    """Equal for two functions with the same code, whatever their names and their variables' names are."""
    code = code_of(answer)
    if code is None:
        return ""
    steps = map(_step, _instructions(code))
    return hashlib.sha256(repr([step for step in steps if step]).encode()).hexdigest()[:16]


def _step(step: dis.Instruction) -> tuple[str, str] | None:
    """What one instruction does; how a call is compiled depends on where its module was imported."""
    if step.opname in ("PUSH_NULL", "PRECALL", "RESUME", "NOP"):
        return None
    if step.opname in ("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD"):
        return "LOAD", str(step.argval)
    if step.opname.startswith("LOAD_CONST"):
        known = not isinstance(step.argval, CodeType | str)
        return step.opname, repr(step.argval) if known else ""
    jumps = step.opcode in dis.hasjrel or step.opcode in dis.hasjabs  # by distances in bytes
    return step.opname, "" if jumps else str(step.arg)


def reads(answer: Any) -> list[tuple[str, Fact]]:
    """Tensors and numbers of the notebook that the function uses: ``[(name, what it is), ...]``."""
    space = getattr(answer, "__globals__", {})
    kinds = Tensor | int | float | tuple | list
    found = {name: brief(space[name]) for name in uses(answer) if isinstance(space.get(name), kinds)}
    return [(name[:MAX_CHARACTERS], what) for name, what in found.items()][:4]


def compares_bits(answer: Any) -> bool:
    """``^`` is in the function's code."""
    steps = _instructions(code_of(answer))
    return any(step.opname == "BINARY_OP" and step.argrepr in ("^", "^=") for step in steps)


def uses(answer: Any) -> list[str]:
    """The global names in a function's code, each once."""
    steps = _instructions(code_of(answer))
    return list(dict.fromkeys(s.argval for s in steps if s.opname in ("LOAD_GLOBAL", "LOAD_NAME")))


def where(error: BaseException, answer: Any) -> dict[str, Any]:
    """The learner's line that raised ``error``; empty if there is none.

    ``function``, ``line`` (counted from the function's ``def``), ``text``, ``part`` (the expression that
    failed), ``names`` (``[(name, what it is), ...]``), ``near`` (a name that looks like a misspelt one).
    """
    own = getattr(code_of(answer), "co_filename", None)
    steps = [s for s in _steps(error.__traceback__) if _is_learners(s[0].f_code.co_filename, own)]
    if not steps:
        return {}
    frame, line, (start, end, left, right) = steps[-1]
    code = frame.f_code
    source = linecache.getline(code.co_filename, line).rstrip("\n")
    part = ""
    if start == end == line and left is not None and right is not None:
        part = source.encode()[left:right].decode(errors="replace")
    space: dict[str, Any] = {}
    own_names: set[str] = set()  # of the function, including names that have no value yet
    for outer, _, _ in steps:
        space.update(outer.f_locals)
        own_names.update(outer.f_code.co_varnames, outer.f_code.co_cellvars)
    known = {**frame.f_globals, **space}
    names = {
        name: brief(known[name])
        for name in re.findall(_NAME, source)
        if name in (space if name in own_names else known)
        and isinstance(known[name], Tensor | int | float | tuple | list | type(None))
    }
    return {
        "function": _function(steps, code)[:MAX_CHARACTERS],
        "line": line - _around(steps, code).co_firstlineno + 1,
        "text": source.strip()[:MAX_CHARACTERS],
        "part": part.strip()[:MAX_CHARACTERS],
        "names": [(name[:MAX_CHARACTERS], what) for name, what in names.items()][:8],
        "near": _near(error, known)[:MAX_CHARACTERS],
    }


def _steps(trace: TracebackType | None) -> Iterator[tuple[FrameType, int, tuple]]:
    while trace is not None:
        code = trace.tb_frame.f_code
        positions = list(code.co_positions())
        index = trace.tb_lasti // 2
        position = positions[index] if 0 <= index < len(positions) else (None,) * 4
        yield trace.tb_frame, trace.tb_lineno, position
        trace = trace.tb_next


def _is_learners(file: str, own: str | None) -> bool:
    if file == own or file.startswith("<ipython-input"):  # a cell, where no kernel has given it a file
        return True
    return not file.startswith(("<", *_INSTALLED))


def _around(steps: list, code: CodeType) -> CodeType:
    """The function around it: a comprehension has a frame, but no ``def`` of its own."""
    for frame, _, _ in reversed(steps):
        if frame.f_code.co_filename == code.co_filename and not frame.f_code.co_name.startswith("<"):
            return frame.f_code
    return code


def _function(steps: list, code: CodeType) -> str:
    name = _around(steps, code).co_name
    return "" if name.startswith("<") else name


def _near(error: BaseException, known: dict[str, Any]) -> str:
    name = getattr(error, "name", None)
    if not isinstance(name, str):
        return ""
    if isinstance(error, NameError):
        pool = [other for other in known if other != name]
    elif isinstance(error, AttributeError):
        pool = dir(getattr(error, "obj", None))
    else:
        return ""
    return next(iter(difflib.get_close_matches(name, pool, n=1, cutoff=0.75)), "")


def is_stub(error: BaseException, answer: Any) -> bool:
    """``raise NotImplementedError`` is in the answer itself."""
    last = list(traceback.walk_tb(error.__traceback__))[-1][0]
    return type(error) is NotImplementedError and not error.args and last.f_code is code_of(answer)
