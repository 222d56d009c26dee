"""Chapter 05: concatenate and project."""

import torch

from mha_course.exercises import Exercise, Mistake, _heads, deviations


def output_projection(heads, w_o):
    """``(batch, num_heads, n, d_v)`` and ``(num_heads * d_v, d_model)`` to ``(batch, n, d_model)``."""
    return heads.transpose(1, 2).flatten(-2) @ w_o


def problems(rng):
    """The width of the output is a multiple of the number of heads, as in a real layer."""
    yield (
        torch.tensor([[[[1.0], [2.0], [3.0]], [[4.0], [-5.0], [7.0]]]]),
        torch.tensor([[1.0, 3.0, 2.0, 5.0], [2.0, -1.0, 4.0, 10.0]]),
    )
    yield (
        torch.tensor([[[[1.0, 2.0, 3.0]], [[4.0, -5.0, 7.0]]]]),
        torch.tensor([[1.0, 2.0], [3.0, -1.0], [5.0, 2.0], [2.0, 4.0], [-2.0, 1.0], [6.0, 3.0]]),
    )
    for _ in range(3):
        batch, num_heads, n, d_v, share = rng.primes(5)
        yield rng.normal(batch, num_heads, n, d_v), rng.normal(num_heads * d_v, num_heads * share)
    yield rng.normal(3, 2, 5, 7), rng.normal(14, 22)  # more samples than heads, on every draw


def own_rows(heads, w_o):
    """Right: the rows of each head, ``(num_heads, d_v, d_model)``."""
    return w_o.unflatten(0, (heads.shape[1], -1))


def _build(mixed=lambda x: x, rows=own_rows, gather=lambda written: written.sum(1)):
    return lambda heads, w_o: gather(mixed(heads) @ rows(heads, w_o))


ONE, TWO, STEP = (
    "1 Concatenate",
    "2 What is lost without the projection",
    "3 The projection is a sum over heads",
)
BREAK = "6 Break it: the wrong slices of w_o"
MIXED = {
    "merge-without-transpose": (
        "Your heads are merged without swapping tokens and heads first, so the numbers of several tokens "
        "are in one row (chapter 03, step 4).",
        ONE,
        (lambda x: _heads.split(_heads.bare_merge(x), x.shape[1]),),
    ),
    "other-axes-swapped": (
        "Your function swaps other axes before it merges the heads; tokens and heads are the axes 1 and 2.",
        ONE,
        tuple(
            lambda x, axes=axes: _heads.split(
                x.transpose(*axes).reshape(x.shape[0], x.shape[2], -1), x.shape[1]
            )
            for axes in ((2, 3), (1, 3), (0, 1))
        ),
    ),
}
ROWS = {
    "heads-take-turns": (
        "Your heads take the rows of w_o in turn: head 0, head 1, and so on, and head 0 again. The first "
        'd_v rows belong to head 0, the next d_v to head 1 (chapter 03, "What view does" and step 5).',
        STEP,
        (lambda x, w: w.unflatten(0, (-1, x.shape[1])).transpose(0, 1),),
    ),
    "overlapping-slices": (
        "In your function head h is multiplied by the rows h to h + d_v of w_o, so heads share rows; its "
        "own rows begin at h * d_v.",
        STEP,
        (lambda x, w: torch.stack([w[h : h + x.shape[3]] for h in range(x.shape[1])]),),
    ),
    "first-rows-for-all": (
        "In your function all heads are multiplied by the first d_v rows of w_o; each head has its own rows.",
        STEP,
        (lambda x, w: w[: x.shape[3]],),
    ),
    "slices-in-reverse": (
        "Your heads are multiplied by the slices of w_o in reverse order: head 0 by the last d_v rows.",
        STEP,
        (lambda x, w: own_rows(x, w).flip(0),),
    ),
}
GATHERED = {
    "heads-averaged": (
        "Your function divides what the heads write by the number of heads; add it up instead.",
        STEP,
        (lambda written: written.mean(1),),
    ),
    "first-head-only": (
        "Your function uses what head 0 writes, and nothing from the others. Does the loop return in its "
        "first round?",
        STEP,
        (lambda written: written[:, 0],),
    ),
    "last-head-only": (
        "Your function uses what the last head writes, and nothing from the others. Does each round of the "
        "loop overwrite the one before?",
        STEP,
        (lambda written: written[:, -1],),
    ),
    "head-added-twice": (
        "What one head writes is added twice. Does a sum begin with a head that the loop adds again, or is "
        "something added once more after the loop?",
        STEP,
        (lambda written: written.sum(1) + written[:, 0], lambda written: written.sum(1) + written[:, -1]),
    ),
}


def _at(section, group):
    """The same mistakes, with another step to read."""
    return {name: (says, section, pieces) for name, (says, _, pieces) in group.items()}


EXERCISE = Exercise(
    answer=output_projection,
    chapter="05_output_projection",
    section=TWO,
    points=1,
    problems=problems,
    mistakes={
        **deviations(
            _build,
            {
                "mixed": MIXED,
                "rows": _at(ONE, ROWS),
                "gather": {
                    **_at(TWO, GATHERED),
                    "not-summed-over-heads": (
                        "Your function returns one contribution for each head; the output is their sum.",
                        TWO,
                        (lambda written: written, lambda written: written.transpose(0, 1)),
                    ),
                    "summed-over-another-axis": (
                        "Your function adds up over an axis that is not that of the heads.",
                        TWO,
                        (
                            lambda written: written.sum(0),
                            lambda written: written.sum(2),
                            lambda written: written.sum(3),
                        ),
                    ),
                },
            },
        ),
        "no-output-projection": Mistake(
            "Your function returns the heads side by side: w_o is not used.",
            TWO,
            (lambda x, w: _heads.merge(x),),
        ),
        "no-output-projection-and-merge-without-transpose": Mistake(
            "Your function does not use w_o. And it merges without swapping tokens and heads first.",
            TWO,
            (lambda x, w: _heads.bare_merge(x),),
            ("no-output-projection", "merge-without-transpose"),
        ),
        "projection-transposed": Mistake(
            "Your function multiplies by the transpose of w_o, as nn.Linear does with its weight.",
            TWO,
            (lambda x, w: _heads.merge(x) @ w.mT, lambda x, w: _heads.bare_merge(x) @ w.mT),
        ),
        "not-merged": Mistake(
            "Your function multiplies by w_o before the heads are side by side: a row of one head has d_v "
            "numbers, and w_o has num_heads * d_v rows.",
            ONE,
            (lambda x, w: x @ w, lambda x, w: x.transpose(1, 2) @ w, lambda x, w: x.sum(1) @ w),
        ),
        "too-narrow": Mistake(
            "In your function the tensor for the output is num_heads * d_v wide; the output has as many "
            "columns as w_o.",
            TWO,
            (lambda x, w: torch.zeros_like(_heads.merge(x)).add_(x[:, 0] @ own_rows(x, w)[0]),),
        ),
    },
)
