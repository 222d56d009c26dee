"""Chapter 06: an output projection typed into a picture whose heads are in the other order."""

import torch

from mha_course.exercises import Exercise, Mistake
from mha_course.exercises import _results as compare
from mha_lab import merge_heads, scaled_dot_product_attention, split_heads, toy

ORDER = "1 One matrix for three projections"
PROOF = "6 Break it: what a comparison shows"
NEAR, SAW = 0.006, 2  # what the picture shows has two digits


def w_o_by_hand():
    """The rows of ``w_o`` in the order of the heads, ``(4, 4)``."""
    return toy.multi_head_weights()[3][[2, 3, 0, 1]]


def layers():
    """What the heads of the picture fetch, side by side, the old ``w_o``, and the right outputs."""
    x, (*matrices, w_o) = toy.embeddings(), toy.multi_head_weights()
    heads, _ = scaled_dot_product_attention(*(split_heads(x @ w, 2) for w in matrices))
    return merge_heads(heads.flip(0)), w_o, merge_heads(heads) @ w_o


def _accepts(result, concat, w_o, wanted):
    if compare.is_a(result, "Flow"):
        return (
            "the-picture",
            "Your function returns the picture itself; a matrix of shape (4, 4) is expected.",
        )
    array = compare.as_array(result)
    seen = f"Your function returns {compare.kind(result)}; a matrix of shape (4, 4) is expected."
    if array is None or array.shape != (4, 4) or array.dtype == bool:
        if array is not None and array.shape in ((4,), (5, 4)) and array.dtype != bool:
            return "output-returned", seen
        return "wrong-shape", seen
    typed = torch.tensor(array.astype(float))
    if not typed.isfinite().all():
        return "not-finite", "Your matrix holds NaN or infinity."
    old, right = w_o.double(), torch.cat([w_o[2:], w_o[:2]]).double()
    off = (concat.double() @ typed - wanted.double()).abs().amax(dim=-1) > NEAR  # (n,)
    if not off.any():
        return None
    first, tokens = int(off.long().argmax()), toy.tokens()
    written = ", ".join(f"{x + 0.0:.2f}" for x in (concat[first].double() @ typed).tolist())
    expected = ", ".join(f"{x:.2f}" for x in wanted[first].tolist())
    seen = f"For token {first}, {tokens[first]}, your output is {written}. It should be {expected}."
    known = {
        "where-the-picture-begins": old,
        "columns-moved": old.roll(2, dims=1),
        "rows-in-reverse": old.flip(0),
        "transposed": old.T,
    }
    for name, matrix in known.items():
        if torch.allclose(typed, matrix, atol=1e-6):
            return name, seen
    same = (typed - right).abs().amax(dim=1) < 1e-6  # (rows,)
    if same[:2].all() or same[2:].all():
        return "one-head-only", seen
    if same[0] and same[2]:
        old_sizes = torch.allclose(typed[[1, 3]], old[[1, 3]], atol=1e-6)
        return "sizes-where-they-were" if old_sizes else "sizes-not-right", seen
    if same[1] and same[3]:
        return "noun-and-verb-not-right", seen
    if not off[SAW]:
        return "right-for-saw-only", seen
    return "an-output-differs", seen


EXERCISE = Exercise(
    answer=w_o_by_hand,
    chapter="06_five_ways",
    section=ORDER,
    points=1,
    problems=lambda rng: iter([layers()]),
    call=lambda answer, concat, w_o, wanted: answer(),
    accepts=_accepts,
    mistakes={
        "the-picture": Mistake("The matrix is in `swapped.w_o`.", ORDER, ()),
        "output-returned": Mistake(
            "Your function returns outputs. Return the matrix that you typed: it is in `swapped.w_o`.",
            ORDER,
            (),
        ),
        "not-finite": Mistake("Type a number into every cell of `w_o`.", ORDER, ()),
        "where-the-picture-begins": Mistake(
            "Your matrix is the one with which the picture begins. Did you type other numbers, and has the "
            "kernel been restarted since? A restart forgets them.",
            ORDER,
            (),
        ),
        "columns-moved": Mistake(
            "You moved the columns of `w_o`. A column belongs to a number of the output, and these have kept "
            "their order.",
            ORDER,
            (),
        ),
        "rows-in-reverse": Mistake(
            "You reversed all four rows. Then the two numbers of each head are exchanged, too. Here, only "
            "the heads are in another order.",
            ORDER,
            (),
        ),
        "transposed": Mistake(
            "Your matrix is the transpose of the old one. Here `w_o` is `(in, out)`, and no `Linear` stores "
            "it.",
            ORDER,
            (),
        ),
        "one-head-only": Mistake(
            "The rows of one head are right, and the rows of the other head are not.", ORDER, ()
        ),
        "sizes-where-they-were": Mistake(
            "Rows 0 and 2 are right. Rows 1 and 3 are as in the old `w_o`, and they should be exchanged: "
            "both rows of a head move with it (chapter 05, step 3).",
            ORDER,
            (),
        ),
        "sizes-not-right": Mistake(
            "Rows 0 and 2 are right. Rows 1 and 3 say to which columns the two sizes go. Only *saw* fetches "
            "sizes that are not 0, so look at *saw* in the picture.",
            ORDER,
            (),
        ),
        "noun-and-verb-not-right": Mistake(
            "Rows 1 and 3 are right. Rows 0 and 2 are not: one says to which column the verb goes, and the "
            "other says it for the noun.",
            ORDER,
            (),
        ),
        "right-for-saw-only": Mistake(
            "The output of *saw* is right, and that of another token is not. Choose the other tokens in the "
            "picture, too.",
            PROOF,
            (),
        ),
        "an-output-differs": Mistake(
            "Each row of `w_o` belongs to one number of one head, and says to which columns this number goes "
            "(chapter 05, step 3). For each row, find out which number the head fetches now.",
            ORDER,
            (),
        ),
    },
)
