"""PyTorch's FlexAttention, without compiling: each of our masks and scores as two small functions."""

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from mha_lab import causal_mask, padding_mask, scaled_dot_product_attention
from mha_lab.masks import sliding_window_mask
from mha_lab.scores import AlibiScore, RelativePositionBias, SoftcappedScore
from tests.references import assert_close

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
BATCH, HEADS, N, D = 2, 3, 137, 5  # more tokens than one block of FlexAttention, 128
LENGTHS = torch.tensor([N, 11])
TEXTS = torch.arange(3).repeat_interleave(torch.tensor([17, 101, 19]))  # three texts in one row


def causal(batch, head, q_idx, kv_idx):
    return kv_idx <= q_idx


MASKS = {
    "causal": (causal, causal_mask(N)),
    "window": (lambda b, h, i, j: (j <= i) & (i - j < 7), sliding_window_mask(N, window=7)),
    "padding": (lambda b, h, i, j: j < LENGTHS[b], padding_mask(LENGTHS, N)),
    "packed": (
        lambda b, h, i, j: (TEXTS[i] == TEXTS[j]) & (j <= i),
        causal_mask(N) & (TEXTS[:, None] == TEXTS),
    ),
}


def inputs():
    return torch.randn(3, BATCH, HEADS, N, D, dtype=torch.float64)


@pytest.mark.parametrize("kind", MASKS)
def test_a_mask_as_mask_mod(kind):
    mask_mod, mask = MASKS[kind]
    q, k, v = inputs()
    blocks = create_block_mask(mask_mod, BATCH, HEADS, N, N, device="cpu")
    found = flex_attention(q, k, v, block_mask=blocks)
    assert_close(found, scaled_dot_product_attention(q, k, v, mask)[0], 1e-12)


def relative():
    score = RelativePositionBias(HEADS, max_distance=4).double()
    numbers = score.bias.detach().normal_()
    return score, lambda s, b, h, i, j: s + numbers[h, (j - i).clamp(-4, 4) + 4]


def cap():
    return SoftcappedScore(0.5), lambda s, b, h, i, j: 0.5 * torch.tanh(s / 0.5)


def alibi():
    slopes = torch.tensor([2**-4, 2**-8, 2**-2], dtype=torch.float64)  # the paper's, for three heads
    return AlibiScore(HEADS), lambda s, b, h, i, j: s - slopes[h] * (i - j).abs()


@pytest.mark.parametrize("make", [relative, cap, alibi])
@torch.no_grad()
def test_a_score_as_score_mod(make):
    score, score_mod = make()
    q, k, v = inputs()
    found = flex_attention(q, k, v, score_mod=score_mod)
    assert_close(found, score(q, k).softmax(dim=-1) @ v, 1e-12)


@torch.no_grad()
def test_both_at_once():
    score, score_mod = relative()
    q, k, v = inputs()
    blocks = create_block_mask(causal, None, None, N, N, device="cpu")
    found = flex_attention(q, k, v, score_mod=score_mod, block_mask=blocks)
    ours = score(q, k).masked_fill(~causal_mask(N), -torch.inf).softmax(dim=-1) @ v
    assert_close(found, ours, 1e-12)
