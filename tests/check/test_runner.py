"""Whatever an answer does, ``check`` returns, nothing here has changed, and nothing unearned is earned."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import mha_lab
from mha_course.checker import check, diagnosis, runner
from mha_course.checker.runner import Plain, decode, encode, in_a_child, in_this_process
from mha_course.exercises import Rng, find
from mha_course.exercises.split_heads import split_heads as solution
from mha_lab.heads import split_heads as finished
from tests.check.corpus import named

linux = pytest.mark.skipif(sys.platform != "linux", reason="the child process is Linux only")


def state():
    """All that an answer must not change."""
    numbers = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_rng_state().tolist()
    functions = torch.matmul, mha_lab.split_heads.__code__
    return numbers, functions, torch.get_num_threads(), threading.active_count(), sys.stdout, Path.cwd()


@pytest.fixture
def unchanged():
    """Asks after the test whether all is as it was before."""
    before = state()
    yield
    assert state() == before


def checked(function):
    """``check``'s verdict on this answer to ``split_heads``."""
    return check(named(function, "split_heads"))


def right(x, h):
    return x.reshape(*x.shape[:2], h, -1).transpose(1, 2)


def bare(x, h):
    return x.reshape(x.shape[0], h, x.shape[1], -1)


class Liar(torch.Tensor):
    """Says that it is equal to everything and of any shape."""

    shape = property(lambda self: torch.Size([1, 2, 3, 2]))

    def __eq__(self, other):
        return torch.ones((), dtype=torch.bool)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return True


def raises(error):
    def answer(x, h):
        raise error

    return answer


def patches(x, h):
    torch.equal = torch.allclose = lambda *a, **k: True
    torch.Tensor.__eq__ = lambda *a: True
    torch.Tensor.reshape = lambda self, *a: self
    return torch.zeros(1)


def floods(x, h):
    for _ in range(20_000):
        print("x" * 1000)
    os.write(1, b"x" * 10_000)
    return bare(x, h)


def changes_everything(x, h):
    torch.set_default_dtype(torch.float16)
    torch.set_grad_enabled(False)
    torch.manual_seed(7)
    torch.set_num_threads(1)
    os.chdir("/")
    return bare(x, h)


def swallows(x, h):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass


def swallows_once():
    try:
        while True:
            pass
    except BaseException:
        while True:
            pass


