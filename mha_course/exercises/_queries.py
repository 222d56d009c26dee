"""Chapter 02: keys at right angles, and what is seen of a query that should prefer one or two of them.

Such a query may have any length above some bound, so it is judged by the weights that it reaches, and
explained by how much of each key is in it.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import mha_lab
from mha_course.exercises import Mistake
from mha_course.exercises import _results as compare

MORE = 0.99 + 1e-6  # a score of exactly log(99 (n_k - 1)) gives 0.99, and rounding must not decide


# What the texts of ``query_for_key`` and ``query_averaging`` allow is 100 and 1000; rounding must not decide.
LIMIT, LIMIT_OF_TWO = 100.5, 1001.0


def at_right_angles(rng, n_k, d_k, length=1.0, *, equal=False):
    """Keys ``(n_k, d_k)`` of about this length, within a factor of 2.5."""
    rows = torch.linalg.qr(rng.normal(d_k, n_k).double())[0].T
    lengths = torch.ones(n_k) if equal else torch.exp(0.9 * torch.tanh(rng.normal(n_k)))
    return (rows * length * lengths[:, None]).float()


def one_among(rng, n_k, d_k, length, others):
    """Keys ``(n_k, d_k)`` of the length ``others``, but for one; and the place of this one."""
    index = rng.below(n_k)
    keys = at_right_angles(rng, n_k, d_k, others, equal=True)
    keys[index] *= length / others
    return keys, index


def all_keys(rng):
    """Short, long, wide and equally long keys; five sets have three keys, so that a law can be recognised."""
    yield torch.tensor([[0.1, 0.2, 0.2, 0.4], [0.6, -0.3, 1.2, -0.6], [0.8, 0.4, -0.4, -0.2]])
    yield at_right_angles(rng, 3, 5, 0.03)
    yield at_right_angles(rng, 3, 7, 0.4, equal=True)
    yield at_right_angles(rng, 3, 11, 2.0)
    yield at_right_angles(rng, 3, 600, 4.0)
    yield at_right_angles(rng, 11, 11, 4.0)
    yield at_right_angles(rng, 16, 2048, 0.0105, equal=True)  # everything that the text allows, at once


# One query


def flaw(result: Any, n_k: int, d_k: int) -> tuple[str, str] | None:
    """``None`` for a vector of ``d_k`` finite numbers; else the name of a mistake and what it is."""
    array = compare.as_array(result)
    if array is None or array.shape != (d_k,) or array.dtype == bool:
        text = f"Your function returns {compare.kind(result)}; a query of shape ({d_k},) is expected."
        if array is not None and array.shape == (n_k,):
            text += f" {n_k} is the number of keys; a query is as wide as a key."
        if array is not None and array.shape in ((1, d_k), (d_k, 1)):
            text += " It has one axis too many."
        return "wrong-shape", text
    if not np.isfinite(array.astype(float)).all():
        return "not-finite", "Your query holds NaN or infinity."
    return None


def vector(result: Any) -> np.ndarray:
    """A result without a flaw, in numpy."""
    return compare.as_array(result).astype(float)


def scores_of(query: np.ndarray, keys: torch.Tensor) -> np.ndarray:
    """The scaled scores of one query."""
    return keys.double().numpy() @ query / math.sqrt(keys.shape[1])


def softmax(scores: np.ndarray) -> np.ndarray:
    """The weights."""
    raised = np.exp(scores - scores.max())
    return raised / raised.sum()


def share(weight: float) -> str:
    """A weight in words, with more digits near the weight that is asked for."""
    if weight < 5e-4:
        return "less than 0.001"
    return f"{weight:.4f}" if 0.985 < weight < 0.9999 else f"{weight:.3f}"


def unprinted(keys: torch.Tensor, chosen: list[int]) -> str:
    """What the report does not show if there are too many keys to print."""
    if keys.numel() <= 24:
        return ""
    lengths = " and ".join(f"{length:.3g}" for length in keys[chosen].norm(dim=1).tolist())
    verb = "keys are" if len(chosen) > 1 else "key is"
    return f" Here d_k is {keys.shape[1]}, and the chosen {verb} {lengths} long."


# All queries together: which keys are in them, and by which law


def explain(problems: list[tuple], results: list[Any]) -> tuple[str, str] | None:
    """A name and a cause that hold for all queries; a problem is the keys and the one or two asked for."""
    problems = [(keys.double().numpy(), chosen) for keys, *chosen in problems]
    arrays = [compare.as_array(result) for result in results]
    if any(array is None or array.ndim != 1 or array.dtype == bool for array in arrays):
        return None
    arrays = [array.astype(float) for array in arrays]
    if all(_places(array) == set(chosen) for array, (_, chosen) in zip(arrays, problems, strict=True)):
        says = "Your query is 0 everywhere except at the given indices, as if they counted columns."
        return (
            "places-in-place-of-keys",
            f"{says} That is right only if key j lies along axis j, as in torch.eye(3).",
        )
    if any(len(array) != keys.shape[1] for array, (keys, _) in zip(arrays, problems, strict=True)):
        return None
    if not all(np.isfinite(array).all() for array in arrays):
        return None
    if not any(array.any() for array in arrays):
        return "zero", "A query of zeros has a dot product of 0 with every key."
    cases = [_Case(query, keys, chosen) for query, (keys, chosen) in zip(arrays, problems, strict=True)]
    return _columns(cases) or _others(cases) or _signs(cases) or _lengths(cases)


class _Case:
    """One query; ``amounts`` of each key in it; ``own`` and ``long``: amounts and lengths of chosen keys."""

    def __init__(self, query: np.ndarray, keys: np.ndarray, chosen: list[int]) -> None:
        self.query, self.keys, self.chosen = query, keys, chosen
        self.n_k, self.d_k = keys.shape
        lengths = np.linalg.norm(keys, axis=1)
        self.amounts = keys @ query / lengths**2
        left = np.linalg.norm(query - self.amounts @ keys)
        self.only_keys = left <= 1e-3 * np.linalg.norm(query)
        parts = abs(self.amounts) * lengths
        self.inside = set(np.flatnonzero(parts > 1e-3 * parts.max()).tolist())
        self.own, self.long = self.amounts[chosen], lengths[chosen]
        self.score = self.own[0] * self.long[0] ** 2 / math.sqrt(self.d_k)


def _places(array: np.ndarray) -> set[int]:
    return set(np.flatnonzero(array).tolist())


def _columns(cases: list[_Case]) -> tuple[str, str] | None:
    for name, divisor in (
        ("length", lambda k: np.linalg.norm(k, axis=0)),
        ("squared length", lambda k: (k**2).sum(0)),
        ("sum", lambda k: k.sum(0)),
    ):
        wanted = [(case.keys / divisor(case.keys))[case.chosen].sum(0) for case in cases]
        if all(_parallel(case.query, other) for case, other in zip(cases, wanted, strict=True)):
            says = f"Each entry is divided by the {name} of its column of `keys`; a key is a row of it."
            return "divided-by-columns", says
    return None


def _parallel(one: np.ndarray, other: np.ndarray) -> bool:
    lengths = np.linalg.norm(one) * np.linalg.norm(other)
    return bool(lengths > 0 and abs(one @ other) > (1 - 1e-6) * lengths)


def _others(cases: list[_Case]) -> tuple[str, str] | None:
    """Other keys are in the queries, or a chosen one is missing."""
    if not all(case.only_keys for case in cases) or all(case.inside == set(case.chosen) for case in cases):
        return None
    if all(np.ptp(case.amounts) < 1e-3 * abs(case.amounts).max() for case in cases):
        return "all-keys-alike", "Your query is the sum of all keys, or a multiple of it."
    if len(cases[0].chosen) == 2:
        for number, name in enumerate("ij"):
            if all(case.inside == {case.chosen[number]} for case in cases):
                return "one-key-only", f"Only key `{name}` is in your query."
    elif all(len(case.inside) == 1 for case in cases):
        if len(set.union(*(case.inside for case in cases))) == 1:
            return (
                "one-key-always",
                "Your query points along the same key on every problem: `index` is not used.",
            )
        for name, which, says in (
            ("last-key-always", lambda n, i: n - 1, "the last key on every problem: `index` is not used"),
            ("key-before", lambda n, i: (i - 1) % n, "key `index - 1`: keys are counted from 0"),
            ("key-after", lambda n, i: (i + 1) % n, "key `index + 1`: keys are counted from 0"),
        ):
            if all(case.inside == {which(case.n_k, *case.chosen)} for case in cases):
                return name, f"Your query points along {says}."
    if all(case.inside - set(case.chosen) for case in cases if case.n_k > len(case.chosen)):
        return "other-keys-in-it", "Your query contains keys that are not asked for."
    return None


def _signs(cases: list[_Case]) -> tuple[str, str] | None:
    if not all(case.only_keys for case in cases):
        return None
    if all((case.own < 0).all() for case in cases):
        return "opposite", "Your query points away from what is asked for: its factor is negative."
    if all((case.own < 0).any() for case in cases):
        return "difference", "Your query contains a difference of the two keys; add them instead."
    return None


SCORE = "The dot product of a key with itself is its length squared."
OWN = {
    0: ("length-not-divided-out", "{The} key's length is not divided out of your query."),
    -1: ("length-divided-out-once", "{The} key's length is divided out of your query once."),
    -3: ("length-divided-out-thrice", "{The} key's length is divided out of your query three times."),
    -4: ("length-divided-out-four-times", "{The} key's length is divided out of your query four times."),
    1: ("multiplied-by-the-length", "{The} key is multiplied by its own length in your query."),
    2: ("multiplied-by-the-length", "{The} key is multiplied by its own squared length in your query."),
}
OTHER = {
    -1: ("other-length-divided-out", "Each key is divided by the length of the other key in your query."),
    -2: ("other-length-divided-out", "Each key is divided by the squared length of the other key."),
    1: ("multiplied-by-the-other-length", "Each key is multiplied by the length of the other key."),
    2: ("multiplied-by-the-other-length", "Each key is multiplied by the squared length of the other key."),
}
EQUAL = (
    "equal-and-not-made-large",
    "The two dot products are equal, but they grow with the lengths of both keys: for short keys they are "
    "small.",
)
UNDO = "To undo attention's division by sqrt(d_k), multiply by it."
WIDTH = {
    0: ("no-root-of-d_k", "`sqrt(d_k)` is missing: attention divides every dot product by it."),
    -0.5: ("divided-by-the-root", f"Your query is divided by sqrt(d_k). {UNDO}"),
    -1: ("divided-by-d_k", f"Your query is divided by d_k. {UNDO}"),
}
RATIO = {
    0: (
        "equal-amounts",
        "Both keys are in your query in equal amounts, so the longer one has the larger dot product.",
    ),
    -1: OWN[-1],
}
SHORT = ("too-short", "The direction of your query is right, but it is too short for some keys.")
LONG = ("too-long", "The direction of your query is right, but it is too long for some keys.")
BOTH = (
    "too-short-and-too-long",
    "The direction of your query is right, but it is too short for some keys and too long for others.",
)


def _small(cases: list[_Case], two: bool) -> tuple[str, str]:
    """The score is not large enough: for any number of keys, or only for many."""
    times, whom = ("49.5", ", for each of the two keys") if two else ("99", "")
    enough = f"`exp` of it must be more than {times} times the sum of all the others{whom}"
    scores = np.array([case.score for case in cases])
    if np.ptp(scores) < 1e-2 * scores.max() and any(_reached(case) > MORE for case in cases):
        says = f"Your score is the same for any number of keys. {enough}"
        return "ignores-the-number-of-keys", f"{says}, and that sum grows with the number of keys."
    return "score-too-small", f"Your score is too small: {enough}."


def _reached(case: _Case) -> float:
    """The weight that the chosen keys get."""
    return softmax(scores_of(case.query, torch.from_numpy(case.keys)))[list(case.chosen)].sum()


def _lengths(cases: list[_Case]) -> tuple[str, str] | None:
    """From the laws by which the queries depend on d_k and on the lengths of the keys."""
    if not all(case.only_keys and (case.own > 0).all() for case in cases):
        return None
    two = len(cases[0].chosen) == 2
    own, norms = np.array([case.own for case in cases]), np.array([np.linalg.norm(c.query) for c in cases])
    plain = {1: "the sum of the two keys", 0.5: "the mean of the two keys"} if two else {1: "the key itself"}
    for amount, what in plain.items():
        if np.allclose(own, amount, rtol=1e-3):
            return "keys-as-they-are", f"Your query is {what}. It is not made longer. {SCORE}"
    if not two and np.ptp(own) < 1e-3 * own.max():
        (name, says), factor = OWN[0], f"Your query is the key times {own[0, 0]:.6g} on every problem."
        return name, f"{factor} {says.format(The='The')} {SCORE} So a short key needs a larger factor."
    alike = [case for case in cases if case.n_k == 3]  # a law may have another constant for other n_k
    found = []
    ratios = two and law([c.own[0] / c.own[1] for c in alike], [c.long[0] / c.long[1] for c in alike])
    ratio = ratios[0] if ratios else None if two else -2
    # For two keys, length is no mistake as long as their dot products differ: a query may be very long.
    if np.ptp(norms) < 1e-3 * norms.max():
        found += [RATIO[ratio]] if ratio in RATIO else []
        says = f"Your query is {norms[0]:.6g} long on every problem, whatever the lengths of the keys are."
        if ratio == -2:
            found.append(("one-length-for-all", says))
    else:
        of_own, of_other, of_width = _exponents(alike) or (-2, 0, None)
        if two and of_other and of_own + 2 == of_other:
            found.append(EQUAL)
        elif of_other in OTHER:
            found.append(OTHER[of_other])
        elif of_own in OWN:
            found.append(OWN[of_own])
        if of_width in WIDTH and not (two and found):
            found.append(WIDTH[of_width])
        if not found and (of_own, of_other, of_width) == (-2, 0, 0.5):
            found.append(_bounds(cases, _small(cases, two)))
    if not found and ratio in RATIO:
        found.append(RATIO[ratio])
    if not found and ratio == -2:
        found.append(_bounds(cases, SHORT))
    if not found:
        return None
    first = found[0][1].replace("{The}", "Each" if two else "The")
    if found[0] in (*OWN.values(), *OTHER.values()):
        first = f"{first} {SCORE}"
    return found[0][0], " Also: ".join([first, *(says for _, says in found[1:])])


def _bounds(cases: list[_Case], short: tuple[str, str]) -> tuple[str, str]:
    """``short``, or that a query is too long; at least one of the queries is wrong."""
    limit = LIMIT if len(cases[0].chosen) == 1 else LIMIT_OF_TWO
    scores = [scores_of(case.query, torch.from_numpy(case.keys)) for case in cases]
    if all(abs(of_one).max() <= limit for of_one in scores):
        return short
    return LONG if min(map(_reached, cases)) > MORE else BOTH


def _exponents(cases: list[_Case]) -> tuple[float, float, float] | None:
    """The exponents of a key's own length, the other key's length and d_k, in the amount of a key."""
    if len(cases[0].chosen) == 1:
        found = law([c.own[0] for c in cases], [c.long[0] for c in cases], [c.d_k for c in cases])
        return found and (found[0], 0, found[1])
    rows = [(c.own[k], c.long[k], c.long[1 - k], c.d_k) for c in cases for k in (0, 1)]
    return law(*zip(*rows, strict=True))


def law(values: Sequence[float], *sizes: Sequence[float]) -> tuple[float, ...] | None:
    """The exponents in ``values = constant * sizes[0]**a * sizes[1]**b ...``, if they follow such a law."""
    logs, columns = np.log(values), np.stack([np.log(size) for size in sizes], 1)
    found = np.linalg.lstsq(np.column_stack([columns, np.ones(len(logs))]), logs, rcond=None)[0]
    exponents = np.round(2 * found[:-1]) / 2
    return tuple(exponents.tolist()) if np.ptp(logs - columns @ exponents) < 2e-3 else None


ROWLESS = Mistake(
    "The query is a single vector, (d_k,). Attention expects a row for each query: `query[None]`.",
    "1 One query, one key",
    (
        lambda keys, *chosen: mha_lab.scaled_dot_product_attention(keys[0], keys, keys),
        lambda keys, *chosen: torch.nn.functional.scaled_dot_product_attention(keys[0], keys, keys),
    ),
)
