"""Chapter 08: what one layer computes in cross-attention."""

from mha_lab.check.exercise import Exercise, Mistake


def predict_flops(n_query, n_key, d_model, num_heads):
    """The FLOPs of all matrix products of one forward pass, for one sample."""
    projections = 2 * d_model**2 * (2 * n_query + 2 * n_key)  # query and output, key and value
    return projections + 2 * (2 * n_query * n_key * d_model)  # all heads together are d_model wide


def _problems(draw):
    yield 1, 1, 1, 1
    yield 3, 2, 4, 2
    for _ in range(3):
        n_query, n_key, num_heads, d_k = draw.primes(4)
        yield n_query, n_key, num_heads * d_k, num_heads


def _self(n, d):
    return 8 * n * d * d + 4 * n * n * d


STEP = "1 Count the multiplications"
EXERCISE = Exercise(
    answer=predict_flops,
    chapter="08_what_attention_costs",
    section=STEP,
    points=1,
    problems=_problems,
    mistakes={
        "multiplications-only": Mistake(
            "You count half: each term of a product is one multiplication and one addition.",
            STEP,
            (lambda q, k, d, h: 2 * d * d * (q + k) + 2 * q * k * d,),
        ),
        "self-attention": Mistake(
            "You give all sequences one length: the tokens that ask are n_query, those asked are n_key.",
            STEP,
            (
                lambda q, k, d, h: _self(q, d),
                lambda q, k, d, h: _self(k, d),
                lambda q, k, d, h: 8 * q * d * d + 4 * q * k * d,
                lambda q, k, d, h: 8 * k * d * d + 4 * q * k * d,
                lambda q, k, d, h: _self(q + k, d),
            ),
        ),
        "output-of-the-keys": Mistake(
            "You project the output once for each key: it has a row for each query.",
            STEP,
            (lambda q, k, d, h: 2 * d * d * (q + 3 * k) + 4 * q * k * d,),
        ),
        "no-output-projection": Mistake(
            "You count three projections: the layer has a fourth, at its output.",
            STEP,
            (lambda q, k, d, h: 2 * d * d * (q + 2 * k) + 4 * q * k * d,),
        ),
        "counted-per-head": Mistake(
            "You count the full width for each head: the heads share d_model among them.",
            STEP,
            (
                lambda q, k, d, h: 4 * d * d * (q + k) + 4 * q * k * d * h,
                lambda q, k, d, h: (4 * d * d * (q + k) + 4 * q * k * d) * h,
            ),
        ),
        "one-head": Mistake(
            "Your scores and fetches are those of one head: there are num_heads of them, each d_k wide.",
            STEP,
            (lambda q, k, d, h: 4 * d * d * (q + k) + 4 * q * k * (d // h),),
        ),
        "fetch-forgotten": Mistake(
            "You count one product of size n_query by n_key; the weights still meet the values.",
            STEP,
            (lambda q, k, d, h: 4 * d * d * (q + k) + 2 * q * k * d,),
        ),
        "projections-forgotten": Mistake(
            "You count scores and fetch only: before and after them stand four projections.",
            STEP,
            (lambda q, k, d, h: 4 * q * k * d, lambda q, k, d, h: 2 * q * k * d),
        ),
        "projections-only": Mistake(
            "You count the projections only: scores and fetch are products too.",
            STEP,
            (lambda q, k, d, h: 4 * d * d * (q + k),),
        ),
    },
)
