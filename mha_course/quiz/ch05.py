"""Questions of chapter 05: where the numbers of heads stand, and where the output projection writes them."""

import torch

from mha_course.exercises import Rng
from mha_course.quiz import Question, from_mistakes, vector
from mha_lab import merge_heads, scaled_dot_product_attention, split_heads, toy

COLUMNS = 8  # as many as the picture of a question has
STEP = "3 The projection is a sum over heads"


def _heads():
    """What the two heads of the chapter fetch, and its ``w_o``."""
    x, (*matrices, w_o) = toy.embeddings(), toy.multi_head_weights()
    return scaled_dot_product_attention(*(split_heads(x @ w, 2) for w in matrices))[0], w_o


def place_in_concat(rng):
    """Where a number of one head stands after the heads are put side by side."""
    sizes, place = ((2, 5, 2), (1, 2, 0)) if rng is None else _place(rng)
    answer, wrong = _cells(sizes, place)
    num_heads, n, d_k = sizes
    h, i, c = place
    if (h, i) not in (answer, *wrong.values()) and h < n and i < num_heads * d_k:
        wrong["These are the head and the token. A row of concat is a token."] = (h, i)
    return Question(
        text=f"`heads` has the shape (num_heads, n, d_k) = {sizes}. `merge_heads` puts the heads side by "
        f"side: `concat`, with the shape (n, num_heads * d_k) = ({n}, {num_heads * d_k}). Rows "
        f"and columns are counted from 0. Which cell of `concat` holds `heads[{h}, {i}, {c}]`?",
        answer=answer,
        wrong=wrong,
        because=f"Row {i} belongs to token {i}. The heads before head {h} fill the columns 0 to "
        f"{h * d_k - 1}, so head {h} begins at column {h * d_k}. Its number {c} is in column "
        f"{h * d_k + c}.",
        section="1 Concatenate",
        labels=([str(row) for row in range(n)], [str(column) for column in range(num_heads * d_k)]),
    )


def _cells(sizes, place):
    """Where ``merge_heads``, right and with three of its mistakes, puts one number."""
    heads = torch.arange(torch.Size(sizes).numel()).view(1, *sizes)

    def cell(merged):
        _, row, column = (merged == heads[0][place]).nonzero()[0].tolist()
        return row, column

    ideas = {
        "merge-without-transpose": "Here all numbers of head 0 come first, token by token. But each token "
        "keeps a row of its own.",
        "heads-interleaved": "Here the heads take the columns in turn. But the numbers of one head stay "
        "together.",
        "heads-reversed": "This column belongs to another head. Head 0 stands on the left.",
    }
    return from_mistakes("merge_heads", (heads,), ideas, cell)


def _place(rng: Rng):
    """Sizes and a place for which each mistake gives another answer."""
    while True:
        num_heads, n, d_k = sizes = tuple(rng.shuffled((2, 3, 4)))
        place = 1 + rng.below(num_heads - 1), rng.below(n), rng.below(d_k)
        if num_heads * d_k <= COLUMNS and len(_cells(sizes, place)[1]) == 3:
            return sizes, place


def what_head_0_writes(rng):
    """What one head adds to the output, for one token."""
    heads, w_o = _heads() if rng is None else _random_heads(rng)
    token, name = (2, 'the token "saw"') if rng is None else (0, "one token")
    fetched = [vector(head[token]) for head in heads]
    first, *others = w_o.argmax(dim=-1).tolist()
    ones = "".join(f", in row {row} in column {one}" for row, one in enumerate(others, 1))
    answer, wrong = _bars(heads, w_o, token)
    return Question(
        text=f"For {name}, head 0 fetched {fetched[0]}, and head 1 fetched {fetched[1]}. Each row of `w_o` "
        f"has one 1 and three 0s. In row 0 the 1 is in column {first}{ones}. What does head 0 alone write to "
        "the four columns of the output?",
        answer=answer,
        wrong=wrong,
        because="The numbers of head 0 stand in the columns 0 and 1 of concat, so they are multiplied by "
        "the rows 0 and 1 of `w_o`. The 1 in each row says to which column the number goes.",
        section=STEP,
        labels=[f"col. {column}" for column in range(4)],
    )


