"""Chapter 05: how many numbers a layer learns."""

from mha_lab.check.exercise import Exercise, Mistake


def predict_parameters(d_model, num_heads, bias):
    """The number of parameters of a multi-head attention layer of this size."""
    return 4 * (d_model * d_model + (d_model if bias else 0))  # queries, keys, values, output


def _problems(draw):
    yield 4, 2, False
    yield 4, 2, True
    for bias in (False, True, True):
        num_heads, d_k = draw.primes(2)
        yield num_heads * d_k, num_heads, bias


def _count(matrices, biases):
    return lambda d, h, bias: matrices(d, h) + (biases(d, h) if bias else 0)


STEP = "5 The whole layer"
EXERCISE = Exercise(
    answer=predict_parameters,
    chapter="05_output_projection",
    section=STEP,
    points=1,
    problems=_problems,
    mistakes={
        "counted-per-head": Mistake(
            "You count a d_model by d_model matrix for each head: the heads share the width among them.",
            "1 Concatenate",
            (
                _count(lambda d, h: 4 * d * d * h, lambda d, h: 4 * d * h),
                _count(lambda d, h: (3 * h + 1) * d * d, lambda d, h: (3 * h + 1) * d),
                _count(lambda d, h: 4 * d * d * h, lambda d, h: 4 * d),
            ),
        ),
        "no-output-projection": Mistake(
            "You count three matrices: the layer has a fourth, at its output.",
            "3 The projection is a sum over heads",
            (
                _count(lambda d, h: 3 * d * d, lambda d, h: 3 * d),
                _count(lambda d, h: 3 * d * d, lambda d, h: 4 * d),
            ),
        ),
        "bias-ignored": Mistake(
            "You count no bias: each of the projections has one, of the width of its output.",
            "4 The bias belongs to the sum, once",
            (lambda d, h, bias: 4 * d * d,),
        ),
        "one-bias": Mistake(
            "You count the bias of some projections only: all four have one.",
            "4 The bias belongs to the sum, once",
            (
                _count(lambda d, h: 4 * d * d, lambda d, h: d),
                _count(lambda d, h: 4 * d * d, lambda d, h: 3 * d),
                _count(lambda d, h: 4 * d * d, lambda d, h: 4),
            ),
        ),
        "head-width": Mistake(
            "You count one head only: d_k columns of each projection.",
            "1 Concatenate",
            (
                _count(lambda d, h: 4 * d * d // h, lambda d, h: 4 * d // h),
                _count(lambda d, h: 3 * d * (d // h) + d * d, lambda d, h: 3 * (d // h) + d),
            ),
        ),
    },
)
