"""Chapter 12: the bytes of the cache of a published model, with windows in some of its layers."""

from mha_course.exercises import Exercise, Mistake, deviations

PROBLEM, STEP = "1 What does the cache hold?", "5 A cache that does not grow"


def cache_bytes(num_layers, num_windowed, window, num_heads, num_kv_heads, d_k, n):
    """Bytes that are kept of one text of ``n`` tokens, with two bytes for each number."""
    rows = (num_layers - num_windowed) * n + num_windowed * min(window, n)
    return 4 * rows * num_kv_heads * d_k  # a key and a value, with 2 bytes for each number


def _problems(rng):
    yield 3, 1, 5, 4, 2, 8, 7
    yield 48, 40, 1024, 16, 8, 256, 131072
    yield 32, 32, 4096, 32, 8, 128, 1000
    for _ in range(3):
        full, num_windowed, group, num_kv_heads, half = rng.primes(5)
        short, long = 16 + rng.below(8), 40 + rng.below(50)
        for window, n in ((short, long), (long, short)):
            heads = group * num_kv_heads
            yield full + num_windowed, num_windowed, window, heads, num_kv_heads, 2 * half, n
    yield 5, 0, 7, 6, 3, 4, 11


def _build(
    kinds=2,
    size=2,
    heads=lambda h, kv: kv,
    width=lambda d, h, kv: d,
    full=lambda layers, windowed: layers - windowed,
    small=lambda layers, windowed: windowed,
    tokens=min,
    long=lambda n, window: n,
):
    def answer(num_layers, num_windowed, window, num_heads, num_kv_heads, d_k, n):
        rows = full(num_layers, num_windowed) * long(n, window)
        rows += small(num_layers, num_windowed) * tokens(window, n)
        return kinds * size * rows * heads(num_heads, num_kv_heads) * width(d_k, num_heads, num_kv_heads)

    return answer


KNOBS = {
    "kinds": {
        "keys-only": (
            "You count keys or values, and not both. (Or you count both, and one byte for each number.)",
            PROBLEM,
            (1,),
        ),
    },
    "size": {
        "float32": ("You count four bytes for each number. Here a number has two.", PROBLEM, (4,)),
    },
    "heads": {
        "all-query-heads": (
            "You count a key and a value for each query head. The cache has those of `num_kv_heads` heads.",
            "2 One key for several query heads",
            (lambda h, kv: h,),
        ),
        "size-of-a-group": (
            "You count `num_heads // num_kv_heads` heads. This is the number of query heads that share a "
            "key, and not the number of keys.",
            "2 One key for several query heads",
            (lambda h, kv: h // kv,),
        ),
        "one-head": (
            "You count one head with keys and values, and there are `num_kv_heads`.",
            "2 One key for several query heads",
            (lambda h, kv: 1,),
        ),
        "queries-kept": (
            "You count queries as well. A query is used once, when its token is new.",
            PROBLEM,
            (lambda h, kv: h / 2 + kv, lambda h, kv: 1.5 * kv),
        ),
    },
    "width": {
        "width-left-out": (
            "You count each key and each value as one number. It has `d_k` numbers.",
            PROBLEM,
            (lambda d, h, kv: 1,),
        ),
    },
    "full": {
        "windowed-layers-on-top": (
            "You count layers with a window twice: `num_layers` is the number of all layers, and "
            "`num_windowed` of them have a window.",
            STEP,
            (lambda layers, windowed: layers,),
        ),
        "window-layers-only": (
            "You leave out the layers without a window. They keep all `n` tokens.",
            STEP,
            (lambda layers, windowed: 0,),
        ),
    },
    "small": {
        "layers-with-a-window-left-out": (
            "You leave out the layers with a window. They keep the last `window` tokens.",
            STEP,
            (lambda layers, windowed: 0,),
        ),
    },
    "tokens": {
        "window-longer-than-the-text": (
            "You count `window` tokens in the layers with a window, even if the text has fewer tokens.",
            STEP,
            (lambda window, n: window,),
        ),
        "window-ignored": (
            "You count `n` tokens in all layers. A layer with a window keeps at most `window` tokens.",
            STEP,
            (lambda window, n: n,),
        ),
        "larger-in-place-of-smaller": (
            "In the layers with a window you take the larger one of `window` and `n`. Take the smaller one.",
            STEP,
            (max,),
        ),
        "one-token-fewer": (
            "You count one token too few in layers with a window. With the new token's own key, they keep "
            "`window` tokens.",
            STEP,
            (lambda window, n: min(window - 1, n), lambda window, n: min(window, n) - 1),
        ),
    },
    "long": {
        "window-in-all-layers": (
            "You count the window in all layers. Only `num_windowed` of the layers have one.",
            STEP,
            (lambda n, window: min(n, window),),
        ),
    },
}

FOUND = deviations(_build, KNOBS)
del FOUND["keys-only-and-float32"]  # half as many numbers of twice the size: together they are right
EXERCISE = Exercise(
    answer=cache_bytes,
    chapter="12_smaller_caches",
    section=STEP,
    points=1,
    problems=_problems,
    mistakes={
        **FOUND,
        "layers-swapped": Mistake(
            "You count the window in the layers that have none, and the whole text in those that have one.",
            STEP,
            (_build(full=lambda a, b: b, small=lambda a, b: a - b),),
        ),
        "width-divided": Mistake(
            "You divide `d_k` by the number of heads. It is already the width of one head.",
            PROBLEM,
            (
                lambda *sizes: cache_bytes(*sizes) / sizes[3],
                lambda *sizes: cache_bytes(*sizes) // sizes[3],
                lambda *sizes: cache_bytes(*sizes) / sizes[4],
            ),
        ),
        "one-number-one-byte": Mistake(
            "You count keys or values, and not both, and one byte for each number. A number has two bytes.",
            PROBLEM,
            (_build(kinds=1, size=1),),
        ),
        "another-unit": Mistake(
            "You divide by 1024 or 1000, once or several times. Return bytes.",
            PROBLEM,
            tuple(
                lambda *sizes, unit=unit, power=power: cache_bytes(*sizes) / unit**power
                for unit in (1000, 1024)
                for power in (1, 2, 3)
            ),
        ),
    },
)
