"""Chapter 05: what each head writes."""

import torch

import mha_lab
from mha_course.exercises import Exercise, Mistake, _heads, deviations
from mha_course.exercises.output_projection import MIXED, ROWS, STEP, TWO, own_rows, problems


def head_contributions(heads, w_o):
    """``(batch, heads, n, d_v)`` and ``(heads * d_v, d_model)`` to ``(batch, heads, n, d_model)``."""
    return heads @ w_o.unflatten(0, (heads.shape[1], heads.shape[3]))


def _build(mixed=lambda x: x, rows=own_rows, gather=lambda written: written):
    return lambda heads, w_o: gather(mixed(heads) @ rows(heads, w_o))


def _output(heads, w_o):
    return _heads.merge(heads) @ w_o


def _too_narrow(heads, w_o):
    result = torch.empty_like(heads)
    result[:, 0] = heads[:, 0] @ own_rows(heads, w_o)[0]
    return result


GATHERED = {
    "summed-over-heads": (
        "Your function returns the sum over the heads; it should return one contribution for each head.",
        STEP,
        (lambda written: written.sum(1),),
    ),
    "heads-averaged": (
        "Your function returns the mean over the heads; it should return one contribution for each head.",
        STEP,
        (lambda written: written.mean(1),),
    ),
    "not-swapped-back": (
        "Your contributions have the axes (batch, n, num_heads, d_model): swap tokens and heads.",
        STEP,
        (lambda written: written.transpose(1, 2),),
    ),
    "heads-in-front": (
        "Your contributions have the axes (num_heads, batch, n, d_model); the heads should come after the "
        "batch, where `dim=1` of `torch.stack` puts them.",
        STEP,
        (lambda written: written.transpose(0, 1),),
    ),
    "heads-last": (
        "Your contributions have the heads on the last axis; they should come after the batch, where "
        "`dim=1` of `torch.stack` puts them.",
        STEP,
        (lambda written: written.movedim(1, -1),),
    ),
    "joined-not-stacked": (
        "Your contributions are joined along an existing axis, as `torch.cat` does; the heads need a new "
        "axis, which `torch.stack` makes.",
        STEP,
        (
            lambda written: written.flatten(1, 2),
            lambda written: _heads.merge(written),
            lambda written: written.transpose(0, 1).flatten(0, 1),
        ),
    ),
    "running-sums": (
        "In your function what head h writes is added to what the heads before it write: is it collected "
        "after `+=`?",
        STEP,
        (lambda written: written.cumsum(1),),
    ),
    "first-head-only": (
        "Your function returns what head 0 writes, without the others. Does the loop return in its first "
        "round?",
        STEP,
        (lambda written: written[:, 0], lambda written: written[:, :1]),
    ),
    "last-head-only": (
        "Your function returns what the last head writes, without the others. Does each round of the loop "
        "overwrite the one before?",
        STEP,
        (lambda written: written[:, -1],),
    ),
}
EXERCISE = Exercise(
    answer=head_contributions,
    chapter="05_output_projection",
    section=STEP,
    points=2,
    problems=problems,
    mistakes={
        **deviations(_build, {"mixed": MIXED, "rows": ROWS, "gather": GATHERED}),
        "output-split": Mistake(
            "Your function cuts the finished output into pieces, one for each head. But every head writes "
            "to all columns of it: cut before the product, not after it.",
            STEP,
            (
                lambda x, w: mha_lab.split_heads(_output(x, w), x.shape[1]),
                lambda x, w: _heads.bare_view(_output(x, w), x.shape[1]),
                lambda x, w: _heads.interleaved(_output(x, w), x.shape[1]),
                lambda x, w: _output(x, w).unflatten(-1, (x.shape[1], -1)),
            ),
        ),
        "output-shared-equally": Mistake(
            "Your function gives each head an equal share of the finished output.",
            STEP,
            (lambda x, w: (_output(x, w) / x.shape[1])[:, None].expand(-1, x.shape[1], -1, -1),),
        ),
        "whole-output-for-each-head": Mistake(
            "Your function gives each head the whole output of all heads.",
            STEP,
            (lambda x, w: _output(x, w)[:, None].expand(-1, x.shape[1], -1, -1),),
        ),
        "no-output-projection": Mistake(
            "Your function returns the heads unchanged: w_o is not used.", TWO, (lambda x, w: x.clone(),)
        ),
        "heads-not-alone": Mistake(
            "In your function the sum of all heads is multiplied by each slice of w_o, or each head by the "
            "sum of all slices; multiply each head by its own slice only.",
            STEP,
            (
                lambda x, w: x.sum(1, keepdim=True) @ own_rows(x, w),
                lambda x, w: x @ own_rows(x, w).sum(0),
            ),
        ),
        "all-rows-of-w_o": Mistake(
            "Your function multiplies one head by all num_heads * d_v rows of w_o; a head owns d_v of them. "
            "(If your code slices `w_o[:, ...]`, it cuts columns, and keeps all rows.)",
            STEP,
            (
                lambda x, w: x @ w,
                lambda x, w: x[:, 0] @ w,
                lambda x, w: x[0, 0] @ w,
                lambda x, w: x[:, 0] @ w[:, : x.shape[3]],
                lambda x, w: x[0, 0] @ w[:, : x.shape[3]],
                lambda x, w: x @ w.unflatten(1, (x.shape[1], -1)).transpose(0, 1),
            ),
        ),
        "axes-of-w_o-swapped": Mistake(
            "Your function reads w_o as (d_v, num_heads, d_model): its rows are those of head 0, then those "
            "of head 1, so it is (num_heads, d_v, d_model).",
            STEP,
            (lambda x, w: x @ w.view(x.shape[3], x.shape[1], -1),),
        ),
        "transpose-of-w_o": Mistake(
            "Your function cuts the transpose of w_o; the rows of w_o itself belong to the heads.",
            STEP,
            (
                lambda x, w: x @ w.mT.reshape(x.shape[1], x.shape[3], -1),
                lambda x, w: x @ w.mT.unflatten(0, (x.shape[1], -1)),
                lambda x, w: x[:, 0] @ w.mT,
            ),
        ),
        "too-narrow": Mistake(
            "In your function the tensor for the contributions is d_v wide; a contribution has as many "
            "columns as w_o.",
            STEP,
            (_too_narrow,),
        ),
        "batch-taken-for-heads": Mistake(
            "Your function counts the heads on the first axis, which is the batch: heads is (batch, "
            "num_heads, n, d_v).",
            STEP,
            (
                lambda x, w: torch.stack(
                    [x[h] @ w[h * x.shape[3] : (h + 1) * x.shape[3]] for h in range(x.shape[1])]
                ),
                lambda x, w: torch.stack(
                    [x[h] @ w[h * x.shape[3] : (h + 1) * x.shape[3]] for h in range(x.shape[0])]
                ),
            ),
        ),
    },
)
