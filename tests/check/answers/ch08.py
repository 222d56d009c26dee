"""Answers to the exercises of chapter 08."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import mha_lab
from mha_lab.cost import attention_flops
from tests.check.answers.pieces import INF


def counted_flops(n_query, n_key, d_model, num_heads):
    layer = mha_lab.MultiHeadAttention(d_model, num_heads)
    with FlopCounterMode(display=False) as counter:
        layer(torch.randn(1, n_query, d_model), torch.randn(1, n_key, d_model))
    return counter.get_total_flops()


def flops_head_by_head(n_query, n_key, d_model, num_heads):
    d_k, total = d_model // num_heads, 0
    for _ in range(num_heads):
        total += 2 * n_query * d_model * d_k  # query
        total += 2 * (2 * n_key * d_model * d_k)  # key, value
        total += 2 * n_query * d_k * n_key  # scores
        total += 2 * n_query * n_key * d_k  # fetch
    return total + 2 * n_query * d_model * d_model


PREDICT_FLOPS = [
    (None, counted_flops),
    (None, flops_head_by_head),
    (None, lambda q, k, d, h: 4 * d * (d * (q + k) + q * k)),
    (None, lambda q, k, d, h: sum(attention_flops(q, d, n_key=k))),
    (None, lambda q, k, d, h: 2 * sum([q * d * d, k * d * d, k * d * d, q * k * d, q * k * d, q * d * d])),
    (None, lambda q, k, d, h: 4 * q * d**2 + 4 * k * d**2 + h * (4 * q * k * (d // h))),
    ("multiplications-only", lambda q, k, d, h: 2 * (q + k) * d**2 + 2 * q * k * d),
    ("multiplications-only", lambda *sizes: counted_flops(*sizes) // 2),
    ("self-attention", lambda q, k, d, h: 8 * q * d**2 + 4 * q**2 * d),
    ("self-attention", lambda q, k, d, h: counted_flops(k, k, d, h)),
    ("self-attention", lambda q, k, d, h: 4 * (2 * q * d * d) + 2 * (2 * q * k * d)),
    ("output-of-the-keys", lambda q, k, d, h: 2 * d**2 * q + 3 * 2 * d**2 * k + 4 * q * k * d),
    ("output-of-the-keys", lambda *s: counted_flops(*s) + 2 * (s[1] - s[0]) * s[2] ** 2),
    ("no-output-projection", lambda q, k, d, h: 2 * q * d * d + 4 * k * d * d + 4 * q * k * d),
    ("no-output-projection", lambda q, k, d, h: counted_flops(q, k, d, h) - 2 * q * d * d),
    ("counted-per-head", lambda q, k, d, h: 4 * (q + k) * d * d + h * 4 * q * k * d),
    ("counted-per-head", lambda *s: s[3] * counted_flops(*s)),
    ("one-head", lambda q, k, d, h: 4 * (q + k) * d * d + 4 * q * k * d // h),
    ("one-head", lambda q, k, d, h: 4 * (q + k) * d**2 + 2 * (2 * q * k) * (d // h)),
    ("fetch-forgotten", lambda q, k, d, h: 4 * (q + k) * d * d + 2 * q * k * d),
    ("fetch-forgotten", lambda q, k, d, h: counted_flops(q, k, d, h) - 2 * q * k * d),
    ("projections-forgotten", lambda q, k, d, h: 4 * q * k * d),
    ("projections-forgotten", lambda q, k, d, h: 2 * q * k * d),
    ("projections-only", lambda q, k, d, h: 4 * (q + k) * d * d),
    ("projections-only", lambda q, k, d, h: 2 * (2 * q + 2 * k) * d**2),
    ("wrong-shape", lambda q, k, d, h: (4 * (q + k) * d * d, 4 * q * k * d)),
    ("raises", lambda q, k, d, h: q + "keys"),
    ("returns-nothing", lambda q, k, d, h: None),
    ("wrong", lambda q, k, d, h: q * k),
]


def merged_by_logarithms(m_a, l_a, o_a, m_b, l_b, o_b):
    m = torch.maximum(m_a, m_b)
    c_a = torch.where(m_a == -INF, 0.0, torch.exp(m_a - m)).to(m)
    c_b = torch.where(m_b == -INF, 0.0, torch.exp(m_b - m)).to(m)
    return m, c_a * l_a + c_b * l_b, c_a * o_a + c_b * o_b


def merged_row_by_row(m_a, l_a, o_a, m_b, l_b, o_b):
    m, total, output = m_a.clone(), l_a.clone(), o_a.clone()
    for i in range(len(m)):
        if m_b[i] == -INF:
            continue
        m[i] = max(m_a[i], m_b[i])
        a, b = torch.exp(m_a[i] - m[i]), torch.exp(m_b[i] - m[i])
        total[i] = a * l_a[i] + b * l_b[i]
        output[i] = a * o_a[i] + b * o_b[i]
    return m, total, output


def merged_by_softmax(m_a, l_a, o_a, m_b, l_b, o_b):
    both = torch.cat([m_a, m_b], dim=1)
    m = both.max(dim=1, keepdim=True).values
    c = (both - m).nan_to_num(nan=-INF, neginf=-INF).exp()
    total = (c * torch.cat([l_a, l_b], dim=1)).sum(dim=1, keepdim=True)
    return m, total, c[:, :1] * o_a + c[:, 1:] * o_b


def merged_one_way_or_the_other(m_a, l_a, o_a, m_b, l_b, o_b):
    difference = (m_b - m_a).nan_to_num(nan=0.0)
    up, down = difference.clamp(max=0).exp(), (-difference).clamp(max=0).exp()
    return torch.maximum(m_a, m_b), down * l_a + up * l_b, down * o_a + up * o_b


def merged(c_l=lambda own, m: (own - m).exp(), c_o=lambda own, m: (own - m).exp(), low=-INF):
    """A learner's function in which the factors of ``l`` and of ``o`` can be exchanged."""

    def merge(m_a, l_a, o_a, m_b, l_b, o_b):
        m = torch.maximum(m_a, m_b)
        s = m.clamp(min=low)
        return m, l_a * c_l(m_a, s) + l_b * c_l(m_b, s), o_a * c_o(m_a, s) + o_b * c_o(m_b, s)

    return merge


