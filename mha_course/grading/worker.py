"""Runs a submission's cells inside the sandbox, and tries its functions. Nothing it says is trusted.

It reads one JSON object from standard input: ``{"steps": [...], "exercises": {name: {"seed": n, "sent":
problems}}, "seconds": s, "room": characters, "brief": bool}``, where a step is ``{"run": source, "skip":
[names], "shown": bool}`` or ``{"check": name, "skip": [names]}``; if ``brief``, only imports and definitions
are run. It writes JSON lines to standard output: ``{"step": i}`` when step ``i`` begins, ``{"step": i,
"outputs": [...]}`` if no earlier run has ``shown`` them, and for each exercise that is tried ``{"step": i,
"trying": name}`` and ``{"step": i, "tried": name, "messages": [...], "calls": [names], "fixed": [...]}``; the
last line is ``{"end": fingerprint}``. ``fixed`` is what comes out when the exercises that the function
``calls`` are solved. The expected results are not in here.
"""

import ast
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, set_default_device

import mha_course.checker
from mha_course.checker import CheckResult, trace
from mha_course.checker import _find as asked
from mha_course.checker.child import limit_memory
from mha_course.checker.runner import PATIENCE, Plain, decode, encode, in_a_child
from mha_course.exercises import Exercise, Rng, copies, find
from mha_course.grading import below
from mha_course.grading.sandbox import MEMORY, fingerprint
from mha_course.grading.source import below_head, readable

MAX_TRIES = 30  # definitions of one function
MAX_TEXT = 20_000  # characters of one output
MAX_PICTURE = 2_000_000
MAX_OUTPUTS = 20  # of one cell
MAX_SHOWN = 16 * 2**20  # characters of all outputs together: results of functions need room, too
MAX_LINE = 4 * 2**20  # bytes of one line: parsed as JSON, it may take a hundred times as much memory
TOO_MUCH = "Too much output; it was left out.\n"
LEFT_SECONDS = 5  # for what is left of a cell after an error


def encode_problem(arguments: tuple) -> list:
    """A problem as JSON; ``None`` for what is neither a tensor nor a number, such as a function."""
    return [encode(a) if isinstance(a, Tensor | int | float) else None for a in arguments]


def _problems(exercise: Exercise, seed: int, sent: list[list]) -> Iterator[tuple]:
    """The problems that were sent; what could not be sent is drawn from the same seed."""
    for drawn, arguments in zip(exercise.problems(Rng(seed)), sent, strict=True):
        yield copies(tuple(a if b is None else _argument(b) for a, b in zip(drawn, arguments, strict=True)))


def _argument(sent: dict) -> Any:
    value = decode(sent)
    if isinstance(value, Plain):
        return torch.from_numpy(value.array.copy()).to(getattr(torch, value.dtype))
    return value


class _TooSlow(BaseException):
    """A cell ran too long; a loop with ``except Exception`` does not catch this."""


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """A limit of computing time, and a longer one by the clock.

    A cell that catches the exception and continues ends the worker; then the rest runs without it.
    """
    told = False

    def stop(*_: object) -> None:
        nonlocal told
        if told:
            os._exit(1)
        told = True
        raise _TooSlow(f"this cell was stopped after {seconds:g} seconds")

    timers = (signal.ITIMER_PROF, signal.SIGPROF, 1), (signal.ITIMER_REAL, signal.SIGALRM, PATIENCE)
    for timer, number, times in timers:
        signal.signal(number, stop)
        signal.setitimer(timer, times * seconds, 1.0)
    try:
        yield
    finally:
        for timer, _, _ in timers:
            signal.setitimer(timer, 0)


