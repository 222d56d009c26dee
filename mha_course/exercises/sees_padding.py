"""Chapter 11: a test that finds attention to padding."""

import torch
from torch import Tensor

from mha_course.exercises import Exercise, Mistake
from mha_course.exercises import _padding as padding
from mha_course.exercises import _results as compare
from mha_course.exercises._results import plain

INPUTS = 20  # are asked for
PAIRS = 10  # of attentions that leak for one half of all inputs, and for the other half


def sees_padding(attention, real, d_model):
    """``True`` if the output of some real token depends on what stands in the padding."""
    for _ in range(20):
        x = torch.randn(len(real), d_model)
        changed = torch.where(real[:, None], x, torch.randn(len(real), d_model))
        before, after = attention(x, real)[real], attention(changed, real)[real]
        if not torch.allclose(before, after, atol=1e-6):
            return True
    return False


RECORDED = torch.tensor([False, True, False, False, True, True])


def _mask(rng, n, padded):
    return torch.tensor(rng.shuffled([False] * padded + [True] * (n - padded)))


def _problems(rng):
    small = torch.tensor([True, True, False])
    yield padding.hides_keys, small, 2
    yield padding.unmasked, small, 2
    # Here the padding is not at the end: a test that expects it there fails.
    scattered = torch.tensor([*_mask(rng, 4, 3).tolist(), True])
    # With two numbers, a LayerNorm leaves one sign.
    widths = {padding.after_a_norm: 4}
    rest = [(attention, scattered, widths.get(attention, 2)) for attention in padding.LEAKS[1:]]
    rest.append((padding.own_token_only, torch.arange(4) != rng.below(3), 3))
    rest.append((padding.divided_by_all, torch.arange(4) != rng.below(3), 3))
    rest.append((padding.only_rounds, _mask(rng, 6, 3), 5))
    rest += [
        (attention, _mask(rng, 4, 2), 3) for attention in (padding.WHERE_NEGATIVE, padding.WHERE_POSITIVE)
    ]
    for pair in range(PAIRS):
        n, d_model = ((3, 2), (4, 3), (4, 2))[pair % 3]
        real = _mask(rng, n, 1)
        (i, j), (a, b) = rng.shuffled(range(n - 1))[:2], rng.shuffled(range(d_model))[:2]
        rest += [(padding.half((i, a), (j, b), turned), real, d_model) for turned in (False, True)]
    # For these, what the answer does is recorded, not only what it returns.
    for real, probe in ((torch.arange(4) != 1, "inputs"), (RECORDED, "record")):
        rest.append((padding.own_real_token_only, real, 5, probe))
    yield from rng.shuffled(rest)


def _call(answer, attention, real, d_model, probe=""):
    """The verdict; of a probe ``(verdict, inputs, removed)``, or the numbers of a ``Record``."""
    record = padding.Record(real) if probe else None
    # The solution is run in the notebook's process, whose seed must stay as it is.
    with torch.random.fork_rng(devices=[], enabled=answer is sees_padding):
        verdict = answer(_checked(attention, record), real, d_model)
    if probe == "record":
        return [int(number) for number in record.numbers(answer)]
    if probe and _verdict(plain(verdict)) is False:
        return verdict, record.inputs(), record.removed()
    return verdict


def _checked(inner, record):
    """The attention, with clear errors for arguments that it cannot take."""

    def attention(x, real):
        if not isinstance(x, Tensor):
            raise TypeError(f"attention: expected x to be a tensor, got {type(x).__name__}")
        if x.ndim != 2:
            raise ValueError(f"attention: expected x of two axes, (n, d_model), got {x.ndim}")
        if record is not None:
            record.keep(x, real)
        return inner(x, real)

    attention.__qualname__ = "attention"
    return attention


def _verdict(result):
    """A ``bool``, or ``None``."""
    array = None if isinstance(result, tuple) else compare.as_array(result)
    return bool(array.reshape(())) if array is not None and array.dtype == bool and array.size == 1 else None


NO_VERDICT = "Your function returns {result}; True or False is expected."
FALSE_ALARM = "Your test returns True for an attention that does not see the padding: {says}."
MISSES = "Your test returns False for an attention that sees the padding: {says}."
AFTER_FEW = "Your test returns False after {inputs} inputs."
AFTER_ONE = "Your test returns False and the real tokens are the same in all its calls."
UNDONE = "Your test changes the padding only in a way that a LayerNorm would undo."
ROWS = "row {}", "rows {}"  # one, or several


