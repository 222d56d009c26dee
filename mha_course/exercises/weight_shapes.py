"""Chapter 15: the shapes of two matrices, from a configuration that may leave two sizes out."""

from mha_course.exercises import Exercise, Mistake, deviations
from mha_course.exercises._results import Many

STEP = "2 Qwen3: what the configuration says"


def weight_shapes(hidden_size, num_heads, num_kv_heads, head_dim):
    """Rows and columns of ``k_proj.weight``, then rows and columns of ``o_proj.weight``."""
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    width = hidden_size // num_heads if head_dim is None else head_dim
    return kv_heads * width, hidden_size, hidden_size, num_heads * width


def _problems(rng):
    yield 20, 6, 2, 8
    yield 24, 6, 2, None
    yield 24, 6, None, None
    yield 20, 6, None, 8
    yield 4096, 32, 8, 128
    for _ in range(3):
        kv_heads, group, width, more = rng.primes(4)
        heads = kv_heads * group
        yield heads * (width + 1 + more), heads, kv_heads, width
        yield heads * more, heads, kv_heads, None
        yield heads * (width + 1 + more), heads, None, width


def _build(
    kv=lambda heads, kv_heads: heads if kv_heads is None else kv_heads,
    width=lambda hidden, heads, d: hidden // heads if d is None else d,
    key=lambda hidden, heads, kv_heads, d: (kv_heads * d, hidden),
    output=lambda hidden, heads, kv_heads, d: (hidden, heads * d),
):
    def answer(hidden_size, num_heads, num_kv_heads, head_dim):
        sizes = (
            hidden_size,
            num_heads,
            kv(num_heads, num_kv_heads),
            width(hidden_size, num_heads, head_dim),
        )
        return *key(*sizes), *output(*sizes)

    return answer


KNOBS = {
    "kv": {
        "as-many-keys-as-queries": (
            "Your function makes keys for every query head, also where `num_kv_heads` is smaller.",
            STEP,
            (lambda heads, kv_heads: heads,),
        ),
        "one-kv-head-if-not-named": (
            "If the configuration does not name `num_kv_heads`, your function takes 1. Then each query head "
            "has keys of its own.",
            STEP,
            (lambda heads, kv_heads: 1 if kv_heads is None else kv_heads,),
        ),
        "size-of-a-group": (
            "Your function takes the size of a group, `num_heads // num_kv_heads`, for the number of KV "
            "heads.",
            STEP,
            (lambda heads, kv_heads: heads if kv_heads is None else heads // kv_heads,),
        ),
    },
    "width": {
        "head_dim-ignored": (
            "Your function computes the width of a head as `hidden_size // num_heads`, also where "
            "`head_dim` is named.",
            STEP,
            (lambda hidden, heads, d: hidden // heads,),
        ),
        "width-of-the-model": (
            "If the configuration does not name `head_dim`, your function takes `hidden_size`. Divide it by "
            "`num_heads`.",
            STEP,
            (lambda hidden, heads, d: hidden if d is None else d,),
        ),
    },
    "key": {
        "key-in-and-out-swapped": (
            "You have the rows and columns of `k_proj.weight` the other way round. `nn.Linear` stores "
            "(out, in).",
            STEP,
            (lambda hidden, heads, kv_heads, d: (hidden, kv_heads * d),),
        ),
        "key-reads-the-heads": (
            "In your answer `k_proj` reads `num_heads * head_dim` numbers. It reads the input of the layer, "
            "which is `hidden_size` wide.",
            STEP,
            (lambda hidden, heads, kv_heads, d: (kv_heads * d, heads * d),),
        ),
        "one-head-of-keys": (
            "In your answer `k_proj` makes the key of one head. It makes those of all KV heads.",
            STEP,
            (lambda hidden, heads, kv_heads, d: (d, hidden),),
        ),
    },
    "output": {
        "output-in-and-out-swapped": (
            "You have the rows and columns of `o_proj.weight` the other way round. `nn.Linear` stores "
            "(out, in).",
            STEP,
            (lambda hidden, heads, kv_heads, d: (heads * d, hidden),),
        ),
        "output-is-square": (
            "In your answer `o_proj.weight` is square, `hidden_size` by `hidden_size`. It reads the heads "
            "side by side, and these have `head_dim` numbers each.",
            STEP,
            (lambda hidden, heads, kv_heads, d: (hidden, hidden),),
        ),
        "output-reads-the-kv-heads": (
            "In your answer `o_proj` reads a head for each KV head. There is an output for each query head.",
            STEP,
            (lambda hidden, heads, kv_heads, d: (hidden, kv_heads * d),),
        ),
        "output-as-wide-as-the-heads": (
            "In your answer `o_proj` returns `num_heads * head_dim` numbers. It returns `hidden_size`.",
            STEP,
            (lambda hidden, heads, kv_heads, d: (heads * d, heads * d),),
        ),
    },
}

EXERCISE = Exercise(
    answer=weight_shapes,
    chapter="15_read_a_model",
    section=STEP,
    points=1,
    problems=_problems,
    results=tuple(map(Many, ("rows of k_proj", "columns of k_proj", "rows of o_proj", "columns of o_proj"))),
    mistakes={
        **deviations(_build, KNOBS, pairs=False),
        "in-and-out-swapped": Mistake(
            "You have rows and columns the other way round, in both matrices. `nn.Linear` stores (out, in).",
            STEP,
            (
                _build(
                    key=lambda hidden, heads, kv_heads, d: (hidden, kv_heads * d),
                    output=lambda hidden, heads, kv_heads, d: (heads * d, hidden),
                ),
            ),
        ),
        "model-as-wide-as-its-heads": Mistake(
            "Your function takes `num_heads * head_dim` for the width of the model. The configuration says "
            "`hidden_size`.",
            STEP,
            (
                _build(
                    key=lambda hidden, heads, kv_heads, d: (kv_heads * d, heads * d),
                    output=lambda hidden, heads, kv_heads, d: (heads * d, heads * d),
                ),
            ),
        ),
    },
)
