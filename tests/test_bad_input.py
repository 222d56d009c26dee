"""Wrong arguments: the error's class, and a message that says expected, got and the likely mistake.

These run without the jaxtyping checker, which would answer before the package does.
"""

import math
import re
from contextlib import nullcontext
from functools import partial
from itertools import product

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

import mha_course
import mha_lab
from mha_course.chapters import modern
from mha_course.chapters.flash import flash_attention
from mha_lab import MultiHeadAttention as Layer
from mha_lab import masked_softmax, merge_heads, split_heads
from mha_lab import scaled_dot_product_attention as attention
from mha_lab import scaled_dot_product_scores as scores

pytestmark = pytest.mark.unchecked


def x(*sizes, dtype=torch.float32, device="cpu"):
    return torch.ones(sizes, dtype=dtype, device=device)


on, whole, double = (partial(x, dtype=dtype) for dtype in (torch.bool, torch.int64, torch.float64))
meta = partial(x, device="meta")

one, itself = mha_lab.SingleHeadAttention(4, 3), Layer(6, 2)
many, second = Layer(6, 2, kdim=7, vdim=11), Layer(6, 2, batch_first=False)
additive, relative = mha_lab.AdditiveScore(4, 5), mha_lab.RelativePositionBias(2, 3)
NAMES = vars(mha_lab) | vars(mha_lab.positions) | vars(mha_lab.scores)
NAMES |= vars(mha_lab.masks) | vars(modern) | globals()

