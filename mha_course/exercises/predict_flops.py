"""Chapter 08: what one layer computes in cross-attention."""

from itertools import product

import numpy as np

from mha_course.exercises import Exercise, deviations
from mha_course.exercises._results import as_array


def predict_flops(n_query, n_key, d_model, num_heads):
    """The FLOPs of all matrix products of one forward pass, for one sample."""
    projections = 2 * d_model**2 * (2 * n_query + 2 * n_key)  # query and output, key and value
    return projections + 2 * (2 * n_query * n_key * d_model)  # all heads together are d_model wide


def _problems(rng):
    yield 3, 5, 4, 2
    yield 6, 4, 3, 1
    sizes = ((q, k, h * d_k, h) for q, k, h, d_k in product(range(1, 7), range(1, 7), (1, 2, 3), (1, 2)))
    yield from rng.shuffled(p for p in sizes if p[0] != p[1])[:34]  # small: an answer may count one by one


def _build(
    projections=lambda q, k, d, h: 4 * d * d * (q + k),
    products=lambda q, k, d, h: 4 * q * k * d,
    total=lambda p, s, h: p + s,
):
    return lambda q, k, d, h: total(projections(q, k, d, h), products(q, k, d, h), h)


def _projected(of_query, of_key, width=lambda d, h: d * d):
    return lambda q, k, d, h: (of_query * q + of_key * k) * width(d, h)