def looks_around(x, h):
    """Searches the stack and the heap for the expected tensor."""
    for item in gc.get_objects():
        if isinstance(item, tuple) and len(item) == 3 and isinstance(item[1], Plain):
            return torch.from_numpy(item[1].array.copy())
    frame = sys._getframe()
    while frame is not None:
        for value in frame.f_locals.values():
            if isinstance(value, torch.Tensor) and value.shape == (len(x), h, x.shape[1], x.shape[2] // h):
                return value
        frame = frame.f_back
    return x


FORGED = b'{"kind": "returned", "value": {"number": "True"}, "inputs": {"sequence": []}}\n'


def writes_to_the_pipe(x, h):
    for number in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(number, FORGED * 9)
    return bare(x, h)


ERRORS = [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseException("x" * 10**6), StopIteration()]
ERRORS += [NotImplementedError("no such kernel")]
HOSTILE = {type(error).__name__: (raises(error), "raises") for error in ERRORS}
HOSTILE |= {
    "RecursionError": (lambda x, h: (lambda f: f(f))(lambda f: f(f)), "raises"),
    "no memory": (lambda x, h: torch.ones(10**13), "raises"),
    "no memory, in a list": (lambda x, h: [0] * 10**12, "raises"),
    "a big result": (lambda x, h: torch.zeros(10**7), "wrong-shape"),
    "a string": (lambda x, h: "right", "wrong-shape"),
    "a class": (lambda x, h: torch.Tensor, "wrong-shape"),
    "True": (lambda x, h: True, "wrong-shape"),
    "None": (lambda x, h: None, "returns-nothing"),
    "a list of itself": (lambda x, h: [h] * 9, "wrong-shape"),
    "a sparse tensor": (lambda x, h: x.to_sparse(), "wrong-shape"),
    "a tensor nowhere": (lambda x, h: torch.empty(3, device="meta"), "wrong-shape"),
    "input": (lambda x, h: input("give me points"), "raises"),
    "a liar": (lambda x, h: torch.zeros(1).as_subclass(Liar), "wrong-shape"),
    "a flood": (floods, "view-without-transpose"),
    "the finished function": (lambda x, h: finished(x, h), "calls-the-finished-one"),
    "the solution": (lambda x, h: solution(x, h), "calls-the-finished-one"),
    "the solution by the exercise": (lambda x, h: find("split_heads").answer(x, h), "calls-the-finished-one"),
    "check itself": (lambda x, h: diagnosis.diagnose, "wrong-shape"),
    "changes everything": (changes_everything, "view-without-transpose"),
    "looks around": (looks_around, None),
}
ONLY_IN_A_CHILD = {
    "patches PyTorch": (patches, "wrong-shape"),
    "ends Python": (lambda x, h: os._exit(0), "raises"),
    "kills itself": (lambda x, h: os.kill(os.getpid(), 9), "raises"),
    "aborts": (lambda x, h: os.abort(), "raises"),
    "writes to the pipe": (writes_to_the_pipe, None),
}


# Where there is no child, there is no limit of memory.
PLACES = [(name, "a child") for name in HOSTILE]
PLACES += [(name, "this process") for name in HOSTILE if not name.startswith("no memory")]
PLACES += [pytest.param(name, "a child", marks=linux) for name in ONLY_IN_A_CHILD]


@pytest.mark.parametrize(("name", "where"), PLACES)
def test_it_survives_and_earns_nothing(name, where, monkeypatch, unchanged):
    function, mistake = (HOSTILE | ONLY_IN_A_CHILD)[name]
    folder = Path.cwd()
    if where == "this process":
        monkeypatch.setattr(runner, "in_a_child", in_this_process)
    score = checked(function)
    if where == "this process":  # the folder is not put back there
        os.chdir(folder)
    assert (score, score.passed) == (0, False)
    assert score.diagnosis == mistake or mistake is None
    assert len(score.message) < 4000


@linux
@pytest.mark.parametrize(
    "function", [swallows, lambda x, h: time.sleep(600), lambda x, h: sum(range(10**12))]
)
def test_an_answer_that_never_returns_is_stopped_when_its_time_is_over(monkeypatch, function, unchanged):
    monkeypatch.setattr(runner, "SECONDS", 1.0)
    monkeypatch.setattr(runner, "PATIENCE", 2)
    start = time.monotonic()
    assert checked(function).diagnosis == "too-slow"
    assert time.monotonic() - start < 100, "not stopped after 2 seconds, or this machine is too slow"
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@linux
def test_the_processors_time_counts_and_not_the_clock(monkeypatch):
    monkeypatch.setattr(runner, "SECONDS", 1.0)
    monkeypatch.setattr(runner, "PATIENCE", 300)
    start = time.monotonic()
    assert checked(lambda x, h: (time.sleep(0.4), right(x, h))[1]).passed  # on each problem
    assert time.monotonic() - start > 1


def test_without_a_child_a_timer_stops_it(monkeypatch, unchanged):
    monkeypatch.setattr(runner, "SECONDS", 0.3)
    monkeypatch.setattr(runner, "in_a_child", in_this_process)
    assert checked(lambda x, h: [None for _ in iter(int, 1)]).diagnosis == "too-slow"
    assert checked(lambda x, h: time.sleep(600)).diagnosis == "too-slow"


def test_without_a_child_the_processors_time_counts_too(monkeypatch):
    monkeypatch.setattr(runner, "SECONDS", 0.3)
    monkeypatch.setattr(runner, "PATIENCE", 1000)
    monkeypatch.setattr(runner, "in_a_child", in_this_process)
    assert checked(lambda x, h: (time.sleep(0.4), right(x, h))[1]).passed


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no such timer")
def test_an_alarm_while_the_timer_is_switched_off_interrupts_nothing(monkeypatch, unchanged):
    """A second alarm follows the first after 0.05 seconds; on a busy machine, switching off takes longer."""
    switch, before = signal.setitimer, signal.getsignal(signal.SIGALRM)

    def slowly(which, seconds, *interval):
        if not seconds:
            time.sleep(0.2)
        return switch(which, seconds, *interval)

    monkeypatch.setattr(runner, "SECONDS", 0.1)
    monkeypatch.setattr(signal, "setitimer", slowly)
    try:
        messages = in_this_process(lambda f, a: f(*a), swallows_once, [(), ()], [])
        assert [message["kind"] for message in messages] == ["too slow"] * 2
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
        assert signal.getsignal(signal.SIGALRM) is before
    finally:
        switch(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@linux
def test_what_an_answer_started_is_stopped_too(tmp_path):
    beats = tmp_path / "beats"

    def leaves_a_process(x, h):
        if os.fork() == 0:
            for beat in range(2000):
                beats.write_text(str(beat))
                time.sleep(0.05)
            os._exit(0)
        while not beats.exists():
            time.sleep(0.01)
        return bare(x, h)

    checked(leaves_a_process)
    time.sleep(0.5)
    last = beats.read_text()
    time.sleep(0.5)
    assert beats.read_text() == last


@pytest.mark.parametrize("run", [in_a_child, in_this_process])
def test_refused_functions_work_again_afterwards(run):
    x = torch.randn(2, 3, 4)
    messages = run(lambda f, a: f(*a), mha_lab.split_heads, [(x, 2)], [mha_lab.split_heads])
    assert messages[0]["value"]["text"].startswith("Refused")
    assert mha_lab.split_heads(x, 2).shape == (2, 2, 3, 2)


def test_finished_functions_are_allowed_where_they_are_not_the_exercise():
    def per_head_weights(query, key, num_heads):
        split = [mha_lab.split_heads(x, num_heads) for x in (query, key)]
        return mha_lab.masked_softmax(mha_lab.scaled_dot_product_scores(*split))

    assert check(per_head_weights).passed


def test_the_learners_seed_is_neither_used_nor_moved():
    state = torch.get_rng_state()
    seen = []
    for _ in range(2):
        torch.set_rng_state(state)
        seen.append([x.tolist() for x, _ in find("split_heads").problems(Rng())])
        checked(right)
        assert torch.equal(torch.get_rng_state(), state)
    assert seen[0][0] == seen[1][0]
    assert seen[0][1:] != seen[1][1:]


@pytest.mark.parametrize("value", [None, True, 3, 2.5, float("inf")])
def test_results_come_back_as_they_were(value):
    back = decode(encode((value, [value])))
    assert [(item, type(item)) for item in (back[0], back[1][0])] == [(value, type(value))] * 2


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", [(2, 3), (0, 2)])
def test_tensors_come_back_as_they_were(shape, dtype):
    value = torch.randn(shape).to(getattr(torch, dtype))
    for item in decode(encode((value, value))):
        assert (item.dtype, item.array.tolist()) == (dtype, value.tolist())


COLD = """
import torch
from torch.func import jacrev
from mha_course.checker import check, runner
runner.PATIENCE = 100  # the processor's time counts

def leaks_future(attention, n, d_model):
    leaks = lambda x: jacrev(attention)(x).abs().sum((1, 3)).triu(1).max() > 0
    return any(leaks(torch.randn(n, d_model)) for _ in range(20))

print(check(leaks_future).passed)
"""


@linux
def test_what_is_slow_only_the_first_time_in_a_process_still_counts():
    """The first ``jacrev`` of a process loads PyTorch's compiler, which takes seconds."""
    ran = subprocess.run([sys.executable, "-c", COLD], capture_output=True, text=True, timeout=300)
    assert ran.stdout.splitlines()[-1:] == ["True"], ran.stdout + ran.stderr
