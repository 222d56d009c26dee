"""What is said of answers to the exercises of chapter 00, asked of the numbers."""

import numpy as np

from tests.check.claims.results import array, claims, never, of_both, same, says, softmax


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
        "list-extended": lambda w, v: [
            np.concatenate([np.zeros(zeros), (w[:, None] * v).ravel()]) for zeros in (0, v.shape[1])
        ],
        "softmax-of-the-weights": lambda w, v: [softmax(w) @ v],
        "one-row-of-a-matrix": lambda w, v: [(w @ v)[None]],
    }.items()
} | {("weighted_average", "lengths-mixed"): never}


def top(w, v, k):
    """The k largest weights, from large to small, and the values of their tokens."""
    order = sorted(range(len(w)), key=lambda i: -w[i])[: int(k)]
    return w[order], v[order]


def low(w, v, k):
    order = sorted(range(len(w)), key=lambda i: w[i])[: int(k)]
    return w[order], v[order]


def with_and_without_a_sum_of_1(w, v):
    return [w @ v / w.sum(), w @ v]


def rest_shared(w, v, k):
    kept, rows = top(w, v, k)
    return [(kept + (w.sum() - kept.sum()) / k) @ rows]


def rows_of_both(w, v, k):
    kept, rows = top(w, v, k)
    return [kept[:, None] * rows, kept[:, None] / kept.sum() * rows]


def extra_axis(w, v, k):
    kept, rows = top(w, v, k)
    average = kept @ rows / kept.sum()
    return [average[None], average[:, None]]


def largest_of_columns(w, v, k):
    kept, _ = top(w, v, k)
    return [kept / kept.sum() @ -np.sort(-v, axis=0)[: int(k)]]


def equal_kept(w, v, k):
    """All that are as large as the k-th largest, if these are more than k."""
    kept = w >= np.sort(w)[::-1][int(k) - 1]
    return [w[kept] @ v[kept] / w[kept].sum()] if kept.sum() > k else []


def missing_and_equal_kept(w, v, k):
    kept = w >= np.sort(w)[::-1][int(k) - 1]
    return [w[kept] @ v[kept]]


def another_number(more):
    """Of so many tokens; of no token, the average is 0 or not a number."""

    def candidates(w, v, k):
        kept, rows = top(w, v, k + more)
        return [kept @ rows / kept.sum()] if len(kept) else [np.zeros(v.shape[1])]

    return candidates


CLAIMS |= {("average_of_top", "values-on-the-left"): never} | {
    ("average_of_top", name): says(candidates)
    for name, candidates in {
        "not-sum-1": lambda w, v, k: [top(w, v, k)[0] @ top(w, v, k)[1]],
        "equal-weights-kept": equal_kept,
        "equal-weights-kept-and-not-sum-1": missing_and_equal_kept,
        "one-token-too-few": another_number(-1),
        "one-token-too-many": another_number(1),
        "plain-mean": lambda w, v, k: [top(w, v, k)[1].mean(0)],
        "plain-sum": lambda w, v, k: [top(w, v, k)[1].sum(0)],
        "divided-by-k": lambda w, v, k: [
            average / k for average in with_and_without_a_sum_of_1(*top(w, v, k))
        ],
        "softmax-of-the-weights": lambda w, v, k: [softmax(top(w, v, k)[0]) @ top(w, v, k)[1]],
        "rest-shared-equally": rest_shared,
        "all-tokens": lambda w, v, k: [w @ v],
        "plain-mean-of-any": lambda w, v, k: [v.mean(0), v[: int(k)].mean(0)],
        "first-k-tokens": lambda w, v, k: with_and_without_a_sum_of_1(w[: int(k)], v[: int(k)]),
        "first-k-values": lambda w, v, k: with_and_without_a_sum_of_1(top(w, v, k)[0], v[: int(k)]),
        "smallest-weights": lambda w, v, k: with_and_without_a_sum_of_1(*low(w, v, k)),
        "largest-only": lambda w, v, k: [top(w, v, 1)[1][0]],
        "weights-returned": lambda w, v, k: [top(w, v, k)[0], top(w, v, k)[0] / top(w, v, k)[0].sum()],
        "not-summed": rows_of_both,
        "one-row-of-a-matrix": extra_axis,
        "largest-values": largest_of_columns,
    }.items()
}


def fetched(problem, got):
    """What each of the five tokens gets with these sizes."""
    return array(problem[0]) @ array(got)


def gets(problem, got, row):
    """Whether this token gets what the task asks for, as far as two digits show."""
    size = fetched(problem, got)[row]
    return size >= 0.494 if row == 1 else abs(size) <= 0.106


SIZES = {
    "the-picture": lambda problem, got: not isinstance(got, np.ndarray),
    "two-numbers": lambda problem, got: np.shape(got) == (2,),
    "both-numbers-of-each-value": lambda problem, got: np.shape(got)[-2:] == (5, 2),
    "weights-returned": lambda problem, got: abs(array(got).sum() - 1) < 0.03 and array(got).min() >= 0,
    "where-the-picture-begins": lambda problem, got: same(got, np.array([0, 1, 0, 0, -1])),
    "first-numbers": lambda problem, got: same(got, np.array([0, 1, -1, 0, 1])),
    "own-value-of-dog": lambda problem, got: got[1] > 1 and not gets(problem, got, 1),
    "too-much-for-saw": lambda problem, got: gets(problem, got, 1) and fetched(problem, got)[2] > 0.1,
    "too-little-for-saw": lambda problem, got: gets(problem, got, 1) and fetched(problem, got)[2] < -0.1,
    "too-little-for-dog": lambda problem, got: gets(problem, got, 2) and fetched(problem, got)[1] < 0.5,
    "neither": lambda problem, got: not gets(problem, got, 1) and not gets(problem, got, 2),
}
CLAIMS |= claims("sizes_by_hand", SIZES, of_both)
