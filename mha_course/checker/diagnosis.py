"""Finds the name of the mistake from an answer's results."""

import inspect
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from mha_course.checker import _sentences as say
from mha_course.checker import errors, observe, trace
from mha_course.exercises import CHANGEABLE, Exercise, Mistake
from mha_course.exercises import _results as compare
from mha_course.exercises._results import Outcome, Trial, plain


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with one answer: ``name`` is ``None`` if it is right.

    ``seen`` was computed from the answer's own result; ``cause`` explains it, and is empty if no known
    cause does. ``note`` says which names of the notebook the answer's code uses; of a right answer, what
    PyTorch cannot do with its result. ``example`` is ``(arguments, expected, got)`` of the smallest problem
    for which it is wrong.
    """

    name: str | None
    seen: str = ""
    cause: str = ""
    section: str = ""
    example: tuple[tuple, Any, Any] | None = None
    note: str = ""


class Found(NamedTuple):
    """One explanation. If ``seen``, ``section`` or ``shown`` is left out, ``diagnose`` fills it in."""

    name: str
    seen: str | None = None
    cause: str = ""
    section: str = ""
    shown: Trial | None = None


def diagnose(exercise: Exercise, trials: list[Trial]) -> Diagnosis | None:
    """The diagnosis of an answer from its trials; ``None`` if it is still the stub."""
    first = trials[0].outcome
    if first.kind == "stub" or (exercise.bug and first.code == trace.fingerprint(exercise.bug)):
        return None
    with warnings.catch_warnings(action="ignore"):
        wrong = [t for t in trials if not exercise.is_right(t)]
        if not wrong:
            return _changed(exercise, trials) or _foreign(exercise, trials)
        shown = _clearest([t for t in wrong if t.outcome.kind == "returned"] or wrong)
        explained = (way(exercise, trials, wrong, shown) for way in WAYS)
        found = next(filter(None, explained), Found("wrong"))
        shown = found.shown or shown
        seen = _seen(exercise, shown) if found.seen is None else found.seen
        example = (shown.problem, shown.expected, shown.got) if shown.outcome.kind == "returned" else None
        section, note = found.section or exercise.section, _reads(exercise, first)
        return Diagnosis(found.name, seen, found.cause, section, example, note)


def _clearest(trials: list[Trial]) -> Trial:
    """The first that can be printed whole, or else the smallest."""
    whole = (t for t in trials if max(compare.sizes(t.problem), default=0) <= compare.MAX_SHOWN)
    return next(whole, None) or min(trials, key=lambda t: sum(compare.sizes(t.problem)))


def _arguments(exercise: Exercise) -> list[str]:
    return list(inspect.signature(exercise.answer).parameters)


# An answer whose results are right


def _changed(exercise: Exercise, trials: list[Trial]) -> Diagnosis | None:
    names = _arguments(exercise)
    for trial in trials:
        given = [pair for pair in zip(names, trial.problem, strict=False) if isinstance(pair[1], CHANGEABLE)]
        for (name, before), after in zip(given, trial.outcome.inputs, strict=False):
            if not compare.same(plain(before), after, 0.0):
                says = say.CHANGES_ITS_INPUT.format(name=name)
                example = trial.problem, plain(before), after
                return Diagnosis("changes-its-input", says, "", exercise.section, example)
    return None


def _foreign(exercise: Exercise, trials: list[Trial]) -> Diagnosis:
    """Right, unless it has half precision only.

    Numbers in a list or in a NumPy array are right, too, with a remark where a model would need a tensor. An
    exercise that asks for a gradient looks for it in its ``call``.
    """
    for trial in trials if _arguments(exercise) else ():
        if (source := compare.foreign(trial.expected, trial.got)) in compare.HALVES:
            return Diagnosis("wrong-dtype", say.HALF.format(precision=source), "", exercise.section)
        if source:
            array = compare.as_array(trial.got)
            masks = array is not None and array.dtype == bool
            remark = say.ACCEPTED_MASK if masks else say.ACCEPTED_NUMBERS
            return Diagnosis(None, note=remark.format(source=source))
    return Diagnosis(None)


# What is said


def _seen(exercise: Exercise, trial: Trial) -> str:
    """What was observed in a result, or the line that raised."""
    if trial.outcome.kind != "returned":
        return _line(trial)
    if exercise.accepts is not None:
        return exercise.accepts(trial.got, *trial.problem)[1]
    return observe.seen(trial.expected, trial.got, exercise.results)


def _line(trial: Trial) -> str:
    """The line that raised, its text and its names, and what Python said."""
    where = trial.outcome.where
    name, _, text = trial.got.partition("\n")
    error = (say.ERROR if text.strip() else say.NO_MESSAGE).format(name=name, text=text.strip())
    if not where:
        sizes = ", ".join(_brief(trace.brief(argument)) for argument in trial.problem)
        return f"{say.RAISES.format(sizes=sizes)}\n  {error}"
    raises = say.RAISES_IN if where["function"] else say.RAISES_IN_YOURS
    lines = [raises.format(line=where["line"], function=where["function"]), f"    {where['text']}"]
    if where["part"] and where["part"] != where["text"]:
        lines.append(f"  {say.AT.format(part=where['part'])}")
    if where["names"]:
        names = _facts(where["names"], say.HAS_SHAPE, say.IS)
        lines.append(f"  {say.WHERE.format(names=', '.join(names))}")
    return "\n".join([*lines, f"  {error}"])


def _brief(what: trace.Fact) -> str:
    return what if isinstance(what, str) else say.SHAPE.format(shape=what)


def _facts(names: Sequence[tuple[str, trace.Fact]], shaped: str, other: str) -> list[str]:
    """What each name is: ``shaped`` says it of a tensor with axes, and ``other`` of anything else."""
    return [
        other.format(name=name, what=what) if isinstance(what, str) else shaped.format(name=name, shape=what)
        for name, what in names
    ]


def _reads(exercise: Exercise, outcome: Outcome) -> str:
    """The notebook's names that the function uses and that are not its arguments."""
    if not outcome.reads:
        return ""
    names = _facts(outcome.reads, say.READ_HAS_SHAPE, say.READ_IS)
    says = say.READS if _arguments(exercise) else say.READS_WITHOUT_ARGUMENTS
    return says.format(names=" and ".join(names))