# A call, and what the message must hold: who, expected, got, the likely mistake.
TYPE_ERRORS = {
    "scores([[1.0]], x(3, 4))": "query: torch.Tensor list torch.tensor",
    "scores(x(5, 4), None)": "key: torch.Tensor NoneType",
    "scores(whole(5, 4), x(3, 4))": "query: int64 query.float()",
    "scores(x(5, 4), on(3, 4))": "key: bool key.float()",
    "scores(x(5, 4), double(3, 4))": "key: float32 float64 key.to(",
    "masked_softmax([[1.0]])": "scores: torch.Tensor list",
    "masked_softmax(whole(5, 3))": "scores: int64 .float()",
    "masked_softmax(x(1, 1), [[True]])": "mask: torch.Tensor list",
    "masked_softmax(x(5, 3), x(5, 3))": "mask: torch.bool float32 mask_from_additive",
    "masked_softmax(x(5, 3), whole(5, 3))": "mask: torch.bool int64 mask.bool() True",
    "attention(x(5, 4), x(3, 4), whole(3, 2))": "value: int64",
    "attention(x(5, 4), x(3, 4), double(3, 2))": "value: float64",
    "split_heads([[1.0]], 1)": "x: torch.Tensor list",
    "split_heads(x(2, 5, 6), 6 / 3)": "num_heads: int float 2.0 //",
    "split_heads(x(2, 5, 6), True)": "num_heads: int bool True",
    "causal_mask(x(3, 3))": "n_query: int Tensor (3, 3)",
    "padding_mask(3)": "lengths: list int",
    "padding_mask('23')": "lengths: list str",
    "padding_mask([2.0])": "lengths: int float",
    "padding_mask(x(2))": "lengths: whole float32",
    "padding_mask(x(2, dtype=torch.complex64))": "lengths: whole complex64",
    "padding_mask(on(2))": "lengths: whole bool mask[:, None, None, :]",
    "mask_from_blocked([True])": "blocked: torch.Tensor list",
    "mask_from_blocked(x(2))": "blocked: bool float32 mask_from_additive",
    "mask_to_blocked([True])": "mask: torch.Tensor list",
    "mask_to_blocked(x(2))": "mask: bool float32 mask_from_additive",
    "mask_from_additive([0.0])": "bias: torch.Tensor list",
    "mask_from_additive(on(2))": "bias: bool mask_from_blocked",
    "mask_from_additive(whole(2))": "bias: int64",
    "mask_to_additive([True])": "mask: torch.Tensor list",
    "mask_to_additive(x(2))": "mask: bool float32 as it is",
    "mask_to_additive(on(2), torch.int64)": "dtype: int64 scores.dtype",
    "mask_to_additive(on(2), 'float32')": "dtype: torch.dtype float32",
    "one(double(5, 4))": "x: q_proj.weight float32 float64",
    "Layer(6, 2, kdim=7.0)": "kdim: int float",
    "Layer(6, 2, score='dot')": "score: callable dot",
    "Layer(6, 2, score=AdditiveScore)": "score: callable AdditiveScore AdditiveScore(...)",
    "itself(whole(2, 5, 6))": "query: floating int64",
    "itself(whole(2, 6))": "query: floating int64 token ids Embedding",
    "itself(x(2, 5, 6), causal_mask(5))": "key: floating bool mask? mask=...",
    "one(x(5, 4), on(5, 5))": "context: floating bool mask? mask=...",
    "one(whole(5, 4))": "x: floating int64 token ids",
    "itself(x(2, 5, 6, dtype=torch.complex64))": "query: floating complex64 query.real",
    "scores(x(5, 4, dtype=torch.complex64), x(3, 4))": "query: floating complex64 query.real",
    "itself(x(2, 5, 6), need_weights='False')": "need_weights: True or False 'False'",
    "itself(x(2, 5, 6), is_causal=1)": "is_causal: True or False",
    "itself(x(2, 5, 6), is_causal=on(5, 5))": "is_causal: True or False",
    "mha_lab.SingleHeadAttention(4, bias='no')": "bias: True or False",
    "Layer(6, 2, bias='False')": "bias: True or False 'False'",
    "ModernAttention(6, 2, sinks='no')": "sinks: True or False",
    "ModernAttention(6, 2, gate=None)": "gate: True or False",
    "Layer(6, 2, batch_first=0)": "batch_first: True or False 0",
    "yarn_frequencies(8, 4, 9, truncate='no')": "truncate: True or False",
    "itself.extend(x(2, 5, 6), mask=x(5, 5))": "mask: torch.bool",
    "itself(double(2, 5, 6))": "query: q_proj.weight float64",
    "Layer.from_torch(nn.Linear(2, 3))": "module: torch.nn.MultiheadAttention Linear",
    "AdditiveScore(4, 3.5)": "hidden: int float",
    "additive(double(5, 4), double(7, 4))": "query: query_proj.weight float64",
    "relative(double(2, 5, 4), double(2, 7, 4))": "query: bias float64",
    "sinusoidal_positions(3, 4.0)": "d_model: an int",
    "apply_rotary([1.0, 2.0])": "x: a torch.Tensor",
    "apply_rotary(x(3, 4).long())": "x: a floating-point dtype",
    "apply_rotary(x(3, 4), [0, 1, 2])": "positions: a torch.Tensor",
    "apply_rotary(x(3, 4), x(3) > 0)": "positions: whole or",
    "Rotary(base='10000')": "base: a number",
    "Rotary(frequencies=[1.0])": "frequencies: (pairs,) list torch.tensor",
    "Rotary(frequencies=whole(2))": "frequencies: floating int64",
    "yarn_frequencies(8, 4, 2048.0)": "length: an int",
    "mean_rotary_score(x(2), 3.0)": "n: an int",
    "AlibiScore(2.0)": "num_heads: an int",
    "scores(x(5, 4), x(3, 4), scale=x())": "scale: Tensor .item()",
    "Layer(6, 2, score=lambda q, k: (q @ k.mT).tolist())(x(2, 5, 6))": "score: callable list",
    "Layer(6, 2, score=lambda q, k: (q @ k.mT).long())(x(2, 5, 6))": "score: callable torch.int64",
    "Layer(6, 2, mask=on(5, 5))": "mask: None callable (n_query, n_key Tensor (5, 5)",
    "Layer(6, 2, mask=SlidingWindow)": "mask: SlidingWindow(...)",
    "Layer(6, 2, mask=lambda n, m, device: n)(x(2, 5, 6))": "mask: torch.Tensor int",
    "Layer(6, 2, mask=lambda n, m, device: x(n, m))(x(2, 5, 6))": "mask: torch.bool float32",
    "SlidingWindow(2.0)": "window: int float",
    "Layer(8, 2, transform=3)": "transform: None callable",
    "Layer(8, 2, transform=Rotary)": "transform: Rotary(...)",
    "Layer(8, 2, transform=lambda q, k: q)(x(2, 5, 8))": "transform: callable returns (query, key)",
}
VALUE_ERRORS = {
    "scores(x(4), x(3, 4))": "query: (..., n_q, d_k) rank (4,) query[None]",
    "scores(x(5, 4), meta(3, 4))": "key: cpu meta key.to(query.device)",
    "scores(x(0, 4), x(3, 4))": "query: token (0, 4) empty",
    "scores(x(5, 4), x(0, 4))": "key: token (0, 4) empty",
    "scores(x(5, 0), x(3, 0))": "query: d_k (5, 0)",
    "scores(x(5, 4), x(3, 2))": "key: 4 (3, 2) projected",
    "scores(x(5, 4), x(4, 3))": "key: 4 (4, 3) transposed already",
    "scores(x(2, 5, 4), x(3, 5, 4))": "key: (2,) (3, 5, 4) same batch",
    "scores(x(2, 3, 5, 4), x(2, 5, 4))": "key: (2, 3) heads split",
    "masked_softmax(x(3))": "scores: (..., n_q, n_k) (3,)",
    "masked_softmax(x(5, 0))": "scores: (5, 0)",
    "masked_softmax(x(0, 3))": "scores: (0, 3)",
    "masked_softmax(x(5, 3), meta(5, 3).bool())": "mask: cpu meta mask.to(device)",
    "masked_softmax(x(5, 3), on(3, 5))": "mask: (5, 3) (3, 5) mask.mT",
    "masked_softmax(x(2, 5, 3), on(2, 3))": "mask: (2, 5, 3) (2, 3) mask[:, None, :]",
    "masked_softmax(x(2, 7, 5, 3), on(2, 3))": "mask: padding_mask(lengths) mask[:, None, None, :]",
    "masked_softmax(x(2, 7, 5, 3), on(2, 5, 3))": "mask: (2, 7, 5, 3) (2, 5, 3) heads mask[:, None]",
    "masked_softmax(x(2, 7, 5, 3), on(14, 5, 3))": "mask: torch.nn mask_from_blocked(mask).view(2, 7, 5, 3)",
    "masked_softmax(x(2, 5, 3), on(2, 1, 5, 3))": "mask: (2, 5, 3) (2, 1, 5, 3) squeeze(-3)",
    "masked_softmax(x(5, 3), on(4, 2))": "mask: (5, 3) (4, 2) rows columns",
    "attention(x(5, 4), x(3, 4), x(3))": "value: rank (3,)",
    "attention(x(5, 4), x(3, 4), meta(3, 2))": "value: cpu meta",
    "attention(x(5, 4), x(3, 4), x(5, 2))": "value: (..., 3, d_v) (5, 2) one sequence",
    "attention(x(2, 5, 4), x(2, 3, 4), x(7, 3, 2))": "value: (2,) (7, 3, 2)",
    "attention(x(5, 4), x(3, 4), x(3, 2), on(3, 5))": "mask: (5, 3) mask.mT",
    "attention(x(5, 4), x(3, 4), x(3, 2), dropout_p=1.0)": "dropout_p: 1.0",
    "attention(x(5, 4), x(3, 4), x(3, 2), dropout_p=-0.1)": "dropout_p: 0 <= p < 1 -0.1",
    "split_heads(x(6), 2)": "x: (..., n, d_model) rank (6,)",
    "split_heads(x(2, 0, 6), 2)": "x: token (2, 0, 6)",
    "split_heads(x(2, 5, 6), 4)": "num_heads: 6 4 1, 2, 3, 6",
    "split_heads(x(2, 5, 0), 2)": "num_heads: 0 none",
    "split_heads(x(2, 5, 6), 0)": "num_heads: at least 1 0",
    "merge_heads(x(5, 6))": "x: (..., num_heads, n, d_k) (5, 6)",
    "merge_heads(x(2, 3, 0, 4))": "x: (2, 3, 0, 4)",
    "causal_mask(0)": "n_query: at least 1 0",
    "causal_mask(3, -1)": "n_key: at least 1 -1",
    "padding_mask(whole(2, 3))": "lengths: (batch,) (2, 3)",
    "padding_mask(torch.tensor(3))": "lengths: (batch,) rank 0",
    "padding_mask([])": "lengths: above 0 [] max_length",
    "padding_mask([2, -1])": "lengths: -1",
    "padding_mask(torch.tensor([2, -1]))": "lengths: -1",
    "padding_mask([2, 7], 5)": "lengths: max_length = 5 7 x.shape[1]",
    "padding_mask([0, 0])": "lengths: above 0 [0, 0] max_length",
    "padding_mask([0], 0)": "max_length: at least 1 0",
    "mask_from_additive(torch.tensor([0, -1e9]))": "bias: 0 and -inf -1000000000.0 masked_fill",
    "mask_from_additive(torch.tensor([0, math.inf]))": "bias: inf",
    "mask_from_additive(torch.tensor([0, math.nan]))": "bias: nan",
    "SingleHeadAttention(0)": "d_model: at least 1 0",
    "SingleHeadAttention(4, 0)": "d_k: at least 1 0",
    "SingleHeadAttention(4, 3, -1)": "d_v: at least 1 -1",
    "one(x(4))": "x: (batch, n, d_model) (4,)",
    "one(x(2, 3, 5, 4))": "x: rank 4 (2, 3, 5, 4) too many",
    "one(x(5, 3))": "x: d_model = 4 3 (5, 3)",
    "one(x(2, 0, 4))": "x: token (2, 0, 4)",
    "one(meta(5, 4))": "x: q_proj.weight cpu meta",
    "one(x(2, 5, 4), x(3, 4))": "context: 3 (3, 4) batch",
    "one(x(2, 5, 4), x(3, 5, 4))": "context: 2 (3, 5, 4)",
    "one(x(2, 5, 4), x(2, 5, 3))": "context: d_model = 4 3",
    "one(x(2, 5, 4), x(2, 3, 4), on(2, 3))": "mask: (2, 5, 3) (2, 3) mask[:, None, :]",
    "one(x(2, 5, 4), x(2, 3, 4), on(2, 7, 5, 3))": "mask: (2, 5, 3) (2, 7, 5, 3)",
    "Layer(6, 4, d_k=3, d_v=3, num_kv_heads=3)": "num_kv_heads: divides num_heads = 4 1, 2, 4",
    "Layer(6, 4)": "num_heads: d_model = 6 4 1, 2, 3, 6",
    "Layer(6, 0)": "num_heads: at least 1 0",
    "Layer(-6, 2)": "d_model: at least 1 -6",
    "Layer(6, 2, qdim=0)": "qdim: at least 1 0",
    "Layer(6, 2, vdim=-1)": "vdim: at least 1 -1",
    "Layer(6, 2, dropout=1.0)": "dropout: 0 <= p < 1 1.0",
    "itself(x(6))": "query: (batch, n, qdim) (6,)",
    "itself(x(2, 2, 5, 6))": "query: rank 4",
    "itself(x(2, 5, 7))": "query: qdim = 6 7",
    "itself(x(2, 0, 6))": "query: token (2, 0, 6)",
    "itself(meta(2, 5, 6))": "query: cpu meta",
    "many(x(2, 5, 6), x(2, 3, 6), x(2, 3, 11))": "key: kdim = 7 6",
    "many(x(2, 5, 6), x(2, 3, 7), x(2, 3, 7))": "value: vdim",
    "many(x(2, 5, 6), x(2, 3, 7))": "value: vdim = 11 Pass value",
    "many(x(2, 5, 6))": "key: kdim = 7 6",
    "many(x(2, 5, 6), x(2, 3, 7), x(2, 5, 11))": "value: 3 (2, 5, 11) one sequence",
    "itself(x(2, 5, 6), x(3, 5, 6))": "key: 2 3 batch_first",
    "itself(x(2, 5, 6), x(5, 6))": "key: 3 (5, 6) batch axis",
    "second(x(5, 2, 6), x(7, 3, 6))": "key: 2 (7, 3, 6) batch_first",
    "second(x(0, 2, 6))": "query: (0, 2, 6)",
    "itself(x(3, 5, 6), mask=on(3, 5))": "mask: (3, 2, 5, 5) (3, 5) padding_mask(lengths)",
    "itself(x(3, 5, 6), mask=on(3, 5, 5))": "mask: (3, 2, 5, 5) (3, 5, 5) mask[:, None]",
    "itself(x(3, 5, 6), mask=meta(5, 5).bool())": "mask: cpu meta",
    "second(x(5, 3, 6), mask=on(5, 3))": "mask: (3, 2, 5, 5) (5, 3)",
    "Layer.from_torch(nn.MultiheadAttention(6, 2, add_bias_kv=True))": "module: add_bias_kv",
    "Layer.from_torch(nn.MultiheadAttention(6, 2, add_zero_attn=True))": "module: add_zero_attn",
    "Layer(6, 2, score=scores).to_torch()": "score: None scaled_dot_product_scores",
    "Layer(6, 2, qdim=7).to_torch()": "qdim: 6 7",
    "AdditiveScore(0, 3)": "d_k: at least 1 0",
    "additive(x(5, 3), x(7, 3))": "query: d_k = 4 3",
    "additive(x(5, 4), x(7, 3))": "key: d_k = 4 3",
    "additive(x(4), x(7, 4))": "query: rank 1",
    "additive(x(5, 4), x(0, 4))": "key: token",
    "additive(meta(5, 4), meta(7, 4))": "query: cpu meta",
    "RelativePositionBias(0, 3)": "num_heads: at least 1 0",
    "RelativePositionBias(2, 0)": "max_distance: at least 1 0",
    "relative(x(5, 4), x(7, 4))": "query: num_heads = 2 (5, 4) split",
    "relative(x(2, 3, 5, 4), x(2, 3, 7, 4))": "query: num_heads = 2",
    "relative(x(2, 0, 4), x(2, 7, 4))": "query: token",
    "sinusoidal_positions(0, 4)": "n: at least 1",
    "sinusoidal_positions(3, 5)": "d_model: an even number, got 5",
    "apply_rotary(x(4))": "x: a tensor of shape (..., n, d)",
    "apply_rotary(x(3, 5))": "x: a last axis of even width",
    "apply_rotary(x(0, 4))": "x: at least one token",
    "apply_rotary(x(3, 4), layout='half')": "layout: 'pairs' or 'halves'",
    "apply_rotary(x(3, 4), base=-1)": "base: a number above 0",
    "apply_rotary(x(3, 4), torch.arange(2))": "positions: one for each",
    "apply_rotary(x(3, 4), x(2, 3))": "positions: a tensor of",
    "apply_rotary(x(2, 3, 4), x(5, 3))": "positions: axes that broadcast (2,) (5, 3). positions[:, None]",
    "apply_rotary(x(5, 3, 4), x(2, 3))": "positions: axes that broadcast (5,) (2, 3). positions[:, None]",
    "apply_rotary(x(3, 4), torch.arange(3, device='meta'))": "positions: the device of x",
    "Rotary(layout='neox')": "layout: 'pairs' or 'halves'",
    "Rotary(base=500, frequencies=x(2))": "base: beside frequencies 500 rotary_frequencies(width, base=...)",
    "Rotary(frequencies=x(1, 2))": "frequencies: (pairs,) rank 2",
    "Rotary(frequencies=x(0))": "frequencies: one pair",
    "Rotary(attention_factor=0)": "attention_factor: above 0",
    "apply_rotary(x(3, 5), frequencies=x(3))": "x: 2 numbers 3 frequencies 5 (3, 5)",
    "rotary_frequencies(5)": "width: an even number",
    "rotary_frequencies(4, factor=0)": "factor: above 0",
    "yarn_frequencies(4, -1, 9)": "factor: above 0",
    "yarn_frequencies(4, 2, 9, base=1)": "base: above 1",
    "yarn_frequencies(4, 2, 9, beta_fast=1)": "beta_fast: above 1",
    "yarn_attention_factor(0)": "factor: above 0",
    "Rotary()(x(3, 5), x(3, 5))": "query: even width 5 (3, 5)",
    "Layer(6, 2, transform=Rotary())(x(2, 5, 6))": "query: even width 3 (2, 2, 5, 3)",
    "RotaryScore()(x(2, 5, 4), x(3, 5, 4))": "key: (2,) (3, 5, 4) same batch",
    "QueryKeyNorm(4, eps=-1e-6)": "eps: at least 0 -1e-06",
    "Layer(8, 4, score=AlibiScore(3))": "score: num_heads = 4 layer 3",
    "Layer(8, 4, score=RelativePositionBias(3, 2))": "score: num_heads = 4 layer 3",
    "Rotary()(x(3, 4), x(3, 6))": "key: the width of query",
    "QueryKeyNorm(4)(x(3, 6), x(3, 6))": "query: d_k = 4 6 (3, 6)",
    "QueryKeyNorm(4)(x(3, 4), x(3, 6))": "key: the width of query",
    "alibi_slopes(0)": "num_heads: at least 1",
    "alibi_bias(2, 3, 0)": "n_key: at least 1",
    "AlibiScore(2)(x(1, 3, 5, 4), x(1, 3, 5, 4))": "query: shape (..., num_heads = 2, n, d_k)",
    "AlibiScore(2)(x(5, 4), x(5, 4))": "query: num_heads = 2 (5, 4) split",
    "Layer(6, 2, score=lambda q, k: q @ k.mT[..., :-1])(x(2, 5, 6))": "score: (2, 2, 5, 5) (2, 2, 5, 4)",
    "Layer(6, 2, score=lambda q, k: (q @ k.mT)[:, 0])(x(2, 5, 6))": "score: (2, 2, 5, 5) (2, 5, 5)",
    "Layer(8, 2, transform=lambda q, k: (q, k[..., :1]))(x(2, 5, 8))": "transform: (2, 2, 5, 4) (2, 2, 5, 1)",
    "Layer(6, 2, mask=lambda n, m, device: on(n, 3))(x(2, 5, 6))": "mask: (2, 2, 5, 5) (5, 3)",
    "SlidingWindow(0)": "window: at least 1 0",
    "Layer(6, 4, d_k=5)": "num_heads: divides d_model = 6",
    "Layer(6, 2, d_k=5).to_torch()": "d_k: 3 5",
    "Layer(6, 2, d_v=5).to_torch()": "d_v: 3 5",
    "Layer(6, 2, transform=Rotary()).to_torch()": "transform: None Rotary",
    "Layer(6, 2, score=AdditiveScore(3, 5)).to_torch()": "score: None AdditiveScore",
    "Layer(6, 2, mask=SlidingWindow(3)).to_torch()": "mask: None SlidingWindow(window=3)",
    "ModernAttention(6, 2, sinks=True).to_torch()": "sinks: None Parameter",
    "ModernAttention(6, 2, gate=True).to_torch()": "gate_proj: None Linear",
}

