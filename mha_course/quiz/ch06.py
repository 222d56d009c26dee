"""Questions of chapter 06: how packed weights are ordered, and what a layer's sizes and masks are."""

import torch

from mha_course.exercises import Rng
from mha_course.quiz import Question, from_mistakes

PARTS = "query", "key", "value"
ORDERS = {
    "head-by-head": "This is the order of other projects: query, key, value of head 0, then of head 1.",
    "heads-interleaved": "In a block, the d_k rows of a head stand together, head after head.",
    "blocks-interleaved": "Here every third row belongs to a query. The rows of the queries stand together.",
}


def packed_row(rng):
    """Which part and which head one row of a packed matrix belongs to."""
    num_heads, d_k, row = (3, 7, 16) if rng is None else _packed(rng)
    d_model = num_heads * d_k
    answer, wrong = _places(num_heads, d_k, row)
    return Question(
        text=f"`qkv_proj.weight` has 3 · {d_model} = {3 * d_model} rows, because d_model = {d_model}. There "
        f"are {num_heads} heads of d_k = {d_k} numbers. The blocks come in the order query, key, value; in "
        f"each block, the rows of head 0 come first. The first row is row 0. To which part and which "
        f"head does row {row} belong?",
        answer=answer,
        wrong=wrong,
        because=f"Each block has {d_model} rows, so row {row} is row {row % d_model} of the "
        f"{PARTS[answer[0]]} block. Each head has {d_k} rows there, so it belongs to head {answer[1]}.",
        section="1 One matrix for three projections",
        labels=(PARTS, [f"head {h}" for h in range(num_heads)]),
    )


def _places(num_heads, d_k, row):
    """Where ``fix_packed``, right and with three of its mistakes, puts one column of the product."""
    width = 3 * num_heads * d_k
    x = torch.eye(1, width // 3)[None]
    columns = torch.zeros(width // 3, width)
    columns[0] = torch.arange(width)

    def read(parts):
        part, _, head, *_ = (torch.stack(tuple(parts)) == row).nonzero()[0].tolist()
        return part, head

    return from_mistakes("fix_packed", (x, columns, num_heads), ORDERS, read)


def _packed(rng: Rng):
    """Sizes and a row for which each mistake gives another answer."""
    while True:
        num_heads, d_k = rng.shuffled((3, 4, 5, 7))[:2]
        row = rng.below(3 * num_heads * d_k)
        if len(_places(num_heads, d_k, row)[1]) == 3:
            return num_heads, d_k, row


def numbers_in_w_k(rng):
    """How many numbers the matrix of the keys holds if each input has a width of its own."""
    heads, (query, key, value, hidden) = 4, (16, 24, 40, 40)
    if rng is not None:
        heads, hidden = rng.shuffled((2, 4, 8))[0], 24
        query, key, value = rng.shuffled((10, 14, 18, 20, 22))[:3]
    return Question(
        text=f"A layer takes queries of width {query}, keys of width {key} and values of width {value}. It "
        f"has {heads} heads. The heads together are {hidden} wide, and so is the output. There are no "
        "biases. The matrix W_k projects the keys. How many numbers does it hold?",
        answer=float(hidden * key),
        wrong={
            "This is the matrix of one head. W_k makes the keys of all heads.": hidden * key / heads,
            "W_k multiplies the keys only. The queries have a matrix of their own.": float(query * key),
            "W_k has as many rows as all heads together are wide, and as many columns as the keys are "
            "wide. It need not be square.": float(key * key),
            "This counts W_k once for each head. Each head has only its own rows of it.": float(
                heads * hidden * key
            ),
        },
        because=f"Linear stores (out, in) = ({hidden}, {key}), and {hidden} · {key} = {hidden * key}. The "
        "number of heads does not matter.",
        section="3 Three inputs of three widths",
    )


def shape_of_padding_mask(rng):
    """The shape of a padding mask where the sequence is the first axis."""
    batch, n = (2, 5) if rng is None else rng.primes(2)

    def read(mask):  # ours is (batch, 1, n_q, n_k)
        return str((*mask.shape[-2:], len(mask)))

    ideas = {
        "masks-queries-not-keys": "This would hide queries. Padding must be hidden as a key.",
        "queries-repeated": "This works, but it is not the smallest: padding is the same for every query.",
    }
    lengths = torch.arange(batch) % n + 1
    answer, found = from_mistakes("padding_mask", (lengths, n), ideas, read)
    return Question(
        text="A layer takes a mask of shape (n_q, n_k, batch). The first and the last axis may have length "
        f"1. There are {batch} texts of {n} tokens, each padded differently, and no text may attend to its "
        "padding. What is the smallest shape that such a mask can have?",
        answer=answer,
        wrong={
            **found,
            "This mask is the same for all texts, but the texts are padded differently.": str((n, n, 1)),
            "Here the batch is the first axis. In this layer it is the last one.": str((batch, 1, n)),
        },
        because="All queries of a text have the same hidden keys, so the axis of the queries has length "
        "1. The other two keep theirs.",
        section="5 Sequence first",
    )
