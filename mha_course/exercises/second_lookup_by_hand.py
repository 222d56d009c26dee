"""Chapter 14: what an induction head looks at, painted in a picture."""

import numpy as np
import torch

from mha_course.exercises import Exercise, Mistake, _packed, deviations
from mha_course.exercises._results import as_array, is_a

LOOKUPS = "2 Two lookups by hand"
TEXT = ["start", "a", "b", "a", "c", "b", "a"]


def second_lookup_by_hand():
    """The boolean mask ``(7, 7)``: the keys just after the earlier places of a token, or else *start*."""
    text = ["start", "a", "b", "a", "c", "b", "a"]
    mask = torch.zeros(len(text), len(text), dtype=torch.bool)
    for i in range(len(text)):
        after = [j + 1 for j in range(i) if text[j] == text[i]]
        mask[i, after or [0]] = True
    return mask


def _build(
    step=1,
    earlier=lambda i: range(i),
    which=lambda places: places,
    nothing=lambda i: [0],
    also=lambda i: [],
    form=lambda mask: mask,
):
    """A mask made of the places that a query finds, and of what it sees if it finds none."""

    def answer():
        mask = torch.zeros(len(TEXT), len(TEXT), dtype=torch.bool)
        for i, word in enumerate(TEXT):
            places = [j for j in earlier(i) if TEXT[j] == word]
            found = [j + step for j in which(places) if 0 <= j + step < len(TEXT)] if places else nothing(i)
            mask[i, [*found, *also(i)]] = True
        return form(mask)

    return answer


KNOBS = {
    "step": {
        "the-earlier-place": (
            "In your mask, a token looks at its earlier place itself. It should look at the key just after "
            "that place.",
            LOOKUPS,
            (0,),
        ),
        "one-before-the-earlier-place": (
            "In your mask, a token looks at the key just before its earlier place. It should look at the "
            "key just after that place.",
            LOOKUPS,
            (-1,),
        ),
    },
    "earlier": {
        "later-places": (
            "In your mask, a token also uses later places of itself. Only earlier places count.",
            LOOKUPS,
            (lambda i: [j for j in range(len(TEXT)) if j != i],),
        ),
        "own-place": (
            "In your mask, a token also uses its own place, and sees the key just after itself. Only earlier "
            "places count.",
            LOOKUPS,
            (lambda i: range(i + 1),),
        ),
        "own-and-later-places": (
            "In your mask, a token also uses its own place and later ones. Only earlier places count.",
            LOOKUPS,
            (lambda i: range(len(TEXT)),),
        ),
    },
    "which": {
        "latest-place-only": (
            "The last a has two earlier places. Your mask uses only the later one.",
            LOOKUPS,
            (lambda places: places[-1:],),
        ),
        "first-place-only": (
            "The last a has two earlier places. Your mask uses only the first one.",
            LOOKUPS,
            (lambda places: places[:1],),
        ),
    },
    "nothing": {
        "nothing-sees-nothing": (
            "In your mask, a token that finds nothing sees no key at all. It should see start.",
            LOOKUPS,
            (lambda i: [],),
        ),
        "nothing-sees-all": (
            "In your mask, a token that finds nothing sees all keys up to itself. It should see start only.",
            LOOKUPS,
            (lambda i: range(i + 1),),
        ),
        "nothing-sees-itself": (
            "In your mask, a token that finds nothing sees itself. It should see start.",
            LOOKUPS,
            (lambda i: [i],),
        ),
    },
    "also": {
        "start-everywhere": (
            "In your mask, all tokens see start. A token with an earlier place should not see it.",
            LOOKUPS,
            (lambda i: [0],),
        ),
        "itself-everywhere": (
            "In your mask, each token also sees itself.",
            LOOKUPS,
            (lambda i: [i],),
        ),
    },
    "form": {
        **{name: (says, LOOKUPS, pieces) for name, (says, _, pieces) in _packed.FORMS.items()},
        "rows-and-columns-swapped": (
            "The rows and columns of your mask are swapped. A row belongs to a query, and a column to a key.",
            LOOKUPS,
            (lambda mask: mask.T,),
        ),
    },
}


def _explains(problems, results):
    """What else the picture has, and single cells."""
    (result,) = results
    if is_a(result, "Mask"):
        return "the-picture", "That is the picture itself. Return its mask: `lookup.mask`."
    got, expected = as_array(result), second_lookup_by_hand().numpy()
    if got is None or got.shape != expected.shape:
        return None
    if got.dtype != bool:
        sums = got.astype(float).sum(-1)
        if (got > 0).any() and (np.isclose(sums, 1, atol=1e-4) | (sums == 0)).all():
            says = "In each row, the numbers sum to 1 or are all 0, as weights do. The mask is `lookup.mask`."
            return "weights-returned", says
        return None
    wrong = np.argwhere(got != expected)
    query, key = wrong[0].tolist()
    verb = "should see" if expected[query, key] else "should not see"
    says = f"Query {query}, {TEXT[query]}, {verb} key {key}, {TEXT[key]}."
    return "wrong-cells", f"Cells of your mask that are wrong: {len(wrong)}. {says}"


def _previous():
    """The first lookup: each token sees the one before it."""
    return torch.diag(torch.ones(len(TEXT) - 1), -1).bool()


def _previous_and_start():
    mask = _previous()
    mask[0, 0] = True
    return mask


def _begins():
    mask = torch.zeros(len(TEXT), len(TEXT), dtype=torch.bool)
    mask[:, 0] = True
    return mask


EXERCISE = Exercise(
    answer=second_lookup_by_hand,
    chapter="14_heads_that_work_together",
    section=LOOKUPS,
    points=1,
    problems=lambda rng: iter([()]),
    explains=_explains,
    mistakes={
        **deviations(_build, KNOBS),
        "first-lookup": Mistake(
            "In your mask, each token sees the token just before it. This is the first lookup. Paint the "
            "second one.",
            LOOKUPS,
            (_previous, _previous_and_start),
        ),
        "where-the-picture-begins": Mistake(
            "In your mask, all tokens see start alone, and that is how the picture begins. Did the kernel "
            "restart after you painted? Then the picture has forgotten your mask: paste the code that the "
            "button Copy gives.",
            LOOKUPS,
            (_begins,),
        ),
    },
)
