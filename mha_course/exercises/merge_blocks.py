"""Chapter 08: two partial softmax results to one."""

from itertools import permutations

import torch

from mha_course.exercises import Exercise, Mistake, deviations


def merge_blocks(m_a, l_a, o_a, m_b, l_b, o_b):
    """``(n_q, 1)``, ``(n_q, 1)``, ``(n_q, d_v)`` of both halves to the same for all keys."""
    m = torch.maximum(m_a, m_b)
    shift = m.masked_fill(m == -torch.inf, 0.0)
    c_a, c_b = torch.exp(m_a - shift), torch.exp(m_b - shift)
    return m, c_a * l_a + c_b * l_b, c_a * o_a + c_b * o_b


def _finite(m):
    return m.masked_fill(m == -torch.inf, 0.0)


def _half(scores, value):
    """What one half of the keys gives; hidden scores are ``-inf``."""
    m = scores.amax(dim=-1, keepdim=True)
    weights = torch.exp(scores - _finite(m))
    return m, weights.sum(dim=-1, keepdim=True), weights @ value


def _problems(rng):
    left, right = torch.tensor([[1.0, 4.0], [3.0, 2.4]]).log(), torch.tensor([[2.0, 0.6], [4.8, 12.0]]).log()
    values = (
        torch.tensor([[8.0, -4.0, 2.0], [12.0, 6.0, -10.0]]),
        torch.tensor([[4.0, 10.0, -6.0], [-8.0, 2.0, 14.0]]),
    )
    yield *_half(left, values[0]), *_half(right, values[1])
    # The first query saw nothing on the left, the second nothing on the right, the third nothing.
    left = torch.tensor([[0.0, 0.0], [0.5, 0.25], [0.0, 0.0]]).log()
    right = torch.tensor([[0.25, 0.2], [0.0, 0.0], [0.0, 0.0]]).log()
    yield *_half(left, values[0][:, :2]), *_half(right, values[1][:, :2])
    for _ in range(2):
        *sizes, n_q = sorted(rng.primes(4))  # at least 7 queries: three of them see nothing somewhere
        n_k, other, d_v = rng.shuffled(sizes)
        left, right = 2 * rng.normal(n_q, n_k), 2 * rng.normal(n_q, other)
        left[0], right[1], left[2], right[2] = (-torch.inf,) * 4
        yield *_half(left, rng.normal(n_k, d_v)), *_half(right, rng.normal(other, d_v))
    left = torch.tensor([[700.0, 699.0], [-701.0, -700.0], [999.0, 1000.0], [-1003.0, -1002.0]])
    right = torch.tensor([[-700.0, -699.5], [700.0, 698.0], [1001.0, 998.0], [-1004.0, -1001.0]])
    yield *_half(left, values[0]), *_half(right, values[1])


def _highest(m_a, m_b):
    m = torch.maximum(m_a, m_b)
    return m, _finite(m)


def _factors(m_a, m_b, shift):
    return torch.exp(m_a - shift), torch.exp(m_b - shift)


def _build(
    highest=_highest,
    factors=_factors,
    total=lambda l_a, l_b, c_a, c_b: c_a * l_a + c_b * l_b,
    output=lambda o_a, o_b, c_a, c_b, l_a, l_b: c_a * o_a + c_b * o_b,
    results=lambda m, total, output: (m, total, output),
):
    """``highest`` gives m and what is subtracted for it, ``factors`` the corrections of both halves."""

    def merged(m_a, l_a, o_a, m_b, l_b, o_b):
        m, shift = highest(m_a, m_b)
        c_a, c_b = factors(m_a, m_b, shift)
        return results(m, total(l_a, l_b, c_a, c_b), output(o_a, o_b, c_a, c_b, l_a, l_b))

    return merged


def _of_all_queries(m_a, m_b):
    m = torch.maximum(m_a, m_b).max()
    return m, m


def _of_all_queries_each(m_a, m_b):
    m = torch.maximum(m_a, m_b).max().expand(m_a.shape)
    return m, m


def _empty_as_zero(m_a, m_b):
    m = torch.maximum(_finite(m_a), _finite(m_b))
    return m, m


def _rescaled(side, returned, shift, one):
    """Rescaled to the m of one half; with ``one`` that half itself is left as it is."""

    def factors(m_a, m_b, s):
        chosen = side(m_a, m_b)
        return tuple(1.0 if one and m is chosen else torch.exp(m - s) for m in (m_a, m_b))

    return _build(lambda *m: (returned(*m, side(*m)), shift(side(*m))), factors)


def _with(factors):
    """These corrections, with and without care for ``-inf``."""
    return _build(factors=factors), _build(lambda *m: (torch.maximum(*m),) * 2, factors)


def _quotients(m_a, m_b, shift):
    return torch.exp(m_a) / torch.exp(shift), torch.exp(m_b) / torch.exp(shift)