def _accepts(result, attention, real, d_model, probe=""):
    if probe == "record":
        return None
    inputs, removed = INPUTS, False
    if probe and isinstance(result, tuple) and len(result) == 3:
        result, inputs, removed = result
    verdict = _verdict(result)
    if verdict is None:
        return "no-verdict", NO_VERDICT.format(result=compare.kind(result))
    if verdict and not attention.sees:
        return "false-alarm", FALSE_ALARM.format(says=attention.says)
    if attention.sees and not verdict:
        return "misses-padding", MISSES.format(says=attention.says)
    if inputs < INPUTS:
        return "few-inputs", (AFTER_FEW if inputs > 1 else AFTER_ONE).format(inputs=inputs)
    if removed:
        return NORM, UNDONE
    return None


NORM = "norm-removes-the-change"
CAUSES = {
    "never-calls": "Your function never calls `attention`.",
    "padding-taken-away": (
        "Your function removes the padding. An output may depend on how many padded tokens there are; only "
        "the numbers in them count."
    ),
    "another-mask": (
        "Your function calls attention with another mask than `real`. Keep the mask as it is, and change "
        "the numbers in the padding."
    ),
    "poisoned-with-nan": (
        "Your test puts NaN or infinity into the padding. 0 * NaN is NaN, and so is 0 * infinity: a padded "
        "token of weight 0 still makes a sum NaN. With finite numbers it does not."
    ),
    "fixed-rows": (
        "The rows that your function changes do not follow `real`: with padding in rows 0, 2 and 3 of 6, it "
        "changed {rows}."
    ),
    "changes-real-tokens": (
        "No two inputs of your function have the same real tokens. The output of a real token may depend on "
        "its own numbers: keep those, and change only the padding."
    ),
    "compares-padded-outputs": (
        "Your test compares the outputs of padded tokens as well. Those may depend on the padding; only the "
        "outputs of real tokens count."
    ),
    "no-room-for-rounding": (
        "Your test reports a leak where only rounding changes an output. Rounding may change an output by "
        "almost 1e-5, even one near 0. Allow for that: `torch.allclose` has `atol`."
    ),
    "inverted": "True and False are swapped: True should mean that the padding is seen.",
    "always-true": "Your function returns True for every attention that was tried.",
    "one-call": "Your function calls attention once, so there is nothing to compare its output with.",
    "the-same-input-twice": (
        "Your function gives attention the same numbers each time. `y = x` is a second name for one tensor; "
        "`x.clone()` is a copy that can be changed separately."
    ),
    "few-inputs": (
        "Your function tries {inputs} inputs; at least 20 are required, because a leak may show for only "
        "half of them."
    ),
    "return-inside-the-loop": (
        "A loop in your function always ends in its first iteration: a `return` or `break` is "
        "reached there. So it tries one input before it returns False, and a leak may show for only half of "
        "all inputs."
    ),
    "the-same-real-tokens": (
        "Your function calls attention {calls} times, and always with the same real tokens. A leak may show "
        "for only half of all inputs: make a new `x` in each iteration."
    ),
    "one-input": (
        "Your function tries one input before it returns False. A leak may show for only half of all inputs."
    ),
    "one-place-only": (
        "Of three padded tokens your function changes {place}. An attention may see another one."
    ),
    "one-number-only": (
        "Of the 5 numbers of a padded token your function changes only {columns}. An attention may see "
        "another one."
    ),
    NORM: (
        "Your function changes all numbers of a padded token by the same amount, or by the same factor. "
        "A LayerNorm removes such a change, so a leak after it does not show. Put new random numbers there."
    ),
    "tolerance-too-wide": (
        "Your tolerance is too wide: the same leak, 1000 times as large, is found. A leak may change an "
        "output by a few thousandths."
    ),
    "first-real-token-only": (
        "Your test finds a leak into the first real token, but not one into the last real token alone. Does "
        "it compare the outputs of all real tokens?"
    ),
    "last-real-token-only": (
        "Your test finds a leak into the last real token, but not one into the first real token alone. Does "
        "it compare the outputs of all real tokens?"
    ),
    "no-token-alone": (
        "Your test finds a leak into all tokens, but not one into a single real token. Does it compare the "
        "outputs of all real tokens?"
    ),
    "sums-cancel": (
        "Your test finds a leak into one real token, but misses one that adds to one token what it takes "
        "from another. Is something added up before it is compared or before its gradient is taken, or "
        "are padded rows only moved?"
    ),
    "numbers-of-a-token-cancel": (
        "Your test finds a leak into all numbers of a token, but misses one that adds to one number what it "
        "takes from another number of the same token. Is something added up over a token before it is "
        "compared?"
    ),
    "steps-not-seen": (
        "Your test misses a leak that counts how many numbers in the padding are above 0. A gradient, a "
        "factor or a small change does not show it: put new random numbers into the padding, and compare the "
        "outputs."
    ),
    "needs-every-input": (
        "Your test finds no leak that shows for only half of the inputs. Does it return True only if every "
        "input shows the leak? One is enough."
    ),
    "one-sign-only": (
        "In your inputs, no number of a real token is {missing}. A leak may show only for such a number: "
        "`torch.randn` makes numbers of both signs."
    ),
    "many-inputs-in-vain": (
        "Your function tries {inputs} inputs, but misses leaks that show for half of all random inputs. "
        "Does each round overwrite the verdict of the one before? Are the inputs random? Is one input that "
        "shows the leak enough for True?"
    ),
    "always-false": "Your function returns False for every attention that was tried.",
}
SPECIAL = padding.after_a_norm, padding.added_and_taken_within, padding.counted  # missed by whole tests
WITH_MISSES = {"compares-padded-outputs", "poisoned-with-nan", "no-room-for-rounding"}
ONE_SIGN = {(1, False, True), (2, True, False)}  # what was in the inputs, and the leaks that were found
PLACES = {1: "the first only", 2: "the second only", 3: "the first two", 4: "the last only"}
PLACES |= {5: "the first and the last", 6: "the last two", 7: "all"}