def _bars(heads, w_o, token):
    """What head 0 writes, and three misconceptions about it."""

    def read(written):
        return [round(number, 2) for number in written[0, 0, token].tolist()]

    ideas = {
        "heads-take-turns": "Here head 0 owns the rows 0 and 2 of `w_o`. The rows of a head stand together.",
        "slices-in-reverse": "Here head 0 owns the last two rows of `w_o`. These belong to head 1.",
    }
    answer, wrong = from_mistakes("head_contributions", (heads[None], w_o), ideas, read)
    alone = heads.clone()
    alone[1] = 0
    unused = [round(number, 2) for number in merge_heads(alone)[token].tolist()]
    return answer, wrong | {"This is concat without head 1. The product with `w_o` is missing.": unused}


def _random_heads(rng: Rng):
    """Numbers for which each misconception gives another answer."""
    while True:
        tenths = rng.shuffled(range(1, 10))
        heads = torch.tensor([[tenths[:2]], [tenths[2:4]]]) / 10
        w_o = torch.eye(4)[rng.shuffled(range(4))]
        answer, wrong = _bars(heads, w_o, 0)
        shown = {str(heights) for heights in (answer, *wrong.values())}
        if len(wrong) == 3 and len(shown) == 4:
            return heads, w_o


def two_heads_in_one_column(rng):
    """What the next layer cannot tell apart if two sizes are written to the same column."""
    big, small, column, less = 0.844, -0.844, 3, 0.3
    if rng is not None:
        big, small, column = (2 + rng.below(8)) / 10, -(1 + rng.below(9)) / 10, rng.below(4)
        less = (1 + rng.below(3)) / 10

    def pair(one, other):
        return f"{round(one, 3) + 0.0:g} and {round(other, 3) + 0.0:g}"

    return Question(
        text=f"For one token, head 0 fetched the size {big} and head 1 fetched the size {small}. Suppose "
        f"that `w_o` writes both sizes to column {column} of the output, and nothing else to this column. "
        "The next layer reads only this column. Which two other sizes, one for each head, give the same "
        "number in this column?",
        answer=pair(big - less, small + less),
        wrong={
            "Here only the size of head 0 is the same. What head 1 writes is added to it.": pair(
                big, small + less
            ),
            "Here only the size of head 1 is the same. It does not replace what head 0 writes.": pair(
                big - less, small
            ),
            "Here the difference of the two sizes is the same. The column holds their sum.": pair(
                big - less, small - less
            ),
        },
        because="The output is the sum of what the heads write. All pairs with the sum "
        f"{round(big + small, 3) + 0.0:g} look the same.",
        section=STEP,
    )


def shape_of_weights(rng):
    """The shape of the attention weights of the whole layer."""
    batch, n, num_heads, d_k = (2, 5, 3, 2) if rng is None else rng.primes(4)
    d_model = num_heads * d_k
    ideas = {
        "pieces-of-num_heads": "Here the number of heads and d_k are swapped.",
        "weights-averaged-over-heads": "Each head has weights of its own. They are not averaged.",
    }
    x, matrices = torch.zeros(batch, n, d_model), 4 * [torch.eye(d_model)]
    behind = x.unflatten(-1, (num_heads, d_k))
    answer, wrong = from_mistakes(
        "multi_head_attention",
        (x, *matrices, num_heads),
        ideas,
        lambda results: str(tuple(results[1].shape)),
    )
    return Question(
        text=f"The input has the shape (batch, n, d_model) = ({batch}, {n}, {d_model}), and the layer has "
        f"num_heads = {num_heads} heads. What is the shape of the attention weights, all heads together?",
        answer=answer,
        wrong={
            **wrong,
            "Here the heads of one token attend to each other. The tokens should attend to each other.": str(
                tuple((behind @ behind.mT).shape)
            ),
            "A row of weights has one number for each key, and the keys are tokens. The last axis is "
            "not d_k.": str((batch, num_heads, n, d_k)),
        },
        because=f"Each of the {batch} sequences and each of the {num_heads} heads has a square of {n} "
        f"queries and {n} keys.",
        section="5 The whole layer",
    )
