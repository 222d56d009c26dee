"""Chapter 04: a padding mask on the wrong axis."""

import torch

import mha_lab
from mha_course.exercises import Exercise, Mistake, _hide, deviations


def fix_padding(scores, lengths):
    """``(batch, n, n)`` and ``(batch,)`` to weights ``(batch, n, n)`` that hide the padded keys."""
    real = torch.arange(scores.shape[-1]) < lengths[:, None]
    return torch.softmax(scores.masked_fill(~real[:, None, :], -torch.inf), dim=-1)


def _stub(scores, lengths):
    """The chapter's."""
    real = torch.arange(scores.shape[-1]) < lengths[:, None]
    mask = real[:, :, None]
    return torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1)


def _problems(rng):
    scores = torch.tensor([[[1.0, 2.0, 0.5], [0.0, 3.0, 1.0], [2.0, 1.0, 4.0]]])
    yield scores, torch.tensor([2])
    yield scores + torch.tensor([0.0, 0.0, 200.0]), torch.tensor([2])  # large, and hidden
    for _ in range(3):
        batch, n = rng.primes(2, at_least=3)  # with n = 2, one token off hides nothing
        lengths = torch.tensor([1, n - 1] + [1 + rng.below(n) for _ in range(batch - 2)])
        yield rng.normal(batch, n, n), lengths
    scores = rng.normal(2, 4, 4)
    scores[0, :, 3] = 200.0  # large, and hidden
    scores[1] += 120.0  # large, and visible
    yield scores, torch.tensor([3, 2])
    yield torch.tensor([[[8.2, 0.0], [0.0, 1.0]]]), torch.tensor([2])  # a weight of 0.0003


def _real(scores, lengths):
    return torch.arange(scores.shape[-1]) < lengths[:, None]


def _sliced(scores, lengths):
    weights = torch.zeros_like(scores)
    weights[:, :, :lengths] = torch.softmax(scores[:, :, :lengths], -1)
    return weights


FILLED = _hide.Steps(then=_hide.THEN[:1]).ways(_hide.HIDE[:2], ())


def _build(real=_real, axes=lambda r: r[:, None, :], weigh=None):
    """A tuple of answers: each of the ways in which hidden keys may get no weight."""
    ways = (mha_lab.masked_softmax, *FILLED) if weigh is None else (weigh,)
    return tuple(lambda s, n, way=way: way(s, axes(real(s, n))) for way in ways)


STEP = "3 Hide the padding"
REAL = {
    "mask-inverted": (
        "Your mask is True at the padding: the real keys are hidden, and the padding is shown.",
        "The inverted mask",
        (lambda s, n: ~_real(s, n),),
    ),
    "shows-one-padding": (
        "Your mask treats one padded token as real: for length 3, the positions 0, 1 and 2 are real.",
        STEP,
        (lambda s, n: _real(s, n + 1),),
    ),
    "hides-the-last-token": (
        "Your mask hides the last real token too: for length 3, the positions 0, 1 and 2 are real.",
        STEP,
        (lambda s, n: _real(s, n - 1),),
    ),
    "mask-ignored": ("Your function hides nothing.", STEP, (lambda s, n: _real(s, n + 99),)),
    "padding-at-the-front": (
        "Your function hides keys at the front; the padding is at the end.",
        STEP,
        (lambda s, n: _real(s, n).flip(-1),),
    ),
}
AXES = {
    "masks-queries-not-keys": (
        "Your mask still varies along the query axis: it hides rows, but should hide columns.",
        STEP,
        (lambda r: r[:, :, None],),
    ),
    "masks-queries-too": (
        "Your function hides the padded keys, but also hides every key from the padded queries.",
        STEP,
        (lambda r: r[:, :, None] & r[:, None, :],),
    ),
    "masks-either": (
        "Your mask joins rows and columns with `|`: a pair is hidden only if query and key are both padding.",
        STEP,
        (lambda r: r[:, :, None] | r[:, None, :],),
    ),
    "axis-of-queries-missing": (
        "In your mask, batch and keys are side by side, so the batch lines up with the queries of the "
        "scores, (batch, n, n). Put an axis of size 1, for the queries, between the batch and the keys.",
        STEP,
        (lambda r: r, lambda r: r[None]),
    ),
    "an-axis-too-many": (
        "Your mask has four axes, with one for heads; these scores have three, (batch, n, n).",
        STEP,
        (lambda r: r[:, None, None, :], lambda r: r[:, None, :, None]),
    ),
    "batch-not-in-front": (
        "Your mask does not have the batch as its first axis, as the scores do.",
        STEP,
        (lambda r: r[None, :, :, None], lambda r: r[None, :, None], lambda r: r.mT[:, None, :]),
    ),
}
WEIGH = _hide.wrong(_hide.HEADINGS, "large", "batch", but=("mask-inverted", "mask-ignored"))
OFTEN = {  # seen together with others; each pair costs time
    "masked-after-softmax", "filled-after-softmax", "mask-added-as-bool", "hidden-scores-zero",
    "softmax-over-queries", "softmax-over-the-batch", "no-softmax",
}  # fmt: skip
EXERCISE = Exercise(
    answer=fix_padding,
    chapter="04_masking",
    section=STEP,
    points=2,
    problems=_problems,
    bug=_stub,
    mistakes={
        **deviations(_build, {"real": REAL, "axes": AXES, "weigh": WEIGH}, alone=WEIGH.keys() - OFTEN),
        "scores-turned": Mistake(
            "Your function swaps queries and keys, in the scores or in the result, but not in the mask.",
            STEP,
            (
                lambda s, n: mha_lab.masked_softmax(s.mT, _real(s, n)[:, :, None]),
                lambda s, n: mha_lab.masked_softmax(s.mT, _real(s, n)[:, None, :]),
                lambda s, n: mha_lab.masked_softmax(s, _real(s, n)[:, :, None]).mT,
            ),
        ),
        "mask-returned": Mistake(
            "Your function returns the mask; it should return the weights.",
            STEP,
            (lambda s, n: _real(s, n)[:, None, :], lambda s, n: _real(s, n)),
        ),
        "a-row-against-a-row": Mistake(
            "Positions and lengths are both rows, so they line up entry by entry; with lengths as a column, "
            "`lengths[:, None]`, each length lines up with every position.",
            STEP,
            (
                lambda s, n: mha_lab.masked_softmax(s, (torch.arange(s.shape[-1]) < n)[:, None, :]),
                lambda s, n: mha_lab.masked_softmax(s, (torch.arange(s.shape[-1]) < n[None])[:, None, :]),
            ),
        ),
        "all-lengths-at-once": Mistake(
            "One whole number is needed there, but your function gives the lengths of all sentences.",
            STEP,
            (lambda s, n: _sliced(s, n), lambda s, n: torch.arange(n)),
        ),
        "as-wide-as-the-longest": Mistake(
            "Your mask is as wide as the longest sentence of the batch, but the scores are wider.",
            STEP,
            (
                lambda s, n: mha_lab.masked_softmax(s, mha_lab.padding_mask(n)[:, 0]),
                lambda s, n: mha_lab.masked_softmax(s, (torch.arange(n.max()) < n[:, None])[:, None]),
                lambda s, n: FILLED[0](s, (torch.arange(n.max()) < n[:, None])[:, None]),
            ),
        ),
        "future-hidden-too": Mistake(
            "Your function hides the future as well as the padding: no causal mask is needed here.",
            STEP,
            (
                lambda s, n: mha_lab.masked_softmax(
                    s, _real(s, n)[:, None] & mha_lab.causal_mask(s.shape[-1])
                ),
            ),
        ),
    },
)
