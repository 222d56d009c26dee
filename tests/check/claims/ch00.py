"""What is said of answers to the exercises of chapter 00, asked of the numbers."""

from tests.check.claims.results import says, softmax


def on_columns(w, v):
    return ((v * w).sum(0), v @ w) if len(w) == v.shape[1] else ()


CLAIMS = {
    ("weighted_average", name): says(candidates)
    for name, candidates in {
        "plain-mean": lambda w, v: [v.mean(0)],
        "plain-sum": lambda w, v: [v.sum(0)],
        "not-summed": lambda w, v: [w[:, None] * v],
        "summed-over-columns": lambda w, v: [(w[:, None] * v).sum(1)],
        "summed-over-everything": lambda w, v: [(w[:, None] * v).sum()],
        "weights-on-columns": on_columns,
        "divided-by-the-number-of-rows": lambda w, v: [w @ v / len(w)],
        "one-row-only": lambda w, v: [*v, *(w[:, None] * v)],
        "softmax-of-the-weights": lambda w, v: [softmax(w) @ v],
        "one-row-of-a-matrix": lambda w, v: [(w @ v)[None]],
    }.items()
}
