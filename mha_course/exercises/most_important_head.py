"""Chapter 05: which head writes most to the output of a token."""

import torch

import mha_lab
from mha_course.exercises import Exercise, Mistake, _heads, deviations
from mha_course.exercises.output_projection import BREAK, ROWS, STEP, own_rows


def most_important_head(heads, w_o):
    """``(num_heads, n, d_v)`` and ``(num_heads * d_v, d_model)`` to ``(n,)``: the index of a head."""
    written = heads @ w_o.unflatten(0, (len(heads), -1))
    return written.norm(dim=-1).argmax(dim=0)


def _case(rng, num_heads, n, d_v, d_model):
    """Heads of different strength. The first of a token leads by a tenth, so rounding decides nothing."""
    heads = rng.normal(num_heads, n, d_v) * (rng.normal(num_heads, n, 1) / 2).exp()
    strength = (rng.normal(num_heads, 1) / 2).exp()
    w_o = rng.normal(num_heads * d_v, d_model) * strength.repeat_interleave(d_v, dim=0)
    heads[most_important_head(heads, w_o), torch.arange(n)] *= 1.1
    return heads, w_o


def _problems(rng):
    # For the second token, the sums of absolute values have another order than the norms.
    yield (
        torch.tensor([[[2.0], [-4.0], [1.0]], [[4.0], [6.0], [-3.0]]]),
        torch.tensor([[3.0, 0.0, 4.0, 0.0], [1.0, 2.0, 2.0, 0.0]]),
    )
    # For the first token, the product of the norms has another order than the norms of the products.
    yield (
        torch.tensor([[[5.0, 1.0], [1.0, 4.0], [2.0, -3.0]], [[3.0, 3.0], [1.0, -2.0], [4.0, -5.0]]]),
        torch.tensor(
            [[1.0, 0.0, 1.0, 0.0], [4.0, 0.0, 0.0, 3.0], [0.0, 3.0, 0.0, 0.0], [2.0, 0.0, -3.0, 0.0]]
        ),
    )
    for _ in range(2):
        num_heads, n, d_v, share = rng.primes(4)
        yield _case(rng, num_heads, n, d_v, num_heads * share)
    yield _case(rng, 12, 128, 64, 768)
    yield _case(rng, 3, 1, 2, 6)


def _build(rows=own_rows, size=lambda written: written.norm(dim=-1), pick=lambda norms: norms.argmax(0)):
    return lambda heads, w_o: pick(size((heads[None] @ rows(heads[None], w_o))[0]))


def _for_all(choose):
    """One head, as a single number and once for each token."""
    return choose, lambda norms: choose(norms).repeat(norms.shape[1])


