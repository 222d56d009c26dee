"""Chapter 04: does an attention function see the future?"""

from typing import NamedTuple

import torch

from mha_course.exercises import Exercise, Mistake
from mha_course.exercises import _leaks as leaks
from mha_course.exercises import _results as compare
from mha_course.exercises._results import plain


def leaks_future(attention, n, d_model):
    """``True`` if some output ``i`` of ``attention(x)`` depends on ``x[j]`` with ``j > i``."""
    for _ in range(20):
        x = torch.randn(n, d_model)
        before = attention(x)
        for j in range(1, n):
            changed = x.clone()
            changed[j] += torch.randn(d_model)
            if (attention(changed)[:j] - before[:j]).abs().max() > 1e-5:
                return True
    return False


ASKED, ENOUGH = 20, 16  # sentences; if numbers are whole, two may look like one


class _Read(NamedTuple):
    """What a test returned, and how it got there."""

    said: bool
    calls: int
    inputs: int | None  # None if unknown
    rows: tuple[int, ...]  # where they were changed, if not in all rows but the first
    rare: tuple[int, ...]  # the row that was changed least often, and how often, if that is too few
    manner: int  # one of ``leaks.MANNERS``, or 0

    @property
    def few(self):
        """Fewer inputs than required."""
        return self.inputs is not None and (self.inputs < ENOUGH or bool(self.rare))


FORMS = {(bool, int, inputs, tuple, tuple, int) for inputs in (int, type(None))}
TWICE, UNCHANGED, STAY, NORMED = leaks.MANNERS

# Of two forms, the first is for one, and the second for several.
TIMES = "{} time", "{} times"
CALLS = "{} call", "{} calls"
SENTENCES = "{} sentence", "{} sentences"
TEST = "a test saying {said} after {calls}"
TEST_OF_INPUTS = "a test saying {said} after {calls} with {sentences}"
TESTS = {
    TWICE: "{test}, each call twice",
    UNCHANGED: "{test}, no row changed",
    STAY: "{test}, changes stay",
    NORMED: "{test}, removed by a LayerNorm",
}
TEST_OF_ROWS = "{test}, row {rows} changed"
TEST_OF_RARE = "{test}, row {row} changed in {times}"

NO_VERDICT = "Your function returns {result}; True or False is expected."
VERDICT = "Your function returns {said} for an attention function {does}."
CALLED = "It called this function {times}."
CALLED_WITH = "It called this function {times}, with {sentences}."
RIGHT_BUT_NORMED = "False is right here, but every change of a token was one that a LayerNorm removes."
RIGHT_BUT_FEW = f"False is right here, but at least {ASKED} sentences are required."
MISSES = "In this run your function misses leaks {kinds}. Is one sentence that shows a leak enough for True?"
ONE_TOKEN_ONLY = "Only token {row} is changed: a leak may come from any but the first."
RARELY_CHANGED = (
    "Not every token is changed in every sentence (of {sentences}, {times} have token {row} changed), but a "
    "leak may show for only half of all sentences."
)
ONE_INPUT = (
    "Only 1 sentence is tried, but a leak may show for only half of all sentences. Is a loop missing, does "
    "a `return` end it in its first iteration, or is x always the same?"
)
ONE_CALL = (
    "Your function returns False after {calls}, but a leak may show for only half of all sentences. Is a "
    "loop missing, does a `return` end it in its first iteration, or is x always the same?"
)
FEW_INPUTS = "Only {inputs} sentences are tried, but a leak may show for only half of all sentences."


def _many(number, forms):
    return forms[number != 1].format(number)


def _watch(answer, attention, n, d_model):
    """A ``_Read`` as a tuple of numbers; or the result, if it is neither true nor false."""
    watched = leaks.Watched(attention)

    def given(x):
        return watched(x)

    given.__name__ = given.__qualname__ = "attention"
    result = answer(given, n, d_model)
    array = compare.as_array(plain(result))
    if array is None or array.size != 1 or array.item() not in (0, 1):
        return result
    said, inputs, rows = bool(array.item()), watched.inputs, sorted(watched.changed)
    read = _Read(said, len(watched.calls), inputs if watched.readable else None, (), (), 0)
    if manner := watched.manner():
        read = read._replace(manner=manner)
    elif 0 < len(rows) < n - 1:
        read = read._replace(rows=tuple(rows))
    elif rows and not said and inputs >= ENOUGH > min(watched.changed.values()):
        row = min(rows, key=lambda row: watched.changed[row])
        read = read._replace(rare=(row, watched.changed[row]))
    elif inputs >= ENOUGH and watched.only_removed():
        read = read._replace(manner=NORMED)
    return tuple(read)