def _shell(brief: bool = False) -> Any:
    """IPython without a kernel: no history, no files. If ``brief``, it runs imports and definitions only."""
    from IPython.core.displayhook import DisplayHook
    from IPython.core.history import HistoryManager
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.core.pylabtools import print_figure

    class ShowsResults(DisplayHook):
        """A cell's result is an output like any other, not a print."""

        def write_output_prompt(self) -> None:
            pass

        def write_format_data(self, format_dict: dict, md_dict: dict | None = None) -> None:
            self.shell.display_pub.publish(data=format_dict, metadata=md_dict)

        def finish_displayhook(self) -> None:
            self._is_active = False

    class Shell(InteractiveShell):
        """A notebook in which a line that fails costs no definition that stands below it."""

        ran: Callable[[], None] = staticmethod(lambda: None)  # called when a statement has run

        def enable_gui(self, gui: str | None = None) -> None:
            """`%matplotlib inline` works, as in a notebook."""

        def transform_cell(self, raw_cell: str) -> str:
            return super().transform_cell(readable(below_head(raw_cell)))

        def run_line_magic(self, magic_name: str, line: str, _stack_depth: int = 1) -> Any:
            """As in a notebook, but an error is only shown."""
            try:
                return super().run_line_magic(magic_name, line, _stack_depth + 1)
            except Exception:
                self.showtraceback()

        async def run_ast_nodes(
            self,
            nodelist: list[ast.stmt],
            cell_name: str,
            interactivity: str = "last_expr",
            compiler: Callable[..., Any] = compile,
            result: Any = None,
        ) -> bool:
            """As in a notebook; after an error, what binds names is still run."""
            if brief:
                self._run_left(nodelist, cell_name, 0)
                return False
            earlier = interactivity if interactivity == "all" else "none"
            for i, node in enumerate(nodelist, 1):
                how = interactivity if i == len(nodelist) else earlier
                failed = await super().run_ast_nodes([node], cell_name, how, compiler, result)
                self.ran()
                if failed:
                    error = getattr(result, "error_in_exec", None)
                    line = below.failed_at(getattr(error, "__traceback__", None), cell_name)
                    self._run_left([*self._inside(node, line), *nodelist[i:]], cell_name, LEFT_SECONDS)
                    return True
            return False

        def _inside(self, node: ast.stmt, line: int) -> list[ast.stmt]:
            """What is left of a statement that failed at a line."""
            return below.inside(node, line) if isinstance(node, below.BLOCK) else below.without(node)[:1]

        def _run_left(self, nodes: list[ast.stmt], cell_name: str, seconds: float) -> None:
            """Each import, definition and assignment, whether or not those before it fail.

            After ``seconds``, only those that are quick. Errors are not shown: the first one has led to them.
            """
            end = time.monotonic() + seconds
            for node in filter(None, map(below.kept, nodes)):
                left = LEFT_SECONDS if below.is_quick(node) else end - time.monotonic()
                line = self._line_of_error(node, cell_name, left) if left > 0 else 0
                if line is None:
                    continue
                if isinstance(node, below.BLOCK):
                    self._run_left(below.inside(node, line), cell_name, end - time.monotonic())
                elif left > 0:
                    others = below.without(node)
                    next((o for o in others if self._line_of_error(o, cell_name, left) is None), None)

        def _line_of_error(self, node: ast.stmt, cell_name: str, seconds: float) -> int | None:
            """Run a statement; ``None`` if all went well, and 0 for an error without a line."""
            try:
                with _time_limit(min(seconds, LEFT_SECONDS)):
                    exec(self.compile(ast.Module([node], []), cell_name, "exec"), self.user_ns)
            except BaseException as error:
                return below.failed_at(error.__traceback__, cell_name)
            finally:
                self.ran()
            return None

    HistoryManager.enabled = False
    shell = Shell.instance(colors="NoColor", xmode="Minimal", displayhook_class=ShowsResults)
    # By its name: most submissions draw nothing, and Matplotlib takes half a second to load.
    draw = partial(print_figure, fmt="png", base64=True)
    shell.display_formatter.formatters["image/png"].for_type_by_name("matplotlib.figure", "Figure", draw)
    shell.user_ns["__name__"] = "__main__"
    return shell


def _run(shell: Any, source: str, seconds: float, room: int) -> list[dict]:
    """A cell's outputs as a notebook stores them; only plain text and pictures are kept.

    What does not fit into ``room`` characters, and into one line, is left out.
    """
    from IPython.utils.capture import capture_output

    with capture_output() as captured, contextlib.suppress(_TooSlow), _time_limit(seconds):
        shell.run_cell(source)
    outputs = []
    if text := (captured.stdout + captured.stderr)[:MAX_TEXT]:
        outputs.append({"stream": text})
    for output in captured.outputs[:MAX_OUTPUTS]:
        text, picture = output.data.get("text/plain"), output.data.get("image/png")
        kept = {"text/plain": text[:MAX_TEXT]} if isinstance(text, str) else {}
        if isinstance(picture, str) and len(picture) < MAX_PICTURE:
            kept["image/png"] = picture
        outputs.append({"display": kept})
    return _fitting(outputs, min(room, MAX_LINE - 1000))


def _fitting(outputs: list[dict], room: int) -> list[dict]:
    """The outputs for which there is room."""
    fitting = []
    for output in outputs:
        taken = len(json.dumps(output)) + 2  # and a comma
        if taken <= room:
            fitting.append(output)
            room -= taken
    return fitting if len(fitting) == len(outputs) else [*fitting, {"stream": TOO_MUCH}]


