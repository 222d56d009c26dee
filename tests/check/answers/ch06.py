"""Answers to the exercises of chapter 06."""

import torch
from einops import pack, rearrange

from mha_lab import split_heads
from tests.check.answers.pieces import bare, cut, dealt


def packed_in_a_loop(w_q, w_k, w_v):
    d_model, d = w_q.shape
    result = torch.empty(d_model, 3 * d, dtype=w_q.dtype)
    for i, w in enumerate((w_q, w_k, w_v)):
        for row in range(d_model):
            for column in range(d):
                result[row, i * d + column] = w[row, column]
    return result


PACK_QKV = [
    (None, packed_in_a_loop),
    (None, lambda q, k, v: torch.hstack([q, k, v])),
    (None, lambda q, k, v: pack([q, k, v], "m *")[0]),
    (None, lambda q, k, v: torch.stack([q, k, v], dim=1).flatten(1)),
    (None, lambda q, k, v: torch.cat((q.T, k.T, v.T)).T),
    (None, lambda *w: rearrange(list(w), "three m d -> m (three d)")),
    ("stacked-on-rows", lambda q, k, v: torch.cat([q, k, v])),
    ("stacked-on-rows", lambda *w: torch.vstack(w)),
    ("stacked-on-rows", lambda *w: rearrange(list(w), "three m d -> (three m) d")),
    ("transposed", lambda q, k, v: torch.cat([q.T, k.T, v.T])),
    ("transposed", lambda q, k, v: torch.hstack([q, k, v]).T),
    ("new-axis", lambda q, k, v: torch.stack([q, k, v])),
    ("new-axis", lambda *w: rearrange(list(w), "three m d -> m three d")),
    ("columns-interleaved", lambda *w: torch.stack(w, dim=-1).flatten(1)),
    ("columns-interleaved", lambda *w: rearrange(list(w), "three m d -> m (d three)")),
    ("wrong-order", lambda q, k, v: torch.cat([k, q, v], dim=1)),
    ("wrong-order", lambda q, k, v: torch.hstack([v, k, q])),
    ("wrong", lambda q, k, v: q + k + v if q.shape[1] == 0 else torch.cat([q, q, q], dim=1)),
    ("wrong-shape", lambda q, k, v: q @ k.T @ v),
    ("raises", lambda q, k, v: torch.cat(q, k, v)),
    ("returns-nothing", lambda q, k, v: print(torch.hstack([q, k, v]).shape)),
]


def mended_in_a_loop(x, w_qkv, num_heads):
    d_model = x.shape[-1]
    results = []
    for i in range(3):
        block = x @ w_qkv[:, i * d_model : (i + 1) * d_model]
        width = d_model // num_heads
        heads = [block[..., h * width : (h + 1) * width] for h in range(num_heads)]
        results.append(torch.stack(heads, dim=1))
    return tuple(results)


def fused_by(pattern):
    return lambda x, w, h: tuple(rearrange(x @ w, pattern, three=3, h=h))


def cut_by(cutting, order=(0, 1, 2)):
    def answer(x, w, h):
        blocks = (x @ w).chunk(3, dim=-1)
        return tuple(cutting(blocks[i], h) for i in order)

    return answer


