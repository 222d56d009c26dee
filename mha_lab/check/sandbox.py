"""Trying a learner's function where nothing that it does can reach the notebook.

On Linux (JupyterLab there, Colab, nbgrader) the function runs in a child process, forked for this one
check. The child has a limit of computing time and of memory, prints into the void, and is killed with
all that it started. What comes back is bytes, never objects, so a tensor that lies about its shape, a
patched PyTorch or a changed seed ends with the child. No thread is started, and the kernel's main thread
waits.

Elsewhere (macOS, Windows) a fork is not safe. There the function runs in this process: the state of
PyTorch is put back, and on macOS a timer interrupts the main thread. An answer that swallows every
exception, or that hangs inside one call of C code, is then not stopped; interrupt the kernel.
"""

import base64
import builtins
import contextlib
import io
import json
import math
import os
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from mha_lab.check import trace

SECONDS = (
    10.0  # of the processor: the first `jacrev` or `FlopCounterMode` of a process alone takes up to four
)
PATIENCE = 3  # times as long by the clock, for an answer that waits, or on a machine with much else to do
MEMORY = 2 * 2**30  # bytes that an answer may ask for on top of what the kernel has
MOST_BYTES = 32 * 2**20  # of one result
MOST_RESULTS = 8
MOST_WORDS = 2000

Run = Callable[[Any, tuple], Any]


