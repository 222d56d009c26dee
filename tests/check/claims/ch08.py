"""What is said of answers to the exercises of chapter 08, asked of the numbers."""

import numpy as np

from tests.check.claims.results import array, claims, of_result, same, softmax


def nan_everywhere(problem, expected, got):
    return np.shape(got) == np.shape(expected) and np.isnan(array(got)).all()


def nan_if_empty(problem, expected, got):
    """NaN in the rows without any score, and everything else right."""
    if not isinstance(got, tuple) or len(got) != 3:
        return False
    unseen = np.isneginf(array(expected[0]))[:, 0]
    if not unseen.any() or [np.shape(g) for g in got] != [np.shape(e) for e in expected]:
        return False
    nan = np.isnan(array(got[1])[unseen]).all() or np.isnan(array(got[2])[unseen]).all()
    return bool(
        nan and all(same(array(g)[~unseen], array(e)[~unseen]) for g, e in zip(got, expected, strict=True))
    )


def parts(problem, expected, got):
    """Several numbers, whose sum is right."""
    items = [array(g) for g in got] if isinstance(got, tuple) else [array(got)]
    values = np.concatenate([i.ravel() for i in items])
    return bool(len(values) > 1 and np.isclose(values.sum(), float(array(expected))))


CLAIMS = {
    ("fix_online_softmax", "nan-from-the-first-key"): nan_everywhere,
    ("merge_blocks", "nan-for-empty-row"): nan_if_empty,
    ("predict_flops", "not-added-up"): parts,
}

# --- uncorrected_mean: six scores, read in pairs


def two_outputs(got):
    """The output if no sum is corrected, and the right one, key by key."""
    top, weights = -np.inf, []
    for pair in np.asarray(got, dtype=float).reshape(3, 2):
        top = max(top, *pair)
        weights += [0.0 if score == -np.inf else np.exp(score - top) for score in pair]
    values = 10.0 * np.arange(1, 7)
    whole = softmax(np.asarray(got, dtype=float))
    return values @ weights / sum(weights), values @ whole


def six(holds):
    """About six numbers, and their two outputs."""
    return lambda got: np.shape(got) == (6,) and holds(np.asarray(got, dtype=float), *two_outputs(got))


UNCORRECTED = {
    "the-picture": lambda got: not isinstance(got, np.ndarray),
    "output-returned": lambda got: np.size(got) == 1,
    "where-the-picture-begins": six(lambda s, w, r: np.allclose(np.exp(s), [1, 4, 2, 8, 1, 4], rtol=1e-2)),
    "all-equal": six(lambda s, w, r: s.max() - s.min() < 0.02 and abs(w - r) < 0.2),
    "weights-returned": six(lambda s, w, r: abs(s.sum() - 1) < 0.01),
    "right-output-too-small": six(lambda s, w, r: abs(w - 35) <= 0.5 and r < 54),
    "keys-counted-differently": six(lambda s, w, r: abs(w - 35) > 0.5 and r >= 54),
    "neither-output": six(lambda s, w, r: abs(w - 35) > 0.5 and r < 54),
}
CLAIMS |= claims("uncorrected_mean", UNCORRECTED, of_result)