def _read(result):
    """The ``_Read``; ``None`` for anything else that an answer may return."""
    if not isinstance(result, tuple) or tuple(map(type, result)) not in FORMS:
        return None
    read = _Read(*result)
    places = all(type(place) is int for place in read.rows + read.rare)
    return read if places and len(read.rare) in (0, 2) and read.manner in (0, *leaks.MANNERS) else None


def _shows(result):
    read = _read(result)
    if read is None:
        return None
    calls, sentences = _many(read.calls, CALLS), _many(read.inputs, SENTENCES)
    test = (TEST if read.inputs is None else TEST_OF_INPUTS).format(
        said=read.said, calls=calls, sentences=sentences
    )
    if read.manner:
        return TESTS[read.manner].format(test=test)
    if read.rows:
        return TEST_OF_ROWS.format(test=test, rows=",".join(map(str, read.rows)))
    return TEST_OF_RARE.format(test=test, row=read.rare[0], times=read.rare[1]) if read.rare else test


def _accepts(result, attention, n, d_model):
    read = _read(result)
    if read is None:
        return "wrong-dtype", NO_VERDICT.format(result=compare.kind(result))
    normed = read.manner == NORMED and not read.said
    if read.said == attention.leaks and not (read.few and not read.said) and not normed:
        return None
    seen = [VERDICT.format(said=read.said, does=attention.does)]
    if read.calls:
        called = CALLED if read.inputs is None else CALLED_WITH
        times, sentences = _many(read.calls, TIMES), _many(read.inputs, SENTENCES)
        seen.append(called.format(times=times, sentences=sentences))
    if read.said == attention.leaks and normed and not read.few:
        return SMALL["norm"][0], " ".join([*seen, RIGHT_BUT_NORMED])
    if read.said == attention.leaks:
        return "too-few-inputs", " ".join([*seen, RIGHT_BUT_FEW])
    return ("false-alarm" if read.said else "misses-a-leak"), " ".join(seen)


# From all verdicts to the cause