# Ways to explain an answer that is wrong: each looks for one kind of explanation


def _stopped(exercise: Exercise, trials: list[Trial], wrong: list[Trial], shown: Trial) -> Found | None:
    kinds = {t.outcome.kind for t in wrong}
    if "too slow" in kinds:
        says = "Your function did not return in time, and was stopped."
        return Found("too-slow", says, "Is there an endless loop?")
    if "died" in kinds:
        says = "The process that ran your function died."
        return Found("raises", says, "Did it use too much memory, or exit Python?")
    return None


def _refused(exercise: Exercise, trials: list[Trial], wrong: list[Trial], shown: Trial) -> Found | None:
    raised = [t.got for t in wrong if t.outcome.kind == "raised"]
    names = [value.removeprefix("Refused\n") for value in raised if value.startswith("Refused\n")]
    if not names:
        return None
    says = say.REFUSED if names[0].replace(".", "").isidentifier() else say.REFUSED_UNNAMED
    return Found("calls-the-finished-one", says.format(name=names[0]), "Write it from smaller pieces.")


def _known(exercise: Exercise, trials: list[Trial], wrong: list[Trial], shown: Trial) -> Found | None:
    """The mistakes whose code gives the same on every problem; two at once if no single one does."""
    if _named(exercise, shown):
        return None
    order = sorted(trials, key=lambda t: t is not shown)  # most variants already differ on the one shown
    fitting = _fitting(exercise, order, two=False)
    if not fitting and not _one_factor(trials):
        fitting = _fitting(exercise, order, two=True)
    if not fitting:
        return None
    name, mistake = next(iter(fitting.items()))
    cause = _told(exercise, list(fitting.values()), lambda variant: _fits(exercise, order, variant))
    return Found(name, cause=cause, section=mistake.section)


