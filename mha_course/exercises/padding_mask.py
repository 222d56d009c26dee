"""Chapter 04: hide the padding."""

import torch

import mha_lab
from mha_course.exercises import Exercise, Mistake, deviations


def padding_mask(lengths, max_length):
    """``(batch,)`` to boolean ``(batch, 1, 1, max_length)``, ``True`` = may attend."""
    return (torch.arange(max_length) < lengths[:, None])[:, None, None, :]


def _problems(rng):
    yield torch.tensor([1, 3]), 4
    yield torch.tensor([2, 5, 1]), 6
    for _ in range(3):
        batch, longest = rng.primes(2)
        # At least one sentence that is neither empty nor full, and none as long as the block.
        yield torch.tensor([1] + [rng.below(longest) for _ in range(batch - 1)]), longest
    yield torch.tensor([0, 5, 2]), 5


def _build(
    compare=lambda position, n: position < n,
    axes=lambda mask: mask[:, None, None, :],
    form=lambda mask: mask,
    width=lambda lengths, longest: longest,
):
    def answer(lengths, max_length):
        position = torch.arange(width(lengths, max_length))
        return form(axes(compare(position, lengths[:, None])))

    return answer


STEP, INVERTED = "3 Hide the padding", "The inverted mask"
COMPARISONS = {
    "mask-inverted": (
        "Your mask is True at the padding; in this course True means may attend.",
        INVERTED,
        (lambda p, n: p >= n,),
    ),
    "shows-one-padding": (
        "Your mask shows one position too many: of a sentence of length 3, the positions 0, 1 and 2 are "
        "real.",
        STEP,
        (lambda p, n: p <= n,),
    ),
    "hides-the-last-token": (
        "Your mask hides the last token of each sentence: for length 3, the positions 0, 1 and 2 are real.",
        STEP,
        (lambda p, n: p < n - 1,),
    ),
    "inverted-and-off-by-one": (
        "Your mask is True at the padding, except at its first position: it is inverted, and one position "
        "off.",
        INVERTED,
        (lambda p, n: p > n,),
    ),
    "padding-at-the-front": (
        "Your mask hides positions at the front; the padding is at the end.",
        STEP,
        (lambda p, n: p >= len(p) - n, lambda p, n: p > len(p) - n),
    ),
    "length-only": (
        "Your mask marks the one position that the length names, not the positions before it.",
        STEP,
        (lambda p, n: p == n, lambda p, n: p == n - 1),
    ),
    "nothing-hidden": ("Your mask hides nothing.", STEP, (lambda p, n: (p >= 0).expand(len(n), -1),)),
    "sentence-visible-whole": (
        "Your mask shows every position of a sentence that is not empty. In `mask[b, :length]` the slice "
        "runs over an axis of size 1; the keys are the last axis.",
        STEP,
        (lambda p, n: (p >= 0) & (n > 0),),
    ),
    "full-sentence-hidden": (
        "Your mask hides every position of a sentence without padding: a slice that begins at `-0` begins "
        "at 0, not at the end.",
        STEP,
        (lambda p, n: (p < n) & (n < len(p)),),
    ),
    "empty-sentence-visible": (
        "Your mask shows every position of an empty sentence. (There, the index `length - 1` is -1, which "
        "is the last position.)",
        STEP,
        (lambda p, n: (p < n) | (n < 1),),
    ),
    "one-length-for-all": (
        "Your mask uses the same length for every sentence of the batch.",
        STEP,
        (
            lambda p, n: (p < n[0]).expand(len(n), -1),
            lambda p, n: (p < n.max()).expand(len(n), -1),
            lambda p, n: (p < n[-1]).expand(len(n), -1),
        ),
    ),
}
AXES = {
    "two-axes-missing": (
        "Your mask is (batch, max_length): the two axes of size 1 in the middle are missing.",
        STEP,
        (lambda m: m,),
    ),
    "one-axis-missing": (
        "Your mask is (batch, 1, max_length): one of the two axes of size 1 in the middle is missing.",
        STEP,
        (lambda m: m[:, None],),
    ),
    "masks-queries-not-keys": (
        "Your mask varies along the query axis or the head axis. The key axis is the last one.",
        STEP,
        (lambda m: m[:, None, :, None], lambda m: m[:, :, None, None], lambda m: m[:, :, None]),
    ),
    "axes-in-front": (
        "In your mask an axis of size 1 comes before the batch; both should be between batch and keys.",
        STEP,
        (lambda m: m[None, None], lambda m: m[None, :, None], lambda m: m[None]),
    ),
    "queries-repeated": (
        "Your mask has a row for each query; use an axis of size 1 there, which broadcasts.",
        STEP,
        (
            lambda m: m[:, None, None].expand(-1, 1, m.shape[-1], -1),
            lambda m: (m[:, :, None] & m[:, None, :])[:, None],
        ),
    ),
    "batch-and-keys-swapped": (
        "Your mask has the batch as its last axis; the keys should be there.",
        STEP,
        (lambda m: m.mT[:, None, None], lambda m: m.mT),
    ),
    "reshaped-in-place-of-turned": (
        "Your mask is made as (max_length, batch), and then reshaped: that mixes the sentences.",
        STEP,
        (lambda m: m.mT.reshape(len(m), 1, 1, -1),),
    ),
}
FORMS = {
    "numbers-in-place-of-booleans": (
        "Your mask contains the numbers 0 and 1. A comparison, or `.bool()`, turns them into booleans.",
        STEP,
        (lambda m: m.float(),),
    ),
    "additive-mask": (
        "Your mask contains 0 and -inf (or a large negative number), to be added to scores; it should "
        "contain booleans.",
        "4 Three conventions",
        tuple(
            lambda m, hidden=hidden: torch.zeros(m.shape).masked_fill(~m, hidden)
            for hidden in (-torch.inf, -1e9)
        ),
    ),
}
WIDTHS = {
    "as-wide-as-the-longest": (
        "Your mask is as wide as the longest sentence of the batch; the given max_length is not used.",
        STEP,
        (lambda n, longest: int(n.max()),),
    ),
    "always-the-same-width": (
        "Your mask has the same width for every max_length.",
        STEP,
        tuple(lambda n, longest, width=width: width for width in (2, 3, 5)),
    ),
}


