"""Chapter 00: the average of rows under weights."""

import torch

from mha_course.exercises import Exercise, Mistake


def weighted_average(weights, values):
    """``(n_k,)`` and ``(n_k, d_v)`` to ``(d_v,)``."""
    return weights @ values


def _problems(rng):
    yield torch.tensor([0.25, 0.75]), torch.tensor([[0.0, 8.0, 2.0], [4.0, 1.0, -6.0]])
    yield torch.tensor([0.5, 0.125, 0.375]), torch.tensor([[2.0, 3.0], [8.0, -1.0], [4.0, 7.0]])
    for _ in range(3):
        n_k, d_v = rng.primes(2)
        yield rng.normal(n_k).softmax(0), rng.normal(n_k, d_v)
    yield rng.normal(3).softmax(0), rng.normal(3, 1)


RULES, HEATMAP = "Three rules that cover all the shapes", "4 The first heatmap"
EXERCISE = Exercise(
    answer=weighted_average,
    chapter="00_start_here",
    section=RULES,
    points=1,
    problems=_problems,
    mistakes={
        "plain-mean": Mistake(
            "Your function returns the plain mean of the rows: the weights are not used.",
            HEATMAP,
            (lambda w, v: v.mean(0),),
        ),
        "plain-sum": Mistake(
            "Your function adds the rows up as they are: the weights are not used.",
            HEATMAP,
            (lambda w, v: v.sum(0),),
        ),
        "not-summed": Mistake(
            "Your function multiplies each row by its weight, but does not add the rows up.",
            RULES,
            (lambda w, v: w[:, None] * v,),
        ),
        "summed-over-columns": Mistake(
            "Your function multiplies each row by its weight, and then adds up or averages the numbers "
            "within each row, not the rows.",
            RULES,
            (lambda w, v: (w[:, None] * v).sum(1), lambda w, v: (w[:, None] * v).mean(1)),
        ),
        "summed-over-everything": Mistake(
            "Your function multiplies each row by its weight, and then makes one number from all: each "
            "column has its own sum.",
            RULES,
            (lambda w, v: (w[:, None] * v).sum(), lambda w, v: (w[:, None] * v).mean()),
        ),
        "weights-on-columns": Mistake(
            "Your function applies the weights to the columns of values; they belong to its rows.",
            RULES,
            (
                lambda w, v: v @ w,
                lambda w, v: (v * w).sum(-1),
                lambda w, v: (w * v).sum(0),
                lambda w, v: w * v,
            ),
        ),
        "divided-by-the-number-of-rows": Mistake(
            "Your function divides the weighted sum by the number of rows; the weights sum to 1 already.",
            HEATMAP,
            (lambda w, v: w @ v / len(w),),
        ),
        "one-row-only": Mistake(
            "Your function uses one row only. Does the loop return in its first pass, or keep only its last?",
            RULES,
            (lambda w, v: w[0] * v[0], lambda w, v: w[-1] * v[-1], lambda w, v: v[w.argmax()]),
        ),
        "list-extended": Mistake(
            "In your result the weighted rows stand one behind the other; they are not added up. (If the sum "
            "begins as a list, `+=` makes the list longer. `torch.zeros` makes a tensor to begin with.)",
            RULES,
            (
                lambda w, v: torch.cat([torch.zeros(v.shape[1]), (w[:, None] * v).flatten()]),
                lambda w, v: (w[:, None] * v).flatten(),
            ),
        ),
        "softmax-of-the-weights": Mistake(
            "Your function takes a softmax of the weights; they are weights already.",
            HEATMAP,
            (lambda w, v: torch.softmax(w, 0) @ v,),
        ),
        "lengths-mixed": Mistake(
            "Your function combines n_k numbers with d_v numbers, entry by entry. If you begin a sum with "
            "zeros, it needs as many as a row of values has: `values.shape[1]`.",
            RULES,
            (lambda w, v: w + v[0], lambda w, v: v[0] + w, lambda w, v: torch.zeros_like(w) + w @ v),
        ),
        "one-row-of-a-matrix": Mistake(
            "Your result has an axis of length 1 too many; it should be (d_v,).",
            RULES,
            (lambda w, v: w[None] @ v, lambda w, v: (w @ v)[:, None]),
        ),
    },
)
