"""Chapter 10: how much a key-value cache holds."""

from mha_course.exercises import Exercise, Mistake, deviations


def predict_cache(num_layers, num_heads, n, d_model):
    """How many numbers are kept for one text of ``n`` tokens."""
    # A key and a value for each token, in each layer; the heads of a layer share d_model.
    return 2 * num_layers * n * d_model


def _problems(rng):
    yield 3, 5, 7, 20
    yield 2, 4, 9, 16
    yield 5, 3, 2, 18
    for _ in range(3):
        num_layers, num_heads, n, half = rng.primes(4)
        yield num_layers, num_heads, n, 2 * half * num_heads


def _build(kinds=2, layers=lambda count: count, width=lambda d, h: d, tokens=lambda n: n, times=1):
    return lambda num_layers, h, n, d: kinds * layers(num_layers) * tokens(n) * width(d, h) * times


STEP = "7 One more word"
KNOBS = {
    "kinds": {
        "keys-only": ("You count only the keys or only the values; both are kept.", STEP, (1,)),
        "queries-kept": (
            "You count queries as well: a query is used once, when its token is new.",
            STEP,
            (3,),
        ),
    },
    "layers": {
        "one-layer": ("You count one layer: each has keys and values of its own.", STEP, (lambda count: 1,)),
    },
    "width": {
        "counted-per-head": (
            "You count the whole width d_model for each head: the heads share it.",
            STEP,
            (lambda d, h: h * d,),
        ),
        "one-head": (
            "You count one head, of width d_model / num_heads: the cache has those of all heads.",
            STEP,
            (lambda d, h: d // h, lambda d, h: d / h),
        ),
        "width-left-out": (
            "You count each key and value as one number: each is a vector.",
            STEP,
            (lambda d, h: 1, lambda d, h: h),
        ),
        "width-squared": (
            "You count a matrix of d_model by d_model, or d_k by d_k, instead of a vector.",
            STEP,
            (lambda d, h: d * d, lambda d, h: (d // h) ** 2, lambda d, h: h * (d // h) ** 2),
        ),
    },
    "tokens": {
        "one-token": ("You count one token: the cache grows with each token.", STEP, (lambda n: 1,)),
        "pairs-of-tokens": (
            "You count something for each pair of tokens, n * n: a key and a value are kept once for each "
            "token.",
            STEP,
            (lambda n: n * n,),
        ),
        "added-up-over-the-steps": (
            "You add up the sizes of the cache over all steps: it is one cache, which ends with n tokens.",
            STEP,
            (lambda n: n * (n + 1) // 2, lambda n: n * (n - 1) // 2),
        ),
        "one-token-fewer": (
            "You count n - 1 tokens; the key and the value of the last one are kept, too.",
            STEP,
            (lambda n: n - 1,),
        ),
        "one-token-more": ("You count n + 1 tokens; there are n.", STEP, (lambda n: n + 1,)),
    },
    "times": {
        "bytes": (
            "You count bytes, and each number takes {}. The numbers themselves are asked for.",
            STEP,
            {"four bytes in float32": (4,), "two bytes in float16 (or four, of keys or values only)": (2,)},
        ),
        "eight-texts": ("You count 8 texts, as in `caches` of step 7: count one.", STEP, (8,)),
    },
}


def _weights(layers, h, n, d):
    return layers * h * n * n


FOUND = deviations(_build, KNOBS)
del FOUND["keys-only-and-bytes"]  # half as many numbers of two bytes: together they are right
EXERCISE = Exercise(
    answer=predict_cache,
    chapter="10_small_language_model",
    section=STEP,
    points=1,
    problems=_problems,
    mistakes={
        **FOUND,
        "weights-instead": Mistake(
            "You count attention weights, n of them for each token: they are computed each time, and not "
            "kept.",
            STEP,
            (
                _weights,
                lambda layers, h, n, d: layers * n * n,
                lambda layers, h, n, d: 2 * layers * h * n * n,
            ),
        ),
        "weights-as-well": Mistake(
            "You count the attention weights as well: they are computed each time, and not kept.",
            STEP,
            (
                lambda layers, h, n, d: 2 * layers * n * d + layers * h * n * n,
                lambda layers, h, n, d: 2 * layers * n * d + layers * n * n,
            ),
        ),
        "parameters": Mistake(
            "You count the parameters of the layers; the cache contains what they compute from the tokens.",
            STEP,
            (
                lambda layers, h, n, d: 4 * layers * d * d,
                lambda layers, h, n, d: 3 * layers * d * d,
                lambda layers, h, n, d: 2 * layers * d * d,
            ),
        ),
        "added-not-multiplied": Mistake(
            "You add sizes that should be multiplied.",
            STEP,
            (
                lambda layers, h, n, d: layers * 2 * (n + d),
                lambda layers, h, n, d: 2 * (layers + h) * n * d,
            ),
        ),
        "true-or-false": Mistake(
            "You return True or False; return the number itself.",
            STEP,
            (lambda layers, h, n, d: True, lambda layers, h, n, d: False),
        ),
    },
)
