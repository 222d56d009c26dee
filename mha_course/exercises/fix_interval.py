"""Chapter 07: an interval that counts the wrong thing."""

import numpy as np
import torch

from mha_course.exercises import Exercise, Mistake, deviations
from mha_course.exercises._results import as_array


def fix_interval(one, two, t):
    """``(seeds, problems)`` twice, 1 where an answer is right, to the interval ``(2,)`` of the mean gap."""
    gap = (two - one).mean(dim=1)
    half = t * gap.std() / len(gap) ** 0.5
    return torch.stack([gap.mean() - half, gap.mean() + half])


def _stub(one, two, t):
    gap = (two - one).flatten()
    half = t * gap.std() / len(gap) ** 0.5
    return torch.stack([gap.mean() - half, gap.mean() + half])


def _problems(rng):
    """Here ``t`` is that of other intervals than the chapter's, which has 12.71 for 2 seeds, 2.776 for 5."""
    yield (
        torch.tensor([[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]]),
        torch.tensor([[1.0, 1.0, 0.0, 1.0], [1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 1.0]]),
        4.303,
    )
    yield (
        torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]),
        6.314,
    )
    yield (
        torch.tensor(
            [
                [0.0, 1.0, 0.0, 0.0],
                [0.0, 0.0, 0.0, 0.0],
                [1.0, 1.0, 0.0, 1.0],
                [0.0, 1.0, 0.0, 0.0],
                [1.0, 1.0, 0.0, 1.0],
            ]
        ),
        torch.tensor(
            [
                [1.0, 1.0, 0.0, 1.0],
                [1.0, 1.0, 0.0, 1.0],
                [1.0, 0.0, 0.0, 1.0],
                [1.0, 1.0, 1.0, 1.0],
                [1.0, 1.0, 1.0, 1.0],
            ]
        ),
        2.132,
    )
    for _ in range(3):
        seeds, problems = rng.primes(2, at_least=3)
        level = rng.normal(2, seeds, 1)
        one, two = (rng.normal(2, seeds, problems) < level).float()
        one[0, 0], two[0, 0], one[1, 0], two[1, 0], two[0, 1] = 0, 1, 1, 0, 1  # every group has some spread
        yield one, two, 2.25 + 0.5 * rng.below(5)


def _of_gap(reduce, one, two):
    return reduce(two - one).std()


def _build(
    reduce=lambda x: x.mean(dim=1),
    sign=1,
    spread=_of_gap,
    divisor=lambda gap, one: len(gap) ** 0.5,
    factor=lambda t, gap: t,
    ends=lambda gap, half: torch.stack([gap.mean() - half, gap.mean() + half]),
):
    def answer(one, two, t):
        gap = sign * reduce(two - one)
        return ends(gap, factor(t, gap) * spread(reduce, one, two) / divisor(gap, one))

    return answer


