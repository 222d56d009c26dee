"""How x becomes queries, keys and values, by a matrix each, and the wrong ways: written once for all."""

from collections.abc import Mapping

from torch import Tensor

from mha_course.exercises import Choice, Form, known

Projected = tuple[Tensor, Tensor, Tensor]


def right(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Projected:
    """Queries, keys and values."""
    return x @ w_q, x @ w_k, x @ w_v


FORMS = {
    "one-matrix-for-all": Form(
        "",
        "Your function uses w_q for queries, keys and values; each has its own matrix.",
        (lambda x, q, k, v: (x @ q, x @ q, x @ q),),
    ),
    "keys-from-w_q": Form(
        "",
        "Your keys are made with w_q, the matrix of the queries.",
        (lambda x, q, k, v: (x @ q, x @ q, x @ v),),
    ),
    "queries-from-w_k": Form(
        "",
        "Your queries are made with w_k, the matrix of the keys.",
        (lambda x, q, k, v: (x @ k, x @ k, x @ v),),
    ),
    "queries-and-keys-swapped": Form(
        "",
        "Your queries and keys are swapped: the scores are transposed.",
        (lambda x, q, k, v: (x @ k, x @ q, x @ v),),
    ),
    "keys-and-values-swapped": Form(
        "square",
        "Your function swaps keys and values.",
        (lambda x, q, k, v: (x @ q, x @ v, x @ k),),
    ),
    "keys-from-w_v": Form(
        "square",
        "Your keys are made with w_v, the matrix of the values.",
        (lambda x, q, k, v: (x @ q, x @ v, x @ v),),
    ),
    "values-from-w_k": Form(
        "",
        "Your function averages the keys; use the values, which w_v makes.",
        (lambda x, q, k, v: (x @ q, x @ k, x @ k),),
        "values",
    ),
    "values-from-w_q": Form(
        "",
        "Your function averages the queries; use the values, which w_v makes.",
        (lambda x, q, k, v: (x @ q, x @ k, x @ q),),
        "values",
    ),
    "no-value-projection": Form(
        "",
        "Your output averages the rows of x themselves: they are not multiplied by w_v.",
        (lambda x, q, k, v: (x @ q, x @ k, x),),
    ),
    "no-projections": Form(
        "",
        "Your function uses x itself as queries and keys: w_q and w_k are not used.",
        (lambda x, q, k, v: (x, x, x @ v), lambda x, q, k, v: (x, x, x)),
    ),
    "matrices-transposed": Form(
        "square",
        "Your function multiplies by the transposes of w_q, w_k and w_v, as nn.Linear does with its weights.",
        (lambda x, q, k, v: (x @ q.mT, x @ k.mT, x @ v.mT),),
    ),
}


def wrong(
    section: str | Mapping[str, str], *there: str, symbols: Mapping[str, str] | None = None
) -> dict[str, Choice]:
    """The wrong projections, as one knob of ``deviations``; ``there``: ``square``, if all widths agree."""
    return known(FORMS, section, there, symbols)
