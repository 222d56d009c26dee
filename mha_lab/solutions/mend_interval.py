"""Chapter 07: an interval that counts the wrong thing."""

import torch

from mha_lab.check.exercise import Exercise, Mistake


def mend_interval(one, two, t):
    """``(seeds, problems)`` twice, 1 where an answer is right, to the interval ``(2,)`` of the mean gap."""
    gap = (two - one).mean(dim=1)
    half = t * gap.std() / len(gap) ** 0.5
    return torch.stack([gap.mean() - half, gap.mean() + half])


def _bug(one, two, t):
    return _around((two - one).flatten(), t)


def _around(gap, t, root=0.5, correction=1):
    half = t * gap.std(correction=correction) / len(gap) ** root
    return torch.stack([gap.mean() - half, gap.mean() + half])


def _gap(one, two):
    return (two - one).mean(dim=1)


def _with_half(half):
    """A mistake in the width only."""

    def answer(one, two, t):
        mean, width = _gap(one, two).mean(), half(one, two, t)
        return torch.stack([mean - width, mean + width])

    return answer


def _problems(draw):
    yield (
        torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]),
        torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]),
        12.71,
    )
    yield (  # here no mistake has the width of another
        torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]),
        torch.tensor([[0.0, 1.0], [1.0, 1.0], [1.0, 1.0]]),
        4.3,
    )
    for dtype in (torch.float32, torch.float64, torch.float64):
        seeds, problems = draw.primes(2, at_least=3)
        level = draw.normal(2, seeds, 1)
        one, two = (draw.normal(2, seeds, problems) < level).to(dtype)
        one[0, 0], two[0, 0], one[1, 0], two[1, 0] = 0, 1, 1, 0  # no group without any spread
        yield one, two, 2.0 + 0.5 * draw.below(5)


STEP = "4 Train, and measure the gap"
EXERCISE = Exercise(
    answer=mend_interval,
    chapter="07_why_more_heads",
    section=STEP,
    points=2,
    problems=_problems,
    bug=_bug,
    mistakes={
        "counts-problems": Mistake(
            "Your n still counts problems: what was repeated independently is the training, once a seed.",
            STEP,
            (
                _with_half(lambda one, two, t: t * _gap(one, two).std() / one.numel() ** 0.5),
                _with_half(lambda one, two, t: t * _gap(one, two).std() / one.shape[1] ** 0.5),
                _with_half(lambda one, two, t: t * (two - one).std() / one.shape[1] ** 0.5),
            ),
        ),
        "spread-of-problems": Mistake(
            "You divide by the seeds, but the spread is that of single problems: average each seed first.",
            STEP,
            (_with_half(lambda one, two, t: t * (two - one).std() / len(one) ** 0.5),),
        ),
        "averaged-over-seeds": Mistake(
            "You average over the seeds first, and take the spread between problems: it is the other axis.",
            STEP,
            (lambda one, two, t: _around((two - one).mean(dim=0), t),),
        ),
        "no-root": Mistake(
            "Your interval is that of a single seed: the mean of n seeds varies less, by the root of n.",
            STEP,
            (lambda one, two, t: _around(_gap(one, two), t, root=0.0),),
        ),
        "divides-by-n": Mistake(
            "You divide the spread by n: a mean of n varies less by the root of n only.",
            STEP,
            (lambda one, two, t: _around(_gap(one, two), t, root=1.0),),
        ),
        "biased-spread": Mistake(
            "Your spread is divided by n: from so few seeds it comes out too small; divide by n - 1.",
            STEP,
            (lambda one, two, t: _around(_gap(one, two), t, correction=0),),
        ),
        "unpaired": Mistake(
            "You treat the two groups as unrelated: each pair has the same start and the same problems.",
            STEP,
            (
                _with_half(
                    lambda one, two, t: t * ((one.mean(1).var() + two.mean(1).var()) / len(one)) ** 0.5
                ),
                _with_half(lambda one, two, t: t * (one.mean(1).std() + two.mean(1).std()) / len(one) ** 0.5),
            ),
        ),
        "gap-inverted": Mistake(
            "Your gap is one head minus two: asked for is what two heads gain.",
            STEP,
            (
                lambda one, two, t: _around(_gap(two, one), t),
                lambda one, two, t: _around((one - two).flatten(), t),
            ),
        ),
        "normal-quantile": Mistake(
            "You take the normal distribution's 1.96: from few seeds the spread is uncertain too, so use t.",
            STEP,
            (
                lambda one, two, t: _around(_gap(one, two), 1.96),
                lambda one, two, t: _around(_gap(one, two), 2.0),
            ),
        ),
    },
)
