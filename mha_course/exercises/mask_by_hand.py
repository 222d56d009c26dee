"""Chapter 04: the mask of two packed texts, painted in a picture."""

import numpy as np
import torch

from mha_course.exercises import Exercise, Mistake, _packed, deviations
from mha_course.exercises._results import as_array, is_a

LENGTHS = [3, 2]


def mask_by_hand():
    """The boolean mask ``(5, 5)`` of the texts *a dog saw* and *a cat* in one row."""
    text = torch.tensor([0, 0, 0, 1, 1])
    return (text == text[:, None]).tril()


def _build(**pieces):
    made = _packed.build(**pieces)
    return lambda: made(LENGTHS)


def _of(lengths):
    """The mask for two texts that meet at another place."""
    return lambda: _packed.build()(lengths)


def _padded(order):
    """The second text hidden as if it were padding."""
    return lambda: order(torch.ones(5, 5)).bool() & (torch.arange(5) < LENGTHS[0])


def _explains(problems, results):
    """What else the picture has, and single cells."""
    (result,) = results
    if is_a(result, "Mask"):
        return "the-picture", "That is the picture itself. Return its mask: `editor.mask`."
    got, expected = as_array(result), mask_by_hand().numpy()
    if got is None or got.shape != expected.shape:
        return None
    if got.dtype != bool:
        sums = got.astype(float).sum(-1)
        if (got > 0).any() and (np.isclose(sums, 1, atol=1e-4) | (sums == 0)).all():
            says = "In each row, the numbers sum to 1 or are all 0, as weights do. The mask is `editor.mask`."
            return "weights-returned", says
        return None
    wrong = np.argwhere(got != expected)
    query, key = wrong[0].tolist()
    text = _packed.numbers(LENGTHS).tolist()
    if expected[query, key]:
        says = f"Query {query} should see key {key}: it is in the same text, and it is not later."
    elif text[query] != text[key]:
        says = f"Query {query} sees key {key}, which is in the other text."
    else:
        says = f"Query {query} sees key {key}, which comes later."
    return "wrong-cells", f"Cells of your mask that are wrong: {len(wrong)}. {says}"


EDITOR = "4 Three conventions"
EXERCISE = Exercise(
    answer=mask_by_hand,
    chapter="04_masking",
    section=EDITOR,
    points=1,
    problems=lambda rng: iter([()]),
    explains=_explains,
    mistakes={
        **deviations(
            _build,
            {"order": _packed.ORDER, "texts": _packed.TEXTS, "join": _packed.JOINS, "form": _packed.FORMS},
        ),
        "where-the-picture-begins": Mistake(
            "Your mask hides nothing, and that is how the picture begins. Did the kernel restart after you "
            "painted? Then the picture has forgotten your mask: paste the code that the button Copy gives.",
            EDITOR,
            (lambda: torch.ones(5, 5).bool(),),
        ),
        "border-elsewhere": Mistake(
            "Your mask is right for two texts that meet at another place. Here, the second text begins at "
            "token 3.",
            EDITOR,
            (_of([1, 4]), _of([2, 3]), _of([4, 1])),
        ),
        "second-text-hidden": Mistake(
            "Your mask hides the second text from all queries, as if it were padding. Its tokens should see "
            "each other.",
            "3 Hide the padding",
            (_padded(torch.tril), _padded(lambda full: full)),
        ),
    },
)