def none(own, m):
    return 1.0


def flipped(own, m):
    return (m - own).exp()


def as_in_the_loop(m_a, l_a, o_a, m_b, l_b, o_b):
    m = torch.max(m_a, m_b)
    correction = torch.exp(m_a - m)
    return m, l_a * correction + l_b, o_a * correction + o_b


def only_the_second(m_a, l_a, o_a, m_b, l_b, o_b):
    m = torch.max(m_a, m_b)
    correction = torch.exp(m_b - m.clamp(min=-1e30))
    return m, l_a + correction * l_b, o_a + correction * o_b


def from_the_bare_exp(m_a, l_a, o_a, m_b, l_b, o_b):
    m, a, b = torch.maximum(m_a, m_b), torch.exp(m_a), torch.exp(m_b)
    return m, (l_a * a + l_b * b) / torch.exp(m), (o_a * a + o_b * b) / torch.exp(m)


def divided(m_a, l_a, o_a, m_b, l_b, o_b):
    m, total, output = merged_row_by_row(m_a, l_a, o_a, m_b, l_b, o_b)
    return m, total, output / total


def divided_where_seen(m_a, l_a, o_a, m_b, l_b, o_b):
    m, total, output = merged_by_logarithms(m_a, l_a, o_a, m_b, l_b, o_b)
    return m, total, torch.where(total > 0, output / total, 0.0).to(output)


MERGE_BLOCKS = [
    (None, merged_by_logarithms),
    (None, merged_row_by_row),
    (None, merged_by_softmax),
    (None, merged_one_way_or_the_other),
    (None, merged(low=-1e30)),
    ("nan-for-empty-row", merged()),
    ("nan-for-empty-row", merged(*[lambda own, m: torch.exp(-(m - own))] * 2)),
    ("not-corrected", merged(none, none)),
    ("not-corrected", lambda m_a, l_a, o_a, m_b, l_b, o_b: (torch.maximum(m_a, m_b), l_a + l_b, o_a + o_b)),
    ("output-not-corrected", merged(c_o=none)),
    ("output-not-corrected", merged(c_o=none, low=-1e30)),
    ("sum-not-corrected", merged(c_l=none)),
    ("sum-not-corrected", merged(c_l=none, low=-1e30)),
    ("one-half-corrected", as_in_the_loop),
    ("one-half-corrected", only_the_second),
    ("correction-inverted", merged(flipped, flipped)),
    ("correction-inverted", merged(lambda own, m: torch.exp(m - own), lambda own, m: torch.exp(m - own))),
    ("unstable-softmax", from_the_bare_exp),
    ("unstable-softmax", merged(*[lambda own, m: torch.exp(own) / torch.exp(m)] * 2)),
    ("divided-too-early", divided),
    ("divided-too-early", divided_where_seen),
    ("wrong-shape", lambda *a: merged_by_logarithms(*a)[1:]),
    ("wrong-shape", lambda *a: merged_by_logarithms(*a)[2]),
    ("raises", lambda m_a, l_a, o_a, m_b, l_b, o_b: m_a + "b"),
    ("returns-nothing", lambda *a: None),
    ("wrong", lambda m_a, l_a, o_a, m_b, l_b, o_b: (torch.minimum(m_a, m_b), l_a * 2, o_a)),
]


