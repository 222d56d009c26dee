"""Chapter 06: three projections in one matrix."""

from itertools import permutations, product

import torch

from mha_course.exercises import Exercise, Mistake, deviations


def pack_qkv(w_q, w_k, w_v):
    """Three ``(d_model, d)`` to one ``(d_model, 3 * d)``: ``x @ w`` is queries, keys, values side by side."""
    return torch.cat([w_q, w_k, w_v], dim=1)


def _problems(rng):
    w_q = torch.tensor([[1.0, 2.5, 0.5, 3.0], [4.0, -1.0, 6.0, 2.0]])
    w_k = torch.tensor([[-2.0, 7.0, 8.0, 1.5], [5.0, 9.0, -3.0, 0.25]])
    yield w_q, w_k, torch.tensor([[-4.0, 3.5, 10.0, -6.0], [-5.0, 12.0, 0.75, 11.0]])
    for d_model, d in ((2, 5), (7, 3), (5, 11), (1, 3)):
        yield tuple(rng.normal(d_model, d) for _ in range(3))


def _build(order=(0, 1, 2), layout=lambda w: torch.cat(w, 1)):
    return lambda *w: layout([w[i] for i in order])


def _in_shape(join):
    """The numbers of another matrix, cut anew."""
    return lambda w: join(w).reshape(len(w[0]), -1)


def _filled(width, rows=0):
    """Written into zeros, block by block, with ``d`` read from another axis."""

    def answer(*w):
        d = w[0].shape[width]
        result = torch.zeros(w[0].shape[rows], 3 * d)
        for i in range(3):
            result[:, i * d : (i + 1) * d] = w[i]
        return result

    return answer


STEP = "1 One matrix for three projections"
ORDERS = {
    "wrong-order": (
        "All three blocks are there, but not in the order queries, keys, values.",
        STEP,
        [order for order in permutations(range(3)) if order != (0, 1, 2)],
    ),
}
LAYOUTS = {
    "stacked-on-rows": (
        "Your function puts the matrices on top of each other: x would have to be three times as wide.",
        STEP,
        (lambda w: torch.cat(w, 0),),
    ),
    "rows-in-turn": (
        "Your function puts the rows of the matrices below each other in turn: a row of w_q, one of w_k, "
        "one of w_v.",
        STEP,
        (lambda w: torch.stack(w, 1).flatten(0, 1),),
    ),
    "transposed": (
        "Your result is (3 * d, d_model), as torch.nn.Linear stores it. Here the product is `x @ w`, so "
        "return the transpose of it.",
        STEP,
        (lambda w: torch.cat(w, 1).mT,),
    ),
    "each-one-transposed": (
        "Your result has the transposes of the three matrices side by side, (d, 3 * d_model).",
        STEP,
        (lambda w: torch.cat(w, 0).mT,),
    ),
    "brought-into-shape": (
        "You do not join the matrices side by side. view or reshape then keeps the order of all numbers, "
        "and only begins a new row after every 3 * d of them.",
        STEP,
        tuple(
            map(
                _in_shape,
                (
                    lambda w: torch.cat(w, 0),
                    lambda w: torch.cat(w, 1).mT,
                    lambda w: torch.cat(w, 0).mT,
                    lambda w: torch.stack(w).transpose(0, 2),
                ),
            )
        ),
    ),
    "columns-interleaved": (
        "Your function takes the columns in turn: one of the first matrix, one of the second, one of the "
        "third. Keep all columns of one matrix side by side.",
        STEP,
        (lambda w: torch.stack(w, -1).flatten(1),),
    ),
    "still-three": (
        "Your function keeps the three matrices apart, in a list or along a new axis. One product needs one "
        "matrix of two axes.",
        STEP,
        (
            lambda w: torch.stack(w),
            lambda w: torch.stack(w, 1),
            lambda w: torch.stack(w, -1),
            lambda w: torch.stack(w).mT,
        ),
    ),
    "flattened": (
        "Your function puts all numbers into one row; it should return a matrix.",
        STEP,
        (lambda w: torch.cat(w, 0).flatten(), lambda w: torch.cat(w, 1).flatten()),
    ),
    "added-up": (
        "Your function adds the matrices up, entry by entry.",
        STEP,
        (lambda w: w[0] + w[1] + w[2],),
    ),
    "block-diagonal": (
        "Your matrices lie along a diagonal, with zeros beside them; side by side, they would share their "
        "rows.",
        STEP,
        (lambda w: torch.block_diag(*w),),
    ),
}
JOINS = torch.cat, torch.concat, torch.concatenate, torch.stack, torch.hstack, torch.vstack
JOINS += torch.dstack, torch.column_stack
REPEATED = [order for order in product(range(3), repeat=3) if len(set(order)) < 3]
TWO = [order for order in product(range(3), repeat=2) if len(set(order)) == 2]
EXERCISE = Exercise(
    answer=pack_qkv,
    chapter="06_five_ways",
    section=STEP,
    points=1,
    problems=_problems,
    mistakes={
        **deviations(_build, {"order": ORDERS, "layout": LAYOUTS}),
        "one-block-twice": Mistake(
            "Your result contains the same matrix more than once, so not all three are there.",
            STEP,
            tuple(_build(order) for order in REPEATED),
        ),
        "a-block-is-missing": Mistake(
            "Your result contains only two of the three matrices.",
            STEP,
            tuple(_build(order) for order in TWO),
        ),
        "not-in-a-list": Mistake(
            "A function that joins tensors takes them together, as one list or tuple; here each is a "
            "separate argument.",
            STEP,
            tuple(lambda *w, join=join: join(*w) for join in JOINS)
            + tuple(lambda *w, join=join: join(*w, 1) for join in JOINS),
        ),
        "one-tensor-joined": Mistake(
            "A function that joins tensors takes a list or tuple of them; here its first argument is a "
            "single tensor.",
            STEP,
            tuple(lambda *w, join=join: join(w[0]) for join in JOINS),
        ),
        "the-example": Mistake(
            "Your function returns the matrix of the example, whatever it is given.",
            STEP,
            (lambda *w: torch.tensor([[1.0, 1.0, 2.0, 2.0, 3.0, 3.0]] * 2),),
        ),
        "rows-taken-for-columns": Mistake(
            "Your blocks are made as wide as the matrices are high: `w_q` is (d_model, d), so `shape[0]` is "
            "d_model and `shape[1]` is d.",
            STEP,
            (_filled(0), _filled(0, 1)),
        ),
    },
)
