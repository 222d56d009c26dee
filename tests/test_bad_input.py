"""Wrong arguments: the error's class, and a message that says expected, got and the likely mistake.

These run without the jaxtyping checker, which would answer before the package does.
"""

import inspect
import math
import pkgutil
import re
from contextlib import nullcontext
from functools import partial
from importlib import import_module

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import mha_lab
from mha_lab import (
    AdditiveScore,
    MultiHeadAttention,
    RelativePositionBias,
    SingleHeadAttention,
    causal_mask,
    explore,
    mask_from_additive,
    mask_from_blocked,
    mask_to_additive,
    mask_to_blocked,
    masked_softmax,
    merge_heads,
    padding_mask,
    scaled_dot_product_attention,
    scaled_dot_product_scores,
    split_heads,
)
from mha_lab.chapters.flash import flash_attention

pytestmark = pytest.mark.unchecked
FORMAT = r"^[\w. ]+: expected .+, got .+\.( .+[.?])?$"


class Computes(TorchDispatchMode):
    """Records every operation that reaches PyTorch, but for those that only look."""

    LOOKS = ("transpose", "unflatten", "view", "squeeze", "_local_scalar_dense", "min", "max", "lift_fresh")
    LOOKS += ("detach", "is_same_size", "alias", "_to_copy")

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.__name__.split(".")[0]
        if name not in self.LOOKS:
            self.seen.append(name)
        return function(*args, **(kwargs or {}))


def x(*sizes, dtype=torch.float32, device="cpu"):
    return torch.ones(sizes, dtype=dtype, device=device)


def on(*sizes):
    return torch.ones(sizes, dtype=torch.bool)


def meta(*sizes):
    return torch.ones(sizes, device="meta")


def double(*sizes):
    return torch.ones(sizes, dtype=torch.float64)


def whole(*sizes):
    return torch.ones(sizes, dtype=torch.int64)


one = SingleHeadAttention(4, 3)
many = MultiHeadAttention(6, 2, kdim=7, vdim=11)
itself = MultiHeadAttention(6, 2)
second = MultiHeadAttention(6, 2, batch_first=False)
additive = AdditiveScore(4, 5)
relative = RelativePositionBias(2, 3)
scores, attention = scaled_dot_product_scores, scaled_dot_product_attention

