"""Answers to the exercises of chapter 09."""

import cmath
import math

import torch
import torch.nn.functional as F
from einops import rearrange

import mha_lab
from mha_lab import positions as finished


def alibi_loop(slope, n):
    raised = [math.exp(-slope * (n - 1 - j)) for j in range(n)]
    return torch.tensor([each / sum(raised) for each in raised])


def alibi_step_by_step(slope, n):
    weights = [1.0]
    for _ in range(n - 1):
        weights.insert(0, weights[0] * math.exp(-slope))
    return torch.tensor(weights) / sum(weights)


def alibi_layer(slope, n):
    bias = -slope * (torch.arange(n) - torch.arange(n)[:, None]).abs()
    return mha_lab.masked_softmax(bias.float(), mha_lab.causal_mask(n))[-1]


def back(n):
    return torch.arange(n).flip(0)


PREDICT_ALIBI_WEIGHTS = [
    (None, alibi_loop),
    (None, alibi_step_by_step),
    (None, alibi_layer),
    (None, lambda m, n: torch.softmax(-m * back(n), dim=0)),
    (None, lambda m, n: torch.softmax(m * torch.arange(n), dim=0)),
    (None, lambda m, n: F.normalize(math.exp(m) ** torch.arange(n), p=1, dim=0)),
    (None, lambda m, n: math.exp(-m) ** back(n) * (1 - math.exp(-m)) / (1 - math.exp(-m * n))),
    ("back-to-front", lambda m, n: torch.softmax(-m * torch.arange(n), 0)),
    ("back-to-front", lambda m, n: alibi_loop(m, n).flip(0)),
    ("back-to-front", lambda m, n: alibi_loop(-m, n)),
    ("slope-ignored", lambda m, n: torch.ones(n) / n),
    ("slope-ignored", lambda m, n: torch.full((n,), 1 / n)),
    ("not-normalised", lambda m, n: torch.exp(-m * back(n))),
    ("not-normalised", lambda m, n: torch.tensor([math.exp(-m * (n - 1 - j)) for j in range(n)])),
    ("scores-returned", lambda m, n: -m * back(n)),
    ("scores-returned", lambda m, n: torch.tensor([-m * (n - 1 - j) for j in range(n)])),
    ("slope-as-factor", lambda m, n: F.normalize(m ** back(n).float(), p=1, dim=0)),
    ("slope-as-factor", lambda m, n: torch.tensor([m ** (n - 1 - j) for j in range(n)])),
    ("falls-in-a-line", lambda m, n: (1 - m * back(n)) / (1 - m * back(n)).sum()),
    ("falls-in-a-line", lambda m, n: F.normalize((1 - m * back(n)).clamp(min=0), p=1, dim=0)),
    ("counts-from-one", lambda m, n: torch.exp(-m * torch.arange(n, 0, -1))),
    ("counts-from-one", lambda m, n: alibi_loop(m, n + 1)[1:]),
    ("wrong-shape", lambda m, n: torch.softmax(-m * back(n), 0)[None]),
    ("wrong-shape", lambda m, n: torch.softmax(-m * (back(n) - back(n)[:, None]).abs(), -1)),
    ("wrong-dtype", lambda m, n: torch.softmax(-m * back(n).double(), 0)),
    ("raises", lambda m, n: torch.exp(-m * n).sum()),
    ("returns-nothing", lambda m, n: None),
    ("wrong", lambda m, n: torch.softmax(-m * back(n) ** 2, 0)),
]


