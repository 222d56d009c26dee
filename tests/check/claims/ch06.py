"""What is said of answers to the exercises of chapter 06, asked of the numbers."""

import numpy as np

from tests.check.claims.results import claims, of_both, same

# --- The rows of one head's keys in a checkpoint that goes head by head.


def lies_apart(problem, expected, got):
    """Rows of ``weight`` that stand at equal distances, more than one."""
    weight, got = np.asarray(problem[0]), np.asarray(got)
    if got.shape != np.asarray(expected).shape:
        return False
    places = [int(np.flatnonzero((weight == row).all(1))[0]) for row in got]
    return len(places) == 1 or set(np.diff(places)) in [{problem[1]}, {3 * problem[1]}]


def columns_of(problem, expected, got):
    """Columns of ``weight`` that follow one another, perhaps none or fewer than d_k."""
    weight, got = np.asarray(problem[0]), np.asarray(got)
    count = got.shape[-1] if got.ndim == 2 else -1
    starts = range(weight.shape[1] - count + 1) if count >= 0 else ()
    return len(got) == len(weight) and any(same(got, weight[:, s : s + count]) for s in starts)


CLAIMS = {
    ("key_weights_of_head", "heads-in-turn"): lies_apart,
    ("key_weights_of_head", "columns"): columns_of,
}


# --- w_o_by_hand: a problem is what the heads fetch, in the new order, the old matrix, and the right outputs


def outputs_off(problem, got):
    """For which tokens the outputs with this matrix are wrong."""
    concat, _, wanted = (np.asarray(part, dtype=float) for part in problem)
    return [
        not np.allclose(row @ np.asarray(got), right, atol=0.01)
        for row, right in zip(concat, wanted, strict=True)
    ]


def right_rows(problem, got):
    """Which rows are those of the old matrix for the head that is there now."""
    old = np.asarray(problem[1])
    return [np.allclose(np.asarray(got)[row], old[(row + 2) % 4]) for row in range(4)]


TYPED = {
    "the-picture": lambda problem, got: not isinstance(got, np.ndarray),
    "output-returned": lambda problem, got: np.shape(got) in ((4,), (5, 4)),
    "not-finite": lambda problem, got: not np.isfinite(got).all(),
    "where-the-picture-begins": lambda problem, got: np.allclose(got, problem[1]),
    "columns-moved": lambda problem, got: np.allclose(np.asarray(got)[:, [2, 3, 0, 1]], problem[1]),
    "rows-in-reverse": lambda problem, got: np.allclose(np.asarray(got)[[3, 2, 1, 0]], problem[1]),
    "transposed": lambda problem, got: np.allclose(np.asarray(got).T, problem[1]),
    "one-head-only": lambda problem, got: (
        right_rows(problem, got)[:2] == [True] * 2 or right_rows(problem, got)[2:] == [True] * 2
    ),
    "sizes-where-they-were": lambda problem, got: (
        right_rows(problem, got) == [True, False, True, False]
        and np.allclose(np.asarray(got)[[1, 3]], np.asarray(problem[1])[[1, 3]])
        and np.allclose(np.asarray(got)[[3, 1]], np.roll(np.asarray(problem[1]), 2, 0)[[1, 3]])
    ),
    "sizes-not-right": lambda problem, got: (
        right_rows(problem, got) == [True, False, True, False]
        and [bool(np.any(np.abs(row[[1, 3]]) > 0.005)) for row in np.asarray(problem[0])]
        == [token == 2 for token in range(5)]
        and outputs_off(problem, got) == [token == 2 for token in range(5)]
    ),
    "noun-and-verb-not-right": lambda problem, got: (
        right_rows(problem, got) == [False, True, False, True] and any(outputs_off(problem, got))
    ),
    "right-for-saw-only": lambda problem, got: (
        not outputs_off(problem, got)[2] and any(outputs_off(problem, got))
    ),
    "an-output-differs": lambda problem, got: any(outputs_off(problem, got)),
}
CLAIMS |= claims("w_o_by_hand", TYPED, of_both)