def _first_sentences(lengths, max_length):
    seen = torch.arange(len(lengths)) < lengths.max()
    return seen[:, None, None, None].expand(-1, 1, 1, max_length)


EXERCISE = Exercise(
    answer=padding_mask,
    chapter="04_masking",
    section=STEP,
    points=1,
    problems=_problems,
    same_as=(mha_lab.padding_mask,),
    mistakes={
        **deviations(_build, {"compare": COMPARISONS, "axes": AXES, "form": FORMS, "width": WIDTHS}),
        "a-row-against-a-row": Mistake(
            "Positions and lengths are both rows, so they line up entry by entry; with lengths as a column, "
            "`lengths[:, None]`, each length lines up with every position.",
            STEP,
            (lambda n, longest: torch.arange(longest) < n, lambda n, longest: n > torch.arange(longest)),
        ),
        "slice-of-the-batch": Mistake(
            "`mask[:length]` takes the first sentences of the batch, because the first axis counts "
            "sentences. The keys are the last axis: `mask[b, 0, 0, :length]`.",
            STEP,
            (_first_sentences,),
        ),
        "all-lengths-at-once": Mistake(
            "One whole number is needed there, but your function gives the lengths of all sentences. "
            "Compare positions with lengths, or use a loop over the sentences, so that each has its own "
            "length.",
            STEP,
            (
                lambda n, longest: torch.ones(longest)[:n],
                lambda n, longest: torch.arange(n),
                lambda n, longest: torch.ones(n),
                lambda n, longest: torch.zeros(n),
            ),
        ),
    },
)
