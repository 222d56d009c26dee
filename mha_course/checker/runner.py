"""Tries a learner's function in a way that nothing it does can reach the notebook.

On Linux (JupyterLab there, Colab, nbgrader) the function runs in a child process, forked for this one
check. The child has a limit of computing time and of memory, its prints are discarded, and it is killed
with everything that it started. It sends back bytes, never objects, so a tensor that lies about its shape,
a patched PyTorch or a changed seed ends with the child. No thread is started, and the kernel's main
thread waits.

Elsewhere (macOS, Windows) a fork is not safe. There, the function runs in this process: the state of
PyTorch is restored, and on macOS a timer interrupts the main thread. An answer that swallows every
exception, or that hangs inside one call of C code, is then not stopped; interrupt the kernel.
"""

import base64
import builtins
import contextlib
import io
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import numpy as np
import torch

from mha_course.checker import child, trace
from mha_course.exercises import CHANGEABLE, Exercise, copies
from mha_course.exercises._finished import refusing
from mha_course.exercises._results import MAX_RESULTS, MAX_WORDS, Outcome, Plain, fits, plain, words

# Of the processor's time. The first use of `jacrev` or `FlopCounterMode` in a process takes up to four.
SECONDS = 10.0
PATIENCE = 4  # times SECONDS may pass on the clock: an answer may wait, and the machine may have other work
MEMORY = 2 * 2**30  # bytes that an answer may ask for on top of what the kernel has

Apply = Callable[[Any, tuple], Any]


def encode(value: Any) -> Any:
    """A result as JSON."""
    value = plain(value) if not isinstance(value, Plain | tuple) else value
    if isinstance(value, tuple):
        return {"sequence": [encode(item) for item in value]}
    if not isinstance(value, Plain):
        return {"number": repr(value)}
    if value.array is None:
        return {"other": value.dtype}
    data = base64.b64encode(value.array.tobytes()).decode()
    shape = list(value.array.shape)
    kind = {"tensor": value.dtype, "numpy": str(value.array.dtype), "source": value.source}
    return kind | {"shape": shape, "data": data}


def decode(value: Any, depth: int = 0) -> Any:
    """The inverse of ``encode``: numbers, ``Plain``, tuples. ``value`` may be anything that an answer wrote.

    Raises:
        Exception: it is not a result of ``encode``.
    """
    if "number" in value:
        return {"None": None, "True": True, "False": False}.get(value["number"], _number(value["number"]))
    if "tensor" in value:
        dtype, shape = np.dtype(value["numpy"]), value["shape"]
        if dtype.kind not in "biuf" or not fits(shape, dtype):
            raise ValueError
        data = np.frombuffer(base64.b64decode(value["data"]), dtype=dtype)
        return Plain(str(value["tensor"])[:80], data.reshape(shape), str(value["source"])[:80])
    if "sequence" in value:
        if len(value["sequence"]) > MAX_RESULTS or depth > 3:
            raise ValueError
        return tuple(decode(item, depth + 1) for item in value["sequence"])
    return Plain(str(value["other"])[:80])


def _number(text: str) -> float | int | None:
    try:
        number = int(text)
        if abs(number) >= 2**63:
            raise OverflowError
        return number
    except ValueError:
        return float(text) if text not in ("None", "True", "False") else None


def attempt(apply: Apply, answer: Any, arguments: tuple) -> dict:
    """One problem for code that is not trusted, as JSON: whatever the answer does, this returns."""
    said: dict[str, Any] = {"where": {}, "reads": [], "code": "", "xor": False}
    with contextlib.suppress(Exception):
        said |= {"reads": trace.reads(answer), "code": trace.fingerprint(answer)}
        said["xor"] = trace.compares_bits(answer)
    try:
        result = apply(answer, arguments)
        said |= {"kind": "returned", "value": encode(plain(result))}
    except BaseException as error:  # SystemExit and KeyboardInterrupt raised by the answer too
        if isinstance(error, _TooSlow):
            raise
        said |= {"kind": "raised", "value": {"text": words(error)}}
        with contextlib.suppress(Exception):
            said["kind"] = "stub" if trace.is_stub(error, answer) else "raised"
            said["where"] = trace.where(error, answer)
    kept = [argument for argument in arguments if isinstance(argument, CHANGEABLE)]
    return said | {"inputs": encode(tuple(map(plain, kept)))}


def read(message: Any) -> Outcome:
    """An ``Outcome`` from the message of ``attempt``, or from whatever the answer wrote instead."""
    try:
        value = message["value"]
        kind = message["kind"]
        if kind not in ("returned", "raised", "stub") or (kind == "returned") == ("text" in value):
            raise ValueError
        return Outcome(
            kind,
            decode(value) if kind == "returned" else str(value["text"])[:MAX_WORDS],
            decode(message["inputs"]),
            _where(message["where"]),
            _pairs(message["reads"][:4]),
            str(message["code"])[:MAX_WORDS],
            message["xor"] is True,
        )
    except Exception:
        return Outcome("too slow" if message == TOO_SLOW else "died")


