"""Finds the name of the mistake from an answer's results."""

import inspect
import re
import warnings
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from mha_lab.check import errors, observe, trace
from mha_lab.check.runner import CHANGEABLE, Outcome, compute
from mha_lab.exercises import Exercise
from mha_lab.exercises import _results as compare
from mha_lab.exercises._results import plain


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with one answer: ``name`` is ``None`` if it is right.

    ``seen`` was computed from the answer's own result; ``cause`` explains it, and is empty if no known
    cause does. ``note`` says which names of the notebook the answer's code uses. ``example`` is
    ``(arguments, expected, got)`` of the smallest problem for which it is wrong.
    """

    name: str | None
    seen: str = ""
    cause: str = ""
    section: str = ""
    example: tuple[tuple, Any, Any] | None = None
    note: str = ""


def diagnose(exercise: Exercise, problems: list[tuple], outcomes: list[Outcome]) -> Diagnosis | None:
    """The diagnosis of an answer with these outcomes; ``None`` if it is still the stub."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _Case(exercise, problems, outcomes).diagnosis()


HALF = "Your result is right only to the accuracy of {}; float32 is expected."


def _has(what: str) -> str:
    return f"has {what}" if what.startswith("shape ") else f"is {what}"


class _Case:
    """One answer's outcomes and the expected results; each method looks for one kind of explanation."""

    def __init__(self, exercise: Exercise, problems: list[tuple], outcomes: list[Outcome]) -> None:
        self.exercise, self.problems, self.outcomes = exercise, problems, outcomes
        self.expected = [self._of(exercise.answer, p).value for p in problems]
        self.wrong = [i for i in range(len(problems)) if not self._right(i)]
        returned = [i for i in self.wrong if outcomes[i].kind == "returned"]
        self.shown = self._clearest(returned or self.wrong or [0])

    def diagnosis(self) -> Diagnosis | None:
        exercise, first = self.exercise, self.outcomes[0]
        if first.kind == "stub" or (exercise.bug and first.code == trace.fingerprint(exercise.bug)):
            return None
        if not self.wrong:
            return self._changed() or self._foreign() or Diagnosis(None)
        ways = (
            self._stopped,
            self._refused,
            self._known,
            self._raised,
            self._nothing,
            self._explained,
            self._bug,
            self._shape,
            self._half,
            self._exclusive_or,
            self._notebook,
            self._pattern,
        )
        found = next(filter(None, (way() for way in ways)), None)
        return found or self._say("wrong", self.seen(), "")

    # What is right

    def _of(self, answer: Any, arguments: tuple) -> Outcome:
        return compute(self.exercise, answer, arguments)

    def _right(self, i: int) -> bool:
        outcome = self.outcomes[i]
        if outcome.kind != "returned":
            return False
        if self.exercise.accepts is not None:
            return self.exercise.accepts(outcome.value, *self.problems[i]) is None
        return compare.same(self.expected[i], outcome.value)

    def _clearest(self, candidates: list[int]) -> int:
        """The first that can be printed whole, or else the smallest."""
        sizes = {i: compare.sizes(self.problems[i]) for i in candidates}
        whole = [i for i in candidates if max(sizes[i], default=0) <= compare.MAX_SHOWN]
        return whole[0] if whole else min(candidates, key=lambda i: sum(sizes[i]))

    def _changed(self) -> Diagnosis | None:
        names = inspect.signature(self.exercise.answer).parameters
        for problem, outcome in zip(self.problems, self.outcomes, strict=True):
            given = [pair for pair in zip(names, problem, strict=False) if isinstance(pair[1], CHANGEABLE)]
            for (name, before), after in zip(given, outcome.inputs, strict=False):
                if not compare.same(plain(before), after, 0.0):
                    says = f"The result is right, but your function changes its argument `{name}`."
                    example = problem, plain(before), after
                    return Diagnosis("changes-its-input", says, "", self.exercise.section, example)
        return None

    # What is said

    def _foreign(self) -> Diagnosis | None:
        """Where a function gets arguments and returns numbers, tensors are asked for, in single precision.

        Numbers that are typed by hand, and places, may be in a list or a NumPy array.
        """
        if not inspect.signature(self.exercise.answer).parameters:
            return None
        for expected, outcome in zip(self.expected, self.outcomes, strict=True):
            if (source := compare.foreign(expected, outcome.value)) in compare.HALVES:
                return Diagnosis("wrong-dtype", HALF.format(source), "", self.exercise.section)
            if source:
                says = f"The numbers are right, but your function returns {source}, not a tensor."
                why = "PyTorch computes no gradient through a NumPy array or a list."
                return Diagnosis("not-a-tensor", says, why, self.exercise.section)
        return None

    def seen(self) -> str:
        """What was observed in the result that is shown."""
        i = self.shown
        if self.outcomes[i].kind != "returned":
            return ""
        if self.exercise.accepts is not None:
            return self.exercise.accepts(self.outcomes[i].value, *self.problems[i])[1]
        return observe.seen(self.expected[i], self.outcomes[i].value, self.exercise.results)

    def _say(self, name: str, seen: str, cause: str, section: str = "") -> Diagnosis:
        i = self.shown
        got = self.outcomes[i]
        example = (self.problems[i], self.expected[i], got.value) if got.kind == "returned" else None
        return Diagnosis(name, seen, cause, section or self.exercise.section, example, self._reads())

    def _reads(self) -> str:
        """The notebook's names that the function uses and that are not its arguments."""
        names = [f"`{name}`, which {_has(what)}" for name, what in self.outcomes[0].reads]
        if not names:
            return ""
        arguments = inspect.signature(self.exercise.answer).parameters
        where = "is in its arguments" if arguments else "must be inside the function"
        return f"Your function uses the notebook's {' and '.join(names)}. Everything that it needs {where}."

    # Ways to explain it

    def _stopped(self) -> Diagnosis | None:
        kinds = {self.outcomes[i].kind for i in self.wrong}
        if "too slow" in kinds:
            return self._say(
                "too-slow",
                "Your function did not return in time, and was stopped.",
                "Is there an endless loop?",
            )
        if "died" in kinds:
            return self._say(
                "raises",
                "The process that ran your function died.",
                "Did it use too much memory, or exit Python?",
            )
        return None

    def _refused(self) -> Diagnosis | None:
        raised = [o.value for o in self.outcomes if o.kind == "raised"]
        names = [value.removeprefix("Refused\n") for value in raised if value.startswith("Refused\n")]
        if not names:
            return None
        which = f"the finished `{names[0]}`, which" if names[0].replace(".", "").isidentifier() else "what"
        says = f"Your function calls {which} this exercise asks you to write yourself."
        return self._say("calls-the-finished-one", says, "Write it from smaller pieces.")

    def _known(self) -> Diagnosis | None:
        """The mistakes whose code gives the same on every problem; two at once if no single one does."""
        for two in (False, True):
            some = {name: m for name, m in self.exercise.mistakes.items() if bool(m.of) == two}
            fitting = {name: m for name, m in some.items() if any(self._fits(v) for v in m.variants)}
            if fitting:
                break
        else:
            return None
        (name, mistake), *others = fitting.items()
        cause = mistake.says
        if others:
            cause = (
                "Two mistakes give exactly these results. " if len(others) == 1 else "Several mistakes fit. "
            )
            cause += " Or: ".join(m.says for m in fitting.values())
        if self.outcomes[self.shown].kind == "raised":
            return self._say(name, self._line(), cause, mistake.section)
        return self._say(name, self.seen(), cause, mistake.section)

    def _fits(self, variant: Any) -> bool:
        order = [self.shown, *(i for i in range(len(self.problems)) if i != self.shown)]
        return all(self._match(self.outcomes[i], self._of(variant, self.problems[i])) for i in order)

    @staticmethod
    def _match(one: Outcome, other: Outcome) -> bool:
        if one.kind != other.kind:
            return False
        if one.kind == "raised":
            return one.value == other.value
        return compare.same(other.value, one.value)

    def _raised(self) -> Diagnosis | None:
        raised = [i for i in self.wrong if self.outcomes[i].kind in ("raised", "stub")]
        if not raised:
            return None
        self.shown = self._clearest(raised)
        outcome = self.outcomes[self.shown]
        name, _, text = outcome.value.partition("\n")
        where = outcome.where
        if name == "NotImplementedError" and not text:
            stub = where.get("function") or "another function"
            says = f"Your function calls `{stub}`, which is not written yet: it raises NotImplementedError."
            return self._say("calls-a-stub", f"{says} Write that one first.", "")
        arguments = inspect.signature(self.exercise.answer).parameters
        if not where and "argument" in text:
            return self._say("raises", self._line(), f"`check` calls it with: {', '.join(arguments)}.")
        strangers = [n for n, _ in outcome.reads if re.search(rf"\b{re.escape(n)}\b", where.get("part", ""))]
        if strangers:
            both = " and ".join(f"`{name}`" for name in strangers)
            says = f"Here the notebook's {both} is combined with values from the arguments, and does not fit."
            says = says if arguments else f"Here the function uses the notebook's {both}."
            return self._say("uses-the-notebook", self._line(), says)
        if outcome.reads and name == "IndexError":
            says = "Is a size from the notebook used here, although the arguments have another one?"
            return self._say("uses-the-notebook", self._line(), says)
        first = errors.cause(name, text, where)
        front = self._in_front(raised, said="in front" in first or "one truth value" in first)
        causes = first, self._size(name, text), front
        return self._say("raises", self._line(), " ".join(filter(None, causes)))

    def _size(self, name: str, text: str) -> str:
        """For a size that the function has not read yet: which argument has it, if the docstring says so."""
        missing = re.search(r"name '(\w+)' is not defined", text) if name == "NameError" else None
        taken = (self.exercise.answer.__doc__ or "").split(" to ")[0]
        shapes = [group.replace(" ", "").split(",") for group in re.findall(r"\(([^()]*)\)", taken)]
        names = inspect.signature(self.exercise.answer).parameters
        for argument, value, shape in zip(names, self.problems[self.shown], shapes, strict=False):
            if missing and shape[-1] == missing[1] and isinstance(value, Tensor):
                return f"It is the last size of an argument: `{missing[1]} = {argument}.shape[-1]`."
        return ""

    def _in_front(self, raised: list[int], *, said: bool) -> str:
        """Whether the answer is right without a batch and raises with one, judged by the first argument.

        ``said``: what has been said already tells what to do about axes in front.
        """
        rank = [next((a.ndim for a in p if isinstance(a, Tensor)), 0) for p in self.problems]
        fine = [rank[i] for i in range(len(rank)) if i not in self.wrong]
        if not fine or max(fine) >= min(rank[i] for i in raised):
            return ""
        if any(rank[i] == max(fine) for i in self.wrong):
            return (
                f"If the first argument has {max(fine)} axes, your function raises no error, but its result "
                "is right for some sizes only. Often, such code contains a number that fits one example only."
            )
        says = "Your function works without a batch axis, and fails with one."
        if not max(fine):
            return "Your function works for single numbers, and fails for tensors with axes."
        if max(fine) > 2:
            says = f"Your function works if the first argument has {max(fine)} axes, and fails with more."
        advice = "Count axes from the end, as in `x.shape[-1]`: that works for 2 axes and for more."
        return says if said else f"{says} {advice}"

    def _line(self) -> str:
        """The line that raised, its text and its names, and what Python said."""
        outcome = self.outcomes[self.shown]
        where = outcome.where
        name, _, text = outcome.value.partition("\n")
        said = f"{name}: {text.strip() or 'no message'}"
        if not where:
            sizes = ", ".join(trace.brief(argument) for argument in self.problems[self.shown])
            return f"Your function raises, for arguments of {sizes}.\n  {said}"
        place = f"line {where['line']} of {where['function'] or 'your function'}"
        lines = [f"Your function raises in {place}:", f"    {where['text']}"]
        if where["part"] and where["part"] != where["text"]:
            lines.append(f"  at: {where['part']}")
        if where["names"]:
            lines.append("  where " + ", ".join(f"{name} {_has(what)}" for name, what in where["names"]))
        return "\n".join([*lines, f"  {said}"])

    def _nothing(self) -> Diagnosis | None:
        if not all(self.outcomes[i].value is None for i in self.wrong):
            return None
        return self._say(
            "returns-nothing", "Your function returns None.", "Is the line `return ...` missing?"
        )

    def _explained(self) -> Diagnosis | None:
        """The exercise's own explanation of all results together, or of this one."""
        exercise = self.exercise
        if exercise.explains is not None:
            told = exercise.explains(self.problems, [o.value for o in self.outcomes])
            if told is not None:
                name, cause = told
                section = exercise.mistakes[name].section if name in exercise.mistakes else ""
                return self._say(name, self.seen(), cause, section)
        if exercise.accepts is not None:
            name, seen = exercise.accepts(self.outcomes[self.shown].value, *self.problems[self.shown])
            mistake = exercise.mistakes.get(name)
            return self._say(name, seen, mistake.says if mistake else "", mistake.section if mistake else "")
        return None

    def _bug(self) -> Diagnosis | None:
        if self.exercise.bug is None or not self._fits(self.exercise.bug):
            return None
        says = "On every problem that was tried, your function still gives the same result as with the bug."
        return self._say("bug-still-there", self.seen(), says)

    def _shape(self) -> Diagnosis | None:
        if all(self._lined_up(i) for i in self.wrong):
            return None
        wrong = [i for i in self.wrong if not self._lined_up(i)]
        if self.shown not in wrong:
            self.shown = self._clearest(wrong)
        return self._say("wrong-shape", self.seen(), "")

    def _lined_up(self, i: int) -> bool:
        """As many results as expected, each of the expected shape and kind."""
        pairs = compare.parts(self.expected[i], self.outcomes[i].value)
        return pairs is not None and all(compare.shape(a) == compare.shape(b) for a, b in pairs)

    def _half(self) -> Diagnosis | None:
        """Booleans for numbers, or half precision."""
        pairs = [p for i in self.wrong for p in compare.parts(self.expected[i], self.outcomes[i].value)]
        arrays = [(compare.as_array(a), compare.as_array(b)) for a, b in pairs]
        if any(a is not None and b is not None and (a.dtype == bool) != (b.dtype == bool) for a, b in arrays):
            return self._say("wrong-dtype", self.seen(), "")
        if all(compare.same(self.expected[i], self.outcomes[i].value, compare.HALF) for i in self.wrong):
            precision = {compare.halved(self.outcomes[i].value) for i in self.wrong}
            if precision <= set(compare.HALVES):
                return self._say("wrong-dtype", HALF.format(min(precision)), "")
        return None

    def _exclusive_or(self) -> Diagnosis | None:
        """``^`` in a function that computes numbers."""
        array = compare.as_array(self.expected[self.shown])
        if not self.outcomes[0].xor or array is None or array.dtype == bool:
            return None
        return self._say("exclusive-or", self.seen(), errors.XOR)

    def _notebook(self) -> Diagnosis | None:
        if not self.outcomes[0].reads:
            return None
        return self._say("uses-the-notebook", self.seen(), "")

    def _pattern(self) -> Diagnosis | None:
        """A simple relation to the expected result that is the same for all problems that went wrong."""
        values = [o.value for o in self.outcomes]
        found = {observe.relation(self.expected[i], values[i]) for i in self.wrong}
        name = (found.pop() or "").partition(" ")[0]
        if name == "not-finite" and not found:
            return self._say(name, self.seen(), "")
        if len(values) > 2 and all(compare.same(values[0], value) for value in values[1:]):
            says = f"Your function returns the same for all {len(values)} problems that were tried."
            return self._say("fixed-answer", says, "Its arguments have no influence on the result.")
        if name and not found:
            return self._say(name, self.seen() or observe.SAYS[name], "")
        if 0 not in self.wrong and len(self.wrong) == len(values) - 1 > 1:
            says = f"Your result is right for the first problem, and wrong for the other {len(self.wrong)}."
            return self._say("fits-one-example", says, "Does a number in it fit that example only?")
        return None