STEP, BREAK = "3 The softmax in one pass", "7 Break it: the maximum left out"
KNOBS = {
    "highest": {
        "nan-for-empty-row": (
            "For a query that saw nothing in either half your function computes -inf - (-inf), which is NaN.",
            STEP,
            (lambda a, b: (torch.maximum(a, b),) * 2,),
        ),
        "m-set-to-0": (
            "Your function returns the m in which -inf was replaced by 0: that is needed only for the "
            "differences. A score of 0 is not the same as no score.",
            STEP,
            (lambda a, b: (_highest(a, b)[1],) * 2,),
        ),
        "m-made-finite": (
            "Your function returns a large negative number for m if nothing was seen; it should return -inf.",
            STEP,
            tuple(
                lambda a, b, low=low: (torch.maximum(a, b).clamp(min=low),) * 2
                for low in (torch.finfo(torch.float32).min, -1e30, -1e9)
            ),
        ),
        "empty-half-as-0": (
            "Your function replaces -inf by 0 in each half before it takes the maximum: that 0 can be "
            "higher than the other m, although it is not a score.",
            STEP,
            (
                _empty_as_zero,
                lambda a, b: (_empty_as_zero(a, b)[0], _highest(a, b)[1]),
                lambda a, b: (
                    _empty_as_zero(a, b)[0].masked_fill(torch.maximum(a, b) == -torch.inf, -torch.inf),
                    _empty_as_zero(a, b)[1],
                ),
            ),
        ),
        "minimum": (
            "Your m is the lower of the two; it should be the higher one.",
            STEP,
            (
                lambda a, b: (torch.minimum(a, b),) * 2,
                lambda a, b: (torch.minimum(a, b), _finite(torch.minimum(a, b))),
            ),
        ),
        "one-m-for-all-queries": (
            "Your function takes one maximum over all queries; each query has its own m.",
            STEP,
            (_of_all_queries, _of_all_queries_each),
        ),
        "another-m": (
            "Your m is the sum, the mean or the logaddexp of both; it should be the higher one of the two.",
            STEP,
            tuple(
                lambda a, b, of=of, shift=shift: (of(a, b), shift(of(a, b)))
                for of in (torch.add, lambda a, b: (a + b) / 2, torch.logaddexp)
                for shift in (_finite, lambda m: m)
            ),
        ),
    },
    "factors": {
        "not-corrected": (
            "Your function adds l and o of both halves as they are, but they were computed with two "
            "different m.",
            STEP,
            (lambda a, b, s: (1.0, 1.0),),
        ),
        "one-half-corrected": (
            "Your function corrects one half and takes the other as it is, for all queries; which one has "
            "the higher score differs from query to query.",
            STEP,
            (lambda a, b, s: (torch.exp(a - s), 1.0), lambda a, b, s: (1.0, torch.exp(b - s))),
        ),
        "always-the-same-half": (
            "Your function computes the correction of the half with the lower m, but applies it to the same "
            "half for all queries; which half has the lower m differs from query to query.",
            STEP,
            (
                lambda a, b, s: (torch.exp(torch.minimum(a, b) - s), 1.0),
                lambda a, b, s: (1.0, torch.exp(torch.minimum(a, b) - s)),
            ),
        ),
        "correction-inverted": (
            "Your correction has the wrong sign, exp(m - m_a) instead of exp(m_a - m), or divides when it "
            "should multiply: the sums of the half with the lower m grow.",
            STEP,
            (
                lambda a, b, s: (torch.exp(s - a), torch.exp(s - b)),
                lambda a, b, s: (1 / torch.exp(a - s), 1 / torch.exp(b - s)),
            ),
        ),
        "corrections-exchanged": (
            "Your corrections are swapped: that of a is applied to b, and that of b to a.",
            STEP,
            (lambda a, b, s: (torch.exp(b - s), torch.exp(a - s)),),
        ),
        "corrected-to-each-other": (
            "Your correction compares the two halves with each other, exp(m_a - m_b); bring each to the "
            "common m.",
            STEP,
            (
                lambda a, b, s: (torch.exp(a - b), torch.exp(b - a)),
                lambda a, b, s: (torch.exp(b - a), torch.exp(a - b)),
            ),
        ),
        "correction-without-exp": (
            "Your correction is a difference of two m; it should be exp of that difference.",
            STEP,
            (
                lambda a, b, s: (a - s, b - s),
                lambda a, b, s: (s - a, s - b),
            ),
        ),
        "no-common-maximum": (
            "Your sums are multiplied by exp(m_a) and exp(m_b); bring them to the common m instead.",
            BREAK,
            (lambda a, b, s: (torch.exp(a), torch.exp(b)),),
        ),
    },
    "total": {
        "sum-not-corrected": (
            "Your o is corrected but your l is not: both were computed with the old m.",
            STEP,
            (lambda l_a, l_b, c_a, c_b: l_a + l_b,),
        ),
        "half-as-one-key": (
            "In your l, the correction of a half is used without the l of that half.",
            STEP,
            (
                lambda l_a, l_b, c_a, c_b: c_a + c_b,
                lambda l_a, l_b, c_a, c_b: c_a * l_a + c_b,
                lambda l_a, l_b, c_a, c_b: c_a + c_b * l_b,
            ),
        ),
    },
    "output": {
        "output-not-corrected": (
            "Your l is corrected but your o is not: both were computed with the old m.",
            STEP,
            (lambda o_a, o_b, c_a, c_b, l_a, l_b: o_a + o_b,),
        ),
        "output-times-l": (
            "Your o is multiplied by l once more: o_a and o_b are not divided by it yet.",
            STEP,
            (lambda o_a, o_b, c_a, c_b, l_a, l_b: c_a * l_a * o_a + c_b * l_b * o_b,),
        ),
        "halves-divided": (
            "Your o is computed from o_a / l_a and o_b / l_b; it should not be divided yet.",
            STEP,
            (lambda o_a, o_b, c_a, c_b, l_a, l_b: c_a * o_a / l_a + c_b * o_b / l_b,),
        ),
    },
    "results": {
        "divided-too-early": (
            "Your o is already divided by l: more blocks may follow, so return o undivided.",
            STEP,
            (
                lambda m, total, output: (m, total, output / total),
                lambda m, total, output: (m, total, output / total.masked_fill(total == 0, 1.0)),
                lambda m, total, output: (m, total, (output / total).nan_to_num()),
            ),
        ),
        "output-only": (
            "Your function returns only o, or o / l; it should return m and l too.",
            STEP,
            (
                lambda m, total, output: output,
                lambda m, total, output: output / total,
                lambda m, total, output: output / total.masked_fill(total == 0, 1.0),
            ),
        ),
        "m-left-out": (
            "Your function returns (l, o); it should return (m, l, o).",
            STEP,
            (lambda m, total, output: (total, output),),
        ),
        "another-order": (
            "Your three results are in another order; return (m, l, o).",
            STEP,
            tuple(
                lambda m, total, output, order=order: tuple((m, total, output)[i] for i in order)
                for order in list(permutations(range(3)))[1:]
            ),
        ),
    },
}