TABLE = {2: 12.71, 5: 2.776}
STEP = "4 Train, and measure the gap"
CHOICES = {
    "reduce": {
        "bug-still-there": (
            "Your n and your spread are still those of single problems, as before.",
            (lambda x: x.flatten(),),
        ),
        "spread-of-problems": (
            "Your spread is still that of single problems: reduce each row to one number first.",
            (lambda x: x,),
        ),
        "averaged-over-seeds": (
            "You average over the seeds, and take the spread between problems. Which of them were repeated?",
            (lambda x: x.mean(dim=0),),
        ),
        "counts-for-shares": (
            "Your gap is a number of problems: divide it by how many there are to get a share.",
            (lambda x: x.sum(dim=1),),
        ),
    },
    "sign": {
        "gap-inverted": ("Your gap is one minus two; it should be two minus one.", (-1,)),
    },
    "spread": {
        "biased-spread": (
            "Your standard deviation divides by n. Divide by n - 1, as `.std()` of a tensor does by default.",
            (lambda reduce, one, two: reduce(two - one).std(correction=0),),
        ),
        "variance": (
            "You take the variance; the standard deviation is its root.",
            (lambda reduce, one, two: reduce(two - one).var(),),
        ),
        "unpaired": (
            "You combine the spread of one with that of two, as for unrelated groups. Here rows are pairs: "
            "take the spread of the gaps.",
            (
                lambda reduce, one, two: (reduce(one).var() + reduce(two).var()).sqrt(),
                lambda reduce, one, two: reduce(one).std() + reduce(two).std(),
                lambda reduce, one, two: ((reduce(one).var() + reduce(two).var()) / 2).sqrt(),
            ),
        ),
    },
    "divisor": {
        "counts-problems": (
            "Your n still counts problems; the independent repetitions are the training runs, one for each "
            "seed.",
            (lambda gap, one: one.shape[1] ** 0.5, lambda gap, one: one.numel() ** 0.5),
        ),
        "not-divided": (
            "Your spread is not divided by the square root of n, so the interval is that of a single "
            "training run, not that of the mean.",
            (lambda gap, one: 1.0,),
        ),
        "divided-by-n": (
            "Your spread is divided by n, not by its root.",
            (lambda gap, one: float(len(gap)),),
        ),
        "half-of-n": (
            "Your spread is divided by 2 n, or by n / 2: `** 1/2` is `(** 1) / 2`. `** 0.5` takes the root.",
            (lambda gap, one: 2.0 * len(gap), lambda gap, one: len(gap) / 2),
        ),
        "root-of-n-minus-1": (
            "Your spread is divided by the square root of n - 1; use n - 1 in the standard deviation, "
            "and n here.",
            (lambda gap, one: (len(gap) - 1) ** 0.5,),
        ),
        "counts-both-groups": (
            "Your n counts the training runs of both models; a gap is made of two runs, so there are half "
            "as many gaps.",
            (lambda gap, one: (2 * len(gap)) ** 0.5,),
        ),
        "five-seeds": (
            "Your n is 5, as many as the chapter has seeds; here it is the number of rows.",
            (lambda gap, one: 5**0.5,),
        ),
        "multiplied-by-the-root": (
            "Your spread is multiplied by the square root of n, not divided by it.",
            (lambda gap, one: len(gap) ** -0.5,),
        ),
    },
    "factor": {
        "table-of-the-chapter": (
            "Your t comes from the table of section 4, which has 2 and 5 seeds only; the argument `t` is "
            "not used.",
            (lambda t, gap: TABLE[len(gap)],),
        ),
        "normal-quantile": (
            "Your t is 1.96, the normal distribution's; the argument `t` is not used.",
            (lambda t, gap: 1.96,),
        ),
        "t-left-out": ("The argument `t` is not used.", (lambda t, gap: 1.0,)),
    },
    "ends": {
        "ends-swapped": (
            "Your result is (high, low); it should be (low, high).",
            (lambda gap, half: torch.stack([gap.mean() + half, gap.mean() - half]),),
        ),
        "mean-and-half": (
            "Your result is (mean, half), or (half, mean); it should be (low, high).",
            (
                lambda gap, half: torch.stack([gap.mean(), torch.as_tensor(half)]),
                lambda gap, half: torch.stack([torch.as_tensor(half), gap.mean()]),
            ),
        ),
        "around-0": (
            "Your interval lies around 0, not around the mean gap.",
            (lambda gap, half: torch.stack([-torch.as_tensor(half), torch.as_tensor(half)]),),
        ),
        "around-each-gap": (
            "Your function returns an interval around each gap; it should return one interval around their "
            "mean.",
            (
                lambda gap, half: torch.stack([gap - half, gap + half]),
                lambda gap, half: torch.stack([gap - half, gap + half], dim=-1),
            ),
        ),
    },
}
KNOBS = {
    knob: {name: (says, STEP, pieces) for name, (says, pieces) in choices.items()}
    for knob, choices in CHOICES.items()
}


def _read_off(ends):
    return lambda one, two, t: torch.stack(ends((two - one).mean(dim=1)))