def _named(exercise: Exercise, shown: Trial) -> bool:
    """Whether the exercise itself names the mistake, and no code makes it."""
    if exercise.accepts is None or shown.outcome.kind != "returned":
        return False
    mistake = exercise.mistakes.get(exercise.accepts(shown.got, *shown.problem)[0])
    return mistake is not None and not mistake.variants


def _fitting(exercise: Exercise, trials: list[Trial], *, two: bool) -> dict[str, Mistake]:
    """The single mistakes, or the pairs, with a variant that does the same in every trial."""
    some = {name: m for name, m in exercise.mistakes.items() if bool(m.of) == two}
    if two and trials[0].outcome.kind == "raised":  # there are many pairs: one of the two raises this alone
        alone = {name for m in some.values() for name in m.of}
        known = alone & exercise.mistakes.keys()
        raising = {name for name in known if _any_fits(exercise, trials[:1], exercise.mistakes[name])}
        some = {
            name: m for name, m in some.items() if not known.issuperset(m.of) or raising.intersection(m.of)
        }
    return {name: m for name, m in some.items() if _any_fits(exercise, trials, m)}


def _any_fits(exercise: Exercise, trials: list[Trial], mistake: Mistake) -> bool:
    return any(_fits(exercise, trials, variant) for variant in mistake.variants)


def _one_factor(trials: list[Trial]) -> bool:
    """Single numbers that are the right ones times one constant.

    Each pair of causes gives them whose factors have this product, so they tell nothing about two causes.
    """
    pairs = [(compare.as_array(t.expected), compare.as_array(t.got)) for t in trials]
    if any(a is None or b is None or a.size != 1 or b.size != 1 or not a.any() for a, b in pairs):
        return False
    factors = [float(b.flat[0]) / float(a.flat[0]) for a, b in pairs]
    return max(factors) - min(factors) < 1e-6 * abs(max(factors))


def _told(exercise: Exercise, fitting: list[Mistake], fits: Callable[[Any], bool]) -> str:
    """What is said of them: a sentence that belongs to all of them is true, and each is said once."""
    if len(fitting) == 1:
        return fitting[0].told(fits)
    ways = [[exercise.mistakes[name].says for name in m.of] or [m.says] for m in fitting]
    common = [says for says in ways[0] if all(says in way for way in ways)]
    others = [say.AND.join(says for says in way if says not in common) for way in ways]
    others = list(dict.fromkeys(filter(None, others)))
    if len(others) < 2:
        return say.AND.join([*common, *others])
    says = say.ONE_OF_THESE_TOO if common else say.ONE_OF_TWO if len(others) == 2 else say.ONE_OF_SEVERAL
    return says.format(common=say.AND.join(common), causes=say.OR.join(others))


def _fits(exercise: Exercise, trials: list[Trial], variant: Any) -> bool:
    return all(alike(t.outcome, exercise.compute(variant, t.problem)) for t in trials)


def alike(one: Outcome, other: Outcome) -> bool:
    """Both raised the same error, or returned the same."""
    if one.kind != other.kind:
        return False
    return one.value == other.value if one.kind == "raised" else compare.same(other.value, one.value)


def _raised(exercise: Exercise, trials: list[Trial], wrong: list[Trial], shown: Trial) -> Found | None:
    raised = [t for t in wrong if t.outcome.kind in ("raised", "stub")]
    if not raised:
        return None
    shown = _clearest(raised)
    outcome, arguments = shown.outcome, _arguments(exercise)
    name, _, text = outcome.value.partition("\n")
    where = outcome.where
    if name == "NotImplementedError" and not text:
        says = say.CALLS_A_STUB if where.get("function") else say.CALLS_ANOTHER_STUB
        return Found("calls-a-stub", says.format(function=where.get("function")), shown=shown)
    if not where and "argument" in text:
        return Found("raises", cause=say.CALLED_WITH.format(arguments=", ".join(arguments)), shown=shown)
    strangers = [n for n, _ in outcome.reads if re.search(rf"\b{re.escape(n)}\b", where.get("part", ""))]
    if strangers:
        names = " and ".join(f"`{name}`" for name in strangers)
        says = say.DOES_NOT_FIT if arguments else say.USED_HERE
        return Found("uses-the-notebook", cause=says.format(names=names), shown=shown)
    if outcome.reads and name == "IndexError":
        says = "Is a size from the notebook used here, although the arguments have another one?"
        return Found("uses-the-notebook", cause=says, shown=shown)
    first = errors.cause(name, text, where)
    front = _in_front(trials, wrong, raised, said=isinstance(first, errors.OfAxes))
    causes = first, _size(exercise, shown.problem, name, text), front
    return Found("raises", cause=say.joined(*causes), shown=shown)