def _mistakes():
    """Each wrong piece, and the pairs that are likely. All pairs would take too long."""
    empty = {name: KNOBS["highest"][name] for name in ("nan-for-empty-row", "m-set-to-0")}
    divided = {name: KNOBS["results"][name] for name in ("divided-too-early",)}
    sums = {knob: KNOBS[knob] for knob in ("total", "output")}
    found = deviations(_build, KNOBS, pairs=False) | deviations(_build, sums)
    for knob in list(KNOBS)[1:]:
        found |= deviations(_build, {knob: KNOBS[knob], "highest": empty})
    for knob in ("factors", "total", "output"):
        found |= deviations(_build, {knob: KNOBS[knob], "results": divided})
    return found


EXERCISE = Exercise(
    answer=merge_blocks,
    chapter="08_what_attention_costs",
    section=STEP,
    points=2,
    problems=_problems,
    results=("m", "l", "o"),
    mistakes={
        **_mistakes(),
        "rescaled-to-one-half": Mistake(
            "Your function uses the m of one half for all queries; which half has the higher score differs "
            "from query to query.",
            STEP,
            tuple(
                _rescaled(side, returned, shift, one)
                for side in (lambda a, b: a, lambda a, b: b, lambda a, b: b if b.max() > a.max() else a)
                for returned in (lambda a, b, m: m, lambda a, b, m: torch.maximum(a, b))
                for shift in (_finite, lambda m: m)
                for one in (False, True)
            ),
        ),
        "unstable-softmax": Mistake(
            "Your function computes exp(m) and divides afterwards: for large scores that is inf / inf.",
            BREAK,
            _with(_quotients)[:1],
        ),
        "unstable-and-nan-for-empty-row": Mistake(
            "Your function computes exp(m) and divides afterwards: for large scores that is inf / inf, and "
            "0 / 0 if nothing was seen.",
            BREAK,
            _with(_quotients)[1:],
        ),
        "ratio-of-two-m": Mistake(
            "Your correction is a ratio of two m; it should be exp of their difference.",
            STEP,
            _with(lambda a, b, s: (a / s, b / s)) + _with(lambda a, b, s: (s / a, s / b)),
        ),
        "python-max": Mistake(
            "Python's `max` and `if` need one truth value, but here each query has its own: `torch.maximum` "
            "and `torch.where` decide entry by entry.",
            STEP,
            (lambda m_a, l_a, o_a, m_b, l_b, o_b: max(m_a, m_b),),
        ),
    },
)
