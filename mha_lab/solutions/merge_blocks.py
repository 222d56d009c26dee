"""Chapter 08: two partial softmax results to one."""

import torch

from mha_lab.check.exercise import Exercise, Mistake


def merge_blocks(m_a, l_a, o_a, m_b, l_b, o_b):
    """``(n_q, 1)``, ``(n_q, 1)``, ``(n_q, d_v)`` of both halves to the same of all keys."""
    m = torch.maximum(m_a, m_b)
    shift = m.masked_fill(m == -torch.inf, 0.0)
    c_a, c_b = torch.exp(m_a - shift), torch.exp(m_b - shift)
    return m, c_a * l_a + c_b * l_b, c_a * o_a + c_b * o_b


def _half(scores, value):
    """What one half of the keys gives; hidden scores are ``-inf``."""
    m = scores.amax(dim=-1, keepdim=True)
    weights = torch.exp(scores - m.masked_fill(m == -torch.inf, 0.0))
    return m, weights.sum(dim=-1, keepdim=True), weights @ value


def _problems(draw):
    scores, value = torch.tensor([[1.0, 4.0, 2.0]]).log(), torch.tensor([[10.0], [20.0], [30.0]])
    yield *_half(scores[:, :2], value[:2]), *_half(scores[:, 2:], value[2:])
    yield *_half(scores[:, 2:], value[2:]), *_half(scores[:, :2], value[:2])
    for dtype in (torch.float32, torch.float64, torch.float64):
        *sizes, n_q = sorted(draw.primes(4))  # at least 7 queries: three of them see nothing somewhere
        n_k, other, d_v = draw.shuffled(sizes)
        left, right = 2 * draw.normal(n_q, n_k, dtype=dtype), 2 * draw.normal(n_q, other, dtype=dtype)
        left[0], right[1], left[2], right[2] = (-torch.inf,) * 4
        values = draw.normal(n_k, d_v, dtype=dtype), draw.normal(other, d_v, dtype=dtype)
        yield *_half(left, values[0]), *_half(right, values[1])
    yield *_half(scores + 500, value), *_half(scores - 500, value)


def _corrected(correct_l, correct_o, shift=lambda m: m.masked_fill(m == -torch.inf, 0.0)):
    """The three, where ``correct`` gets a sum, its own maximum and the common one."""

    def merged(m_a, l_a, o_a, m_b, l_b, o_b):
        m = torch.maximum(m_a, m_b)
        s = shift(m)
        return (
            m,
            correct_l(l_a, m_a, s) + correct_l(l_b, m_b, s),
            correct_o(o_a, m_a, s) + correct_o(o_b, m_b, s),
        )

    return merged


def _right(x, own, common):
    return torch.exp(own - common) * x


def _not(x, own, common):
    return x


def _inverted(x, own, common):
    return torch.exp(common - own) * x


def _one_side(side, shift):
    """Corrects one half only, as the loop over keys does with what it carries."""

    def merged(m_a, l_a, o_a, m_b, l_b, o_b):
        m = torch.maximum(m_a, m_b)
        c = torch.exp((m_a, m_b)[side] - shift(m))
        c_a, c_b = (c, 1.0) if side == 0 else (1.0, c)
        return m, c_a * l_a + c_b * l_b, c_a * o_a + c_b * o_b

    return merged


def _divided(m_a, l_a, o_a, m_b, l_b, o_b):
    m, total, output = merge_blocks(m_a, l_a, o_a, m_b, l_b, o_b)
    return m, total, output / total


def _divided_carefully(m_a, l_a, o_a, m_b, l_b, o_b):
    m, total, output = merge_blocks(m_a, l_a, o_a, m_b, l_b, o_b)
    return m, total, output / total.masked_fill(total == 0, 1.0)


def _plain(m):
    return m


def _finite(m):
    return m.masked_fill(m == -torch.inf, 0.0)


STEP = "3 The softmax in one pass"
EXERCISE = Exercise(
    answer=merge_blocks,
    chapter="08_what_attention_costs",
    section=STEP,
    points=2,
    problems=_problems,
    mistakes={
        "nan-for-empty-row": Mistake(
            "A query that saw nothing in either half gets NaN: -inf - (-inf) is no number.",
            "4 Block by block",
            (_corrected(_right, _right, _plain),),
        ),
        "not-corrected": Mistake(
            "Your function adds sums that were made with two different maxima, without a correction.",
            STEP,
            (_corrected(_not, _not),),
        ),
        "output-not-corrected": Mistake(
            "Your l is corrected and your o is not: both were made with the old maximum.",
            STEP,
            (_corrected(_right, _not), _corrected(_right, _not, _plain)),
        ),
        "sum-not-corrected": Mistake(
            "Your o is corrected and your l is not: both were made with the old maximum.",
            STEP,
            (_corrected(_not, _right), _corrected(_not, _right, _plain)),
        ),
        "one-half-corrected": Mistake(
            "Your function corrects one half and trusts that the other has the higher score.",
            STEP,
            tuple(_one_side(side, shift) for side in (0, 1) for shift in (_plain, _finite)),
        ),
        "correction-inverted": Mistake(
            "Your correction has the wrong sign: it makes the sums with the lower maximum larger.",
            STEP,
            (_corrected(_inverted, _inverted), _corrected(_inverted, _inverted, _plain)),
        ),
        "unstable-softmax": Mistake(
            "Your function takes exp(m) without subtracting the common maximum: large scores overflow.",
            "9 Break it: the maximum left out",
            (
                lambda m_a, l_a, o_a, m_b, l_b, o_b: (
                    torch.maximum(m_a, m_b),
                    (m_a.exp() * l_a + m_b.exp() * l_b) / torch.maximum(m_a, m_b).exp(),
                    (m_a.exp() * o_a + m_b.exp() * o_b) / torch.maximum(m_a, m_b).exp(),
                ),
            ),
        ),
        "divided-too-early": Mistake(
            "Your o is divided by l already: more blocks may follow, and o is asked for undivided.",
            STEP,
            (_divided, _divided_carefully),
        ),
    },
)