CAUSES = {
    "never-calls": "Your function never calls `attention`.",
    "no-copy": "The calls that you compare get the same numbers. `y = x` gives one tensor a second name, "
    "so a change of one changes both; `x.clone()` makes a copy. Is the changed one passed to `attention`?",
    "always-false": "Your function returns False for every attention function. Can the line that returns "
    "True be reached?",
    "always-true": "Your function returns True for every attention function. Output i may depend on the "
    "tokens up to i, its own included: compare only the outputs before the changed token.",
    "inverted": "Your function returns True for all attention functions that do not leak, and False for "
    "some that do: are True and False swapped?",
    "own-token": "For some functions, your function returns True, because an output depends on its own "
    "token, which is no leak. Only the outputs before the changed token j have to stay the same: `[:j]`, or "
    "above the diagonal, `triu(1)`.",
    "earlier-inputs": "For some functions, your function returns True, because an output depends on earlier "
    "tokens, which is no leak. After a change of token j, the outputs before j have to stay the same, not "
    "those after it.",
    "changes-stay": "For some functions, your function returns True, because an output depends on earlier "
    "tokens, which is no leak. Token 1 is still changed when token 2 is: `y = x` makes no copy, but "
    "`x.clone()` does.",
    "rounding-counts": "For some functions, your function returns True because an earlier output moved by "
    "rounding alone, by less than 0.00001. Do not ask whether the outputs are exactly equal: compare their "
    "difference with a tolerance, such as 0.0001.",
    "false-alarm": "Your function returns True for attention functions that do not leak. An output may "
    "depend on its own token and on earlier ones.",
}
SMALL = {
    "cancel": (
        "sums-with-signs",
        "Your function misses leaks that cancel in a sum: it adds up outputs, differences or derivatives "
        "with their signs, and here these add up to 0. Take `.abs()` before the sum.",
    ),
    "tiny": (
        "tolerance-too-wide",
        "Your function misses a leak that moves outputs by less than 0.001: is the tolerance too wide, or "
        "the change of the token too small? Rounding moves outputs by less than 0.00001.",
    ),
    "negative": (
        "without-the-absolute-value",
        "Your function misses leaks that make outputs smaller: a difference may be negative. Is `.abs()` "
        "missing?",
    ),
    "norm": (
        "norm-removes-the-change",
        "A LayerNorm removes a change that adds the same number to all numbers of a token, or multiplies "
        "them all by the same number. So such a change cannot show a leak that comes after a LayerNorm: add "
        "new random numbers, `torch.randn(d_model)`.",
    ),
    "one-number": (
        "one-number-of-a-token",
        "Your function misses a leak from and to the last number of a token: change and compare all numbers "
        "of a token.",
    ),
}
EARLY, LATE = (
    "Does a loop end too early, or does `x` have fewer than n rows?",
    "Does a loop start too late?",
)
MISSED = {  # of the leaks from one token to one other
    frozenset(kinds.split()): told
    for kinds, *told in (
        (
            "far middle",
            "neighbours-only",
            "Your function finds only leaks to the output right before the token.",
        ),
        ("first middle", "last-token-only", "Your function finds only leaks from the last token."),
        ("far last", "never-the-last-token", f"Your function misses leaks from the last token. {EARLY}"),
        (
            "first last",
            "never-the-neighbour",
            "Your function misses leaks to the output right before the token.",
        ),
        ("last middle", "output-0-only", "Your function finds only leaks to output 0."),
        ("far first", "never-output-0", f"Your function misses leaks to output 0. {LATE}"),
        ("first", "never-token-1", f"Your function misses the leak from token 1 to output 0. {LATE}"),
        (
            "last",
            "never-output-n-2",
            f"Your function misses the leak from the last token to the output before it. {EARLY}",
        ),
        (
            "far first last middle",
            "no-single-pair",
            "Your function finds no leak from one token to one other.",
        ),
    )
}
KINDS = {
    "first": "from token 1 to output 0",
    "last": "from the last token to the output before it",
    "far": "from the last token to output 0",
    "middle": "from token 3 to output 1",
    "tiny": "that move outputs by less than 0.001",
    "negative": "that make outputs smaller",
    "norm": "through a LayerNorm",
    "one-number": "from the last number of a token to that of an output",
    "cancel": "whose amounts add up to 0",
    "all": "from all later tokens",
}


def _explains(problems, results):
    """The cause that fits all verdicts together."""
    reads = [_read(result) for result in results]
    if None in reads:
        return None
    judged = [(attention, n, read) for (attention, n, _), read in zip(problems, reads, strict=True)]
    alarms = {attention.kind for attention, _, read in judged if read.said and not attention.leaks}
    missed = {attention.kind for attention, _, read in judged if attention.leaks and not read.said}
    calm = [(n, read) for attention, n, read in judged if not attention.leaks and not read.said]
    if not any(read.calls for read in reads):
        found = ["never-calls"]
    elif not any(read.said for read in reads):
        same = all(read.manner in (TWICE, UNCHANGED) for read in reads)
        found = ["no-copy" if same else "always-false"]
    elif alarms:
        stay = any(read.manner == STAY for read in reads)
        found = [_alarm(alarms, missed, stay), *_few(calm)]
    else:
        found = _misses(calm, missed)
    told = [(one, CAUSES[one]) if isinstance(one, str) else one for one in found]
    return (told[0][0], " And: ".join(cause for _, cause in told)) if told else None


def _alarm(alarms, missed, stay):
    """The name of a test that says ``True`` of some attentions without a leak."""
    if alarms == {"rounding"}:
        return "rounding-counts"
    if len(alarms) == 4:
        return "inverted" if missed else "always-true"
    alarms = alarms - {"rounding"}
    if alarms == {"causal", "past"} and (missed or stay):
        return "changes-stay" if stay else "earlier-inputs"
    return "own-token" if alarms == {"causal", "last-own"} else "false-alarm"


