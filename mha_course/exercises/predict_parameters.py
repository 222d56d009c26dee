"""Chapter 05: how many numbers a layer learns."""

from dataclasses import replace

from mha_course.exercises import Exercise, deviations


def predict_parameters(d_model, num_heads, bias):
    """The number of parameters of a multi-head attention layer of this size."""
    return 4 * (d_model * d_model + (d_model if bias else 0))  # queries, keys, values, output


def _problems(rng):
    yield 6, 2, False
    yield 6, 2, True
    yield 5, 1, True
    yield 512, 8, False
    for bias in (False, True, True):
        num_heads, d_k = rng.primes(2, at_least=3)
        yield num_heads * d_k, num_heads, bias


def _build(
    matrices=lambda d, h: 4 * d * d,
    biases=lambda d, h: 4 * d,
    total=lambda matrices, biases, bias: matrices + biases if bias else matrices,
):
    return lambda d_model, num_heads, bias: total(
        matrices(d_model, num_heads), biases(d_model, num_heads), bias
    )


STEP = "3 The projection is a sum over heads"
BIAS, WHOLE = "4 A bias at the output", "5 The whole layer"
MATRICES = {
    "no-output-projection": (
        "You count three matrices: the layer has a fourth, at its output.",
        STEP,
        (lambda d, h: 3 * d * d,),
    ),
    "full-matrices-for-each-head": (
        "You count d_model by d_model matrices for each head. The heads share one such matrix for the "
        "queries, one for the keys and one for the values, and there is one at the output.",
        WHOLE,
        (
            lambda d, h: 4 * d * d * h,
            lambda d, h: (3 * h + 1) * d * d,
            lambda d, h: 3 * d * d * h,
            lambda d, h: h * d * d,
        ),
    ),
    "one-head-only": (
        "You count d_model * d_k numbers for a projection: that is the share of one head. All heads "
        "together have d_model * d_model.",
        WHOLE,
        (
            lambda d, h: 4 * d * (d // h),
            lambda d, h: 3 * d * (d // h) + d * d,
            lambda d, h: 3 * d * (d // h),
        ),
    ),
    "square-of-d_k": (
        "You count d_k * d_k numbers for a projection: a head reads all d_model numbers of a token, and "
        "there are num_heads heads.",
        WHOLE,
        (
            lambda d, h: 4 * (d // h) ** 2,
            lambda d, h: 3 * (d // h) ** 2,
            lambda d, h: 3 * (d // h) ** 2 + d * d,
        ),
    ),
    "output-of-one-head": (
        "You count d_k rows of the output projection: it has num_heads * d_k of them, which is d_model.",
        STEP,
        (lambda d, h: 3 * d * d + d * (d // h),),
    ),
    "output-times-heads": (
        "You count the output projection once for each head: it has num_heads * d_k rows, which is d_model.",
        STEP,
        (lambda d, h: (3 + h) * d * d,),
    ),
    "fewer-matrices": (
        "You count one or two matrices: queries, keys, values and output have one each.",
        WHOLE,
        (lambda d, h: d * d, lambda d, h: 2 * d * d),
    ),
    "more-matrices": (
        "You count more than four matrices: queries, keys, values and output have one each.",
        WHOLE,
        tuple(lambda d, h, m=m: m * d * d for m in (5, 6, 7, 8, 12, 16)),
    ),
    "number-of-matrices": (
        "You count the matrices, not the numbers in them.",
        WHOLE,
        (lambda d, h: 4, lambda d, h: 3, lambda d, h: 3 * h + 1, lambda d, h: 4 * h),
    ),
    "columns-only": (
        "You count d_model numbers for a matrix: that is its number of columns; it has as many rows, too.",
        WHOLE,
        (lambda d, h: 4 * d, lambda d, h: 3 * d),
    ),
}
BIASES = {
    "bias-ignored": (
        "You count no bias although there is one: each of the four projections has its own.",
        BIAS,
        (lambda d, h: 0,),
    ),
    "fewer-biases": (
        "You count the bias of one, two or three projections: all four have one, d_model numbers wide.",
        BIAS,
        (lambda d, h: d, lambda d, h: 2 * d, lambda d, h: 3 * d),
    ),
    "bias-of-one-number": (
        "You count one number for a bias: it has one number for each column of the output.",
        BIAS,
        (
            lambda d, h: 4,
            lambda d, h: 1,
            lambda d, h: 3,
            lambda d, h: 4 * h,
            lambda d, h: 3 * h,
            lambda d, h: 3 * h + d,
        ),
    ),
    "bias-for-each-head": (
        "You count d_model numbers of bias for each head. Each projection has one bias of that width, for "
        "all heads together.",
        BIAS,
        (lambda d, h: 4 * d * h, lambda d, h: (3 * h + 1) * d, lambda d, h: 3 * d * h, lambda d, h: d * h),
    ),
    "output-bias-for-each-head": (
        "You count the bias of the output once for each head: the layer has it once (step 4).",
        BIAS,
        (lambda d, h: (3 + h) * d,),
    ),
    "bias-of-one-head": (
        "You count d_k numbers for a bias: that is one head's share. The bias is d_model wide.",
        BIAS,
        (
            lambda d, h: 4 * (d // h),
            lambda d, h: 3 * (d // h) + d,
            lambda d, h: 3 * (d // h),
            lambda d, h: d // h,
        ),
    ),
    "bias-as-a-matrix": (
        "You count d_model * d_model numbers for a bias: it is one row, d_model numbers.",
        BIAS,
        (lambda d, h: 4 * d * d, lambda d, h: d * d),
    ),
    "bias-in-rows-and-columns": (
        "You count (d_model + 1) * (d_model + 1) numbers with a bias: a bias adds one row, and no column.",
        BIAS,
        (lambda d, h: 4 * (2 * d + 1),),
    ),
    "more-biases": (
        "You count more than four biases: queries, keys, values and output have one each.",
        BIAS,
        tuple(lambda d, h, m=m: m * d for m in (5, 6, 8)),
    ),
}
TOTALS = {
    "nothing-without-bias": (
        "Without biases your result is 0: `a + b if bias else 0` is `(a + b) if bias else 0`. Round "
        "brackets around `b if bias else 0` change that.",
        WHOLE,
        (lambda m, b, bias: m + b if bias else 0,),
    ),
    "bias-always": (
        "Your function counts biases even if `bias` is False.",
        BIAS,
        (lambda m, b, bias: m + b,),
    ),
    "output-bias-always": (
        "Your function counts the bias of the output projection even if `bias` is False.",
        BIAS,
        (lambda m, b, bias: m + b if bias else m + b // 4,),
    ),
    "bias-inverted": (
        "Your function counts biases if `bias` is False, and none if it is True.",
        BIAS,
        (lambda m, b, bias: m if bias else m + b,),
    ),
    "biases-alone": (
        "With biases your function counts only the biases, not the matrices.",
        BIAS,
        (lambda m, b, bias: b if bias else m,),
    ),
    "matrices-without-bias-only": (
        "Without biases your function returns only the number of biases.",
        BIAS,
        (lambda m, b, bias: m + b if bias else b,),
    ),
}
FOUND = deviations(_build, {"matrices": MATRICES, "biases": BIASES, "total": TOTALS})
THREE = FOUND["no-output-projection"]
FOUND["no-output-projection"] = replace(
    THREE, variants=[*THREE.variants, lambda d, h, bias: 3 * d * (d + bias)]
)
EXERCISE = Exercise(
    answer=predict_parameters,
    chapter="05_output_projection",
    section=WHOLE,
    points=1,
    problems=_problems,
    mistakes=FOUND,
)