def _size(exercise: Exercise, problem: tuple, name: str, text: str) -> str:
    """For a size that the function has not read yet: which argument has it, if the docstring says so."""
    missing = re.search(r"name '(\w+)' is not defined", text) if name == "NameError" else None
    taken = (exercise.answer.__doc__ or "").split(" to ")[0]
    shapes = [group.replace(" ", "").split(",") for group in re.findall(r"\(([^()]*)\)", taken)]
    for argument, value, shape in zip(_arguments(exercise), problem, shapes, strict=False):
        if missing and shape[-1] == missing[1] and isinstance(value, Tensor):
            return say.LAST_SIZE.format(name=missing[1], argument=argument)
    return ""


def _in_front(trials: list[Trial], wrong: list[Trial], raised: list[Trial], *, said: bool) -> str:
    """Whether the answer is right without a batch and raises with one, judged by the first argument.

    ``said``: what has been said already tells what to do about axes in front.
    """
    rank = {t: next((a.ndim for a in t.problem if isinstance(a, Tensor)), 0) for t in trials}
    fine = [rank[t] for t in trials if t not in wrong]
    if not fine or max(fine) >= min(rank[t] for t in raised):
        return ""
    axes = max(fine)
    if any(rank[t] == axes for t in wrong):
        return say.RIGHT_FOR_SOME_SIZES.format(axes=axes)
    if not axes:
        return say.WORKS_FOR_NUMBERS
    works = say.WORKS_FOR_FEW_AXES if axes > 2 else say.WORKS_WITHOUT_A_BATCH
    return say.joined(works.format(axes=axes), "" if said else say.COUNT_FROM_THE_END)


def _nothing(exercise: Exercise, trials: list[Trial], wrong: list[Trial], shown: Trial) -> Found | None:
    if any(t.got is not None for t in wrong):
        return None
    return Found("returns-nothing", "Your function returns None.", "Is the line `return ...` missing?")


def _dropped(exercise: Exercise, trials: list[Trial], wrong: list[Trial], shown: Trial) -> Found | None:
    """One of the results is the right one after dropout."""
    for pairs in zip(*(_arrays(t.expected, t.got) for t in trials), strict=False):
        if (times := observe.dropped(pairs)) is not None:
            return Found("dropped-out", cause=say.DROPPED_OUT.format(times=times))
    return None


def _added(exercise: Exercise, trials: list[Trial], wrong: list[Trial], shown: Trial) -> Found | None:
    """The same row of numbers was added to each row of one result, and the others are right."""
    for number, pairs in enumerate(zip(*(_arrays(t.expected, t.got) for t in wrong), strict=False)):
        others = (pair for t in wrong for pair in _without(_arrays(t.expected, t.got), number))
        if observe.row_added(pairs) and all(
            one is not None and observe.alike(one, two) for one, two in others
        ):
            return Found("row-added", cause=say.ROW_ADDED)
    return None


def _without(pairs: list[Any], number: int) -> list[Any]:
    return [pair for i, pair in enumerate(pairs) if i != number]


def _arrays(expected: Any, got: Any) -> list[tuple[Any, Any]]:
    """The arrays of an expected and a returned result, one after the other, where both have them."""
    pairs = compare.parts(expected, got) or ()
    if isinstance(expected, tuple) and any(isinstance(one, tuple) for one, _ in pairs):
        return [pair for one, other in pairs for pair in _arrays(one, other)]
    return [(compare.as_array(one), compare.as_array(other)) for one, other in pairs]