def _where(said: dict) -> dict[str, Any]:
    if not said:
        return {}
    texts = {key: str(said[key])[: trace.MAX_CHARACTERS] for key in ("function", "text", "part", "near")}
    return texts | {"line": int(said["line"]), "names": _pairs(said["names"][:8])}


def _pairs(said: list) -> tuple[tuple[str, trace.Fact], ...]:
    """Names and what they are; a text that is not a name is dropped."""
    kept = ((name[: trace.MAX_CHARACTERS], _fact(what)) for name, what in said)
    return tuple((name, what) for name, what in kept if name.isidentifier())


def _fact(said: Any) -> trace.Fact:
    if isinstance(said, list | tuple):
        return tuple(int(size) for size in said[: trace.MAX_AXES])
    return str(said)[: trace.MAX_CHARACTERS]


TOO_SLOW, DIED = {"kind": "too slow"}, {"kind": "died"}


def run(exercise: Exercise, answer: Any, problems: list[tuple]) -> list[Outcome]:
    """The outcome of each problem. The expected results are computed later, out of the answer's reach."""
    isolated = sys.platform == "linux"
    tries = [copies(problem) for problem in problems]
    messages = (in_a_child if isolated else in_this_process)(exercise.apply, answer, tries, exercise.refused)
    return [read(message) for message in messages]


# In a child process


def in_a_child(apply: Apply, answer: Any, problems: list[tuple], refused: list[Any]) -> list[Any]:
    """A message for each problem, from a child that may compute for ``SECONDS``: see ``child.run``."""

    @contextlib.contextmanager
    def around() -> Iterator[None]:
        with _silent(), refusing(refused):
            yield

    said = child.run(
        partial(attempt, apply, answer),
        problems,
        seconds=SECONDS,
        patience=PATIENCE * SECONDS,
        memory=MEMORY,
        around=around,
    )
    messages = []
    for line in said.lines:
        try:
            messages.append(json.loads(line))
        except (ValueError, RecursionError):  # bytes that the answer wrote itself
            messages.append(DIED)
    return messages + [TOO_SLOW if said.too_slow else DIED] * (len(problems) - len(messages))


# In this process


class _TooSlow(BaseException):
    """Raised by the timer."""


def in_this_process(apply: Apply, answer: Any, problems: list[tuple], refused: list[Any]) -> list[Any]:
    """The same on a platform without a safe fork; see the top of this module."""
    messages = []
    with _same_torch(), _silent(), refusing(refused), contextlib.suppress(_TooSlow), _timer():
        for arguments in problems:
            messages.append(attempt(apply, answer, arguments))
    return messages + [TOO_SLOW] * (len(problems) - len(messages))


@contextlib.contextmanager
def _timer() -> Iterator[None]:
    """Interrupts an answer in the main thread, again and again, in case it swallows the first.

    The limits are a child's: one of computing time, and a longer one by the clock. Nothing is raised outside
    of ``attempt``, however late an alarm comes: switching the timer off cannot be interrupted.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code is attempt.__code__:
                raise _TooSlow
            frame = frame.f_back

    timers = (signal.ITIMER_PROF, signal.SIGPROF, 1), (signal.ITIMER_REAL, signal.SIGALRM, PATIENCE)
    before = [signal.signal(number, stop) for _, number, _ in timers]
    try:
        for timer, _, times in timers:
            signal.setitimer(timer, times * SECONDS, 0.05)
        yield
    finally:
        for timer, _, _ in timers:
            signal.setitimer(timer, 0)
        for (_, number, _), handler in zip(timers, before, strict=True):
            signal.signal(number, handler)


@contextlib.contextmanager
def _same_torch() -> Iterator[None]:
    """Restore PyTorch's global state afterwards."""
    dtype, grad, threads = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()
    device, state = torch.get_default_device(), torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        torch.set_num_threads(threads)
        if torch.get_default_device() != device:  # setting it, even to the same, slows every later call
            torch.set_default_device(device)
        torch.set_rng_state(state)


# In both


class _Void(io.TextIOBase):
    """Discards what is printed."""

    def write(self, text: str) -> int:
        return len(text)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Prints go nowhere, and nobody is asked for input."""

    def refuse(*_: object) -> str:
        raise EOFError("input() does not work inside check")

    before = builtins.input
    builtins.input = refuse
    try:
        with contextlib.redirect_stdout(_Void()), contextlib.redirect_stderr(_Void()):
            yield
    finally:
        builtins.input = before
