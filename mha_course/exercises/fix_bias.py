"""Chapter 05: a bias that is added once for each head."""

import torch

from mha_course.exercises import Exercise, Mistake, _heads, deviations
from mha_course.exercises.output_projection import GATHERED, MIXED, ROWS, STEP, own_rows
from mha_lab import merge_heads


def fix_bias(heads, w_o, bias):
    """``(batch, num_heads, n, d_v)``, ``(num_heads * d_v, d_model)``, ``(d_model,)`` to the output."""
    parts = zip(heads.unbind(1), w_o.chunk(heads.shape[1]), strict=True)
    return sum(head @ rows for head, rows in parts) + bias


def _stub(heads, w_o, bias):
    """What the heads write, plus a bias: (batch, n, d_model)."""
    output = 0
    for h in range(heads.shape[1]):
        alone = torch.zeros_like(heads)
        alone[:, h] = heads[:, h]  # the other heads fetch nothing
        output = output + merge_heads(alone) @ w_o + bias
    return output


def _problems(rng):
    heads = torch.tensor([[[[1.0], [2.0]], [[3.0], [-1.0]], [[2.0], [5.0]]]])
    yield heads, torch.tensor([[1.0, 2.0], [3.0, -1.0], [-2.0, 4.0]]), torch.tensor([30.0, 50.0])
    for num_heads in (1, 2, *rng.primes(2, at_least=3)):
        batch, n, d_v, d_model = (size + 1 for size in rng.primes(4))
        if num_heads == 1:  # the output is wider than the heads together
            d_v, d_model = sorted((d_v, d_model))
        yield (
            rng.normal(batch, num_heads, n, d_v),
            rng.normal(num_heads * d_v, d_model),
            rng.normal(d_model),
        )


def _build(
    mixed=lambda x: x, rows=own_rows, gather=lambda written: written.sum(1), add=lambda y, b, x, w: y + b
):
    return lambda x, w, b: add(gather(mixed(x) @ rows(x, w)), b, x, w)


BIAS = "4 A bias at the output"
ADDED = {
    "bias-for-each-head": (
        "Your output still has the bias once for each head.",
        BIAS,
        (lambda y, b, x, w: y + x.shape[1] * b,),
    ),
    "bias-ignored": (
        "Your output has no bias; add it to the sum, once.",
        BIAS,
        (lambda y, b, x, w: y,),
    ),
    "bias-once-too-often": (
        "Your output has the bias once for each head, and once more.",
        BIAS,
        (lambda y, b, x, w: y + (x.shape[1] + 1) * b,),
    ),
    "one-bias-taken-off": (
        "If there are several heads, your output has the bias one time less than there are heads: twice for "
        "three heads.",
        BIAS,
        (
            lambda y, b, x, w: y + (x.shape[1] - 1) * b,
            lambda y, b, x, w: y + max(x.shape[1] - 1, 1) * b,
        ),
    ),
    "bias-halved": (
        "In your function each head adds half of the bias, which makes one bias only if there are two heads.",
        BIAS,
        (lambda y, b, x, w: y + x.shape[1] / 2 * b,),
    ),
    "one-share-only": (
        "Your function adds the bias divided by the number of heads, and only once.",
        BIAS,
        (lambda y, b, x, w: y + b / x.shape[1],),
    ),
    "heads-own-share-of-the-bias": (
        "Your function adds as many numbers of the bias as the heads have together, and leaves out the "
        "others. The bias has a number for each of the d_model columns.",
        BIAS,
        (lambda y, b, x, w: y + b * (torch.arange(len(b)) < len(w)),),
    ),
    "bias-subtracted": (
        "Your function subtracts the bias; it should add it.",
        BIAS,
        (lambda y, b, x, w: y - b, lambda y, b, x, w: y - x.shape[1] * b),
    ),
    "divided-by-another-size": (
        "Your bias is divided by a size, such as the batch, n, d_v or d_model. Add it once and undivided.",
        BIAS,
        tuple(
            lambda y, b, x, w, count=count, size=size: y + count(x) * b / size(x, w)
            for count in (lambda x: x.shape[1], lambda x: 1)
            for size in (
                lambda x, w: x.shape[0],
                lambda x, w: x.shape[2],
                lambda x, w: x.shape[3],
                lambda x, w: w.shape[0],
                lambda x, w: w.shape[1],
            )
        ),
    ),
    "bias-for-one-head-only": (
        "Your output has the bias if there is one head, and no bias if there are more.",
        BIAS,
        (lambda y, b, x, w: y + b if x.shape[1] == 1 else y,),
    ),
    "share-rounded-down": (
        "Your function divides the bias with `//`, which rounds down; `/` does not.",
        BIAS,
        (lambda y, b, x, w: y + x.shape[1] * (b // x.shape[1]),),
    ),
    "all-divided": (
        "Your function divides what the heads write and the bias by the number of heads. What the heads "
        "write should be summed, not averaged: only the bias was added too often.",
        STEP,
        (lambda y, b, x, w: (y + b) / x.shape[1],),
    ),
}
EXERCISE = Exercise(
    answer=fix_bias,
    chapter="05_output_projection",
    section=BIAS,
    points=2,
    problems=_problems,
    bug=_stub,
    mistakes={
        **deviations(_build, {"add": ADDED, "gather": GATHERED, "mixed": MIXED, "rows": ROWS}),
        "one-contribution-per-head": Mistake(
            "Your function returns one result for each head: add up what they write.",
            STEP,
            (
                lambda x, w, b: x @ own_rows(x, w) + b,
                lambda x, w, b: x @ own_rows(x, w) + b / x.shape[1],
                lambda x, w, b: x @ own_rows(x, w),
            ),
        ),
        "bias-added-to-w_o": Mistake(
            "Your function adds the bias to the rows of w_o before the product, so it is multiplied by the "
            "numbers of the heads.",
            BIAS,
            (
                lambda x, w, b: (x @ own_rows(x, w + b)).sum(1),
                lambda x, w, b: (x @ (own_rows(x, w) + b / x.shape[1])).sum(1),
            ),
        ),
        "bias-before-w_o": Mistake(
            "Your function adds the bias to the heads, before the product with w_o. The bias belongs to the "
            "output: add it after the product.",
            BIAS,
            (
                lambda x, w, b: (_heads.merge(x) + b) @ w,
                lambda x, w, b: (_heads.merge(x) + x.shape[1] * b) @ w,
            ),
        ),
        "other-axis-taken-apart": Mistake(
            "Your loop runs along another axis; the heads are axis 1.",
            STEP,
            tuple(
                lambda x, w, b, dim=dim, made=made: (
                    sum(
                        head @ rows
                        for head, rows in made(zip(x.unbind(dim), w.chunk(x.shape[1]), strict=True))
                    )
                    + b
                )
                for dim in (0, 2, 3)
                for made in (list, iter)  # all pairs first, or one product after the other
            ),
        ),
        "added-into-the-bias": Mistake(
            "Your function adds in place to bias, a tensor of one axis, which is too small for the output: "
            "`output = output + ...` makes a new tensor.",
            BIAS,
            (lambda x, w, b: b.add_(x[:, 0] @ own_rows(x, w)[0]),),
        ),
    },
)
