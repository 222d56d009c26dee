"""What scores are divided by, the root of a head's width, and the wrong forms of it: written once for all."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from mha_course.exercises import Choice, Form, known, pieces


@dataclass(frozen=True)
class Sizes:
    """The sizes that code around a product of queries and keys can divide by.

    ``front`` are sizes of the query counted from the front. What an exercise does not have stays empty.
    """

    d_k: int
    n_q: int
    n_k: int
    d_model: int = 0
    heads: int = 0
    front: tuple[int, ...] = ()
    d_v: int = 0

    @classmethod
    def of(cls, query: Tensor, key: Tensor, d_model: int = 0, heads: int = 0, d_v: int = 0) -> "Sizes":
        """Those of queries ``(..., n_q, d_k)`` and keys ``(..., n_k, d_k)``."""
        d_k, front = query.shape[-1], tuple(query.shape[:2])
        return cls(d_k, query.shape[-2], key.shape[-2], d_model, heads, front, d_v)


Divisor = Callable[[Sizes], float]


def right(sizes: Sizes) -> float:
    """The root of ``d_k``."""
    return math.sqrt(sizes.d_k)


def _root(size: str) -> Divisor:
    return lambda sizes: math.sqrt(getattr(sizes, size))


FORMS = {
    "not-scaled": Form(
        "",
        "Your scores are the plain dot products: they are not divided by sqrt(d_k).",
        (lambda sizes: 1.0,),
    ),
    "scaled-by-d_k": Form(
        "",
        "Your scores are divided by d_k, not by its square root. (Dividing by the root twice does the same.)",
        (lambda sizes: sizes.d_k,),
    ),
    "half-of-d_k": Form(
        "",
        "Your scores are divided by {}: `** 1/2` is `(** 1) / 2`. `** 0.5` takes the root.",
        {"d_k and then by 2": (lambda sizes: 2 * sizes.d_k,), "d_k / 2": (lambda sizes: sizes.d_k / 2,)},
    ),
    "multiplied-by-the-root": Form(
        "",
        "Your scores are multiplied by sqrt(d_k), not divided by it.",
        (lambda sizes: sizes.d_k**-0.5,),
    ),
    "scaled-by-the-fourth-root": Form(
        "",
        "Your scores are divided by the fourth root of d_k. If queries and keys are divided by it, divide "
        "both.",
        (lambda sizes: sizes.d_k**0.25,),
    ),
    "scaled-twice": Form(
        "",
        "Your scores are divided by d_k and once more by its root.",
        (lambda sizes: sizes.d_k**1.5,),
    ),
    "scaled-by-d_model": Form(
        "d_model",
        "Your scores are divided by the square root of d_model, the width of x. Use d_k, the width of a "
        "query and of a key.",
        (_root("d_model"),),
    ),
    "scaled-by-d_model-itself": Form(
        "d_model",
        "Your scores are divided by d_model, the width of x. Use the root of d_k, the width of a query.",
        (lambda sizes: sizes.d_model,),
    ),
    "scaled-by-d_v": Form(
        "d_v",
        "Your scores are divided by the square root of d_v, the width of a value. Use d_k, the width of a "
        "query.",
        (_root("d_v"),),
    ),
    "scaled-by-num_heads": Form(
        "heads",
        "Your scores are divided by num_heads or its root. Use the root of d_k, the width of a head.",
        (lambda sizes: sizes.heads, _root("heads")),
    ),
    "scaled-by-length": Form(
        "tokens",
        "Your scores are divided by the square root of n, the number of tokens. Use d_k, the width of a "
        "query.",
        (_root("n_q"),),
    ),
    "scaled-by-the-number-of-queries": Form(
        "lengths",
        "Your scores are divided by the square root of n_q, the number of queries. Use d_k, their width.",
        (_root("n_q"),),
    ),
    "scaled-by-the-number-of-keys": Form(
        "lengths",
        "Your scores are divided by the square root of n_k, the number of keys. Use d_k, their width.",
        (_root("n_k"),),
    ),
    "scaled-by-an-axis-from-the-front": Form(
        "front",
        "Your scores are divided by the square root of a size counted from the front, such as "
        "query.shape[1] or len(query). This size is d_k for some shapes only; shape[-1], counted from the "
        "end, always is.",
        tuple(lambda sizes, axis=axis: math.sqrt(sizes.front[axis]) for axis in (0, 1)),
    ),
    "scaled-by-a-fixed-number": Form(
        "fixed",
        "Your scores are divided by the same number for all sizes, such as the sqrt(3) of the loops. There, "
        "d_k is 3; read d_k from the shape of query.",
        (lambda sizes: math.sqrt(3), lambda sizes: 2.0),
    ),
}
NARROW = (
    "Your scores are divided by the square root of d_model. But a head is only d_k = d_model / num_heads "
    "wide."
)


def wrong(section: str, *there: str, symbols: Mapping[str, str] | None = None) -> dict[str, Choice]:
    """The wrong divisors, as one knob of ``deviations``.

    ``there``: ``d_model``; ``d_v``; ``heads``; ``tokens``, if queries and keys are as many, else ``lengths``;
    ``front``, if there may be any axes in front; ``fixed``, if the chapter has computed with one size.
    """
    found = known(FORMS, section, there, symbols)
    if "heads" in there:
        found["scaled-by-d_model"] = NARROW, *found["scaled-by-d_model"][1:]
    return found


AFTER = (
    "Your function divides the weights, after the softmax. Divide the scores instead, before it, by "
    "sqrt(d_k)."
)


def afterwards(*there: str) -> tuple[Divisor, ...]:
    """By what weights are divided after the softmax: the right divisor, or one of the wrong ones."""
    forms = (of for name, (_, _, of) in wrong("", *there).items() if name != "not-scaled")
    return right, *(divide for of in forms for divide in pieces(of))