# name: (call, error, what the message must hold: who, expected, got, likely mistake)
CASES = {
    # scaled_dot_product_scores
    "scores: a list": (lambda: scores([[1.0]], x(3, 4)), TypeError, "query: torch.Tensor list torch.tensor"),
    "scores: None": (lambda: scores(x(5, 4), None), TypeError, "key: torch.Tensor NoneType"),
    "scores: rank 1": (
        lambda: scores(x(4), x(3, 4)),
        ValueError,
        "query: (..., n_q, d_k) rank (4,) query[None]",
    ),
    "scores: whole numbers": (lambda: scores(whole(5, 4), x(3, 4)), TypeError, "query: int64 query.float()"),
    "scores: boolean key": (lambda: scores(x(5, 4), on(3, 4)), TypeError, "key: bool key.float()"),
    "scores: two dtypes": (lambda: scores(x(5, 4), double(3, 4)), TypeError, "key: float32 float64 key.to("),
    "scores: two devices": (
        lambda: scores(x(5, 4), meta(3, 4)),
        ValueError,
        "key: cpu meta key.to(query.device)",
    ),
    "scores: no query": (lambda: scores(x(0, 4), x(3, 4)), ValueError, "query: token (0, 4) empty"),
    "scores: no key": (lambda: scores(x(5, 4), x(0, 4)), ValueError, "key: token (0, 4) empty"),
    "scores: no width": (lambda: scores(x(5, 0), x(3, 0)), ValueError, "query: d_k (5, 0)"),
    "scores: other width": (lambda: scores(x(5, 4), x(3, 2)), ValueError, "key: 4 (3, 2) projected"),
    "scores: key transposed": (
        lambda: scores(x(5, 4), x(4, 3)),
        ValueError,
        "key: 4 (4, 3) transposed already",
    ),
    "scores: batches": (lambda: scores(x(2, 5, 4), x(3, 5, 4)), ValueError, "key: (2,) (3, 5, 4) same batch"),
    "scores: heads in one": (
        lambda: scores(x(2, 3, 5, 4), x(2, 5, 4)),
        ValueError,
        "key: (2, 3) heads split",
    ),
    "scores: scale a tensor": (
        lambda: scores(x(5, 4), x(3, 4), scale=x()),
        TypeError,
        "scale: Tensor .item()",
    ),
    "scores: scale a string": (lambda: scores(x(5, 4), x(3, 4), scale="1"), TypeError, "scale: number str"),
    "scores: scale True": (lambda: scores(x(5, 4), x(3, 4), scale=True), TypeError, "scale: number bool"),
    "scores: scale NaN": (lambda: scores(x(5, 4), x(3, 4), scale=math.nan), ValueError, "scale: finite nan"),
    "scores: scale inf": (lambda: scores(x(5, 4), x(3, 4), scale=math.inf), ValueError, "scale: finite inf"),
    # masked_softmax
    "softmax: a list": (lambda: masked_softmax([[1.0]]), TypeError, "scores: torch.Tensor list"),
    "softmax: rank 1": (lambda: masked_softmax(x(3)), ValueError, "scores: (..., n_q, n_k) (3,)"),
    "softmax: whole numbers": (lambda: masked_softmax(whole(5, 3)), TypeError, "scores: int64 .float()"),
    "softmax: no key": (lambda: masked_softmax(x(5, 0)), ValueError, "scores: (5, 0)"),
    "softmax: no query": (lambda: masked_softmax(x(0, 3)), ValueError, "scores: (0, 3)"),
    "softmax: mask a list": (lambda: masked_softmax(x(1, 1), [[True]]), TypeError, "mask: torch.Tensor list"),
    "softmax: mask of 0 and -inf": (
        lambda: masked_softmax(x(5, 3), x(5, 3)),
        TypeError,
        "mask: torch.bool float32 mask_from_additive",
    ),
    "softmax: mask of 0 and 1": (
        lambda: masked_softmax(x(5, 3), whole(5, 3)),
        TypeError,
        "mask: torch.bool int64 mask.bool() True",
    ),
    "softmax: mask elsewhere": (
        lambda: masked_softmax(x(5, 3), meta(5, 3).bool()),
        ValueError,
        "mask: cpu meta mask.to(device)",
    ),
    "softmax: mask transposed": (
        lambda: masked_softmax(x(5, 3), on(3, 5)),
        ValueError,
        "mask: (5, 3) (3, 5) mask.mT",
    ),
    "softmax: rows for (batch, n_q, n_k)": (
        lambda: masked_softmax(x(2, 5, 3), on(2, 3)),
        ValueError,
        "mask: (2, 5, 3) (2, 3) mask[:, None, :]",
    ),
    "softmax: rows for four axes": (
        lambda: masked_softmax(x(2, 7, 5, 3), on(2, 3)),
        ValueError,
        "mask: (2, 7, 5, 3) (2, 3) padding_mask(lengths) mask[:, None, None, :]",
    ),
    "softmax: no heads axis": (
        lambda: masked_softmax(x(2, 7, 5, 3), on(2, 5, 3)),
        ValueError,
        "mask: (2, 7, 5, 3) (2, 5, 3) heads mask[:, None]",
    ),
    "softmax: PyTorch's mask for each head": (
        lambda: masked_softmax(x(2, 7, 5, 3), on(14, 5, 3)),
        ValueError,
        "mask: (14, 5, 3) torch.nn.MultiheadAttention mask_from_blocked(mask).view(2, 7, 5, 3)",
    ),
    "softmax: heads axis too many": (
        lambda: masked_softmax(x(2, 5, 3), on(2, 1, 5, 3)),
        ValueError,
        "mask: (2, 5, 3) (2, 1, 5, 3) squeeze(-3)",
    ),
    "softmax: mask of other sizes": (
        lambda: masked_softmax(x(5, 3), on(4, 2)),
        ValueError,
        "mask: (5, 3) (4, 2) rows columns",
    ),
    # scaled_dot_product_attention
    "attention: a list": (
        lambda: attention(x(5, 4), x(3, 4), [[1.0]]),
        TypeError,
        "value: torch.Tensor list",
    ),
    "attention: value of rank 1": (lambda: attention(x(5, 4), x(3, 4), x(3)), ValueError, "value: rank (3,)"),
    "attention: value whole": (lambda: attention(x(5, 4), x(3, 4), whole(3, 2)), TypeError, "value: int64"),
    "attention: value double": (
        lambda: attention(x(5, 4), x(3, 4), double(3, 2)),
        TypeError,
        "value: float64",
    ),
    "attention: value elsewhere": (
        lambda: attention(x(5, 4), x(3, 4), meta(3, 2)),
        ValueError,
        "value: cpu meta",
    ),
    "attention: value longer than key": (
        lambda: attention(x(5, 4), x(3, 4), x(5, 2)),
        ValueError,
        "value: (..., 3, d_v) (5, 2) one sequence",
    ),
    "attention: value of another batch": (
        lambda: attention(x(2, 5, 4), x(2, 3, 4), x(7, 3, 2)),
        ValueError,
        "value: (2,) (7, 3, 2)",
    ),
    "attention: mask": (
        lambda: attention(x(5, 4), x(3, 4), x(3, 2), on(3, 5)),
        ValueError,
        "mask: (5, 3) mask.mT",
    ),
    "attention: mask not boolean": (
        lambda: attention(x(5, 4), x(3, 4), x(3, 2), x(5, 3)),
        TypeError,
        "mask: bool",
    ),
    "attention: dropout 1": (
        lambda: attention(x(5, 4), x(3, 4), x(3, 2), dropout_p=1.0),
        ValueError,
        "dropout_p: 1.0",
    ),
    "attention: dropout -1": (
        lambda: attention(x(5, 4), x(3, 4), x(3, 2), dropout_p=-0.1),
        ValueError,
        "dropout_p: 0 <= p < 1 -0.1",
    ),
    "attention: dropout a string": (
        lambda: attention(x(5, 4), x(3, 4), x(3, 2), dropout_p="0"),
        TypeError,
        "dropout_p: number str",
    ),
    "attention: scale NaN": (
        lambda: attention(x(5, 4), x(3, 4), x(3, 2), scale=math.nan),
        ValueError,
        "scale: finite nan",
    ),
    "attention: scale a tensor": (
        lambda: attention(x(5, 4), x(3, 4), x(3, 2), scale=x()),
        TypeError,
        "scale: Tensor .item()",
    ),
    # split_heads, merge_heads
    "split: a list": (lambda: split_heads([[1.0]], 1), TypeError, "x: torch.Tensor list"),
    "split: rank 1": (lambda: split_heads(x(6), 2), ValueError, "x: (..., n, d_model) rank (6,)"),
    "split: empty": (lambda: split_heads(x(2, 0, 6), 2), ValueError, "x: token (2, 0, 6)"),
    "split: does not divide": (lambda: split_heads(x(2, 5, 6), 4), ValueError, "num_heads: 6 4 1, 2, 3, 6"),
    "split: no width": (lambda: split_heads(x(2, 5, 0), 2), ValueError, "num_heads: 0 none"),
    "split: no head": (lambda: split_heads(x(2, 5, 6), 0), ValueError, "num_heads: at least 1 0"),
    "split: negative": (lambda: split_heads(x(2, 5, 6), -2), ValueError, "num_heads: at least 1 -2"),
    "split: a float": (lambda: split_heads(x(2, 5, 6), 6 / 3), TypeError, "num_heads: int float 2.0 //"),
    "split: True": (lambda: split_heads(x(2, 5, 6), True), TypeError, "num_heads: int bool True"),
    "merge: a list": (lambda: merge_heads([[[1.0]]]), TypeError, "x: torch.Tensor list"),
    "merge: rank 2": (lambda: merge_heads(x(5, 6)), ValueError, "x: (..., num_heads, n, d_k) (5, 6)"),
    "merge: empty": (lambda: merge_heads(x(2, 3, 0, 4)), ValueError, "x: (2, 3, 0, 4)"),
    # masks
    "causal: no query": (lambda: causal_mask(0), ValueError, "n_query: at least 1 0"),
    "causal: negative": (lambda: causal_mask(3, -1), ValueError, "n_key: at least 1 -1"),
    "causal: a float": (lambda: causal_mask(3.0), TypeError, "n_query: int float 3.0 //"),
    "causal: a tensor": (lambda: causal_mask(x(3, 3)), TypeError, "n_query: int Tensor (3, 3)"),
    "padding: a number": (lambda: padding_mask(3), TypeError, "lengths: list int"),
    "padding: a string": (lambda: padding_mask("23"), TypeError, "lengths: list str"),
    "padding: floats": (lambda: padding_mask([2.0]), TypeError, "lengths: int float"),
    "padding: a float tensor": (lambda: padding_mask(x(2)), TypeError, "lengths: whole float32"),
    "padding: a mask": (lambda: padding_mask(on(2)), TypeError, "lengths: whole bool mask[:, None, None, :]"),
    "padding: rank 2": (lambda: padding_mask(whole(2, 3)), ValueError, "lengths: (batch,) (2, 3)"),
    "padding: rank 0": (lambda: padding_mask(torch.tensor(3)), ValueError, "lengths: (batch,) rank 0"),
    "padding: no sample": (lambda: padding_mask([]), ValueError, "lengths: sample (0,)"),
    "padding: negative": (lambda: padding_mask([2, -1]), ValueError, "lengths: -1"),
    "padding: negative in a tensor": (lambda: padding_mask(torch.tensor([2, -1])), ValueError, "lengths: -1"),
    "padding: too long": (
        lambda: padding_mask([2, 7], 5),
        ValueError,
        "lengths: max_length = 5 7 x.shape[1]",
    ),
    "padding: all empty": (lambda: padding_mask([0, 0]), ValueError, "lengths: above 0 [0, 0] max_length"),
    "padding: width a float": (lambda: padding_mask([2], 5.0), TypeError, "max_length: int float //"),
    "padding: width 0": (lambda: padding_mask([0], 0), ValueError, "max_length: at least 1 0"),
    "from blocked: a list": (lambda: mask_from_blocked([True]), TypeError, "blocked: torch.Tensor list"),
    "from blocked: floats": (
        lambda: mask_from_blocked(x(2)),
        TypeError,
        "blocked: bool float32 mask_from_additive",
    ),
    "to blocked: a list": (lambda: mask_to_blocked([True]), TypeError, "mask: torch.Tensor list"),
    "to blocked: floats": (lambda: mask_to_blocked(x(2)), TypeError, "mask: bool float32 mask_from_additive"),
    "from additive: a list": (lambda: mask_from_additive([0.0]), TypeError, "bias: torch.Tensor list"),
    "from additive: boolean": (lambda: mask_from_additive(on(2)), TypeError, "bias: bool mask_from_blocked"),
    "from additive: whole": (lambda: mask_from_additive(whole(2)), TypeError, "bias: int64"),
    "from additive: -1e9": (
        lambda: mask_from_additive(torch.tensor([0, -1e9])),
        ValueError,
        "bias: 0 and -inf -1000000000.0 masked_fill",
    ),
    "from additive: NaN": (lambda: mask_from_additive(torch.tensor([0, math.nan])), ValueError, "bias: nan"),
    "from additive: +inf": (lambda: mask_from_additive(torch.tensor([0, math.inf])), ValueError, "bias: inf"),
    "to additive: a list": (lambda: mask_to_additive([True]), TypeError, "mask: torch.Tensor list"),
    "to additive: additive": (lambda: mask_to_additive(x(2)), TypeError, "mask: bool float32 as it is"),
    "to additive: int64": (
        lambda: mask_to_additive(on(2), torch.int64),
        TypeError,
        "dtype: int64 scores.dtype",
    ),
    "to additive: a string": (
        lambda: mask_to_additive(on(2), "float32"),
        TypeError,
        "dtype: torch.dtype float32",
    ),
    # SingleHeadAttention
    "one: width a float": (lambda: SingleHeadAttention(4.0), TypeError, "d_model: int float"),
    "one: width 0": (lambda: SingleHeadAttention(0), ValueError, "d_model: at least 1 0"),
    "one: d_k 0": (lambda: SingleHeadAttention(4, 0), ValueError, "d_k: at least 1 0"),
    "one: d_v negative": (lambda: SingleHeadAttention(4, 3, -1), ValueError, "d_v: at least 1 -1"),
    "one: a list": (lambda: one([[1.0] * 4]), TypeError, "x: torch.Tensor list"),
    "one: rank 1": (lambda: one(x(4)), ValueError, "x: (batch, n, d_model) (4,)"),
    "one: rank 4": (lambda: one(x(2, 3, 5, 4)), ValueError, "x: rank 4 (2, 3, 5, 4) too many"),
    "one: width": (lambda: one(x(5, 3)), ValueError, "x: d_model = 4 3 (5, 3)"),
    "one: empty": (lambda: one(x(2, 0, 4)), ValueError, "x: token (2, 0, 4)"),
    "one: whole": (lambda: one(whole(5, 4)), TypeError, "x: floating int64"),
    "one: double": (lambda: one(double(5, 4)), TypeError, "x: q_proj.weight float32 float64"),
    "one: elsewhere": (lambda: one(meta(5, 4)), ValueError, "x: q_proj.weight cpu meta"),
    "one: context without batch": (lambda: one(x(2, 5, 4), x(3, 4)), ValueError, "context: 3 (3, 4) batch"),
    "one: context of another batch": (
        lambda: one(x(2, 5, 4), x(3, 5, 4)),
        ValueError,
        "context: 2 (3, 5, 4)",
    ),
    "one: context of another width": (
        lambda: one(x(2, 5, 4), x(2, 5, 3)),
        ValueError,
        "context: d_model = 4 3",
    ),
    "one: mask": (
        lambda: one(x(2, 5, 4), x(2, 3, 4), on(2, 3)),
        ValueError,
        "mask: (2, 5, 3) (2, 3) mask[:, None, :]",
    ),
    "one: mask for many heads": (
        lambda: one(x(2, 5, 4), x(2, 3, 4), on(2, 7, 5, 3)),
        ValueError,
        "mask: (2, 5, 3) (2, 7, 5, 3)",
    ),
    "one: mask of floats": (lambda: one(x(5, 4), mask=x(5, 5)), TypeError, "mask: bool float32"),
    "one: mask a list": (lambda: one(x(5, 4), mask=[True]), TypeError, "mask: torch.Tensor list"),
    # MultiHeadAttention
    "many: does not divide": (
        lambda: MultiHeadAttention(6, 4),
        ValueError,
        "num_heads: d_model = 6 4 1, 2, 3, 6",
    ),
    "many: heads a float": (lambda: MultiHeadAttention(6, 2.0), TypeError, "num_heads: int float"),
    "many: no head": (lambda: MultiHeadAttention(6, 0), ValueError, "num_heads: at least 1 0"),
    "many: width": (lambda: MultiHeadAttention(-6, 2), ValueError, "d_model: at least 1 -6"),
    "many: width a string": (lambda: MultiHeadAttention("6", 2), TypeError, "d_model: int str"),
    "many: qdim": (lambda: MultiHeadAttention(6, 2, qdim=0), ValueError, "qdim: at least 1 0"),
    "many: kdim": (lambda: MultiHeadAttention(6, 2, kdim=7.0), TypeError, "kdim: int float"),
    "many: vdim": (lambda: MultiHeadAttention(6, 2, vdim=-1), ValueError, "vdim: at least 1 -1"),
    "many: dropout": (lambda: MultiHeadAttention(6, 2, dropout=1.0), ValueError, "dropout: 0 <= p < 1 1.0"),
    "many: dropout a bool": (
        lambda: MultiHeadAttention(6, 2, dropout=True),
        TypeError,
        "dropout: number bool",
    ),
    "many: score a string": (lambda: MultiHeadAttention(6, 2, score="dot"), TypeError, "score: callable dot"),
    "many: score a class": (
        lambda: MultiHeadAttention(6, 2, score=AdditiveScore),
        TypeError,
        "score: callable AdditiveScore AdditiveScore(...)",
    ),
    "many: a list": (lambda: itself([[1.0] * 6]), TypeError, "query: torch.Tensor list"),
    "many: rank 1": (lambda: itself(x(6)), ValueError, "query: (batch, n, qdim) (6,)"),
    "many: rank 4": (lambda: itself(x(2, 2, 5, 6)), ValueError, "query: rank 4"),
    "many: width of the query": (lambda: itself(x(2, 5, 7)), ValueError, "query: qdim = 6 7"),
    "many: empty": (lambda: itself(x(2, 0, 6)), ValueError, "query: token (2, 0, 6)"),
    "many: whole": (lambda: itself(whole(2, 5, 6)), TypeError, "query: floating int64"),
    "many: double": (lambda: itself(double(2, 5, 6)), TypeError, "query: q_proj.weight float64"),
    "many: elsewhere": (lambda: itself(meta(2, 5, 6)), ValueError, "query: cpu meta"),
    "many: key of another width": (
        lambda: many(x(2, 5, 6), x(2, 3, 6), x(2, 3, 11)),
        ValueError,
        "key: kdim = 7 6",
    ),
    "many: value of another width": (
        lambda: many(x(2, 5, 6), x(2, 3, 7), x(2, 3, 7)),
        ValueError,
        "value: vdim",
    ),
    "many: value left out": (lambda: many(x(2, 5, 6), x(2, 3, 7)), ValueError, "value: vdim = 11 Pass value"),
    "many: key and value left out": (lambda: many(x(2, 5, 6)), ValueError, "key: kdim = 7 6"),
    "many: value longer": (
        lambda: many(x(2, 5, 6), x(2, 3, 7), x(2, 5, 11)),
        ValueError,
        "value: 3 (2, 5, 11) one sequence",
    ),
    "many: batches": (lambda: itself(x(2, 5, 6), x(3, 5, 6)), ValueError, "key: 2 3 batch_first"),
    "many: ranks": (lambda: itself(x(2, 5, 6), x(5, 6)), ValueError, "key: 3 (5, 6) batch axis"),
    "many: batch second": (
        lambda: second(x(5, 2, 6), x(7, 3, 6)),
        ValueError,
        "key: 2 (7, 3, 6) batch_first",
    ),
    "many: batch second, empty": (lambda: second(x(0, 2, 6)), ValueError, "query: (0, 2, 6)"),
    "many: a row for each sample": (
        lambda: itself(x(3, 5, 6), mask=on(3, 5)),
        ValueError,
        "mask: (batch, heads, query, key) = (3, 2, 5, 5) (3, 5) padding_mask(lengths)",
    ),
    "many: a mask for each sample": (
        lambda: itself(x(3, 5, 6), mask=on(3, 5, 5)),
        ValueError,
        "mask: (3, 2, 5, 5) (3, 5, 5) mask[:, None]",
    ),
    "many: PyTorch's mask for each head": (
        lambda: itself(x(3, 5, 6), mask=on(6, 5, 5)),
        ValueError,
        "mask: (6, 5, 5) mask_from_blocked",
    ),
    "many: mask of floats": (
        lambda: itself(x(3, 5, 6), mask=x(5, 5)),
        TypeError,
        "mask: bool mask_from_additive",
    ),
    "many: mask of bytes": (
        lambda: itself(x(3, 5, 6), mask=whole(5, 5)),
        TypeError,
        "mask: bool mask.bool()",
    ),
    "many: mask elsewhere": (
        lambda: itself(x(3, 5, 6), mask=meta(5, 5).bool()),
        ValueError,
        "mask: cpu meta",
    ),
    "many: batch second, mask": (
        lambda: second(x(5, 3, 6), mask=on(5, 3)),
        ValueError,
        "mask: (3, 2, 5, 5) (5, 3)",
    ),
    "from torch: another layer": (
        lambda: MultiHeadAttention.from_torch(nn.Linear(2, 3)),
        TypeError,
        "module: torch.nn.MultiheadAttention Linear",
    ),
    "from torch: add_bias_kv": (
        lambda: MultiHeadAttention.from_torch(nn.MultiheadAttention(6, 2, add_bias_kv=True)),
        ValueError,
        "module: add_bias_kv",
    ),
    "from torch: add_zero_attn": (
        lambda: MultiHeadAttention.from_torch(nn.MultiheadAttention(6, 2, add_zero_attn=True)),
        ValueError,
        "module: add_zero_attn",
    ),
    "to torch: a score": (
        lambda: MultiHeadAttention(6, 2, score=scores).to_torch(),
        ValueError,
        "score: None scaled_dot_product_scores",
    ),
    "to torch: qdim": (lambda: MultiHeadAttention(6, 2, qdim=7).to_torch(), ValueError, "qdim: 6 7"),
    # AdditiveScore, RelativePositionBias
    "additive: d_k": (lambda: AdditiveScore(0, 3), ValueError, "d_k: at least 1 0"),
    "additive: hidden": (lambda: AdditiveScore(4, 3.5), TypeError, "hidden: int float"),
    "additive: a list": (lambda: additive([[1.0]], x(3, 4)), TypeError, "query: torch.Tensor list"),
    "additive: width": (lambda: additive(x(5, 3), x(7, 3)), ValueError, "query: d_k = 4 3"),
    "additive: widths": (lambda: additive(x(5, 4), x(7, 3)), ValueError, "key: d_k = 4 3"),
    "additive: rank": (lambda: additive(x(4), x(7, 4)), ValueError, "query: rank 1"),
    "additive: empty": (lambda: additive(x(5, 4), x(0, 4)), ValueError, "key: token"),
    "additive: double": (
        lambda: additive(double(5, 4), double(7, 4)),
        TypeError,
        "query: query_proj.weight float64",
    ),
    "additive: elsewhere": (lambda: additive(meta(5, 4), meta(7, 4)), ValueError, "query: cpu meta"),
    "relative: heads": (lambda: RelativePositionBias(0, 3), ValueError, "num_heads: at least 1 0"),
    "relative: distance": (lambda: RelativePositionBias(2, 0), ValueError, "max_distance: at least 1 0"),
    "relative: distance a float": (
        lambda: RelativePositionBias(2, 1.5),
        TypeError,
        "max_distance: int float",
    ),
    "relative: not split": (
        lambda: relative(x(5, 4), x(7, 4)),
        ValueError,
        "query: num_heads = 2 (5, 4) split",
    ),
    "relative: other heads": (
        lambda: relative(x(2, 3, 5, 4), x(2, 3, 7, 4)),
        ValueError,
        "query: num_heads = 2",
    ),
    "relative: double": (
        lambda: relative(double(2, 5, 4), double(2, 7, 4)),
        TypeError,
        "query: bias float64",
    ),
    "relative: empty": (lambda: relative(x(2, 0, 4), x(2, 7, 4)), ValueError, "query: token"),
}