SIZES = {
    "summed-not-normed": (
        "Your function adds up the numbers of a contribution, where positive and negative ones cancel. The "
        "norm adds up their squares.",
        STEP,
        (lambda written: written.sum(-1), lambda written: written.sum(-1).abs()),
    ),
    "sum-of-absolute-values": (
        "Your function adds up the absolute values of a contribution; here the norm is the root of the sum "
        "of squares.",
        STEP,
        (lambda written: written.abs().sum(-1),),
    ),
    "largest-number": (
        "Your function compares one number of each contribution, the largest; the norm uses all its numbers.",
        STEP,
        (lambda written: written.amax(-1), lambda written: written.abs().amax(-1)),
    ),
    "norm-over-the-tokens": (
        "Your norm runs over the axis of the tokens, so one number is left for each column of the output. "
        "The numbers of one contribution lie along the last axis.",
        STEP,
        (lambda written: written.norm(dim=1),),
    ),
    "norm-over-the-heads": (
        "Your norm runs over the axis of the heads, so the heads cannot be compared any more. The numbers of "
        "one contribution lie along the last axis.",
        STEP,
        (lambda written: written.norm(dim=0), lambda written: written.norm(dim=0).mT),
    ),
    "norm-over-everything": (
        "Without `dim`, your norm is one number for all heads and all tokens together.",
        STEP,
        (lambda written: written.norm(),),
    ),
}
PICKS = {
    "one-head-for-all-tokens": (
        "Your function chooses one head for the whole text; each token has its own.",
        STEP,
        (
            *_for_all(lambda norms: norms.sum(1).argmax()),
            *_for_all(lambda norms: norms.norm(dim=1).argmax()),
            *_for_all(lambda norms: norms.amax(1).argmax()),
            *_for_all(lambda norms: norms.argmax(0).bincount().argmax()),
        ),
    ),
    "first-token-only": (
        "Your function returns the head of the first token, and no other.",
        STEP,
        (lambda norms: norms.argmax(0)[0],),
    ),
    "flat-index": (
        "Without `dim`, `argmax` counts through the norms of all heads and all tokens, and returns one "
        "number.",
        STEP,
        (lambda norms: norms.argmax(),),
    ),
    "token-for-each-head": (
        "Your function returns a token for each head; it should return a head for each token.",
        STEP,
        (lambda norms: norms.argmax(1),),
    ),
    "norm-not-index": (
        "Your function returns the largest norm of each token; it should return the index of its head.",
        STEP,
        (lambda norms: norms.amax(0),),
    ),
    "all-norms": (
        "Your function returns the norms of all heads; choose the head with the largest one.",
        STEP,
        (lambda norms: norms.clone(), lambda norms: norms.mT.clone()),
    ),
    "value-and-index": (
        "`max` with a `dim` returns two things, the largest values and their indices. Return the indices.",
        STEP,
        (lambda norms: norms.max(0), lambda norms: tuple(norms.max(0))),
    ),
    "smallest": (
        "Your function returns the head with the smallest norm.",
        STEP,
        (lambda norms: norms.argmin(0),),
    ),
    "counted-from-1": (
        "Your function counts the heads from 1; the first one is head 0.",
        STEP,
        (lambda norms: norms.argmax(0) + 1,),
    ),
}
EXERCISE = Exercise(
    answer=most_important_head,
    chapter="05_output_projection",
    section=STEP,
    points=2,
    problems=_problems,
    mistakes={
        **deviations(_build, {"rows": ROWS, "size": SIZES, "pick": PICKS}),
        "values-without-w_o": Mistake(
            "Your function compares what the heads fetched, without w_o. A head that fetched large numbers "
            "may write little.",
            STEP,
            (
                lambda x, w: x.norm(dim=-1).argmax(0),
                lambda x, w: x.abs().sum(-1).argmax(0),
                lambda x, w: x.sum(-1).argmax(0),
            ),
        ),
        "w_o-alone": Mistake(
            "Your function compares the rows of w_o, without what the heads fetched for a token.",
            STEP,
            (
                lambda x, w: w.unflatten(0, (len(x), -1)).norm(dim=(1, 2)).argmax(),
                lambda x, w: w.unflatten(0, (len(x), -1)).norm(dim=(1, 2)).argmax().repeat(x.shape[1]),
            ),
        ),
        "norms-multiplied": Mistake(
            "Your function multiplies the norm of what a head fetched by the norm of its rows of w_o. That "
            "is not the norm of their product: multiply first.",
            STEP,
            (lambda x, w: (x.norm(dim=-1) * w.view(len(x), -1).norm(dim=1)[:, None]).argmax(0),),
        ),
        "output-split": Mistake(
            "Your function cuts the finished output into pieces, one for each head. But every head writes "
            "to all columns of it: cut before the product, not after it.",
            STEP,
            (
                lambda x, w: mha_lab.split_heads(_heads.merge(x) @ w, len(x)).norm(dim=-1).argmax(0),
                lambda x, w: _heads.bare_view(_heads.merge(x) @ w, len(x)).norm(dim=-1).argmax(0),
            ),
        ),
        "all-rows-of-w_o": Mistake(
            "Your function multiplies one head by all num_heads * d_v rows of w_o; a head owns d_v of them. "
            "(If your code slices `w_o[:, ...]`, it cuts columns, and keeps all rows.)",
            BREAK,
            (
                lambda x, w: x @ w,
                lambda x, w: x[0] @ w,
                lambda x, w: x[0] @ w[:, : x.shape[2]],
                lambda x, w: x @ w[:, : x.shape[2]],
                lambda x, w: x[0, 0] @ w,
                lambda x, w: x[0, 0] @ w[:, : x.shape[2]],
            ),
        ),
    },
)