STEP = "1 Count the operations"
PROJECTIONS = {
    "all-projections-of-the-queries": (
        "You count all four projections with n_query; keys and values have n_key tokens.",
        (_projected(8, 0),),
    ),
    "all-projections-of-the-keys": (
        "You count all four projections with n_key; queries and output have n_query tokens.",
        (_projected(0, 8),),
    ),
    "output-of-the-keys": (
        "You count three projections with n_key, as if the output had a row for each key: it has a row for "
        "each query.",
        (_projected(2, 6),),
    ),
    "three-projections-of-the-queries": (
        "You count three projections with n_query and one with n_key: keys and values both have n_key "
        "tokens.",
        (_projected(6, 2),),
    ),
    "no-output-projection": (
        "You count one projection with n_query and two with n_key: the layer has a fourth, at its output.",
        (_projected(2, 4),),
    ),
    "one-projection-of-the-keys": (
        "You count one projection with n_key: keys and values need two.",
        (_projected(4, 2),),
    ),
    "three-projections-of-one-length": (
        "You count three projections, all with one length. The layer has a fourth, at its output; two of "
        "the four have n_query tokens, and two have n_key.",
        (_projected(6, 0), _projected(0, 6)),
    ),
    "projections-halved": (
        "Your count of the projections is half of the right one. Either two of the four are missing, or "
        "each term counts once, not twice (once for `*`, once for `+`).",
        (_projected(2, 2),),
    ),
    "projections-of-both": (
        "You count all four projections, or three, for n_query + n_key tokens; each of the two lengths is "
        "used in two of the four.",
        (_projected(8, 8), _projected(6, 6)),
    ),
    "projections-without-tokens": (
        "Your count of the projections has d_model * d_model in it, but no length: each token is projected.",
        tuple(lambda q, k, d, h, c=c: c * d * d for c in (8, 6, 4, 2)),
    ),
    "projections-for-each-head": (
        "You count projections of the full width for each head: the heads share d_model.",
        (
            _projected(4, 4, lambda d, h: d * d * h),
            lambda q, k, d, h: 2 * d * d * (h * (q + 2 * k) + q),
        ),
    ),
    "projections-of-one-head": (
        "You count d_k columns for a projection: that is one head's share. All heads together have d_model.",
        (
            _projected(4, 4, lambda d, h: d * d // h),
            lambda q, k, d, h: 2 * d * (d // h) * (q + 2 * k) + 2 * q * d * d,
        ),
    ),
    "projections-of-d_k-by-d_k": (
        "You count d_k * d_k numbers for a projection of a head: it has d_model rows and d_k columns.",
        (_projected(4, 4, lambda d, h: (d // h) ** 2), _projected(4, 4, lambda d, h: h * (d // h) ** 2)),
    ),
}
PRODUCTS = {
    "scores-halved": (
        "Your count of scores and weighted sum is half of the right one. Either one of the two products is "
        "missing, or each term counts once, not twice (once for `*`, once for `+`).",
        (lambda q, k, d, h: 2 * q * k * d,),
    ),
    "scores-of-one-length": (
        "Your scores are n_query by n_query, or n_key by n_key; each query has one for each key.",
        (lambda q, k, d, h: 4 * q * q * d, lambda q, k, d, h: 4 * k * k * d),
    ),
    "scores-of-all-tokens": (
        "Your scores are those of n_query + n_key tokens with each other; each query has one for each key.",
        (lambda q, k, d, h: 4 * (q + k) ** 2 * d,),
    ),
    "scores-of-both-with-themselves": (
        "You count scores of the queries with themselves and of the keys with themselves; there is one "
        "score for each query with each key, n_query * n_key of them.",
        (lambda q, k, d, h: 2 * (q * q + k * k) * d, lambda q, k, d, h: 4 * (q * q + k * k) * d),
    ),
    "lengths-added": (
        "You count scores and weighted sum with n_query + n_key; there is a score for each query with each "
        "key, n_query * n_key of them.",
        (lambda q, k, d, h: 4 * (q + k) * d, lambda q, k, d, h: 2 * (q + k) * d),
    ),
    "counted-per-head": (
        "You count scores or weighted sum with the full width for each head: the heads share d_model.",
        (lambda q, k, d, h: 4 * q * k * d * h, lambda q, k, d, h: 2 * q * k * d * (h + 1)),
    ),
    "one-head": (
        "You count scores or weighted sum with d_k, for one head: there are num_heads of them.",
        (lambda q, k, d, h: 4 * q * k * (d // h), lambda q, k, d, h: 2 * q * k * (d + d // h)),
    ),
}
TOTALS = {
    "multiplications-only": (
        "You count half: each term of a product is one multiplication and one addition.",
        (lambda p, s, h: (p + s) // 2,),
    ),
    "not-added-up": (
        "Your function returns the parts of the count; return one number, their sum.",
        (lambda p, s, h: (p, s), lambda p, s, h: (p, s // 2, s // 2), lambda p, s, h: (s, p)),
    ),
    "everything-times-heads": (
        "You count the whole layer once for each head: the heads share d_model.",
        (lambda p, s, h: (p + s) * h,),
    ),
    "everything-divided-by-heads": (
        "You count one head's share of the whole layer: there are num_heads of them.",
        (lambda p, s, h: (p + s) // h, lambda p, s, h: (p + s) / h),
    ),
    "projections-forgotten": (
        "You count scores and weighted sum only: there are four projections before and after them.",
        (lambda p, s, h: s,),
    ),
    "projections-only": (
        "You count the projections only: scores and weighted sum are products too.",
        (lambda p, s, h: p,),
    ),
}
TERMS = {}
for _heads, _times in {"": lambda h: 1, " num_heads": lambda h: h, " / num_heads": lambda h: 1 / h}.items():
    TERMS |= {
        f"n_query d_model²{_heads}": lambda q, k, d, h, t=_times: q * d * d * t(h),
        f"n_key d_model²{_heads}": lambda q, k, d, h, t=_times: k * d * d * t(h),
        f"n_query n_key d_model{_heads}": lambda q, k, d, h, t=_times: q * k * d * t(h),
        f"n_query² d_model{_heads}": lambda q, k, d, h, t=_times: q * q * d * t(h),
        f"n_key² d_model{_heads}": lambda q, k, d, h, t=_times: k * k * d * t(h),
    }
TERMS |= {
    "d_model²": lambda q, k, d, h: d * d,
    "n_query d_model": lambda q, k, d, h: q * d,
    "n_key d_model": lambda q, k, d, h: k * d,
    "n_query n_key": lambda q, k, d, h: q * k,
    "n_query n_key num_heads": lambda q, k, d, h: q * k * h,
    "n_query n_key d_model²": lambda q, k, d, h: q * k * d * d,
}
RIGHT = {"n_query d_model²": 4, "n_key d_model²": 4, "n_query n_key d_model": 4}


def _explains(problems, results):
    """Parts that were not added up, one factor, or a sum of ``TERMS`` that gives all results."""
    arrays = [as_array(result) for result in results]
    if any(array is None or array.ndim > 1 for array in arrays):
        return None
    totals = np.array([float(array.sum()) for array in arrays])
    if all(array.ndim for array in arrays):
        if np.allclose(totals, [predict_flops(*p) for p in problems]):
            return "not-added-up", "Their sum would be right; return one number."
        return "several-numbers", "Return one number: the sum over all products."
    ratios = totals / [predict_flops(*p) for p in problems]
    if totals.any() and np.allclose(ratios, ratios[0], rtol=1e-6, atol=0):
        return "off-by-a-factor", f"On all problems your result is {ratios[0]:g} times the right one."
    values = np.array([[term(*problem) for term in TERMS.values()] for problem in problems], dtype=float)
    times = np.linalg.lstsq(values, totals)[0]
    times = (2 * times).round() / 2
    if not np.allclose(values @ times, totals, rtol=1e-6) or not times.any():
        return None
    found = {name: number for name, number in zip(TERMS, times, strict=True) if number}
    formula = " + ".join(f"{number:g} {name}" for name, number in found.items()).replace("+ -", "- ")
    right = [f"{number} {name}" for name, number in RIGHT.items() if found.get(name) == number]
    says = f"On all problems your result is {formula}."
    says += f" Right in it: {', '.join(right)}." if right else ""
    return "other-terms", f"{says} Compare its terms with the table of step 1: whose length is each n there?"


EXERCISE = Exercise(
    answer=predict_flops,
    chapter="08_what_attention_costs",
    section=STEP,
    points=1,
    problems=_problems,
    mistakes=deviations(
        _build,
        {
            knob: {name: (says, STEP, pieces) for name, (says, pieces) in choices.items()}
            for knob, choices in {"projections": PROJECTIONS, "products": PRODUCTS, "total": TOTALS}.items()
        },
    ),
    explains=_explains,
)
