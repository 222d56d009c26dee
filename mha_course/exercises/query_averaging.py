"""Chapter 02: a query that averages two keys."""

import math

from mha_course.exercises import Exercise, _queries


def query_averaging(keys, i, j):
    """``(n_k, d_k)`` to a query ``(d_k,)`` with equal weights on keys ``i`` and ``j``.

    No score may be above 1000 or below -1000: in single precision, rounding makes larger ones unequal.
    """
    wanted = (20 + math.log(len(keys))) * math.sqrt(keys.shape[1])
    # Divided by the squared length, each key has a dot product of 1 with its own part, and so of 1 in all.
    parts = [keys[k] / (keys[k] @ keys[k]) for k in (i, j)]
    return wanted * (parts[0] + parts[1])


def _problems(rng):
    for number, keys in enumerate(_queries.all_keys(rng)):
        yield keys, *(rng.shuffled(range(len(keys)))[:2] if number else (2, 0))


def _accepts(query, keys, i, j):
    if told := _queries.flaw(query, *keys.shape):
        return told
    scores = _queries.scores_of(_queries.vector(query), keys)
    weights = _queries.softmax(scores)
    one, other, together = weights[i], weights[j], weights[i] + weights[j]
    largest = scores[abs(scores).argmax()]
    # Equal but for the rounding of longer queries, of which only the length is said.
    equal = abs(scores[i] - scores[j]) <= max(0.02, 1e-5 * abs(scores[i]))
    if equal and together > _queries.MORE:
        if abs(largest) <= _queries.LIMIT_OF_TWO:
            return None
        return "too-long", (
            f"The scores of keys {i} and {j} are {scores[i]:.8g} and {scores[j]:.8g}. No score may be above "
            "1000 or below -1000: in float32, a very large score is rounded by so much that the rounding can "
            f"decide which key gets the weight.{_queries.unprinted(keys, [i, j])}"
        )
    share, more = _queries.share, _queries.unprinted(keys, [i, j])
    seen = f"Keys {i} and {j} get {share(one)} and {share(other)} of the weight."
    if equal and together > 2.001 / len(keys):
        told = f"The two are equal; together they get {share(together)}, and should get more than 0.99."
        return "too-flat", f"{seen} {told}{more}"
    wanted = "They should get equal weights, together more than 0.99."
    rest = [(weight, k) for k, weight in enumerate(weights) if k not in (i, j)]
    most, k = max(rest)
    if most > max(1.001 * min(one, other), 5e-4):
        return "wrong-key", f"{seen} {wanted} Key {k}, which is not asked for, gets {share(most)}.{more}"
    if equal:
        return "all-alike", f"{seen} {wanted} All {len(keys)} keys get about the same.{more}"
    return "unequal-weights", f"{seen} {wanted}{more}"


def _explains(problems, results):
    """A query that is too long is no longer explained if all others are right."""
    judged = [_accepts(result, *problem) for problem, result in zip(problems, results, strict=True)]
    only_long = {found[0] for found in judged if found} == {"too-long"}
    return None if only_long else _queries.explain(problems, results)


EXERCISE = Exercise(
    answer=query_averaging,
    chapter="02_toy_queries_keys_values",
    section="2 One query, two equal keys",
    points=2,
    problems=_problems,
    accepts=_accepts,
    explains=_explains,
    mistakes={"query-without-a-row": _queries.ROWLESS},
)