class _Tries:
    """The functions that the cells define under an exercise's name.

    Each definition is tried as soon as it exists, and once more at the check if there is a cell between:
    that cell may define what the function needs.
    """

    def __init__(self, shell: Any, exercises: dict[str, dict], say: Callable[..., None]) -> None:
        self._shell, self._say = shell, say
        # Drawn before a cell changes what PyTorch does: its default device, for example.
        self._problems = {name: list(_problems(find(name), **sent)) for name, sent in exercises.items()}
        self._found: dict[str, list] = {name: [] for name in exercises}
        self._just: set[str] = set()  # tried since the last cell
        self._seen: dict[str, Any] = {}  # what a name was bound to, or checked, last in this cell
        self._unfinished: dict[str, Any] = {}  # the last definition that missed a name

    def after(self, step: int, skip: list[str]) -> None:
        """Tries what this cell has defined."""
        self._just = set()
        for name, found in self._found.items():
            answer = self._shell.user_ns.get(name)
            answer = answer if callable(answer) else self._seen.get(name)
            if callable(answer) and not any(answer is one for one in found) and len(found) < MAX_TRIES:
                found.append(answer)
                self._try(step, name, answer, skip)
        self._seen = {}

    def see(self) -> None:
        """Keeps the functions of a cell, whose names it may give away: ``f = f(x, 2)``.

        A device that the cell has chosen for all tensors, such as a GPU, is not here.
        """
        set_default_device(None)
        space = self._shell.user_ns
        self._seen |= {name: space[name] for name in self._found if callable(space.get(name))}

    def asked(self, answer: Any) -> CheckResult:
        """Replaces ``check``: what is asked about is an answer, too, wherever it stands."""
        result = _elsewhere(answer)
        self._seen[answer.__name__] = answer
        return result

    def at_check(self, step: int, name: str, skip: list[str]) -> None:
        """Tries what the name is bound to here."""
        answer = self._shell.user_ns.get(name)
        if name not in self._just and callable(answer):
            self._try(step, name, answer, skip)

    def at_the_end(self, step: int, skip: list[str]) -> None:
        """Tries once more the functions that missed a name: a later cell may have defined it."""
        for name, answer in list(self._unfinished.items()):
            self._try(step, name, answer, skip)

    def _try(self, step: int, name: str, answer: Any, skip: list[str]) -> None:
        self._just.add(name)
        if name in skip:
            return
        self._say(step=step, trying=name)
        exercise, arguments = find(name), self._problems[name]
        messages = in_a_child(exercise.apply, answer, arguments, exercise.refused)
        fixed, calls = [], self._calls(name, answer)
        if calls:
            self._say(step=step, trying=name)  # it is not blocked: this takes as long once more
            apply = self._with_solutions(exercise, calls)
            fixed = in_a_child(apply, answer, arguments, exercise.refused)
        if any("NameError" in str(message.get("value", {}).get("text")) for message in messages):
            self._unfinished[name] = answer
        elif self._unfinished.get(name) is answer:
            del self._unfinished[name]
        self._say(step=step, tried=name, messages=messages, calls=calls, fixed=fixed)

    def _calls(self, name: str, answer: Any) -> list[str]:
        """The other exercises whose functions, written in this notebook, this one may call."""
        space, found, left = self._shell.user_ns, set(), [answer]
        with contextlib.suppress(Exception, _TooSlow), _time_limit(1):
            while left:
                own = {n for n in trace.uses(left.pop()) if _is_own(space.get(n))} - found
                found |= own
                left += [space[n] for n in own]
        return sorted(found & self._problems.keys() - {name})

    def _with_solutions(self, exercise: Exercise, called: list[str]) -> Callable[[Any, tuple], Any]:
        """Applies an answer among solutions of the exercises that it calls; only to be called in a child."""

        def apply(answer: Any, arguments: tuple) -> Any:
            self._shell.user_ns.update({name: find(name).answer for name in called})
            return exercise.apply(answer, arguments)

        return apply


def _is_own(value: Any) -> bool:
    """Whether this is a function that a cell has defined."""
    return isinstance(value, FunctionType) and value.__module__ == "__main__"


def _elsewhere(answer: Any) -> CheckResult:
    """Replaces ``check``, whose report would look like the grader's; as if nothing were written yet."""
    exercise = asked(answer)
    message = f"The report on {exercise.name} is at its graded check."
    print(message)
    return CheckResult(exercise, None, message)


def main() -> None:
    """Run the steps in order."""
    request = json.load(sys.stdin)
    said = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    limit_memory(MEMORY)
    torch.set_num_threads(1)
    os.environ["MHA_LAB_PROGRESS"] = "0"  # what a submission solves is not the teacher's progress

    def say(**line: Any) -> None:
        print(json.dumps(line), file=said, flush=True)

    shell = _shell(request.get("brief", False))
    tries, room = _Tries(shell, request["exercises"], say), request.get("room", MAX_SHOWN)
    shell.ran, mha_course.checker.check = tries.see, tries.asked
    for i, step in enumerate(request["steps"]):
        say(step=i)
        if "check" in step:
            tries.at_check(i, step["check"], step["skip"])
        else:
            outputs = _run(shell, step["run"], request["seconds"], room)
            if not step.get("shown"):  # by an earlier run
                room -= len(json.dumps(outputs))
                say(step=i, outputs=outputs)
            tries.after(i, step["skip"])
    tries.at_the_end(len(request["steps"]) - 1, request["steps"][-1]["skip"] if request["steps"] else [])
    say(end=fingerprint())


if __name__ == "__main__":
    main()
