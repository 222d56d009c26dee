"""Right and wrong pieces of the mask of a packed row, for chapter 04: several texts follow each other.

``lengths`` is a list with the number of tokens of each text.
"""

import torch

TOGETHER, FUTURE = "3 Hide the padding", "1 Hide the future"
CONVENTIONS, INVERTED = "4 Three conventions", "The inverted mask"


def numbers(lengths):
    """For each token, the number of its text: ``[2, 1]`` gives 0, 0, 1."""
    return torch.repeat_interleave(torch.tensor(lengths))


def same_text(lengths):
    """Right: ``True`` where query and key are in one text."""
    return pairs(numbers(lengths))


def pairs(name):
    """``True`` where two tokens have the same name."""
    return name == name[:, None]


def build(
    texts=same_text,
    order=torch.tril,
    join=torch.logical_and,
    form=lambda mask: mask,
):
    """A mask made of two conditions, on the text and on the order."""

    def answer(lengths):
        apart = texts(lengths)
        return form(join(apart, order(torch.ones_like(apart))))

    return answer


ORDER = {
    "not-causal": (
        "Your mask is not causal: a token also sees later tokens.",
        FUTURE,
        (lambda full: full,),
    ),
    "sees-the-future": (
        "In your mask a token sees itself and later tokens, but no earlier ones. Are rows and columns "
        "swapped?",
        FUTURE,
        (torch.triu,),
    ),
    "hides-the-own-token": (
        "Your mask hides each token from itself: query i may see key i.",
        FUTURE,
        (lambda full: full.tril(-1),),
    ),
    "later-tokens-only": (
        "In your mask a token sees later tokens only. The condition that hides the future is inverted.",
        INVERTED,
        (lambda full: full.triu(1),),
    ),
}
TEXTS = {
    "reads-other-texts": (
        "Your mask does not keep the texts apart: a token also sees tokens of other texts.",
        TOGETHER,
        (lambda lengths: torch.ones_like(same_text(lengths)),),
    ),
    "other-texts-only": (
        "In your mask a token sees tokens of other texts, but none of its own text.",
        INVERTED,
        (lambda lengths: ~same_text(lengths),),
    ),
}
JOINS = {
    "or-in-place-of-and": (
        "A pair of tokens is visible in your mask if one of two conditions is true: same text, or not later. "
        "Both must be true.",
        TOGETHER,
        (torch.logical_or,),
    ),
}
FORMS = {
    "mask-inverted": (
        "Your mask is True where a key should be hidden. In this course, True means may attend.",
        CONVENTIONS,
        (lambda mask: ~mask,),
    ),
    "numbers-in-place-of-booleans": (
        "Your mask contains the numbers 0 and 1. A comparison, or `.bool()`, turns them into booleans.",
        CONVENTIONS,
        (lambda mask: mask.float(),),
    ),
    "additive-mask": (
        "Your mask contains 0 and minus infinity (or a large negative number). Such a mask is added to the "
        "scores. Booleans are expected here.",
        CONVENTIONS,
        tuple(
            lambda mask, hidden=hidden: torch.zeros(mask.shape).masked_fill(~mask, hidden)
            for hidden in (-torch.inf, -1e9)
        ),
    ),
}