@pytest.mark.parametrize(("call", "error", "says"), list(CASES.values()), ids=list(CASES))
def test_the_message_names_the_argument_and_the_mistake(call, error, says):
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    who, *parts = says.split(" ")
    assert type(caught.value) is error
    assert message.startswith(who)
    assert re.match(FORMAT, message), message
    for part in parts:
        assert part in message, f"{part!r} is not in: {message}"


# What follows the projections by its nature, or reads the values that it judges.
MAY_COMPUTE = (
    "padding:",
    "from additive:",
    "from torch:",
    "to torch:",
    "additive:",
    "relative:",
    "one:",
    "many:",
)


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith(MAY_COMPUTE)])
def test_nothing_is_computed_before_the_error(name):
    """Not one operation: the arguments are made first, then the call is watched."""
    assert_nothing_computed(CASES[name][0])


@pytest.mark.parametrize(
    "name", [n for n in CASES if n.startswith(("one:", "many:", "additive:", "relative:"))]
)
def test_no_projection_runs_before_the_error(name):
    assert_nothing_computed(CASES[name][0])


def assert_nothing_computed(call):
    """``call`` fails without an operation on data, once those that make its arguments are left out."""
    with Computes() as computed, pytest.raises((TypeError, ValueError)):
        call()
    made = {"ones", "_to_copy", "empty", "uniform_", "zero_", "zeros", "fill_", "normal_"}
    assert set(computed.seen) <= made, computed.seen