def _misses(calm, missed):
    """What is wrong with a test that returns ``False`` too often; ``calm``: what it did without a leak."""
    found = list(filter(None, [_rows(calm)]))
    if few := _few(calm):  # then it is luck which leaks it finds
        return found + few
    rest = frozenset(missed) - set(SMALL)
    if not found and rest and rest not in MISSED:
        kinds = "; ".join(KINDS[kind] for kind in KINDS if kind in missed)
        return [("misses-a-leak", MISSES.format(kinds=kinds))]
    if any(read.manner == NORMED for _, read in calm):
        missed = missed | {"norm"}  # even if it is found by rounding
    small = [SMALL[kind] for kind in SMALL if kind in missed]
    return (found or [MISSED[key] for key in MISSED if key == rest]) + small


def _rows(calm):
    """Where the input was changed, if not in all rows but the first."""
    rows = [read.rows for _, read in calm]
    if () in rows:
        return None
    if all(read.rows == (n - 1,) for n, read in calm):
        return (
            "last-token-only",
            "Only the last token is changed: a leak may come from any token but the first.",
        )
    if len(rows[0]) == 1 and all(row == rows[0] for row in rows):
        return "one-token-only", ONE_TOKEN_ONLY.format(row=rows[0][0])
    if all(read.rows == tuple(range(1, n - 1)) for n, read in calm):
        return "never-the-last-token", "The last token is never changed: does a loop end too early?"
    if all(read.rows == tuple(range(2, n)) for n, read in calm):
        return "never-token-1", f"Token 1 is never changed. {LATE}"
    return None


def _few(calm):
    """The cause for a test that tries too few inputs."""
    few = [read for _, read in calm if read.few]
    if not few:
        return []
    inputs, calls = min(read.inputs for read in few), max(read.calls for read in few)
    if inputs >= ENOUGH:
        row, times = few[0].rare
        sentences = _many(few[0].inputs, SENTENCES)
        return [("too-few-inputs", RARELY_CHANGED.format(sentences=sentences, times=times, row=row))]
    says = FEW_INPUTS if inputs != 1 else ONE_CALL if calls <= 2 else ONE_INPUT
    return [("too-few-inputs", says.format(inputs=inputs, calls=_many(calls, CALLS)))]


def _with(*size):
    """The error that an attention raises for an input of this size."""
    return lambda attention, n, d_model: attention(
        torch.zeros([{"n": n, "d_model": d_model}.get(part, part) for part in size])
    )


STEP = "6 Does it leak?"
EXERCISE = Exercise(
    answer=leaks_future,
    chapter="04_masking",
    section=STEP,
    points=3,
    problems=leaks.future,
    call=_watch,
    accepts=_accepts,
    explains=_explains,
    shows=_shows,
    mistakes={
        "maximum-of-nothing": Mistake(
            "Your function takes the maximum of an empty tensor: there is no output before token 0, and "
            "none after the last one.",
            STEP,
            (
                lambda attention, n, d_model: torch.zeros(0, d_model).max(),
                lambda attention, n, d_model: torch.zeros(0, d_model).amax(),
            ),
        ),
        "input-transposed": Mistake(
            "The input is (d_model, n); call `attention` with (n, d_model), one row for each token.",
            STEP,
            (_with("d_model", "n"),),
        ),
        "input-of-another-size": Mistake(
            "The input has other sizes than `n` and `d_model`: call `attention` with (n, d_model).",
            STEP,
            tuple(
                _with(*size)
                for size in (
                    *((5, 4), ("n", 4), (3, 4), (4, 4), (10, 4), ("n", 8), ("n", 1), ("n", "n")),
                    *((8, "d_model"), (10, "d_model"), (16, "d_model"), (20, "d_model"), (100, "d_model")),
                )
            ),
        ),
        "input-without-two-axes": Mistake(
            "The input does not have two axes: call `attention` with one sentence at a time, (n, d_model).",
            STEP,
            (
                _with("n"),
                _with("d_model"),
                *(_with(b, "n", "d_model") for b in (1, 2, 5, 8, 10, 16, 20, 25, 30, 32, 50, 64, 100)),
            ),
        ),
    },
)