MEND_FUSED = [
    (None, mended_in_a_loop),
    (None, fused_by("b n (three h d) -> three b h n d")),
    (None, cut_by(cut)),
    (None, lambda x, w, h: [split_heads(block, h) for block in torch.split(x @ w, x.shape[-1], dim=-1)]),
    (None, lambda x, w, h: (x @ w).unflatten(-1, (3, h, -1)).permute(2, 0, 3, 1, 4).unbind(0)),
    (None, lambda x, w, h: tuple(split_heads(x @ m, h) for m in w.chunk(3, dim=1))),
    ("heads-interleaved", fused_by("b n (three d h) -> three b h n d")),
    ("heads-interleaved", cut_by(dealt)),
    ("blocks-interleaved", fused_by("b n (h d three) -> three b h n d")),
    ("blocks-interleaved", lambda x, w, h: tuple(cut((x @ w)[..., i::3], h) for i in range(3))),
    ("view-without-transpose", cut_by(bare)),
    (
        "view-without-transpose",
        lambda x, w, h: tuple(
            b.reshape(len(x), h, x.shape[1], -1) for b in torch.split(x @ w, x.shape[-1], -1)
        ),
    ),
    ("not-transposed", fused_by("b n (three h d) -> three b n h d")),
    ("not-transposed", lambda x, w, h: (x @ w).unflatten(-1, (3, h, -1)).unbind(2)),
    ("wrong-order", cut_by(cut, (1, 0, 2))),
    ("wrong-order", cut_by(cut, (2, 1, 0))),
    ("wrong-shape", lambda x, w, h: (x @ w).chunk(3, dim=-1)),
    ("wrong-shape", lambda x, w, h: rearrange(x @ w, "b n (three h d) -> three b h n d", three=3, h=h)),
    ("raises", lambda x, w, h: (x @ w).view(x.shape[0], h, 3, x.shape[2]).unbind(5)),
    ("returns-nothing", lambda x, w, h: None),
]


def by_replacing_all(attention, real, d_model):
    for _ in range(20):
        x = torch.randn(len(real), d_model)
        y = torch.where(real[:, None], x, torch.randn(len(real), d_model))
        if not torch.allclose(attention(x, real)[real], attention(y, real)[real]):
            return True
    return False


def by_gradients(attention, real, d_model):
    for _ in range(20):
        x = torch.randn(len(real), d_model, dtype=torch.float64, requires_grad=True)
        (gradient,) = torch.autograd.grad(attention(x, real)[real].square().sum(), x)
        if gradient[~real].abs().sum() > 0:
            return True
    return False


def by_jacobian(attention, real, d_model):
    seen = 0
    for _ in range(20):
        x = torch.randn(len(real), d_model, dtype=torch.float64)
        jacobian = torch.autograd.functional.jacobian(lambda one: attention(one, real), x)
        seen = seen + jacobian[real][:, :, ~real].abs().sum()
    return seen > 0


def by_large_numbers(attention, real, d_model):
    for _ in range(20):
        x = torch.randn(len(real), d_model, dtype=torch.float64)
        y = x.clone()
        y[~real] = 3 * torch.randn(int((~real).sum()), d_model, dtype=torch.float64)
        if (attention(x, real)[real] - attention(y, real)[real]).abs().max() > 1e-9:
            return torch.tensor(True)
    return torch.tensor(False)


def once(attention, real, d_model):
    x = torch.zeros(len(real), d_model)
    y = x.clone()
    y[-1] -= 1
    return not torch.allclose(attention(x, real)[0], attention(y, real)[0])


def all_outputs(attention, real, d_model):
    x = torch.randn(len(real), d_model)
    y = torch.where(real[:, None], x, torch.randn(len(real), d_model))
    return not torch.allclose(attention(x, real), attention(y, real))


def real_tokens_changed(attention, real, d_model):
    x = torch.randn(len(real), d_model)
    y = torch.where(real[:, None], torch.randn(len(real), d_model), x)
    return not torch.allclose(attention(x, real)[real], attention(y, real)[real])


SEES_PADDING = [
    (None, by_replacing_all),
    (None, by_gradients),
    (None, by_jacobian),
    (None, by_large_numbers),
    ("misses-padding", lambda attention, real, d_model: False),
    ("misses-padding", once),
    (
        "misses-padding",
        lambda attention, real, d_model: bool(attention(torch.ones(len(real), d_model), real).isnan().any()),
    ),
    ("false-alarm", lambda attention, real, d_model: True),
    ("false-alarm", all_outputs),
    ("false-alarm", real_tokens_changed),
    ("wrong-dtype", lambda attention, real, d_model: "yes"),
    ("wrong-dtype", lambda attention, real, d_model: attention(torch.randn(len(real), d_model), real)[real]),
    ("raises", lambda attention, real, d_model: attention(torch.randn(len(real), d_model))),
    ("returns-nothing", lambda attention, real, d_model: None),
]