FORMAT = r"^[\w. ]+: expected .+, got .+\.( .+[.?])?$"
READS = "causal_mask padding_mask mask_from_additive apply_rotary Rotary( =lambda _torch("
HARMLESS = "transpose unflatten view squeeze _local_scalar_dense min max lift_fresh detach is_same_size "
HARMLESS += "alias _to_copy ones empty uniform_ zero_ zeros fill_ normal_"


class Computes(TorchDispatchMode):
    """Records every operation that reaches PyTorch, but for those that only look or make the arguments."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.__name__.split(".")[0]
        if name not in HARMLESS.split():
            self.seen.append(name)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("error", "call", "says"),
    [(TypeError, *case) for case in TYPE_ERRORS.items()] + [(ValueError, *c) for c in VALUE_ERRORS.items()],
)
def test_the_message_names_the_argument_and_the_mistake_before_anything_is_computed(error, call, says):
    with Computes() as computed, pytest.raises(error) as caught:
        eval(call, NAMES)
    message = str(caught.value)
    who, *parts = says.split(" ")
    assert type(caught.value) is error
    assert message.startswith(who)
    assert re.match(FORMAT, message), message
    assert [part for part in parts if part not in message] == [], message
    assert not computed.seen or any(name in call for name in READS.split())


SCALED = {  # every way in for a scale
    "scores": lambda q, k, v, scale: scores(q, k, scale=scale),
    "attention": lambda q, k, v, scale: attention(q, k, v, scale=scale),
    "a mask": lambda q, k, v, scale: attention(q, k, v, on(5, 3), scale=scale),
    "dropout": lambda q, k, v, scale: attention(q, k, v, scale=scale, dropout_p=0.1),
    "axes that broadcast": lambda q, k, v, scale: attention(q[None], k, v, scale=scale),
    "flash_attention": lambda q, k, v, scale: flash_attention(q, k, v, scale=scale),
    "explore.query": lambda q, k, v, scale: mha_course.explore.query(x(3, 2), x(3, 2), scale=scale),
    "assigned": lambda q, k, v, scale: setattr(mha_course.explore.query(x(3, 2), x(3, 2)), "scale", scale),
}
NOT_FINITE = (math.nan, math.inf, -math.inf, 10**400)
NO_NUMBERS = (True, torch.tensor(0.5), torch.tensor([0.5, 0.5]), "x")
CONTEXTS = (nullcontext, torch.no_grad, partial(torch.autocast, "cpu", torch.bfloat16))


@pytest.mark.parametrize("entry", SCALED)
def test_a_wrong_scale_is_refused_on_every_way_and_any_other_taken(entry):
    for gradient, context in product((True, False), CONTEXTS):
        tensors = [torch.ones(n, 4, requires_grad=gradient) for n in (5, 3, 3)]
        for error, wrong in ((ValueError, NOT_FINITE), (TypeError, NO_NUMBERS)):
            for scale in wrong:
                with context(), pytest.raises(error, match=r"^scale: expected a .*number") as caught:
                    SCALED[entry](*tensors, scale)
                assert type(caught.value) is error
        for scale in (1, -2.0, 0.0) if entry == "assigned" else (None, 1, -2.0, 0.0):
            with context():
                SCALED[entry](*tensors, scale)


# Properties: any sizes at all give a result of the right shape or one of the messages above.

size = st.integers(0, 4)
sizes = st.lists(size, max_size=5).map(tuple)
dtypes = st.sampled_from([torch.float32, torch.float64, torch.bool, torch.int64, torch.float16])
quick = settings(max_examples=300, deadline=None)


def attempt(call):
    """The result, or ``None`` where the package refused; any other error is a failure."""
    try:
        return call()
    except (TypeError, ValueError) as error:
        if re.match(FORMAT, str(error)):
            return None
        raise


def broadcast(*shapes):
    """What ``torch.broadcast_shapes`` says, or ``None``."""
    try:
        return tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        return None


@quick
@given(sizes, sizes)
def test_scores_are_refused_exactly_where_they_make_no_sense(q, k):
    result = attempt(lambda: scores(x(*q), x(*k)))
    fits = len(q) >= 2 and len(k) >= 2 and q[-1] == k[-1] and q[-1] and q[-2] and k[-2]
    lead = broadcast(q[:-2], k[:-2]) if fits else None
    assert (result is not None) == (lead is not None)
    if result is not None:
        assert result.shape == (*lead, q[-2], k[-2])


@quick
@given(sizes, sizes)
def test_masks_are_refused_exactly_where_they_do_not_broadcast(s, m):
    result = attempt(lambda: masked_softmax(x(*s), on(*m)))
    fits = len(s) >= 2 and s[-1] and s[-2] and broadcast(s, m) == s
    assert (result is not None) == bool(fits)
    if result is not None:
        assert result.shape == s


@quick
@given(st.tuples(size, size, size), st.tuples(size, size, size), st.tuples(size, size, size), sizes)
@example((0, 1, 1), (0, 1, 1), (0, 1, 0), ())  # nothing to infer an axis from
def test_attention_is_refused_exactly_where_it_makes_no_sense(q, k, v, m):
    result = attempt(lambda: attention(x(*q), x(*k), x(*v), on(*m)))
    lead = broadcast(q[:1], k[:1], v[:1])
    scored = broadcast(q[:1], k[:1])
    fits = lead is not None and q[2] == k[2] and v[1] == k[1] and q[2] and q[1] and k[1]
    fits = fits and broadcast((*scored, q[1], k[1]), m) == (*scored, q[1], k[1])
    assert (result is not None) == bool(fits)
    if result is not None:
        assert result[0].shape == (*lead, q[1], v[2])


@quick
@given(dtypes, dtypes, dtypes, st.one_of(st.none(), dtypes))
def test_one_floating_dtype_and_a_boolean_mask(q, k, v, m):
    mask = None if m is None else x(5, 3, dtype=m)
    result = attempt(lambda: attention(x(5, 4, dtype=q), x(3, 4, dtype=k), x(3, 2, dtype=v), mask))
    assert (result is not None) == (q == k == v and q.is_floating_point and m in (None, torch.bool))
    if result is not None:
        assert result[0].dtype == result[1].dtype == q


@quick
@given(sizes, st.integers(-3, 9))
def test_heads_are_refused_exactly_where_they_do_not_divide(s, heads):
    result = attempt(lambda: split_heads(x(*s), heads))
    fits = len(s) >= 2 and s[-2] and s[-1] and heads >= 1 and s[-1] % heads == 0
    assert (result is not None) == bool(fits)
    if result is not None:
        assert result.shape == (*s[:-2], heads, s[-2], s[-1] // heads)
        assert torch.equal(merge_heads(result), x(*s))


@quick
@given(sizes, st.one_of(st.none(), sizes), st.one_of(st.none(), sizes))
def test_the_layer_takes_two_shapes_and_refuses_all_others(q, k, m):
    layer = Layer(4, 2, kdim=4 if k is None else 3, vdim=4 if k is None else 3)
    key = None if k is None else x(*k)
    result = attempt(lambda: layer(x(*q), key, mask=None if m is None else on(*m)))
    k = q if k is None else k
    fits = len(q) in (2, 3) and len(q) == len(k) and q[-1] == 4 and k[-1] == layer.kdim
    fits = fits and q[:-2] == k[:-2] and q[-2] and k[-2]
    target = (*q[:-2], 2, q[-2], k[-2]) if fits else ()
    fits = fits and (m is None or broadcast(target, m) == target)
    assert (result is not None) == bool(fits)
    if result is not None:
        assert result[0].shape == q
        assert result[1].shape == target