def _explains(problems, results):
    """Causes that the verdicts show, and what the answer was seen to do."""
    told, record = {}, {}
    for (attention, _, _, *probe), result in zip(problems, results, strict=True):
        if probe == ["record"]:
            record = dict(zip(padding.Record.FIELDS, compare.as_array(result).tolist(), strict=True))
            continue
        told[attention] = _verdict(result[0] if probe and isinstance(result, tuple) else result)
        if told[attention] is None:
            return None
    names = list(_alarms(told, **record))
    if not any(told[attention] for attention in padding.IN_ORDER) or WITH_MISSES & set(names):
        names += _misses(told, **record)
    if not names:
        return None
    rows = [str(row) for row in range(6) if record["rows"] >> row & 1]
    words = record | {
        "place": PLACES.get(record["places"]),
        "missing": "positive" if record["signs"] == 1 else "negative",
        "rows": ROWS[len(rows) > 1].format(_and(rows)),
    }
    return names[0], " And: ".join(CAUSES[name].format(**words) for name in names[:2])


def _and(words):
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _alarms(told, *, calls, shared, rows, gradient, infinite, shorter, remasked, **_):
    """Why an attention without a leak is called one that sees the padding."""
    alarms = {attention for attention in padding.IN_ORDER if told[attention]}
    follows = {attention for attention in padding.IN_ORDER if attention.follows}
    spreads = {attention for attention in padding.IN_ORDER if attention.spreads}
    if not alarms:
        return
    if not calls:
        yield "never-calls"
    elif shorter:
        yield "padding-taken-away"
    elif remasked:
        yield "another-mask"
    elif calls == 1 and not gradient and not infinite:
        yield "one-call"
    elif infinite and alarms in (spreads, spreads | follows):
        yield "poisoned-with-nan"
        if alarms != spreads:
            yield "compares-padded-outputs"
    elif calls > 1 and not shared and not gradient:
        yield _moved(rows)
    elif alarms <= follows | {padding.only_rounds}:
        if alarms & follows:  # real tokens, mask and length stayed, so it was no real output that changed
            yield "compares-padded-outputs"
        if padding.only_rounds in alarms:
            yield "no-room-for-rounding"
    elif len(alarms) == len(padding.IN_ORDER):
        if not any(told[a] for a in (padding.first_place_only, padding.last_place_only)):
            yield "inverted"
        elif all(told.values()):
            yield "always-true"


