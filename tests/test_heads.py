"""Splitting and merging heads, element by element."""

import pytest
import torch
from einops import rearrange

from mha_lab import merge_heads, split_heads


@pytest.mark.parametrize("leading", [(), (2,), (2, 3)])
@pytest.mark.parametrize("heads", [1, 5, 7, 35])
def test_every_element_goes_where_the_formula_says(leading, heads):
    x = torch.randn(*leading, 11, 35)
    split = split_heads(x, heads)
    d_k = 35 // heads
    for h in range(heads):
        for c in range(d_k):
            assert torch.equal(split[..., h, :, c], x[..., h * d_k + c])
    assert torch.equal(split, rearrange(x, "... n (h c) -> ... h n c", h=heads))
    assert torch.equal(merge_heads(split), x)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float16, torch.complex64])
def test_any_dtype_can_be_split(dtype):
    x = torch.ones(2, 3, 4, dtype=dtype)
    assert merge_heads(split_heads(x, 2)).dtype == dtype


def test_splitting_copies_nothing():
    x = torch.randn(2, 5, 6)
    assert split_heads(x, 3).data_ptr() == x.data_ptr()


def test_a_transposed_input_is_split_all_the_same():
    x = torch.randn(5, 2, 6).transpose(0, 1)
    assert torch.equal(split_heads(x, 3), split_heads(x.contiguous(), 3))
