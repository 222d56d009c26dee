"""Chapter 03: the rows of a checkpoint, stored with the heads in turn, put into our order."""

import torch

from mha_course.exercises import Exercise, Mistake

VIEW, BACK = "2 What view does", "4 Back again: merge the heads"
WAYS, TORCH = "5 Four ways to write it", "9 Compare with PyTorch"


def reorder_checkpoint(weight, num_heads):
    """``(num_heads * d_k, d_model)``, interleaved heads, to the same rows, grouped by head."""
    return torch.cat([weight[head::num_heads] for head in range(num_heads)])


def _problems(rng):
    yield torch.arange(0.0, 24).view(6, 4), 2
    num_heads, *pair = rng.primes(3)
    m, d_k = sorted(pair)  # so that no row that is counted from the columns is missing
    yield rng.normal(num_heads * d_k, num_heads * m), num_heads
    yield rng.normal(768, 96), 12
    yield rng.normal(512, 96), 8


def _heads(weight, num_heads):
    """Each head's rows, ``(num_heads, d_k, d_model)``."""
    return weight.unflatten(0, (-1, num_heads)).transpose(0, 1)


def _dealt(weight, num_heads):
    """The other direction."""
    return weight.unflatten(0, (num_heads, -1)).transpose(0, 1).flatten(0, 1)


def _rows(d_k, num_heads):
    """Where the rows of the result come from."""
    return [c * num_heads + head for head in range(num_heads) for c in range(d_k)]


def _copied_row_by_row(weight, num_heads):
    """Rows that no head of this d_k has stay 0."""
    out = torch.zeros_like(weight)
    for i, row in enumerate(_rows(weight.shape[1] // num_heads, num_heads)):
        out[i] = weight[row]
    return out


def _columns(sizes):
    def answer(weight, num_heads):
        return weight.unflatten(1, sizes(num_heads)).transpose(1, 2).flatten(1)

    return answer


def _two_ways(change):
    """Of the right result, and of the one in the other direction."""
    return (
        lambda weight, num_heads: change(reorder_checkpoint(weight, num_heads)),
        lambda weight, num_heads: change(_dealt(weight, num_heads)),
    )


EXERCISE = Exercise(
    answer=reorder_checkpoint,
    chapter="03_splitting_heads",
    section=WAYS,
    points=2,
    problems=_problems,
    mistakes={
        "other-direction": Mistake(
            "Your function goes the other way: it treats neighbouring rows as one head, and deals "
            "them out. In the checkpoint, the rows of one head are num_heads rows apart.",
            WAYS,
            (_dealt,),
        ),
        "nothing-moved": Mistake(
            "Your function returns the rows in the order in which they came. `view` and `reshape` alone move "
            "no row, and neighbouring rows in the checkpoint do not belong to one head.",
            VIEW,
            (lambda w, h: w,),
        ),
        "columns-moved": Mistake(
            "Your function changes the order of the columns. `torch.nn.Linear` stores (out, in), so the "
            "numbers of the heads are rows.",
            TORCH,
            (_columns(lambda h: (-1, h)), _columns(lambda h: (h, -1))),
        ),
        "not-joined": Mistake(
            "The rows are in the right heads, but the heads have an axis of their own. Join the first two.",
            BACK,
            (_heads,),
        ),
        "heads-side-by-side": Mistake(
            "Your heads stand side by side, so your rows are num_heads times as long. Put the heads one "
            "below the other.",
            BACK,
            (lambda w, h: w.view(len(w) // h, -1), lambda w, h: _heads(w, h).transpose(0, 1).flatten(1)),
        ),
        "numbers-in-other-rows": Mistake(
            "Your function cuts rows apart: numbers of one row stand in several rows. Swap the axes of the "
            "heads and of d_k, and leave d_model alone.",
            WAYS,
            (
                lambda w, h: w.unflatten(0, (-1, h)).transpose(1, 2).reshape(w.shape),
                lambda w, h: w.unflatten(0, (h, -1)).transpose(1, 2).reshape(w.shape),
                lambda w, h: w.unflatten(0, (-1, h)).transpose(0, 2).reshape(w.shape),
                lambda w, h: w.mT.reshape(w.shape),
            ),
        ),
        "d_k-from-the-columns": Mistake(
            "Your d_k is the number of columns divided by num_heads. The heads are in the rows, so d_k is "
            "`weight.shape[0] // num_heads`.",
            TORCH,
            (
                lambda w, h: w.view(w.shape[1] // h, h, -1).transpose(0, 1).reshape(w.shape),
                lambda w, h: w.view(w.shape[1] // h, h, w.shape[1]).transpose(0, 1).reshape(w.shape),
                lambda w, h: w.unflatten(0, (w.shape[1] // h, h)).transpose(0, 1).reshape(w.shape),
                lambda w, h: w.view(w.shape[1] // h, h, -1).transpose(0, 1).flatten(0, 1),
                lambda w, h: w[_rows(w.shape[1] // h, h)],
                _copied_row_by_row,
            ),
        ),
        "one-head-only": Mistake(
            "Your result contains only one head.",
            WAYS,
            (lambda w, h: w[::h], lambda w, h: w[h - 1 :: h], lambda w, h: w[: len(w) // h]),
        ),
        "transposed": Mistake(
            "Your result is transposed. As in the checkpoint, it should be (num_heads * d_k, d_model).",
            TORCH,
            _two_ways(lambda w: w.mT),
        ),
        "reversed-inside-a-head": Mistake(
            "Each head has its rows, but they come in reverse order inside a head.",
            WAYS,
            (lambda w, h: _heads(w, h).flip(1).flatten(0, 1),),
        ),
    },
)