def _moved(rows):
    """Real tokens were changed: some of them, or all."""
    changed = [bool(rows >> row & 1) for row in range(6) if RECORDED[row]]
    return "fixed-rows" if any(changed) and not all(changed) else "changes-real-tokens"


def _misses(told, *, calls, shared, places, columns, rows, gradient, infinite, removed, **record):
    """Why an attention that sees the padding is called one without a leak."""
    changes = shared and not gradient  # then it is known what changed in the padding
    if not calls:
        yield "never-calls"
    elif calls == 1 and not gradient and not infinite:
        yield "one-call"
    elif calls > 1 and not shared and not gradient and not infinite:
        yield _moved(rows)
    elif changes and not places:
        yield "the-same-input-twice"
    else:
        yield from _tried(told, calls, **record)
        if changes and places < 7:
            yield "one-place-only"
        elif changes and columns < 5:
            yield "one-number-only"
        else:
            yield from _compared(told)
        if removed:
            yield NORM


def _tried(told, calls, *, inputs, one_round, signs, **_):
    """Too few inputs."""
    halves = [told[attention] for attention in told if attention.sees and attention not in padding.LEAKS]
    leaks = all(told[attention] for attention in padding.LEAKS if attention not in SPECIAL)
    if leaks and not any(halves):
        yield "needs-every-input"
    elif inputs == 1 and one_round:
        yield "return-inside-the-loop"
    elif inputs == 1:
        yield "the-same-real-tokens" if calls > 2 else "one-input"
    elif inputs < INPUTS:
        yield "few-inputs"
    elif (signs, told[padding.WHERE_POSITIVE], told[padding.WHERE_NEGATIVE]) in ONE_SIGN:
        yield "one-sign-only"
    elif leaks and not all(halves):
        yield "many-inputs-in-vain"


def _compared(told):
    """A change that is not noticed."""
    first, last = told[padding.one_number_only], told[padding.first_place_only]
    if told[padding.last_place_only] and not told[padding.tiny]:
        yield "tolerance-too-wide"
    if first != last:
        yield "first-real-token-only" if first else "last-real-token-only"
    if told[padding.last_place_only] and not first and not last:
        yield "no-token-alone"
    if first and last and not told[padding.added_and_taken]:
        yield "sums-cancel"
    if told[padding.last_place_only] and not told[padding.added_and_taken_within]:
        yield "numbers-of-a-token-cancel"
    if told[padding.tiny] and not told[padding.counted]:
        yield "steps-not-seen"
    if not any(verdict for attention, verdict in told.items() if attention.sees):
        yield "always-false"


def _raising(use):
    """What Python says of a call of ``attention``."""
    return lambda attention, real, d_model: use(attention, torch.zeros(len(real), d_model), real)


STEP = "4 Bugs in the masks"
EXERCISE = Exercise(
    answer=sees_padding,
    chapter="11_bug_clinic",
    section=STEP,
    points=3,
    problems=_problems,
    call=_call,
    accepts=_accepts,
    explains=_explains,
    results=("got, which is right", "inputs that it tried", "every change was one that a LayerNorm undoes"),
    mistakes={
        "mask-not-given": Mistake(
            "`attention` takes two arguments, `x` and `real`.",
            STEP,
            (_raising(lambda attention, x, real: attention(x)),),
        ),
        "no-tensor-given": Mistake(
            "`attention` takes a tensor: `torch.tensor(x)` makes one from an array or a list.",
            STEP,
            (
                _raising(lambda attention, x, real: attention(x.numpy(), real)),
                _raising(lambda attention, x, real: attention(x.tolist(), real)),
            ),
        ),
        "other-axes-given": Mistake(
            "The `x` of `attention` has two axes, (n, d_model): there is none for a batch.",
            STEP,
            (
                _raising(lambda attention, x, real: attention(x[None], real)),
                _raising(lambda attention, x, real: attention(x[0], real)),
            ),
        ),
        "first-token-indexed": Mistake(
            "`attention` returns one tensor, (n, d_model), so `attention(...)[0]` is the output of the "
            "first token, (d_model,); `real` has n entries, so it does not fit.",
            STEP,
            (_raising(lambda attention, x, real: attention(x, real)[0][real]),),
        ),
    },
)
