"""How queries and keys become scores, one for each pair, and the wrong ways: written once for all."""

from collections.abc import Mapping

from torch import Tensor

from mha_course.exercises import Choice, Form, known


def right(query: Tensor, key: Tensor) -> Tensor:
    """A row for each query, a column for each key."""
    return query @ key.mT


FORMS = {
    "queries-and-keys-swapped": Form(
        "",
        "Your scores have keys as rows and queries as columns: they are transposed.",
        (lambda query, key: key @ query.mT,),
    ),
    "keys-with-keys": Form(
        "",
        "Your function pairs the keys with the keys: the queries are not used.",
        (lambda query, key: key @ key.mT,),
    ),
    "queries-with-queries": Form(
        "",
        "Your function pairs the queries with the queries: the keys are not used.",
        (lambda query, key: query @ query.mT,),
    ),
    "key-not-transposed": Form(
        "",
        "Your function multiplies query and key without turning the rows of key into columns.",
        (lambda query, key: query @ key,),
    ),
    "wrong-axes-of-key-swapped": Form(
        "heads",
        "Your function swaps other axes of key, not the last two: `transpose(-2, -1)` or `.mT` swaps those.",
        tuple(
            lambda query, key, axes=axes: query @ key.transpose(*axes)
            for axes in ((1, 2), (0, 1), (0, 2), (0, 3), (1, 3))
        ),
    ),
    "reshaped-keys": Form(
        "",
        "Your function gives key the shape of its transpose with view or reshape. They keep the order of the "
        "numbers, so the columns of your matrix are not the keys: use key.mT.",
        (lambda query, key: query @ key.reshape(*key.shape[:-2], key.shape[-1], key.shape[-2]),),
    ),
    "summed-over-tokens": Form(
        "",
        "Your sum runs over the tokens: query.mT @ key pairs the columns of query with those of key.",
        (lambda query, key: query.mT @ key,),
    ),
    "entry-by-entry": Form(
        "",
        "Your function pairs query and key entry by entry; pair each query with every key.",
        (lambda query, key: query * key, lambda query, key: (query * key).sum(-1)),
    ),
}
# They raise, or hide what else is wrong.
ALONE = "key-not-transposed", "wrong-axes-of-key-swapped", "summed-over-tokens", "entry-by-entry"


def wrong(section: str, *there: str, symbols: Mapping[str, str] | None = None) -> dict[str, Choice]:
    """The wrong products, as one knob of ``deviations``; ``there``: ``heads``, for four axes."""
    return known(FORMS, section, there, symbols)
