"""Chapter 04: the mask of several texts that are packed into one row."""

import torch

from mha_course.exercises import Exercise, Mistake, _packed, deviations


def packed_mask(lengths):
    """A list of lengths to the boolean mask ``(n, n)`` of the packed row, ``True`` = may attend."""
    text = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    return (text == text[:, None]).tril()


def _parts(rng, n, count):
    """``count`` lengths that differ in general, and sum to ``n``."""
    cuts = sorted(rng.shuffled(range(1, n))[: count - 1])
    return [end - start for start, end in zip([0, *cuts], [*cuts, n], strict=True)]


def _problems(rng):
    yield ([1, 3],)
    yield ([2, 2],)  # two texts of one length
    yield ([1, 1, 1],)  # the smallest in which a third text begins
    yield ([3, 1, 2],)
    yield ([4],)
    yield ([1],)
    yield ([1] * 70,)
    yield (rng.shuffled([3, 5, 2, 3, 5, 4]),)
    yield (_parts(rng, 128, 4 + rng.below(3)),)
    yield (rng.shuffled([32, 32, 40, 24]),)
    yield ([*_parts(rng, 90, 5), 1, 1, 36],)  # 8 texts: a longer list of results is not read


def _passed(shift, strict):
    """Texts numbered by how many ends a token has passed."""

    def texts(lengths):
        ends = torch.tensor(lengths).cumsum(0) + shift
        position = torch.arange(sum(lengths))[:, None]
        return _packed.pairs((position > ends if strict else position >= ends).sum(-1))

    return texts


def _equal(length):
    """All texts of one length."""
    return lambda lengths: _packed.pairs(torch.arange(sum(lengths)) // length(lengths))


def _on_top(lengths):
    """All blocks at the beginning."""
    inside = torch.arange(sum(lengths)) < max(lengths)
    return inside & inside[:, None]


def _after_one(put):
    """Blocks that begin at the length of the text before, not at the sum of all lengths before."""

    def texts(lengths):
        mask = torch.zeros(sum(lengths), sum(lengths), dtype=torch.bool)
        for start, length in zip([0, *lengths], lengths, strict=False):
            put(mask, start, start + length)
        return mask

    return texts


def _overwrite(mask, start, end):
    mask[start:end, start:end] = torch.ones(end - start, end - start).tril().bool()


def _add(mask, start, end):
    mask[start:end, start:end] |= torch.ones(end - start, end - start).tril().bool()


def _without_last(lengths):
    """Blocks that end one token too early."""
    last = torch.isin(torch.arange(sum(lengths)), torch.tensor(lengths).cumsum(0) - 1)
    return _packed.same_text(lengths) & ~last & ~last[:, None]


def _places(lengths):
    """A token sees all tokens, of any text, that stand no later in their texts."""
    place = torch.cat([torch.arange(length) for length in lengths])
    return place <= place[:, None]


TEXTS = _packed.TEXTS | {
    "length-in-place-of-index": (
        "Your mask takes two texts of the same length for one text. Give each text a number of its own.",
        _packed.TOGETHER,
        (lambda lengths: _packed.pairs(torch.tensor(lengths)[_packed.numbers(lengths)]),),
    ),
    "border-one-too-late": (
        "In your mask the first token of each text, except the first text, belongs to the text before it: "
        "a border is one token too late.",
        _packed.TOGETHER,
        (_passed(0, strict=True),),
    ),
    "border-one-too-early": (
        "In your mask the last token of each text, except the last text, belongs to the text after it: "
        "a border is one token too early.",
        _packed.TOGETHER,
        (_passed(-1, strict=False),),
    ),
    "last-token-left-out": (
        "In your mask the last token of each text sees nothing, and no token sees it. A slice stops before "
        "its end, so `start:start + length` contains the last token.",
        _packed.TOGETHER,
        (_without_last,),
    ),
    "blocks-on-top-of-each-other": (
        "In your mask all blocks begin at token 0. Each block should begin where the text before it ends.",
        _packed.TOGETHER,
        (_on_top,),
    ),
    "begins-after-one-length": (
        "In your mask, each block begins at the length of the text before it. From the third text on, this "
        "is the wrong place: a text begins at the sum of all earlier lengths.",
        _packed.TOGETHER,
        (_after_one(_overwrite), _after_one(_add)),
    ),
    "one-length-for-all": (
        "Your mask uses one and the same length for all texts.",
        _packed.TOGETHER,
        (_equal(lambda lengths: lengths[0]), _equal(lambda lengths: lengths[-1]), _equal(max)),
    ),
}
EXERCISE = Exercise(
    answer=packed_mask,
    chapter="04_masking",
    section=_packed.TOGETHER,
    points=2,
    problems=_problems,
    mistakes={
        **deviations(
            _packed.build,
            {"order": _packed.ORDER, "texts": TEXTS, "join": _packed.JOINS, "form": _packed.FORMS},
        ),
        "only-places-in-the-texts": Mistake(
            "Your mask compares the places of two tokens in their texts. It does not ask whether they are in "
            "the same text.",
            _packed.TOGETHER,
            (_places,),
        ),
        "one-mask-for-each-text": Mistake(
            "Your function returns one mask for each text. One mask for the whole row is expected, in which "
            "these masks are blocks on the diagonal.",
            _packed.TOGETHER,
            (
                lambda lengths: [torch.ones(length, length).tril().bool() for length in lengths],
                lambda lengths: [torch.ones(length, length).bool() for length in lengths],
            ),
        ),
    },
)