def rotated_one_by_one(x, positions):
    d = x.shape[-1]
    out = torch.zeros_like(x)
    for m in range(x.shape[-2]):
        for i in range(d // 2):
            t = float(positions[m]) * 10000 ** (-2 * i / d)
            a, b = x[..., m, 2 * i], x[..., m, 2 * i + 1]
            out[..., m, 2 * i] = a * math.cos(t) - b * math.sin(t)
            out[..., m, 2 * i + 1] = a * math.sin(t) + b * math.cos(t)
    return out


def rotated_as_complex(x, positions):
    d = x.shape[-1]
    speed = 10000 ** (-torch.arange(0, d, 2) / d)
    turns = torch.polar(torch.ones(len(positions), d // 2), positions[:, None] * speed)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * turns).flatten(-2)


def rotated_by_matrices(x, positions):
    d, rows = x.shape[-1], []
    for m in positions.tolist():
        blocks = []
        for i in range(d // 2):
            z = cmath.exp(1j * m * 10000 ** (-2 * i / d))
            blocks.append(torch.tensor([[z.real, -z.imag], [z.imag, z.real]]))
        rows.append(torch.block_diag(*blocks))
    return torch.einsum("nde,...ne->...nd", torch.stack(rows), x)


def angles(x, positions, exponent=lambda i, d: -2 * i / d):
    d = x.shape[-1]
    return torch.outer(positions.float(), 10000.0 ** exponent(torch.arange(d // 2), d))


def rotated(x, positions, t=None, swap=(-1, 1), at=None):
    """In the style of GPT-J: repeat the angles for both numbers of a pair."""
    t = angles(x, positions if at is None else at) if t is None else t
    cos, sin = (f(t).repeat_interleave(2, dim=-1) for f in (torch.cos, torch.sin))
    a, b = rearrange(x, "... n (i two) -> two ... n i", two=2)
    other = rearrange([swap[0] * b, swap[1] * a], "two ... n i -> ... n (i two)")
    return x * cos + other * sin


def rotated_halves(x, positions, *, interleave=False):
    t = angles(x, positions)
    a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    new = [a * t.cos() - b * t.sin(), b * t.cos() + a * t.sin()]
    return torch.stack(new, -1).flatten(-2) if interleave else torch.cat(new, -1)


def with_pairs(combine):
    def answer(x, positions):
        t, out = angles(x, positions), torch.empty_like(x)
        out[..., 0::2], out[..., 1::2] = combine(x[..., 0::2], x[..., 1::2], t.cos(), t.sin())
        return out

    return answer


def rotated_in_place_of_old(x, positions):
    t, out = angles(x, positions), x.clone()
    out[..., 0::2] = out[..., 0::2] * t.cos() - out[..., 1::2] * t.sin()
    out[..., 1::2] = out[..., 0::2] * t.sin() + out[..., 1::2] * t.cos()
    return out


def overwritten_loop(x, positions):
    out = x.clone()
    for m in range(x.shape[-2]):
        for i in range(x.shape[-1] // 2):
            t = float(positions[m]) * 10000 ** (-2 * i / x.shape[-1])
            out[..., m, 2 * i] = out[..., m, 2 * i] * math.cos(t) - out[..., m, 2 * i + 1] * math.sin(t)
            out[..., m, 2 * i + 1] = out[..., m, 2 * i] * math.sin(t) + out[..., m, 2 * i + 1] * math.cos(t)
    return out


def changed_in_place(x, positions):
    x.copy_(rotated(x, positions))
    return x


def every_column(x, positions):
    d = x.shape[-1]
    t = torch.outer(positions.float(), 10000 ** (-torch.arange(d) / d))
    swapped = torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)
    return x * t.cos() + swapped * t.sin()


def every_column_in_a_loop(x, positions):
    out = torch.empty_like(x)
    for m in range(x.shape[-2]):
        for c in range(x.shape[-1]):
            t = float(positions[m]) * 10000 ** (-c / x.shape[-1])
            partner = -x[..., m, c + 1] if c % 2 == 0 else x[..., m, c - 1]
            out[..., m, c] = x[..., m, c] * math.cos(t) + partner * math.sin(t)
    return out


ROTATE_PAIRS = [
    (None, rotated_one_by_one),
    (None, rotated_as_complex),
    (None, rotated_by_matrices),
    (None, rotated),
    (None, with_pairs(lambda a, b, cos, sin: (a * cos - b * sin, a * sin + b * cos))),
    ("other-layout", rotated_halves),
    ("other-layout", lambda x, p: finished_halves(x, p)),
    ("layouts-mixed", lambda x, p: rotated_halves(x, p, interleave=True)),
    ("layouts-mixed", lambda x, p: rearrange(rotated(x, p), "... (i two) -> ... (two i)", two=2)),
    ("turned-backwards", lambda x, p: rotated(x, p, swap=(1, -1))),
    ("turned-backwards", lambda x, p: rotated_as_complex(x, -p)),
    ("sign-lost", lambda x, p: rotated(x, p, swap=(1, 1))),
    ("sign-lost", with_pairs(lambda a, b, cos, sin: (a * cos + b * sin, a * sin + b * cos))),
    ("sign-lost", with_pairs(lambda a, b, cos, sin: (a * cos - b * sin, b * cos - a * sin))),
    ("pair-not-mixed", with_pairs(lambda a, b, cos, sin: (a * cos, b * sin))),
    ("pair-not-mixed", lambda x, p: x * angles(x, p).cos().repeat_interleave(2, -1)),
    ("overwritten", rotated_in_place_of_old),
    ("overwritten", overwritten_loop),
    ("one-speed", lambda x, p: rotated(x, p, p[:, None].float().expand(-1, x.shape[-1] // 2))),
    ("one-speed", lambda x, p: rotated(x, p, angles(x, p)[:, :1].repeat(1, x.shape[-1] // 2))),
    ("wrong-speed", lambda x, p: rotated(x, p, angles(x, p, lambda i, d: -i / d))),
    ("wrong-speed", lambda x, p: rotated(x, p, angles(x, p, lambda i, d: -2 * (i + 1) / d))),
    ("speed-per-column", every_column),
    ("speed-per-column", every_column_in_a_loop),
    ("positions-ignored", lambda x, p: rotated(x, p, at=torch.arange(x.shape[-2]))),
    ("positions-ignored", lambda x, p: rotated_as_complex(x, torch.arange(len(p)))),
    (
        "added-not-turned",
        lambda x, p: x + torch.stack([angles(x, p).sin(), angles(x, p).cos()], -1).flatten(-2),
    ),
    ("added-not-turned", lambda x, p: x + finished.sinusoidal_positions(50, x.shape[-1])[p]),
    ("changes-its-input", changed_in_place),
    ("changes-its-input", lambda x, p: (rotated(x, p), p.zero_())[0]),
    ("wrong-shape", lambda x, p: rotated(x, p).unflatten(-1, (-1, 2))),
    ("wrong-dtype", lambda x, p: rotated(x.double(), p)),
    ("raises", lambda x, p: x * angles(x, p).cos() + x[..., x.shape[-1]] * angles(x, p).sin()),
    ("returns-nothing", lambda x, p: None),
    ("wrong", lambda x, p: finished.apply_rotary(x, p)),
    ("wrong", lambda x, p: x),
]


def finished_halves(x, positions):
    """LLaMA's way, which is right there."""
    t = torch.cat([angles(x, positions)] * 2, dim=-1)
    a, b = x.chunk(2, dim=-1)
    return x * t.cos() + torch.cat([-b, a], dim=-1) * t.sin()


def biased_loop(table, n):
    D = table.shape[1] // 2
    out = torch.zeros(len(table), n, n, dtype=table.dtype)
    for i in range(n):
        for j in range(n):
            out[:, i, j] = table[:, max(-D, min(D, j - i)) + D]
    return out


def biased(table, n, index):
    far = table.shape[1] // 2
    i, j = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
    return table[:, index(i, j, far)]


def biased_by_windows(table, n):
    """Each row is a window of one long row of numbers."""
    D = table.shape[1] // 2
    row = torch.cat(
        [table[:, :1].expand(-1, max(0, n - 1 - D)), table, table[:, -1:].expand(-1, max(0, n - 1 - D))], 1
    )
    middle = row.shape[1] // 2
    return torch.stack([row[:, middle - i : middle - i + n] for i in range(n)], dim=1)


def indexed(index):
    return lambda table, n: biased(table, n, index)


def in_a_loop(column):
    def answer(table, n):
        D = table.shape[1] // 2
        rows = [torch.stack([table[:, column(i, j, D)] for j in range(n)], -1) for i in range(n)]
        return torch.stack(rows, dim=1)

    return answer


def clip(distance, D):
    return max(-D, min(D, distance))


def far_left_out(table, n):
    D = table.shape[1] // 2
    out = torch.zeros(len(table), n, n, dtype=table.dtype)
    for distance in range(-D, D + 1):
        for i in range(n):
            if 0 <= i + distance < n:
                out[:, i, i + distance] = table[:, distance + D]
    return out


MEND_RELATIVE_BIAS = [
    (None, biased_loop),
    (None, indexed(lambda i, j, D: (j - i).clamp(-D, D) + D)),
    (None, indexed(lambda i, j, D: (j - i + D).clamp(0, 2 * D))),
    (None, indexed(lambda i, j, D: D - (i - j).clip(-D, D))),
    (None, in_a_loop(lambda i, j, D: clip(j - i, D) + D)),
    (None, biased_by_windows),
    (None, lambda table, n: indexed(lambda i, j, D: (i - j).clamp(-D, D) + D)(table, n).mT),
    (None, lambda table, n: indexed(lambda i, j, D: (i - j).clamp(-D, D) + D)(table.flip(1), n)),
    ("sign-lost", indexed(lambda i, j, D: (j - i).abs().clamp(-D, D) + D)),
    ("sign-lost", in_a_loop(lambda i, j, D: min(D, abs(i - j)) + D)),
    ("sign-lost", in_a_loop(lambda i, j, D: D - min(D, abs(i - j)))),
    ("not-shifted", indexed(lambda i, j, D: (j - i).clamp(-D, D))),
    ("not-shifted", in_a_loop(lambda i, j, D: clip(j - i, D))),
    ("off-by-one", indexed(lambda i, j, D: (j - i).clamp(-D, D) + D - 1)),
    ("off-by-one", in_a_loop(lambda i, j, D: min(2 * D, clip(j - i, D) + D + 1))),
    ("clipped-after-shift", indexed(lambda i, j, D: (j - i + D).clamp(-D, D))),
    ("clipped-after-shift", in_a_loop(lambda i, j, D: clip(j - i + D, D))),
    ("far-is-zero", far_left_out),
    (
        "far-is-zero",
        lambda table, n: biased_loop(table, n).triu(-(table.shape[1] // 2)).tril(table.shape[1] // 2),
    ),
    ("causal", indexed(lambda i, j, D: (j - i).clamp(-D, 0) + D)),
    ("causal", lambda table, n: biased_loop(table, n).tril()),
    ("wrong-shape", lambda table, n: biased_loop(table, n).movedim(0, -1)),
    ("wrong-dtype", lambda table, n: biased_loop(table, n).half()),
    ("raises", indexed(lambda i, j, D: j - i + D)),  # not clipped
    ("returns-nothing", lambda table, n: None),
    ("wrong", lambda table, n: biased_loop(table, n) * 2),
]