def _explained(exercise: Exercise, trials: list[Trial], wrong: list[Trial], shown: Trial) -> Found | None:
    """The exercise's own explanation of all results together, or of this one."""
    mistakes, unknown = exercise.mistakes, Mistake("", "", ())
    if exercise.explains is not None:
        told = exercise.explains([t.problem for t in trials], [t.got for t in trials])
        if told is not None:
            return Found(told[0], cause=told[1], section=mistakes.get(told[0], unknown).section)
    if exercise.accepts is not None:
        name, seen = exercise.accepts(shown.got, *shown.problem)
        mistake = mistakes.get(name, unknown)
        return Found(name, seen, mistake.says, mistake.section)
    return None


def _bug(exercise: Exercise, trials: list[Trial], wrong: list[Trial], shown: Trial) -> Found | None:
    if exercise.bug is None or not _fits(exercise, trials, exercise.bug):
        return None
    says = "On every problem that was tried, your function still gives the same result as with the bug."
    return Found("bug-still-there", cause=says)


def _shape(exercise: Exercise, trials: list[Trial], wrong: list[Trial], shown: Trial) -> Found | None:
    other = [t for t in wrong if not _lined_up(t)]
    return Found("wrong-shape", shown=shown if shown in other else _clearest(other)) if other else None


def _lined_up(trial: Trial) -> bool:
    """As many results as expected, each of the expected shape and kind."""
    pairs = compare.parts(trial.expected, trial.got)
    return pairs is not None and all(compare.shape(a) == compare.shape(b) for a, b in pairs)


def _half(exercise: Exercise, trials: list[Trial], wrong: list[Trial], shown: Trial) -> Found | None:
    """Booleans for numbers, or half precision."""
    pairs = [p for t in wrong for p in compare.parts(t.expected, t.got)]
    arrays = [(compare.as_array(a), compare.as_array(b)) for a, b in pairs]
    if any(a is not None and b is not None and (a.dtype == bool) != (b.dtype == bool) for a, b in arrays):
        return Found("wrong-dtype")
    if all(compare.same(t.expected, t.got, compare.HALF) for t in wrong):
        precision = {compare.halved(t.got) for t in wrong}
        if precision <= set(compare.HALVES):
            return Found("wrong-dtype", say.HALF.format(precision=min(precision)))
    return None


def _exclusive_or(exercise: Exercise, trials: list[Trial], wrong: list[Trial], shown: Trial) -> Found | None:
    """``^`` in a function that computes numbers."""
    array = compare.as_array(shown.expected)
    if not trials[0].outcome.xor or array is None or array.dtype == bool:
        return None
    return Found("exclusive-or", cause=errors.XOR)


def _notebook(exercise: Exercise, trials: list[Trial], wrong: list[Trial], shown: Trial) -> Found | None:
    return Found("uses-the-notebook") if trials[0].outcome.reads else None


def _pattern(exercise: Exercise, trials: list[Trial], wrong: list[Trial], shown: Trial) -> Found | None:
    """A simple relation to the expected result that is the same for all problems that went wrong."""
    results = [t.got for t in trials]
    found = {(observe.relation(t.expected, t.got), observe.times(t.expected, t.got)) for t in wrong}
    name = found.pop()[0] if len(found) == 1 else None
    if name == "not-finite":
        return Found(name)
    if len(results) > 2 and all(compare.same(results[0], result) for result in results[1:]):
        says = say.THE_SAME_FOR_ALL.format(problems=len(results))
        return Found("fixed-answer", says, "Its arguments have no influence on the result.")
    if name:
        return Found(name, _seen(exercise, shown) or observe.SAYS[name])
    if trials[0] not in wrong and len(wrong) == len(trials) - 1 > 1:
        says = say.RIGHT_FOR_THE_FIRST.format(wrong=len(wrong))
        return Found(
            "fits-one-example",
            says,
            "Does it use a number, a size or an assumption that is true of that example only?",
        )
    return None


WAYS = (
    _stopped, _refused, _known, _raised, _nothing, _dropped, _explained,
    _bug, _shape, _half, _exclusive_or, _notebook, _added, _pattern,
)  # fmt: skip