MISTAKES = deviations(_build, KNOBS) | {
    "averaged-over-everything": Mistake(
        "You average over seeds and problems at once: one number is left, which has no spread.",
        STEP,
        (
            _build(reduce=lambda x: x.mean()),
            _build(reduce=lambda x: x.mean(), divisor=lambda gap, one: len(one) ** 0.5),
            _build(reduce=lambda x: x.mean(), divisor=lambda gap, one: 1.0),
        ),
    ),
    "seeds-averaged-and-counted": Mistake(
        "You average over the seeds, so your spread is that between problems; and you divide it by the root "
        "of the number of seeds. Average over the problems.",
        STEP,
        (_build(reduce=lambda x: x.mean(dim=0), divisor=lambda gap, one: len(one) ** 0.5),),
    ),
    "counts-models": Mistake(
        "Your n is 2, as many as there are models; it is the number of seeds.",
        STEP,
        (_build(divisor=lambda gap, one: 2**0.5),),
    ),
    "stack-of-numbers": Mistake(
        "`torch.stack` joins tensors, but these are plain numbers: `torch.tensor([...])` takes them.",
        STEP,
        tuple(
            lambda one, two, t, kind=kind: torch.stack([kind(0)]) for kind in (float, np.float32, np.float64)
        ),
    ),
    "spread-left-out": Mistake(
        "Your interval has no standard deviation in it.",
        STEP,
        (_build(spread=lambda reduce, one, two: 1.0),),
    ),
    "fixed-t": Mistake(
        "Your t is a fixed number, 2, 2.776 or 12.71; the argument `t` is not used.",
        STEP,
        tuple(_build(factor=lambda t, gap, number=number: number) for number in (2.0, 2.776, 12.71)),
    ),
    "spread-of-one-model": Mistake(
        "Your spread is that of one or that of two by itself; take the spread of the gaps.",
        STEP,
        tuple(
            _build(spread=lambda reduce, one, two, which=which: reduce((one, two)[which]).std())
            for which in (0, 1)
        ),
    ),
    "spreads-averaged": Mistake(
        "You take a spread within each row, or within each column, and average these; take the spread of "
        "the rows' mean gaps.",
        STEP,
        tuple(
            _build(
                spread=lambda reduce, one, two, dim=dim: (two - one).std(dim=dim).mean(),
                divisor=lambda gap, one, axis=axis: one.shape[axis] ** 0.5,
            )
            for dim in (0, 1)
            for axis in (0, 1)
        ),
    ),
    "half-as-wide": Mistake(
        "Your interval is half as wide as it should be: `half` is the distance from the mean to each end.",
        STEP,
        (_build(factor=lambda t, gap: t / 2),),
    ),
    "whole-numbers": Mistake(
        "PyTorch does not take the mean of whole numbers, or the difference of booleans: `.float()` "
        "converts them.",
        STEP,
        tuple(
            lambda one, two, t, kind=kind: fix_interval(one.to(kind), two.to(kind), t)
            for kind in (torch.long, torch.int, torch.bool)
        ),
    ),
    "gains-only": Mistake(
        "You count only the problems that two alone has right; subtract those that one alone has right.",
        STEP,
        (_build(reduce=lambda x: (x > 0).float().mean(dim=1)),),
    ),
    "one-model-only": Mistake(
        "Your interval is that of one or that of two by itself; the gap is two minus one.",
        STEP,
        (
            lambda one, two, t: fix_interval(torch.zeros_like(one), two, t),
            lambda one, two, t: fix_interval(torch.zeros_like(one), one, t),
        ),
    ),
    "absolute-gap": Mistake(
        "You take the gaps without their signs; a gap may be negative.",
        STEP,
        (_build(reduce=lambda x: x.abs().mean(dim=1)), _build(reduce=lambda x: x.mean(dim=1).abs())),
    ),
    "clamped": Mistake(
        "Your ends are cut off at -1 and 1, or at 0 and 1; an interval may go further.",
        STEP,
        (
            lambda one, two, t: fix_interval(one, two, t).clamp(-1, 1),
            lambda one, two, t: fix_interval(one, two, t).clamp(0, 1),
        ),
    ),
    "read-off-the-gaps": Mistake(
        "Your ends are the smallest and largest gap, or percentiles of the gaps; return the interval of "
        "their mean.",
        STEP,
        (
            _read_off(lambda gap: [gap.min(), gap.max()]),
            _read_off(lambda gap: [gap.quantile(0.025), gap.quantile(0.975)]),
        ),
    ),
}
del MISTAKES["biased-spread-and-root-of-n-minus-1"]  # together they are right
for _name in CHOICES["divisor"]:  # with another n, it is no longer the bug
    del MISTAKES[f"bug-still-there-and-{_name}"]


def _explains(problems, results):
    """Is it the middle that is wrong, or the width?"""
    arrays = [as_array(result) for result in results]
    if any(a is None or a.shape != (2,) or not np.isfinite(a).all() for a in arrays):
        return None
    right = np.array([fix_interval(*problem).numpy() for problem in problems], dtype=float)
    (low, high), found = right.T, np.array(arrays, dtype=float)
    middle = np.allclose(found.sum(1), low + high, atol=2e-3)
    times = (found[:, 1] - found[:, 0]) / (high - low)
    alike = np.allclose(times, 1, rtol=1e-2)
    for end, other, name in ((0, 1, "low"), (1, 0, "high")):
        ends_right = [np.allclose(found[:, i], right[:, i], atol=1e-3) for i in (end, other)]
        if ends_right == [True, False]:
            return (
                "one-end-wrong",
                f"Of (low, high), `{name}` is right on every problem, but the other is not.",
            )
    if times.min() < 0 or (middle and alike):  # reversed, or a matter of accuracy
        return None
    if middle and np.ptp(times) < 1e-3 * abs(times).max():
        return (
            "wrong-width",
            f"Your interval lies around the mean gap, but is {times[0]:.3g} times as wide as it should be.",
        )
    if middle:
        says = "Your interval lies around the mean gap, as it should, but its width is wrong"
        return "wrong-width", f"{says}: {times.min():.3g} to {times.max():.3g} times what is expected."
    if alike and abs(found.sum(1) - low - high).max() > 0.1:
        return (
            "wrong-middle",
            "Your interval is as wide as it should be, but does not lie around the mean gap.",
        )
    return None


EXERCISE = Exercise(
    answer=fix_interval,
    chapter="07_why_more_heads",
    section=STEP,
    points=2,
    problems=_problems,
    bug=_stub,
    explains=_explains,
    mistakes=MISTAKES,
)