@dataclass(frozen=True)
class Plain:
    """An array's content and dtype, or in words what cannot stand for a tensor."""

    dtype: str
    array: np.ndarray | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of one problem.

    ``kind`` is ``returned``, ``raised``, ``stub``, ``too slow`` or ``died``; ``value`` is the result, or the
    exception's name and text. ``inputs`` are the arguments as they were afterwards. ``where``, ``reads``
    and ``code`` are what ``trace`` says of the answer.
    """

    kind: str
    value: Any = None
    inputs: Any = None
    where: dict[str, Any] = field(default_factory=dict)
    reads: tuple[tuple[str, str], ...] = ()
    code: str = ""


def plain(value: Any, depth: int = 0) -> Any:
    """A result as numbers, ``Plain`` and short tuples of them."""
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) is int and abs(value) >= 2**63:
        return Plain("a very large whole number")
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, Tensor):
        try:
            return _plain_tensor(value)
        except Exception:  # nowhere, sparse, nested, or of a class that refuses
            return Plain("a tensor of an unusual kind")
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and _fits(value.shape, value.dtype):
        return Plain(str(value.dtype), value.copy())
    if type(value) in (tuple, list):
        if len(value) <= MOST_RESULTS and depth < 3:
            return tuple(plain(item, depth + 1) for item in value)
        return _plain_list(value)
    return Plain(f"a {type(value).__name__}"[:80])


def _plain_tensor(value: Tensor) -> Plain:
    """Its dtype, shape and numbers, whatever a subclass says of them."""
    with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
        whole = Tensor.detach(value).as_subclass(Tensor).cpu()
        name = str(whole.dtype).removeprefix("torch.")
        if math.prod(max(1, size) for size in whole.shape) * whole.element_size() > MOST_BYTES:
            return Plain("a tensor that is too large")
        if whole.dtype in (torch.bfloat16, torch.float16):
            whole = whole.float()
        return Plain(name, whole.resolve_conj().resolve_neg().contiguous().numpy().copy())


def _fits(shape: Sequence[int], dtype: Any) -> bool:
    """Also along an axis of an array without numbers: ``(10**9, 0)`` is large."""
    return math.prod(max(1, size) for size in shape) * np.dtype(dtype).itemsize <= MOST_BYTES


def _plain_list(value: Any) -> Plain:
    """A long list of numbers as an array."""
    try:
        array = np.asarray(value)
    except Exception:
        array = np.asarray(None)
    if array.dtype.kind in "biuf" and array.nbytes <= MOST_BYTES:
        return Plain(str(array.dtype), array)
    return Plain(f"a {type(value).__name__}")


def encode(value: Any) -> Any:
    """The same as JSON."""
    value = plain(value) if not isinstance(value, Plain | tuple) else value
    if isinstance(value, tuple):
        return {"sequence": [encode(item) for item in value]}
    if not isinstance(value, Plain):
        return {"number": repr(value)}
    if value.array is None:
        return {"other": value.dtype}
    data = base64.b64encode(value.array.tobytes()).decode()
    shape = list(value.array.shape)
    return {"tensor": value.dtype, "numpy": str(value.array.dtype), "shape": shape, "data": data}


def decode(value: Any, depth: int = 0) -> Any:
    """The other way: numbers, ``Plain`` and tuples. ``value`` may be anything that an answer has written.

    Raises:
        Exception: it is nothing that ``encode`` makes.
    """
    if "number" in value:
        return {"None": None, "True": True, "False": False}.get(value["number"], _number(value["number"]))
    if "tensor" in value:
        dtype, shape = np.dtype(value["numpy"]), value["shape"]
        if dtype.kind not in "biuf" or not _fits(shape, dtype):
            raise ValueError
        data = np.frombuffer(base64.b64decode(value["data"]), dtype=dtype)
        return Plain(str(value["tensor"])[:80], data.reshape(shape))
    if "sequence" in value:
        if len(value["sequence"]) > MOST_RESULTS or depth > 3:
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


def compute(run: Run, answer: Any, arguments: tuple) -> Outcome:
    """One problem for code that is trusted: a solution, or a known mistake."""
    try:
        return Outcome("returned", plain(run(answer, arguments)))
    except Exception as error:
        return Outcome("raised", _words(error))


def attempt(run: Run, answer: Any, arguments: tuple) -> dict:
    """One problem for code that is not, as JSON: whatever the answer does, this returns."""
    said: dict[str, Any] = {"where": {}, "reads": [], "code": ""}
    with contextlib.suppress(Exception):
        said |= {"reads": trace.reads(answer), "code": trace.fingerprint(answer)}
    try:
        result = run(answer, arguments)
        said |= {"kind": "returned", "value": encode(plain(result))}
    except BaseException as error:  # SystemExit and KeyboardInterrupt raised by the answer too
        if isinstance(error, _TooSlow):
            raise
        said |= {"kind": "raised", "value": {"text": _words(error)}}
        with contextlib.suppress(Exception):
            said["kind"] = "stub" if trace.is_stub(error, answer) else "raised"
            said["where"] = trace.where(error, answer)
    kept = [argument for argument in arguments if isinstance(argument, Tensor)]
    return said | {"inputs": encode(tuple(map(plain, kept)))}


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}\n{error}"[:MOST_WORDS]


def read(message: Any) -> Outcome:
    """An ``Outcome`` from what ``attempt`` made, or from whatever the answer wrote in its place."""
    try:
        value = message["value"]
        kind = message["kind"]
        if kind not in ("returned", "raised", "stub") or (kind == "returned") == ("text" in value):
            raise ValueError
        return Outcome(
            kind,
            decode(value) if kind == "returned" else str(value["text"])[:MOST_WORDS],
            decode(message["inputs"]),
            _where(message["where"]),
            _pairs(message["reads"][:4]),
            str(message["code"])[:MOST_WORDS],
        )
    except Exception:
        return Outcome("too slow" if message == TOO_SLOW else "died")


def _where(said: dict) -> dict[str, Any]:
    if not said:
        return {}
    texts = {key: str(said[key])[: trace.MOST] for key in ("function", "text", "part", "near")}
    return texts | {"line": int(said["line"]), "names": _pairs(said["names"][:8])}


def _pairs(said: list) -> tuple[tuple[str, str], ...]:
    return tuple((str(name)[: trace.MOST], str(what)[: trace.MOST]) for name, what in said)


TOO_SLOW, DIED = {"kind": "too slow"}, {"kind": "died"}


def try_all(run: Run, answer: Any, problems: list[tuple], refused: list[Any]) -> list[Outcome]:
    """An outcome for each problem; ``refused`` are functions that raise when the answer calls them."""
    isolated = sys.platform == "linux"
    messages = (in_a_child if isolated else in_this_process)(run, answer, problems, refused)
    return [read(message) for message in messages]


# In a child process


def in_a_child(run: Run, answer: Any, problems: list[tuple], refused: list[Any]) -> list[Any]:
    """A message for each problem, read as soon as it is there.

    The kernel of the system ends a child that has computed for ``SECONDS``: how busy the machine is decides
    nothing. One that waits is killed by the clock.
    """
    reading, writing = os.pipe()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a kernel has threads; the child uses none
        child = os.fork()
    if child == 0:
        _be_the_child(run, answer, problems, refused, writing)
    os.close(writing)
    received, timed_out = b"", True
    deadline = time.monotonic() + PATIENCE * SECONDS
    try:
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([reading], [], [], left)[0]:
                break
            chunk = os.read(reading, 1 << 20)
            if not chunk:
                timed_out = False
                break
            received += chunk
            if received.count(b"\n") >= len(problems):  # something that it started may still hold the pipe
                timed_out = False
                break
    finally:
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(OSError):
                kill(child, signal.SIGKILL)
        os.close(reading)
        with contextlib.suppress(ChildProcessError):
            _, status = os.waitpid(child, 0)
            timed_out |= os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
    messages = []
    for line in received.split(b"\n")[:-1][: len(problems)]:
        try:
            messages.append(json.loads(line))
        except ValueError:  # bytes that the answer wrote itself
            messages.append(DIED)
    return messages + [TOO_SLOW if timed_out else DIED] * (len(problems) - len(messages))


def _be_the_child(run: Run, answer: Any, problems: list[tuple], refused: list[Any], pipe: int) -> None:
    """Never returns."""
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGXCPU):
            signal.signal(number, signal.SIG_DFL)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        os.closerange(3, pipe)  # the kernel's sockets and files, so that nothing can be written there
        os.closerange(pipe + 1, 65536)
        limit_memory(MEMORY)
        limit_time(SECONDS)
        torch.set_num_threads(1)
        with _silent(), refusing(refused):
            for arguments in problems:
                line = json.dumps(attempt(run, answer, arguments)).encode() + b"\n"
                while line:
                    line = line[os.write(pipe, line) :]
    finally:
        os._exit(0)


def limit_memory(more: int) -> None:
    """This process and those that it starts may take ``more`` bytes on top of what it has. For good.

    Where the system does not say how much it has, the limit that it was started with stands.
    """
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not Path("/proc/self/statm").exists():
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    used = pages * os.sysconf("SC_PAGE_SIZE")
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = used + more if hard < 0 else min(used + more, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def limit_time(seconds: float) -> None:
    """This process may compute for so many seconds, rounded up. For good."""
    import resource

    whole = math.ceil(seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (whole, whole + 1))


# In this process


class _TooSlow(BaseException):
    """Raised by the timer."""


def in_this_process(run: Run, answer: Any, problems: list[tuple], refused: list[Any]) -> list[Any]:
    """The same with what a platform without a safe fork has; see the top of this module."""
    messages = []
    with _same_torch(), _silent(), refusing(refused), contextlib.suppress(_TooSlow), _timer():
        for arguments in problems:
            messages.append(attempt(run, answer, arguments))
    return messages + [TOO_SLOW] * (len(problems) - len(messages))


@contextlib.contextmanager
def _timer() -> Iterator[None]:
    """Interrupts the main thread, again and again, in case the answer swallows the first."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise _TooSlow

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS, 0.05)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _same_torch() -> Iterator[None]:
    """PyTorch's global state, put back."""
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
    """Takes what is printed and keeps nothing."""

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


class Refused(Exception):
    """The answer called the finished function that it should build."""


def refuse() -> NoReturn:
    """What a refused function does."""
    raise Refused


# Put in the place of a refused function's code, so it finds nothing but what it imports.
_REFUSE = (lambda *_, **__: __import__("mha_lab.check.sandbox", fromlist=["refuse"]).refuse()).__code__


@contextlib.contextmanager
def refusing(functions: list[Any]) -> Iterator[None]:
    """Under whatever name the answer has imported them, these functions raise ``Refused``."""
    found = []
    for function in functions:
        while function is not None:
            if hasattr(function, "__code__") and not function.__code__.co_freevars:
                found.append((function, function.__code__))
            function = getattr(function, "__wrapped__", None)
    for function, _ in found:
        function.__code__ = _REFUSE
    try:
        yield
    finally:
        for function, code in found:
            function.__code__ = code