def learner(carry_total=True, carry_output=True, *, late=False, divide=True, flip=False):
    """The stub, as it is left after an attempt."""

    def answer(scores, value):
        highest = torch.full_like(scores[:, :1], -torch.inf)
        total = torch.zeros_like(highest)
        output = torch.zeros(len(scores), value.shape[1], dtype=value.dtype)
        for j in range(scores.shape[1]):
            score = scores[:, j : j + 1]
            raised = torch.maximum(highest, score)
            correction = torch.exp(raised - highest) if flip else torch.exp(highest - raised)
            weight = torch.exp(score - raised)
            if late:
                total = (total + weight) * correction
            else:
                total = (total * correction if carry_total else total) + weight
            output = (output * correction if carry_output else output) + weight * value[j]
            highest = raised
        return output / total if divide else output

    return answer


def two_passes(scores, value):
    weights = torch.exp(scores - scores.max(dim=1, keepdim=True).values)
    return weights @ value / weights.sum(dim=1, keepdim=True)


def divided_at_every_key(scores, value):
    highest, total, mean = scores[:, :1], torch.ones_like(scores[:, :1]), value[:1].expand(len(scores), -1)
    for score, row in zip(scores.split(1, dim=1)[1:], value[1:], strict=True):
        raised = torch.maximum(highest, score)
        old, new = total * torch.exp(highest - raised), torch.exp(score - raised)
        total, highest = old + new, raised
        mean = (mean * old + row * new) / total
    return mean


def overflowing(scores, value):
    total, output = torch.zeros_like(scores[:, :1]), 0
    for j in range(scores.shape[1]):
        weight = torch.exp(scores[:, j : j + 1])
        total, output = total + weight, output + weight * value[j]
    return output / total


MEND_ONLINE_SOFTMAX = [
    (None, learner()),
    (None, two_passes),
    (None, divided_at_every_key),
    (None, lambda s, v: torch.softmax(s, dim=-1) @ v),
    (None, lambda s, v: F.scaled_dot_product_attention(s, torch.eye(s.shape[1]).to(s), v, scale=1.0)),
    (None, lambda s, v: torch.exp(s - torch.logsumexp(s, -1, keepdim=True)) @ v),
    ("output-not-corrected", learner(True, False)),
    ("output-not-corrected", lambda s, v: learner(carry_output=False)(s, v) * 1.0),
    ("not-corrected", learner(False, False)),
    ("not-corrected", lambda s, v: learner(False, False)(s.clone(), v)),
    ("corrects-the-new-key", learner(late=True)),
    ("corrects-the-new-key", lambda s, v: learner(late=True)(s, v) + 0),
    ("correction-inverted", learner(flip=True, carry_output=True)),
    ("correction-inverted", lambda s, v: -learner(flip=True)(s, -v)),
    ("unstable-softmax", overflowing),
    ("unstable-softmax", lambda s, v: s.exp() @ v / s.exp().sum(1, keepdim=True)),
    ("not-normalised", learner(divide=False)),
    ("not-normalised", lambda s, v: torch.exp(s - s.amax(1, keepdim=True)) @ v),
    ("softmax-over-queries", lambda s, v: s.softmax(0) @ v),
    ("softmax-over-queries", lambda s, v: (s.T.softmax(-1).T) @ v),
    ("wrong-shape", lambda s, v: torch.softmax(s, -1)),
    ("wrong-dtype", lambda s, v: torch.softmax(s.double(), -1) @ v.double()),
    ("raises", lambda s, v: nn.Linear(3, 3)(s @ v)),
    ("returns-nothing", lambda s, v: None),
    ("wrong", lambda s, v: torch.softmax(s, -1) @ v + 1),
]