@pytest.mark.parametrize(
    ("returns", "error", "says"),
    [
        (lambda q, k: (q @ k.mT).tolist(), TypeError, "list"),
        (lambda q, k: (q @ k.mT).long(), TypeError, "torch.int64"),
        (lambda q, k: q @ k.mT[..., :-1], ValueError, "(2, 2, 5, 5), got (2, 2, 5, 4)"),
        (lambda q, k: (q @ k.mT)[:, 0], ValueError, "(2, 2, 5, 5), got (2, 5, 5)"),
    ],
)
def test_a_score_that_returns_something_else(returns, error, says):
    with pytest.raises(error, match=r"^score: expected a callable that returns .+, got .+\.") as caught:
        MultiHeadAttention(6, 2, score=returns)(x(2, 5, 6))
    assert says in str(caught.value)


# Every way in for a scale: all that is public and takes one, by each way through it.
WRONG_SCALES = {
    "NaN": (math.nan, ValueError),
    "inf": (math.inf, ValueError),
    "-inf": (-math.inf, ValueError),
    "an int beyond all floats": (10**400, ValueError),
    "True": (True, TypeError),
    "a tensor": (torch.tensor(0.5), TypeError),
    "a tensor of two": (torch.tensor([0.5, 0.5]), TypeError),
    "a string": ("x", TypeError),
}
SCALED = {
    "scaled_dot_product_scores": lambda q, k, v, scale: scores(q, k, scale=scale),
    "scaled_dot_product_attention": lambda q, k, v, scale: attention(q, k, v, scale=scale),
    "scaled_dot_product_attention, a mask": lambda q, k, v, scale: attention(q, k, v, on(5, 3), scale=scale),
    "scaled_dot_product_attention, dropout": lambda q, k, v, scale: attention(
        q, k, v, scale=scale, dropout_p=0.1
    ),
    "scaled_dot_product_attention, axes that broadcast": lambda q, k, v, scale: attention(
        q[None], k, v, scale=scale
    ),
    "flash_attention": lambda q, k, v, scale: flash_attention(q, k, v, scale=scale),
    "flash_attention, a mask": lambda q, k, v, scale: flash_attention(q, k, v, on(5, 3), scale=scale),
    "a layer with a score": lambda q, k, v, scale: MultiHeadAttention(
        4, 2, score=partial(scores, scale=scale)
    )(q),
    "a layer with a score, no weights": lambda q, k, v, scale: MultiHeadAttention(
        4, 2, score=partial(scores, scale=scale)
    )(q, need_weights=False),
    "query": lambda q, k, v, scale: explore.query(x(3, 2), x(3, 2), scale=scale),
    "query, assigned": lambda q, k, v, scale: setattr(explore.query(x(3, 2), x(3, 2)), "scale", scale),
}
MODES = {
    "no gradient": (False, nullcontext),
    "a gradient": (True, nullcontext),
    "no_grad": (True, torch.no_grad),
    "autocast": (True, partial(torch.autocast, "cpu", torch.bfloat16)),
    "autocast, no gradient": (False, partial(torch.autocast, "cpu", torch.bfloat16)),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wrong", WRONG_SCALES)
@pytest.mark.parametrize("entry", SCALED)
def test_a_wrong_scale_is_refused_on_every_way(entry, wrong, mode):
    (scale, error), (gradient, context) = WRONG_SCALES[wrong], MODES[mode]
    tensors = (torch.ones(n, 4, requires_grad=gradient) for n in (5, 3, 3))
    with context(), pytest.raises(error, match=r"^scale: expected a .*number, got .+\.") as caught:
        SCALED[entry](*tensors, scale)
    assert type(caught.value) is error


@pytest.mark.parametrize("scale", [None, 1, -2.0, 0.0])
@pytest.mark.parametrize("entry", [name for name in SCALED if "assigned" not in name])
def test_any_other_scale_is_taken(entry, scale):
    for gradient in (False, True):
        SCALED[entry](*(torch.ones(n, 4, requires_grad=gradient) for n in (5, 3, 3)), scale)


def test_every_public_function_that_takes_a_scale_is_above():
    modules = [import_module(m.name) for m in pkgutil.walk_packages(mha_lab.__path__, "mha_lab.")]
    takes = {
        name
        for module in modules
        for name, item in vars(module).items()
        if inspect.isfunction(item)
        and not name.startswith("_")
        and not module.__name__.rpartition(".")[2].startswith("_")  # checked before
        and "scale" in inspect.signature(item).parameters
    }
    assert takes == {name.split(",")[0] for name in SCALED if not name.startswith("a layer")}


def test_every_public_name_has_cases():
    heads = {
        "scaled_dot_product_scores": "scores",
        "masked_softmax": "softmax",
        "scaled_dot_product_attention": "attention",
        "split_heads": "split",
        "merge_heads": "merge",
        "causal_mask": "causal",
        "padding_mask": "padding",
        "mask_from_blocked": "from blocked",
        "mask_to_blocked": "to blocked",
        "mask_from_additive": "from additive",
        "mask_to_additive": "to additive",
        "SingleHeadAttention": "one",
        "MultiHeadAttention": "many",
        "AdditiveScore": "additive",
        "RelativePositionBias": "relative",
    }
    public = {name for name in mha_lab.__all__ if not inspect.ismodule(getattr(mha_lab, name))}
    assert set(heads) == public
    assert {name.split(":")[0] for name in CASES} - {"from torch", "to torch"} == set(heads.values())


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
@given(st.integers(-3, 12), st.integers(-3, 12))
def test_a_layer_is_refused_exactly_where_its_heads_do_not_divide(d_model, heads):
    layer = attempt(lambda: MultiHeadAttention(d_model, heads))
    assert (layer is not None) == (d_model >= 1 and heads >= 1 and d_model % heads == 0)


@quick
@given(st.lists(st.integers(-2, 5), max_size=4), st.one_of(st.none(), st.integers(-1, 6)))
def test_lengths_are_refused_exactly_where_no_mask_exists(lengths, width):
    result = attempt(lambda: padding_mask(lengths, width))
    fits = bool(lengths) and min(lengths) >= 0
    fits = fits and (max(lengths) >= 1 if width is None else width >= max(1, max(lengths)))
    assert (result is not None) == fits
    if result is not None:
        assert result.shape == (len(lengths), 1, 1, width or max(lengths))
        assert result.sum(dim=-1).flatten().tolist() == lengths


@quick
@given(st.integers(-2, 6), st.one_of(st.none(), st.integers(-2, 6)))
def test_causal_sizes_are_refused_exactly_below_one(n_query, n_key):
    result = attempt(lambda: causal_mask(n_query, n_key))
    assert (result is not None) == (n_query >= 1 and (n_key is None or n_key >= 1))
    if result is not None:
        wide = n_query if n_key is None else n_key
        assert result.shape == (n_query, wide)
        assert result[-1].all()
        assert result.sum() == sum(max(0, wide - distance) for distance in range(n_query))


@quick
@given(st.lists(st.sampled_from([0.0, -math.inf, -1e9, math.nan, 1.0]), max_size=4))
def test_additive_masks_are_refused_exactly_for_other_numbers(numbers):
    result = attempt(lambda: mask_from_additive(torch.tensor(numbers)))
    assert (result is not None) == all(number in (0.0, -math.inf) for number in numbers)
    if result is not None:
        assert result.tolist() == [number == 0 for number in numbers]


@quick
@given(sizes, st.one_of(st.none(), sizes), st.one_of(st.none(), sizes))
def test_the_layer_takes_two_shapes_and_refuses_all_others(q, k, m):
    layer = MultiHeadAttention(4, 2, kdim=4 if k is None else 3, vdim=4 if k is None else 3)
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
